//! $setWindowFields: values of a document's neighbours in the order of its partition.

use super::covariance::covariances;
use super::memory::Memory;
use super::project::set;
use super::sliding::slid;
use super::{Result, kept_bytes};
use crate::expression::accumulator::{Accumulator, Kind, size_of_value};
use crate::expression::total::{DoubleSum, Total};
use crate::expression::{
    Distance, Expression, Moment, Value, decimal_of, divide, is_nothing, multiply, null, subtract,
};
use crate::order::Number;
use crate::{Decimal, ExpressionError, Sort, value_key};
use bson::raw::{RawBson, RawDocumentBuf};
use std::cell::Cell;

/// Where a window ends.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum End {
    Unbounded,
    Current,
    Offset(RawBson),
}

/// Which neighbours count.
#[derive(Debug, Clone)]
pub(super) enum Window {
    /// By their number.
    Documents(End, End),
    /// By how far their value of the sort is away: as numbers, or in a unit of time.
    Range(End, End, Option<Distance>),
}

impl Window {
    pub(super) const WHOLE: Window = Window::Documents(End::Unbounded, End::Unbounded);
}

#[derive(Debug, Clone)]
pub(super) enum Function {
    Accumulate(Box<Kind>, Expression, Window),
    Rank,
    DenseRank,
    DocumentNumber,
    /// The value of the document at this offset from the current one.
    Shift(Expression, i64, Value),
    Derivative(Change),
    Integral(Change),
    /// With the weight of the newest value.
    MovingAverage(Expression, Decimal),
    /// The last value that is not null.
    Locf(Expression),
    LinearFill(Expression),
    /// `$covariancePop`, or `$covarianceSamp` if it is true: of pairs.
    Covariance(Expression, bool, Window),
}

/// What `$derivative` and `$integral` are asked of.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) input: Expression,
    /// The single field of the sort.
    pub(super) by: Expression,
    /// Milliseconds; without it the unit is that of the sort's value.
    pub(super) unit: Option<i64>,
    pub(super) window: Window,
}

/// What a `$setWindowFields` asks for.
#[derive(Debug, Clone)]
pub(super) struct Windows {
    pub(super) partition: Option<Expression>,
    pub(super) sort: Option<Sort>,
    /// The path of the sort, if it is one, and whether it ascends.
    pub(super) by: Option<(Expression, bool)>,
    pub(super) outputs: Vec<(Vec<String>, Function)>,
}

/// One partition, in its order.
struct Partition<'a> {
    documents: &'a [RawDocumentBuf],
    sort_keys: Vec<&'a [u8]>,
    moment: Moment<'a>,
    by: Option<&'a Expression>,
    memory: &'a Memory,
    /// Bytes of values that were made, beside the documents.
    made: Cell<usize>,
}

const STAGE: &str = "$setWindowFields";

fn bytes_of(value: &Value) -> usize {
    size_of::<Value>() + value.as_ref().map_or(0, size_of_value)
}

fn wrong(code: i32, message: impl Into<String>) -> ExpressionError {
    ExpressionError::new(code, message)
}

