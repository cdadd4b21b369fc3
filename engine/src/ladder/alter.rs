//! Ladders that are made, changed and removed.

use super::compact::add_segment;
use super::decay::Pieces;
use super::{LadderRecord, RungRecord, clash, rung_name};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::manifest::{CollectionRecord, Op};
use crate::options::CollectionOptions;
use crate::state::{CollectionState, State};
use ebbtide_buckets::{Bins, MetaKey, Schema};
use ebbtide_ttl::{Bucketing, Code, Ladder, OutOfRange, RuleSet, Rung, SPAN_SECONDS_MAX, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Bins of one meta in one bucket of a rung, unless that would be wider than a bucket can be.
const BINS_OF_BUCKET: i64 = 256;

/// The edits that give a collection a ladder, another one, or none. Rungs that hold what is stored nowhere else are removed only if
/// `force`. The caller holds the maintenance lock, and calls [`opened`] once they are committed.
pub(crate) fn change(engine: &Engine, name: &str, ladder: Option<&Ladder>, force: bool) -> Result<Pieces> {
    let snapshot = engine.snapshot().collection(name)?;
    let collection = snapshot.state.clone();
    if let Some(ladder) = ladder {
        check(&collection.schema, ladder)?;
    }
    if collection.ladder.as_ref().map(|ladder| ladder.definition()).as_ref() == ladder {
        return Ok(Pieces::default());
    }
    let change = Change::new(engine, &collection, ladder)?;
    for gone in change.old().0 {
        snapshot.rung_view(&change.old_rungs[gone]).check_unheld("the rung is not removed")?;
    }
    if !force {
        change.refuse_losses()?;
    }
    change.edits()
}

/// Lets the folders of rungs know that they are there: the state has folders of its own making.
pub(crate) fn opened(engine: &Engine, rungs: &[u64]) -> Result<()> {
    for rung in rungs {
        let made = engine.state.read().by_id(*rung).map(|rung| rung.folder.clone());
        made.map_or(Ok(()), |folder| folder.opened(true, false, false))?;
    }
    Ok(())
}

/// The operations that give a collection that is being created its ladder; `id` is the collection's number.
pub(crate) fn first_ladder(collection: &CollectionRecord, ladder: &Ladder) -> Result<Vec<Op>> {
    check(&collection.schema, ladder)?;
    let mut ops = Vec::new();
    let record = new_record(None, ladder, |at, rung| {
        let id = collection.id + 1 + at as u64;
        ops.extend(rung_record((collection.id, &collection.schema), rung, id, 1).put(None));
        id
    });
    ops.push(Op::SetLadder { collection: collection.id, ladder: Some(record) });
    Ok(ops)
}

/// Checks a ladder against the fields of its collection.
pub(crate) fn check(schema: &Schema, ladder: &Ladder) -> Result<()> {
    ladder.validate()?;
    let refused = |what: String| Err(Error::new(Code::InvalidOptions, what));
    if schema.time == "measurements" || schema.meta.as_deref() == Some("measurements") {
        return refused(
            "a field named 'measurements' is the time or the meta field: bins have a column of that name".into(),
        );
    }
    let named = ladder.fields.iter().flatten();
    if let Some(field) = named.clone().find(|field| **field == schema.time || Some(*field) == schema.meta.as_ref()) {
        return refused(format!("'{field}' is the time or the meta field, which bins have anyway: leave it out"));
    }
    let wrong = schema.fields.iter().find(|(name, ty)| named.clone().any(|field| field == name) && !Bins::takes(ty));
    if let Some((field, ty)) = wrong {
        return refused(format!("field '{field}' is {}: bins have numbers, bools and texts", ty.name()));
    }
    let known =
        schema.fields.iter().filter(|(name, ty)| ladder.has_field(name) && Bins::takes(ty)).map(|(name, _)| name);
    for field in named.chain(known) {
        if let Some(taken) = clash(schema, field) {
            return refused(format!(
                "field '{field}' would have a column '{taken}', which is the time or the meta field"
            ));
        }
    }
    Ok(())
}

/// The record of a ladder that comes after `old`; `id` makes the collection of a rung that is new.
fn new_record(old: Option<&LadderRecord>, ladder: &Ladder, mut id: impl FnMut(usize, &Rung) -> u64) -> LadderRecord {
    let number = old.map_or(0, |old| old.number + 1);
    let had = |field: &str| old.filter(|old| old.definition().has_field(field)).map(|old| old.since(field));
    let since: BTreeMap<String, u32> = match (&ladder.fields, old) {
        (Some(fields), _) => fields.iter().map(|field| (field.clone(), had(field).unwrap_or(number))).collect(),
        (None, Some(old)) => old.since.clone(),
        (None, None) => BTreeMap::new(),
    };
    // What a list of fields left out begins anew without it.
    let others_since = old.filter(|old| old.fields.is_none()).map_or(number, |old| old.others_since);
    let mut made = 0;
    let rungs = ladder.rungs.iter().map(|rung| {
        let kept = old.and_then(|old| old.rungs.iter().find(|r| r.rung.step_seconds == rung.step_seconds));
        match kept {
            Some(kept) => RungRecord { rung: *rung, ..*kept },
            None => {
                made += 1;
                RungRecord { rung: *rung, collection: id(made - 1, rung), gone_before: None }
            }
        }
    });
    let rungs = rungs.collect();
    let mut renamed = old.map(|old| old.renamed.clone()).unwrap_or_default();
    renamed.retain(|field, _| had(field).is_some());
    LadderRecord { number, fields: ladder.fields.clone(), since, others_since, renamed, rungs }
}

/// A change of a ladder.
struct Change<'a> {
    engine: &'a Engine,
    collection: &'a CollectionState,
    old: Option<Arc<LadderRecord>>,
    old_rungs: Vec<Arc<CollectionState>>,
    new: Option<LadderRecord>,
    /// The state with the collections of the new rungs, which does not exist yet.
    trial: State,
    ops: Vec<Op>,
}

