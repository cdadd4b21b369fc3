//! What a machine may refuse: a disk that may only be read, a folder that is not ours, no more file handles.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use ebbtide::ttl::{Code, VirtualClock};
use ebbtide::{CollectionOptions, Database, Error, ScanRequest, Settings};
use ebbtide_ttl::{Timestamp, Value};
use std::sync::Arc;

use crate::child::{Said, say};
use crate::full::{must, own_mounts, play, play_under, unmount};
use crate::script::NOON;

/// Each flush makes a segment of its own day.
const SEGMENTS: i64 = 120;
/// File handles that a process gets, fewer than there are segments.
const HANDLES: u32 = 64;

fn open(dir: &Path) -> Result<Database, Error> {
    let clock = VirtualClock::new(Timestamp::from_millis(NOON));
    Database::builder(dir).clock(Arc::new(clock)).open()
}

fn row(number: i64) -> Value {
    let t = Timestamp::from_millis(NOON + number * 86_400_000);
    Value::Object(vec![("t".into(), Value::Date(t)), ("id".into(), Value::Int(number))])
}

/// A database with a row in a segment and one in the log.
fn made(dir: &Path) -> Result<Database, String> {
    let make = || {
        let db = open(dir)?;
        let c = db.create_collection("c", CollectionOptions::new("t"))?;
        c.insert_documents(&[row(0)])?;
        db.flush()?;
        c.insert_documents(&[row(1)])?;
        Ok::<_, Error>(db)
    };
    make().map_err(|error| format!("make: {error}"))
}

fn count(db: &Database) -> Result<u64, String> {
    db.snapshot().collection("c").and_then(|c| c.count()).map_err(|error| format!("count: {error}"))
}

/// That a call was refused by the file system, with the path and the reason in the message.
fn refused<T>(what: &str, outcome: Result<T, Error>, dir: &Path, reason: &str) -> Result<(), String> {
    let Err(error) = outcome else { return Err(format!("{what} was not refused")) };
    let text = error.to_string();
    let clear = text.contains(&dir.display().to_string()) && text.contains(reason);
    if error.code() == Code::FileStreamFailed && clear {
        Ok(())
    } else {
        Err(format!("{what}: {:?}: {text}", error.code()))
    }
}

fn same(what: &str, found: u64, expected: u64) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: expected={expected} found={found}")) }
}

/// A disk that turns read-only while a database on it is open.
pub(crate) fn read_only() -> crate::Outcome {
    let base = tempfile::tempdir().map_err(|error| error.to_string())?;
    let at = base.path().display();
    match own_mounts(&format!("mount -t tmpfs -o size=4m none {at} && mount -o remount,ro {at}")) {
        None => Ok("skipped: no disk can be mounted here (tmpfs needs root or user namespaces)".to_owned()),
        Some(way) => play("read-only", way, base.path()),
    }
}

pub(crate) fn read_only_in_own_mounts(base: &Path, said: &mut File) -> Result<(), String> {
    let mount = base.join("disk");
    std::fs::create_dir(&mount).map_err(|error| error.to_string())?;
    let (at, dir) = (mount.display().to_string(), mount.join("db"));
    must("mount", &["-t", "tmpfs", "-o", "size=4m", "none", &at])?;
    drop(made(&dir)?);
    must("mount", &["-o", "remount,ro", &at])?;
    let reason = "Read-only file system";
    refused("an open for writing", open(&dir), &dir, reason)?;
    let reader = Database::builder(&dir).read_only().open().map_err(|error| format!("open to read: {error}"))?;
    same("rows that a reader sees", count(&reader)?, 2)?;
    drop(reader);
    must("mount", &["-o", "remount,rw", &at])?;
    let db = open(&dir).map_err(|error| format!("open when it can be written again: {error}"))?;
    same("rows afterwards", count(&db)?, 2)?;
    drop(db);
    unmount(&at)?;
    say(said, &Said::Counted("a read-only disk is read, and not written".to_owned()));
    Ok(())
}

