//! How columns are stored: doubles that are short decimals as whole numbers with a scale, which pack far better and which
//! every other reader shows as the decimals they are. What comes back is the same to the bit.

use super::file_types::FileType;
use crate::schema::FieldType;
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal32Array, Decimal64Array, Float64Array,
    ListArray, NullBufferBuilder, PrimitiveArray, StructArray,
};
use arrow::datatypes::{DataType, Decimal32Type, Decimal64Type, Field, Fields, Float64Type};
use arrow::error::ArrowError;
use std::sync::Arc;

const POWERS: [f64; 19] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18];
/// More digits after the point are no measured decimals but computed values.
pub(super) const SCALE_MAX: u8 = 6;
/// Below this every whole number and its division by a power of ten is exactly the nearest double.
const WHOLE_MAX: f64 = 1e15;
/// The digits that decimals have at most, all below [`WHOLE_MAX`].
pub(super) const DIGITS_MAX: u8 = 15;
/// What DECIMAL(9) holds.
const NARROW_MAX: f64 = 999_999_999.0;
/// The digits of that.
pub(super) const NARROW_DIGITS: u8 = 9;

pub(crate) fn power(scale: u8) -> f64 {
    POWERS.get(usize::from(scale)).copied().unwrap_or(f64::INFINITY)
}

#[expect(clippy::cast_precision_loss, reason = "stored whole numbers are below 10^15")]
pub(crate) fn decimal_to_double(k: i64, scale: u8) -> f64 {
    k as f64 / power(scale)
}

/// How many digits before the point numbers up to `greatest` have, as far as powers of ten are known here.
pub(super) fn whole_digits(greatest: f64) -> u8 {
    let digits = POWERS.iter().take_while(|power| greatest >= **power).count();
    u8::try_from(digits).unwrap_or(u8::MAX)
}

/// How one column is stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Physical {
    /// As it is in memory.
    Same,
    /// An object without members, which Parquet has no column for: true where it is not null.
    Presence,
    /// A double as a decimal: digits after the point, and whether it takes 64 bits.
    Decimal { scale: u8, wide: bool },
    /// A list of such items.
    List(Box<Physical>),
    /// An object of such members.
    Object(Vec<Physical>),
}

impl Physical {
    /// How the values of a field are stored in a column of type `file`, which holds them.
    pub(crate) fn of(ty: &FieldType, file: &FileType) -> Physical {
        match (ty, file) {
            (FieldType::Double, FileType::Decimal { whole, scale }) => {
                Physical::Decimal { scale: *scale, wide: whole + scale > NARROW_DIGITS }
            }
            (FieldType::List(item), FileType::List(file)) => match Physical::of(item, file) {
                Physical::Same => Physical::Same,
                item => Physical::List(Box::new(item)),
            },
            (FieldType::Object(members), _) if members.is_empty() => Physical::Presence,
            (FieldType::Object(members), FileType::Object(files)) => {
                let file = |name: &str| files.iter().find(|(n, _)| n == name).map(|(_, file)| file);
                let member =
                    |(name, ty): &(String, FieldType)| Physical::of(ty, file(name).unwrap_or(&FileType::Unknown));
                let members: Vec<Physical> = members.iter().map(member).collect();
                if members.iter().all(|m| *m == Physical::Same) { Physical::Same } else { Physical::Object(members) }
            }
            _ => Physical::Same,
        }
    }

    /// Whether it is a decimal of 32 bits.
    pub(crate) fn is_narrow(&self) -> bool {
        matches!(self, Physical::Decimal { wide: false, .. })
    }

    /// Brings a column into its stored form.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the range was checked when the decimal was chosen; nulls may hold anything"
    )]
    pub(crate) fn store(&self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Physical::Same => array.clone(),
            Physical::Presence => {
                Arc::new(BooleanArray::new(arrow::buffer::BooleanBuffer::new_set(array.len()), array.nulls().cloned()))
            }
            Physical::Decimal { scale, wide: false } => {
                let power = power(*scale);
                let ks: Decimal32Array = array
                    .as_primitive::<Float64Type>()
                    .unary::<_, Decimal32Type>(|v| nearest(v * power) as i32)
                    .with_precision_and_scale(9, scale.cast_signed())?;
                Arc::new(ks)
            }
            Physical::Decimal { scale, wide: true } => {
                let power = power(*scale);
                let ks: Decimal64Array = array
                    .as_primitive::<Float64Type>()
                    .unary::<_, Decimal64Type>(|v| nearest(v * power))
                    .with_precision_and_scale(18, scale.cast_signed())?;
                Arc::new(ks)
            }
            Physical::List(item) => {
                let list = array.as_list::<i32>();
                let values = item.store(list.values())?;
                let field = Arc::new(Field::new("item", values.data_type().clone(), true));
                Arc::new(ListArray::try_new(field, list.offsets().clone(), values, list.nulls().cloned())?)
            }
            Physical::Object(members) => {
                let object = array.as_struct();
                let columns = members
                    .iter()
                    .zip(object.columns())
                    .map(|(member, column)| member.store(column))
                    .collect::<Result<Vec<_>, _>>()?;
                let fields: Fields = object
                    .fields()
                    .iter()
                    .zip(&columns)
                    .map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true))
                    .collect();
                Arc::new(StructArray::try_new(fields, columns, object.nulls().cloned())?)
            }
        })
    }
}

