//! What measurements that are dropped leave in the rungs.

use super::LadderRecord;
use super::fold::{Taken, add_numbered, add_sealed};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::manifest::Op;
use crate::seal::{SealInput, added, take_back, write_segments};
use crate::segment::{Segment, ordinal_number};
use crate::state::CollectionState;
use ebbtide_buckets::{Bins, Chunk, Schema};
use ebbtide_ttl::Timestamp;
use roaring::RoaringBitmap;
use std::path::PathBuf;
use std::sync::Arc;

/// Edits that add bins to rungs, whose files are durable.
#[derive(Default)]
pub(crate) struct Pieces {
    pub(crate) ops: Vec<Op>,
    files: Vec<(Arc<CollectionState>, Vec<PathBuf>)>,
}

impl Pieces {
    /// Removes the files, because the edits were not committed.
    pub(crate) fn take_back(&self, engine: &Engine) {
        self.files.iter().for_each(|(rung, files)| take_back(engine, rung, files));
    }

    /// Commits the edits together with others; if that fails, removes the files.
    pub(crate) fn commit(mut self, engine: &Engine, mut ops: Vec<Op>) -> Result<()> {
        ops.append(&mut self.ops);
        engine.commit(ops).inspect_err(|_| self.take_back(engine))
    }

    /// The numbers of the rungs.
    pub(crate) fn rungs(&self) -> impl Iterator<Item = u64> {
        self.files.iter().map(|(rung, _)| rung.id)
    }

    /// Writes bins into a segment of a rung.
    pub(crate) fn write(
        &mut self,
        engine: &Engine,
        rung: &Arc<CollectionState>,
        bins: &Bins,
        (parent, ladder): (&CollectionState, &LadderRecord),
    ) -> Result<()> {
        let (schema, input) = stored_rows(rung, bins, (parent, ladder))?;
        let rung = Arc::new(CollectionState { schema: Arc::new(schema.clone()), ..(**rung).clone() });
        let ops = write_segments(engine, &rung, input)?;
        self.files.push((rung.clone(), added(&rung, &ops)));
        self.ops.push(Op::SetSchema { collection: rung.id, schema });
        self.ops.extend(ops);
        Ok(())
    }
}

/// Bins as rows of a rung, and the schema of the rung with them.
pub(super) fn stored_rows(
    rung: &CollectionState,
    bins: &Bins,
    (parent, ladder): (&CollectionState, &LadderRecord),
) -> Result<(Schema, SealInput)> {
    let (of_bins, batch) = bins.to_stored(&parent.schema, |field| ladder.stored(field))?;
    let schema = rung.schema.join(&of_bins)?;
    let chunk = Chunk::build(batch, &of_bins, rung.options.bucketing.span_seconds());
    let mut input = SealInput::default();
    input.add_chunk(&chunk, &schema)?;
    Ok((schema, input))
}

/// Measurements that are about to go.
pub(crate) struct Decay {
    ladder: Arc<LadderRecord>,
    /// In bins of the finest rung, of which all others are made.
    bins: Bins,
    empty: Bins,
}

/// A segment, and which of its buckets go: all if `None`.
pub(crate) type Going<'a> = (&'a Arc<Segment>, Option<&'a RoaringBitmap>);

impl Decay {
    /// For a collection that has a ladder.
    pub(crate) fn new(engine: &Engine, collection: &CollectionState) -> Option<Decay> {
        let ladder = collection.ladder.clone()?;
        let step = ladder.rungs.first()?.step(collection.options.precision);
        let all_cores = engine.maintenance.may_use_all_cores();
        let bins = Bins::new(step, ladder.fields(&collection.schema)).on_all_cores(all_cores);
        Some(Decay { empty: bins.clone(), bins, ladder })
    }

    /// Adds the live rows of some segments, or, if one cannot be read, nothing.
    pub(crate) fn add(&mut self, rows: &[Going<'_>]) -> Result<()> {
        let mut bins = self.empty.clone();
        for (segment, ordinals) in rows {
            let reader = segment.file.reader()?.without_cache();
            let is_taken = |ordinal: usize| ordinals.is_none_or(|some| some.contains(ordinal_number(ordinal)));
            let live = segment.live_buckets(&reader).filter(|(ordinal, ..)| is_taken(*ordinal));
            let buckets: Vec<Taken> = live.map(|(ordinal, meta, _)| (ordinal, meta, None)).collect();
            add_sealed(&mut bins, segment, &reader, &buckets)?;
        }
        match self.bins.is_empty() {
            true => self.bins = bins,
            false => self.bins.merge(&bins, |_, _| true),
        }
        Ok(())
    }

    /// Adds live rows of a segment: those of whole buckets, and single ones by their numbers.
    pub(crate) fn add_rows(&mut self, segment: &Segment, rows: (&RoaringBitmap, &RoaringBitmap)) -> Result<()> {
        add_numbered(&mut self.bins, segment, &segment.file.reader()?.without_cache(), rows)
    }

    /// Writes what the measurements add to every rung, but for bins that have expired at `now`. Without it, or while expiry is
    /// suspended, none has.
    pub(crate) fn write(self, engine: &Engine, collection: &CollectionState, now: Option<Timestamp>) -> Result<Pieces> {
        let now = now.filter(|_| collection.suspension().is_none());
        let mut pieces = Pieces::default();
        match self.write_all(engine, collection, now, &mut pieces) {
            Ok(()) => Ok(pieces),
            Err(error) => {
                pieces.take_back(engine);
                Err(error)
            }
        }
    }

    fn write_all(
        self,
        engine: &Engine,
        collection: &CollectionState,
        now: Option<Timestamp>,
        pieces: &mut Pieces,
    ) -> Result<()> {
        let precision = collection.options.precision;
        let rungs = engine.state.read().rungs_of(collection)?;
        let mut ladder = (*self.ladder).clone();
        for (at, rung) in rungs.iter().enumerate() {
            let record = ladder.rungs.get_mut(at).ok_or_else(|| Error::internal("a ladder lost a rung"))?;
            let cutoff = record.cutoff(now, precision);
            // States take much memory: those of the finest rung are not copied.
            let coarser = (at > 0).then(|| {
                let step = record.step(precision);
                let all_cores = engine.maintenance.may_use_all_cores();
                let mut bins = Bins::new(step, self.ladder.fields(&collection.schema)).on_all_cores(all_cores);
                bins.merge(&self.bins, |_, _| true);
                bins
            });
            let bins = coarser.as_ref().unwrap_or(&self.bins);
            let expired = bins.iter().map(|(_, bin, _)| bin.end).filter(|end| cutoff.hides(*end)).max();
            if let Some(end) = expired {
                record.lose(end);
            }
            let record = *record;
            let kept = bins.retained(|_, bin| !record.is_gone(bin));
            if !kept.is_empty() {
                pieces.write(engine, rung, &kept, (collection, &ladder))?;
            }
        }
        if ladder != *self.ladder {
            pieces.ops.push(Op::SetLadder { collection: collection.id, ladder: Some(ladder) });
        }
        Ok(())
    }
}
