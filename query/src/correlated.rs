//! Subqueries that use columns of the outer query, in a form that DataFusion 55.2 makes the right joins of.
//!
//! DataFusion moves the conditions with outer columns into a join, and names the subquery's columns in them by the alias of the whole
//! subquery and their last name: `a.k` and `b.k` become the same column. Below an aggregate it groups by the columns in a condition, not by
//! what is compared: by `t` for `t::date = d`. And it moves conditions across windows and outer joins. So the conditions are moved to the
//! top of the subquery before that, over columns that have names of their own; where that would change the result, the subquery is refused.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ExprSchema, JoinType, Result, not_impl_err};
use datafusion::logical_expr::expr::{Case, Exists, InSubquery};
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Subquery, SubqueryAlias,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use std::collections::HashSet;
use std::sync::Arc;

/// Moves conditions with outer columns to the top of subqueries.
#[derive(Debug)]
pub(crate) struct Correlated;

impl OptimizerRule for Correlated {
    fn name(&self) -> &'static str {
        "correlated_columns"
    }

    /// It recurses itself: what may be done to a subquery depends on where it is used.
    fn apply_order(&self) -> Option<ApplyOrder> {
        None
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match has_subqueries(&plan)? {
            true => all(plan, config),
            false => Ok(Transformed::no(plan)),
        }
    }
}

/// What a subquery is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// `IN` and `EXISTS`: rows may repeat.
    Predicate,
    /// One value.
    Value,
    /// `LATERAL`.
    Table,
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_))
}

fn contains_subquery(expr: &Expr) -> Result<bool> {
    expr.exists(|e| Ok(is_subquery(e)))
}

fn has_subqueries(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        let mut found = matches!(node, LogicalPlan::Subquery(_));
        node.apply_expressions(|expr| {
            found = found || contains_subquery(expr)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(found)
    })
}

/// Rewrites all subqueries of a plan, inner ones first.
fn all(plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up(|node| {
        let node = node.map_expressions(|expr| {
            expr.transform_up(|expr| match expr {
                Expr::Exists(Exists { subquery, negated }) => one(subquery, Use::Predicate, config)
                    .map(|made| made.update_data(|subquery| Expr::Exists(Exists { subquery, negated }))),
                Expr::InSubquery(InSubquery { expr, subquery, negated }) => one(subquery, Use::Predicate, config)
                    .map(|made| made.update_data(|subquery| Expr::InSubquery(InSubquery { expr, subquery, negated }))),
                Expr::ScalarSubquery(subquery) => {
                    one(subquery, Use::Value, config).map(|made| made.update_data(Expr::ScalarSubquery))
                }
                expr => Ok(Transformed::no(expr)),
            })
        })?;
        let before = node.transformed;
        let mut node = match node.data {
            // Its own plan has been visited as its input.
            LogicalPlan::Subquery(mut subquery) => {
                let made = own(Arc::unwrap_or_clone(subquery.subquery), Use::Table, config)?;
                subquery.subquery = Arc::new(made.data);
                Transformed::new_transformed(LogicalPlan::Subquery(subquery), made.transformed)
            }
            node => Transformed::no(node),
        };
        node.transformed |= before;
        Ok(node)
    })
}

fn one(mut subquery: Subquery, used: Use, config: &dyn OptimizerConfig) -> Result<Transformed<Subquery>> {
    let inner = all(Arc::unwrap_or_clone(subquery.subquery), config)?;
    let made = own(inner.data, used, config)?;
    subquery.subquery = Arc::new(made.data);
    Ok(Transformed::new_transformed(subquery, inner.transformed || made.transformed))
}

/// Rewrites the conditions of one subquery.
fn own(plan: LogicalPlan, used: Use, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
    if !uses_outer(&plan)? {
        return Ok(Transformed::no(plan));
    }
    let conditions = conditions(&plan)?;
    let top = Top::of(&plan);
    if top.limited && used != Use::Predicate {
        // DataFusion refuses it.
        return Ok(Transformed::no(plan));
    }
    top.check(used, &conditions)?;
    let columns = plan.schema().columns();
    let is_of_all = top.aggregates.first().is_some_and(|aggregate| aggregate.group_expr.is_empty());
    let is_changed = used == Use::Value && top.having && is_of_all;
    let plan = if is_changed { having_as_case(plan)? } else { plan };
    if is_plain(&plan, &conditions)? {
        return Ok(Transformed::new_transformed(plan, is_changed));
    }
    if used == Use::Value && Top::of(&plan).aggregates.iter().any(|aggregate| !aggregate.group_expr.is_empty()) {
        return not_impl_err!("{GROUPED}");
    }
    let whole = plan.exists(|node| Ok(matches!(node, LogicalPlan::Aggregate(_))))?;
    let plan = Lift { config, whole, used }.below_top(plan)?;
    let is_same = plan.schema().fields().len() == columns.len();
    let columns = columns.into_iter().map(Expr::Column).collect();
    let plan = if is_same { plan } else { LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?) };
    Ok(Transformed::yes(plan))
}

