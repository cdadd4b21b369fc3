//! Collections of several databases as one table, for databases that each have some of the series.
//!
//! A statement has a context for each database, all with the same instant. The table of a name is a union over all databases, also
//! over those that have nothing of this name: a plan that is kept must notice if they get it. All inputs of the union have the same
//! columns, since DataFusion would take the types of the first one's until it analyzes the plan.

mod types;

use crate::at_once::scan_at_once;
use crate::context::StatementContext;
use crate::documents::cells::DOCUMENT;
use crate::functions::widened::widened;
use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, ScalarValue, TableReference, exec_err, internal_datafusion_err};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableProviderFilterPushDown, TableType, Union};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::projection::ProjectionExec;
use ebbtide::{ColumnKind, DocumentColumns, Snapshot};
use ebbtide_ttl::Precision;
use futures::FutureExt;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use types::{JSON, common, settled, unknown_as_null};

/// A table of the databases.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    /// What it is called in plans. No other table is called so.
    pub(crate) label: String,
    pub(crate) collection: String,
    /// Whether a database has it.
    pub(crate) has: fn(&Snapshot, &str) -> bool,
}

/// The table of one database.
pub(crate) struct Part {
    table: Arc<dyn TableProvider>,
    /// The columns for [`common`]: those without any value yet are nulls, and JSON texts are marked.
    columns: SchemaRef,
}

impl Part {
    /// A table whose types say everything.
    pub(crate) fn new(table: Arc<dyn TableProvider>) -> Part {
        let columns = table.schema();
        Part { table, columns }
    }

    /// The table of a collection of time series, which has these fields.
    pub(crate) fn of_collection(table: Arc<dyn TableProvider>, schema: &ebbtide_buckets::Schema) -> Part {
        let typed = |name: &str| schema.field_type(name).map(|ty| unknown_as_null(ty, schema.precision));
        Part::with_types(table, typed)
    }

    /// The table of an ordinary collection, which has these columns.
    pub(crate) fn of_documents(table: Arc<dyn TableProvider>, columns: &DocumentColumns) -> Part {
        let kinds: HashMap<&str, &ColumnKind> = columns.iter().map(|c| (c.name.as_str(), &c.kind)).collect();
        let typed = |name: &str| match kinds.get(name) {
            Some(ColumnKind::Unknown) => Some(DataType::Null),
            Some(ColumnKind::Json) => Some(JSON),
            Some(ColumnKind::Of(ty)) => Some(unknown_as_null(ty, Precision::Ms)),
            None => (name == DOCUMENT).then_some(JSON),
        };
        Part::with_types(table, typed)
    }

    fn with_types(table: Arc<dyn TableProvider>, typed: impl Fn(&str) -> Option<DataType>) -> Part {
        let field = |field: &FieldRef| match typed(field.name()) {
            Some(ty) => Arc::new(Field::new(field.name(), ty, field.is_nullable())),
            None => Arc::clone(field),
        };
        let columns = Arc::new(Schema::new(table.schema().fields().iter().map(field).collect::<Vec<_>>()));
        Part { table, columns }
    }
}

/// The tables of all databases as one: in the order of their numbers, the table of each that has one.
pub(crate) fn together(named: &Named, parts: Vec<Option<Part>>) -> Result<Arc<dyn TableProvider>> {
    let (schema, clashes) = common(parts.iter().flatten().map(|part| Arc::clone(&part.columns)))?;
    let json: Arc<[bool]> = schema.fields().iter().map(|field| *field.data_type() == JSON).collect();
    // What is null in all databases has the type that it has in one.
    let of_one = |name: &str| {
        parts.iter().flatten().find_map(|part| Some(part.table.schema().field_with_name(name).ok()?.clone()))
    };
    let typed = |field: &FieldRef| match of_one(field.name()).filter(|_| field.data_type().is_null()) {
        Some(known) => known.with_nullable(true),
        None => Field::new(field.name(), settled(field.data_type()), field.is_nullable()),
    };
    let schema: SchemaRef = Arc::new(Schema::new(schema.fields().iter().map(typed).collect::<Vec<_>>()));
    let tables = parts.into_iter().map(|part| part.map(|part| part.table));
    let clashes = Arc::new(clashes);
    let scan = |(number, table)| {
        let (named, schema, json, clashes) =
            (named.clone(), Arc::clone(&schema), Arc::clone(&json), Arc::clone(&clashes));
        let name = TableReference::bare(format!("{} [{}]", named.label, number + 1));
        let table = Arc::new(TableOfOne { number, named, table, schema, json, clashes });
        LogicalPlanBuilder::scan(name, provider_as_source(table), None)?.build().map(Arc::new)
    };
    let scans = tables.enumerate().map(scan).collect::<Result<Vec<_>>>()?;
    let view = ViewTable::new(LogicalPlan::Union(Union::try_new(scans)?), None);
    Ok(Arc::new(Together(view)))
}

