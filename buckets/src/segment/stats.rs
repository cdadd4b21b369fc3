//! Statistics of numeric fields per bucket, which answer some queries without reading the field.

use super::accumulator::{Accumulator, DoubleAccumulator, IntAccumulator};
use super::decimals::{decimal_to_double, power, valid_runs};
use super::varint::{self, Cursor};
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{DataType, Decimal32Type, Decimal64Type, Float64Type, Int64Type};
use std::ops::Range;

/// Numbers of an int64 or a double field.
#[derive(Debug, Clone, PartialEq)]
pub enum Numbers {
    /// Of an int64 field.
    Int(Vec<i64>),
    /// Of a double field.
    Double(Vec<f64>),
}

impl Numbers {
    /// A number as a double. Integers beyond 2^53 are rounded.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "asked for of fields of doubles, whose whole numbers are exact")]
    pub fn double(&self, entry: usize) -> Option<f64> {
        match self {
            Numbers::Int(values) => values.get(entry).map(|v| *v as f64),
            Numbers::Double(values) => values.get(entry).copied(),
        }
    }
}

/// Statistics of one numeric field: an entry per bucket, or one for the whole segment where buckets are too small to
/// pay for their own. Where `counts` is 0, the other values have no meaning.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldStats {
    /// Whether there is an entry per bucket (by ordinal) rather than one for the whole segment.
    pub per_bucket: bool,
    /// Values that are not null.
    pub counts: Vec<u64>,
    /// Nulls.
    pub nulls: Vec<u64>,
    /// The least value; doubles in total order (NaN above infinity, -0.0 below 0.0).
    pub min: Numbers,
    /// The greatest value, in the same order.
    pub max: Numbers,
    /// The sums of int64 fields, exact.
    pub int_sums: Vec<i128>,
    /// The sums of double fields; exact before the last rounding where the file holds decimals. Of int64 fields too.
    pub sums: Vec<f64>,
    /// The value of the first row in time.
    pub first: Numbers,
    /// Whether it is not null.
    pub first_valid: Vec<bool>,
    /// The value of the last row in time.
    pub last: Numbers,
    /// Whether it is not null.
    pub last_valid: Vec<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Int,
    Decimal(u8),
    Double,
}

/// One entry under construction. Integers and decimals use `k`, doubles use `d`.
#[derive(Clone)]
struct Entry {
    rows: u64,
    count: u64,
    k: [i64; 4],
    k_sum: i128,
    d: [f64; 4],
    d_sum: f64,
    first_valid: bool,
    last_valid: bool,
}

const MIN: usize = 0;
const MAX: usize = 1;
const FIRST: usize = 2;
const LAST: usize = 3;

impl Entry {
    const EMPTY: Entry = Entry {
        rows: 0,
        count: 0,
        k: [0; 4],
        k_sum: 0,
        d: [0.0; 4],
        d_sum: 0.0,
        first_valid: false,
        last_valid: false,
    };

    fn add_k(&mut self, value: Option<i64>) {
        if let Some(k) = value {
            if self.count == 0 {
                (self.k[MIN], self.k[MAX]) = (k, k);
            }
            self.k[MIN] = self.k[MIN].min(k);
            self.k[MAX] = self.k[MAX].max(k);
            self.k_sum += i128::from(k);
            if self.rows == 0 {
                self.k[FIRST] = k;
            }
            self.k[LAST] = k;
        }
        self.add(value.is_some());
    }

    /// Rows of integers of at most 32 bits: accumulated together, then added to the entry at once.
    fn add_narrow(&mut self, column: &PrimitiveArray<Decimal32Type>) {
        if column.is_empty() {
            return;
        }
        let k = |row: usize| i64::from(column.value(row));
        let (mut min, mut max, mut sum) = (i32::MAX, i32::MIN, 0_i64);
        let runs = valid_runs(column);
        for &(from, to) in &runs {
            let values = &column.values()[from..to];
            min = values.iter().fold(min, |least, v| least.min(*v));
            max = values.iter().fold(max, |greatest, v| greatest.max(*v));
            sum += values.iter().map(|v| i64::from(*v)).sum::<i64>();
        }
        let count = (column.len() - column.null_count()) as u64;
        let (first, last) = (0, column.len() - 1);
        if count > 0 {
            let some = self.count > 0;
            self.k[MIN] = if some { self.k[MIN].min(i64::from(min)) } else { i64::from(min) };
            self.k[MAX] = if some { self.k[MAX].max(i64::from(max)) } else { i64::from(max) };
            self.k_sum += i128::from(sum);
            if self.rows == 0 && column.is_valid(first) {
                self.k[FIRST] = k(first);
            }
            self.k[LAST] = k(runs.last().map_or(last, |run| run.1 - 1));
        }
        if self.rows == 0 {
            self.first_valid = column.is_valid(first);
        }
        self.last_valid = column.is_valid(last);
        self.rows += column.len() as u64;
        self.count += count;
    }

