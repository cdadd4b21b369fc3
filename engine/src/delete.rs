//! Deletes: rows that match are gone at once and for good, the hidden ones among them too.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::ladder::decay::Decay;
use crate::ladder::delete::delete_bins;
use crate::manifest::Op;
use crate::segment::bounds::ChangedBucket;
use crate::segment::{Segment, ordinal_number, row_number};
use crate::snapshot::CollectionSnapshot;
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use ebbtide_buckets::{time_values, to_usize, value_at};
use ebbtide_ttl::{Cutoff, Filter, Precision, Timestamp, Value, in_range};
use roaring::RoaringBitmap;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Chooses rows.
pub trait RowPredicate: Send + Sync {
    /// Columns that [`RowPredicate::select`] looks at.
    fn columns(&self) -> Vec<String>;

    /// First and last instant that a row can have to match; rows outside are not asked about.
    fn time_bounds(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        (None, None)
    }

    /// For each row of a batch with at least those columns, whether it matches; null is no.
    ///
    /// # Errors
    /// Whatever the evaluation meets; nothing is deleted then.
    fn select(&self, batch: &RecordBatch) -> Result<BooleanArray>;

    /// Whether exactly those rows match whose meta [`RowPredicate::select_metas`] selects and whose time is within
    /// [`RowPredicate::time_bounds`]. Only then bins of a ladder are deleted too.
    fn is_of_meta_and_time(&self) -> bool {
        false
    }

    /// For each meta whether rows of it can match; null is no.
    ///
    /// # Errors
    /// As for [`RowPredicate::select`].
    fn select_metas(&self, metas: &ArrayRef) -> Result<BooleanArray> {
        Ok(BooleanArray::from(vec![true; metas.len()]))
    }
}

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

