//! Conditions on texts: a scan skips rows that cannot match, and no other ones.

use super::*;
use ebbtide::buckets::value_at;
use ebbtide::{ScanReport, TextCondition, TextPart};
use ebbtide_ttl::{Filter, RuleSpec};

/// A text that looks random.
fn id(number: i64) -> String {
    let mixed = (number.cast_unsigned() + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    format!("{:016x}", (mixed ^ mixed >> 29).wrapping_mul(0x94D0_49BB_1331_11EB))
}

/// Lines of three sensors, a second apart, with an id in each; one in ten has none.
fn lines(numbers: std::ops::Range<i64>) -> Vec<Value> {
    let line = |n: i64| {
        let Value::Object(mut members) = reading(n, ["roof", "hall", "yard"][(n % 3) as usize], n) else { panic!() };
        let text = format!("sensor restarted, trace {}", id(n));
        members.push(("line".into(), if n % 10 == 9 { Value::Null } else { Value::from(text.as_str()) }));
        Value::Object(members)
    };
    numbers.map(line).collect()
}

fn containing(field: &str, text: &str) -> ScanRequest {
    let part = TextPart { column: field.to_owned(), text: text.to_owned() };
    ScanRequest { texts: vec![TextCondition { alternatives: vec![vec![part]] }], ..ScanRequest::default() }
}

/// The numbers of the rows that contain a text in a field, of those that a request returns, sorted; and the report.
fn found(db: &Database, field: &str, text: &str, request: &ScanRequest) -> (Vec<i64>, ScanReport) {
    let snapshot = db.snapshot().collection("weather").unwrap();
    let columns = Some(vec!["v".to_owned(), field.to_owned()]);
    let (units, report) = snapshot.scan_reported(&ScanRequest { projection: columns, ..request.clone() }).unwrap();
    let mut numbers = Vec::new();
    for batch in units.iter().flat_map(|unit| unit.read().unwrap()).map(Result::unwrap) {
        for row in 0..batch.num_rows() {
            let matches = matches!(value_at(batch.column(1), row), Value::String(line) if line.contains(text));
            if let (true, Value::Int(v)) = (matches, value_at(batch.column(0), row)) {
                numbers.push(v);
            }
        }
    }
    numbers.sort_unstable();
    (numbers, report)
}

/// Compares what is found of each of some lines with what reading everything finds; returns how often rows were skipped.
#[track_caller]
fn compare(db: &Database, field: &str, numbers: impl Iterator<Item = i64>) -> usize {
    let mut pruned = 0;
    for number in numbers {
        let text = id(number);
        let (some, report) = found(db, field, &text, &containing(field, &text));
        let (all, _) = found(db, field, &text, &ScanRequest::default());
        assert_eq!(some, all, "{number}");
        pruned += usize::from(report.rows_pruned > 0);
    }
    pruned
}

#[test]
fn rows_that_contain_a_text_are_found_beside_deleted_and_expired_ones_and_after_every_change() {
    let sim = Sim::new();
    let (db, weather) = made(&sim);
    let roof = Filter::eq("sensor", Value::from("roof"));
    db.create_rules("weather", vec![RuleSpec::new("roof", 40_000, roof)]).unwrap();
    weather.insert_documents(&lines(0..30_000)).unwrap();
    db.flush().unwrap();
    weather.insert_documents(&lines(30_000..50_000)).unwrap();
    db.flush().unwrap();
    weather.insert_documents(&lines(50_000..50_500)).unwrap();
    let some = || (0..50_500).step_by(1_501);
    assert_eq!(compare(&db, "line", some()), some().count());

    // A rule hides some rows of a bucket, a delete removes others.
    sim.clock.set(at(60_000));
    for deleted in [3_002, 7_505, 16_511, 16_513] {
        assert_eq!(weather.delete(&Filter::eq("v", Value::Int(deleted))).unwrap(), 1, "{deleted}");
    }
    assert_eq!(compare(&db, "line", some()), some().count());
    db.sweep().unwrap();
    assert_eq!(compare(&db, "line", some()), some().count());
    db.compact(None).unwrap();
    assert_eq!(compare(&db, "line", some()), some().count());

    // The same name with other texts, and the same texts under another name.
    db.rename_field("weather", "line", "old").unwrap();
    weather.insert_documents(&lines(60_000..70_000)).unwrap();
    db.flush().unwrap();
    assert_eq!(compare(&db, "old", some()), some().count());
    assert_eq!(compare(&db, "line", (60_000..70_000).step_by(1_501)), 7);
    db.drop_field("weather", "line").unwrap();
    db.rename_field("weather", "old", "line").unwrap();
    assert_eq!(compare(&db, "line", some()), some().count());
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
    drop((db, weather));
    let db = sim.open();
    assert_eq!(compare(&db, "line", some()), some().count());
}

#[test]
fn blocks_of_rows_are_those_of_the_file_across_row_groups() {
    let sim = Sim::new();
    let db = sim.open();
    let options = weather().span_seconds(31_536_000);
    let weather = db.create_collection("weather", options).unwrap();
    for from in (0..270_000).step_by(30_000) {
        weather.insert_documents(&lines(from..from + 30_000)).unwrap();
    }
    db.flush().unwrap();
    assert_eq!(weather.snapshot().unwrap().segments().len(), 1);
    let some = || [0, 1, 24_575, 24_576, 262_143, 262_144, 269_998].into_iter();
    assert_eq!(compare(&db, "line", some()), some().count());
    let (rows, report) = found(&db, "line", &id(262_144), &containing("line", &id(262_144)));
    assert_eq!(rows, [262_144]);
    assert!(report.rows_pruned > 240_000, "{report:?}");
}
