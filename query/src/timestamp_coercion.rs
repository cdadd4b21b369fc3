//! Keeps times in SQL exact to the nanosecond, whatever unit a collection stores.
//!
//! By default, DataFusion converts `t < TIMESTAMP '2024-01-01T00:00:00.000000001Z'` to the coarser of the two units and
//! truncates the literal, which moves the boundary; and it reads literals in nanoseconds, which only reach from 1677 to
//! 2262. So before types are coerced, every comparison of a timestamp with a constant is rewritten here: the constant
//! becomes a literal of the column's own type, rounded so that the comparison keeps its meaning.

mod beneath_casts;
#[cfg(test)]
mod tests;
mod units;

pub(crate) use beneath_casts::BeneathCasts;

use chrono::{DateTime, Utc};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DFSchemaRef, Result, ScalarValue};
use datafusion::logical_expr::expr::{Between, Cast, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use ebbtide_buckets::unit_nanos;
use ebbtide_ttl::Timestamp;
use std::cmp::Ordering;
use std::sync::Arc;

/// Rewrites the comparisons of a plan that has not been analyzed. Without `now`, expressions that depend on the instant
/// of execution (in views and prepared statements) are left unchanged.
pub(crate) fn rewrite_plan(
    plan: LogicalPlan,
    now: Option<DateTime<Utc>>,
    config: &Arc<ConfigOptions>,
) -> Result<LogicalPlan> {
    let mut units_change = false;
    let plan = plan.transform_up_with_subqueries(|plan| {
        // The types of the nodes above a union change with its unit.
        let plan = if units_change { plan.recompute_schema()? } else { plan };
        let Transformed { data: plan, transformed, .. } = units::in_one_unit(plan)?;
        units_change |= transformed;
        if !has_work(&plan)? {
            return Ok(Transformed::new_transformed(plan, transformed));
        }
        let rewriter = Rewriter { schema: input_schema(&plan)?, now, config: Arc::clone(config) };
        let names = NamePreserver::new(&plan);
        let rewritten = plan.map_expressions(|expr| {
            let name = names.save(&expr);
            Ok(rewriter.rewrite(expr)?.update_data(|expr| name.restore(expr)))
        })?;
        if rewritten.transformed { rewritten.map_data(LogicalPlan::recompute_schema) } else { Ok(rewritten) }
    })?;
    Ok(plan.data)
}

/// Whether a node has an expression that [`Rewriter::node`] looks at.
fn has_work(plan: &LogicalPlan) -> Result<bool> {
    let is_work = |expr: &Expr| match expr {
        Expr::BinaryExpr(binary) => is_comparison(binary.op),
        other => matches!(other, Expr::Between(_) | Expr::InList(_) | Expr::Cast(_)),
    };
    let mut found = false;
    plan.apply_expressions(|expr| {
        found = expr.exists(|expr| Ok(is_work(expr)))?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The schema that the expressions of a node refer to.
fn input_schema(plan: &LogicalPlan) -> Result<DFSchemaRef> {
    match (plan, plan.inputs().as_slice()) {
        (LogicalPlan::TableScan(scan), _) => {
            let schema = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?;
            Ok(Arc::new(schema))
        }
        (_, [input]) => Ok(Arc::clone(input.schema())),
        (_, inputs) => Ok(Arc::new(merge_schema(inputs))),
    }
}

/// Replaces `now()` and similar functions by the statement's instant, for plans that DataFusion would run by its own
/// clock.
pub(crate) fn freeze_now(
    plan: LogicalPlan,
    now: Option<DateTime<Utc>>,
    config: &Arc<ConfigOptions>,
) -> Result<LogicalPlan> {
    let context =
        SimplifyContext::builder().with_query_execution_start_time(now).with_config_options(Arc::clone(config));
    let simplifier = ExprSimplifier::new(context.build());
    let plan = plan.transform_up_with_subqueries(|plan| {
        let names = NamePreserver::new(&plan);
        let frozen = plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let expr = expr.transform_up(|expr| match &expr {
                Expr::ScalarFunction(_) if depends_on_now(&expr) && is_constant(&expr) => {
                    Ok(Transformed::yes(simplifier.simplify(expr)?))
                }
                _ => Ok(Transformed::no(expr)),
            })?;
            Ok(expr.update_data(|expr| name.restore(expr)))
        })?;
        if frozen.transformed { frozen.map_data(LogicalPlan::recompute_schema) } else { Ok(frozen) }
    })?;
    Ok(plan.data)
}

/// Rewrites one expression over `schema`.
pub(crate) fn rewrite_expr(
    expr: Expr,
    schema: &DFSchema,
    now: Option<DateTime<Utc>>,
    config: &Arc<ConfigOptions>,
) -> Result<Expr> {
    Ok(Rewriter { schema: Arc::new(schema.clone()), now, config: Arc::clone(config) }.rewrite(expr)?.data)
}

/// Simplifies expressions over rows of a schema.
pub(crate) fn simplifier(schema: &DFSchema, now: Option<DateTime<Utc>>, config: &Arc<ConfigOptions>) -> ExprSimplifier {
    let context = SimplifyContext::builder()
        .with_schema(Arc::new(schema.clone()))
        .with_config_options(Arc::clone(config))
        .with_query_execution_start_time(now)
        .build();
    ExprSimplifier::new(context)
}

/// The instant that a constant expression stands for.
pub(crate) fn constant_instant(
    expr: &Expr,
    now: Option<DateTime<Utc>>,
    config: &Arc<ConfigOptions>,
) -> Option<Timestamp> {
    Rewriter { schema: Arc::new(DFSchema::empty()), now, config: Arc::clone(config) }.instant(expr)
}

/// The instant that a value stands for, in this unit and zone; `None` if it is not a whole number of units.
pub(crate) fn exactly(value: &ScalarValue, unit: TimeUnit, zone: Option<Arc<str>>) -> Option<ScalarValue> {
    let kind = Kind { unit, zone };
    match kind.place(scalar_instant(value)?) {
        Place::At { units, exact: true } => Some(kind.value(units)),
        _ => None,
    }
}

struct Rewriter {
    schema: DFSchemaRef,
    now: Option<DateTime<Utc>>,
    config: Arc<ConfigOptions>,
}

/// The type of the compared timestamps.
#[derive(Clone)]
struct Kind {
    unit: TimeUnit,
    zone: Option<Arc<str>>,
}

/// Where a constant lies in the range of an `i64` of the column's unit.
enum Place {
    Below,
    At { units: i64, exact: bool },
    Above,
}

impl Kind {
    fn place(&self, instant: Timestamp) -> Place {
        let nanos = unit_nanos(self.unit);
        match i64::try_from(instant.nanos().div_euclid(nanos)) {
            Ok(units) => Place::At { units, exact: instant.nanos().rem_euclid(nanos) == 0 },
            Err(_) if instant.nanos() < 0 => Place::Below,
            Err(_) => Place::Above,
        }
    }

    fn literal(&self, units: i64) -> Expr {
        Expr::Literal(self.value(units), None)
    }

    fn value(&self, units: i64) -> ScalarValue {
        let zone = self.zone.clone();
        match self.unit {
            TimeUnit::Second => ScalarValue::TimestampSecond(Some(units), zone),
            TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(Some(units), zone),
            TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(Some(units), zone),
            TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(Some(units), zone),
        }
    }

    /// `column op instant` with a literal of the column's type. A comparison that no stored time satisfies becomes `<
    /// MIN`, one that every stored time satisfies becomes `>= MIN`, so that null stays null.
    fn compare(&self, column: Expr, op: Operator, instant: Timestamp) -> Expr {
        use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
        let never = (Lt, i64::MIN);
        let always = (GtEq, i64::MIN);
        let (op, units) = match (self.place(instant), op) {
            (Place::At { units, exact: true }, op) => (op, units),
            // No stored time equals this instant.
            (_, IsDistinctFrom | IsNotDistinctFrom) => {
                return Expr::Literal(ScalarValue::Boolean(Some(op == IsDistinctFrom)), None);
            }
            (Place::Below, Lt | LtEq | Eq) | (Place::Above, Gt | GtEq | Eq) => never,
            (Place::Below, _) | (Place::Above, _) => always,
            // The instant was rounded down: it lies between `units` and the next unit.
            (Place::At { units, .. }, Lt | LtEq) => (LtEq, units),
            (Place::At { units, .. }, Gt | GtEq) => (Gt, units),
            (Place::At { .. }, Eq) => never,
            (Place::At { .. }, NotEq) => always,
            (Place::At { units, .. }, op) => (op, units),
        };
        Expr::BinaryExpr(BinaryExpr::new(Box::new(column), op, Box::new(self.literal(units))))
    }
}

impl Rewriter {
    fn rewrite(&self, expr: Expr) -> Result<Transformed<Expr>> {
        expr.transform_up(|expr| self.node(expr))
    }

    /// The type of a timestamp expression that is not a constant.
    fn kind(&self, expr: &Expr) -> Option<Kind> {
        if matches!(expr, Expr::Literal(..)) || is_constant(expr) {
            return None;
        }
        match expr.get_type(&self.schema) {
            Ok(DataType::Timestamp(unit, zone)) => Some(Kind { unit, zone }),
            _ => None,
        }
    }

    /// The timestamp that is really compared: the stored one inside casts that do not change the instant. DataFusion
    /// would remove the cast as well, and truncate the constant to the stored unit.
    fn compared(&self, expr: &Expr) -> Option<(Expr, Kind)> {
        let kind = self.kind(expr)?;
        if let Expr::Cast(cast) = expr
            && let Some((inner, stored)) = self.compared(&cast.expr)
            && unit_nanos(stored.unit) >= unit_nanos(kind.unit)
            && [&stored, &kind].iter().all(|kind| kind.zone.as_deref().is_none_or(is_utc))
        {
            return Some((inner, stored));
        }
        Some((expr.clone(), kind))
    }

    /// Whether an expression compares a timestamp inside a cast that does not change the instant.
    fn compares_beneath_cast(&self, expr: &Expr) -> bool {
        let is_cast = |side: &Expr| {
            matches!(side, Expr::Cast(_)) && self.compared(side).is_some_and(|(column, _)| column != *side)
        };
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
                (is_cast(left) && self.instant(right).is_some()) || (is_cast(right) && self.instant(left).is_some())
            }
            Expr::Between(between) => is_cast(&between.expr),
            Expr::InList(list) => is_cast(&list.expr),
            _ => false,
        }
    }

    fn node(&self, expr: Expr) -> Result<Transformed<Expr>> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
                if let Some((column, kind)) = self.compared(&left)
                    && let Some(instant) = self.instant(&right)
                {
                    return Ok(Transformed::yes(kind.compare(column, op, instant)));
                }
                if let Some((column, kind)) = self.compared(&right)
                    && let Some(instant) = self.instant(&left)
                    && let Some(op) = op.swap()
                {
                    return Ok(Transformed::yes(kind.compare(column, op, instant)));
                }
                Ok(self.two_units(BinaryExpr { left, op, right }))
            }
            Expr::Between(between) => Ok(self.between(between)),
            Expr::InList(list) => Ok(self.in_list(list)),
            Expr::Cast(cast) => Ok(cast_constant(cast)),
            other => Ok(Transformed::no(other)),
        }
    }

    /// Compares two timestamps of different units in the finer one; by default the finer one would be truncated.
    fn two_units(&self, mut compared: BinaryExpr) -> Transformed<Expr> {
        let (Some(left), Some(right)) = (self.kind(&compared.left), self.kind(&compared.right)) else {
            return Transformed::no(Expr::BinaryExpr(compared));
        };
        let cast = |expr: &mut Box<Expr>, finer: Kind| {
            let ty = DataType::Timestamp(finer.unit, finer.zone);
            let inner = std::mem::take(expr);
            **expr = Expr::Cast(Cast::new(inner, ty));
        };
        match unit_nanos(left.unit).cmp(&unit_nanos(right.unit)) {
            Ordering::Less => cast(&mut compared.right, left),
            Ordering::Greater => cast(&mut compared.left, right),
            Ordering::Equal => return Transformed::no(Expr::BinaryExpr(compared)),
        }
        Transformed::yes(Expr::BinaryExpr(compared))
    }

    fn between(&self, between: Between) -> Transformed<Expr> {
        let Some((column, kind)) = self.compared(&between.expr) else { return Transformed::no(Expr::Between(between)) };
        let (low, high) = (self.instant(&between.low), self.instant(&between.high));
        if low.is_none() && high.is_none() {
            return Transformed::no(Expr::Between(between));
        }
        let (from, to) = if between.negated { (Operator::Lt, Operator::Gt) } else { (Operator::GtEq, Operator::LtEq) };
        let side = |op, instant: Option<Timestamp>, bound: Box<Expr>| match instant {
            Some(instant) => kind.compare(column.clone(), op, instant),
            None => Expr::BinaryExpr(BinaryExpr::new(between.expr.clone(), op, bound)),
        };
        let (low, high) = (side(from, low, between.low), side(to, high, between.high));
        Transformed::yes(if between.negated { low.or(high) } else { low.and(high) })
    }

    fn in_list(&self, list: InList) -> Transformed<Expr> {
        let Some((column, kind)) = self.compared(&list.expr) else { return Transformed::no(Expr::InList(list)) };
        let instants: Option<Vec<Timestamp>> = list.list.iter().map(|e| self.instant(e)).collect();
        let Some(instants) = instants else { return Transformed::no(Expr::InList(list)) };
        let members: Vec<Expr> = instants
            .into_iter()
            .filter_map(|instant| match kind.place(instant) {
                Place::At { units, exact: true } => Some(kind.literal(units)),
                _ => None,
            })
            .collect();
        if members.is_empty() {
            let op = if list.negated { Operator::GtEq } else { Operator::Lt };
            return Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(
                Box::new(column),
                op,
                Box::new(kind.literal(i64::MIN)),
            )));
        }
        Transformed::yes(Expr::InList(InList::new(Box::new(column), members, list.negated)))
    }

    /// The instant that a constant expression stands for.
    fn instant(&self, expr: &Expr) -> Option<Timestamp> {
        if let Some(instant) = plain_instant(expr) {
            return Some(instant);
        }
        if !is_constant(expr) || (self.now.is_none() && depends_on_now(expr)) {
            return None;
        }
        let context = SimplifyContext::builder()
            .with_schema(Arc::new(DFSchema::empty()))
            .with_query_execution_start_time(self.now)
            .with_config_options(Arc::clone(&self.config))
            .build();
        let simplifier = ExprSimplifier::new(context);
        let coerced = simplifier.coerce(expr.clone(), &DFSchema::empty()).ok()?;
        match simplifier.simplify(coerced).ok()? {
            Expr::Literal(value, _) if !is_text(&value) => scalar_instant(&value),
            _ => None,
        }
    }
}

