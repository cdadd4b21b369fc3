//! Inserts: validated under the newest schema, queued, written to the log together with everything else that is queued, and
//! then added to the memtable. The first waiting thread that finds no leader writes for all.

pub(crate) mod queue;
mod widen;

use crate::batch_id::BatchId;
use crate::documents::changes;
use crate::documents::columns::DocumentColumns;
use crate::documents::memtable::{self, Memtable};
use crate::documents::pace::Stop;
use crate::documents::state::DocumentsState;
use crate::documents::transaction::Transaction;
use crate::engine::{Engine, Log};
use crate::error::{Error, Result};
use crate::options::CollectionOptions;
use crate::requests::stored::{ANSWERED_BYTES, StoredRequest, UnansweredRequest};
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

/// Changes of documents that are added while readers wait: what takes about half a millisecond.
const ADDED_IN_PLACE_MAX: usize = 1024;

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
        let (chunk, schema) = checked_chunk(accepted, &collection.options)?;
        let schema = if schema == *newest { newest.clone() } else { Arc::new(schema) };
        let span = collection.options.bucketing.span_seconds();
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
        stop: &Stop,
    ) -> Result<u64> {
        self.insert_together(&[Part { name, batch_id, build }], None, stop).map_err(|(_, error)| error)
    }

    /// Stores one atomic batch in each of several collections, all of them or none, and with them the request that they answer if
    /// it is to be stored once. An error comes with the index of the part that it is about, if it is about one.
    pub(crate) fn insert_together(
        &self,
        parts: &[Part<'_>],
        request: Option<StoredRequest>,
        stop: &Stop,
    ) -> Result<u64, (Option<usize>, Error)> {
        let whole = |error| (None, error);
        let name = parts.first().map(|part| part.name);
        let _span = tracing::debug_span!("insert", collection = name, collections = parts.len()).entered();
        self.check_writable().map_err(whole)?;
        self.make_room().map_err(whole)?;
        'validated: loop {
            let mut ready = Vec::with_capacity(parts.len());
            for (at, part) in parts.iter().enumerate() {
                stop.check().map_err(whole)?;
                ready.extend(self.ready(part).map_err(|error| (Some(at), error))?.map(|ready| (at, ready)));
            }
            if ready.is_empty() && request.is_none() {
                return Ok(0);
            }
            let lengths = ready.iter().map(|(_, ready)| ready.payload.len());
            wal::check_parts(lengths.chain(request.iter().map(|request| request.encoded.len()))).map_err(whole)?;
            let mut queue = self.inserts.lock();
            self.inserts.wait_for_others(&mut queue);
            if ready.iter().any(|(_, ready)| !ready.widens.is_empty()) {
                // No queued insert may still bring whole numbers to the fields that become floating point.
                self.inserts.wait_until_empty(&mut queue);
            }
            for (at, ready) in &mut ready {
                let (name, found) = (parts[*at].name, &ready.submission);
                let current = match self.state.read().collection(name) {
                    Ok(now) if now.id == found.collection.id => {
                        queue.schemas.get(&now.id).cloned().unwrap_or_else(|| now.schema.clone())
                    }
                    _ => return Err((Some(*at), Error::no_collection(name))),
                };
                if !Arc::ptr_eq(&current, &found.newest) && *current != *found.newest {
                    continue 'validated;
                }
                if !ready.widens.is_empty() {
                    check_widening(self, name, &ready.widens, &found.chunk.batch, &mut ready.looked)
                        .map_err(|error| (Some(*at), error))?;
                }
            }
            self.check_writable().map_err(whole)?;
            stop.begin_commit().map_err(whole)?;
            let mut count = 0;
            let mut rows = Vec::with_capacity(ready.len());
            for (_, Ready { submission, payload, crc, batch_id, .. }) in ready {
                let Submission { collection, newest, schema, chunk, span } = submission;
                if !Arc::ptr_eq(&schema, &newest) {
                    queue.schemas.insert(collection.id, schema.clone());
                }
                count += chunk.batch.num_rows() as u64;
                rows.push((collection.id, Rows { batch_id, payload, crc, chunk, schema, span }));
            }
            let work = match (rows.len(), rows.pop(), request) {
                (1, Some((collection, rows)), None) => Work::Rows(collection, rows),
                (_, last, request) => {
                    rows.extend(last);
                    Work::Together(rows, request)
                }
            };
            let ticket = queue.push(work);
            self.wait_for(queue, &ticket).map_err(whole)?;
            return Ok(count);
        }
    }

    /// A part of an insert as it goes into the log; `None` without rows.
    fn ready(&self, part: &Part<'_>) -> Result<Option<Ready>> {
        let Some(submission) = self.validate(part.name, part.build)? else { return Ok(None) };
        let payload = wal::encode_payload(&submission.chunk.batch, part.batch_id)?;
        wal::check_payload(&payload)?;
        let crc = crc32fast::hash(&payload);
        let widens = widened(&submission.newest, &submission.schema);
        let mut looked = BTreeSet::new();
        if !widens.is_empty() {
            // Reads most of what is stored before the queue is locked, so that no other insert waits for it.
            check_widening(self, part.name, &widens, &submission.chunk.batch, &mut looked)?;
        }
        Ok(Some(Ready { submission, payload, crc, batch_id: part.batch_id, widens, looked }))
    }

    /// Runs a command on an ordinary collection: all that it does is one record of the log, durable when this returns. After an
    /// error of `evaluate` it has done nothing.
    pub(crate) fn write_documents<T: Send + 'static>(
        &self,
        name: &str,
        evaluate: impl FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let _span = tracing::debug_span!("write", collection = name).entered();
        let collection = self.state.read().documents(name)?.id;
        self.write_documents_of(collection, evaluate)
    }

    /// As [`Engine::write_documents`], by the number of the collection.
    pub(crate) fn write_documents_of<T: Send + 'static>(
        &self,
        collection: u64,
        evaluate: impl FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (ready, reply) = replying(move |transaction| Ok((evaluate(transaction)?, ())));
        self.command(Work::Documents(collection, ready))?;
        taken(&reply)
    }

    /// As [`Engine::write_documents`], with the request that the command answers, and the reply that `reply` makes.
    pub(crate) fn write_documents_once<T: Send + 'static>(
        &self,
        name: &str,
        request: UnansweredRequest,
        evaluate: impl FnOnce(&mut Transaction<'_>) -> Result<T> + Send + 'static,
        reply: impl FnOnce(&T) -> Vec<u8> + Send + 'static,
    ) -> Result<T> {
        let _span = tracing::debug_span!("write", collection = name).entered();
        let collection = self.state.read().documents(name)?.id;
        let (ready, outcome) = replying(move |transaction| {
            let outcome = evaluate(transaction)?;
            let stored = request.with_reply(&reply(&outcome))?;
            Ok((outcome, stored))
        });
        self.command(Work::DocumentsOnce(collection, ready))?;
        taken(&outcome)
    }

    /// Runs a command on ordinary collections.
    fn command(&self, work: Work) -> Result<()> {
        self.check_writable()?;
        self.make_room()?;
        let mut queue = self.inserts.lock();
        self.inserts.wait_for_others(&mut queue);
        self.check_writable()?;
        let ticket = queue.push(work);
        self.wait_for(queue, &ticket)
    }

    /// Waits until a command is decided; becomes the leader if there is none.
    pub(crate) fn wait_for<'a>(&'a self, mut queue: Guard<'a, Queue>, ticket: &Ticket) -> Result<()> {
        loop {
            let is_decided = queue.done >= ticket.number;
            if !is_decided && !queue.leader {
                return self.lead(queue, ticket);
            }
            drop(queue);
            if let Some(outcome) = ticket.wait() {
                return outcome;
            }
            queue = self.inserts.lock();
        }
    }

    /// Writes what is queued, which includes the command of `ticket`, for all who wait; returns what became of that command.
    fn lead<'a>(&'a self, mut queue: Guard<'a, Queue>, ticket: &Ticket) -> Result<()> {
        queue.leader = true;
        let group = self.inserts.gather(queue);
        let tickets = group.iter().map(|pending| pending.ticket.clone()).collect();
        let mut guard = LeaderGuard { engine: self, tickets, own: ticket.number };
        let outcome = self.write_group(group);
        if let Err(error) = &outcome {
            self.note_refusal(error);
        }
        self.inserts.decide(std::mem::take(&mut guard.tickets), outcome, ticket.number)
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
        let documents: Vec<_> = group.documents.into_iter().map(|(id, copy)| (id, Written::of(copy))).collect();
        let mut state = self.state.write();
        for (seq, parts) in group.applied {
            state.applied_seq = seq;
            for (collection, rows) in parts {
                // If the collection was dropped meanwhile, the insert counts as before the drop.
                let Some(collection) = state.by_id_mut(collection) else { continue };
                self.metrics.inserted(rows.chunk.batch.num_rows() as u64);
                add_rows(collection, seq, rows).map_err(|e| self.poison(&e))?;
            }
        }
        let mut replaced = Vec::new();
        for (id, written) in documents {
            if let Some(documents) = state.documents_by_id_mut(id) {
                replaced.extend(written.apply(documents));
            }
        }
        drop(state);
        drop(replaced); // Frees memory where no reader waits for it.
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
        for Pending { ticket, work } in pending {
            let record = |collection| wal::Record { seq, collection, synced_seq };
            match work {
                Work::Rows(collection, rows) => {
                    wal::put_frame(&mut group.frames, place, record(collection), &rows.payload, rows.crc);
                    group.applied.push((seq, vec![(collection, rows)]));
                    seq += 1;
                }
                Work::Documents(collection, evaluate) => {
                    match self.evaluate_one(&mut group.documents, (collection, seq), evaluate) {
                        Ok((None, ())) => {}
                        Ok((Some(payload), ())) => {
                            let crc = crc32fast::hash(&payload);
                            wal::put_frame(&mut group.frames, place, record(collection), &payload, crc);
                            group.applied.push((seq, Vec::new()));
                            seq += 1;
                        }
                        Err(error) => group.refused.push((ticket.number, error)),
                    }
                }
                Work::DocumentsOnce(collection, evaluate) => {
                    match self.evaluate_one(&mut group.documents, (collection, seq), evaluate) {
                        Ok((changes, request)) => {
                            let changes = changes.iter().map(|payload| (collection, payload.as_slice()));
                            let payload = self.payload_of(&mut group.documents, seq, changes, Some(request))?;
                            let crc = crc32fast::hash(&payload);
                            wal::put_frame(&mut group.frames, place, record(wal::SEVERAL), &payload, crc);
                            group.applied.push((seq, Vec::new()));
                            seq += 1;
                        }
                        Err(error) => group.refused.push((ticket.number, error)),
                    }
                }
                Work::Together(rows, request) => {
                    let inserts = rows.iter().map(|(collection, rows)| (*collection, rows.payload.as_slice()));
                    let payload = self.payload_of(&mut group.documents, seq, inserts, request)?;
                    let crc = crc32fast::hash(&payload);
                    wal::put_frame(&mut group.frames, place, record(wal::SEVERAL), &payload, crc);
                    group.applied.push((seq, rows));
                    seq += 1;
                }
            }
        }
        Ok(group)
    }

    /// The payload of one record with parts for several collections, and the request that they answer.
    fn payload_of<'a>(
        &self,
        copies: &mut BTreeMap<u64, DocumentsState>,
        seq: u64,
        parts: impl Iterator<Item = (u64, &'a [u8])>,
        request: Option<StoredRequest>,
    ) -> Result<Vec<u8>> {
        let mut payload = wal::begin_parts();
        for (collection, part) in parts {
            wal::put_part(&mut payload, collection, part);
        }
        if let Some(StoredRequest { collection, change, encoded }) = request {
            let copy = self.copy_of(copies, collection)?;
            wal::put_part(&mut payload, collection, &encoded);
            copy.memtable.note(seq);
            copy.put_new(change);
        }
        Ok(payload)
    }

    /// The copy of an ordinary collection that a group of commands changes.
    fn copy_of<'a>(
        &self,
        copies: &'a mut BTreeMap<u64, DocumentsState>,
        collection: u64,
    ) -> Result<&'a mut DocumentsState> {
        Ok(match copies.entry(collection) {
            Entry::Occupied(copy) => copy.into_mut(),
            Entry::Vacant(place) => {
                let present = self.state.read().documents_by_id(collection).cloned();
                let gone = || Error::new(Code::NamespaceNotFound, "the collection was dropped before the write");
                let mut copy = (*present.ok_or_else(gone)?).clone();
                copy.memtable.begin_group();
                place.insert(copy)
            }
        })
    }

    /// Evaluates one command on the copy of its collection; returns the payload of its record, or `None` if it did nothing, and its
    /// result. After an error the copy is as before.
    fn evaluate_one<T>(
        &self,
        copies: &mut BTreeMap<u64, DocumentsState>,
        (collection, seq): (u64, u64),
        evaluate: impl FnOnce(&mut Transaction<'_>) -> Result<T>,
    ) -> Result<(Option<Vec<u8>>, T)> {
        let copy = self.copy_of(copies, collection)?;
        let (now, monotonic) = (self.clock.now(), self.clock.monotonic());
        let held = self.sweeper.held(now, monotonic).map(|jump| jump.to_string());
        let mut transaction = Transaction::new(copy, &self.object_ids, now, held);
        let evaluated = evaluate(&mut transaction).and_then(|result| {
            let changes = transaction.changes();
            if changes.is_empty() {
                return Ok((None, result));
            }
            let payload = changes::encode(changes);
            wal::check_parts([payload.len(), ANSWERED_BYTES].into_iter())?;
            Ok((Some(payload), result))
        });
        match evaluated {
            Ok((Some(_), _)) => copy.memtable.note(seq),
            Ok((None, _)) => {}
            Err(_) => transaction.roll_back(),
        }
        evaluated
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
        if due {
            // Before the append too: the log of a folder that another process has opened may be this file.
            self.check_folder()?;
            writer.fill_ahead(group.frames.len());
        }
        if let Err(error) = writer.append(&group.frames) {
            return Err(match writer.cut_back(before) {
                Ok(()) => error,
                Err(_) => self.poison(&error),
            });
        }
        self.metrics.logged(group.frames.len() as u64);
        if due {
            writer.sync().map_err(|e| self.poison(&e))?;
            self.check_folder()?;
            self.metrics.synced();
            log.synced_seq = last_seq;
            log.last_sync = now;
        }
        log.next_seq = last_seq + 1;
        self.note_space();
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
        crate::seal::flush(self, &guard, None).inspect_err(|error| self.note_refusal(error))
    }
}

