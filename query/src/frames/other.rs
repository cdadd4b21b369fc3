//! Functions that DataFusion computes, over frames that are found here.

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::StandardWindowFunctionExpr;
use datafusion::physical_plan::windows::WindowUDFExpr;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Up to this many rows at each end of a frame are copied for each row.
const REACH_MAX: usize = 64;

/// A function.
#[derive(Debug, Clone)]
pub(super) enum Other {
    Aggregate(Arc<AggregateFunctionExpr>),
    /// `first_value` and the like.
    OfRows(Arc<dyn StandardWindowFunctionExpr>),
}

impl Other {
    /// How many rows at each end of a frame a function of rows looks at, if they are few; `None` if it may look at all.
    fn reach(&self) -> Option<usize> {
        let Other::OfRows(function) = self else { return None };
        let function = function.as_any().downcast_ref::<WindowUDFExpr>()?;
        // It cannot be asked for; this is how it is shown.
        if !format!("{function:?}").ends_with("ignore_nulls: false }") {
            return None;
        }
        match (function.fun().name(), function.args()) {
            ("first_value" | "last_value", _) => Some(1),
            ("nth_value", [_, place]) => match place.downcast_ref::<Literal>()?.value() {
                ScalarValue::Int64(Some(place)) => {
                    usize::try_from(place.unsigned_abs().max(1)).ok().filter(|reach| *reach <= REACH_MAX)
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// The arguments of rows that follow one another.
#[derive(Debug)]
struct Piece {
    rows: Range<usize>,
    columns: Vec<ArrayRef>,
    bytes: usize,
}

impl Piece {
    fn new(start: usize, columns: Vec<ArrayRef>) -> Piece {
        let rows = columns.first().map_or(0, |column| column.len());
        let bytes = columns.iter().map(|column| column.get_array_memory_size()).sum();
        Piece { rows: start..start + rows, columns, bytes }
    }

    /// The arguments of those of some rows that are in it.
    fn of(&self, rows: &Range<usize>) -> Vec<ArrayRef> {
        let (start, end) = (rows.start.max(self.rows.start), rows.end.min(self.rows.end));
        self.columns.iter().map(|column| column.slice(start - self.rows.start, end - start)).collect()
    }
}

/// The same columns of several pieces as one.
fn joined(pieces: &[Vec<ArrayRef>]) -> Result<Vec<ArrayRef>> {
    let column = |at: usize| {
        let pieces: Vec<&dyn Array> = pieces.iter().map(|columns| columns[at].as_ref()).collect();
        Ok(concat(&pieces)?)
    };
    (0..pieces.first().map_or(0, Vec::len)).map(column).collect()
}

/// What a function needs to know of the rows of a partition.
#[derive(Debug)]
pub(super) struct OtherFrame {
    function: Other,
    result: DataType,
    /// Whether rows leave the frame.
    slides: bool,
    /// [`Other::reach`].
    reach: Option<usize>,
    /// The arguments of rows that may still be looked at, as they came.
    pieces: VecDeque<Piece>,
    /// The rows that have come.
    rows: usize,
    /// Of the pieces.
    bytes: usize,
    /// Of what is in the frame.
    accumulator: Option<Box<dyn Accumulator>>,
}

impl OtherFrame {
    pub(super) fn new(function: Other, result: DataType, slides: bool) -> OtherFrame {
        let reach = function.reach();
        OtherFrame { function, result, slides, reach, pieces: VecDeque::new(), rows: 0, bytes: 0, accumulator: None }
    }

    /// Adds the arguments of further rows of the partition.
    pub(super) fn add(&mut self, columns: &[ArrayRef]) -> Result<()> {
        let mut piece = Piece::new(self.rows, columns.to_vec());
        self.rows = piece.rows.end;
        // A function that may look at all rows of a frame gets them in one piece.
        if matches!(self.function, Other::OfRows(_))
            && self.reach.is_none()
            && let Some(known) = self.pieces.pop_back()
        {
            self.bytes -= known.bytes;
            piece = Piece::new(known.rows.start, joined(&[known.columns, piece.columns])?);
        }
        self.bytes += piece.bytes;
        self.pieces.push_back(piece);
        Ok(())
    }

    /// The place of the first piece that may have rows from one on.
    fn place(&self, row: usize) -> usize {
        self.pieces.partition_point(|piece| piece.rows.end <= row)
    }

    /// The arguments of some rows, in pieces.
    fn of(&self, rows: &Range<usize>) -> Vec<Vec<ArrayRef>> {
        let pieces = self.pieces.range(self.place(rows.start)..);
        pieces.take_while(|piece| piece.rows.start < rows.end).map(|piece| piece.of(rows)).collect()
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
        self.of(rows).iter().try_for_each(|values| accumulator.update_batch(values))?;
        self.accumulator = Some(accumulator);
        Ok(())
    }

    pub(super) fn leave(&mut self, rows: &Range<usize>) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let pieces = self.of(rows);
        let Some(accumulator) = &mut self.accumulator else { return Ok(()) };
        pieces.iter().try_for_each(|values| accumulator.retract_batch(values))
    }

    /// Lets all rows leave.
    pub(super) fn leave_all(&mut self) {
        self.accumulator = None;
    }

    pub(super) fn answer(&mut self, rows: &Range<usize>) -> Result<ScalarValue> {
        match &self.function {
            Other::OfRows(_) if rows.is_empty() => ScalarValue::try_from(&self.result),
            Other::OfRows(function) => {
                let (columns, rows) = self.looked_at(rows)?;
                function.create_evaluator()?.evaluate(&columns, &rows)
            }
            Other::Aggregate(aggregate) => match &mut self.accumulator {
                Some(accumulator) => accumulator.evaluate(),
                None => aggregate.default_value(&self.result),
            },
        }
    }

    /// The arguments that a function of rows looks at, and the rows among them that stand for those of a frame.
    fn looked_at(&self, rows: &Range<usize>) -> Result<(Vec<ArrayRef>, Range<usize>)> {
        if let Some(piece) = self.pieces.get(self.place(rows.start))
            && rows.end <= piece.rows.end
        {
            let start = piece.rows.start;
            return Ok((piece.columns.clone(), rows.start - start..rows.end - start));
        }
        let pieces = match self.reach {
            Some(reach) if reach < rows.len() / 2 => {
                [self.of(&(rows.start..rows.start + reach)), self.of(&(rows.end - reach..rows.end))].concat()
            }
            _ => self.of(rows),
        };
        let columns = joined(&pieces)?;
        let rows = columns.first().map_or(0, |column| column.len());
        Ok((columns, 0..rows))
    }

    /// Lets go of the rows before one.
    pub(super) fn forget(&mut self, before: usize) {
        while let Some(piece) = self.pieces.pop_front_if(|piece| piece.rows.end <= before) {
            self.bytes -= piece.bytes;
        }
        if let Some(piece) = self.pieces.front_mut()
            && piece.rows.start < before
        {
            piece.columns = piece.of(&(before..piece.rows.end));
            piece.rows.start = before;
        }
    }

    /// Begins with another partition.
    pub(super) fn restart(&mut self) {
        self.pieces.clear();
        (self.rows, self.bytes, self.accumulator) = (0, 0, None);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.accumulator.as_ref().map_or(0, |accumulator| accumulator.size())
    }
}
