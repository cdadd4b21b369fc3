//! Opening: from the files on disk, as a crash may have left them, to a state with every acknowledged insert.
//!
//! 1. The newest manifest is used. If it is damaged, opening fails: an older one would bring back what was dropped.
//! 2. Log records that are not sealed are replayed in order, up to the first torn one of the newest file. If they exceed the
//!    memory for open buckets, they are replayed a second time after all checks have passed, and sealed meanwhile.
//! 3. Files that are not part of the state (segments, logs, manifests) are removed.
//!
//! Each step can be interrupted and repeated.

mod lock;

pub(crate) use lock::{take_lock, take_lock_if_writable};

use crate::clean_shutdown::ShutdownMarker;
use crate::copies::{self, CopyHold};
use crate::engine::{Engine, OpenState};
use crate::error::{Error, Result};
use crate::files::{self, FileName, Listing, SegmentName};
use crate::fs::{FileLock, Fs, LockedFs, TEMPORARY, is_full, replace};
use crate::identity::new_identity;
use crate::manifest::{self, ManifestContents, ManifestWriter, Op};
use crate::segment::folder::{SegmentFolder, is_of_a_collection, remove_folder};
use crate::settings::Settings;
use crate::state::{CollectionState, State};
use crate::sync::Guard;
use crate::wal::{self, LogContent, LogEnd, LogFault, LogRecord, LogSet, LogVisitor, LogWriter, RawRecord};
use ebbtide_ttl::{Clock, Code};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How often a reader starts again because a writer in another process changed the files while it read them.
const READ_ONLY_TRIES: usize = 20;
/// Segments that a reader holds open: a process has 1024 file handles by default.
const HELD_SEGMENTS_MAX: usize = 512;

pub(crate) fn open(
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    settings: Settings,
    read_only: bool,
) -> Result<Engine> {
    settings.validate()?;
    if read_only {
        let read = beside_a_writer(fs.as_ref(), &dir, || read_beside(&fs, &dir, &settings).and_then(held))?;
        let opened = OpenState { held: CopyHold::read(fs.as_ref(), &dir)?, ..read.opened(None, None, None) };
        return Ok(Engine::new(fs, clock, dir, settings, read_only, opened));
    }
    let (fs, opened, replayed) = match open_for_writing(&fs, clock.as_ref(), &dir, &settings) {
        // Only an open database can be swept.
        Err(error) if error.is_of_full_disk() && crate::reserve::spend(fs.as_ref(), &dir) => {
            open_for_writing(&fs, clock.as_ref(), &dir, &settings)?
        }
        opened => opened?,
    };
    let engine = Engine::new(fs, clock, dir, settings, read_only, opened);
    if replayed == Replayed::Not {
        replay_and_seal(&engine)?;
    }
    Ok(engine)
}

/// Reads files that a writer in another process may be changing. An error is returned only if nothing changed while `read` ran
/// into it; otherwise it may be about a file that is no longer in use, or about one whose end was read before its middle was
/// written, and `read` starts again.
pub(crate) fn beside_a_writer<T, E>(fs: &dyn Fs, dir: &Path, read: impl Fn() -> Result<T, E>) -> Result<T, E> {
    // Looking at the files is dear, so it begins after the first error.
    let mut before = None;
    for _ in 1..READ_ONLY_TRIES {
        match read() {
            Ok(read) => return Ok(read),
            Err(error) => {
                let after = Some(stamp(fs, dir));
                if after == before {
                    return Err(error);
                }
                before = after;
            }
        }
    }
    read()
}

