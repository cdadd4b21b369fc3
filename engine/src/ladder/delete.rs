//! What deletes do to bins of measurements that have decayed.

use super::alter::stored_bins;
use super::decay::Pieces;
use super::{LadderRecord, RungRecord};
use crate::delete::rows::{Deletion, RowPredicate, removal};
use crate::documents::pace::Stop;
use crate::engine::Engine;
use crate::error::Result;
use crate::snapshot::CollectionSnapshot;
use crate::state::CollectionState;
use arrow::array::{Array, BooleanArray, RecordBatch};
use ebbtide_buckets::{Bins, FieldType, MetaKey, Schema, Window, column_of_keys, times, value_at};
use ebbtide_ttl::{Precision, Timestamp};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// A bin: its meta and its start.
type Bin = (MetaKey, i64);

/// What a condition says about bins, which have a meta and an interval of time, and no measurements.
struct Reach<'a> {
    predicate: &'a dyn RowPredicate,
    schema: &'a Schema,
    /// The first and the last time that can match.
    time: (i64, i64),
    /// By meta whether it can match.
    metas: HashMap<MetaKey, bool>,
}

impl<'a> Reach<'a> {
    fn new(predicate: &'a dyn RowPredicate, schema: &'a Schema) -> Reach<'a> {
        let (from, to) = predicate.time_bounds();
        let precision = schema.precision;
        let time =
            (from.map_or(i64::MIN, |t| ceil(t, precision)), to.map_or(i64::MAX, |t| t.to_units_saturating(precision)));
        Reach { predicate, schema, time, metas: HashMap::new() }
    }

    /// Looks at the metas of bins.
    fn learn(&mut self, bins: &Bins) -> Result<()> {
        let new: HashSet<&MetaKey> =
            bins.iter().map(|(meta, ..)| meta).filter(|m| !self.metas.contains_key(m)).collect();
        let new: Vec<MetaKey> = new.into_iter().cloned().collect();
        let ty = self.schema.meta_type.clone().unwrap_or(FieldType::Unknown);
        let column = column_of_keys(&new, &ty, self.schema.precision);
        let chosen = self.predicate.select_metas(&column)?;
        self.metas
            .extend(new.into_iter().enumerate().map(|(at, meta)| (meta, chosen.is_valid(at) && chosen.value(at))));
        Ok(())
    }

    /// Whether the condition meets a bin.
    fn meets(&self, meta: &MetaKey, bin: Window) -> bool {
        let is_within = self.time.0 <= self.time.1 && bin.start <= self.time.1 && self.time.0 < bin.end;
        is_within && self.metas.get(meta).copied().unwrap_or(false)
    }

    /// Whether it takes all of a bin that it meets.
    fn covers(&self, bin: Window) -> bool {
        self.predicate.is_of_meta_and_time() && self.time.0 <= bin.start && bin.end - 1 <= self.time.1
    }
}

/// The start of the bin of a time.
fn start_of(t: i64, step: i64) -> i64 {
    t.div_euclid(step).saturating_mul(step)
}

/// The first unit that is not before an instant.
fn ceil(instant: Timestamp, precision: Precision) -> i64 {
    let floor = instant.to_units_saturating(precision);
    floor.saturating_add(i64::from(Timestamp::from_units(floor, precision) < instant))
}

/// Takes what a condition on meta and time covers out of the rungs of a collection. Returns the edits, and by step how many bins
/// stay although the condition meets them.
pub(crate) fn delete_bins(
    engine: &Engine,
    snapshot: &CollectionSnapshot,
    predicate: &dyn RowPredicate,
) -> Result<(Pieces, BTreeMap<i64, u64>)> {
    let (mut pieces, mut kept) = (Pieces::default(), BTreeMap::new());
    let Some(ladder) = &snapshot.state.ladder else { return Ok((pieces, kept)) };
    let mut rungs =
        Rungs { engine, parent: &snapshot.state, ladder, reach: Reach::new(predicate, &snapshot.state.schema) };
    let mut finer: Option<Cut> = None;
    for (record, rung) in ladder.rungs.iter().zip(snapshot.rungs.iter()) {
        let outcome = rungs.cut(record, rung, finer.as_ref()).and_then(|cut| {
            rungs.write(snapshot, rung, &cut, &mut pieces)?;
            Ok(cut)
        });
        match outcome {
            Ok(cut) => {
                if !cut.kept.is_empty() {
                    kept.insert(record.rung.step_seconds, cut.kept.len() as u64);
                }
                finer = Some(cut);
            }
            Err(error) => {
                pieces.take_back(engine);
                return Err(error);
            }
        }
    }
    Ok((pieces, kept))
}

