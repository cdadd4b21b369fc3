//! Archives whose files are read as segments.

use crate::archive::{all, archived, filled, numbers, options, state_of, values};
use crate::world::{HOUR, OTHER, World, at, reading, without_proof};
use arrow::array::{ArrayRef, RecordBatch};
use ebbtide::buckets::value_at;
use ebbtide::ttl::{Code, Value};
use ebbtide::{Aggregate, AggregateRequest, CollectionOptions, CollectionSnapshot, Database, ScanRequest, TimeRange};
use ebbtide_lake::sim::SimStore;

#[test]
fn what_has_expired_is_answered_from_directories_as_a_collection_is() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = db.create_collection("weather", options()).unwrap();
    let all = db.create_collection("all", CollectionOptions::new("t").meta_field("sensor")).unwrap();
    // Four series. Some readings lack a value, and the doubles cannot be stored as decimals.
    let reading = |v: i64| {
        let mut members = vec![
            ("t".into(), Value::Date(at(v * 20))),
            ("sensor".into(), Value::from(format!("s{}", v % 4).as_str())),
            ("third".into(), Value::Double(v as f64 / 3.0)),
        ];
        if v % 7 != 0 {
            members.push(("v".into(), Value::Int(v)));
        }
        Value::Object(members)
    };
    let readings: Vec<Value> = (0..12_000).map(reading).collect();
    for part in readings.chunks(500) {
        c.insert_documents(part).unwrap();
        all.insert_documents(part).unwrap();
    }
    db.flush().unwrap();
    // Some of it is archived; of some windows only a part has expired, and that is here.
    for hours in [20, 40] {
        world.clock.set(at(hours * HOUR + 1_500));
        db.sweep().unwrap();
    }
    world.clock.set(at(41 * HOUR + 1_500));
    let snapshot = db.snapshot();
    let expired = snapshot.collection("weather").unwrap().archived_collection().unwrap().unwrap();
    let expected = snapshot.collection("all").unwrap();
    let until = TimeRange::new(None, Some(at(40 * HOUR + 1_500)));
    let hour = std::time::Duration::from_secs(3_600);
    let aggregates = ["v", "third"].into_iter().flat_map(|field| {
        let field = || field.to_owned();
        [Aggregate::Count(field()), Aggregate::Min(field()), Aggregate::Max(field()), Aggregate::Last(field())]
    });
    let aggregates: Vec<Aggregate> = aggregates.chain([Aggregate::Rows, Aggregate::Sum("v".to_owned())]).collect();
    for (by_meta, width) in [(false, None), (true, None), (false, Some(hour * 2)), (true, Some(hour / 2))] {
        let aggregates = aggregates.clone();
        let request = AggregateRequest { aggregates, by_meta, width, ..AggregateRequest::default() };
        let found = expired.aggregate_guarded(&request, &()).unwrap();
        let wanted = expected.aggregate(&AggregateRequest { time: until, ..request }).unwrap();
        assert_eq!(found.groups, wanted, "{by_meta} {width:?}");
        assert!(found.known > 0 || width.is_some(), "{found:?}");
    }
    let request = ScanRequest { time: until, ..ScanRequest::default() };
    let last = expected.last_points(&request).unwrap();
    assert_eq!((expired.last_points(&ScanRequest::default()).unwrap(), last.num_rows()), (last, 4));
    let rows = |snapshot: &CollectionSnapshot, request: &ScanRequest| {
        let units = snapshot.scan(request).unwrap();
        let batches = units.iter().flat_map(|unit| unit.read().unwrap()).map(|batch| batch.unwrap());
        let texts = |batch: &RecordBatch| -> Vec<String> {
            let value = |row: usize, column: &ArrayRef| format!("{:?}", value_at(column.as_ref(), row));
            let row = |row: usize| batch.columns().iter().map(|c| value(row, c)).collect::<Vec<_>>().join(", ");
            (0..batch.num_rows()).map(row).collect()
        };
        let mut rows: Vec<String> = batches.flat_map(|batch| texts(&batch)).collect();
        rows.sort();
        rows
    };
    assert_eq!(rows(&expired, &ScanRequest::default()), rows(&expected, &request));
    // The first hour is archived, a part of the second has expired, and nothing of the third.
    for (from, to, count) in [(5, 6, 180), (40, 41, 76), (41, 42, 0)] {
        let time = TimeRange::from(at(from * HOUR)..at(to * HOUR));
        let found = rows(&expired, &ScanRequest { time, ..ScanRequest::default() });
        let time = TimeRange::new(time.first(), time.last().min(until.last()));
        let wanted = rows(&expected, &ScanRequest { time, ..ScanRequest::default() });
        assert_eq!((found.len(), found), (count, wanted), "{from} to {to}");
    }
    // A place that does not answer is an error of the read, and of no other.
    drop((db, c, all, snapshot, expired, expected));
    let db = world.open();
    let snapshot = db.snapshot().collection("weather").unwrap();
    let expired = snapshot.archived_collection().unwrap().unwrap();
    for name in world.store.names().iter().filter(|name| name.ends_with(".parquet")) {
        world.store.tamper(name, bytes::Bytes::new());
    }
    let request = ScanRequest { time: TimeRange::from(at(0)..at(HOUR)), ..ScanRequest::default() };
    assert_eq!(expired.scan(&request).unwrap_err().code(), Code::HostUnreachable);
    assert!(snapshot.count().unwrap() > 0);
}

