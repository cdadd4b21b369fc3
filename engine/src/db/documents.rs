//! Ordinary collections in the public API.

use super::Database;
use crate::documents::options::{DocumentsOptions, DocumentsRecord};
use crate::documents::pace::Stop;
use crate::documents::read_ahead::{Candidates, is_worth_it};
use crate::documents::snapshot::{DocumentsSnapshot, Hidden, Kept};
use crate::documents::transaction::{Modification, Transaction};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::manifest::Op;
use crate::options::check_collection_name;
use crate::requests::stored::UnansweredRequest;
use bytes::Bytes;
use ebbtide_documents::bson::raw::{RawBson, cstr};
use ebbtide_documents::bson::{Bson, Document, RawDocument, RawDocumentBuf};
use ebbtide_documents::json::relaxed_value_text;
use ebbtide_documents::{Filter, Purpose, check_ttl, id_key, id_of, with_id};
use ebbtide_ttl::Code;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

impl Database {
    /// Creates an ordinary collection. If it exists with the same time to live, nothing changes.
    ///
    /// # Durability
    /// When this returns, the collection survives a power cut.
    /// # Errors
    /// [`Code::InvalidNamespace`] for an invalid name, [`Code::NamespaceExists`] if the name is taken by a collection with other
    /// options, or by a view; [`Code::InvalidOptions`] for a default time to live out of range, and for an index the errors of
    /// `createIndexes`.
    pub fn create_documents(&self, name: &str, options: DocumentsOptions) -> Result<Documents> {
        let engine = &self.engine;
        engine.check_writable()?;
        check_collection_name(name)?;
        options.check(&DocumentsOptions::default())?;
        let _maintenance = engine.maintenance.lock();
        let (existing, taken, id) = {
            let state = engine.state.read();
            (state.documents.get(name).cloned(), state.kind_of(name), state.next_collection)
        };
        match (existing, taken) {
            (Some(existing), _) if existing.options.default_ttl == options.default_ttl => {}
            (_, Some(kind)) => {
                let what = format!(
                    "{kind} '{name}' exists with other options: change it with collMod, or choose another name"
                );
                return Err(Error::new(Code::NamespaceExists, what));
            }
            (_, None) => {
                let record = DocumentsRecord { id, name: name.to_owned(), options, rules_epoch: 1, sealed_seq: 0 };
                engine.commit(vec![Op::PutDocuments(record)])?;
            }
        }
        self.documents(name)
    }

    /// An existing ordinary collection.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`]; [`Code::InvalidOptions`] for a time-series collection.
    pub fn documents(&self, name: &str) -> Result<Documents> {
        self.engine.state.read().documents(name)?;
        Ok(Documents { engine: self.engine.clone(), name: name.into(), stop: Stop::default() })
    }

    /// Names of the ordinary collections, sorted.
    #[must_use]
    pub fn document_collections(&self) -> Vec<String> {
        self.engine.snapshot().document_collections()
    }

    /// Changes the default time to live and the indexes of an ordinary collection, all at once or not at all. Other changes of the
    /// database wait for `change`, so it must not call the database.
    ///
    /// # Durability
    /// When this returns, the change survives a power cut. It acts at once on what is stored.
    /// # Errors
    /// [`Code::NamespaceNotFound`], the errors of `change`, and as for [`Database::create_documents`].
    pub fn modify_documents<T>(
        &self,
        name: &str,
        change: impl FnOnce(&mut DocumentsOptions) -> Result<T>,
    ) -> Result<T> {
        let engine = &self.engine;
        let _maintenance = engine.maintenance.lock();
        engine.check_writable()?;
        let mut record = engine.state.read().documents(name)?.record();
        let before = record.options.clone();
        let outcome = change(&mut record.options)?;
        if record.options != before {
            record.options.check(&before)?;
            record.rules_epoch += 1;
            let options = record.options.clone();
            engine.commit(vec![Op::PutDocuments(record)])?;
            let paths: Vec<&str> =
                options.indexes.iter().filter_map(|index| Some(index.key.first()?.0.as_str())).collect();
            let present = engine.state.read().documents(name)?.clone();
            present.segments.values().for_each(|segment| segment.forget_indexes_but(&paths));
            present.memtable.forget_indexes_but(&paths);
        }
        Ok(outcome)
    }
}

