//! Results as text and files: tables, CSV, JSON, Parquet and Arrow.

mod cell;
mod file_types;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub use cell::{instant, json_rows, number, text};
pub use table::{RECORDS_MAX, TableStyle, render};
pub use writer::{Format, ResultWriter};
