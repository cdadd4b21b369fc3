//! Retention: a collection that keeps a week, one noisy sensor that keeps an hour, and a clock that is moved by hand.
//!
//! `cargo run -p ebbtide --example retention`

use ebbtide::ttl::{Filter, RuleSpec, Timestamp, Value, VirtualClock};
use ebbtide::{CollectionOptions, Database, json};
use serde_json::json;
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let start = Timestamp::parse("2024-01-01T00:00:00Z")?;
    let clock = VirtualClock::new(start);
    let db = Database::builder(folder.path()).clock(Arc::new(clock.clone())).open()?;

    let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(7 * 24 * 3600);
    let weather = db.create_collection("weather", options)?;
    let noisy = RuleSpec::new("noisy", 3600, Filter::eq("sensor", Value::from("noisy")));
    db.create_rules("weather", vec![noisy])?;

    for sensor in ["roof", "noisy"] {
        let reading = json!({"t": {"$date": start.to_string()}, "sensor": sensor, "temp": 20.5});
        weather.insert_documents(&[json::value_of(&reading)?])?;
    }
    for (hours, expected) in [(0, 2), (1, 1), (7 * 24 - 1, 1), (7 * 24, 0)] {
        clock.set(start.plus_seconds(hours * 3600));
        // What is expired is invisible at once; the sweep gives the space back.
        let visible = weather.snapshot()?.count()?;
        let swept = db.sweep()?;
        println!("after {hours:>3} h: {visible} visible, {} buckets dropped", swept.counts.deleted_buckets);
        assert_eq!(visible, expected);
    }
    for drop in db.sweeps() {
        println!("{} rule {} dropped {} measurements", drop.at, drop.rule, drop.measurements);
    }
    db.close()?;
    Ok(())
}
