//! Functions whose result can be far larger than what they are given, with a limit.
//!
//! The memory of a statement is counted where operators hold rows, not where a function makes a value, and a function that runs is not
//! interrupted. So `repeat('x', 2000000000)` would take what no limit allows, and as long as it takes.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::{
    DataType, FieldRef, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, TimeUnit,
};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// What one call may make of the rows of a batch, in bytes; and the steps of `levenshtein` for one row.
const MOST: u64 = 256 << 20;
/// The steps of `levenshtein` for the rows of a batch.
const STEPS_MOST: u64 = 16 * MOST;
/// What a row may make without a closer look.
const SMALL_MAX: u64 = MOST >> 13;
/// Bytes of a character at most.
const CHARACTER_BYTES: u64 = 4;
/// Bytes of a number or time in a list.
const ELEMENT_BYTES: u64 = 8;
const DAY_NANOS: i128 = 86_400_000_000_000;

/// How large the result of a row is, from its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Growth {
    /// The text, this many times.
    Repeat,
    /// This many characters.
    Pad,
    /// The text, with each part that is found replaced by another.
    Replace,
    /// The same with a regular expression, where only a bound is known.
    RegexpReplace,
    /// The value, this many times.
    ArrayRepeat,
    /// This many elements.
    ArrayResize,
    /// The numbers or times from one to another.
    Range,
    /// A step for each pair of characters.
    Levenshtein,
}

const BOUNDED: [(&str, Growth); 10] = [
    ("repeat", Growth::Repeat),
    ("lpad", Growth::Pad),
    ("rpad", Growth::Pad),
    ("replace", Growth::Replace),
    ("regexp_replace", Growth::RegexpReplace),
    ("array_repeat", Growth::ArrayRepeat),
    ("array_resize", Growth::ArrayResize),
    ("range", Growth::Range),
    ("generate_series", Growth::Range),
    ("levenshtein", Growth::Levenshtein),
];

