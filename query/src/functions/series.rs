//! Aggregates over the points of a series in time order: `time_weighted_avg`, `delta`, `increase` and `rate`.
//!
//! Rows reach an aggregate in any order, so points are kept, and sorted when the result is asked for. While the rows of
//! a window arrive in order and none leaves, running sums are used instead.

use super::arguments::{is_time, wrong};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, ListArray, PrimitiveArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type, TimeUnit};
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use datafusion::physical_expr::expressions::Literal;
use ebbtide::suggest;
use std::collections::VecDeque;
use std::sync::Arc;

/// The quantity that is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// The mean weighted by time: with straight lines between points, or with each point holding until the next.
    Average { linear: bool },
    /// The last value minus the first.
    Delta,
    /// The total rise of a counter.
    Increase,
    /// The rise of a counter per second.
    Rate,
}

/// One of the aggregates.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct SeriesAggregate {
    kind: Kind,
    signature: Signature,
}

const METHODS: [&str; 2] = ["linear", "locf"];

impl SeriesAggregate {
    pub(super) fn udaf(kind: Kind) -> Arc<AggregateUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(SeriesAggregate { kind, signature }))
    }

    /// The kind that a call asks for, and the number of units per second.
    fn call(&self, args: &AccumulatorArgs<'_>) -> Result<(Kind, f64)> {
        let second = match args.expr_fields.get(1).map(|f| f.data_type()) {
            Some(DataType::Timestamp(TimeUnit::Second, _)) => 1.0,
            Some(DataType::Timestamp(TimeUnit::Millisecond, _)) => 1e3,
            Some(DataType::Timestamp(TimeUnit::Microsecond, _)) => 1e6,
            Some(DataType::Timestamp(TimeUnit::Nanosecond, _)) => 1e9,
            other => return internal_err!("{} by {other:?}", self.name()),
        };
        let Some(method) = args.exprs.get(2) else { return Ok((self.kind, second)) };
        let given =
            method.downcast_ref::<Literal>().and_then(|l| l.value().try_as_str().flatten().map(str::to_lowercase));
        let linear = match given.as_deref() {
            Some("linear") => true,
            Some("locf") => false,
            other => {
                let given = other.map_or("not a constant".to_owned(), |m| format!("'{m}'"));
                let hint = suggest::hint(other.unwrap_or_default(), METHODS);
                return wrong(self.name(), 3, "method", &format!("is {given}, 'linear' or 'locf' is wanted{hint}"));
            }
        };
        Ok((Kind::Average { linear }, second))
    }

    fn accumulate(&self, args: &AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let (kind, second) = self.call(args)?;
        Ok(Box::new(Series { kind, second, points: VecDeque::new(), sums: Some(Sums::default()) }))
    }
}

