//! Damage on disk: found, named by path and offset, never served.

use crate::{DAY, ROOT, Sim, assert_names, at, made, numbered, numbers, numbers_in, reading, readings, weather};
use ebbtide::fs::sim::{Fault, FaultKind, Repeat};
use ebbtide::fs::{Fs, RealFs};
use ebbtide::ttl::{Code, Value};
use ebbtide::{Database, Error, ErrorKind, RepairMode};
use std::path::Path;

/// Three inserts that only the log holds.
fn logged() -> Sim {
    let sim = Sim::new();
    let (db, collection) = made(&sim);
    for part in [0..10, 10..20, 20..30] {
        collection.insert_documents(&readings(part)).unwrap();
    }
    db.abandon();
    sim
}

/// Three segments, and nothing in the log.
fn sealed() -> Sim {
    let sim = Sim::new();
    let (db, collection) = made(&sim);
    for part in [0..10, 10..20, 20..30] {
        collection.insert_documents(&readings(part)).unwrap();
        db.flush().unwrap();
    }
    db.abandon();
    sim
}

/// The places of the records in a log: after the header of 36 bytes, each is a head of 36 and a payload. Zeros may follow.
fn records(log: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut at, mut found) = (36, Vec::new());
    while at < log.len() {
        let length = u32::from_le_bytes(log[at..at + 4].try_into().unwrap()) as usize;
        if length == 0 {
            break;
        }
        found.push(at..at + 36 + length);
        at += 36 + length;
    }
    found
}

fn flipped(sim: &Sim, path: &Path, offset: usize, bit: usize) -> Sim {
    let damaged = sim.on(sim.fs.fork());
    damaged.fs.tamper(path, |bytes| bytes[offset] ^= 1 << bit).unwrap();
    damaged
}

#[track_caller]
fn refused(sim: &Sim) -> Error {
    let error = sim.builder().open().expect_err("a damaged database is not opened");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    error
}

#[test]
fn a_half_written_record_at_the_end_of_the_log_is_cut_off() {
    let sim = logged();
    let log = sim.file("wal-");
    let records = records(&sim.fs.read(&log).unwrap());
    for end in [records[2].end - 1, records[2].start + 40, records[2].start + 1] {
        let torn = sim.on(sim.fs.fork());
        torn.fs.tamper(&log, |bytes| bytes.truncate(end)).unwrap();
        let db = torn.open();
        assert_eq!(numbers(&db), numbered(0..20));
        // What comes after it follows what is left.
        db.collection("weather").unwrap().insert_documents(&readings(20..25)).unwrap();
        db.abandon();
        assert_eq!(numbers(&torn.open()), numbered(0..25));
    }
    // So is a tail of zeros, as some file systems leave it.
    let torn = sim.on(sim.fs.fork());
    torn.fs.tamper(&log, |bytes| bytes.resize(bytes.len() + 5_000, 0)).unwrap();
    assert_eq!(numbers(&torn.open()), numbered(0..30));
}

#[test]
fn a_flipped_bit_in_the_middle_of_the_log_is_found() {
    let sim = logged();
    let log = sim.file("wal-");
    let records = records(&sim.fs.read(&log).unwrap());
    for offset in (0..records[0].end).step_by(7) {
        let error = refused(&flipped(&sim, &log, offset, offset % 8));
        assert!(error.to_string().contains(&log.display().to_string()), "{error}");
        if offset >= records[0].start {
            assert_names(&error.to_string(), &log);
            assert!(error.to_string().contains("offset=36"), "{error}");
        }
    }
    // In the last record it cannot be told from a torn one: that is cut off, and never served.
    for offset in records[2].clone().step_by(11) {
        assert_eq!(numbers(&flipped(&sim, &log, offset, 3).open()), numbered(0..20));
    }
}

/// Small inserts that only the log holds, which has zeros behind its end.
fn written_ahead() -> (Sim, Database) {
    let sim = Sim::new();
    let (db, collection) = made(&sim);
    for row in 0..30 {
        collection.insert_documents(&readings(row..row + 1)).unwrap();
    }
    (sim, db)
}

