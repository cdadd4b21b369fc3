//! Compaction: small segments become large ones, and those of which most is gone are rewritten.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::manifest::Op;
use crate::seal::{Group, SealInput, commit_segments, merge_small, partition_width, write_segments};
use crate::segment::{Classes, Segment};
use crate::settings::{DEFAULT_MEMTABLE_BYTES_MAX, Settings};
use crate::state::CollectionState;
use crate::sync::Guard;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Segments with fewer live rows than this are merged with others of their class and partition.
const SMALL_ROWS: u64 = 1 << 18;
/// So many small segments of one class and partition, or of some with few rows, are merged in the background.
const SMALL_SEGMENTS_MAX: usize = 4;

/// Merges small segments of one class and partition, or of neighbouring ones that are hardly worth a file each, and rewrites
/// those of which most is gone.
///
/// `thorough` merges from two segments on; otherwise it takes [`SMALL_SEGMENTS_MAX`]. A segment that cannot be read stays as it
/// is; the error about the first of them comes when all else is done.
pub(crate) fn compact(engine: &Engine, _maintenance: &Guard<'_, ()>, only: Option<&str>, thorough: bool) -> Result<()> {
    engine.check_writable()?;
    let names: Vec<String> = engine.state.read().collections.keys().cloned().collect();
    let mut unread = ReadErrors::default();
    for name in names.iter().filter(|n| only.is_none_or(|o| o == n.as_str())) {
        let collection = engine.state.read().collection(name)?.clone();
        for mut group in candidates(&collection, thorough, &engine.settings, &mut unread)? {
            let _span = tracing::debug_span!("compact", collection = %name, segments = group.len()).entered();
            while is_worth_merging(&group, thorough) {
                match seal_input(&collection, &group) {
                    Ok(input) => {
                        merge_segments(engine, &collection, &group, input)?;
                        engine.metrics.compacted();
                        break;
                    }
                    Err((at, error)) => {
                        unread.note(error)?;
                        group.remove(at);
                    }
                }
            }
        }
    }
    unread.0.map_or(Ok(()), Err)
}

/// The error about the first segment that could not be read.
#[derive(Default)]
struct ReadErrors(Option<Error>);

impl ReadErrors {
    /// Notes an error that is about one segment; returns any other.
    fn note(&mut self, error: Error) -> Result<()> {
        if !error.is_of_one_file() {
            return Err(error);
        }
        tracing::error!(%error, "a segment cannot be compacted");
        self.0.get_or_insert(error);
        Ok(())
    }
}

/// Whether segments are enough, or one of them is worn enough, to be rewritten as one.
fn is_worth_merging(group: &[Arc<Segment>], thorough: bool) -> bool {
    let least = if thorough { 2 } else { SMALL_SEGMENTS_MAX };
    group.len() >= least || group.iter().any(|s| s.file.meta.rows > s.live().rows * 2)
}

/// The groups of segments that are worth being rewritten as one.
fn candidates(
    collection: &CollectionState,
    thorough: bool,
    settings: &Settings,
    unread: &mut ReadErrors,
) -> Result<Vec<Vec<Arc<Segment>>>> {
    let rows_max = settings.segment_rows_max as u64;
    let memory_max = (settings.memtable_bytes_max.max(DEFAULT_MEMTABLE_BYTES_MAX) as u64).saturating_mul(2);
    let mut groups: BTreeMap<Group, Vec<Arc<Segment>>> = BTreeMap::new();
    let mut worn = Vec::new();
    for segment in collection.segments.values() {
        let live = segment.live();
        let gone = segment.file.meta.rows - live.rows;
        if live.rows < SMALL_ROWS.min(rows_max) {
            let uniform = match segment.classes(&collection.rules, Some(collection.rules_epoch)) {
                Ok(Classes::Uniform(class)) => class,
                Ok(Classes::PerMeta(_)) => None,
                Err(error) => {
                    unread.note(error)?;
                    continue;
                }
            };
            let width = partition_width(uniform.map(|c| c.1), &collection.options);
            let partition = live.window_start_min.div_euclid(width);
            let rule = uniform.and_then(|c| u32::try_from(c.0).ok());
            groups.entry((rule, partition)).or_default().push(segment.clone());
        } else if gone > live.rows {
            worn.push(vec![segment.clone()]);
        }
    }
    let mut chosen = Vec::new();
    // Large ones stay as they are: they would be written anew for the sake of a few rows.
    for (_, group) in merge_small(groups, false, |segment| segment.live().rows) {
        if !is_worth_merging(&group, thorough) {
            continue;
        }
        let portions = portions(group, rows_max, memory_max, unread)?;
        chosen.extend(portions.into_iter().filter(|portion| is_worth_merging(portion, thorough)));
    }
    chosen.append(&mut worn);
    Ok(chosen)
}

/// Cuts a group into parts that fit into one segment and into the memory for it.
fn portions(
    group: Vec<Arc<Segment>>,
    rows_max: u64,
    memory_max: u64,
    unread: &mut ReadErrors,
) -> Result<Vec<Vec<Arc<Segment>>>> {
    let mut portions: Vec<(u64, u64, Vec<Arc<Segment>>)> = Vec::new();
    for segment in group {
        let memory = match segment.file.reader() {
            Ok(reader) => reader.columns_memory(),
            Err(error) => {
                unread.note(error)?;
                continue;
            }
        };
        let rows = segment.live().rows;
        match portions.last_mut() {
            Some((sum, used, portion)) if *sum + rows <= rows_max && *used + memory <= memory_max => {
                *sum += rows;
                *used += memory;
                portion.push(segment);
            }
            _ => portions.push((rows, memory, vec![segment])),
        }
    }
    Ok(portions.into_iter().map(|(_, _, portion)| portion).collect())
}

/// All that is left of some segments; an error comes with the place of the one that it is about.
fn seal_input(collection: &CollectionState, group: &[Arc<Segment>]) -> Result<SealInput, (usize, Error)> {
    let mut input = SealInput::default();
    for (at, segment) in group.iter().enumerate() {
        input.add_segment(segment, &collection.schema).map_err(|error| (at, error))?;
    }
    Ok(input)
}

fn merge_segments(
    engine: &Engine,
    collection: &CollectionState,
    group: &[Arc<Segment>],
    input: SealInput,
) -> Result<()> {
    // The schema may be ahead of what is durable: only the log holds the insert that widened it.
    let mut ops = vec![Op::SetSchema { collection: collection.id, schema: (*collection.schema).clone() }];
    let added = write_segments(engine, collection, input)?;
    let rows_of = |op: &Op| match op {
        Op::AddSegment { segment, .. } => segment.state.live.rows,
        _ => 0,
    };
    let (before, after): (u64, u64) = (group.iter().map(|s| s.live().rows).sum(), added.iter().map(rows_of).sum());
    assert_eq!(before, after, "compaction keeps every row");
    ops.extend(added);
    ops.extend(group.iter().map(|s| Op::RemoveSegment { collection: collection.id, segment: s.file.id }));
    commit_segments(engine, ops)
}
