//! Hand-off: a program gets what expires before it is dropped.
//!
//! 1. A bucket is planned under the maintenance lock, handed over under no lock at all, and dropped under the maintenance lock
//!    again, if it is then still due and still the same.
//! 2. Its identity is durable before it is handed over and goes with the edit that drops it. So a crash in between hands the
//!    same bucket over again under the same identity, and never drops it without a yes.
//! 3. A sink that fails or takes too long delays only its own collection.

pub(crate) mod planned;
pub(crate) mod record;
pub(crate) mod sink;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::state::CollectionState;
use crate::sweep::options::SweepOptions;
use ebbtide_ttl::Timestamp;
use planned::{Group, Handed, Planned, drop_accepted, plan};
use sink::{ExpiredBucket, ExpirySink, SinkSlot};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Moves what is due to archives, hands it over in the collections that have or need a sink, and drops what was taken. `now` is the instant of the pass,
/// unless the clock guard holds it: sizes need no clock.
pub(crate) fn run(engine: &Engine, options: &SweepOptions, now: Option<Timestamp>, at: Timestamp) -> Result<Handed> {
    let timeout = engine.sweeper.parameters.lock().hand_off_timeout();
    let concerned: Vec<_> = {
        let state = engine.state.read();
        let concerned = state.collections.values().filter(|c| options.hands_any_off(c));
        concerned.cloned().collect()
    };
    let hand = |collection: Arc<CollectionState>| {
        let (id, slot) = (collection.id, collection.sink.clone());
        let mut handed = Handed::default();
        let moves_all = collection.options.expire_into.is_some();
        if collection.archives().next().is_some() {
            handed = crate::archive::mover::run(engine, id, options.leave_a_core, (now, at))?;
            // Whoever takes the rest counts them.
            handed.held = if moves_all { handed.held } else { 0 };
        }
        if !moves_all && options.hands_off(&collection) {
            let sink = slot.sink().or_else(|| options.sink.clone());
            handed.add(HandOff { engine, id, now, at, leave_a_core: options.leave_a_core, sink, slot, timeout }.run()?);
        }
        Ok(handed)
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
            Ok(one) => all.add(one),
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
    leave_a_core: bool,
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
            let Some(group) = plan(self.engine, self.id, self.now, self.leave_a_core, (&seen, most))? else { break };
            handed.held = group.held;
            handed.unread.extend(group.unread.iter().cloned());
            if group.buckets.is_empty() {
                break;
            }
            seen.extend(group.buckets.iter().map(|planned| planned.id.clone()));
            let (accepted, failure) = self.hand_over(sink, &group);
            let dropped =
                drop_accepted(self.engine, self.id, (self.now, self.at), self.leave_a_core, &group, accepted)?;
            handed.dropped.add(&dropped);
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
