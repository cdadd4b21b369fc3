//! Merges segments whose rows are interleaved, as after an import that was in no order: every segment has a part of every series, and a
//! part of a series is larger than its share of the whole.
//!
//! What is merged may be larger than memory, so it is read and written in ranges of metas, and committed as one.

use super::{ReadErrors, group_of, present};
use crate::engine::Engine;
use crate::error::Result;
use crate::ladder::rung_of;
use crate::manifest::Op;
use crate::seal::{self, Group, SealInput};
use crate::segment::Segment;
use crate::segment::bounds::BucketBounds;
use crate::settings::Settings;
use crate::state::CollectionState;
use crate::sync::Guard;
use ebbtide_buckets::{SegmentReader, Window};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A segment is interleaved with others if one of this many of its rows lies between their rows.
const SHARE: u64 = 4;
/// Segments that are merged at once, all of which are open meanwhile.
const SEGMENTS_MAX: usize = 256;
/// What a bucket and a row take while they are merged, apart from the columns.
const BUCKET_BYTES: u64 = 256;
const ROW_BYTES: u64 = 24;

/// Where a pass over the segments of a database is: groups up to this one are done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    collection: String,
    group: Group,
}

/// Merges the interleaved segments of the next group after `done`, in one collection or in all. Returns that group, or `None` if there
/// is no other. Between two groups the lock may be released.
pub(crate) fn merge_next(
    engine: &Engine,
    _maintenance: &Guard<'_, ()>,
    only: Option<&str>,
    done: Option<&Place>,
    unread: &mut ReadErrors,
) -> Result<Option<Place>> {
    engine.check_writable()?;
    let names: Vec<String> = engine.state.read().collections.keys().cloned().collect();
    let names = names.into_iter().filter(|name| rung_of(name).is_none() && only.is_none_or(|only| only == name));
    for collection in names.filter(|name| done.is_none_or(|done| done.collection <= *name)) {
        let after = done.filter(|done| done.collection == collection).map(|done| done.group);
        let now = present(engine, &collection)?;
        if let Some((group, segments)) = overlapping(&now, after, unread)? {
            // The files of segments that were replaced stay as long as a state that names them.
            drop(now);
            merge_group(engine, &collection, segments, unread)?;
            return Ok(Some(Place { collection, group }));
        }
    }
    Ok(None)
}

/// The segments of the next group after `after` whose times overlap those of others in it.
fn overlapping(
    collection: &CollectionState,
    after: Option<Group>,
    unread: &mut ReadErrors,
) -> Result<Option<(Group, Vec<Arc<Segment>>)>> {
    let mut groups: BTreeMap<Group, Vec<Arc<Segment>>> = BTreeMap::new();
    for segment in collection.segments.values().filter(|segment| !collection.is_moving(segment.file.id)) {
        match group_of(collection, segment) {
            Ok(group) if after.is_none_or(|after| after < group) => {
                groups.entry(group).or_default().push(segment.clone())
            }
            Ok(_) => {}
            Err(error) => unread.note(error)?,
        }
    }
    for (group, mut segments) in groups {
        segments.sort_by_key(|segment| segment.live().first_min);
        let ends = segments.iter().scan(i64::MIN, |end, segment| {
            let before = *end;
            *end = before.max(segment.live().last_max);
            Some(before)
        });
        let follows: Vec<bool> = ends.zip(&segments).map(|(end, segment)| segment.live().first_min <= end).collect();
        let is_overlapped = |at: usize| follows[at] || follows.get(at + 1).is_some_and(|next| *next);
        let mut found: Vec<_> =
            (0..segments.len()).filter(|at| is_overlapped(*at)).map(|at| segments[at].clone()).collect();
        if found.len() > 1 {
            // In the order in which their rows arrived.
            found.sort_by_key(|segment| segment.file.id);
            found.truncate(SEGMENTS_MAX);
            return Ok(Some((group, found)));
        }
    }
    Ok(None)
}

