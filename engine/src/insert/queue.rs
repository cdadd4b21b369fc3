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
    turn: Arc<Turn>,
}

/// What the thread of a command waits for. It has a lock of its own: the threads of a group that wake together would only stand
/// in each other's way at that of the queue.
#[derive(Default)]
struct Turn {
    news: Mutex<News>,
    changed: Condvar,
}

#[derive(Default)]
enum News {
    #[default]
    None,
    /// It may be this thread's turn to write.
    Turn,
    Decided(Result<()>),
}

impl Ticket {
    /// Waits for what became of the command; `None` if it may be this thread's turn to write.
    pub(crate) fn wait(&self) -> Option<Result<()>> {
        let mut news = self.turn.news.lock();
        loop {
            match std::mem::take(&mut *news) {
                News::None => self.turn.changed.wait(&mut news),
                News::Turn => return None,
                News::Decided(outcome) => return Some(outcome),
            }
        }
    }

    fn tell(&self, told: News) {
        let mut news = self.turn.news.lock();
        if !matches!(*news, News::Decided(_)) {
            *news = told;
        }
        drop(news);
        self.turn.changed.notify_one();
    }
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
    /// Every ticket up to this one is decided.
    pub(crate) done: u64,
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
        let ticket = Ticket { number: self.last_ticket, turn: Arc::default() };
        self.pending.push(Pending { ticket: ticket.clone(), work });
        ticket
    }

    /// Notes that a group is decided.
    fn settle(&mut self, group: &[Ticket]) {
        self.done = self.done.max(group.last().map_or(0, |ticket| ticket.number));
        if self.pending.is_empty() {
            self.schemas.clear(); // They are visible.
        }
    }

    /// Fails a group, and everything that was validated under its schemas, which never became visible: that is added to the
    /// group.
    fn fail(&mut self, group: &mut Vec<Ticket>) {
        group.extend(self.pending.drain(..).map(|pending| pending.ticket));
        self.settle(group);
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

    /// Ends the work on a group, which came to the tickets that were refused and why, or failed as a whole. Wakes the thread that
    /// writes the next group first, so that it waits for the disk while the others wake, and nobody whose command is still queued.
    /// Returns what became of `own`, the command of this thread.
    pub(crate) fn decide(&self, mut group: Vec<Ticket>, outcome: Result<Vec<(u64, Error)>>, own: u64) -> Result<()> {
        let mut queue = self.lock();
        queue.leader = false;
        match &outcome {
            Ok(_) => queue.settle(&group),
            Err(_) => queue.fail(&mut group),
        }
        let next = queue.pending.first().map(|pending| pending.ticket.clone());
        drop(queue);
        next.into_iter().for_each(|next| next.tell(News::Turn));
        // Both are in the order of the tickets.
        let mut refused = outcome.map(|refused| refused.into_iter().peekable());
        let mut of_own = Ok(());
        for ticket in group {
            let decided = match &mut refused {
                Err(error) => Err(error.clone()),
                Ok(refused) => {
                    refused.next_if(|(number, _)| *number == ticket.number).map_or(Ok(()), |(_, error)| Err(error))
                }
            };
            match ticket.number == own {
                true => of_own = decided,
                false => ticket.tell(News::Decided(decided)),
            }
        }
        self.changed.notify_all();
        of_own
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
