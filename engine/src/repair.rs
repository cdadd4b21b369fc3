//! Repair: makes a damaged database open again, without what cannot be read, and says what that is.
//!
//! 1. Nothing is deleted: what is damaged goes into a folder `damaged-<n>` inside of the database's.
//! 2. What is still needed stays where it is until the new manifest is durable: a repair that is interrupted can be done
//!    again.
//! 3. No hole: of the log, what lies behind damage is set aside with it, and reported.
//!
//! Without a manifest nobody knows which collection a segment belongs to, nor what was deleted: then it refuses.

use crate::clean_shutdown::ShutdownMarker;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{FileName, Listing};
use crate::fs::{Fs, write_synced};
use crate::manifest::{self, ManifestContents, ManifestWriter, Op};
use crate::open::{list, logs_of, state_of};
use crate::segment::Segment;
use crate::state::{CollectionState, State};
use crate::verify::verify_segment;
use crate::wal::{self, FaultKind, LogFault, LogRecord, LogSet, LogVisitor, LogWriter};
use arrow::array::RecordBatch;
use ebbtide_buckets::{MetaKey, Schema, SegmentReader};
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
    /// The files that were or would be set aside, by their paths in the folder of the database.
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
                "lost: the last changes of the manifest. Measurements that they deleted may be back, and rules and \
                 collections are as they were before; what has expired stays hidden"
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
            None => write!(out, "lost: unknown collection, ")?,
        }
        match self.rows {
            Some(rows) => write!(out, "{rows} measurements")?,
            None => write!(out, "unknown number of measurements")?,
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
            0 => writeln!(out, "  metas: unreadable"),
            n if n > metas_max => writeln!(out, "  and {} more metas", n - metas_max),
            _ => Ok(()),
        }
    }
}

/// What is to be done, found out without changing anything.
struct Plan {
    identity: [u8; 16],
    newest_manifest: u64,
    /// What the last shutdown left, if it applies.
    marker: Option<ShutdownMarker>,
    /// Whether that marker is damaged, and to be set aside.
    marker_is_damaged: bool,
    /// What the manifest that counts says, without the segments that are lost.
    state: State,
    /// Manifests to set aside.
    manifests: Vec<u64>,
    /// Segments to set aside, by their paths in the folder.
    segments: Vec<PathBuf>,
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
        return Err(no_manifest(dir, &list(fs.as_ref(), dir)?));
    }
    let _lock = crate::open::take_lock(fs.as_ref(), clock, dir)?;
    let mut plan = plan(fs, dir)?;
    if mode == RepairMode::Apply && !plan.report.is_clean() {
        apply(fs.as_ref(), dir, &mut plan)?;
    }
    Ok(plan.report)
}

fn plan(fs: &Arc<dyn Fs>, dir: &Path) -> Result<Plan> {
    let listing = list(fs.as_ref(), dir)?;
    let names = &listing.names;
    let numbers = manifest::numbers(fs.as_ref(), dir)?;
    let Some(newest) = numbers.last().copied() else { return Err(no_manifest(dir, &listing)) };
    let mut report = RepairReport::default();
    let (number, contents) = choose_manifest(fs.as_ref(), dir, &numbers, &mut report.faults)?;
    let (identity, end) = (contents.identity, (contents.end, contents.torn_bytes));
    let state = longest_state(fs, dir, number, contents.edits, &mut report.faults)?;

    let read = ShutdownMarker::read(fs.as_ref(), dir, names).and_then(|marker| match marker {
        Some(marker) => marker.check_identity(dir, identity).map(|()| Some(marker)),
        None => Ok(None),
    });
    let (mut marker, marker_fault) = match read {
        Err(error) if error.code() == Code::DataCorruptionDetected => (None, Some(error.to_string())),
        marker => (marker?, None),
    };
    let newest_manifest = marker.map_or(newest, |marker| newest.max(marker.manifest.number));
    if report.faults.is_empty()
        && let Some(left) = marker
    {
        match left.applies(dir, number, end) {
            Ok(applies) => marker = marker.filter(|_| applies),
            Err(error) => report.faults.push(error.to_string()),
        }
    }
    if report.faults.is_empty() {
        // The manifest may end where a power cut could have torn it, and still have lost what was durable.
        let mut lost_end = LostEnd(None);
        // Any other fault is for the second walk.
        drop(logs_of(fs.as_ref(), dir, identity, &state).walk(&mut lost_end));
        report.faults.extend(lost_end.0.map(|fault| fault.to_string()));
    }
    report.changes_lost = !report.faults.is_empty();
    report.faults.extend(marker_fault.iter().cloned());
    let manifests = numbers.into_iter().filter(|n| report.changes_lost && *n >= number).collect();
    let mut plan = Plan {
        identity,
        newest_manifest,
        // A manifest that lost its end does not know the last log.
        marker: marker.filter(|_| !report.changes_lost),
        marker_is_damaged: marker_fault.is_some(),
        state,
        manifests,
        segments: Vec::new(),
        logs: Vec::new(),
        kept: Vec::new(),
        fresh_seq: 0,
        report,
    };
    plan.look_at_segments(fs.as_ref(), dir, &listing)?;
    plan.look_at_logs(fs.as_ref(), dir, names)?;
    plan.report.set_aside = plan.to_set_aside(&listing);
    Ok(plan)
}

