//! `ebbtide conformance`: the engine's case runner, with SQL from this crate.

use crate::args::ConformanceArgs;
use crate::{Failure, say};
use ebbtide::Database;
use ebbtide::conformance::{SqlRunner, run_paths};
use ebbtide_query::Session;
use serde_json::{Map, Value};

/// Runs the `sql` steps of cases.
pub(crate) struct Runner<'a> {
    pub(crate) runtime: &'a tokio::runtime::Runtime,
}

impl SqlRunner for Runner<'_> {
    fn run(&self, database: &Database, sql: &str) -> Result<Vec<Map<String, Value>>, ebbtide::Error> {
        let run = async {
            let session = Session::new(database.clone())?;
            let result = session.execute(sql).await?;
            let mut rows = Vec::with_capacity(result.rows());
            for batch in &result.batches {
                rows.extend(ebbtide_query::output::json_rows(batch)?);
            }
            Ok(rows)
        };
        self.runtime.block_on(run).map_err(|e: ebbtide_query::QueryError| ebbtide::Error::new(e.code(), e.message()))
    }
}

/// Runs `ebbtide conformance`.
pub(crate) fn run(args: &ConformanceArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    let outcomes = run_paths(&args.paths, Some(&Runner { runtime }));
    let mut failed = 0;
    for outcome in &outcomes {
        if let Some(why) = &outcome.skipped {
            say!("{}: skipped: {why}", outcome.path.display());
        }
        for failure in &outcome.failures {
            say!("{}: {}: {failure}", outcome.path.display(), outcome.name);
        }
        failed += usize::from(!outcome.passed());
    }
    if outcomes.is_empty() {
        return Err(Failure::new("no cases found (files whose names end in .json)"));
    }
    say!("{} cases, {} passed, {failed} failed", outcomes.len(), outcomes.len() - failed);
    if failed == 0 { Ok(()) } else { Err(Failure::new(format!("{failed} of {} cases failed", outcomes.len()))) }
}
