//! Rows as numbers: two rows are equal if the same columns are null and their numbers are equal.

use datafusion::arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BooleanArray, StringViewArray, UInt32Array, make_array, new_null_array,
};
use datafusion::arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{ArrowNativeType, DataType, SchemaRef};
use datafusion::common::{Result, internal_err};
use datafusion::execution::memory_pool::MemoryReservation;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// More columns are left to DataFusion, since every combination of null columns has tables of its own.
const MAX_COLUMNS: usize = 4;
/// Texts are numbered with this many bits. More different texts are left to DataFusion.
const TEXT_BITS: u32 = 16;
/// What a text takes in memory beside its bytes: entries of two hash tables, and two headers.
const TEXT_BYTES: usize = 160;

/// A number of 64 or 128 bits.
pub(crate) trait Key: Copy + Eq + fmt::Debug + Send + Sync + 'static {
    const BITS: u32;
    const ZERO: Self;
    const MAX: Self;

    fn with(self, code: u64, shift: u32) -> Self;

    fn code(self, shift: u32) -> u64;

    fn hash(self, seeds: (u64, u64)) -> u64;
}

/// The two halves of a product, combined: each bit depends on all of both.
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Key for u64 {
    const BITS: u32 = 64;
    const ZERO: Self = 0;
    const MAX: Self = u64::MAX;

    fn with(self, code: u64, shift: u32) -> Self {
        self | code << shift
    }

    fn code(self, shift: u32) -> u64 {
        self >> shift
    }

    fn hash(self, (one, other): (u64, u64)) -> u64 {
        folded(self ^ one, other | 1)
    }
}

impl Key for u128 {
    const BITS: u32 = 128;
    const ZERO: Self = 0;
    const MAX: Self = u128::MAX;

    fn with(self, code: u64, shift: u32) -> Self {
        self | u128::from(code) << shift
    }

    fn code(self, shift: u32) -> u64 {
        (self >> shift) as u64
    }

    fn hash(self, (one, other): (u64, u64)) -> u64 {
        folded(self as u64 ^ one, (self >> 64) as u64 ^ other)
    }
}

/// How a column becomes a part of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Boolean,
    Bytes(usize),
    /// Without the sign of zero.
    Float(usize),
    Text,
}

impl Form {
    fn of(data_type: &DataType) -> Option<Form> {
        match data_type {
            DataType::Boolean => Some(Form::Boolean),
            DataType::Utf8View => Some(Form::Text),
            DataType::Float32 => Some(Form::Float(4)),
            DataType::Float64 => Some(Form::Float(8)),
            DataType::Float16 | DataType::Interval(_) => None,
            other => other.primitive_width().filter(|width| *width <= 8).map(Form::Bytes),
        }
    }

    fn bits(self) -> u32 {
        match self {
            Form::Boolean => 1,
            Form::Bytes(width) | Form::Float(width) => 8 * width as u32,
            Form::Text => TEXT_BITS,
        }
    }
}

/// The columns of a row, from the lowest bits on.
#[derive(Debug)]
pub(crate) struct Layout {
    columns: Vec<(Form, u32, DataType)>,
    bits: u32,
}

/// The rows of a batch.
pub(crate) struct Rows<K> {
    pub(crate) keys: Vec<K>,
    /// A bit for each column that is null. Empty if no column is.
    pub(crate) nulls: Vec<u8>,
}

impl<K> Default for Rows<K> {
    fn default() -> Self {
        Rows { keys: Vec::new(), nulls: Vec::new() }
    }
}

impl Layout {
    /// For the first columns of a schema; `None` if a type is not supported, or if the columns need more than 128 bits together.
    pub(crate) fn of(schema: &SchemaRef, columns: usize) -> Option<Layout> {
        if columns == 0 || columns > MAX_COLUMNS {
            return None;
        }
        let mut bits = 0;
        let forms = schema.fields().iter().take(columns).map(|field| {
            let form = Form::of(field.data_type())?;
            let shift = bits;
            bits += form.bits();
            Some((form, shift, field.data_type().clone()))
        });
        let columns = forms.collect::<Option<Vec<_>>>()?;
        (bits <= u128::BITS).then_some(Layout { columns, bits })
    }

    pub(super) fn fits<K: Key>(&self) -> bool {
        self.bits <= K::BITS
    }

