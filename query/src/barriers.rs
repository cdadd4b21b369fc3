//! Nodes that keep some of DataFusion's physical rules from changing what a plan returns (DataFusion 55.2).
//!
//! - A sort above `LIMIT n OFFSET m` takes over the limit without the offset, and m rows are lost (pull request 24958). While the
//!   rules run, an [`OffsetExec`] stands in the place of such a limit.
//! - An aggregate whose input is in order, or has a column that is constant, returns groups of GROUPING SETS twice and out of
//!   order (issue 24421), and a limit above it is applied below it too (issue 24927). An [`UnorderedExec`] below it
//!   declares no order.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, OrderingRequirements, Partitioning, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{
    ChildrenPropertiesMode, ReplaceChildrenOptions, replace_children_if_necessary,
};
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, InputOrderMode, PlanProperties,
};
use std::fmt;
use std::sync::Arc;

/// Adds the rules at the beginning and at the end of DataFusion's.
pub(crate) fn add_to(rules: &mut Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>) {
    rules.insert(0, Arc::new(HideOffsets));
    rules.insert(1, Arc::new(UnorderedAggregates));
    rules.push(Arc::new(ShowOffsets));
}

/// Puts [`OffsetExec`] in the place of limits with an offset.
#[derive(Debug)]
struct HideOffsets;

impl PhysicalOptimizerRule for HideOffsets {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let hidden = plan.transform_up(|node| {
            Ok(match node.downcast_ref::<GlobalLimitExec>().is_some_and(|limit| limit.skip() > 0) {
                true => Transformed::yes(Arc::new(OffsetExec(node)) as Arc<dyn ExecutionPlan>),
                false => Transformed::no(node),
            })
        });
        hidden.map(|plan| plan.data)
    }

    fn name(&self) -> &'static str {
        "HideOffsets"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Puts limits back.
#[derive(Debug)]
struct ShowOffsets;

impl PhysicalOptimizerRule for ShowOffsets {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let shown = plan.transform_up(|node| {
            Ok(match node.downcast_ref::<OffsetExec>().map(|offset| Arc::clone(&offset.0)) {
                Some(limit) => Transformed::yes(limit),
                None => Transformed::no(node),
            })
        });
        shown.map(|plan| plan.data)
    }

    fn name(&self) -> &'static str {
        "ShowOffsets"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Puts [`UnorderedExec`] below aggregates.
#[derive(Debug)]
struct UnorderedAggregates;

impl PhysicalOptimizerRule for UnorderedAggregates {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let unordered = plan.transform_up(|node| {
            let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return Ok(Transformed::no(node)) };
            if aggregate.group_expr().is_empty() || *aggregate.input_order_mode() == InputOrderMode::Linear {
                return Ok(Transformed::no(node));
            }
            let unordered: Arc<dyn ExecutionPlan> = Arc::new(UnorderedExec::new(Arc::clone(aggregate.input())));
            Ok(Transformed::yes(replace_children_if_necessary(node, vec![unordered])?))
        });
        unordered.map(|plan| plan.data)
    }

    fn name(&self) -> &'static str {
        "UnorderedAggregates"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A limit with an offset.
#[derive(Debug)]
struct OffsetExec(Arc<dyn ExecutionPlan>);

impl DisplayAs for OffsetExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_as(kind, f)
    }
}

impl ExecutionPlan for OffsetExec {
    fn name(&self) -> &'static str {
        "OffsetExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.0.children()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.0.input_distribution_requirements()
    }

    /// The order in which it gets its rows decides which of them it returns.
    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let order = self.0.children().first().and_then(|input| input.properties().output_ordering().cloned());
        vec![order.map(OrderingRequirements::from)]
    }

    /// So that no other order is asked of its input.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.0.benefits_from_input_partitioning()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.0.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(OffsetExec(Arc::clone(&self.0).replace_children(children, options)?)))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, part: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.0.execute(part, context)
    }

    fn statistics_from_inputs(&self, input: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        self.0.statistics_from_inputs(input, args)
    }
}

/// Passes the rows of its input on, and declares no order.
#[derive(Debug)]
struct UnorderedExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl UnorderedExec {
    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let known = input.properties();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(known.partitioning.partition_count()),
            known.emission_type,
            known.boundedness,
        );
        let properties = Arc::new(properties.with_scheduling_type(known.scheduling_type));
        UnorderedExec { input, properties }
    }
}

impl DisplayAs for UnorderedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnorderedExec")
    }
}

impl ExecutionPlan for UnorderedExec {
    fn name(&self) -> &'static str {
        "UnorderedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(UnorderedExec::new(input))),
            Err(children) => internal_err!("UnorderedExec with {} inputs", children.len()),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, part: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(part, context)
    }

    fn statistics_from_inputs(&self, input: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        match input {
            [input] => Ok(Arc::clone(input)),
            input => internal_err!("UnorderedExec with statistics of {} inputs", input.len()),
        }
    }
}
