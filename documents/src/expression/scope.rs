//! What an expression sees, and what its values may take.
//!
//! 1. Values that are kept while others are made (operands, variables, lists that grow) have one limit together: a list of lists,
//!    or a text that doubles in each round of `$reduce`, would fill the memory.
//! 2. A value has no more levels than a document may have, since whatever compares and copies values recurses.
//! 3. One evaluation takes no more than a number of steps: lists that are gone through within each other could take days for one
//!    document. Each operator and each operand is a step, and so is each block of the bytes that paths and constants copy, and of
//!    those that are kept. At intervals of steps it asks whether the command was ended.

use super::accumulator::size_of_value;
use super::{ExpressionError, Result, Value, Variable, reach};
use crate::raw::{is_deeper, list_as_object};
use crate::stop::Stop;
use bson::raw::{RawBson, RawBsonRef, RawDocument};

/// Bytes of the values that an expression keeps at a time; fewer in tests.
const BYTES_MAX: usize = if cfg!(test) { 4 << 20 } else { 100 << 20 };
/// Steps of an evaluation: operators, operands, and blocks of the bytes that are copied, made or kept; fewer in tests.
const STEPS_MAX: usize = if cfg!(test) { 1 << 23 } else { 1 << 29 };
/// Steps between two questions whether the command was ended.
const STRIDE: usize = 1 << 12;
/// Bytes that are copied or kept in a step.
const STEP_BYTES: usize = 64;
/// Levels of objects and lists in each other, as in MongoDB.
pub(crate) const LEVELS_MAX: usize = 200;

/// When an expression is evaluated, and what may end that.
#[derive(Clone, Copy)]
pub(crate) struct Moment<'a> {
    /// `$$NOW`, in milliseconds since 1970.
    pub(crate) now_ms: i64,
    pub(crate) stop: Stop<'a>,
    /// The variables of the `$lookup`s around a pipeline.
    pub(crate) variables: &'a [Value],
}

impl Moment<'_> {
    /// An evaluation at this instant that nothing ends.
    pub(crate) fn at(now_ms: i64) -> Moment<'static> {
        Moment { now_ms, stop: Stop::NEVER, variables: &[] }
    }
}

/// What an expression sees.
pub(crate) struct Scope<'a> {
    root: &'a RawDocument,
    moment: Moment<'a>,
    slots: Vec<Value>,
    /// Bytes of the values that are kept.
    kept: usize,
    steps: usize,
    /// The step after which it asks whether the command was ended.
    asks_after: usize,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(root: &'a RawDocument, moment: Moment<'a>) -> Scope<'a> {
        Scope { root, moment, slots: Vec::new(), kept: 0, steps: 0, asks_after: STRIDE }
    }

    pub(super) fn bind(&mut self, slot: usize, value: Value) {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        self.slots[slot] = value;
    }

    /// Forgets the variables from a slot on.
    pub(super) fn unbind(&mut self, slot: usize) {
        self.slots.truncate(slot);
    }

    pub(super) fn path(&self, variable: Variable, names: &[String]) -> Value {
        match variable {
            Variable::Root => reach(RawBsonRef::Document(self.root), names),
            Variable::Now => reach(RawBsonRef::DateTime(bson::DateTime::from_millis(self.moment.now_ms)), names),
            Variable::Outer(at) => reach(self.moment.variables.get(at)?.as_ref()?.as_raw_bson_ref(), names),
            Variable::Slot(slot) => reach(self.slots.get(slot)?.as_ref()?.as_raw_bson_ref(), names),
        }
    }

    /// Counts a step.
    ///
    /// # Errors
    /// 146 if there were too many: drivers would run the query again after 262, which is about time. 50 if the command was ended.
    pub(super) fn step(&mut self) -> Result<()> {
        self.steps += 1;
        if self.steps <= self.asks_after {
            return Ok(());
        }
        if self.steps > STEPS_MAX {
            let what = format!("an expression takes more than {STEPS_MAX} steps for one document");
            return Err(ExpressionError::new(146, what));
        }
        self.asks_after = (self.steps + STRIDE).min(STEPS_MAX);
        self.moment.stop.check()
    }

    /// The steps that were taken.
    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// Asks whether the command was ended: for what takes long without steps.
    ///
    /// # Errors
    /// 50 if it was.
    pub(super) fn ask(&self) -> Result<()> {
        self.moment.stop.check()
    }

    /// Counts the steps of a value that was copied or made.
    pub(super) fn copied(&mut self, value: &Value) {
        self.steps += value.as_ref().map_or(0, size_of_value) / STEP_BYTES;
    }

    /// The bytes that are kept: to be given to [`Scope::let_go`] when what is kept from now on no longer is.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// Counts no more than was kept before.
    pub(super) fn let_go(&mut self, before: usize) {
        self.kept = before;
    }

    /// Counts a value that is kept.
    ///
    /// # Errors
    /// 146 if too much is kept.
    pub(crate) fn keep(&mut self, value: &Value) -> Result<()> {
        self.keep_bytes(value.as_ref().map_or(0, size_of_value))
    }

    /// Counts bytes that are kept, as [`Scope::keep`].
    pub(super) fn keep_bytes(&mut self, bytes: usize) -> Result<()> {
        self.kept = self.kept.saturating_add(bytes);
        self.steps += bytes / STEP_BYTES;
        if self.kept <= BYTES_MAX {
            return Ok(());
        }
        let what = format!("the values that an expression makes take more than {} MB", BYTES_MAX >> 20);
        Err(ExpressionError::new(146, what))
    }
}

/// Refuses a value with too many levels.
pub(super) fn check_levels(value: &Value) -> Result<()> {
    match value {
        Some(RawBson::Document(document)) => check_document(document),
        Some(RawBson::Array(list)) => list_as_object(list).map_or(Ok(()), check_document),
        _ => Ok(()),
    }
}

/// Refuses a document with too many levels.
pub(crate) fn check_document(document: &RawDocument) -> Result<()> {
    if is_deeper(document, LEVELS_MAX) {
        return Err(ExpressionError::new(15, format!("a value exceeds the depth limit of {LEVELS_MAX} levels")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
