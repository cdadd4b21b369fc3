//! Golden databases: folders that earlier programs wrote open in this one, with every measurement.
//!
//! `fixtures/golden/<format>/` holds a folder for each way in which a program can have ended, and what is in them as text.
//! The tests work on copies. How a new format gets its folders is in `fixtures/golden/README.md`.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

mod contents;

use contents::{NOON, READ_AT, REPLY, REQUEST, make, row_text};
use ebbtide::buckets::value_at;
use ebbtide::fs::{Fs, RealFs};
use ebbtide::ttl::{Code, Timestamp, Value, VirtualClock};
use ebbtide::{BegunRequest, Database, ScanRequest};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Each folder of a format.
const ENDINGS: [&str; 2] = ["killed", "closed"];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/golden")
}

fn instant(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn clock(text: &str) -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(instant(text)))
}

/// Copies a folder with the folders in it.
fn copy(from: &Path, to: &Path) {
    let fs = RealFs::new();
    fs.create_dir(to).unwrap();
    for name in fs.list(from).unwrap() {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            let mut file = fs.create(&to).unwrap();
            file.append(&fs.read(&from).unwrap()).unwrap();
        }
    }
}

/// Every format with its golden folders.
fn formats() -> Vec<PathBuf> {
    let fs = RealFs::new();
    let formats: Vec<PathBuf> =
        fs.list(&golden()).unwrap().iter().map(|name| golden().join(name)).filter(|path| path.is_dir()).collect();
    assert!(!formats.is_empty());
    formats
}

/// Every golden folder with the rows that it holds.
fn each(mut check: impl FnMut(&Path, &[String])) {
    for format in formats() {
        let text = String::from_utf8(RealFs::new().read(&format.join("rows.txt")).unwrap()).unwrap();
        let rows: Vec<String> = text.lines().map(str::to_owned).collect();
        for ending in ENDINGS {
            let copied = tempfile::tempdir().unwrap();
            let folder = copied.path().join("db");
            copy(&format.join(ending), &folder);
            println!("{} {ending}", format.display());
            check(&folder, &rows);
        }
    }
}

/// All visible rows as text, sorted.
fn rows(db: &Database) -> Vec<String> {
    let mut rows = Vec::new();
    for name in db.collections() {
        let snapshot = db.collection(&name).unwrap().snapshot().unwrap();
        for unit in snapshot.scan(&ScanRequest::default()).unwrap() {
            for batch in unit.read().unwrap() {
                let batch = batch.unwrap();
                let schema = batch.schema();
                for row in 0..batch.num_rows() {
                    let members = schema.fields().iter().zip(batch.columns());
                    let members =
                        members.map(|(field, column)| (field.name().as_str(), value_at(column.as_ref(), row)));
                    rows.push(row_text(&name, members));
                }
            }
        }
    }
    rows.sort();
    rows
}

fn open(folder: &Path) -> Database {
    Database::builder(folder).clock(clock(READ_AT)).open().unwrap()
}

