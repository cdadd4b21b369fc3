//! Sealing: open buckets become segments; small segments become large ones.
//!
//! A segment holds buckets of one retention class and one partition of time, so that almost every expiry is one unlink.
//! Its file is synced under its name before the manifest names it: a crash in between leaves an orphan, never a hole.

use crate::core::Core;
use crate::error::{Error, Result};
use crate::manifest::{ClassStamp, Live, Op, SegmentRecord, SegmentState};
use crate::segment::{self, Brief, Classes, Segment};
use crate::settings::{DEFAULT_MEMTABLE_BYTES_MAX, Settings};
use crate::state::CollectionState;
use crate::sync::MutexGuard;
use arrow::array::RecordBatch;
use ebbtide_buckets::{BucketId, Schema, SealRun, Sealer, adapt, times};
use ebbtide_ttl::in_range;
use roaring::RoaringBitmap;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Partitions with fewer rows are sealed or compacted together with their neighbours: many files of a few rows cost more than
/// they save at expiry.
const PARTITION_ROWS_MIN: u64 = 4096;
/// A class's E is cut into so many partitions, so that a file outlives its first measurement by a sixteenth of E at most.
const PARTITIONS_PER_LIFE: i64 = 16;
/// Partitions of data that no rule expires: thirty days.
const PARTITION_SECONDS_WITHOUT_RULE: i64 = 30 * 86_400;
/// Segments with fewer live rows than this are merged with others of their class and partition.
const SMALL_ROWS: u64 = 1 << 18;
/// So many small segments of one class and partition, or of some with few rows, are merged in the background.
const SMALL_SEGMENTS_MAX: usize = 4;

/// Rows that are read at a time from segments that are merged.
const MERGE_BATCH_ROWS: usize = 1 << 16;
/// Columns of a segment take this many bytes in memory, about, at most, however few its rows are: 512 MiB.
const SEGMENT_MEMORY_MAX: usize = 512 << 20;
/// Bytes of the metas of a segment, about, at most: 256 MiB. All of them are in memory while it is read.
const SEGMENT_METAS_MAX: usize = 256 << 20;

/// Rows of one bucket in pieces, in order of time.
type Rows = Vec<(u32, u32)>;
/// Buckets on their way into one segment.
type Buckets = Vec<(BucketId, Rows)>;
/// What goes into one segment: retention class, and partition of time.
type Group = (Option<u32>, i64);

/// Rows on their way into segments: pieces of one schema, and for each bucket where its rows are.
#[derive(Default)]
struct Harvest {
    pieces: Vec<RecordBatch>,
    times: Vec<Vec<i64>>,
    buckets: BTreeMap<BucketId, Rows>,
}

impl Harvest {
    fn add_piece(&mut self, batch: &RecordBatch, schema: &Schema) -> Result<u32> {
        let batch = adapt(batch, schema)?;
        let number =
            u32::try_from(self.pieces.len()).map_err(|_| Error::internal("too many pieces to seal at once"))?;
        self.times.push(times(&batch)?.to_vec());
        self.pieces.push(batch);
        Ok(number)
    }

    fn add_segment(&mut self, segment: &Segment, schema: &Schema) -> Result<()> {
        let columns: Vec<String> = schema.arrow().fields().iter().map(|f| f.name().clone()).collect();
        let reader = segment.file.reader()?.without_cache();
        let (ranges, buckets) = live_rows(segment, &reader);
        // Batches stay apart: as one they would be there twice, and could outgrow the offsets of texts and lists.
        let mut rows: Rows = Vec::new();
        for batch in reader.read(&columns, schema, &ranges, MERGE_BATCH_ROWS)? {
            let batch = batch?;
            let piece = self.add_piece(&batch, schema)?;
            let count = u32::try_from(batch.num_rows()).map_err(|_| Error::internal("a batch of over 2^32 rows"))?;
            rows.extend((0..count).map(|row| (piece, row)));
        }
        if rows.len() as u64 != segment.live().rows {
            let what = format!("segment rows expected={} found={}", segment.live().rows, rows.len());
            return Err(Error::corrupt(&segment.file.path, 0, what));
        }
        let mut rows = rows.into_iter();
        for (id, count) in buckets {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            self.buckets.entry(id).or_default().extend(rows.by_ref().take(count));
        }
        Ok(())
    }

