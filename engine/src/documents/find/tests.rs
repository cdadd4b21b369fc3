use super::*;
use crate::{Database, DocumentsOptions, OnConflict};
use ebbtide_documents::bson::rawdoc;

fn ids(batch: &[RawDocumentBuf]) -> Vec<i32> {
    batch.iter().map(|document| document.get_i32("_id").unwrap()).collect()
}

/// Every document, fetched in batches of this many.
fn fetched(cursor: &mut FindCursor, count: usize) -> Vec<i32> {
    let mut all = Vec::new();
    while !cursor.is_done() {
        let batch = cursor.next_batch(count, usize::MAX).unwrap();
        assert!(batch.len() <= count);
        all.extend(ids(&batch));
    }
    all
}

#[test]
fn batches_continue_where_the_last_one_ended() {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::open(folder.path().join("db")).unwrap();
    let things = db.create_documents("things", DocumentsOptions::default()).unwrap();
    let store = |ids: &mut dyn Iterator<Item = i32>| {
        let documents = ids.map(|id| rawdoc! { "_id": id, "r": id % 3 }).collect();
        things.store(documents, OnConflict::Replace).unwrap();
    };
    // In segments, in memory, and some in both.
    store(&mut (0..60).step_by(2));
    db.flush().unwrap();
    store(&mut (0..60).step_by(5));
    db.flush().unwrap();
    store(&mut (1..60).step_by(2));
    let expected: Vec<i32> = (0..60).collect();
    let snapshot = things.snapshot().unwrap();
    things.delete(0).unwrap(); // The snapshot keeps it.
    let request = |filter: &RawDocument| FindRequest::new(filter).unwrap();
    for count in [1, 7, 60, 1000] {
        assert_eq!(fetched(&mut snapshot.find(request(&rawdoc! {})), count), expected);
        let ids: Vec<i32> = (10..40).filter(|id| id % 3 == 1).collect();
        let filter = rawdoc! { "r": 1, "_id": { "$gte": 10, "$lt": 40 } };
        assert_eq!(fetched(&mut snapshot.find(request(&filter)), count), ids);
        let some = rawdoc! { "_id": { "$in": [50, 3, 99, 4] } };
        assert_eq!(fetched(&mut snapshot.find(request(&some)), count), [3, 4, 50]);
        for sort in [rawdoc! { "r": -1 }, rawdoc! { "r": -1, "_id": 1 }] {
            let mut sorted = request(&rawdoc! {}).sort(&sort).unwrap();
            (sorted.skip, sorted.limit) = (3, Some(40));
            let mut all = expected.clone();
            all.sort_by_key(|id| -(id % 3));
            assert_eq!(fetched(&mut snapshot.find(sorted), count), all[3..43]);
        }
        let mut window = request(&rawdoc! {});
        (window.skip, window.limit) = (5, Some(20));
        assert_eq!(fetched(&mut snapshot.find(window), count), expected[5..25]);
    }
}

#[test]
fn a_batch_is_bounded_by_bytes_and_a_sort_by_memory() {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::open(folder.path().join("db")).unwrap();
    let things = db.create_documents("things", DocumentsOptions::default()).unwrap();
    let documents = (0..50).map(|id| rawdoc! { "_id": id, "text": "x".repeat(1000) }).collect();
    things.store(documents, OnConflict::Refuse).unwrap();
    let snapshot = things.snapshot().unwrap();
    let mut cursor = snapshot.find(FindRequest::new(&rawdoc! {}).unwrap());
    assert_eq!(ids(&cursor.next_batch(100, 5000).unwrap()), [0, 1, 2, 3]);
    assert_eq!(ids(&cursor.next_batch(100, 10).unwrap()), [4], "at least one");
    let mut sort = FindRequest::new(&rawdoc! {}).unwrap().sort(&rawdoc! { "_id": -1 }).unwrap();
    sort.sort_bytes_max = 10_000;
    let error = snapshot.find(sort.clone()).next_batch(1, usize::MAX).unwrap_err();
    assert_eq!(error.code(), Code::ExceededMemoryLimit);
    sort.limit = Some(3);
    assert_eq!(ids(&snapshot.find(sort).next_batch(9, usize::MAX).unwrap()), [49, 48, 47]);
}

#[test]
fn what_takes_long_can_be_stopped_and_changes_nothing_then() {
    use crate::{DeleteRequest, UpdateRequest};
    use ebbtide_documents::bson::raw::RawBsonRef;
    use ebbtide_ttl::Code;
    use std::sync::atomic::{AtomicU32, Ordering};
    let folder = tempfile::tempdir().unwrap();
    let db = Database::open(folder.path().join("db")).unwrap();
    let things = db.create_documents("things", DocumentsOptions::default()).unwrap();
    let documents = (0..2000).map(|id| rawdoc! { "_id": id, "n": 1 }).collect();
    things.store(documents, OnConflict::Replace).unwrap();
    // Says stop when it was asked for the third time.
    let third = || {
        let asked = AtomicU32::new(0);
        Stop::when(move || asked.fetch_add(1, Ordering::Relaxed) >= 2)
    };
    let stopped = || things.snapshot().unwrap().with_stop(third());
    let everything = rawdoc! { "n": 1 };
    let mut cursor = things.snapshot().unwrap().find(FindRequest::new(&rawdoc! { "n": 2 }).unwrap());
    cursor.set_stop(third());
    let change = rawdoc! { "$set": { "n": 2 } };
    let update = || UpdateRequest::new(everything.clone(), RawBsonRef::Document(&change), true, false);
    let errors = [
        cursor.next_batch(10, usize::MAX).map(drop),
        stopped().count_where(&everything).map(drop),
        stopped().distinct("n", &everything).map(drop),
        stopped().for_each_where(&everything, &mut |_| Ok(true)).map(drop),
        things.clone().with_stop(third()).update_many(vec![update()], true).map(drop),
        things.clone().with_stop(third()).update_many(vec![update(), update(), update()], false).map(drop),
        things.clone().with_stop(third()).delete_many(vec![DeleteRequest::new(&everything, false)], true).map(drop),
    ];
    assert_eq!(errors.map(|error| error.unwrap_err().code()), [Code::Interrupted; 7]);
    assert_eq!(things.snapshot().unwrap().count_where(&everything).unwrap(), 2000);
    // What was prepared and not committed is stopped too, as is a command in the midst of its changes.
    let at_commit = || things.clone().with_stop(Stop::when(|| false).before_commit(|| true));
    let more = || (3000..6000).map(|id| rawdoc! { "_id": id, "n": 1 }).collect();
    let errors = [
        at_commit().update_many(vec![update()], true).map(drop),
        at_commit().delete_many(vec![DeleteRequest::new(&everything, false)], true).map(drop),
        at_commit().store(more(), OnConflict::Refuse).map(drop),
        at_commit().rewrite(&everything, true, |found| Ok(vec![crate::Rewrite::Remove; found.len()])).map(drop),
        things.clone().with_stop(third()).store(more(), OnConflict::Refuse).map(drop),
    ];
    assert_eq!(errors.map(|error| error.unwrap_err().code()), [Code::Interrupted; 5]);
    assert_eq!(things.snapshot().unwrap().count_where(&everything).unwrap(), 2000);
    // A handle that is not stopped goes on.
    assert_eq!(things.update_many(vec![update()], true).unwrap().modified, 2000);
}
