//! Plans queries with the session's functions where they are. A copy of the session's state, which DataFusion's own
//! `statement_to_plan` needs for a catalog of its own, takes as long as the rest of planning a short query.

use super::Session;
use crate::catalog::StatementCatalog;
use crate::context::{CATALOG, COLLECTIONS, SYSTEM, StatementContext};
use crate::named_columns::NamedColumns;
use crate::sql::{may_stand_for_columns, questions, written_out};
use datafusion::arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use datafusion::catalog::{CatalogProvider, TableFunctionArgs};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{
    DFSchema, DataFusionError, ResolvedTableReference, Result, TableReference, plan_datafusion_err,
};
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::provider_as_source;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, WindowUDF};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::prelude::SessionConfig;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::planner::{ParserOptions, SqlToRel};
use datafusion::sql::resolve::resolve_table_references;
use datafusion::sql::sqlparser::tokenizer::TokenWithSpan;
use std::collections::HashMap;
use std::sync::Arc;

impl Session {
    /// The plan of a query, not analyzed. `tokens` are those of its text.
    pub(crate) async fn query_to_plan(
        &self,
        statement: DfStatement,
        tokens: &[TokenWithSpan],
        context: &Arc<StatementContext>,
    ) -> Result<LogicalPlan> {
        if may_stand_for_columns(tokens) {
            let statement = self.with_columns(statement, context).await?;
            return self.plan_with(statement, None, context).await;
        }
        if let Some(named) = NamedColumns::of(tokens) {
            // An error about a name says which others there are.
            if let Ok(plan) = self.plan_with(statement.clone(), Some(Arc::new(named)), context).await {
                return Ok(plan);
            }
        }
        self.plan_with(statement, None, context).await
    }

    /// A query with its items written out that stand for columns.
    pub(super) async fn with_columns(
        &self,
        statement: DfStatement,
        context: &Arc<StatementContext>,
    ) -> Result<DfStatement> {
        let questions = questions(&statement);
        let mut found = Vec::with_capacity(questions.len());
        for question in questions {
            found.push(match question {
                Some(question) => Some(self.plan_with(question, None, context).await?.schema().columns()),
                None => None,
            });
        }
        if found.iter().all(Option::is_none) { Ok(statement) } else { written_out(statement, &found) }
    }

    async fn plan_with(
        &self,
        statement: DfStatement,
        named: Option<Arc<NamedColumns>>,
        context: &Arc<StatementContext>,
    ) -> Result<LogicalPlan> {
        let config = &context.config();
        let normalizes = config.options().sql_parser.enable_ident_normalization;
        let (references, _) = resolve_table_references(&statement, normalizes)?;
        let catalog = StatementCatalog::new(context, &self.tables).naming(named.clone());
        let mut tables = HashMap::with_capacity(references.len());
        for reference in references {
            let name = resolved(reference, config.options());
            if *name.catalog != *CATALOG || ![COLLECTIONS, SYSTEM].contains(&&*name.schema) {
                return self.state(context).statement_to_plan(statement).await;
            }
            if let Some(schema) = catalog.schema(&name.schema)
                && !tables.contains_key(&name)
                && let Some(table) = schema.table(&name.table).await?
            {
                tables.insert(name, provider_as_source(table));
            }
        }
        let session = self.context.get().map_err(|error| DataFusionError::External(Box::new(error)))?.state_ref();
        let state = session.read();
        let lookup = Lookup { session: self, state: &state, context, config, options: config.options(), tables, named };
        SqlToRel::new_with_options(&lookup, parser_options(config.options())).statement_to_plan(statement)
    }
}

fn resolved(name: TableReference, options: &ConfigOptions) -> ResolvedTableReference {
    name.resolve(&options.catalog.default_catalog, &options.catalog.default_schema)
}

fn parser_options(options: &ConfigOptions) -> ParserOptions {
    let parser = &options.sql_parser;
    ParserOptions {
        parse_float_as_decimal: parser.parse_float_as_decimal,
        enable_ident_normalization: parser.enable_ident_normalization,
        enable_options_value_normalization: parser.enable_options_value_normalization,
        support_varchar_with_length: parser.support_varchar_with_length,
        map_string_types_to_utf8view: parser.map_string_types_to_utf8view,
        collect_spans: parser.collect_spans,
        default_null_ordering: parser.default_null_ordering.as_str().into(),
    }
}

/// What names in a query stand for.
struct Lookup<'a> {
    session: &'a Session,
    state: &'a SessionState,
    context: &'a Arc<StatementContext>,
    config: &'a SessionConfig,
    options: &'a ConfigOptions,
    tables: HashMap<ResolvedTableReference, Arc<dyn TableSource>>,
    named: Option<Arc<NamedColumns>>,
}

/// A time in nanoseconds, the only unit that the functions of series take.
fn in_nanoseconds(arg: &mut Expr) -> Result<()> {
    if let Expr::Literal(value, _) = arg
        && let DataType::Timestamp(_, zone) = value.data_type()
    {
        *value = value.cast_to(&DataType::Timestamp(TimeUnit::Nanosecond, zone))?;
    }
    Ok(())
}

impl ContextProvider for Lookup<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        let name = resolved(name, self.options);
        self.tables.get(&name).cloned().ok_or_else(|| plan_datafusion_err!("table '{name}' not found"))
    }

    fn get_table_function_source(&self, name: &str, args: Vec<Expr>) -> Result<Arc<dyn TableSource>> {
        let function = self.state.table_functions().get(name);
        let function = function.ok_or_else(|| plan_datafusion_err!("table function '{name}' not found"))?;
        let mut state = self.session.planning.without_functions(self.context, self.config);
        if let Some(named) = &self.named {
            state.config_mut().set_extension(Arc::clone(named));
        }
        let simplify = SimplifyContext::builder()
            .with_config_options(Arc::clone(state.config_options()))
            .with_query_execution_start_time(state.execution_props().query_execution_start_time)
            .build();
        let simplifier = ExprSimplifier::new(simplify);
        let schema = DFSchema::empty();
        let constant = |arg| simplifier.coerce(arg, &schema).and_then(|arg| simplifier.simplify(arg));
        let mut args = args.into_iter().map(constant).collect::<Result<Vec<Expr>>>()?;
        if ["generate_series", "range"].contains(&name) {
            args.iter_mut().try_for_each(in_nanoseconds)?;
        }
        let table = function.create_table_provider_with_args(TableFunctionArgs::new(&args, &state))?;
        Ok(provider_as_source(table))
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> Result<Arc<dyn TableSource>> {
        Ok(provider_as_source(Arc::new(CteWorkTable::new(name, schema))))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        self.state.expr_planners()
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        self.session.types.clone()
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        self.state.relation_planners()
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.state.scalar_functions().get(name).cloned()
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.state.higher_order_functions().get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.state.aggregate_functions().get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.state.window_functions().get(name).cloned()
    }

    /// There are no variables.
    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        self.options
    }

    fn udf_names(&self) -> Vec<String> {
        self.state.scalar_functions().keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.state.higher_order_functions().keys().cloned().collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.state.aggregate_functions().keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.state.window_functions().keys().cloned().collect()
    }
}
