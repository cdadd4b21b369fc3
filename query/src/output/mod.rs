//! Results as text and files: tables, CSV, JSON, Parquet and Arrow.

mod cell;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use cell::{instant, number};
pub use cell::{json_rows, text};
pub(crate) use table::RECORDS_MAX;
pub use table::{TableStyle, render};
pub use writer::{Format, ResultWriter};
