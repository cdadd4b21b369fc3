//! The engine: its locks, the log, and the commit through which every change except an insert passes.
//!
//! Locks are taken in the order of [`Rank`]. Readers hold `state` only to copy a few pointers, never across I/O.

use crate::archive::ArchiveSlot;
use crate::clean_shutdown::ShutdownMarker;
use crate::copies::{CopiesStatus, CopyHold, Writer};
use crate::error::{Error, Result};
use crate::failing::Failing;
use crate::files::FileName;
use crate::fs::{FileLock, Fs, LockedFile};
use crate::insert::queue::InsertQueue;
use crate::maintenance::Maintenance;
use crate::manifest::{ManifestWriter, Op};
use crate::metrics::Metrics;
use crate::requests::known::Requests;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::sweep::sweeper::Sweeper;
use crate::sync::{Guard, Mutex, Ordered, Rank, RwLock};
use crate::wal::{self, LogWriter};
use ebbtide_documents::ObjectIds;
use ebbtide_ttl::{Clock, Code, Timestamp};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// After this time without a write that failed for lack of space another one may find some.
const NO_SPACE_KNOWN: Duration = Duration::from_secs(60);

/// The log, and how far it is written and synced.
pub(crate) struct Log {
    pub(crate) writer: Option<LogWriter>,
    pub(crate) next_seq: u64,
    pub(crate) synced_seq: u64,
    pub(crate) last_sync: Duration,
}

pub(crate) struct Engine {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dir: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) identity: [u8; 16],
    pub(crate) read_only: bool,
    pub(crate) maintenance: Maintenance,
    pub(crate) inserts: InsertQueue,
    pub(crate) log: Ordered<Mutex<Log>>,
    pub(crate) manifest: Ordered<Mutex<Option<ManifestWriter>>>,
    pub(crate) state: Ordered<RwLock<State>>,
    pub(crate) sweeper: Sweeper,
    pub(crate) metrics: Metrics,
    /// Tells the background that open buckets have reached half of their memory.
    pub(crate) half_full: Arc<tokio::sync::Notify>,
    /// Makes the `_id`s of documents without one.
    pub(crate) object_ids: ObjectIds,
    pub(crate) requests: Requests,
    /// What is known of the copy that this database is shipped to, or that it follows.
    pub(crate) copies: CopiesStatus,
    /// Archives and tables that could not be written to.
    pub(crate) failing: Failing,
    poison: Mutex<Option<Error>>,
    /// When a write failed last for lack of space, and how, if none succeeded since.
    no_space: Mutex<Option<(Duration, Error)>>,
    lock: Mutex<Option<Box<dyn FileLock>>>,
    /// What is locked, where its path can be compared with it.
    locked: Option<LockedFile>,
    /// The process that opened the database.
    process: u32,
}

/// What opening a database produces.
pub(crate) struct OpenState {
    pub(crate) identity: [u8; 16],
    pub(crate) state: State,
    pub(crate) next_seq: u64,
    pub(crate) log: Option<LogWriter>,
    pub(crate) manifest: Option<ManifestWriter>,
    pub(crate) lock: Option<Box<dyn FileLock>>,
    /// What holds sweeps.
    pub(crate) held: Option<CopyHold>,
}

impl Engine {
    pub(crate) fn new(
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        dir: PathBuf,
        settings: Settings,
        read_only: bool,
        opened: OpenState,
    ) -> Self {
        let sweeper = Sweeper::new(clock.now(), clock.monotonic(), opened.held);
        opened.state.begin_usage(clock.now());
        let log = Log {
            writer: opened.log,
            next_seq: opened.next_seq,
            synced_seq: opened.next_seq - 1,
            last_sync: clock.monotonic(),
        };
        Engine {
            fs,
            clock,
            dir,
            settings,
            identity: opened.identity,
            read_only,
            maintenance: Maintenance::new(),
            inserts: InsertQueue::new(),
            log: Ordered::mutex(Rank::Log, log),
            manifest: Ordered::mutex(Rank::Manifest, opened.manifest),
            state: Ordered::rw_lock(Rank::State, opened.state),
            sweeper,
            metrics: Metrics::default(),
            half_full: Arc::default(),
            object_ids: object_ids(),
            requests: Requests::new(),
            copies: CopiesStatus::default(),
            failing: Failing::default(),
            poison: Mutex::new(None),
            no_space: Mutex::new(None),
            locked: opened.lock.as_ref().and_then(|lock| lock.locked()),
            lock: Mutex::new(opened.lock),
            process: std::process::id(),
        }
    }

