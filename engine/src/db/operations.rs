//! Commands that write several documents of an ordinary collection, as MongoDB's drivers send them.
//!
//! Each call is one atomic and durable step. A write that is refused stops the ones after it if the command is ordered; what
//! came before it is stored.

use super::documents::{Documents, duplicate};
use crate::documents::read_ahead::Candidates;
use crate::documents::snapshot::{Hidden, Match, sorted};
use crate::documents::stored::{Stored, raw};
use crate::documents::transaction::{Modification, Transaction};
use crate::error::{Error, ErrorKind, Result};
use crate::requests::Request;
use ebbtide_documents::bson::raw::{RawBson, RawBsonRef};
use ebbtide_documents::bson::{RawDocument, RawDocumentBuf};
use ebbtide_documents::{Filter, Projection, Purpose, Sort, Update, check_ttl, id_of};
use ebbtide_ttl::Code;

/// What several writes did.
#[derive(Debug, Default)]
pub struct WriteOutcome {
    /// Documents that were inserted, matched or removed.
    pub n: u64,
    /// Documents that an update changed.
    pub modified: u64,
    /// Of each update that inserted a document: its number in the command, and the document's `_id`.
    pub upserted: Vec<(usize, RawBson)>,
    /// The writes that were refused: their numbers in the command, and why.
    pub refused: Vec<(usize, Error)>,
}

impl WriteOutcome {
    /// Does every write in turn; an ordered command ends with the first that is refused.
    fn of<W>(
        ordered: bool,
        writes: Vec<Result<W>>,
        mut write: impl FnMut(&mut WriteOutcome, usize, W) -> Result<()>,
    ) -> Result<WriteOutcome> {
        let mut outcome = WriteOutcome::default();
        for (index, one) in writes.into_iter().enumerate() {
            match one.and_then(|one| write(&mut outcome, index, one)) {
                Ok(()) => {}
                // What could not be read or stored is no mistake of the write's.
                Err(error) if error.kind() != ErrorKind::Invalid => return Err(error),
                Err(error) => {
                    outcome.refused.push((index, error));
                    if ordered {
                        break;
                    }
                }
            }
        }
        Ok(outcome)
    }
}

/// One update: which documents, and what becomes of them.
#[derive(Debug)]
pub struct UpdateRequest {
    query: RawDocumentBuf,
    filter: Filter,
    change: Modification,
    multi: bool,
    upsert: bool,
}

impl UpdateRequest {
    /// An update of the first document that matches, or with `multi` of all. With `upsert` a document is inserted if none does.
    ///
    /// # Errors
    /// [`Code::BadValue`] for a wrong filter, [`Code::FailedToParse`] for an update that is not possible.
    pub fn new(query: RawDocumentBuf, update: RawBsonRef<'_>, multi: bool, upsert: bool) -> Result<UpdateRequest> {
        let filter = Filter::parse(&query, Purpose::Find)?;
        Ok(UpdateRequest { query, filter, change: Modification::parse(update, multi)?, multi, upsert })
    }

    fn limit(&self) -> Option<usize> {
        (!self.multi).then_some(1)
    }

    fn run(
        &self,
        transaction: &mut Transaction<'_>,
        outcome: &mut WriteOutcome,
        index: usize,
        ahead: Option<Candidates<Stored>>,
    ) -> Result<()> {
        let found = transaction.matching(&self.filter, Hidden::LeftOut, self.limit(), ahead)?;
        if found.is_empty() && self.upsert {
            let made = upsert(transaction, &self.query, &self.change.update)?;
            outcome.n += 1;
            outcome.upserted.push((index, id_of(&made).into()));
            return Ok(());
        }
        for found in found {
            let changed = transaction.update(&found, &self.change)?;
            outcome.n += 1;
            outcome.modified += u64::from(changed);
        }
        Ok(())
    }
}

/// Stores the document that an upsert makes where nothing matches.
fn upsert(transaction: &mut Transaction<'_>, query: &RawDocument, update: &Update) -> Result<RawDocumentBuf> {
    let (document, key) = transaction.with_id(update.upsert(query, transaction.written())?)?;
    check_ttl(&document, transaction.options().default_ttl)?;
    // The query matched nothing, and still a document may have this _id.
    if transaction.get(&key)?.is_some() {
        return Err(duplicate(&document));
    }
    transaction.put(key, document.clone().into_bytes().into())?;
    Ok(document)
}

/// One delete: which documents.
#[derive(Debug)]
pub struct DeleteRequest {
    filter: Filter,
    only_one: bool,
}

