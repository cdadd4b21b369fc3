//! Writes of many documents at once: inserts, restores, and changes that the caller decides on.

use super::documents::{Documents, duplicate};
use crate::documents::columns::{ColumnRecord, DocumentColumn};
use crate::documents::read_ahead::{BYTES_MAX, Since};
use crate::documents::snapshot::{Document, Match, document};
use crate::documents::stored::raw;
use crate::documents::transaction::Transaction;
use crate::error::{Error, Result};
use crate::manifest::Op;
use ebbtide_documents::bson::raw::RawBsonRef;
use ebbtide_documents::bson::{RawDocument, RawDocumentBuf};
use ebbtide_documents::{Filter, Purpose, TTL_FIELD, check, check_ttl, id_key, id_of};
use ebbtide_ttl::{Code, Precision};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Documents that are decided on together at most.
const BATCH: usize = 1024;
/// Bytes of documents that are decided on together, about.
const BATCH_BYTES: usize = 4 << 20;

/// What becomes of a document whose `_id` a visible document has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// The whole write is refused.
    Refuse,
    /// The new document takes its place.
    Replace,
}

/// What becomes of a document in [`Documents::rewrite`].
#[derive(Debug, Clone, PartialEq)]
pub enum Rewrite {
    /// It stays as it is, and its `_ts` too.
    Keep,
    /// It is removed for good.
    Remove,
    /// This takes its place, under the same `_id`.
    Put(RawDocumentBuf),
}

impl Documents {
    /// Stores documents in one atomic and durable step. Returns how many. A document without an `_id` gets a new ObjectId.
    ///
    /// # Errors
    /// [`Code::DuplicateKey`] unless they replace, and as for [`Documents::put`]; nothing is stored then.
    pub fn store(&self, documents: Vec<RawDocumentBuf>, conflict: OnConflict) -> Result<u64> {
        let documents = documents.into_iter().map(|document| self.with_id(document)).collect::<Result<Vec<_>>>()?;
        self.write(move |transaction| {
            let count = documents.len() as u64;
            for (document, key) in documents {
                check_ttl(&document, transaction.options().default_ttl)?;
                if conflict == OnConflict::Refuse && transaction.get(&key)?.is_some() {
                    return Err(duplicate(&document));
                }
                transaction.put(key, document.into_bytes().into())?;
            }
            Ok(count)
        })
    }

    /// Stores documents with the `_ts` that they had, in one atomic and durable step: for a restore. A time to live is not
    /// checked, since one that means nothing may have been stored.
    ///
    /// # Errors
    /// [`Code::InvalidIdField`], [`Code::BSONObjectTooLarge`]; nothing is stored then.
    pub fn restore(&self, documents: Vec<Document>) -> Result<u64> {
        let ready = |found: Document| {
            let written = found.written.to_units_saturating(Precision::Ms);
            self.with_id(found.document).map(|(document, key)| (document, key, written))
        };
        let documents = documents.into_iter().map(ready).collect::<Result<Vec<_>>>()?;
        self.write(move |transaction| {
            let count = documents.len() as u64;
            for (document, key, written) in documents {
                transaction.put_as_of(key, document.into_bytes().into(), written)?;
            }
            Ok(count)
        })
    }

    /// Gives the collection columns in SQL before its first document has them: for a restore.
    ///
    /// # Durability
    /// When this returns, they survive a power cut.
    /// # Errors
    /// [`Code::NamespaceNotFound`].
    pub fn restore_columns(&self, columns: Vec<DocumentColumn>) -> Result<()> {
        let engine = &self.engine;
        let _maintenance = engine.maintenance.lock();
        engine.check_writable()?;
        // Without the log's lock a command that is being evaluated would bring back the columns that it began with.
        let _log = engine.log.lock();
        let collection = engine.state.read().documents(self.name())?.id;
        // No document is stored yet, so no whole number that a double does not hold.
        let columns =
            columns.into_iter().map(|column| ColumnRecord::from(&DocumentColumn { fits_doubles: true, ..column }));
        engine.commit(vec![Op::SetDocumentColumns { collection, columns: columns.collect() }])
    }

    /// Decides on the documents that match a filter in MongoDB's form, some at a time, and does all of it in one atomic and durable
    /// step. Expired documents are shown if `with_expired`; those that are removed or replaced do not count. Returns how many
    /// were removed or replaced.
    ///
    /// `decide` returns one decision for each document that it is given, and may be called again for any document: the last decision
    /// counts. All writes of the database wait for the later calls, which may be made in the thread of another write: it must not
    /// call the database.
    ///
    /// # Errors
    /// Errors of `decide`; [`Code::IllegalOperation`] if it panics; [`Code::ImmutableField`] for a change of an `_id`; [`Code::BadValue`] for a bad time to live. Nothing is
    /// changed then.
    pub fn rewrite(
        &self,
        filter: &RawDocument,
        with_expired: bool,
        decide: impl FnMut(&[Document]) -> Result<Vec<Rewrite>> + Send + 'static,
    ) -> Result<u64> {
        let filter = Filter::parse(filter, Purpose::Find)?;
        let mut decider = Decider { filter, with_expired, decide };
        let ahead = match self.read_ahead(&decider.filter) {
            None => None,
            Some(before) => {
                let changes = decider.decide_all(BYTES_MAX, |filter, visitor| before.visit(filter, visitor))?;
                changes.map(|changes| (before, changes))
            }
        };
        self.write(move |transaction| {
            let since = |(before, changes)| Some((transaction.since(&before, &decider.filter)?, changes));
            let changes = match ahead.and_then(since) {
                Some((since, changes)) => decider.brought_up_to(&since, changes)?,
                None => decider
                    .decide_all(usize::MAX, |filter, visitor| transaction.visit(filter, visitor))?
                    .unwrap_or_default(),
            };
            apply(changes, transaction)
        })
    }
}

