//! What other programs may read: the types of columns in segment files, and the marker that stops them where they must not.

use super::*;
use ebbtide::buckets::FileType;
use ebbtide::fs::Fs;
use ebbtide::fs::sim::Variant;

const MARKER: &str = "run-COMPACT-first.parquet";

fn row(second: i64, v: Value) -> Value {
    Value::Object(vec![("t".into(), Value::Date(at(second))), ("sensor".into(), Value::from("roof")), ("v".into(), v)])
}

/// A disk, and settings under which every row counts as many: types that differ are not settled by a seal.
fn large() -> Sim {
    let mut sim = Sim::new();
    sim.settings.segment_rows_max = 1;
    sim
}

/// One row of each value, each in a segment of its own.
fn sealed(sim: &Sim, values: &[Value]) -> Database {
    let db = sim.open();
    let c = db.create_collection("c", weather()).unwrap();
    for (second, value) in (0..).zip(values) {
        c.insert_documents(&[row(second, value.clone())]).unwrap();
        db.flush().unwrap();
    }
    db
}

fn after_power_cut(sim: &Sim) -> Sim {
    sim.on(sim.fs.crash(Variant::V0, 0))
}

fn agree(db: &Database) -> bool {
    db.collection("c").unwrap().snapshot().unwrap().segment_files().unwrap().agree
}

fn type_of_v(db: &Database) -> FileType {
    let files = db.collection("c").unwrap().snapshot().unwrap().segment_files().unwrap();
    files.columns.into_iter().find(|(name, _)| name == "v").unwrap().1
}

#[test]
fn a_marker_stands_in_the_folder_while_the_types_of_segments_differ() {
    for (values, differ, ty) in [
        (vec![1.5, 2.5], false, FileType::Decimal { whole: 1, scale: 1 }),
        // A type that holds them was there before.
        (vec![1.25, 2.5, 1000.0], false, FileType::Decimal { whole: 4, scale: 2 }),
        (vec![1.5, 2.25], true, FileType::Decimal { whole: 1, scale: 2 }),
        (vec![99_999_999.5, 2.25], true, FileType::Decimal { whole: 8, scale: 2 }),
        (vec![1.5, 1.0 / 3.0], true, FileType::Double),
        (vec![1.0 / 3.0, 1.5], false, FileType::Double),
    ] {
        let sim = large();
        let values: Vec<Value> = values.iter().map(|v| Value::Double(*v)).collect();
        let db = sealed(&sim, &values);
        assert_eq!((agree(&db), type_of_v(&db)), (!differ, ty.clone()), "{values:?}");
        assert_eq!(sim.files(MARKER).len(), usize::from(differ), "{values:?}");
        // It is there after a power cut, and goes with the last segment of another type.
        drop(db);
        let sim = after_power_cut(&sim);
        assert_eq!(sim.files(MARKER).len(), usize::from(differ), "{values:?}");
        let db = sim.open();
        assert_eq!(sim.files(MARKER).len(), usize::from(differ), "{values:?}");
        db.compact(None).unwrap();
        assert!(agree(&db), "{values:?}");
        assert_eq!((type_of_v(&db), sim.files(MARKER)), (ty, Vec::new()), "{values:?}");
        assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
    }
}