#[test]
fn zeros_behind_the_end_of_the_log_are_no_damage_and_anything_else_there_is() {
    let (sim, db) = written_ahead();
    let log = sim.file("wal-");
    let bytes = sim.fs.read(&log).unwrap();
    let end = records(&bytes).last().unwrap().end;
    assert!(end < bytes.len() && bytes[end..].iter().all(|byte| *byte == 0), "{end} of {} bytes", bytes.len());
    assert!(db.verify().unwrap().faults.is_empty());
    sim.fs.tamper(&log, |bytes| bytes[end + 3] = 1).unwrap();
    let faults = db.verify().unwrap().faults;
    assert!(faults.len() == 1 && faults[0].contains(&format!("offset={end}")), "{faults:?}");
    // Before the database was closed it may be the half of a record.
    db.abandon();
    assert_eq!(numbers(&sim.open()), numbered(0..30));
}

#[test]
fn a_log_that_is_complete_ends_with_its_last_record() {
    let (sim, db) = written_ahead();
    let log = sim.file("wal-");
    drop(db);
    let bytes = sim.fs.read(&log).unwrap();
    assert_eq!(records(&bytes).last().unwrap().end, bytes.len(), "closed");
    sim.fs.tamper(&log, |bytes| bytes.push(0)).unwrap();
    assert_names(&refused(&sim).to_string(), &log);

    let mut sim = Sim::new();
    sim.settings.wal_file_bytes_max = 1 << 10;
    let (db, collection) = made(&sim);
    for row in 0..30 {
        collection.insert_documents(&readings(row..row + 1)).unwrap();
    }
    let logs = sim.files("wal-");
    assert!(logs.len() > 2, "{logs:?}");
    for log in &logs[..logs.len() - 1] {
        let bytes = sim.fs.read(log).unwrap();
        assert_eq!(records(&bytes).last().unwrap().end, bytes.len(), "{}", log.display());
    }
    db.abandon();
    assert_eq!(numbers(&sim.open()), numbered(0..30));
    let damaged = sim.on(sim.fs.fork());
    damaged.fs.tamper(&logs[0], |bytes| bytes.push(0)).unwrap();
    assert_names(&refused(&damaged).to_string(), &logs[0]);
}

/// A database that was closed with three inserts in its log, for the last handle seals nothing.
fn closed() -> Sim {
    let sim = Sim::new();
    let (db, collection) = made(&sim);
    for part in [0..10, 10..20, 20..30] {
        collection.insert_documents(&readings(part)).unwrap();
    }
    drop((db, collection));
    sim
}

#[test]
fn damage_at_the_end_of_log_or_manifest_after_a_close_is_refused_named_and_repaired() {
    let sim = closed();
    assert_eq!(numbers(&sim.on(sim.fs.fork()).open()), numbered(0..30));
    let (log, manifest) = (sim.file("wal-"), sim.file("MANIFEST-"));
    let records = records(&sim.fs.read(&log).unwrap());
    let length = |path: &Path| sim.fs.read(path).unwrap().len();
    for (path, end) in [
        (&log, records[2].end - 1),
        (&log, records[2].start),
        (&log, records[0].start),
        (&manifest, length(&manifest) - 1),
    ] {
        let damaged = sim.on(sim.fs.fork());
        damaged.fs.tamper(path, |bytes| bytes.truncate(end)).unwrap();
        assert_names(&refused(&damaged).to_string(), path);
        let beside = damaged.builder().read_only().open().unwrap_err();
        assert_names(&beside.to_string(), path);
        let whole = sim.on(sim.fs.fork());
        let reader = whole.builder().read_only().open().unwrap();
        assert_eq!(reader.verify().unwrap().faults, Vec::<String>::new());
        whole.fs.tamper(path, |bytes| bytes.truncate(end)).unwrap();
        let faults = reader.verify().unwrap().faults;
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_names(&faults[0], path);
        let report = damaged.builder().repair(RepairMode::Apply).unwrap();
        assert_eq!(report.changes_lost, *path == manifest, "{report}");
        assert!(*path == manifest || !report.losses.is_empty(), "{report}");
        assert!(report.set_aside.contains(&path.file_name().unwrap().display().to_string()), "{report}");
        let db = damaged.open();
        if *path == log {
            assert_eq!(numbers(&db), numbered(0..10 * records.iter().filter(|r| r.end <= end).count() as i64));
        }
    }
    // It is the mark alone that tells it from a power cut.
    let unmarked = sim.on(sim.fs.fork());
    unmarked.fs.remove(&sim.file("CLOSED")).unwrap();
    unmarked.fs.tamper(&log, |bytes| bytes.truncate(records[2].end - 1)).unwrap();
    assert_eq!(numbers(&unmarked.open()), numbered(0..20));
}

