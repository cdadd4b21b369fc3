//! `first(value, time)` and `last(value, time)`: the value at the earliest and at the latest time.
//!
//! As aggregates they become DataFusion's `first_value` and `last_value` with an order, which have native accumulators
//! for groups. As window functions they consider the rows of the frame, in whatever order these arrive. Those of objects and lists are
//! chosen as bytes ([`EdgesByKeys`]).

use super::arguments::{is_time, wrong};
use super::arithmetic::call;
use super::value_key::{KEY_VALUE, VALUE_KEY, is_exact, is_for};
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::functions_aggregate::first_last::{first_value_udaf, last_value_udaf};
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams, NullTreatment, Sort};
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, Aggregate, AggregateUDF, AggregateUDFImpl, Expr, ExprSchemable, LogicalPlan, Projection, Signature,
    Volatility,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use std::collections::VecDeque;
use std::sync::Arc;

/// `first` or `last`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct FirstLast {
    last: bool,
    signature: Signature,
}

impl FirstLast {
    pub(super) fn udaf(last: bool) -> Arc<AggregateUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(FirstLast { last, signature }))
    }

    fn accumulate(&self, args: &AccumulatorArgs<'_>, sliding: bool) -> Box<dyn Accumulator> {
        let null = |i: usize| {
            let kind = args.expr_fields.get(i).map_or(&DataType::Null, |f| f.data_type());
            ScalarValue::try_from(kind).unwrap_or(ScalarValue::Null)
        };
        let (value, time) = (null(0), null(1));
        Box::new(FirstLastAccumulator {
            last: self.last,
            sliding,
            value,
            time,
            best: VecDeque::new(),
            seen: 0,
            removed: 0,
        })
    }
}

impl AggregateUDFImpl for FirstLast {
    fn name(&self) -> &'static str {
        if self.last { "last" } else { "first" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [_, time] if is_time(time) || time.is_integer() => Ok(given.to_vec()),
            [_, time] => wrong(self.name(), 2, "time", &format!("is {time}, a timestamp is wanted")),
            _ => plan_err!("{}(value, time) takes two arguments; given: {}", self.name(), given.len()),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        Ok(given.first().cloned().unwrap_or(DataType::Null))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field = |(i, f): (usize, &FieldRef)| -> FieldRef {
            Arc::new(Field::new(format!("{}[{i}]", args.name), f.data_type().clone(), true))
        };
        Ok(args.input_fields.iter().enumerate().map(field).collect())
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(self.accumulate(&args, false))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(self.accumulate(&args, true))
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        let last = self.last;
        let name = if last { "last" } else { "first" };
        Some(Box::new(move |call, context| {
            let AggregateFunctionParams { args, distinct, filter, order_by, null_treatment: _ } = call.params;
            let Ok([value, time]) = <[Expr; 2]>::try_from(args) else {
                return plan_err!("{name}(value, time) takes two arguments");
            };
            if !order_by.is_empty() {
                return plan_err!("{name}(value, time) orders by its time and takes no ORDER BY");
            }
            let filter = match time.nullable(context.schema().as_ref())? {
                false => filter,
                true => {
                    let known = time.clone().is_not_null();
                    Some(Box::new(match filter {
                        Some(filter) => filter.and(known),
                        None => known,
                    }))
                }
            };
            let params = AggregateFunctionParams {
                args: vec![value],
                distinct,
                filter,
                order_by: vec![Sort::new(time, true, last)],
                null_treatment: Some(NullTreatment::IgnoreNulls),
            };
            let func = if last { last_value_udaf() } else { first_value_udaf() };
            Ok(Expr::AggregateFunction(AggregateFunction { func, params }))
        }))
    }
}

/// Candidates, the best one first; the others only matter when rows leave the frame.
#[derive(Debug)]
struct FirstLastAccumulator {
    last: bool,
    sliding: bool,
    /// Nulls of the types of the value and the time.
    value: ScalarValue,
    time: ScalarValue,
    best: VecDeque<(u64, ScalarValue, ScalarValue)>,
    /// Numbers of rows that have entered and left the frame.
    seen: u64,
    removed: u64,
}

