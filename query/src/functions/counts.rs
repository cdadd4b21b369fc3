//! `mode(value)` and `histogram(value [, bins])`: how often each value is there.
//!
//! Values are kept once, in the form in which Arrow compares rows, with their counts. Doubles have one NaN and one zero. Before an interval
//! comes its length, and intervals of one length are counted together.

use super::arguments::wrong;
use super::floats::equal_bits;
use crate::timestamp_coercion::{interval_lengths, is_interval};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, ListArray, StructArray, UInt64Array, new_empty_array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{
    DataType, DurationNanosecondType, Field, FieldRef, Fields, Float64Type, Int64Type, TimeUnit, UInt64Type,
};
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use std::collections::HashMap;
use std::sync::Arc;

/// `mode` or `histogram`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Counted {
    histogram: bool,
    signature: Signature,
}

impl Counted {
    pub(super) fn udaf(histogram: bool) -> Arc<AggregateUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(Counted { histogram, signature }))
    }
}

/// The members of an entry of a histogram: a value, or the ends of a bin; and how many there are.
fn entry(value: &DataType, binned: bool) -> Fields {
    let count = Field::new("count", DataType::UInt64, false);
    match binned {
        false => vec![Field::new("value", value.clone(), true), count].into(),
        true => {
            let end = |name| Field::new(name, DataType::Float64, false);
            vec![end("from"), end("to"), count].into()
        }
    }
}

fn list_of(value: &DataType, binned: bool) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Struct(entry(value, binned)), true)))
}