#[test]
fn a_mark_of_a_close_that_is_damaged_or_of_another_database_is_refused_and_set_aside_without_a_loss() {
    let (sim, other) = (closed(), closed());
    let mark = sim.file("CLOSED");
    let foreign = other.fs.read(&mark).unwrap();
    for change in [|bytes: &mut Vec<u8>| bytes[30] ^= 1, |bytes: &mut Vec<u8>| bytes.truncate(59), Vec::clear] {
        let damaged = sim.on(sim.fs.fork());
        damaged.fs.tamper(&mark, change).unwrap();
        assert_names(&refused(&damaged).to_string(), &mark);
    }
    let damaged = sim.on(sim.fs.fork());
    damaged.fs.tamper(&mark, |bytes| *bytes = foreign).unwrap();
    assert_names(&refused(&damaged).to_string(), &mark);
    let report = damaged.builder().repair(RepairMode::Apply).unwrap();
    assert_eq!(
        (report.set_aside.as_slice(), report.losses.len(), report.changes_lost),
        (&["CLOSED".to_owned()][..], 0, false)
    );
    assert_eq!(numbers(&damaged.open()), numbered(0..30));
}

#[test]
fn an_older_manifest_in_the_place_of_the_one_that_was_closed_is_refused() {
    let sim = Sim::new();
    let (db, collection) = made(&sim);
    collection.insert_documents(&readings(0..10)).unwrap();
    let (old, content) = (sim.file("MANIFEST-"), sim.fs.read(&sim.file("MANIFEST-")).unwrap());
    drop((db, collection));
    drop(sim.open());
    let new = sim.file("MANIFEST-");
    assert_ne!(old, new);
    sim.fs.remove(&new).unwrap();
    let mut file = sim.fs.create(&old).unwrap();
    file.append(&content).unwrap();
    drop(file);
    let error = refused(&sim);
    assert!(error.to_string().contains("is missing"), "{error}");
    assert_names(&error.to_string(), &new);
    let report = sim.builder().repair(RepairMode::Apply).unwrap();
    assert!(report.changes_lost, "{report}");
    assert_eq!(numbers(&sim.open()), numbered(0..10));
}

#[test]
fn a_flipped_bit_in_the_manifest_is_found() {
    let sim = sealed();
    let manifest = sim.file("MANIFEST-");
    let bytes = sim.fs.read(&manifest).unwrap();
    let mut frames = vec![36];
    while let Some(at) = frames.last().copied().filter(|at| *at < bytes.len()) {
        frames.push(at + 12 + u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize);
    }
    // The last edit may be a torn one: everything before it was synced before it was written.
    let last = frames[frames.len() - 2];
    for offset in (0..last).step_by(3) {
        let error = refused(&flipped(&sim, &manifest, offset, offset % 8));
        assert!(error.to_string().contains(&manifest.display().to_string()), "offset {offset}: {error}");
        if offset >= 36 {
            assert_names(&error.to_string(), &manifest);
        }
    }
}

#[test]
fn a_flipped_bit_in_a_segment_is_found_and_never_served() {
    let sim = sealed();
    let segment = sim.files("seg-")[1].clone();
    let length = sim.fs.read(&segment).unwrap().len();
    let mut found = 0;
    for offset in (0..length).step_by(13) {
        let damaged = flipped(&sim, &segment, offset, offset % 8);
        let db = damaged.open();
        match numbers_in(&db.snapshot(), "weather") {
            // The scan did not need that byte.
            Ok(numbers) => assert_eq!(numbers, numbered(0..30), "offset {offset}"),
            Err(error) => {
                assert_eq!(error.code(), Code::DataCorruptionDetected, "{error}");
                assert_names(&error.to_string(), &segment);
                found += 1;
            }
        }
        let faults = db.verify().unwrap().faults;
        assert_eq!(faults.len(), 1, "offset {offset}: {faults:?}");
        assert_names(&faults[0], &segment);
        // What is damaged is not carried on either.
        if let Err(error) = db.compact(None) {
            assert_eq!(error.code(), Code::DataCorruptionDetected, "{error}");
        } else {
            assert_eq!(numbers(&db), numbered(0..30), "offset {offset}");
        }
    }
    assert!(found > 0);
}