/// A command on documents with a place for its result, since it is evaluated by another thread.
fn replying<T: Send + 'static, R>(
    evaluate: impl FnOnce(&mut Transaction<'_>) -> Result<(T, R)> + Send + 'static,
) -> (Evaluate<R>, Arc<Mutex<Option<T>>>) {
    let place = Arc::new(Mutex::new(None));
    let filled = place.clone();
    let ready = move |transaction: &mut Transaction<'_>| {
        let (outcome, rest) = evaluate(transaction)?;
        *filled.lock() = Some(outcome);
        Ok(rest)
    };
    (Box::new(ready), place)
}

/// The result of a command that was decided.
fn taken<T>(place: &Mutex<Option<T>>) -> Result<T> {
    let outcome = place.lock().take();
    outcome.ok_or_else(|| Error::internal("a command was decided without being evaluated"))
}

/// The records of a group of commands, and what they do once they are durable.
#[derive(Default)]
struct Group {
    frames: Vec<u8>,
    /// The number of each record, and its measurements by collection.
    applied: Vec<(u64, Vec<(u64, Rows)>)>,
    /// Copies of ordinary collections after the commands.
    documents: BTreeMap<u64, DocumentsState>,
    /// Tickets of commands that were refused.
    refused: Vec<(u64, Error)>,
}

