//! Functions that DataFusion computes, over frames that are found here.

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::window::StandardWindowFunctionExpr;
use std::ops::Range;
use std::sync::Arc;

/// A function.
#[derive(Debug, Clone)]
pub(super) enum Other {
    Aggregate(Arc<AggregateFunctionExpr>),
    /// `first_value` and the like.
    OfRows(Arc<dyn StandardWindowFunctionExpr>),
}

/// What a function needs to know of the rows of a partition.
#[derive(Debug)]
pub(super) struct OtherFrame {
    function: Other,
    result: DataType,
    /// Whether rows leave the frame.
    slides: bool,
    /// The arguments, of rows from some row on.
    columns: Vec<ArrayRef>,
    base: usize,
    /// Of what is in the frame.
    accumulator: Option<Box<dyn Accumulator>>,
}

impl OtherFrame {
    pub(super) fn new(function: Other, result: DataType, slides: bool) -> OtherFrame {
        OtherFrame { function, result, slides, columns: Vec::new(), base: 0, accumulator: None }
    }

    /// Adds the arguments of further rows of the partition.
    pub(super) fn add(&mut self, columns: &[ArrayRef]) -> Result<()> {
        if self.columns.is_empty() {
            self.columns = columns.to_vec();
            return Ok(());
        }
        for (known, more) in self.columns.iter_mut().zip(columns) {
            *known = concat(&[known.as_ref(), more.as_ref()])?;
        }
        Ok(())
    }

    fn of(&self, rows: &Range<usize>) -> Vec<ArrayRef> {
        self.columns.iter().map(|column| column.slice(rows.start - self.base, rows.len())).collect()
    }

    pub(super) fn enter(&mut self, rows: &Range<usize>) -> Result<()> {
        let Other::Aggregate(aggregate) = &self.function else { return Ok(()) };
        if rows.is_empty() {
            return Ok(());
        }
        let mut accumulator = match self.accumulator.take() {
            Some(accumulator) => accumulator,
            None if self.slides => aggregate.create_sliding_accumulator()?,
            None => aggregate.create_accumulator()?,
        };
        accumulator.update_batch(&self.of(rows))?;
        self.accumulator = Some(accumulator);
        Ok(())
    }

    pub(super) fn leave(&mut self, rows: &Range<usize>) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let values = self.of(rows);
        self.accumulator.as_mut().map_or(Ok(()), |accumulator| accumulator.retract_batch(&values))
    }

    /// Lets all rows leave.
    pub(super) fn leave_all(&mut self) {
        self.accumulator = None;
    }

    pub(super) fn answer(&mut self, rows: &Range<usize>) -> Result<ScalarValue> {
        match (&self.function, &mut self.accumulator) {
            (Other::OfRows(function), _) => {
                let rows = rows.start - self.base..rows.end - self.base;
                function.create_evaluator()?.evaluate(&self.columns, &rows)
            }
            (Other::Aggregate(_), Some(accumulator)) => accumulator.evaluate(),
            (Other::Aggregate(aggregate), None) => aggregate.default_value(&self.result),
        }
    }

    /// Lets go of the rows before one.
    pub(super) fn forget(&mut self, before: usize) {
        let known = self.columns.first().map_or(0, |column| column.len());
        let gone = before.saturating_sub(self.base).min(known);
        for column in &mut self.columns {
            *column = column.slice(gone, known - gone);
        }
        self.base += gone;
    }

    /// Begins with another partition.
    pub(super) fn restart(&mut self) {
        (self.columns, self.base, self.accumulator) = (Vec::new(), 0, None);
    }

    pub(super) fn bytes(&self) -> usize {
        let columns: usize = self.columns.iter().map(|column| column.get_array_memory_size()).sum();
        columns + self.accumulator.as_ref().map_or(0, |accumulator| accumulator.size())
    }
}