    /// The present state at the clock's instant. The clock is read after the state: what a sweep has dropped from it had
    /// expired by then.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let taken = Snapshot::take(&self.state.read(), Timestamp::EPOCH);
        taken.at(self.clock.now())
    }

    /// Disables writes, because the state on disk is no longer known. Reads continue from memory.
    pub(crate) fn poison(&self, cause: &Error) -> Error {
        let error = Error::new(
            Code::NotWritable,
            format!("{cause}; writes are disabled: reopen the database and check its contents"),
        );
        tracing::error!(%cause, "writes are disabled");
        self.poison.lock().get_or_insert_with(|| error.clone());
        error
    }

    /// Disables writes, with this error.
    pub(crate) fn poison_with(&self, error: Error) {
        self.poison.lock().get_or_insert(error);
    }

    /// Disables writes if another process has noted that this folder is no longer the primary of its copy.
    pub(crate) fn check_primary(&self) {
        match Writer::of_folder(self.fs.as_ref(), &self.dir) {
            Ok(writer) => {
                if let Some(error) = writer.and_then(|writer| writer.refusal()) {
                    tracing::error!(%error, "writes are disabled");
                    self.poison_with(error);
                }
            }
            Err(error) => tracing::warn!(%error, "it is not known whether this folder is the primary of its copy"),
        }
    }

    /// Disables writes once another folder, or none, is at the path of this one, or another process has its lock file. What is
    /// acknowledged has been synced before such a check, so it is there for whoever opens the folder afterwards.
    pub(crate) fn check_folder(&self) -> Result<()> {
        let Some(locked) = &self.locked else { return Ok(()) };
        locked.check().map_err(|e| self.poison(&Error::io("write to the database", &self.dir, &e)))
    }

    /// Refuses what a forked child would do to the database of its parent.
    pub(crate) fn check_process(&self) -> Result<()> {
        if !self.is_in_fork() {
            return Ok(());
        }
        let what = "this process was forked from the one that opened the database: close it there";
        Err(Error::new(Code::IllegalOperation, what))
    }

    fn is_in_fork(&self) -> bool {
        self.process != std::process::id()
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only {
            if let Some(replica) = self.copies.replica.lock().as_ref() {
                return Err(replica.refusal());
            }
            return Err(Error::new(
                Code::IllegalOperation,
                format!("{} was opened for reading only: open it for writing to change it", self.dir.display()),
            ));
        }
        match self.poison.lock().as_ref() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    pub(crate) fn poisoned(&self) -> Option<Error> {
        self.poison.lock().clone()
    }

    /// Why writes fail: they are disabled, or the last one failed for lack of space not long ago. After a while without writes
    /// another one may find that there is space again.
    pub(crate) fn write_failure(&self) -> Option<Error> {
        let is_recent = |at: Duration| self.clock.monotonic().saturating_sub(at) < NO_SPACE_KNOWN;
        let full = || self.no_space.lock().as_ref().filter(|(at, _)| is_recent(*at)).map(|(_, error)| error.clone());
        self.poisoned().or_else(full)
    }

    /// Notes that a write failed, if that was for lack of space.
    pub(crate) fn note_refusal(&self, error: &Error) {
        if error.code() == Code::OutOfDiskSpace {
            let before = self.no_space.lock().replace((self.clock.monotonic(), error.clone()));
            if before.is_none() {
                tracing::error!(%error, "writes fail until there is space on the disk");
            }
        }
    }

    /// Notes that a write had space.
    pub(crate) fn note_space(&self) {
        let before = self.no_space.lock().take();
        if before.is_some() {
            tracing::info!("there is space on the disk for writes again");
        }
    }

    /// Ends all writing: answers waiting inserts, syncs what was acknowledged, and releases the folder.
    pub(crate) fn close(&self) -> Result<()> {
        self.inserts.drain();
        let synced = match self.stop_writes() {
            None => self.sync_log().map(|()| self.mark_closed()),
            Some(reason) => self.check_synced(&reason),
        };
        self.release();
        synced
    }

    /// The error at the end if writes were disabled before everything was synced that was acknowledged with
    /// [`Durability::Interval`](crate::Durability::Interval).
    fn check_synced(&self, reason: &Error) -> Result<()> {
        let log = self.log.lock();
        if log.writer.is_none() || log.synced_seq + 1 == log.next_seq {
            return Ok(());
        }
        let what = format!("what was acknowledged since the last sync of the log may be lost in a power cut: {reason}");
        Err(Error::new(Code::NotWritable, what))
    }

    /// Records the lengths of the log and the manifest, now that nothing more can be written to them.
    fn mark_closed(&self) {
        let (mut log, manifest) = (self.log.lock(), self.manifest.lock());
        let (Some(log), Some(manifest)) = (&mut log.writer, &*manifest) else { return };
        if let Err(error) = log.finish() {
            tracing::warn!(%error, "the close could not be marked: the log could not be cut to its end");
            return;
        }
        let marker = ShutdownMarker { identity: self.identity, manifest: manifest.end(), log: log.end() };
        if let Err(error) = marker.write(self.fs.as_ref(), &self.dir) {
            tracing::warn!(%error, "the close could not be marked: damage at the end of the log may look like a crash");
        }
    }

    /// Stops writes; returns why they were impossible before, if they were.
    fn stop_writes(&self) -> Option<Error> {
        let closed = || Error::new(Code::NotWritable, "the database was closed: open it again to write");
        let mut poison = self.poison.lock();
        let before = poison.clone();
        poison.get_or_insert_with(closed);
        before
    }

    /// Closes the door to writers and gives the folder free for others, as a crash would.
    pub(crate) fn release(&self) {
        let _reason = self.stop_writes();
        let folders: Vec<_> = self.state.read().folders().cloned().collect();
        folders.iter().for_each(|folder| folder.release());
        self.log.lock().writer = None;
        *self.manifest.lock() = None;
        *self.lock.lock() = None;
    }

    /// The archive of a time-series collection. Lock its `moving` before a change to rows that may be in transit to the archive.
    pub(crate) fn archiving(&self, name: &str) -> Result<Arc<ArchiveSlot>> {
        Ok(self.state.read().collection(name)?.archiving.clone())
    }

    /// Makes an edit durable, then visible.
    pub(crate) fn commit(&self, mut ops: Vec<Op>) -> Result<()> {
        let mut manifest = self.manifest.lock();
        self.check_primary();
        self.check_folder()?;
        self.check_writable()?; // Under the lock, so that a close does not record the manifest's length meanwhile.
        let writer = manifest.as_mut().ok_or_else(|| Error::internal("a writable database has a manifest"))?;
        {
            let state = self.state.read();
            crate::archive::gate::gate(&state, &mut ops)?;
            state.check_edit(&ops)?;
        }
        let mut appended = writer.append(&ops);
        let is_full = |e: &Error| e.code() == Code::OutOfDiskSpace;
        if appended.as_ref().is_err_and(Error::is_of_full_disk)
            && gives_space_back(&ops)
            && crate::reserve::spend(self.fs.as_ref(), &self.dir)
        {
            appended = writer.append(&ops);
        }
        // A wrong edit was not written either.
        let is_unwritten = |e: &Error| is_full(e) || e.code() == Code::InternalError;
        appended.map_err(|e| if is_unwritten(&e) { e } else { self.poison(&e) })?;
        self.check_folder()?;
        let changed = with_other_segments(&ops);
        let makes_indexes = ops.iter().any(|op| matches!(op, Op::PutDocuments(_)));
        let may_leave = crate::archive::gate::may_leave_places(&ops);
        let retired = {
            let mut state = self.state.write();
            for op in ops {
                state.apply(op).map_err(|e| self.poison(&e))?;
            }
            if makes_indexes {
                state.begin_usage(self.clock.now());
            }
            may_leave.into_iter().filter_map(|id| state.by_id(id)).for_each(|collection| collection.leave_places());
            state.take_retired()
        };
        changed.into_iter().for_each(|id| self.settle_folders(id));
        if writer.wants_checkpoint() {
            let checkpoint = self.state.read().checkpoint();
            if let Err(error) = writer.checkpoint(self.fs.as_ref(), &checkpoint) {
                // The edit itself is durable; on a full disk the old manifest stays in use.
                if error.code() != Code::OutOfDiskSpace {
                    return Err(self.poison(&error));
                }
                tracing::warn!(%error, "the manifest could not be rewritten");
            }
        }
        drop(manifest);
        drop(retired); // Unlinks what no snapshot holds, where no reader and no other edit waits for it.
        Ok(())
    }

    /// Removes the markers that other programs need no more, after the segments of a collection have changed.
    pub(crate) fn settle_folders(&self, collection: u64) {
        let (settled, outside) = {
            let state = self.state.read();
            let settled = state.by_id(collection).map(|c| (c.folder.clone(), c.types_differ()));
            let outside = state.folder.is_marked().then(|| (state.folder.clone(), state.has_old_segments()));
            (settled, outside)
        };
        settled.into_iter().chain(outside).for_each(|(folder, is_needed)| folder.settle(is_needed));
    }

    /// Whether it is time to seal open buckets, before writers have to wait for it.
    pub(crate) fn is_half_full(&self) -> bool {
        self.state.read().memtable_bytes() >= self.settings.memtable_bytes_max / 2
    }

    /// Whether writers have filled half of the remaining memory while the first half is sealed: soon they would have to wait.
    pub(crate) fn fills_faster_than_sealed(&self) -> bool {
        self.state.read().memtable_bytes() >= self.settings.memtable_bytes_max / 4 * 3
    }

    /// Syncs what was acknowledged but not synced yet, with [`Durability::Interval`](crate::Durability::Interval).
    pub(crate) fn sync_log(&self) -> Result<()> {
        let mut log = self.log.lock();
        if log.synced_seq + 1 == log.next_seq {
            return Ok(());
        }
        let last = log.next_seq - 1;
        let Some(writer) = log.writer.as_mut() else { return self.check_writable() };
        writer.sync().map_err(|e| self.poison(&e))?;
        self.check_folder()?;
        self.metrics.synced();
        log.synced_seq = last;
        log.last_sync = self.clock.monotonic();
        Ok(())
    }

    pub(crate) fn rotate_log_if_full(&self, log: &mut Log) -> Result<()> {
        match &log.writer {
            Some(writer) if writer.len() >= self.settings.wal_file_bytes_max => self.rotate_log(log),
            _ => Ok(()),
        }
    }

    /// Starts a new log file. The manifest names it before its first record, so that a lost log is noticed.
    fn rotate_log(&self, log: &mut Log) -> Result<()> {
        self.check_folder()?;
        if let Some(writer) = log.writer.as_mut()
            && (log.synced_seq + 1 < log.next_seq || writer.is_filled_ahead())
        {
            writer.finish().map_err(|e| self.poison(&e))?;
            self.metrics.synced();
            log.synced_seq = log.next_seq - 1;
        }
        let writer = LogWriter::create(self.fs.as_ref(), &self.dir, self.identity, log.next_seq)?;
        if let Err(error) = self.commit(vec![Op::AddLog { first_seq: log.next_seq }]) {
            if self.poisoned().is_none() {
                // No manifest names it, and on a full disk it would take up space.
                let path = writer.path.clone();
                drop(writer);
                let removed = self.fs.remove(&path);
                tracing::debug!(path = %path.display(), ?removed, "removed a log that the manifest could not name");
            }
            return Err(error);
        }
        log.writer = Some(writer);
        Ok(())
    }

    /// Keeps inserts out while the returned guard is held; `None` if an insert has suspended the expiry of a collection.
    pub(crate) fn log_unless_suspended(&self, collection: u64) -> Option<Guard<'_, Log>> {
        let log = self.log.lock();
        let state = self.state.read();
        let suspended = state.by_id(collection).is_none_or(|c| state.suspension_of(c).is_some());
        (!suspended).then_some(log)
    }

    /// The instant, unless the clock guard would hold a sweep.
    pub(crate) fn trusted_now(&self) -> Option<Timestamp> {
        let now = self.clock.now();
        self.sweeper.held(now, self.clock.monotonic()).is_none().then_some(now)
    }

    /// Like [`Engine::cut_log`], after a committed edit: on a full disk the log stays until there is room.
    pub(crate) fn cut_log_if_room(&self) -> Result<()> {
        match self.cut_log() {
            Err(error) if self.poisoned().is_none() => {
                tracing::warn!(%error, "the log could not be cut");
                Ok(())
            }
            cut => cut,
        }
    }

    /// Removes log files whose records are all sealed.
    pub(crate) fn cut_log(&self) -> Result<()> {
        let mut log = self.log.lock();
        let needed = self.state.read().first_needed_seq();
        let current = log.writer.as_ref().map(|w| (w.first_seq, w.len()));
        if let Some((_, len)) = current.filter(|(first, _)| needed >= log.next_seq && log.next_seq > *first)
            && len > wal::HEADER_BYTES as u64
        {
            match self.rotate_log(&mut log) {
                // The log files before it can be removed all the same, which makes room.
                Err(error) if error.code() == Code::OutOfDiskSpace => {
                    tracing::warn!(%error, "the log could not be rotated")
                }
                rotated => rotated?,
            }
        }
        let current = log.writer.as_ref().map_or(0, |w| w.first_seq);
        let gone: Vec<u64> = {
            let state = self.state.read();
            let logs: Vec<u64> = state.logs.iter().copied().collect();
            let whole = logs.windows(2).filter(|pair| pair[1] <= needed).map(|pair| pair[0]);
            whole.filter(|first| *first != current).collect()
        };
        if gone.is_empty() {
            return Ok(());
        }
        self.commit(gone.iter().map(|first_seq| Op::RemoveLog { first_seq: *first_seq }).collect())?;
        for first_seq in gone {
            let path = FileName::Log(first_seq).path(&self.dir);
            self.fs.remove(&path).map_err(|e| Error::io("remove the sealed log", &path, &e))?;
        }
        Ok(())
    }
}

