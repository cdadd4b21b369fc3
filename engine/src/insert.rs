//! Inserts: validated under the newest schema, queued, written to the log together with everything else that is queued, and
//! then added to the memtable. The first waiting thread that finds no leader writes for all.

pub(crate) mod queue;
mod widen;

use crate::batch_id::BatchId;
use crate::documents::changes;
use crate::documents::state::DocumentsState;
use crate::documents::transaction::Transaction;
use crate::engine::{Engine, Log};
use crate::error::{Error, Result};
use crate::options::CollectionOptions;
use crate::settings::Durability;
use crate::state::CollectionState;
use crate::sync::{Guard, Mutex};
use crate::wal;
use ebbtide_buckets::{Accepted, BATCH_BYTES_MAX, Chunk, META_BYTES_MAX, Schema, compact_views};
use ebbtide_ttl::{Code, OutOfRange, Timestamp};
use queue::{Evaluate, Pending, Queue, Rows, Ticket, Work};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use widen::check_widening;

impl Engine {
    /// The submission that `build` makes under the newest schema; `None` without rows. Whether fields may widen is not checked.
    fn validate(&self, name: &str, build: &dyn Fn(&Schema) -> Result<Accepted>) -> Result<Option<Submission>> {
        let (collection, applied) = {
            let state = self.state.read();
            let collection = state.collection(name)?;
            (collection.clone(), collection.schema.clone())
        };
        let newest = self.inserts.lock().schemas.get(&collection.id).cloned().unwrap_or(applied);
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
        Ok(Some(Submission { collection, newest, schema, chunk, span }))
    }

    /// Refuses what [`Engine::insert`] would refuse, and stores nothing.
    pub(crate) fn check(&self, name: &str, build: &dyn Fn(&Schema) -> Result<Accepted>) -> Result<()> {
        let Some(found) = self.validate(name, build)? else { return Ok(()) };
        let widens = widened(&found.newest, &found.schema);
        if widens.is_empty() {
            return Ok(());
        }
        check_widening(self, name, &widens, &found.chunk.batch, &mut BTreeSet::new())
    }

    /// Stores one atomic batch: validated by `build` under the newest schema, logged, visible, in this order.
    pub(crate) fn insert(
        &self,
        name: &str,
        batch_id: Option<BatchId>,
        build: &dyn Fn(&Schema) -> Result<Accepted>,
    ) -> Result<u64> {
        let _span = tracing::debug_span!("insert", collection = name).entered();
        self.check_writable()?;
        self.make_room()?;
        loop {
            let Some(found) = self.validate(name, build)? else { return Ok(0) };
            let Submission { collection, newest, schema, chunk, span } = found;
            let rows = chunk.batch.num_rows() as u64;
            let payload = wal::encode_payload(&chunk.batch, batch_id)?;
            wal::check_payload(&payload)?;
            let crc = crc32fast::hash(&payload);

            let widens = widened(&newest, &schema);
            let mut looked = BTreeSet::new();
            if !widens.is_empty() {
                // Reads most of what is stored before the queue is locked, so that no other insert waits for it.
                check_widening(self, name, &widens, &chunk.batch, &mut looked)?;
            }
            let mut queue = self.inserts.lock();
            self.inserts.wait_for_others(&mut queue);
            if !widens.is_empty() {
                // No queued insert may still bring whole numbers to the fields that become floating point.
                self.inserts.wait_until_empty(&mut queue);
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
                check_widening(self, name, &widens, &chunk.batch, &mut looked)?;
            }
            self.check_writable()?;
            if !Arc::ptr_eq(&schema, &newest) {
                queue.schemas.insert(collection.id, schema.clone());
            }
            let collection = collection.id;
            let work = Work::Rows(Rows { batch_id, payload, crc, chunk, schema, span });
            let ticket = queue.push(collection, work);
            self.wait_for(queue, &ticket)?;
            return Ok(rows);
        }
    }

