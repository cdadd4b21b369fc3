//! Dropping what of an ordinary collection is due: a segment of which all is due as one, other documents as rows.

use super::due::Due;
use super::seal::removals;
use super::segment::DocumentSegment;
use super::snapshot::is_expired;
use super::state::DocumentsState;
use crate::manifest::Op;
use ebbtide_documents::{DefaultTtl, ITEMS_RULE};
use ebbtide_ttl::{RuleRef, Timestamp, Visit};
use roaring::RoaringBitmap;
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

/// What a visit takes of one segment.
struct Taken {
    segment: Arc<DocumentSegment>,
    /// The rows; `None` for the segment as a whole.
    rows: Option<RoaringBitmap>,
    documents: u64,
}

impl Due {
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