impl Drop for Engine {
    /// Syncs what was acknowledged but not synced yet: nothing else will. In a forked child the database is its parent's, and threads
    /// that hold locks there do not exist.
    fn drop(&mut self) {
        if self.is_in_fork() {
            return;
        }
        if let Err(error) = self.close() {
            tracing::error!(%error, "the last inserts may not survive a power cut");
        }
    }
}

/// `_id`s that no other process makes. They need not be unpredictable.
fn object_ids() -> ObjectIds {
    use std::hash::{BuildHasher, Hasher};
    // `RandomState` is seeded by the operating system.
    let [a, b, c, d, e, rest @ ..] = std::hash::RandomState::new().build_hasher().finish().to_le_bytes();
    ObjectIds::new([a, b, c, d, e], u32::from_le_bytes([rest[0], rest[1], rest[2], 0]))
}

/// Whether an edit frees space and names nothing new: on a full disk it may use the reserve.
fn gives_space_back(ops: &[Op]) -> bool {
    let frees = |op: &Op| {
        matches!(op, Op::RemoveSegment { .. } | Op::DropCollection { .. } | Op::RemoveLog { .. } | Op::Sealed { .. })
    };
    let grows = |op: &Op| matches!(op, Op::AddSegment { .. } | Op::PutCollection(_) | Op::AddLog { .. });
    ops.iter().any(frees) && !ops.iter().any(grows)
}

/// The collections of which an edit adds or removes segments.
fn with_other_segments(ops: &[Op]) -> BTreeSet<u64> {
    let changed = |op: &Op| match op {
        Op::AddSegmentInFolder { collection, .. } | Op::RemoveSegment { collection, .. } => Some(*collection),
        Op::DropCollection { id } => Some(*id),
        _ => None,
    };
    ops.iter().filter_map(changed).collect()
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("dir", &self.dir).field("read_only", &self.read_only).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