/// What was decided about one document.
struct Change {
    found: Match<()>,
    /// The new document, or none.
    document: Option<RawDocumentBuf>,
    /// Whether the time to live is another one: one that is stored stays as it is, even if it would be refused.
    sets_ttl: bool,
}

/// What was decided so far, and the bytes of it in memory.
struct Changes {
    all: Vec<Change>,
    bytes: usize,
}

impl Changes {
    fn push(&mut self, found: Match, document: Option<RawDocumentBuf>, sets_ttl: bool) {
        self.bytes += size_of::<Change>() + found.key.len();
        self.bytes += document.as_ref().map_or(0, |document| document.as_bytes().len());
        self.all.push(Change { found: found.keep(), document, sets_ttl });
    }
}

/// Decides on the documents that match a filter.
struct Decider<D> {
    filter: Filter,
    with_expired: bool,
    decide: D,
}

impl<D: FnMut(&[Document]) -> Result<Vec<Rewrite>>> Decider<D> {
    /// Decides on what `visit` visits; `None` if the changes take more than `bytes_max`.
    fn decide_all(
        &mut self,
        bytes_max: usize,
        visit: impl FnOnce(&Filter, &mut dyn FnMut(Match) -> Result<bool>) -> Result<()>,
    ) -> Result<Option<Vec<Change>>> {
        let Decider { filter, with_expired, decide } = self;
        let filter = &*filter;
        let mut changes = Changes { all: Vec::new(), bytes: 0 };
        let mut waiting: Vec<Match> = Vec::new();
        let mut bytes = 0;
        visit(filter, &mut |found| {
            if found.is_visible || *with_expired {
                bytes += found.stored.document.len();
                waiting.push(found);
            }
            if waiting.len() >= BATCH || bytes >= BATCH_BYTES {
                decide_some(std::mem::take(&mut waiting), filter, decide, &mut changes)?;
                bytes = 0;
            }
            Ok(changes.bytes <= bytes_max)
        })?;
        if changes.bytes <= bytes_max {
            decide_some(waiting, filter, decide, &mut changes)?;
        }
        Ok((changes.bytes <= bytes_max).then_some(changes.all))
    }

    /// What was decided, without the documents that were written or have expired since, and what is decided about these now.
    fn brought_up_to(&mut self, since: &Since<'_>, changes: Vec<Change>) -> Result<Vec<Change>> {
        let with_expired = self.with_expired;
        let unchanged = changes.into_iter().filter_map(|change| {
            let found = since.unchanged(change.found).filter(|found| found.is_visible || with_expired)?;
            Some(Change { found, ..change })
        });
        let mut current: Vec<Change> = unchanged.collect();
        current.extend(self.decide_all(usize::MAX, |_, visitor| since.visit_written(visitor))?.unwrap_or_default());
        Ok(current)
    }
}

/// Decides on those of some documents that match a filter.
fn decide_some(
    mut found: Vec<Match>,
    filter: &Filter,
    decide: &mut impl FnMut(&[Document]) -> Result<Vec<Rewrite>>,
    changes: &mut Changes,
) -> Result<()> {
    found.retain(|found| filter.matches(raw(&found.stored.document)));
    if found.is_empty() {
        return Ok(());
    }
    let shown: Vec<Document> = found.iter().map(|found| document(&found.stored)).collect();
    // Other writes are decided in this thread too, which must not end.
    let decided = catch_unwind(AssertUnwindSafe(|| decide(&shown)));
    let panicked = |_| Error::new(Code::IllegalOperation, "the function that decides on documents panicked");
    let decided = decided.map_err(panicked)??;
    Error::check_count("the function that decides on documents", decided.len(), shown.len())?;
    for ((found, old), outcome) in found.into_iter().zip(&shown).zip(decided) {
        match outcome {
            Rewrite::Keep => {}
            Rewrite::Remove => changes.push(found, None, false),
            Rewrite::Put(document) => {
                check(&document)?;
                if id_key(id_of(&document))? != found.key {
                    let what = "the _id of a document cannot be changed: insert a new one and delete the old one";
                    return Err(Error::new(Code::ImmutableField, what));
                }
                let sets_ttl = ttl_of(&document) != ttl_of(&old.document);
                changes.push(found, Some(document), sets_ttl);
            }
        }
    }
    Ok(())
}

/// Does what was decided; returns how many visible documents it was about.
fn apply(changes: Vec<Change>, transaction: &mut Transaction<'_>) -> Result<u64> {
    let mut count = 0;
    for Change { found, document, sets_ttl } in changes {
        count += u64::from(found.is_visible);
        match document {
            None => transaction.remove_found(found)?,
            Some(document) => {
                if sets_ttl {
                    check_ttl(&document, transaction.options().default_ttl)?;
                }
                transaction.put_over(&found, document.into_bytes().into())?;
            }
        }
    }
    Ok(count)
}

fn ttl_of(document: &RawDocument) -> Option<RawBsonRef<'_>> {
    document.get(TTL_FIELD).ok().flatten()
}
