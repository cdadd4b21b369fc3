//! The sweeper's own state: its parameters, the clock guard, and the pass that is running.

use crate::copies::CopyHold;
use crate::fs::Fs;
use crate::sync::{Mutex, Ordered, Rank};
use ebbtide_ttl::{ClockGuard, ClockJump, Parameters, Timestamp};
use serde::Serialize;
use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// A pass that is running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// The instant at which the pass decides what has expired.
    pub started: Timestamp,
    /// The collection being swept.
    pub collection: String,
    /// The rule being applied: `collection`, or an index's name.
    pub rule: String,
    /// Buckets found due and counted so far in this pass. They are dropped when the rule has no more due buckets, at the latest
    /// at the end of the sub-pass.
    pub buckets: u64,
    /// Measurements in them.
    pub measurements: u64,
}

/// Why a pass is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// The clock guard found that the clock jumped.
    Clock(ClockJump),
    /// The database was restored, or made the primary.
    Copy(CopyHold),
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Held::Clock(jump) => jump.fmt(f),
            Held::Copy(hold) => hold.fmt(f),
        }
    }
}

/// The instant of a pass: one reading of the clock, which the clock guard accepted.
#[derive(Debug, Clone, Copy)]
pub(super) struct AcceptedNow(Timestamp);

impl AcceptedNow {
    pub(super) fn instant(self) -> Timestamp {
        self.0
    }
}

/// The sweeper's own state: one per open database.
#[derive(Debug)]
pub(crate) struct Sweeper {
    pub(crate) parameters: Mutex<Parameters>,
    pub(super) guard: Mutex<ClockGuard>,
    /// What holds sweeps since the database was restored.
    copy: Mutex<Option<CopyHold>>,
    pub(super) running: Mutex<Option<Operation>>,
    /// Passes run one after the other.
    pub(super) pass: Ordered<Mutex<()>>,
    pub(super) warned: Mutex<HashSet<u64>>,
}

impl Sweeper {
    pub(crate) fn new(wall: Timestamp, monotonic: Duration, copy: Option<CopyHold>) -> Self {
        Sweeper {
            copy: Mutex::new(copy),
            parameters: Mutex::new(Parameters::default()),
            guard: Mutex::new(ClockGuard::new(wall, monotonic)),
            running: Mutex::new(None),
            pass: Ordered::mutex(Rank::Pass, ()),
            warned: Mutex::default(),
        }
    }

    pub(crate) fn running(&self) -> Option<Operation> {
        self.running.lock().clone()
    }

    /// Accepts the wall clock as it is now.
    pub(crate) fn confirm(&self, (fs, dir): (&dyn Fs, &Path), wall: Timestamp, monotonic: Duration) {
        self.guard.lock().confirm(wall, monotonic);
        self.end_copy_hold(fs, dir);
    }

    fn end_copy_hold(&self, fs: &dyn Fs, dir: &Path) {
        if self.copy.lock().take().is_some() {
            CopyHold::end(fs, dir);
        }
    }

    /// Accepts a reading of the clocks for a pass, if the clock guard does or an operator has confirmed the time.
    ///
    /// # Errors
    /// Why the pass is held.
    pub(super) fn accept(
        &self,
        (fs, dir): (&dyn Fs, &Path),
        wall: Timestamp,
        monotonic: Duration,
        tolerance_secs: i64,
    ) -> Result<AcceptedNow, Held> {
        let hold = *self.copy.lock();
        if let Some(hold) = hold {
            let confirmed =
                hold.agrees(wall, tolerance_secs) || crate::clock_confirmation::take(fs, dir, wall, tolerance_secs);
            if !confirmed {
                return Err(Held::Copy(hold));
            }
            self.end_copy_hold(fs, dir);
            self.guard.lock().confirm(wall, monotonic);
        }
        let mut guard = self.guard.lock();
        if let Err(held) = guard.look(wall, monotonic, tolerance_secs) {
            if !crate::clock_confirmation::take(fs, dir, wall, tolerance_secs) {
                return Err(Held::Clock(held));
            }
            guard.confirm(wall, monotonic);
        }
        let held = guard.peek(wall, monotonic, tolerance_secs);
        assert!(held.is_none(), "the clock guard accepts the instant of a pass: {held:?}");
        Ok(AcceptedNow(wall))
    }

    /// Why a pass would be held now, if it would.
    pub(crate) fn held(&self, wall: Timestamp, monotonic: Duration) -> Option<Held> {
        let tolerance = self.parameters.lock().clock_jump_tolerance_secs;
        let copy = self.copy.lock().filter(|hold| !hold.agrees(wall, tolerance));
        copy.map(Held::Copy).or_else(|| self.guard.lock().peek(wall, monotonic, tolerance).map(Held::Clock))
    }
}
