//! Keeps times in SQL exact to the nanosecond, whatever unit a collection stores.
//!
//! By default, DataFusion converts `t < TIMESTAMP '2024-01-01T00:00:00.000000001Z'` to the coarser of the two units and
//! truncates the literal, which moves the boundary; and it reads literals in nanoseconds, which only reach from 1677 to
//! 2262. So before types are coerced, every comparison of a timestamp with a constant is rewritten here: the constant
//! becomes a literal of the column's own type, rounded so that the comparison keeps its meaning.
//!
//! A difference of two times is compared with constant intervals in the same way: DataFusion would make it an interval without days, which
//! is less than any interval of a day. As in PostgreSQL, a day has 24 hours here and a month 30 days. Where such a difference meets an
//! interval elsewhere, as in `coalesce` or a sum, the interval becomes a difference; and intervals are compared with each other by their length.
//!
//! DataFusion takes a time without a zone for one of the zone's clock where it is cast to a time with a zone, as by `AT TIME ZONE` or beside
//! such a time. Here all times are instants, and one without a zone is in UTC.

mod beneath_casts;
mod lengths;
#[cfg(test)]
mod tests;
mod units;
mod zones;

pub(crate) use beneath_casts::BeneathCasts;
#[cfg(feature = "workers")]
pub(crate) use lengths::function as interval_length;
pub(crate) use lengths::{interval_lengths, is_interval, is_length, length_of};

use self::lengths::Beside;

use chrono::{DateTime, Utc};
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit};
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
    let mut types_change = false;
    let plan = plan.transform_up_with_subqueries(|plan| {
        // The types of the nodes above change too.
        let plan = if types_change { plan.recompute_schema()? } else { plan };
        let Transformed { data: plan, transformed, .. } = units::in_one_unit(plan)?;
        types_change |= transformed;
        let Transformed { data: plan, transformed: keys_change, .. } = zones::of_keys(plan);
        let transformed = transformed || keys_change;
        if !has_work(&plan)? {
            return Ok(Transformed::new_transformed(plan, transformed));
        }
        let rewriter = Rewriter { schema: input_schema(&plan)?, now, config: Arc::clone(config) };
        let names = NamePreserver::new(&plan);
        let before = Arc::clone(plan.schema());
        let mut rewritten = plan.map_expressions(|expr| {
            let name = names.save(&expr);
            Ok(rewriter.rewrite(expr)?.update_data(|expr| name.restore(expr)))
        })?;
        if !rewritten.transformed {
            rewritten.transformed = transformed;
            return Ok(rewritten);
        }
        let rewritten = rewritten.map_data(LogicalPlan::recompute_schema)?;
        types_change |= types(&before).ne(types(rewritten.data.schema()));
        Ok(rewritten)
    })?;
    Ok(plan.data)
}

fn types(schema: &DFSchema) -> impl Iterator<Item = &DataType> {
    schema.fields().iter().map(|field| field.data_type())
}

