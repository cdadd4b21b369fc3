//! The memory that a run of a pipeline keeps.

use super::Result;
use crate::ExpressionError;
use bson::raw::RawDocumentBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes that the stages of pipelines keep, together. Clones count together too; no two are used at the same time.
#[derive(Debug, Clone)]
pub struct Memory {
    used: Arc<AtomicUsize>,
    max: usize,
}

impl Memory {
    /// Of this number of bytes at most.
    #[must_use]
    pub fn new(max: usize) -> Memory {
        Memory { used: Arc::default(), max }
    }

    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn set(&self, used: usize) {
        self.used.store(used, Ordering::Relaxed);
    }

    /// Counts bytes that a stage keeps from now on.
    ///
    /// # Errors
    /// 146 if that is more than the run may keep.
    pub(super) fn take(&self, bytes: usize, stage: &str) -> Result<()> {
        self.set(self.used().saturating_add(bytes));
        if self.used() <= self.max {
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
        self.set(self.used().saturating_sub(bytes));
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
        self.max.saturating_sub(self.used())
    }
}

/// About the memory that a document takes where it is kept.
pub(super) fn kept_bytes(document: &RawDocumentBuf) -> usize {
    document.as_bytes().len() + 64
}

#[cfg(test)]
mod tests;
