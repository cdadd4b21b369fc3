//! Deletes: rows that match are gone at once and for good, the hidden ones among them too.

pub(crate) mod rows;

use crate::documents::pace::Stop;
use crate::engine::Engine;
use crate::error::Result;
use crate::ladder::decay::Decay;
use crate::ladder::delete::delete_bins;
use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use ebbtide_buckets::value_at;
use ebbtide_ttl::{Filter, Timestamp, Value};
use rows::{Deletion, RowPredicate, removal};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// What a delete did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deleted {
    /// How many of the deleted measurements were visible.
    pub measurements: u64,
    /// By the step of a rung in seconds how many of its bins stay although the condition meets them: of these measurements only
    /// bins are left, which cannot be cut.
    pub kept_bins: BTreeMap<i64, u64>,
}

/// A filter as a predicate over rows.
pub(crate) struct FilterPredicate<'a> {
    pub(crate) filter: &'a Filter,
    pub(crate) time_field: &'a str,
    pub(crate) meta_field: Option<&'a str>,
}

impl FilterPredicate<'_> {
    fn is_of_meta(&self, part: &Filter) -> bool {
        self.meta_field.is_some_and(|meta| part.is_meta_only(meta))
    }
}

impl RowPredicate for FilterPredicate<'_> {
    fn columns(&self) -> Vec<String> {
        self.filter.fields().into_iter().map(str::to_owned).collect()
    }

    fn time_bounds(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        self.filter.time_bounds(self.time_field)
    }

    fn select(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        let matches = |row: usize| {
            self.filter.matches(&|field: &str| match batch.column_by_name(field) {
                Some(column) => Cow::Owned(value_at(column.as_ref(), row)),
                None => Cow::Owned(Value::Null),
            })
        };
        Ok((0..batch.num_rows()).map(|row| Some(matches(row))).collect())
    }

    fn is_of_meta_and_time(&self) -> bool {
        let parts = self.filter.conjuncts();
        parts.iter().all(|part| part.is_time_range(self.time_field) || self.is_of_meta(part))
    }

    fn select_metas(&self, metas: &ArrayRef) -> Result<BooleanArray> {
        let parts: Vec<Filter> = self.filter.conjuncts().into_iter().filter(|part| self.is_of_meta(part)).collect();
        let matches = |row: usize| {
            let meta = value_at(metas.as_ref(), row);
            parts.iter().all(|part| part.matches_meta(&meta))
        };
        Ok((0..metas.len()).map(|row| Some(matches(row))).collect())
    }
}

/// Deletes what matches, unless it is stopped before the commit. With `ladder`, bins that the condition covers go too; without,
/// what is deleted decays into the rungs first.
pub(crate) fn delete(
    engine: &Engine,
    name: &str,
    predicate: &dyn RowPredicate,
    ladder: bool,
    stop: &Stop,
) -> Result<Deleted> {
    let archiving = engine.archiving(name)?;
    let _moving = archiving.moving.lock();
    let maintenance = engine.maintenance.lock();
    engine.check_writable()?;
    engine.state.read().collection(name)?;
    stop.check()?;
    crate::seal::flush(engine, &maintenance, Some(name))?;
    let snapshot = engine.snapshot().collection(name)?;
    let mut decay = Decay::new(engine, &snapshot.state).filter(|_| !ladder);
    let mut deleted = Deleted::default();
    let mut ops = Vec::new();
    for segment in snapshot.state.segments.values() {
        let Some(found) = Deletion::find(&snapshot, segment, predicate, stop)? else { continue };
        deleted.measurements += found.visible;
        if let Some(decay) = &mut decay {
            decay.add_rows(segment, (&found.dropped, &found.rows))?;
        }
        ops.push(removal(snapshot.state.id, segment, &found)?);
    }
    if decay.is_some() && ops.is_empty() {
        return Ok(deleted);
    }
    // Files of bins are written from here on.
    stop.begin_commit()?;
    let pieces = match decay {
        Some(decay) => decay.write(engine, &snapshot.state, engine.trusted_now())?,
        None => {
            let (pieces, kept) = delete_bins(engine, &snapshot, predicate)?;
            deleted.kept_bins = kept;
            pieces
        }
    };
    if !ops.is_empty() || !pieces.ops.is_empty() {
        pieces.commit(engine, ops)?;
    }
    Ok(deleted)
}