/// Whether a node of a plan has outer columns, other than those of its own subqueries and LATERAL tables.
fn uses_outer(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        if matches!(node, LogicalPlan::Subquery(_)) {
            return Ok(TreeNodeRecursion::Jump);
        }
        found = node.contains_outer_reference();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The conditions with outer columns of a plan.
fn conditions(plan: &LogicalPlan) -> Result<Vec<Expr>> {
    let mut found = Vec::new();
    plan.apply(|node| {
        let predicate = match node {
            LogicalPlan::Subquery(_) => return Ok(TreeNodeRecursion::Jump),
            LogicalPlan::Filter(filter) => Some(&filter.predicate),
            LogicalPlan::Join(join) => join.filter.as_ref(),
            _ => None,
        };
        let parts = predicate.map(split_conjunction).unwrap_or_default();
        found.extend(parts.into_iter().filter(|part| part.contains_outer()).cloned());
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// What `=` compares with outer values: nothing in it is an outer column, and no column of the subquery is on the other side.
fn compared(condition: &Expr) -> Option<&Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else { return None };
    match (left.contains_outer(), right.contains_outer()) {
        (true, false) if !left.any_column_refs() => Some(right),
        (false, true) if !right.any_column_refs() => Some(left),
        _ => None,
    }
}

/// The column of an expression that differs for different values of the column.
fn column_of<'a>(expr: &'a Expr, plan: &LogicalPlan) -> Option<&'a Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Cast(cast) => {
            let Expr::Column(column) = cast.expr.as_ref() else { return None };
            let mut from = None;
            let look = plan.apply(|node| {
                from = node.schema().field_from_column(column).ok().map(|field| field.data_type().clone());
                Ok(if from.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            });
            let to = cast.field.data_type();
            let is_exact = look.is_ok()
                && from.is_some_and(|from| {
                    (from.is_string() && to.is_string()) || (from.is_integer() && matches!(to, DataType::Int64))
                });
            is_exact.then_some(column)
        }
        _ => None,
    }
}

/// The nodes above the rows that the conditions select from.
struct Top<'a> {
    aggregates: Vec<&'a Aggregate>,
    limited: bool,
    /// Whether the first aggregate has a condition, without outer columns; and whether a constant is selected from it.
    having: bool,
    constant: bool,
    below: &'a LogicalPlan,
}

/// Whether a filter is `HAVING` without outer columns.
fn is_having(filter: &Filter) -> bool {
    matches!(filter.input.as_ref(), LogicalPlan::Aggregate(_)) && !filter.predicate.contains_outer()
}

impl<'a> Top<'a> {
    fn of(plan: &'a LogicalPlan) -> Self {
        let mut top = Top { aggregates: Vec::new(), limited: false, having: false, constant: false, below: plan };
        loop {
            top.below = match top.below {
                LogicalPlan::Projection(projection) => {
                    let is_above = top.aggregates.is_empty();
                    top.constant |= is_above && projection.expr.iter().any(|expr| !expr.any_column_refs());
                    &projection.input
                }
                LogicalPlan::Limit(limit) => {
                    top.limited = true;
                    &limit.input
                }
                LogicalPlan::Filter(filter) if is_having(filter) => {
                    top.having |= top.aggregates.is_empty();
                    &filter.input
                }
                LogicalPlan::Aggregate(aggregate) => {
                    top.aggregates.push(aggregate);
                    &aggregate.input
                }
                _ => return top,
            };
        }
    }

