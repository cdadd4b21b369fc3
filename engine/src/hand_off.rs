//! Hand-off: a program gets what expires before it is dropped.
//!
//! 1. A bucket is planned under the maintenance lock, handed over under no lock at all, and dropped under the maintenance lock
//!    again, if it is then still due and still the same.
//! 2. Its identity is durable before it is handed over and goes with the edit that drops it. So a crash in between hands the
//!    same bucket over again under the same identity, and never drops it without a yes.
//! 3. A sink that fails or takes too long delays only its own collection.

mod planned;

pub(crate) use planned::{Group, HandedOver, Planned, due, plan_unnumbered};

use crate::db::{Database, SweepOptions};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::ladder::rung_of;
use crate::options::CollectionChange;
use crate::sync::Mutex;
use arrow::array::RecordBatch;
use ebbtide_ttl::{Code, Timestamp, Value, Visit};
use planned::{drop_accepted, plan};
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Why a sink refuses a bucket.
pub type SinkError = Box<dyn std::error::Error + Send + Sync>;

/// A bucket that is due, with everything that is stored in it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ExpiredBucket {
    /// The collection's name.
    pub collection: String,
    /// The rule by which it goes: `collection`, an index's name, or `size`.
    pub rule: String,
    /// Its meta; null if it has none. With `window` and `generation` it is the bucket's identity in its collection: what is handed
    /// over again under an identity replaces what came before.
    pub meta: Value,
    /// Beginning and end of its window.
    pub window: (Timestamp, Timestamp),
    /// Tells it from a bucket of the same meta and window that was dropped before; greater than the generation of that one.
    pub generation: u64,
    /// Its measurements in order of time, with all columns of the collection.
    pub rows: RecordBatch,
    /// CRC-32 of the Arrow IPC stream of `rows`.
    pub checksum: u32,
}

/// Gets what expires in a collection before it is dropped. See [`Database::on_expiry`].
///
/// A function of an [`ExpiredBucket`] is a sink.
pub trait ExpirySink: Send + Sync {
    /// Takes over one bucket. An error leaves the bucket, hidden, for the next pass.
    ///
    /// # Errors
    /// Whatever keeps the sink from taking it; `SHOW TTL` shows it.
    fn hand_over(&self, bucket: &ExpiredBucket) -> Result<(), SinkError>;

    /// Makes durable what was handed over since the last call. Those buckets are dropped once it succeeds.
    ///
    /// # Errors
    /// As for [`ExpirySink::hand_over`], for all of these buckets.
    fn commit(&self) -> Result<(), SinkError> {
        Ok(())
    }

    /// At most how many buckets are handed over between two commits. Default: 256.
    fn buckets_at_once(&self) -> usize {
        256
    }
}

impl<F> ExpirySink for F
where
    F: Fn(&ExpiredBucket) -> Result<(), SinkError> + Send + Sync,
{
    fn hand_over(&self, bucket: &ExpiredBucket) -> Result<(), SinkError> {
        self(bucket)
    }
}

/// The sink of a collection in this process.
#[derive(Default)]
pub(crate) struct SinkSlot(Mutex<Slot>);

#[derive(Default)]
struct Slot {
    sink: Option<Arc<dyn ExpirySink>>,
    /// Why the last pass could not hand over all that was due.
    failed: Option<String>,
    /// Whether a call of the sink has not returned yet.
    is_busy: bool,
}

impl fmt::Debug for SinkSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkSlot").field("has_sink", &self.sink().is_some()).finish()
    }
}

impl SinkSlot {
    fn sink(&self) -> Option<Arc<dyn ExpirySink>> {
        self.0.lock().sink.clone()
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.0.lock().failed.clone()
    }
}

impl Database {
    /// Registers the sink of a time-series collection: from now on its buckets are dropped only after the sink has taken them over,
    /// whatever rule they go by. The collection remembers that (`handOff` in `listCollections`): a database that is opened later
    /// drops nothing there before a sink is registered, unless a sweep is told to ([`SweepOptions::without_sink`]).
    ///
    /// The sink is called by sweeps, in a thread of its own, at least once for each bucket: a bucket that is handed over and not
    /// dropped before a crash is handed over again under the same identity. A call that takes longer than `ttlHandOffTimeoutMS`
    /// (30,000 by default) counts as failed.
    ///
    /// ```
    /// use ebbtide::{CollectionOptions, Database, ExpiredBucket, SinkError};
    /// use std::sync::Arc;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let db = Database::open(folder.path().join("db"))?;
    /// db.create_collection("weather", CollectionOptions::new("t").expire_after_seconds(3600))?;
    /// db.on_expiry("weather", Arc::new(|bucket: &ExpiredBucket| -> Result<(), SinkError> {
    ///     println!("{} measurements of {:?} go", bucket.rows.num_rows(), bucket.meta);
    ///     Ok(())
    /// }))?;
    /// db.sweep()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`]; [`Code::InvalidOptions`] for an ordinary collection.
    pub fn on_expiry(&self, collection: &str, sink: Arc<dyn ExpirySink>) -> Result<()> {
        let slot = self.engine.state.read().collection(collection)?.sink.clone();
        let change = CollectionChange { hand_off: Some(true), ..CollectionChange::default() };
        self.modify_collection(collection, &change, None)?;
        let mut slot = slot.0.lock();
        slot.sink = Some(sink);
        slot.failed = None;
        Ok(())
    }

