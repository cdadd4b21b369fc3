//! The edit that drops buckets: what goes, what it leaves in the rungs of a ladder, and the records for the history.

use super::plan::item::{Item, first_of};
use crate::documents::state::DocumentsState;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::ladder::decay::{Decay, Pieces};
use crate::ladder::rung_of;
use crate::manifest::{Op, SweepRecord};
use crate::segment::Segment;
use crate::state::CollectionState;
use ebbtide_ttl::{Cutoff, RUNG_RULE, Timestamp, Visit};
use roaring::RoaringBitmap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The name in listings of the rule by which `maxBytes` drops buckets.
pub(crate) const SIZE_RULE: &str = "size";

/// The name of a collection and the label of a rule of it for people: a rung has the name of the collection that it is of.
pub(super) fn shown(engine: &Engine, collection: &CollectionState, label: &str) -> (String, String) {
    let Some((parent, step)) = rung_of(&collection.name) else {
        return (collection.name.clone(), label.to_owned());
    };
    let parent = engine.state.read().by_id(parent).map(|parent| parent.name.clone());
    (parent.unwrap_or_default(), format!("{RUNG_RULE}{step}"))
}

/// The record of what was dropped by a rule, which is given by its E and its label.
pub(crate) fn record_of(
    engine: &Engine,
    collection: &CollectionState,
    at: Timestamp,
    (e, label): (i64, &str),
    visit: &Visit,
) -> Op {
    let (name, rule) = shown(engine, collection, label);
    Op::Swept(SweepRecord {
        at,
        collection: name,
        rule,
        expire_after_seconds: e,
        cutoff: at.plus_seconds(-collection.drop_after(e)),
        buckets: visit.buckets,
        measurements: visit.measurements,
        bytes: visit.bytes,
    })
}

/// The record of what was dropped because of a collection's `maxBytes`, up to the end of a window.
pub(crate) fn record_by_size(collection: &CollectionState, at: Timestamp, end: i64, visit: &Visit) -> Op {
    Op::Swept(SweepRecord {
        at,
        collection: collection.name.clone(),
        rule: SIZE_RULE.to_owned(),
        expire_after_seconds: 0,
        cutoff: Timestamp::from_units(end, collection.options.precision),
        buckets: visit.buckets,
        measurements: visit.measurements,
        bytes: visit.bytes,
    })
}

/// The record of what was dropped of an ordinary collection by a rule.
pub(super) fn record_of_documents(
    collection: &DocumentsState,
    at: Timestamp,
    (e, label): (i64, &str),
    visit: &Visit,
) -> Op {
    Op::Swept(SweepRecord {
        at,
        collection: collection.name.clone(),
        rule: label.to_owned(),
        expire_after_seconds: e,
        cutoff: at.plus_seconds(-e.max(0)),
        buckets: visit.buckets,
        measurements: visit.measurements,
        bytes: visit.bytes,
    })
}

/// What one edit drops.
pub(crate) struct DropEdit<'a> {
    collection: &'a CollectionState,
    whole: Vec<u64>,
    partial: BTreeMap<u64, RoaringBitmap>,
    /// The last time that is dropped.
    last: i64,
    /// What it leaves in the rungs of the collection's ladder.
    decay: Option<Decay>,
}

impl<'a> DropEdit<'a> {
    pub(crate) fn of(engine: &Engine, collection: &'a CollectionState) -> DropEdit<'a> {
        let decay = Decay::new(engine, collection);
        DropEdit { collection, whole: Vec::new(), partial: BTreeMap::new(), last: i64::MIN, decay }
    }

    fn segment(&self, id: u64) -> Result<&'a Arc<Segment>> {
        let segment = self.collection.segments.get(&id);
        segment.ok_or_else(|| Error::internal("the plan's segment is in the collection"))
    }

    /// Adds what was counted of an item, all of which `cutoff` hides; returns the totals.
    pub(crate) fn add(&mut self, item: &Item, cutoff: Cutoff) -> Result<Visit> {
        match item {
            Item::Segment { segment: id, buckets, counted, .. } if counted < buckets => {
                match first_of(self.segment(*id)?, *counted) {
                    Ok(part) => return self.add(&part, cutoff),
                    // Its first buckets cannot be told without its directory, and all of it is due. What decays must be read.
                    Err(error) if error.is_of_one_file() && self.decay.is_none() => self.drop_segment(*id, cutoff)?,
                    Err(error) => return Err(error),
                }
            }
            Item::Segment { segment: id, .. } => self.drop_segment(*id, cutoff)?,
            Item::Part { segment: id, ordinals, .. } => self.drop_buckets(&[(*id, ordinals.clone())], Some(cutoff))?,
            Item::Bucket { .. } => self.drop_buckets(&pieces(item), Some(cutoff))?,
        }
        Ok(Visit { buckets: item.buckets(), measurements: item.rows(), bytes: item.bytes(), ..Visit::default() })
    }

