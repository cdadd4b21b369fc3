//! Reads of an ordinary collection: one version of it, and one reading of the clock.

use super::due::Due;
use super::index::Chosen;
use super::memtable::Row;
use super::options::DocumentsOptions;
use super::pace::Stop;
use super::segment::DocumentSegment;
use super::state::{DocumentsState, Found};
use super::stored::{Stored, raw};
use super::usage::IndexUse;
use crate::error::Result;
use bytes::Bytes;
use ebbtide_documents::bson::{RawDocument, RawDocumentBuf};
use ebbtide_documents::{Filter, Purpose, Sort, has_expired};
use ebbtide_ttl::Timestamp;
use roaring::RoaringBitmap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whether a read returns expired documents too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    LeftOut,
    Included,
}

/// A document that was found, and as much of it as is kept: see [`Kept`].
#[derive(Debug, Clone)]
pub(crate) struct Match<T = Stored> {
    pub(crate) key: Bytes,
    pub(crate) stored: T,
    /// Its row, if a segment has it.
    pub(crate) row: Option<Row>,
    /// When it expires under the rules of now.
    expires: Option<Timestamp>,
    /// Whether it has not expired.
    pub(crate) is_visible: bool,
}

impl Match {
    /// A document as it is in a version of its collection at an instant.
    pub(super) fn new(state: &DocumentsState, now: Timestamp, key: Bytes, (stored, row): Found) -> Match {
        let expires = expiry(state, &stored);
        Match { key, stored, row, expires, is_visible: !has_expired(expires, now) }
    }

    pub(crate) fn keep<T: Kept>(self) -> Match<T> {
        let Match { key, stored, row, expires, is_visible } = self;
        Match { key, stored: T::of(stored), row, expires, is_visible }
    }
}

impl<T> Match<T> {
    /// The same at another instant, under the same rules.
    pub(super) fn at(self, now: Timestamp) -> Match<T> {
        let is_visible = !has_expired(self.expires, now);
        Match { is_visible, ..self }
    }
}

/// How much of a document that was found a command keeps.
pub(crate) trait Kept {
    fn of(stored: Stored) -> Self;

    /// Bytes in memory, beside those of the [`Match`].
    fn bytes(&self) -> usize;
}

impl Kept for Stored {
    fn of(stored: Stored) -> Stored {
        stored
    }

    fn bytes(&self) -> usize {
        self.document.len()
    }
}

/// Nothing, for a document that will be removed.
impl Kept for () {
    fn of(_: Stored) {}

    fn bytes(&self) -> usize {
        0
    }
}

/// When a document expires, if it ever does.
fn expiry(state: &DocumentsState, stored: &Stored) -> Option<Timestamp> {
    state.rules.expires_at(raw(&stored.document), stored.written).map(|(at, _)| at)
}

/// Whether a document has expired. No other code decides this.
pub(crate) fn is_expired(state: &DocumentsState, stored: &Stored, now: Timestamp) -> bool {
    has_expired(expiry(state, stored), now)
}

/// Documents that match a filter, in the order of their keys, at most `limit`.
pub(crate) fn matching<T: Kept>(
    state: &DocumentsState,
    now: Timestamp,
    filter: &Filter,
    hidden: Hidden,
    limit: Option<usize>,
    stop: &Stop,
) -> Result<Vec<Match<T>>> {
    let limit = limit.unwrap_or(usize::MAX);
    let mut found = Vec::new();
    visit(state, filter, None, stop, &mut |key, at| {
        let one = Match::new(state, now, key, at);
        if (one.is_visible || hidden == Hidden::Included) && filter.matches(raw(&one.stored.document)) {
            found.push(one.keep());
        }
        Ok(found.len() < limit)
    })?;
    Ok(found)
}

/// Documents in the order of their keys.
type Source<'a> = Box<dyn Iterator<Item = Result<(Bytes, Found)>> + 'a>;

/// Visits the stored documents that may match a filter, and whether each is visible, until the visitor returns false.
pub(crate) fn visit_stored(
    state: &DocumentsState,
    now: Timestamp,
    filter: &Filter,
    stop: &Stop,
    visitor: &mut dyn FnMut(Match) -> Result<bool>,
) -> Result<()> {
    visit(state, filter, None, stop, &mut |key, found| visitor(Match::new(state, now, key, found))).map(drop)
}

