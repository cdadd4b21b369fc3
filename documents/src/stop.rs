//! Whether a command must end before it is done.

use crate::ExpressionError;

/// Asks, while a command works, whether it was ended or its time is over.
#[derive(Clone, Copy)]
pub(crate) struct Stop<'a>(pub(crate) &'a dyn Fn() -> bool);

fn never() -> bool {
    false
}

impl Stop<'_> {
    /// For work that always runs to its end.
    pub(crate) const NEVER: Stop<'static> = Stop(&never);

    /// # Errors
    /// 50 if the command is to end.
    pub(crate) fn check(self) -> std::result::Result<(), ExpressionError> {
        match (self.0)() {
            true => Err(ExpressionError::new(50, "the command took longer than maxTimeMS")),
            false => Ok(()),
        }
    }
}
