//! A compact, cheap encoding of a batch: the form in which the log keeps an insert until its rows are sealed.
//!
//! Integers are stored as differences from the minimum, or from the previous one, in 0, 1, 2, 4 or 8 bytes each;
//! doubles that are short decimals as integers with a scale; texts that repeat by number; nulls in a bitmap only. The
//! unpacked batch is identical bit for bit. FORMAT.md describes the bytes.

mod ints;
mod reader;
mod writer;

pub use reader::unpack;
pub use writer::pack;

use arrow::datatypes::{DataType, Field, TimeUnit};
use std::sync::Arc;

/// The first byte of every packed batch.
const VERSION: u8 = 1;

/// Codes of types; [`NULLABLE`] is added to them.
const BOOL: u8 = 0;
const INT: u8 = 1;
const DOUBLE: u8 = 2;
const STRING: u8 = 3;
const TIME_MS: u8 = 4;
const TIME_US: u8 = 5;
const TIME_NS: u8 = 6;
const BINARY: u8 = 7;
const LIST: u8 = 8;
const OBJECT: u8 = 9;
const NULLABLE: u8 = 0x80;

/// Which rows hold a value: all, none, or those of a bitmap.
const ALL: u8 = 0;
const NONE: u8 = 1;
const SOME: u8 = 2;

/// Doubles as they are, or as decimals.
const RAW: u8 = 0;
const DECIMAL: u8 = 1;

/// Texts one after another, or the distinct ones and an index for each row.
const PLAIN: u8 = 0;
const DICTIONARY: u8 = 1;

/// The code of a type without members, and back.
const SCALARS: [(u8, fn() -> DataType); 8] = [
    (BOOL, || DataType::Boolean),
    (INT, || DataType::Int64),
    (DOUBLE, || DataType::Float64),
    (STRING, || DataType::Utf8View),
    (TIME_MS, || utc(TimeUnit::Millisecond)),
    (TIME_US, || utc(TimeUnit::Microsecond)),
    (TIME_NS, || utc(TimeUnit::Nanosecond)),
    (BINARY, || DataType::Binary),
];

fn utc(unit: TimeUnit) -> DataType {
    DataType::Timestamp(unit, Some(Arc::from("UTC")))
}

fn item(ty: DataType, nullable: bool) -> Arc<Field> {
    Arc::new(Field::new("item", ty, nullable))
}

#[cfg(test)]
mod tests;
