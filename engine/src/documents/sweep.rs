//! What of an ordinary collection is due, and dropping it: a segment of which all is due as one, other documents as rows.

use super::memtable::Stored;
use super::options::DocumentsOptions;
use super::seal::{groups, removals};
use super::segment::{DocumentSegment, Outlook};
use super::snapshot::{DocumentsSnapshot, is_expired, raw};
use super::state::DocumentsState;
use crate::error::Result;
use crate::manifest::Op;
use ebbtide_buckets::KeyedColumns;
use ebbtide_documents::{DefaultTtl, ITEMS_RULE, ItemTtl, RuleName};
use ebbtide_ttl::{Precision, RuleRef, Timestamp, Visit, due_instant};
use roaring::RoaringBitmap;
use std::collections::BTreeMap;
use std::sync::Arc;

impl DocumentsState {
    /// The rules that may expire documents.
    pub(crate) fn sweep_rules(&self) -> impl Iterator<Item = RuleRef> {
        let items = (self.options.default_ttl != DefaultTtl::Off).then(|| ITEMS_RULE.to_owned());
        let indexes = self.options.indexes.iter().filter(|index| index.expire_after_seconds.is_some());
        let names = items.into_iter().chain(indexes.map(|index| index.name.clone()));
        names.map(|rule| RuleRef { collection: self.name.clone(), rule: Some(rule) })
    }

    /// The seconds of a rule, for the history: -1 for items with lives of their own only.
    pub(crate) fn seconds_of(&self, rule: &str) -> Option<i64> {
        if rule == ITEMS_RULE {
            return match self.options.default_ttl {
                DefaultTtl::Off => None,
                DefaultTtl::Never => Some(-1),
                DefaultTtl::Seconds(n) => Some(i64::from(n)),
            };
        }
        self.options.indexes.iter().find(|index| index.name == rule)?.expire_after_seconds
    }

    /// Whether a document that is not sealed has expired.
    pub(crate) fn has_due_in_memory(&self, now: Timestamp) -> bool {
        let mut documents = self.memtable.documents();
        documents.any(|(_, stored)| is_expired(self, stored, now))
    }
}

/// The epoch of rules that are only proposed: what is found out under them is not remembered. Those of collections begin with 1.
const PROPOSED: u64 = 0;

/// What a sweep would drop of an ordinary collection through one rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DocumentsDue {
    /// `items` for time to live per item, or the index's name.
    pub rule: String,
    /// Segments that would go as a whole.
    pub buckets: u64,
    /// Documents that would go, in such segments and others.
    pub documents: u64,
    /// Bytes on disk of these documents, and in memory of those that are not sealed yet.
    pub bytes: u64,
}

impl DocumentsSnapshot {
    /// What a sweep at `at` would drop, under the present settings or proposed ones, by rule. Nothing is changed.
    ///
    /// # Errors
    /// Errors of reading; what is wrong with the proposed settings.
    pub fn due(&self, at: Timestamp, proposed: Option<&DocumentsOptions>) -> Result<Vec<DocumentsDue>> {
        let Some(options) = proposed else { return due(&self.state, at) };
        let mut state = (*self.state).clone();
        (state.rules, state.rules_epoch) = (Arc::new(options.rules()?), PROPOSED);
        state.options = Arc::new(options.clone());
        due(&state, at)
    }
}