#[test]
fn an_archive_with_files_that_are_no_segments_is_read_row_by_row() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled(&world);
    world.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    drop(db);
    for name in world.store.names().iter().filter(|name| name.ends_with(".json")) {
        without_proof(&world.store, name);
        let content = String::from_utf8(world.store.content(name).unwrap().to_vec()).unwrap();
        world.store.tamper(name, content.replace("\"ebbtide.summary\"", "\"other\"").into());
    }
    let db = world.open();
    let snapshot = db.snapshot().collection("weather").unwrap();
    assert!(snapshot.archived_collection().unwrap().is_none());
    let found = snapshot.archived(&ScanRequest::default()).unwrap();
    let rows = found.units.iter().flat_map(|unit| unit.read().unwrap()).map(|batch| batch.unwrap().num_rows());
    assert_eq!(rows.sum::<usize>(), 30);
}

#[test]
fn a_scan_larger_than_the_cache_fetches_nothing_twice() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = db.create_collection("weather", options()).unwrap();
    // Doubles that cannot be compressed: two and a half times as many bytes as the cache has.
    let mut random = 1_u64;
    let mut noise = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Value::Double(f64::from_bits(random >> 12 | 1.0_f64.to_bits()))
    };
    for part in 0..80 {
        let rows = (0..500).map(|row| {
            let v = part * 500 + row;
            let mut members = vec![("t".into(), Value::Date(at(v / 40))), ("sensor".into(), Value::from("a"))];
            members.extend((0..10).map(|field| (format!("f{field}").as_str().into(), noise())));
            members.push(("v".into(), Value::Int(v)));
            Value::Object(members)
        });
        c.insert_documents(&rows.collect::<Vec<_>>()).unwrap();
    }
    world.clock.set(at(1000 * HOUR));
    db.sweep().unwrap();
    let stored: usize = world.store.names().iter().map(|name| world.store.content(name).unwrap().len()).sum();
    assert!(stored > 5 << 19, "{stored}");
    let expired = db.snapshot().collection("weather").unwrap().archived_collection().unwrap().unwrap();
    let before = (world.store.requests(), world.store.bytes_read());
    let units = expired.scan(&ScanRequest::default()).unwrap();
    let mut found: Vec<i64> =
        units.iter().flat_map(|unit| unit.read().unwrap()).flat_map(|batch| values(&batch.unwrap())).collect();
    found.sort_unstable();
    assert_eq!(found, numbers(0..40_000));
    let (requests, bytes) = (world.store.requests() - before.0, world.store.bytes_read() - before.1);
    assert!(requests < 12, "{requests}");
    assert!(bytes < stored as u64 * 11 / 10, "{bytes} of {stored}");
}

