//! Aggregates in two steps: the engine answers the first, and the second puts its rows together.
//!
//! `SELECT s.state, avg(w.temp) FROM w JOIN stations s ON w.station = s.station GROUP BY s.state` would join every
//! measurement. All that the join and the groups need of one is its station. So measurements are aggregated by station first,
//! which the engine does, mostly from its directories; the join gets one row for each station. In the same way
//! `extract(month FROM time)`, which the engine does not compute, is taken of the months that it has.
//!
//! W. P. Yan and P.-A. Larson, "Eager Aggregation and Lazy Aggregation", VLDB 1995, prove when this is right: here for
//! joins that compare expressions for equality, and functions whose results for parts can be put together exactly, or, of
//! doubles, in another order.

use super::join_tree::{JoinTree, with_columns};
use super::{AggregateSpec, Calendar, DAY_NANOS, EngineAggregate, Key, Part, bare, call_on_time, key_of, width_of};
use crate::functions::{DateTrunc, sum};
use crate::options::fast_paths;
use crate::planning::ROWS_OF_ONE_THREAD;
use crate::provider::CollectionTable;
use crate::pushdown::path;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue, TableReference};
use datafusion::datasource::source_as_provider;
use datafusion::execution::context::SessionState;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion::logical_expr::{
    Aggregate, AggregateUDF, Expr, ExprSchemable, LogicalPlan, Projection, SubqueryAlias, TableScan, cast, lit, when,
};
use ebbtide::AggregateRequest;
use ebbtide_buckets::{FieldType, Schema};
use std::sync::Arc;

/// The minimum number of rows for each bin of time, on average, for which a first step is made.
const ROWS_OF_A_BIN: u64 = 8;

/// The plan with its aggregates in two steps where that saves reading rows.
pub(crate) fn aggregate_early(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    if !fast_paths(state.config_options()) {
        return Ok(plan);
    }
    let early = plan.transform_up(|node| {
        let LogicalPlan::Aggregate(aggregate) = &node else { return Ok(Transformed::no(node)) };
        // If it cannot be planned in two steps, it stays as it is.
        let early = in_two_steps(aggregate, state).ok().flatten();
        Ok(early.map_or(Transformed::no(node), Transformed::yes))
    });
    early.data()
}

fn in_two_steps(aggregate: &Aggregate, state: &SessionState) -> Result<Option<LogicalPlan>> {
    let tree = JoinTree::of(&aggregate.input)?;
    let mut found: Option<(u64, LogicalPlan)> = None;
    for (at, table) in tree.tables() {
        let LogicalPlan::TableScan(scan) = table.input.as_ref() else { continue };
        let provider = source_as_provider(&scan.source)?;
        let Some(collection) = provider.downcast_ref::<CollectionTable>() else { continue };
        let measured = Measured { at, name: &table.alias, table, scan, collection };
        let Some(first) = FirstStep::of(aggregate, &tree, &measured)? else { continue };
        let Some(asked) = first.asked()? else { continue };
        let Some((rows, groups)) = measured.is_worth_it(&first, state)? else { continue };
        // Of `count(*)` any table may be the one with the measurements: it is the largest.
        if found.as_ref().is_none_or(|(most, _)| rows > *most) {
            found = Some((rows, first.plan(asked, groups)?));
        }
    }
    Ok(found.map(|(_, plan)| plan))
}

/// The table whose rows are aggregated first.
struct Measured<'a> {
    at: usize,
    name: &'a TableReference,
    table: &'a SubqueryAlias,
    scan: &'a TableScan,
    collection: &'a CollectionTable,
}

