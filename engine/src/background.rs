//! Background work on the caller's tokio runtime: sealing by age, compaction, and the sweeper.

use crate::db::Database;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::publication::publisher;
use crate::settings::Durability;
use crate::sweep::SweepReport;
use crate::sweep::options::SweepOptions;
use ebbtide_ttl::Code;
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Interval;

/// How often the background checks for work, and so the time after which a changed parameter takes effect. Open buckets that
/// have reached half of their memory are sealed at once, so that writers need not wait.
const TICK: Duration = Duration::from_millis(500);

/// The background tasks of a database. They end when this is dropped, or with the database.
#[derive(Debug)]
pub struct Background {
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Background {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Database {
    /// Starts sealing, compaction and the sweeper in the background, on the tokio runtime that this is called in.
    ///
    /// Without it nothing runs by itself: inserts still seal when memory is full, and everything else can be called explicitly.
    ///
    /// # Errors
    /// [`Code::IllegalOperation`] outside of a tokio runtime and in one without timers, for a database that is open for reading only, and under a
    /// virtual clock, where time passes only explicitly.
    pub fn start_background(&self) -> Result<Background> {
        self.engine.check_writable()?;
        if self.engine.clock.is_virtual() {
            return Err(Error::new(Code::IllegalOperation, "nothing runs by itself under a virtual clock"));
        }
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
            Error::new(Code::IllegalOperation, "start_background must be called inside a tokio runtime")
        })?;
        let mut tasks = vec![runtime.spawn(run(Arc::downgrade(&self.engine), ticks(TICK)?))];
        if let Durability::Interval(interval) = self.engine.settings.durability {
            let twice = ticks((interval / 2).max(Duration::from_millis(1)))?;
            tasks.push(runtime.spawn(sync_every(Arc::downgrade(&self.engine), twice)));
        }
        Ok(Background { tasks })
    }
}

/// A timer of the runtime, which panics if the runtime was built without them.
fn ticks(period: Duration) -> Result<Interval> {
    let mut ticks = catch_unwind(|| tokio::time::interval(period)).map_err(|_| {
        let what = "start_background needs a tokio runtime with timers: build it with enable_time or enable_all";
        Error::new(Code::IllegalOperation, what)
    })?;
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    Ok(ticks)
}

/// Syncs the log twice in each interval, independently of other work, so that an insert is durable before the interval is over.
async fn sync_every(engine: Weak<Engine>, mut ticks: Interval) {
    loop {
        ticks.tick().await;
        let Some(engine) = engine.upgrade().filter(|engine| engine.poisoned().is_none()) else { return };
        let synced = tokio::task::spawn_blocking(move || report("sync the log", engine.sync_log()));
        if synced.await.is_err() {
            return;
        }
    }
}

/// How many tables are published at once.
const PUBLISHED_AT_ONCE: usize = 8;

struct Schedule {
    last_sweep: Duration,
    last_seal: Duration,
    /// Whether segments whose types differ are worth another try.
    settles_types: bool,
    /// The hand-off that runs, or the last one.
    hand_off: Option<JoinHandle<()>>,
    /// The tables that are being published, by collection number.
    publishing: BTreeMap<u64, JoinHandle<()>>,
}

async fn run(engine: Weak<Engine>, mut ticks: Interval) {
    let Some(now) = engine.upgrade().map(|engine| engine.clock.monotonic()) else { return };
    let mut schedule = Schedule::new(now);
    loop {
        let Some(half_full) = engine.upgrade().map(|engine| engine.half_full.clone()) else { return };
        tokio::select! {
            _ = ticks.tick() => {}
            () = half_full.notified() => {}
        }
        let Some(working) = engine.upgrade() else { return };
        let worked = tokio::task::spawn_blocking(move || {
            schedule.tick(&working);
            schedule
        });
        match worked.await {
            Ok(next) => schedule = next,
            Err(error) => {
                // The panic may have happened between an edit and its effect in memory.
                if let Some(engine) = engine.upgrade().filter(|_| error.is_panic()) {
                    engine.poison(&Error::internal(format!("background work ended: {error}")));
                }
                return;
            }
        }
    }
}