    fn add_d(&mut self, value: Option<f64>) {
        if let Some(d) = value {
            if self.count == 0 || d.total_cmp(&self.d[MIN]).is_lt() {
                self.d[MIN] = d;
            }
            if self.count == 0 || d.total_cmp(&self.d[MAX]).is_gt() {
                self.d[MAX] = d;
            }
            self.d_sum += d;
            if self.rows == 0 {
                self.d[FIRST] = d;
            }
            self.d[LAST] = d;
        }
        self.add(value.is_some());
    }

    fn add(&mut self, valid: bool) {
        if self.rows == 0 {
            self.first_valid = valid;
        }
        self.last_valid = valid;
        self.rows += 1;
        self.count += u64::from(valid);
    }
}

/// Gathers the statistics of one field while a segment is written.
pub(crate) struct StatsBuilder {
    pub(crate) name: String,
    kind: Kind,
    entries: Vec<Entry>,
}

impl StatsBuilder {
    /// For a column of a physical type; `None` if it has no statistics.
    pub(crate) fn new(name: &str, physical: &DataType, entries: usize) -> Option<StatsBuilder> {
        let kind = match physical {
            DataType::Int64 => Kind::Int,
            DataType::Float64 => Kind::Double,
            DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) => Kind::Decimal(u8::try_from(*scale).ok()?),
            _ => return None,
        };
        Some(StatsBuilder { name: name.to_owned(), kind, entries: vec![Entry::EMPTY; entries] })
    }

    /// Adds rows of a column to an entry; rows are given in order.
    pub(crate) fn add(&mut self, entry: usize, column: &ArrayRef, rows: Range<usize>) {
        let Some(entry) = self.entries.get_mut(entry) else { return };
        match column.data_type() {
            DataType::Int64 => {
                let column = column.as_primitive::<Int64Type>();
                rows.for_each(|row| entry.add_k(column.is_valid(row).then(|| column.value(row))));
            }
            DataType::Decimal32(..) => {
                entry.add_narrow(&column.as_primitive::<Decimal32Type>().slice(rows.start, rows.len()));
            }
            DataType::Decimal64(..) => {
                let column = column.as_primitive::<Decimal64Type>();
                rows.for_each(|row| entry.add_k(column.is_valid(row).then(|| column.value(row))));
            }
            DataType::Float64 => {
                let column = column.as_primitive::<Float64Type>();
                rows.for_each(|row| entry.add_d(column.is_valid(row).then(|| column.value(row))));
            }
            _ => {}
        }
    }

    /// The entries column by column: differences to the least value, which are small.
    #[expect(clippy::cast_sign_loss, reason = "differences to the least value are not negative; they wrap in 64 bits")]
    pub(crate) fn finish(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.kind {
            Kind::Int => out.extend([0, 0]),
            Kind::Decimal(scale) => out.extend([1, scale]),
            Kind::Double => out.extend([2, 0]),
        }
        let entries = &self.entries;
        entries.iter().for_each(|e| varint::put_u64(&mut out, e.rows));
        entries.iter().for_each(|e| varint::put_u64(&mut out, e.rows - e.count));
        entries.iter().for_each(|e| out.push(u8::from(e.first_valid) | u8::from(e.last_valid) << 1));
        if self.kind == Kind::Double {
            for which in [MIN, MAX, FIRST, LAST] {
                entries.iter().for_each(|e| out.extend(e.d[which].to_le_bytes()));
            }
            entries.iter().for_each(|e| out.extend(e.d_sum.to_le_bytes()));
            return out;
        }
        let mut before = 0_i64;
        for entry in entries {
            varint::put_i64(&mut out, entry.k[MIN].wrapping_sub(before));
            before = entry.k[MIN];
        }
        // Without a first value any number will do: the least costs one byte.
        let is_there = |e: &Entry, which| which != FIRST || e.first_valid;
        for which in [MAX, FIRST, LAST] {
            let value = |e: &Entry| if is_there(e, which) { e.k[which] } else { e.k[MIN] };
            entries.iter().for_each(|e| varint::put_u64(&mut out, value(e).wrapping_sub(e.k[MIN]) as u64));
        }
        for entry in entries {
            let above = entry.k_sum - i128::from(entry.count) * i128::from(entry.k[MIN]);
            varint::put(&mut out, above as u128);
        }
        out
    }
}