impl Measured<'_> {
    fn schema(&self) -> &Schema {
        self.collection.planned.schema.as_ref()
    }

    fn has(&self, column: &Column) -> bool {
        column.relation.as_ref() == Some(self.name)
    }

    /// Whether an expression has columns of this table alone; `None` if it has some of others too.
    fn owns(&self, expr: &Expr) -> Option<bool> {
        let columns = expr.column_refs();
        let owned = columns.iter().filter(|column| self.has(column)).count();
        (owned == 0 || owned == columns.len()).then_some(owned > 0)
    }

    /// An expression on the columns of this table as one on those of its scan.
    fn in_scan(&self, expr: &Expr) -> Result<Expr> {
        let columns = self.scan.projected_schema.columns();
        with_columns(expr, &|column| Ok(Expr::Column(columns[self.table.schema.index_of_column(column)?].clone())))
    }

    /// The numbers of rows and of groups, the latter if it is known, if the engine should aggregate first.
    fn is_worth_it(&self, first: &FirstStep<'_>, state: &SessionState) -> Result<Option<(u64, u64)>> {
        let made = self.collection.make_scan(state, self.scan.projection.as_ref(), &self.scan.filters)?;
        let (rows, buckets) = (made.rows_estimate(), made.buckets());
        let groups = match first.bin {
            None => buckets,
            Some(width) => {
                let of_bucket = made.span_seconds().unsigned_abs().saturating_mul(1_000_000_000) / width + 2;
                buckets.saturating_mul(of_bucket)
            }
        };
        let is_worth_it =
            first.bin.is_none_or(|width| made.can_store_bins(width) && groups.saturating_mul(ROWS_OF_A_BIN) <= rows);
        Ok((rows > ROWS_OF_ONE_THREAD && is_worth_it).then_some((rows, groups)))
    }
}

/// What the engine is asked for, and what is made of it.
struct FirstStep<'a> {
    aggregate: &'a Aggregate,
    tree: &'a JoinTree<'a>,
    measured: &'a Measured<'a>,
    /// The keys and calls of the engine's aggregate, on the columns of the scan.
    keys: Vec<Expr>,
    calls: Vec<Expr>,
    /// Those of the second aggregate.
    second_keys: Vec<Expr>,
    second_calls: Vec<Expr>,
    /// The columns of the result, on those of the second aggregate.
    results: Vec<Expr>,
    /// The width of the bins of time in nanoseconds.
    bin: Option<u64>,
    /// The key that is the bin, and the time that it is made of.
    time: Option<(Expr, Expr)>,
}

/// How an expression depends on the time of a measurement.
enum Dependence {
    /// It is computed from the meta.
    None,
    /// It is the bin.
    Bin(Grain),
    /// It is the same for all times in a bin.
    OfBin(Grain),
}

/// Bins of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grain {
    /// Of a width in nanoseconds, counted from 1970.
    Width(i128),
    Calendar(Calendar),
}

impl Grain {
    const HOUR: Grain = Grain::Width(3_600_000_000_000);
    const DAY: Grain = Grain::Width(DAY_NANOS);

    /// Whether each of these bins lies in one of the others.
    fn divides(self, others: Grain) -> bool {
        match (self, others) {
            (Grain::Width(width), Grain::Width(other)) => other % width == 0,
            (Grain::Width(width), Grain::Calendar(_)) => DAY_NANOS % width == 0,
            (Grain::Calendar(_), Grain::Width(_)) => false,
            (Grain::Calendar(one), Grain::Calendar(other)) => {
                let of_months = |calendar| match calendar {
                    Calendar::Month => Some(1),
                    Calendar::Quarter => Some(3),
                    Calendar::Year => Some(12),
                    Calendar::Week => None,
                };
                one == other || of_months(one).zip(of_months(other)).is_some_and(|(one, other)| one < other)
            }
        }
    }

    /// The unit of `date_trunc` for these bins.
    fn unit(self) -> Option<&'static str> {
        match self {
            Grain::HOUR => Some("hour"),
            Grain::DAY => Some("day"),
            Grain::Width(_) => None,
            Grain::Calendar(calendar) => Some(calendar.unit()),
        }
    }

    /// The least width of a bin in nanoseconds.
    fn width(self) -> i128 {
        match self {
            Grain::Width(width) => width,
            Grain::Calendar(Calendar::Week) => 7 * DAY_NANOS,
            Grain::Calendar(Calendar::Month) => 28 * DAY_NANOS,
            Grain::Calendar(Calendar::Quarter) => 90 * DAY_NANOS,
            Grain::Calendar(Calendar::Year) => 365 * DAY_NANOS,
        }
    }
}

