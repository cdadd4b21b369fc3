//! Repair: makes a damaged database open again without what cannot be read, and reports what that is.
//!
//! 1. Nothing is deleted: damaged files are moved into a folder `damaged-<n>` inside the database's folder.
//! 2. What is still needed stays in place until the new manifest is durable, so that an interrupted repair can be repeated.
//! 3. The log gets no hole: everything in it after damage is set aside too, and reported.
//!
//! Without a manifest it is unknown which collection a segment belongs to and what was deleted, so repair refuses.

mod losses;
mod report;
mod salvage;

pub use report::{Loss, LostMeta, RepairReport};

use self::report::text_of;
use crate::clean_shutdown::ShutdownMarker;
use crate::copies::check_no_copy;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{FileName, Listing};
use crate::fs::{Fs, write_synced};
use crate::ladder::reported_name;
use crate::manifest::{self, ManifestContents, ManifestWriter, Op};
use crate::open::{list, logs_of, state_of, take_lock, take_lock_if_writable};
use crate::state::State;
use crate::verify::{verify_documents, verify_segment};
use crate::wal::{self, LogRecord, LogSet, LogWriter};
use ebbtide_ttl::{Clock, Code};
use losses::{loss_of_documents, loss_of_segment, loss_of_unknown_segment, losses_of_records};
use salvage::{LostEnd, Salvage};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Damaged files are moved into the first folder of these names that is free.
const FOLDER: &str = "damaged-";
/// The report in that folder.
const REPORT: &str = "REPORT.txt";

/// Whether a repair acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairMode {
    /// Only reports what is damaged and what would be lost.
    DryRun,
    /// Sets aside what is damaged, so that the database opens.
    Apply,
}

/// What a repair would do. Making a plan changes nothing.
struct Plan {
    identity: [u8; 16],
    newest_manifest: u64,
    /// What the last shutdown left, if it applies.
    marker: Option<ShutdownMarker>,
    /// Whether the marker is damaged, and is to be set aside.
    marker_is_damaged: bool,
    /// The state that the manifest describes, without the lost segments.
    state: State,
    /// Manifests to set aside.
    manifests: Vec<u64>,
    /// Segments to set aside, by their paths in the folder.
    segments: Vec<PathBuf>,
    /// Log files that are replaced by a new one; empty if the log is intact.
    logs: Vec<u64>,
    /// The intact log records that are in no segment.
    kept: Vec<LogRecord>,
    /// A sequence number above all that were used.
    fresh_seq: u64,
    report: RepairReport,
}

