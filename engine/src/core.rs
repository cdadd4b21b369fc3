//! The engine's heart: how an insert becomes durable and visible, and how every other change goes through the manifest.
//!
//! Order of locks: `maintenance`, `queue`, `log`, `manifest`, `state`. A later one is never held while an earlier one
//! is taken. Readers take `state` for the moment of copying a few pointers, never across I/O.

use crate::closed::Mark;
use crate::error::{Error, Result};
use crate::fs::{FileLock, Fs};
use crate::maintenance::Maintenance;
use crate::manifest::{ManifestWriter, Op};
use crate::metrics::Metrics;
use crate::settings::{Durability, Settings};
use crate::state::{CollectionState, State};
use crate::sweep::Sweeper;
use crate::sync::{Condvar, Mutex, MutexGuard, RwLock};
use crate::wal::{self, LogWriter};
use ebbtide_buckets::{Accepted, BATCH_BYTES_MAX, Chunk, META_BYTES_MAX, Schema, compact_views};
use ebbtide_ttl::{Clock, Code, OutOfRange, Timestamp};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// An insert that waits for its turn in the log.
struct Pending {
    ticket: u64,
    collection: u64,
    payload: Vec<u8>,
    crc: u32,
    chunk: Chunk,
    schema: Arc<Schema>,
    /// The width of its windows.
    span: i64,
}

/// Inserts between validation and visibility.
#[derive(Default)]
pub(crate) struct Queue {
    pending: Vec<Pending>,
    next_ticket: u64,
    /// Every ticket up to this one is decided; those that failed are in `failed`.
    done: u64,
    failed: HashMap<u64, Error>,
    /// Whether some thread is writing what was queued.
    leader: bool,
    /// Whether some insert waits until nothing is queued: nothing more may be, or it would wait for ever.
    widening: bool,
    /// Schemas with the effect of queued inserts, where it differs from what is visible.
    schemas: HashMap<u64, Arc<Schema>>,
}

/// The log as its one writer sees it.
pub(crate) struct Log {
    pub(crate) writer: Option<LogWriter>,
    pub(crate) next_seq: u64,
    pub(crate) synced_seq: u64,
    last_sync: Duration,
}

pub(crate) struct Core {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dir: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) identity: [u8; 16],
    pub(crate) read_only: bool,
    pub(crate) maintenance: Maintenance,
    queue: Mutex<Queue>,
    decided: Condvar,
    pub(crate) log: Mutex<Log>,
    pub(crate) manifest: Mutex<Option<ManifestWriter>>,
    pub(crate) state: RwLock<State>,
    pub(crate) sweeper: Sweeper,
    pub(crate) metrics: Metrics,
    /// Tells the background that open buckets have grown to half of what they may.
    pub(crate) half_full: Arc<tokio::sync::Notify>,
    poison: Mutex<Option<Error>>,
    lock: Mutex<Option<Box<dyn FileLock>>>,
}

/// What opening a database hands over.
pub(crate) struct Opened {
    pub(crate) identity: [u8; 16],
    pub(crate) state: State,
    pub(crate) next_seq: u64,
    pub(crate) log: Option<LogWriter>,
    pub(crate) manifest: Option<ManifestWriter>,
    pub(crate) lock: Option<Box<dyn FileLock>>,
}

impl Core {
    pub(crate) fn new(
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        dir: PathBuf,
        settings: Settings,
        read_only: bool,
        opened: Opened,
    ) -> Self {
        let sweeper = Sweeper::new(clock.now(), clock.monotonic());
        let log = Log {
            writer: opened.log,
            next_seq: opened.next_seq,
            synced_seq: opened.next_seq - 1,
            last_sync: clock.monotonic(),
        };
        Core {
            fs,
            clock,
            dir,
            settings,
            identity: opened.identity,
            read_only,
            maintenance: Maintenance::new(),
            queue: Mutex::new(Queue::default()),
            decided: Condvar::new(),
            log: Mutex::new(log),
            manifest: Mutex::new(opened.manifest),
            state: RwLock::new(opened.state),
            sweeper,
            metrics: Metrics::default(),
            half_full: Arc::default(),
            poison: Mutex::new(None),
            lock: Mutex::new(opened.lock),
        }
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
        self.drain();
        let synced = if self.bar() { self.sync_log().map(|()| self.mark_closed()) } else { Ok(()) };
        self.shut();
        synced
    }