/// What a sweep at `at` would drop: it goes through the rules in the order of a sweep, which seals first what is due in memory.
fn due(collection: &DocumentsState, at: Timestamp) -> Result<Vec<DocumentsDue>> {
    let rules = collection.sweep_rules().filter_map(|rule| rule.rule);
    let mut found: Vec<DocumentsDue> = rules.map(|rule| DocumentsDue { rule, ..DocumentsDue::default() }).collect();
    let seals = collection.has_due_in_memory(at);
    for segment in collection.segments.values() {
        let due = Due::of(collection, segment, at)?;
        let superseded = collection.memtable.superseded(segment.id());
        let mut left = segment.live_rows() - (&superseded - &segment.deleted).len();
        // Otherwise the seal removes the segment, or its rows stay for those that are not due.
        let mut may_go = if seals { left > 0 } else { due.is_of_all(segment) };
        for sum in &mut found {
            let Some(rows) = due.by_rule.get(&sum.rule).map(|rows| (rows - &superseded).len()) else { continue };
            left = left.saturating_sub(rows);
            sum.documents += rows;
            sum.bytes += segment.share(rows);
            let goes = may_go && left == 0;
            sum.buckets += u64::from(goes);
            may_go &= !goes;
        }
    }
    if !seals {
        return Ok(found);
    }
    for group in groups(collection, collection.memtable.documents()) {
        let mut left = group.len();
        let rule_of = |stored: &Stored| {
            collection.rules.expired_by(raw(&stored.document), stored.written, at).map(|r| r.to_string())
        };
        let rules: Vec<Option<String>> = group.iter().map(|(_, stored)| rule_of(stored)).collect();
        for sum in &mut found {
            let due = group.iter().zip(&rules).filter(|(_, rule)| rule.as_ref() == Some(&sum.rule));
            let bytes = due.map(|((key, stored), _)| key.len() + stored.document.len());
            let (rows, bytes) = bytes.fold((0, 0), |(rows, sum), bytes| (rows + 1, sum + bytes));
            left -= rows;
            sum.documents += rows as u64;
            sum.bytes += bytes as u64;
            sum.buckets += u64::from(rows > 0 && left == 0);
        }
    }
    Ok(found)
}

/// Rows of one segment that are due, by rule.
#[derive(Debug, Clone, Default)]
pub(crate) struct Due {
    by_rule: BTreeMap<String, RoaringBitmap>,
}

impl Due {
    /// What of a segment is due at `now`.
    pub(crate) fn of(collection: &DocumentsState, segment: &DocumentSegment, now: Timestamp) -> Result<Due> {
        let at = now.to_units_saturating(Precision::Ms);
        let (epoch, rules) = (collection.rules_epoch, &collection.rules);
        let outlook = if epoch == PROPOSED { None } else { segment.outlook(epoch) };
        if outlook.is_some_and(|outlook| outlook.first.is_none_or(|first| first > at)) {
            return Ok(Due::default());
        }
        let mut due = Due::default();
        let rows = u32::try_from(segment.file.meta.rows).unwrap_or(u32::MAX);
        if rules.indexes.is_empty() {
            // The summary in the manifest tells of all items together.
            let default_ttl = collection.options.default_ttl;
            if segment.first_item_expiry(default_ttl).is_none_or(|first| first > at) {
                return Ok(due);
            }
            if segment.last_item_expiry(default_ttl).is_some_and(|last| last <= at) {
                let mut all = RoaringBitmap::new();
                all.insert_range(0..rows);
                due.by_rule.insert(ITEMS_RULE.to_owned(), all - &segment.deleted);
                return Ok(due);
            }
        }
        let mut first: Option<i64> = None;
        let mut judge = |row: u32, expiry: Option<(Timestamp, RuleName<'_>)>| {
            let Some((expires, rule)) = expiry else { return };
            if expires <= now {
                due.by_rule.entry(rule.to_string()).or_default().insert(row);
            } else {
                let expires = expires.to_units_saturating(Precision::Ms);
                first = Some(first.map_or(expires, |first| first.min(expires)));
            }
        };
        if rules.indexes.is_empty() {
            let columns = KeyedColumns { keys: false, documents: false };
            for block in segment.file.reader()?.scan(&segment.deleted, 0..rows, columns) {
                let block = block?;
                for ((row, written), ttl) in block.rows.into_iter().zip(block.written).zip(block.ttls) {
                    let life = rules.default_ttl.life(item_ttl(ttl));
                    let at = life.map(|life| due_instant(written, i64::from(life), Precision::Ms));
                    judge(row, at.map(|at| (at, RuleName::Items)));
                }
            }
        } else {
            for row in segment.rows(&segment.deleted)? {
                let (row, _, stored) = row?;
                judge(row, rules.expires_at(raw(&stored.document), stored.written));
            }
        }
        if due.by_rule.is_empty() && epoch != PROPOSED {
            segment.set_outlook(Outlook { epoch, first });
        }
        Ok(due)
    }