/// A handle to an ordinary collection. It names the collection; each call sees it as it is then.
///
/// ```
/// use ebbtide::bson::doc;
/// use ebbtide::{Database, DefaultTtl, DocumentsOptions};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Session {
///     #[serde(rename = "_id")]
///     id: String,
///     user: String,
///     visits: i64,
/// }
///
/// # let folder = tempfile::tempdir()?;
/// let db = Database::open(folder.path().join("sessions"))?;
/// // A session lives for half an hour after its last write.
/// let options = DocumentsOptions { default_ttl: DefaultTtl::Seconds(30 * 60), ..DocumentsOptions::default() };
/// let sessions = db.create_documents("sessions", options)?;
///
/// sessions.put(&Session { id: "3f2a".into(), user: "ada".into(), visits: 1 })?; // Durable when this returns.
/// sessions.update("3f2a", &doc! { "$inc": { "visits": 1_i64 } })?;
/// let session: Option<Session> = sessions.get("3f2a")?;
/// assert_eq!(session.map(|session| session.visits), Some(2));
///
/// let later = db.clock().now().plus_seconds(30 * 60);
/// assert_eq!(db.snapshot_at(later).documents("sessions")?.count()?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Documents {
    pub(super) engine: Arc<Engine>,
    name: Arc<str>,
    stop: Stop,
}

/// What an update did.
#[derive(Debug, Clone, PartialEq)]
pub struct Updated {
    /// Documents that matched.
    pub matched: u64,
    /// Documents that were changed.
    pub modified: u64,
}

impl Documents {
    /// The collection's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same, for commands that may be stopped until they are committed: then nothing of them is stored.
    #[must_use]
    pub fn with_stop(self, stop: Stop) -> Documents {
        Documents { stop, ..self }
    }

    /// The collection as it is now, at the clock's instant.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`] if it was dropped.
    pub fn snapshot(&self) -> Result<DocumentsSnapshot> {
        self.engine.snapshot().documents(&self.name)
    }

    /// The document with this `_id`, unless it has expired.
    ///
    /// # Errors
    /// [`Code::InvalidIdField`] for what cannot be an `_id`, [`Code::BadValue`] for a document that is not a `T`.
    pub fn get<T: DeserializeOwned>(&self, id: impl Into<Bson>) -> Result<Option<T>> {
        let key = key_of(&id.into())?;
        let Some(stored) = self.snapshot()?.get(&key)? else { return Ok(None) };
        from_document(&stored.document).map(Some)
    }

    /// Stores a document, in place of the one with the same `_id` if there is one. Returns the `_id`, which is a new ObjectId
    /// if the document has none.
    ///
    /// # Durability
    /// As for [`crate::Collection::insert_documents`].
    /// # Errors
    /// [`Code::InvalidIdField`], [`Code::BSONObjectTooLarge`], [`Code::BadValue`] for a bad time to live.
    pub fn put<T: Serialize>(&self, document: &T) -> Result<Bson> {
        let (id, key, document) = self.ready(document)?;
        self.write(move |transaction| {
            check_ttl(&document, transaction.options().default_ttl)?;
            transaction.put(key, document.into_bytes().into())?;
            Ok(id)
        })
    }

    /// Stores a document under an `_id` that no visible document has. Returns the `_id`.
    ///
    /// # Errors
    /// [`Code::DuplicateKey`], and as for [`Documents::put`].
    pub fn insert<T: Serialize>(&self, document: &T) -> Result<Bson> {
        let (id, key, document) = self.ready(document)?;
        self.write(move |transaction| {
            check_ttl(&document, transaction.options().default_ttl)?;
            if transaction.get(&key)?.is_some() {
                return Err(duplicate(&document));
            }
            transaction.put(key, document.into_bytes().into())?;
            Ok(id)
        })
    }

    /// Stores documents in one atomic and durable step, each in place of the one with its `_id`. Returns how many.
    ///
    /// # Errors
    /// As for [`Documents::put`]; nothing is stored then.
    pub fn put_many<T: Serialize>(&self, documents: &[T]) -> Result<u64> {
        let documents = documents.iter().map(|document| self.ready(document)).collect::<Result<Vec<_>>>()?;
        self.write(move |transaction| {
            let count = documents.len() as u64;
            for (_, key, document) in documents {
                check_ttl(&document, transaction.options().default_ttl)?;
                transaction.put(key, document.into_bytes().into())?;
            }
            Ok(count)
        })
    }

    /// Changes the document with this `_id` by MongoDB's update operators, or replaces it. A change that leaves it as it was counts
    /// as a write all the same.
    ///
    /// # Errors
    /// [`Code::FailedToParse`] for unknown operators, [`Code::ImmutableField`] for a change of the `_id`, and errors of operators.
    pub fn update(&self, id: impl Into<Bson>, update: &Document) -> Result<Updated> {
        let key = key_of(&id.into())?;
        let update = Modification::parse(RawBson::Document(raw_of(update)?).as_raw_bson_ref(), false)?;
        self.write(move |transaction| {
            let Some(found) = transaction.get(&key)? else { return Ok(Updated { matched: 0, modified: 0 }) };
            let modified = transaction.update(&found, &update)?;
            Ok(Updated { matched: 1, modified: u64::from(modified) })
        })
    }

