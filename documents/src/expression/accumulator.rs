//! Accumulators: of `$group`, and as operators on lists.

use super::figure::{Figure, FigureValue};
use super::list::{borrowed, elements, merge_objects};
use super::total::{DoubleSum, Total};
use super::{ExpressionError, Result, Value, is_nothing, real_of};
use crate::order::{Number, compare};
use crate::{Sort, value_key};
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Where the figures of a field are among those of a window.
#[derive(Debug, Default)]
pub(crate) struct Places {
    count: Option<usize>,
    sum: Option<usize>,
    min: Option<usize>,
    max: Option<usize>,
    first: Option<usize>,
    last: Option<usize>,
}

impl Places {
    pub(crate) fn of(field: &str, figures: &[Figure]) -> Places {
        let mut places = Places::default();
        for (at, figure) in figures.iter().enumerate().filter(|(_, figure)| figure.field().is_some_and(|f| f == field))
        {
            let place = match figure {
                Figure::Rows => continue,
                Figure::Count(_) => &mut places.count,
                Figure::Sum(_) => &mut places.sum,
                Figure::Min(_) => &mut places.min,
                Figure::Max(_) => &mut places.max,
                Figure::First(_) => &mut places.first,
                Figure::Last(_) => &mut places.last,
            };
            *place = Some(at);
        }
        places
    }
}

/// Which accumulator.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Sum,
    Avg,
    Min,
    Max,
    First,
    Last,
    Count,
    Push,
    AddToSet,
    StdDevPop,
    StdDevSamp,
    MergeObjects,
    /// The maximum number of values.
    FirstN(usize),
    LastN(usize),
    MinN(usize),
    MaxN(usize),
    /// The values of the first documents in an order; of one alone, without a list.
    Top(Sort, Option<usize>),
    /// Those of the last ones.
    Bottom(Sort, Option<usize>),
    /// Shares of the values, and whether there is one alone, without a list.
    Percentile(Vec<f64>, bool),
}

impl Kind {
    pub(crate) fn named(name: &str) -> Option<Kind> {
        Some(match name {
            "$sum" => Kind::Sum,
            "$avg" => Kind::Avg,
            "$min" => Kind::Min,
            "$max" => Kind::Max,
            "$first" => Kind::First,
            "$last" => Kind::Last,
            "$count" => Kind::Count,
            "$push" => Kind::Push,
            "$addToSet" => Kind::AddToSet,
            "$stdDevPop" => Kind::StdDevPop,
            "$stdDevSamp" => Kind::StdDevSamp,
            "$mergeObjects" => Kind::MergeObjects,
            _ => return None,
        })
    }
}

/// A figure as the value that a document would have: int32 where it fits, null where there is none.
fn narrow(figure: Option<FigureValue>) -> RawBson {
    match figure {
        Some(FigureValue::Int(i)) => i32::try_from(i).map_or(RawBson::Int64(i), RawBson::Int32),
        Some(FigureValue::Double(d)) => RawBson::Double(d),
        None => RawBson::Null,
    }
}

/// The spread of numbers around their mean, by Welford's method.
#[derive(Debug, Clone, Copy, Default)]
struct Spread {
    count: u64,
    mean: f64,
    squares: f64,
}

/// One accumulator of one group. There may be a million of them, so it has no more than its kind needs.
#[derive(Debug, Clone)]
pub(crate) struct Accumulator {
    state: State,
    bytes: usize,
}

#[derive(Debug, Clone)]
enum State {
    /// Of `$sum`, `$avg`, `$count`.
    Total(Total<DoubleSum>),
    Spread(Spread),
    /// Of `$min`, `$max`, `$first`, `$last`, `$mergeObjects`.
    Value(Value),
    List(RawArrayBuf),
    Set(BTreeMap<Vec<u8>, RawBson>),
    Ranked(Ranked),
    Numbers(Vec<f64>),
}

/// The best values so far, by their order and the number in which they came.
#[derive(Debug, Clone, Default)]
struct Ranked {
    values: BTreeMap<(Vec<u8>, u64), RawBson>,
    taken: u64,
}

impl Ranked {
    /// Keeps a value if it is one of the first (or last) `n` in the order; returns the bytes that it takes.
    fn take(&mut self, bytes: usize, key: Vec<u8>, value: Value, n: usize, keeps_first: bool) -> usize {
        let size = |key: &[u8], value: &RawBson| key.len() + 96 + size_of_value(value);
        let value = value.unwrap_or(RawBson::Null);
        let bytes = bytes + size(&key, &value);
        self.taken += 1;
        self.values.insert((key, self.taken), value);
        if self.values.len() <= n {
            return bytes;
        }
        let worst = if keeps_first { self.values.pop_last() } else { self.values.pop_first() };
        bytes - worst.map_or(0, |((key, _), value)| size(&key, &value))
    }
}