impl DeleteRequest {
    /// A delete of all documents that match, or of the first alone.
    ///
    /// # Errors
    /// [`Code::BadValue`] for a wrong filter.
    pub fn new(filter: &RawDocument, only_one: bool) -> Result<DeleteRequest> {
        Ok(DeleteRequest { filter: Filter::parse(filter, Purpose::Find)?, only_one })
    }

    /// Removes what matches for good, with the expired documents that do, and counts the visible ones.
    fn run(&self, transaction: &mut Transaction<'_>, ahead: Option<Candidates<()>>) -> Result<u64> {
        let (mut removed, mut one_is_gone) = (0, false);
        for found in transaction.matching(&self.filter, Hidden::Included, None, ahead)? {
            if found.is_visible && self.only_one && one_is_gone {
                continue;
            }
            one_is_gone |= found.is_visible;
            removed += u64::from(found.is_visible);
            transaction.remove_found(found)?;
        }
        Ok(removed)
    }
}

/// What findAndModify is asked for.
#[derive(Debug, Clone, Copy)]
pub struct FindAndModifyOptions<'a> {
    /// The filter.
    pub query: &'a RawDocument,
    /// Which of several documents comes first.
    pub sort: Option<&'a RawDocument>,
    /// What becomes of the document; nothing for a remove.
    pub update: Option<RawBsonRef<'a>>,
    /// Whether it is removed.
    pub remove: bool,
    /// Whether the reply is the document after the change.
    pub new: bool,
    /// Whether a document is inserted if none matches.
    pub upsert: bool,
    /// Which fields of the document are returned.
    pub fields: Option<&'a RawDocument>,
}

/// A findAndModify that was checked.
#[derive(Debug)]
pub struct FindAndModify {
    query: RawDocumentBuf,
    filter: Filter,
    sort: Option<Sort>,
    /// `None` to remove the document.
    update: Option<Modification>,
    new: bool,
    upsert: bool,
    fields: Option<Projection>,
}

/// What a findAndModify did.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundAndModified {
    /// The document, before or after the change; `None` if there is none.
    pub value: Option<RawDocumentBuf>,
    /// Whether a document was there and was updated.
    pub updated_existing: bool,
    /// The `_id` of a document that was inserted.
    pub upserted: Option<RawBson>,
}

impl FindAndModify {
    /// Checks what is asked for.
    ///
    /// # Errors
    /// [`Code::FailedToParse`] for options that contradict each other, and the errors of filter, sort, update and projection.
    pub fn new(options: &FindAndModifyOptions<'_>) -> Result<FindAndModify> {
        let wrong = match (&options.update, options.remove) {
            (None, false) => Some("findAndModify needs either update or remove"),
            (Some(_), true) => Some("findAndModify cannot both update and remove: give one of them"),
            (None, true) if options.new => {
                Some("findAndModify cannot return the new document of a remove: leave out new")
            }
            (None, true) if options.upsert => Some("findAndModify cannot both remove and upsert: leave out upsert"),
            _ => None,
        };
        if let Some(what) = wrong {
            return Err(Error::new(Code::FailedToParse, what));
        }
        Ok(FindAndModify {
            query: options.query.to_owned(),
            filter: Filter::parse(options.query, Purpose::Find)?,
            sort: options.sort.map(Sort::parse).transpose()?,
            update: options.update.map(|update| Modification::parse(update, false)).transpose()?,
            new: options.new,
            upsert: options.upsert,
            fields: options.fields.map(Projection::parse).transpose()?,
        })
    }

    fn run(&self, transaction: &mut Transaction<'_>, ahead: Option<Candidates<Stored>>) -> Result<FoundAndModified> {
        let found = transaction.matching(&self.filter, Hidden::Included, None, ahead)?;
        let (mut visible, expired): (Vec<Match>, Vec<Match>) = found.into_iter().partition(|found| found.is_visible);
        // While the clock guard holds, an update is no reason to lose what may not have expired.
        if self.update.is_none() || !transaction.is_held() {
            for found in expired {
                transaction.remove_found(found)?;
            }
        }
        if let Some(sort) = &self.sort {
            visible = sorted(visible, sort)?;
        }
        let Some(first) = visible.into_iter().next() else { return self.nothing_found(transaction) };
        let Some(update) = &self.update else {
            let value = Some(self.shown(&first.stored));
            transaction.remove_found(first)?;
            return Ok(FoundAndModified { value, updated_existing: false, upserted: None });
        };
        transaction.update(&first, update)?;
        let value = match self.new {
            true => transaction.stored(&first.key)?.map(|found| self.shown(&found.stored)),
            false => Some(self.shown(&first.stored)),
        };
        Ok(FoundAndModified { value, updated_existing: true, upserted: None })
    }