    /// The number of combinations of null columns.
    pub(super) fn null_cases(&self) -> usize {
        1 << self.columns.len()
    }

    /// Converts rows to keys; `false` if there are too many different texts, or no memory for them.
    pub(crate) fn encode<K: Key>(
        &self,
        columns: &[ArrayRef],
        texts: &mut KnownTexts,
        rows: &mut Rows<K>,
    ) -> Result<bool> {
        let count = columns.first().map_or(0, |column| column.len());
        rows.keys.clear();
        rows.keys.resize(count, K::ZERO);
        rows.nulls.clear();
        if columns.iter().any(|column| column.null_count() > 0) {
            rows.nulls.resize(count, 0);
        }
        for (at, (column, (form, shift, _))) in columns.iter().zip(&self.columns).enumerate() {
            let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
            if let Some(nulls) = nulls {
                let bit = 1 << at;
                rows.nulls.iter_mut().zip(nulls).for_each(|(mask, valid)| *mask |= if valid { 0 } else { bit });
            }
            let keys = rows.keys.as_mut_slice();
            match form {
                Form::Boolean => {
                    put(keys, *shift, nulls, column.as_boolean().values().iter().map(u64::from));
                }
                Form::Text => {
                    if !texts.put(column.as_string_view(), keys, *shift) {
                        return Ok(false);
                    }
                }
                Form::Bytes(1) => put(keys, *shift, nulls, values::<u8>(column)?.iter().map(|v| u64::from(*v))),
                Form::Bytes(2) => put(keys, *shift, nulls, values::<u16>(column)?.iter().map(|v| u64::from(*v))),
                Form::Bytes(4) => put(keys, *shift, nulls, values::<u32>(column)?.iter().map(|v| u64::from(*v))),
                Form::Bytes(8) => put(keys, *shift, nulls, values::<u64>(column)?.iter().copied()),
                Form::Float(4) => {
                    let unsigned = |v: &u32| u64::from(if v << 1 == 0 { 0 } else { *v });
                    put(keys, *shift, nulls, values::<u32>(column)?.iter().map(unsigned));
                }
                Form::Float(8) => {
                    let unsigned = |v: &u64| if v << 1 == 0 { 0 } else { *v };
                    put(keys, *shift, nulls, values::<u64>(column)?.iter().map(unsigned));
                }
                Form::Bytes(width) | Form::Float(width) => return internal_err!("a number of {width} bytes"),
            }
        }
        Ok(true)
    }

    /// Converts keys back to columns. `nulls` has a bit for each column that is null in all of these rows.
    pub(super) fn decode<K: Key>(&self, keys: &[K], nulls: u8, texts: &StringViewArray) -> Result<Vec<ArrayRef>> {
        let column = |(at, (form, shift, data_type)): (usize, &(Form, u32, DataType))| {
            if nulls & 1 << at != 0 {
                return Ok(new_null_array(data_type, keys.len()));
            }
            let codes = keys.iter().map(|key| key.code(*shift));
            let buffer = match form {
                Form::Boolean => {
                    return Ok(Arc::new(codes.map(|c| Some(c & 1 == 1)).collect::<BooleanArray>()) as ArrayRef);
                }
                Form::Text => {
                    let numbers = codes.map(|code| u32::from(code as u16)).collect::<Vec<u32>>();
                    return Ok(take(texts, &UInt32Array::from(numbers), None)?);
                }
                Form::Bytes(1) => Buffer::from_vec(codes.map(|code| code as u8).collect::<Vec<u8>>()),
                Form::Bytes(2) => Buffer::from_vec(codes.map(|code| code as u16).collect::<Vec<u16>>()),
                Form::Bytes(4) | Form::Float(4) => {
                    Buffer::from_vec(codes.map(|code| code as u32).collect::<Vec<u32>>())
                }
                Form::Bytes(_) | Form::Float(_) => Buffer::from_vec(codes.collect::<Vec<u64>>()),
            };
            Ok(make_array(ArrayData::builder(data_type.clone()).len(keys.len()).add_buffer(buffer).build()?))
        };
        self.columns.iter().enumerate().map(column).collect()
    }
}

/// Adds a column to the keys. Nulls add nothing.
fn put<K: Key>(keys: &mut [K], shift: u32, nulls: Option<&NullBuffer>, codes: impl Iterator<Item = u64>) {
    match nulls {
        None => keys.iter_mut().zip(codes).for_each(|(key, code)| *key = key.with(code, shift)),
        Some(nulls) => keys.iter_mut().zip(codes).zip(nulls).for_each(|((key, code), valid)| {
            *key = key.with(if valid { code } else { 0 }, shift);
        }),
    }
}