impl AggregateUDFImpl for SeriesAggregate {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Average { .. } => "time_weighted_avg",
            Kind::Delta => "delta",
            Kind::Increase => "increase",
            Kind::Rate => "rate",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let average = matches!(self.kind, Kind::Average { .. });
        let (value, time) = match given {
            [value, time] => (value, time),
            [value, time, method] if average && method.is_string() => (value, time),
            [_, _, method] if average => {
                return wrong(self.name(), 3, "method", &format!("is {method}, 'linear' or 'locf' is wanted"));
            }
            _ => {
                let (method, count) = if average { ("[, method]", "two or three") } else { ("", "two") };
                let name = self.name();
                return plan_err!("{name}(value, time{method}) takes {count} arguments; given: {}", given.len());
            }
        };
        if !value.is_numeric() && *value != DataType::Null {
            return wrong(self.name(), 1, "value", &format!("is {value}, a number is wanted"));
        }
        let time = match time {
            DataType::Timestamp(..) => time.clone(),
            time if is_time(time) => DataType::Timestamp(TimeUnit::Millisecond, None),
            other => return wrong(self.name(), 2, "time", &format!("is {other}, a timestamp is wanted")),
        };
        Ok([DataType::Float64, time].into_iter().chain(given.iter().skip(2).cloned()).collect())
    }

    fn return_type(&self, _given: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let list =
            |name: &str, kind| Field::new_list(format!("{}[{name}]", args.name), Field::new("item", kind, true), true);
        Ok(vec![Arc::new(list("times", DataType::Int64)), Arc::new(list("values", DataType::Float64))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.accumulate(&args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.accumulate(&args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let (kind, second) = self.call(&args)?;
        Ok(Box::new(Groups { kind, second, points: Vec::new(), count: 0 }))
    }
}

/// A time in units, and a value.
type Point = (i64, f64);

/// Running sums over points in order.
#[derive(Debug, Clone, Default)]
struct Sums {
    ends: Option<(Point, Point)>,
    count: f64,
    total: f64,
    rise: f64,
    linear: f64,
    held: f64,
}

#[expect(clippy::cast_precision_loss, reason = "a duration as a weight")]
fn span(from: i64, to: i64) -> f64 {
    (i128::from(to) - i128::from(from)) as f64
}

impl Sums {
    fn add(&mut self, point: Point) {
        if let Some((_, (time, value))) = self.ends {
            let width = span(time, point.0);
            if width > 0.0 {
                self.linear += width * f64::midpoint(value, point.1);
                self.held += width * value;
            }
            // A counter that decreases was reset to zero, and has risen by its new value since.
            self.rise += if point.1 < value { point.1 } else { point.1 - value };
        }
        self.ends = Some((self.ends.map_or(point, |(first, _)| first), point));
        self.count += 1.0;
        self.total += point.1;
    }

    fn is_in_order(&self, point: Point) -> bool {
        self.ends.is_none_or(|(_, last)| before(&last, &point).is_le())
    }

    fn result(&self, kind: Kind, second: f64) -> Option<f64> {
        let ((start, first), (end, last)) = self.ends?;
        let width = span(start, end);
        match kind {
            Kind::Average { .. } if width == 0.0 => Some(self.total / self.count),
            Kind::Average { linear } => Some(if linear { self.linear } else { self.held } / width),
            _ if self.count < 2.0 => None,
            Kind::Delta => Some(last - first),
            Kind::Increase => Some(self.rise),
            Kind::Rate => (width > 0.0).then(|| self.rise / (width / second)),
        }
    }
}

/// Order by time, then by value: results do not depend on the order in which rows arrive.
fn before(a: &Point, b: &Point) -> std::cmp::Ordering {
    a.0.cmp(&b.0).then_with(|| a.1.total_cmp(&b.1))
}

fn sums(mut points: Vec<Point>) -> Sums {
    if !points.is_sorted_by(|a, b| before(a, b).is_le()) {
        points.sort_unstable_by(before);
    }
    let mut sums = Sums::default();
    points.into_iter().for_each(|p| sums.add(p));
    sums
}

/// Values and times of a batch.
fn columns(values: &[ArrayRef]) -> Result<(Float64Array, Int64Array)> {
    let [values, times, ..] = values else { return internal_err!("a series without times") };
    Ok((
        values.as_primitive::<Float64Type>().clone(),
        cast(times, &DataType::Int64)?.as_primitive::<Int64Type>().clone(),
    ))
}

fn point(values: &Float64Array, times: &Int64Array, row: usize) -> Option<Point> {
    (values.is_valid(row) && times.is_valid(row)).then(|| (times.value(row), values.value(row)))
}

/// Points as two columns of lists.
fn lists<'p>(groups: impl Iterator<Item = &'p [Point]> + Clone) -> Result<Vec<ArrayRef>> {
    let offsets = OffsetBuffer::<i32>::from_lengths(groups.clone().map(<[Point]>::len));
    let times: Int64Array = groups.clone().flatten().map(|p| p.0).collect::<Vec<_>>().into();
    let values: Float64Array = groups.flatten().map(|p| p.1).collect::<Vec<_>>().into();
    let list = |items: ArrayRef| -> Result<ArrayRef> {
        let field = Arc::new(Field::new("item", items.data_type().clone(), true));
        Ok(Arc::new(ListArray::try_new(field, offsets.clone(), items, None)?))
    };
    Ok(vec![list(Arc::new(times))?, list(Arc::new(values))?])
}

/// The points of each row of two columns of lists.
fn each_list(states: &[ArrayRef], mut found: impl FnMut(usize, &mut dyn Iterator<Item = Point>)) -> Result<()> {
    let [times, values] = states else { return internal_err!("a series without its state") };
    let (times, values) = (times.as_list::<i32>(), values.as_list::<i32>());
    for row in (0..times.len()).filter(|row| times.is_valid(*row)) {
        let (times, values) = (times.value(row), values.value(row));
        let (times, values): (&PrimitiveArray<Int64Type>, &PrimitiveArray<Float64Type>) =
            (times.as_primitive(), values.as_primitive());
        found(row, &mut times.values().iter().copied().zip(values.values().iter().copied()));
    }
    Ok(())
}

/// One series.
#[derive(Debug)]
struct Series {
    kind: Kind,
    second: f64,
    /// In order of arrival. Rows with a null are kept, so that the right number of points is removed when rows leave.
    points: VecDeque<Option<Point>>,
    /// `Some` while points have arrived in order and none has left.
    sums: Option<Sums>,
}

impl Series {
    fn push(&mut self, point: Option<Point>) {
        self.points.push_back(point);
        if let Some(point) = point
            && let Some(mut sums) = self.sums.take()
        {
            self.sums = sums.is_in_order(point).then(|| {
                sums.add(point);
                sums
            });
        }
    }
}

impl Accumulator for Series {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (values, times) = columns(values)?;
        (0..values.len()).for_each(|row| self.push(point(&values, &times, row)));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let gone = values.first().map_or(0, |v| v.len()).min(self.points.len());
        self.points.drain(..gone);
        self.sums = self.points.is_empty().then(Sums::default);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let result = match &self.sums {
            Some(sums) => sums.result(self.kind, self.second),
            None => sums(self.points.iter().flatten().copied().collect()).result(self.kind, self.second),
        };
        Ok(ScalarValue::Float64(result))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let points: Vec<Point> = self.points.iter().flatten().copied().collect();
        lists(std::iter::once(&points[..]))?.iter().map(|list| ScalarValue::try_from_array(list, 0)).collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        each_list(states, |_, points| points.for_each(|p| self.push(Some(p))))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.points.capacity() * size_of::<Option<Point>>()
    }
}

/// The series of every group.
#[derive(Debug)]
struct Groups {
    kind: Kind,
    second: f64,
    points: Vec<Vec<Point>>,
    count: usize,
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.points.resize(total_num_groups, Vec::new());
        let (values, times) = columns(values)?;
        for (row, group) in group_indices.iter().enumerate() {
            if passes(opt_filter, row)
                && let Some(point) = point(&values, &times, row)
            {
                self.points[*group].push(point);
                self.count += 1;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = emit_to.take_needed(&mut self.points);
        self.count = self.count.saturating_sub(groups.iter().map(Vec::len).sum());
        let results: Float64Array = groups.into_iter().map(|g| sums(g).result(self.kind, self.second)).collect();
        Ok(Arc::new(results))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = emit_to.take_needed(&mut self.points);
        self.count = self.count.saturating_sub(groups.iter().map(Vec::len).sum());
        lists(groups.iter().map(Vec::as_slice))
    }

    fn merge_batch(&mut self, states: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.points.resize(total_num_groups, Vec::new());
        each_list(states, |row, points| {
            let group = &mut self.points[group_indices[row]];
            let before = group.len();
            group.extend(points);
            self.count += group.len() - before;
        })
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let (values, times) = columns(values)?;
        let rows: Vec<Option<Point>> = (0..values.len())
            .map(|row| if passes(opt_filter, row) { point(&values, &times, row) } else { None })
            .collect();
        lists(rows.iter().map(Option::as_slice))
    }

    fn size(&self) -> usize {
        // Vectors grow by doubling.
        self.count * size_of::<Point>() * 2 + self.points.capacity() * size_of::<Vec<Point>>()
    }
}

fn passes(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|f| f.is_valid(row) && f.value(row))
}
