//! Replaces `sql` if the runner was built without SQL.

use crate::Result;
use crate::question::Value;
use arrow::array::RecordBatch;
use ebbtide::Database;

/// The type of a prepared query.
pub type Run = fn(&[Value]) -> Result<Vec<RecordBatch>>;

/// A session, which does not exist here.
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
    pub fn prepare(&self, _: &str) -> Result<Run> {
        match *self {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn run(&self, _: &str) -> Result<Vec<RecordBatch>> {
        match *self {}
    }
}