impl<'a> Change<'a> {
    fn new(engine: &'a Engine, collection: &'a CollectionState, ladder: Option<&Ladder>) -> Result<Change<'a>> {
        let mut trial = engine.state.read().clone();
        trial.unlinks = false;
        let old_rungs = trial.rungs_of(collection)?;
        let mut ops = Vec::new();
        let next = trial.next_collection;
        let new = ladder.map(|ladder| {
            new_record(collection.ladder.as_deref(), ladder, |at, rung| {
                let id = next + at as u64;
                ops.extend(rung_record((collection.id, &collection.schema), rung, id, 1).put(None));
                id
            })
        });
        for (kept, rung) in new.iter().flat_map(|new| &new.rungs).filter_map(|record| {
            let rung = old_rungs.iter().find(|rung| rung.id == record.collection)?;
            Some((rung, record))
        }) {
            let changed = rung_record((collection.id, &collection.schema), &rung.rung, kept.id, kept.rules_epoch + 1);
            if changed.rules != *kept.rules {
                let schema = (*kept.schema).clone();
                ops.push(Op::PutCollection(CollectionRecord { schema, ..changed }));
            }
        }
        ops.iter().try_for_each(|op| trial.apply(op.clone()))?;
        Ok(Change { engine, collection, old: collection.ladder.clone(), old_rungs, new, trial, ops })
    }

    fn records(&self) -> &[RungRecord] {
        self.new.as_ref().map_or(&[], |new| &new.rungs)
    }

    /// The old rungs that go, and those that stay.
    fn old(&self) -> (Vec<usize>, Vec<usize>) {
        let stays = |at: &usize| self.records().iter().any(|record| record.collection == self.old_rungs[*at].id);
        let (stay, go) = (0..self.old_rungs.len()).partition(stays);
        (go, stay)
    }

    fn stored(&self, at: usize, width_seconds: i64, with_fields: bool) -> Result<Bins> {
        let Some(old) = &self.old else { return Err(Error::internal("there was no ladder")) };
        stored_bins((old, &old.rungs[at], &self.old_rungs[at]), self.collection, width_seconds, with_fields)
    }

    /// Refuses to remove rungs with bins that are in no finer rung that stays: those whose numbers of measurements differ.
    fn refuse_losses(&self) -> Result<()> {
        let (go, stay) = self.old();
        for gone in go {
            let step = self.old_rungs_step(gone);
            let finer =
                stay.iter().filter(|at| **at < gone).map(|at| self.stored(*at, step, false).map(|bins| counts(&bins)));
            let finer = finer.collect::<Result<Vec<_>>>()?;
            let held = counts(&self.stored(gone, step, false)?);
            let lost =
                held.iter().filter(|(bin, count)| finer.iter().all(|finer| finer.get(*bin) != Some(count))).count();
            if lost > 0 {
                let what = format!(
                    "rung {} of collection '{}' has {lost} bins that are stored nowhere else: removing it needs FORCE",
                    step, self.collection.name
                );
                return Err(Error::new(Code::InvalidOptions, what));
            }
        }
        Ok(())
    }

    fn old_rungs_step(&self, at: usize) -> i64 {
        self.old.as_ref().map_or(1, |old| old.rungs[at].rung.step_seconds)
    }

    fn edits(mut self) -> Result<Pieces> {
        let engine = self.engine;
        let (go, _) = self.old();
        let mut pieces = Pieces::default();
        if let Err(error) = self.fill(engine.trusted_now(), &mut pieces) {
            pieces.take_back(engine);
            return Err(error);
        }
        let mut ops = self.ops;
        ops.append(&mut pieces.ops);
        ops.push(Op::SetLadder { collection: self.collection.id, ladder: self.new.clone() });
        ops.extend(go.iter().map(|at| Op::DropCollection { id: self.old_rungs[*at].id }));
        pieces.ops = ops;
        Ok(pieces)
    }

    /// Fills rungs that are new from the next finer one that there was.
    fn fill(&mut self, now: Option<Timestamp>, pieces: &mut Pieces) -> Result<()> {
        let (Some(old), Some(mut new)) = (self.old.clone(), self.new.clone()) else { return Ok(()) };
        let precision = self.collection.options.precision;
        let now = now.filter(|_| self.collection.suspension().is_none());
        let first_segment = self.trial.next_segment;
        let is_new = |record: &RungRecord| self.old_rungs.iter().all(|rung| rung.id != record.collection);
        let missing: Vec<usize> = (0..new.rungs.len()).filter(|at| is_new(&new.rungs[*at])).collect();
        let mut reserved = false;
        for at in missing {
            let step = new.rungs[at].rung.step_seconds;
            let finer = old.rungs.iter().rposition(|o| o.rung.step_seconds < step && step % o.rung.step_seconds == 0);
            let Some(finer) = finer else { continue };
            let mut bins = self.stored(finer, step, true)?;
            let cutoff = new.rungs[at].cutoff(now, precision);
            if let Some(end) = bins.iter().map(|(_, bin, _)| bin.end).filter(|end| cutoff.hides(*end)).max() {
                new.rungs[at].lose(end);
            }
            bins.retain(|_, bin| !cutoff.hides(bin.end));
            if bins.is_empty() {
                continue;
            }
            if !reserved {
                // The folders of rungs that are not there yet are known as leftovers, if this is interrupted.
                let collection = self.trial.next_collection;
                self.engine.commit(vec![Op::NextIds { collection, segment: first_segment, seq: 1 }])?;
                reserved = true;
            }
            let rung = self.trial.by_id(new.rungs[at].collection).cloned();
            let rung = rung.ok_or_else(|| Error::internal("a rung was not made"))?;
            pieces.write(self.engine, &rung, &bins, (self.collection, &new))?;
        }
        self.new = Some(new);
        Ok(())
    }
}