/// Whether a value is better than the one before for `$min` or `$max`.
fn is_better(is_min: bool, new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new, old) else { return true };
    let order = compare(new.as_raw_bson_ref(), old.as_raw_bson_ref());
    if is_min { order.is_lt() } else { order.is_gt() }
}

impl Accumulator {
    /// One of this kind, which is given to each of its methods.
    pub(crate) fn new(kind: &Kind) -> Accumulator {
        let state = match kind {
            Kind::Sum | Kind::Avg | Kind::Count => State::Total(Total::default()),
            Kind::StdDevPop | Kind::StdDevSamp => State::Spread(Spread::default()),
            Kind::Min | Kind::Max | Kind::First | Kind::Last | Kind::MergeObjects => State::Value(None),
            Kind::Push => State::List(RawArrayBuf::new()),
            Kind::AddToSet => State::Set(BTreeMap::new()),
            Kind::FirstN(_) | Kind::LastN(_) | Kind::MinN(_) | Kind::MaxN(_) | Kind::Top(..) | Kind::Bottom(..) => {
                State::Ranked(Ranked::default())
            }
            Kind::Percentile(..) => State::Numbers(Vec::new()),
        };
        Accumulator { state, bytes: 0 }
    }

    /// Takes the value of a document.
    pub(crate) fn take_from(&mut self, kind: &Kind, value: Value, document: &RawDocument) -> Result<()> {
        match (kind, &mut self.state) {
            (Kind::Top(sort, n), State::Ranked(ranked)) => {
                self.bytes = ranked.take(self.bytes, sort.key(document)?, value, n.unwrap_or(1), true);
                Ok(())
            }
            (Kind::Bottom(sort, n), State::Ranked(ranked)) => {
                self.bytes = ranked.take(self.bytes, sort.key(document)?, value, n.unwrap_or(1), false);
                Ok(())
            }
            _ => self.take(kind, value),
        }
    }

    /// The memory that it takes, beyond its own size.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a value.
    pub(crate) fn take(&mut self, kind: &Kind, value: Value) -> Result<()> {
        let size = |value: &Value| value.as_ref().map_or(0, size_of_value);
        match (&mut self.state, kind) {
            (State::Total(total), Kind::Count) => total.count += 1,
            (State::Total(total), _) => {
                if let Some(value) = &value {
                    total.take(value.as_raw_bson_ref());
                }
            }
            (State::Spread(spread), _) => {
                let number = value.as_ref().and_then(|value| Number::of(value.as_raw_bson_ref()));
                if let Some(number) = number {
                    spread.take(real_of(number));
                }
            }
            (State::Value(known), kind) => {
                let value = match kind {
                    Kind::Min | Kind::Max if is_nothing(&value) => return Ok(()),
                    Kind::Min | Kind::Max if !is_better(*kind == Kind::Min, &value, known) => return Ok(()),
                    Kind::First if known.is_some() => return Ok(()),
                    Kind::First | Kind::Last => Some(value.unwrap_or(RawBson::Null)),
                    Kind::MergeObjects => merge_objects("$mergeObjects", &[known.clone(), value])
                        .map_err(|error| ExpressionError { code: 5_911_200, ..error })?,
                    _ => value,
                };
                self.bytes = self.bytes - size(known) + size(&value);
                *known = value;
            }
            (State::List(list), _) => {
                if let Some(value) = value {
                    list.push(value);
                }
                self.bytes = list.as_bytes().len();
            }
            (State::Set(set), _) => {
                if let Some(value) = value {
                    let key = value_key(value.as_raw_bson_ref());
                    // Of equal values the first is kept.
                    if let Entry::Vacant(place) = set.entry(key) {
                        self.bytes += place.key().len() + 64 + size_of_value(&value);
                        place.insert(value);
                    }
                }
            }
            (State::Ranked(ranked), kind) => {
                let (n, keeps_first) = match kind {
                    Kind::FirstN(n) => (*n, true),
                    Kind::LastN(n) => (*n, false),
                    Kind::MinN(n) | Kind::MaxN(n) => {
                        let Some(value) = value.filter(|value| !matches!(value, RawBson::Null | RawBson::Undefined))
                        else {
                            return Ok(());
                        };
                        let key = value_key(value.as_raw_bson_ref());
                        self.bytes = ranked.take(self.bytes, key, Some(value), *n, matches!(kind, Kind::MinN(_)));
                        return Ok(());
                    }
                    // Without a document there is no order.
                    _ => return Ok(()),
                };
                self.bytes = ranked.take(self.bytes, Vec::new(), value, n, keeps_first);
            }
            (State::Numbers(numbers), _) => {
                let number = value.as_ref().and_then(|value| Number::of(value.as_raw_bson_ref())).map(real_of);
                numbers.extend(number.filter(|x| !x.is_nan()));
                self.bytes = numbers.len() * size_of::<f64>();
            }
        }
        Ok(())
    }