/// The values of a column as they are stored, also where it is null.
fn values<T: ArrowNativeType>(column: &ArrayRef) -> Result<ScalarBuffer<T>> {
    let data = column.to_data();
    match data.buffers() {
        [buffer] => Ok(ScalarBuffer::new(buffer.clone(), data.offset(), data.len())),
        buffers => internal_err!("a column of numbers with {} buffers", buffers.len()),
    }
}

/// The texts of all threads and columns.
#[derive(Debug)]
pub(crate) struct Texts {
    numbered: Mutex<Numbered>,
    reservation: MemoryReservation,
    /// Whether texts get numbers although there is no memory left: then operators that can use files have less.
    insists: bool,
    all: OnceLock<StringViewArray>,
}

#[derive(Debug, Default)]
struct Numbered {
    numbers: HashMap<Arc<str>, u16>,
    texts: Vec<Arc<str>>,
}

impl Texts {
    pub(crate) fn new(reservation: MemoryReservation) -> Self {
        Texts { numbered: Mutex::default(), reservation, insists: false, all: OnceLock::new() }
    }

    /// For few texts, which get numbers although there is no memory left.
    pub(super) fn of_few(reservation: MemoryReservation) -> Self {
        Texts { insists: true, ..Texts::new(reservation) }
    }

    /// The number of a text; `None` if there are none left, or no memory for the text.
    fn number(&self, text: &str) -> Option<(Arc<str>, u16)> {
        let mut guard = self.numbered.lock().unwrap_or_else(PoisonError::into_inner);
        let Numbered { numbers, texts } = &mut *guard;
        if let Some((known, number)) = numbers.get_key_value(text) {
            return Some((Arc::clone(known), *number));
        }
        let number = u16::try_from(texts.len()).ok()?;
        // Once here, and once in the array of all.
        let bytes = 2 * text.len() + TEXT_BYTES;
        match self.insists {
            true => self.reservation.grow(bytes),
            false => self.reservation.try_grow(bytes).ok()?,
        }
        let text: Arc<str> = Arc::from(text);
        texts.push(Arc::clone(&text));
        numbers.insert(Arc::clone(&text), number);
        Some((text, number))
    }

    /// What the texts take in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.reservation.size()
    }

    /// All texts in the order of their numbers, once there are no more.
    pub(super) fn all(&self) -> &StringViewArray {
        self.all.get_or_init(|| self.so_far())
    }

    /// The texts in the order of their numbers. There may be more later.
    pub(super) fn so_far(&self) -> StringViewArray {
        let guard = self.numbered.lock().unwrap_or_else(PoisonError::into_inner);
        StringViewArray::from_iter_values(&guard.texts)
    }
}

/// The texts that one thread has met.
#[derive(Debug)]
pub(crate) struct KnownTexts {
    all: Arc<Texts>,
    numbers: HashMap<Arc<str>, u16>,
}

impl KnownTexts {
    pub(crate) fn new(all: Arc<Texts>) -> Self {
        KnownTexts { all, numbers: HashMap::new() }
    }

    fn number(&mut self, text: &str) -> Option<u16> {
        if let Some(number) = self.numbers.get(text) {
            return Some(*number);
        }
        let (text, number) = self.all.number(text)?;
        self.numbers.insert(text, number);
        Some(number)
    }

    /// Adds a column of texts to the keys; `false` if there are too many different ones, or no memory for them.
    pub(super) fn put<K: Key>(&mut self, column: &StringViewArray, keys: &mut [K], shift: u32) -> bool {
        let views = column.views();
        let mut at = 0;
        while at < views.len() {
            // Rows with equal views have equal texts, and runs of rows often share one view.
            let same = |other: &usize| views[*other] == views[at] && column.is_null(*other) == column.is_null(at);
            let end = (at + 1..views.len()).find(|other| !same(other)).unwrap_or(views.len());
            if !column.is_null(at) {
                let Some(number) = self.number(column.value(at)) else { return false };
                keys[at..end].iter_mut().for_each(|key| *key = key.with(u64::from(number), shift));
            }
            at = end;
        }
        true
    }
}