#[track_caller]
fn is_sound(db: &Database) {
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn a_golden_folder_is_read_beside_nothing() {
    each(|folder, expected| {
        let db = Database::builder(folder).clock(clock(READ_AT)).read_only().open().unwrap();
        assert_eq!(rows(&db), expected);
        is_sound(&db);
    });
}

#[test]
fn a_golden_folder_is_opened_swept_compacted_and_reopened() {
    each(|folder, expected| {
        let db = open(folder);
        assert_eq!(rows(&db), expected);
        is_sound(&db);
        let dropped = db.sweep().unwrap().counts.deleted_documents;
        assert!(dropped > 0, "some of it is due");
        assert_eq!(rows(&db), expected, "a sweep drops what nobody sees");
        db.compact(None).unwrap();
        assert_eq!(rows(&db), expected);
        is_sound(&db);
        db.close().unwrap();
        let db = open(folder);
        assert_eq!(rows(&db), expected);
        is_sound(&db);
    });
}

#[test]
fn a_golden_folder_takes_more_rows() {
    each(|folder, expected| {
        let db = open(folder);
        for name in db.collections() {
            let time = db.collection(&name).unwrap().snapshot().unwrap().options().time_field.clone();
            let row = Value::Object(vec![(time.into(), Value::Date(instant(READ_AT)))]);
            db.collection(&name).unwrap().insert_documents(&[row]).unwrap();
        }
        let added = db.collections().len();
        db.abandon();
        let db = open(folder);
        assert_eq!(rows(&db).len(), expected.len() + added);
        db.flush().unwrap();
        assert_eq!(rows(&db).len(), expected.len() + added);
        is_sound(&db);
    });
}

#[test]
fn the_newest_format_has_the_rows_that_its_program_writes() {
    let newest = formats().pop().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let made = make(&folder.path().join("db"), &clock(NOON));
    made.abandon();
    let db = open(&folder.path().join("db"));
    let text = String::from_utf8(RealFs::new().read(&newest.join("rows.txt")).unwrap()).unwrap();
    assert_eq!(rows(&db), text.lines().collect::<Vec<_>>());
}

#[test]
fn a_request_that_a_golden_folder_holds_is_known() {
    let newest = formats().pop().unwrap();
    for ending in ENDINGS {
        let copied = tempfile::tempdir().unwrap();
        let folder = copied.path().join("db");
        copy(&newest.join(ending), &folder);
        match open(&folder).begin_request(REQUEST, REQUEST).unwrap() {
            BegunRequest::Repeated(reply) => assert_eq!(reply, REPLY),
            other => panic!("{ending}: {other:?}"),
        }
    }
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let newest = formats().pop().unwrap();
    for (ending, prefix) in [("closed", "MANIFEST-"), ("killed", "wal-")] {
        let copied = tempfile::tempdir().unwrap();
        let folder = copied.path().join("db");
        copy(&newest.join(ending), &folder);
        let fs = RealFs::new();
        let names = fs.list(&folder).unwrap();
        let name = names.iter().rfind(|name| name.starts_with(prefix)).unwrap();
        let mut bytes = fs.read(&folder.join(name)).unwrap();
        // Two bytes of version end the first eight; a checksum of the header is behind it.
        bytes[7] = 99;
        let checksum = crc32fast::hash(&bytes[..32]);
        bytes[32..36].copy_from_slice(&checksum.to_le_bytes());
        fs.remove(&folder.join(name)).unwrap();
        fs.create(&folder.join(name)).unwrap().append(&bytes).unwrap();
        for read_only in [true, false] {
            let builder = Database::builder(&folder).clock(clock(READ_AT));
            let error = if read_only { builder.read_only() } else { builder }.open().unwrap_err();
            assert_eq!(error.code(), Code::IncompatibleFormat, "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}

/// Writes the folders of this program's format into the new folder that `EBBTIDE_GOLDEN` names.
#[test]
fn write_the_golden_folders_of_this_format() {
    let Some(to) = std::env::var_os("EBBTIDE_GOLDEN").map(PathBuf::from) else {
        return println!("skipped: EBBTIDE_GOLDEN names no folder to write");
    };
    let fs = RealFs::new();
    let mut found = Vec::new();
    for ending in ENDINGS {
        let folder = to.join(ending);
        let db = make(&folder, &clock(NOON));
        if ending == "closed" {
            db.close().unwrap();
        } else {
            db.abandon();
            // What a kill in the middle of an insert leaves: a record that is not whole.
            let names = fs.list(&folder).unwrap();
            let log = folder.join(names.iter().rfind(|name| name.starts_with("wal-")).unwrap());
            let len = fs.len(&log).unwrap();
            fs.open_append(&log, len).unwrap().append(&[7; 11]).unwrap();
        }
        // Without these a folder opens as well, and git need not keep 64 KiB of zeros.
        fs.remove(&folder.join("LOCK")).unwrap();
        if fs.exists(&folder.join("RESERVE")).unwrap() {
            fs.remove(&folder.join("RESERVE")).unwrap();
        }
        let db = Database::builder(&folder).clock(clock(READ_AT)).read_only().open().unwrap();
        found.push(rows(&db));
    }
    let expected = contents::visible(instant(READ_AT));
    assert_eq!(found, [expected.clone(), expected.clone()]);
    fs.create(&to.join("rows.txt")).unwrap().append((expected.join("\n") + "\n").as_bytes()).unwrap();
}
