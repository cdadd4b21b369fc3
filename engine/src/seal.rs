//! Sealing: open buckets become segments.
//!
//! A segment holds buckets of one retention class and one partition of time, so that almost every expiry is one unlink.
//! Its file is synced under its name before the manifest names it: a crash in between leaves an orphan, never a hole.
//! Its columns have types at least as wide as those of the segments before it, which `FileTypes` keeps.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::{FileName, SegmentName};
use crate::fs::write_synced;
use crate::ladder::rung_of;
use crate::manifest::Op;
use crate::segment::Segment;
use crate::segment::bounds::{BucketBounds, ClassStamp, LiveSummary, SegmentRecord, SegmentState};
use crate::state::CollectionState;
use crate::sync::Guard;
use ahash::AHashMap;
use arrow::array::RecordBatch;
use ebbtide_buckets::{BucketId, Chunk, FileTypes, Schema, SealRun, Sealer, SegmentReader, adapt, times, to_usize};
use ebbtide_ttl::in_range;
use roaring::RoaringBitmap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Partitions with fewer rows are sealed or compacted together with their neighbours: many small files cost more than they save
/// at expiry.
const PARTITION_ROWS_MIN: u64 = 4096;
/// Number of partitions that a class's E is divided into: a file outlives its first measurement's E by at most a sixteenth.
const PARTITIONS_PER_LIFE: i64 = 16;
/// The width of partitions of data without a rule: thirty days.
const PARTITION_SECONDS_WITHOUT_RULE: i64 = 30 * 86_400;

/// Rows read at a time from segments that are merged.
const MERGE_BATCH_ROWS: usize = 1 << 16;
/// Approximate maximum of the memory of a segment's columns: 512 MiB.
const SEGMENT_MEMORY_MAX: usize = 512 << 20;
/// Approximate maximum of the metas of a segment: 256 MiB. All of them are in memory while it is read.
const SEGMENT_METAS_MAX: usize = 256 << 20;

/// Segments whose types have become outdated are rewritten by the seal that made them so if they have fewer rows than this.
const SETTLED_ROWS_MAX: u64 = 1 << 18;

/// Rows of one bucket in pieces, in order of time.
type Rows = Vec<(u32, u32)>;
/// The buckets of one segment.
type Buckets = Vec<(BucketId, Rows)>;
/// The buckets of a segment have one retention class and one partition of time.
pub(crate) type Group = (Option<u32>, i64);

/// Rows to be sealed: pieces of one schema, and the places of each bucket's rows.
#[derive(Default)]
pub(crate) struct SealInput {
    pieces: Vec<RecordBatch>,
    times: Vec<Vec<i64>>,
    buckets: Buckets,
    /// Where each bucket is in this list. Batches mostly have the same buckets: each of them is looked up here, and they are sorted once.
    places: AHashMap<BucketId, usize>,
}

impl SealInput {
    fn rows_of(&mut self, id: &BucketId) -> &mut Rows {
        let at = match self.places.get(id) {
            Some(at) => *at,
            None => {
                self.places.insert(id.clone(), self.buckets.len());
                self.buckets.push((id.clone(), Rows::new()));
                self.buckets.len() - 1
            }
        };
        &mut self.buckets[at].1
    }

    fn add_piece(&mut self, batch: &RecordBatch, schema: &Schema) -> Result<u32> {
        let batch = adapt(batch, schema)?;
        let number =
            u32::try_from(self.pieces.len()).map_err(|_| Error::internal("too many pieces to seal at once"))?;
        self.times.push(times(&batch)?.to_vec());
        self.pieces.push(batch);
        Ok(number)
    }

    /// Adds rows of the memtable.
    pub(crate) fn add_chunk(&mut self, chunk: &Chunk, schema: &Schema) -> Result<()> {
        let piece = self.add_piece(&chunk.batch, schema)?;
        for bucket in &chunk.buckets {
            self.rows_of(&bucket.id).extend(bucket.rows.iter().map(|row| (piece, *row)));
        }
        Ok(())
    }

