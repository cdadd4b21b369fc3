use super::*;
use datafusion::arrow::array::builder::{ListBuilder, StringViewBuilder};
use datafusion::arrow::array::{
    Array, ArrayRef, Decimal128Array, DictionaryArray, DurationMillisecondArray, Float64Array, Int8Array, Int64Array,
    RecordBatch, StringArray, TimestampMillisecondArray, TimestampSecondArray,
};
use datafusion::arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::arrow::ipc::reader::FileReader;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use ebbtide_ttl::Code;
use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn batch() -> RecordBatch {
    let time: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![0, 1_500]).with_timezone("UTC"));
    let name: ArrayRef = Arc::new(StringArray::from(vec![Some("a,b"), None]));
    let value: ArrayRef = Arc::new(Float64Array::from(vec![10.357_019_999_999_999, -2.0]));
    RecordBatch::try_from_iter([("t", time), ("s", name), ("v", value)]).unwrap()
}

fn written(format: Format) -> Vec<u8> {
    file_of(&batch(), format).unwrap()
}

fn file_of(batch: &RecordBatch, format: Format) -> crate::Result<Vec<u8>> {
    let sink = Shared::default();
    let mut writer = ResultWriter::new(format, &batch.schema(), Box::new(sink.clone()), TableStyle::default())?;
    writer.write(batch)?;
    writer.finish()?;
    let bytes = sink.0.lock().unwrap();
    Ok(bytes.clone())
}

/// A file on a disk without room.
struct Full;

impl std::io::Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_of_its_own_in_each_format() {
    for format in Format::ALL {
        let batch = batch();
        let written = ResultWriter::new(format, &batch.schema(), Box::new(Full), TableStyle::default());
        let written = written.and_then(|mut writer| {
            writer.write(&batch)?;
            writer.finish()
        });
        let error = written.unwrap_err();
        assert_eq!(error.code(), Code::OutOfDiskSpace, "{format:?}: {error}");
        assert!(!error.to_string().contains("External"), "{error}");
    }
}

fn text_of(format: Format) -> String {
    String::from_utf8(written(format)).unwrap()
}

#[test]
fn csv_quotes_and_leaves_nulls_empty() {
    let expected = "t,s,v\n1970-01-01T00:00:00Z,\"a,b\",10.357019999999999\n1970-01-01T00:00:01.500Z,,-2.0\n";
    assert_eq!(text_of(Format::Csv), expected);
}

#[test]
fn json_keeps_values_and_writes_instants_in_utc() {
    let rows: serde_json::Value = serde_json::from_str(&text_of(Format::Json)).unwrap();
    assert_eq!(rows[1], serde_json::json!({"t": "1970-01-01T00:00:01.500Z", "s": null, "v": -2.0}));
    assert_eq!(text_of(Format::Ndjson).lines().count(), 2);
}

#[test]
fn tables_align_numbers_and_round_fractions() {
    let table = text_of(Format::Table);
    assert!(table.contains("10.35702 ") && table.contains("NULL") && table.contains("    -2.0 "), "{table}");
}

#[test]
fn parquet_and_arrow_files_carry_their_marks() {
    assert!(written(Format::Parquet).starts_with(b"PAR1"));
    assert!(written(Format::Arrow).starts_with(b"ARROW1"));
}

#[test]
fn lengths_of_time_are_clocks_in_tables_and_iso_elsewhere() {
    let lengths = [0, 21_600_000, 90_061_500, -259_200_000];
    let column: ArrayRef = Arc::new(DurationMillisecondArray::from(lengths.to_vec()));
    let batch = RecordBatch::try_from_iter([("gap", Arc::clone(&column))]).unwrap();
    let table = render(&batch.schema(), &[batch], TableStyle::default());
    for cell in ["| 00:00:00 ", "| 06:00:00 ", "| 1 day 01:01:01.5 ", "| -3 days 00:00:00 "] {
        let cell = cell.replace('|', "\u{2502}");
        assert!(table.contains(&cell), "{cell}\n{table}");
    }
    assert_eq!(text(column.as_ref(), 1).unwrap(), "PT21600S");
}

