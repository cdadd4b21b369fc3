//! Changes of collections: their names, their fields, and copies of them.

use super::*;
use ebbtide::fs::sim::Variant;
use ebbtide::ttl::Code;
use ebbtide::{BatchId, Replaces, SegmentFiles};
use ebbtide_ttl::{Filter, RuleSpec};

fn code(result: ebbtide::Result<()>) -> Code {
    result.unwrap_err().code()
}

fn in_collection(db: &Database, name: &str) -> Vec<i64> {
    numbers_in(&db.snapshot(), name).unwrap()
}

fn files_of(db: &Database, name: &str) -> SegmentFiles {
    db.collection(name).unwrap().snapshot().unwrap().segment_files().unwrap()
}

#[test]
fn a_collection_keeps_its_measurements_rules_and_folder_under_another_name() {
    let sim = Sim::new();
    let (db, old) = made(&sim);
    old.insert_documents(&readings(0..3)).unwrap();
    db.flush().unwrap();
    old.insert_documents(&readings(3..5)).unwrap();
    let (before, reader) = (old.snapshot().unwrap(), sim.builder().read_only().open().unwrap());
    db.rename_collection("weather", "climate").unwrap();

    assert_eq!((db.collections(), in_collection(&db, "climate")), (vec!["climate".to_owned()], numbered(0..5)));
    // A handle, a snapshot and a reader from before.
    assert_eq!(code(old.insert_documents(&readings(5..6)).map(drop)), Code::NamespaceNotFound);
    assert_eq!((before.name(), before.count().unwrap()), ("weather", 5));
    assert_eq!(numbers(&reader), numbered(0..5));
    let climate = db.collection("climate").unwrap();
    climate.insert_documents(&readings(5..7)).unwrap();
    db.flush().unwrap();
    climate.insert_documents(&readings(7..9)).unwrap();
    // The name is free; the folders of the two do not meet.
    let new = db.create_collection("weather", weather()).unwrap();
    new.insert_documents(&readings(100..101)).unwrap();
    db.flush().unwrap();
    climate.insert_documents(&readings(9..10)).unwrap();
    let (first, second) = (files_of(&db, "climate"), files_of(&db, "weather"));
    assert_eq!((first.folder, first.files.len()), (Path::new(ROOT).join("weather.1"), 3));
    assert_eq!((second.folder, second.files.len()), (Path::new(ROOT).join("weather.2"), 1));
    drop(db);

    // After a power cut, and after the manifest has been written anew by that open.
    let cut = sim.on(sim.fs.crash(Variant::V0, 0));
    for _ in 0..2 {
        let db = cut.open();
        assert_eq!(in_collection(&db, "climate"), numbered(0..10));
        assert_eq!(in_collection(&db, "weather"), [100]);
        assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
        db.close().unwrap();
    }
    let db = cut.open();
    db.compact(None).unwrap();
    db.drop_collection("climate").unwrap();
    assert_eq!(cut.files("seg-").len(), 1, "the folder of what was dropped is gone");
    assert_eq!(in_collection(&db, "weather"), [100]);
}

#[test]
fn a_rename_that_cannot_be_is_refused_and_changes_nothing() {
    let sim = Sim::new();
    let (db, _) = made(&sim);
    db.create_collection("other", weather()).unwrap();
    db.put_view("v", "CREATE VIEW v AS SELECT 1", Replaces::Nothing).unwrap();
    for (from, to, refused) in [
        ("nothing", "new", Code::NamespaceNotFound),
        ("nothing", "nothing", Code::NamespaceNotFound),
        ("weather", "weather", Code::IllegalOperation),
        ("weather", "other", Code::NamespaceExists),
        ("weather", "v", Code::NamespaceExists),
        ("v", "w", Code::NamespaceNotFound),
        ("weather", "", Code::InvalidNamespace),
        ("weather", "a$b", Code::InvalidNamespace),
        ("weather", ".a", Code::InvalidNamespace),
    ] {
        assert_eq!(code(db.rename_collection(from, to)), refused, "{from} to {to}");
    }
    assert_eq!(db.collections(), ["other", "weather"]);
    let reader = sim.builder().read_only().open().unwrap();
    assert_eq!(code(reader.rename_collection("weather", "new")), Code::IllegalOperation);
}

