//! Compaction: merges small segments and interleaved ones, and rewrites segments that have lost most of their rows, whose columns have
//! narrower types than the newest ones, or that an older program stored outside the collection's folder.

mod interleaved;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::ladder::compact::merged;
use crate::ladder::rung_of;
use crate::seal::{Group, merge_segments, merge_small, partition_width, seal_input};
use crate::segment::{Classes, Segment};
use crate::settings::{DEFAULT_MEMTABLE_BYTES_MAX, Settings};
use crate::state::CollectionState;
use crate::sync::Guard;
use ebbtide_buckets::FileTypes;
use ebbtide_ttl::Code;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Segments with fewer live rows than this are merged with others of their class and partition.
const SMALL_ROWS: u64 = 1 << 18;
/// In the background, small segments of one class and partition, or of neighbouring partitions with few rows, are merged once
/// there are this many.
const SMALL_SEGMENTS_MAX: usize = 4;

/// Merges and rewrites everything that saves space, in one collection or in all. Between merges of interleaved segments the lock is
/// released, so that writers do not wait for all of them. A segment that cannot be read stays as it is; the error about the first of
/// them comes when all else is done. If the disk is full, the rest is still tried, and the error is returned at the end.
pub(crate) fn compact_thoroughly(engine: &Engine, only: Option<&str>) -> Result<()> {
    let mut unread = ReadErrors::default();
    let mut full = None;
    let mut note_full = |done: Result<()>| match done {
        Err(error) if error.code() == Code::OutOfDiskSpace => {
            full.get_or_insert(error);
            Ok(())
        }
        done => done,
    };
    let mut maintenance = engine.maintenance.lock();
    crate::seal::flush(engine, &maintenance, only)?;
    for segments in interleaved::all(engine, only, &mut unread)? {
        note_full(interleaved::merge(engine, &maintenance, &segments, &mut unread))?;
        drop(maintenance);
        maintenance = engine.maintenance.lock();
        if engine.is_half_full() {
            note_full(crate::seal::flush(engine, &maintenance, None))?;
        }
    }
    compact(engine, &maintenance, only, true, &mut unread)?;
    full.or(unread.0).map_or(Ok(()), Err)
}

/// Compacts all collections in the background, as far as it is urgent.
pub(crate) fn compact_urgent(engine: &Engine, maintenance: &Guard<'_, ()>) -> Result<()> {
    let mut unread = ReadErrors::default();
    compact(engine, maintenance, None, false, &mut unread)?;
    unread.0.map_or(Ok(()), Err)
}

