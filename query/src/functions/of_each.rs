//! Table functions over the collections of several databases.

use super::table::text_argument;
use crate::context::StatementContext;
use crate::provider::CollectionTable;
use crate::several::{Named, Part, state_for, together};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::Expr;
use ebbtide::Snapshot;
use std::sync::Arc;

/// What a call gives. Of the fields of a collection more is known than of other columns.
fn part_of(table: Arc<dyn TableProvider>) -> Part {
    let schema = table.downcast_ref::<CollectionTable>().map(|table| Arc::clone(&table.planned.schema));
    match schema {
        Some(schema) => Part::of_collection(table, &schema),
        None => Part::new(table),
    }
}

/// A table function over a collection: over that of each database that has one.
#[derive(Debug)]
pub(super) struct OfEach<F> {
    pub(super) name: &'static str,
    pub(super) function: F,
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
            let state = state_for(args.session(), of_one)?;
            self.function.call_with_args(TableFunctionArgs::new(args.exprs(), &state)).map(|table| Some(part_of(table)))
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
