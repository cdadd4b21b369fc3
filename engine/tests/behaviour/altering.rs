//! Changes of names: of collections.

use super::*;
use ebbtide::fs::sim::Variant;
use ebbtide::ttl::Code;
use ebbtide::{Replaces, SegmentFiles};

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
