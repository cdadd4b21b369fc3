//! Unpacking. Counts are checked against the available bytes before they are used.

use super::{ALL, DECIMAL, DICTIONARY, LIST, NONE, NULLABLE, OBJECT, PLAIN, RAW, SCALARS, SOME, VERSION, ints, item};
use crate::segment::decimals::{decimal_to_double, power};
use crate::segment::varint::Cursor;
use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, ListArray, RecordBatch, RecordBatchOptions,
    StringViewBuilder, StructArray, new_null_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields, Schema};
use std::sync::Arc;

/// Types nest no deeper than this; see the limit on documents.
const DEPTH_MAX: usize = 64;

/// Unpacks a batch that [`crate::pack`] packed.
///
/// # Errors
/// What is wrong with the bytes, and at which offset.
pub fn unpack(bytes: &[u8]) -> Result<RecordBatch, String> {
    let mut cursor = Cursor::new(bytes);
    let version = cursor.byte()?;
    if version != VERSION {
        return Err(format!("batch of version {version}, this program knows {VERSION}"));
    }
    let rows = cursor.count()?;
    let columns = cursor.count()?;
    let mut fields = Vec::with_capacity(columns);
    let mut arrays = Vec::with_capacity(columns);
    for at in 0..columns {
        let field = field(&mut cursor, DEPTH_MAX)?;
        arrays.push(array(&mut cursor, field.data_type(), rows, at == 0)?);
        fields.push(field);
    }
    if cursor.at() != bytes.len() {
        return Err(format!("{} bytes after the batch", bytes.len() - cursor.at()));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options).map_err(|e| e.to_string())
}

fn field(cursor: &mut Cursor<'_>, depth: usize) -> Result<Field, String> {
    let name = cursor.text()?.to_owned();
    let (ty, nullable) = data_type(cursor, depth)?;
    Ok(Field::new(name, ty, nullable))
}

fn data_type(cursor: &mut Cursor<'_>, depth: usize) -> Result<(DataType, bool), String> {
    let deeper = depth.checked_sub(1).ok_or("types nest too deep")?;
    let code = cursor.byte()?;
    let nullable = code & NULLABLE != 0;
    let ty = match code & !NULLABLE {
        LIST => {
            let (ty, nullable) = data_type(cursor, deeper)?;
            DataType::List(item(ty, nullable))
        }
        OBJECT => {
            let members = cursor.count()?;
            DataType::Struct((0..members).map(|_| field(cursor, deeper)).collect::<Result<Fields, _>>()?)
        }
        code => match SCALARS.iter().find(|(known, _)| *known == code) {
            Some((_, ty)) => ty(),
            None => return Err(format!("unknown type {code} before byte {}", cursor.at())),
        },
    };
    Ok((ty, nullable))
}

fn array(cursor: &mut Cursor<'_>, ty: &DataType, len: usize, dense: bool) -> Result<ArrayRef, String> {
    let nulls = match cursor.byte()? {
        ALL => None,
        NONE if !dense => return Ok(new_null_array(ty, len)),
        SOME => Some(NullBuffer::new(bits(cursor, len)?)),
        kind => return Err(format!("unknown kind {kind} of nulls before byte {}", cursor.at())),
    };
    let valid = nulls.as_ref().map_or(len, |nulls| len - nulls.null_count());
    let failed = |e: arrow::error::ArrowError| e.to_string();
    Ok(match ty {
        DataType::Boolean => {
            let values = bits(cursor, valid)?;
            let values = match &nulls {
                None => values,
                Some(nulls) => {
                    let mut values = values.iter();
                    nulls.iter().map(|valid| valid && values.next().unwrap_or(false)).collect()
                }
            };
            Arc::new(BooleanArray::new(values, nulls))
        }
        DataType::Int64 | DataType::Timestamp(..) => {
            let values = spread(ints::take(cursor, valid, dense)?, nulls.as_ref());
            let ints: ArrayRef = Arc::new(Int64Array::new(values.into(), nulls));
            if *ty == DataType::Int64 { ints } else { cast(&ints, ty).map_err(failed)? }
        }
        DataType::Float64 => {
            let values = doubles(cursor, valid, dense)?;
            Arc::new(Float64Array::new(spread(values, nulls.as_ref()).into(), nulls))
        }
        DataType::Utf8View => {
            let mut texts = texts(cursor, valid, dense)?.into_iter();
            let mut builder = StringViewBuilder::with_capacity(len).with_deduplicate_strings();
            for row in 0..len {
                match nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)).then(|| texts.next()).flatten() {
                    Some(text) => builder.append_value(std::str::from_utf8(text).map_err(|_| "text is not UTF-8")?),
                    None => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }
        DataType::Binary => {
            let mut texts = texts(cursor, valid, dense)?.into_iter();
            let rows = (0..len)
                .map(|row| if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) { texts.next() } else { None });
            Arc::new(rows.collect::<BinaryArray>())
        }
        DataType::List(item) => {
            let lengths = ints::take(cursor, valid, dense)?;
            let offsets = offsets(&spread(lengths, nulls.as_ref()))?;
            let items = offsets.last().map_or(0, |last| usize::try_from(*last).unwrap_or(0));
            let values = array(cursor, item.data_type(), items, true)?;
            Arc::new(ListArray::try_new(item.clone(), offsets, values, nulls).map_err(failed)?)
        }
        DataType::Struct(members) => {
            if dense && nulls.is_none() {
                bits(cursor, len)?;
            }
            let columns = members
                .iter()
                .map(|member| array(cursor, member.data_type(), len, dense))
                .collect::<Result<Vec<_>, _>>()?;
            Arc::new(StructArray::try_new_with_length(members.clone(), columns, nulls, len).map_err(failed)?)
        }
        other => return Err(format!("no field is of type {other}")),
    })
}

