//! Repair: makes a damaged database open again, without what cannot be read, and says what that is.
//!
//! 1. Nothing is deleted: what is damaged goes into a folder `damaged-<n>` inside of the database's.
//! 2. What is still needed stays where it is until the new manifest is durable: a repair that is interrupted can be done
//!    again.
//! 3. No hole: of the log, what lies behind damage is set aside with it, and reported.
//!
//! Without a manifest nobody knows which collection a segment belongs to, nor what was deleted: then it refuses.

use crate::closed::{self, Mark};
use crate::error::{Error, ErrorKind, Result};
use crate::fs::Fs;
use crate::manifest::{self, ManifestWriter, Op};
use crate::segment::{self, Segment};
use crate::state::{CollectionState, State};
use crate::verify::verify_segment;
use crate::wal::{self, LogRecord, LogWriter};
use arrow::array::RecordBatch;
use ebbtide_buckets::{Chunk, MetaKey, Schema, SegmentReader, adapt, schema_of_batch};
use ebbtide_ttl::{Clock, Code, Timestamp, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is set aside goes into the first free one of these.
const FOLDER: &str = "damaged-";
/// The report in that folder.
const REPORT: &str = "REPORT.txt";
/// Metas of one loss that are printed; the report in the folder has all.
const METAS_SHOWN: usize = 20;

/// Whether a repair acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairMode {
    /// Only says what is damaged and what would be lost.
    DryRun,
    /// Sets aside what is damaged, so that the database opens.
    Apply,
}

/// What a repair found, and what it did or would do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RepairReport {
    /// What is wrong, a sentence each with path and offset; empty if all is well.
    pub faults: Vec<String>,
    /// Whether changes at the end of the manifest are lost: what was deleted or dropped by them may be back.
    pub changes_lost: bool,
    /// What cannot be read any more.
    pub losses: Vec<Loss>,
    /// Names of the files that were or would be set aside.
    pub set_aside: Vec<String>,
    /// The folder that they were moved into; `None` if nothing was done.
    pub folder: Option<PathBuf>,
}

/// Measurements that cannot be read any more.
#[derive(Debug, Clone, PartialEq)]
pub struct Loss {
    /// The file that they were in.
    pub file: String,
    /// Their collection; `None` if that is not known.
    pub collection: Option<String>,
    /// How many; `None` if that is not known.
    pub rows: Option<u64>,
    /// How many bytes of the file are lost.
    pub bytes: u64,
    /// The earliest and the latest time, if they are known.
    pub times: Option<(Timestamp, Timestamp)>,
    /// The metas with their rows and times; empty if they cannot be read.
    pub metas: Vec<LostMeta>,
}

/// The share of one meta in a [`Loss`].
#[derive(Debug, Clone, PartialEq)]
pub struct LostMeta {
    /// The meta.
    pub meta: Value,
    /// How many measurements.
    pub rows: u64,
    /// The time of the earliest.
    pub first: Timestamp,
    /// The time of the latest.
    pub last: Timestamp,
}

impl RepairReport {
    /// Whether there is nothing to repair.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    /// Measurements that are known to be lost; there may be more where a loss does not know its number.
    #[must_use]
    pub fn rows_lost(&self) -> u64 {
        self.losses.iter().filter_map(|l| l.rows).sum()
    }

    fn text(&self, metas_max: usize) -> Result<String, fmt::Error> {
        let mut out = String::new();
        if self.is_clean() {
            writeln!(out, "nothing is damaged")?;
            return Ok(out);
        }
        for fault in &self.faults {
            writeln!(out, "damaged: {fault}")?;
        }
        if self.changes_lost {
            writeln!(
                out,
                "lost: the last changes of the manifest. Measurements deleted by them may be back, and rules and \
                 collections are as they were before; what is expired stays hidden"
            )?;
        }
        for loss in &self.losses {
            loss.write(&mut out, metas_max)?;
        }
        for name in &self.set_aside {
            match &self.folder {
                Some(folder) => writeln!(out, "set aside: {name} in {}", folder.display())?,
                None => writeln!(out, "to set aside: {name}")?,
            }
        }
        Ok(out)
    }
}

impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(METAS_SHOWN)?)
    }
}