    /// Adds the figures of a window. `None` if they do not determine what its documents would give. `places` are
    /// those of the argument's figures, unless it is a constant; the first figure is the number of documents.
    pub(crate) fn take_figures(
        &mut self,
        kind: &Kind,
        constant: Option<RawBsonRef<'_>>,
        places: Option<&Places>,
        figures: impl Fn(usize) -> Option<FigureValue>,
    ) -> Option<()> {
        let count = |value: Option<FigureValue>| match value {
            Some(FigureValue::Int(count)) => Some(count),
            _ => None,
        };
        let rows = count(figures(0))?;
        let figure = |place: Option<usize>| figures(place?);
        let Some(places) = places else {
            match (&mut self.state, constant) {
                (State::Total(total), _) if *kind == Kind::Count => total.count += rows.unsigned_abs(),
                (State::Total(total), Some(constant)) => total.take_often(constant, rows)?,
                _ => return None,
            }
            return Some(());
        };
        match kind {
            Kind::First => return self.take(kind, Some(narrow(figure(places.first)))).ok(),
            Kind::Last => return self.take(kind, Some(narrow(figure(places.last)))).ok(),
            _ => {}
        }
        // A field that no document has has no figures at all.
        let Some(values @ 1..) = count(figure(places.count)) else { return Some(()) };
        let (min, max) = (figure(places.min)?, figure(places.max)?);
        if let (FigureValue::Double(min), FigureValue::Double(max)) = (min, max) {
            // Which of two zeros comes first is not known.
            let is_definite = match kind {
                Kind::Min => min != 0.0 || min.to_bits() == 0,
                Kind::Max => max != 0.0 || min.to_bits() == 0,
                _ => true,
            };
            if !(is_definite && min.is_finite() && max.is_finite()) {
                return None;
            }
        }
        match (kind, &mut self.state) {
            (Kind::Min, _) => self.take(kind, Some(narrow(Some(min)))).ok(),
            (Kind::Max, _) => self.take(kind, Some(narrow(Some(max)))).ok(),
            (_, State::Total(total)) => {
                total.take_sum(figure(places.sum)?, values.unsigned_abs())?;
                let is_long = |value| matches!(value, FigureValue::Int(i) if i32::try_from(i).is_err());
                if is_long(min) || is_long(max) {
                    total.has_long();
                }
                Some(())
            }
            _ => None,
        }
    }

    pub(crate) fn finish(self, kind: &Kind) -> Result<RawBson> {
        Ok(match (self.state, kind) {
            (State::Total(total), Kind::Sum) => total.sum(),
            (State::Total(total), Kind::Avg) => total.mean(),
            (State::Total(total), _) => number(total.count),
            (State::Spread(spread), kind) => spread.deviation(u64::from(*kind == Kind::StdDevSamp)),
            (State::Value(value), Kind::MergeObjects) => {
                value.unwrap_or_else(|| RawBson::Document(bson::RawDocumentBuf::new()))
            }
            (State::Value(value), _) => value.unwrap_or(RawBson::Null),
            (State::List(list), _) => RawBson::Array(list),
            (State::Set(set), _) => RawBson::Array(set.into_values().collect()),
            (State::Ranked(ranked), Kind::Top(_, None) | Kind::Bottom(_, None)) => {
                ranked.values.into_values().next().unwrap_or(RawBson::Null)
            }
            (State::Ranked(ranked), Kind::MaxN(_)) => RawBson::Array(ranked.values.into_values().rev().collect()),
            (State::Ranked(ranked), _) => RawBson::Array(ranked.values.into_values().collect()),
            (State::Numbers(numbers), Kind::Percentile(shares, is_single)) => percentile(numbers, shares, *is_single),
            (State::Numbers(_), _) => RawBson::Null,
        })
    }
}

/// About the memory of a value.
pub(crate) fn size_of_value(value: &RawBson) -> usize {
    match value {
        RawBson::Document(document) => document.as_bytes().len(),
        RawBson::Array(list) => list.as_bytes().len(),
        RawBson::String(text) | RawBson::Symbol(text) | RawBson::JavaScriptCode(text) => text.len(),
        RawBson::JavaScriptCodeWithScope(code) => code.code.len() + code.scope.as_bytes().len(),
        RawBson::RegularExpression(regex) => regex.pattern.len() + regex.options.len(),
        RawBson::Binary(binary) => binary.bytes.len(),
        RawBson::DbPointer(_) => crate::raw::db_pointer(value.as_raw_bson_ref()).map_or(0, |(length, ..)| length),
        _ => size_of::<RawBson>(),
    }
}

