//! Rewrites of a plan before DataFusion coerces its types.

use crate::documents::json;
use crate::functions;
use crate::timestamp_coercion::rewrite_plan;
use chrono::{DateTime, Utc};
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::logical_expr::LogicalPlan;
use std::sync::Arc;

/// A plan whose comparisons are exact. Without `now`, expressions that depend on the instant of execution stay.
pub(super) fn comparisons(
    plan: LogicalPlan,
    now: Option<DateTime<Utc>>,
    config: &Arc<ConfigOptions>,
) -> Result<LogicalPlan> {
    rewrite_plan(json::rewrite_plan(plan)?, now, config)
}

/// The same, with our own functions resolved.
pub(super) fn resolved(
    plan: LogicalPlan,
    now: Option<DateTime<Utc>>,
    config: &Arc<ConfigOptions>,
) -> Result<LogicalPlan> {
    functions::rewrite(comparisons(plan, now, config)?, now, config)
}