    /// Brings every bucket's rows into the order of time; rows of one instant stay in order of arrival.
    fn sort(&mut self) {
        let times = &self.times;
        let time = |at: &(u32, u32)| times[at.0 as usize][at.1 as usize];
        for rows in self.buckets.values_mut() {
            if !rows.is_sorted_by_key(time) {
                rows.sort_by_key(time);
            }
        }
    }

    fn brief(&self, id: &BucketId, rows: &Rows, precision: ebbtide_ttl::Precision) -> Brief {
        let time = |at: &(u32, u32)| self.times[at.0 as usize][at.1 as usize];
        Brief {
            window: id.window,
            first: rows.first().map_or(0, time),
            last: rows.last().map_or(0, time),
            rows: rows.len() as u64,
            out_of_range: rows.iter().filter(|at| !in_range(time(at), precision)).count() as u64,
        }
    }
}

/// Seals the open buckets of one collection, or of all.
pub(crate) fn flush(core: &Core, _maintenance: &MutexGuard<'_, ()>, only: Option<&str>) -> Result<()> {
    core.check_writable()?;
    let names: Vec<String> = core.state.read().collections.keys().cloned().collect();
    for name in names.iter().filter(|n| only.is_none_or(|o| o == n.as_str())) {
        flush_collection(core, name)?;
    }
    core.cut_log_if_room()
}

fn flush_collection(core: &Core, name: &str) -> Result<()> {
    let _span = tracing::debug_span!("seal", collection = name).entered();
    // What is sealed must not be ahead of what the log keeps of other collections.
    core.sync_log()?;
    let (chunks, seq, collection) = {
        let mut state = core.state.write();
        let seq = state.applied_seq;
        let id = state.collection(name)?.id;
        let Some(collection) = state.by_id_mut(id) else { return Err(Error::no_collection(name)) };
        (collection.memtable.freeze(), seq, collection.clone())
    };
    if chunks.is_empty() {
        return Ok(());
    }
    core.sync_log()?;
    let mut harvest = Harvest::default();
    for chunk in &chunks {
        let piece = harvest.add_piece(&chunk.batch, &collection.schema)?;
        for bucket in &chunk.buckets {
            let rows = harvest.buckets.entry(bucket.id.clone()).or_default();
            rows.extend(bucket.rows.iter().map(|row| (piece, *row)));
        }
    }
    let mut ops = vec![Op::SetSchema { collection: collection.id, schema: (*collection.schema).clone() }];
    ops.extend(write_segments(core, &collection, harvest)?);
    ops.push(Op::Sealed { collection: collection.id, seq });
    commit_segments(core, ops)?;
    core.metrics.sealed();
    Ok(())
}

/// Commits edits that add segments; if they are refused (a full disk), takes back the files that nobody names.
fn commit_segments(core: &Core, ops: Vec<Op>) -> Result<()> {
    let paths = added(core, &ops);
    let outcome = core.commit(ops);
    if outcome.is_err() {
        take_back(core, &paths);
    }
    outcome
}

/// The files of the segments that edits add.
fn added(core: &Core, ops: &[Op]) -> Vec<PathBuf> {
    let added = |op: &Op| match op {
        Op::AddSegment { segment, .. } => Some(core.dir.join(segment::file_name(segment.id))),
        _ => None,
    };
    ops.iter().filter_map(added).collect()
}

fn take_back(core: &Core, paths: &[PathBuf]) {
    if core.poisoned().is_some() {
        return; // Whether they are named is not known.
    }
    for path in paths {
        let taken_back = core.fs.remove(path);
        tracing::debug!(path = %path.display(), ?taken_back, "took back a segment that was not committed");
    }
}

/// Writes segments and returns the edits that add them. They are durable, but nobody's until the edits are. If one cannot
/// be written, the others are taken back: on a full disk every attempt would leave more behind.
fn write_segments(core: &Core, collection: &CollectionState, harvest: Harvest) -> Result<Vec<Op>> {
    let mut ops = Vec::new();
    match write_groups(core, collection, harvest, &mut ops) {
        Ok(()) => Ok(ops),
        Err(error) => {
            take_back(core, &added(core, &ops));
            Err(error)
        }
    }
}