/// The bins that a rung has stored, without those that have lost something, merged to a width.
pub(crate) fn stored_bins(
    (ladder, record, rung): (&LadderRecord, &RungRecord, &CollectionState),
    parent: &CollectionState,
    width_seconds: i64,
    with_fields: bool,
) -> Result<Bins> {
    let precision = parent.options.precision;
    let fields: Vec<_> = ladder.fields(&parent.schema).filter(|_| with_fields).collect();
    let mut bins = Bins::new(record.step(precision), fields.iter().copied());
    for segment in rung.segments.values() {
        add_segment(&mut bins, rung, segment, &|field| ladder.stored(field))?;
    }
    let mut wide = Bins::new(width_seconds.saturating_mul(precision.per_second()), fields);
    wide.merge(&bins, |_, bin| !record.is_gone(bin));
    Ok(wide)
}

/// How many measurements bins have.
fn counts(bins: &Bins) -> HashMap<(MetaKey, i64), u64> {
    bins.iter().map(|(meta, bin, measurements)| ((meta.clone(), bin.start), measurements)).collect()
}

/// The record of the collection of a rung. Its windows are whole numbers of bins.
fn rung_record((parent, of): (u64, &Schema), rung: &Rung, id: u64, rules_epoch: u64) -> CollectionRecord {
    let step = rung.step_seconds;
    let bins = (SPAN_SECONDS_MAX / step).clamp(1, BINS_OF_BUCKET);
    let options = CollectionOptions {
        bucketing: Bucketing::Custom { span_seconds: step * bins },
        precision: of.precision,
        // Whether expiry is suspended is asked of the parent.
        out_of_range: OutOfRange::Expire,
        meta_field: of.meta.clone(),
        ..CollectionOptions::new(of.time.clone())
    };
    // A bin expires by its end, a measurement by its time: here the start.
    let rules = RuleSet::new(rung.expire_after_seconds.map(|life| life + step));
    let schema = Schema::new(of.time.clone(), of.meta.clone(), of.precision);
    CollectionRecord { id, name: rung_name(parent, step), options, rules, rules_epoch, schema, sealed_seq: 0 }
}