/// The values at shares of some numbers: of each the least that at least this share of them does not exceed.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "nobody counts to 2^53, and a share is between 0 and 1"
)]
fn percentile(mut numbers: Vec<f64>, shares: &[f64], is_single: bool) -> RawBson {
    numbers.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let rank = (share * numbers.len() as f64).ceil() as usize;
        numbers.get(rank.saturating_sub(1)).map_or(RawBson::Null, |x| RawBson::Double(*x))
    };
    match shares {
        [one] if is_single => at(*one),
        _ => RawBson::Array(shares.iter().map(|share| at(*share)).collect()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "nobody counts to 2^53")]
impl Spread {
    fn take(&mut self, x: f64) {
        self.count += 1;
        let distance = x - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (x - self.mean);
    }

    fn deviation(self, less: u64) -> RawBson {
        match self.count.checked_sub(less) {
            None | Some(0) => RawBson::Null,
            Some(count) => RawBson::Double((self.squares / count as f64).sqrt()),
        }
    }
}

/// The value of an accumulator over some values.
fn accumulated(kind: &Kind, values: impl IntoIterator<Item = Option<RawBson>>) -> Result<Option<RawBson>> {
    let mut accumulator = Accumulator::new(kind);
    for value in values {
        accumulator.take(kind, value)?;
    }
    Ok(Some(accumulator.finish(kind)?))
}

/// A count in the smallest type that holds it.
pub(crate) fn number(count: u64) -> RawBson {
    match i32::try_from(count) {
        Ok(narrow) => RawBson::Int32(narrow),
        Err(_) => RawBson::Int64(i64::try_from(count).unwrap_or(i64::MAX)),
    }
}

/// `$sum`, `$avg` and their kind, of the elements of a list or of several values.
pub(crate) fn accumulate(name: &'static str, values: &[Value]) -> Result<Value> {
    let kind =
        Kind::named(name).ok_or_else(|| ExpressionError::new(15952, format!("unknown group operator '{name}'")))?;
    match values {
        [Some(RawBson::Array(list))] => accumulated(&kind, elements(list).map(Some)),
        values => accumulated(&kind, values.iter().cloned()),
    }
}

/// The `n` of `$firstN` and its kind.
pub(crate) fn count_of(n: &Value) -> Result<usize> {
    let given = n.as_ref().map(RawBson::as_raw_bson_ref);
    match (given.and_then(Number::of), given.and_then(crate::whole_number)) {
        (None, _) => Err(ExpressionError::new(5_787_902, "Value for 'n' must be of integral type")),
        (_, Some(n @ 1..)) => Ok(usize::try_from(n).unwrap_or(usize::MAX)),
        (_, Some(n)) => Err(ExpressionError::new(5_787_908, format!("'n' must be greater than 0, found {n}"))),
        _ => Err(ExpressionError::new(5_787_903, "Value for 'n' must be of integral type")),
    }
}

/// The accumulator of this name that keeps `n` values.
pub(crate) fn kind_of_several(name: &str, n: usize) -> Kind {
    match name {
        "$firstN" => Kind::FirstN(n),
        "$lastN" => Kind::LastN(n),
        "$minN" => Kind::MinN(n),
        _ => Kind::MaxN(n),
    }
}

/// `$firstN`, `$lastN`, `$minN` and `$maxN` of the elements of a list.
pub(super) fn several(name: &'static str, values: &[Value]) -> Result<Value> {
    let [n, input] = values else { return Ok(None) };
    let n = count_of(n)?;
    let Some(RawBson::Array(list)) = input else {
        return Err(ExpressionError::new(5_788_200, "Input must be an array"));
    };
    let found: RawArrayBuf = match name {
        "$firstN" => borrowed(list).take(n).collect(),
        "$lastN" => borrowed(list).skip(borrowed(list).count().saturating_sub(n)).collect(),
        _ => {
            let is_value = |value: &RawBsonRef<'_>| !matches!(value, RawBsonRef::Null | RawBsonRef::Undefined);
            let mut values: Vec<RawBsonRef<'_>> = borrowed(list).filter(is_value).collect();
            values.sort_by(|a, b| compare(*a, *b));
            if name == "$maxN" {
                values.reverse();
            }
            values.into_iter().take(n).collect()
        }
    };
    Ok(Some(RawBson::Array(found)))
}