fn write_groups(core: &Core, collection: &CollectionState, mut harvest: Harvest, ops: &mut Vec<Op>) -> Result<()> {
    harvest.sort();
    let precision = collection.options.precision;
    let mut groups: BTreeMap<Group, Buckets> = BTreeMap::new();
    let mut class_of_meta = (None, None);
    for (id, rows) in std::mem::take(&mut harvest.buckets) {
        if class_of_meta.0.as_ref() != Some(&id.meta) {
            let class = collection.rules.effective(&id.meta.value());
            class_of_meta = (Some(id.meta.clone()), class);
        }
        let class = class_of_meta.1;
        let width = partition_width(class.map(|c| c.1), &collection.options);
        let partition = id.window.start.div_euclid(width);
        let rule = class.and_then(|c| u32::try_from(c.0).ok());
        groups.entry((rule, partition)).or_default().push((id, rows));
    }
    let (bytes, rows) = harvest
        .pieces
        .iter()
        .fold((0, 0), |(bytes, rows), piece| (bytes + ebbtide_buckets::batch_bytes(piece), rows + piece.num_rows()));
    let rows_max = core.settings.segment_rows_max.min(SEGMENT_MEMORY_MAX / (bytes / rows.max(1) + 1)).max(1);
    // Beside writers one core is enough, until somebody waits for this.
    let help = || core.maintenance.may_use_all_cores() || core.fills_faster_than_sealed();
    let sealer = Sealer::new(&collection.schema, &std::mem::take(&mut harvest.pieces), &help)?;
    let mut names_changed = false;
    for (rule, mut buckets) in merge_small(groups, true, |(_, rows)| rows.len() as u64) {
        buckets.sort_by(|a, b| a.0.cmp(&b.0));
        for buckets in split_large(buckets, rows_max) {
            let mut live = Live::EMPTY;
            for (id, rows) in &buckets {
                live.add(&harvest.brief(id, rows, precision));
            }
            let runs: Vec<SealRun> = buckets.into_iter().map(|(id, rows)| SealRun { id, rows }).collect();
            let encoded = sealer.encode(&runs, &help)?;
            let id = {
                let mut state = core.state.write();
                state.next_segment += 1;
                state.next_segment - 1
            };
            write_file(core, &core.dir.join(segment::file_name(id)), &encoded.bytes)?;
            names_changed = true;
            let state = SegmentState {
                dropped: RoaringBitmap::new(),
                deleted: RoaringBitmap::new(),
                changed: Vec::new(),
                live,
            };
            let class = Some(ClassStamp { rules_epoch: collection.rules_epoch, rule });
            let record = SegmentRecord { id, meta: encoded.meta, class, state };
            ops.push(Op::AddSegment { collection: collection.id, segment: record });
        }
    }
    if names_changed {
        core.fs.sync_dir(&core.dir).map_err(|e| core.poison(&Error::io("sync the folder", &core.dir, &e)))?;
    }
    Ok(())
}

fn write_file(core: &Core, path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || {
        if core.fs.exists(path)? {
            core.fs.remove(path)?;
        }
        let mut file = core.fs.create(path)?;
        file.append(bytes)?;
        file.sync()
    };
    write().map_err(|e| {
        // Nothing names the file yet, so nothing is lost with it; what remains of it goes at the next open at the latest.
        let leftover = core.fs.remove(path);
        tracing::debug!(path = %path.display(), ?leftover, "took back a segment that could not be written");
        Error::io("write the segment", path, &e)
    })?;
    core.metrics.segment_written(bytes.len() as u64);
    Ok(())
}

/// The width of a partition of time in units, for a class's E. Data that never expires is partitioned too: a rule may come
/// later, and then its files go as whole ones.
fn partition_width(e: Option<i64>, options: &crate::options::CollectionOptions) -> i64 {
    let span = options.bucketing.span_seconds();
    let wanted = e.map_or(PARTITION_SECONDS_WITHOUT_RULE, |e| e / PARTITIONS_PER_LIFE);
    (wanted / span).max(1).saturating_mul(span).saturating_mul(options.precision.per_second())
}

/// Joins partitions of a class with the next ones until they have rows enough to be worth a file; `large` says whether the last
/// of them may be worth one by itself.
fn merge_small<T>(
    groups: BTreeMap<Group, Vec<T>>,
    large: bool,
    rows: impl Fn(&T) -> u64,
) -> Vec<(Option<u32>, Vec<T>)> {
    let mut merged: Vec<(Option<u32>, Vec<T>)> = Vec::new();
    let mut last_rows = 0;
    for ((rule, _), items) in groups {
        let added: u64 = items.iter().map(&rows).sum();
        let joins = last_rows < PARTITION_ROWS_MIN && (large || added < PARTITION_ROWS_MIN);
        match merged.last_mut() {
            Some((last_rule, last)) if *last_rule == rule && joins => {
                last.extend(items);
                last_rows += added;
            }
            _ => {
                merged.push((rule, items));
                last_rows = added;
            }
        }
    }
    merged
}

