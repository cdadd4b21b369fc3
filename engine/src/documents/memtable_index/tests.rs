use crate::documents::memtable::Memtable;
use crate::documents::stored::{Stored, raw};
use bytes::Bytes;
use ebbtide_documents::bson::rawdoc;
use ebbtide_documents::{Interval, Path, index_keys, value_key};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Put(u16, Vec<i32>),
    Remove(u16),
    /// The same in a group, which is added afterwards.
    Group(Vec<(u16, Option<i32>)>),
    Freeze,
    Sealed,
    /// Searches in this version as well from now on.
    Keep,
}

/// Enough keys that the map has several levels of nodes. Only a few nodes change between two searches.
const KEYS: u16 = 3000;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..KEYS;
    let value = || 0..8_i32;
    prop::collection::vec(
        prop_oneof![
            6 => (key(), prop::collection::vec(value(), 0..3)).prop_map(|(key, values)| Step::Put(key, values)),
            3 => key().prop_map(Step::Remove),
            2 => prop::collection::vec((key(), prop::option::of(value())), 1..20).prop_map(Step::Group),
            1 => Just(Step::Freeze),
            1 => Just(Step::Sealed),
            1 => Just(Step::Keep),
        ],
        1..60,
    )
}

fn key(number: u16) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn stored(values: &[i32]) -> Stored {
    let document = match values {
        [one] => rawdoc! { "v": *one },
        several => rawdoc! { "v": several.iter().copied().collect::<ebbtide_documents::bson::RawArrayBuf>() },
    };
    Stored { written: 0, document: document.into_bytes().into() }
}

fn assert_found(memtable: &Memtable) {
    let path = Path::new("v");
    let has = |stored: &Stored, interval: &Interval| {
        index_keys(raw(&stored.document), &path).into_iter().any(|value| interval.contains(&value_key(value)))
    };
    for value in 0..8_i32 {
        let interval = Interval::point(value_key(rawdoc! { "v": value }.get("v").unwrap().unwrap()));
        let scanned = memtable.documents().filter(|(_, stored)| has(stored, &interval));
        let scanned: Vec<(Bytes, Stored)> = scanned.map(|(key, stored)| (key.clone(), stored.clone())).collect();
        let mut found = memtable.documents_by_index(&path, std::slice::from_ref(&interval));
        found.retain(|(_, stored)| has(stored, &interval));
        assert_eq!(found, scanned, "of {value}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn an_index_finds_what_a_scan_of_any_version_finds(steps in steps()) {
        let mut memtable = Memtable::default();
        for number in (0..KEYS).step_by(2) {
            memtable.put(key(number), stored(&[i32::from(number % 8)]), None);
        }
        let mut kept = memtable.clone();
        for step in steps {
            match step {
                Step::Put(number, values) => drop(memtable.put(key(number), stored(&values), None)),
                Step::Remove(number) => drop(memtable.remove(&key(number), None)),
                Step::Group(changes) => {
                    memtable.begin_group();
                    for (number, value) in changes {
                        match value {
                            Some(value) => drop(memtable.put(key(number), stored(&[value]), None)),
                            None => drop(memtable.remove(&key(number), None)),
                        }
                    }
                    assert_found(&memtable);
                    let group = memtable.take_group();
                    memtable.add_group(group);
                }
                Step::Freeze => memtable.freeze(),
                Step::Sealed => memtable.sealed(1),
                Step::Keep => kept = memtable.clone(),
            }
            assert_found(&memtable);
            assert_found(&kept);
        }
    }
}
