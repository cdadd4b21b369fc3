//! Inserts between validation and visibility: the queue in which they wait for the thread that writes the log.

use crate::batch_id::BatchId;
use crate::documents::transaction::Transaction;
use crate::error::{Error, Result};
use crate::requests::stored::StoredRequest;
use crate::sync::{self, Condvar, Guard, Mutex, Ordered, Rank};
use ebbtide_buckets::{Chunk, Schema};
use std::collections::HashMap;
use std::sync::Arc;

/// How often a thread that is about to write lets others go first. Few: beside queries that keep all processors busy each can
/// take some milliseconds.
const GATHERING_ROUNDS: usize = 2;

/// The place of a command in the queue.
#[derive(Clone)]
pub(crate) struct Ticket {
    pub(crate) number: u64,
    /// Wakes the thread that waits for the command: it was decided, or it is this thread's turn to write.
    turn: Arc<Condvar>,
}

/// A queued command.
pub(crate) struct Pending {
    pub(crate) ticket: Ticket,
    pub(crate) work: Work,
}

/// What is to be done, and in which collection.
pub(crate) enum Work {
    /// An insert of measurements, which was validated before it was queued.
    Rows(u64, Rows),
    /// A command on an ordinary collection, which the thread that writes the log evaluates. After an error it has done nothing.
    Documents(u64, Evaluate),
    /// Inserts that are one record of the log, with the request that they answer if it is to be stored once.
    Together(Vec<(u64, Rows)>, Option<StoredRequest>),
    /// A command on an ordinary collection, with the request that it answers. After an error it has done nothing.
    DocumentsOnce(u64, Evaluate<StoredRequest>),
}

/// A command on an ordinary collection.
pub(crate) type Evaluate<T = ()> = Box<dyn FnOnce(&mut Transaction<'_>) -> Result<T> + Send>;

/// Validated measurements.
pub(crate) struct Rows {
    pub(crate) batch_id: Option<BatchId>,
    pub(crate) payload: Vec<u8>,
    pub(crate) crc: u32,
    pub(crate) chunk: Chunk,
    pub(crate) schema: Arc<Schema>,
    /// The width of its windows in seconds.
    pub(crate) span: i64,
}

/// Inserts between validation and visibility.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) pending: Vec<Pending>,
    last_ticket: u64,
    /// Every ticket up to this one is decided; `failed` holds those that failed.
    pub(crate) done: u64,
    pub(crate) failed: HashMap<u64, Error>,
    /// Whether a thread is writing what was queued.
    pub(crate) leader: bool,
    /// The number of commands that were written together last.
    last_group: usize,
    /// Whether somebody waits until nothing is queued. Nothing more may be queued meanwhile, or it would wait forever.
    emptying: bool,
    /// Schemas that include queued inserts, where they differ from the visible ones.
    pub(crate) schemas: HashMap<u64, Arc<Schema>>,
}

impl Queue {
    /// Queues a command.
    pub(crate) fn push(&mut self, work: Work) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket { number: self.last_ticket, turn: Arc::new(Condvar::new()) };
        self.pending.push(Pending { ticket: ticket.clone(), work });
        ticket
    }

    /// Fails a group, and everything that was validated under its schemas, which never became visible: that is added to the
    /// group.
    pub(crate) fn fail(&mut self, group: &mut Vec<Ticket>, error: &Error) {
        group.extend(self.pending.drain(..).map(|pending| pending.ticket));
        self.done = self.done.max(group.last().map_or(0, |ticket| ticket.number));
        self.failed.extend(group.iter().map(|ticket| (ticket.number, error.clone())));
        self.schemas.clear();
    }

    pub(crate) fn forget_applied_schemas(&mut self) {
        if self.pending.is_empty() {
            self.schemas.clear();
        }
    }
}

/// The queue, and the signal to those who wait for more than one command of their own.
pub(crate) struct InsertQueue {
    queue: Ordered<Mutex<Queue>>,
    changed: Condvar,
}

impl InsertQueue {
    pub(crate) fn new() -> Self {
        InsertQueue { queue: Ordered::mutex(Rank::Queue, Queue::default()), changed: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> Guard<'_, Queue> {
        self.queue.lock()
    }

    /// Waits until a command is decided or may be written by this thread. It can also return too early.
    pub(crate) fn wait_for_turn(&self, queue: &mut Guard<'_, Queue>, ticket: &Ticket) {
        ticket.turn.wait(queue.inner());
    }

    /// Takes what is queued, to write it. If the last group was of several threads, those that it woke get the processor first:
    /// what they queue in that time is written with the same sync instead of waiting for the next.
    pub(crate) fn gather<'a>(&'a self, mut queue: Guard<'a, Queue>) -> Vec<Pending> {
        if queue.last_group > 1 {
            for _ in 0..GATHERING_ROUNDS {
                let before = queue.pending.len();
                drop(queue);
                sync::yield_now();
                queue = self.lock();
                if queue.pending.len() == before {
                    break;
                }
            }
        }
        queue.last_group = queue.pending.len();
        std::mem::take(&mut queue.pending)
    }

    /// Lets go of the queue after a group was decided. Wakes the thread that writes the next group first, so that it waits for
    /// the disk while the others wake, and nobody whose command is still queued.
    pub(crate) fn decided(&self, queue: Guard<'_, Queue>, group: &[Ticket]) {
        let next = queue.pending.first().map(|pending| pending.ticket.clone());
        drop(queue);
        for ticket in next.iter().chain(group) {
            ticket.turn.notify_one();
        }
        self.changed.notify_all();
    }

    /// Waits until a group was decided, or the queue is open for others again.
    fn wait(&self, queue: &mut Guard<'_, Queue>) {
        self.changed.wait(queue.inner());
    }

    /// Waits while somebody else waits until nothing is queued.
    pub(crate) fn wait_for_others(&self, queue: &mut Guard<'_, Queue>) {
        while queue.emptying {
            self.wait(queue);
        }
    }

    /// Waits until nothing is queued and nothing is being written. It stays so while the guard is held.
    pub(crate) fn wait_until_empty(&self, queue: &mut Guard<'_, Queue>) {
        queue.emptying = true;
        while queue.leader || !queue.pending.is_empty() {
            self.wait(queue);
        }
        queue.emptying = false;
        self.changed.notify_all();
    }

    /// Waits until every insert that is queued now is decided. Inserts that are queued later are not waited for.
    pub(crate) fn drain(&self) {
        let mut queue = self.lock();
        let last = queue.last_ticket;
        while queue.done < last {
            self.wait(&mut queue);
        }
    }
}