impl Windows {
    /// The documents with their new fields, sorted by partition and within it. `held` is the memory that is counted for them.
    pub(super) fn apply(
        &self,
        documents: Vec<RawDocumentBuf>,
        held: &mut usize,
        moment: Moment<'_>,
        memory: &Memory,
    ) -> Result<Vec<RawDocumentBuf>> {
        let mut key_bytes = 0;
        let mut keyed = Vec::with_capacity(documents.len());
        for document in documents {
            moment.stop.check()?;
            let partition = match &self.partition {
                Some(partition) => partition.evaluate_at(&document, moment)?,
                None => None,
            };
            if let Some(RawBson::Array(_)) = partition {
                let what = "An expression used to partition cannot evaluate to value of type array";
                return Err(wrong(14, what));
            }
            let group = value_key(partition.unwrap_or(RawBson::Null).as_raw_bson_ref());
            let order = match &self.sort {
                Some(sort) => sort.key(&document)?,
                None => Vec::new(),
            };
            let bytes = group.len() + order.len() + 2 * size_of::<Vec<u8>>();
            memory.take(bytes, STAGE)?;
            key_bytes += bytes;
            keyed.push((group, order, document));
        }
        keyed.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        let (keys, mut documents): (Vec<_>, Vec<_>) =
            keyed.into_iter().map(|(group, order, document)| ((group, order), document)).unzip();
        let mut found = Vec::with_capacity(documents.len());
        let mut start = 0;
        for of_partition in keys.chunk_by(|a, b| a.0 == b.0) {
            let end = start + of_partition.len();
            let partition = Partition {
                documents: &documents[start..end],
                sort_keys: of_partition.iter().map(|(_, order)| order.as_slice()).collect(),
                moment,
                by: self.by.as_ref().map(|(path, _)| path),
                memory,
                made: Cell::new(0),
            };
            let mut columns = Vec::with_capacity(self.outputs.len());
            let mut column_bytes = 0;
            for (path, function) in &self.outputs {
                let values = partition.values(function)?;
                // Of all that was made the result alone is left.
                let bytes = values.iter().map(bytes_of).sum();
                memory.change(partition.made.take(), bytes, STAGE)?;
                column_bytes += bytes;
                columns.push((path, values));
            }
            for (at, document) in documents[start..end].iter_mut().enumerate() {
                let mut shown = std::mem::take(document);
                let before = kept_bytes(&shown);
                for (path, values) in &mut columns {
                    shown = set(&shown, path, values[at].take());
                }
                let now = kept_bytes(&shown);
                memory.change(before, now, STAGE)?;
                *held = *held + now - before;
                found.push(shown);
            }
            memory.give_back(column_bytes);
            start = end;
        }
        memory.give_back(key_bytes);
        Ok(found)
    }
}

/// A number, or the milliseconds of a date.
fn position(value: &Value, of_time: bool) -> Option<Number> {
    match (value.as_ref()?, of_time) {
        (RawBson::DateTime(date), true) => Some(Number::Int(date.timestamp_millis())),
        (_, true) => None,
        (other, false) => Number::of(other.as_raw_bson_ref()),
    }
}

fn number_of(value: &Value) -> Option<Number> {
    Number::of(value.as_ref()?.as_raw_bson_ref())
}

/// The position at a distance from another: the milliseconds of a date with a unit of time, else the sum as `$add` gives it.
fn moved(position: Number, by: &RawBson, unit: Option<&Distance>) -> Result<Number> {
    if let (Some(unit), Number::Int(ms)) = (unit, position) {
        return Ok(Number::Int(unit.after(ms, crate::whole_number(by.as_raw_bson_ref()).unwrap_or(0))?));
    }
    let mut total = Total::<DoubleSum>::default();
    total.take(position.value().as_raw_bson_ref());
    total.take(by.as_raw_bson_ref());
    Ok(Number::of(total.sum().as_raw_bson_ref()).unwrap_or(position))
}

fn misplaced(code: i32, of_time: bool) -> ExpressionError {
    wrong(
        code,
        match of_time {
            true => "with a unit of time the sortBy field must be a Date",
            false => "without a unit of time the sortBy field must be a number",
        },
    )
}

