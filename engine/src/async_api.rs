//! Async versions of calls that block: they run on tokio's blocking threads.

use crate::db::{Collection, Database, Documents, Updated};
use crate::error::{Error, Result};
use crate::snapshot::{CollectionSnapshot, ScanRequest};
use arrow::record_batch::RecordBatch;
use ebbtide_documents::bson::{Bson, Document};
use ebbtide_ttl::Code;
use serde::Serialize;
use serde::de::DeserializeOwned;
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
        T: Serialize + Send + 'static,
    {
        let collection = self.clone();
        offload(move || collection.insert_serialized(&items)).await
    }
}

/// The calls of a session store, awaited. If the future of a write is dropped before it is polled, nothing is written; later the
/// write continues to its end.
///
/// ```
/// use ebbtide::bson::doc;
/// use ebbtide::{Database, DefaultTtl, DocumentsOptions};
///
/// # let folder = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let db = Database::open(folder.path().join("sessions"))?;
/// let options = DocumentsOptions { default_ttl: DefaultTtl::Seconds(30 * 60), ..DocumentsOptions::default() };
/// let sessions = db.create_documents("sessions", options)?;
///
/// sessions.put_async(doc! { "_id": "3f2a", "user": "ada", "visits": 1_i64 }).await?; // Durable when this is ready.
/// sessions.update_async("3f2a", doc! { "$inc": { "visits": 1_i64 } }).await?;
/// let session: Option<ebbtide::bson::Document> = sessions.get_async("3f2a").await?;
/// assert_eq!(session, Some(doc! { "_id": "3f2a", "user": "ada", "visits": 2_i64 }));
/// assert!(sessions.delete_async("3f2a").await?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Documents {
    /// Like [`Documents::get`], awaited.
    ///
    /// # Errors
    /// As for [`Documents::get`] and [`Database::offload`].
    pub async fn get_async<T>(&self, id: impl Into<Bson>) -> Result<Option<T>>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let (documents, id) = (self.clone(), id.into());
        offload(move || documents.get(id)).await
    }

    /// Like [`Documents::find`], awaited.
    ///
    /// # Errors
    /// As for [`Documents::find`] and [`Database::offload`].
    pub async fn find_async<T>(&self, filter: Document) -> Result<Vec<T>>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let documents = self.clone();
        offload(move || documents.find(&filter)).await
    }

    /// Like [`Documents::put`], awaited: the document is durable when this is ready.
    ///
    /// # Errors
    /// As for [`Documents::put`] and [`Database::offload`].
    pub async fn put_async<T: Serialize + Send + 'static>(&self, document: T) -> Result<Bson> {
        let documents = self.clone();
        offload(move || documents.put(&document)).await
    }

    /// Like [`Documents::put_many`], awaited: all documents are stored, or none.
    ///
    /// # Errors
    /// As for [`Documents::put_many`] and [`Database::offload`].
    pub async fn put_many_async<T: Serialize + Send + 'static>(&self, documents: Vec<T>) -> Result<u64> {
        let target = self.clone();
        offload(move || target.put_many(&documents)).await
    }

    /// Like [`Documents::insert`], awaited.
    ///
    /// # Errors
    /// As for [`Documents::insert`] and [`Database::offload`].
    pub async fn insert_async<T: Serialize + Send + 'static>(&self, document: T) -> Result<Bson> {
        let documents = self.clone();
        offload(move || documents.insert(&document)).await
    }

    /// Like [`Documents::update`], awaited.
    ///
    /// # Errors
    /// As for [`Documents::update`] and [`Database::offload`].
    pub async fn update_async(&self, id: impl Into<Bson>, update: Document) -> Result<Updated> {
        let (documents, id) = (self.clone(), id.into());
        offload(move || documents.update(id, &update)).await
    }

    /// Like [`Documents::delete`], awaited.
    ///
    /// # Errors
    /// As for [`Documents::delete`] and [`Database::offload`].
    pub async fn delete_async(&self, id: impl Into<Bson>) -> Result<bool> {
        let (documents, id) = (self.clone(), id.into());
        offload(move || documents.delete(id)).await
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
