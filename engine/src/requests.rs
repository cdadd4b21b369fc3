//! Requests that are stored once: what one inserts is one record of the log with its key, so that whoever sends it again, after
//! a crash of either side too, gets the first reply instead of a second insert.
//!
//! The keys are documents of an ordinary collection that no command reaches. How long they have been known is counted by the
//! monotonic clock, and begins anew when the database is opened.

use crate::documents::changes::{self, Change};
use crate::documents::memtable::{Stored, raw};
use crate::documents::options::{DocumentsOptions, DocumentsRecord};
use crate::documents::pace::Stop;
use crate::documents::snapshot::visit_stored;
use crate::documents::state::DocumentsState;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::manifest::Op;
use crate::sync::{Condvar, Mutex};
use bytes::Bytes;
use ebbtide_documents::bson::raw::{RawBinaryRef, RawBsonRef, RawDocumentBuf, cstr};
use ebbtide_documents::bson::spec::BinarySubtype;
use ebbtide_documents::{Filter, id_key};
use ebbtide_ttl::{Code, Precision};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The collection of the keys.
pub(crate) const REQUESTS: &str = ".requests";

/// How long a key is known, and how many are at most: the oldest are forgotten first.
const LIMITS: Limits = Limits { life: Duration::from_secs(3600), most: 100_000, at_once: 1000 };

/// Bytes of a reply at most: 16 MiB.
const REPLY_BYTES_MAX: usize = 16 << 20;
/// A request with its reply takes less in the log.
pub(crate) const ANSWERED_BYTES: usize = REPLY_BYTES_MAX + 1024;

/// Identifies a request, for example the SHA-256 of who sends it and of the key that he gave it.
pub type RequestKey = [u8; 32];

/// What a request that may have been sent before begins with.
#[derive(Debug)]
pub enum BegunRequest {
    /// It is new: [`crate::WriteBatch::commit_once`] or [`crate::Documents::insert_many_once`] stores it.
    New(Request),
    /// It was stored before: the reply that it got.
    Repeated(Vec<u8>),
    /// The key was used for a request with other content.
    OtherContent,
}

/// A request that is under way. Another one with its key waits until it is committed, or dropped without that.
pub struct Request {
    engine: Arc<Engine>,
    collection: u64,
    key: RequestKey,
    digest: [u8; 32],
    is_stored: bool,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("key", &self.key).field("digest", &self.digest).finish_non_exhaustive()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.is_stored {
            self.engine.requests.end([self.key]);
        }
    }
}

/// A request as it is stored with what it inserts.
pub(crate) struct StoredRequest {
    pub(crate) collection: u64,
    pub(crate) change: Change,
    /// The change as it is in the log.
    pub(crate) encoded: Vec<u8>,
}

impl Request {
    /// The request without its reply, to be stored with it.
    pub(crate) fn unanswered(&self) -> Result<UnansweredRequest> {
        if self.is_stored {
            return Err(Error::new(Code::IllegalOperation, "the request is stored already: begin another one"));
        }
        let written = self.engine.clock.now().to_units_saturating(Precision::Ms);
        let (collection, key, digest) = (self.collection, self.key, self.digest);
        Ok(UnansweredRequest { collection, document_key: document_key(&key)?, key, digest, written })
    }

    /// Notes that it is stored.
    pub(crate) fn committed(&mut self) {
        self.is_stored = true;
        let now = self.engine.clock.monotonic();
        if let Some(remembered) = &mut self.engine.requests.known.lock().remembered {
            remembered.add(self.key, now);
        }
        self.engine.requests.end([self.key]);
    }
}

/// A request that is about to be stored.
pub(crate) struct UnansweredRequest {
    collection: u64,
    document_key: Bytes,
    key: RequestKey,
    digest: [u8; 32],
    written: i64,
}

impl UnansweredRequest {
    /// The request with its reply.
    pub(crate) fn with_reply(self, reply: &[u8]) -> Result<StoredRequest> {
        if reply.len() > REPLY_BYTES_MAX {
            let what = format!("the reply of a request may have {REPLY_BYTES_MAX} bytes, this one has {}", reply.len());
            return Err(Error::new(Code::BSONObjectTooLarge, what));
        }
        let binary = |bytes| RawBinaryRef { subtype: BinarySubtype::Generic, bytes };
        let mut document = RawDocumentBuf::new();
        let members: [(_, &[u8]); 3] =
            [(cstr!("_id"), &self.key), (cstr!("digest"), &self.digest), (cstr!("reply"), reply)];
        for (name, bytes) in members {
            document.append(name, RawBsonRef::Binary(binary(bytes)));
        }
        let stored = Stored { written: self.written, document: document.into_bytes().into() };
        let change = Change { key: self.document_key, stored: Some(stored) };
        let encoded = changes::encode(std::slice::from_ref(&change));
        Ok(StoredRequest { collection: self.collection, change, encoded })
    }
}

fn document_key(key: &RequestKey) -> Result<Bytes> {
    let binary = RawBinaryRef { subtype: BinarySubtype::Generic, bytes: key };
    Ok(id_key(RawBsonRef::Binary(binary))?.into())
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    life: Duration,
    most: usize,
    /// So many are forgotten with one command.
    at_once: usize,
}

/// The requests that are known.
pub(crate) struct Requests {
    known: Mutex<Known>,
    ended: Condvar,
}

#[derive(Default)]
struct Known {
    /// Those that are stored; `None` until they are first asked for.
    remembered: Option<Remembered>,
    /// Those that are being stored or forgotten.
    under_way: HashSet<RequestKey>,
}

/// The requests that are stored.
#[derive(Debug)]
struct Remembered {
    /// The number of their collection.
    collection: u64,
    /// Since when each is known, by the monotonic clock.
    since: HashMap<RequestKey, Duration>,
    /// The oldest first.
    order: VecDeque<RequestKey>,
}