    /// Runs a command on an ordinary collection: all that it does is one record of the log, durable when this returns. After an
    /// error of `evaluate` it has done nothing.
    pub(crate) fn write_documents<T: Send + 'static>(
        &self,
        name: &str,
        evaluate: impl FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let _span = tracing::debug_span!("write", collection = name).entered();
        self.check_writable()?;
        self.make_room()?;
        let collection = self.state.read().documents(name)?.id;
        let reply = Arc::new(Mutex::new(None));
        let filled = reply.clone();
        let work = Work::Documents(Box::new(move |transaction: &mut Transaction<'_>| {
            let outcome = evaluate(transaction)?;
            *filled.lock() = Some(outcome);
            Ok(())
        }));
        let mut queue = self.inserts.lock();
        self.inserts.wait_for_others(&mut queue);
        self.check_writable()?;
        let ticket = queue.push(collection, work);
        self.wait_for(queue, &ticket)?;
        let outcome = reply.lock().take();
        outcome.ok_or_else(|| Error::internal("a command was decided without being evaluated"))
    }

    /// Waits until a command is decided; becomes the leader if there is none.
    pub(crate) fn wait_for<'a>(&'a self, mut queue: Guard<'a, Queue>, ticket: &Ticket) -> Result<()> {
        loop {
            if queue.done >= ticket.number {
                return queue.failed.remove(&ticket.number).map_or(Ok(()), Err);
            }
            if !queue.leader {
                return self.lead(queue, ticket);
            }
            self.inserts.wait_for_turn(&mut queue, ticket);
        }
    }

    /// Writes what is queued, which includes the command of `ticket`, for all who wait; returns what became of that command.
    fn lead<'a>(&'a self, mut queue: Guard<'a, Queue>, ticket: &Ticket) -> Result<()> {
        queue.leader = true;
        let group = self.inserts.gather(queue);
        let tickets = group.iter().map(|pending| pending.ticket.clone()).collect();
        let mut guard = LeaderGuard { engine: self, tickets };
        let outcome = self.write_group(group);
        let mut tickets = std::mem::take(&mut guard.tickets);
        drop(guard);
        let mut queue = self.inserts.lock();
        queue.leader = false;
        match outcome {
            Ok(refused) => {
                queue.done = queue.done.max(tickets.last().map_or(0, |ticket| ticket.number));
                queue.failed.extend(refused);
                queue.forget_applied_schemas();
            }
            Err(error) => queue.fail(&mut tickets, &error),
        }
        let outcome = queue.failed.remove(&ticket.number).map_or(Ok(()), Err);
        self.inserts.decided(queue, &tickets);
        outcome
    }

    /// Writes a group of commands to the log with one sync, then makes them visible. Returns the tickets of those that were
    /// refused, and why.
    fn write_group(&self, group: Vec<Pending>) -> Result<Vec<(u64, Error)>> {
        let mut log = self.log.lock();
        self.check_writable()?;
        self.rotate_log_if_full(&mut log)?;
        let group = self.evaluate(&log, group)?;
        if group.applied.is_empty() {
            return Ok(group.refused);
        }
        self.append(&mut log, &group)?;
        let mut state = self.state.write();
        for (seq, collection, rows) in group.applied {
            state.applied_seq = seq;
            let Some(rows) = rows else { continue };
            // If the collection was dropped meanwhile, the insert counts as before the drop.
            let Some(collection) = state.by_id_mut(collection) else { continue };
            self.metrics.inserted(rows.chunk.batch.num_rows() as u64);
            add_rows(collection, seq, rows).map_err(|e| self.poison(&e))?;
        }
        for (id, copy) in group.documents {
            if let Some(documents) = state.documents_by_id_mut(id) {
                documents.memtable = copy.memtable;
                documents.columns = copy.columns;
            }
        }
        drop(state);
        if self.is_half_full() {
            self.half_full.notify_one();
        }
        Ok(group.refused)
    }

    /// Evaluates the commands on documents, each on what those before it have done, and makes the records of all.
    fn evaluate(&self, log: &Log, pending: Vec<Pending>) -> Result<Group> {
        let (mut seq, synced_seq) = (log.next_seq, log.synced_seq);
        let no_log = || Error::internal("a writable database has a log");
        let place = log.writer.as_ref().ok_or_else(no_log)?.place();
        let mut group = Group::default();
        for Pending { ticket, collection, work } in pending {
            let record = wal::Record { seq, collection, synced_seq };
            match work {
                Work::Rows(rows) => {
                    wal::put_frame(&mut group.frames, place, record, &rows.payload, rows.crc);
                    group.applied.push((seq, collection, Some(rows)));
                    seq += 1;
                }
                Work::Documents(evaluate) => match self.evaluate_one(&mut group.documents, (collection, seq), evaluate)
                {
                    Ok(None) => {}
                    Ok(Some(payload)) => {
                        wal::put_frame(&mut group.frames, place, record, &payload, crc32fast::hash(&payload));
                        group.applied.push((seq, collection, None));
                        seq += 1;
                    }
                    Err(error) => group.refused.push((ticket.number, error)),
                },
            }
        }
        Ok(group)
    }

    /// Evaluates one command on the copy of its collection; returns the payload of its record, or `None` if it did nothing. After
    /// an error the copy is as before.
    fn evaluate_one(
        &self,
        copies: &mut BTreeMap<u64, DocumentsState>,
        (collection, seq): (u64, u64),
        evaluate: Evaluate,
    ) -> Result<Option<Vec<u8>>> {
        let copy = match copies.entry(collection) {
            Entry::Occupied(copy) => copy.into_mut(),
            Entry::Vacant(place) => {
                let present = self.state.read().documents_by_id(collection).cloned();
                let gone = || Error::new(Code::NamespaceNotFound, "the collection was dropped before the write");
                place.insert((*present.ok_or_else(gone)?).clone())
            }
        };
        let (now, monotonic) = (self.clock.now(), self.clock.monotonic());
        let held = self.sweeper.held(now, monotonic).map(|jump| jump.to_string());
        let mut transaction = Transaction::new(copy, &self.object_ids, now, held);
        let payload = evaluate(&mut transaction).and_then(|()| {
            let changes = transaction.changes();
            if changes.is_empty() {
                return Ok(None);
            }
            let payload = changes::encode(changes);
            wal::check_payload(&payload)?;
            Ok(Some(payload))
        });
        match payload {
            Ok(Some(_)) => copy.memtable.note(seq),
            Ok(None) => {}
            Err(_) => transaction.roll_back(),
        }
        payload
    }

    /// Appends the records of a group to the log, and syncs it if that is due.
    fn append(&self, log: &mut Log, group: &Group) -> Result<()> {
        let last_seq = log.next_seq + group.applied.len() as u64 - 1;
        let now = self.clock.monotonic();
        let due = match self.settings.durability {
            Durability::Sync => true,
            Durability::Interval(interval) => now.saturating_sub(log.last_sync) >= interval,
        };
        let no_log = || Error::internal("a writable database has a log");
        let writer = log.writer.as_mut().ok_or_else(no_log)?;
        let before = writer.len();
        if let Err(error) = writer.append(&group.frames) {
            return Err(match writer.cut_back(before) {
                Ok(()) => error,
                Err(_) => self.poison(&error),
            });
        }
        self.metrics.logged(group.frames.len() as u64);
        if due {
            writer.sync().map_err(|e| self.poison(&e))?;
            self.metrics.synced();
            log.synced_seq = last_seq;
            log.last_sync = now;
        }
        log.next_seq = last_seq + 1;
        Ok(())
    }

    /// Whether open buckets take all the memory that they may.
    pub(crate) fn is_full(&self) -> bool {
        self.state.read().memtable_bytes() >= self.settings.memtable_bytes_max
    }

    /// Seals open buckets if they exceed their memory. The writer that finds the memory full does this work.
    pub(crate) fn make_room(&self) -> Result<()> {
        if !self.is_full() {
            return Ok(());
        }
        let guard = self.maintenance.lock();
        if !self.is_full() {
            return Ok(());
        }
        crate::seal::flush(self, &guard, None)
    }
}