/// What becomes of one rung.
struct Cut {
    /// What is stored before, and after.
    before: Bins,
    after: Bins,
    removed: HashSet<Bin>,
    /// Bins that stay although the condition meets them.
    kept: HashSet<Bin>,
    /// Bins that are rebuilt from the finer rung.
    rebuilt: Bins,
}

struct Rungs<'a> {
    engine: &'a Engine,
    parent: &'a CollectionState,
    ladder: &'a LadderRecord,
    reach: Reach<'a>,
}

impl Rungs<'_> {
    fn cut(&mut self, record: &RungRecord, rung: &CollectionState, finer: Option<&Cut>) -> Result<Cut> {
        let step = record.step(self.parent.options.precision);
        let before = stored_bins((self.ladder, record, rung), self.parent, record.rung.step_seconds, true)?;
        self.reach.learn(&before)?;
        let met = before.iter().filter(|(meta, bin, _)| self.reach.meets(meta, *bin));
        let (covered, cut): (Vec<_>, Vec<_>) = met.partition(|(_, bin, _)| self.reach.covers(*bin));
        let id = |(meta, bin, _): (&MetaKey, Window, u64)| (meta.clone(), bin.start);
        let mut removed: HashSet<Bin> = covered.into_iter().map(id).collect();
        let mut kept: HashSet<Bin> = HashSet::new();
        let mut rebuilt = before.empty();
        if let Some(finer) = finer.filter(|_| self.reach.predicate.is_of_meta_and_time()) {
            let mut of_finer = before.empty();
            of_finer.merge(&finer.before, |_, _| true);
            let counts: HashMap<Bin, u64> = of_finer.iter().map(|(m, b, n)| ((m.clone(), b.start), n)).collect();
            let untouched: HashSet<Bin> = finer.kept.iter().map(|(m, t)| (m.clone(), start_of(*t, step))).collect();
            let (whole, partial): (Vec<_>, Vec<_>) =
                cut.into_iter().partition(|bin| counts.get(&id(*bin)) == Some(&bin.2));
            kept.extend(partial.into_iter().map(id));
            let whole: HashSet<Bin> = whole.into_iter().map(id).collect();
            rebuilt.merge(&finer.after, |meta, bin| whole.contains(&(meta.clone(), start_of(bin.start, step))));
            kept.extend(whole.iter().filter(|bin| untouched.contains(*bin)).cloned());
            removed.extend(whole);
        } else {
            kept.extend(cut.into_iter().map(id));
        }
        let mut after = before.clone();
        after.retain(|meta, bin| !removed.contains(&(meta.clone(), bin.start)));
        after.merge(&rebuilt, |_, _| true);
        Ok(Cut { before, after, removed, kept, rebuilt })
    }

    fn write(
        &self,
        of: &CollectionSnapshot,
        rung: &Arc<CollectionState>,
        cut: &Cut,
        pieces: &mut Pieces,
    ) -> Result<()> {
        if cut.removed.is_empty() {
            return Ok(());
        }
        let view = of.rung_view(rung);
        let predicate = TheseBins { meta: self.parent.schema.meta.clone(), bins: &cut.removed };
        for segment in rung.segments.values() {
            if let Some(found) = Deletion::find(&view, segment, &predicate, &Stop::default())? {
                pieces.ops.push(removal(rung.id, segment, &found)?);
            }
        }
        match cut.rebuilt.is_empty() {
            true => Ok(()),
            false => pieces.write(self.engine, rung, &cut.rebuilt, (self.parent, self.ladder)),
        }
    }
}

/// Selects the rows of a rung that are of these bins.
struct TheseBins<'a> {
    meta: Option<String>,
    bins: &'a HashSet<Bin>,
}

impl RowPredicate for TheseBins<'_> {
    fn columns(&self) -> Vec<String> {
        self.meta.iter().cloned().collect()
    }

    fn select(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        let meta = self.meta.as_ref().and_then(|meta| batch.column_by_name(meta));
        let starts = times(batch)?;
        let mut last: Option<(ebbtide_ttl::Value, MetaKey)> = None;
        let mut selected = Vec::with_capacity(starts.len());
        for (row, start) in starts.iter().enumerate() {
            let value = meta.map_or(ebbtide_ttl::Value::Null, |meta| value_at(meta.as_ref(), row));
            let key = match &last {
                Some((same, key)) if *same == value => key.clone(),
                _ => MetaKey::of(&value),
            };
            selected.push(self.bins.contains(&(key.clone(), *start)));
            last = Some((value, key));
        }
        Ok(BooleanArray::from(selected))
    }
}