/// Whether a node has an expression that [`Rewriter::node`] looks at.
fn has_work(plan: &LogicalPlan) -> Result<bool> {
    let is_work = |expr: &Expr| match expr {
        Expr::BinaryExpr(binary) => is_comparison(binary.op) || matches!(binary.op, Operator::Minus | Operator::Plus),
        Expr::ScalarFunction(call) => zones::chooses(call),
        Expr::InSubquery(_) | Expr::SetComparison(_) => true,
        other => matches!(other, Expr::Between(_) | Expr::InList(_) | Expr::Cast(_) | Expr::Case(_)),
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
    let kind = Kind { unit, of: Of::Instant(zone) };
    match kind.place(scalar_instant(value)?.nanos()) {
        Place::At { units, exact: true } => Some(kind.value(units)),
        _ => None,
    }
}

struct Rewriter {
    schema: DFSchemaRef,
    now: Option<DateTime<Utc>>,
    config: Arc<ConfigOptions>,
}

/// The type of what is compared.
#[derive(Clone)]
struct Kind {
    unit: TimeUnit,
    of: Of,
}

#[derive(Clone)]
enum Of {
    /// Timestamps in this zone.
    Instant(Option<Arc<str>>),
    /// Differences of timestamps.
    Length,
}

/// Where a constant lies in the range of an `i64` of the column's unit.
enum Place {
    Below,
    At { units: i64, exact: bool },
    Above,
}

impl Kind {
    fn place(&self, nanos: i128) -> Place {
        let unit = unit_nanos(self.unit);
        match i64::try_from(nanos.div_euclid(unit)) {
            Ok(units) => Place::At { units, exact: nanos.rem_euclid(unit) == 0 },
            Err(_) if nanos < 0 => Place::Below,
            Err(_) => Place::Above,
        }
    }

    fn arrow(self) -> DataType {
        match self.of {
            Of::Instant(zone) => DataType::Timestamp(self.unit, zone),
            Of::Length => DataType::Duration(self.unit),
        }
    }

    fn literal(&self, units: i64) -> Expr {
        Expr::Literal(self.value(units), None)
    }

    fn value(&self, units: i64) -> ScalarValue {
        let units = Some(units);
        match (&self.of, self.unit) {
            (Of::Instant(zone), TimeUnit::Second) => ScalarValue::TimestampSecond(units, zone.clone()),
            (Of::Instant(zone), TimeUnit::Millisecond) => ScalarValue::TimestampMillisecond(units, zone.clone()),
            (Of::Instant(zone), TimeUnit::Microsecond) => ScalarValue::TimestampMicrosecond(units, zone.clone()),
            (Of::Instant(zone), TimeUnit::Nanosecond) => ScalarValue::TimestampNanosecond(units, zone.clone()),
            (Of::Length, TimeUnit::Second) => ScalarValue::DurationSecond(units),
            (Of::Length, TimeUnit::Millisecond) => ScalarValue::DurationMillisecond(units),
            (Of::Length, TimeUnit::Microsecond) => ScalarValue::DurationMicrosecond(units),
            (Of::Length, TimeUnit::Nanosecond) => ScalarValue::DurationNanosecond(units),
        }
    }

    /// `column op constant`, the constant in nanoseconds, with a literal of the column's type. A comparison that no stored time satisfies becomes `<
    /// MIN`, one that every stored time satisfies becomes `>= MIN`, so that null stays null.
    fn compare(&self, column: Expr, op: Operator, nanos: i128) -> Expr {
        use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
        let never = (Lt, i64::MIN);
        let always = (GtEq, i64::MIN);
        let (op, units) = match (self.place(nanos), op) {
            (Place::At { units, exact: true }, op) => (op, units),
            // No stored value equals this constant.
            (_, IsDistinctFrom | IsNotDistinctFrom) => {
                return Expr::Literal(ScalarValue::Boolean(Some(op == IsDistinctFrom)), None);
            }
            (Place::Below, Lt | LtEq | Eq) | (Place::Above, Gt | GtEq | Eq) => never,
            (Place::Below, _) | (Place::Above, _) => always,
            // The constant was rounded down: it lies between `units` and the next unit.
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

    /// The type of an expression that is a timestamp, but no constant, or a difference of timestamps.
    fn kind(&self, expr: &Expr) -> Option<Kind> {
        if matches!(expr, Expr::Literal(..)) {
            return None;
        }
        self.type_of(expr).filter(|kind| matches!(kind.of, Of::Length) || !is_constant(expr))
    }

    fn type_of(&self, expr: &Expr) -> Option<Kind> {
        match expr.get_type(&self.schema) {
            Ok(DataType::Timestamp(unit, zone)) => Some(Kind { unit, of: Of::Instant(zone) }),
            Ok(DataType::Duration(unit)) => Some(Kind { unit, of: Of::Length }),
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
            && [&stored, &kind]
                .iter()
                .all(|kind| matches!(&kind.of, Of::Instant(zone) if zone.as_deref().is_none_or(is_utc)))
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
                let is_instant = |expr: &Expr| self.instant(expr).is_some();
                (is_cast(left) && is_instant(right)) || (is_cast(right) && is_instant(left))
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
                    && let Some(nanos) = self.constant(&right, &kind)
                {
                    return Ok(Transformed::yes(kind.compare(column, op, nanos)));
                }
                if let Some((column, kind)) = self.compared(&right)
                    && let Some(nanos) = self.constant(&left, &kind)
                    && let Some(op) = op.swap()
                {
                    return Ok(Transformed::yes(kind.compare(column, op, nanos)));
                }
                Ok(self.two_units(BinaryExpr { left, op, right }))
            }
            Expr::Between(between) => self.between(between),
            Expr::InList(list) => self.in_list(list),
            Expr::Cast(cast) => Ok(self.cast(cast)),
            Expr::InSubquery(sought) => self.in_subquery(sought),
            Expr::SetComparison(compared) => self.any_or_all(compared),
            other => Ok(self.beside(other)),
        }
    }

    /// Compares two timestamps, or differences, of different units in the finer one; by default the finer one would be truncated.
    fn two_units(&self, mut compared: BinaryExpr) -> Transformed<Expr> {
        let changed = self.in_one_zone([&mut *compared.left, &mut *compared.right])
            | self.as_lengths([&mut *compared.left, &mut *compared.right], Beside::Compared);
        let as_it_is = |compared| Transformed::new_transformed(Expr::BinaryExpr(compared), changed);
        let (Some(left), Some(right)) = (self.kind(&compared.left), self.kind(&compared.right)) else {
            return as_it_is(compared);
        };
        if matches!(left.of, Of::Length) != matches!(right.of, Of::Length) {
            return as_it_is(compared);
        }
        let cast = |expr: &mut Box<Expr>, finer: Kind| {
            let inner = std::mem::take(expr);
            **expr = Expr::Cast(Cast::new(inner, finer.arrow()));
        };
        match unit_nanos(left.unit).cmp(&unit_nanos(right.unit)) {
            Ordering::Less => cast(&mut compared.right, left),
            Ordering::Greater => cast(&mut compared.left, right),
            Ordering::Equal => return as_it_is(compared),
        }
        Transformed::yes(Expr::BinaryExpr(compared))
    }

    fn between(&self, between: Between) -> Result<Transformed<Expr>> {
        let Some((column, kind)) = self.compared(&between.expr) else { return Ok(self.varying_between(between)) };
        let (low, high) = (self.constant(&between.low, &kind), self.constant(&between.high, &kind));
        if low.is_none() && high.is_none() {
            return Ok(self.varying_between(between));
        }
        let (from, to) = if between.negated { (Operator::Lt, Operator::Gt) } else { (Operator::GtEq, Operator::LtEq) };
        let side = |op, nanos: Option<i128>, bound: Box<Expr>| match nanos {
            Some(nanos) => kind.compare(column.clone(), op, nanos),
            None => self.two_units(BinaryExpr::new(between.expr.clone(), op, bound)).data,
        };
        let (low, high) = (side(from, low, between.low), side(to, high, between.high));
        Ok(Transformed::yes(if between.negated { low.or(high) } else { low.and(high) }))
    }

    fn in_list(&self, list: InList) -> Result<Transformed<Expr>> {
        let Some((column, kind)) = self.compared(&list.expr) else { return Ok(self.varying_list(list)) };
        let constants: Option<Vec<i128>> = list.list.iter().map(|e| self.constant(e, &kind)).collect();
        let Some(constants) = constants else { return Ok(self.varying_list(list)) };
        let members: Vec<Expr> = constants
            .into_iter()
            .filter_map(|nanos| match kind.place(nanos) {
                Place::At { units, exact: true } => Some(kind.literal(units)),
                _ => None,
            })
            .collect();
        if members.is_empty() {
            let op = if list.negated { Operator::GtEq } else { Operator::Lt };
            return Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(
                Box::new(column),
                op,
                Box::new(kind.literal(i64::MIN)),
            ))));
        }
        Ok(Transformed::yes(Expr::InList(InList::new(Box::new(column), members, list.negated))))
    }

    /// The nanoseconds that a constant expression stands for, beside values of this type.
    fn constant(&self, expr: &Expr, kind: &Kind) -> Option<i128> {
        match (&kind.of, expr) {
            (Of::Instant(_), expr) => self.instant(expr).map(Timestamp::nanos),
            (Of::Length, Expr::Literal(value, _)) => length(value),
            (Of::Length, expr) => length(&self.value(expr)?),
        }
    }

    /// The instant that a constant expression stands for.
    fn instant(&self, expr: &Expr) -> Option<Timestamp> {
        if let Some(instant) = plain_instant(expr) {
            return Some(instant);
        }
        self.value(expr).filter(|value| !is_text(value)).as_ref().and_then(scalar_instant)
    }

    /// The value of a constant expression.
    fn value(&self, expr: &Expr) -> Option<ScalarValue> {
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
            Expr::Literal(value, _) => Some(value),
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

/// The length of an interval in nanoseconds. A day has 24 hours and a month 30 days.
pub(crate) fn interval_nanos(interval: IntervalMonthDayNano) -> i128 {
    const DAY: i128 = 86_400_000_000_000;
    let days = i128::from(interval.months) * 30 + i128::from(interval.days);
    days * DAY + i128::from(interval.nanoseconds)
}

/// The length of an interval or a difference of times, in nanoseconds.
fn length(value: &ScalarValue) -> Option<i128> {
    let days = |months, days| interval_nanos(IntervalMonthDayNano::new(months, days, 0));
    let units = |v: i64, unit| i128::from(v) * unit_nanos(unit);
    Some(match value {
        ScalarValue::IntervalMonthDayNano(Some(value)) => interval_nanos(*value),
        ScalarValue::IntervalDayTime(Some(value)) => days(0, value.days) + i128::from(value.milliseconds) * 1_000_000,
        ScalarValue::IntervalYearMonth(Some(months)) => days(*months, 0),
        ScalarValue::DurationSecond(Some(v)) => units(*v, TimeUnit::Second),
        ScalarValue::DurationMillisecond(Some(v)) => units(*v, TimeUnit::Millisecond),
        ScalarValue::DurationMicrosecond(Some(v)) => units(*v, TimeUnit::Microsecond),
        ScalarValue::DurationNanosecond(Some(v)) => units(*v, TimeUnit::Nanosecond),
        _ => return None,
    })
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
        let kind = Kind { unit: *unit, of: Of::Instant(zone.clone()) };
        if let Place::At { units, .. } = kind.place(instant.nanos()) {
            return Transformed::yes(kind.literal(units));
        }
    }
    Transformed::no(Expr::Cast(cast))
}
