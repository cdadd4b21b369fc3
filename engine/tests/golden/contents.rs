//! What the golden databases hold: the same rows in every format, and which of them a reader sees.

use ebbtide::ttl::{Filter, Name, Precision, RuleSpec, Timestamp, Value, VirtualClock};
use ebbtide::{BegunRequest, CollectionOptions, Database, Settings};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

/// When the folders were written.
pub(crate) const NOON: &str = "2024-03-01T12:00:00Z";
/// When they are read.
pub(crate) const READ_AT: &str = "2024-03-01T13:00:00Z";

/// The key of the request that is stored, which is its digest too, and its reply. Since format 3.
pub(crate) const REQUEST: [u8; 32] = [3; 32];
pub(crate) const REPLY: &[u8] = b"two inserts";

const DAYS_2: i64 = 2 * 86_400;
const HOUR: i64 = 3_600;

fn noon() -> Timestamp {
    Timestamp::parse(NOON).unwrap()
}

/// A row of a collection, before it is stored.
struct Row {
    collection: &'static str,
    /// Seconds until it expires, if it does.
    expires_after: Option<i64>,
    deleted: bool,
    time: Timestamp,
    document: Vec<(Name, Value)>,
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        // The shortest text that means this double and no other.
        Value::Double(d) => format!("{d:?}d"),
        Value::String(s) => format!("{s:?}"),
        Value::Date(t) => format!("@{}", t.nanos()),
        Value::Binary(bytes) => format!("x{bytes:02x?}"),
        Value::Array(items) => format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            let members: Vec<String> = members.map(|(name, value)| format!("{name}: {}", text(value))).collect();
            format!("{{{}}}", members.join(", "))
        }
    }
}

/// A row as a line: its members sorted by name, without those that are null.
pub(crate) fn row_text<'a>(collection: &str, members: impl Iterator<Item = (&'a str, Value)>) -> String {
    let mut members: Vec<(&str, Value)> = members.filter(|(_, value)| !value.is_null()).collect();
    members.sort_by_key(|(name, _)| *name);
    members.iter().fold(collection.to_owned(), |mut line, (name, value)| {
        let _written = write!(line, " {name}={}", text(value));
        line
    })
}

/// The rows that somebody sees at an instant, as lines, sorted.
pub(crate) fn visible(now: Timestamp) -> Vec<String> {
    let batches = [weather(), fine(), exact(), widened()].into_iter().flatten().flatten();
    let seen = batches.filter(|row| !row.deleted && row.expires_after.is_none_or(|e| row.time.plus_seconds(e) > now));
    let mut lines: Vec<String> = seen
        .map(|row| row_text(row.collection, row.document.iter().map(|(name, v)| (name.as_str(), stored(v, &row)))))
        .collect();
    lines.sort();
    lines
}

/// What a value has become when all rows are stored: the field `v` of `widened` is one of doubles then.
fn stored(value: &Value, row: &Row) -> Value {
    match value {
        Value::Int(i)
            if row.collection == "widened" && row.document.last().is_some_and(|(_, v)| std::ptr::eq(v, value)) =>
        {
            Value::Double(f64::from(i32::try_from(*i).unwrap()))
        }
        value => value.clone(),
    }
}

/// Where to look in a list of so many, going round.
fn at(i: i32, count: i32) -> usize {
    usize::try_from(i % count).unwrap()
}

fn object(members: &[(&str, Value)]) -> Value {
    Value::Object(members.iter().map(|(name, value)| ((*name).into(), value.clone())).collect())
}

/// Batches of the collection `weather`: objects as metas, a rule for all and one for the station `lobby`, fields of every type,
/// doubles whose digits grow from batch to batch.
fn weather() -> Vec<Vec<Row>> {
    let row = |batch: i32, i: i32| {
        let lobby = i % 3 == 0;
        let station = if lobby { "lobby" } else { "roof" };
        // Three days before noon to half an hour before.
        let time = noon().plus_seconds(i64::from(-1_800 - (batch * 12 + i) * 5_400));
        let temp = match batch {
            0 => f64::from(200 + i) / 10.0,
            1 => f64::from(2_000 + i) / 100.0,
            2 => 20.0 + 1.0 / f64::from(i + 3),
            _ => -f64::from(i) / 8.0,
        };
        let mut document: Vec<(Name, Value)> = vec![
            ("time".into(), Value::Date(time)),
            (
                "at".into(),
                object(&[
                    ("station", Value::from(station)),
                    ("site", object(&[("floor", Value::Int(i64::from(i % 2)))])),
                ]),
            ),
            ("temp".into(), Value::Double(temp)),
            ("large".into(), Value::Double(123_456_789_012.5 + f64::from(i))),
            ("count".into(), Value::Int(i64::MAX - i64::from(i))),
            ("ok".into(), if i == 4 { Value::Null } else { Value::Bool(i % 2 == 0) }),
            ("note".into(), Value::from(["", "dry", "rain, then \"snow\"\nfog", "\u{fc}\u{1f327}"][at(i, 4)])),
            ("raw".into(), Value::Binary(vec![u8::try_from(i).unwrap(); at(i, 3)])),
            ("seen".into(), Value::Date(time.plus_seconds(7))),
            ("wind".into(), Value::Array(vec![Value::Double(0.5), Value::Double(f64::from(i)), Value::Null])),
            ("tags".into(), Value::Array((0..i % 3).map(|t| Value::String(format!("t{t}"))).collect())),
            (
                "box".into(),
                object(&[("volt", Value::Double(3.0 + f64::from(i) / 100.0)), ("id", Value::Int(i64::from(i)))]),
            ),
        ];
        if batch > 1 {
            document.push(("late".into(), Value::Int(i64::from(batch))));
        }
        let expires_after = Some(if lobby { HOUR } else { DAYS_2 });
        Row { collection: "weather", expires_after, deleted: station == "roof" && i == 5, time, document }
    };
    (0..4).map(|batch| (0..12).map(|i| row(batch, i)).collect()).collect()
}

