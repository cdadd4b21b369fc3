//! Table functions over the collections of several databases.

use super::table::text_argument;
use crate::context::StatementContext;
use crate::several::{state_for, together};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::Result;
use std::sync::Arc;

/// A table function over a collection: over that of each database that has one.
#[derive(Debug)]
pub(super) struct OfEach<F>(pub(super) F);

impl<F: TableFunctionImpl> TableFunctionImpl for OfEach<F> {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let context = StatementContext::of(args.session().config())?;
        let name = args.exprs().first().and_then(text_argument);
        let (true, Some(name)) = (context.is_of_several(), name) else { return self.0.call_with_args(args) };
        let mut tables = Vec::new();
        for (number, of_one) in context.of_databases().enumerate() {
            if of_one.snapshot().has_collection(&name) {
                let state = state_for(args.session(), of_one)?;
                tables.push((number, self.0.call_with_args(TableFunctionArgs::new(args.exprs(), &state))?));
            }
        }
        if tables.is_empty() { self.0.call_with_args(args) } else { together(&name, tables) }
    }
}
