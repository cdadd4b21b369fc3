//! The values in the cells of a result, from either program, and when two results are equal.

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{
    DataType, Float64Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt64Type,
};
use datafusion::arrow::util::display::array_value_to_string;
use std::cmp::Ordering;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Null,
    Bool(bool),
    Int(i128),
    Double(f64),
    Text(String),
    List(Vec<Cell>),
    Object(Vec<(String, Cell)>),
}

/// How the cells of a column are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    /// Exactly; -0.0 and 0.0 are equal, and so are an integer and the double with the same value.
    Exact,
    /// To nine digits: the rest depends on the order of additions.
    Close,
    /// An instant, with the number of nanoseconds that DuckDB stores as one unit.
    Time(i64),
}

pub(crate) type Row = Vec<Cell>;

/// The rows of some batches.
pub(crate) fn rows(batches: &[RecordBatch]) -> Vec<Row> {
    let of = |batch: &RecordBatch, row: usize| batch.columns().iter().map(|c| cell(c.as_ref(), row)).collect();
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| of(batch, row))).collect()
}

fn cell(column: &dyn Array, row: usize) -> Cell {
    if column.is_null(row) {
        return Cell::Null;
    }
    let time = |units: i64, nanos: i128| Cell::Int(i128::from(units) * nanos);
    let list = |items: &dyn Array| Cell::List((0..items.len()).map(|i| cell(items, i)).collect());
    match column.data_type() {
        DataType::Null => Cell::Null,
        DataType::Boolean => Cell::Bool(column.as_boolean().value(row)),
        DataType::Int64 => Cell::Int(column.as_primitive::<Int64Type>().value(row).into()),
        DataType::Int32 => Cell::Int(column.as_primitive::<Int32Type>().value(row).into()),
        DataType::UInt64 => Cell::Int(column.as_primitive::<UInt64Type>().value(row).into()),
        DataType::Float64 => Cell::Double(column.as_primitive::<Float64Type>().value(row)),
        DataType::Timestamp(TimeUnit::Second, _) => {
            time(column.as_primitive::<TimestampSecondType>().value(row), 1_000_000_000)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            time(column.as_primitive::<TimestampMillisecondType>().value(row), 1_000_000)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            time(column.as_primitive::<TimestampMicrosecondType>().value(row), 1_000)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            time(column.as_primitive::<TimestampNanosecondType>().value(row), 1)
        }
        DataType::List(_) => list(column.as_list::<i32>().value(row).as_ref()),
        DataType::LargeList(_) => list(column.as_list::<i64>().value(row).as_ref()),
        DataType::Struct(fields) => {
            let members = fields.iter().zip(column.as_struct().columns());
            Cell::Object(members.map(|(f, c)| (f.name().clone(), cell(c.as_ref(), row))).collect())
        }
        ty => {
            let text = array_value_to_string(column, row).unwrap();
            match text.parse::<i128>() {
                Ok(whole) if ty.is_decimal() || ty.is_integer() => Cell::Int(whole),
                _ if ty.is_numeric() => Cell::Double(text.parse().unwrap()),
                _ => Cell::Text(text),
            }
        }
    }
}

/// A cell in the form that the DuckDB script writes.
pub(crate) fn from_json(value: &serde_json::Value) -> Cell {
    match value {
        serde_json::Value::Null => Cell::Null,
        serde_json::Value::Bool(b) => Cell::Bool(*b),
        serde_json::Value::String(text) => Cell::Text(text.clone()),
        serde_json::Value::Array(items) => Cell::List(items.iter().map(from_json).collect()),
        serde_json::Value::Object(tagged) => match tagged.iter().next().map(|(tag, v)| (tag.as_str(), v)) {
            Some(("i", digits)) => Cell::Int(digits.as_str().unwrap().parse().unwrap()),
            Some(("d", bits)) => Cell::Double(f64::from_bits(u64::from_str_radix(bits.as_str().unwrap(), 16).unwrap())),
            Some(("o", members)) => {
                let member = |pair: &serde_json::Value| (pair[0].as_str().unwrap().to_owned(), from_json(&pair[1]));
                Cell::Object(members.as_array().unwrap().iter().map(member).collect())
            }
            other => panic!("{other:?}"),
        },
        serde_json::Value::Number(n) => panic!("{n}"),
    }
}

