//! What has expired and is still stored: within its grace, under a hold, or because no sweep has run yet.

use super::{CollectionSnapshot, MetaFilter, ScanRequest, ScanUnit, TimeRange};
use crate::error::{Error, Result};
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::error::ArrowError;
use ebbtide_buckets::{time_values, value_at};
use ebbtide_ttl::{RuleSet, Value};
use std::sync::Arc;

/// Expired measurements that are still stored, by the rule that hides them.
#[derive(Debug, Clone)]
pub struct ExpiredUnit {
    /// The measurements.
    pub unit: ScanUnit,
    /// The effective rule of their metas: `collection`, or an index's name.
    pub rule: String,
    /// Its E: a measurement at `t` expired at `t + E`.
    pub expire_after_seconds: i64,
}

/// Selects the metas that a request selects and that have one rule.
#[derive(Debug)]
struct OfRule {
    rules: Arc<RuleSet>,
    rule: usize,
    also: Option<Arc<dyn MetaFilter>>,
}

impl MetaFilter for OfRule {
    fn select(&self, metas: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        let also = self.also.as_ref().map(|filter| filter.select(metas)).transpose()?;
        if let Some(also) = &also {
            let counted = Error::check_count("MetaFilter::select", also.len(), metas.len());
            counted.map_err(|error| ArrowError::ExternalError(Box::new(error)))?;
        }
        let wanted = |row: usize| {
            let of_rule = || self.rules.effective(&value_at(metas.as_ref(), row)).map(|(rule, _)| rule);
            also.as_ref().is_none_or(|also| also.is_valid(row) && also.value(row)) && of_rule() == Some(self.rule)
        };
        Ok((0..metas.len()).map(|row| Some(wanted(row))).collect())
    }
}

impl CollectionSnapshot {
    /// The requested rows that have expired and are still stored. Nothing in a collection of mode `bucket`, whose measurements are
    /// visible until they are dropped, and nothing while expiry is suspended.
    ///
    /// # Errors
    /// As for [`CollectionSnapshot::scan`].
    pub fn expired(&self, request: &ScanRequest) -> Result<Vec<ExpiredUnit>> {
        self.expired_by(request, |_| true)
    }

    /// Those of them that wait to be moved to an archive.
    ///
    /// # Errors
    /// As for [`CollectionSnapshot::scan`].
    pub fn unarchived(&self, request: &ScanRequest) -> Result<Vec<ExpiredUnit>> {
        self.expired_by(request, |rule| self.state.archive_of(rule).is_some())
    }

    /// What has expired by some of the rules.
    fn expired_by(&self, request: &ScanRequest, is_wanted: impl Fn(usize) -> bool) -> Result<Vec<ExpiredUnit>> {
        self.columns(request)?;
        let mut units = Vec::new();
        for view in self.rules().iter().filter(|view| is_wanted(view.index)) {
            let Some(last) = self.cutoff(Some(view.expire_after_seconds)).last_hidden() else { continue };
            let last = self.instant(last);
            let is_for_all = self.rules().effective_for_all().is_some_and(|e| e.map(|e| e.0) == Some(view.index));
            let of_rule = || {
                let also = request.meta.clone();
                Arc::new(OfRule { rules: self.state.rules.clone(), rule: view.index, also }) as Arc<dyn MetaFilter>
            };
            let request = ScanRequest {
                time: TimeRange::new(request.time.first(), Some(request.time.last().map_or(last, |end| end.min(last)))),
                meta: if is_for_all { request.meta.clone() } else { Some(of_rule()) },
                include_hidden: true,
                ..request.clone()
            };
            let found = self.scan(&request)?.into_iter().map(|unit| ExpiredUnit {
                unit,
                rule: view.label().to_owned(),
                expire_after_seconds: view.expire_after_seconds,
            });
            units.extend(found);
        }
        Ok(units)
    }

    /// Expired measurements that must not be lost yet, with all their columns: those within their grace, and those that a hold
    /// covers. A dump has them, as it has the visible ones.
    ///
    /// # Errors
    /// Damage in a segment.
    pub fn retained(&self) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<>> {
        self.expired_rows(true)
    }

    /// The other expired measurements, which the next sweep may drop.
    pub(crate) fn unretained(&self) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<>> {
        self.expired_rows(false)
    }

    fn expired_rows(&self, retained: bool) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<>> {
        let (state, now) = (self.state.clone(), self.now());
        let units = self.expired(&ScanRequest::default())?.into_iter();
        let batches = units.map(move |expired| {
            let cutoff = state.drop_cutoff(now, expired.expire_after_seconds);
            let state = state.clone();
            let batches = expired.unit.read()?;
            Ok(batches.map(move |batch| {
                let batch = batch?;
                let column = |name: &String| batch.column_by_name(name);
                let times = column(&state.schema.time).map_or(Ok(&[][..]), |times| time_values(times))?;
                let metas = state.schema.meta.as_ref().and_then(column);
                let is_held = |row: usize, t: i64| {
                    let meta = || metas.map_or(Value::Null, |metas| value_at(metas.as_ref(), row));
                    !state.holds.is_empty() && state.hold_on(&meta(), t).is_some()
                };
                let is_kept = |(row, t): (usize, &i64)| Some((!cutoff.hides(*t) || is_held(row, *t)) == retained);
                let kept: BooleanArray = times.iter().enumerate().map(is_kept).collect();
                Ok(filter_record_batch(&batch, &kept)?)
            }))
        });
        Ok(batches.flat_map(|batches: Result<_>| match batches {
            Ok(batches) => Box::new(batches) as Box<dyn Iterator<Item = Result<RecordBatch>>>,
            Err(error) => Box::new(std::iter::once(Err(error))),
        }))
    }
}
