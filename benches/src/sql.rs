//! SQL through `ebbtide-query`.

use crate::Result;
use crate::question::Value;
use arrow::array::RecordBatch;
use ebbtide::Database;
use ebbtide_query::{ScalarValue, Session};

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
    /// Errors of the query engine.
    pub fn over(db: &Database) -> Result<Option<Self>> {
        let runtime = tokio::runtime::Runtime::new()?;
        Ok(Some(Sql { runtime, session: Session::new(db.clone()).map_err(|e| e.to_string())? }))
    }

    /// Prepares a query. The result runs it with values for its parameters.
    ///
    /// # Errors
    /// Errors of the query engine.
    pub fn prepare(&self, text: &str) -> Result<impl Fn(&[Value]) -> Result<Vec<RecordBatch>>> {
        let prepared = self.runtime.block_on(self.session.prepare(text)).map_err(|e| format!("{text}: {e}"))?;
        Ok(move |values: &[Value]| {
            let scalar = |value: &Value| match value {
                Value::Text(text) => ScalarValue::from(text.as_str()),
                Value::Instant(at) => ScalarValue::TimestampMillisecond(Some(*at), Some("UTC".into())),
            };
            let values: Vec<ScalarValue> = values.iter().map(scalar).collect();
            Ok(self.runtime.block_on(prepared.execute(&values)).map_err(|e| e.to_string())?.batches)
        })
    }

    /// Runs a statement from its text, including parsing and planning.
    ///
    /// # Errors
    /// Errors of the query engine.
    pub fn run(&self, text: &str) -> Result<Vec<RecordBatch>> {
        let answer = self.runtime.block_on(self.session.execute(text));
        Ok(answer.map_err(|e| format!("{text}: {e}"))?.batches)
    }
}
