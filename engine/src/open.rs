//! Opening: from what a crash left on disk to the state that every acknowledged insert is in.
//!
//! 1. The newest manifest counts. If it is damaged, opening fails: an older one would bring back what was dropped.
//! 2. Log records that are not sealed are replayed in order, up to the first torn one of the newest file. If they take more
//!    memory than open buckets may, they are replayed a second time when all is known to be well, and sealed meanwhile.
//! 3. What nothing names (segments, logs, manifests that were never or are no longer part of the state) is removed.
//!
//! Each step can be interrupted and done again.

use crate::closed::{self, Mark};
use crate::engine::{Engine, OpenState};
use crate::error::{Error, Result};
use crate::fs::{FileLock, Fs, LockError, replace};
use crate::manifest::{self, ManifestWriter, Op};
use crate::segment;
use crate::settings::Settings;
use crate::state::State;
use crate::wal::{self, LogRecord, LogWriter};
use ebbtide_buckets::{Chunk, adapt, schema_of_batch};
use ebbtide_ttl::{Clock, Code};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const LOCK: &str = "LOCK";
/// A reader beside a writer starts again if files went while it read; a writer is never so fast for long.
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
        let mut tries = 0;
        loop {
            tries += 1;
            match read_beside(&fs, &dir, &settings).and_then(held) {
                Ok(read) => {
                    let opened = read.opened(None, None, None);
                    return Ok(Engine::new(fs, clock, dir, settings, read_only, opened));
                }
                Err(error) if tries == READ_ONLY_TRIES => return Err(error),
                Err(_) => {}
            }
        }
    }
    let (opened, replayed) = match open_for_writing(&fs, clock.as_ref(), &dir, &settings) {
        // Only an open database can be swept.
        Err(error) if error.code() == Code::OutOfDiskSpace && crate::reserve::spend(fs.as_ref(), &dir) => {
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

/// Holds the segments for a reader: a writer beside it may unlink them before they are first read.
fn held(read: ReadState) -> Result<ReadState> {
    let segments = read.state.collections.values().flat_map(|c| c.segments.values());
    segments.take(HELD_SEGMENTS_MAX).try_for_each(|segment| segment.file.hold())?;
    Ok(read)
}

fn open_for_writing(
    fs: &Arc<dyn Fs>,
    clock: &dyn Clock,
    dir: &Path,
    settings: &Settings,
) -> Result<(OpenState, Replayed)> {
    // Before the lock: nothing is left in a folder of somebody else, not even that.
    if fs.exists(dir).map_err(|e| Error::io("look at", dir, &e))? {
        refuse_foreign(dir, &fs.list(dir).map_err(|e| Error::io("list", dir, &e))?)?;
    }
    fs.create_dir(dir).map_err(|e| Error::io("create the folder", dir, &e))?;
    let lock = take_lock(fs.as_ref(), clock, dir)?;
    let names = fs.list(dir).map_err(|e| Error::io("list", dir, &e))?;
    if !names.iter().any(|name| manifest::parse_name(name).is_some()) {
        refuse_remains(fs.as_ref(), dir, &names)?;
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
        return Ok((OpenState { identity, state, next_seq: 1, log, manifest, lock }, Replayed::Whole));
    }
    let mut read = read_state(fs, dir, names, settings)?;
    let next_seq = read.state.applied_seq + 1;
    if !read.closed {
        settle_log(fs.as_ref(), dir, &read)?;
    }
    // A new log file and a new manifest: nothing is ever appended behind what a crash may have left half-written.
    // But for a log without any record: the manifest names it, so it must not go, not even for a moment.
    let log = match read.state.logs.contains(&next_seq) {
        true => LogWriter::reopen(fs.as_ref(), dir, read.identity, next_seq)?,
        false => LogWriter::create(fs.as_ref(), dir, read.identity, next_seq)?,
    };
    read.state.apply(Op::AddLog { first_seq: next_seq })?;
    let manifest = ManifestWriter::create(fs.as_ref(), dir, read.identity, read.number + 1, &read.checkpoint()?)?;
    remove_leftovers(fs.as_ref(), dir, &read, read.number + 1)?;
    crate::reserve::make(fs.as_ref(), dir);
    read.state.unlinks = true;
    let replayed = read.replayed;
    Ok((read.opened(Some(log), Some(manifest), Some(lock)), replayed))
}

/// Whether the rows that only the log holds are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replayed {
    Whole,
    /// They were looked at, and are too many.
    Not,
}

/// Keeps other writers out until what is returned is dropped.
pub(crate) fn take_lock(fs: &dyn Fs, clock: &dyn Clock, dir: &Path) -> Result<Box<dyn FileLock>> {
    let path = dir.join(LOCK);
    let holder = format!("process {} since {}", std::process::id(), clock.now());
    fs.lock(&path, &holder).map_err(|e| match e {
        LockError::Held { holder } => {
            let what = format!(
                "{} is open for writing by {holder}: close it there, or open it here for reading only",
                dir.display()
            );
            Error::new(Code::LockBusy, what)
        }
        LockError::Io(e) => Error::io("lock", &path, &e),
    })
}

/// Cuts half-written records off the newest log, so that the next file continues where this one ends, and syncs it: a
/// process that was killed may have written records that it never synced, and from now on they count.
///
/// The file is written anew, since after a failed sync a second one proves nothing: the operating system may have
/// given up what it could not write, and go on showing it. Where even the reserve's room is not enough for that, it is
/// synced in place.
fn settle_log(fs: &dyn Fs, dir: &Path, read: &ReadState) -> Result<()> {
    let Some((first_seq, end)) = read.newest_log else { return Ok(()) };
    let path = dir.join(wal::file_name(first_seq));
    let tmp = dir.join(format!("{}.tmp", wal::file_name(first_seq)));
    let anew = || {
        let mut bytes = fs.read(&path)?;
        if bytes.len() as u64 == end && end == wal::HEADER_BYTES as u64 {
            return Ok(()); // No record: its header was synced before the manifest named it.
        }
        bytes.truncate(usize::try_from(end).unwrap_or(usize::MAX));
        replace(fs, &tmp, &path, &bytes)
    };
    // A full disk must not keep a database from being opened, and swept.
    let in_place = || fs.open_append(&path, end)?.sync();
    let is_full = |e: &std::io::Error| e.kind() == std::io::ErrorKind::StorageFull;
    let full = |e: std::io::Error| {
        if !is_full(&e) {
            return Err(e);
        }
        if fs.exists(&tmp)? {
            fs.remove(&tmp)?; // What follows needs the room that is left.
        }
        Ok(())
    };
    let settled = anew().or_else(|e| {
        full(e)?;
        let again = if crate::reserve::spend(fs, dir) { anew() } else { return in_place() };
        again.or_else(|e| full(e).and_then(|()| in_place()))
    });
    settled.map_err(|e| Error::io("settle the log", &path, &e))
}

struct ReadState {
    identity: [u8; 16],
    number: u64,
    /// What the folder held before anything was changed.
    names: Vec<String>,
    state: State,
    /// Whether the last writer closed it in good order: then the end of the log is as it was written and synced.
    closed: bool,
    /// The newest log and where its whole records end.
    newest_log: Option<(u64, u64)>,
    replayed: Replayed,
    /// The state as the manifest knows it, for a new checkpoint: inserts that only the log holds are not in it.
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
        OpenState { identity: self.identity, state: self.state, next_seq, log, manifest, lock }
    }
}