/// Puts limited functions in the place of those of a session.
pub(super) fn register(context: &SessionContext) -> Result<()> {
    for (name, growth) in BOUNDED {
        let inner = context.udf(name)?;
        context.register_udf(ScalarUDF::from(Bounded { inner, growth }));
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    growth: Growth,
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.inner.return_type(given)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        // Constants have one result for all rows.
        let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let Some(sizes) = self.growth.sizes(&args.args, rows)? else { return self.inner.invoke_with_args(args) };
        let sum = sizes.iter().fold(0_u64, |sum, size| sum.saturating_add(*size));
        if sum <= MOST {
            return self.inner.invoke_with_args(args);
        }
        let is_large = sizes.iter().any(|size| *size > MOST);
        match self.growth {
            // Its results are small.
            Growth::Levenshtein if !is_large && sum <= STEPS_MOST => self.inner.invoke_with_args(args),
            Growth::RegexpReplace if !is_large => self.in_pieces(&args, &sizes),
            _ => self.refuse(),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

impl Bounded {
    fn refuse<T>(&self) -> Result<T> {
        let (name, megabytes) = (self.inner.name(), MOST >> 20);
        match self.growth {
            Growth::Levenshtein => {
                exec_err!("{name}() compares at most {MOST} pairs of characters: give it shorter texts")
            }
            _ => exec_err!("{name}() makes at most {megabytes} MiB at a time: give it fewer or smaller values"),
        }
    }

    /// The results of rows whose sizes are only bounds, as long as together they are not too large.
    fn in_pieces(&self, args: &ScalarFunctionArgs, sizes: &[u64]) -> Result<ColumnarValue> {
        let (mut pieces, mut bytes, mut from): (Vec<ArrayRef>, u64, _) = (Vec::new(), 0, 0);
        while from < sizes.len() {
            let mut sum = 0_u64;
            let fitting = sizes[from..].iter().take_while(|size| {
                sum = sum.saturating_add(**size);
                sum <= MOST
            });
            let rows = fitting.count();
            let piece = |arg: &ColumnarValue| match arg {
                ColumnarValue::Array(array) => ColumnarValue::Array(array.slice(from, rows)),
                scalar => scalar.clone(),
            };
            let args =
                ScalarFunctionArgs { args: args.args.iter().map(piece).collect(), number_rows: rows, ..args.clone() };
            let given = args.args.first().map_or(Ok(OfRows::Same(0)), lengths)?;
            let made = self.inner.invoke_with_args(args)?.into_array(rows)?;
            let given: u64 = (0..rows).map(|row| given.at(row)).sum();
            bytes += (made.get_array_memory_size() as u64).saturating_sub(given);
            if bytes > MOST {
                return self.refuse();
            }
            pieces.push(made);
            from += rows;
        }
        let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(concat(&pieces)?))
    }
}

impl Growth {
    /// The size of the result of each row, or a bound of it; nothing for arguments that the function refuses itself.
    fn sizes(self, args: &[ColumnarValue], rows: usize) -> Result<Option<Vec<u64>>> {
        let each = |size: &dyn Fn(usize) -> u64| Ok(Some((0..rows).map(size).collect()));
        match (self, args) {
            (Growth::Repeat, [text, times]) => {
                let (text, times) = (lengths(text)?, counts(times)?);
                each(&|row| text.at(row).saturating_mul(times.at(row)))
            }
            (Growth::Pad, [_, characters, ..]) => {
                let characters = counts(characters)?;
                each(&|row| characters.at(row).saturating_mul(CHARACTER_BYTES))
            }
            (Growth::Replace, [text, part, by]) => {
                let (length, by) = (lengths(text)?, lengths(by)?);
                each(&|row| {
                    // What is added to the text.
                    let size = |found: u64| found.saturating_mul(by.at(row));
                    match (size(length.at(row)), text_at(text, row), text_at(part, row)) {
                        // Nothing is replaced.
                        (.., Some("")) => size(0),
                        (SMALL_MAX.., Some(text), Some(part)) => size(text.matches(part).count() as u64),
                        (bound, ..) => bound,
                    }
                })
            }
            (Growth::RegexpReplace, [text, _, replacement, flags @ ..]) => {
                let (text, by) = (lengths(text)?, lengths(replacement)?);
                each(&|row| {
                    let is_once =
                        !flags.iter().any(|flags| text_at(flags, row).is_some_and(|flags| flags.contains('g')));
                    let is_plain = text_at(replacement, row).is_none_or(|by| !by.contains(['\\', '$']));
                    // Otherwise something may be found between any two bytes, or all of the text be inserted in each place.
                    let times = if is_once && is_plain { 1 } else { text.at(row) + 1 };
                    times.saturating_mul(by.at(row))
                })
            }
            (Growth::ArrayRepeat, [value, times]) => {
                let (value, times) = (memory(value, rows)?, counts(times)?);
                each(&|row| value.at(row).saturating_mul(times.at(row)))
            }
            (Growth::ArrayResize, [_, elements, filled @ ..]) => {
                let elements = counts(elements)?;
                let filled = match filled.first() {
                    Some(filled) => memory(filled, rows)?,
                    None => OfRows::Same(ELEMENT_BYTES),
                };
                each(&|row| elements.at(row).saturating_mul(filled.at(row)))
            }
            (Growth::Range, [stop]) if is_integer(stop) => {
                let stop = counts(stop)?;
                each(&|row| stop.at(row).saturating_mul(ELEMENT_BYTES))
            }
            (Growth::Range, [start, stop, step @ ..]) => {
                let (start, stop) = (instants(start)?, instants(stop)?);
                let step = step.first().map_or(Ok(OfRows::Same(Some(1))), steps)?;
                each(&|row| {
                    let (Some(start), Some(stop), Some(step)) = (start.at(row), stop.at(row), step.at(row)) else {
                        return 0;
                    };
                    let length = stop - start;
                    if length == 0 || length.signum() != step.signum() {
                        return 0;
                    }
                    let elements = (length / step).unsigned_abs();
                    u64::try_from(elements).unwrap_or(u64::MAX).saturating_mul(ELEMENT_BYTES)
                })
            }
            (Growth::Levenshtein, [a, b]) => {
                let (a, b) = (lengths(a)?, lengths(b)?);
                each(&|row| a.at(row).saturating_mul(b.at(row)))
            }
            _ => Ok(None),
        }
    }
}

/// A number for each row.
enum OfRows<T> {
    Same(T),
    Each(Vec<T>),
}

impl<T: Copy> OfRows<T> {
    fn at(&self, row: usize) -> T {
        match self {
            OfRows::Same(number) => *number,
            OfRows::Each(numbers) => numbers[row],
        }
    }

    /// Of a column, or of a constant.
    fn of(value: &ColumnarValue, numbers: impl Fn(&ArrayRef) -> Result<Vec<T>>) -> Result<Self> {
        match value {
            ColumnarValue::Array(array) => Ok(OfRows::Each(numbers(array)?)),
            ColumnarValue::Scalar(scalar) => match numbers(&scalar.to_array()?)?.first() {
                Some(number) => Ok(OfRows::Same(*number)),
                None => internal_err!("a constant without a value"),
            },
        }
    }
}

/// Bytes of texts; 0 of null, and of what is no text.
fn lengths(texts: &ColumnarValue) -> Result<OfRows<u64>> {
    fn of<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> Vec<u64> {
        texts.map(|text| text.map_or(0, |text| text.len() as u64)).collect()
    }
    OfRows::of(texts, |texts| match texts.data_type() {
        DataType::Utf8 => Ok(of(texts.as_string::<i32>().iter())),
        DataType::LargeUtf8 => Ok(of(texts.as_string::<i64>().iter())),
        DataType::Utf8View => Ok(of(texts.as_string_view().iter())),
        _ => Ok(vec![0; texts.len()]),
    })
}

/// The text of a row; nothing if it is null, or no text.
fn text_at(texts: &ColumnarValue, row: usize) -> Option<&str> {
    match texts {
        ColumnarValue::Scalar(scalar) => scalar.try_as_str().flatten(),
        ColumnarValue::Array(array) if array.is_null(row) => None,
        ColumnarValue::Array(array) => match array.data_type() {
            DataType::Utf8 => Some(array.as_string::<i32>().value(row)),
            DataType::LargeUtf8 => Some(array.as_string::<i64>().value(row)),
            DataType::Utf8View => Some(array.as_string_view().value(row)),
            _ => None,
        },
    }
}

/// Whole numbers; 0 of null, and of what is negative.
fn counts(numbers: &ColumnarValue) -> Result<OfRows<u64>> {
    OfRows::of(numbers, |numbers| {
        let numbers = cast(numbers, &DataType::Int64)?;
        let number = |number: Option<i64>| u64::try_from(number.unwrap_or_default()).unwrap_or_default();
        Ok(numbers.as_primitive::<Int64Type>().iter().map(number).collect())
    })
}

/// Bytes of values of any type.
fn memory(values: &ColumnarValue, rows: usize) -> Result<OfRows<u64>> {
    match values {
        ColumnarValue::Scalar(scalar) => Ok(OfRows::Same(scalar_bytes(scalar))),
        ColumnarValue::Array(array) => {
            let bytes = (0..rows).map(|row| value_bytes(&array.slice(row, 1))).collect::<Result<Vec<_>>>()?;
            Ok(OfRows::Each(bytes))
        }
    }
}

/// Bytes of the values of an array. A slice of lists has the elements of all.
fn value_bytes(values: &ArrayRef) -> Result<u64> {
    let of_elements = |elements: &ArrayRef, from: i64, to: i64| {
        let (from, to) = (usize::try_from(from).unwrap_or_default(), usize::try_from(to).unwrap_or_default());
        Ok(value_bytes(&elements.slice(from, to - from))? + ELEMENT_BYTES)
    };
    match values.data_type() {
        DataType::List(_) => {
            let (list, at) = (values.as_list::<i32>(), values.as_list::<i32>().offsets());
            of_elements(list.values(), at[0].into(), at[list.len()].into())
        }
        DataType::LargeList(_) => {
            let (list, at) = (values.as_list::<i64>(), values.as_list::<i64>().offsets());
            of_elements(list.values(), at[0], at[list.len()])
        }
        DataType::Struct(_) => values.as_struct().columns().iter().map(value_bytes).sum(),
        DataType::Utf8View => Ok(values.as_string_view().iter().flatten().map(|text| text.len() as u64 + 16).sum()),
        _ => Ok(values.to_data().get_slice_memory_size()? as u64),
    }
}

fn scalar_bytes(scalar: &ScalarValue) -> u64 {
    let beside = scalar.size().saturating_sub(size_of::<ScalarValue>()) as u64;
    beside.saturating_add(ELEMENT_BYTES)
}

fn is_integer(value: &ColumnarValue) -> bool {
    value.data_type().is_integer()
}

/// Whole numbers, or times in nanoseconds.
fn instants(values: &ColumnarValue) -> Result<OfRows<Option<i128>>> {
    OfRows::of(values, |values| {
        let nanos = match values.data_type() {
            DataType::Date32 => DAY_NANOS,
            DataType::Date64 => 1_000_000,
            DataType::Timestamp(unit, _) => match unit {
                TimeUnit::Second => 1_000_000_000,
                TimeUnit::Millisecond => 1_000_000,
                TimeUnit::Microsecond => 1_000,
                TimeUnit::Nanosecond => 1,
            },
            _ => 1,
        };
        let numbers = cast(values, &DataType::Int64)?;
        Ok(numbers.as_primitive::<Int64Type>().iter().map(|n| Some(i128::from(n?) * nanos)).collect())
    })
}

/// Whole numbers, or intervals in nanoseconds, of which a month has at least 28 days.
fn steps(values: &ColumnarValue) -> Result<OfRows<Option<i128>>> {
    OfRows::of(values, |values| match values.data_type() {
        DataType::Interval(_) => {
            let intervals = values.as_primitive_opt::<IntervalMonthDayNanoType>();
            let Some(intervals) = intervals else { return Ok(vec![Some(1); values.len()]) };
            let nanos = |interval: Option<IntervalMonthDayNano>| {
                let i = interval?;
                Some((i128::from(i.months) * 28 + i128::from(i.days)) * DAY_NANOS + i128::from(i.nanoseconds))
            };
            Ok(intervals.iter().map(nanos).collect())
        }
        _ => {
            let numbers = cast(values, &DataType::Int64)?;
            Ok(numbers.as_primitive::<Int64Type>().iter().map(|n| n.map(i128::from)).collect())
        }
    })
}
