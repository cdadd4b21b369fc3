use crate::{CollectionOptions, Database, json};
use ebbtide_ttl::{Clock, Timestamp, VirtualClock};
use serde_json::json;
use std::sync::Arc;

fn value(text: &str, sample: &str) -> String {
    let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == sample));
    line.unwrap_or_else(|| panic!("{sample}\n{text}")).rsplit_once(' ').unwrap().1.to_owned()
}

#[test]
fn what_a_database_does_is_counted_and_told_to_prometheus() {
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new(Timestamp::parse("2024-01-01T00:00:00Z").unwrap());
    let dyn_clock = Arc::new(clock.clone()) as Arc<dyn Clock>;
    let db = Database::builder(folder.path().join("db")).clock(dyn_clock).open().unwrap();
    let options = CollectionOptions::new("t").meta_field("s").expire_after_seconds(3600);
    let w = db.create_collection("w", options).unwrap();
    for minute in [10, 20] {
        let time = format!("2024-01-01T00:{minute}:00Z");
        w.insert_documents(&[json::value_of(&json!({"t": {"$date": time}, "s": "a", "v": 1.5})).unwrap()]).unwrap();
    }
    let before = db.metrics();
    assert_eq!((before.inserted, before.batches, before.log_syncs, before.seals), (2, 2, 2, 0));
    assert!(before.log_bytes > 0);
    let open = db.prometheus(&db.snapshot()).unwrap();
    assert_ne!(value(&open, "ebbtide_collection_open_bytes{collection=\"w\"}"), "0");
    db.flush().unwrap();
    let after = db.metrics();
    assert_eq!((after.seals, after.segments_written, after.compactions), (1, 1, 0));
    assert!(after.segment_bytes_written > 0);

    clock.set(Timestamp::parse("2024-01-01T03:00:00Z").unwrap());
    let due = db.prometheus(&db.snapshot()).unwrap();
    assert_eq!(value(&due, "ebbtide_rule_due_buckets{collection=\"w\",rule=\"collection\"}"), "1");
    assert_eq!(value(&due, "ebbtide_rule_due_measurements{collection=\"w\",rule=\"collection\"}"), "2");
    assert_eq!(value(&due, "ebbtide_collection_segments{collection=\"w\"}"), "1");
    assert_eq!(value(&due, "ebbtide_collection_last_time_seconds{collection=\"w\"}"), "1704068400");
    assert_eq!(value(&due, "ebbtide_inserted_measurements_total"), "2");
    db.sweep().unwrap();
    let swept = db.prometheus(&db.snapshot()).unwrap();
    assert_eq!(value(&swept, "ebbtide_sweep_deleted_buckets_total"), "1");
    assert_eq!(value(&swept, "ebbtide_rule_due_buckets{collection=\"w\",rule=\"collection\"}"), "0");
    assert_eq!(value(&swept, "ebbtide_collection_measurements{collection=\"w\"}"), "0");
}

#[test]
fn every_family_of_the_prometheus_text_has_one_head_and_its_samples_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::open(folder.path().join("db")).unwrap();
    for name in ["a", "b"] {
        db.create_collection(name, CollectionOptions::new("t").expire_after_seconds(60)).unwrap();
    }
    let text = db.prometheus(&db.snapshot()).unwrap();
    let mut family = String::new();
    let mut seen = std::collections::BTreeSet::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            help.split(' ').next().unwrap().clone_into(&mut family);
            assert!(seen.insert(family.clone()), "{family} comes twice");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let counts = family.ends_with("_total");
            assert_eq!(kind, format!("{family} {}", if counts { "counter" } else { "gauge" }));
        } else {
            assert_eq!(line.split(['{', ' ']).next().unwrap(), family);
            assert!(line.rsplit_once(' ').unwrap().1.parse::<f64>().is_ok(), "{line}");
        }
    }
    // A reader from outside knows nothing of the counters of another program.
    drop(db);
    let reader = Database::builder(folder.path().join("db")).read_only().open().unwrap();
    assert!(!reader.prometheus(&reader.snapshot()).unwrap().contains("_total"));
}