impl<'a> FirstStep<'a> {
    /// `None` if the engine cannot answer it, or if there is nothing to put together.
    fn of(aggregate: &'a Aggregate, tree: &'a JoinTree<'a>, measured: &'a Measured<'a>) -> Result<Option<Self>> {
        let groups = aggregate.group_expr.iter().map(|key| tree.resolved(bare(key))).collect::<Result<Vec<_>>>()?;
        // What differs from row to row cannot be computed for several rows at once.
        if groups.iter().chain(tree.compared()).chain(&aggregate.aggr_expr).any(Expr::is_volatile) {
            return Ok(None);
        }
        let mut own = Vec::new();
        for expr in groups.iter().chain(tree.compared()) {
            match measured.owns(expr) {
                Some(true) => own.push(measured.in_scan(expr)?),
                Some(false) if !matches!(expr, Expr::GroupingSet(_)) => {}
                _ => return Ok(None),
            }
        }
        let mut first = FirstStep {
            aggregate,
            tree,
            measured,
            keys: Vec::new(),
            calls: Vec::new(),
            second_keys: Vec::new(),
            second_calls: Vec::new(),
            results: Vec::new(),
            bin: None,
            time: None,
        };
        if own.is_empty() || !first.add_keys(&own)? {
            return Ok(None);
        }
        for expr in &groups {
            let key = first.second(expr)?;
            first.second_keys.push(key);
        }
        for call in &aggregate.aggr_expr {
            let Some(result) = first.add_call(bare(call))? else { return Ok(None) };
            first.results.push(result);
        }
        Ok(Some(first))
    }

