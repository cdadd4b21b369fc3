//! The recorded weather: how small it gets, and that nothing is lost.

use super::*;
use std::io::Read;

fn weather() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/weather/nyc_2013_hourly.csv.gz");
    #[expect(clippy::disallowed_methods, reason = "a fixture of the test")]
    let file = std::fs::File::open(path).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let headers = reader.headers().unwrap().clone();
    let time = headers.iter().position(|h| h.contains("time")).unwrap();
    let meta = headers.iter().position(|h| h == "sensor" || h == "station" || h == "origin").unwrap();
    let value = |text: &str| match text {
        "" | "NA" => Value::Null,
        text => text.parse().map_or_else(|_| Value::from(text), Value::Double),
    };
    reader
        .records()
        .map(|record| {
            let record = record.unwrap();
            let members = headers.iter().zip(&record).enumerate().map(|(at, (name, text))| match at {
                at if at == time => ("t".into(), Value::Date(Timestamp::parse(text).unwrap())),
                at if at == meta => ("m".into(), Value::from(text)),
                _ => (name.into(), value(text)),
            });
            Value::Object(members.collect())
        })
        .collect()
}

#[test]
fn recorded_weather_is_sealed_small_and_whole() {
    let docs = weather();
    let accepted = accept(&docs, &schema());
    let before = rows(&accepted.batch);
    let (segment, schema) = seal(&[(accepted.batch, accepted.schema)], 2_592_000);
    let reader = open(&segment.bytes).unwrap();
    let all = read_all(&reader, &schema).unwrap();
    assert_eq!(sorted(rows(&all)), sorted(before));
    let values = docs.len() * schema.arrow().fields().len();
    println!(
        "{} rows, {} columns, {} buckets: {} bytes, {:.2} a row; directory and footer {}",
        docs.len(),
        schema.arrow().fields().len(),
        segment.meta.buckets,
        segment.bytes.len(),
        segment.bytes.len() as f64 / docs.len() as f64,
        segment.bytes.len() as u64 - reader.data_end(),
    );
    assert!(segment.bytes.len() < values * 2, "{} bytes for {values} values", segment.bytes.len());
}