    /// The same rows under another schema; `source` says what a column is called now. Columns that are left out go.
    pub(crate) fn with_columns<'a>(mut self, schema: &'a Schema, source: impl Fn(&'a str) -> &'a str) -> Result<Self> {
        let arrow = schema.arrow();
        let names: Vec<&str> = std::iter::once(schema.time.as_str())
            .chain(schema.meta.as_deref().filter(|_| schema.meta_type.is_some()))
            .chain(schema.fields.iter().map(|(name, _)| name.as_str()))
            .collect();
        for piece in &mut self.pieces {
            let column = |name: &&'a str| {
                let column = piece.column_by_name(source(name));
                column.cloned().ok_or_else(|| Error::internal(format!("rows to be sealed have no column for '{name}'")))
            };
            let columns = names.iter().map(column).collect::<Result<Vec<_>>>()?;
            *piece = RecordBatch::try_new(arrow.clone(), columns)?;
        }
        Ok(self)
    }

    pub(crate) fn add_segment(&mut self, segment: &Segment, schema: &Schema) -> Result<()> {
        let reader = segment.file.reader()?.without_cache();
        let rows = self.add_buckets(segment, &reader, 0..reader.directory().bucket_count(), schema)?;
        segment.check_rows(rows)
    }

    /// Adds the live rows of some buckets of a segment. Returns how many rows they have.
    pub(crate) fn add_buckets(
        &mut self,
        segment: &Segment,
        reader: &SegmentReader,
        buckets: Range<usize>,
        schema: &Schema,
    ) -> Result<u64> {
        let columns: Vec<String> = schema.arrow().fields().iter().map(|f| f.name().clone()).collect();
        let (ranges, buckets) = segment.live_rows(reader, buckets);
        // Batches are not joined: that would copy them, and could exceed the offsets of texts and lists.
        let mut rows: Rows = Vec::new();
        for batch in reader.read(&columns, schema, &ranges, MERGE_BATCH_ROWS)? {
            let batch = batch?;
            let piece = self.add_piece(&batch, schema)?;
            let count = u32::try_from(batch.num_rows()).map_err(|_| Error::internal("a batch of over 2^32 rows"))?;
            rows.extend((0..count).map(|row| (piece, row)));
        }
        let added = rows.len() as u64;
        let mut rows = rows.into_iter();
        for (id, count) in buckets {
            let of_bucket: Rows = rows.by_ref().take(to_usize(count)).collect();
            if of_bucket.len() as u64 != count || !self.is_in_order(&id, &of_bucket) {
                let what = "the rows of a bucket are fewer than its directory says, out of order, or not in its window";
                return Err(Error::corrupt(&segment.file.path, 0, what));
            }
            self.rows_of(&id).extend(of_bucket);
        }
        if rows.next().is_some() {
            return Err(Error::corrupt(&segment.file.path, 0, "rows are in no bucket"));
        }
        Ok(added)
    }

    /// Sorts the buckets, and every bucket's rows by time; rows of one instant stay in order of arrival.
    fn sort(&mut self) {
        self.places.clear();
        self.buckets.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let times = &self.times;
        let time = |at: &(u32, u32)| times[at.0 as usize][at.1 as usize];
        for (_, rows) in &mut self.buckets {
            if !rows.is_sorted_by_key(time) {
                rows.sort_by_key(time);
            }
        }
    }

    /// Whether the rows of a bucket are in the order of time, and within its window.
    fn is_in_order(&self, id: &BucketId, rows: &Rows) -> bool {
        let time = |at: &(u32, u32)| self.times[at.0 as usize][at.1 as usize];
        let within = |at: Option<&(u32, u32)>| at.map(time).is_some_and(|t| id.window.start <= t && t <= id.window.end);
        rows.is_sorted_by_key(time) && within(rows.first()) && within(rows.last())
    }

    /// The bounds of a bucket whose rows are in the order of time.
    fn bounds(&self, id: &BucketId, rows: &Rows, precision: ebbtide_ttl::Precision) -> BucketBounds {
        let time = |at: &(u32, u32)| self.times[at.0 as usize][at.1 as usize];
        let (first, last) = (rows.first().map_or(0, time), rows.last().map_or(0, time));
        let out_of_range = match in_range(first, precision) && in_range(last, precision) {
            true => 0,
            false => rows.iter().filter(|at| !in_range(time(at), precision)).count() as u64,
        };
        BucketBounds { window: id.window, first, last, rows: rows.len() as u64, out_of_range }
    }
}

