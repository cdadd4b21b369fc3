//! Finds on an ordinary collection: a filter, an order, a projection, and results in batches.

use super::pace::Stop;
use super::snapshot::{DocumentsSnapshot, is_expired, visit};
use super::stored::{Stored, raw};
use crate::error::{Error, Result};
use bytes::Bytes;
use ebbtide_buckets::to_usize;
use ebbtide_documents::bson::raw::RawBson;
use ebbtide_documents::bson::{RawDocument, RawDocumentBuf};
use ebbtide_documents::{Distinct, Filter, Projection, Purpose, Sort};
use ebbtide_ttl::Code;

/// What a find asks for.
///
/// Documents come in the order of `sort`, and where it leaves the order open in that of their `_id`, so that sealing and
/// compaction do not change what a limit returns.
#[derive(Debug, Clone)]
pub struct FindRequest {
    filter: Filter,
    sort: Option<Sort>,
    projection: Option<Projection>,
    /// Documents that are passed over. Default: 0.
    pub skip: u64,
    /// Documents that are returned at most. Default: no limit.
    pub limit: Option<u64>,
    /// Bytes of documents that a sort may hold in memory. Default: no limit.
    pub sort_bytes_max: usize,
}

impl FindRequest {
    /// All documents that match a filter in MongoDB's form.
    ///
    /// # Errors
    /// [`Code::BadValue`] for a wrong filter.
    pub fn new(filter: &RawDocument) -> Result<FindRequest> {
        let filter = Filter::parse(filter, Purpose::Find)?;
        Ok(FindRequest { filter, sort: None, projection: None, skip: 0, limit: None, sort_bytes_max: usize::MAX })
    }

    /// Sets the order, such as `{age: -1}`; an empty one leaves it open.
    ///
    /// # Errors
    /// [`Code::BadValue`] for a wrong sort.
    pub fn sort(mut self, sort: &RawDocument) -> Result<FindRequest> {
        self.sort = Some(Sort::parse(sort)?).filter(|sort| !sort.is_empty());
        Ok(self)
    }

    /// Sets which fields are returned, such as `{name: 1}`.
    ///
    /// # Errors
    /// [`Code::BadValue`] for a wrong projection.
    pub fn projection(mut self, projection: &RawDocument) -> Result<FindRequest> {
        self.projection = Some(Projection::parse(projection)?).filter(|projection| !projection.is_whole());
        Ok(self)
    }
}

/// The results of a find, batch by batch. It keeps its snapshot until it is dropped.
#[derive(Debug)]
pub struct FindCursor {
    snapshot: DocumentsSnapshot,
    request: FindRequest,
    /// Where the next batch begins without a sort: after this key.
    after: Option<Bytes>,
    /// What is left of a sorted result.
    sorted: Option<std::vec::IntoIter<Stored>>,
    skip: u64,
    left: u64,
    is_done: bool,
}

impl FindCursor {
    /// Sets what may stop the next batches. One that was stopped is lost: the cursor is not to be used any more.
    pub fn set_stop(&mut self, stop: Stop) {
        self.snapshot.stop = stop;
    }

    /// Whether there is nothing left.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether it looks for the document of one `_id`.
    #[must_use]
    pub fn is_of_one(&self) -> bool {
        self.request.filter.id_keys().is_some_and(|keys| keys.len() == 1)
    }

    /// The next documents: at most `count`, and of about `bytes_max` bytes, but at least one if any is left.
    ///
    /// # Errors
    /// [`Code::BadValue`] for a sort through two different lists, [`Code::ExceededMemoryLimit`] for a sort of more than it
    /// may hold, and errors of reading.
    pub fn next_batch(&mut self, count: usize, bytes_max: usize) -> Result<Vec<RawDocumentBuf>> {
        let mut batch = Batch { documents: Vec::new(), bytes: 0, count, bytes_max };
        if self.left == 0 || count == 0 {
            self.is_done = self.left == 0;
            return Ok(batch.documents);
        }
        if self.request.sort.is_some() {
            self.next_sorted(&mut batch)?;
        } else {
            self.next_in_order(&mut batch)?;
        }
        self.left -= batch.documents.len() as u64;
        self.is_done |= self.left == 0;
        Ok(batch.documents)
    }

    fn next_in_order(&mut self, batch: &mut Batch) -> Result<()> {
        let FindCursor { snapshot, request, after, skip, left, is_done, .. } = self;
        let (state, now) = (&snapshot.state, snapshot.now);
        let from = after.take();
        *is_done = true;
        visit(state, &request.filter, from.as_ref(), &snapshot.stop, &mut |key, (stored, _)| {
            if is_expired(state, &stored, now) || !request.filter.matches(raw(&stored.document)) {
                return Ok(true);
            }
            if *skip > 0 {
                *skip -= 1;
                return Ok(true);
            }
            let document = shown(request, &stored);
            if batch.documents.len() as u64 == *left || !batch.takes(&document) {
                *is_done = false;
                return Ok(false);
            }
            batch.add(document);
            *after = Some(key);
            Ok(true)
        })
        .map(drop)
    }

