//! What happens to a database that lives in a real folder: other processes, people who copy and remove files.

use super::*;
use ebbtide::Error;
use ebbtide::fs::{Fs, RealFs};
use ebbtide::ttl::Code;
use ebbtide::ttl::SystemClock;

fn opened(dir: &Path, clock: &VirtualClock) -> Database {
    Database::builder(dir).clock(Arc::new(clock.clone())).open().unwrap()
}

#[test]
fn a_confirmation_from_outside_lets_the_sweeps_of_an_open_database_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let today = SystemClock::new().now();
    let clock = VirtualClock::new(today.plus_seconds(-10 * DAY));
    let db = opened(folder.path(), &clock);
    let c = db.create_collection("c", weather().expire_after_seconds(DAY)).unwrap();
    let row = Value::Object(vec![("t".into(), Value::Date(clock.now())), ("sensor".into(), Value::from("roof"))]);
    c.insert_documents(&[row]).unwrap();
    clock.jump(today);
    assert!(db.sweep().unwrap().held.is_some(), "ten days in no time");
    Database::confirm_clock_at(folder.path()).unwrap();
    // A clock that goes on jumping is as wrong as before.
    clock.jump(today.plus_seconds(2 * DAY));
    assert!(db.sweep().unwrap().held.is_some(), "only today was confirmed");
    clock.jump(today);
    let report = db.sweep().unwrap();
    assert_eq!((report.held, report.counts.deleted_documents), (None, 1));
    assert!(!folder.path().join("CLOCK").exists(), "a word is taken once");
    clock.jump(today.plus_seconds(10 * DAY));
    assert!(db.sweep().unwrap().held.is_some(), "the next jump waits for the next word");
}

#[test]
fn a_confirmation_is_no_file_of_somebody_else_and_goes_at_the_next_open() {
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new(at(0));
    assert_eq!(Database::confirm_clock_at(folder.path()).unwrap_err().code(), Code::NamespaceNotFound);
    drop(opened(folder.path(), &clock));
    Database::confirm_clock_at(folder.path()).unwrap();
    Database::confirm_clock_at(folder.path()).unwrap();
    let db = opened(folder.path(), &clock);
    assert!(db.verify().unwrap().faults.is_empty());
    assert!(!folder.path().join("CLOCK").exists());
}

#[test]
fn a_folder_that_is_removed_while_open_gives_errors_and_is_not_made_again_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("db");
    let db = opened(&dir, &VirtualClock::new(at(0)));
    let c = db.create_collection("c", weather()).unwrap();
    c.insert_documents(&readings(0..10)).unwrap();
    RealFs::new().remove_dir(&dir).unwrap();
    let error = db.flush().unwrap_err();
    assert!(error.to_string().contains(&dir.display().to_string()), "{error}");
    assert_eq!(
        numbers_in(&db.snapshot(), "c").unwrap(),
        numbered(0..10),
        "what is in memory can be read and saved elsewhere"
    );
    drop((c, db));
    assert!(!dir.exists());
}

/// What was acknowledged in the folder, read by somebody who opens it afterwards.
fn stored(dir: &Path) -> Vec<i64> {
    let db = opened(dir, &VirtualClock::new(at(0)));
    assert!(db.verify().unwrap().faults.is_empty());
    numbers_in(&db.snapshot(), "c").unwrap()
}

#[cfg(unix)]
#[test]
#[expect(clippy::disallowed_methods, reason = "a person moves the folder")]
fn a_folder_that_is_moved_while_open_and_the_database_in_its_place_both_keep_what_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, aside) = (folder.path().join("db"), folder.path().join("aside"));
    let first = opened(&dir, &VirtualClock::new(at(0)));
    let c = first.create_collection("c", weather()).unwrap();
    c.insert_documents(&readings(0..3)).unwrap();
    std::fs::rename(&dir, &aside).unwrap();
    let second = opened(&dir, &VirtualClock::new(at(0)));
    second.create_collection("c", weather()).unwrap().insert_documents(&readings(0..20)).unwrap();
    let refused = [
        first.flush().unwrap_err(),
        c.insert_documents(&readings(5..6)).unwrap_err(),
        first.create_collection("d", weather()).map(drop).unwrap_err(),
    ];
    for error in &refused {
        assert!(error.to_string().contains("was moved, replaced or removed"), "{error}");
    }
    assert_eq!(refused[1].code(), Code::NotWritable);
    assert!(first.write_failure().is_some());
    let _ = first.close();
    second.collection("c").unwrap().insert_documents(&readings(20..22)).unwrap();
    second.abandon();
    assert_eq!(stored(&dir), numbered(0..22));
    let kept = stored(&aside);
    assert!(kept.starts_with(&numbered(0..3)), "{kept:?}");
}