/// The records of a group of commands, and what they do once they are durable.
#[derive(Default)]
struct Group {
    frames: Vec<u8>,
    /// The number of each record and its collection, and its measurements if it has some.
    applied: Vec<(u64, u64, Option<Rows>)>,
    /// Copies of ordinary collections after the commands.
    documents: BTreeMap<u64, DocumentsState>,
    /// Tickets of commands that were refused.
    refused: Vec<(u64, Error)>,
}

/// Adds logged measurements to the open buckets of their collection.
fn add_rows(collection: &mut CollectionState, seq: u64, rows: Rows) -> Result<()> {
    let span = collection.options.bucketing.span_seconds();
    collection.schema = rows.schema;
    let schema = collection.schema.clone();
    let chunk = match rows.span == span {
        true => rows.chunk,
        false => Chunk::build(rows.chunk.batch, &schema, span), // The span grew since it was queued.
    };
    collection.memtable.push(Arc::new(chunk), (seq, rows.batch_id), (&schema, span))
}

/// Guards the leader, which writes for all waiting threads: if it panics, the others must not wait forever.
struct LeaderGuard<'a> {
    engine: &'a Engine,
    /// What it writes; nothing once that has ended.
    tickets: Vec<Ticket>,
}

impl Drop for LeaderGuard<'_> {
    fn drop(&mut self) {
        if self.tickets.is_empty() {
            return;
        }
        let error = self.engine.poison(&Error::internal("the thread that wrote the log panicked"));
        let mut queue = self.engine.inserts.lock();
        queue.leader = false;
        queue.fail(&mut self.tickets, &error);
        self.engine.inserts.decided(queue, &self.tickets);
    }
}

/// The paths of fields that change from whole numbers to floating point.
fn widened(old: &Schema, new: &Schema) -> Vec<String> {
    if std::ptr::eq(old, new) { Vec::new() } else { ebbtide_buckets::widened_fields(old, new) }
}

/// Checks the memory that the columns of one insert take.
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
        "index {index}: the meta takes {} bytes, {META_BYTES_MAX} are allowed: a meta names a series; store data in fields",
        bucket.id.meta.as_bytes().len()
    );
    Err(Error::new(Code::BSONObjectTooLarge, what).with_index(index))
}

/// Validated measurements. Whether fields may widen also depends on what is stored and queued.
struct Submission {
    collection: Arc<CollectionState>,
    newest: Arc<Schema>,
    schema: Arc<Schema>,
    chunk: Chunk,
    span: i64,
}

fn refuse_out_of_range(chunk: &Chunk, options: &CollectionOptions) -> Result<()> {
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