/// Seals the open buckets of one collection, or of all.
pub(crate) fn flush(engine: &Engine, _maintenance: &Guard<'_, ()>, only: Option<&str>) -> Result<()> {
    engine.check_writable()?;
    let names: Vec<String> = engine.state.read().collections.keys().cloned().collect();
    // Rungs have no open buckets.
    let names = names.iter().filter(|name| rung_of(name).is_none());
    for name in names.filter(|n| only.is_none_or(|o| o == n.as_str())) {
        flush_collection(engine, name)?;
    }
    let documents: Vec<String> = engine.state.read().documents.keys().cloned().collect();
    for name in documents.iter().filter(|n| only.is_none_or(|o| o == n.as_str())) {
        crate::documents::seal::flush(engine, name)?;
    }
    engine.cut_log_if_room()
}

fn flush_collection(engine: &Engine, name: &str) -> Result<()> {
    let _span = tracing::debug_span!("seal", collection = name).entered();
    // What is sealed must not be newer than what the log keeps of other collections.
    engine.sync_log()?;
    let (chunks, seq, collection) = freeze(engine, name)?;
    if chunks.is_empty() {
        return Ok(());
    }
    engine.sync_log()?;
    let mut input = SealInput::default();
    chunks.iter().try_for_each(|chunk| input.add_chunk(chunk, &collection.schema))?;
    let mut ops = vec![Op::SetSchema { collection: collection.id, schema: (*collection.schema).clone() }];
    ops.extend(write_segments(engine, &collection, input)?);
    ops.extend(collection.sealed(seq));
    commit_segments(engine, &collection, ops)?;
    engine.metrics.sealed();
    settle_types(engine, collection.id)
}

/// Freezes the open buckets of a collection: their chunks, the last insert among them, and the collection.
pub(crate) fn freeze(engine: &Engine, name: &str) -> Result<(Vec<Arc<Chunk>>, u64, CollectionState)> {
    let mut state = engine.state.write();
    let seq = state.applied_seq;
    let id = state.collection(name)?.id;
    let Some(collection) = state.by_id_mut(id) else { return Err(Error::no_collection(name)) };
    Ok((collection.memtable.freeze(), seq, collection.clone()))
}

/// Rewrites the segments that have other types than the newest ones now, if they are small: then other programs can read all
/// files of the collection together again at once, and not only after a compaction. What fails waits for that.
pub(crate) fn settle_types(engine: &Engine, id: u64) -> Result<()> {
    let collection = engine.state.read().by_id(id).filter(|collection| collection.types_differ()).cloned();
    let Some(collection) = collection else { return Ok(()) };
    let outdated = collection
        .segments
        .values()
        .filter(|segment| !segment.is_of_types(&collection.file_types) && !collection.is_moving(segment.file.id));
    let outdated: Vec<Arc<Segment>> = outdated.cloned().collect();
    let rows: u64 = outdated.iter().map(|segment| segment.live().rows).sum();
    if rows >= SETTLED_ROWS_MAX.min(engine.settings.segment_rows_max as u64) {
        return Ok(());
    }
    let input = seal_input(&collection, &outdated).map_err(|(_, error)| error);
    match input.and_then(|input| merge_segments(engine, &collection, &outdated, input)) {
        Err(error) if engine.poisoned().is_none() => {
            tracing::warn!(collection = %collection.name, %error, "segments of older types stay until a compaction");
            Ok(())
        }
        settled => settled,
    }
}

/// The live rows of some segments; an error comes with the index of the segment that it is about.
pub(crate) fn seal_input(collection: &CollectionState, group: &[Arc<Segment>]) -> Result<SealInput, (usize, Error)> {
    let mut input = SealInput::default();
    for (at, segment) in group.iter().enumerate() {
        input.add_segment(segment, &collection.schema).map_err(|error| (at, error))?;
    }
    Ok(input)
}

/// Rewrites segments; `input` is what is left of them.
pub(crate) fn merge_segments(
    engine: &Engine,
    collection: &CollectionState,
    group: &[Arc<Segment>],
    input: SealInput,
) -> Result<()> {
    rewriting(engine, collection, || {
        // The schema may be ahead of what is durable: only the log holds the insert that widened it.
        let mut ops = vec![Op::SetSchema { collection: collection.id, schema: (*collection.schema).clone() }];
        ops.extend(write_segments(engine, collection, input)?);
        replace_segments(engine, collection, group, ops)
    })?
}