#[test]
fn names_can_be_exchanged_and_a_manifest_that_is_written_anew_keeps_them() {
    let sim = Sim::new();
    let db = sim.open();
    for (name, number) in [("a", 1), ("b", 2)] {
        db.create_collection(name, weather()).unwrap().insert_documents(&readings(number..number + 1)).unwrap();
    }
    db.flush().unwrap();
    for (from, to) in [("a", "c"), ("b", "a"), ("c", "b")] {
        db.rename_collection(from, to).unwrap();
    }
    drop(db);
    for _ in 0..3 {
        let db = sim.open();
        assert_eq!((in_collection(&db, "a"), in_collection(&db, "b")), (vec![2], vec![1]));
        assert_eq!(files_of(&db, "a").folder, Path::new(ROOT).join("b.2"));
        assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
        db.abandon();
    }
}

/// The values of a field that are not null, of the visible rows in order of time; nothing if there is no such field.
fn values(db: &Database, name: &str, field: &str) -> Vec<Value> {
    let snapshot = db.collection(name).unwrap().snapshot().unwrap();
    values_in(&snapshot, field)
}

fn values_in(snapshot: &ebbtide::CollectionSnapshot, field: &str) -> Vec<Value> {
    if snapshot.schema().field_type(field).is_none() {
        return Vec::new();
    }
    let columns = vec!["t".to_owned(), field.to_owned()];
    let request = ScanRequest { projection: Some(columns), ..ScanRequest::default() };
    let mut found = Vec::new();
    for batch in snapshot.scan(&request).unwrap().iter().flat_map(|unit| unit.read().unwrap()) {
        let batch = batch.unwrap();
        let value = |column: &str, row| ebbtide::buckets::value_at(batch.column_by_name(column).unwrap(), row);
        let at = |row| match value("t", row) {
            Value::Date(t) => t.nanos(),
            other => panic!("a time of {other:?}"),
        };
        found.extend((0..batch.num_rows()).map(|row| (at(row), value(field, row))));
    }
    found.sort_by_key(|(t, _)| *t);
    found.into_iter().map(|(_, value)| value).filter(|value| *value != Value::Null).collect()
}

fn ints(values: impl IntoIterator<Item = i64>) -> Vec<Value> {
    values.into_iter().map(Value::Int).collect()
}

/// A measurement with any field.
fn with(seconds: i64, field: &str, value: Value) -> Value {
    let at = Value::Date(at(seconds));
    Value::Object(vec![("t".into(), at), ("sensor".into(), Value::from("roof")), (field.into(), value)])
}