    /// Leaves word how long the log and the manifest are, now that nothing more can be written to them.
    fn mark_closed(&self) {
        let (log, manifest) = (self.log.lock(), self.manifest.lock());
        let (Some(log), Some(manifest)) = (&log.writer, &*manifest) else { return };
        let mark = Mark { identity: self.identity, manifest: manifest.ended(), log: log.ended() };
        if let Err(error) = mark.leave(self.fs.as_ref(), &self.dir) {
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
        self.log.lock().writer = None;
        *self.manifest.lock() = None;
        *self.lock.lock() = None;
    }

    /// Makes an edit durable, then visible.
    pub(crate) fn commit(&self, ops: Vec<Op>) -> Result<()> {
        let mut manifest = self.manifest.lock();
        self.check_writable()?; // Not before: a close that marks where the manifest ends comes before or after.
        let writer = manifest.as_mut().ok_or_else(|| Error::internal("a writable database has a manifest"))?;
        let mut appended = writer.append(&ops);
        let is_full = |e: &Error| e.code() == Code::OutOfDiskSpace;
        if appended.as_ref().is_err_and(is_full)
            && gives_space_back(&ops)
            && crate::reserve::spend(self.fs.as_ref(), &self.dir)
        {
            appended = writer.append(&ops);
        }
        appended.map_err(|e| if is_full(&e) { e } else { self.poison(&e) })?;
        let retired = {
            let mut state = self.state.write();
            for op in ops {
                state.apply(op).map_err(|e| self.poison(&e))?;
            }
            state.take_retired()
        };
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

    /// What `build` makes under the newest schema; `None` without rows. Whether fields may widen is still to be checked.
    fn validate(&self, name: &str, build: &dyn Fn(&Schema) -> Result<Accepted>) -> Result<Option<Validated>> {
        let (collection, applied) = {
            let state = self.state.read();
            let collection = state.collection(name)?;
            (collection.clone(), collection.schema.clone())
        };
        let newest = self.queue.lock().schemas.get(&collection.id).cloned().unwrap_or(applied);
        let accepted = build(&newest)?;
        if accepted.batch.num_rows() == 0 {
            return Ok(None);
        }
        let schema = if accepted.schema == *newest { newest.clone() } else { Arc::new(accepted.schema) };
        let batch = compact_views(accepted.batch)?;
        let span = collection.options.bucketing.span_seconds();
        let chunk = Chunk::build(batch, &schema, span);
        check_size(&chunk)?;
        check_metas(&chunk)?;
        if collection.options.out_of_range == OutOfRange::Reject {
            refuse_out_of_range(&chunk, &collection.options)?;
        }
        Ok(Some(Validated { collection, newest, schema, chunk, span }))
    }

    /// Refuses what [`Core::insert`] would refuse; nothing is stored.
    pub(crate) fn check(&self, name: &str, build: &dyn Fn(&Schema) -> Result<Accepted>) -> Result<()> {
        let Some(found) = self.validate(name, build)? else { return Ok(()) };
        let widens = widened(&found.newest, &found.schema);
        if widens.is_empty() {
            return Ok(());
        }
        crate::snapshot::check_widening(self, name, &widens, &found.chunk.batch, &mut BTreeSet::new())
    }

    /// Stores one atomic batch: validated by `build` under the newest schema, logged, visible, in this order.
    pub(crate) fn insert(&self, name: &str, build: &dyn Fn(&Schema) -> Result<Accepted>) -> Result<u64> {
        let _span = tracing::debug_span!("insert", collection = name).entered();
        self.check_writable()?;
        self.make_room()?;
        loop {
            let Some(found) = self.validate(name, build)? else { return Ok(0) };
            let Validated { collection, newest, schema, chunk, span } = found;
            let rows = chunk.batch.num_rows() as u64;
            let payload = wal::encode_payload(&chunk.batch)?;
            wal::check_payload(&payload)?;
            let crc = crc32fast::hash(&payload);

            let widens = widened(&newest, &schema);
            let mut looked = BTreeSet::new();
            if !widens.is_empty() {
                // Most of what is stored is read here, where nobody waits for it.
                crate::snapshot::check_widening(self, name, &widens, &chunk.batch, &mut looked)?;
            }
            let mut queue = self.queue.lock();
            while queue.widening {
                self.decided.wait(&mut queue);
            }
            if !widens.is_empty() {
                // Nothing may be on its way to the fields that are about to lose their whole numbers.
                queue.widening = true;
                while queue.leader || !queue.pending.is_empty() {
                    self.decided.wait(&mut queue);
                }
                queue.widening = false;
                self.decided.notify_all();
            }
            let current = {
                let state = self.state.read();
                match state.collection(name) {
                    Ok(now) if now.id == collection.id => {
                        queue.schemas.get(&now.id).cloned().unwrap_or_else(|| now.schema.clone())
                    }
                    _ => return Err(Error::no_collection(name)),
                }
            };
            if !Arc::ptr_eq(&current, &newest) && *current != *newest {
                continue;
            }
            if !widens.is_empty() {
                crate::snapshot::check_widening(self, name, &widens, &chunk.batch, &mut looked)?;
            }
            self.check_writable()?;
            queue.next_ticket += 1;
            let ticket = queue.next_ticket;
            if !Arc::ptr_eq(&schema, &newest) {
                queue.schemas.insert(collection.id, schema.clone());
            }
            queue.pending.push(Pending { ticket, collection: collection.id, payload, crc, chunk, schema, span });
            self.wait_for(queue, ticket)?;
            return Ok(rows);
        }
    }

    /// Waits until `ticket` is decided; whoever finds no leader leads.
    fn wait_for<'a>(&'a self, mut queue: MutexGuard<'a, Queue>, ticket: u64) -> Result<()> {
        loop {
            if queue.done >= ticket {
                return queue.failed.remove(&ticket).map_or(Ok(()), Err);
            }
            if queue.leader {
                self.decided.wait(&mut queue);
                continue;
            }
            queue.leader = true;
            let group = std::mem::take(&mut queue.pending);
            drop(queue);
            let last = group.last().map_or(0, |p| p.ticket);
            let tickets: Vec<u64> = group.iter().map(|p| p.ticket).collect();
            let mut leading = Leading { core: self, tickets: tickets.clone(), done: false };
            let outcome = self.write_group(group);
            leading.done = true;
            drop(leading);
            queue = self.queue.lock();
            queue.leader = false;
            queue.done = queue.done.max(last);
            match outcome {
                Ok(()) => self.forget_applied_schemas(&mut queue),
                Err(error) => self.fail(&mut queue, tickets, &error),
            }
            self.decided.notify_all();
        }
    }

    /// A failed group takes with it what was validated on top of it: their schemas may never have come to be.
    fn fail(&self, queue: &mut Queue, mut tickets: Vec<u64>, error: &Error) {
        let queued = std::mem::take(&mut queue.pending);
        tickets.extend(queued.iter().map(|p| p.ticket));
        queue.done = queue.done.max(tickets.last().copied().unwrap_or(0));
        queue.failed.extend(tickets.into_iter().map(|ticket| (ticket, error.clone())));
        queue.schemas.clear();
    }

    fn forget_applied_schemas(&self, queue: &mut Queue) {
        if queue.pending.is_empty() {
            queue.schemas.clear();
        }
    }

    /// Writes a group of inserts to the log with one sync, then makes them visible.
    fn write_group(&self, group: Vec<Pending>) -> Result<()> {
        let mut log = self.log.lock();
        self.check_writable()?;
        self.rotate_log_if_full(&mut log)?;
        let (first_seq, synced_seq) = (log.next_seq, log.synced_seq);
        let no_log = || Error::internal("a writable database has a log");
        let place = log.writer.as_ref().ok_or_else(no_log)?.place();
        let mut frames = Vec::with_capacity(group.iter().map(|p| p.payload.len() + 64).sum());
        for (seq, pending) in (first_seq..).zip(&group) {
            let record = wal::Record { seq, collection: pending.collection, synced_seq };
            wal::put_frame(&mut frames, place, record, &pending.payload, pending.crc);
        }
        let last_seq = first_seq + group.len() as u64 - 1;
        let now = self.clock.monotonic();
        let due = match self.settings.durability {
            Durability::Sync => true,
            Durability::Interval(interval) => now.saturating_sub(log.last_sync) >= interval,
        };
        let writer = log.writer.as_mut().ok_or_else(no_log)?;
        let before = writer.len();
        if let Err(error) = writer.append(&frames) {
            return Err(match writer.cut_back(before) {
                Ok(()) => error,
                Err(_) => self.poison(&error),
            });
        }
        self.metrics.logged(frames.len() as u64);
        if due {
            writer.sync().map_err(|e| self.poison(&e))?;
            self.metrics.synced();
            log.synced_seq = last_seq;
            log.last_sync = now;
        }
        log.next_seq = last_seq + 1;
        let mut state = self.state.write();
        for (seq, pending) in (first_seq..).zip(group) {
            state.applied_seq = seq;
            // A collection that was dropped meanwhile: the insert came before the drop.
            let Some(collection) = state.by_id_mut(pending.collection) else { continue };
            let span = collection.options.bucketing.span_seconds();
            collection.schema = pending.schema;
            let schema = collection.schema.clone();
            let chunk = match pending.span == span {
                true => pending.chunk,
                false => Chunk::build(pending.chunk.batch, &schema, span), // The span grew since it was queued.
            };
            self.metrics.inserted(chunk.batch.num_rows() as u64);
            let pushed = collection.memtable.push(Arc::new(chunk), seq, (&schema, span));
            pushed.map_err(|e| self.poison(&e))?;
        }
        drop(state);
        if self.is_half_full() {
            self.half_full.notify_one();
        }
        Ok(())
    }

    /// Whether it is time to seal open buckets, before writers have to wait for it.
    pub(crate) fn is_half_full(&self) -> bool {
        self.state.read().memtable_bytes() >= self.settings.memtable_bytes_max / 2
    }

    /// Whether writers have added half of what they may while the first half is sealed: they would wait for it soon.
    pub(crate) fn fills_faster_than_sealed(&self) -> bool {
        self.state.read().memtable_bytes() >= self.settings.memtable_bytes_max / 4 * 3
    }

    /// Waits until every insert that is queued now is decided; others may come, and are not waited for.
    fn drain(&self) {
        let mut queue = self.queue.lock();
        let last = queue.next_ticket;
        while queue.done < last {
            self.decided.wait(&mut queue);
        }
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

    fn rotate_log_if_full(&self, log: &mut Log) -> Result<()> {
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

    /// Like [`Core::cut_log`], after an edit that is done: on a full disk the log stays until there is room.
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
            let path = self.dir.join(wal::file_name(first_seq));
            self.fs.remove(&path).map_err(|e| Error::io("remove the sealed log", &path, &e))?;
        }
        Ok(())
    }

    /// Seals open buckets when they have outgrown their budget: the writer that meets a full budget does the work.
    fn make_room(&self) -> Result<()> {
        if self.state.read().memtable_bytes() < self.settings.memtable_bytes_max {
            return Ok(());
        }
        let guard = self.maintenance.lock();
        if self.state.read().memtable_bytes() < self.settings.memtable_bytes_max {
            return Ok(());
        }
        crate::seal::flush(self, &guard, None)
    }
}

impl Drop for Core {
    /// Nobody is left to sync what was acknowledged at an interval.
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the last inserts may not survive a power cut");
        }
    }
}