/// The names of the files, and of those that are appended to the length or the checksum: every change by a writer changes one of
/// them. The length of a log does not, since records overwrite zeros. Empty for a folder that cannot be listed.
fn stamp(fs: &dyn Fs, dir: &Path) -> Vec<(String, Option<u64>)> {
    let names = fs.list(dir).unwrap_or_default();
    let content = |name: &str| match FileName::parse(name) {
        Some(FileName::Manifest(_)) => fs.len(&dir.join(name)).ok(),
        Some(FileName::Log(_)) => fs.read(&dir.join(name)).ok().map(|log| crc32fast::hash(&log).into()),
        _ => None,
    };
    names.into_iter().map(|name| (content(&name), name)).map(|(content, name)| (name, content)).collect()
}

/// Opens the segments for a reader: a writer in another process may unlink them before they are first read.
fn held(read: ReadState) -> Result<ReadState> {
    let segments = read.state.collections.values().flat_map(|c| c.segments.values());
    segments.take(HELD_SEGMENTS_MAX).try_for_each(|segment| segment.file.hold())?;
    let documents = read.state.documents.values().flat_map(|d| d.segments.values());
    documents.take(HELD_SEGMENTS_MAX).try_for_each(|segment| segment.file.hold())?;
    Ok(read)
}

fn open_for_writing(
    fs: &Arc<dyn Fs>,
    clock: &dyn Clock,
    dir: &Path,
    settings: &Settings,
) -> Result<(Arc<dyn Fs>, OpenState, Replayed)> {
    // Checked before the lock is taken: nothing is written into a foreign folder, not even a lock file.
    if fs.exists(dir).map_err(|e| Error::io("access", dir, &e))? {
        refuse_foreign(dir, &list(fs.as_ref(), dir)?)?;
    }
    fs.create_dir(dir).map_err(|e| Error::io("create the folder", dir, &e))?;
    let lock = take_lock(fs.as_ref(), clock, dir)?;
    let fs = &LockedFs::within(fs, lock.as_ref());
    let listing = list(fs.as_ref(), dir)?;
    copies::check_folder(fs.as_ref(), dir)?;
    let held = CopyHold::read(fs.as_ref(), dir)?;
    if !has_manifest(&listing) {
        refuse_remains(fs.as_ref(), dir, &listing)?;
        let identity = new_identity(clock, dir);
        // The log first: a manifest that names no log would be a database that cannot be written.
        let log = LogWriter::create(fs.as_ref(), dir, identity, 1)?;
        let checkpoint = [Op::NextIds { collection: 1, segment: 1, seq: 1 }, Op::AddLog { first_seq: 1 }];
        let manifest = ManifestWriter::create(fs.as_ref(), dir, identity, 1, &checkpoint)?;
        let mut state = State::new(fs.clone(), dir.to_owned(), settings.cache_bytes_max);
        for op in checkpoint {
            state.apply(op)?;
        }
        state.unlinks = true;
        crate::reserve::make(fs.as_ref(), dir);
        let (log, manifest, lock) = (Some(log), Some(manifest), Some(lock));
        let opened = OpenState { identity, state, next_seq: 1, log, manifest, lock, held: None };
        return Ok((fs.clone(), opened, Replayed::Whole));
    }
    let mut read = read_state(fs, dir, listing, settings)?;
    let next_seq = read.state.applied_seq + 1;
    if !read.closed {
        settle_log(fs.as_ref(), dir, &read)?;
    }
    // A new log file and a new manifest: nothing is ever appended to what a crash may have left half-written. Except that
    // a log without any record is continued: the manifest names it, so it must not be removed, not even for a moment.
    let log = match read.state.logs.contains(&next_seq) {
        true => LogWriter::reopen(fs.as_ref(), dir, read.identity, next_seq)?,
        false => LogWriter::create(fs.as_ref(), dir, read.identity, next_seq)?,
    };
    read.state.apply(Op::AddLog { first_seq: next_seq })?;
    let manifest = ManifestWriter::create(fs.as_ref(), dir, read.identity, read.number + 1, &read.checkpoint()?)?;
    remove_leftovers(fs.as_ref(), dir, &read, read.number + 1)?;
    settle_folders(dir, &read.listing, &read.state)?;
    crate::reserve::make(fs.as_ref(), dir);
    read.state.unlinks = true;
    let replayed = read.replayed;
    Ok((fs.clone(), OpenState { held, ..read.opened(Some(log), Some(manifest), Some(lock)) }, replayed))
}