    /// Whether all rows of a segment are due or gone.
    fn is_of_all(&self, segment: &DocumentSegment) -> bool {
        let due = self.by_rule.values().fold(segment.deleted.clone(), |sum, rows| sum | rows);
        due.len() >= segment.file.meta.rows
    }

    /// Takes rows that are due through a rule: all of a segment, or up to `limit` documents. What writers have replaced is left
    /// to the seal of the documents that replace it, unless it is due itself like all the rest: then the whole segment goes.
    fn take(
        &self,
        collection: &DocumentsState,
        segment: &Arc<DocumentSegment>,
        rule: &str,
        limit: u64,
    ) -> Option<Taken> {
        if limit == 0 {
            return None;
        }
        let gone = collection.gone(segment);
        let mut taken = self.by_rule.get(rule)? - &gone;
        let is_last = self.by_rule.iter().all(|(other, rows)| other == rule || rows.is_subset(&gone));
        let documents = taken.len();
        if is_last && self.is_of_all(segment) {
            return Some(Taken { segment: segment.clone(), rows: None, documents });
        }
        if documents > limit {
            taken = taken.iter().take(usize::try_from(limit).unwrap_or(usize::MAX)).collect();
        }
        let documents = taken.len();
        (documents > 0).then(|| Taken { segment: segment.clone(), rows: Some(taken), documents })
    }
}

/// The time to live of an item as a segment keeps it.
fn item_ttl(stored: Option<i64>) -> ItemTtl {
    match stored {
        None => ItemTtl::Inherit,
        Some(seconds) => u32::try_from(seconds).map_or(ItemTtl::Never, ItemTtl::Seconds),
    }
}

/// What a visit takes of one segment.
struct Taken {
    segment: Arc<DocumentSegment>,
    /// The rows; `None` for the segment as a whole.
    rows: Option<RoaringBitmap>,
    documents: u64,
}

/// What a visit takes.
#[derive(Default)]
pub(crate) struct Drops {
    taken: Vec<Taken>,
    /// Towards the limit of a visit a segment that goes as a whole counts one, and so does each other document.
    pub(crate) counted: u64,
}

impl Drops {
    /// Takes what is due of a segment through a rule, as far as the limit allows.
    pub(crate) fn take(
        &mut self,
        due: &Due,
        collection: &DocumentsState,
        segment: &Arc<DocumentSegment>,
        (rule, limit): (&str, Option<u64>),
    ) {
        let limit = limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.counted));
        if let Some(taken) = due.take(collection, segment, rule, limit) {
            self.counted += if taken.rows.is_none() { 1 } else { taken.documents };
            self.taken.push(taken);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// The operations that drop what was taken, and what that is.
    pub(crate) fn edits(&self, collection: &DocumentsState) -> (Vec<Op>, Visit) {
        let mut visit = Visit::default();
        let (mut ops, mut rows) = (Vec::new(), Vec::new());
        for taken in &self.taken {
            let id = taken.segment.id();
            visit.measurements += taken.documents;
            visit.bytes += taken.segment.share(taken.documents);
            match &taken.rows {
                None => {
                    visit.buckets += 1;
                    visit.files += 1;
                    ops.push(Op::RemoveSegment { collection: collection.id, segment: id });
                }
                Some(bitmap) => rows.extend(bitmap.iter().map(|row| (id, row))),
            }
        }
        let removed = removals(collection, rows.into_iter());
        visit.files += removed.iter().filter(|op| matches!(op, Op::RemoveSegment { .. })).count() as u64;
        ops.extend(removed);
        (ops, visit)
    }
}