    /// Adds a bucket that need not have expired; returns the totals.
    pub(crate) fn add_unexpired(&mut self, item: &Item) -> Result<Visit> {
        self.drop_buckets(&pieces(item), None)?;
        Ok(Visit { buckets: item.buckets(), measurements: item.rows(), bytes: item.bytes(), ..Visit::default() })
    }

    fn drop_segment(&mut self, id: u64, cutoff: Cutoff) -> Result<()> {
        let segment = self.segment(id)?;
        assert!(cutoff.hides(segment.live().last_max), "a segment that is dropped as a whole is expired");
        if let Some(decay) = &mut self.decay {
            decay.add(&[(segment, None)])?;
        }
        self.last = self.last.max(segment.live().last_max);
        self.whole.push(id);
        Ok(())
    }

    /// Adds buckets of segments, all or, if one cannot be read, none; `cutoff` hides them, if there is one.
    fn drop_buckets(&mut self, buckets: &[(u64, RoaringBitmap)], cutoff: Option<Cutoff>) -> Result<()> {
        let mut last = self.last;
        let mut decaying = Vec::with_capacity(buckets.len());
        for (id, ordinals) in buckets {
            let segment = self.segment(*id)?;
            decaying.push((segment, Some(ordinals)));
            let Some(cutoff) = cutoff else { continue };
            let reader = segment.file.reader()?;
            for ordinal in ordinals {
                let bounds = segment.bounds(&reader, ordinal as usize);
                assert!(bounds.is_some_and(|b| cutoff.hides(b.last)), "a bucket that is dropped is there, and expired");
                last = last.max(bounds.map_or(i64::MIN, |b| b.last));
            }
        }
        if let Some(decay) = &mut self.decay {
            decay.add(&decaying)?;
        }
        for (id, ordinals) in buckets {
            *self.partial.entry(*id).or_default() |= ordinals;
        }
        self.last = last;
        Ok(())
    }

    /// Writes what decays, and appends the operations of the edit but those of the rungs, which come with their files. Returns how
    /// many files it makes unneeded. At `now` bins that have expired take nothing; without it nothing expires.
    pub(crate) fn edits(self, engine: &Engine, now: Option<Timestamp>, ops: &mut Vec<Op>) -> Result<(u64, Pieces)> {
        let DropEdit { collection, mut whole, partial, last, decay } = self;
        for (id, ordinals) in partial {
            let Some(segment) = collection.segments.get(&id) else { continue };
            if ordinals.len() >= u64::from(segment.live().buckets) {
                whole.push(id);
            } else {
                let live = segment.without(&ordinals, &RoaringBitmap::new(), &[])?.live;
                ops.push(Op::DropBuckets { collection: collection.id, segment: id, dropped: ordinals, live });
            }
        }
        ops.extend(whole.iter().map(|id| Op::RemoveSegment { collection: collection.id, segment: *id }));
        if last > i64::MIN {
            ops.extend(gone(engine, collection, last)?);
        }
        let pieces = decay.map_or(Ok(Pieces::default()), |decay| decay.write(engine, collection, now))?;
        Ok((whole.len() as u64, pieces))
    }
}

/// The pieces of a bucket, by segment.
fn pieces(item: &Item) -> Vec<(u64, RoaringBitmap)> {
    match item {
        Item::Bucket { pieces, .. } => {
            pieces.iter().map(|(id, ordinal)| (*id, RoaringBitmap::from_iter([*ordinal]))).collect()
        }
        _ => Vec::new(),
    }
}

/// If a collection is a rung, the operation that says that its bins are gone up to one that starts at `last`.
fn gone(engine: &Engine, collection: &CollectionState, last: i64) -> Result<Option<Op>> {
    let Some((parent, _)) = rung_of(&collection.name) else { return Ok(None) };
    let parent = engine.state.read().by_id(parent).cloned();
    let parent = parent.ok_or_else(|| Error::internal("a rung has no collection"))?;
    let mut ladder = parent.ladder.as_deref().cloned().ok_or_else(|| Error::internal("a rung has no ladder"))?;
    let record = ladder.rungs.iter_mut().find(|record| record.collection == collection.id);
    let record = record.ok_or_else(|| Error::internal("a ladder does not have its rung"))?;
    record.lose(last.saturating_add(record.step(collection.options.precision)));
    Ok(Some(Op::SetLadder { collection: parent.id, ladder: Some(ladder) }))
}
