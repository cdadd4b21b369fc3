//! Tier I: disks that are really full.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use ebbtide::fs::RealFs;
use ebbtide::{ErrorKind, Settings};

use crate::child::{Said, command, heard, reopened, say, worked_on};
use crate::expect::{Row, There};
use crate::runner::{Outcome, Runner, documents, find};
use crate::script::{Fields, HOUR, NOON, Scenario, Step, rows};
use crate::strace;

const KIB_MIN: i64 = 256;
const KIB_MAX: i64 = 4096;
const KIB_STEP: i64 = 16;
/// The disk on which dropped files are held open.
const HELD_KIB: i64 = 1000;

/// The words that start a program among mounts of its own, where a probe works: mounts vanish with it.
pub(crate) fn own_mounts(probe: &str) -> Option<&'static [&'static str]> {
    const WAYS: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    WAYS.into_iter().find(|way| {
        let mut unshare = Command::new("unshare");
        unshare.args(*way).args(["sh", "-c", probe]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        unshare.status().is_ok_and(|status| status.success())
    })
}

/// Plays a part among mounts of its own; what it counted.
pub(crate) fn play(role: &str, way: &[&str], base: &Path) -> crate::Outcome {
    play_under(role, "unshare", way, base)
}

/// Plays a part under another program, which starts what its last argument names; what it counted.
pub(crate) fn play_under(role: &str, program: &str, arguments: &[&str], base: &Path) -> crate::Outcome {
    let said = base.join("said");
    let child = command(role, base, &said);
    let mut under = Command::new(program);
    under
        .args(arguments)
        .arg(child.get_program())
        .envs(child.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let output = under.stdin(Stdio::null()).output().map_err(|error| format!("{program}: {error}"))?;
    match heard(&said)?.pop() {
        Some(Said::Counted(what)) if output.status.success() => Ok(what),
        Some(Said::Wrong(what)) => Err(what),
        last => Err(format!("{role}: {last:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Runs a program that has to succeed.
pub(crate) fn must(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Unmounts a disk. A process that another thread is just starting has the disk's open files too, for a moment.
pub(crate) fn unmount(at: &str) -> Result<(), String> {
    let mut outcome = must("umount", &[at]);
    for _ in 0..200 {
        if outcome.is_ok() {
            break;
        }
        outcome = must("umount", &[at]);
    }
    outcome
}

/// Disks of every size from 256 KiB to 4 MiB, filled to the last byte.
pub(crate) fn sizes() -> crate::Outcome {
    let base = tempfile::tempdir().map_err(|error| error.to_string())?;
    let probe = format!("mount -t tmpfs -o size=256k none {}", base.path().display());
    match own_mounts(&probe) {
        None => Ok("skipped: no small disk can be mounted here (tmpfs needs root or user namespaces)".to_owned()),
        Some(way) => play("full", way, base.path()),
    }
}

pub(crate) fn in_own_mounts(base: &Path, said: &mut File) -> Result<(), String> {
    let mut sizes: Vec<i64> = (KIB_MIN..=KIB_MAX).step_by(KIB_STEP as usize).collect();
    if let Some(most) = std::env::var("EBBTIDE_RIG_DISKS").ok().and_then(|text| text.parse().ok()) {
        sizes = strace::thinned(sizes, most);
    }
    let mount_of = |kib: &i64| base.join(format!("disk-{kib}"));
    // All disks before any work: a program that starts has the open files of all threads until it runs, so the space of
    // those removed meanwhile would not come back.
    for kib in sizes.iter().chain([&HELD_KIB]) {
        let mount = mount_of(kib);
        std::fs::create_dir(&mount).map_err(|error| error.to_string())?;
        must("mount", &["-t", "tmpfs", "-o", &format!("size={kib}k"), "none", &mount.display().to_string()])?;
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut inserts = 0;
        while let Some(kib) = sizes.get(next.fetch_add(1, Ordering::Relaxed)) {
            let dir = mount_of(kib).join("db");
            inserts += one(&dir, *kib).map_err(|what| format!("a disk of {kib} KiB: {what}"))?;
            std::fs::remove_dir_all(&dir).map_err(|error| error.to_string())?;
        }
        Ok(inserts)
    };
    let inserts: Vec<Result<usize, String>> = std::thread::scope(|scope| {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    let kept = held(&mount_of(&HELD_KIB).join("db"), HELD_KIB).map_err(|what| format!("with open files: {what}"));
    for kib in sizes.iter().chain([&HELD_KIB]) {
        unmount(&mount_of(kib).display().to_string())?;
    }
    kept?;
    let inserts: usize = inserts.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().sum();
    let disks = sizes.len();
    let what = format!("tier I: {disks} full disks, {inserts} inserts, nothing lost, each swept and gone on with");
    say(said, &Said::Counted(what));
    Ok(())
}

/// A database, and the batches that fill its disk.
type Begun<B> = Result<(Runner<RealFs>, B), String>;

/// A database on a disk of this size, and the batches that fill it.
fn begun(dir: &Path, kib: i64) -> Begun<impl Fn(i64) -> Vec<Row>> {
    let (eighth, sixteenth) = (usize::try_from(kib << 7), u64::try_from(kib << 6));
    let settings = Settings {
        memtable_bytes_max: eighth.unwrap_or(1 << 15),
        wal_file_bytes_max: sixteenth.unwrap_or(1 << 14),
        ..Settings::default()
    };
    let mut runner = Runner::new(RealFs::new(), dir, settings);
    runner.open().map_err(|error| format!("does not open: {error}"))?;
    must_do(&mut runner, &Step::Create("c", Some(12 * 3600)))?;
    // Time goes on from batch to batch, over half a day on a disk of any size.
    let rows_each = 12 + kib / 64 + kib / KIB_STEP % 16;
    let step = 11 * HOUR * rows_each / kib;
    let batch = move |number: i64| {
        let rows = rows(number * 1000, rows_each, NOON - 11 * HOUR, &["a", "b", "d"]);
        rows.into_iter().map(|row| Row { t: row.t + number * step, ..row }).collect::<Vec<_>>()
    };
    Ok((runner, batch))
}

/// Fills a disk, sweeps it, and goes on; how many inserts went in.
fn one(dir: &Path, kib: i64) -> Result<usize, String> {
    let (mut runner, batch) = begun(dir, kib)?;
    let scenario = Scenario { name: "full", settings: runner.settings.clone(), steps: Vec::new() };
    let inserts = fill(&mut runner, 0..=kib, &batch)?;
    if kib / KIB_STEP % 4 == 0 {
        check(&runner, "while full")?;
    }
    if kib / KIB_STEP % 2 == 0 {
        must_do(&mut runner, &Step::Reopen)?;
        check(&runner, "opened on the full disk")?;
    }
    must_do(&mut runner, &Step::Wait(6 * 3600))?;
    let before: u64 = files(dir).values().sum();
    must_do(&mut runner, &Step::Sweep)?;
    check(&runner, "swept")?;
    let after: u64 = files(dir).values().sum();
    if after >= before {
        return Err(format!("the sweep gave nothing back: before={before} after={after}"));
    }
    must_do(&mut runner, &Step::Insert("c", batch(inserts), Fields::Long))?;
    must_do(&mut runner, &Step::Wait(24 * 3600))?;
    must_do(&mut runner, &Step::Sweep)?;
    must_do(&mut runner, &Step::Insert("c", batch(inserts + 1), Fields::Long))?;
    let expected = runner.expected.clone();
    if let Some(db) = runner.db.take() {
        db.close().map_err(|error| format!("close: {error}"))?;
    }
    let db = reopened(dir, &expected, &scenario)?;
    if kib / KIB_STEP % 8 == 1 {
        worked_on(db, dir, &expected, &scenario)?;
    }
    usize::try_from(inserts).map_err(|error| error.to_string())
}

/// The space of a file that is dropped comes back when the last who has it open closes it. Until then inserts may be
/// refused, as on any full disk.
fn held(dir: &Path, kib: i64) -> Result<(), String> {
    let (mut runner, batch) = begun(dir, kib)?;
    let first = fill(&mut runner, 0..=kib, &batch)?;
    let open = |name: &String| File::open(dir.join(name)).map_err(|error| error.to_string());
    let open: Vec<File> = files(dir).keys().map(open).collect::<Result<_, _>>()?;
    must_do(&mut runner, &Step::Wait(24 * 3600))?;
    must_do(&mut runner, &Step::Sweep)?;
    let second = fill(&mut runner, first..=2 * kib, &batch)?;
    drop(open);
    let third = fill(&mut runner, second..=3 * kib, &batch)?;
    check(&runner, "when others have closed what was dropped")?;
    if third - second <= second - first {
        return Err(format!("the space does not come back when files are closed: first={first} {second} {third}"));
    }
    Ok(())
}

/// Inserts batches until the disk is full; the number of the first that did not go in.
fn fill(
    runner: &mut Runner<RealFs>,
    numbers: RangeInclusive<i64>,
    batch: &dyn Fn(i64) -> Vec<Row>,
) -> Result<i64, String> {
    for number in numbers {
        let rows = batch(number);
        let collection = runner.db().collection("c").map_err(|error| error.to_string())?;
        match collection.insert_documents(&documents(&rows, Fields::Long)) {
            Ok(_) => {
                if let Some(known) = runner.expected.collections.get_mut("c") {
                    known.insert(&rows, There::Yes);
                }
            }
            Err(error) if error.kind() == ErrorKind::Full => {
                if !error.to_string().contains("full") && !error.to_string().contains("space") {
                    return Err(format!("who is to know from this that the disk is full: {error}"));
                }
                return Ok(number);
            }
            Err(error) => return Err(format!("insert {number}: {:?}: {error}", error.kind())),
        }
    }
    Err("the disk is never full".to_owned())
}

fn must_do(runner: &mut Runner<RealFs>, step: &Step) -> Result<(), String> {
    match runner.step(step)? {
        (Outcome::Done, _) => Ok(()),
        (outcome, _) => Err(format!("{outcome:?}: {:.60}; on the disk: {:?}", format!("{step:?}"), files(&runner.dir))),
    }
}

/// The files in a folder and in the folders of its collections, with their bytes.
fn files(dir: &Path) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().display().to_string();
        match entry.metadata() {
            Ok(data) if data.is_dir() => {
                found.extend(files(&entry.path()).into_iter().map(|(file, bytes)| (format!("{name}/{file}"), bytes)));
            }
            Ok(data) => {
                found.insert(name, data.len());
            }
            Err(_) => {}
        }
    }
    found
}

fn check(runner: &Runner<RealFs>, when: &str) -> Result<(), String> {
    let found = find(&runner.db(), &runner.expected).map_err(|error| format!("{when}: reads fail: {error}"))?;
    runner.expected.check(&found).map_err(|what| format!("{when}: {what}"))
}