/// Merges small segments of one class and partition, or of neighbouring ones that are hardly worth a file each, and rewrites
/// those of which most is gone or whose types are outdated.
///
/// `thorough` merges from two segments on and brings all of them up to date; otherwise it takes [`SMALL_SEGMENTS_MAX`], and
/// outdated types are the reason for one rewrite in each collection.
fn compact(
    engine: &Engine,
    _maintenance: &Guard<'_, ()>,
    only: Option<&str>,
    thorough: bool,
    unread: &mut ReadErrors,
) -> Result<()> {
    engine.check_writable()?;
    let names: Vec<String> = engine.state.read().collections.keys().cloned().collect();
    let of_rungs = only.and_then(|only| engine.state.read().collections.get(only).map(|collection| collection.id));
    let is_wanted = |name: &&String| {
        only.is_none_or(|only| only == name.as_str())
            || of_rungs.is_some_and(|id| rung_of(name).is_some_and(|(parent, _)| parent == id))
    };
    for name in names.iter().filter(is_wanted) {
        let collection = present(engine, name)?;
        let worth = Worth::new(&collection, thorough);
        for mut group in candidates(&collection, &worth, &engine.settings, unread)? {
            let _span = tracing::debug_span!("compact", collection = %name, segments = group.len()).entered();
            while worth.is_given(&group) {
                // The group before may have widened the types.
                let collection = present(engine, name)?;
                let input = match rung_of(name) {
                    Some((parent, _)) => merged(engine, &collection, parent, &group),
                    None => seal_input(&collection, &group).map(|input| ((*collection).clone(), input)),
                };
                match input {
                    Ok((collection, input)) => {
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
    let documents: Vec<String> = engine.state.read().documents.keys().cloned().collect();
    for name in documents.iter().filter(|n| only.is_none_or(|o| o == n.as_str())) {
        if let Err(error) = crate::documents::compact::compact(engine, name, thorough) {
            unread.note(error)?;
        }
    }
    Ok(())
}

/// A collection, which may be a rung.
fn present(engine: &Engine, name: &str) -> Result<Arc<CollectionState>> {
    engine.state.read().collections.get(name).cloned().ok_or_else(|| Error::no_collection(name))
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

/// What is worth a rewrite.
struct Worth {
    thorough: bool,
    /// The types that all segments are to have; `None` if they agree already.
    types: Option<Arc<FileTypes>>,
}

impl Worth {
    fn new(collection: &CollectionState, thorough: bool) -> Worth {
        let outdated = collection.types_differ() || (thorough && collection.has_old_segments());
        Worth { thorough, types: outdated.then(|| collection.file_types.clone()) }
    }

    /// Whether segments are worth being rewritten as one.
    fn is_given(&self, group: &[Arc<Segment>]) -> bool {
        self.saves_space(group) || group.iter().any(|segment| self.is_outdated(segment))
    }

    /// Whether segments are enough, or one of them is worn enough.
    fn saves_space(&self, group: &[Arc<Segment>]) -> bool {
        let least = if self.thorough { 2 } else { SMALL_SEGMENTS_MAX };
        group.len() >= least || group.iter().any(|s| is_worn(s))
    }

    /// Whether a segment has other types than the newest ones.
    fn is_outdated(&self, segment: &Segment) -> bool {
        self.types.as_ref().is_some_and(|types| !segment.is_of_types(types))
    }
}

fn is_worn(segment: &Segment) -> bool {
    segment.file.meta.rows > segment.live().rows * 2
}

/// The groups of segments that are worth being rewritten as one.
fn candidates(
    collection: &CollectionState,
    worth: &Worth,
    settings: &Settings,
    unread: &mut ReadErrors,
) -> Result<Vec<Vec<Arc<Segment>>>> {
    let rows_max = settings.segment_rows_max as u64;
    let memory_max = merge_memory(settings);
    let mut groups: BTreeMap<Group, Vec<Arc<Segment>>> = BTreeMap::new();
    let mut chosen = Vec::new();
    for segment in collection.segments.values().filter(|segment| !collection.is_moving(segment.file.id)) {
        let live = segment.live();
        if live.rows < SMALL_ROWS.min(rows_max) {
            match group_of(collection, segment) {
                Ok(group) => groups.entry(group).or_default().push(segment.clone()),
                Err(error) => unread.note(error)?,
            }
        } else if is_worn(segment) || worth.is_outdated(segment) {
            chosen.push(vec![segment.clone()]);
        }
    }
    // Large segments are left alone: they would be rewritten for the sake of a few rows.
    for (_, group) in merge_small(groups, false, |segment| segment.live().rows) {
        if !worth.is_given(&group) {
            continue;
        }
        let portions = portions(group, rows_max, memory_max, unread)?;
        chosen.extend(portions.into_iter().filter(|portion| worth.is_given(portion)));
    }
    if !worth.thorough {
        // Whoever waits for this would wait long if all of a large collection were rewritten at once.
        let mut outdated = 0;
        chosen.retain(|group| {
            outdated += u32::from(!worth.saves_space(group));
            worth.saves_space(group) || outdated == 1
        });
    }
    Ok(chosen)
}

/// The memory for columns that are merged at a time.
fn merge_memory(settings: &Settings) -> u64 {
    (settings.memtable_bytes_max.max(DEFAULT_MEMTABLE_BYTES_MAX) as u64).saturating_mul(2)
}

/// The class and the partition of a segment.
fn group_of(collection: &CollectionState, segment: &Segment) -> Result<Group> {
    let uniform = match segment.classes(&collection.rules, Some(collection.rules_epoch))? {
        Classes::Uniform(class) => class,
        Classes::PerMeta(_) => None,
    };
    let width = partition_width(uniform.map(|c| c.1), &collection.options);
    let partition = segment.live().window_start_min.div_euclid(width);
    Ok((uniform.and_then(|c| u32::try_from(c.0).ok()), partition))
}

/// Splits a group into parts that fit into one segment and into memory.
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