impl Schedule {
    fn new(now: Duration) -> Self {
        Schedule { last_sweep: now, last_seal: now, settles_types: true, hand_off: None, publishing: BTreeMap::new() }
    }

    /// Hands over what is due beside other work, which must not wait for sinks.
    fn hand_off(&mut self, engine: &Arc<Engine>, mut report: SweepReport) {
        let (options, is_running) = (in_background(), self.hand_off.as_ref().is_some_and(|h| !h.is_finished()));
        if is_running || !engine.state.read().collections.values().any(|c| options.hands_any_off(c)) {
            return;
        }
        let engine = engine.clone();
        self.hand_off = Some(tokio::task::spawn_blocking(move || {
            self::report("hand over", crate::sweep::hand_off(&engine, &options, &mut report));
        }));
    }

    /// Publishes beside other work, which must not wait for stores. Nor do up to eight tables wait for each other's.
    fn publish(&mut self, engine: &Arc<Engine>) {
        self.publishing.retain(|_, publishing| !publishing.is_finished());
        for id in publisher::due(engine) {
            if self.publishing.len() < PUBLISHED_AT_ONCE && !self.publishing.contains_key(&id) {
                let engine = engine.clone();
                let publishing = tokio::task::spawn_blocking(move || publisher::run_in_background(&engine, id));
                self.publishing.insert(id, publishing);
            }
        }
    }

    fn tick(&mut self, engine: &Arc<Engine>) {
        if engine.poisoned().is_some() {
            return;
        }
        engine.check_primary();
        if engine.check_folder().is_err() {
            return;
        }
        self.publish(engine);
        let now = engine.clock.monotonic();
        if engine.state.read().memtable_bytes() == 0 {
            self.last_seal = now;
        } else if engine.is_half_full() || now.saturating_sub(self.last_seal) >= engine.settings.memtable_age_max {
            let maintenance = engine.maintenance.lock_beside_writers();
            report("seal", crate::seal::flush(engine, &maintenance, None));
            // Writers at full speed would have to wait for a compaction, so it is left for later.
            if !engine.is_half_full() {
                report("compact", crate::compact::compact_urgent(engine, &maintenance));
            }
            self.last_seal = engine.clock.monotonic();
            self.settles_types = true;
        } else if self.settles_types && engine.state.read().collections.values().any(|c| c.types_differ()) {
            let maintenance = engine.maintenance.lock_beside_writers();
            let compacted = crate::compact::compact_urgent(engine, &maintenance);
            self.settles_types = compacted.is_ok();
            report("compact", compacted);
        }
        let sleep = engine.sweeper.parameters.lock().sleep();
        if now.saturating_sub(self.last_sweep) >= sleep {
            let swept = crate::sweep::sweep(engine, &in_background());
            if let Ok(report) = &swept {
                self.hand_off(engine, report.clone());
            }
            // No insert may follow that would trigger a compaction of segments that have lost rows.
            if swept.as_ref().is_ok_and(|swept| swept.counts.deleted_documents > 0) && !engine.is_half_full() {
                let maintenance = engine.maintenance.lock_beside_writers();
                report("compact", crate::compact::compact_urgent(engine, &maintenance));
            }
            report("sweep", swept.map(|_| ()));
            self.last_sweep = engine.clock.monotonic();
        }
    }
}

fn in_background() -> SweepOptions {
    SweepOptions { leave_a_core: true, ..SweepOptions::default() }
}

fn report(what: &str, outcome: Result<()>) {
    if let Err(error) = outcome {
        tracing::error!(%error, "could not {what}");
    }
}

#[cfg(test)]
mod tests;
