//! A damaged or forged segment is an error or the same data, never other data and never a panic.

use super::super::directory::Directory;
use super::*;
use crate::segment::seal_file;

fn small() -> BTreeMap<Vec<u8>, Row> {
    some(150, 10)
}

/// Everything that can be asked of a segment.
fn try_all(bytes: &[u8], rows: &BTreeMap<Vec<u8>, Row>) -> Result<(), SegmentError> {
    let reader = open(bytes)?;
    for (key, (written, _, document)) in rows {
        let found = reader.find_document(key)?.map(|(_, found)| (found.written, found.document.to_vec()));
        assert_eq!(found, Some((*written, document.clone())));
    }
    assert_eq!(scanned(&reader)?, *rows);
    Ok(())
}

#[test]
fn a_flipped_byte_is_an_error() {
    let rows = small();
    let mut bytes = write(&rows).unwrap().0;
    for at in 0..bytes.len() {
        for flip in [1_u8, 0x80] {
            bytes[at] ^= flip;
            match try_all(&bytes, &rows) {
                Err(error) => assert!(error.offset <= bytes.len() as u64 && error.name == "k1", "{error}"),
                // Nothing reads the first bytes but verification.
                Ok(()) => assert!(at < 4 && open(&bytes).unwrap().verify().is_err(), "byte {at}"),
            }
            bytes[at] ^= flip;
        }
    }
    assert_eq!(try_all(&bytes, &rows), Ok(()));
}

#[test]
fn verification_finds_every_flipped_byte() {
    let rows = small();
    let mut bytes = write(&rows).unwrap().0;
    for at in 0..bytes.len() {
        bytes[at] ^= 16;
        let found = open(&bytes).and_then(|reader| reader.verify());
        assert!(found.is_err(), "byte {at}");
        bytes[at] ^= 16;
    }
}

#[test]
fn a_damaged_page_is_named() {
    let rows = small();
    let mut bytes = write(&rows).unwrap().0;
    let reader = open(&bytes).unwrap();
    let place = reader.0.directory.groups[0].pages(Column::Document).place(0);
    bytes[usize::try_from(place.start).unwrap() + 30] ^= 4;
    let error = open(&bytes).unwrap().get(0).unwrap_err();
    assert_eq!(error.offset, place.start);
    let expected = format!("segment k1: offset {}: data: page 0 of column 3: checksum expected=0x", place.start);
    assert!(error.to_string().starts_with(&expected), "{error}");
    assert_eq!(open(&bytes).unwrap().verify(), Err(error));
}

#[test]
fn a_cut_file_is_an_error() {
    let rows = small();
    let bytes = write(&rows).unwrap().0;
    for len in 0..bytes.len() {
        assert!(try_all(&bytes[..len], &rows).is_err(), "{len}");
    }
    for extra in [&b"x"[..], b"PAR1", &[0; 100]] {
        assert!(try_all(&[&bytes, extra].concat(), &rows).is_err());
    }
    assert!(try_all(&[bytes.as_slice(), &bytes].concat(), &rows).is_err());
}

#[test]
fn a_segment_of_measurements_is_another_kind() {
    let accepted = crate::testing::accept(&crate::segment::tests::mixed_docs(), &crate::testing::schema());
    let (measurements, _) = crate::segment::tests::seal(&[(accepted.batch, accepted.schema)], 3600);
    let error = open(&measurements.bytes).unwrap_err().to_string();
    assert!(error.contains("footer: no key ebbtide.keyed"), "{error}");
    let documents = write(&small()).unwrap().0;
    let error = crate::segment::tests::open(&documents).unwrap_err().to_string();
    assert!(error.contains("footer: no key ebbtide.directory"), "{error}");
}

/// A segment whose directory says something else, with checksums that are right.
fn forged(change: impl FnOnce(&mut Directory)) -> Result<(), SegmentError> {
    let rows = small();
    let (bytes, _) = write(&rows).unwrap();
    let mut directory = open(&bytes).unwrap().0.directory.clone();
    change(&mut directory);
    let mut writer = KeyedWriter::new().unwrap();
    for (key, (written, ttl, document)) in &rows {
        writer.push(KeyedRow { key, written: *written, ttl: *ttl, document }).unwrap();
    }
    writer.close_group().unwrap();
    let encoded = directory.encode().unwrap();
    let place = format!("{},{},{:08x},1", writer.directory.data_end(), encoded.len(), crc32fast::hash(&encoded));
    let (bytes, _) = seal_file(writer.file, 0, &encoded, [(KEY_KEYED, place)]).unwrap();
    let reader = open(&bytes)?;
    for key in rows.keys() {
        let _found = reader.find_document(key);
        let _bound = reader.lower_bound(key);
    }
    (0..reader.rows()).for_each(|row| drop(reader.get(row)));
    let _scanned = reader.expiries().count();
    reader.verify()
}

#[test]
fn a_forged_directory_is_found() {
    assert_eq!(forged(|_| {}), Ok(()));
    type Forgery = fn(&mut Directory);
    let forgeries: [(&str, Forgery); 14] = [
        ("lives", |d| d.lives.written_min_inheriting = Some(0)),
        ("lives", |d| {
            d.lives.never -= 1;
            d.lives.own += 1;
        }),
        ("and lives of", |d| d.lives.own += 1),
        ("and lives of None", |d| d.lives.own = u64::MAX),
        ("first key", |d| d.first_key = vec![]),
        ("last key", |d| d.last_key.push(0)),
        ("150 rows in column 1, expected 151", |d| d.groups[0].columns[0].row_ends[1] += 1),
        ("has other pages in column 0", |d| d.groups[0].columns[0].row_ends[0] -= 1),
        ("checksum", |d| d.groups[0].columns[3].checksums[0] ^= 1),
        ("the data ends at", |d| d.groups[0].columns[3].ends[0] += 1),
        ("has other pages in column 0", |d| {
            d.groups[0].columns[0].ends.iter_mut().for_each(|end| *end += 1);
            d.groups[0].columns[1].ends.iter_mut().for_each(|end| *end -= 1);
        }),
        ("0 rows in 0 groups", |d| d.groups.clear()),
        ("300 rows in 2 groups", |d| d.groups.push(d.groups[0].clone())),
        ("is not found", |d| {
            let mut fences = super::super::directory::Fences::default();
            (0..d.groups[0].fences.count()).for_each(|n| fences.push(&[], &[b'v' + u8::try_from(n).unwrap()]));
            d.groups[0].fences = fences;
        }),
    ];
    for (expected, change) in forgeries {
        let error = forged(change).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn directories_of_any_bytes_decode_or_fail(mut raw in prop::collection::vec(any::<u8>(), 0..200), small in any::<bool>()) {
        if small {
            raw.iter_mut().for_each(|b| *b &= 3);
        }
        let mut framed = u32::try_from(raw.len()).unwrap().to_le_bytes().to_vec();
        framed.extend(zstd::bulk::compress(&raw, 1).unwrap());
        if let Ok(directory) = Directory::decode(&framed) {
            prop_assert_eq!(Directory::decode(&directory.encode().unwrap()), Ok(directory));
        }
    }
}
