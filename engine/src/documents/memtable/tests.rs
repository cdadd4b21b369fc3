use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    /// Puts a document under a key; the row of a segment that it replaces, if any.
    Put(u8, i64, Option<u32>),
    Remove(u8, Option<u32>),
    /// A change that is taken back at once, as that of a command that fails.
    Undone(u8, Option<i64>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0_u8..12;
    let row = || prop::option::weighted(0.3, 0_u32..20);
    prop::collection::vec(
        prop_oneof![
            4 => (key(), any::<i64>(), row()).prop_map(|(key, written, row)| Step::Put(key, written, row)),
            2 => (key(), row()).prop_map(|(key, row)| Step::Remove(key, row)),
            1 => (key(), any::<Option<i64>>()).prop_map(|(key, written)| Step::Undone(key, written)),
        ],
        0..40,
    )
}

fn run(memtable: &mut Memtable, steps: &[Step]) {
    let key = |key: u8| Bytes::copy_from_slice(&[key]);
    let stored = |written: i64| Stored { written, document: Bytes::from_static(b"document") };
    let at = |row: &Option<u32>| row.map(|row| (7, row));
    for (seq, step) in (1..).zip(steps) {
        match step {
            Step::Put(k, written, row) => drop(memtable.put(key(*k), stored(*written), at(row))),
            Step::Remove(k, row) => drop(memtable.remove(&key(*k), at(row))),
            Step::Undone(k, written) => {
                let replaced = match written {
                    Some(written) => memtable.put(key(*k), stored(*written), Some((7, 30))),
                    None => memtable.remove(&key(*k), Some((7, 30))),
                };
                memtable.put_back(key(*k), replaced);
                continue;
            }
        }
        memtable.note(seq);
    }
}

/// The documents of all keys.
fn found(memtable: &Memtable) -> Vec<Option<Stored>> {
    let document = |known| match known {
        Known::Document(stored) => Some(stored),
        Known::Removed | Known::Nothing => None,
    };
    (0_u8..12).map(|key| document(memtable.get(&[key]))).collect()
}

/// All that a memtable tells.
fn told(memtable: &Memtable) -> impl PartialEq + std::fmt::Debug + use<> {
    let documents: Vec<(Bytes, Stored)> = memtable.documents().map(|(k, s)| (k.clone(), s.clone())).collect();
    let known: Vec<Known> = (0_u8..12).map(|key| memtable.get(&[key])).collect();
    let after: Vec<Bytes> =
        memtable.documents_after(Some(&Bytes::from_static(&[5]))).map(|(key, _)| key.clone()).collect();
    let rows: Vec<bool> = (0..31).map(|row| memtable.is_superseded((7, row))).collect();
    (documents, known, after, memtable.superseded(7), rows, memtable.oldest_seq())
}

proptest! {
    /// Whether a group of changes is seen before it is added, or after, or was never apart: it is the same.
    #[test]
    fn a_group_comes_to_what_its_changes_come_to(sealed in steps(), settled in steps(), group in steps()) {
        let mut memtable = Memtable::default();
        run(&mut memtable, &sealed);
        memtable.freeze();
        run(&mut memtable, &settled);
        let before = told(&memtable);
        let mut copy = memtable.clone();
        copy.begin_group();
        run(&mut copy, &group);
        prop_assert_eq!(told(&memtable), before);
        let mut plain = memtable.clone();
        run(&mut plain, &group);
        let seen = |memtable: &Memtable| {
            let documents = memtable.documents().map(|(key, stored)| (key.clone(), stored.clone()));
            (documents.collect::<Vec<_>>(), found(memtable), memtable.superseded(7))
        };
        prop_assert_eq!(seen(&copy), seen(&plain));
        let changes = copy.take_group();
        memtable.add_group(changes);
        prop_assert_eq!(told(&memtable), told(&plain));
        prop_assert_eq!(memtable.bytes(), plain.bytes());
        prop_assert_eq!(memtable.is_frozen_empty(), plain.is_frozen_empty());
    }
}
