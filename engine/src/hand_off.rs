//! Hand-off: a program gets what expires before it is dropped.
//!
//! 1. A bucket is planned under the maintenance lock, handed over under no lock at all, and dropped under the maintenance lock
//!    again, if it is then still due and still the same.
//! 2. Its identity is durable before it is handed over and goes with the edit that drops it. So a crash in between hands the
//!    same bucket over again under the same identity, and never drops it without a yes.
//! 3. A sink that takes too long delays only its own collection, and a bucket that it refuses only that bucket: one that was refused
//!    in an earlier pass comes after the others, and a pass ends after several refusals in a row.

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

/// After this many refusals in a row a pass hands over no more of a collection: the sink may be out of order.
const REFUSALS_MAX: usize = 16;
/// How many refused buckets are remembered, about.
const REFUSED_KNOWN_MAX: usize = 4096;

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
        let (mut failure, mut in_a_row) = (None, 0);
        let mut refused = self.slot.0.lock().refused.clone();
        let Some(sink) = &self.sink else { return Ok(handed) };
        if self.slot.0.lock().is_busy {
            self.slot.0.lock().failed = Some("the sink has not answered yet".to_owned());
            handed.failed = 1;
            return Ok(handed);
        }
        loop {
            let most = sink.buckets_at_once().max(1);
            let order = (&seen, &refused, most);
            let Some(group) = plan(self.engine, self.id, self.now, self.leave_a_core, order)? else { break };
            handed.held = group.held;
            handed.unread.extend(group.unread.iter().cloned());
            if group.buckets.is_empty() {
                break;
            }
            seen.extend(group.buckets.iter().map(|planned| planned.id.clone()));
            let outcome = self.hand_over(sink, &group, &mut in_a_row);
            let dropped =
                drop_accepted(self.engine, self.id, (self.now, self.at), self.leave_a_core, &group, &outcome.taken)?;
            handed.dropped.add(&dropped);
            for planned in &outcome.taken {
                refused.remove(&planned.id);
            }
            refused.extend(outcome.refused.iter().map(|planned| planned.id.clone()));
            if let Some(why) = outcome.failure {
                tracing::error!(collection = %group.collection.name, failure = %why, "what is due could not be handed over");
                handed.failed = 1;
                failure.get_or_insert(why);
            }
            if outcome.ends {
                break;
            }
        }
        if refused.len() > REFUSED_KNOWN_MAX {
            refused.clear();
        }
        let mut slot = self.slot.0.lock();
        (slot.failed, slot.refused) = (failure, refused);
        Ok(handed)
    }

    /// Calls the sink for each bucket of a group, then for the group.
    fn hand_over<'g>(&self, sink: &Arc<dyn ExpirySink>, group: &'g Group, in_a_row: &mut usize) -> Outcome<'g> {
        let mut outcome = Outcome::default();
        let (jobs, replies) = match Worker::start(sink.clone(), self.slot.clone()) {
            Ok(channels) => channels,
            Err(error) => {
                outcome.end(format!("no thread for the sink: {error}"));
                return outcome;
            }
        };
        let call = |job: Job| -> Result<Reply, String> {
            let is_commit = matches!(job, Job::Commit);
            jobs.send(job).map_err(|_| "the sink ended by a panic".to_owned())?;
            loop {
                match replies.recv_timeout(self.timeout) {
                    Ok((of_commit, reply)) if of_commit == is_commit => return Ok(reply),
                    // Of a bucket for which it took too long.
                    Ok(_) => {}
                    Err(RecvTimeoutError::Timeout) => {
                        return Err(format!("no answer within {} ms", self.timeout.as_millis()));
                    }
                    Err(RecvTimeoutError::Disconnected) => return Err("the sink ended by a panic".to_owned()),
                }
            }
        };
        for planned in &group.buckets {
            let called = match planned.read(&group.collection) {
                Ok(bucket) => call(Job::HandOver(Box::new(bucket))),
                Err(error) => Ok(Err(error.to_string())),
            };
            match called {
                Ok(Ok(())) => {
                    *in_a_row = 0;
                    outcome.taken.push(planned);
                }
                Ok(Err(why)) => {
                    *in_a_row += 1;
                    outcome.refused.push(planned);
                    outcome.failure.get_or_insert(why);
                    outcome.ends = *in_a_row >= REFUSALS_MAX;
                }
                Err(why) => {
                    outcome.refused.push(planned);
                    outcome.end(why);
                }
            }
            if outcome.ends {
                break;
            }
        }
        if !outcome.taken.is_empty()
            && let Err(why) = call(Job::Commit).flatten()
        {
            outcome.taken.clear();
            outcome.end(why);
        }
        outcome
    }
}

/// What a sink did with a group.
#[derive(Default)]
struct Outcome<'g> {
    /// The buckets that it took.
    taken: Vec<&'g Planned>,
    refused: Vec<&'g Planned>,
    /// Why it did not take all of them.
    failure: Option<String>,
    /// Whether it gets no more in this pass.
    ends: bool,
}

impl Outcome<'_> {
    fn end(&mut self, why: String) {
        self.failure.get_or_insert(why);
        self.ends = true;
    }
}

/// What a sink is called for.
enum Job {
    HandOver(Box<ExpiredBucket>),
    Commit,
}

type Reply = Result<(), String>;

/// Where jobs go, and where their replies come from.
type Channels = (mpsc::Sender<Job>, mpsc::Receiver<(bool, Reply)>);

/// The thread in which a sink is called, so that a pass does not wait for one that hangs.
struct Worker {
    sink: Arc<dyn ExpirySink>,
    slot: Arc<SinkSlot>,
}

impl Worker {
    /// Starts the thread, which ends when the first channel does. It says for each reply whether that is to a commit.
    fn start(sink: Arc<dyn ExpirySink>, slot: Arc<SinkSlot>) -> std::io::Result<Channels> {
        let (jobs, to_do) = mpsc::channel();
        let (done, replies) = mpsc::channel();
        let worker = Worker { sink, slot };
        std::thread::Builder::new().name("ebbtide-hand-off".to_owned()).spawn(move || {
            for job in to_do {
                if done.send((matches!(job, Job::Commit), worker.call(&job))).is_err() {
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