#[test]
fn json_has_decimals_as_numbers_where_that_is_exact() {
    let decimals = |values: Vec<i128>, scale| -> ArrayRef {
        Arc::new(Decimal128Array::from(values).with_precision_and_scale(38, scale).unwrap())
    };
    for (column, expected) in [
        (
            decimals(vec![9_007_199_254_740_993, -5, i128::from(u64::MAX)], 0),
            "[9007199254740993,-5,18446744073709551615]",
        ),
        (decimals(vec![10_i128.pow(20), (1 << 100) + 1], 0), "[1e+20,\"1267650600228229401496703205377\"]"),
        (decimals(vec![1_100, 500, -25], 3), "[1.1,0.5,-0.025]"),
        (decimals(vec![11_000_000_000_000_000_001], 19), "[\"1.1000000000000000001\"]"),
    ] {
        let values: Vec<_> = (0..column.len()).map(|row| cell::json(column.as_ref(), row)).collect();
        assert_eq!(serde_json::to_string(&values).unwrap(), expected);
    }
}

#[test]
fn values_of_dictionaries_are_written_as_others_are() {
    let numbers = DictionaryArray::new(Int8Array::from(vec![1, 0]), Arc::new(Int64Array::from(vec![7, 8])));
    assert_eq!(cell::json(&numbers, 0), 8);
    let times = DictionaryArray::new(Int8Array::from(vec![0]), Arc::new(TimestampMillisecondArray::from(vec![1_500])));
    assert_eq!(text(&times, 0).unwrap(), "1970-01-01T00:00:01.500Z");
}

#[test]
fn columns_of_one_name_are_refused_where_one_would_hide_another() {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let fields = vec![Field::new("v", DataType::Int64, true); 2];
    let schema = Arc::new(datafusion::arrow::datatypes::Schema::new(fields));
    let batch = RecordBatch::try_new(schema, vec![Arc::clone(&column), column]).unwrap();
    for format in [Format::Json, Format::Ndjson, Format::Parquet] {
        assert!(file_of(&batch, format).unwrap_err().message().contains("two columns are named 'v'"), "{format:?}");
    }
    assert_eq!(file_of(&batch, Format::Csv).unwrap(), b"v,v\n1,1\n");
}

#[test]
fn files_have_plain_texts_and_parquet_has_no_times_in_seconds() {
    let mut tags = ListBuilder::new(StringViewBuilder::new());
    tags.append_value([Some("x"), None]);
    let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![1_704_067_200]));
    let batch = RecordBatch::try_from_iter([("tags", Arc::new(tags.finish()) as ArrayRef), ("t", seconds)]).unwrap();
    let item = |schema: &datafusion::arrow::datatypes::Schema| match schema.field(0).data_type() {
        DataType::List(item) => item.data_type().clone(),
        other => other.clone(),
    };
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&file_of(&batch, Format::Parquet).unwrap()).unwrap();
    let parquet = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().next().unwrap().unwrap();
    assert_eq!(item(&parquet.schema()), DataType::Utf8);
    assert_eq!(parquet.schema().field(1).data_type(), &DataType::Timestamp(TimeUnit::Millisecond, None));
    let arrow = FileReader::try_new(Cursor::new(file_of(&batch, Format::Arrow).unwrap()), None).unwrap();
    let arrow = arrow.map(Result::unwrap).next().unwrap();
    assert_eq!(item(&arrow.schema()), DataType::Utf8);
    for batch in [parquet, arrow] {
        assert_eq!(text(batch.column(0).as_ref(), 0).unwrap(), "[\"x\",null]");
        assert_eq!(text(batch.column(1).as_ref(), 0).unwrap(), "2024-01-01T00:00:00Z");
    }
}
