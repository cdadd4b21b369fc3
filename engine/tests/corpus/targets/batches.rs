//! Batches of any Arrow type: stored as a whole or refused, and what is stored stays the same when it is sealed.

use super::{NOON, ROOT, double, int, open, rows_in, text};
use arbitrary::{Result, Unstructured};
use arrow::array::*;
use arrow::datatypes::*;
use ebbtide::CollectionOptions;
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::Precision;
use std::sync::Arc;

fn rows<T>(
    u: &mut Unstructured<'_>,
    count: usize,
    mut one: impl FnMut(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Vec<Option<T>>> {
    (0..count).map(|_| if u.ratio(1, 6)? { Ok(None) } else { one(u).map(Some) }).collect()
}

fn numbers<T: ArrowPrimitiveType>(u: &mut Unstructured<'_>, count: usize) -> Result<ArrayRef>
where
    T::Native: for<'a> arbitrary::Arbitrary<'a>,
{
    let values = rows(u, count, |u| u.arbitrary::<T::Native>())?;
    Ok(Arc::new(PrimitiveArray::<T>::from_iter(values)))
}

fn ints(u: &mut Unstructured<'_>, count: usize) -> Result<Int64Array> {
    Ok(Int64Array::from(rows(u, count, int)?))
}

fn instants(u: &mut Unstructured<'_>, count: usize, nulls: bool) -> Result<ArrayRef> {
    let values: Vec<Option<i64>> =
        rows(u, count, |u| if u.ratio(1, 9)? { int(u) } else { Ok(NOON + i64::from(u.arbitrary::<i32>()?)) })?;
    let values: Vec<Option<i64>> = values.into_iter().map(|v| if nulls { v } else { v.or(Some(NOON)) }).collect();
    let zone: Option<Arc<str>> = u.choose(&[None, Some("UTC"), Some("+02:00"), Some("Europe/Berlin")])?.map(Arc::from);
    Ok(match u.int_in_range(0..=5)? {
        0 => Arc::new(TimestampSecondArray::from(values).with_timezone_opt(zone)),
        1 => Arc::new(TimestampMicrosecondArray::from(values).with_timezone_opt(zone)),
        2 => Arc::new(TimestampNanosecondArray::from(values).with_timezone_opt(zone)),
        3 => Arc::new(Date64Array::from(values)),
        _ => Arc::new(TimestampMillisecondArray::from(values).with_timezone_opt(zone)),
    })
}

fn column(u: &mut Unstructured<'_>, count: usize, depth: usize) -> Result<ArrayRef> {
    let nulls = |u: &mut Unstructured<'_>| -> Result<Option<arrow::buffer::NullBuffer>> {
        Ok(if u.arbitrary()? {
            None
        } else {
            Some((0..count).map(|_| u.ratio(5, 6)).collect::<Result<Vec<bool>>>()?.into())
        })
    };
    Ok(match u.int_in_range(0..=if depth > 0 { 30 } else { 24 })? {
        0 => Arc::new(ints(u, count)?),
        1 => numbers::<Int8Type>(u, count)?,
        2 => numbers::<UInt64Type>(u, count)?,
        3 => numbers::<UInt16Type>(u, count)?,
        4 => Arc::new(Float64Array::from(rows(u, count, double)?)),
        5 => Arc::new(rows(u, count, |u| Ok(double(u)? as f32))?.into_iter().collect::<Float32Array>()),
        6 => Arc::new(StringArray::from(rows(u, count, text)?)),
        7 => Arc::new(LargeStringArray::from(rows(u, count, text)?)),
        8 => Arc::new(rows(u, count, text)?.into_iter().collect::<StringViewArray>()),
        9 => Arc::new(rows(u, count, |u| u.arbitrary::<Vec<u8>>())?.into_iter().collect::<BinaryArray>()),
        10 => Arc::new(rows(u, count, |u| u.arbitrary::<Vec<u8>>())?.into_iter().collect::<LargeBinaryArray>()),
        11 => Arc::new(rows(u, count, |u| u.arbitrary::<Vec<u8>>())?.into_iter().collect::<BinaryViewArray>()),
        12 => Arc::new(BooleanArray::from(rows(u, count, |u| u.arbitrary::<bool>())?)),
        13 => instants(u, count, true)?,
        14 => numbers::<Date32Type>(u, count)?,
        15 => numbers::<Time64MicrosecondType>(u, count)?,
        16 => numbers::<DurationMillisecondType>(u, count)?,
        17 => {
            let scale = u.int_in_range(-3..=9_i8)?;
            let values = rows(u, count, |u| Ok(i128::from(u.arbitrary::<i64>()?)))?;
            match Decimal128Array::from(values).with_precision_and_scale(30, scale) {
                Ok(array) => Arc::new(array),
                Err(_) => new_null_array(&DataType::Null, count),
            }
        }
        18 => Arc::new(rows(u, count, text)?.iter().map(Option::as_deref).collect::<DictionaryArray<Int8Type>>()),
        19 => new_null_array(&DataType::Null, count),
        20 => {
            let values = rows(u, count, |u| u.arbitrary::<[u8; 4]>())?;
            match FixedSizeBinaryArray::try_from_sparse_iter_with_size(values.into_iter(), 4) {
                Ok(array) => Arc::new(array),
                Err(_) => new_null_array(&DataType::Null, count),
            }
        }
        21 => {
            let mut ends: Vec<i32> = (1..=i32::try_from(count).unwrap_or(1)).collect();
            if count > 2 && u.arbitrary()? {
                ends.remove(0);
            }
            let values = ints(u, ends.len())?;
            match RunArray::<Int32Type>::try_new(&Int32Array::from(ends), &values) {
                Ok(array) => Arc::new(array),
                Err(_) => Arc::new(values),
            }
        }
        // A part of a longer one: offsets and buffers begin elsewhere.
        22 | 23 => column(u, count + 3, depth)?.slice(2, count),
        24 => new_null_array(&DataType::Utf8, count),
        25 | 26 => {
            let lengths: Vec<usize> = (0..count).map(|_| u.int_in_range(0..=2)).collect::<Result<_>>()?;
            let items = column(u, lengths.iter().sum(), depth - 1)?;
            let field = Arc::new(Field::new("item", items.data_type().clone(), true));
            Arc::new(ListArray::new(field, arrow::buffer::OffsetBuffer::from_lengths(lengths), items, nulls(u)?))
        }
        27 => {
            let lengths: Vec<usize> = (0..count).map(|_| u.int_in_range(0..=2)).collect::<Result<_>>()?;
            let items = column(u, lengths.iter().sum(), depth - 1)?;
            let field = Arc::new(Field::new("x", items.data_type().clone(), true));
            Arc::new(LargeListArray::new(field, arrow::buffer::OffsetBuffer::from_lengths(lengths), items, nulls(u)?))
        }
        28 => {
            let items = column(u, count * 2, depth - 1)?;
            let field = Arc::new(Field::new("item", items.data_type().clone(), true));
            Arc::new(FixedSizeListArray::new(field, 2, items, nulls(u)?))
        }
        _ => {
            let mut fields = Vec::new();
            let mut columns = Vec::new();
            for name in ["a", "b", "c"].iter().take(u.int_in_range(0..=3)?) {
                let inner = column(u, count, depth - 1)?;
                fields.push(Field::new(*name, inner.data_type().clone(), true));
                columns.push(inner);
            }
            let nulls = nulls(u)?;
            match StructArray::try_new_with_length(Fields::from(fields), columns, nulls, count) {
                Ok(array) => Arc::new(array),
                Err(_) => new_null_array(&DataType::Null, count),
            }
        }
    })
}

fn batch(u: &mut Unstructured<'_>) -> Result<Option<RecordBatch>> {
    let count = u.int_in_range(0..=6)?;
    let mut columns: Vec<(&str, ArrayRef)> = Vec::new();
    let nulls = u.ratio(1, 9)?;
    columns.push(("t", instants(u, count, nulls)?));
    for name in ["m", "f", "g"] {
        if u.arbitrary()? {
            columns.push((name, column(u, count, 3)?));
        }
    }
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    Ok(RecordBatch::try_from_iter_with_nullable(columns).ok())
}

fn check(u: &mut Unstructured<'_>) -> Result<()> {
    let fs = SimFs::new(ROOT);
    let db = open(&fs).expect("open");
    let precision = *u.choose(&[Precision::Ms, Precision::Us, Precision::Ns])?;
    let options = CollectionOptions::new("t").meta_field("m").precision(precision).span_seconds(31_536_000);
    let c = db.create_collection("c", options).expect("create");
    let mut expected = 0;
    for _ in 0..u.int_in_range(1..=4)? {
        let Some(batch) = batch(u)? else { continue };
        if let Ok(stored) = c.insert(&batch) {
            assert_eq!(stored, batch.num_rows() as u64);
            expected += batch.num_rows();
        }
        assert_eq!(rows_in(&c).expect("reads").len(), expected);
    }
    let before = rows_in(&c).expect("reads");
    drop((db, c));
    let db = open(&fs).expect("opens again");
    let c = db.collection("c").expect("is there");
    assert_eq!(rows_in(&c).expect("reads"), before);
    db.flush().expect("flushes");
    assert_eq!(rows_in(&c).expect("reads"), before);
    assert_eq!(db.verify().expect("verifies").faults, Vec::<String>::new());
    Ok(())
}

pub(super) fn run(data: &[u8]) {
    let _too_short = check(&mut Unstructured::new(data));
}