#[test]
fn acknowledged_rows_of_a_collection_that_the_manifest_lost_are_missed() {
    let sim = Sim::new();
    let (db, collection) = made(&sim);
    let other = db.create_collection("other", weather()).unwrap();
    collection.insert_documents(&readings(0..10)).unwrap();
    other.insert_documents(&readings(0..10)).unwrap();
    db.abandon();
    // The last edit made the collection. It looks torn, but rows were acknowledged after it.
    let manifest = sim.file("MANIFEST-");
    let length = sim.fs.read(&manifest).unwrap().len();
    refused(&flipped(&sim, &manifest, length - 9, 0));
}

#[test]
fn a_segment_that_was_cut_short_or_grew_is_found() {
    let sim = sealed();
    let segment = sim.files("seg-")[0].clone();
    for change in [-1_i64, -300, 1] {
        let damaged = sim.on(sim.fs.fork());
        let resize = |bytes: &mut Vec<u8>| bytes.resize((bytes.len() as i64 + change) as usize, 0);
        damaged.fs.tamper(&segment, resize).unwrap();
        let error = numbers_in(&damaged.open().snapshot(), "weather").unwrap_err();
        assert_eq!(error.code(), Code::DataCorruptionDetected);
        assert_names(&error.to_string(), &segment);
    }
}

#[test]
fn a_missing_segment_is_named() {
    let sim = sealed();
    let segment = sim.files("seg-")[1].clone();
    sim.fs.remove(&segment).unwrap();
    let error = refused(&sim);
    assert!(error.to_string().contains("missing"), "{error}");
    assert_names(&error.to_string(), &segment);
}

#[test]
fn a_missing_log_is_named() {
    let sim = logged();
    let log = sim.file("wal-");
    sim.fs.remove(&log).unwrap();
    let error = refused(&sim);
    assert!(error.to_string().contains("missing"), "{error}");
    assert_names(&error.to_string(), &log);
}

#[test]
fn a_missing_manifest_is_no_empty_database() {
    for sim in [sealed(), logged()] {
        let before = sim.files("wal-").iter().chain(&sim.files("seg-")).cloned().collect::<Vec<_>>();
        sim.fs.remove(&sim.file("MANIFEST-")).unwrap();
        let error = refused(&sim);
        assert!(error.to_string().contains("no manifest"), "{error}");
        let after = sim.files("wal-").iter().chain(&sim.files("seg-")).cloned().collect::<Vec<_>>();
        assert_eq!(before, after, "what is left of the data was touched");
    }
}

#[test]
fn a_log_copied_from_another_database_is_refused() {
    let (one, other) = (logged(), logged());
    let foreign = other.fs.read(&other.file("wal-")).unwrap();
    let log = one.file("wal-");
    one.fs.tamper(&log, |bytes| *bytes = foreign).unwrap();
    let error = refused(&one);
    assert!(error.to_string().contains("another database"), "{error}");
    assert_names(&error.to_string(), &log);
}

#[test]
fn a_manifest_under_another_number_is_refused() {
    let sim = sealed();
    let manifest = sim.file("MANIFEST-");
    let copy = Path::new(ROOT).join("MANIFEST-00000000000000ff");
    let bytes = sim.fs.read(&manifest).unwrap();
    let mut file = sim.fs.create(&copy).unwrap();
    file.append(&bytes).unwrap();
    drop(file);
    assert_names(&refused(&sim).to_string(), &copy);
}

#[test]
fn another_version_is_named_as_such() {
    let sim = sealed();
    // Every version keeps the layout of the header: its checksum tells a newer version from damage.
    let newer = |bytes: &mut Vec<u8>| {
        bytes[7] = 9;
        let crc = crc32fast::hash(&bytes[..32]).to_le_bytes();
        bytes[32..36].copy_from_slice(&crc);
    };
    sim.fs.tamper(&sim.file("MANIFEST-"), newer).unwrap();
    let error = refused(&sim);
    assert_eq!(error.code(), Code::IncompatibleFormat, "{error}");
    assert!(error.to_string().contains("version 9"), "{error}");
}