/// The newest manifest of which at least the checkpoint can be read; the faults on the way to it are noted.
fn choose_manifest(
    fs: &dyn Fs,
    dir: &Path,
    numbers: &[u64],
    faults: &mut Vec<String>,
) -> Result<(u64, ManifestContents)> {
    for number in numbers.iter().rev() {
        match manifest::read_prefix(fs, dir, *number) {
            Ok((contents, damage)) => {
                faults.extend(damage.map(|d| d.to_string()));
                return Ok((*number, contents));
            }
            Err(error) if error.code() == Code::DataCorruptionDetected => faults.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    let what = format!(
        "{}; there is no older manifest, and only a manifest says which collection a segment belongs to. Restore the \
         database from a backup; the segments are Parquet files that can be imported one by one",
        faults.join("; ")
    );
    Err(Error::new(Code::DataCorruptionDetected, what))
}

/// The state after as many edits as fit together; the fault of the first that does not is noted.
fn longest_state(
    fs: &Arc<dyn Fs>,
    dir: &Path,
    number: u64,
    mut edits: Vec<Vec<Op>>,
    faults: &mut Vec<String>,
) -> Result<State> {
    match state_of(fs, dir, number, edits.clone(), 0) {
        Ok(state) => Ok(state),
        Err((0, damage)) => Err(damage),
        Err((fitting, damage)) => {
            faults.push(damage.to_string());
            edits.truncate(fitting);
            state_of(fs, dir, number, edits, 0).map_err(|(_, damage)| damage)
        }
    }
}

/// Looks for a record of a collection that the manifest never created: it says that the manifest has lost its end.
struct LostEnd(Option<Error>);

impl LogVisitor for LostEnd {
    fn wants(&self, _seq: u64, _collection: u64) -> bool {
        false
    }

    fn record(&mut self, _first_seq: u64, _record: LogRecord) -> Result<()> {
        Ok(())
    }

    fn fault(&mut self, fault: LogFault<'_>) -> Result<()> {
        if fault.kind == FaultKind::UnknownCollection && self.0.is_none() {
            self.0 = Some(fault.error);
        }
        Ok(())
    }
}

/// Keeps the records before the first damage, and gathers what is lost with and after it.
struct Salvage<'a> {
    state: &'a State,
    faults: Vec<String>,
    /// Records before the first damage.
    kept: Vec<LogRecord>,
    /// By log file, what cannot be kept.
    lost: BTreeMap<u64, LostRecords>,
    /// Whether damage was met: no hole, so nothing after it is kept.
    broken: bool,
    /// The highest sequence number seen.
    last_seq: u64,
}

/// What is lost of one log file.
#[derive(Default)]
struct LostRecords {
    /// Those that can be read.
    records: Vec<LogRecord>,
    /// Bytes that cannot be read; `None` if there was no damage in this file.
    unread: Option<u64>,
}

impl Salvage<'_> {
    /// Whether rows of a record are lost with it: no segment has them.
    fn is_loss(&self, record: &LogRecord) -> bool {
        record.collection >= self.state.next_collection || self.state.is_unsealed(record.seq, record.collection)
    }
}

