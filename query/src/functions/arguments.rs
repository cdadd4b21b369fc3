//! Arguments of functions: their types, and errors about them.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};

/// An error about an argument of a function, such as `rate: argument 2 (time) is Utf8, a timestamp is wanted`.
pub(super) fn wrong<T>(function: &str, at: usize, what: &str, why: &str) -> Result<T> {
    plan_err!("{function}: argument {at} ({what}) {why}")
}

pub(super) fn is_time(kind: &DataType) -> bool {
    matches!(kind, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64)
}