#[test]
fn what_little_there_is_gets_the_wider_types_at_once() {
    let sim = Sim::new();
    let values = [1.5, 2.25, 1.0 / 3.0, 4.0].map(Value::Double);
    let db = sealed(&sim, &values);
    assert_eq!((agree(&db), type_of_v(&db)), (true, FileType::Double));
    assert_eq!((sim.files(MARKER).len(), sim.files("seg-").len()), (0, 3), "the third has rewritten both before it");
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn whole_numbers_that_become_doubles_are_of_another_type() {
    let sim = large();
    let db = sealed(&sim, &[Value::Int(12_345), Value::Double(0.5)]);
    assert_eq!((agree(&db), type_of_v(&db)), (false, FileType::Decimal { whole: 5, scale: 1 }));
    db.compact(None).unwrap();
    assert_eq!((agree(&db), type_of_v(&db)), (true, FileType::Decimal { whole: 5, scale: 1 }));
    assert!(sim.files(MARKER).is_empty());
}

#[test]
fn a_new_field_changes_no_type_and_comes_first_by_name() {
    let sim = large();
    let db = sealed(&sim, &[Value::Double(1.5)]);
    let c = db.collection("c").unwrap();
    let row = Value::Object(vec![
        ("t".into(), Value::Date(at(9))),
        ("sensor".into(), Value::from("roof")),
        ("w".into(), Value::Int(1)),
    ]);
    c.insert_documents(&[row]).unwrap();
    db.flush().unwrap();
    assert!(agree(&db) && sim.files(MARKER).is_empty());
    let files = c.snapshot().unwrap().segment_files().unwrap().files;
    let mut by_name = files.clone();
    by_name.sort();
    assert_eq!((by_name, files.len()), (files, 2));
}

#[test]
fn a_marker_that_is_not_needed_goes_at_the_next_open_and_one_that_is_missing_comes_back() {
    let sim = large();
    drop(sealed(&sim, &[Value::Double(1.5), Value::Double(1.25)]));
    let marker = sim.file(MARKER);
    sim.fs.remove(&marker).unwrap();
    let db = sim.open();
    assert_eq!(sim.files(MARKER), std::slice::from_ref(&marker));
    db.compact(None).unwrap();
    drop(db);
    sim.fs.create(&marker).unwrap();
    drop(sim.open());
    assert!(sim.files(MARKER).is_empty());
}

#[test]
fn while_files_are_replaced_and_still_read_the_marker_says_so() {
    let sim = Sim::new();
    let db = sealed(&sim, &[Value::Double(1.5), Value::Double(2.5)]);
    let before = db.snapshot();
    db.compact(None).unwrap();
    // Both rows are there twice: in the old files, which the snapshot reads, and in the new one.
    assert_eq!((sim.files("seg-").len(), sim.files(MARKER).len()), (3, 1));
    drop(before);
    assert_eq!((sim.files("seg-").len(), sim.files(MARKER).len()), (1, 0));
}

#[test]
fn a_sweep_of_the_segments_of_one_type_ends_the_difference() {
    let sim = large();
    let db = sim.open();
    let c = db.create_collection("c", weather().expire_after_seconds(DAY)).unwrap();
    for (second, v) in [(0, 1.5), (10 * DAY, 1.25)] {
        sim.clock.set(at(second));
        c.insert_documents(&[row(second, Value::Double(v))]).unwrap();
        db.flush().unwrap();
    }
    assert_eq!(sim.files(MARKER).len(), 1);
    assert_eq!(db.sweep().unwrap().counts.deleted_documents, 1);
    assert!(agree(&db) && sim.files(MARKER).is_empty());
}

#[test]
fn the_folder_of_a_dropped_collection_goes_with_its_last_reader_or_at_the_next_open() {
    let sim = large();
    let db = sealed(&sim, &[Value::Double(1.5), Value::Double(1.25)]);
    let folder = sim.file(MARKER).parent().unwrap().to_owned();
    let reader = db.snapshot();
    db.drop_collection("c").unwrap();
    assert!(sim.fs.exists(&folder).unwrap());
    drop(reader);
    assert!(!sim.fs.exists(&folder).unwrap());
    drop(db);

    let db = sealed(&sim, &[Value::Double(1.5)]);
    let folder = sim.file("seg-").parent().unwrap().to_owned();
    let reader = db.snapshot();
    db.drop_collection("c").unwrap();
    db.abandon();
    std::mem::forget(reader);
    let sim = after_power_cut(&sim);
    assert!(sim.fs.exists(&folder).unwrap());
    let db = sim.open();
    assert!(!sim.fs.exists(&folder).unwrap());
    drop(db);
    // A folder with the name of none that ever was is somebody's own, and so are files that are no segments.
    for (folder, name) in [("mine.99", "seg-ffffffff-0000000000000001.parquet"), ("c.1", "notes.txt")] {
        let folder = folder_of(&sim).join(folder);
        sim.fs.create_dir(&folder).unwrap();
        sim.fs.create(&folder.join(name)).unwrap();
    }
    drop(sim.open());
    assert_eq!((sim.files("notes.txt").len(), sim.files("seg-").len()), (1, 1));
}

fn folder_of(sim: &Sim) -> PathBuf {
    sim.file("MANIFEST-").parent().unwrap().to_owned()
}