/// Reads the state beside a writer that may be there.
fn read_beside(fs: &Arc<dyn Fs>, dir: &Path, settings: &Settings) -> Result<ReadState> {
    if !fs.exists(dir).map_err(|e| Error::io("look at", dir, &e))? {
        return Err(Error::new(Code::NamespaceNotFound, format!("there is no database at {}", dir.display())));
    }
    // A reader cannot seal, so it holds whatever the log does.
    let names = fs.list(dir).map_err(|e| Error::io("list", dir, &e))?;
    // It cannot seal, so it holds all that is in the log.
    read_state(fs, dir, names, &Settings { memtable_bytes_max: usize::MAX, ..settings.clone() })
}

/// Reads the state of a folder with these names in it. Rows of the log that take more than the memtable may are left out.
fn read_state(fs: &Arc<dyn Fs>, dir: &Path, names: Vec<String>, settings: &Settings) -> Result<ReadState> {
    let Some(number) = names.iter().filter_map(|name| manifest::parse_name(name)).max() else {
        return Err(Error::new(Code::NamespaceNotFound, format!("there is no database at {}", dir.display())));
    };
    // First: a writer beside a reader closes after all else that it does.
    let mark = Mark::read(fs.as_ref(), dir, &names)?;
    let contents = manifest::read(fs.as_ref(), dir, number)?;
    let mark = match mark {
        Some(mark) => {
            mark.check_identity(dir, contents.identity)?;
            mark.counts(dir, number, &contents)?.then_some(mark)
        }
        None => None,
    };
    if contents.torn_bytes > 0 {
        tracing::info!(number, bytes = contents.torn_bytes, "the last edit of the manifest was half-written");
    }
    let mut state = State::new(fs.clone(), dir.to_owned(), settings.cache_bytes_max);
    for op in contents.edits.into_iter().flatten() {
        state.apply(op)?;
    }
    check_segments(&names, &state)?;
    let sealed = state.clone();
    let (newest_log, replayed) =
        replay(fs.as_ref(), dir, contents.identity, mark.as_ref(), &mut state, settings.memtable_bytes_max)?;
    if replayed == Replayed::Not {
        let applied_seq = std::mem::replace(&mut state, sealed.clone()).applied_seq;
        state.applied_seq = applied_seq;
    }
    let (identity, closed) = (contents.identity, mark.is_some());
    Ok(ReadState { identity, number, names, state, closed, newest_log, replayed, sealed })
}