#[cfg(unix)]
#[test]
fn a_writer_whose_folder_is_removed_acknowledges_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("db");
    let db = opened(&dir, &VirtualClock::new(at(0)));
    let c = db.create_collection("c", weather()).unwrap();
    let documents = db.create_documents("d", ebbtide::DocumentsOptions::default()).unwrap();
    RealFs::new().remove_dir(&dir).unwrap();
    let refused = c.insert_documents(&readings(0..3)).unwrap_err();
    assert_eq!(refused.code(), Code::NotWritable, "{refused}");
    assert!(documents.put(&serde_json::json!({"_id": "a"})).is_err());
    assert!(db.drop_collection("c").is_err());
    assert!(db.write_failure().is_some());
}

/// A lock file that somebody removed does not keep a second writer out: then the first one must not go on.
#[cfg(unix)]
#[test]
fn a_writer_whose_lock_file_is_removed_acknowledges_nothing_more_and_the_next_one_finds_everything() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("db");
    let first = opened(&dir, &VirtualClock::new(at(0)));
    let c = first.create_collection("c", weather()).unwrap();
    c.insert_documents(&readings(0..3)).unwrap();
    RealFs::new().remove(&dir.join("LOCK")).unwrap();
    let second = opened(&dir, &VirtualClock::new(at(0)));
    assert_eq!(numbers_in(&second.snapshot(), "c").unwrap(), numbered(0..3));
    assert_eq!(c.insert_documents(&readings(3..4)).unwrap_err().code(), Code::NotWritable);
    second.collection("c").unwrap().insert_documents(&readings(3..6)).unwrap();
    drop((c, first));
    second.flush().unwrap();
    second.close().unwrap();
    assert_eq!(stored(&dir), numbered(0..6));
}

#[cfg(unix)]
#[test]
#[expect(clippy::disallowed_methods, reason = "a person moves the folder")]
fn with_an_interval_a_writer_notices_at_the_next_sync_that_its_folder_was_moved() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("db");
    let clock = VirtualClock::new(at(0));
    let settings = Settings {
        durability: ebbtide::Durability::Interval(std::time::Duration::from_secs(1)),
        ..Settings::default()
    };
    let db = Database::builder(&dir).clock(Arc::new(clock.clone())).settings(settings).open().unwrap();
    let c = db.create_collection("c", weather()).unwrap();
    std::fs::rename(&dir, folder.path().join("aside")).unwrap();
    clock.set(at(2));
    assert_eq!(c.insert_documents(&readings(0..1)).unwrap_err().code(), Code::NotWritable);
}

#[cfg(unix)]
#[test]
#[expect(clippy::disallowed_methods, reason = "a person moves the folder")]
fn a_close_says_that_what_was_acknowledged_is_not_synced_since_the_folder_was_moved() {
    for (synced, notices) in [(false, true), (false, false), (true, true), (true, false)] {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("db");
        let settings = Settings {
            durability: ebbtide::Durability::Interval(std::time::Duration::from_secs(3600)),
            ..Settings::default()
        };
        let clock = Arc::new(VirtualClock::new(at(0)));
        let db = Database::builder(&dir).clock(clock).settings(settings).open().unwrap();
        let c = db.create_collection("c", weather()).unwrap();
        c.insert_documents(&readings(0..3)).unwrap();
        if synced {
            db.flush().unwrap();
        }
        std::fs::rename(&dir, folder.path().join("aside")).unwrap();
        if notices {
            assert!(db.create_collection("d", weather()).is_err());
        }
        let closed = db.close();
        match synced {
            true => closed.unwrap(),
            false => {
                let error = closed.unwrap_err();
                assert_eq!(error.code(), Code::NotWritable, "{notices}: {error}");
                assert!(error.to_string().contains("was moved, replaced or removed"), "{notices}: {error}");
            }
        }
    }
}

#[test]
fn a_relative_path_is_that_of_the_folder_in_which_the_database_was_opened() {
    let here = std::env::current_dir().unwrap();
    let folder = tempfile::tempdir_in(&here).unwrap();
    let relative = folder.path().strip_prefix(&here).unwrap().join("db");
    assert!(relative.is_relative());
    let db = opened(&relative, &VirtualClock::new(at(0)));
    assert_eq!(db.path(), folder.path().join("db"));
}