/// Documents in the order of a sort; those that it does not tell apart keep theirs.
pub(crate) fn sorted(found: Vec<Match>, sort: &Sort) -> Result<Vec<Match>> {
    let with_key = |found: Match| Ok((sort.key(raw(&found.stored.document))?, found));
    let mut keyed = found.into_iter().map(with_key).collect::<Result<Vec<(Vec<u8>, Match)>>>()?;
    keyed.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(keyed.into_iter().map(|(_, found)| found).collect())
}

/// Visits the stored documents that may match a filter and have greater keys than `after`, in the order of their keys, until
/// the visitor returns false. Returns how many documents were read to make parts of an index.
pub(super) fn visit(
    state: &DocumentsState,
    filter: &Filter,
    after: Option<&Bytes>,
    stop: &Stop,
    visitor: &mut dyn FnMut(Bytes, Found) -> Result<bool>,
) -> Result<u64> {
    let mut pace = stop.pace();
    let visitor = &mut |key, found| {
        pace.step()?;
        visitor(key, found)
    };
    if let Some(mut keys) = filter.id_keys() {
        if after.is_none() {
            state.usage.count_id();
        }
        keys.sort_unstable();
        keys.dedup();
        for key in keys.into_iter().filter(|key| after.is_none_or(|after| key.as_slice() > after.as_ref())) {
            if let Some(found) = state.get(&key)?
                && !visitor(key.into(), found)?
            {
                break;
            }
        }
        return Ok(0);
    }
    let mut indexed = 0;
    let chosen = Chosen::of(&state.options.indexes, filter);
    if let (Some(chosen), None) = (&chosen, after) {
        state.usage.count(chosen.name);
    }
    let mut sources: Vec<Source<'_>> = vec![match &chosen {
        None => {
            let documents = state.memtable.documents_after(after);
            Box::new(documents.map(|(key, stored)| Ok((key.clone(), (stored.clone(), None)))))
        }
        Some(chosen) => {
            let documents = chosen.in_memory(&state.memtable);
            let documents = documents.filter(|(key, _)| after.is_none_or(|after| key > after));
            Box::new(documents.map(|(key, stored)| Ok((key, (stored, None)))))
        }
    }];
    for segment in state.segments.values() {
        match &chosen {
            None => {
                let mut unwanted = state.gone(segment);
                unwanted.insert_range(0..first_row(segment, after)?);
                sources.push(rows_of(segment, &unwanted)?);
            }
            Some(chosen) => {
                let (wanted, read) = chosen.rows(segment)?;
                let mut wanted = wanted - state.gone(segment);
                wanted.remove_range(0..first_row(segment, after)?);
                indexed += read;
                if wanted.len() <= FEW_ROWS {
                    sources.push(Box::new(wanted.into_iter().map(|row| {
                        let (key, stored) = segment.row(row)?;
                        Ok((key, (stored, Some((segment.id(), row)))))
                    })));
                } else {
                    let mut unwanted = RoaringBitmap::new();
                    unwanted.insert_range(0..u32::try_from(segment.file.meta.rows).unwrap_or(u32::MAX));
                    sources.push(rows_of(segment, &(unwanted - wanted))?);
                }
            }
        }
    }
    merge(sources, visitor)?;
    Ok(indexed)
}

/// The first row of a segment whose key is greater than `after`.
fn first_row(segment: &Arc<DocumentSegment>, after: Option<&Bytes>) -> Result<u32> {
    let Some(after) = after else { return Ok(0) };
    let reader = segment.file.reader()?;
    let row = reader.lower_bound(after)?;
    Ok(if reader.find(after)? == Some(row) { row + 1 } else { row })
}

/// Up to this many rows are read one by one, since they are far from each other.
const FEW_ROWS: u64 = 4_096;

/// The rows of a segment but some, in the order of their keys.
fn rows_of<'a>(segment: &DocumentSegment, unwanted: &RoaringBitmap) -> Result<Source<'a>> {
    let id = segment.id();
    Ok(Box::new(segment.rows(unwanted)?.map(move |row| row.map(|(row, key, stored)| (key, (stored, Some((id, row))))))))
}

