//! Packing.

use super::{ALL, DECIMAL, DICTIONARY, LIST, NONE, NULLABLE, OBJECT, PLAIN, RAW, SCALARS, SOME, VERSION, ints};
use crate::columns::time_values;
use crate::segment::decimals::{Decimals, Narrow, nearest, power, valid_runs};
use crate::segment::varint;
use ahash::AHashMap;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter;
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type};
use arrow::error::ArrowError;

/// Packs a canonical batch (see [`crate::Schema::arrow`]) into few bytes. [`crate::unpack`] restores it.
///
/// # Errors
/// If a column has a type that no field has.
pub fn pack(batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut out = Vec::with_capacity(256 + batch.num_rows() * batch.num_columns() * 2);
    out.push(VERSION);
    varint::put_u64(&mut out, batch.num_rows() as u64);
    varint::put_u64(&mut out, batch.num_columns() as u64);
    for (at, (field, column)) in batch.schema_ref().fields().iter().zip(batch.columns()).enumerate() {
        varint::put_bytes(&mut out, field.name().as_bytes());
        put_type(&mut out, field)?;
        // One column has a byte for each row, so a forged number of rows would exceed the available bytes.
        put_array(&mut out, column, at == 0)?;
    }
    Ok(out)
}

fn put_type(out: &mut Vec<u8>, field: &Field) -> Result<(), ArrowError> {
    let nullable = if field.is_nullable() { NULLABLE } else { 0 };
    match field.data_type() {
        DataType::List(item) => {
            out.push(LIST | nullable);
            put_type(out, item)
        }
        DataType::Struct(members) => {
            out.push(OBJECT | nullable);
            varint::put_u64(out, members.len() as u64);
            members.iter().try_for_each(|member| {
                varint::put_bytes(out, member.name().as_bytes());
                put_type(out, member)
            })
        }
        other => {
            let known = SCALARS.iter().find(|(_, ty)| ty() == *other);
            let (code, _) = known.ok_or_else(|| ArrowError::SchemaError(format!("no field is of type {other}")))?;
            out.push(code | nullable);
            Ok(())
        }
    }
}

/// `dense`: it takes at least one bit per row.
fn put_array(out: &mut Vec<u8>, array: &ArrayRef, dense: bool) -> Result<(), ArrowError> {
    let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    match &nulls {
        None => out.push(ALL),
        Some(nulls) if nulls.null_count() == array.len() && !dense => {
            out.push(NONE);
            return Ok(());
        }
        Some(nulls) => {
            out.push(SOME);
            put_bitmap(out, nulls.inner());
        }
    }
    let valid = |row: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row));
    let rows = || (0..array.len()).filter(valid);
    match array.data_type() {
        DataType::Boolean => put_bits(out, rows().map(|row| array.as_boolean().value(row))),
        DataType::Int64 => put_ints(out, array.as_primitive::<Int64Type>().values(), nulls.is_none(), rows(), dense),
        DataType::Timestamp(..) => put_ints(out, time_values(array)?, nulls.is_none(), rows(), dense),
        DataType::Float64 => {
            let doubles = array.as_primitive::<Float64Type>();
            let runs = valid_runs(doubles);
            put_doubles(out, &runs.iter().map(|run| &doubles.values()[run.0..run.1]).collect::<Vec<_>>(), dense);
        }
        DataType::Utf8View => {
            let texts = array.as_string_view();
            put_texts(out, rows().map(|row| texts.value(row).as_bytes()), dense);
        }
        DataType::Binary => {
            let bytes = array.as_binary::<i32>();
            put_texts(out, rows().map(|row| bytes.value(row)), dense);
        }
        DataType::List(_) => {
            let kept = match &nulls {
                None => array.clone(),
                Some(nulls) => filter(array, &BooleanArray::new(nulls.inner().clone(), None))?,
            };
            let list = kept.as_list::<i32>();
            let offsets = list.value_offsets();
            let lengths: Vec<i64> = offsets.windows(2).map(|pair| i64::from(pair[1] - pair[0])).collect();
            ints::put(out, &lengths, dense);
            let (first, last) = (offsets.first().copied().unwrap_or(0), offsets.last().copied().unwrap_or(0));
            let (first, last) = (usize::try_from(first).unwrap_or(0), usize::try_from(last).unwrap_or(0));
            put_array(out, &list.values().slice(first, last - first), true)?;
        }
        DataType::Struct(_) => {
            // An object without members does not store its number of rows.
            if dense && nulls.is_none() {
                put_bits(out, rows().map(|_| true));
            }
            array.as_struct().columns().iter().try_for_each(|member| put_array(out, member, dense))?;
        }
        other => return Err(ArrowError::SchemaError(format!("no field is of type {other}"))),
    }
    Ok(())
}