/// A reading with another member.
fn with(reading: Value, name: &str, value: Value) -> Value {
    let Value::Object(mut members) = reading else { panic!("a reading is an object") };
    members.retain(|(known, _)| known != name);
    members.push((name.into(), value));
    Value::Object(members)
}

fn object(name: &str, value: Value) -> Value {
    Value::Object(vec![(name.into(), value)])
}

fn empty() -> Value {
    Value::Object(Vec::new())
}

/// The field `note` of what has expired, by `v`.
fn notes(db: &Database) -> Vec<(i64, Value)> {
    let expired = db.snapshot().collection("weather").unwrap().archived_collection().unwrap().unwrap();
    let mut notes = Vec::new();
    for unit in expired.scan(&ScanRequest::default()).unwrap() {
        for batch in unit.read().unwrap() {
            let batch = batch.unwrap();
            let note = batch.column_by_name("note").unwrap();
            notes.extend(values(&batch).into_iter().zip((0..batch.num_rows()).map(|row| value_at(note.as_ref(), row))));
        }
    }
    notes.sort_by_key(|(v, _)| *v);
    notes
}

#[test]
fn a_field_of_objects_without_members_is_null_in_tables_until_it_has_one() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = db.create_collection("weather", options()).unwrap();
    let of_nothing = with(reading(0, 0), "note", object("by", empty()));
    c.insert_documents(&[of_nothing, with(reading(0, 1), "other", empty())]).unwrap();
    assert_eq!(db.publish("weather", OTHER, 60).unwrap().measurements, 2);
    world.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    assert_eq!((all(&db), archived(&db)), (numbers(0..2), 2), "{}", state_of(&db));
    assert_eq!(notes(&db), [(0, Value::Null), (1, Value::Null)]);
    let by = object("by", object("name", Value::from("x")));
    c.insert_documents(&[with(reading(2 * HOUR, 2), "note", by.clone())]).unwrap();
    assert_eq!(db.publish("weather", OTHER, 60).unwrap().measurements, 1);
    world.clock.set(at(4 * HOUR));
    db.sweep().unwrap();
    assert_eq!((all(&db), archived(&db)), (numbers(0..3), 3), "{}", state_of(&db));
    assert_eq!(notes(&db), [(0, Value::Null), (1, Value::Null), (2, by)]);
}

#[test]
fn a_field_of_lists_without_items_is_null_in_an_archive_until_it_has_one() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = db.create_collection("weather", options()).unwrap();
    let list = |items: Vec<Value>| with(reading(0, 0), "note", Value::Array(items));
    c.insert_documents(&[list(Vec::new()), with(reading(0, 1), "other", object("tags", Value::Array(Vec::new())))])
        .unwrap();
    world.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    assert_eq!((all(&db), archived(&db)), (numbers(0..2), 2), "{}", state_of(&db));
    assert_eq!(notes(&db), [(0, Value::Null), (1, Value::Null)]);
    // The type of the items does not keep what follows from being moved.
    let tags = Value::Array(vec![Value::from("x")]);
    let other = with(reading(2 * HOUR, 3), "other", object("tags", tags.clone()));
    c.insert_documents(&[with(reading(2 * HOUR, 2), "note", tags.clone()), other]).unwrap();
    world.clock.set(at(4 * HOUR));
    db.sweep().unwrap();
    assert_eq!((all(&db), archived(&db)), (numbers(0..4), 4), "{}", state_of(&db));
    assert_eq!(notes(&db), [(0, Value::Null), (1, Value::Null), (2, tags), (3, Value::Null)]);
}

