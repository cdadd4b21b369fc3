//! The sweeper's own state: its parameters, the clock guard, and the pass that is running.

use crate::fs::Fs;
use crate::sync::{Mutex, Ordered, Rank};
use ebbtide_ttl::{ClockGuard, Held, Parameters, Timestamp};
use serde::Serialize;
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

/// A pass that is running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// The clock reading of the pass.
    pub started: Timestamp,
    /// The collection that is visited.
    pub collection: String,
    /// The rule that is visited.
    pub rule: String,
    /// Buckets found due and counted so far in this pass. They go when a rule comes to an end of them, at the latest with the sub-pass.
    pub buckets: u64,
    /// Measurements in them.
    pub measurements: u64,
}

/// The sweeper's own state: one per open database.
#[derive(Debug)]
pub(crate) struct Sweeper {
    pub(crate) parameters: Mutex<Parameters>,
    pub(super) guard: Mutex<ClockGuard>,
    pub(super) running: Mutex<Option<Operation>>,
    /// Passes run one after the other.
    pub(super) pass: Ordered<Mutex<()>>,
    pub(super) warned: Mutex<HashSet<u64>>,
}

impl Sweeper {
    pub(crate) fn new(wall: Timestamp, monotonic: Duration) -> Self {
        Sweeper {
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
    pub(crate) fn confirm(&self, wall: Timestamp, monotonic: Duration) {
        self.guard.lock().confirm(wall, monotonic);
    }

    /// Whether a person left word that the time is right.
    pub(super) fn is_confirmed(
        &self,
        (fs, dir): (&dyn Fs, &Path),
        wall: Timestamp,
        monotonic: Duration,
        tolerance_secs: i64,
    ) -> bool {
        let confirmed = crate::clock_confirmation::take(fs, dir, wall, tolerance_secs);
        if confirmed {
            self.confirm(wall, monotonic);
        }
        confirmed
    }

    /// Why a pass would be held now, if it would.
    pub(crate) fn held(&self, wall: Timestamp, monotonic: Duration) -> Option<Held> {
        let tolerance = self.parameters.lock().clock_jump_tolerance_secs;
        self.guard.lock().peek(wall, monotonic, tolerance)
    }
}