/// The thread that writes for all that wait. Should it panic, the others must not wait for ever.
struct Leading<'a> {
    core: &'a Core,
    tickets: Vec<u64>,
    done: bool,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let error = self.core.poison(&Error::internal("the thread that wrote the log panicked"));
        let mut queue = self.core.queue.lock();
        queue.leader = false;
        self.core.fail(&mut queue, std::mem::take(&mut self.tickets), &error);
        self.core.decided.notify_all();
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

/// Fields that turn from whole numbers to floating point, by path.
fn widened(old: &Schema, new: &Schema) -> Vec<String> {
    if std::ptr::eq(old, new) { Vec::new() } else { ebbtide_buckets::widened_fields(old, new) }
}

/// Checks what the columns of one insert take in memory.
fn check_size(chunk: &Chunk) -> Result<()> {
    let bytes = ebbtide_buckets::batch_bytes(&chunk.batch);
    if bytes <= BATCH_BYTES_MAX {
        return Ok(());
    }
    let what = format!("one insert of {bytes} bytes is more than {BATCH_BYTES_MAX}: split it into several");
    Err(Error::new(Code::BSONObjectTooLarge, what))
}

fn check_metas(chunk: &Chunk) -> Result<()> {
    let Some(bucket) = chunk.buckets.iter().find(|b| b.id.meta.as_bytes().len() > META_BYTES_MAX) else {
        return Ok(());
    };
    let index = bucket.rows.iter().min().map_or(0, |row| *row as usize);
    let what = format!(
        "index {index}: the meta takes {} bytes, {META_BYTES_MAX} are allowed: a meta names a series, data belongs into fields",
        bucket.id.meta.as_bytes().len()
    );
    Err(Error::new(Code::BSONObjectTooLarge, what).with_index(index))
}

/// Measurements that may be stored under `schema`, as far as they themselves can tell.
struct Validated {
    collection: Arc<CollectionState>,
    newest: Arc<Schema>,
    schema: Arc<Schema>,
    chunk: Chunk,
    span: i64,
}

fn refuse_out_of_range(chunk: &Chunk, options: &crate::options::CollectionOptions) -> Result<()> {
    let times = ebbtide_buckets::times(&chunk.batch)?;
    let found = times.iter().enumerate().find(|(_, t)| !ebbtide_ttl::in_range(**t, options.precision));
    found.map_or(Ok(()), |(index, t)| Err(out_of_range(index, Timestamp::from_units(*t, options.precision))))
}

/// The error about a measurement that `outOfRange: reject` refuses.
pub(crate) fn out_of_range(index: usize, at: Timestamp) -> Error {
    let what = format!(
        "index {index}: the time {at} lies outside of 1970-01-01T00:00:00Z to 2038-01-19T03:14:08Z, which the \
         collection's outOfRange = reject refuses"
    );
    Error::new(Code::BadValue, what).with_index(index)
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("dir", &self.dir).field("read_only", &self.read_only).finish_non_exhaustive()
    }
}
