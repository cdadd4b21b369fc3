//! What of an ordinary collection is due, and dropping it: a segment of which all is due as one, other documents as rows.

use super::seal::removals;
use super::segment::{DocumentSegment, Outlook};
use super::snapshot::{is_expired, raw};
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
pub(super) const PROPOSED: u64 = 0;

/// Rows of one segment that are due, by rule.
#[derive(Debug, Clone, Default)]
pub(crate) struct Due {
    by_rule: BTreeMap<String, RoaringBitmap>,
}

impl Due {
    /// Whether it is known, without reading the segment, that nothing of it expires up to an instant in milliseconds.
    pub(super) fn none_before(collection: &DocumentsState, segment: &DocumentSegment, at: i64) -> bool {
        let epoch = collection.rules_epoch;
        let outlook = if epoch == PROPOSED { None } else { segment.outlook(epoch) };
        let first = match outlook {
            Some(outlook) => outlook.first,
            // The summary in the manifest tells of all items together.
            None if collection.rules.indexes.is_empty() => segment.first_item_expiry(collection.options.default_ttl),
            None => return false,
        };
        first.is_none_or(|first| first > at)
    }

    /// What of a segment is due at `now`.
    pub(crate) fn of(collection: &DocumentsState, segment: &DocumentSegment, now: Timestamp) -> Result<Due> {
        let at = now.to_units_saturating(Precision::Ms);
        let mut due = Due::default();
        if Due::none_before(collection, segment, at) {
            return Ok(due);
        }
        if collection.rules.indexes.is_empty() {
            let default_ttl = collection.options.default_ttl;
            if segment.last_item_expiry(default_ttl).is_some_and(|last| last <= at) {
                let mut all = RoaringBitmap::new();
                all.insert_range(0..u32::try_from(segment.file.meta.rows).unwrap_or(u32::MAX));
                due.by_rule.insert(ITEMS_RULE.to_owned(), all - &segment.deleted);
                return Ok(due);
            }
        }
        each_expiry(collection, segment, &mut |row, expires, rule| {
            if expires <= now {
                due.by_rule.entry(rule.to_string()).or_default().insert(row);
            }
        })?;
        Ok(due)
    }

    /// Rows that are due through any rule.
    pub(super) fn rows(&self) -> RoaringBitmap {
        self.by_rule.values().fold(RoaringBitmap::new(), |all, rows| all | rows)
    }

    /// Whether all rows of a segment are due or gone.
    fn is_of_all(&self, segment: &DocumentSegment) -> bool {
        (self.rows() | &segment.deleted).len() >= segment.file.meta.rows
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

/// Visits the rows of a segment that are not durably gone and that expire at some time, with when and by which rule. Documents
/// are read only where a TTL index asks for their dates.
pub(super) fn each_expiry(
    collection: &DocumentsState,
    segment: &DocumentSegment,
    visitor: &mut dyn FnMut(u32, Timestamp, RuleName<'_>),
) -> Result<()> {
    let (epoch, rules) = (collection.rules_epoch, &collection.rules);
    let mut first: Option<i64> = None;
    let mut tell = |row: u32, expiry: Option<(Timestamp, RuleName<'_>)>| {
        let Some((at, rule)) = expiry else { return };
        let ms = at.to_units_saturating(Precision::Ms);
        first = Some(first.map_or(ms, |first| first.min(ms)));
        visitor(row, at, rule);
    };
    if rules.indexes.is_empty() {
        let reader = segment.file.reader()?;
        let columns = KeyedColumns { keys: false, documents: false };
        for block in reader.scan(&segment.deleted, 0..reader.rows(), columns) {
            let block = block?;
            for ((row, written), ttl) in block.rows.into_iter().zip(block.written).zip(block.ttls) {
                let life = rules.default_ttl.life(item_ttl(ttl));
                let at = life.map(|life| due_instant(written, i64::from(life), Precision::Ms));
                tell(row, at.map(|at| (at, RuleName::Items)));
            }
        }
    } else {
        for row in segment.rows(&segment.deleted)? {
            let (row, _, stored) = row?;
            tell(row, rules.expires_at(raw(&stored.document), stored.written));
        }
    }
    if epoch != PROPOSED {
        segment.set_outlook(Outlook { epoch, first });
    }
    Ok(())
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