/// Runs what rewrites segments. Until their old files are gone, every row is there twice, which other programs have to know.
pub(crate) fn rewriting<T>(engine: &Engine, collection: &CollectionState, rewrite: impl FnOnce() -> T) -> Result<T> {
    collection.folder.begin_rewrite()?;
    let rewritten = rewrite();
    if engine.poisoned().is_none() {
        collection.folder.end_rewrite();
    }
    Ok(rewritten)
}

/// Commits edits that add what is left of some segments, and removes these.
pub(crate) fn replace_segments(
    engine: &Engine,
    collection: &CollectionState,
    group: &[Arc<Segment>],
    mut ops: Vec<Op>,
) -> Result<()> {
    let rows_of = |op: &Op| op.added_segment().map_or(0, |segment| segment.state.live.rows);
    let (before, after): (u64, u64) = (group.iter().map(|s| s.live().rows).sum(), ops.iter().map(rows_of).sum());
    // Several pieces of a bin become one.
    let keeps = after == before || (rung_of(&collection.name).is_some() && after < before);
    assert!(keeps, "compaction keeps every row");
    ops.extend(group.iter().map(|s| Op::RemoveSegment { collection: collection.id, segment: s.file.id }));
    commit_segments(engine, collection, ops)
}

/// Commits edits that add segments; if the commit is refused, for example on a full disk, removes their files again.
pub(crate) fn commit_segments(engine: &Engine, collection: &CollectionState, ops: Vec<Op>) -> Result<()> {
    let paths = added(collection, &ops);
    let outcome = engine.commit(ops);
    if outcome.is_err() {
        take_back(engine, collection, &paths);
    }
    outcome
}

/// The files of the segments that edits add.
pub(crate) fn added(collection: &CollectionState, ops: &[Op]) -> Vec<PathBuf> {
    let added = |op: &Op| match op {
        Op::AddSegmentInFolder { segment, generation, .. } => {
            Some(segment_path(collection, SegmentName { generation: Some(*generation), id: segment.id }))
        }
        _ => None,
    };
    ops.iter().filter_map(added).collect()
}

fn segment_path(collection: &CollectionState, name: SegmentName) -> PathBuf {
    FileName::Segment(name).path(collection.folder.path())
}

pub(crate) fn take_back(engine: &Engine, collection: &CollectionState, paths: &[PathBuf]) {
    if engine.poisoned().is_some() {
        return; // The manifest may name them.
    }
    for path in paths {
        let taken_back = engine.fs.remove(path);
        tracing::debug!(path = %path.display(), ?taken_back, "took back a segment that was not committed");
    }
    engine.settle_folders(collection.id);
}

/// Writes segments and returns the edits that add them. The files are durable, but not part of the state until the edits are
/// committed. If one cannot be written, the others are removed: on a full disk every attempt would leave more files.
pub(crate) fn write_segments(engine: &Engine, collection: &CollectionState, input: SealInput) -> Result<Vec<Op>> {
    let mut ops = Vec::new();
    match write_groups(engine, collection, input, &mut ops) {
        Ok(()) => Ok(ops),
        Err(error) => {
            take_back(engine, collection, &added(collection, &ops));
            Err(error)
        }
    }
}