/// Merges ascending sources. A key is in one source only.
fn merge(mut sources: Vec<Source<'_>>, visitor: &mut dyn FnMut(Bytes, Found) -> Result<bool>) -> Result<()> {
    let mut heads: BTreeMap<(Bytes, usize), Found> = BTreeMap::new();
    for (number, source) in sources.iter_mut().enumerate() {
        if let Some(next) = source.next() {
            let (key, found) = next?;
            heads.insert((key, number), found);
        }
    }
    while let Some(((key, number), found)) = heads.pop_first() {
        if let Some(next) = sources[number].next() {
            let (key, found) = next?;
            heads.insert((key, number), found);
        }
        if !visitor(key, found)? {
            break;
        }
    }
    Ok(())
}

/// A document as a read returns it.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The document, exactly as it was written.
    pub document: RawDocumentBuf,
    /// `_ts`: the instant of its last write, in whole milliseconds.
    pub written: Timestamp,
}

/// How a find went: see [`DocumentsSnapshot::for_each_where`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindReport {
    /// The index that told where to look: `_id_` for look-ups by `_id`; `None` if all documents were looked at.
    pub index: Option<String>,
    /// Documents that were looked at.
    pub examined: u64,
    /// Visible documents that matched.
    pub returned: u64,
    /// Documents that were read besides, to make the part of the index that is about their segment. It is made once, by the first
    /// find that needs it, and stays in memory.
    pub indexed: u64,
}

/// One ordinary collection at one instant. See [`crate::Snapshot::documents`].
#[derive(Debug, Clone)]
pub struct DocumentsSnapshot {
    pub(crate) state: Arc<DocumentsState>,
    pub(crate) now: Timestamp,
    pub(super) stop: Stop,
}

impl DocumentsSnapshot {
    pub(crate) fn new(state: Arc<DocumentsState>, now: Timestamp) -> Self {
        DocumentsSnapshot { state, now, stop: Stop::default() }
    }

    /// The same, for commands that may be stopped. Cursors have a [`Stop`] of their own.
    #[must_use]
    pub fn with_stop(self, stop: Stop) -> Self {
        DocumentsSnapshot { stop, ..self }
    }

    /// The same, whose reads count as no uses of indexes.
    #[must_use]
    pub fn without_counting(self) -> Self {
        let state = DocumentsState { usage: Arc::default(), ..(*self.state).clone() };
        DocumentsSnapshot { state: Arc::new(state), ..self }
    }

    /// How often each index was used, first the one on `_id`.
    #[must_use]
    pub fn index_uses(&self) -> Vec<IndexUse> {
        self.state.usage.list()
    }

    /// Bytes in memory of an index of this name: parts of it are made when they are first needed. Indexes take no space on disk.
    #[must_use]
    pub fn index_bytes(&self, name: &str) -> u64 {
        let index = self.state.options.indexes.iter().find(|index| index.name == name);
        let Some((path, _)) = index.and_then(|index| index.key.first()) else { return 0 };
        let parts = self.state.segments.values().filter_map(|segment| segment.index(path));
        parts.map(|part| part.bytes() as u64).sum::<u64>() + self.state.memtable.index_bytes(path) as u64
    }

