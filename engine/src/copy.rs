//! Copying a collection: options, rules, fields, an empty ladder, and the measurements that are visible.
//!
//! The copy's segments are written before anything names them, and one edit creates the collection with all of them: after a
//! crash there is the whole copy or none. The number of the collection is taken by an edit of its own before, so that the
//! folder of a copy that was interrupted is known as a leftover.

use crate::engine::Engine;
use crate::error::Result;
use crate::files::collection_folder;
use crate::ladder::alter::first_ladder;
use crate::manifest::Op;
use crate::memtable::Memtable;
use crate::options::CollectionOptions;
use crate::seal::{self, SealInput};
use crate::segment::folder::SegmentFolder;
use crate::snapshot::{CollectionSnapshot, ScanRequest};
use crate::state::CollectionState;
use arrow::array::RecordBatch;
use ebbtide_buckets::{Chunk, adapt, batch_bytes};
use std::sync::Arc;

/// Copies a collection; returns how many measurements were copied. `check` refuses the new name if it is taken.
pub(crate) fn copy(engine: &Engine, from: &str, to: &str, check: impl FnOnce() -> Result<()>) -> Result<u64> {
    let _maintenance = engine.maintenance.lock();
    engine.check_writable()?;
    let source = engine.snapshot().collection(from)?;
    check()?;
    let (id, segment) = {
        let state = engine.state.read();
        (state.next_collection, state.next_segment)
    };
    let rungs = source.state.ladder.as_ref().map_or(0, |ladder| ladder.rungs.len() as u64);
    engine.commit(vec![Op::NextIds { collection: id + 1 + rungs, segment, seq: 1 }])?;
    let folder = SegmentFolder::of_collection(engine.fs.clone(), &engine.dir, collection_folder(to, id));
    let mut target = CollectionState {
        id,
        name: to.to_owned(),
        sealed_seq: 0,
        last_batch: None,
        segments: Arc::default(),
        file_types: Arc::new(source.state.known_file_types()?),
        folder: Arc::new(folder),
        memtable: Memtable::default(),
        holds: Arc::default(),
        handed_over: Arc::default(),
        sink: Arc::default(),
        // Two collections cannot have one archive.
        options: Arc::new(CollectionOptions {
            expire_into: None,
            keep_seconds: None,
            ..(*source.state.options).clone()
        }),
        archive: Arc::default(),
        index_archives: Arc::default(),
        archiving: Arc::default(),
        publication: None,
        publishing: Arc::default(),
        ladder: None,
        ..(*source.state).clone()
    };
    let mut ops: Vec<Op> = target.record().put(None).collect();
    // Its bins are those of the measurements that it gets.
    if let Some(ladder) = source.ladder() {
        ops.extend(first_ladder(&target.record(), &ladder)?);
    }
    let copied = write_rows(engine, &source, &mut target, &mut ops).and_then(|rows| {
        let types = (*target.file_types).clone();
        ops.insert(1, Op::SetFileTypes { collection: id, types });
        engine.commit(std::mem::take(&mut ops))?;
        Ok(rows)
    });
    match copied {
        Ok(0) => {}
        Ok(_) => {
            // The state has a folder of its own making, which does not know yet that it is there, without a marker.
            let made = engine.state.read().by_id(id).map(|collection| collection.folder.clone());
            made.map_or(Ok(()), |folder| folder.opened(true, false, false))?;
        }
        Err(_) if engine.poisoned().is_none() => target.folder.retire(),
        Err(_) => {}
    }
    copied
}

/// Writes the visible rows of a collection as segments of another one.
fn write_rows(
    engine: &Engine,
    source: &CollectionSnapshot,
    target: &mut CollectionState,
    ops: &mut Vec<Op>,
) -> Result<u64> {
    let (mut batches, mut rows, mut bytes, mut copied) = (Vec::new(), 0, 0, 0);
    for unit in source.scan(&ScanRequest::default())? {
        for batch in unit.read()? {
            let batch = adapt(&batch?, &target.schema)?;
            rows += batch.num_rows();
            copied += batch.num_rows() as u64;
            bytes += batch_bytes(&batch);
            batches.push(batch);
            if rows >= engine.settings.segment_rows_max || bytes >= engine.settings.memtable_bytes_max {
                write(engine, target, std::mem::take(&mut batches), ops)?;
                (rows, bytes) = (0, 0);
            }
        }
    }
    write(engine, target, batches, ops)?;
    Ok(copied)
}

fn write(engine: &Engine, target: &mut CollectionState, batches: Vec<RecordBatch>, ops: &mut Vec<Op>) -> Result<()> {
    let span = target.options.bucketing.span_seconds();
    let mut input = SealInput::default();
    let mut is_empty = true;
    for batch in batches.into_iter().filter(|batch| batch.num_rows() > 0) {
        input.add_chunk(&Chunk::build(batch, &target.schema, span), &target.schema)?;
        is_empty = false;
    }
    if is_empty {
        return Ok(());
    }
    for op in seal::write_segments(engine, target, input)? {
        match op {
            Op::SetFileTypes { types, .. } => target.file_types = Arc::new(types),
            added => ops.push(added),
        }
    }
    Ok(())
}