pub(crate) fn repair(fs: &Arc<dyn Fs>, clock: &dyn Clock, dir: &Path, mode: RepairMode) -> Result<RepairReport> {
    if !fs.exists(dir).map_err(|e| Error::io("access", dir, &e))? {
        return Err(Error::new(Code::NamespaceNotFound, format!("there is no database at {}", dir.display())));
    }
    // Checked before the lock is taken: nothing is written into a foreign folder, not even a lock file.
    if manifest::numbers(fs.as_ref(), dir)?.is_empty() {
        check_no_copy(fs.as_ref(), dir)?;
        return Err(no_manifest(dir, &list(fs.as_ref(), dir)?));
    }
    let lock = match mode {
        RepairMode::DryRun => take_lock_if_writable(fs.as_ref(), clock, dir)?,
        RepairMode::Apply => Some(take_lock(fs.as_ref(), clock, dir)?),
    };
    let mut found = plan(fs, dir)?;
    // A folder that is mounted read-only here may be written elsewhere: what is half-written there does not stay so.
    if lock.is_none() && plan(fs, dir)?.report != found.report {
        let what = format!("{} changes while it is read: end the program that writes to it", dir.display());
        return Err(Error::new(Code::LockBusy, what));
    }
    if mode == RepairMode::Apply && !found.report.is_clean() {
        apply(fs.as_ref(), dir, &mut found)?;
    }
    Ok(found.report)
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

/// The newest manifest with a readable checkpoint; faults in newer ones are noted.
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

/// The state after the longest sequence of edits that fit together; the fault of the next edit is noted.
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
                let name = reported_name(&collection.name, |id| Some(self.state.by_id(id)?.name.clone()));
                self.report.faults.push(format!("collection '{name}': {error}"));
                self.report.losses.push(loss_of_segment(name, collection, segment));
                gone.push((collection.id, segment.file.id, segment.file.relative_path()));
            }
        }
        for documents in self.state.documents.values() {
            for segment in documents.segments.values() {
                known.insert(segment.id());
                let Err(error) = verify_documents(segment) else { continue };
                if error.kind() != ErrorKind::Corrupt {
                    return Err(error);
                }
                self.report.faults.push(format!("collection '{}': {error}", documents.name));
                self.report.losses.push(loss_of_documents(documents, segment));
                gone.push((documents.id, segment.id(), segment.file.relative_path()));
            }
        }
        for (collection, segment, path) in gone {
            self.state.apply(Op::RemoveSegment { collection, segment })?;
            self.segments.push(path);
        }
        // If the manifest lost its end, a segment that it does not name may have been named there.
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
        let documents = self.state.documents.values().map(|d| d.sealed_seq);
        let sealed = self.state.collections.values().map(|c| c.sealed_seq).chain(documents);
        let last_seq = sealed.chain(logs.first_seqs.last().copied()).fold(self.state.applied_seq, u64::max);
        let (faults, kept, lost) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut salvage = Salvage { state: &self.state, faults, kept, lost, broken: false, last_seq };
        logs.walk(&mut salvage)?;
        let mut losses = Vec::new();
        for (first_seq, lost) in &salvage.lost {
            let name = FileName::Log(*first_seq).to_string();
            losses.extend(losses_of_records(&self.state, &name, salvage.losses_of(lost)));
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

fn apply(fs: &dyn Fs, dir: &Path, plan: &mut Plan) -> Result<()> {
    let names = fs.list(dir).map_err(|e| Error::io("list", dir, &e))?;
    let folder = (1..).map(|n| format!("{FOLDER}{n}")).find(|name| !names.contains(name)).unwrap_or_default();
    let folder = dir.join(folder);
    fs.create_dir(&folder).map_err(|e| Error::io("create the folder", &folder, &e))?;
    plan.report.folder = Some(folder.clone());
    let text = plan.report.text(usize::MAX).map_err(|_| Error::internal("the report cannot be written"))?;
    let report = folder.join(REPORT);
    write_synced(fs, &report, text.as_bytes()).map_err(|e| Error::io("write the report", &report, &e))?;

    // Copied first, so that the repair can be repeated if it is interrupted.
    let is_segment = |name: &String| plan.segments.contains(&PathBuf::from(name));
    let (segments, copied): (Vec<String>, Vec<String>) =
        plan.report.set_aside.clone().into_iter().partition(is_segment);
    for name in &copied {
        let (from, to) = (dir.join(name), folder.join(name));
        fs.read(&from).and_then(|bytes| write_synced(fs, &to, &bytes)).map_err(|e| Error::io("copy", &from, &e))?;
    }
    fs.sync_dir(&folder).map_err(|e| Error::io("sync the folder", &folder, &e))?;

    // Moved before the new manifest is written: opening a database removes segments that the manifest does not name.
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

/// Writes a log of what is kept, under new numbers: collections that lost nothing may count the old numbers as sealed.
fn write_log(fs: &dyn Fs, dir: &Path, plan: &mut Plan) -> Result<()> {
    let mut log = LogWriter::create(fs, dir, plan.identity, plan.fresh_seq)?;
    let mut seq = plan.fresh_seq;
    for record in plan.kept.drain(..) {
        let unsealed = record.parts.iter().filter_map(|part| Some((part.collection, part.content.as_ref()?)));
        let unsealed: Vec<_> = unsealed.collect();
        let (collection, payload) = match unsealed.as_slice() {
            [] => continue,
            [(collection, content)] => (*collection, content.payload()?),
            several => {
                let payloads = several.iter().map(|(_, content)| content.payload()).collect::<Result<Vec<_>>>()?;
                wal::check_parts(payloads.iter().map(Vec::len))?;
                let mut payload = wal::begin_parts();
                for ((collection, _), part) in several.iter().zip(&payloads) {
                    wal::put_part(&mut payload, *collection, part);
                }
                (wal::SEVERAL, payload)
            }
        };
        wal::check_payload(&payload)?;
        let mut frame = Vec::with_capacity(payload.len() + 64);
        let head = wal::Record { seq, collection, synced_seq: plan.fresh_seq - 1 };
        wal::put_frame(&mut frame, log.place(), head, &payload, crc32fast::hash(&payload));
        log.append(&frame)?;
        seq += 1;
    }
    log.sync()
}