/// Like [`put_bits`], for bits that are packed already.
fn put_bitmap(out: &mut Vec<u8>, bits: &BooleanBuffer) {
    out.extend(&bits.sliced().as_slice()[..bits.len().div_ceil(8)]);
    let past = bits.len() % 8;
    if let Some(last) = out.last_mut().filter(|_| past > 0) {
        *last &= (1 << past) - 1;
    }
}

fn put_bits(out: &mut Vec<u8>, bits: impl Iterator<Item = bool>) {
    let mut byte = 0;
    let mut filled = 0;
    for bit in bits {
        byte |= u8::from(bit) << filled;
        filled += 1;
        if filled == 8 {
            out.push(byte);
            (byte, filled) = (0, 0);
        }
    }
    if filled > 0 {
        out.push(byte);
    }
}

fn put_ints(out: &mut Vec<u8>, values: &[i64], all: bool, rows: impl Iterator<Item = usize>, dense: bool) {
    if all {
        ints::put(out, values, dense);
    } else {
        ints::put(out, &rows.map(|row| values[row]).collect::<Vec<_>>(), dense);
    }
}

/// Appends doubles from several slices.
fn put_doubles(out: &mut Vec<u8>, runs: &[&[f64]], dense: bool) {
    let mut narrow = Narrow::default();
    if runs.iter().any(|run| !run.is_empty()) && runs.iter().all(|run| narrow.append(run)) {
        out.extend([DECIMAL, narrow.scale]);
        ints::put(out, &narrow.ks, dense);
        return;
    }
    let values = runs.concat();
    let mut decimals = Decimals::default();
    let scale = if decimals.look_at(&values) { decimals.scale() } else { None };
    match scale {
        Some(scale) => {
            out.extend([DECIMAL, scale]);
            let power = power(scale);
            ints::put(out, &values.iter().map(|v| nearest(v * power)).collect::<Vec<_>>(), dense);
        }
        None => {
            out.push(RAW);
            values.iter().for_each(|v| out.extend(v.to_le_bytes()));
        }
    }
}

fn put_texts<'a>(out: &mut Vec<u8>, texts: impl Iterator<Item = &'a [u8]>, dense: bool) {
    let texts: Vec<&[u8]> = texts.collect();
    match numbered(&texts) {
        Some((distinct, numbers)) => {
            out.push(DICTIONARY);
            varint::put_u64(out, distinct.len() as u64);
            put_plain(out, &distinct, true);
            ints::put(out, &numbers, dense);
        }
        None => {
            out.push(PLAIN);
            put_plain(out, &texts, dense);
        }
    }
}

fn put_plain(out: &mut Vec<u8>, texts: &[&[u8]], dense: bool) {
    #[expect(clippy::cast_possible_wrap, reason = "no text has 2^63 bytes")]
    let lengths: Vec<i64> = texts.iter().map(|text| text.len() as i64).collect();
    ints::put(out, &lengths, dense);
    texts.iter().for_each(|text| out.extend(*text));
}

/// The distinct texts and each row's number among them, if they repeat often enough.
fn numbered<'a>(texts: &[&'a [u8]]) -> Option<(Vec<&'a [u8]>, Vec<i64>)> {
    let most = texts.len() / 2;
    let mut distinct = Vec::new();
    let mut numbers = Vec::with_capacity(texts.len());
    let mut known: AHashMap<&[u8], i64> = AHashMap::new();
    for text in texts {
        let next = i64::try_from(distinct.len()).ok()?;
        let number = *known.entry(text).or_insert(next);
        if number == next {
            if distinct.len() == most {
                return None;
            }
            distinct.push(*text);
        }
        numbers.push(number);
    }
    Some((distinct, numbers))
}