    /// Removes the document with this `_id`; returns whether there was a visible one.
    ///
    /// # Errors
    /// [`Code::InvalidIdField`], and errors of writing.
    pub fn delete(&self, id: impl Into<Bson>) -> Result<bool> {
        let key = key_of(&id.into())?;
        self.write(move |transaction| {
            let was_there = transaction.get(&key)?.is_some();
            transaction.remove(&key)?;
            Ok(was_there)
        })
    }

    /// The documents that match a filter in MongoDB's form, in the order of their `_id`.
    ///
    /// # Errors
    /// [`Code::BadValue`] for a wrong filter, or a document that is not a `T`.
    pub fn find<T: DeserializeOwned>(&self, filter: &Document) -> Result<Vec<T>> {
        let filter = Filter::parse(&raw_of(filter)?, Purpose::Find)?;
        let found = self.snapshot()?.matching(&filter)?;
        found.iter().map(|found| from_document(&found.stored.document)).collect()
    }

    /// A document with its `_id`, which is made where there is none, and the key of that.
    pub(crate) fn with_id(&self, document: RawDocumentBuf) -> Result<(RawDocumentBuf, Bytes)> {
        self.engine.with_id(document)
    }

    /// The collection as a command with this filter reads it before it is queued; `None` if the command reads when its turn comes, and
    /// reports any error then.
    pub(super) fn read_ahead(&self, filter: &Filter) -> Option<DocumentsSnapshot> {
        if !is_worth_it(filter) {
            return None;
        }
        self.engine.check_writable().and_then(|()| self.engine.make_room()).ok()?;
        Some(self.snapshot().ok()?.with_stop(self.stop.clone()).without_counting())
    }

    /// What matches a filter before the command is queued: see [`Transaction::matching`].
    pub(super) fn candidates<T: Kept>(
        &self,
        filter: &Filter,
        hidden: Hidden,
        limit: Option<usize>,
    ) -> Option<Candidates<T>> {
        Candidates::of(self.read_ahead(filter)?, filter, hidden, limit).ok()?
    }

    fn ready<T: Serialize>(&self, value: &T) -> Result<(Bson, Bytes, RawDocumentBuf)> {
        let document = ebbtide_documents::bson::serialize_to_raw_document_buf(value)
            .map_err(|e| Error::new(Code::BadValue, format!("the value cannot be stored as a document: {e}")))?;
        let (document, key) = self.engine.with_id(document)?;
        let id = Bson::try_from(id_of(&document)).map_err(|e| Error::new(Code::InvalidIdField, e.to_string()))?;
        Ok((id, key, document))
    }

    /// Runs a command that may read and write several documents: all of it is one atomic and durable step.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        evaluate: impl FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.engine.write_documents(&self.name, self.stoppable(evaluate))
    }

    /// As [`Documents::write`], with the request that the command answers, and the reply that `reply` makes.
    pub(crate) fn write_once<T: Send + 'static>(
        &self,
        request: UnansweredRequest,
        evaluate: impl FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
        reply: impl FnOnce(&T) -> Vec<u8> + Send + 'static,
    ) -> Result<T> {
        self.engine.write_documents_once(&self.name, request, self.stoppable(evaluate), reply)
    }

    fn stoppable<T>(
        &self,
        evaluate: impl FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> impl FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static {
        let stop = self.stop.clone();
        move |transaction| {
            stop.check()?;
            transaction.set_stop(stop.clone());
            let outcome = evaluate(transaction)?;
            stop.begin_commit()?;
            Ok(outcome)
        }
    }
}

impl Engine {
    /// A document with its `_id`, which is made where there is none, and the key of that.
    pub(crate) fn with_id(&self, document: RawDocumentBuf) -> Result<(RawDocumentBuf, Bytes)> {
        let (document, key) = with_id(document, || self.object_ids.make(self.clock.now()))?;
        Ok((document, key.into()))
    }
}

/// The error about an `_id` that is taken.
pub(crate) fn duplicate(document: &RawDocument) -> Error {
    let id = id_of(document);
    let what = format!("a document with _id {} exists: update or replace it", relaxed_value_text(id));
    let mut alone = RawDocumentBuf::new();
    alone.append(cstr!("_id"), id);
    Error::new(Code::DuplicateKey, what).with_taken_id(&alone)
}

fn key_of(id: &Bson) -> Result<Bytes> {
    let id = RawBson::try_from(id.clone()).map_err(|e| Error::new(Code::InvalidIdField, format!("no _id: {e}")))?;
    Ok(id_key(id.as_raw_bson_ref())?.into())
}

fn raw_of(document: &Document) -> Result<RawDocumentBuf> {
    RawDocumentBuf::try_from(document).map_err(|e| Error::new(Code::BadValue, format!("not a document: {e}")))
}

fn from_document<T: DeserializeOwned>(document: &[u8]) -> Result<T> {
    ebbtide_documents::bson::deserialize_from_slice(document)
        .map_err(|e| Error::new(Code::BadValue, format!("a stored document is not of the type asked for: {e}")))
}