impl LogVisitor for Salvage<'_> {
    fn wants(&self, seq: u64, collection: u64) -> bool {
        collection >= self.state.next_collection || self.state.is_unsealed(seq, collection)
    }

    fn record(&mut self, first_seq: u64, record: LogRecord) -> Result<()> {
        self.last_seq = self.last_seq.max(record.seq);
        if self.broken || record.collection >= self.state.next_collection {
            self.lost.entry(first_seq).or_default().records.push(record);
        } else {
            self.kept.push(record);
        }
        Ok(())
    }

    fn fault(&mut self, fault: LogFault<'_>) -> Result<()> {
        if fault.kind == FaultKind::UnknownCollection {
            return Ok(()); // Noted as a fault of the manifest.
        }
        self.broken = true;
        self.faults.push(fault.error.to_string());
        let lost = self.lost.entry(fault.first_seq).or_default();
        let (file, at) = fault.unread.unwrap_or_default();
        let records = wal::salvage(file, at);
        let read: u64 = records.iter().filter(|r| r.batch.is_some()).map(|r| r.bytes).sum();
        // What a damaged file no longer holds was in it: without a single record, the loss is not known.
        let unread = (file.len() - at) as u64 - read;
        if unread > 0 || records.is_empty() {
            lost.unread = Some(lost.unread.unwrap_or(0) + unread);
        }
        self.last_seq = records.iter().map(|r| r.seq).fold(self.last_seq, u64::max);
        lost.records.extend(records);
        Ok(())
    }
}

fn no_manifest(dir: &Path, listing: &Listing) -> Error {
    let log = listing.names.iter().find(|n| FileName::log_seq(n).is_some()).map(PathBuf::from);
    match listing.segments().map(|(path, _)| path).next().or(log) {
        None => Error::new(Code::NamespaceNotFound, format!("there is no database at {}", dir.display())),
        Some(name) => {
            let what = "the folder has no manifest, and only a manifest says which collection a segment belongs to. \
                        Restore the database from a backup; segments are Parquet files that can be imported one by one";
            Error::corrupt(&dir.join(name), 0, what)
        }
    }
}

impl Plan {
    /// Reads every segment; those that cannot be read leave the state.
    fn look_at_segments(&mut self, fs: &dyn Fs, dir: &Path, listing: &Listing) -> Result<()> {
        let mut gone = Vec::new();
        let mut known = BTreeSet::new();
        for collection in self.state.collections.values() {
            for segment in collection.segments.values() {
                known.insert(segment.file.id);
                let Err(error) = verify_segment(segment, collection) else { continue };
                if error.kind() != ErrorKind::Corrupt {
                    return Err(error);
                }
                self.report.faults.push(format!("collection '{}': {error}", collection.name));
                self.report.losses.push(loss_of_segment(collection, segment));
                gone.push((collection.id, segment.file.id, segment.file.relative_path()));
            }
        }
        for (collection, segment, path) in gone {
            self.state.apply(Op::RemoveSegment { collection, segment })?;
            self.segments.push(path);
        }
        // Where the manifest lost its end, a segment that it does not name may be what that end was about.
        for (path, name) in listing.segments().filter(|(_, name)| self.report.changes_lost && !known.contains(&name.id))
        {
            self.state.next_segment = self.state.next_segment.max(name.id + 1);
            self.report.losses.push(loss_of_unknown_segment(fs, dir, &path));
            self.segments.push(path);
        }
        Ok(())
    }

    /// Reads the log up to the first damage.
    fn look_at_logs(&mut self, fs: &dyn Fs, dir: &Path, names: &[String]) -> Result<()> {
        let mut logs = LogSet { marker: self.marker, ..logs_of(fs, dir, self.identity, &self.state) };
        if self.report.changes_lost {
            let newest = logs.first_seqs.last().copied().unwrap_or(0);
            let newer = names.iter().filter_map(|n| FileName::log_seq(n)).filter(|first_seq| *first_seq > newest);
            logs.first_seqs.extend(BTreeSet::from_iter(newer));
        }
        let sealed = self.state.collections.values().map(|c| c.sealed_seq);
        let last_seq = sealed.chain(logs.first_seqs.last().copied()).fold(self.state.applied_seq, u64::max);
        let (faults, kept, lost) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut salvage = Salvage { state: &self.state, faults, kept, lost, broken: false, last_seq };
        logs.walk(&mut salvage)?;
        let mut losses = Vec::new();
        for (first_seq, lost) in &salvage.lost {
            let name = FileName::Log(*first_seq).to_string();
            let records = lost.records.iter().filter(|record| salvage.is_loss(record));
            losses.extend(losses_of_records(&self.state, &name, records));
            losses.extend(lost.unread.map(|bytes| Loss::unknown(name, bytes)));
        }
        if salvage.broken || !salvage.lost.is_empty() {
            self.logs = logs.first_seqs;
        }
        self.fresh_seq = salvage.last_seq + 1;
        self.kept = salvage.kept;
        self.report.faults.extend(salvage.faults);
        self.report.losses.extend(losses);
        Ok(())
    }

