//! The stored form of columns: doubles that are short decimals become integers with a scale, which compress better and
//! which other readers show as decimals. The restored values are identical bit for bit.

use super::decimals::{NARROW_DIGITS, Narrow, POWERS, decimal_to_double, nearest, power, valid_runs};
use super::file_types::FileType;
use crate::schema::FieldType;
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal32Array, Decimal64Array, Float64Array, ListArray, NullBufferBuilder,
    StructArray,
};
use arrow::datatypes::{DataType, Decimal32Type, Decimal64Type, Field, Fields, Float64Type};
use arrow::error::ArrowError;
use std::sync::Arc;

/// How one column is stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Physical {
    /// The same as in memory.
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

    /// Converts a column to its stored form.
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

/// Converts a stored column to its canonical form.
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
            // Metas made from the directory have no members where none has any.
            let (fields, nulls) = (fields.into(), object.nulls().cloned());
            Ok(Arc::new(StructArray::try_new_with_length(fields, columns, nulls, object.len())?))
        }
        _ => Ok(array.clone()),
    }
}

fn scale_of(scale: i8) -> Result<u8, ArrowError> {
    u8::try_from(scale)
        .ok()
        .filter(|s| usize::from(*s) < POWERS.len())
        .ok_or_else(|| ArrowError::SchemaError(format!("decimal scale {scale} is out of range")))
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
/// converted in one pass, and its narrowest type. `None` if there is no value, or one that is not a decimal of nine digits:
/// then [`FileType::of`] decides.
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
