//! Compaction of rungs: several pieces of a bin become one.

use super::decay::stored_rows;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::seal::SealInput;
use crate::segment::Segment;
use crate::state::CollectionState;
use ebbtide_buckets::{Bins, StoredField, stored_columns};
use std::sync::Arc;

/// Rows read at a time.
const BATCH_ROWS: usize = 1 << 16;

/// Adds the live bins of a segment of a rung; `stored` says under which names a field's states are.
pub(crate) fn add_segment(
    bins: &mut Bins,
    rung: &CollectionState,
    segment: &Segment,
    stored: &dyn Fn(&str) -> StoredField,
) -> Result<()> {
    let reader = segment.file.reader()?.without_cache();
    let (ranges, _) = segment.live_rows(&reader, 0..reader.directory().bucket_count());
    let fields: Vec<String> = bins.field_names().map(str::to_owned).collect();
    let columns = stored_columns(&rung.schema, fields.iter().map(|field| stored(field)));
    for batch in reader.read(&columns, &rung.schema, &ranges, BATCH_ROWS)? {
        bins.add_stored(&batch?, &rung.schema, stored)?;
    }
    Ok(())
}

/// The rung with the schema that its merged bins have, and these; an error comes with the index of the segment that it is
/// about.
pub(crate) fn merged(
    engine: &Engine,
    rung: &CollectionState,
    parent: u64,
    group: &[Arc<Segment>],
) -> Result<(CollectionState, SealInput), (usize, Error)> {
    let parent = engine.state.read().by_id(parent).cloned();
    let ladder = parent.as_ref().and_then(|parent| parent.ladder.clone());
    let (Some(parent), Some(ladder)) = (parent, ladder) else {
        return Err((0, Error::internal("a rung has no ladder")));
    };
    let Some(record) = ladder.rungs.iter().find(|record| record.collection == rung.id) else {
        return Err((0, Error::internal("a ladder does not have its rung")));
    };
    let all_cores = engine.maintenance.may_use_all_cores();
    let mut bins =
        Bins::new(record.step(rung.options.precision), ladder.fields(&parent.schema)).on_all_cores(all_cores);
    for (at, segment) in group.iter().enumerate() {
        add_segment(&mut bins, rung, segment, &|field| ladder.stored(field)).map_err(|error| (at, error))?;
    }
    let (schema, input) = stored_rows(rung, &bins, (&parent, &ladder)).map_err(|error| (0, error))?;
    Ok((CollectionState { schema: Arc::new(schema), ..rung.clone() }, input))
}
