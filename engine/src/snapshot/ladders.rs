//! Listings of ladders.

use super::listing::ExpiryRow;
use super::{CollectionSnapshot, Snapshot};
use crate::error::Result;
use crate::ladder::alter::stored_bins;
use crate::sweep::plan::due_scan::due_buckets;
use ebbtide_ttl::Timestamp;

/// A rung, as `SHOW LADDERS` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RungInfo {
    /// The collection.
    pub collection: String,
    /// The width of its bins.
    pub step_seconds: i64,
    /// Seconds after its end until which a bin is visible; none for ever.
    pub expire_after_seconds: Option<i64>,
    /// The fields of which bins keep aggregates; none if all.
    pub fields: Option<Vec<String>>,
    /// Bins of measurements that have been dropped. Those of stored measurements are computed when they are asked for.
    pub bins: u64,
    /// Bytes of these on disk.
    pub bytes: u64,
    /// The start of the first of them.
    pub first_bin: Option<Timestamp>,
    /// The start of the last of them.
    pub last_bin: Option<Timestamp>,
    /// The instant from which a sweep drops the first of them.
    pub next_expiry: Option<Timestamp>,
}

impl Snapshot {
    /// Every rung of every ladder, by collection and width.
    ///
    /// # Errors
    /// Damage in a segment.
    pub fn ladders(&self) -> Result<Vec<RungInfo>> {
        let mut infos = Vec::new();
        for name in self.collections() {
            infos.extend(self.collection(&name)?.rung_infos()?);
        }
        Ok(infos)
    }
}

impl CollectionSnapshot {
    /// The rungs of its ladder, the finest first.
    ///
    /// # Errors
    /// Damage in a segment.
    pub fn rung_infos(&self) -> Result<Vec<RungInfo>> {
        let Some(ladder) = &self.state.ladder else { return Ok(Vec::new()) };
        let info = |(record, rung): (&crate::ladder::RungRecord, &std::sync::Arc<crate::state::CollectionState>)| {
            let bins = stored_bins((ladder, record, rung), &self.state, record.rung.step_seconds, false)?;
            let starts = || bins.iter().map(|(_, bin, _)| Timestamp::from_units(bin.start, self.options().precision));
            Ok(RungInfo {
                collection: self.name().to_owned(),
                step_seconds: record.rung.step_seconds,
                expire_after_seconds: record.rung.expire_after_seconds,
                fields: ladder.fields.clone(),
                bins: bins.len() as u64,
                bytes: rung.bytes(),
                first_bin: starts().min(),
                last_bin: starts().max(),
                next_expiry: self.rung_view(rung).rule_infos()?.into_iter().find_map(|rule| rule.next_expiry),
            })
        };
        ladder.rungs.iter().zip(self.rungs.iter()).map(info).collect()
    }

    /// What a sweep at `at` would drop of the rungs, by rung and day.
    pub(super) fn explain_rungs(&self, at: Timestamp) -> Result<Vec<ExpiryRow>> {
        let mut rows: Vec<ExpiryRow> = Vec::new();
        let records = self.state.ladder.iter().flat_map(|ladder| &ladder.rungs);
        for (record, rung) in records.zip(self.rungs.iter()).filter(|_| self.suspended.is_none()) {
            for (id, due) in due_buckets(rung, &rung.rules, Some(rung.rules_epoch), at)? {
                let (day, rule) = (self.day_of(id.window.start), record.rung.label());
                match rows.iter_mut().find(|row| row.day == day && row.rule == rule) {
                    Some(row) => (row.buckets, row.bytes) = (row.buckets + 1, row.bytes + due.bytes),
                    None => rows.push(ExpiryRow { day, rule, buckets: 1, measurements: 0, bytes: due.bytes }),
                }
            }
        }
        Ok(rows)
    }
}