/// Cuts what is too much for one file between buckets, in the order of metas.
fn split_large(buckets: Buckets, rows_max: usize) -> Vec<Buckets> {
    let mut parts: Vec<Buckets> = vec![Vec::new()];
    let (mut rows, mut metas) = (0, 0);
    for bucket in buckets {
        if rows > 0 && (rows + bucket.1.len() > rows_max || metas > SEGMENT_METAS_MAX) {
            parts.push(Vec::new());
            (rows, metas) = (0, 0);
        }
        rows += bucket.1.len();
        if let Some(part) = parts.last_mut() {
            if part.last().is_none_or(|(before, _)| before.meta != bucket.0.meta) {
                metas += bucket.0.meta.as_bytes().len();
            }
            part.push(bucket);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Merges small segments of one class and partition, or of neighbouring ones that are hardly worth a file each, and rewrites
/// those of which most is gone.
///
/// `thorough` merges from two segments on; otherwise it takes [`SMALL_SEGMENTS_MAX`]. A segment that cannot be read stays as it
/// is; the error about the first of them comes when all else is done.
pub(crate) fn compact(
    core: &Core,
    _maintenance: &MutexGuard<'_, ()>,
    only: Option<&str>,
    thorough: bool,
) -> Result<()> {
    core.check_writable()?;
    let names: Vec<String> = core.state.read().collections.keys().cloned().collect();
    let mut unread = Unread::default();
    for name in names.iter().filter(|n| only.is_none_or(|o| o == n.as_str())) {
        let collection = core.state.read().collection(name)?.clone();
        for mut group in candidates(&collection, thorough, &core.settings, &mut unread)? {
            let _span = tracing::debug_span!("compact", collection = %name, segments = group.len()).entered();
            while is_worth_merging(&group, thorough) {
                match harvest_segments(&collection, &group) {
                    Ok(harvest) => {
                        merge_segments(core, &collection, &group, harvest)?;
                        core.metrics.compacted();
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
struct Unread(Option<Error>);

impl Unread {
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
    unread: &mut Unread,
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
    unread: &mut Unread,
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
fn harvest_segments(collection: &CollectionState, group: &[Arc<Segment>]) -> Result<Harvest, (usize, Error)> {
    let mut harvest = Harvest::default();
    for (at, segment) in group.iter().enumerate() {
        harvest.add_segment(segment, &collection.schema).map_err(|error| (at, error))?;
    }
    Ok(harvest)
}

fn merge_segments(core: &Core, collection: &CollectionState, group: &[Arc<Segment>], harvest: Harvest) -> Result<()> {
    // The schema may be ahead of what is durable: only the log holds the insert that widened it.
    let mut ops = vec![Op::SetSchema { collection: collection.id, schema: (*collection.schema).clone() }];
    ops.extend(write_segments(core, collection, harvest)?);
    ops.extend(group.iter().map(|s| Op::RemoveSegment { collection: collection.id, segment: s.file.id }));
    commit_segments(core, ops)
}

/// Ranges of rows that are still there, and the buckets that they belong to with their counts, in the order of rows.
pub(crate) fn live_rows(
    segment: &Segment,
    reader: &ebbtide_buckets::SegmentReader,
) -> (Vec<std::ops::Range<u64>>, Vec<(BucketId, u64)>) {
    let mut ranges = Vec::new();
    let mut buckets = Vec::new();
    for (ordinal, _, brief) in segment.briefs(reader) {
        let id = BucketId { meta: segment.meta(reader, ordinal), window: brief.window };
        buckets.push((id, brief.rows));
        push_without(&mut ranges, reader.directory().rows(ordinal), &segment.state.deleted);
    }
    (ranges, buckets)
}

/// Appends `rows` less the deleted ones, joining ranges that touch.
pub(crate) fn push_without(
    ranges: &mut Vec<std::ops::Range<u64>>,
    rows: std::ops::Range<u64>,
    deleted: &RoaringBitmap,
) {
    let mut push = |range: std::ops::Range<u64>| match ranges.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    };
    let mut start = rows.start;
    if !deleted.is_empty() {
        let (low, high) = (u32::try_from(rows.start).unwrap_or(u32::MAX), u32::try_from(rows.end).unwrap_or(u32::MAX));
        for gone in deleted.range(low..high) {
            push(start..u64::from(gone));
            start = u64::from(gone) + 1;
        }
    }
    push(start..rows.end);
}