/// Every segment that the manifest names has to be there, whole.
fn check_segments(names: &[String], state: &State) -> Result<()> {
    let there: std::collections::HashSet<u64, ahash::RandomState> =
        names.iter().filter_map(|name| segment::parse_name(name)).collect();
    for collection in state.collections.values() {
        if let Some(missing) = collection.segments.values().find(|segment| !there.contains(&segment.file.id)) {
            let what = format!("segment file of collection '{}' is missing", collection.name);
            return Err(Error::corrupt(&missing.file.path, 0, what));
        }
    }
    Ok(())
}

/// Which records of the log no segment holds.
fn unsealed(state: &State) -> impl Fn(u64, u64) -> bool + use<> {
    let sealed: std::collections::HashMap<u64, u64> =
        state.collections.values().map(|c| (c.id, c.sealed_seq)).collect();
    move |seq, collection| sealed.get(&collection).is_some_and(|sealed| seq > *sealed)
}

/// Replays the log; returns the newest file and the end of its whole records. What takes more than `memory_max` is looked at and
/// let go of.
fn replay(
    fs: &dyn Fs,
    dir: &Path,
    identity: [u8; 16],
    mark: Option<&Mark>,
    state: &mut State,
    memory_max: usize,
) -> Result<(Option<(u64, u64)>, Replayed)> {
    let logs: Vec<u64> = state.logs.iter().copied().collect();
    let wanted = unsealed(state);
    let mut replayed = Replayed::Whole;
    let mut newest = None;
    let mut next = None;
    for (at, first_seq) in logs.iter().enumerate() {
        let path = dir.join(wal::file_name(*first_seq));
        let last = at + 1 == logs.len();
        if next.is_some_and(|next| next != *first_seq) {
            let what = format!("log starts at record {first_seq}, expected={}", next.unwrap_or(0));
            return Err(Error::corrupt(&path, 0, what));
        }
        if !fs.exists(&path).map_err(|e| Error::io("look at", &path, &e))? {
            return Err(Error::corrupt(&path, 0, "log file is missing"));
        }
        let mut offset = wal::HEADER_BYTES as u64;
        let mut following = *first_seq;
        let mut visit = |record: LogRecord| {
            following = record.seq + 1;
            if record.collection >= state.next_collection {
                // Its making was durable before the record was: the manifest has lost its end.
                let what = format!("log record {} is of a collection that the manifest never made", record.seq);
                return Err(Error::corrupt(&path, offset, what));
            }
            offset += record.bytes;
            state.applied_seq = state.applied_seq.max(record.seq);
            if replayed == Replayed::Whole {
                push(state, record)?;
                if state.memtable_bytes() > memory_max {
                    replayed = Replayed::Not;
                    state.forget_open();
                }
            }
            Ok(())
        };
        let (end, damage) = wal::read_each(fs, &path, identity, &wanted, &mut visit)?;
        if let Some(damage) = damage {
            return Err(damage);
        }
        if let Some(mark) = mark.filter(|_| last) {
            mark.check_log(&path, *first_seq, end)?;
        }
        if end.torn_bytes > 0 {
            if !last {
                return Err(Error::corrupt(&path, end.whole, "log record is damaged and newer logs follow"));
            }
            tracing::info!(path = %path.display(), end = end.whole, "the log ends with a half-written record");
        }
        newest = Some((*first_seq, end.whole));
        next = Some(following);
    }
    Ok((newest, replayed))
}