/// Whether the rows that are only in the log are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replayed {
    Whole,
    /// They were checked, and take too much memory.
    Not,
}

/// Cuts half-written records off the newest log, so that the next file continues where this one ends, and syncs it: a
/// process that was killed may have written records that it never synced, and from now on they are part of the state.
///
/// The file is rewritten, since a sync that succeeds after a failed one proves nothing: the operating system may have
/// discarded what it could not write, and still show it. If the disk has no room for that, even without the reserve, the
/// file is synced in place.
fn settle_log(fs: &dyn Fs, dir: &Path, read: &ReadState) -> Result<()> {
    let Some(LogEnd { first_seq, whole: end, .. }) = read.newest_log else { return Ok(()) };
    let path = FileName::Log(first_seq).path(dir);
    let rewrite = || {
        let bytes = fs.read(&path)?;
        if bytes.len() as u64 == end && end == wal::HEADER_BYTES as u64 {
            return Ok(()); // It holds no record, and its header was synced before the manifest named it.
        }
        // Everything that was replayed must still be in the file, or the rewritten log would have lost its end.
        let whole = usize::try_from(end).ok().and_then(|end| bytes.get(..end));
        replace(fs, &path, whole.ok_or(std::io::ErrorKind::UnexpectedEof)?)
    };
    let mut settled = rewrite();
    if settled.as_ref().is_err_and(|e| is_full(e) && e.kind() != std::io::ErrorKind::FileTooLarge)
        && crate::reserve::spend(fs, dir)
    {
        settled = rewrite();
    }
    if settled.as_ref().is_err_and(is_full) {
        // A full disk must not prevent opening and sweeping the database.
        settled = fs.open_append(&path, end).and_then(|mut log| log.sync());
    }
    settled.map_err(|e| Error::io("settle the log", &path, &e))
}

struct ReadState {
    identity: [u8; 16],
    number: u64,
    /// The names in the folder before anything was changed.
    listing: Listing,
    state: State,
    /// Whether the last shutdown was clean: then the end of the log is as it was written and synced.
    closed: bool,
    /// The newest log, and where its complete records end.
    newest_log: Option<LogEnd>,
    replayed: Replayed,
    /// The state that the manifest describes, without the inserts that are only in the log: for a new checkpoint.
    sealed: State,
}

impl ReadState {
    fn checkpoint(&mut self) -> Result<Vec<Op>> {
        for first_seq in &self.state.logs {
            self.sealed.apply(Op::AddLog { first_seq: *first_seq })?;
        }
        Ok(self.sealed.checkpoint())
    }

    fn opened(
        self,
        log: Option<LogWriter>,
        manifest: Option<ManifestWriter>,
        lock: Option<Box<dyn FileLock>>,
    ) -> OpenState {
        let next_seq = self.state.applied_seq + 1;
        OpenState { identity: self.identity, state: self.state, next_seq, log, manifest, lock, held: None }
    }
}

/// Reads the state while another process may be writing.
fn read_beside(fs: &Arc<dyn Fs>, dir: &Path, settings: &Settings) -> Result<ReadState> {
    if !fs.exists(dir).map_err(|e| Error::io("access", dir, &e))? {
        return Err(Error::new(Code::NamespaceNotFound, format!("there is no database at {}", dir.display())));
    }
    let listing = list(fs.as_ref(), dir)?;
    // A reader cannot seal, so it holds everything in the log in memory.
    read_state(fs, dir, listing, &Settings { memtable_bytes_max: usize::MAX, ..settings.clone() })
}