#[test]
fn a_reader_reports_damage_and_a_missing_database_at_once() {
    let sim = logged();
    let reads = |sim: &Sim| {
        let before = sim.fs.reading_ops();
        let opened = sim.builder().read_only().open().map(drop);
        (sim.fs.reading_ops() - before, opened)
    };
    let (whole, opened) = reads(&sim);
    assert!(opened.is_ok(), "{opened:?}");
    let log = sim.file("wal-");
    for path in [&log, &sim.file("MANIFEST-")] {
        let (damaged, opened) = reads(&flipped(&sim, path, 40, 0));
        assert_names(&opened.unwrap_err().to_string(), path);
        assert!(
            damaged <= 4 * whole, // It is read a second time, between two looks at all files.
            "{} is read again and again: {damaged} reads, {whole} of a whole one",
            path.display()
        );
    }
    let (missing, opened) = reads(&Sim::new());
    assert_eq!(opened.unwrap_err().code(), Code::NamespaceNotFound);
    assert!(missing <= 2 * whole, "a missing database is looked for {missing} times");
}

#[test]
fn verify_reads_and_counts_what_only_the_log_holds() {
    let sim = logged();
    let db = sim.open();
    let report = db.verify().unwrap();
    assert_eq!((report.segments, report.rows, report.log_rows, report.faults), (0, 0, 30, Vec::new()));
    assert!(report.logs >= 1 && report.log_bytes > 0);
    db.flush().unwrap();
    let report = db.verify().unwrap();
    assert_eq!((report.segments, report.rows, report.log_rows, report.faults), (1, 30, 0, Vec::new()));
}

#[test]
fn a_folder_of_somebody_else_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let fs = RealFs::new();
    let theirs = folder.path().join("letter.txt");
    let mut file = fs.create(&theirs).unwrap();
    file.append(b"Dear Sir").unwrap();
    drop(file);
    let error = Database::open(folder.path()).unwrap_err();
    assert_eq!((error.code(), error.kind()), (Code::BadValue, ErrorKind::Invalid), "{error}");
    assert!(error.to_string().contains("letter.txt"), "{error}");
    assert_eq!(fs.read(&theirs).unwrap(), b"Dear Sir");
    let error = Database::repair(folder.path(), RepairMode::Apply).unwrap_err();
    assert_eq!(error.code(), Code::NamespaceNotFound, "{error}");
    assert_eq!(fs.list(folder.path()).unwrap(), ["letter.txt"]);
}