impl AggregateUDFImpl for Counted {
    fn name(&self) -> &'static str {
        if self.histogram { "histogram" } else { "mode" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [value] => Ok(vec![value.clone()]),
            [value, bins] if self.histogram => match (value.is_numeric(), bins.is_integer()) {
                (true, true) => Ok(vec![DataType::Float64, DataType::Int64]),
                (false, _) => wrong(self.name(), 1, "value", &format!("is {value}, numbers are wanted for bins")),
                (_, false) => wrong(self.name(), 2, "bins", &format!("is {bins}, a whole number is wanted")),
            },
            _ if self.histogram => {
                plan_err!("histogram takes a value, and perhaps a number of bins: histogram(temp, 10)")
            }
            _ => plan_err!("mode(value) takes one argument; given: {}", given.len()),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        let value = given.first().unwrap_or(&DataType::Null);
        Ok(if self.histogram { list_of(value, given.len() == 2) } else { value.clone() })
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if args.is_distinct {
            return plan_err!("{} counts values, and DISTINCT leaves one of each", self.name());
        }
        let value = args.expr_fields.first().map_or(DataType::Null, |field| field.data_type().clone());
        let mut fields = vec![SortField::new(value.clone())];
        if is_interval(&value) {
            fields.insert(0, SortField::new(DataType::Duration(TimeUnit::Nanosecond)));
        }
        let converter = RowConverter::new(fields)?;
        let form = match (self.histogram, args.expr_fields.len()) {
            (false, _) => Form::Mode,
            (true, 1) => Form::Values,
            (true, _) => Form::Bins(None),
        };
        Ok(Box::new(Counts { form, value, converter, counts: HashMap::new(), bytes: 0 }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let value = args.input_fields.first().map_or(DataType::Null, |field| field.data_type().clone());
        let list = |name, kind| {
            Arc::new(Field::new_list(format_state_name(args.name, name), Field::new_list_field(kind, true), true))
        };
        Ok(vec![
            list("values", value),
            list("counts", DataType::UInt64),
            Arc::new(Field::new(format_state_name(args.name, "bins"), DataType::Int64, true)),
        ])
    }
}

#[derive(Debug)]
enum Form {
    Mode,
    Values,
    /// The number of bins of equal width, once known.
    Bins(Option<i64>),
}

/// The values of one group, and how often each is there.
#[derive(Debug)]
struct Counts {
    form: Form,
    value: DataType,
    converter: RowConverter,
    counts: HashMap<OwnedRow, u64>,
    /// What the values take in memory.
    bytes: usize,
}

impl Counts {
    fn each(
        &mut self,
        values: &ArrayRef,
        mut change: impl FnMut(&mut HashMap<OwnedRow, u64>, OwnedRow, usize),
    ) -> Result<()> {
        let values = equal_bits(Arc::clone(values));
        let rows = match is_interval(&self.value) {
            true => self.converter.convert_columns(&[interval_lengths(&values)?, Arc::clone(&values)])?,
            false => self.converter.convert_columns(std::slice::from_ref(&values))?,
        };
        for at in (0..values.len()).filter(|at| values.is_valid(*at)) {
            let known = self.counts.len();
            let row = rows.row(at);
            let length = row.as_ref().len();
            change(&mut self.counts, row.owned(), at);
            if self.counts.len() > known {
                self.bytes += length + 64;
            }
        }
        Ok(())
    }

    fn note_bins(&mut self, bins: &ArrayRef) -> Result<()> {
        let Form::Bins(known) = &mut self.form else { return Ok(()) };
        for bins in bins.as_primitive::<Int64Type>().iter().flatten() {
            if !(1..=100_000).contains(&bins) {
                return exec_err!("histogram: argument 2 (bins) is {bins}; 1 to 100000 are possible");
            }
            if known.is_some_and(|known| known != bins) {
                return exec_err!("histogram: argument 2 (bins) is one number for all rows of a group");
            }
            *known = Some(bins);
        }
        Ok(())
    }

    /// The values in order, and how often each is there.
    fn sorted(&self) -> Result<(ArrayRef, Vec<u64>)> {
        let mut entries: Vec<(&OwnedRow, u64)> = self.counts.iter().map(|(row, count)| (row, *count)).collect();
        entries.sort_unstable_by(|a, b| a.0.cmp(b.0));
        let columns = self.converter.convert_rows(entries.iter().map(|(row, _)| row.row()))?;
        let counts: Vec<u64> = entries.into_iter().map(|(_, count)| count).collect();
        match columns.as_slice() {
            [values] => Ok((Arc::clone(values), counts)),
            [lengths, values] => of_each_length(lengths, values, &counts),
            _ => Ok((new_empty_array(&self.value), counts)),
        }
    }

    /// The value that is there most often; of several, the least.
    fn most_frequent(&self) -> Result<ScalarValue> {
        if is_interval(&self.value) {
            let (values, counts) = self.sorted()?;
            let most = counts.iter().enumerate().max_by(|a, b| a.1.cmp(b.1).then_with(|| b.0.cmp(&a.0)));
            return match most {
                Some((at, _)) => ScalarValue::try_from_array(&values, at),
                None => ScalarValue::try_from(&self.value),
            };
        }
        let most = self.counts.iter().max_by(|a, b| a.1.cmp(b.1).then_with(|| b.0.cmp(a.0)));
        let row = most.map(|(row, _)| row.row());
        match self.converter.convert_rows(row)?.first() {
            Some(values) => ScalarValue::try_from_array(values, 0),
            None => ScalarValue::try_from(&self.value),
        }
    }

    fn list(&self, columns: Vec<ArrayRef>, binned: bool) -> Result<ScalarValue> {
        let fields = entry(&self.value, binned);
        let entries = StructArray::try_new(fields.clone(), columns, None)?;
        let field = Arc::new(Field::new_list_field(DataType::Struct(fields), true));
        let offsets = OffsetBuffer::from_lengths([entries.len()]);
        Ok(ScalarValue::List(Arc::new(ListArray::try_new(field, offsets, Arc::new(entries), None)?)))
    }

    /// Bins of equal width from the least to the greatest value; the last one holds its end.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bins are few"
    )]
    fn binned(&self, bins: i64) -> Result<ScalarValue> {
        let (values, counts) = self.sorted()?;
        let values = cast(&values, &DataType::Float64)?;
        let finite: Vec<(f64, u64)> = values
            .as_primitive::<Float64Type>()
            .values()
            .iter()
            .copied()
            .zip(counts)
            .filter(|(value, _)| value.is_finite())
            .collect();
        let (Some((low, _)), Some((high, _))) = (finite.first().copied(), finite.last().copied()) else {
            return ScalarValue::try_from(&list_of(&self.value, true));
        };
        let bins = if low < high { bins } else { 1 };
        let width = (high - low) / bins as f64;
        let start = |bin: i64| if bin == bins { high } else { low + width * bin as f64 };
        let mut sums = vec![0_u64; bins as usize];
        for (value, count) in finite {
            let bin = if width > 0.0 { ((value - low) / width).floor() as i64 } else { 0 };
            sums[bin.clamp(0, bins - 1) as usize] += count;
        }
        let from = Float64Array::from_iter_values((0..bins).map(start));
        let to = Float64Array::from_iter_values((1..=bins).map(start));
        self.list(vec![Arc::new(from), Arc::new(to), Arc::new(UInt64Array::from(sums))], true)
    }
}

