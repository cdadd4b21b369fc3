//! A session that plans for one thread and without rules, for plans that DataFusion's rules would leave as they are.

use async_trait::async_trait;
use datafusion::catalog::{CatalogProviderList, Session};
use datafusion::common::config::TableOptions;
use datafusion::common::{DFSchema, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::context::{ExecutionProps, SessionState};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::registry::ExtensionTypeRegistryRef;
use datafusion::logical_expr::{AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, ScalarUDF, WindowUDF};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use datafusion::prelude::SessionConfig;
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

/// What [`Planning`](crate::planning::Planning) gives a planner in place of the state of the session.
pub(crate) struct Lean {
    pub(crate) state: Arc<SessionState>,
    config: SessionConfig,
}

impl Lean {
    pub(crate) fn new(state: Arc<SessionState>) -> Self {
        let config = state.config().clone().with_target_partitions(1);
        Lean { state, config }
    }
}

#[async_trait]
impl Session for Lean {
    fn session_id(&self) -> &str {
        self.state.session_id()
    }

    fn config(&self) -> &SessionConfig {
        &self.config
    }

    fn catalog_list(&self) -> Arc<dyn CatalogProviderList> {
        Arc::clone(self.state.catalog_list())
    }

    async fn create_physical_plan(&self, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
        self.state.query_planner().create_physical_plan(plan, self).await
    }

    fn create_physical_expr(&self, expr: Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
        self.state.create_physical_expr(expr, schema)
    }

    fn scalar_functions(&self) -> &HashMap<String, Arc<ScalarUDF>> {
        self.state.scalar_functions()
    }

    fn higher_order_functions(&self) -> &HashMap<String, Arc<HigherOrderUDF>> {
        self.state.higher_order_functions()
    }

    fn aggregate_functions(&self) -> &HashMap<String, Arc<AggregateUDF>> {
        self.state.aggregate_functions()
    }

    fn window_functions(&self) -> &HashMap<String, Arc<WindowUDF>> {
        self.state.window_functions()
    }

    fn extension_type_registry(&self) -> &ExtensionTypeRegistryRef {
        Session::extension_type_registry(self.state.as_ref())
    }

    fn runtime_env(&self) -> &Arc<RuntimeEnv> {
        self.state.runtime_env()
    }

    fn execution_props(&self) -> &ExecutionProps {
        self.state.execution_props()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn table_options(&self) -> &TableOptions {
        self.state.table_options()
    }

    fn table_options_mut(&mut self) -> &mut TableOptions {
        Arc::make_mut(&mut self.state).table_options_mut()
    }

    fn task_ctx(&self) -> Arc<TaskContext> {
        // Functions are looked up by name while plans are made, not while they run.
        let (id, runtime) = (self.session_id().to_owned(), Arc::clone(self.runtime_env()));
        let (scalar, higher) = (HashMap::new(), HashMap::new());
        let (aggregate, window) = (HashMap::new(), HashMap::new());
        Arc::new(TaskContext::new(None, id, self.config.clone(), scalar, higher, aggregate, window, runtime))
    }
}
