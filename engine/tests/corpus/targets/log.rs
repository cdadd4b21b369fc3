//! Any bytes as the newest log, beside a good manifest.

use super::{HOUR, NOON, ROOT, look, measurements, object, open, patch, rows_of};
use arbitrary::{Result, Unstructured};
use ebbtide::fs::Fs;
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{Timestamp, Value};
use ebbtide::{BegunRequest, CollectionOptions};
use std::path::PathBuf;
use std::sync::OnceLock;

const HEADER: usize = 36;
const FRAME: usize = 36;

struct Sample {
    fs: SimFs,
    path: PathBuf,
    bytes: Vec<u8>,
    /// Payloads of whole records: of either collection, with other fields, and of both with a request.
    payloads: Vec<Vec<u8>>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let fs = SimFs::new(ROOT);
        let db = open(&fs).expect("open");
        let c = db.create_collection("c", CollectionOptions::new("t").meta_field("m").expire_after_seconds(86_400));
        let c = c.expect("create");
        c.insert_documents(&measurements(0..8, NOON - 2 * HOUR)).expect("insert");
        db.flush().expect("flush");
        let d = db.create_collection("d", CollectionOptions::new("t").span_seconds(60)).expect("create");
        c.insert_documents(&measurements(10..13, NOON - HOUR)).expect("insert");
        let more = object(vec![
            ("t", Value::Date(Timestamp::from_millis(NOON))),
            ("list", Value::Array(vec![Value::Int(1), Value::Null])),
            ("inner", object(vec![("a", Value::Binary(vec![0, 255]))])),
        ]);
        d.insert_documents(&[more]).expect("insert");
        c.insert_documents(&measurements(20..22, NOON - HOUR)).expect("insert");
        let BegunRequest::New(mut request) = db.begin_request([1; 32], [2; 32]).expect("begin") else {
            panic!("known")
        };
        let (of_c, of_d) = (measurements(30..32, NOON), measurements(40..41, NOON));
        let batch = db.write_batch().insert_documents("c", &of_c).insert_documents("d", &of_d);
        batch.commit_once(&mut request, b"reply").expect("insert");
        let fs = fs.fork();
        let is_log = |p: &PathBuf| p.extension().is_some_and(|e| e == "log");
        let path = fs.files().into_iter().filter(is_log).max().expect("a log");
        let bytes = fs.read(&path).expect("read");
        let mut payloads = Vec::new();
        let mut at = HEADER;
        while at + FRAME <= bytes.len() {
            let end = at + FRAME + word(&bytes, at) as usize;
            payloads.push(bytes[at + FRAME..end].to_vec());
            at = end;
        }
        Sample { fs, path, bytes, payloads }
    })
}

/// Makes the checksum of a frame's head hold at its place in the file with this header, and that of its payload if that is
/// to be decoded.
fn seal_frame(frame: &mut [u8], header: &[u8], at: usize, payload: bool) {
    if payload {
        let crc = crc32fast::hash(&frame[FRAME..]);
        frame[8..12].copy_from_slice(&crc.to_le_bytes());
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame[..4]);
    hasher.update(&frame[8..FRAME]);
    hasher.update(&header[HEADER - 4..HEADER]);
    hasher.update(&(at as u64).to_le_bytes());
    frame[4..8].copy_from_slice(&hasher.finalize().to_le_bytes());
}

fn seal_header(bytes: &mut [u8]) {
    if bytes.len() >= HEADER {
        let crc = crc32fast::hash(&bytes[..32]);
        bytes[32..HEADER].copy_from_slice(&crc.to_le_bytes());
    }
}

/// The sample with changes, under checksums that hold: of the heads, and mostly of the payloads too.
fn patched(sample: &Sample, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut bytes = sample.bytes.clone();
    let payloads = u.ratio(3, 4)?;
    patch(&mut bytes, u)?;
    seal_header(&mut bytes);
    let mut at = HEADER;
    while at + FRAME <= bytes.len() {
        let end = (at + FRAME).saturating_add(word(&bytes, at) as usize).min(bytes.len());
        let (before, frame) = bytes.split_at_mut(at);
        seal_frame(&mut frame[..end - at], before, at, payloads);
        at = end;
    }
    Ok(bytes)
}

/// Records in any order, of any collection, with payloads that are whole but perhaps of another collection.
fn made(sample: &Sample, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut bytes = sample.bytes[..HEADER].to_vec();
    let mut seq = u64::from_le_bytes(bytes[24..32].try_into().expect("8 bytes"));
    while !u.is_empty() && bytes.len() < 1 << 16 {
        let payload = u.choose(&sample.payloads)?;
        let synced =
            if u.ratio(1, 8)? { u.arbitrary()? } else { seq.wrapping_sub(u64::from(u.arbitrary::<u8>()? % 4)) };
        let mut frame = vec![0; FRAME];
        frame[..4].copy_from_slice(&u32::try_from(payload.len()).expect("short").to_le_bytes());
        let given = if u.ratio(1, 16)? { u.arbitrary()? } else { seq };
        frame[12..20].copy_from_slice(&given.to_le_bytes());
        let collection = if u.ratio(1, 16)? { u.arbitrary()? } else { u64::from(u.arbitrary::<u8>()? % 4) };
        frame[20..28].copy_from_slice(&collection.to_le_bytes());
        frame[28..36].copy_from_slice(&synced.to_le_bytes());
        frame.extend_from_slice(payload);
        seal_frame(&mut frame, &bytes, bytes.len(), true);
        if u.ratio(1, 12)? {
            frame.truncate(u.int_in_range(0..=frame.len())?);
        }
        bytes.extend(frame);
        seq = seq.wrapping_add(1);
    }
    Ok(bytes)
}

pub(super) fn run(data: &[u8]) {
    let sample = sample();
    let Some((mode, rest)) = data.split_first() else { return };
    let mut u = Unstructured::new(rest);
    let log = match mode % 3 {
        0 => Ok(rest.to_vec()),
        1 => patched(sample, &mut u),
        _ => made(sample, &mut u),
    };
    let Ok(log) = log else { return };
    let disk = sample.fs.fork();
    disk.tamper(&sample.path, |bytes| *bytes = log).expect("the log is there");
    look(&disk.fork());
    // What one open makes of it, the next one finds again.
    let Ok(db) = open(&disk) else { return };
    let first = rows_of(&db).expect("what was replayed can be read");
    drop(db);
    let second = rows_of(&open(&disk).expect("it opened before")).expect("what was replayed can be read");
    assert_eq!(first, second);
}