/// Orders cells of one column, so that two results without an order can be compared row by row.
fn compare(a: &Cell, b: &Cell) -> Ordering {
    let rank = |cell: &Cell| match cell {
        Cell::Null => 0,
        Cell::Bool(_) => 1,
        Cell::Int(_) | Cell::Double(_) => 2,
        Cell::Text(_) => 3,
        Cell::List(_) => 4,
        Cell::Object(_) => 5,
    };
    let double = |cell: &Cell| match cell {
        Cell::Int(i) => *i as f64,
        // All NaNs are equal, and so are both zeros.
        Cell::Double(d) if d.is_nan() => f64::NAN,
        Cell::Double(d) => *d + 0.0,
        _ => 0.0,
    };
    match (a, b) {
        (Cell::Bool(a), Cell::Bool(b)) => a.cmp(b),
        (Cell::Int(a), Cell::Int(b)) => a.cmp(b),
        (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
        (Cell::List(a), Cell::List(b)) => compare_all(a.iter(), b.iter()).then(a.len().cmp(&b.len())),
        (Cell::Object(a), Cell::Object(b)) => compare_all(a.iter().map(|m| &m.1), b.iter().map(|m| &m.1)),
        _ if rank(a) == 2 && rank(b) == 2 => double(a).total_cmp(&double(b)),
        _ => rank(a).cmp(&rank(b)),
    }
}

fn compare_all<'a>(a: impl Iterator<Item = &'a Cell>, b: impl Iterator<Item = &'a Cell>) -> Ordering {
    a.zip(b).map(|(a, b)| compare(a, b)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
}

fn same(a: &Cell, b: &Cell, column: Column) -> bool {
    match (a, b) {
        (Cell::List(a), Cell::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b, column)),
        (Cell::Object(a), Cell::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && same(&a.1, &b.1, column))
        }
        (Cell::Int(_) | Cell::Double(_), Cell::Int(_) | Cell::Double(_)) if column == Column::Close => {
            let double = |cell: &Cell| {
                if let Cell::Double(d) = cell {
                    *d
                } else if let Cell::Int(i) = cell {
                    *i as f64
                } else {
                    0.0
                }
            };
            let (a, b) = (double(a), double(b));
            compare(&Cell::Double(a), &Cell::Double(b)).is_eq()
                || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-3)
        }
        (Cell::Double(a), Cell::Double(b)) => a == b || (a.is_nan() && b.is_nan()),
        _ => compare(a, b).is_eq(),
    }
}

/// The first difference between two results; `None` if they are equal.
pub(crate) fn difference(mut a: Vec<Row>, mut b: Vec<Row>, columns: &[Column], ordered: bool) -> Option<String> {
    if a.len() != b.len() {
        return Some(format!("{} rows and {}", a.len(), b.len()));
    }
    if !ordered {
        let order = |x: &Row, y: &Row| {
            let exact = |row: &Row| -> Vec<Cell> {
                row.iter().zip(columns).filter(|(_, c)| **c != Column::Close).map(|(cell, _)| cell.clone()).collect()
            };
            let (left, right) = (exact(x), exact(y));
            compare_all(left.iter(), right.iter()).then_with(|| compare_all(x.iter(), y.iter()))
        };
        a.sort_by(order);
        b.sort_by(order);
    }
    let differs = |(at, (a, b)): (usize, (&Row, &Row))| {
        let fits = a.len() == b.len() && a.len() == columns.len();
        let equal = fits && a.iter().zip(b).zip(columns).all(|((a, b), column)| same(a, b, *column));
        (!equal).then(|| format!("row {at}: {a:?}\n     and {b:?}"))
    };
    a.iter().zip(&b).enumerate().find_map(differs)
}

/// Instants as DuckDB returns them, in nanoseconds.
pub(crate) fn scale_times(rows: &mut [Row], columns: &[Column]) {
    for row in rows {
        for (cell, column) in row.iter_mut().zip(columns) {
            if let (Cell::Int(units), Column::Time(nanos)) = (&mut *cell, column) {
                *units *= i128::from(*nanos);
            }
        }
    }
}