    /// Adds the keys that these expressions depend on; `false` if the engine has no such keys.
    fn add_keys(&mut self, own: &[Expr]) -> Result<bool> {
        let schema = self.measured.schema();
        let (mut grains, mut bins, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        for expr in own {
            match dependence(expr, schema) {
                None => return Ok(false),
                Some(Dependence::None) if self.tree.is_join() => add_members(&mut self.keys, expr, schema)?,
                Some(Dependence::None) => add(&mut self.keys, expr.clone()),
                Some(Dependence::Bin(grain)) => {
                    bins.push((grain, expr));
                    grains.push(grain);
                }
                Some(Dependence::OfBin(grain)) => {
                    add(&mut parts, expr.clone());
                    grains.push(grain);
                }
            }
        }
        // A single table without such expressions is answered in one step.
        if !self.tree.is_join() && parts.is_empty() && bins.len() < 2 {
            return Ok(false);
        }
        // The engine has this part itself.
        if let ([part], []) = (parts.as_slice(), bins.as_slice())
            && Part::of(part, schema).is_some()
        {
            self.keys.push(part.clone());
            return Ok(self.tree.is_join());
        }
        if grains.is_empty() {
            return Ok(true);
        }
        let divides_all = |one: &Grain| grains.iter().all(|grain| one.divides(*grain));
        let Some(grain) = grains.iter().copied().chain([Grain::DAY, Grain::HOUR]).find(divides_all) else {
            return Ok(false);
        };
        let scan_schema = self.measured.scan.projected_schema.as_ref();
        let time = Expr::Column(Column::new(Some(self.measured.scan.table_name.clone()), &schema.time));
        let bin = match (bins.iter().find(|(other, _)| *other == grain), grain.unit()) {
            (Some((_, bin)), _) => (*bin).clone(),
            (None, Some(unit)) => {
                Expr::ScalarFunction(ScalarFunction::new_udf(DateTrunc::udf(), vec![lit(unit), time.clone()]))
            }
            (None, None) => return Ok(false),
        };
        let Ok(nanos) = u64::try_from(grain.width()) else { return Ok(false) };
        if bin.get_type(scan_schema)? != time.get_type(scan_schema)? {
            return Ok(false);
        }
        self.keys.push(bin.clone());
        (self.bin, self.time) = (Some(nanos), Some((bin, time)));
        Ok(true)
    }

    /// A key or a call of the first step as a column of its rows.
    fn column(&self, expr: &Expr) -> Expr {
        Expr::Column(Column::new(Some(self.measured.name.clone()), name_of(expr)))
    }

    /// A key of the first step as a column of its rows; `None` if it has no such key.
    fn key(&self, key: &Expr) -> Option<Expr> {
        self.keys.contains(key).then(|| self.column(key))
    }

    /// An expression on the tables as one on the first step's rows and the other tables.
    fn second(&self, expr: &Expr) -> Result<Expr> {
        if self.measured.owns(expr) != Some(true) {
            return Ok(expr.clone());
        }
        let replaced = self.measured.in_scan(expr)?.transform_down(|part| {
            let bin = self.time.as_ref().filter(|(_, time)| part == *time).and_then(|(bin, _)| self.key(bin));
            Ok(match self.key(&part).or(bin) {
                Some(column) => Transformed::new(column, true, TreeNodeRecursion::Jump),
                None => Transformed::no(part),
            })
        });
        replaced.data()
    }

    /// The result of a call on the columns of the second aggregate; `None` if it cannot be put together.
    fn add_call(&mut self, call: &Expr) -> Result<Option<Expr>> {
        let Expr::AggregateFunction(AggregateFunction { func, params }) = call else { return Ok(None) };
        let [arg] = params.args.as_slice() else { return Ok(None) };
        if params.distinct || params.filter.is_some() || !params.order_by.is_empty() || params.null_treatment.is_some()
        {
            return Ok(None);
        }
        let arg = self.tree.resolved(arg)?;
        let own = self.measured.owns(&arg);
        // How often a value occurs does not change the least and the greatest.
        if matches!(func.name(), "min" | "max") && own == Some(false) && arg.any_column_refs() {
            return Ok(Some(self.second_call(func, arg)));
        }
        let is_literal = matches!(&arg, Expr::Literal(value, _) if !value.is_null());
        if func.name() == "count" && is_literal {
            return Ok(Some(self.count(arg)));
        }
        let (Some(true), Expr::Column(_)) = (own, &arg) else { return Ok(None) };
        let arg = self.measured.in_scan(&arg)?;
        // Sums of whole numbers are exact: a part may be beyond 64 bits where the whole is not.
        let is_double = arg
            .try_as_col()
            .is_some_and(|column| self.measured.schema().field_type(&column.name) == Some(&FieldType::Double));
        Ok(match func.name() {
            "count" => Some(self.count(arg)),
            "min" | "max" => Some(self.part(func, arg, func)),
            "sum" if is_double => Some(self.part(func, arg, func)),
            "avg" if is_double => {
                let total = self.part(&sum(), arg.clone(), &sum());
                let count = self.part(&count_udaf(), arg, &sum());
                Some(total / cast(count, DataType::Float64))
            }
            _ => None,
        })
    }

    /// A number of rows or values. Without groups it is 0 if nothing is joined.
    fn count(&mut self, arg: Expr) -> Expr {
        let count = self.part(&count_udaf(), arg, &sum());
        let zero = || Expr::Literal(ScalarValue::Int64(Some(0)), None);
        when(count.clone().is_null(), zero()).otherwise(count).unwrap_or_else(|_| zero())
    }

    /// A call of the first step, and one of the second over its results.
    fn part(&mut self, first: &Arc<AggregateUDF>, arg: Expr, second: &Arc<AggregateUDF>) -> Expr {
        let call = called(first, arg);
        let column = self.column(&call);
        add(&mut self.calls, call);
        self.second_call(second, column)
    }

    fn second_call(&mut self, func: &Arc<AggregateUDF>, arg: Expr) -> Expr {
        let call = called(func, arg);
        let name = call.schema_name().to_string();
        add(&mut self.second_calls, call);
        Expr::Column(Column::new_unqualified(name))
    }

    /// The first step; `None` if the engine cannot answer it.
    fn asked(&self) -> Result<Option<(Aggregate, AggregateSpec)>> {
        let scan = Arc::new(LogicalPlan::TableScan(self.measured.scan.clone()));
        let original = Aggregate::try_new(scan, self.keys.clone(), self.calls.clone())?;
        Ok(AggregateSpec::of(&original)?.map(|spec| (original, spec)))
    }

    /// Both steps with the joins in between.
    fn plan(self, (original, spec): (Aggregate, AggregateSpec), groups: u64) -> Result<LogicalPlan> {
        let columns = original.schema.columns().into_iter().map(Expr::Column);
        let names = self.keys.iter().chain(&self.calls).map(name_of);
        let named =
            columns.zip(names).map(|(column, name)| column.alias_qualified(Some(self.measured.name.clone()), name));
        let (original, spec) = (Arc::new(original), Arc::new(spec));
        let answered = EngineAggregate { original, spec, order: None, groups: Some(groups) }.into_plan();
        let answered = LogicalPlan::Projection(Projection::try_new(named.collect(), Arc::new(answered))?);
        let joined = self.tree.with_table(self.measured.at, &answered, &|expr| self.second(expr))?;
        let second = Aggregate::try_new(Arc::new(joined), self.second_keys.clone(), self.second_calls.clone())?;
        let keys = second.schema.columns().into_iter().take(self.second_keys.len()).map(Expr::Column);
        let schema = &self.aggregate.schema;
        let results = keys.chain(self.results).zip(schema.columns());
        let results = results.map(|(result, column)| result.alias_qualified(column.relation, column.name));
        let second = Arc::new(LogicalPlan::Aggregate(second));
        Projection::try_new_with_schema(results.collect(), second, Arc::clone(schema)).map(LogicalPlan::Projection)
    }
}

fn called(func: &Arc<AggregateUDF>, arg: Expr) -> Expr {
    Expr::AggregateFunction(AggregateFunction::new_udf(Arc::clone(func), vec![arg], false, None, Vec::new(), None))
}

/// Adds an expression to a list if it is not there.
fn add(list: &mut Vec<Expr>, expr: Expr) {
    if !list.contains(&expr) {
        list.push(expr);
    }
}

/// Adds the meta, or the members of it, that an expression is computed from. The expression itself may fail for rows that are not
/// joined.
fn add_members(list: &mut Vec<Expr>, expr: &Expr, schema: &Schema) -> Result<()> {
    expr.apply(|part| {
        if schema.meta.as_ref().and_then(|meta| path(part, meta)).is_none() {
            return Ok(TreeNodeRecursion::Continue);
        }
        add(list, part.clone());
        Ok(TreeNodeRecursion::Jump)
    })?;
    Ok(())
}

/// The name of an expression among the columns of the first step.
fn name_of(expr: &Expr) -> String {
    match expr {
        Expr::Column(column) => column.name.clone(),
        expr => expr.schema_name().to_string(),
    }
}

/// How an expression on the columns of a collection depends on the time; `None` if it has other columns, or in another way.
fn dependence(expr: &Expr, schema: &Schema) -> Option<Dependence> {
    if let Some(width) = width_of(expr, schema) {
        let unit = 1_000_000_000 / i128::from(schema.precision.per_second());
        return Some(Dependence::Bin(Grain::Width(i128::from(width) * unit)));
    }
    if let Some(calendar) = Calendar::of(expr, schema) {
        return Some(Dependence::Bin(Grain::Calendar(calendar)));
    }
    if let Some(grain) = grain_of_part(expr, schema) {
        return Some(Dependence::OfBin(grain));
    }
    let key = key_of(expr, schema, &mut AggregateRequest::default())?;
    (key != Key::Time).then_some(Dependence::None)
}

/// The bins of time in which a part of a date is the same.
fn grain_of_part(expr: &Expr, schema: &Schema) -> Option<Grain> {
    Some(match call_on_time("date_part", expr, schema)?.as_str() {
        "isoyear" => Grain::Calendar(Calendar::Week),
        "day" | "doy" | "dow" | "isodow" => Grain::DAY,
        "hour" => Grain::HOUR,
        unit => Grain::Calendar(Calendar::of_unit(unit)?),
    })
}