/// The files of a folder and of the folders in it, with their contents.
fn copied(dir: &Path) -> Vec<(String, Vec<u8>)> {
    fn copy(dir: &Path, within: &str, files: &mut Vec<(String, Vec<u8>)>) {
        let fs = RealFs::new();
        for name in fs.list(&dir.join(within)).unwrap() {
            let name = if within.is_empty() { name } else { format!("{within}/{name}") };
            if dir.join(&name).is_dir() {
                copy(dir, &name, files);
            } else {
                files.push((name.clone(), fs.read(&dir.join(&name)).unwrap()));
            }
        }
    }
    let mut files = Vec::new();
    copy(dir, "", &mut files);
    files
}

fn restored(files: &[(String, Vec<u8>)]) -> tempfile::TempDir {
    let (folder, fs) = (tempfile::tempdir().unwrap(), RealFs::new());
    for (name, content) in files {
        let path = folder.path().join(name);
        fs.create_dir(path.parent().unwrap()).unwrap();
        fs.create(&path).unwrap().append(content).unwrap();
    }
    folder
}

/// What a copy holds, or why it is refused.
fn of_copy(files: &[(String, Vec<u8>)], clock: &VirtualClock) -> Result<Vec<i64>, Error> {
    let folder = restored(files);
    let db = Database::builder(folder.path()).clock(Arc::new(clock.clone())).open()?;
    match db.collections().is_empty() {
        true => Ok(Vec::new()),
        false => numbers_in(&db.snapshot(), "c"),
    }
}

#[test]
fn a_database_that_was_copied_while_it_worked_is_refused_with_a_reason_or_has_no_hole() {
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new(at(0));
    let db = opened(folder.path(), &clock);
    let c = db.create_collection("c", weather()).unwrap();
    let mut moments = Vec::new();
    for round in 0..3 {
        c.insert_documents(&readings(round * 10..round * 10 + 10)).unwrap();
        moments.push(copied(folder.path()));
        if round % 2 == 1 {
            db.flush().unwrap();
            moments.push(copied(folder.path()));
        }
    }
    db.compact(None).unwrap();
    moments.push(copied(folder.path()));
    let (mut refused, mut opened) = (0, 0);
    for early in 0..moments.len() {
        for late in early + 1..moments.len() {
            // Copied file by file, in either order, while the database went on between two of them.
            let mut names: Vec<&String> = moments[early].iter().chain(&moments[late]).map(|(name, _)| name).collect();
            names.sort();
            names.dedup();
            for cut in 0..=names.len() {
                for reversed in [false, true] {
                    let take = |at: usize| if (at < cut) == reversed { &moments[late] } else { &moments[early] };
                    let files = names
                        .iter()
                        .enumerate()
                        .filter_map(|(at, name)| take(at).iter().find(|(known, _)| known == *name).cloned());
                    match of_copy(&files.collect::<Vec<_>>(), &clock) {
                        Ok(found) => {
                            assert_eq!(found, numbered(0..i64::try_from(found.len()).unwrap()), "a hole");
                            assert!(found.len() % 10 == 0, "half an insert: {found:?}");
                            opened += 1;
                        }
                        Err(error) => {
                            let kind = (error.code(), error.to_string());
                            assert!(matches!(kind.0, Code::DataCorruptionDetected | Code::BadValue), "{kind:?}");
                            refused += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(refused > 20 && opened > 20, "refused={refused} opened={opened}");
}

#[test]
fn a_half_restored_database_is_refused_and_the_missing_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new(at(0));
    let db = opened(folder.path(), &clock);
    let c = db.create_collection("c", weather()).unwrap();
    c.insert_documents(&readings(0..10)).unwrap();
    db.flush().unwrap();
    c.insert_documents(&readings(10..20)).unwrap();
    let all = copied(folder.path());
    for (gone, _) in all.iter().filter(|(name, _)| name != "LOCK" && name != "RESERVE") {
        let files: Vec<_> = all.iter().filter(|(name, _)| name != gone).cloned().collect();
        let error = of_copy(&files, &clock).unwrap_err();
        assert_eq!(error.code(), Code::DataCorruptionDetected, "{gone}: {error}");
        // Without the manifest nothing says what is missing, but that files are there.
        assert!(error.to_string().contains(gone) || gone.starts_with("MANIFEST"), "{gone}: {error}");
    }
}
