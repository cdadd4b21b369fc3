//! Instants in Arrow: the unit of each precision, and columns of instants.

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::{
    DataType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
};
use ebbtide_ttl::Precision;
use std::sync::Arc;

/// The Arrow type of instants: UTC, in the unit of `precision`.
#[must_use]
pub fn timestamp_type(precision: Precision) -> DataType {
    let unit = match precision {
        Precision::Ms => TimeUnit::Millisecond,
        Precision::Us => TimeUnit::Microsecond,
        Precision::Ns => TimeUnit::Nanosecond,
    };
    DataType::Timestamp(unit, Some("UTC".into()))
}

/// Nanoseconds in one unit.
#[must_use]
pub fn unit_nanos(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// A column of the type [`timestamp_type`] from units since 1970; `None` is null.
#[must_use]
pub fn timestamps(units: Vec<Option<i64>>, precision: Precision) -> ArrayRef {
    instants(Int64Array::from(units), precision)
}

/// A column of the type [`timestamp_type`] from units since 1970.
#[must_use]
pub(crate) fn instants(units: Int64Array, precision: Precision) -> ArrayRef {
    match precision {
        Precision::Ms => Arc::new(units.reinterpret_cast::<TimestampMillisecondType>().with_timezone("UTC")),
        Precision::Us => Arc::new(units.reinterpret_cast::<TimestampMicrosecondType>().with_timezone("UTC")),
        Precision::Ns => Arc::new(units.reinterpret_cast::<TimestampNanosecondType>().with_timezone("UTC")),
    }
}