/// A folder in which this process may read or do nothing at all.
pub(crate) fn denied() -> crate::Outcome {
    // Root is asked for no permission; within a user namespace without any right it is.
    let mut probe = Command::new("unshare");
    probe.args(["--user", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        return Ok("skipped: there are no user namespaces here, and root may do anything".to_owned());
    }
    let base = tempfile::tempdir().map_err(|error| error.to_string())?;
    let dir = base.path().join("db");
    drop(made(&dir)?);
    let allow = |mode: u32| {
        std::fs::set_permissions(&dir, Permissions::from_mode(mode)).map_err(|error| format!("chmod: {error}"))
    };
    let mut counted = Ok(String::new());
    for (mode, role) in [(0o555, "may-read"), (0o000, "may-nothing")] {
        allow(mode)?;
        counted = play(role, &["--user"], base.path());
        if counted.is_err() {
            break;
        }
    }
    allow(0o755)?;
    let db = open(&dir).map_err(|error| format!("open when it may be written again: {error}"))?;
    same("rows afterwards", count(&db)?, 2)?;
    counted
}

/// In a namespace without rights.
pub(crate) fn without_rights(base: &Path, may_read: bool, said: &mut File) -> Result<(), String> {
    let (dir, reason) = (base.join("db"), "Permission denied");
    let locked = std::fs::remove_file(dir.join("LOCK")).is_ok();
    if locked {
        return Err("this process may write where it should not".to_owned());
    }
    // The lock file is there, and may be written; the first new file may not be made.
    refused("an open for writing", open(&dir), &dir, reason)?;
    let reader = Database::builder(&dir).read_only().open();
    if may_read {
        same("rows that a reader sees", count(&reader.map_err(|error| format!("open to read: {error}"))?)?, 2)?;
    } else {
        refused("an open to read", reader, &dir, reason)?;
    }
    say(said, &Said::Counted("a folder without permission is refused with the reason".to_owned()));
    Ok(())
}

/// A process that gets fewer file handles than a database has segments.
pub(crate) fn handles() -> crate::Outcome {
    let base = tempfile::tempdir().map_err(|error| error.to_string())?;
    let counted = play_under("handles", "sh", &["-c", &format!("ulimit -n {HANDLES} && exec \"$0\"")], base.path())?;
    // Where there are enough of them, all is there.
    let db = open(&base.path().join("db")).map_err(|error| format!("open with more handles: {error}"))?;
    same("rows afterwards", count(&db)?, SEGMENTS as u64)?;
    Ok(counted)
}

/// Reads every row of every segment.
fn scanned(db: &Database) -> Result<u64, Error> {
    let mut rows = 0;
    for unit in db.snapshot().collection("c")?.scan(&ScanRequest::default())? {
        for batch in unit.read()? {
            rows += batch?.num_rows() as u64;
        }
    }
    Ok(rows)
}

/// No file can be opened when the log is full, and when a sweep has to seal what is due: both are refused or counted, nothing is
/// lost, and both go on when handles are free again.
fn without_a_handle(dir: &Path) -> Result<(), String> {
    let said = |error: Error| format!("without a handle: {error}");
    let clock = Arc::new(VirtualClock::new(Timestamp::from_millis(NOON)));
    let settings = Settings { wal_file_bytes_max: 1 << 10, ..Settings::default() };
    let db = Database::builder(dir).clock(clock.clone()).settings(settings).open().map_err(said)?;
    let c = db.create_collection("c", CollectionOptions::new("t").expire_after_seconds(86_400)).map_err(said)?;
    let mut rows = 0;
    let logs = || std::fs::read_dir(dir).map_err(|e| e.to_string()).map(Iterator::count);
    let files = logs()?;
    // Until the log is full: the next insert begins a new one.
    while logs()? == files {
        c.insert_documents(&[row(0)]).map_err(said)?;
        rows += 1;
    }
    for _ in 1..rows - 1 {
        c.insert_documents(&[row(0)]).map_err(said)?;
        rows += 1;
    }
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    refused("an insert that begins a new log", c.insert_documents(&[row(0)]), dir, "Too many open files")?;
    same("rows after it", count(&db)?, rows)?;
    clock.set(Timestamp::from_millis(NOON + 2 * 86_400_000));
    db.confirm_clock();
    let swept = db.sweep().map_err(said)?;
    same("rules that could not be swept", swept.counts.failed_rules, 1)?;
    drop(taken);
    let swept = db.sweep().map_err(said)?;
    same("rows swept with handles", swept.counts.deleted_documents, rows)?;
    c.insert_documents(&[row(3)]).map_err(said)?;
    drop((c, db));
    same("rows in the end", count(&open(dir).map_err(said)?)?, 1)
}

pub(crate) fn with_few_handles(base: &Path, said: &mut File) -> Result<(), String> {
    let dir = base.join("db");
    let db = made(&dir)?;
    let c = db.collection("c").map_err(|error| error.to_string())?;
    for number in 2..SEGMENTS {
        c.insert_documents(&[row(number)]).map_err(|error| format!("insert {number}: {error}"))?;
        db.flush().map_err(|error| format!("flush {number}: {error}"))?;
    }
    // More segments than handles: they are read as far as handles go, and the error says what is missing.
    let outcome = scanned(&db);
    match &outcome {
        Ok(rows) => same("rows scanned", *rows, SEGMENTS as u64)?,
        Err(_) => refused("a scan", outcome.clone(), &dir, "Too many open files")?,
    }
    drop((c, db));
    let db = open(&dir).map_err(|error| format!("open again: {error}"))?;
    if let Err(error) = db.compact(None) {
        refused("a compaction", Err::<(), _>(error), &dir, "Too many open files")?;
    }
    drop(db);
    without_a_handle(&base.join("none"))?;
    let what = if outcome.is_ok() { "and all of them are read" } else { "and the error says so" };
    say(said, &Said::Counted(format!("{SEGMENTS} segments and {HANDLES} file handles: nothing is lost, {what}")));
    Ok(())
}
