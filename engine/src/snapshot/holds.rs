//! Listings of holds, and what holds cover in a version.

use super::scan::{MetaFilter, ScanRequest};
use super::{CollectionSnapshot, Snapshot};
use crate::error::Result;
use crate::holds::Hold;
use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::error::ArrowError;
use ebbtide_buckets::value_at;
use ebbtide_ttl::{Filter, Timestamp, Value};
use std::sync::Arc;

/// Selects the metas of a hold.
#[derive(Debug)]
struct HeldMetas(Filter);

impl MetaFilter for HeldMetas {
    fn select(&self, metas: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        Ok((0..metas.len()).map(|row| Some(self.0.matches_meta(&value_at(metas.as_ref(), row)))).collect())
    }
}

/// A hold, as `SHOW HOLDS` lists it.
#[derive(Debug, Clone, PartialEq)]
pub struct HoldInfo {
    /// Its name.
    pub name: String,
    /// The collection.
    pub collection: String,
    /// The metas that it covers, as given; none if it covers all.
    pub filter: Option<Value>,
    /// The first instant that it covers, if it has one.
    pub from: Option<Timestamp>,
    /// The first instant after it that it does not cover, if it has one.
    pub to: Option<Timestamp>,
    /// Why it was made.
    pub reason: String,
    /// When it was made.
    pub made_at: Timestamp,
    /// When it was lifted; none while it is active.
    pub lifted_at: Option<Timestamp>,
    /// Stored measurements that it covers, visible or not; 0 once it is lifted.
    pub measurements: u64,
}

impl Snapshot {
    /// Every hold that was ever made, active or lifted, in the order in which they were made.
    ///
    /// # Errors
    /// Damage in a segment.
    pub fn holds(&self) -> Result<Vec<HoldInfo>> {
        self.holds
            .iter()
            .map(|hold| {
                let collection = self.collection_of_id(hold.collection).filter(|_| hold.lifted_at.is_none());
                Ok(HoldInfo {
                    name: hold.name.clone(),
                    collection: hold.collection_name.clone(),
                    filter: (!hold.filter.is_everything()).then(|| hold.filter.source().clone()),
                    from: hold.from,
                    to: hold.to,
                    reason: hold.reason.clone(),
                    made_at: hold.made_at,
                    lifted_at: hold.lifted_at,
                    measurements: collection.map_or(Ok(0), |c| c.covered_by(hold))?,
                })
            })
            .collect()
    }
}

impl CollectionSnapshot {
    /// Stored measurements that a hold covers.
    fn covered_by(&self, hold: &Hold) -> Result<u64> {
        let (first, last) = hold.range(self.options().precision);
        let meta = (!hold.filter.is_everything()).then(|| Arc::new(HeldMetas(hold.filter.clone())) as _);
        let time = self.stored_range(first, last);
        self.count_of(&ScanRequest { time, meta, include_hidden: true, ..ScanRequest::default() })
    }

    /// Fails if an active hold covers anything that is stored, bins included.
    pub(crate) fn check_unheld(&self, action: &str) -> Result<()> {
        for hold in self.state.holds.iter() {
            if self.covered_by(hold)? > 0 {
                return Err(hold.refusal(action));
            }
        }
        self.rungs.iter().try_for_each(|rung| self.rung_view(rung).check_unheld(action))
    }
}
