//! Requests that are stored once: what one inserts is one record of the log with its key, so that whoever sends it again, after
//! a crash of either side too, gets the first reply instead of a second insert.
//!
//! The keys are documents of an ordinary collection that no command reaches. How long they have been known is counted by the
//! monotonic clock, and begins anew when the database is opened.

pub(crate) mod known;
pub(crate) mod stored;

pub use known::RequestKey;

use crate::documents::options::{DocumentsOptions, DocumentsRecord};
use crate::documents::pace::Stop;
use crate::documents::snapshot::visit_stored;
use crate::documents::state::DocumentsState;
use crate::documents::stored::raw;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::manifest::Op;
use bytes::Bytes;
use ebbtide_documents::Filter;
use ebbtide_ttl::{Code, Precision};
use known::{LIMITS, REQUESTS, Remembered};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use stored::{UnansweredRequest, document_key};

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
            keys.into_iter().try_for_each(|key| transaction.remove(&key))
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
