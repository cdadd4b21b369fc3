//! Merges segments whose rows are interleaved, as after an import in no order: every segment has some rows of every bucket, and they
//! compress worse than the rows of a bucket in one place.
//!
//! What is merged may be larger than memory: it is read and written in ranges of buckets, and committed as one.

use super::{ReadErrors, group_of, merge_memory, present};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::ladder::rung_of;
use crate::manifest::Op;
use crate::seal::{self, Group, SealInput};
use crate::segment::Segment;
use crate::segment::bounds::BucketBounds;
use crate::state::CollectionState;
use crate::sync::Guard;
use ebbtide_buckets::{SegmentReader, Window};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;
use std::sync::Arc;

/// A segment is interleaved with others if at least one in this many of its rows lies between their rows.
const SHARE: u64 = 4;
/// At most this many segments are merged at a time: their files are open meanwhile, and the disk needs room for both. If more are
/// interleaved, the rows of a bucket may be in several files afterwards.
const SEGMENTS_MAX: usize = 64;
/// What a bucket and a row take while they are merged, apart from the columns.
const BUCKET_BYTES: u64 = 256;
const ROW_BYTES: u64 = 24;

/// Segments of one class and partition, by their numbers. The times of each overlap those of another one.
pub(super) struct Overlapping {
    collection: String,
    group: Group,
    segments: Vec<u64>,
}

/// The segments whose times overlap, in one collection or in all.
pub(super) fn all(engine: &Engine, only: Option<&str>, unread: &mut ReadErrors) -> Result<Vec<Overlapping>> {
    let names: Vec<String> = engine.state.read().collections.keys().cloned().collect();
    let names = names.into_iter().filter(|name| rung_of(name).is_none() && only.is_none_or(|only| only == name));
    let mut all = Vec::new();
    for collection in names {
        let mut groups: BTreeMap<Group, Vec<Arc<Segment>>> = BTreeMap::new();
        let now = present(engine, &collection)?;
        for segment in now.segments.values().filter(|segment| !now.is_moving(segment.file.id)) {
            match group_of(&now, segment) {
                Ok(group) => groups.entry(group).or_default().push(segment.clone()),
                Err(error) => unread.note(error)?,
            }
        }
        for (group, segments) in groups {
            for segments in overlapping(segments).chunks(SEGMENTS_MAX).filter(|segments| segments.len() > 1) {
                let segments = segments.iter().map(|segment| segment.file.id).collect();
                all.push(Overlapping { collection: collection.clone(), group, segments });
            }
        }
    }
    Ok(all)
}

/// The segments whose times overlap those of others by more than one instant, in the order of time.
fn overlapping(mut segments: Vec<Arc<Segment>>) -> Vec<Arc<Segment>> {
    segments.sort_by_key(|segment| segment.live().first_min);
    let mut overlap = vec![false; segments.len()];
    let mut last: Option<usize> = None;
    for (at, segment) in segments.iter().enumerate() {
        let end = last.map(|last| segments[last].live().last_max);
        if end.is_some_and(|end| segment.live().first_min < end) {
            overlap[at] = true;
            last.into_iter().for_each(|last| overlap[last] = true);
        }
        if end.is_none_or(|end| end < segment.live().last_max) {
            last = Some(at);
        }
    }
    segments.into_iter().zip(overlap).filter_map(|(segment, overlaps)| overlaps.then_some(segment)).collect()
}

/// Merges those of some segments that are interleaved, as far as they are still there.
pub(super) fn merge(
    engine: &Engine,
    _maintenance: &Guard<'_, ()>,
    of: &Overlapping,
    unread: &mut ReadErrors,
) -> Result<()> {
    engine.check_writable()?;
    let mut waiting = of.segments.as_slice();
    while !waiting.is_empty() {
        let Some(parts) = open(engine, of, &mut waiting, unread)? else { return Ok(()) };
        merge_interleaved(engine, &of.collection, parts, unread)?;
    }
    Ok(())
}

/// Opens segments until their directories take as much memory as a merge may. `None` if the collection was dropped.
fn open(engine: &Engine, of: &Overlapping, waiting: &mut &[u64], unread: &mut ReadErrors) -> Result<Option<Vec<Part>>> {
    let Ok(collection) = present(engine, &of.collection) else { return Ok(None) };
    let (mut parts, mut directories) = (Vec::new(), 0);
    while let Some((id, rest)) = waiting.split_first().filter(|_| directories < merge_memory(&engine.settings)) {
        *waiting = rest;
        let segment = collection.segments.get(id).filter(|segment| {
            !collection.is_moving(*id) && group_of(&collection, segment).is_ok_and(|group| group == of.group)
        });
        match segment.map(|segment| Part::open(segment, &collection)) {
            Some(Ok(part)) => {
                directories += part.reader.memory_bytes() as u64;
                parts.push(part);
            }
            Some(Err(error)) => unread.note(error)?,
            None => {}
        }
    }
    Ok(Some(parts))
}

