//! Table functions over the collections of several databases.

use super::table::text_argument;
use crate::context::StatementContext;
use crate::several::{Named, Part, state_for, together};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::Expr;
use ebbtide::Snapshot;
use std::sync::Arc;

/// A table function over a collection: over that of each database that has one.
#[derive(Debug)]
pub(super) struct OfEach<F> {
    pub(super) name: &'static str,
    pub(super) function: F,
    /// Whether its columns are those of the collection, and perhaps more.
    pub(super) gives_rows: bool,
    /// Whether a database has what the function needs of a collection.
    pub(super) has: fn(&Snapshot, &str) -> bool,
}

impl<F: TableFunctionImpl> TableFunctionImpl for OfEach<F> {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let context = StatementContext::of(args.session().config())?;
        let collection = args.exprs().first().and_then(text_argument);
        let (true, Some(collection)) = (context.is_of_several(), collection) else {
            return self.function.call_with_args(args);
        };
        let call = |of_one: Arc<StatementContext>| {
            if !(self.has)(of_one.snapshot(), &collection) {
                return Ok(None);
            }
            let known = of_one.snapshot().collection(&collection).ok().filter(|_| self.gives_rows);
            let state = state_for(args.session(), of_one)?;
            let table = self.function.call_with_args(TableFunctionArgs::new(args.exprs(), &state))?;
            Ok(Some(match known {
                Some(known) => Part::of_collection(table, known.schema()),
                None => Part::new(table),
            }))
        };
        let tables = context.of_databases().map(call).collect::<Result<Vec<_>>>()?;
        if tables.iter().all(Option::is_none) {
            // The error about what no database has.
            return self.function.call_with_args(args);
        }
        let exprs: Vec<String> = args.exprs().iter().map(Expr::to_string).collect();
        let label = format!("{}({})", self.name, exprs.join(", "));
        together(&Named { label, collection, has: self.has }, tables)
    }
}
