//! Accumulators: of `$group`, and as operators on lists.

use super::list::{elements, merge_objects};
use super::total::{DoubleSum, Total};
use super::{ExpressionError, Result, Value, is_nothing, real_of};
use crate::order::{Number, compare};
use crate::{Sort, value_key};
use bson::raw::{RawArrayBuf, RawBson, RawDocument};
use std::collections::BTreeMap;

/// A figure of the documents of one window and meta.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Figure {
    /// How many there are.
    Rows,
    /// How many have a value in a field.
    Count(String),
    /// The sum of a field.
    Sum(String),
    /// The least value of a field.
    Min(String),
    /// The greatest value of a field.
    Max(String),
    /// The value of the earliest document.
    First(String),
    /// The value of the latest document.
    Last(String),
}

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
fn narrow(figure: Value) -> RawBson {
    match figure {
        Some(RawBson::Int64(i)) => i32::try_from(i).map_or(RawBson::Int64(i), RawBson::Int32),
        Some(other) => other,
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

/// One accumulator of one group.
#[derive(Debug, Clone)]
pub(crate) struct Accumulator {
    kind: Kind,
    total: Total<DoubleSum>,
    spread: Spread,
    /// The value of `$min`, `$max`, `$first`, `$last`.
    value: Value,
    list: RawArrayBuf,
    set: BTreeMap<Vec<u8>, RawBson>,
    /// The best ones so far, by their order and the number in which they came.
    ranked: BTreeMap<(Vec<u8>, u64), RawBson>,
    numbers: Vec<f64>,
    taken: u64,
    bytes: usize,
}

impl Accumulator {
    pub(crate) fn new(kind: &Kind) -> Accumulator {
        Accumulator {
            kind: kind.clone(),
            total: Total::default(),
            spread: Spread::default(),
            value: None,
            list: RawArrayBuf::new(),
            set: BTreeMap::new(),
            ranked: BTreeMap::new(),
            numbers: Vec::new(),
            taken: 0,
            bytes: 0,
        }
    }

    /// Takes the value of a document.
    pub(crate) fn take_from(&mut self, value: Value, document: &RawDocument) -> Result<()> {
        match &self.kind {
            Kind::Top(sort, n) => {
                let (key, n) = (sort.key(document)?, n.unwrap_or(1));
                self.rank(key, value, n, true);
                Ok(())
            }
            Kind::Bottom(sort, n) => {
                let (key, n) = (sort.key(document)?, n.unwrap_or(1));
                self.rank(key, value, n, false);
                Ok(())
            }
            _ => self.take(value),
        }
    }

    /// Keeps a value if it is among the first so many of its order, or among the last.
    fn rank(&mut self, key: Vec<u8>, value: Value, n: usize, keeps_first: bool) {
        let size = |key: &[u8], value: &RawBson| key.len() + 96 + size_of_value(value);
        let value = value.unwrap_or(RawBson::Null);
        self.bytes += size(&key, &value);
        self.taken += 1;
        self.ranked.insert((key, self.taken), value);
        if self.ranked.len() > n {
            let worst = if keeps_first { self.ranked.pop_last() } else { self.ranked.pop_first() };
            self.bytes -= worst.map_or(0, |((key, _), value)| size(&key, &value));
        }
    }

    /// The memory that it takes, beyond its own size.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn replace(&mut self, value: Value) {
        let size = |value: &Value| value.as_ref().map_or(0, size_of_value);
        self.bytes = self.bytes - size(&self.value) + size(&value);
        self.value = value;
    }

    /// Takes a value.
    pub(crate) fn take(&mut self, value: Value) -> Result<()> {
        match self.kind {
            Kind::FirstN(n) => self.rank(Vec::new(), value, n, true),
            Kind::LastN(n) => self.rank(Vec::new(), value, n, false),
            Kind::MinN(n) | Kind::MaxN(n) => {
                let Some(value) = value.filter(|value| !matches!(value, RawBson::Null | RawBson::Undefined)) else {
                    return Ok(());
                };
                let is_min = matches!(self.kind, Kind::MinN(_));
                self.rank(value_key(value.as_raw_bson_ref()), Some(value), n, is_min);
            }
            Kind::Percentile(..) => {
                let number = value.as_ref().and_then(|value| Number::of(value.as_raw_bson_ref())).map(real_of);
                self.numbers.extend(number.filter(|x| !x.is_nan()));
                self.bytes = self.numbers.len() * size_of::<f64>();
            }
            // Without a document there is no order.
            Kind::Top(..) | Kind::Bottom(..) => {}
            Kind::Sum | Kind::Avg => {
                if let Some(value) = &value {
                    self.total.take(value.as_raw_bson_ref());
                }
            }
            Kind::Count => self.total.count += 1,
            Kind::Min | Kind::Max if is_nothing(&value) => {}
            Kind::Min | Kind::Max => {
                let is_better = match (&value, &self.value) {
                    (Some(new), Some(old)) => {
                        let order = compare(new.as_raw_bson_ref(), old.as_raw_bson_ref());
                        if self.kind == Kind::Min { order.is_lt() } else { order.is_gt() }
                    }
                    _ => true,
                };
                if is_better {
                    self.replace(value);
                }
            }
            Kind::First if self.value.is_some() => {}
            Kind::First | Kind::Last => self.replace(Some(value.unwrap_or(RawBson::Null))),
            Kind::Push => {
                if let Some(value) = value {
                    self.list.push(value);
                }
                self.bytes = self.list.as_bytes().len();
            }
            Kind::AddToSet => {
                if let Some(value) = value {
                    let key = value_key(value.as_raw_bson_ref());
                    let size = key.len() + 64 + size_of_value(&value);
                    if self.set.insert(key, value).is_none() {
                        self.bytes += size;
                    }
                }
            }
            Kind::StdDevPop | Kind::StdDevSamp => {
                let number = value.as_ref().and_then(|value| Number::of(value.as_raw_bson_ref()));
                if let Some(number) = number {
                    self.spread.take(real_of(number));
                }
            }
            Kind::MergeObjects => {
                let merged = merge_objects("$mergeObjects", &[self.value.clone(), value])?;
                self.replace(merged);
            }
        }
        Ok(())
    }

    /// Adds the figures of a window. `None` if they do not determine what its documents would give. `places` are
    /// those of the argument's figures, unless it is a constant; the first figure is the number of documents.
    pub(crate) fn take_figures(
        &mut self,
        kind: &Kind,
        constant: Value,
        places: Option<&Places>,
        figures: &[Value],
    ) -> Option<()> {
        let count = |value: Option<&RawBson>| match value {
            Some(RawBson::Int64(count)) => Some(*count),
            _ => None,
        };
        let rows = count(figures.first()?.as_ref())?;
        let Some(places) = places else {
            match constant {
                _ if *kind == Kind::Count => self.total.count += rows.unsigned_abs(),
                Some(constant) => self.total.take_often(constant.as_raw_bson_ref(), rows)?,
                None => return None,
            }
            return Some(());
        };
        let figure = |place: Option<usize>| figures.get(place?)?.as_ref();
        match kind {
            Kind::First => return self.take(Some(narrow(figure(places.first).cloned()))).ok(),
            Kind::Last => return self.take(Some(narrow(figure(places.last).cloned()))).ok(),
            _ => {}
        }
        // A field that no document has has no figures at all.
        let Some(values @ 1..) = count(figure(places.count)) else { return Some(()) };
        let (min, max) = (figure(places.min)?, figure(places.max)?);
        if let (RawBson::Double(min), RawBson::Double(max)) = (min, max) {
            // Which of two zeros comes first is not known.
            let is_definite = match kind {
                Kind::Min => *min != 0.0 || min.to_bits() == 0,
                Kind::Max => *max != 0.0 || min.to_bits() == 0,
                _ => true,
            };
            if !(is_definite && min.is_finite() && max.is_finite()) {
                return None;
            }
        }
        match kind {
            Kind::Min => self.take(Some(narrow(Some(min.clone())))).ok(),
            Kind::Max => self.take(Some(narrow(Some(max.clone())))).ok(),
            _ => {
                self.total.take_sum(figure(places.sum)?, values.unsigned_abs())?;
                let is_long = |value: &RawBson| matches!(value, RawBson::Int64(i) if i32::try_from(*i).is_err());
                if is_long(min) || is_long(max) {
                    self.total.has_long();
                }
                Some(())
            }
        }
    }

    pub(crate) fn finish(self) -> Result<RawBson> {
        Ok(match self.kind {
            Kind::Sum => self.total.sum(),
            Kind::Avg => self.total.mean(),
            Kind::Count => number(self.total.count),
            Kind::Min | Kind::Max | Kind::First | Kind::Last => self.value.unwrap_or(RawBson::Null),
            Kind::Push => RawBson::Array(self.list),
            Kind::AddToSet => RawBson::Array(self.set.into_values().collect()),
            Kind::StdDevPop => self.spread.deviation(0),
            Kind::StdDevSamp => self.spread.deviation(1),
            Kind::FirstN(_) | Kind::LastN(_) | Kind::MinN(_) | Kind::Top(_, Some(_)) | Kind::Bottom(_, Some(_)) => {
                RawBson::Array(self.ranked.into_values().collect())
            }
            Kind::MaxN(_) => RawBson::Array(self.ranked.into_values().rev().collect()),
            Kind::Top(_, None) | Kind::Bottom(_, None) => self.ranked.into_values().next().unwrap_or(RawBson::Null),
            Kind::Percentile(shares, is_single) => percentile(self.numbers, &shares, is_single),
            Kind::MergeObjects => self.value.unwrap_or_else(|| RawBson::Document(bson::RawDocumentBuf::new())),
        })
    }
}

/// About the memory of a value.
pub(crate) fn size_of_value(value: &RawBson) -> usize {
    match value {
        RawBson::Document(document) => document.as_bytes().len(),
        RawBson::Array(list) => list.as_bytes().len(),
        RawBson::String(text) => text.len(),
        RawBson::Binary(binary) => binary.bytes.len(),
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
fn accumulated(name: &str, values: impl IntoIterator<Item = Option<RawBson>>) -> Result<Option<RawBson>> {
    let kind =
        Kind::named(name).ok_or_else(|| ExpressionError::new(15952, format!("unknown group operator '{name}'")))?;
    let mut accumulator = Accumulator::new(&kind);
    for value in values {
        accumulator.take(value)?;
    }
    Ok(Some(accumulator.finish()?))
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
    match values {
        [Some(RawBson::Array(list))] => accumulated(name, elements(list).map(Some)),
        values => accumulated(name, values.iter().cloned()),
    }
}