fn bits(cursor: &mut Cursor<'_>, len: usize) -> Result<BooleanBuffer, String> {
    let bytes = cursor.take(len.div_ceil(8))?;
    Ok(BooleanBuffer::new(Buffer::from(bytes), 0, len))
}

/// Places the values of valid rows at their rows.
fn spread<T: Copy + Default>(values: Vec<T>, nulls: Option<&NullBuffer>) -> Vec<T> {
    let Some(nulls) = nulls else { return values };
    let mut all = vec![T::default(); nulls.len()];
    for (row, value) in nulls.valid_indices().zip(values) {
        all[row] = value;
    }
    all
}

fn doubles(cursor: &mut Cursor<'_>, count: usize, dense: bool) -> Result<Vec<f64>, String> {
    match cursor.byte()? {
        RAW => {
            let bytes = cursor.take(count.checked_mul(8).ok_or("more doubles than there is room for")?)?;
            Ok(bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect())
        }
        DECIMAL => {
            let scale = cursor.byte()?;
            if power(scale).is_infinite() {
                return Err(format!("decimal scale {scale}"));
            }
            Ok(ints::take(cursor, count, dense)?.into_iter().map(|k| decimal_to_double(k, scale)).collect())
        }
        kind => Err(format!("unknown kind {kind} of doubles before byte {}", cursor.at())),
    }
}

fn texts<'a>(cursor: &mut Cursor<'a>, count: usize, dense: bool) -> Result<Vec<&'a [u8]>, String> {
    match cursor.byte()? {
        PLAIN => plain(cursor, count, dense),
        DICTIONARY => {
            let distinct = cursor.count()?;
            let distinct = plain(cursor, distinct, true)?;
            let numbers = ints::take(cursor, count, dense)?;
            let text = |number: i64| usize::try_from(number).ok().and_then(|at| distinct.get(at)).copied();
            numbers
                .into_iter()
                .map(|number| text(number).ok_or_else(|| format!("no text has number {number}")))
                .collect()
        }
        kind => Err(format!("unknown kind {kind} of texts before byte {}", cursor.at())),
    }
}

fn plain<'a>(cursor: &mut Cursor<'a>, count: usize, dense: bool) -> Result<Vec<&'a [u8]>, String> {
    let lengths = ints::take(cursor, count, dense)?;
    let text = |len: i64| cursor.take(usize::try_from(len).map_err(|_| format!("a text of {len} bytes"))?);
    lengths.into_iter().map(text).collect()
}

fn offsets(lengths: &[i64]) -> Result<OffsetBuffer<i32>, String> {
    let mut end = 0_i32;
    let mut offsets = Vec::with_capacity(lengths.len() + 1);
    offsets.push(end);
    for len in lengths {
        let next = i32::try_from(*len).ok().filter(|len| *len >= 0).and_then(|len| end.checked_add(len));
        end = next.ok_or_else(|| format!("a list of {len} items"))?;
        offsets.push(end);
    }
    Ok(OffsetBuffer::new(ScalarBuffer::from(offsets)))
}