fn write_groups(engine: &Engine, collection: &CollectionState, mut input: SealInput, ops: &mut Vec<Op>) -> Result<()> {
    input.sort();
    let precision = collection.options.precision;
    let in_buckets: usize = input.buckets.iter().map(|(_, rows)| rows.len()).sum();
    let in_pieces: usize = input.pieces.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(in_buckets, in_pieces, "every row is sealed, in one bucket");
    let mut groups: BTreeMap<Group, Buckets> = BTreeMap::new();
    let mut class_of_meta = (None, None);
    for (id, rows) in std::mem::take(&mut input.buckets) {
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
    let (bytes, rows) = input
        .pieces
        .iter()
        .fold((0, 0), |(bytes, rows), piece| (bytes + ebbtide_buckets::batch_bytes(piece), rows + piece.num_rows()));
    let rows_max = engine.settings.segment_rows_max.min(SEGMENT_MEMORY_MAX / (bytes / rows.max(1) + 1)).max(1);
    // In the background one core is enough, until a thread waits for this.
    let help = || engine.maintenance.may_use_all_cores() || engine.fills_faster_than_sealed();
    let known = collection.known_file_types()?;
    let sealer = Sealer::new(&collection.schema, &known, &std::mem::take(&mut input.pieces), &help)?;
    let generation = announce_types(collection, sealer.types(), ops)?;
    for (rule, mut buckets) in merge_small(groups, true, |(_, rows)| rows.len() as u64) {
        buckets.sort_by(|a, b| a.0.cmp(&b.0));
        for buckets in split_large(buckets, rows_max) {
            assert!(buckets.is_sorted_by(|a, b| a.0 < b.0), "buckets are sealed in order, each once");
            let mut live = LiveSummary::EMPTY;
            for (id, rows) in &buckets {
                assert!(
                    input.is_in_order(id, rows),
                    "rows are sealed in the order of time, in the window of their bucket"
                );
                live.add(&input.bounds(id, rows, precision));
            }
            let runs: Vec<SealRun> = buckets.into_iter().map(|(id, rows)| SealRun { id, rows }).collect();
            let encoded = sealer.encode(&runs, &help)?;
            let (meta, counts) = (&encoded.meta, (live.rows, live.buckets, live.first_min, live.last_max));
            assert_eq!((meta.rows, meta.buckets, meta.first, meta.last), counts, "a segment holds what was sealed");
            let id = {
                let mut state = engine.state.write();
                state.next_segment += 1;
                state.next_segment - 1
            };
            let name = SegmentName { generation: Some(generation), id };
            write_file(engine, &segment_path(collection, name), &encoded.bytes)?;
            let state = SegmentState {
                dropped: RoaringBitmap::new(),
                deleted: RoaringBitmap::new(),
                changed: Vec::new(),
                live,
            };
            let class = Some(ClassStamp { rules_epoch: collection.rules_epoch, rule });
            let record = SegmentRecord { id, meta: encoded.meta, class, state };
            ops.push(Op::AddSegmentInFolder { collection: collection.id, segment: record, generation });
        }
    }
    let folder = collection.folder.path();
    engine.fs.sync_dir(folder).map_err(|e| engine.poison(&Error::io("sync the folder", folder, &e)))
}

/// Prepares the folder for segments of these types: before one of other types is there, the marker is. Returns the generation
/// of the types.
fn announce_types(collection: &CollectionState, types: &FileTypes, ops: &mut Vec<Op>) -> Result<u32> {
    collection.folder.prepare()?;
    if collection.differs_from(types) {
        collection.folder.mark()?;
    }
    if *types != *collection.file_types {
        ops.push(Op::SetFileTypes { collection: collection.id, types: types.clone() });
    }
    Ok(types.generation())
}

fn write_file(engine: &Engine, path: &Path, bytes: &[u8]) -> Result<()> {
    write_synced(engine.fs.as_ref(), path, bytes).map_err(|e| {
        // Nothing names the file yet. What remains of it is removed by the next open at the latest.
        tracing::debug!(path = %path.display(), "took back a segment that could not be written");
        Error::io("write the segment", path, &e)
    })?;
    engine.metrics.segment_written(bytes.len() as u64);
    Ok(())
}

/// The width of a partition of time in units, for a class's E. Data that never expires is partitioned too, so that whole files
/// can be dropped if a rule is added later.
pub(crate) fn partition_width(e: Option<i64>, options: &crate::options::CollectionOptions) -> i64 {
    let span = options.bucketing.span_seconds();
    let wanted = e.map_or(PARTITION_SECONDS_WITHOUT_RULE, |e| e / PARTITIONS_PER_LIFE);
    (wanted / span).max(1).saturating_mul(span).saturating_mul(options.precision.per_second())
}

/// Joins partitions of a class with the following ones until they have enough rows for a file. `large` allows joining a
/// partition that has enough rows by itself.
pub(crate) fn merge_small<T>(
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

/// Splits the buckets of a file that would be too large, in the order of metas.
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