impl FirstLastAccumulator {
    fn offer(&mut self, time: ScalarValue, value: ScalarValue) {
        // Among equal times, the later row counts as last and the earlier one as first.
        let beaten = |old: &ScalarValue| if self.last { *old <= time } else { *old > time };
        while self.best.back().is_some_and(|(_, old, _)| beaten(old)) {
            self.best.pop_back();
        }
        if self.sliding || self.best.is_empty() {
            self.best.push_back((self.seen, time, value));
        }
    }
}

impl Accumulator for FirstLastAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values, times, ..] = values else { return Ok(()) };
        for i in 0..values.len() {
            if values.is_valid(i) && times.is_valid(i) {
                self.offer(ScalarValue::try_from_array(times, i)?, ScalarValue::try_from_array(values, i)?);
            }
            self.seen += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.removed += values.first().map_or(0, |v| v.len() as u64);
        while self.best.front().is_some_and(|(row, ..)| *row < self.removed) {
            self.best.pop_front();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.best.front().map_or_else(|| self.value.clone(), |(_, _, value)| value.clone()))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let state = self.best.front().map(|(_, time, value)| vec![value.clone(), time.clone()]);
        Ok(state.unwrap_or_else(|| vec![self.value.clone(), self.time.clone()]))
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.best.iter().map(|(_, t, v)| t.size() + v.size() + 8).sum::<usize>()
    }
}

/// Chooses the first and last objects and lists of groups as bytes.
#[derive(Debug)]
pub(crate) struct EdgesByKeys;

impl OptimizerRule for EdgesByKeys {
    fn name(&self) -> &'static str {
        "edges_by_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(Transformed::no(plan)) };
        let schema = Arc::clone(&aggregate.schema);
        let groups = schema.fields().len() - aggregate.aggr_expr.len();
        let mut values = Vec::with_capacity(aggregate.aggr_expr.len());
        let mut calls = Vec::with_capacity(aggregate.aggr_expr.len());
        for (at, expr) in aggregate.aggr_expr.iter().enumerate() {
            let (_, field) = schema.qualified_field(groups + at);
            let (expr, value) = match by_key(expr) {
                Some(by_key) if is_for(field.data_type()) && is_exact(field.data_type()) => {
                    (by_key.alias(expr.schema_name().to_string()), Some(Arc::clone(field)))
                }
                _ => (expr.clone(), None),
            };
            calls.push(expr);
            values.push(value);
        }
        if values.iter().all(Option::is_none) {
            return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
        }
        let by_keys = Aggregate::try_new(aggregate.input, aggregate.group_expr, calls)?;
        let columns = by_keys.schema.columns().into_iter().zip(schema.iter()).enumerate();
        let columns = columns.map(|(at, (column, (qualifier, field)))| {
            let column = Expr::Column(column);
            match at.checked_sub(groups).and_then(|at| values[at].as_ref()) {
                None => Ok(column),
                Some(value) => {
                    let null = ScalarValue::try_from(value.data_type())?;
                    let null = Expr::Literal(null, Some(FieldMetadata::from(value.as_ref())));
                    Ok(call(&KEY_VALUE, vec![column, null]).alias_qualified(qualifier.cloned(), field.name()))
                }
            }
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let input = Arc::new(LogicalPlan::Aggregate(by_keys));
        Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(columns, input)?)))
    }
}

/// A call of `first_value` or `last_value` with an order, of its argument's bytes.
fn by_key(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Alias(alias) => by_key(&alias.expr),
        Expr::AggregateFunction(of) if matches!(of.func.name(), "first_value" | "last_value") => {
            let [value] = of.params.args.as_slice() else { return None };
            let mut by_key = of.clone();
            by_key.params.args = vec![call(&VALUE_KEY, vec![value.clone()])];
            (!by_key.params.order_by.is_empty()).then_some(Expr::AggregateFunction(by_key))
        }
        _ => None,
    }
}
