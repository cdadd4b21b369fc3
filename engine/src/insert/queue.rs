//! Inserts between validation and visibility: the queue in which they wait for the thread that writes the log.

use crate::batch_id::BatchId;
use crate::documents::transaction::Transaction;
use crate::error::{Error, Result};
use crate::sync::{Condvar, Guard, Mutex, Ordered, Rank};
use ebbtide_buckets::{Chunk, Schema};
use std::collections::HashMap;
use std::sync::Arc;

/// A queued command.
pub(crate) struct Pending {
    pub(crate) ticket: u64,
    pub(crate) collection: u64,
    pub(crate) work: Work,
}

/// What is to be done.
pub(crate) enum Work {
    /// An insert of measurements, which was validated before it was queued.
    Rows(Rows),
    /// A command on an ordinary collection, which the thread that writes the log evaluates. After an error it has done nothing.
    Documents(Evaluate),
}

/// A command on an ordinary collection.
pub(crate) type Evaluate = Box<dyn FnOnce(&mut Transaction<'_>) -> Result<()> + Send>;

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
    pub(crate) next_ticket: u64,
    /// Every ticket up to this one is decided; `failed` holds those that failed.
    pub(crate) done: u64,
    pub(crate) failed: HashMap<u64, Error>,
    /// Whether a thread is writing what was queued.
    pub(crate) leader: bool,
    /// Whether somebody waits until nothing is queued. Nothing more may be queued meanwhile, or it would wait forever.
    emptying: bool,
    /// Schemas that include queued inserts, where they differ from the visible ones.
    pub(crate) schemas: HashMap<u64, Arc<Schema>>,
}

impl Queue {
    /// Fails a group, and everything that was validated under its schemas, which never became visible.
    pub(crate) fn fail(&mut self, mut tickets: Vec<u64>, error: &Error) {
        let queued = std::mem::take(&mut self.pending);
        tickets.extend(queued.iter().map(|p| p.ticket));
        self.done = self.done.max(tickets.last().copied().unwrap_or(0));
        self.failed.extend(tickets.into_iter().map(|ticket| (ticket, error.clone())));
        self.schemas.clear();
    }

    pub(crate) fn forget_applied_schemas(&mut self) {
        if self.pending.is_empty() {
            self.schemas.clear();
        }
    }
}

/// The queue, and the signal that an insert was decided.
pub(crate) struct InsertQueue {
    queue: Ordered<Mutex<Queue>>,
    decided: Condvar,
}

impl InsertQueue {
    pub(crate) fn new() -> Self {
        InsertQueue { queue: Ordered::mutex(Rank::Queue, Queue::default()), decided: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> Guard<'_, Queue> {
        self.queue.lock()
    }

    /// Waits until an insert is decided, or the queue is open for others again.
    pub(crate) fn wait(&self, queue: &mut Guard<'_, Queue>) {
        self.decided.wait(queue.inner());
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
        self.notify_all();
    }

    pub(crate) fn notify_all(&self) {
        self.decided.notify_all();
    }

    /// Waits until every insert that is queued now is decided. Inserts that are queued later are not waited for.
    pub(crate) fn drain(&self) {
        let mut queue = self.lock();
        let last = queue.next_ticket;
        while queue.done < last {
            self.wait(&mut queue);
        }
    }
}