impl Loss {
    fn write(&self, out: &mut String, metas_max: usize) -> fmt::Result {
        match &self.collection {
            Some(name) => write!(out, "lost: collection '{name}', ")?,
            None => write!(out, "lost: of a collection that is not known, ")?,
        }
        match self.rows {
            Some(rows) => write!(out, "{rows} measurements")?,
            None => write!(out, "nobody knows how many measurements")?,
        }
        if let Some((first, last)) = self.times {
            write!(out, " from {first} to {last}")?;
        }
        writeln!(out, " ({} bytes of {})", self.bytes, self.file)?;
        for lost in self.metas.iter().take(metas_max) {
            let meta = crate::json::json_of(&lost.meta);
            writeln!(out, "  meta {meta}: {} from {} to {}", lost.rows, lost.first, lost.last)?;
        }
        match self.metas.len() {
            0 => writeln!(out, "  of which metas cannot be read"),
            n if n > metas_max => writeln!(out, "  and {} metas more", n - metas_max),
            _ => Ok(()),
        }
    }
}

/// What is to be done, found out without changing anything.
struct Plan {
    identity: [u8; 16],
    newest_manifest: u64,
    /// What the last close left, if it counts.
    mark: Option<Mark>,
    /// Whether that mark is damaged, and to be set aside.
    mark_is_damaged: bool,
    /// What the manifest that counts says, without the segments that are lost.
    state: State,
    /// Manifests to set aside.
    manifests: Vec<u64>,
    /// Segments to set aside.
    segments: Vec<u64>,
    /// Log files that are replaced by a new one; empty if the log is sound.
    logs: Vec<u64>,
    /// What of the log is whole and in no segment.
    kept: Vec<LogRecord>,
    /// A sequence number beyond all that were used.
    fresh_seq: u64,
    report: RepairReport,
}

pub(crate) fn repair(fs: &Arc<dyn Fs>, clock: &dyn Clock, dir: &Path, mode: RepairMode) -> Result<RepairReport> {
    if !fs.exists(dir).map_err(|e| Error::io("look at", dir, &e))? {
        return Err(Error::new(Code::NamespaceNotFound, format!("there is no database at {}", dir.display())));
    }
    // Before the lock: nothing is left in a folder of somebody else, not even that.
    if manifest::numbers(fs.as_ref(), dir)?.is_empty() {
        return Err(no_manifest(dir, &fs.list(dir).map_err(|e| Error::io("list", dir, &e))?));
    }
    let _lock = crate::open::take_lock(fs.as_ref(), clock, dir)?;
    let mut plan = plan(fs, dir)?;
    if mode == RepairMode::Apply && !plan.report.is_clean() {
        apply(fs.as_ref(), dir, &mut plan)?;
    }
    Ok(plan.report)
}