/// The tables of all databases.
#[derive(Debug)]
struct Together(ViewTable);

#[async_trait]
impl TableProvider for Together {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        self.0.get_logical_plan()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        self.0.supports_filters_pushdown(filters)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.scan(state, projection, filters, limit).await
    }
}

/// What one of the databases has, in the columns of all. It is planned in the context of that database.
#[derive(Debug)]
struct TableOfOne {
    number: usize,
    named: Named,
    /// Nothing if the database did not have it.
    table: Option<Arc<dyn TableProvider>>,
    schema: SchemaRef,
    /// Which columns are JSON texts.
    json: Arc<[bool]>,
    clashes: Arc<Vec<String>>,
}

/// Whether a column of the table of one of several databases is of JSON texts.
pub(crate) fn is_json_of_several(table: &Arc<dyn TableProvider>, at: usize) -> bool {
    table.downcast_ref::<TableOfOne>().is_some_and(|table| table.json.get(at) == Some(&true))
}

impl TableOfOne {
    fn plan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => Arc::clone(&self.schema),
        };
        if let Some(clash) = self.clashes.iter().find(|clash| schema.index_of(clash).is_ok()) {
            return exec_err!(
                "column '{clash}' of '{}' has types in the databases that are read as one which have no common type: leave it out, \
                 or read one database alone",
                self.named.label
            );
        }
        let context = StatementContext::of(state.config())?.of_database(self.number)?;
        let Some(table) = &self.table else {
            if (self.named.has)(context.snapshot(), &self.named.collection) {
                return exec_err!(
                    "another of the databases that are read as one has got {} since the statement was prepared: prepare the statement \
                     or create its view again",
                    self.named.label
                );
            }
            return Ok(Arc::new(EmptyExec::new(schema)));
        };
        let own = table.schema();
        let columns: Vec<usize> = schema.fields().iter().filter_map(|field| own.index_of(field.name()).ok()).collect();
        let state = state_for(state, context)?;
        let planned = table.scan(&state, Some(&columns), filters, limit).now_or_never();
        let planned = planned.ok_or_else(|| internal_datafusion_err!("the scan of a table was not planned at once"))?;
        in_columns(planned?, &schema, state.config().options())
    }

    /// Whether a filter means the same for the table itself.
    fn is_same_for(&self, filter: &Expr, own: &SchemaRef) -> bool {
        filter.column_refs().iter().all(|column| {
            let known = self.schema.field_with_name(&column.name).ok().zip(own.field_with_name(&column.name).ok());
            known.is_some_and(|(common, own)| common.data_type() == own.data_type())
                && !self.clashes.contains(&column.name)
        })
    }
}

impl TableProvider for TableOfOne {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let Some(table) = &self.table else { return Ok(vec![TableProviderFilterPushDown::Exact; filters.len()]) };
        let own = table.schema();
        let supports = |filter: &&Expr| match self.is_same_for(filter, &own) {
            true => Ok(table.supports_filters_pushdown(&[filter])?.remove(0)),
            false => Ok(TableProviderFilterPushDown::Unsupported),
        };
        filters.iter().map(supports).collect()
    }

    scan_at_once!(plan);
}

/// A plan in these columns: those that it lacks are null.
fn in_columns(
    plan: Arc<dyn ExecutionPlan>,
    schema: &SchemaRef,
    options: &Arc<ConfigOptions>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let own = plan.schema();
    let types = |schema: &SchemaRef| schema.fields().iter().map(|f| f.data_type().clone()).collect::<Vec<_>>();
    if types(&own) == types(schema) {
        return Ok(plan);
    }
    let mut given = own.fields().iter().enumerate().peekable();
    let column = |field: &FieldRef| -> Result<(Arc<dyn PhysicalExpr>, String)> {
        let wanted = field.data_type();
        let Some((at, found)) = given.next_if(|(_, given)| given.name() == field.name()) else {
            let null = ScalarValue::try_from(wanted)?;
            return Ok((Arc::new(Literal::new(null)), field.name().clone()));
        };
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(found.name(), at));
        let is_same = found.data_type() == wanted;
        let column = if is_same { column } else { widened(column, field, options) };
        Ok((column, field.name().clone()))
    };
    let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(ProjectionExec::try_new(columns, plan)?))
}

/// A state that plans for one of the databases.
pub(crate) fn state_for(state: &dyn Session, context: Arc<StatementContext>) -> Result<SessionState> {
    let state = state.as_any().downcast_ref::<SessionState>();
    let mut state = state.ok_or_else(|| internal_datafusion_err!("a table is planned outside a session"))?.clone();
    state.config_mut().set_extension(context);
    Ok(state)
}
