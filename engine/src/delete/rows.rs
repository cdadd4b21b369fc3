//! Which rows a delete takes, and what it leaves of a segment.

use crate::documents::pace::Stop;
use crate::error::{Error, Result};
use crate::manifest::Op;
use crate::segment::bounds::ChangedBucket;
use crate::segment::{Segment, ordinal_number, row_number};
use crate::snapshot::CollectionSnapshot;
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use ebbtide_buckets::{time_values, to_usize};
use ebbtide_ttl::{Cutoff, Precision, Timestamp, in_range};
use roaring::RoaringBitmap;
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
    pub(super) rows: RoaringBitmap,
    pub(super) dropped: RoaringBitmap,
    changed: Vec<ChangedBucket>,
    pub(super) visible: u64,
}

impl Deletion {
    pub(crate) fn find(
        snapshot: &CollectionSnapshot,
        segment: &Arc<Segment>,
        predicate: &dyn RowPredicate,
        stop: &Stop,
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
            stop.check()?;
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