/// Puts the rows of a record among the open buckets, if it has any that are wanted.
fn push(state: &mut State, record: LogRecord) -> Result<()> {
    let Some((batch, collection)) = record.batch.zip(state.by_id_mut(record.collection)) else { return Ok(()) };
    let (time, meta, precision) =
        (collection.schema.time.clone(), collection.schema.meta.clone(), collection.options.precision);
    let logged = schema_of_batch(&batch, &time, meta.as_deref(), precision)?;
    let schema = Arc::new(collection.schema.join(&logged)?);
    let batch = adapt(&batch, &schema)?;
    let span = collection.options.bucketing.span_seconds();
    let chunk = Arc::new(Chunk::build(batch, &schema, span));
    collection.schema = schema.clone();
    collection.memtable.push(chunk, (record.seq, record.batch_id), (&schema, span))
}

/// Replays the log of an open database that nobody uses yet, and seals what outgrows the memory for it. That the log is sound is
/// known. On a disk without room for that, what is left stays in memory: it has to be open to be swept.
fn replay_and_seal(engine: &Engine) -> Result<()> {
    let maintenance = engine.maintenance.lock();
    let (logs, wanted, end) = {
        let mut state = engine.state.write();
        // The edit that seals goes by it.
        let end = std::mem::replace(&mut state.applied_seq, 0);
        (state.logs.clone(), unsealed(&state), end)
    };
    let mut seals = true;
    for first_seq in logs.into_iter().filter(|first_seq| *first_seq <= end) {
        let path = engine.dir.join(wal::file_name(first_seq));
        let mut visit = |record: LogRecord| {
            let bytes = {
                let mut state = engine.state.write();
                state.applied_seq = record.seq;
                push(&mut state, record)?;
                state.memtable_bytes()
            };
            if seals && bytes > engine.settings.memtable_bytes_max {
                match crate::seal::flush(engine, &maintenance, None) {
                    Err(error) if error.code() == Code::OutOfDiskSpace => {
                        tracing::warn!(%error, "the log holds more than may be in memory, and it could not be sealed");
                        seals = false;
                    }
                    flushed => flushed?,
                }
            }
            Ok(())
        };
        if let (_, Some(damage)) = wal::read_each(engine.fs.as_ref(), &path, engine.identity, &wanted, &mut visit)? {
            return Err(damage);
        }
    }
    Ok(())
}