/// Reads the state of a folder with these files in it. Rows of the log that take more than the memtable may are left out.
fn read_state(fs: &Arc<dyn Fs>, dir: &Path, listing: Listing, settings: &Settings) -> Result<ReadState> {
    let (number, contents, marker) = read_manifest(fs.as_ref(), dir, &listing.names)?;
    if contents.torn_bytes > 0 {
        tracing::info!(number, bytes = contents.torn_bytes, "the last edit of the manifest was half-written");
    }
    let mut state =
        state_of(fs, dir, number, contents.edits, settings.cache_bytes_max).map_err(|(_, damage)| damage)?;
    check_segments(&listing, &state)?;
    let sealed = state.clone();
    let logs = logs_of(fs.as_ref(), dir, contents.identity, &state);
    let logs = LogSet { marker, ..logs };
    let mut replay = Replay { state: &mut state, memory_max: settings.memtable_bytes_max, replayed: Replayed::Whole };
    let newest_log = logs.walk(&mut replay)?;
    let replayed = replay.replayed;
    if let Some(torn) = newest_log.filter(|end| end.torn_bytes > 0) {
        tracing::info!(log = torn.first_seq, end = torn.whole, "the log ends with a half-written record");
    }
    if replayed == Replayed::Not {
        let applied_seq = std::mem::replace(&mut state, sealed.clone()).applied_seq;
        state.applied_seq = applied_seq;
    }
    let (identity, closed) = (contents.identity, marker.is_some());
    Ok(ReadState { identity, number, listing, state, closed, newest_log, replayed, sealed })
}

/// Reads the newest manifest of a folder that holds files of these names, and the marker of the last shutdown if it applies.
pub(crate) fn read_manifest(
    fs: &dyn Fs,
    dir: &Path,
    names: &[String],
) -> Result<(u64, ManifestContents, Option<ShutdownMarker>)> {
    let Some(number) = names.iter().filter_map(|name| FileName::manifest_number(name)).max() else {
        copies::check_no_copy(fs, dir)?;
        return Err(Error::new(Code::NamespaceNotFound, format!("there is no database at {}", dir.display())));
    };
    // Read first: a writer in another process writes it last.
    let marker = ShutdownMarker::read(fs, dir, names)?;
    let contents = manifest::read(fs, dir, number)?;
    let marker = match marker {
        Some(marker) => {
            marker.check_identity(dir, contents.identity)?;
            marker.applies(dir, number, (contents.end, contents.torn_bytes))?.then_some(marker)
        }
        None => None,
    };
    Ok((number, contents, marker))
}

/// The state that the edits of manifest `number` produce.
///
/// # Errors
/// If an edit does not fit the ones before it: how many edits fit, and the damage.
pub(crate) fn state_of(
    fs: &Arc<dyn Fs>,
    dir: &Path,
    number: u64,
    edits: Vec<Vec<Op>>,
    cache_bytes_max: usize,
) -> Result<State, (usize, Error)> {
    let mut state = State::new(fs.clone(), dir.to_owned(), cache_bytes_max);
    for (at, edit) in edits.into_iter().enumerate() {
        let applied = edit.into_iter().try_for_each(|op| state.apply(op));
        applied.map_err(|error| {
            let path = FileName::Manifest(number).path(dir);
            (at, Error::corrupt(&path, 0, format!("manifest edit {at} is wrong: {error}")))
        })?;
    }
    Ok(state)
}

/// The log files that a state names.
pub(crate) fn logs_of<'a>(fs: &'a dyn Fs, dir: &'a Path, identity: [u8; 16], state: &State) -> LogSet<'a> {
    let first_seqs = state.logs.iter().copied().collect();
    LogSet { fs, dir, identity, first_seqs, next_collection: state.next_collection, marker: None, is_settled: false }
}

