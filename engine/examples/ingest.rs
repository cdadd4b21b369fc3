//! An ingestion pipeline: several writers share one database, whose group commit shares their syncs, and a bounded
//! channel in front of each keeps a fast source from filling memory.
//!
//! `cargo run -p ebbtide --example ingest`

use ebbtide::{CollectionOptions, Database, json};
use serde_json::json;
use std::error::Error;
use tokio::sync::mpsc;

const WRITERS: usize = 4;
const BATCHES: usize = 25;
const ROWS: usize = 100;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let db = Database::open(folder.path())?;
    let options = CollectionOptions::new("time").meta_field("sensor").expire_after_seconds(7 * 24 * 3600);
    let readings = db.create_collection("readings", options)?;
    // Seals, compacts and sweeps by itself until it is dropped.
    let background = db.start_background()?;

    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        // Two batches wait at most: the source is held up when the disk is slower than it.
        let (source, mut queue) = mpsc::channel::<Vec<serde_json::Value>>(2);
        let collection = readings.clone();
        writers.push(tokio::task::spawn_blocking(move || -> Result<u64, ebbtide::Error> {
            let mut stored = 0;
            while let Some(batch) = queue.blocking_recv() {
                let documents = batch.iter().map(json::value_of).collect::<Result<Vec<_>, _>>()?;
                stored += collection.insert_documents(&documents)?; // All of the batch, durably, or none of it.
            }
            Ok(stored)
        }));
        let now = db.clock().now();
        tokio::spawn(async move {
            for batch in 0..BATCHES {
                let row = |i: usize| {
                    let time = now.plus_seconds(-((batch * ROWS + i) as i64)).to_string();
                    json!({"time": {"$date": time}, "sensor": format!("s{writer}"), "value": i as f64 / 10.0})
                };
                if source.send((0..ROWS).map(row).collect()).await.is_err() {
                    return; // The writer met an error and is gone: it reports it.
                }
            }
        });
    }
    let mut stored = 0;
    for writer in writers {
        stored += writer.await??;
    }
    println!("{stored} measurements acknowledged, {} visible", readings.snapshot()?.count()?);
    assert_eq!(stored, (WRITERS * BATCHES * ROWS) as u64);
    drop(background);
    db.close()?;
    Ok(())
}