/// Merges those of some segments that are interleaved.
fn merge_group(engine: &Engine, name: &str, segments: Vec<Arc<Segment>>, unread: &mut ReadErrors) -> Result<()> {
    let mut parts = Vec::new();
    for segment in segments {
        match segment.file.reader() {
            Ok(reader) => parts.push((segment, reader.without_cache())),
            Err(error) => unread.note(error)?,
        }
    }
    let between = rows_between(&parts);
    let is_interleaved = |at: usize| between[at] > 0 && between[at] >= parts[at].0.live().rows / SHARE;
    let chosen: Vec<usize> = (0..parts.len()).filter(|at| is_interleaved(*at)).collect();
    let parts: Vec<_> = chosen.into_iter().map(|at| parts[at].clone()).collect();
    if parts.len() < 2 || rows_of_largest_bucket(&parts) > engine.settings.segment_rows_max as u64 {
        return Ok(());
    }
    let _span = tracing::debug_span!("merge interleaved", collection = name, segments = parts.len()).entered();
    let collection = present(engine, name)?;
    // Until the old files are gone, every row is there twice.
    collection.folder.begin_rewrite()?;
    let merged = merge(engine, &collection, &parts);
    if engine.poisoned().is_none() {
        collection.folder.end_rewrite();
    }
    match merged {
        Ok(()) => engine.metrics.compacted(),
        Err(error) => unread.note(error)?,
    }
    Ok(())
}

/// Writes what is left of segments in the order of metas, and replaces them.
fn merge(engine: &Engine, collection: &CollectionState, parts: &[Part]) -> Result<()> {
    let mut written = collection.clone();
    let mut ops = vec![Op::SetSchema { collection: collection.id, schema: (*collection.schema).clone() }];
    for ranges in ranges_of_metas(parts, memory_max(&engine.settings)) {
        let added =
            input_of(parts, &ranges, collection).and_then(|input| seal::write_segments(engine, &written, input));
        match added {
            Ok(added) => {
                if let Some(Op::SetFileTypes { types, .. }) =
                    added.iter().find(|op| matches!(op, Op::SetFileTypes { .. }))
                {
                    written.file_types = Arc::new(types.clone());
                }
                ops.extend(added);
            }
            Err(error) => {
                seal::take_back(engine, collection, &seal::added(collection, &ops));
                return Err(error);
            }
        }
    }
    let rows_of = |op: &Op| op.added_segment().map_or(0, |segment| segment.state.live.rows);
    let (before, after): (u64, u64) = (parts.iter().map(|(s, _)| s.live().rows).sum(), ops.iter().map(rows_of).sum());
    assert_eq!(before, after, "compaction keeps every row");
    ops.extend(parts.iter().map(|(s, _)| Op::RemoveSegment { collection: collection.id, segment: s.file.id }));
    seal::commit_segments(engine, collection, ops)
}

/// The live rows of a range of metas of each segment.
fn input_of(parts: &[Part], ranges: &[Range<usize>], collection: &CollectionState) -> Result<SealInput> {
    let mut input = SealInput::default();
    for ((segment, reader), metas) in parts.iter().zip(ranges) {
        input.add_metas(segment, reader, metas.clone(), &collection.schema)?;
    }
    Ok(input)
}

/// A segment, open.
type Part = (Arc<Segment>, SegmentReader);

/// Calls `each` for every meta, in order, with its ordinal in each of the segments that have it.
fn each_meta(parts: &[Part], mut each: impl FnMut(&[Option<usize>])) {
    let mut next = vec![0; parts.len()];
    let mut here = vec![None; parts.len()];
    let of = |at: usize, meta: usize| {
        let directory = parts[at].1.directory();
        (meta < directory.meta_count()).then(|| directory.meta_bytes(meta))
    };
    while let Some(least) = (0..parts.len()).filter_map(|at| of(at, next[at])).min() {
        for at in 0..parts.len() {
            here[at] = (of(at, next[at]) == Some(least)).then_some(next[at]);
            next[at] += usize::from(here[at].is_some());
        }
        each(&here);
    }
}

/// The live buckets of a meta: which segment each is in, and its bounds.
fn buckets_of<'a>(parts: &'a [Part], here: &'a [Option<usize>]) -> impl Iterator<Item = (usize, BucketBounds)> + 'a {
    parts.iter().zip(here).enumerate().flat_map(|(at, ((segment, reader), meta))| {
        segment.buckets_of_metas(reader, *meta).map(move |(_, _, bounds)| (at, bounds))
    })
}

