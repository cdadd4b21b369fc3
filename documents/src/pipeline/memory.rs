//! The memory that a run of a pipeline keeps.

use super::Result;
use crate::ExpressionError;
use std::cell::Cell;

/// Counts the bytes that the stages of one run keep, together.
#[derive(Debug)]
pub(super) struct Memory {
    used: Cell<usize>,
    max: usize,
}

impl Memory {
    pub(super) fn new(max: usize) -> Memory {
        Memory { used: Cell::new(0), max }
    }

    /// Counts bytes that a stage keeps from now on.
    ///
    /// # Errors
    /// 146 if that is more than the run may keep.
    pub(super) fn take(&self, bytes: usize, stage: &str) -> Result<()> {
        self.used.set(self.used.get().saturating_add(bytes));
        if self.used.get() <= self.max {
            return Ok(());
        }
        let message = format!(
            "Exceeded memory limit for {stage}: a statement may keep {} MB in memory; narrow its input",
            self.max >> 20
        );
        Err(ExpressionError::new(146, message))
    }

    /// Bytes that are no longer kept.
    pub(super) fn give_back(&self, bytes: usize) {
        self.used.set(self.used.get().saturating_sub(bytes));
    }

    /// Counts what is kept now instead of before.
    ///
    /// # Errors
    /// As for [`Memory::take`].
    pub(super) fn change(&self, before: usize, now: usize, stage: &str) -> Result<()> {
        self.give_back(before.saturating_sub(now));
        self.take(now.saturating_sub(before), stage)
    }

    /// The bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.max.saturating_sub(self.used.get())
    }
}

#[cfg(test)]
mod tests;