    /// Removes the sink of a collection: its buckets are dropped without a hand-off from now on.
    ///
    /// # Errors
    /// As for [`Database::on_expiry`].
    pub fn remove_expiry_sink(&self, collection: &str) -> Result<()> {
        let slot = self.engine.state.read().collection(collection)?.sink.clone();
        let change = CollectionChange { hand_off: Some(false), ..CollectionChange::default() };
        self.modify_collection(collection, &change, None)?;
        slot.0.lock().sink = None;
        Ok(())
    }
}

/// What a pass handed over and dropped.
#[derive(Debug, Default)]
pub(crate) struct Handed {
    pub(crate) dropped: Visit,
    pub(crate) held: u64,
    /// How many collections have buckets that could not be handed over.
    pub(crate) failed: u64,
    pub(crate) unread: BTreeSet<String>,
}

/// Hands over what is due in the collections that have or need a sink, and drops what was taken. `now` is the instant of the pass,
/// unless the clock guard holds it: sizes need no clock.
pub(crate) fn run(engine: &Engine, options: &SweepOptions, now: Option<Timestamp>, at: Timestamp) -> Result<Handed> {
    let timeout = engine.sweeper.parameters.lock().hand_off_timeout();
    let concerned: Vec<_> = {
        let state = engine.state.read();
        let concerned = state.collections.values().filter(|c| options.hands_off(c));
        concerned.map(|c| (c.id, c.sink.clone(), c.options.expire_into.is_some())).collect()
    };
    let hand = |(id, slot, has_archive): (u64, Arc<SinkSlot>, bool)| {
        if has_archive {
            return crate::archive::run(engine, id, now, at);
        }
        let sink = slot.sink().or_else(|| options.sink.clone());
        HandOff { engine, id, now, at, sink, slot, timeout }.run()
    };
    // One that waits for its sink must not delay the others; one sink for all gets them by name.
    let outcomes: Vec<Result<Handed>> = match concerned.len() {
        _ if options.sink.is_some() => concerned.into_iter().map(hand).collect(),
        0 | 1 => concerned.into_iter().map(hand).collect(),
        _ => std::thread::scope(|scope| {
            let threads: Vec<_> = concerned.into_iter().map(|one| scope.spawn(|| hand(one))).collect();
            let ended = |_| Err(Error::internal("a hand-off ended by a panic"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(ended)).collect()
        }),
    };
    let mut all = Handed::default();
    for outcome in outcomes {
        match outcome {
            Ok(one) => {
                super::sweep::add(&mut all.dropped, &one.dropped);
                all.held += one.held;
                all.failed += one.failed;
                all.unread.extend(one.unread);
            }
            Err(error) if engine.poisoned().is_some() => return Err(error),
            Err(error) => {
                tracing::error!(%error, "what is due could not be handed over");
                all.failed += 1;
            }
        }
    }
    Ok(all)
}

/// The hand-off of one collection in one pass.
struct HandOff<'a> {
    engine: &'a Engine,
    id: u64,
    now: Option<Timestamp>,
    at: Timestamp,
    sink: Option<Arc<dyn ExpirySink>>,
    slot: Arc<SinkSlot>,
    timeout: Duration,
}