/// Intervals in order, one of each length, and how often each length is there.
fn of_each_length(lengths: &ArrayRef, intervals: &ArrayRef, counts: &[u64]) -> Result<(ArrayRef, Vec<u64>)> {
    let lengths = lengths.as_primitive::<DurationNanosecondType>().values();
    let (mut places, mut sums): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
    for (at, count) in counts.iter().enumerate() {
        match (places.last_mut(), sums.last_mut()) {
            // The last one has the most months, then days.
            (Some(place), Some(sum)) if lengths[at - 1] == lengths[at] => {
                (*place, *sum) = (at as u64, *sum + count);
            }
            _ => {
                places.push(at as u64);
                sums.push(*count);
            }
        }
    }
    Ok((take(intervals, &UInt64Array::from(places), None)?, sums))
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if let Some(bins) = values.get(1) {
            self.note_bins(bins)?;
        }
        self.each(&values[0], |counts, row, _| *counts.entry(row).or_default() += 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.each(&values[0], |counts, row, _| {
            if let Some(count) = counts.get_mut(&row).filter(|count| **count > 1) {
                *count -= 1;
            } else {
                counts.remove(&row);
            }
        })
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.counts.is_empty() {
            return match self.form {
                Form::Mode => ScalarValue::try_from(&self.value),
                Form::Values => ScalarValue::try_from(&list_of(&self.value, false)),
                Form::Bins(_) => ScalarValue::try_from(&list_of(&self.value, true)),
            };
        }
        match self.form {
            Form::Mode => self.most_frequent(),
            Form::Values => {
                let (values, counts) = self.sorted()?;
                self.list(vec![values, Arc::new(UInt64Array::from(counts))], false)
            }
            Form::Bins(bins) => self.binned(bins.unwrap_or(10)),
        }
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let (values, counts) = self.sorted()?;
        let one = |values: ArrayRef| -> Result<ScalarValue> {
            let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
            let offsets = OffsetBuffer::from_lengths([values.len()]);
            Ok(ScalarValue::List(Arc::new(ListArray::try_new(field, offsets, values, None)?)))
        };
        let bins = if let Form::Bins(bins) = self.form { bins } else { None };
        Ok(vec![one(values)?, one(Arc::new(UInt64Array::from(counts)))?, ScalarValue::Int64(bins)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.note_bins(&states[2])?;
        let (values, counts) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for (values, times) in values.iter().zip(counts.iter()).filter_map(|(v, c)| Some((v?, c?))) {
            let times = times.as_primitive::<UInt64Type>();
            self.each(&values, |counts, row, at| *counts.entry(row).or_default() += times.value(at))?;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.converter.size() + self.bytes
    }
}
