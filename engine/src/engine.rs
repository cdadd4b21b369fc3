//! The engine's heart: the locks, the log, and how every change but an insert goes through the manifest.
//!
//! Locks are taken in the order of [`Rank`]. Readers take `state` for the moment of copying a few pointers, never across I/O.

use crate::clean_shutdown::ShutdownMarker;
use crate::error::{Error, Result};
use crate::files::FileName;
use crate::fs::{FileLock, Fs};
use crate::insert::queue::InsertQueue;
use crate::maintenance::Maintenance;
use crate::manifest::{ManifestWriter, Op};
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::sweep::sweeper::Sweeper;
use crate::sync::{Mutex, Ordered, Rank, RwLock};
use crate::wal::{self, LogWriter};
use ebbtide_ttl::{Clock, Code, Timestamp};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The log as its one writer sees it.
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
    /// Tells the background that open buckets have grown to half of what they may.
    pub(crate) half_full: Arc<tokio::sync::Notify>,
    poison: Mutex<Option<Error>>,
    lock: Mutex<Option<Box<dyn FileLock>>>,
}

/// What opening a database hands over.
pub(crate) struct OpenState {
    pub(crate) identity: [u8; 16],
    pub(crate) state: State,
    pub(crate) next_seq: u64,
    pub(crate) log: Option<LogWriter>,
    pub(crate) manifest: Option<ManifestWriter>,
    pub(crate) lock: Option<Box<dyn FileLock>>,
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
        let sweeper = Sweeper::new(clock.now(), clock.monotonic());
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
            poison: Mutex::new(None),
            lock: Mutex::new(opened.lock),
        }
    }

    /// What is there now, at the clock's instant. The clock is read last: what a sweep dropped before had expired then.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let taken = Snapshot::take(&self.state.read(), Timestamp::EPOCH);
        taken.at(self.clock.now())
    }

    /// Refuses to write on: the state on disk is no longer known. Reads go on from what is in memory.
    pub(crate) fn poison(&self, cause: &Error) -> Error {
        let error = Error::new(
            Code::NotWritable,
            format!("{cause}; nothing is written any more: open the database again and look what is there"),
        );
        tracing::error!(%cause, "writing stopped");
        self.poison.lock().get_or_insert_with(|| error.clone());
        error
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only {
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

    /// Ends all writing in good order: whoever waits is answered, what was acknowledged is synced, and the folder is free.
    pub(crate) fn close(&self) -> Result<()> {
        self.inserts.drain();
        let synced = if self.bar() { self.sync_log().map(|()| self.mark_closed()) } else { Ok(()) };
        self.shut();
        synced
    }

    /// Leaves word how long the log and the manifest are, now that nothing more can be written to them.
    fn mark_closed(&self) {
        let (log, manifest) = (self.log.lock(), self.manifest.lock());
        let (Some(log), Some(manifest)) = (&log.writer, &*manifest) else { return };
        let marker = ShutdownMarker { identity: self.identity, manifest: manifest.end(), log: log.end() };
        if let Err(error) = marker.write(self.fs.as_ref(), &self.dir) {
            tracing::warn!(%error, "the close could not be marked: damage at the end of the log may look like a crash");
        }
    }

    /// Closes the door to writers; says whether it was open.
    fn bar(&self) -> bool {
        let closed = || Error::new(Code::NotWritable, "the database was closed: open it again to write");
        let mut poison = self.poison.lock();
        let open = poison.is_none();
        poison.get_or_insert_with(closed);
        open
    }

    /// Closes the door to writers and gives the folder free for others, as a crash would.
    pub(crate) fn shut(&self) {
        self.bar();
        let folders: Vec<_> = self.state.read().folders().cloned().collect();
        folders.iter().for_each(|folder| folder.release());
        self.log.lock().writer = None;
        *self.manifest.lock() = None;
        *self.lock.lock() = None;
    }

    /// Makes an edit durable, then visible.
    pub(crate) fn commit(&self, ops: Vec<Op>) -> Result<()> {
        let mut manifest = self.manifest.lock();
        self.check_writable()?; // Not before: a close that marks where the manifest ends comes before or after.
        let writer = manifest.as_mut().ok_or_else(|| Error::internal("a writable database has a manifest"))?;
        self.state.read().check_edit(&ops)?;
        let mut appended = writer.append(&ops);
        let is_full = |e: &Error| e.code() == Code::OutOfDiskSpace;
        if appended.as_ref().is_err_and(is_full)
            && gives_space_back(&ops)
            && crate::reserve::spend(self.fs.as_ref(), &self.dir)
        {
            appended = writer.append(&ops);
        }
        // A wrong edit was not written either.
        let is_unwritten = |e: &Error| is_full(e) || e.code() == Code::InternalError;
        appended.map_err(|e| if is_unwritten(&e) { e } else { self.poison(&e) })?;
        let changed = with_other_segments(&ops);
        let retired = {
            let mut state = self.state.write();
            for op in ops {
                state.apply(op).map_err(|e| self.poison(&e))?;
            }
            state.take_retired()
        };
        changed.into_iter().for_each(|id| self.settle_folders(id));
        if writer.wants_checkpoint() {
            let checkpoint = self.state.read().checkpoint();
            if let Err(error) = writer.checkpoint(self.fs.as_ref(), &checkpoint) {
                // The edit itself is durable; the old manifest goes on if the disk is merely full.
                if error.code() != Code::OutOfDiskSpace {
                    return Err(self.poison(&error));
                }
                tracing::warn!(%error, "the manifest could not be written anew");
            }
        }
        drop(manifest);
        drop(retired); // What no snapshot holds is unlinked here, where no reader and no other edit waits for it.
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

    /// Whether writers have added half of what they may while the first half is sealed: they would wait for it soon.
    pub(crate) fn fills_faster_than_sealed(&self) -> bool {
        self.state.read().memtable_bytes() >= self.settings.memtable_bytes_max / 4 * 3
    }

    /// Makes what is acknowledged durable where the durability is an interval.
    pub(crate) fn sync_log(&self) -> Result<()> {
        let mut log = self.log.lock();
        if log.synced_seq + 1 == log.next_seq {
            return Ok(());
        }
        let last = log.next_seq - 1;
        let Some(writer) = log.writer.as_mut() else { return self.check_writable() };
        writer.sync().map_err(|e| self.poison(&e))?;
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

    /// Goes on in a new log file. The manifest knows of it before the first record: a lost one is noticed.
    fn rotate_log(&self, log: &mut Log) -> Result<()> {
        if let Some(writer) = log.writer.as_mut()
            && log.synced_seq + 1 < log.next_seq
        {
            writer.sync().map_err(|e| self.poison(&e))?;
            self.metrics.synced();
            log.synced_seq = log.next_seq - 1;
        }
        let writer = LogWriter::create(self.fs.as_ref(), &self.dir, self.identity, log.next_seq)?;
        self.commit(vec![Op::AddLog { first_seq: log.next_seq }])?;
        log.writer = Some(writer);
        Ok(())
    }

    /// Like [`Engine::cut_log`], after an edit that is done: on a full disk the log stays until there is room.
    pub(crate) fn cut_log_if_room(&self) -> Result<()> {
        match self.cut_log() {
            Err(error) if self.poisoned().is_none() => {
                tracing::warn!(%error, "the log could not be cut");
                Ok(())
            }
            cut => cut,
        }
    }

    /// Removes log files of which every record is sealed.
    pub(crate) fn cut_log(&self) -> Result<()> {
        let mut log = self.log.lock();
        let needed = self.state.read().first_needed_seq();
        let current = log.writer.as_ref().map(|w| (w.first_seq, w.len()));
        if let Some((_, len)) = current.filter(|(first, _)| needed >= log.next_seq && log.next_seq > *first)
            && len > wal::HEADER_BYTES as u64
        {
            match self.rotate_log(&mut log) {
                // Those before it can go all the same, and make room.
                Err(error) if error.code() == Code::OutOfDiskSpace => tracing::warn!(%error, "the log goes on"),
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
    /// Nobody is left to sync what was acknowledged at an interval.
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the last inserts may not survive a power cut");
        }
    }
}

/// Whether an edit names nothing new: on a full disk it may use the reserve, since space comes back by it.
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
