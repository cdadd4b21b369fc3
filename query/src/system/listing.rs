//! Listings as tables: each column is defined once, by its name and a function that returns a row's cell.

use datafusion::arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{Result, exec_err};
use ebbtide_buckets::{timestamp_type, timestamps};
use ebbtide_ttl::{Precision, Timestamp};
use std::sync::Arc;

/// A column of a listing whose rows are of type `R`.
pub(super) struct Column<R> {
    name: &'static str,
    cell: Cell<R>,
}

/// The cell of a row, by the type of its column.
enum Cell<R> {
    Text(fn(&R) -> Option<String>),
    Time(fn(&R) -> Option<Timestamp>),
    Count(fn(&R) -> u64),
    Int(fn(&R) -> Option<i64>),
    Flag(fn(&R) -> bool),
}

pub(super) const fn text<R>(name: &'static str, cell: fn(&R) -> Option<String>) -> Column<R> {
    Column { name, cell: Cell::Text(cell) }
}

pub(super) const fn time<R>(name: &'static str, cell: fn(&R) -> Option<Timestamp>) -> Column<R> {
    Column { name, cell: Cell::Time(cell) }
}

pub(super) const fn count<R>(name: &'static str, cell: fn(&R) -> u64) -> Column<R> {
    Column { name, cell: Cell::Count(cell) }
}

pub(super) const fn int<R>(name: &'static str, cell: fn(&R) -> Option<i64>) -> Column<R> {
    Column { name, cell: Cell::Int(cell) }
}

pub(super) const fn flag<R>(name: &'static str, cell: fn(&R) -> bool) -> Column<R> {
    Column { name, cell: Cell::Flag(cell) }
}

impl<R> Column<R> {
    fn array(&self, rows: &[R], unit: Precision) -> Result<ArrayRef> {
        Ok(match self.cell {
            Cell::Text(cell) => Arc::new(rows.iter().map(cell).collect::<StringArray>()),
            Cell::Time(cell) => timestamps(rows.iter().map(|row| units(cell(row), unit)).collect::<Result<_>>()?, unit),
            Cell::Count(cell) => Arc::new(UInt64Array::from_iter_values(rows.iter().map(cell))),
            Cell::Int(cell) => Arc::new(rows.iter().map(cell).collect::<Int64Array>()),
            Cell::Flag(cell) => Arc::new(rows.iter().map(|row| Some(cell(row))).collect::<BooleanArray>()),
        })
    }
}

fn units(time: Option<Timestamp>, unit: Precision) -> Result<Option<i64>> {
    let Some(time) = time else { return Ok(None) };
    match unit {
        // Even milliseconds cannot hold the expiry of the latest possible time.
        Precision::Ms => Ok(Some(time.to_units_saturating(unit))),
        _ => match time.to_units(unit) {
            Some(units) => Ok(Some(units)),
            None => exec_err!(
                "{time} does not fit {}: it was stored after the statement had been prepared; prepare the statement or \
                 create its view again",
                unit.name()
            ),
        },
    }
}

/// The schema of a listing, with times in `unit`.
pub(super) fn schema<R>(columns: &[Column<R>], unit: Precision) -> SchemaRef {
    let field = |column: &Column<R>| {
        let ty = match column.cell {
            Cell::Text(_) => DataType::Utf8,
            Cell::Time(_) => timestamp_type(unit),
            Cell::Count(_) => DataType::UInt64,
            Cell::Int(_) => DataType::Int64,
            Cell::Flag(_) => DataType::Boolean,
        };
        Field::new(column.name, ty, true)
    };
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// The rows of a listing, with times in `unit`.
pub(super) fn batch_in<R>(columns: &[Column<R>], rows: &[R], unit: Precision) -> Result<RecordBatch> {
    let arrays = columns.iter().map(|column| column.array(rows, unit)).collect::<Result<Vec<_>>>()?;
    Ok(RecordBatch::try_new(schema(columns, unit), arrays)?)
}

/// The rows of a listing, with times in the finest unit that holds them.
pub(super) fn batch<R>(columns: &[Column<R>], rows: &[R]) -> Result<RecordBatch> {
    let times = columns.iter().filter_map(|column| match column.cell {
        Cell::Time(cell) => Some(cell),
        _ => None,
    });
    let times: Vec<Timestamp> = times.flat_map(|cell| rows.iter().filter_map(cell)).collect();
    batch_in(columns, rows, unit_of(&times))
}

/// The finest unit that holds all of `times`.
pub(super) fn unit_of(times: &[Timestamp]) -> Precision {
    let holds_all = |unit: &Precision| times.iter().all(|t| t.to_units(*unit).is_some());
    [Precision::Ns, Precision::Us].into_iter().find(holds_all).unwrap_or(Precision::Ms)
}
