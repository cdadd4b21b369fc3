//! A query through Arrow, without SQL: the scan gives record batches of what is visible, one unit of work at a time.
//!
//! `cargo run -p ebbtide --example query`

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use ebbtide::ttl::Timestamp;
use ebbtide::{CollectionOptions, Database, ScanRequest};
use std::error::Error;
use std::sync::Arc;

const HOUR_MS: i64 = 3_600_000;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let db = Database::open(folder.path())?;
    let weather = db.create_collection("weather", CollectionOptions::new("t").meta_field("station"))?;

    // The fast door: columns in, columns stored.
    let hours = 0..1000;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("t", Arc::new(TimestampMillisecondArray::from_iter_values(hours.clone().map(|h| h * HOUR_MS)))),
        ("station", Arc::new(StringArray::from_iter_values(hours.clone().map(|h| format!("s{}", h % 4))))),
        ("temp", Arc::new(Float64Array::from_iter_values(hours.map(|h| (h % 24) as f64 / 2.0)))),
    ];
    weather.insert(&RecordBatch::try_from_iter(columns)?)?;
    db.flush()?;

    let request = ScanRequest {
        projection: Some(vec!["temp".to_owned()]),
        time: (Timestamp::from_millis(100 * HOUR_MS)..Timestamp::from_millis(200 * HOUR_MS)).into(),
        ..ScanRequest::default()
    };
    let (mut rows, mut sum) = (0, 0.0);
    for unit in weather.snapshot()?.scan(&request)? {
        for batch in unit.read()? {
            let batch = batch?;
            rows += batch.num_rows();
            sum += arrow::compute::sum(arrow::array::AsArray::as_primitive::<arrow::datatypes::Float64Type>(
                batch.column(0),
            ))
            .unwrap_or(0.0);
        }
    }
    println!("{rows} rows, mean temperature {:.2}", sum / rows as f64);
    assert_eq!(rows, 100);
    db.close()?;
    Ok(())
}