    /// The collection's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The collection's number in its database. No two collections ever have the same one.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.state.id
    }

    /// Its default time to live and its indexes.
    #[must_use]
    pub fn options(&self) -> &DocumentsOptions {
        &self.state.options
    }

    /// The instant at which expiry is decided.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Visible documents that match a filter, in the order of their keys.
    pub(crate) fn matching(&self, filter: &Filter) -> Result<Vec<Match>> {
        matching(&self.state, self.now, filter, Hidden::LeftOut, None, &self.stop)
    }

    /// The visible document with a key.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Stored>> {
        let found = self.state.get(key)?.map(|(stored, _)| stored);
        Ok(found.filter(|stored| !is_expired(&self.state, stored, self.now)))
    }

    /// Visits every visible document in the order of the keys, until the visitor returns false.
    ///
    /// # Errors
    /// Errors of reading, and those of the visitor.
    pub fn for_each(&self, visitor: &mut dyn FnMut(Document) -> Result<bool>) -> Result<()> {
        visit(&self.state, &Filter::everything(), None, &self.stop, &mut |_, (stored, _)| match is_expired(
            &self.state,
            &stored,
            self.now,
        ) {
            true => Ok(true),
            false => visitor(document(&stored)),
        })
        .map(drop)
    }

    /// Visits the visible documents that match a filter in MongoDB's form, in the order of their keys, until the visitor returns
    /// false, and says how that went. A filter on `_id` looks these documents up; one on the leading field of an index looks at
    /// those that the index points to.
    ///
    /// # Errors
    /// [`Code::BadValue`](ebbtide_ttl::Code::BadValue) for a wrong filter, errors of reading, and those of the visitor.
    pub fn for_each_where(
        &self,
        filter: &RawDocument,
        visitor: &mut dyn FnMut(Document) -> Result<bool>,
    ) -> Result<FindReport> {
        let filter = Filter::parse(filter, Purpose::Find)?;
        let mut report = FindReport { index: self.index_of(&filter), examined: 0, returned: 0, indexed: 0 };
        report.indexed = visit(&self.state, &filter, None, &self.stop, &mut |_, (stored, _)| {
            report.examined += 1;
            if is_expired(&self.state, &stored, self.now) || !filter.matches(raw(&stored.document)) {
                return Ok(true);
            }
            report.returned += 1;
            visitor(document(&stored))
        })?;
        Ok(report)
    }

    /// The index that tells a find where to look: `_id_` for look-ups by `_id`; `None` if it looks at all documents.
    ///
    /// # Errors
    /// [`Code::BadValue`](ebbtide_ttl::Code::BadValue) for a wrong filter.
    pub fn index_for(&self, filter: &RawDocument) -> Result<Option<String>> {
        Ok(self.index_of(&Filter::parse(filter, Purpose::Find)?))
    }

    fn index_of(&self, filter: &Filter) -> Option<String> {
        match filter.id_keys() {
            Some(_) => Some("_id_".to_owned()),
            None => Chosen::of(&self.state.options.indexes, filter).map(|chosen| chosen.name.to_owned()),
        }
    }

    /// Visits the stored documents that may match a filter.
    pub(crate) fn visit(&self, filter: &Filter, visitor: &mut dyn FnMut(Match) -> Result<bool>) -> Result<()> {
        visit_stored(&self.state, self.now, filter, &self.stop, visitor)
    }

    /// Visits the visible documents that match a filter.
    pub(crate) fn for_each_match(&self, filter: &Filter, visitor: &mut dyn FnMut(Match)) -> Result<()> {
        visit(&self.state, filter, None, &self.stop, &mut |key, found| {
            let found = Match::new(&self.state, self.now, key, found);
            if found.is_visible && filter.matches(raw(&found.stored.document)) {
                visitor(found);
            }
            Ok(true)
        })
        .map(drop)
    }

    /// Bytes on disk of the segments.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.state.segments.values().map(|segment| segment.file.meta.bytes).sum()
    }

    /// Bytes on disk of what is stored, and in memory of what is not sealed yet.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let sealed: u64 = self.state.segments.values().map(|segment| segment.share(segment.live_rows())).sum();
        sealed + self.state.memtable.bytes() as u64
    }

    /// The number of visible documents. Documents are read only of segments of which some may have expired by a date.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn count(&self) -> Result<u64> {
        let visible = |(_, stored): &(&Bytes, &Stored)| !is_expired(&self.state, stored, self.now);
        let mut count = self.state.memtable.documents().filter(visible).count() as u64;
        for segment in self.state.segments.values() {
            let gone = self.state.gone(segment) | Due::of(&self.state, segment, self.now)?.rows();
            count += segment.file.meta.rows.saturating_sub(gone.len());
        }
        Ok(count)
    }
}

/// A stored document as a read returns it.
pub(crate) fn document(stored: &Stored) -> Document {
    Document { document: raw(&stored.document).to_owned(), written: Timestamp::from_millis(stored.written) }
}