fn merge_interleaved(engine: &Engine, name: &str, mut parts: Vec<Part>, unread: &mut ReadErrors) -> Result<()> {
    loop {
        parts = interleaved(parts);
        if parts.len() < 2 {
            return Ok(());
        }
        if let Some(part) = with_too_large_bucket(&parts, engine) {
            parts.remove(part);
            continue;
        }
        let _span = tracing::debug_span!("merge", collection = name, segments = parts.len()).entered();
        let collection = present(engine, name)?;
        match seal::rewriting(engine, &collection, || rewrite(engine, &collection, &parts))? {
            Ok(()) => {
                engine.metrics.compacted();
                return Ok(());
            }
            Err((Some(damaged), error)) => {
                unread.note(error)?;
                parts.remove(damaged);
            }
            Err((None, error)) => return Err(error),
        }
    }
}

/// Writes what is left of segments in the order of buckets, and replaces them. An error that is about one of them comes with its index.
fn rewrite(engine: &Engine, collection: &CollectionState, parts: &[Part]) -> Result<(), (Option<usize>, Error)> {
    let mut written = collection.clone();
    let mut ops = vec![Op::SetSchema { collection: collection.id, schema: (*collection.schema).clone() }];
    let mut rows = vec![0; parts.len()];
    let mut write = |ranges: &[Range<usize>]| {
        let mut input = SealInput::default();
        for (at, (part, buckets)) in parts.iter().zip(ranges).enumerate() {
            let added = input.add_buckets(&part.segment, &part.reader, buckets.clone(), &collection.schema);
            rows[at] += added.map_err(|error| (Some(at), error))?;
        }
        let added = seal::write_segments(engine, &written, input).map_err(|error| (None, error))?;
        if let Some(types) = added.iter().find_map(Op::file_types) {
            written.file_types = Arc::new(types.clone());
        }
        ops.extend(added);
        Ok(())
    };
    let mut done = ranges_of_buckets(parts, engine).iter().try_for_each(|ranges| write(ranges));
    if done.is_ok() {
        let mut checks = parts.iter().zip(&rows).enumerate();
        done = checks.try_for_each(|(at, (part, rows))| part.segment.check_rows(*rows).map_err(|e| (Some(at), e)));
    }
    if let Err(error) = done {
        seal::take_back(engine, collection, &seal::added(collection, &ops));
        return Err(error);
    }
    let segments: Vec<Arc<Segment>> = parts.iter().map(|part| part.segment.clone()).collect();
    seal::replace_segments(engine, collection, &segments, ops).map_err(|error| (None, error))
}

/// A segment, open.
struct Part {
    segment: Arc<Segment>,
    reader: SegmentReader,
    /// About how much memory a row takes.
    row_bytes: u64,
}

impl Part {
    fn open(segment: &Arc<Segment>, collection: &CollectionState) -> Result<Part> {
        let reader = segment.file.reader()?.without_cache();
        let absent = collection.schema.fields.len().saturating_sub(reader.schema().fields.len()) as u64;
        let row_bytes = reader.columns_memory() / segment.file.meta.rows.max(1) + absent * 8 + ROW_BYTES;
        Ok(Part { segment: segment.clone(), reader, row_bytes })
    }

    /// The meta and the window of a bucket.
    fn key(&self, bucket: usize) -> Option<Key<'_>> {
        let directory = self.reader.directory();
        let is_there = bucket < directory.bucket_count();
        is_there.then(|| (directory.meta_bytes(directory.meta_ordinal(bucket)), directory.window(bucket)))
    }

    fn bounds(&self, bucket: usize) -> Option<BucketBounds> {
        self.segment.bounds(&self.reader, bucket)
    }
}

/// The bytes of a meta, and a window.
type Key<'a> = (&'a [u8], Window);