/// Removes what no state names. A failure is no harm: the next open tries again.
fn remove_leftovers(fs: &dyn Fs, dir: &Path, read: &ReadState, manifest: u64) -> Result<()> {
    let state = &read.state;
    let segments: std::collections::HashSet<u64, ahash::RandomState> =
        state.collections.values().flat_map(|c| c.segments.keys().copied()).collect();
    for name in &read.names {
        let leftover = if let Some(id) = segment::parse_name(name) {
            !segments.contains(&id)
        } else if let Some(first_seq) = wal::parse_name(name) {
            !state.logs.contains(&first_seq)
        } else if let Some(number) = manifest::parse_name(name) {
            number < manifest
        } else {
            // An open takes the clock as it is: what was confirmed before is settled.
            // And a later manifest than the one that was closed has begun.
            [crate::confirmation::NAME, crate::confirmation::TMP, closed::NAME, closed::TMP].contains(&name.as_str())
                || (name.ends_with(".tmp") && (name.starts_with("MANIFEST-") || name.starts_with("wal-")))
        };
        if leftover {
            let path = dir.join(name);
            match fs.remove(&path) {
                // What was half-written may have got its name since, or been made room for.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                removed => removed.map_err(|e| Error::io("remove the leftover", &path, &e))?,
            }
        }
    }
    Ok(())
}

/// A folder without a manifest but with files of others is none of ours.
fn refuse_foreign(dir: &Path, names: &[String]) -> Result<()> {
    let ours = |n: &String| {
        n == LOCK
            || n == crate::reserve::NAME
            || n == closed::NAME
            || wal::parse_name(n).is_some()
            || segment::parse_name(n).is_some()
            || n.ends_with(".tmp")
    };
    match names.iter().find(|n| !ours(n)) {
        Some(other) if !names.iter().any(|n| manifest::parse_name(n).is_some()) => {
            let what = format!(
                "{} is not a database and not empty (it holds '{other}'): give an empty or new folder",
                dir.display()
            );
            Err(Error::new(Code::BadValue, what))
        }
        _ => Ok(()),
    }
}

/// A folder with segments or records of ours but no manifest is a damaged database.
fn refuse_remains(fs: &dyn Fs, dir: &Path, names: &[String]) -> Result<()> {
    let segment = names.iter().find(|n| segment::parse_name(n).is_some());
    if let Some(name) = segment {
        return Err(Error::corrupt(&dir.join(name), 0, "the folder holds segments but no manifest"));
    }
    if names.iter().any(|n| n == closed::NAME) {
        return Err(Error::corrupt(
            &dir.join(closed::NAME),
            0,
            "a database was closed in this folder, but there is no manifest",
        ));
    }
    // A first open that was interrupted leaves a log without records.
    for (name, first_seq) in names.iter().filter_map(|n| Some((n, wal::parse_name(n)?))) {
        let path = dir.join(name);
        let len = fs.len(&path).map_err(|e| Error::io("look at", &path, &e))?;
        if first_seq != 1 || len > wal::HEADER_BYTES as u64 {
            return Err(Error::corrupt(&path, 0, "the folder holds a log with records but no manifest"));
        }
    }
    refuse_foreign(dir, names)
}

/// Tells databases apart; need not be unguessable.
fn new_identity(clock: &dyn Clock, dir: &Path) -> [u8; 16] {
    use std::hash::{BuildHasher, Hasher};
    let mut identity = [0; 16];
    for half in identity.chunks_mut(8) {
        // `RandomState` is seeded by the operating system; under a simulated disk the identity need not repeat.
        let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
        hasher.write_i128(clock.now().nanos());
        hasher.write(dir.as_os_str().as_encoded_bytes());
        half.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    identity
}