#[test]
fn a_meta_with_an_object_without_members_stays_here_and_what_was_kept_for_long_enough_still_leaves() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = db.create_collection("weather", options().keep_seconds(10 * HOUR)).unwrap();
    let sensor = |by: Value| Value::Object(vec![("id".into(), Value::from("a")), ("by".into(), by)]);
    let of = |time: i64, v: i64, meta: Value| with(reading(time, v), "sensor", meta);
    c.insert_documents(&[of(0, 0, object("id", Value::from("a"))), of(4 * HOUR, 1, object("id", Value::from("a")))])
        .unwrap();
    world.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    assert_eq!(archived(&db), 1);
    c.insert_documents(&[of(4 * HOUR, 2, sensor(empty()))]).unwrap();
    world.clock.set(at(8 * HOUR));
    db.sweep().unwrap();
    assert_eq!((all(&db), archived(&db)), (numbers(0..3), 1));
    let why = "'sensor.by' in the meta is an object without members, which a table cannot have";
    assert!(state_of(&db).contains(why), "{}", state_of(&db));
    drop((c, db));
    let db = world.open();
    world.clock.set(at(11 * HOUR));
    db.sweep().unwrap();
    assert_eq!((all(&db), archived(&db)), (numbers(1..3), 0));
    // With a member it can be moved.
    let named = of(4 * HOUR, 3, sensor(object("name", Value::from("x"))));
    db.collection("weather").unwrap().insert_documents(&[named]).unwrap();
    db.sweep().unwrap();
    assert_eq!((all(&db), archived(&db)), (numbers(1..4), 3));
}

#[test]
fn fields_that_differ_only_in_case_stay_here_and_are_not_published() {
    let object = |members: &[&str]| Value::Object(members.iter().map(|name| ((*name).into(), Value::Int(1))).collect());
    for (name, value, fields) in [
        ("V", Value::Int(1), "'v' and 'V'"),
        ("T", Value::Int(1), "'t' and 'T'"),
        ("o", object(&["one", "ÄB", "äb"]), "'o.ÄB' and 'o.äb'"),
    ] {
        let world = World::new(SimStore::new(1, 0));
        let db = world.open();
        let c = db.create_collection("weather", options()).unwrap();
        let Value::Object(mut members) = reading(0, 0) else { panic!("a reading is an object") };
        members.push((name.into(), value));
        c.insert_documents(&[Value::Object(members)]).unwrap();
        let why = format!("the fields {fields} differ only in case");
        let error = db.publish("weather", "s3://sim/table", 60).unwrap_err().to_string();
        assert!(error.contains(&why), "{error}");
        assert!(db.publications().is_empty());
        world.clock.set(at(2 * HOUR));
        db.sweep().unwrap();
        assert_eq!(all(&db), numbers(0..1));
        assert!(state_of(&db).contains(&why), "{}", state_of(&db));
        assert_eq!(world.store.names(), Vec::<String>::new());
    }
}

