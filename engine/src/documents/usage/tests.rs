use crate::{Database, DocumentsOptions, IndexSpec, UpdateRequest};
use ebbtide_documents::bson::RawBsonRef;
use ebbtide_documents::bson::rawdoc;
use ebbtide_ttl::{Timestamp, VirtualClock};
use std::sync::Arc;

#[test]
fn uses_are_counted_as_long_as_an_index_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let second = |n: i64| Timestamp::from_millis(n * 1000);
    let clock = VirtualClock::new(second(100));
    let open = || Database::builder(folder.path().join("db")).clock(Arc::new(clock.clone())).open().unwrap();
    let db = open();
    let on = |field: &str| IndexSpec {
        name: format!("by {field}"),
        key: vec![(field.to_owned(), 1)],
        expire_after_seconds: None,
        filter: None,
    };
    let with = |indexes: &[IndexSpec]| DocumentsOptions { indexes: indexes.to_vec(), ..DocumentsOptions::default() };
    let things = db.create_documents("things", with(&[on("a")])).unwrap();
    let documents = (0..2000).map(|n| Ok(rawdoc! { "_id": n, "a": n % 7, "b": n % 3 })).collect();
    things.insert_many(documents, true).unwrap();
    let uses = || {
        let uses = db.snapshot().documents("things").unwrap().index_uses();
        uses.into_iter().map(|used| (used.name, used.count, used.since)).collect::<Vec<_>>()
    };
    let used = |name: &str, count, since| (name.to_owned(), count, second(since));
    assert_eq!(uses(), [used("_id_", 0, 100), used("by a", 0, 100)]);

    clock.set(second(200));
    let indexes = [on("a"), on("b")];
    db.modify_documents("things", |options| {
        *options = with(&indexes);
        Ok(())
    })
    .unwrap();
    let snapshot = things.snapshot().unwrap();
    let mut cursor = snapshot.find(crate::FindRequest::new(&rawdoc! { "a": 3 }).unwrap());
    while !cursor.is_done() {
        cursor.next_batch(10, usize::MAX).unwrap();
    }
    snapshot.count_where(&rawdoc! { "b": 1 }).unwrap();
    snapshot.count_where(&rawdoc! { "c": 1 }).unwrap();
    snapshot.count_where(&rawdoc! { "_id": 1 }).unwrap();
    snapshot.clone().without_counting().count_where(&rawdoc! { "b": 1 }).unwrap();
    let change = rawdoc! { "$set": { "z": 1 } };
    let update = || UpdateRequest::new(rawdoc! { "a": 1 }, RawBsonRef::Document(&change), false, false);
    things.update_many(vec![update(), update()], true).unwrap();
    assert_eq!(uses(), [used("_id_", 1, 100), used("by a", 3, 100), used("by b", 1, 200)]);

    // One of the same name that is made anew begins anew.
    for indexes in [vec![on("b")], vec![on("b"), on("a")]] {
        clock.set(second(300));
        db.modify_documents("things", |options| {
            *options = with(&indexes);
            Ok(())
        })
        .unwrap();
    }
    assert_eq!(uses(), [used("_id_", 1, 100), used("by b", 1, 200), used("by a", 0, 300)]);
    db.close().unwrap();
    clock.set(second(400));
    let uses = open().snapshot().documents("things").unwrap().index_uses();
    assert!(uses.iter().all(|used| (used.count, used.since) == (0, second(400))), "{uses:?}");
}