impl FieldStats {
    /// The aggregate of an entry's values, if the field holds integers.
    #[must_use]
    pub fn ints(&self, entry: usize) -> Option<IntAccumulator> {
        let (Numbers::Int(min), Numbers::Int(max)) = (&self.min, &self.max) else { return None };
        let sum = *self.int_sums.get(entry)?;
        Some(Accumulator { count: *self.counts.get(entry)?, min: *min.get(entry)?, max: *max.get(entry)?, sum })
    }

    /// The aggregate of an entry's values as doubles.
    #[must_use]
    pub fn doubles(&self, entry: usize) -> Option<DoubleAccumulator> {
        let (count, sum) = (*self.counts.get(entry)?, *self.sums.get(entry)?);
        Some(Accumulator { count, min: self.min.double(entry)?, max: self.max.double(entry)?, sum })
    }

    #[expect(clippy::cast_possible_wrap, reason = "undoes the wrapping differences of the writer")]
    pub(crate) fn decode(bytes: &[u8], entries: usize, per_bucket: bool) -> Result<FieldStats, String> {
        let mut cursor = Cursor::new(bytes);
        let kind = match (cursor.byte()?, cursor.byte()?) {
            (0, _) => Kind::Int,
            (1, scale) if scale <= 18 => Kind::Decimal(scale),
            (2, _) => Kind::Double,
            (kind, _) => return Err(format!("unknown kind {kind} of statistics")),
        };
        if entries > bytes.len() {
            return Err("fewer entries than there should be".to_owned());
        }
        let rows = list(entries, || cursor.u64())?;
        let nulls = list(entries, || cursor.u64())?;
        let counts: Vec<u64> = rows.iter().zip(&nulls).map(|(rows, nulls)| rows.saturating_sub(*nulls)).collect();
        let flags = cursor.take(entries)?;
        let first_valid = flags.iter().map(|f| f & 1 != 0).collect();
        let last_valid = flags.iter().map(|f| f & 2 != 0).collect();
        if kind == Kind::Double {
            let mut doubles = || {
                let raw = cursor.take(entries * 8)?;
                let one = |c: &[u8]| f64::from_le_bytes(c.try_into().unwrap_or_default());
                Ok::<_, String>(raw.chunks_exact(8).map(one).collect::<Vec<_>>())
            };
            let [min, max, first, last] = [doubles()?, doubles()?, doubles()?, doubles()?].map(Numbers::Double);
            let sums = doubles()?;
            let int_sums = Vec::new();
            return Ok(FieldStats {
                per_bucket,
                counts,
                nulls,
                min,
                max,
                int_sums,
                sums,
                first,
                first_valid,
                last,
                last_valid,
            });
        }
        let mut before = 0_i64;
        let min = list(entries, || {
            before = before.wrapping_add(cursor.i64()?);
            Ok(before)
        })?;
        let mut above = || {
            let mut least = min.iter();
            list(entries, || Ok(least.next().copied().unwrap_or(0).wrapping_add(cursor.u64()? as i64)))
        };
        let (max, first, last) = (above()?, above()?, above()?);
        let mut at = 0;
        let k_sums = list(entries, || {
            let base = i128::from(counts[at]).wrapping_mul(i128::from(min[at]));
            at += 1;
            Ok(base.wrapping_add(cursor.u128()? as i128))
        })?;
        let scale = if let Kind::Decimal(scale) = kind { scale } else { 0 };
        #[expect(clippy::cast_precision_loss, reason = "the sum is exact up to here")]
        let sums = k_sums.iter().map(|k| *k as f64 / power(scale)).collect();
        let [min, max, first, last] = [min, max, first, last].map(|k| numbers(kind, k));
        let int_sums = if kind == Kind::Int { k_sums } else { Vec::new() };
        Ok(FieldStats { per_bucket, counts, nulls, min, max, int_sums, sums, first, first_valid, last, last_valid })
    }
}

fn numbers(kind: Kind, k: Vec<i64>) -> Numbers {
    match kind {
        Kind::Decimal(scale) => Numbers::Double(k.into_iter().map(|k| decimal_to_double(k, scale)).collect()),
        _ => Numbers::Int(k),
    }
}

fn list<T>(count: usize, mut next: impl FnMut() -> Result<T, String>) -> Result<Vec<T>, String> {
    (0..count).map(|_| next()).collect()
}