fn no_faults(db: &Database) {
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn a_renamed_field_keeps_its_values_sealed_open_deleted_and_hidden() {
    let sim = Sim::new();
    let db = sim.open();
    let c = db.create_collection("weather", weather().expire_after_seconds(60)).unwrap();
    c.insert_documents(&readings(0..4)).unwrap();
    db.flush().unwrap();
    c.delete(&Filter::eq("v", Value::Int(1))).unwrap();
    c.insert_documents(&readings(4..6)).unwrap();
    db.flush().unwrap();
    c.insert_documents(&readings(6..8)).unwrap();
    let before = c.snapshot().unwrap();
    // The first three have expired; two of them are stored.
    sim.clock.set(at(62));
    db.rename_field("weather", "v", "level").unwrap();

    let level = |db: &Database| values(db, "weather", "level");
    assert_eq!(level(&db), ints(3..8));
    assert_eq!(values(&db, "weather", "v"), []);
    assert_eq!(values_in(&before, "v"), ints([0, 2, 3, 4, 5, 6, 7]), "a snapshot from before reads on");
    assert!(files_of(&db, "weather").agree && files_of(&db, "weather").columns.iter().any(|(name, _)| name == "level"));
    // The old name is free for another type.
    c.insert_documents(&[with(8, "v", Value::from("text")), with(9, "level", Value::Int(9))]).unwrap();
    assert_eq!(values(&db, "weather", "v"), [Value::from("text")]);
    no_faults(&db);
    drop((before, db));

    let cut = sim.on(sim.fs.crash(Variant::V0, 0));
    let db = cut.open();
    assert_eq!(level(&db), ints((3..8).chain([9])));
    assert_eq!(cut.files("run-COMPACT"), Vec::<PathBuf>::new());
    let longer = ebbtide::CollectionChange { expire_after_seconds: Some(None), ..Default::default() };
    db.modify_collection("weather", &longer, None).unwrap();
    assert_eq!(level(&db), ints([0, 2, 3, 4, 5, 6, 7, 9]), "what was hidden was kept, what was deleted was not");
    db.compact(None).unwrap();
    assert_eq!(level(&db), ints([0, 2, 3, 4, 5, 6, 7, 9]));
    no_faults(&db);
}

#[test]
fn a_dropped_field_is_gone_from_the_files_and_its_name_takes_any_type() {
    let sim = Sim::new();
    let (db, c) = made(&sim);
    c.insert_documents(&readings(0..3)).unwrap();
    db.flush().unwrap();
    c.insert_documents(&[with(3, "w", Value::Double(0.5)), reading(4, "roof", 4)]).unwrap();
    db.drop_field("weather", "v").unwrap();
    let columns = || -> Vec<String> { files_of(&db, "weather").columns.into_iter().map(|(name, _)| name).collect() };
    assert_eq!(columns(), ["t", "sensor", "w"]);
    assert_eq!((c.snapshot().unwrap().count().unwrap(), values(&db, "weather", "v")), (5, Vec::new()));
    // Values of another type, in the log first and then in files; older rows have none.
    c.insert_documents(&[with(5, "v", Value::from("five"))]).unwrap();
    drop(db);
    let db = sim.on(sim.fs.crash(Variant::V0, 0)).open();
    for _ in 0..2 {
        assert_eq!(values(&db, "weather", "v"), [Value::from("five")]);
        assert_eq!(values(&db, "weather", "w"), [Value::Double(0.5)]);
        no_faults(&db);
        db.compact(None).unwrap();
    }
    // The last field may go too.
    db.drop_field("weather", "v").unwrap();
    db.drop_field("weather", "w").unwrap();
    assert_eq!(db.collection("weather").unwrap().snapshot().unwrap().count().unwrap(), 6);
    no_faults(&db);
}

#[test]
fn a_change_of_a_field_that_cannot_be_is_refused_and_changes_nothing() {
    let sim = Sim::new();
    let (db, c) = made(&sim);
    let inner = Value::Object(vec![("deep".into(), Value::Int(1))]);
    c.insert_documents(&[reading(0, "roof", 1), with(1, "o", inner)]).unwrap();
    for (from, to, refused, says) in [
        ("t", "time", Code::InvalidOptions, "timeField"),
        ("sensor", "s", Code::InvalidOptions, "metaField"),
        ("vv", "w", Code::BadValue, "did you mean 'v'"),
        ("o.deep", "w", Code::InvalidOptions, "member of the object 'o'"),
        ("v", "o", Code::BadValue, "already"),
        ("v", "v", Code::BadValue, "already"),
        ("v", "t", Code::BadValue, "already"),
        ("v", "sensor", Code::BadValue, "already"),
        ("v", "", Code::InvalidOptions, "empty"),
        ("v", "a.b", Code::InvalidOptions, "top-level"),
        ("v", "$v", Code::InvalidOptions, "'$'"),
    ] {
        let error = db.rename_field("weather", from, to).unwrap_err();
        assert_eq!(error.code(), refused, "{from} to {to}: {error}");
        assert!(error.to_string().contains(says), "{from} to {to}: {error}");
        if !["already", "empty", "top-level", "'$'"].contains(&says) {
            assert_eq!(code(db.drop_field("weather", from)), refused, "{from}");
        }
    }
    assert_eq!(code(db.drop_field("nothing", "v")), Code::NamespaceNotFound);
    assert_eq!((values(&db, "weather", "v"), sim.files("seg-").len()), (ints([1]), 0));
    // An empty collection with a field that nothing holds any more.
    c.delete(&Filter::everything()).unwrap();
    db.drop_field("weather", "v").unwrap();
    db.rename_field("weather", "o", "v").unwrap();
    drop((db, c));
    let db = sim.open();
    let schema = db.collection("weather").unwrap().snapshot().unwrap().schema().clone();
    assert_eq!(schema.fields.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["v"]);
}

#[test]
fn a_full_disk_refuses_a_change_of_a_field_and_leaves_nothing_behind() {
    let sim = Sim::new();
    let (db, c) = made(&sim);
    c.insert_documents(&readings(0..5000)).unwrap();
    db.flush().unwrap();
    let files = sim.files("");
    sim.fs.set_capacity(Some(sim.fs.used() + 1000));
    assert_eq!(code(db.rename_field("weather", "v", "w")), Code::OutOfDiskSpace);
    assert_eq!(code(db.copy_collection("weather", "other").map(drop)), Code::OutOfDiskSpace);
    assert_eq!((sim.files(""), numbers(&db).len()), (files, 5000));
    sim.fs.set_capacity(None);
    db.rename_field("weather", "v", "w").unwrap();
    assert_eq!(values(&db, "weather", "w").len(), 5000);
    no_faults(&db);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "writers beside the change are what this is about")]
