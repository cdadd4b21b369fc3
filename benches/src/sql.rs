//! SQL through `ebbtide-query`.

use crate::Result;
use arrow::array::RecordBatch;
use ebbtide::Database;
use ebbtide_query::Session;

/// A session over a database.
#[derive(Debug)]
pub struct Sql {
    runtime: tokio::runtime::Runtime,
    session: Session,
}

impl Sql {
    /// A session over `db`.
    ///
    /// # Errors
    /// What the query engine says.
    pub fn over(db: &Database) -> Result<Option<Self>> {
        let runtime = tokio::runtime::Runtime::new()?;
        Ok(Some(Sql { runtime, session: Session::new(db.clone()).map_err(|e| e.to_string())? }))
    }

    /// Runs a statement from its text on: parsing and planning are in its time.
    ///
    /// # Errors
    /// What the query engine says.
    pub fn run(&self, text: &str) -> Result<Vec<RecordBatch>> {
        let answer = self.runtime.block_on(self.session.execute(text));
        Ok(answer.map_err(|e| format!("{text}: {e}"))?.batches)
    }
}