/// What a group of commands has done to an ordinary collection, once it is durable.
struct Written {
    columns: Arc<DocumentColumns>,
    changes: Changes,
}

enum Changes {
    /// To be added to the memtable where it is, which copies nothing that no snapshot shares.
    Few(memtable::Group),
    /// The memtable with them, since to add them would keep readers waiting.
    Many(Memtable),
}

impl Written {
    fn of(copy: DocumentsState) -> Written {
        let DocumentsState { mut memtable, columns, .. } = copy;
        let group = memtable.take_group();
        let changes = match group.len() <= ADDED_IN_PLACE_MAX {
            true => Changes::Few(group),
            false => {
                memtable.add_group(group);
                Changes::Many(memtable)
            }
        };
        Written { columns, changes }
    }

    /// Makes it visible. Returns what it replaced.
    fn apply(self, documents: &mut DocumentsState) -> Option<Memtable> {
        documents.columns = self.columns;
        match self.changes {
            Changes::Few(group) => {
                documents.memtable.add_group(group);
                None
            }
            Changes::Many(memtable) => Some(std::mem::replace(&mut documents.memtable, memtable)),
        }
    }
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
    /// The number of its own.
    own: u64,
}

impl Drop for LeaderGuard<'_> {
    fn drop(&mut self) {
        if self.tickets.is_empty() {
            return;
        }
        let error = self.engine.poison(&Error::internal("the thread that wrote the log panicked"));
        let outcome = self.engine.inserts.decide(std::mem::take(&mut self.tickets), Err(error), self.own);
        tracing::debug!(?outcome, "the thread's own command failed with it");
    }
}