fn inserts_beside_a_change_of_a_field_are_stored_whole_under_one_name_or_the_other() {
    for round in 0..4 {
        let sim = Sim::new();
        let (db, c) = made(&sim);
        c.insert_documents(&readings(0..500)).unwrap();
        let writers: Vec<_> = (1..5)
            .map(|writer| {
                let c = c.clone();
                std::thread::spawn(move || {
                    for n in 0..25 {
                        let from = writer * 1000 + n * 10;
                        c.insert_documents(&readings(from..from + 10)).unwrap();
                    }
                })
            })
            .collect();
        db.rename_field("weather", "v", "w").unwrap();
        if round % 2 == 1 {
            // The writers have made a new field of the old name.
            let _made = db.drop_field("weather", "v");
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let count = |db: &Database, field: &str| values(db, "weather", field).len();
        let present = (count(&db, "v"), count(&db, "w"));
        assert!(present.1 >= 500 && (round % 2 == 1 || present.0 + present.1 == 1500), "{present:?}");
        drop((db, c));
        let db = sim.on(sim.fs.crash(Variant::V0, 0)).open();
        assert_eq!((count(&db, "v"), count(&db, "w")), present);
        assert_eq!(db.collection("weather").unwrap().snapshot().unwrap().count().unwrap(), 1500);
        no_faults(&db);
    }
}

#[test]
fn a_copy_has_options_rules_and_what_is_visible() {
    let sim = Sim::new();
    let db = sim.open();
    let options = weather().span_seconds(600).expire_after_seconds(3600);
    let c = db.create_collection("weather", options).unwrap();
    let cellar = Filter::eq("sensor", Value::from("cellar"));
    db.create_rules("weather", vec![RuleSpec::new("short", 60, cellar)]).unwrap();
    c.insert_documents(&[reading(0, "roof", 1), reading(0, "cellar", 2)]).unwrap();
    db.flush().unwrap();
    c.delete(&Filter::eq("v", Value::Int(3))).unwrap();
    c.insert_documents(&[with(30, "x", Value::Double(-0.0)), with(40, "x", Value::Double(0.1 + 0.2))]).unwrap();
    c.insert_documents(&[reading(100, "cellar", 4)]).unwrap();
    sim.clock.set(at(60));
    assert_eq!(db.copy_collection("weather", "climate").unwrap(), 4);
    let check = |db: &Database| {
        let snapshot = db.snapshot();
        let (old, new) = (snapshot.collection("weather").unwrap(), snapshot.collection("climate").unwrap());
        assert_eq!((old.options(), old.rules(), old.schema()), (new.options(), new.rules(), new.schema()));
        assert_eq!((values_in(&new, "v"), new.count().unwrap()), (ints([1, 4]), 4));
        let bits = |values: Vec<Value>| -> Vec<u64> {
            values.into_iter().map(|v| if let Value::Double(v) = v { v.to_bits() } else { 0 }).collect()
        };
        assert_eq!(bits(values_in(&new, "x")), bits(values_in(&old, "x")));
        assert_eq!(new.last_batch(), None);
        assert_eq!(files_of(db, "climate").folder, Path::new(ROOT).join("climate.2"));
        no_faults(db);
    };
    check(&db);
    drop(db);
    let db = sim.on(sim.fs.crash(Variant::V0, 0)).open();
    check(&db);
    // They are two.
    let id = BatchId { source: 1, number: 1 };
    let batch = ebbtide::buckets::batch_from_documents(
        &[reading(70, "roof", 5)],
        db.collection("climate").unwrap().snapshot().unwrap().schema(),
    );
    db.collection("climate").unwrap().insert_with_id(&batch.unwrap().batch, id).unwrap();
    db.drop_collection("weather").unwrap();
    assert_eq!(values(&db, "climate", "v"), ints([1, 5, 4]));
    for (from, to, refused) in [
        ("weather", "new", Code::NamespaceNotFound),
        ("climate", "climate", Code::NamespaceExists),
        ("climate", "a$", Code::InvalidNamespace),
    ] {
        assert_eq!(code(db.copy_collection(from, to).map(drop)), refused, "{from} to {to}");
    }
    let empty = db.create_collection("empty", weather()).unwrap();
    assert_eq!((db.copy_collection("empty", "hollow").unwrap(), empty.snapshot().unwrap().count().unwrap()), (0, 0));
}