impl Remembered {
    fn add(&mut self, key: RequestKey, now: Duration) {
        if self.since.insert(key, now).is_none() {
            self.order.push_back(key);
        }
    }

    fn remove(&mut self, keys: &[RequestKey]) {
        for key in keys {
            self.since.remove(key);
        }
        self.order.retain(|key| self.since.contains_key(key));
    }

    /// The oldest keys, if it is time to forget some: there are too many, enough of them are old, or `asked` is.
    fn due(&self, asked: &RequestKey, now: Duration, limits: Limits) -> Vec<RequestKey> {
        let is_old =
            |key: &RequestKey| self.since.get(key).is_some_and(|since| now.saturating_sub(*since) >= limits.life);
        if self.order.len() >= limits.most {
            return self.order.iter().take(limits.at_once).copied().collect();
        }
        if is_old(asked) || self.order.get(limits.at_once - 1).is_some_and(is_old) {
            return self.order.iter().take_while(|key| is_old(key)).copied().collect();
        }
        Vec::new()
    }
}

impl Requests {
    pub(crate) fn new() -> Self {
        Requests { known: Mutex::new(Known::default()), ended: Condvar::new() }
    }

    fn end(&self, keys: impl IntoIterator<Item = RequestKey>) {
        let mut known = self.known.lock();
        for key in keys {
            known.under_way.remove(&key);
        }
        drop(known);
        self.ended.notify_all();
    }
}

/// Begins a request. Waits while one with the same key is under way.
pub(crate) fn begin(engine: &Arc<Engine>, key: RequestKey, digest: [u8; 32]) -> Result<BegunRequest> {
    engine.check_writable()?;
    let collection = load(engine)?;
    loop {
        forget(engine, collection, &key)?;
        {
            let mut known = engine.requests.known.lock();
            while known.under_way.contains(&key) {
                engine.requests.ended.wait(&mut known);
            }
            if !known.remembered.as_ref().is_some_and(|remembered| remembered.since.contains_key(&key)) {
                known.under_way.insert(key);
                let engine = engine.clone();
                return Ok(BegunRequest::New(Request { engine, collection, key, digest, is_stored: false }));
            }
        }
        let stored = stored_in(engine, collection)?.get(&document_key(&key)?)?;
        // It may have been forgotten just now.
        let Some((stored, _)) = stored else { continue };
        let document = raw(&stored.document);
        let member = |name| document.get_binary(name).map(|binary| binary.bytes).unwrap_or_default();
        return Ok(match member("digest") == digest {
            true => BegunRequest::Repeated(member("reply").to_vec()),
            false => BegunRequest::OtherContent,
        });
    }
}

fn stored_in(engine: &Engine, collection: u64) -> Result<Arc<DocumentsState>> {
    let present = engine.state.read().documents_by_id(collection).cloned();
    present.ok_or_else(|| Error::internal("the keys of requests have no collection"))
}

/// Reads which keys are stored, unless that is known. Returns the number of their collection, which is made if there is none.
fn load(engine: &Engine) -> Result<u64> {
    if let Some(remembered) = &engine.requests.known.lock().remembered {
        return Ok(remembered.collection);
    }
    let collection = {
        let _maintenance = engine.maintenance.lock();
        let (present, next) = {
            let state = engine.state.read();
            (state.documents.get(REQUESTS).map(|documents| documents.id), state.next_collection)
        };
        match present {
            Some(id) => id,
            None => {
                let (name, options) = (REQUESTS.to_owned(), DocumentsOptions::default());
                let record = DocumentsRecord { id: next, name, options, rules_epoch: 1, sealed_seq: 0 };
                engine.commit(vec![Op::PutDocuments(record)])?;
                next
            }
        }
    };
    let mut found = Vec::new();
    let (state, everything) = (stored_in(engine, collection)?, Filter::everything());
    visit_stored(&state, engine.clock.now(), &everything, &Stop::default(), &mut |entry| {
        let id = raw(&entry.stored.document).get_binary("_id").ok();
        if let Some(key) = id.and_then(|id| RequestKey::try_from(id.bytes).ok()) {
            found.push((entry.stored.written, key));
        }
        Ok(true)
    })?;
    found.sort_unstable();
    let now = engine.clock.monotonic();
    let mut loaded = Remembered { collection, since: HashMap::new(), order: VecDeque::new() };
    found.into_iter().for_each(|(_, key)| loaded.add(key, now));
    // If another thread was faster, it may have stored one since.
    engine.requests.known.lock().remembered.get_or_insert(loaded);
    Ok(collection)
}

/// Forgets old requests if it is time. While that is done they are under way.
fn forget(engine: &Engine, collection: u64, asked: &RequestKey) -> Result<()> {
    let due = {
        let mut known = engine.requests.known.lock();
        let now = engine.clock.monotonic();
        let due = known.remembered.as_ref().map(|remembered| remembered.due(asked, now, LIMITS)).unwrap_or_default();
        if due.is_empty() || due.iter().any(|key| known.under_way.contains(key)) {
            return Ok(()); // Another thread forgets them.
        }
        known.under_way.extend(due.iter().copied());
        due
    };
    let keys = due.iter().map(document_key).collect::<Result<Vec<Bytes>>>();
    let forgotten = keys.and_then(|keys| {
        engine.write_documents_of(collection, move |transaction| {
            keys.into_iter().try_for_each(|key| transaction.remove(key))
        })
    });
    if forgotten.is_ok()
        && let Some(remembered) = &mut engine.requests.known.lock().remembered
    {
        remembered.remove(&due);
    }
    engine.requests.end(due);
    forgotten
}

#[cfg(test)]
mod tests;