    /// Refuses what DataFusion would answer wrongly.
    fn check(&self, used: Use, conditions: &[Expr]) -> Result<()> {
        if used == Use::Predicate {
            return Ok(());
        }
        for (at, aggregate) in self.aggregates.iter().enumerate() {
            if aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_))) {
                return not_impl_err!(
                    "ROLLUP, CUBE or GROUPING SETS in a subquery or LATERAL table that uses columns of the outer query; join the \
                     tables, and group the result"
                );
            }
            if aggregate.group_expr.is_empty() {
                if at > 0 {
                    return not_impl_err!("{OF_AGGREGATE}");
                }
                if used == Use::Table && self.having {
                    return not_impl_err!(
                        "HAVING without GROUP BY in a LATERAL table that uses columns of the outer query; write the condition in WHERE \
                         outside of it"
                    );
                }
                if self.constant && !self.having {
                    return not_impl_err!(
                        "a constant beside an aggregate without GROUP BY in a subquery or LATERAL table that uses columns of the outer \
                         query; select the constant outside of it"
                    );
                }
            } else if used == Use::Value && at == 0 {
                let keys: Vec<&Column> = conditions
                    .iter()
                    .filter_map(|condition| column_of(compared(condition)?, &aggregate.input))
                    .collect();
                let is_compared = |expr: &Expr| matches!(expr, Expr::Column(column) if keys.contains(&column));
                if !aggregate.group_expr.iter().all(is_compared) {
                    return not_impl_err!("{GROUPED}");
                }
            }
            if aggregate.aggr_expr.is_empty() && conditions.iter().any(|condition| compared(condition).is_none()) {
                return not_impl_err!("{NOT_EQUAL}");
            }
        }
        Ok(())
    }
}

const GROUPED: &str = "GROUP BY in a subquery for one value that uses columns of the outer query, but by columns that it compares with them by =; \
                       leave GROUP BY out, or join with a grouped subquery";
const NOT_EQUAL: &str = "GROUP BY or DISTINCT in a subquery or LATERAL table that compares with columns of the outer query by anything but =; \
                         join the tables, and group the result";
const OF_AGGREGATE: &str = "an aggregate without GROUP BY that uses columns of the outer query, in a query within a subquery or LATERAL table, or \
                            compared with such columns in HAVING; write it as a subquery for one value of its own";
const ACROSS: &str = "columns of the outer query below a window function, UNION, LIMIT or the optional side of an outer join, in a subquery or \
                      LATERAL table; write a join, and use the window function or LIMIT in the query around it";

/// `CASE WHEN condition THEN value END` for `SELECT value ... HAVING condition` without GROUP BY: no row is NULL too.
fn having_as_case(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_down(|node| {
        let LogicalPlan::Projection(projection) = &node else { return Ok(Transformed::no(node)) };
        let LogicalPlan::Filter(filter) = projection.input.as_ref() else { return Ok(Transformed::no(node)) };
        let LogicalPlan::Aggregate(aggregate) = filter.input.as_ref() else { return Ok(Transformed::no(node)) };
        if !aggregate.group_expr.is_empty() || !is_having(filter) {
            return Ok(Transformed::no(node));
        }
        let named = projection.expr.iter().zip(projection.schema.fields()).map(|(expr, field)| {
            let value = Box::new(expr.clone().unalias());
            let when = vec![(Box::new(filter.predicate.clone()), value)];
            Expr::Case(Case::new(None, when, None)).alias(field.name())
        });
        let made = Projection::try_new(named.collect(), Arc::clone(&filter.input))?;
        Ok(Transformed::new(LogicalPlan::Projection(made), true, TreeNodeRecursion::Stop))
    })
    .data()
}

