//! Calls from async code: the runtime goes on, and nothing is half done when a future is dropped.

use crate::reading;
use ebbtide::bson::doc;
use ebbtide::ttl::Code;
use ebbtide::{Collection, CollectionOptions, Database, Documents, DocumentsOptions, ErrorKind, ScanRequest};
use serde::Serialize;
use std::future::Future;
use std::sync::mpsc;
use std::task::{Context, Waker};

#[derive(Serialize)]
struct Row {
    #[serde(serialize_with = "ebbtide::json::date::serialize")]
    t: ebbtide::ttl::Timestamp,
    v: i64,
}

fn rows(count: i64) -> Vec<Row> {
    (0..count).map(|v| Row { t: crate::at(v), v }).collect()
}

/// A runtime with one thread for async code, and one for what blocks: calls come one after the other.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap()
}

fn collection(folder: &tempfile::TempDir) -> (Database, Collection) {
    let db = Database::open(folder.path()).unwrap();
    let c = db.create_collection("c", CollectionOptions::new("t")).unwrap();
    (db, c)
}

#[test]
fn other_tasks_run_while_a_call_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let (db, c) = collection(&folder);
    runtime().block_on(async {
        let (go, wait) = mpsc::channel();
        let counting = c.clone();
        let waiting = db.offload(move |_| {
            wait.recv().unwrap();
            counting.insert_documents(&[reading(0, "roof", 1)])
        });
        // On one thread this would never come to its end if the call blocked it.
        let (stored, ()) = tokio::join!(waiting, async { go.send(()).unwrap() });
        assert_eq!(stored.unwrap(), 1);
        assert_eq!(c.insert_serialized_async(rows(10)).await.unwrap(), 10);
    });
    assert_eq!(c.snapshot().unwrap().count().unwrap(), 11);
}

#[test]
fn an_insert_whose_future_is_dropped_is_stored_as_a_whole_if_it_had_begun() {
    let folder = tempfile::tempdir().unwrap();
    let (db, c) = collection(&folder);
    runtime().block_on(async {
        drop(c.insert_serialized_async(rows(5)));
        let mut begun = Box::pin(c.insert_serialized_async(rows(100)));
        let _ = begun.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(begun);
        // There is one thread for such calls: this one comes behind the insert.
        let count = db.offload(|db| db.collection("c")?.snapshot()?.count()).await.unwrap();
        assert_eq!(count, 100);
    });
}

#[test]
fn a_scan_gives_every_row_and_ends_when_it_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let (db, c) = collection(&folder);
    runtime().block_on(async {
        for _ in 0..8 {
            c.insert_serialized_async(rows(50)).await.unwrap();
        }
        let snapshot = c.snapshot().unwrap();
        let mut scan = snapshot.scan_async(ScanRequest::default()).unwrap();
        let mut found = 0;
        while let Some(batch) = scan.next().await.unwrap() {
            found += batch.num_rows();
        }
        assert_eq!((found, scan.next().await.unwrap()), (400, None));
        let mut left = snapshot.scan_async(ScanRequest::default()).unwrap();
        assert!(left.next().await.unwrap().is_some());
        drop(left);
        // The scan has given its thread back, else this would wait for ever.
        assert_eq!(db.offload(|db| Ok(db.collections().len())).await.unwrap(), 1);
    });
}

#[test]
fn a_scan_that_breaks_off_is_an_error_and_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let (_db, c) = collection(&folder);
    let (started, other) = (runtime(), runtime());
    // Its runtime has ended before the scan can begin.
    let handle = started.handle().clone();
    started.shutdown_background();
    let mut scan = {
        let _inside = handle.enter();
        c.snapshot().unwrap().scan_async(ScanRequest::default()).unwrap()
    };
    let error = other.block_on(scan.next()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
}

#[test]
fn outside_of_a_runtime_a_call_says_what_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let (_db, c) = collection(&folder);
    let mut insert = Box::pin(c.insert_serialized_async(rows(1)));
    let polled = insert.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let message = match polled {
        std::task::Poll::Ready(Err(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(message.contains("inside a tokio runtime"), "{message}");
}

fn documents(folder: &tempfile::TempDir) -> (Database, Documents) {
    let db = Database::open(folder.path()).unwrap();
    let d = db.create_documents("d", DocumentsOptions::default()).unwrap();
    (db, d)
}

#[test]
fn documents_are_written_and_read_by_awaiting() {
    let folder = tempfile::tempdir().unwrap();
    let (db, d) = documents(&folder);
    let one = |id: i64, v: i64| doc! { "_id": id, "v": v };
    runtime().block_on(async {
        d.put_async(one(1, 1)).await.unwrap();
        d.put_async(one(1, 2)).await.unwrap();
        d.insert_async(one(2, 2)).await.unwrap();
        let taken = d.insert_async(one(2, 9)).await.unwrap_err();
        assert_eq!(taken.code(), Code::DuplicateKey);
        assert_eq!(d.put_many_async(vec![one(3, 3), one(4, 3)]).await.unwrap(), 2);
        let updated = d.update_async(4_i64, doc! { "$set": { "v": 4_i64 } }).await.unwrap();
        assert_eq!((updated.matched, updated.modified), (1, 1));
        assert!(d.delete_async(3_i64).await.unwrap());
        assert!(!d.delete_async(3_i64).await.unwrap());
        let found: Vec<ebbtide::bson::Document> = d.find_async(doc! { "v": { "$gte": 2_i64 } }).await.unwrap();
        assert_eq!(found, [one(1, 2), one(2, 2), one(4, 4)]);
        let none: Option<ebbtide::bson::Document> = d.get_async(3_i64).await.unwrap();
        assert_eq!(none, None);
    });
    db.close().unwrap();
    let (_db, d) = documents(&folder);
    assert_eq!(d.snapshot().unwrap().count().unwrap(), 3);
}

#[test]
fn other_tasks_run_while_a_document_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (db, d) = documents(&folder);
    runtime().block_on(async {
        let (go, wait) = mpsc::channel();
        let waiting = db.offload(move |_| Ok(wait.recv().unwrap()));
        // There is one thread for calls that block: the write waits behind the first call, and the runtime goes on.
        let (done, put, ()) = tokio::join!(waiting, d.put_async(doc! { "_id": 1 }), async { go.send(7).unwrap() });
        assert_eq!((done.unwrap(), put.unwrap()), (7, 1.into()));
    });
}

#[test]
fn a_write_whose_future_is_dropped_is_done_if_it_had_begun() {
    let folder = tempfile::tempdir().unwrap();
    let (db, d) = documents(&folder);
    runtime().block_on(async {
        drop(d.put_async(doc! { "_id": 1 }));
        let mut begun = Box::pin(d.put_async(doc! { "_id": 2 }));
        let _ = begun.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(begun);
        let found = db.offload(|db| db.documents("d")?.find::<ebbtide::bson::Document>(&doc! {})).await.unwrap();
        assert_eq!(found, [doc! { "_id": 2 }]);
    });
}
