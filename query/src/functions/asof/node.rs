//! The ASOF join as a node of a logical plan, and the rule that pushes conditions through it.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DFSchemaRef, Result, internal_err};
use datafusion::logical_expr::build_join_schema;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, Extension, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, UserDefinedLogicalNodeCore,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Joins each row of the left side with the nearest in time of the right side.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct AsofJoin {
    pub(crate) left: LogicalPlan,
    pub(crate) right: LogicalPlan,
    /// Expressions that must be equal, left and right.
    pub(crate) keys: Vec<(Expr, Expr)>,
    /// The comparison that determines the nearest row: `left op right`.
    pub(crate) times: (Expr, Operator, Expr),
    /// A condition that the nearest row must satisfy.
    pub(crate) rest: Option<Expr>,
    /// Whether rows of the left side without a partner are kept.
    pub(crate) outer: bool,
    schema: DFSchemaRef,
}

impl PartialOrd for AsofJoin {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl AsofJoin {
    pub(crate) fn try_new(
        left: LogicalPlan,
        right: LogicalPlan,
        keys: Vec<(Expr, Expr)>,
        times: (Expr, Operator, Expr),
        rest: Option<Expr>,
        outer: bool,
    ) -> Result<Self> {
        let kind = if outer { JoinType::Left } else { JoinType::Inner };
        let joined = build_join_schema(left.schema(), right.schema(), &kind)?;
        // Without the functional dependencies of a join: here a row of the right side may occur many times.
        let fields = joined.iter().map(|(q, f)| (q.cloned(), Arc::clone(f))).collect();
        let schema = Arc::new(DFSchema::new_with_metadata(fields, joined.metadata().clone())?);
        Ok(AsofJoin { left, right, keys, times, rest, outer, schema })
    }
}

impl UserDefinedLogicalNodeCore for AsofJoin {
    fn name(&self) -> &'static str {
        "AsofJoin"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        let keys = self.keys.iter().flat_map(|(l, r)| [l, r]);
        keys.chain([&self.times.0, &self.times.2]).chain(&self.rest).cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.outer { "left" } else { "inner" };
        write!(f, "AsofJoin: {kind}, {} {} {}", self.times.0, self.times.1, self.times.2)?;
        for (left, right) in &self.keys {
            write!(f, ", {left} = {right}")?;
        }
        self.rest.as_ref().map_or(Ok(()), |rest| write!(f, ", then {rest}"))
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let Ok([left, right]) = <[LogicalPlan; 2]>::try_from(inputs) else {
            return internal_err!("AsofJoin has two inputs");
        };
        let mut exprs = exprs.into_iter();
        let mut pair = || exprs.next().zip(exprs.next());
        let keys: Vec<(Expr, Expr)> = self.keys.iter().map_while(|_| pair()).collect();
        let Some((a, b)) = pair() else { return internal_err!("AsofJoin without its times") };
        AsofJoin::try_new(left, right, keys, (a, self.times.1, b), exprs.next(), self.outer)
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let width = self.left.schema().fields().len();
        let (left, right): (Vec<usize>, Vec<usize>) = output_columns.iter().partition(|i| **i < width);
        Some(vec![left, right.into_iter().map(|i| i - width).collect()])
    }
}

/// Pushes conditions on the left side below the join, and derives conditions for the right side: on equal keys, and a
/// bound on the time that the nearest row cannot exceed.
#[derive(Debug)]
pub(crate) struct PushPastAsof;

impl OptimizerRule for PushPastAsof {
    fn name(&self) -> &'static str {
        "push_past_asof"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Filter(filter) = &plan else { return Ok(Transformed::no(plan)) };
        let LogicalPlan::Extension(extension) = filter.input.as_ref() else { return Ok(Transformed::no(plan)) };
        let Some(join) = extension.node.as_any().downcast_ref::<AsofJoin>() else { return Ok(Transformed::no(plan)) };
        let on_left = |e: &Expr| {
            let columns = e.column_refs();
            !columns.is_empty() && !e.is_volatile() && columns.iter().all(|c| join.left.schema().has_column(c))
        };
        let (pushed, kept): (Vec<Expr>, Vec<Expr>) =
            split_conjunction_owned(filter.predicate.clone()).into_iter().partition(on_left);
        if pushed.is_empty() {
            return Ok(Transformed::no(plan));
        }
        let follows: Vec<Expr> =
            pushed.iter().filter_map(|e| translated(e, &join.keys).or_else(|| time_bound(e, join))).collect();
        let filtered = |side: &LogicalPlan, conditions: Vec<Expr>| match conjunction(conditions) {
            Some(condition) => LogicalPlanBuilder::from(side.clone()).filter(condition)?.build(),
            None => Ok(side.clone()),
        };
        let (left, right) = (filtered(&join.left, pushed)?, filtered(&join.right, follows)?);
        let node = join.with_exprs_and_inputs(join.expressions(), vec![left, right])?;
        let joined = LogicalPlan::Extension(Extension { node: Arc::new(node) });
        Ok(Transformed::yes(match conjunction(kept) {
            Some(condition) => LogicalPlanBuilder::from(joined).filter(condition)?.build()?,
            None => joined,
        }))
    }
}

/// If the right time is not after the left time, `left time < constant` also bounds the right time; likewise the other
/// way round.
fn time_bound(condition: &Expr, join: &AsofJoin) -> Option<Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return None };
    let (op, literal) = match (&**left, &**right) {
        (time, Expr::Literal(..)) if *time == join.times.0 => (*op, right),
        (Expr::Literal(..), time) if *time == join.times.0 => (op.swap()?, left),
        _ => return None,
    };
    let bounds = match join.times.1 {
        Operator::Gt | Operator::GtEq => matches!(op, Operator::Lt | Operator::LtEq),
        _ => matches!(op, Operator::Gt | Operator::GtEq),
    };
    bounds.then(|| Expr::BinaryExpr(BinaryExpr::new(Box::new(join.times.2.clone()), op, literal.clone())))
}

/// Translates a condition on the left side's keys into one on the right side's keys.
fn translated(condition: &Expr, keys: &[(Expr, Expr)]) -> Option<Expr> {
    let columns = condition.column_refs();
    let known = !columns.is_empty() && columns.iter().all(|c| keys.iter().any(|(l, _)| l.try_as_col() == Some(c)));
    if !known {
        return None;
    }
    let moved = condition.clone().transform_up(|e| {
        let other = e.try_as_col().and_then(|c| keys.iter().find(|(l, _)| l.try_as_col() == Some(c)));
        Ok(other.map(|(_, r)| r.clone()).map_or(Transformed::no(e), Transformed::yes))
    });
    moved.ok().map(|m| m.data)
}