fn plan(fs: &Arc<dyn Fs>, dir: &Path) -> Result<Plan> {
    let names = fs.list(dir).map_err(|e| Error::io("list", dir, &e))?;
    let mut report = RepairReport::default();
    let numbers = manifest::numbers(fs.as_ref(), dir)?;
    let Some(newest) = numbers.last().copied() else { return Err(no_manifest(dir, &names)) };
    let mut chosen = None;
    for number in numbers.iter().rev() {
        match manifest::read_prefix(fs.as_ref(), dir, *number) {
            Ok((contents, damage)) => {
                report.faults.extend(damage.map(|d| d.to_string()));
                chosen = Some((*number, contents));
                break;
            }
            Err(error) if error.code() == Code::DataCorruptionDetected => report.faults.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    let Some((number, contents)) = chosen else {
        let what = format!(
            "{}; there is no older one, and without a manifest nobody knows which collection a segment belongs to. Restore \
             the database from a backup; the segments are Parquet files that can be imported one by one",
            report.faults.join("; ")
        );
        return Err(Error::new(Code::DataCorruptionDetected, what));
    };
    let read = Mark::read(fs.as_ref(), dir, &names).and_then(|mark| match mark {
        Some(mark) => mark.check_identity(dir, contents.identity).map(|()| Some(mark)),
        None => Ok(None),
    });
    let (mut mark, mark_fault) = match read {
        Err(error) if error.code() == Code::DataCorruptionDetected => (None, Some(error.to_string())),
        mark => (mark?, None),
    };
    let newest = mark.map_or(newest, |mark| newest.max(mark.manifest.number));
    if report.faults.is_empty()
        && let Some(closed) = mark
    {
        match closed.counts(dir, number, &contents) {
            Ok(counts) => mark = mark.filter(|_| counts),
            Err(error) => report.faults.push(error.to_string()),
        }
    }
    let mut state = State::new(fs.clone(), dir.to_owned(), 0);
    for op in contents.edits.into_iter().flatten() {
        state.apply(op)?;
    }
    if report.faults.is_empty() {
        report.faults.extend(lost_end(fs.as_ref(), dir, contents.identity, &state).map(|fault| fault.to_string()));
    }
    report.changes_lost = !report.faults.is_empty();
    // A manifest that lost its end does not know the last log.
    let mark = mark.filter(|_| !report.changes_lost);
    let mark_is_damaged = mark_fault.is_some();
    report.faults.extend(mark_fault);
    let manifests = match report.changes_lost {
        true => numbers.into_iter().filter(|n| *n >= number).collect(),
        false => Vec::new(),
    };
    let mut plan = Plan {
        identity: contents.identity,
        newest_manifest: newest,
        mark,
        mark_is_damaged,
        state,
        manifests,
        segments: Vec::new(),
        logs: Vec::new(),
        kept: Vec::new(),
        fresh_seq: 0,
        report,
    };
    plan.look_at_segments(fs.as_ref(), dir, &names)?;
    plan.look_at_logs(fs.as_ref(), dir, &names)?;
    let files = plan.manifests.iter().map(|n| manifest::file_name(*n));
    let files = files.chain(plan.segments.iter().map(|id| segment::file_name(*id)));
    let files = files.chain(plan.logs.iter().map(|first| wal::file_name(*first)));
    let files = files.chain(plan.mark_is_damaged.then(|| closed::NAME.to_owned()));
    plan.report.set_aside = files.filter(|name| names.contains(name)).collect();
    Ok(plan)
}

/// The manifest may end where a power cut could have torn it, and still have lost what was durable: records in the log of
/// a collection that it never made say so.
fn lost_end(fs: &dyn Fs, dir: &Path, identity: [u8; 16], state: &State) -> Option<Error> {
    state.logs.iter().find_map(|first_seq| {
        let path = dir.join(wal::file_name(*first_seq));
        let (contents, _) = wal::read_prefix(fs, &path, identity, &|_, _| false).ok()?;
        let mut offset = wal::HEADER_BYTES as u64;
        for record in contents.records {
            if record.collection >= state.next_collection {
                let what = format!("log record {} is of a collection that the manifest never made", record.seq);
                return Some(Error::corrupt(&path, offset, what));
            }
            offset += record.bytes;
        }
        None
    })
}

fn no_manifest(dir: &Path, names: &[String]) -> Error {
    match names.iter().find(|n| segment::parse_name(n).is_some() || wal::parse_name(n).is_some()) {
        None => Error::new(Code::NamespaceNotFound, format!("there is no database at {}", dir.display())),
        Some(name) => {
            let what = "the folder has no manifest, and without one nobody knows which collection a segment belongs to. \
                        Restore the database from a backup; segments are Parquet files that can be imported one by one";
            Error::corrupt(&dir.join(name), 0, what)
        }
    }
}

impl Plan {
    /// Reads every segment; those that cannot be read leave the state.
    fn look_at_segments(&mut self, fs: &dyn Fs, dir: &Path, names: &[String]) -> Result<()> {
        let mut gone = Vec::new();
        let mut known = BTreeSet::new();
        for collection in self.state.collections.values() {
            for segment in collection.segments.values() {
                known.insert(segment.file.id);
                let Err(error) = verify_segment(segment, &collection.schema) else { continue };
                if error.kind() != ErrorKind::Corrupt {
                    return Err(error);
                }
                self.report.faults.push(format!("collection '{}': {error}", collection.name));
                self.report.losses.push(loss_of_segment(collection, segment));
                gone.push((collection.id, segment.file.id));
            }
        }
        for (collection, segment) in gone {
            self.state.apply(Op::RemoveSegment { collection, segment })?;
            self.segments.push(segment);
        }
        // Where the manifest lost its end, a segment that it does not name may be what that end was about.
        let ids = names.iter().filter_map(|n| segment::parse_name(n));
        for id in ids.filter(|id| self.report.changes_lost && !known.contains(id)) {
            self.state.next_segment = self.state.next_segment.max(id + 1);
            self.segments.push(id);
            self.report.losses.push(loss_of_unknown_segment(fs, dir, id));
        }
        Ok(())
    }

    /// Reads the log up to the first damage.
    fn look_at_logs(&mut self, fs: &dyn Fs, dir: &Path, names: &[String]) -> Result<()> {
        let mut logs: BTreeSet<u64> = self.state.logs.clone();
        if self.report.changes_lost {
            let newest = logs.last().copied().unwrap_or(0);
            logs.extend(names.iter().filter_map(|n| wal::parse_name(n)).filter(|first| *first > newest));
        }
        let sealed: BTreeMap<u64, u64> = self.state.collections.values().map(|c| (c.id, c.sealed_seq)).collect();
        // Records of collections that the manifest does not know any more are lost, and reported.
        let unmade = self.state.next_collection;
        let wanted = |seq: u64, collection: u64| sealed.get(&collection).map_or(collection >= unmade, |s| seq > *s);
        let mut used = self.state.applied_seq.max(sealed.values().copied().max().unwrap_or(0));
        let mut lost = Vec::new();
        let mut orphans = false;
        let mut broken = false;
        let mut next = None;
        let newest = logs.last().copied();
        for first_seq in logs.iter().copied() {
            let (name, path) = (wal::file_name(first_seq), dir.join(wal::file_name(first_seq)));
            used = used.max(first_seq);
            if !broken && next.is_some_and(|next| next != first_seq) {
                let what = format!("log starts at record {first_seq}, expected={}", next.unwrap_or(0));
                self.report.faults.push(Error::corrupt(&path, 0, what).to_string());
                self.report.losses.push(Loss::unknown(name.clone(), 0));
                broken = true;
            }
            if !names.contains(&name) {
                if !broken {
                    self.report.faults.push(Error::corrupt(&path, 0, "log file is missing").to_string());
                }
                broken = true;
                self.report.losses.push(Loss::unknown(name, 0));
                continue;
            }
            let end = if broken {
                wal::HEADER_BYTES as u64
            } else {
                match wal::read_prefix(fs, &path, self.identity, &wanted) {
                    Ok((mut contents, mut damage)) => {
                        if damage.is_none() && contents.end.torn_bytes > 0 && Some(first_seq) != newest {
                            let what = "log record is damaged and newer logs follow";
                            damage = Some(Error::corrupt(&path, contents.end.whole, what));
                        }
                        if damage.is_none() && Some(first_seq) == newest {
                            damage = self.mark.and_then(|mark| mark.check_log(&path, first_seq, contents.end).err());
                        }
                        broken = damage.is_some();
                        self.report.faults.extend(damage.map(|d| d.to_string()));
                        next = Some(first_seq + contents.records.len() as u64);
                        used = used.max(contents.records.last().map_or(0, |r| r.seq));
                        let orphaned: Vec<LogRecord> =
                            contents.records.extract_if(.., |r| r.collection >= unmade).collect();
                        orphans |= !orphaned.is_empty();
                        self.lose_batches(&name, orphaned, &wanted);
                        self.kept.append(&mut contents.records);
                        contents.end.whole
                    }
                    Err(error) if error.code() == Code::DataCorruptionDetected => {
                        self.report.faults.push(error.to_string());
                        broken = true;
                        0
                    }
                    Err(error) => return Err(error),
                }
            };
            if broken {
                let bytes = fs.read(&path).map_err(|e| Error::io("read the log", &path, &e))?;
                let end = usize::try_from(end).unwrap_or(usize::MAX).min(bytes.len());
                let records = wal::records_behind(&bytes, end);
                used = used.max(records.iter().map(|r| r.seq).max().unwrap_or(0));
                lost.push((name, (bytes.len() - end) as u64, records));
            }
        }
        if broken || orphans {
            self.logs = logs.into_iter().collect();
            for (name, bytes, records) in lost {
                self.lose_records(&name, bytes, records, &wanted);
            }
        }
        self.fresh_seq = used + 1;
        Ok(())
    }

    /// Reports records behind damage: `bytes` of the log file `name`, of which `records` can be read.
    fn lose_records(&mut self, name: &str, bytes: u64, records: Vec<LogRecord>, wanted: &dyn Fn(u64, u64) -> bool) {
        // Whatever a damaged file holds no more was in it.
        let cut_short = records.is_empty();
        let read = records.iter().filter(|r| r.batch.is_some()).map(|r| r.bytes).sum();
        let unread = bytes.saturating_sub(read);
        self.lose_batches(name, records, wanted);
        if unread > 0 || cut_short {
            self.report.losses.push(Loss::unknown(name.to_owned(), unread));
        }
    }

    /// Reports records that can be read, but not kept.
    fn lose_batches(&mut self, name: &str, records: Vec<LogRecord>, wanted: &dyn Fn(u64, u64) -> bool) {
        let mut by_collection: BTreeMap<u64, Vec<(RecordBatch, u64)>> = BTreeMap::new();
        for record in records {
            let Some(batch) = record.batch else { continue };
            if wanted(record.seq, record.collection) {
                by_collection.entry(record.collection).or_default().push((batch, record.bytes));
            }
        }
        for (id, batches) in by_collection {
            let loss = match self.state.by_id(id) {
                Some(collection) => loss_of_batches(collection, name, &batches),
                None => Loss {
                    rows: Some(batches.iter().map(|(batch, _)| batch.num_rows() as u64).sum()),
                    ..Loss::unknown(name.to_owned(), batches.iter().map(|(_, bytes)| bytes).sum())
                },
            };
            self.report.losses.push(loss);
        }
    }
}

impl Loss {
    fn unknown(file: String, bytes: u64) -> Loss {
        Loss { file, collection: None, rows: None, bytes, times: None, metas: Vec::new() }
    }
}

/// Sums by meta.
#[derive(Default)]
struct Metas(BTreeMap<MetaKey, (u64, i64, i64)>);

impl Metas {
    fn add(&mut self, meta: &MetaKey, rows: u64, first: i64, last: i64) {
        let entry = self.0.entry(meta.clone()).or_insert((0, i64::MAX, i64::MIN));
        *entry = (entry.0 + rows, entry.1.min(first), entry.2.max(last));
    }

    fn lost(&self, schema: &Schema) -> Vec<LostMeta> {
        let time = |t: i64| Timestamp::from_units(t, schema.precision);
        let lost = |(meta, (rows, first, last)): (&MetaKey, &(u64, i64, i64))| LostMeta {
            meta: meta.value(),
            rows: *rows,
            first: time(*first),
            last: time(*last),
        };
        self.0.iter().map(lost).collect()
    }
}

fn loss_of_segment(collection: &CollectionState, segment: &Segment) -> Loss {
    let mut metas = Metas::default();
    // The directory has a checksum of its own: it may be whole where the data is not.
    if let Ok(reader) = segment.file.reader() {
        for (ordinal, _, bounds) in segment.live_buckets(&reader) {
            metas.add(&segment.meta(&reader, ordinal), bounds.rows, bounds.first, bounds.last);
        }
    }
    let time = |t: i64| Timestamp::from_units(t, collection.schema.precision);
    let live = segment.live();
    Loss {
        file: segment::file_name(segment.file.id),
        collection: Some(collection.name.clone()),
        rows: Some(live.rows),
        bytes: segment.file.meta.bytes,
        times: (live.rows > 0).then(|| (time(live.first_min), time(live.last_max))),
        metas: metas.lost(&collection.schema),
    }
}

fn loss_of_unknown_segment(fs: &dyn Fs, dir: &Path, id: u64) -> Loss {
    let (name, path) = (segment::file_name(id), dir.join(segment::file_name(id)));
    let bytes = fs.len(&path).unwrap_or(0);
    let reader = fs.open_read(&path).ok().and_then(|file| SegmentReader::open(file, &name).ok());
    let Some(reader) = reader else { return Loss::unknown(name, bytes) };
    let (directory, mut metas) = (reader.directory(), Metas::default());
    let mut times: Option<(i64, i64)> = None;
    for bucket in 0..directory.bucket_count() {
        let (first, last, rows) = (directory.first(bucket), directory.last(bucket), directory.rows(bucket));
        metas.add(&directory.meta_of(bucket), rows.end - rows.start, first, last);
        times = Some(times.map_or((first, last), |(f, l)| (f.min(first), l.max(last))));
    }
    let time = |t: i64| Timestamp::from_units(t, reader.schema().precision);
    Loss {
        file: name,
        collection: None,
        rows: Some(directory.row_count()),
        bytes,
        times: times.map(|(first, last)| (time(first), time(last))),
        metas: metas.lost(reader.schema()),
    }
}

fn loss_of_batches(collection: &CollectionState, name: &str, batches: &[(RecordBatch, u64)]) -> Loss {
    let (mut metas, mut rows, mut bytes) = (Metas::default(), 0, 0);
    for (batch, size) in batches {
        rows += batch.num_rows() as u64;
        bytes += size;
        let Ok(chunk) = chunk_of(collection, batch) else { continue };
        for bucket in &chunk.buckets {
            metas.add(&bucket.id.meta, bucket.rows.len() as u64, bucket.first, bucket.last);
        }
    }
    let metas = metas.lost(&collection.schema);
    let first = metas.iter().map(|m| m.first).min();
    let last = metas.iter().map(|m| m.last).max();
    let collection = Some(collection.name.clone());
    Loss { file: name.to_owned(), collection, rows: Some(rows), bytes, times: first.zip(last), metas }
}

fn chunk_of(collection: &CollectionState, batch: &RecordBatch) -> Result<Chunk> {
    let (time, meta) = (collection.schema.time.clone(), collection.schema.meta.clone());
    let logged = schema_of_batch(batch, &time, meta.as_deref(), collection.options.precision)?;
    let schema = collection.schema.join(&logged)?;
    let batch = adapt(batch, &schema)?;
    Ok(Chunk::build(batch, &schema, collection.options.bucketing.span_seconds()))
}

fn apply(fs: &dyn Fs, dir: &Path, plan: &mut Plan) -> Result<()> {
    let names = fs.list(dir).map_err(|e| Error::io("list", dir, &e))?;
    let folder = (1..).map(|n| format!("{FOLDER}{n}")).find(|name| !names.contains(name)).unwrap_or_default();
    let folder = dir.join(folder);
    fs.create_dir(&folder).map_err(|e| Error::io("create the folder", &folder, &e))?;
    plan.report.folder = Some(folder.clone());
    let text = plan.report.text(usize::MAX).map_err(|_| Error::internal("the report cannot be written"))?;
    let report = folder.join(REPORT);
    put(fs, &report, text.as_bytes()).map_err(|e| Error::io("write the report", &report, &e))?;

    // Copies first, so that whatever comes can be done again.
    let copied = plan.manifests.iter().map(|n| manifest::file_name(*n));
    let copied = copied.chain(plan.logs.iter().map(|first| wal::file_name(*first)));
    let copied: Vec<String> = copied.chain(plan.mark_is_damaged.then(|| closed::NAME.to_owned())).collect();
    let copied: Vec<String> = copied.into_iter().filter(|name| names.contains(name)).collect();
    for name in &copied {
        let (from, to) = (dir.join(name), folder.join(name));
        fs.read(&from).and_then(|bytes| put(fs, &to, &bytes)).map_err(|e| Error::io("copy", &from, &e))?;
    }
    fs.sync_dir(&folder).map_err(|e| Error::io("sync the folder", &folder, &e))?;

    // Before the new manifest: what no manifest names is removed when the database is opened.
    for id in &plan.segments {
        let name = segment::file_name(*id);
        if names.contains(&name) {
            let (from, to) = (dir.join(&name), folder.join(&name));
            fs.move_file(&from, &to).map_err(|e| Error::io("set aside", &from, &e))?;
        }
    }
    if !plan.logs.is_empty() {
        write_log(fs, dir, plan)?;
        plan.state.logs = BTreeSet::from([plan.fresh_seq]);
    }
    let checkpoint = plan.state.checkpoint();
    ManifestWriter::create(fs, dir, plan.identity, plan.newest_manifest + 1, &checkpoint)?;

    for path in copied.iter().map(|name| dir.join(name)) {
        fs.remove(&path).map_err(|e| Error::io("remove", &path, &e))?;
    }
    fs.sync_dir(dir).map_err(|e| Error::io("sync the folder", dir, &e))
}

/// A log of what is kept, under new numbers: the old ones may be sealed in collections that lost nothing.
fn write_log(fs: &dyn Fs, dir: &Path, plan: &mut Plan) -> Result<()> {
    let mut log = LogWriter::create(fs, dir, plan.identity, plan.fresh_seq)?;
    let mut seq = plan.fresh_seq;
    for record in plan.kept.drain(..) {
        let Some(batch) = record.batch else { continue };
        let payload = wal::encode_payload(&batch, record.batch_id)?;
        wal::check_payload(&payload)?;
        let mut frame = Vec::with_capacity(payload.len() + 64);
        let head = wal::Record { seq, collection: record.collection, synced_seq: plan.fresh_seq - 1 };
        wal::put_frame(&mut frame, log.place(), head, &payload, crc32fast::hash(&payload));
        log.append(&frame)?;
        seq += 1;
    }
    log.sync()
}

fn put(fs: &dyn Fs, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = fs.create(path)?;
    file.append(bytes)?;
    file.sync()
}
