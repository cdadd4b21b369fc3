use super::*;
use datafusion::arrow::array::{
    ArrayRef, DurationMillisecondArray, Float64Array, RecordBatch, StringArray, TimestampMillisecondArray,
};
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
    let sink = Shared::default();
    let mut writer =
        ResultWriter::new(format, &batch().schema(), Box::new(sink.clone()), TableStyle::default()).unwrap();
    writer.write(&batch()).unwrap();
    writer.finish().unwrap();
    let bytes = sink.0.lock().unwrap();
    bytes.clone()
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