/// Batches of the collection `fine`: microseconds, text as meta, no rule.
fn fine() -> Vec<Vec<Row>> {
    let row = |batch: i32, i: i32| {
        let time = Timestamp::from_units(1_709_290_000_000_001 + i64::from(batch * 7_000_000 + i), Precision::Us);
        let special = [f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MAX, 5e-324][at(i, 5)];
        let document: Vec<(Name, Value)> = vec![
            ("t".into(), Value::Date(time)),
            ("host".into(), Value::String(format!("h{}", i % 2))),
            ("load".into(), Value::Double(f64::from(i) / 10.0)),
            ("special".into(), Value::Double(special)),
        ];
        Row { collection: "fine", expires_after: None, deleted: false, time, document }
    };
    (0..2).map(|batch| (0..6).map(|i| row(batch, i)).collect()).collect()
}

/// Batches of the collection `exact`: nanoseconds, no meta, times before 1970 and after 2038.
fn exact() -> Vec<Vec<Row>> {
    let times = [-1, 0, 1_709_290_000_000_000_007, 4_102_444_800_000_000_001];
    let row = |batch: i64, units: i64| {
        let time = Timestamp::from_units(units + batch, Precision::Ns);
        let document = vec![("t".into(), Value::Date(time)), ("n".into(), Value::Int(units % 1_000 - batch))];
        Row { collection: "exact", expires_after: None, deleted: false, time, document }
    };
    (0..2).map(|batch| times.iter().map(|units| row(batch, *units)).collect()).collect()
}

/// Batches of the collection `widened`: whole numbers first, then others.
fn widened() -> Vec<Vec<Row>> {
    let row = |batch: i32, i: i32| {
        let time = noon().plus_seconds(i64::from(-60 * (batch * 5 + i) - 1));
        let value = if batch == 0 { Value::Int(i64::from(i)) } else { Value::Double(f64::from(i) + 0.25) };
        let document =
            vec![("t".into(), Value::Date(time)), ("id".into(), Value::Int(i64::from(i))), ("v".into(), value)];
        Row { collection: "widened", expires_after: Some(DAYS_2), deleted: false, time, document }
    };
    (0..2).map(|batch| (0..5).map(|i| row(batch, i)).collect()).collect()
}

/// Makes the database: sealed and compacted segments, deleted rows, dropped buckets, a dropped collection, and rows in the log.
pub(crate) fn make(folder: &Path, clock: &Arc<VirtualClock>) -> Database {
    let settings = Settings { wal_file_bytes_max: 4 << 10, ..Settings::default() };
    let db = Database::builder(folder).clock(clock.clone()).settings(settings).open().unwrap();
    let weather_options = CollectionOptions::new("time").meta_field("at").expire_after_seconds(DAYS_2);
    db.create_collection("weather", weather_options).unwrap();
    let lobby = Filter::eq("at.station", Value::from("lobby"));
    db.create_rules("weather", vec![RuleSpec::new("lobby", HOUR, lobby)]).unwrap();
    db.create_collection("fine", CollectionOptions::new("t").meta_field("host").precision(Precision::Us)).unwrap();
    db.create_collection("exact", CollectionOptions::new("t").precision(Precision::Ns)).unwrap();
    let widened_options = CollectionOptions::new("t").meta_field("id").expire_after_seconds(DAYS_2);
    db.create_collection("widened", widened_options).unwrap();
    db.create_collection("gone", CollectionOptions::new("t")).unwrap();
    let documents = |rows: &[Row]| rows.iter().map(|row| Value::Object(row.document.clone())).collect::<Vec<Value>>();
    let insert = |rows: &[Row]| {
        db.collection(rows[0].collection).unwrap().insert_documents(&documents(rows)).unwrap();
    };
    let gone = db.collection("gone").unwrap();
    gone.insert_documents(&[object(&[("t", Value::Date(noon())), ("x", Value::Int(1))])]).unwrap();

    let [weather, fine, exact, widened] = [weather(), fine(), exact(), widened()];
    // Two segments that are merged into one.
    insert(&weather[1]);
    insert(&fine[0]);
    insert(&exact[0]);
    insert(&widened[0]);
    db.flush().unwrap();
    insert(&weather[2]);
    insert(&exact[1]);
    db.compact(Some("weather")).unwrap();
    db.drop_collection("gone").unwrap();
    // One that stays as it was sealed.
    insert(&weather[0]);
    insert(&widened[1]);
    db.flush().unwrap();
    db.sweep().unwrap();
    // The rest is in the log: one record of two collections and a request.
    let [weather_rows, fine_rows] = [&weather[3], &fine[1]].map(|rows| documents(rows));
    let batch = db.write_batch().insert_documents("weather", &weather_rows).insert_documents("fine", &fine_rows);
    match db.begin_request(REQUEST, REQUEST).unwrap() {
        BegunRequest::New(mut request) => drop(batch.commit_once(&mut request, REPLY).unwrap()),
        known => panic!("{known:?}"),
    }
    let deleted = Filter::and(vec![Filter::eq("at.station", Value::from("roof")), Filter::eq("box.id", Value::Int(5))]);
    db.collection("weather").unwrap().delete(&deleted).unwrap();
    db
}