impl HandOff<'_> {
    fn run(&self) -> Result<Handed> {
        let (mut handed, mut seen) = (Handed::default(), HashSet::new());
        let Some(sink) = &self.sink else { return Ok(handed) };
        if self.slot.0.lock().is_busy {
            self.slot.0.lock().failed = Some("the sink has not answered yet".to_owned());
            handed.failed = 1;
            return Ok(handed);
        }
        loop {
            let most = sink.buckets_at_once().max(1);
            let Some(group) = plan(self.engine, self.id, self.now, (&seen, most))? else { break };
            handed.held = group.held;
            handed.unread.extend(group.unread.iter().cloned());
            if group.buckets.is_empty() {
                break;
            }
            seen.extend(group.buckets.iter().map(|planned| planned.id.clone()));
            let (accepted, failure) = self.hand_over(sink, &group);
            let dropped = drop_accepted(self.engine, self.id, (self.now, self.at), &group, accepted)?;
            super::sweep::add(&mut handed.dropped, &dropped);
            self.slot.0.lock().failed.clone_from(&failure);
            if let Some(failure) = failure {
                tracing::error!(collection = %group.collection.name, %failure, "what is due could not be handed over");
                handed.failed = 1;
                break;
            }
        }
        Ok(handed)
    }

    /// Calls the sink for each bucket of a group, then for the group. Returns how many buckets it took, from the first one on, and
    /// why it took no more.
    fn hand_over(&self, sink: &Arc<dyn ExpirySink>, group: &Group) -> (usize, Option<String>) {
        let (jobs, replies) = match Worker::start(sink.clone(), self.slot.clone()) {
            Ok(channels) => channels,
            Err(error) => return (0, Some(format!("no thread for the sink: {error}"))),
        };
        let call = |job: Job| -> Result<(), String> {
            jobs.send(job).map_err(|_| "the sink ended by a panic".to_owned())?;
            match replies.recv_timeout(self.timeout) {
                Ok(reply) => reply,
                Err(RecvTimeoutError::Timeout) => Err(format!("no answer within {} ms", self.timeout.as_millis())),
                Err(RecvTimeoutError::Disconnected) => Err("the sink ended by a panic".to_owned()),
            }
        };
        let hand = |planned: &Planned| -> Result<(), String> {
            let bucket = planned.read(&group.collection).map_err(|error| error.to_string())?;
            call(Job::HandOver(Box::new(bucket)))
        };
        let mut taken = 0;
        let mut failure = None;
        for planned in &group.buckets {
            match hand(planned) {
                Ok(()) => taken += 1,
                Err(why) => {
                    failure = Some(why);
                    break;
                }
            }
        }
        if taken == 0 {
            return (0, failure);
        }
        match call(Job::Commit) {
            Ok(()) => (taken, failure),
            Err(why) => (0, Some(failure.unwrap_or(why))),
        }
    }
}

/// What a sink is called for.
enum Job {
    HandOver(Box<ExpiredBucket>),
    Commit,
}

type Reply = Result<(), String>;

/// The thread in which a sink is called, so that a pass does not wait for one that hangs.
struct Worker {
    sink: Arc<dyn ExpirySink>,
    slot: Arc<SinkSlot>,
}

impl Worker {
    /// Starts the thread, which ends when the first channel does.
    fn start(
        sink: Arc<dyn ExpirySink>,
        slot: Arc<SinkSlot>,
    ) -> std::io::Result<(mpsc::Sender<Job>, mpsc::Receiver<Reply>)> {
        let (jobs, to_do) = mpsc::channel();
        let (done, replies) = mpsc::channel();
        let worker = Worker { sink, slot };
        std::thread::Builder::new().name("ebbtide-hand-off".to_owned()).spawn(move || {
            for job in to_do {
                if done.send(worker.call(&job)).is_err() {
                    break;
                }
            }
        })?;
        Ok((jobs, replies))
    }

    fn call(&self, job: &Job) -> Reply {
        self.slot.0.lock().is_busy = true;
        let called = catch_unwind(AssertUnwindSafe(|| match job {
            Job::HandOver(bucket) => self.sink.hand_over(bucket),
            Job::Commit => self.sink.commit(),
        }));
        // Whoever gets the reply may start the next pass.
        self.slot.0.lock().is_busy = false;
        called.unwrap_or_else(|_| Err("the sink panicked".into())).map_err(|error| error.to_string())
    }
}

impl SweepOptions {
    /// Whether buckets of a collection are dropped only after a hand-off.
    pub(crate) fn hands_off(&self, collection: &crate::state::CollectionState) -> bool {
        // Bins are not handed over.
        rung_of(&collection.name).is_none()
            && (collection.options.expire_into.is_some()
                || self.sink.is_some()
                || ((collection.options.hand_off || collection.sink.sink().is_some()) && !self.without_sink))
    }
}

/// Reads the word of the option.
pub(crate) fn parse_hand_off(value: &Value) -> Result<bool> {
    match value {
        Value::String(word) if word == "required" => Ok(true),
        Value::String(word) if word == "off" => Ok(false),
        Value::String(word) => {
            let what = format!("'{word}' is not a value of handOff; use one of required, off");
            Err(Error::new(Code::BadValue, what))
        }
        other => {
            let what = format!("handOff must be a string, not {}", other.class().name());
            Err(Error::new(Code::TypeMismatch, what))
        }
    }
}