impl Partition<'_> {
    fn all(&self, expression: &Expression) -> Result<Vec<Value>> {
        let made = |document: &RawDocumentBuf| {
            let value = expression.evaluate_at(document, self.moment)?;
            self.count(&value)?;
            Ok(value)
        };
        self.documents.iter().map(made).collect()
    }

    /// Counts a value that is made.
    fn count(&self, value: &Value) -> Result<()> {
        self.made.set(self.made.get() + bytes_of(value));
        self.memory.take(bytes_of(value), STAGE)
    }

    /// The value of the sort of a document: a number, or milliseconds of a date.
    fn positions(&self, of_time: bool) -> Result<Vec<Number>> {
        let by = self.by.ok_or_else(|| wrong(5_339_902, "Range-based bounds require sortBy a single field"))?;
        let code = if of_time { 5_429_513 } else { 5_429_414 };
        let code_of = |value: &Value| match value {
            Some(RawBson::DateTime(_)) if !of_time => 5_429_413,
            _ => code,
        };
        let place = |value: &Value| position(value, of_time).ok_or_else(|| misplaced(code_of(value), of_time));
        self.all(by)?.iter().map(place).collect()
    }

    fn values(&self, function: &Function) -> Result<Vec<Value>> {
        let count = self.documents.len();
        match function {
            Function::Accumulate(kind, argument, window) => self.accumulated(kind, argument, window),
            Function::DocumentNumber => Ok((1..=count).map(whole).collect()),
            Function::Rank | Function::DenseRank => {
                let (mut rank, mut dense, mut ranks) = (0, 0, Vec::with_capacity(count));
                for at in 0..count {
                    if at == 0 || self.sort_keys[at] != self.sort_keys[at - 1] {
                        (rank, dense) = (at + 1, dense + 1);
                    }
                    ranks.push(whole(if matches!(function, Function::Rank) { rank } else { dense }));
                }
                Ok(ranks)
            }
            Function::Shift(output, by, default) => {
                let values = self.all(output)?;
                let at = |at: usize| {
                    let at = usize::try_from(i64::try_from(at).ok()?.checked_add(*by)?).ok()?;
                    values.get(at).cloned()
                };
                let default = default.clone().or(Some(RawBson::Null));
                Ok((0..count).map(|i| at(i).unwrap_or_else(|| default.clone())).collect())
            }
            Function::MovingAverage(input, weight) => {
                let one = Number::Int(1);
                let (weight, rest) = (*weight, decimal_of(one.minus(Number::Decimal(*weight))));
                let (mut average, mut averages) = (None::<Decimal>, Vec::with_capacity(count));
                let mut has_decimal = false;
                for value in self.all(input)? {
                    if let Some(number) = number_of(&value) {
                        has_decimal |= matches!(number, Number::Decimal(_));
                        let x = decimal_of(number);
                        average = Some(average.map_or(x, |before| x.multiply(weight).add(before.multiply(rest))));
                    }
                    averages.push(Some(match average {
                        Some(average) if has_decimal => RawBson::Decimal128(average.encode()),
                        Some(average) => RawBson::Double(average.nearest_f64()),
                        None => RawBson::Null,
                    }));
                }
                Ok(averages)
            }
            Function::Locf(input) => {
                let (mut last, mut filled) = (None, Vec::with_capacity(count));
                for value in self.all(input)? {
                    if !is_nothing(&value) {
                        last = value;
                    }
                    filled.push(last.clone().or(Some(RawBson::Null)));
                }
                Ok(filled)
            }
            Function::LinearFill(input) => self.interpolated(input),
            Function::Covariance(pair, is_sample, window) => {
                let (values, bounds) = (self.all(pair)?, self.bounds(window)?);
                let found = covariances(&values, &bounds, *is_sample, self.moment.stop)?;
                found.iter().try_for_each(|value| self.count(value))?;
                Ok(found)
            }
            Function::Derivative(change) => self.slopes(change),
            Function::Integral(change) => self.areas(change),
        }
    }

    /// The documents in each document's window: the first, and the one after the last.
    fn bounds(&self, window: &Window) -> Result<Vec<(usize, usize)>> {
        let count = self.documents.len();
        match window {
            Window::Documents(from, to) => {
                let at = |i: usize, end: &End, after: i64, unbounded: i64| match end {
                    End::Unbounded => unbounded,
                    End::Current => number(i) + after,
                    End::Offset(by) => number(i) + crate::whole_number(by.as_raw_bson_ref()).unwrap_or(0) + after,
                };
                let clamp = |n: i64| usize::try_from(n.max(0)).unwrap_or(count).min(count);
                let bounds = |i| {
                    let (low, high) = (clamp(at(i, from, 0, 0)), clamp(at(i, to, 1, number(count))));
                    (low, high.max(low))
                };
                Ok((0..count).map(bounds).collect())
            }
            Window::Range(from, to, unit) => {
                let positions = self.positions(unit.is_some())?;
                let before = |edge: Number| positions.partition_point(|p| p.compare(edge).is_lt());
                let until = |edge: Number| positions.partition_point(|p| p.compare(edge).is_le());
                let mut bounds = Vec::with_capacity(count);
                for (i, x) in positions.iter().enumerate() {
                    self.moment.stop.check()?;
                    // The current document itself, not its value: others may have the same one.
                    let low = match from {
                        End::Unbounded => 0,
                        End::Current => i,
                        End::Offset(by) => before(moved(*x, by, unit.as_ref())?),
                    };
                    let high = match to {
                        End::Unbounded => count,
                        End::Current => i + 1,
                        End::Offset(by) => until(moved(*x, by, unit.as_ref())?),
                    };
                    bounds.push((low, high.max(low)));
                }
                Ok(bounds)
            }
        }
    }

    fn accumulated(&self, kind: &Kind, argument: &Expression, window: &Window) -> Result<Vec<Value>> {
        let values = self.all(argument)?;
        let bounds = self.bounds(window)?;
        let slides = bounds.first().zip(bounds.last()).is_some_and(|(first, last)| first.0 < last.0);
        if slides && let Some(found) = slid(kind, &values, &bounds, self.moment.stop)? {
            found.iter().try_for_each(|value| self.count(value))?;
            return Ok(found);
        }
        let mut found: Vec<Value> = Vec::with_capacity(values.len());
        // A window that only grows is added to; others are computed from the start.
        let mut accumulator = Accumulator::new(kind);
        let mut taken = (0, 0);
        for (low, high) in bounds {
            self.moment.stop.check()?;
            // The value of one document, which may lack it.
            match kind {
                Kind::First if low < high => {
                    found.push(values[low].clone());
                    continue;
                }
                Kind::Last if low < high => {
                    found.push(values[high - 1].clone());
                    continue;
                }
                _ => {}
            }
            if (low, high) == taken
                && let Some(last) = found.last().cloned()
            {
                self.count(&last)?;
                found.push(last);
                continue;
            }
            if low != taken.0 || high < taken.1 {
                (accumulator, taken) = (Accumulator::new(kind), (low, low));
            }
            for (at, (value, document)) in values.iter().zip(self.documents).enumerate().take(high).skip(taken.1) {
                if at.is_multiple_of(1 << 10) {
                    self.moment.stop.check()?;
                }
                accumulator.take_from(kind, value.clone(), document)?;
            }
            taken = (low, high);
            let value = Some(accumulator.clone().finish(kind)?);
            self.count(&value)?;
            found.push(value);
        }
        Ok(found)
    }

    /// `$derivative`, which is asked of the first and the last document of each window alone.
    fn slopes(&self, change: &Change) -> Result<Vec<Value>> {
        let bounds = self.bounds(&change.window)?;
        let (times, inputs) = (self.all(&change.by)?, self.all(&change.input)?);
        let mut found = Vec::with_capacity(inputs.len());
        for (low, high) in bounds {
            self.moment.stop.check()?;
            found.push(match high.checked_sub(1) {
                Some(last) if last >= low => {
                    slope([&times[low], &times[last]], [&inputs[low], &inputs[last]], change.unit)?
                }
                _ => Some(RawBson::Null),
            });
        }
        Ok(found)
    }

    /// `$integral`, of the points in each window.
    fn areas(&self, change: &Change) -> Result<Vec<Value>> {
        let (unit, bounds) = (change.unit, self.bounds(&change.window)?);
        let (times, inputs) = (self.all(&change.by)?, self.all(&change.input)?);
        let mut found = Vec::with_capacity(inputs.len());
        for (low, high) in bounds {
            self.moment.stop.check()?;
            let pairs = times[low..high].iter().zip(&inputs[low..high]);
            let points = pairs.map(|(time, input)| point(time, input, unit)).collect::<Result<Vec<_>>>()?;
            found.push(area(&points, unit).or(Some(RawBson::Null)));
        }
        Ok(found)
    }

    fn interpolated(&self, input: &Expression) -> Result<Vec<Value>> {
        let by = self.by.ok_or_else(|| wrong(605_001, "$linearFill must be specified with a top level sortBy"))?;
        let is_time = self.all(by)?.iter().any(|value| matches!(value, Some(RawBson::DateTime(_))));
        let positions = self.positions(is_time)?;
        let values = self.all(input)?;
        let mut known = Vec::new();
        for (at, value) in values.iter().enumerate() {
            if at > 0 && positions[at].compare(positions[at - 1]).is_eq() {
                return Err(wrong(6_050_106, "There can be no repeated values in the sort field"));
            }
            match number_of(value) {
                Some(number) => known.push((at, number)),
                None if is_nothing(value) => {}
                None => return Err(wrong(6_050_109, "Value to be filled must be numeric or nullish")),
            }
        }
        let fill = |(at, value): (usize, Value)| {
            if !is_nothing(&value) {
                return value;
            }
            let after = known.partition_point(|(known, _)| *known < at);
            let (Some(before), Some(next)) = (after.checked_sub(1).and_then(|i| known.get(i)), known.get(after)) else {
                return Some(RawBson::Null);
            };
            let from = positions[before.0];
            let slope = next.1.minus(before.1).over(positions[next.0].minus(from));
            Some(before.1.plus(positions[at].minus(from).times(slope)).value())
        };
        Ok(values.into_iter().enumerate().map(fill).collect())
    }
}