/// Deletes what matches. With `ladder`, bins that the condition covers go too; without, what is deleted decays into the rungs first.
pub(crate) fn delete(engine: &Engine, name: &str, predicate: &dyn RowPredicate, ladder: bool) -> Result<Deleted> {
    let archiving = engine.archiving(name)?;
    let _moving = archiving.moving.lock();
    let maintenance = engine.maintenance.lock();
    engine.check_writable()?;
    engine.state.read().collection(name)?;
    crate::seal::flush(engine, &maintenance, Some(name))?;
    let snapshot = engine.snapshot().collection(name)?;
    let mut decay = Decay::new(&snapshot.state).filter(|_| !ladder);
    let mut deleted = Deleted::default();
    let mut ops = Vec::new();
    for segment in snapshot.state.segments.values() {
        let Some(found) = Deletion::find(&snapshot, segment, predicate)? else { continue };
        deleted.measurements += found.visible;
        if let Some(decay) = &mut decay {
            decay.add_rows(segment, (&found.dropped, &found.rows))?;
        }
        ops.push(removal(snapshot.state.id, segment, &found)?);
    }
    let pieces = match decay {
        Some(_) if ops.is_empty() => return Ok(deleted),
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

/// The operation that takes what was found out of a segment.
pub(crate) fn removal(collection: u64, segment: &Segment, found: &Deletion) -> Result<Op> {
    let state = segment.without(&found.dropped, &found.rows, &found.changed)?;
    Ok(match state.live.buckets {
        0 => Op::RemoveSegment { collection, segment: segment.file.id },
        _ => Op::SetSegment { collection, segment: segment.file.id, state },
    })
}

/// What a delete takes out of one segment.
#[derive(Default)]
pub(crate) struct Deletion {
    /// Rows of buckets that keep others.
    rows: RoaringBitmap,
    dropped: RoaringBitmap,
    changed: Vec<ChangedBucket>,
    visible: u64,
}

impl Deletion {
    pub(crate) fn find(
        snapshot: &CollectionSnapshot,
        segment: &Arc<Segment>,
        predicate: &dyn RowPredicate,
    ) -> Result<Option<Deletion>> {
        let precision = snapshot.options().precision;
        let (from, to) = predicate.time_bounds();
        let from = from.map_or(i64::MIN, |t| t.to_units_saturating(precision));
        let to = to.map_or(i64::MAX, |t| t.to_units_saturating(precision));
        let live = segment.live();
        if live.buckets == 0 || live.last_max < from || live.first_min > to {
            return Ok(None);
        }
        let reader = segment.file.reader()?;
        let classes = segment.classes(snapshot.rules(), Some(snapshot.state.rules_epoch))?;
        let buckets: Vec<_> =
            segment.live_buckets(&reader).filter(|(_, _, b)| b.last >= from && b.first <= to).collect();
        let mut ranges = Vec::new();
        for (ordinal, _, _) in &buckets {
            segment.push_live(&mut ranges, &reader, *ordinal);
        }
        let schema = snapshot.schema();
        let known = schema.arrow();
        let mut columns = vec![schema.time.clone()];
        columns.extend(predicate.columns().into_iter().filter(|c| *c != schema.time && known.index_of(c).is_ok()));
        let mut rows = Matches::default();
        for batch in reader.read(&columns, schema, &ranges, 1 << 14)? {
            let batch = batch?;
            let selected = predicate.select(&batch)?;
            rows.times.extend(time_values(batch.column(0))?);
            rows.matches.extend((0..batch.num_rows()).map(|i| selected.is_valid(i) && selected.value(i)));
        }
        let mut found = Deletion::default();
        let mut at = 0;
        for (ordinal, meta, bounds) in buckets {
            let end = at + to_usize(bounds.rows);
            if end > rows.times.len() {
                let what = format!("segment rows expected={end} found={}", rows.times.len());
                return Err(Error::corrupt(&segment.file.path, 0, what));
            }
            let numbers = numbers(reader.directory().rows(ordinal), &segment.state.deleted);
            if snapshot.state.may_be_held(segment) {
                let meta = segment.meta(&reader, ordinal).value();
                let mut deleted =
                    rows.times[at..end].iter().zip(&rows.matches[at..end]).filter(|(_, matches)| **matches);
                if let Some(hold) = deleted.find_map(|(t, _)| snapshot.state.hold_on(&meta, *t)) {
                    return Err(hold.refusal("nothing was deleted"));
                }
            }
            let cutoff = snapshot.cutoff(classes.of(meta).map(|c| c.1));
            found.take(ordinal, &rows.times[at..end], &rows.matches[at..end], numbers, (cutoff, precision));
            at = end;
        }
        let any = !found.dropped.is_empty() || !found.rows.is_empty();
        Ok(any.then_some(found))
    }

    fn take(
        &mut self,
        ordinal: usize,
        times: &[i64],
        matches: &[bool],
        numbers: impl Iterator<Item = u32>,
        (cutoff, precision): (Cutoff, Precision),
    ) {
        let ordinal = ordinal_number(ordinal);
        if !matches.contains(&true) {
            return;
        }
        let visible = |(t, m): &(&i64, &bool)| **m && !cutoff.hides(**t);
        self.visible += times.iter().zip(matches).filter(visible).count() as u64;
        let kept: Vec<i64> = times.iter().zip(matches).filter(|(_, m)| !**m).map(|(t, _)| *t).collect();
        match (kept.first(), kept.last()) {
            (Some(first), Some(last)) => {
                self.changed.push(ChangedBucket {
                    ordinal,
                    rows: kept.len() as u64,
                    first: *first,
                    last: *last,
                    out_of_range: kept.iter().filter(|t| !in_range(**t, precision)).count() as u64,
                });
                self.rows.extend(numbers.zip(matches).filter(|(_, m)| **m).map(|(number, _)| number));
            }
            _ => {
                self.dropped.insert(ordinal);
            }
        }
    }
}

#[derive(Default)]
struct Matches {
    times: Vec<i64>,
    matches: Vec<bool>,
}

/// Numbers of the rows in `rows` that are still there.
fn numbers(rows: std::ops::Range<u64>, deleted: &RoaringBitmap) -> impl Iterator<Item = u32> {
    rows.map(row_number).filter(|row| !deleted.contains(*row))
}
