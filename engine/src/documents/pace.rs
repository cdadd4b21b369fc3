//! Whether a command that takes long goes on.

use crate::error::{Error, Result};
use ebbtide_ttl::Code;
use std::fmt;
use std::sync::Arc;

/// Documents that are looked at between two questions.
pub(super) const STRIDE: u32 = 256;

/// Asked now and then, while a command reads or prepares a write: `true` ends it with [`Code::Interrupted`], and nothing is
/// written. By default a command runs to its end.
#[derive(Clone, Default)]
pub struct Stop {
    over: Option<Question>,
    before_commit: Option<Question>,
}

type Question = Arc<dyn Fn() -> bool + Send + Sync>;

impl Stop {
    /// Ends commands once this says `true`. It is asked often and by any thread, so it must be quick.
    pub fn when(over: impl Fn() -> bool + Send + Sync + 'static) -> Stop {
        Stop { over: Some(Arc::new(over)), before_commit: None }
    }

    /// Asks this instead for the last time, when a write is prepared and about to be committed. Once it has said `false`, the
    /// write can no longer be stopped.
    #[must_use]
    pub fn before_commit(self, over: impl Fn() -> bool + Send + Sync + 'static) -> Stop {
        Stop { before_commit: Some(Arc::new(over)), ..self }
    }

    /// # Errors
    /// [`Code::Interrupted`] if the command is to end.
    pub(crate) fn check(&self) -> Result<()> {
        check(self.over.as_ref())
    }

    /// The last question before a write is committed. Commands that take a `Stop` ask it themselves.
    ///
    /// # Errors
    /// [`Code::Interrupted`] if the write is to end.
    pub fn begin_commit(&self) -> Result<()> {
        check(self.before_commit.as_ref().or(self.over.as_ref()))
    }

    pub(crate) fn pace(&self) -> Pace<'_> {
        Pace { stop: self, looked: 0 }
    }
}

fn check(over: Option<&Question>) -> Result<()> {
    match over.is_some_and(|over| over()) {
        true => Err(Error::new(Code::Interrupted, "the command was stopped")),
        false => Ok(()),
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stop")
    }
}

/// Counts documents, and asks at the first one and every so often.
pub(crate) struct Pace<'a> {
    stop: &'a Stop,
    looked: u32,
}

impl Pace<'_> {
    pub(crate) fn step(&mut self) -> Result<()> {
        let due = self.looked.is_multiple_of(STRIDE);
        self.looked = self.looked.wrapping_add(1);
        if due { self.stop.check() } else { Ok(()) }
    }
}