#[test]
fn a_read_that_fails_is_no_damage_and_sets_nothing_aside() {
    let sim = sealed();
    let whole = sim.fs.read(&sim.file("MANIFEST-")).unwrap();
    for read in 0.. {
        let disk = sim.on(sim.fs.fork());
        disk.fs.fail_read(read, Fault { kind: FaultKind::Eio, repeat: Repeat::Once });
        let repaired = disk.builder().repair(RepairMode::Apply);
        let fired = disk.fs.faults_fired() > 0;
        match repaired {
            Ok(report) => assert!(report.is_clean(), "read {read}: {report}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "read {read}: {error}"),
        }
        disk.fs.heal();
        assert_eq!(disk.fs.read(&disk.file("MANIFEST-")).unwrap(), whole, "read {read}");
        assert_eq!(numbers(&disk.open()), numbered(0..30));
        if !fired {
            assert!(read > 10, "a repair reads more than {read} times");
            return;
        }
    }
}

#[test]
fn verify_finds_a_flipped_bit_in_every_kind_of_file() {
    let sim = Sim::new();
    let db = sim.open();
    let collection = db.create_collection("weather", weather().expire_after_seconds(DAY)).unwrap();
    collection.insert_documents(&readings(0..30)).unwrap();
    db.flush().unwrap();
    for part in [30..40, 40..50, 50..60] {
        collection.insert_documents(&readings(part)).unwrap();
    }
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
    for kind in ["MANIFEST-", "wal-", "seg-"] {
        let path = sim.file(kind);
        let length = sim.fs.len(&path).unwrap() as usize;
        for offset in (0..length).step_by(5) {
            sim.fs.tamper(&path, |bytes| bytes[offset] ^= 4).unwrap();
            let faults = db.verify().unwrap().faults;
            assert!(faults.iter().any(|f| f.contains(&path.display().to_string())), "{kind} {offset}: {faults:?}");
            sim.fs.tamper(&path, |bytes| bytes[offset] ^= 4).unwrap();
        }
    }
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
    sim.clock.set(at(2 * DAY));
    db.sweep().unwrap();
    assert_eq!(db.verify().unwrap().faults, Vec::<String>::new());
}

#[test]
fn one_damaged_segment_does_not_keep_others_from_being_compacted() {
    let sim = Sim::new();
    let (db, collection) = made(&sim);
    for part in [0..10, 10..20, 20..30, 30..40] {
        collection.insert_documents(&readings(part)).unwrap();
        db.flush().unwrap();
    }
    drop((db, collection));
    let segment = sim.files("seg-")[1].clone();
    let length = sim.fs.len(&segment).unwrap() as usize;
    // In the data, and in the directory.
    for offset in [8, length - 40] {
        let damaged = flipped(&sim, &segment, offset, 3);
        let db = damaged.open();
        let error = db.compact(None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_names(&error.to_string(), &segment);
        let left = damaged.files("seg-");
        assert_eq!(left.len(), 2, "the other three are one now: {left:?}");
        assert!(left.contains(&segment), "what is damaged stays for a repair");
        assert_names(&numbers_in(&db.snapshot(), "weather").unwrap_err().to_string(), &segment);
        drop(db);
        let report = damaged.builder().repair(RepairMode::Apply).unwrap();
        assert_eq!(report.rows_lost(), 10);
        assert_eq!(numbers(&damaged.open()), [numbered(0..10), numbered(20..40)].concat());
    }
}

/// Two segments of two buckets each, of one hour and of another.
fn two_segments(sim: &Sim) {
    let (db, collection) = made(sim);
    for hour in [0, 5] {
        let rows = [reading(hour * 3600, "roof", hour), reading(hour * 3600, "cellar", hour)];
        collection.insert_documents(&rows).unwrap();
        db.flush().unwrap();
    }
    drop((db, collection));
}

#[test]
fn one_damaged_segment_does_not_keep_others_from_being_swept_and_goes_itself_when_all_of_it_is_due() {
    let sim = Sim::new();
    two_segments(&sim);
    let segment = sim.files("seg-")[1].clone();
    let length = sim.fs.len(&segment).unwrap() as usize;
    let damaged = flipped(&sim, &segment, length - 40, 3);
    let db = damaged.open();
    damaged.clock.set(at(DAY));
    // Made after the segments: which of their metas it matches, only their directories say.
    let index = serde_json::json!({"createIndexes": "weather", "indexes": [{
        "key": {"t": 1}, "name": "roof", "expireAfterSeconds": 60, "partialFilterExpression": {"sensor": "roof"}
    }]});
    db.run_command(&index).unwrap();
    let report = db.sweep().unwrap();
    assert_eq!((report.counts.deleted_documents, report.counts.failed_rules), (1, 1));
    assert_eq!(report.unread.len(), 1);
    assert_names(&report.unread[0], &segment);
    db.run_command(&serde_json::json!({"dropIndexes": "weather", "index": "roof"})).unwrap();
    db.run_command(&serde_json::json!({"collMod": "weather", "expireAfterSeconds": 60})).unwrap();
    let report = db.sweep().unwrap();
    assert_eq!((report.counts.deleted_documents, report.unread), (3, Vec::new()));
    assert_eq!(damaged.files("seg-"), Vec::<std::path::PathBuf>::new());
    assert!(db.verify().unwrap().faults.is_empty());
}

#[test]
fn a_damaged_segment_that_visits_stop_within_neither_holds_up_the_others_nor_the_pass() {
    for which in [0, 1] {
        let sim = Sim::new();
        two_segments(&sim);
        let segment = sim.files("seg-")[which].clone();
        let length = sim.fs.len(&segment).unwrap() as usize;
        let damaged = flipped(&sim, &segment, length - 40, 3);
        let db = damaged.open();
        damaged.clock.set(at(DAY));
        db.run_command(&serde_json::json!({"collMod": "weather", "expireAfterSeconds": 60})).unwrap();
        // One bucket a sub-pass. Which one is the first of the damaged segment nobody can say: it goes as a whole, since all of
        // it is due.
        for (name, value) in [("ttlIndexDeleteTargetDocs", 1), ("ttlMonitorSubPassTargetSecs", 0)] {
            db.set_parameter(name, &Value::Int(value)).unwrap();
        }
        let report = db.sweep().unwrap();
        assert_eq!((report.counts.deleted_buckets, report.counts.deleted_documents), (4, 4));
        assert_eq!((report.counts.failed_rules, report.unread.len(), report.counts.reclaimed_files), (0, 0, 2));
        assert_eq!(damaged.files("seg-"), Vec::<std::path::PathBuf>::new());
        assert!(db.verify().unwrap().faults.is_empty());
    }
}