/// The change of the input per unit of time in milliseconds, or of the sort's value, between two documents.
fn slope(times: [&Value; 2], inputs: [&Value; 2], unit: Option<i64>) -> Result<Value> {
    let is_date = |time: &&Value| matches!(time, Some(RawBson::DateTime(_)));
    if unit.is_some() && !times.iter().all(is_date) {
        return Err(wrong(5_624_900, "$derivative with 'unit' expects the sortBy field to be a Date"));
    }
    if unit.is_none() && times.iter().any(is_date) {
        return Err(wrong(5_624_901, "$derivative where the sortBy is a Date requires a 'unit'"));
    }
    if unit.is_none() && times.iter().any(|time| number_of(time).is_none()) {
        return Err(wrong(5_624_902, "$derivative (with no 'unit') expects the sortBy field to be numeric"));
    }
    let change = |[first, last]: [&Value; 2]| subtract("$subtract", &[last.clone(), first.clone()]);
    let (run, rise) = (change(times)?, change(inputs)?);
    if is_nothing(&rise) {
        return Err(wrong(5_624_903, "$derivative input must not be null or missing"));
    }
    match (divide("$divide", &[rise, run]), unit) {
        // A window of one document has no length.
        (Err(error), _) if error.code == 2 => null(),
        (Ok(slope), Some(unit)) => multiply("$multiply", &[slope, Some(RawBson::Int64(unit))]),
        (slope, _) => slope,
    }
}

