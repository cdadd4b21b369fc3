//! `latest('collection')`: the last measurement of each meta.

use crate::catalog::{CATALOG, COLLECTIONS, Current};
use crate::provider::CollectionTable;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Column, Result, TableReference, internal_err, plan_err};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::functions_aggregate::expr_fn::max;
use datafusion::functions_aggregate::first_last::last_value_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, Sort};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use std::sync::Arc;

/// The table function. What it gives is a plan and no data: the aggregate that asks for each meta's last row.
#[derive(Debug)]
pub(super) struct Latest {
    pub(super) current: Arc<Current>,
}

impl TableFunctionImpl for Latest {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let name = match args.exprs() {
            [Expr::Literal(value, _)] => value.try_as_str().flatten().map(str::to_owned),
            [Expr::Column(column)] => Some(column.name.clone()),
            _ => None,
        };
        let Some(name) = name else {
            return plan_err!("latest(collection) takes the name of a collection: latest('weather')");
        };
        let Ok(snapshot) = self.current.snapshot().collection(&name) else {
            return plan_err!("table '{CATALOG}.{COLLECTIONS}.{name}' not found");
        };
        let table = CollectionTable::new(&name, &snapshot, Arc::clone(&self.current));
        let schema = table.schema();
        let stored = snapshot.schema();
        let column = |name: &str| Expr::Column(Column::new_unqualified(name));
        let meta = stored.meta_type.as_ref().and(stored.meta.as_deref());
        let fields: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        let aggregates =
            fields.iter().filter(|field| Some(**field) != meta).map(|field| match **field == stored.time {
                true => max(column(field)),
                false => {
                    let order = vec![Sort::new(column(&stored.time), true, true)];
                    let last =
                        AggregateFunction::new_udf(last_value_udaf(), vec![column(field)], false, None, order, None);
                    Expr::AggregateFunction(last)
                }
            });
        let source = provider_as_source(Arc::new(table));
        let table = TableReference::bare(name);
        let scan = LogicalPlanBuilder::scan(table.clone(), source, None)?;
        let mut plan = scan.aggregate(meta.map(column), aggregates.collect::<Vec<_>>())?;
        // The meta comes first, then the others in their order.
        let mut others = plan.schema().columns().into_iter();
        let group = meta.and_then(|_| others.next());
        let mut columns = Vec::new();
        for field in fields {
            let found = if Some(field) == meta { group.clone() } else { others.next() };
            let Some(found) = found else { return internal_err!("latest without column {field}") };
            if meta.is_none() && *field == stored.time {
                // An aggregate over nothing gives a row of nulls.
                plan = plan.filter(Expr::Column(found.clone()).is_not_null())?;
            }
            // Qualified as the scan's columns are: DataFusion mixes up members of a column with a bare name of its own.
            columns.push(match Some(field) == meta {
                true => Expr::Column(found),
                false => Expr::Column(found).alias_qualified(Some(table.clone()), field),
            });
        }
        Ok(Arc::new(ViewTable::new(plan.project(columns)?.build()?, None)))
    }
}