/// Calls `each` for every bucket, in the order of metas and windows, with the segments that have it and its ordinal in each.
fn each_bucket(parts: &[Part], mut each: impl FnMut(&[(usize, usize)])) {
    let mut next: BinaryHeap<Reverse<(Key<'_>, usize, usize)>> = BinaryHeap::new();
    next.extend(parts.iter().enumerate().filter_map(|(at, part)| Some(Reverse((part.key(0)?, at, 0)))));
    let mut here = Vec::new();
    while let Some(Reverse((least, ..))) = next.peek() {
        let least = *least;
        here.clear();
        while let Some(Reverse((_, at, bucket))) = next.peek().copied().filter(|Reverse((key, ..))| *key == least) {
            next.pop();
            next.extend(parts[at].key(bucket + 1).map(|key| Reverse((key, at, bucket + 1))));
            here.push((at, bucket));
        }
        each(&here);
    }
}

/// Those of some segments that are interleaved with each other.
fn interleaved(mut parts: Vec<Part>) -> Vec<Part> {
    loop {
        let count = parts.len();
        let between = rows_between(&parts);
        let is_interleaved =
            |(part, between): &(Part, u64)| *between > 0 && *between >= part.segment.live().rows / SHARE;
        parts = parts.into_iter().zip(between).filter(is_interleaved).map(|(part, _)| part).collect();
        if parts.len() == count {
            return parts;
        }
    }
}

/// Estimates how many rows of each segment lie between rows of the same bucket in others.
fn rows_between(parts: &[Part]) -> Vec<u64> {
    let mut between = vec![0; parts.len()];
    let mut bounds: Vec<(usize, BucketBounds)> = Vec::new();
    each_bucket(parts, |here| {
        bounds.clear();
        bounds.extend(here.iter().filter_map(|(at, bucket)| Some((*at, parts[*at].bounds(*bucket)?))));
        let of_bucket: Vec<Rows> = bounds.iter().map(|(_, bounds)| Rows::from(bounds)).collect();
        for ((at, _), rows) in bounds.iter().zip(between_of(&of_bucket)) {
            between[*at] += rows;
        }
    });
    between
}

/// The rows of a bucket in a segment, as if they were spread evenly.
#[derive(Debug, Clone, Copy)]
struct Rows {
    first: i64,
    last: i64,
    rows: u64,
}

impl From<&BucketBounds> for Rows {
    fn from(bounds: &BucketBounds) -> Rows {
        Rows { first: bounds.first, last: bounds.last, rows: bounds.rows }
    }
}

impl Rows {
    /// About how many of them are from `first` to `last`.
    fn within(&self, first: i64, last: i64) -> u64 {
        let (first, last) = (first.max(self.first), last.min(self.last));
        if first > last {
            return 0;
        }
        let width = |first: i64, last: i64| last.abs_diff(first).saturating_add(1);
        let (part, whole) = (width(first, last), width(self.first, self.last));
        match self.rows.checked_mul(part) {
            Some(product) => product.div_ceil(whole),
            None => {
                let rows = (u128::from(self.rows) * u128::from(part)).div_ceil(u128::from(whole));
                u64::try_from(rows).unwrap_or(self.rows)
            }
        }
    }
}

/// How many rows of each part of a bucket lie between rows of the other parts. Where few rows lie between many, the few count for
/// both.
fn between_of(parts: &[Rows]) -> Vec<u64> {
    let between = |(at, part): (usize, &Rows)| {
        let others = || parts.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other);
        let others = || others().filter(|other| other.first <= part.last && part.first <= other.last);
        let (Some(first), Some(last)) = (others().map(|other| other.first).min(), others().map(|o| o.last).max())
        else {
            return 0;
        };
        let of_others = others().map(|other| other.within(part.first, part.last)).fold(0, u64::saturating_add);
        part.within(first, last).min(of_others)
    };
    parts.iter().enumerate().map(between).collect()
}

/// Of the first bucket that would be too large for a segment, or for the memory of a merge: the segment with most of its rows.
fn with_too_large_bucket(parts: &[Part], engine: &Engine) -> Option<usize> {
    let (rows_max, memory_max) = (engine.settings.segment_rows_max as u64, merge_memory(&engine.settings));
    let mut found = None;
    each_bucket(parts, |here| {
        let (rows, memory) = size_of(parts, here);
        if found.is_none() && (rows > rows_max || memory > memory_max) {
            let rows_in = |(at, bucket): &&(usize, usize)| parts[*at].bounds(*bucket).map(|bounds| bounds.rows);
            found = here.iter().max_by_key(rows_in).map(|(at, _)| *at);
        }
    });
    found
}

/// The rows of a bucket, and the memory for its merge.
fn size_of(parts: &[Part], here: &[(usize, usize)]) -> (u64, u64) {
    here.iter().fold((0_u64, 0_u64), |(rows, memory), (at, bucket)| {
        let Some(bounds) = parts[*at].bounds(*bucket) else { return (rows, memory) };
        let bytes = bounds.rows.saturating_mul(parts[*at].row_bytes).saturating_add(BUCKET_BYTES);
        (rows.saturating_add(bounds.rows), memory.saturating_add(bytes))
    })
}

/// Divides the buckets of all segments into ranges that each fit into a segment and into the memory for a merge: the range of
/// ordinals in each segment.
fn ranges_of_buckets(parts: &[Part], engine: &Engine) -> Vec<Vec<Range<usize>>> {
    let (rows_max, memory_max) = (engine.settings.segment_rows_max as u64, merge_memory(&engine.settings));
    let mut all: Vec<Vec<Range<usize>>> = Vec::new();
    let mut range: Vec<Range<usize>> = vec![0..0; parts.len()];
    let mut used = (0_u64, 0_u64);
    each_bucket(parts, |here| {
        let (rows, memory) = size_of(parts, here);
        let sum = (used.0.saturating_add(rows), used.1.saturating_add(memory));
        if used.0 > 0 && (sum.0 > rows_max || sum.1 > memory_max) {
            let next = range.iter().map(|range| range.end..range.end).collect();
            all.push(std::mem::replace(&mut range, next));
            used = (rows, memory);
        } else {
            used = sum;
        }
        for (at, bucket) in here {
            range[*at].end = bucket + 1;
        }
    });
    all.push(range);
    all
}

#[cfg(test)]
mod tests;