/// Whether an operator compares two values of a type.
pub(crate) fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Whether an expression has the same value for every row, and one that is known before execution.
fn is_constant(expr: &Expr) -> bool {
    !expr
        .exists(|e| {
            Ok(e.is_volatile_node()
                || matches!(
                    e,
                    Expr::Column(_)
                        | Expr::OuterReferenceColumn(..)
                        | Expr::ScalarVariable(..)
                        | Expr::AggregateFunction(_)
                        | Expr::WindowFunction(_)
                        | Expr::Exists(_)
                        | Expr::InSubquery(_)
                        | Expr::ScalarSubquery(_)
                        | Expr::SetComparison(_)
                        | Expr::GroupingSet(_)
                        | Expr::Placeholder(_)
                        | Expr::Unnest(_)
                        | Expr::Lambda(_)
                        | Expr::LambdaVariable(_)
                ))
        })
        .unwrap_or(true)
}

/// Whether an expression reads the clock.
pub(crate) fn depends_on_now(expr: &Expr) -> bool {
    expr.exists(|e| {
        Ok(matches!(e, Expr::ScalarFunction(f)
            if matches!(f.func.name(), "now" | "current_timestamp" | "current_date" | "current_time" | "today")))
    })
    .unwrap_or(true)
}

/// The instant of `'...'`, `TIMESTAMP '...'`, `DATE '...'` and literals, without a conversion through nanoseconds.
fn plain_instant(expr: &Expr) -> Option<Timestamp> {
    match expr {
        Expr::Literal(value, _) => scalar_instant(value),
        Expr::Cast(cast) => match (&*cast.expr, cast.field.data_type()) {
            (Expr::Literal(value, _), DataType::Timestamp(TimeUnit::Nanosecond, zone))
                if is_text(value) && zone.as_deref().is_none_or(is_utc) =>
            {
                scalar_instant(value)
            }
            (Expr::Literal(value, _), DataType::Date32) if is_text(value) => {
                let day = 86_400_000_000_000;
                scalar_instant(value).map(|t| Timestamp::from_nanos(t.nanos().div_euclid(day) * day))
            }
            _ => None,
        },
        _ => None,
    }
}

fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "+00:00" | "Z" | "Etc/UTC" | "+00")
}

fn is_text(value: &ScalarValue) -> bool {
    matches!(value, ScalarValue::Utf8(_) | ScalarValue::LargeUtf8(_) | ScalarValue::Utf8View(_))
}

/// The instant that a value stands for; times without a zone are UTC.
pub(crate) fn scalar_instant(value: &ScalarValue) -> Option<Timestamp> {
    let units = |v: i64, unit| Timestamp::from_nanos(i128::from(v) * unit_nanos(unit));
    match value {
        ScalarValue::Utf8(Some(text)) | ScalarValue::LargeUtf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            Timestamp::parse(text).ok().or_else(|| first_of_month(text))
        }
        ScalarValue::TimestampSecond(Some(v), _) => Some(units(*v, TimeUnit::Second)),
        ScalarValue::TimestampMillisecond(Some(v), _) | ScalarValue::Date64(Some(v)) => {
            Some(units(*v, TimeUnit::Millisecond))
        }
        ScalarValue::TimestampMicrosecond(Some(v), _) => Some(units(*v, TimeUnit::Microsecond)),
        ScalarValue::TimestampNanosecond(Some(v), _) => Some(units(*v, TimeUnit::Nanosecond)),
        ScalarValue::Date32(Some(days)) => Some(units(i64::from(*days) * 86_400, TimeUnit::Second)),
        _ => None,
    }
}

/// `2013-06`: the first of June.
fn first_of_month(text: &str) -> Option<Timestamp> {
    let (year, month) = text.split_once('-')?;
    let digits = |text: &str, count: usize| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    (digits(year, 4) && digits(month, 2)).then(|| Timestamp::parse(&format!("{text}-01")).ok()).flatten()
}

/// Evaluates `CAST(TIMESTAMP '1500-01-01' AS TIMESTAMP(3))`, which INSERT makes of its values, rounding down to the
/// unit.
fn cast_constant(cast: Cast) -> Transformed<Expr> {
    if let DataType::Timestamp(unit, zone) = cast.field.data_type()
        && *unit != TimeUnit::Nanosecond
        && zone.as_deref().is_none_or(is_utc)
        && let Some(instant) = plain_instant(&cast.expr)
    {
        let kind = Kind { unit: *unit, zone: zone.clone() };
        if let Place::At { units, .. } = kind.place(instant) {
            return Transformed::yes(kind.literal(units));
        }
    }
    Transformed::no(Expr::Cast(cast))
}