    fn nothing_found(&self, transaction: &mut Transaction<'_>) -> Result<FoundAndModified> {
        let (mut value, mut upserted) = (None, None);
        if let Some(update) = self.update.as_ref().filter(|_| self.upsert) {
            let made = upsert(transaction, &self.query, &update.update)?;
            upserted = Some(id_of(&made).into());
            let stored = Stored { written: transaction.written(), document: made.into_bytes().into() };
            value = self.new.then(|| self.shown(&stored));
        }
        Ok(FoundAndModified { value, updated_existing: false, upserted })
    }

    fn shown(&self, stored: &Stored) -> RawDocumentBuf {
        let document = raw(&stored.document);
        match &self.fields {
            Some(fields) => fields.apply(document, stored.written),
            None => document.to_owned(),
        }
    }
}

impl Documents {
    /// Inserts documents, each under an `_id` that no visible document has. A document that could not be read is refused with
    /// its error.
    ///
    /// # Errors
    /// Errors of reading and writing; nothing is stored then. What is wrong with one document is in
    /// [`WriteOutcome::refused`]: [`Code::DuplicateKey`], [`Code::InvalidIdField`], [`Code::BSONObjectTooLarge`],
    /// [`Code::BadValue`].
    pub fn insert_many(&self, documents: Vec<Result<RawDocumentBuf>>, ordered: bool) -> Result<WriteOutcome> {
        self.write(self.inserting(documents, ordered))
    }

    /// As [`Documents::insert_many`] in any order, for a request that is stored once, with the reply that `reply` makes of the
    /// outcome: [`crate::Database::begin_request`].
    ///
    /// # Errors
    /// As for [`Documents::insert_many`], and then the request is as if it had not been sent; [`Code::IllegalOperation`] if it is
    /// stored already.
    pub fn insert_many_once(
        &self,
        documents: Vec<Result<RawDocumentBuf>>,
        request: &mut Request,
        reply: impl FnOnce(&WriteOutcome) -> Vec<u8> + Send + 'static,
    ) -> Result<WriteOutcome> {
        let outcome = self.write_once(request.unanswered()?, self.inserting(documents, false), reply)?;
        request.committed();
        Ok(outcome)
    }

    fn inserting(
        &self,
        documents: Vec<Result<RawDocumentBuf>>,
        ordered: bool,
    ) -> impl FnOnce(&mut Transaction<'_>) -> Result<WriteOutcome> + Send + 'static {
        let with_id = |document: Result<RawDocumentBuf>| self.with_id(document?);
        let ready: Vec<_> = documents.into_iter().map(with_id).collect();
        move |transaction| {
            WriteOutcome::of(ordered, ready, |outcome, _, (document, key)| {
                check_ttl(&document, transaction.options().default_ttl)?;
                if transaction.get(&key)?.is_some() {
                    return Err(duplicate(&document));
                }
                transaction.put(key, document.into_bytes().into())?;
                outcome.n += 1;
                Ok(())
            })
        }
    }

    /// Runs updates in turn. One that could not be read is refused with its error.
    ///
    /// # Errors
    /// As for [`Documents::insert_many`].
    pub fn update_many(&self, updates: Vec<Result<UpdateRequest>>, ordered: bool) -> Result<WriteOutcome> {
        let first = updates.first().and_then(|update| update.as_ref().ok());
        let mut ahead = first.and_then(|first| self.candidates(&first.filter, Hidden::LeftOut, first.limit()));
        self.write(move |transaction| {
            WriteOutcome::of(ordered, updates, |outcome, index, update| {
                update.run(transaction, outcome, index, ahead.take())
            })
        })
    }

    /// Runs deletes in turn. One that could not be read is refused with its error. `n` counts visible documents; expired ones that
    /// match are removed for good too.
    ///
    /// # Errors
    /// As for [`Documents::insert_many`].
    pub fn delete_many(&self, deletes: Vec<Result<DeleteRequest>>, ordered: bool) -> Result<WriteOutcome> {
        let first = deletes.first().and_then(|delete| delete.as_ref().ok());
        let mut ahead = first.and_then(|first| self.candidates(&first.filter, Hidden::Included, None));
        self.write(move |transaction| {
            WriteOutcome::of(ordered, deletes, |outcome, _, delete| {
                outcome.n += delete.run(transaction, ahead.take())?;
                Ok(())
            })
        })
    }

    /// Changes or removes one document and returns it.
    ///
    /// # Errors
    /// Those of the update, as for [`Documents::update`], and errors of reading and writing; nothing is changed then.
    pub fn find_and_modify(&self, command: FindAndModify) -> Result<FoundAndModified> {
        let ahead = self.candidates(&command.filter, Hidden::Included, None);
        self.write(move |transaction| command.run(transaction, ahead))
    }
}
