//! When a command has to end: its time is over, or somebody ended it.

use crate::error::{CommandError, Result, ServerCode};
use ebbtide::Stop;
use ebbtide_ttl::{Clock, Code, SystemClock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// When a command has to end. Whatever may take long looks at it now and then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline<'a> {
    clock: &'a Arc<SystemClock>,
    /// On the clock's monotonic time.
    at: Option<Duration>,
    killed: &'a Arc<AtomicBool>,
}

impl<'a> Deadline<'a> {
    /// That of a command which `killed` ends.
    pub(crate) fn new(clock: &'a Arc<SystemClock>, killed: &'a Arc<AtomicBool>) -> Self {
        Deadline { clock, at: None, killed }
    }

    /// The same, with so much time from now on.
    pub(crate) fn after(self, time: Duration) -> Self {
        Deadline { at: Some(self.clock.monotonic().saturating_add(time)), ..self }
    }

    /// The time that is left, if it is limited.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.at.map(|at| at.saturating_sub(self.clock.monotonic()))
    }

    /// Fails once the command has taken longer than its `maxTimeMS`, or was ended.
    pub(crate) fn check(&self) -> Result<()> {
        if self.killed.load(Ordering::Relaxed) {
            return Err(CommandError::new(Code::Interrupted, "operation was interrupted"));
        }
        match self.at {
            Some(at) if self.clock.monotonic() >= at => {
                Err(CommandError::of_server(ServerCode::MaxTimeMSExpired, "the command took longer than maxTimeMS"))
            }
            _ => Ok(()),
        }
    }

    /// The same for the engine.
    pub(crate) fn stop(&self) -> Stop {
        let (clock, at, killed) = (self.clock.clone(), self.at, self.killed.clone());
        Stop::when(move || killed.load(Ordering::Relaxed) || at.is_some_and(|at| clock.monotonic() >= at))
    }

    /// The same, to be kept.
    pub(crate) fn kept(self) -> KeptDeadline {
        KeptDeadline { clock: self.clock.clone(), at: self.at, killed: self.killed.clone() }
    }

    /// Why the command ended early, if that is what an error is about.
    pub(crate) fn reason(&self, error: CommandError) -> CommandError {
        let is_early = [Code::Interrupted.number(), ServerCode::MaxTimeMSExpired as i32].contains(&error.code);
        self.check().err().filter(|_| is_early).unwrap_or(error)
    }
}

/// A deadline with its own clock and flag.
#[derive(Debug, Clone)]
pub(crate) struct KeptDeadline {
    clock: Arc<SystemClock>,
    at: Option<Duration>,
    killed: Arc<AtomicBool>,
}

impl KeptDeadline {
    pub(crate) fn get(&self) -> Deadline<'_> {
        Deadline { clock: &self.clock, at: self.at, killed: &self.killed }
    }
}