/// The paths of fields that change from whole numbers to floating point.
fn widened(old: &Schema, new: &Schema) -> Vec<String> {
    if std::ptr::eq(old, new) { Vec::new() } else { ebbtide_buckets::widened_fields(old, new) }
}

/// Refuses measurements that a collection with these options would refuse whatever is in it; `accepted` are the measurements under
/// its schema. For a collection that is created only if it will take them.
///
/// # Errors
/// As for [`Collection::insert`](crate::Collection::insert), but those about what is stored and about the disk.
pub fn check_accepted(accepted: Accepted, options: &CollectionOptions) -> Result<()> {
    if accepted.batch.num_rows() == 0 {
        return Ok(());
    }
    checked_chunk(accepted, options).map(drop)
}

/// Measurements as they are added to buckets, and the schema that they have.
fn checked_chunk(accepted: Accepted, options: &CollectionOptions) -> Result<(Chunk, Schema)> {
    let Accepted { batch, schema, meta_numbers } = accepted;
    let span = options.bucketing.span_seconds();
    let chunk = Chunk::build_numbered(compact_views(batch)?, &schema, span, meta_numbers.as_deref());
    check_size(&chunk)?;
    check_metas(&chunk)?;
    if options.out_of_range == OutOfRange::Reject {
        refuse_out_of_range(&chunk, options)?;
    }
    Ok((chunk, schema))
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

/// One insert of several that are stored together, each into another collection.
pub(crate) struct Part<'a> {
    pub(crate) name: &'a str,
    pub(crate) batch_id: Option<BatchId>,
    /// Makes the batch under the newest schema.
    pub(crate) build: &'a dyn Fn(&Schema) -> Result<Accepted>,
}

/// A part that was validated, with its payload in the log.
struct Ready {
    submission: Submission,
    payload: Vec<u8>,
    crc: u32,
    batch_id: Option<BatchId>,
    /// Fields that change from whole numbers to floating point, and the segments in which that was found to be possible.
    widens: Vec<String>,
    looked: BTreeSet<u64>,
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