#[test]
fn what_the_log_says_of_a_segment_is_compared_with_the_file() {
    let world = World::new(SimStore::new(1, 0));
    let db = filled(&world);
    world.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    drop(db);
    let log = || world.store.names().into_iter().filter(|name| name.ends_with(".json"));
    let of_log = |name: &str| String::from_utf8(world.store.content(name).unwrap().to_vec()).unwrap();
    let name = log().find(|name| of_log(name).contains("ebbtide.summary")).unwrap();
    without_proof(&world.store, &name);
    let content = of_log(&name);
    // The log against itself, and against the file.
    for (changes, what) in [
        (vec![("\\\"rows\\\":30", "\\\"rows\\\":29")], "that Ebbtide did not add"),
        (
            vec![("\\\"rows\\\":30", "\\\"rows\\\":29"), ("\\\"numRecords\\\":30", "\\\"numRecords\\\":29")],
            "another number of rows or buckets",
        ),
        (vec![("\\\"buckets\\\":3", "\\\"buckets\\\":2")], "another number of rows or buckets"),
    ] {
        let changed = changes.iter().fold(content.clone(), |content, (from, to)| {
            assert!(content.contains(from), "{from}: {content}");
            content.replace(from, to)
        });
        world.store.tamper(&name, changed.into());
        let snapshot = world.open().snapshot().collection("weather").unwrap();
        let read = || snapshot.archived_collection()?.expect("a segment").count();
        let error = read().unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn dozens_of_files_are_opened_together_and_one_that_is_lost_is_an_error_of_reads_that_need_it() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = db.create_collection("weather", options()).unwrap();
    for day in 0..140 {
        let reading = |v: i64| {
            let sensor = if day == 0 { "first day" } else { "others" };
            let v = day * 50 + v;
            Value::Object(vec![
                ("t".into(), Value::Date(at(day * 86_400 + v))),
                ("sensor".into(), Value::from(sensor)),
                ("v".into(), Value::Int(v)),
            ])
        };
        c.insert_documents(&(0..50).map(reading).collect::<Vec<_>>()).unwrap();
        world.clock.set(at((day + 1) * 86_400));
        db.sweep().unwrap();
    }
    drop((c, db));
    let db = world.open();
    let snapshot = db.snapshot().collection("weather").unwrap();
    let expired = snapshot.archived_collection().unwrap().unwrap();
    let of_days = |from: i64, to: i64| {
        let time = TimeRange::from(at(from * 86_400)..at(to * 86_400));
        let units = expired.scan(&ScanRequest { time, ..ScanRequest::default() })?;
        let mut found = Vec::new();
        for unit in units {
            for batch in unit.read()? {
                found.extend(values(&batch?));
            }
        }
        found.sort_unstable();
        Ok::<_, ebbtide::Error>(found)
    };
    let before = world.store.requests();
    assert_eq!(of_days(7, 8).unwrap(), numbers(350..400));
    assert!(world.store.requests() - before < 6, "one file is opened and read");
    assert_eq!(of_days(0, 140).unwrap(), numbers(0..7_000));
    let mut last = values(&expired.last_points(&ScanRequest::default()).unwrap());
    last.sort_unstable();
    assert_eq!(last, [49, 6_999]);
    drop((snapshot, db));
    let db = world.open();
    let expired = db.snapshot().collection("weather").unwrap().archived_collection().unwrap().unwrap();
    let of_day = |day: i64| {
        let time = TimeRange::from(at(day * 86_400)..at((day + 1) * 86_400));
        expired.aggregate(&AggregateRequest {
            aggregates: vec![Aggregate::Sum("v".to_owned())],
            time,
            ..AggregateRequest::default()
        })
    };
    let lost = world.store.names().into_iter().find(|name| name.ends_with(".parquet")).unwrap();
    world.store.tamper(&lost, bytes::Bytes::new());
    let fail: Vec<i64> = (0..140).filter(|day| of_day(*day).is_err()).collect();
    assert_eq!(fail.len(), 1, "{fail:?}");
    assert_eq!(expired.count().unwrap_err().code(), Code::HostUnreachable);
    assert_eq!(of_day((fail[0] + 1) % 140).unwrap().num_rows(), 1);
}

#[test]
fn fields_of_another_type_than_in_the_archive_are_read_row_by_row() {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = db.create_collection("weather", options()).unwrap();
    let with = |seconds: i64, v: i64, temp: Value| {
        let Value::Object(mut members) = reading(seconds, v) else { panic!("a reading is an object") };
        members.push(("temp".into(), temp));
        Value::Object(members)
    };
    c.insert_documents(&[with(0, 0, Value::Double(1.5)), with(60, 1, Value::Double(2.5))]).unwrap();
    world.clock.set(at(2 * HOUR));
    db.sweep().unwrap();
    let as_collection = || db.snapshot().collection("weather").unwrap().archived_collection().unwrap();
    assert_eq!(as_collection().unwrap().count().unwrap(), 2);
    db.drop_field("weather", "temp").unwrap();
    c.insert_documents(&[with(2 * HOUR, 2, Value::Int(5))]).unwrap();
    assert!(as_collection().is_none());
    let snapshot = db.snapshot().collection("weather").unwrap();
    let read = |projection: &str| {
        let request = ScanRequest { projection: Some(vec![projection.to_owned()]), ..ScanRequest::default() };
        let units = snapshot.archived(&request)?.units;
        let mut rows = 0;
        for unit in units {
            for batch in unit.read()? {
                rows += batch?.num_rows();
            }
        }
        Ok::<_, ebbtide::Error>(rows)
    };
    assert_eq!(read("v").unwrap(), 2);
    assert!(read("temp").is_err());
}
