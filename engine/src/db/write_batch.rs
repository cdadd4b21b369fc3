//! Inserts into several collections that are stored together.

use super::{Collection, Database};
use crate::documents::pace::Stop;
use crate::error::Error;
use crate::insert::Part;
use crate::requests::{self, BegunRequest, Request, RequestKey};
use crate::{Result, engine::Engine};
use arrow::array::RecordBatch;
use ebbtide_buckets::{Accepted, Measurement, Schema, batch_from_arrow, batch_from_documents, batch_from_measurements};
use ebbtide_ttl::{Code, Value};
use std::sync::Arc;

impl Database {
    /// Begins inserts into several time-series collections that are stored together, all of them or none.
    pub fn write_batch(&self) -> WriteBatch<'_> {
        WriteBatch { engine: &self.engine, inserts: Vec::new() }
    }

    /// Begins a request that may be sent more than once and is stored once: `key` identifies it, and `digest` is a checksum of
    /// its content that nobody can forge, such as its SHA-256. While another one with this key is under way, this waits for it.
    ///
    /// A key is known for an hour, and for another one after the database was opened; of more than 100,000 the oldest are
    /// forgotten.
    ///
    /// ```
    /// use ebbtide::ttl::{Timestamp, Value};
    /// use ebbtide::{BegunRequest, CollectionOptions, Database};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let db = Database::open(folder.path().join("db"))?;
    /// db.create_collection("inside", CollectionOptions::new("t"))?;
    /// db.create_collection("outside", CollectionOptions::new("t"))?;
    /// let reading = |temp: f64| {
    ///     let t = ("t".into(), Value::Date(Timestamp::from_millis(1_700_000_000_000)));
    ///     vec![Value::Object(vec![t, ("temp".into(), Value::Double(temp))])]
    /// };
    /// let (inside, outside) = (reading(21.5), reading(-3.0));
    /// let (key, digest) = ([1; 32], [2; 32]); // Checksums, in a real program.
    /// for attempt in 1..=2 {
    ///     match db.begin_request(key, digest)? {
    ///         BegunRequest::New(mut request) => {
    ///             let batch = db.write_batch().insert_documents("inside", &inside).insert_documents("outside", &outside);
    ///             assert_eq!((attempt, batch.commit_once(&mut request, b"done")?), (1, 2));
    ///         }
    ///         BegunRequest::Repeated(reply) => assert_eq!((attempt, reply.as_slice()), (2, b"done".as_slice())),
    ///         BegunRequest::OtherContent => panic!("the key was used for another request"),
    ///     }
    /// }
    /// assert_eq!(db.collection("inside")?.snapshot()?.count()?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Code::NotWritable`] and errors of reading and writing the keys.
    pub fn begin_request(&self, key: RequestKey, digest: [u8; 32]) -> Result<BegunRequest> {
        requests::begin(&self.engine, key, digest)
    }
}

type Build<'a> = Box<dyn Fn(&Schema, usize) -> Result<Accepted> + 'a>;

/// One insert of a batch.
struct Insert<'a> {
    collection: String,
    rows: usize,
    /// The batch of the first so many rows.
    build: Build<'a>,
}

/// Inserts into several time-series collections that are stored together: [`Database::write_batch`]. Each collection may be named
/// once.
#[must_use = "nothing is stored before the commit"]
pub struct WriteBatch<'a> {
    engine: &'a Arc<Engine>,
    inserts: Vec<Insert<'a>>,
}

impl std::fmt::Debug for WriteBatch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let inserts = self.inserts.iter().map(|insert| (&insert.collection, insert.rows));
        f.debug_map().entries(inserts).finish()
    }
}

/// Why a batch was not stored.
#[derive(Debug, Clone)]
pub struct WriteBatchError {
    /// The collection whose rows are the reason, if one is.
    pub collection: Option<String>,
    /// What is wrong.
    pub error: Error,
}

impl std::fmt::Display for WriteBatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.collection {
            Some(collection) => write!(f, "collection '{collection}': {}", self.error),
            None => self.error.fmt(f),
        }
    }
}

impl std::error::Error for WriteBatchError {}

impl<'a> WriteBatch<'a> {
    /// Adds a batch of measurements, as for [`Collection::insert`].
    pub fn insert(self, collection: &str, batch: &'a RecordBatch) -> Self {
        let build = |schema: &Schema, rows: usize| Ok(batch_from_arrow(&batch.slice(0, rows), schema)?);
        self.add(collection, batch.num_rows(), Box::new(build))
    }

    /// Adds documents, as for [`Collection::insert_documents`].
    pub fn insert_documents(self, collection: &str, documents: &'a [Value]) -> Self {
        let build = |schema: &Schema, rows: usize| Ok(batch_from_documents(&documents[..rows], schema)?);
        self.add(collection, documents.len(), Box::new(build))
    }

    /// Adds measurements that are read in place.
    pub fn insert_measurements<M: Measurement<'a>>(self, collection: &str, measurements: &'a [M]) -> Self {
        let build = |schema: &Schema, rows: usize| Ok(batch_from_measurements(&measurements[..rows], schema)?);
        self.add(collection, measurements.len(), Box::new(build))
    }

    fn add(mut self, collection: &str, rows: usize, build: Build<'a>) -> Self {
        self.inserts.push(Insert { collection: collection.to_owned(), rows, build });
        self
    }

    /// Stores all, or nothing after an error. Returns the number of measurements.
    ///
    /// # Durability
    /// When this returns, all survive a power cut (with [`crate::Durability::Sync`]); with any durability, all do or none.
    /// # Errors
    /// As for [`Collection::insert`], and [`Code::BadValue`] if a collection is named twice.
    pub fn commit(self) -> Result<u64, WriteBatchError> {
        self.store(None)
    }

    /// As [`WriteBatch::commit`], with the request that is answered by this, and the reply that those get who send it again.
    ///
    /// # Errors
    /// As for [`WriteBatch::commit`], and then the request is as if it had not been sent; [`Code::IllegalOperation`] if it is stored
    /// already, and [`Code::BSONObjectTooLarge`] for a reply of more than 16 MiB.
    pub fn commit_once(self, request: &mut Request, reply: &[u8]) -> Result<u64, WriteBatchError> {
        let count = self.store(Some((request, reply)))?;
        request.committed();
        Ok(count)
    }

    fn store(&self, request: Option<(&Request, &[u8])>) -> Result<u64, WriteBatchError> {
        let whole = |error| WriteBatchError { collection: None, error };
        let mut names: Vec<&str> = self.inserts.iter().map(|insert| insert.collection.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]) {
            let what = format!("collection '{twice}' is named twice in one batch: put all its rows into one insert");
            return Err(whole(Error::new(Code::BadValue, what)));
        }
        let builds = self.inserts.iter().map(|insert| |schema: &Schema| (insert.build)(schema, insert.rows));
        let builds: Vec<_> = builds.collect();
        let parts = self.inserts.iter().zip(&builds);
        let parts: Vec<Part<'_>> =
            parts.map(|(insert, build)| Part { name: &insert.collection, batch_id: None, build }).collect();
        let request = request.map(|(request, reply)| request.unanswered()?.with_reply(reply));
        let request = request.transpose().map_err(whole)?;
        let stored = self.engine.insert_together(&parts, request, &Stop::default());
        stored.map_err(|(at, error)| match at.map(|at| &self.inserts[at]) {
            None => whole(error),
            Some(Insert { collection, build, .. }) => {
                let error = Collection::new(self.engine.clone(), collection).first_fault(error, build);
                WriteBatchError { collection: Some(collection.clone()), error }
            }
        })
    }
}
