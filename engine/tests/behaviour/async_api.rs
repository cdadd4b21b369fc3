//! Calls from async code: the runtime goes on, and nothing is half done when a future is dropped.

use crate::reading;
use ebbtide::{Collection, CollectionOptions, Database, ErrorKind, ScanRequest};
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