    fn next_sorted(&mut self, batch: &mut Batch) -> Result<()> {
        if self.sorted.is_none() {
            let sorted = self.sort()?;
            self.sorted = Some(sorted.into_iter());
        }
        let Some(sorted) = &mut self.sorted else { return Ok(()) };
        while let Some(stored) = sorted.as_slice().first() {
            let document = shown(&self.request, stored);
            if !batch.takes(&document) {
                return Ok(());
            }
            batch.add(document);
            sorted.next();
        }
        self.is_done = true;
        Ok(())
    }

    /// The whole result in order, without what is passed over and what is beyond the limit.
    fn sort(&self) -> Result<Vec<Stored>> {
        let FindCursor { snapshot, request, skip, left, .. } = self;
        let Some(sort) = &request.sort else { return Ok(Vec::new()) };
        let wanted = to_usize(skip.saturating_add(*left));
        let mut found: Vec<(Vec<u8>, Stored)> = Vec::new();
        let mut bytes = 0;
        let size =
            |(key, stored): &(Vec<u8>, Stored)| key.len() + stored.document.len() + size_of::<(Vec<u8>, Stored)>();
        visit(&snapshot.state, &request.filter, None, &snapshot.stop, &mut |_, (stored, _)| {
            let document = raw(&stored.document);
            if is_expired(&snapshot.state, &stored, snapshot.now) || !request.filter.matches(document) {
                return Ok(true);
            }
            // A copy: what was read may be a part of a larger block.
            let copied = Stored { written: stored.written, document: Bytes::copy_from_slice(&stored.document) };
            let candidate = (sort.key(document)?, copied);
            bytes += size(&candidate);
            found.push(candidate);
            let too_many = found.len() > wanted.saturating_mul(2).max(1 << 12);
            if too_many || bytes > request.sort_bytes_max {
                found.sort_by(|a, b| a.0.cmp(&b.0));
                found.truncate(wanted);
                bytes = found.iter().map(size).sum();
            }
            if bytes > request.sort_bytes_max {
                let what = format!(
                    "the sort needs more than {} MB of memory: narrow the filter, or add a limit",
                    request.sort_bytes_max >> 20
                );
                return Err(Error::new(Code::ExceededMemoryLimit, what));
            }
            Ok(true)
        })?;
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found.truncate(wanted);
        Ok(found.into_iter().skip(to_usize(*skip)).map(|(_, stored)| stored).collect())
    }
}

fn shown(request: &FindRequest, stored: &Stored) -> RawDocumentBuf {
    let document = raw(&stored.document);
    match &request.projection {
        Some(projection) => projection.apply(document, stored.written),
        None => document.to_owned(),
    }
}

/// A batch that is being filled.
struct Batch {
    documents: Vec<RawDocumentBuf>,
    bytes: usize,
    count: usize,
    bytes_max: usize,
}

impl Batch {
    fn takes(&self, document: &RawDocument) -> bool {
        let fits = self.bytes + document.as_bytes().len() <= self.bytes_max;
        self.documents.is_empty() || (self.documents.len() < self.count && fits)
    }

    fn add(&mut self, document: RawDocumentBuf) {
        self.bytes += document.as_bytes().len();
        self.documents.push(document);
    }
}

impl DocumentsSnapshot {
    /// Begins a find; nothing is read yet.
    #[must_use]
    pub fn find(&self, request: FindRequest) -> FindCursor {
        let (skip, left) = (request.skip, request.limit.unwrap_or(u64::MAX));
        FindCursor { snapshot: self.clone(), request, after: None, sorted: None, skip, left, is_done: left == 0 }
    }

    /// The number of visible documents that match a filter in MongoDB's form.
    ///
    /// # Errors
    /// [`Code::BadValue`] for a wrong filter, and errors of reading.
    pub fn count_where(&self, filter: &RawDocument) -> Result<u64> {
        let filter = Filter::parse(filter, Purpose::Find)?;
        let mut count = 0;
        self.for_each_match(&filter, &mut |_| count += 1)?;
        Ok(count)
    }

    /// The different values that a path reaches in the documents that match a filter, in order.
    ///
    /// # Errors
    /// [`Code::BadValue`] for a wrong filter or path, and errors of reading.
    pub fn distinct(&self, path: &str, filter: &RawDocument) -> Result<Vec<RawBson>> {
        let filter = Filter::parse(filter, Purpose::Find)?;
        let mut values = Distinct::new(path)?;
        self.for_each_match(&filter, &mut |found| values.add(raw(&found.stored.document)))?;
        Ok(values.into_values())
    }
}

#[cfg(test)]
mod tests;
