use super::*;
use crate::{CollectionOptions, json};
use ebbtide_ttl::{Clock, Timestamp, VirtualClock};
use serde_json::json;

#[test]
fn what_a_sweep_leaves_of_a_segment_is_written_anew_when_most_is_gone_though_nothing_is_inserted() {
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new(Timestamp::parse("2024-01-01T00:00:00Z").unwrap());
    let db = Database::builder(folder.path().join("db")).clock(Arc::new(clock.clone())).open().unwrap();
    let w = db.create_collection("w", CollectionOptions::new("t").meta_field("s").expire_after_seconds(3600)).unwrap();
    for hour in ["00", "01", "02", "05"] {
        let time = format!("2024-01-01T{hour}:10:00Z");
        w.insert_documents(&[json::value_of(&json!({"t": {"$date": time}, "s": "a"})).unwrap()]).unwrap();
    }
    db.flush().unwrap();
    let rows = || {
        let segments = w.snapshot().unwrap().segments();
        segments.iter().map(|s| (s.rows, s.rows_written)).collect::<Vec<_>>()
    };
    assert_eq!(rows(), [(4, 4)]);
    let mut schedule = Schedule { last_sweep: clock.monotonic(), last_seal: clock.monotonic(), settles_types: true };
    clock.set(Timestamp::parse("2024-01-01T04:00:00Z").unwrap());
    schedule.tick(&db.engine);
    assert_eq!(rows(), [(1, 1)]);
}
