//! A batch of rows with the position of each in its input.

use super::Failure;
use super::bad::BadLines;
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use std::cell::RefCell;
use std::rc::Rc;

/// A batch of rows and their positions in the input.
pub(super) struct Rows {
    pub(super) batch: RecordBatch,
    pub(super) source: Rc<str>,
    /// The line (or, of a Parquet or Arrow file, the row) of each row.
    pub(super) lines: Vec<u64>,
    /// Records of the file up to the end of this batch.
    pub(super) end: u64,
}

impl Rows {
    /// The message of an error about one row, without the row's index in its batch.
    pub(super) fn reason(index: usize, message: &str) -> &str {
        message.strip_prefix(&format!("index {index}: ")).unwrap_or(message)
    }

    /// Removes a row that cannot be stored and sets it aside.
    pub(super) fn set_aside(&mut self, index: usize, message: &str, bad: &RefCell<BadLines>) -> Result<(), Failure> {
        let row = self.batch.slice(index.min(self.batch.num_rows().saturating_sub(1)), 1);
        let text = ebbtide_query::output::json_rows(&row)?.pop().map(|r| serde_json::Value::Object(r).to_string());
        let line = self.lines.get(index).copied().unwrap_or(0);
        bad.borrow_mut().row(&self.source, line, Self::reason(index, message), &text.unwrap_or_default())?;
        let kept: Vec<u32> =
            (0..self.batch.num_rows()).filter(|i| *i != index).filter_map(|i| u32::try_from(i).ok()).collect();
        self.batch =
            take_record_batch(&self.batch, &UInt32Array::from(kept)).map_err(ebbtide_query::QueryError::from)?;
        self.lines.remove(index);
        Ok(())
    }
}
