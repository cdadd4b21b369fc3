//! Async versions of calls that block: they run on tokio's blocking threads.

use crate::db::{Collection, Database};
use crate::error::{Error, Result};
use crate::snapshot::{CollectionSnapshot, ScanRequest};
use arrow::record_batch::RecordBatch;
use ebbtide_ttl::Code;
use tokio::sync::mpsc;

/// Batches that a scan has read ahead of its reader.
const READ_AHEAD: usize = 2;

/// Runs work where it may block.
async fn offload<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = runtime()?.spawn_blocking(work);
    done.await.unwrap_or_else(|error| match error.is_cancelled() {
        true => Err(Error::new(Code::Interrupted, "the tokio runtime was shut down before the work began")),
        false => Err(Error::internal(format!("the work has panicked: {error}"))),
    })
}

fn runtime() -> Result<tokio::runtime::Handle> {
    let handle = tokio::runtime::Handle::try_current();
    handle.map_err(|_| Error::new(Code::IllegalOperation, "this must be awaited inside a tokio runtime"))
}

impl Database {
    /// Runs blocking calls on the database and returns their result: for every call without an async version.
    ///
    /// Once polled, the work runs to its end, even if the future is dropped.
    ///
    /// # Errors
    /// Those of `work`; [`Code::IllegalOperation`] outside of a tokio runtime, [`Code::Interrupted`] if the runtime was shut
    /// down before the work began.
    pub async fn offload<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Database) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let database = self.clone();
        offload(move || work(&database)).await
    }
}

impl Collection {
    /// Like [`Collection::insert`], awaited: the batch is durable when this is ready.
    ///
    /// # Cancellation
    /// If the future is dropped before it is polled, nothing is stored. Later the insert continues, and stores all of the batch
    /// or, if it fails, none of it.
    ///
    /// # Errors
    /// As for [`Collection::insert`] and [`Database::offload`].
    pub async fn insert_async(&self, batch: RecordBatch) -> Result<u64> {
        let collection = self.clone();
        offload(move || collection.insert(&batch)).await
    }

    /// Like [`Collection::insert_serialized`], awaited. As safe to cancel as [`Collection::insert_async`].
    ///
    /// # Errors
    /// As for [`Collection::insert`] and [`Database::offload`].
    pub async fn insert_serialized_async<T>(&self, items: Vec<T>) -> Result<u64>
    where
        T: serde::Serialize + Send + 'static,
    {
        let collection = self.clone();
        offload(move || collection.insert_serialized(&items)).await
    }
}

impl CollectionSnapshot {
    /// Like [`CollectionSnapshot::scan`], read on one of tokio's blocking threads, up to two batches ahead of the caller.
    ///
    /// # Errors
    /// As for [`CollectionSnapshot::scan`], through the stream; [`Code::IllegalOperation`] outside of a tokio runtime.
    pub fn scan_async(&self, request: ScanRequest) -> Result<ScanStream> {
        let (sender, batches) = mpsc::channel(READ_AHEAD);
        let snapshot = self.clone();
        runtime()?.spawn_blocking(move || {
            let read = || -> Result<()> {
                for unit in snapshot.scan(&request)? {
                    for batch in unit.read()? {
                        // The stream was dropped.
                        if sender.blocking_send(Ok(Some(batch?))).is_err() {
                            return Ok(());
                        }
                    }
                }
                Ok(())
            };
            let end = read().map(|()| None);
            // Fails only if the stream was dropped.
            let _ = sender.blocking_send(end);
        });
        Ok(ScanStream { batches, ended: false })
    }
}

/// The rows of a scan, batch by batch. Dropping it ends the scan.
#[derive(Debug)]
pub struct ScanStream {
    /// Batches, and `None` after the last one, so that an interrupted scan can be told from a complete one.
    batches: mpsc::Receiver<Result<Option<RecordBatch>>>,
    ended: bool,
}

impl ScanStream {
    /// The next batch; `None` after the last. Safe to cancel: no batch is lost.
    ///
    /// # Errors
    /// As for [`CollectionSnapshot::scan`], and [`Code::Interrupted`] if the runtime was shut down meanwhile; nothing comes
    /// after an error.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if self.ended {
            return Ok(None);
        }
        let broken_off = || Err(Error::new(Code::Interrupted, "the scan was interrupted before its end: read again"));
        let next = self.batches.recv().await.unwrap_or_else(broken_off);
        self.ended = !matches!(next, Ok(Some(_)));
        next
    }
}
