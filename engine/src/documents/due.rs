//! What of an ordinary collection is due.

use super::segment::{DocumentSegment, Outlook};
use super::state::DocumentsState;
use super::stored::raw;
use crate::error::Result;
use ebbtide_buckets::KeyedColumns;
use ebbtide_documents::{ITEMS_RULE, ItemTtl, RuleName};
use ebbtide_ttl::{Precision, Timestamp, due_instant};
use roaring::RoaringBitmap;
use std::collections::BTreeMap;

/// The epoch of rules that are only proposed: what is found out under them is not remembered. Those of collections begin with 1.
pub(super) const PROPOSED: u64 = 0;

/// Rows of one segment that are due, by rule.
#[derive(Debug, Clone, Default)]
pub(crate) struct Due {
    pub(super) by_rule: BTreeMap<String, RoaringBitmap>,
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
    pub(super) fn is_of_all(&self, segment: &DocumentSegment) -> bool {
        (self.rows() | &segment.deleted).len() >= segment.file.meta.rows
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