/// Checks that every segment that the manifest names exists with its full length.
fn check_segments(listing: &Listing, state: &State) -> Result<()> {
    let there: std::collections::HashSet<PathBuf, ahash::RandomState> =
        listing.segments().map(|(path, _)| path).collect();
    for collection in state.collections.values() {
        let mut segments = collection.segments.values();
        if let Some(missing) = segments.find(|segment| !there.contains(&segment.file.relative_path())) {
            let what = format!("segment file of collection '{}' is missing", collection.name);
            return Err(Error::corrupt(&missing.file.path, 0, what));
        }
    }
    for documents in state.documents.values() {
        let mut segments = documents.segments.values();
        if let Some(missing) = segments.find(|segment| !there.contains(&segment.file.relative_path())) {
            let what = format!("segment file of collection '{}' is missing", documents.name);
            return Err(Error::corrupt(&missing.file.path, 0, what));
        }
    }
    Ok(())
}

/// Loads the records that are in no segment, and stops at the first fault. If they take more than `memory_max` bytes they are
/// only checked.
struct Replay<'a> {
    state: &'a mut State,
    memory_max: usize,
    replayed: Replayed,
}

impl LogVisitor for Replay<'_> {
    fn wants(&self, seq: u64, collection: u64) -> bool {
        self.state.is_unsealed(seq, collection)
    }

    fn record(&mut self, _first_seq: u64, record: LogRecord) -> Result<()> {
        self.state.applied_seq = self.state.applied_seq.max(record.seq);
        if self.replayed == Replayed::Whole {
            push(self.state, record)?;
            if self.state.memtable_bytes() > self.memory_max {
                self.replayed = Replayed::Not;
                self.state.forget_open();
            }
        }
        Ok(())
    }

    fn fault(&mut self, fault: LogFault<'_>) -> Result<()> {
        Err(fault.error)
    }
}

/// Adds what a record brings to the memory of its collections, if it is in no segment.
fn push(state: &mut State, record: LogRecord) -> Result<()> {
    for part in record.parts {
        match part.content {
            None => {}
            Some(LogContent::Rows(batch, id)) => {
                let Some(collection) = state.by_id_mut(part.collection) else { continue };
                let (schema, chunk) = collection.chunk_of(&batch)?;
                let (schema, span) = (Arc::new(schema), collection.options.bucketing.span_seconds());
                collection.schema = schema.clone();
                collection.memtable.push(Arc::new(chunk), (record.seq, id), (&schema, span))?;
            }
            Some(LogContent::Documents(changes)) => {
                let Some(documents) = state.documents_by_id_mut(part.collection) else { continue };
                documents.memtable.note(record.seq);
                changes.into_iter().try_for_each(|change| documents.replay(change))?;
            }
        }
    }
    Ok(())
}

/// Adds what a record of a copy brings, as far as it is wanted and in no segment.
pub(crate) fn replay(state: &mut State, record: &RawRecord, wants: impl Fn(u64) -> bool) -> Result<()> {
    let seq = record.seq;
    let record = record.decode(|collection| state.is_unsealed(seq, collection) && wants(collection))?;
    state.applied_seq = state.applied_seq.max(seq);
    push(state, record)
}

/// Replays the log, which was checked, into a database that is not in use yet, and seals what exceeds the memory for open
/// buckets. On a full disk the rest stays in memory, since the database must be open to be swept.
fn replay_and_seal(engine: &Engine) -> Result<()> {
    let maintenance = engine.maintenance.lock();
    let logs = {
        let mut state = engine.state.write();
        // The edit that seals contains this number.
        let end = std::mem::replace(&mut state.applied_seq, 0);
        let mut logs = logs_of(engine.fs.as_ref(), &engine.dir, engine.identity, &state);
        logs.first_seqs.retain(|first_seq| *first_seq <= end);
        logs
    };
    logs.walk(&mut SealingReplay { engine, maintenance: &maintenance, seals: true }).map(drop)
}

struct SealingReplay<'a> {
    engine: &'a Engine,
    maintenance: &'a Guard<'a, ()>,
    /// Whether the disk has had room so far.
    seals: bool,
}