    /// Paths in the folder of the files to set aside that are there.
    fn to_set_aside(&self, listing: &Listing) -> Vec<String> {
        let there: BTreeSet<PathBuf> = listing.segments().map(|(path, _)| path).collect();
        let there = |path: &Path| there.contains(path) || listing.names.contains(&text_of(path));
        let files = self.manifests.iter().map(|number| FileName::Manifest(*number).path(Path::new("")));
        let files = files.chain(self.segments.iter().cloned());
        let files = files.chain(self.logs.iter().map(|first_seq| FileName::Log(*first_seq).path(Path::new(""))));
        let files = files.chain(self.marker_is_damaged.then(|| FileName::ShutdownMarker.path(Path::new(""))));
        files.filter(|path| there(path)).map(|path| text_of(&path)).collect()
    }
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Records of one log file that can be read, but not kept: a loss for each collection.
fn losses_of_records<'a>(state: &State, name: &str, records: impl Iterator<Item = &'a LogRecord>) -> Vec<Loss> {
    let mut by_collection: BTreeMap<u64, Vec<(&RecordBatch, u64)>> = BTreeMap::new();
    for record in records {
        if let Some(batch) = &record.batch {
            by_collection.entry(record.collection).or_default().push((batch, record.bytes));
        }
    }
    let loss = |(id, batches): (u64, Vec<(&RecordBatch, u64)>)| match state.by_id(id) {
        Some(collection) => loss_of_batches(collection, name, &batches),
        None => Loss {
            rows: Some(batches.iter().map(|(batch, _)| batch.num_rows() as u64).sum()),
            ..Loss::unknown(name.to_owned(), batches.iter().map(|(_, bytes)| bytes).sum())
        },
    };
    by_collection.into_iter().map(loss).collect()
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
        file: text_of(&segment.file.relative_path()),
        collection: Some(collection.name.clone()),
        rows: Some(live.rows),
        bytes: segment.file.meta.bytes,
        times: (live.rows > 0).then(|| (time(live.first_min), time(live.last_max))),
        metas: metas.lost(&collection.schema),
    }
}

fn loss_of_unknown_segment(fs: &dyn Fs, dir: &Path, path: &Path) -> Loss {
    let (name, path) = (text_of(path), dir.join(path));
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

fn loss_of_batches(collection: &CollectionState, name: &str, batches: &[(&RecordBatch, u64)]) -> Loss {
    let (mut metas, mut rows, mut bytes) = (Metas::default(), 0, 0);
    for (batch, size) in batches {
        rows += batch.num_rows() as u64;
        bytes += size;
        let Ok((_, chunk)) = collection.chunk_of(batch) else { continue };
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

fn apply(fs: &dyn Fs, dir: &Path, plan: &mut Plan) -> Result<()> {
    let names = fs.list(dir).map_err(|e| Error::io("list", dir, &e))?;
    let folder = (1..).map(|n| format!("{FOLDER}{n}")).find(|name| !names.contains(name)).unwrap_or_default();
    let folder = dir.join(folder);
    fs.create_dir(&folder).map_err(|e| Error::io("create the folder", &folder, &e))?;
    plan.report.folder = Some(folder.clone());
    let text = plan.report.text(usize::MAX).map_err(|_| Error::internal("the report cannot be written"))?;
    let report = folder.join(REPORT);
    write_synced(fs, &report, text.as_bytes()).map_err(|e| Error::io("write the report", &report, &e))?;

    // Copies first, so that whatever comes can be done again.
    let is_segment = |name: &String| plan.segments.contains(&PathBuf::from(name));
    let (segments, copied): (Vec<String>, Vec<String>) =
        plan.report.set_aside.clone().into_iter().partition(is_segment);
    for name in &copied {
        let (from, to) = (dir.join(name), folder.join(name));
        fs.read(&from).and_then(|bytes| write_synced(fs, &to, &bytes)).map_err(|e| Error::io("copy", &from, &e))?;
    }
    fs.sync_dir(&folder).map_err(|e| Error::io("sync the folder", &folder, &e))?;

    // Before the new manifest: what no manifest names is removed when the database is opened.
    for name in &segments {
        // Their ids tell the names of all segments apart, wherever they were.
        let to = folder.join(Path::new(name).file_name().unwrap_or_default());
        let from = dir.join(name);
        fs.move_file(&from, &to).map_err(|e| Error::io("set aside", &from, &e))?;
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