/// Brings a stored column back into its canonical form.
pub(crate) fn restore(array: &ArrayRef, ty: &FieldType) -> Result<ArrayRef, ArrowError> {
    match (ty, array.data_type()) {
        (FieldType::Double, DataType::Decimal32(_, scale)) => {
            let power = power(scale_of(*scale)?);
            let doubles: Float64Array =
                array.as_primitive::<Decimal32Type>().unary::<_, Float64Type>(|k| f64::from(k) / power);
            Ok(Arc::new(doubles))
        }
        (FieldType::Double, DataType::Decimal64(_, scale)) => {
            let scale = scale_of(*scale)?;
            let doubles: Float64Array =
                array.as_primitive::<Decimal64Type>().unary::<_, Float64Type>(|k| decimal_to_double(k, scale));
            Ok(Arc::new(doubles))
        }
        (FieldType::List(item), DataType::List(_)) => {
            let list = array.as_list::<i32>();
            let values = restore(list.values(), item)?;
            let field = Arc::new(Field::new("item", values.data_type().clone(), true));
            Ok(Arc::new(ListArray::try_new(field, list.offsets().clone(), values, list.nulls().cloned())?))
        }
        (FieldType::Object(members), DataType::Boolean) if members.is_empty() => {
            Ok(Arc::new(StructArray::new_empty_fields(array.len(), array.nulls().cloned())))
        }
        (FieldType::Object(members), DataType::Struct(_)) => {
            let object = array.as_struct();
            let mut fields = Vec::with_capacity(members.len());
            let mut columns = Vec::with_capacity(members.len());
            for (name, ty) in members {
                let column = object
                    .column_by_name(name)
                    .ok_or_else(|| ArrowError::SchemaError(format!("member '{name}' is not in the file")))?;
                let column = restore(column, ty)?;
                fields.push(Field::new(name, column.data_type().clone(), true));
                columns.push(column);
            }
            Ok(Arc::new(StructArray::try_new(fields.into(), columns, object.nulls().cloned())?))
        }
        _ => Ok(array.clone()),
    }
}

fn scale_of(scale: i8) -> Result<u8, ArrowError> {
    u8::try_from(scale)
        .ok()
        .filter(|s| usize::from(*s) < POWERS.len())
        .ok_or_else(|| ArrowError::SchemaError(format!("decimal scale {scale} was never written")))
}

/// The form to ask the Parquet reader for: decimals in the width they are stored in, texts as views.
pub(crate) fn read_hint(ty: &DataType) -> DataType {
    match ty {
        DataType::Decimal128(precision, scale) if *precision <= 9 => DataType::Decimal32(*precision, *scale),
        DataType::Decimal128(precision, scale) if *precision <= 18 => DataType::Decimal64(*precision, *scale),
        DataType::Utf8 => DataType::Utf8View,
        DataType::List(item) => DataType::List(Arc::new(hinted(item))),
        DataType::Struct(members) => DataType::Struct(members.iter().map(|m| hinted(m)).collect()),
        other => other.clone(),
    }
}

pub(crate) fn hinted(field: &Field) -> Field {
    field.clone().with_data_type(read_hint(field.data_type()))
}

/// All pieces of a column of doubles as one column of decimals of at least `scale` digits after the point, checked and
/// brought into that form in one go, and its narrowest type. `None` if there is no value, or one that is no decimal of nine
/// digits: [`FileType::of`] has the last word then.
pub(crate) fn join_decimals(pieces: &[ArrayRef], scale: u8) -> Option<(ArrayRef, FileType)> {
    let rows = pieces.iter().map(|piece| piece.len()).sum();
    let mut joined = Narrow { ks: Vec::with_capacity(rows), scale };
    let mut nulls = NullBufferBuilder::new(rows);
    let mut any = false;
    for piece in pieces {
        let doubles = piece.as_primitive_opt::<Float64Type>()?;
        match doubles.nulls() {
            Some(some) => nulls.append_buffer(some),
            None => nulls.append_n_non_nulls(doubles.len()),
        }
        let start = joined.ks.len();
        for (from, to) in valid_runs(doubles) {
            any = true;
            joined.ks.resize(start + from, 0);
            if !joined.append(&doubles.values()[from..to]) {
                return None;
            }
        }
        joined.ks.resize(start + doubles.len(), 0);
    }
    let greatest = joined.ks.iter().fold(0, |greatest: u32, k| greatest.max(k.unsigned_abs()));
    let found = FileType::decimal_up_to(f64::from(greatest) / power(joined.scale), joined.scale);
    let ks = Decimal32Array::new(joined.ks.into(), nulls.finish());
    let ks = ks.with_precision_and_scale(9, joined.scale.cast_signed()).ok()?;
    any.then(|| (Arc::new(ks) as ArrayRef, found))
}