impl LogVisitor for SealingReplay<'_> {
    fn wants(&self, seq: u64, collection: u64) -> bool {
        self.engine.state.read().is_unsealed(seq, collection)
    }

    fn record(&mut self, _first_seq: u64, record: LogRecord) -> Result<()> {
        let bytes = {
            let mut state = self.engine.state.write();
            state.applied_seq = record.seq;
            push(&mut state, record)?;
            state.memtable_bytes()
        };
        if self.seals && bytes > self.engine.settings.memtable_bytes_max {
            match crate::seal::flush(self.engine, self.maintenance, None) {
                Err(error) if error.code() == Code::OutOfDiskSpace => {
                    tracing::warn!(%error, "the log exceeds the memory for open buckets and could not be sealed");
                    self.seals = false;
                }
                flushed => flushed?,
            }
        }
        Ok(())
    }

    fn fault(&mut self, fault: LogFault<'_>) -> Result<()> {
        Err(fault.error)
    }
}

/// Removes files that the state does not name. A failure does no harm: the next open tries again.
fn remove_leftovers(fs: &dyn Fs, dir: &Path, read: &ReadState, manifest: u64) -> Result<()> {
    let state = &read.state;
    for name in &read.listing.names {
        let leftover = match FileName::parse(name) {
            Some(FileName::Segment(segment)) => {
                segment.generation.is_none() && !state.collections.values().any(|c| has_segment(c, segment))
            }
            Some(FileName::Log(first_seq)) => !state.logs.contains(&first_seq),
            Some(FileName::Manifest(number)) => number < manifest,
            // Opening accepts the clock, so an earlier confirmation has no further use.
            Some(FileName::ClockConfirmation) => true,
            // A later manifest than the one of that shutdown has begun.
            Some(FileName::ShutdownMarker) => true,
            Some(FileName::Lock | FileName::Reserve | FileName::CompactFirst | FileName::ShippingLock) => false,
            Some(FileName::Shipping | FileName::SweepsHeld | FileName::Copy | FileName::Failing) => false,
            None => files::is_temporary(name),
        };
        if leftover {
            remove_leftover(fs, &dir.join(name))?;
        }
    }
    for (folder, listed) in &read.listing.folders {
        let path = dir.join(folder);
        if let Some(documents) = state.documents_by_id(listed.collection) {
            if documents.folder.name() == Some(folder) {
                let segments = listed.names.iter().filter_map(|name| FileName::segment(name));
                let leftover = |s: &SegmentName| !documents.segments.contains_key(&s.id);
                segments.filter(leftover).try_for_each(|s| remove_leftover(fs, &FileName::Segment(s).path(&path)))?;
            }
            continue;
        }
        match state.by_id(listed.collection) {
            Some(collection) if collection.folder.name() == Some(folder) => {
                let segments = listed.names.iter().filter_map(|name| FileName::segment(name));
                let leftover = |s: &SegmentName| s.generation.is_some() && !has_segment(collection, *s);
                segments.filter(leftover).try_for_each(|s| remove_leftover(fs, &FileName::Segment(s).path(&path)))?;
            }
            // What has the number of no collection that ever was is somebody's own.
            None if listed.collection < state.next_collection && listed.names.iter().all(|n| is_of_a_collection(n)) => {
                remove_folder(fs, &path).map_err(|e| Error::io("remove the leftover", &path, &e))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn has_segment(collection: &CollectionState, name: SegmentName) -> bool {
    collection.segments.get(&name.id).is_some_and(|segment| segment.file.generation == name.generation)
}

fn remove_leftover(fs: &dyn Fs, path: &Path) -> Result<()> {
    match fs.remove(path) {
        // What was half-written may have got its name since, or been made room for.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|e| Error::io("remove the leftover", path, &e)),
    }
}

/// Puts the markers for other programs where they are needed, and removes them where they are not. Segments that the state does not name
/// have been removed.
pub(crate) fn settle_folders(dir: &Path, listing: &Listing, state: &State) -> Result<()> {
    let marker = FileName::CompactFirst.to_string();
    let settle = |folder: &SegmentFolder, names: Option<&Vec<String>>, is_needed: bool| {
        match folder.opened(names.is_some(), names.is_some_and(|names| names.contains(&marker)), is_needed) {
            // Only an open database can be swept.
            Err(error) if error.code() == Code::OutOfDiskSpace => {
                tracing::warn!(dir = %dir.display(), %error, "other programs may go wrong about the segment files");
                Ok(())
            }
            settled => settled,
        }
    };
    for collection in state.collections.values() {
        let listed = collection.folder.name().and_then(|name| listing.folders.get(name));
        settle(&collection.folder, listed.map(|listed| &listed.names), collection.types_differ())?;
    }
    for documents in state.documents.values() {
        let listed = documents.folder.name().and_then(|name| listing.folders.get(name));
        settle(&documents.folder, listed.map(|listed| &listed.names), false)?;
    }
    settle(&state.folder, Some(&listing.names), state.has_old_segments())
}

pub(crate) fn list(fs: &dyn Fs, dir: &Path) -> Result<Listing> {
    Listing::read(fs, dir).map_err(|e| Error::io("list", dir, &e))
}

fn has_manifest(listing: &Listing) -> bool {
    listing.names.iter().any(|name| FileName::manifest_number(name).is_some())
}

/// Files that a server keeps in the folder of a database, perhaps before that is made.
const OF_SERVERS: [&str; 2] = ["accounts.json", "accounts.lock"];

/// Refuses a folder with foreign files and no manifest: it is not a database.
pub(crate) fn refuse_foreign(dir: &Path, listing: &Listing) -> Result<()> {
    // A folder of a collection without segments is left by a restore that was interrupted.
    let is_of_a_segment = |n: &String| is_of_a_collection(n.strip_suffix(TEMPORARY).unwrap_or(n));
    let of_a_collection = |n: &String| {
        let has_segments = listing.segments().any(|(path, _)| path.parent() == Some(Path::new(n)));
        has_segments || listing.folders.get(n).is_some_and(|listed| listed.names.iter().all(is_of_a_segment))
    };
    let ours = |n: &String| {
        FileName::parse(n).is_some() || files::is_temporary(n) || of_a_collection(n) || OF_SERVERS.contains(&n.as_str())
    };
    match listing.names.iter().find(|n| !ours(n)) {
        Some(other) if !has_manifest(listing) => {
            let what = format!(
                "{} is not a database and not empty (it holds '{other}'): choose an empty or new folder",
                dir.display()
            );
            Err(Error::new(Code::BadValue, what))
        }
        _ => Ok(()),
    }
}

/// Refuses a folder with segments or log records but no manifest: it is a damaged database.
fn refuse_remains(fs: &dyn Fs, dir: &Path, listing: &Listing) -> Result<()> {
    if let Some((path, _)) = listing.segments().next() {
        return Err(Error::corrupt(&dir.join(path), 0, "the folder holds segments but no manifest"));
    }
    let names = &listing.names;
    if names.iter().any(|n| FileName::parse(n) == Some(FileName::ShutdownMarker)) {
        let path = FileName::ShutdownMarker.path(dir);
        return Err(Error::corrupt(&path, 0, "the folder holds a shutdown marker but no manifest"));
    }
    // A first open that was interrupted leaves a log without records.
    for (name, first_seq) in names.iter().filter_map(|n| Some((n, FileName::log_seq(n)?))) {
        let path = dir.join(name);
        let len = fs.len(&path).map_err(|e| Error::io("access", &path, &e))?;
        if first_seq != 1 || len > wal::HEADER_BYTES as u64 {
            return Err(Error::corrupt(&path, 0, "the folder holds a log with records but no manifest"));
        }
    }
    refuse_foreign(dir, listing)
}

#[cfg(test)]
mod tests;
