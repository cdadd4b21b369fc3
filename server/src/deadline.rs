//! The time that a command may take.

use crate::error::{CommandError, Result, ServerCode};
use ebbtide_ttl::{Clock, SystemClock};
use std::time::Duration;

/// When a command should have ended, on the clock's monotonic time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline<'a> {
    clock: &'a SystemClock,
    at: Option<Duration>,
}

impl<'a> Deadline<'a> {
    pub(crate) fn none(clock: &'a SystemClock) -> Self {
        Deadline { clock, at: None }
    }

    pub(crate) fn after(clock: &'a SystemClock, time: Duration) -> Self {
        Deadline { clock, at: Some(clock.monotonic().saturating_add(time)) }
    }

    /// The time that is left, if it is limited.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.at.map(|at| at.saturating_sub(self.clock.monotonic()))
    }

    /// Fails once the command has taken longer than its `maxTimeMS`.
    pub(crate) fn check(&self) -> Result<()> {
        match self.at {
            Some(at) if self.clock.monotonic() >= at => {
                Err(CommandError::of_server(ServerCode::MaxTimeMSExpired, "the command took longer than maxTimeMS"))
            }
            _ => Ok(()),
        }
    }
}