/// Estimates how many rows of each segment lie between rows of the same bucket in another one, as if the rows of each were spread
/// evenly. Where few rows lie between many, the few count for both.
fn rows_between(parts: &[Part]) -> Vec<u64> {
    let mut between = vec![0; parts.len()];
    let mut buckets: Vec<(usize, BucketBounds, u64)> = Vec::new();
    each_meta(parts, |here| {
        buckets.clear();
        buckets.extend(buckets_of(parts, here).map(|(at, bounds)| (at, bounds, 0)));
        for one in 1..buckets.len() {
            let (before, rest) = buckets.split_at_mut(one);
            let (_, bounds, most) = &mut rest[0];
            for (_, other, most_of_other) in before.iter_mut().filter(|(_, other, _)| other.window == bounds.window) {
                let (first, last) = (bounds.first.max(other.first), bounds.last.min(other.last));
                if first <= last {
                    let shared = rows_within(bounds, first, last).min(rows_within(other, first, last));
                    *most = shared.max(*most);
                    *most_of_other = shared.max(*most_of_other);
                }
            }
        }
        for (at, _, most) in &buckets {
            between[*at] += *most;
        }
    });
    between
}

/// About how many rows of a bucket are from `first` to `last`, which are within its times; one at least.
fn rows_within(bounds: &BucketBounds, first: i64, last: i64) -> u64 {
    let width = |first: i64, last: i64| u128::from(last.abs_diff(first)) + 1;
    let rows = (u128::from(bounds.rows) * width(first, last)).div_ceil(width(bounds.first, bounds.last));
    u64::try_from(rows).unwrap_or(bounds.rows)
}

/// The rows of the largest bucket after a merge: a bucket is not divided.
fn rows_of_largest_bucket(parts: &[Part]) -> u64 {
    let mut largest = 0;
    let mut rows: Vec<(Window, u64)> = Vec::new();
    each_meta(parts, |here| {
        rows.clear();
        for (_, bounds) in buckets_of(parts, here) {
            match rows.iter_mut().find(|(window, _)| *window == bounds.window) {
                Some((_, rows)) => *rows += bounds.rows,
                None => rows.push((bounds.window, bounds.rows)),
            }
        }
        largest = rows.iter().map(|(_, rows)| *rows).fold(largest, u64::max);
    });
    largest
}

/// Divides the metas of all segments into ranges whose rows fit into memory, one meta at least: the range of ordinals in each segment.
fn ranges_of_metas(parts: &[Part], memory_max: u64) -> Vec<Vec<Range<usize>>> {
    let row_bytes = |at: usize| {
        let (segment, reader) = &parts[at];
        reader.columns_memory() / segment.file.meta.rows.max(1) + ROW_BYTES
    };
    let row_bytes: Vec<u64> = (0..parts.len()).map(row_bytes).collect();
    let mut all: Vec<Vec<Range<usize>>> = Vec::new();
    let mut range: Vec<Range<usize>> = vec![0..0; parts.len()];
    let mut used = 0_u64;
    each_meta(parts, |here| {
        let buckets = buckets_of(parts, here);
        let memory = buckets.map(|(at, bounds)| bounds.rows.saturating_mul(row_bytes[at]).saturating_add(BUCKET_BYTES));
        let memory = memory.fold(0, u64::saturating_add);
        if used > 0 && used.saturating_add(memory) > memory_max {
            let next = range.iter().map(|range| range.end..range.end).collect();
            all.push(std::mem::replace(&mut range, next));
            used = 0;
        }
        used = used.saturating_add(memory);
        for (range, meta) in range.iter_mut().zip(here) {
            range.end = meta.map_or(range.end, |meta| meta + 1);
        }
    });
    all.push(range);
    all
}

/// The memory for rows that are merged at a time.
fn memory_max(settings: &Settings) -> u64 {
    (settings.memtable_bytes_max as u64).saturating_mul(2)
}