/// Whether DataFusion gets the conditions right: all are at the top, over columns whose names occur once; columns themselves, if rows are
/// grouped.
fn is_plain(plan: &LogicalPlan, conditions: &[Expr]) -> Result<bool> {
    let top = Top::of(plan);
    let LogicalPlan::Filter(filter) = top.below else { return Ok(false) };
    if uses_outer(&filter.input)? {
        return Ok(false);
    }
    let (mut columns, mut outer) = (HashSet::new(), HashSet::new());
    for condition in conditions {
        let is_column = compared(condition).is_some_and(|expr| column_of(expr, &filter.input).is_some());
        // DataFusion leaves out `x = x`, which is not true of NULL.
        let is_same = matches!(condition, Expr::BinaryExpr(BinaryExpr { left, right, .. }) if left == right);
        if is_same || (!top.aggregates.is_empty() && !is_column) {
            return Ok(false);
        }
        columns.extend(condition.column_refs());
        condition.apply(|expr| {
            if let Expr::OuterReferenceColumn(_, column) = expr {
                outer.insert(column.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    let mut once = columns.iter().all(|column| !outer.contains(*column));
    plan.apply(|node| {
        // The node above a table has its columns, maybe by an alias.
        if matches!(node, LogicalPlan::TableScan(_)) {
            return Ok(TreeNodeRecursion::Continue);
        }
        for (qualifier, field) in node.schema().iter() {
            once &= columns.iter().all(|c| c.name != *field.name() || c.relation.as_ref() == qualifier);
        }
        Ok(if once { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(once)
}

/// A plan without conditions that use outer columns, and these conditions, over its columns.
type Lifted = (LogicalPlan, Vec<Expr>);

struct Lift<'a> {
    config: &'a dyn OptimizerConfig,
    /// Whether whole expressions get a name, because rows are grouped by them, and not only columns.
    whole: bool,
    used: Use,
}

impl Lift<'_> {
    /// The plan with the conditions below the nodes at its top.
    fn below_top(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let below = |input: Arc<LogicalPlan>| self.below_top(Arc::unwrap_or_clone(input)).map(Arc::new);
        Ok(match plan {
            LogicalPlan::Projection(mut projection) => {
                projection.input = below(projection.input)?;
                LogicalPlan::Projection(projection)
            }
            LogicalPlan::Limit(mut limit) => {
                limit.input = below(limit.input)?;
                LogicalPlan::Limit(limit)
            }
            LogicalPlan::Aggregate(mut aggregate) => {
                aggregate.input = below(aggregate.input)?;
                LogicalPlan::Aggregate(aggregate)
            }
            LogicalPlan::Filter(mut filter) if is_having(&filter) => {
                filter.input = below(filter.input)?;
                LogicalPlan::Filter(filter)
            }
            plan => {
                let (plan, conditions) = self.lifted(plan)?;
                match conjunction(conditions) {
                    Some(condition) => LogicalPlan::Filter(Filter::try_new(condition, Arc::new(plan))?),
                    None => plan,
                }
            }
        })
    }

    fn lifted(&self, plan: LogicalPlan) -> Result<Lifted> {
        if !uses_outer(&plan)? {
            return Ok((plan, Vec::new()));
        }
        match plan {
            LogicalPlan::Filter(filter) => {
                let (input, mut conditions) = self.lifted(Arc::unwrap_or_clone(filter.input))?;
                let (of_outer, others): (Vec<_>, Vec<_>) =
                    split_conjunction_owned(filter.predicate).into_iter().partition(Expr::contains_outer);
                let input = match conjunction(others) {
                    Some(others) => LogicalPlan::Filter(Filter::try_new(others, Arc::new(input))?),
                    None => input,
                };
                let (plan, named) = self.named(input, of_outer)?;
                conditions.extend(named);
                Ok((plan, conditions))
            }
            LogicalPlan::Projection(projection) if !projection.expr.iter().any(Expr::contains_outer) => {
                let (input, conditions) = self.lifted(Arc::unwrap_or_clone(projection.input))?;
                let mut exprs = projection.expr;
                exprs.extend(columns_of(&conditions)?);
                Ok((LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?), conditions))
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let (input, conditions) = self.lifted(Arc::unwrap_or_clone(alias.input))?;
                columns_of(&conditions)?;
                let qualified = |condition: Expr| {
                    condition
                        .transform(|expr| match expr {
                            Expr::Column(column) => {
                                let column = Column::new(Some(alias.alias.clone()), column.name);
                                Ok(Transformed::yes(Expr::Column(column)))
                            }
                            expr => Ok(Transformed::no(expr)),
                        })
                        .data()
                };
                let conditions = conditions.into_iter().map(qualified).collect::<Result<Vec<Expr>>>()?;
                let made = SubqueryAlias::try_new(Arc::new(input), alias.alias)?;
                Ok((LogicalPlan::SubqueryAlias(made), conditions))
            }
            LogicalPlan::Sort(mut sort)
                if sort.fetch.is_none() && !sort.expr.iter().any(|by| by.expr.contains_outer()) =>
            {
                let (input, conditions) = self.lifted(Arc::unwrap_or_clone(sort.input))?;
                sort.input = Arc::new(input);
                Ok((LogicalPlan::Sort(sort), conditions))
            }
            LogicalPlan::Join(mut join) => {
                use JoinType::{Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark, RightSemi};
                let kept_left = matches!(join.join_type, Inner | Left | LeftSemi | LeftAnti | LeftMark);
                let kept_right = matches!(join.join_type, Inner | Right | RightSemi | RightAnti | RightMark);
                let is_lost = (!kept_left && uses_outer(&join.left)?) || (!kept_right && uses_outer(&join.right)?);
                let is_key = join.on.iter().any(|(left, right)| left.contains_outer() || right.contains_outer());
                let on = join.filter.take().map(split_conjunction_owned).unwrap_or_default();
                let (of_outer, others): (Vec<_>, Vec<_>) = on.into_iter().partition(Expr::contains_outer);
                if is_lost || is_key || (join.join_type != Inner && !of_outer.is_empty()) {
                    return not_impl_err!("{ACROSS}");
                }
                let (left, mut conditions) = self.lifted(Arc::unwrap_or_clone(join.left))?;
                let (right, of_right) = self.lifted(Arc::unwrap_or_clone(join.right))?;
                conditions.extend(of_right);
                (join.left, join.right, join.filter) = (Arc::new(left), Arc::new(right), conjunction(others));
                let (plan, named) = self.named(LogicalPlan::Join(join).recompute_schema()?, of_outer)?;
                conditions.extend(named);
                Ok((plan, conditions))
            }
            LogicalPlan::Aggregate(aggregate) => {
                let (input, conditions) = self.lifted(Arc::unwrap_or_clone(aggregate.input))?;
                if aggregate.group_expr.is_empty()
                    || aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)))
                {
                    return not_impl_err!("{OF_AGGREGATE}");
                }
                let may_repeat = aggregate.aggr_expr.is_empty() && self.used == Use::Predicate;
                if !may_repeat && conditions.iter().any(|condition| compared(condition).is_none()) {
                    return not_impl_err!("{NOT_EQUAL}");
                }
                let mut groups = aggregate.group_expr;
                groups.extend(columns_of(&conditions)?);
                let made = Aggregate::try_new(Arc::new(input), groups, aggregate.aggr_expr)?;
                Ok((LogicalPlan::Aggregate(made), conditions))
            }
            LogicalPlan::Unnest(unnest) => {
                let (input, conditions) = self.lifted(Arc::unwrap_or_clone(unnest.input))?;
                let made = LogicalPlanBuilder::from(input)
                    .unnest_columns_with_options(unnest.exec_columns, unnest.options)?
                    .build()?;
                Ok((made, conditions))
            }
            // The words for it are in `error::subqueries`.
            plan if plan.contains_outer_reference() => not_impl_err!("Unsupported Subquery plan"),
            _ => not_impl_err!("{ACROSS}"),
        }
    }

    /// The input with columns for what the conditions use of it, and the conditions over these columns.
    fn named(&self, input: LogicalPlan, conditions: Vec<Expr>) -> Result<Lifted> {
        let mut names: Vec<(Expr, Column)> = Vec::new();
        let conditions = conditions
            .into_iter()
            .map(|condition| {
                let over_names = condition.transform_down(|expr| {
                    let is_column = matches!(expr, Expr::Column(_));
                    let is_whole = self.whole
                        && expr.any_column_refs()
                        && !expr.contains_outer()
                        && !expr.is_volatile()
                        && !contains_subquery(&expr)?;
                    if !is_column && !is_whole {
                        return Ok(Transformed::no(expr));
                    }
                    let known = names.iter().find(|(named, _)| *named == expr).map(|(_, name)| name.clone());
                    let name = known.unwrap_or_else(|| {
                        let name = Column::new_unqualified(self.config.alias_generator().next("__correlated"));
                        names.push((expr, name.clone()));
                        name
                    });
                    Ok(Transformed::new(Expr::Column(name), true, TreeNodeRecursion::Jump))
                });
                Ok(match over_names.data()? {
                    Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) if left == right => {
                        Expr::IsNotNull(left)
                    }
                    condition => condition,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        if names.is_empty() {
            return Ok((input, conditions));
        }
        let columns = input.schema().columns().into_iter().map(Expr::Column);
        let exprs = columns.chain(names.into_iter().map(|(expr, name)| expr.alias(name.name))).collect();
        Ok((LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?), conditions))
    }
}

/// The columns that conditions use, each once, to be passed on.
fn columns_of(conditions: &[Expr]) -> Result<Vec<Expr>> {
    let mut columns: Vec<Expr> = Vec::new();
    for condition in conditions {
        // The columns that it has of the rows are not passed on.
        if contains_subquery(condition)? {
            return not_impl_err!("{ACROSS}");
        }
        let mut used: Vec<&Column> = condition.column_refs().into_iter().collect();
        used.sort();
        for column in used {
            let column = Expr::Column(column.clone());
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
    }
    Ok(columns)
}