/// Where values are, as ranges of rows.
pub(crate) fn valid_runs<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>) -> Vec<(usize, usize)> {
    match array.nulls() {
        Some(nulls) => nulls.valid_slices().collect(),
        None if array.is_empty() => Vec::new(),
        None => vec![(0, array.len())],
    }
}

/// Doubles as whole numbers of at most nine digits with one scale for all, which grows as finer ones come.
#[derive(Debug, Default)]
pub(crate) struct Narrow {
    pub(crate) ks: Vec<i32>,
    pub(crate) scale: u8,
}

impl Narrow {
    /// Appends values; false if one of them is no such decimal, or those before it do not hold its scale.
    #[expect(clippy::cast_possible_truncation, reason = "what is kept was checked to have nine digits")]
    pub(crate) fn append(&mut self, values: &[f64]) -> bool {
        for some in values.chunks(64) {
            loop {
                let power = power(self.scale);
                let mut all = true;
                let start = self.ks.len();
                self.ks.extend(some.iter().map(|v| {
                    let k = v * power;
                    // A whole number has no negative zero, so the way over it loses the sign, as the stored form does.
                    all &= (k.abs() <= NARROW_MAX) & ((((k + ROUNDER) - ROUNDER) / power).to_bits() == v.to_bits());
                    nearest(k) as i32
                }));
                if all {
                    break;
                }
                self.ks.truncate(start);
                if !self.refine() {
                    return false;
                }
            }
        }
        true
    }

    /// Goes on with a digit more.
    fn refine(&mut self) -> bool {
        const MOST: u32 = 99_999_999;
        if self.scale == SCALE_MAX || self.ks.iter().any(|k| k.unsigned_abs() > MOST) {
            return false;
        }
        self.ks.iter_mut().for_each(|k| *k *= 10);
        self.scale += 1;
        true
    }
}

/// Whether doubles are decimals, and how many digits after the point they need.
#[derive(Debug, Default)]
pub(crate) struct Decimals {
    scale: u8,
    greatest: f64,
    any: bool,
}

impl Decimals {
    /// Looks at more values; false if there is one among them that is no decimal.
    pub(crate) fn look_at(&mut self, mut values: &[f64]) -> bool {
        self.any |= !values.is_empty();
        self.greatest = values.iter().fold(self.greatest, |greatest, v| greatest.max(v.abs()));
        // A value that fits one scale fits a finer one too: those before the first that does not are done with.
        while let Some(at) = first_misfit(values, self.scale) {
            self.scale += 1;
            if self.scale > SCALE_MAX {
                return false;
            }
            values = &values[at..];
        }
        true
    }

    /// Digits after the point.
    pub(super) fn digits(&self) -> u8 {
        self.scale
    }

    /// The greatest absolute value.
    pub(super) fn greatest(&self) -> f64 {
        self.greatest
    }

    /// Digits after the point, if there was a value. One that fits one scale fits a finer one too, unless it grows out of
    /// the exact range there.
    pub(crate) fn scale(&self) -> Option<u8> {
        (self.any && self.greatest * power(self.scale) <= WHOLE_MAX).then_some(self.scale)
    }
}

/// Looks at many values before it branches, which is what makes it quick.
fn first_misfit(values: &[f64], scale: u8) -> Option<usize> {
    let mut from = 0;
    for some in values.chunks(64) {
        if !some.iter().fold(true, |all, v| all & fits(*v, scale)) {
            return some.iter().position(|v| !fits(*v, scale)).map(|at| from + at);
        }
        from += some.len();
    }
    None
}

/// Adding it to a double below 2^51 rounds that to a whole number, which the low bits of the sum then are.
const ROUNDER: f64 = 6_755_399_441_055_744.0; // 3 * 2^51

/// The whole number next to `v`, the even one of two; callers check that `v` is below [`WHOLE_MAX`]. Far faster than
/// `f64::round`, and done for several at a time by any processor.
pub(crate) fn nearest(v: f64) -> i64 {
    (v + ROUNDER).to_bits().cast_signed().wrapping_sub(ROUNDER.to_bits().cast_signed())
}

/// Whether `v` is `k / 10^scale` to the bit. Negative zero, NaN and infinities never are.
fn fits(v: f64, scale: u8) -> bool {
    let power = power(scale);
    let k = v * power;
    // A whole number has no negative zero, so the way over it loses the sign, as the stored form does.
    (k.abs() <= WHOLE_MAX) & ((((k + ROUNDER) - ROUNDER) / power).to_bits() == v.to_bits())
}
