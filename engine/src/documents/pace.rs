//! Whether a command that looks at many documents goes on.

use crate::error::{Error, Result};
use ebbtide_ttl::Code;
use std::fmt;
use std::sync::Arc;

/// Documents that are looked at between two questions.
const STRIDE: u32 = 256;

/// Asked now and then, while a command looks at documents: `true` ends it with [`Code::Interrupted`]. By default a command runs
/// to its end.
#[derive(Clone, Default)]
pub struct Stop(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Stop {
    /// Ends commands once this says `true`. It is asked often and by any thread, so it must be quick.
    pub fn when(over: impl Fn() -> bool + Send + Sync + 'static) -> Stop {
        Stop(Some(Arc::new(over)))
    }

    /// # Errors
    /// [`Code::Interrupted`] if the command is to end.
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.as_ref().is_some_and(|over| over()) {
            true => Err(Error::new(Code::Interrupted, "the command was stopped")),
            false => Ok(()),
        }
    }

    pub(crate) fn pace(&self) -> Pace<'_> {
        Pace { stop: self, looked: 0 }
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
