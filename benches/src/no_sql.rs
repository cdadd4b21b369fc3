//! In place of SQL where the runner was built without it.

use crate::Result;
use arrow::array::RecordBatch;
use ebbtide::Database;

/// There is none.
#[derive(Debug)]
pub enum Sql {}

impl Sql {
    /// None.
    ///
    /// # Errors
    /// None.
    pub fn over(_: &Database) -> Result<Option<Self>> {
        Ok(None)
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn run(&self, _: &str) -> Result<Vec<RecordBatch>> {
        match *self {}
    }
}