/// A point of `$integral`: the number or milliseconds of the sort, and the input.
fn point(time: &Value, input: &Value, unit: Option<i64>) -> Result<(Number, Number)> {
    let (date, number) = (position(time, true), position(time, false));
    let Some(input) = number_of(input).filter(|_| date.or(number).is_some()) else {
        let what = "$integral takes numbers, of documents whose sortBy field is a number or a Date";
        return Err(wrong(5_423_900, what));
    };
    let (at, code) = if unit.is_some() { (date, 5_423_901) } else { (number, 5_423_902) };
    Ok((at.ok_or_else(|| misplaced(code, unit.is_some()))?, input))
}

/// By trapezoids.
fn area(points: &[(Number, Number)], unit: Option<i64>) -> Option<RawBson> {
    if points.iter().any(|(at, value)| at.is_nan() || value.is_nan()) {
        return Some(RawBson::Double(f64::NAN));
    }
    if points.len() < 2 {
        let none = if unit.is_some() { RawBson::Double(0.0) } else { RawBson::Int32(0) };
        return points.first().map(|_| none);
    }
    let parts = points.windows(2).map(|pair| {
        let (from, to) = (pair[0], pair[1]);
        to.0.minus(from.0).times(from.1.plus(to.1)).over(Number::Int(2))
    });
    let area = parts.fold(Number::Double(0.0), Number::plus);
    Some(unit.map_or(area, |unit| area.over(Number::Int(unit))).value())
}

fn whole(n: usize) -> Value {
    Some(i32::try_from(n).map_or(RawBson::Int64(number(n)), RawBson::Int32))
}

fn number(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
