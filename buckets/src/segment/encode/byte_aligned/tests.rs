use super::*;
use arrow::array::{Decimal32Array, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use proptest::prelude::*;

/// Writes a column as one row group, and reads it back with the crate's own reader.
fn back(column: &ArrayRef, slice_rows: usize) -> ArrayRef {
    let batch = RecordBatch::try_from_iter_with_nullable([("v", column.clone(), true)]).unwrap();
    let writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(WriterProperties::default())).unwrap();
    let (mut file, _) = writer.into_serialized_writer().unwrap();
    let descriptor = file.schema_descr().column(0);
    let properties = crate::segment::encode::choose::byte_aligned_properties(EnabledStatistics::Page);
    let compression = Compression::ZSTD(Default::default());
    let starts = (0..column.len()).step_by(slice_rows);
    let slices = starts.map(|from| Ok(column.slice(from, slice_rows.min(column.len() - from))));
    let chunk = write(&descriptor, &properties, compression, slices, |_| {}).unwrap();
    let mut group = file.next_row_group().unwrap();
    group.append_column(&chunk.bytes, chunk.closed).unwrap();
    group.close().unwrap();
    let bytes = Bytes::from(file.into_inner().unwrap());
    let mut reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().with_batch_size(1 << 20).build().unwrap();
    reader.next().unwrap().unwrap().column(0).clone()
}

fn awkward() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => -100..100_i64,
        1 => -40_000..40_000_i64,
        1 => any::<i64>(),
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0)],
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whole_numbers_come_back(
        values in prop::collection::vec(prop::option::weighted(0.9, awkward()), 1..3_000),
        slice in 1..2_000_usize,
    ) {
        let column: ArrayRef = Arc::new(Int64Array::from(values));
        prop_assert_eq!(&back(&column, slice), &column);
    }

    #[test]
    fn decimals_come_back(values in prop::collection::vec(prop::option::weighted(0.8, awkward()), 1..3_000)) {
        let narrow = values.into_iter().map(|v| v.map(|v| (v % 1_000_000_000) as i32));
        let column: ArrayRef =
            Arc::new(narrow.collect::<Decimal32Array>().with_precision_and_scale(9, 2).unwrap());
        prop_assert_eq!(&back(&column, 1 << 16), &column);
    }
}

#[test]
fn columns_of_many_pages_come_back() {
    let jump = |row: i64| if row % 1_000 == 999 { 1 << 40 } else { 0 };
    let values = (0..30_000).map(|row| (row % 11 != 0).then_some(row % 37 - jump(row)));
    let column: ArrayRef = Arc::new(values.collect::<Int64Array>());
    assert_eq!(&back(&column, 20_000), &column);
}

#[test]
fn columns_of_one_value_and_of_nulls_come_back() {
    for values in [vec![Some(7)], vec![None], vec![None; 9_000], vec![Some(i64::MIN); 9_000]] {
        let column: ArrayRef = Arc::new(Int64Array::from(values));
        assert_eq!(&back(&column, 10_000), &column);
    }
}
