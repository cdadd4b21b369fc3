//! Damage on disk: every bit, every length, every file gone, zeroed, swapped, or longer than it was.
//!
//! A small database with every kind of file is damaged in one way at a time. It may refuse to open, naming the file;
//! `verify` may name the fault; or what it holds may be exactly what was stored. If it was closed, any damage to its log or
//! manifest has to be refused. If it was not, nothing tells damage at the end of the newest of them from a write that a
//! power cut tore: then what it holds may be what was there before. Never may it panic, and never may it hold anything else.
//!
//! `EBBTIDE_CORRUPTION_STRIDE` is the step from one damaged bit or length to the next: 1, which takes all of them, unless it
//! is set. Repair is tried on one refusal of many.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ebbtide::fs::sim::{Random, SimFs};
use ebbtide::fs::{FileLock, Fs, Layer, LockError};
use ebbtide::{Database, Error, ErrorKind, RepairMode};
use ebbtide_ttl::{Code, Timestamp};

#[path = "shared/soak.rs"]
mod soak;
#[path = "shared/subjects.rs"]
mod subjects;

use soak::{Part, Soak, number};
use subjects::{Held, OF_DOCUMENTS, ROOT, Subject, clock, open, read, subjects};

/// Of files up to this size every bit is flipped, of longer ones one bit in every 64 bytes.
const EVERY_BIT_BYTES: usize = 8 << 10;
/// One refusal in so many is repaired.
const REPAIR_STRIDE: usize = 61;
/// Files whose content does not matter are damaged in one place of so many.
const IDLE_STRIDE: usize = 128;

/// Which bits and lengths are damaged: one in `stride`, from the one at `start` on.
#[derive(Clone, Copy)]
struct Places {
    start: usize,
    stride: usize,
    /// Which part of them, of how many: parts are damaged at once.
    part: (usize, usize),
}

impl Places {
    fn usual() -> Places {
        Places::every(0, number("EBBTIDE_CORRUPTION_STRIDE").map_or(1, |stride| stride as usize))
    }

    fn every(start: usize, stride: usize) -> Places {
        Places { start, stride, part: (0, 1) }
    }

    fn of(self, path: &Path, end: usize, every: usize) -> impl Iterator<Item = usize> {
        let idle = ["RESERVE", "LOCK"].iter().any(|name| path.ends_with(name));
        let stride = self.stride * every * if idle { IDLE_STRIDE } else { 1 };
        (self.start % stride..end).step_by(stride).skip(self.part.0).step_by(self.part.1)
    }
}

fn repair(fs: &SimFs, mode: RepairMode) -> Result<ebbtide::RepairReport, Error> {
    Database::builder(ROOT).fs(Arc::new(fs.clone())).clock(Arc::new(clock())).repair(mode)
}

#[derive(Default, Debug)]
struct Counts {
    mutations: usize,
    refused: usize,
    named: usize,
    identical: usize,
    /// As before the last writes: only at the end of the newest log or manifest.
    earlier: usize,
    repaired: usize,
    /// Repair had nothing to go by.
    hopeless: usize,
    failures: Vec<String>,
}

/// What a damaged file may at most lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Allowed {
    /// Nothing but being refused.
    Nothing,
    /// The state before the damage, or being noticed.
    Last,
    /// Also an earlier state.
    Earlier,
    /// Also without the last changes of collections, rules, segments and deletes.
    EarlierChanges,
}

impl Counts {
    fn check(&mut self, subject: &Subject, what: &str, path: &Path, allowed: Allowed, damage: impl FnOnce(&SimFs)) {
        self.mutations += 1;
        let outcome = catch_unwind(AssertUnwindSafe(|| self.look(subject, path, allowed, damage)));
        let outcome = outcome.unwrap_or_else(|_| Err("panic".to_owned()));
        if let Err(failure) = outcome {
            let file = path.file_name().unwrap_or_default().display();
            self.failures.push(format!("{}: {file}: {what}: {failure}", subject.name));
        }
    }

    fn look(
        &mut self,
        subject: &Subject,
        path: &Path,
        allowed: Allowed,
        damage: impl FnOnce(&SimFs),
    ) -> Result<(), String> {
        let disk = subject.fs.fork();
        damage(&disk);
        let file = path.file_name().unwrap_or_default().display().to_string();
        let untouched = disk.fork();
        let last = subject.states.last();
        let found = open(&disk).and_then(|db| {
            let found = read(&db);
            db.abandon();
            found
        });
        let found = match found {
            Ok(_) if allowed == Allowed::Nothing => return Err("it was closed, and opens all the same".to_owned()),
            Ok(found) => found,
            Err(error) => {
                if error.kind() != ErrorKind::Corrupt {
                    return Err(format!("refused, but as {:?}: {error}", error.kind()));
                }
                if !error.to_string().contains(ROOT) {
                    return Err(format!("refused without a path: {error}"));
                }
                self.refused += 1;
                if self.refused.is_multiple_of(REPAIR_STRIDE) {
                    self.mend(subject, &untouched)?;
                }
                return Ok(());
            }
        };
        if Some(&found) == last {
            let beside = Database::builder(ROOT).fs(Arc::new(untouched)).clock(Arc::new(clock())).read_only().open();
            match beside.and_then(|db| db.verify()) {
                Ok(report) if report.faults.is_empty() => self.identical += 1,
                Ok(report) if report.faults.iter().all(|fault| fault.contains(&file)) => self.named += 1,
                other => return Err(format!("reads well, but verify says {other:?}")),
            }
            return Ok(());
        }
        let is_earlier = match allowed {
            Allowed::Nothing | Allowed::Last => false,
            Allowed::Earlier => subject.states.contains(&found),
            // What the log says stays, whatever the manifest forgot.
            Allowed::EarlierChanges => subject.stranger(&found).is_none(),
        };
        if is_earlier {
            self.earlier += 1;
            return Ok(());
        }
        Err(format!("other rows: {} of {:?}", summary(&found), last.map(summary)))
    }

    /// A refused database opens after a repair, with nothing in it that was not there, and what is missing is reported.
    fn mend(&mut self, subject: &Subject, disk: &SimFs) -> Result<(), String> {
        let before = disk.files().len();
        match repair(disk, RepairMode::DryRun) {
            Ok(plan) if plan.is_clean() => return Err("refused, but nothing to repair".to_owned()),
            Ok(_) => {}
            // A flipped version looks like another version: that is for the user to decide.
            Err(error) if error.to_string().contains("manifest") || error.code() == Code::IncompatibleFormat => {
                self.hopeless += 1;
                return Ok(());
            }
            Err(error) => return Err(format!("repair: {error}")),
        }
        // The lock's file is the one that a dry run may make.
        if disk.files().iter().filter(|p| !p.ends_with("LOCK")).count() + 1 < before {
            return Err("a dry run removed files".to_owned());
        }
        let report = repair(disk, RepairMode::Apply).map_err(|e| format!("repair --yes: {e}"))?;
        let db = open(disk).map_err(|e| format!("after the repair: {e}: {report}"))?;
        let faults = db.verify().map_err(|e| e.to_string())?.faults;
        if !faults.is_empty() {
            return Err(format!("after the repair: {faults:?}"));
        }
        let found = read(&db).map_err(|e| format!("after the repair: {e}"))?;
        let mut missing = 0;
        if let Some(id) = subject.stranger(&found) {
            return Err(format!("after the repair: row {id} was never there"));
        }
        for (name, rows) in subject.states.last().into_iter().flatten() {
            let found = found.get(name);
            missing += rows.iter().filter(|(id, row)| found.is_none_or(|f| f.get(id) != Some(row))).count() as u64;
        }
        let unknown = report.losses.iter().any(|l| l.rows.is_none()) || report.changes_lost;
        // Of documents each lost change is reported, also one that a later change made of no account.
        let of_documents = report.losses.iter().any(|loss| loss.collection.as_deref() == Some(OF_DOCUMENTS));
        let agrees = report.rows_lost() == missing || (of_documents && report.rows_lost() > missing);
        if !unknown && !agrees {
            return Err(format!("repair reports {} rows lost, {missing} are: {report}", report.rows_lost()));
        }
        drop(db);
        if repair(disk, RepairMode::DryRun).map_err(|e| e.to_string())?.is_clean() {
            self.repaired += 1;
            Ok(())
        } else {
            Err("repaired, and still damaged".to_owned())
        }
    }

    fn add(&mut self, other: Counts) {
        self.mutations += other.mutations;
        self.refused += other.refused;
        self.named += other.named;
        self.identical += other.identical;
        self.earlier += other.earlier;
        self.repaired += other.repaired;
        self.hopeless += other.hopeless;
        self.failures.extend(other.failures);
    }

    fn report(&self, what: &str) -> String {
        let shown: Vec<&String> = self.failures.iter().take(20).collect();
        format!(
            "{what}: {} mutations: {} refused, {} named by verify, {} without effect, {} as before the last write; \
             {} repaired, {} without a manifest to go by, {} failures, of which: {shown:#?}",
            self.mutations,
            self.refused,
            self.named,
            self.identical,
            self.earlier,
            self.repaired,
            self.hopeless,
            self.failures.len()
        )
    }

    fn finish(self, what: &str) {
        println!("{}", self.report(what));
        assert!(self.failures.is_empty(), "{}", self.report(what));
    }
}

fn summary(held: &Held) -> String {
    let rows: Vec<String> = held.iter().map(|(name, rows)| format!("{name}: {} rows", rows.len())).collect();
    rows.join(", ")
}

/// Every file with its bytes, and whether its end may be taken for torn.
fn files(subject: &Subject) -> Vec<(PathBuf, Vec<u8>, Allowed)> {
    let paths = subject.fs.files();
    let is = |path: &Path, start: &str| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(start));
    let newest = |start: &str| paths.iter().filter(|p| is(p, start)).max().cloned();
    let newest = [newest("wal-"), newest("MANIFEST-")];
    let read = |path: &PathBuf| {
        let allowed = match newest.iter().position(|newest| newest.as_ref() == Some(path)) {
            _ if subject.closed && ["wal-", "MANIFEST-", "CLOSED"].iter().any(|start| is(path, start)) => {
                Allowed::Nothing
            }
            Some(0) => Allowed::Earlier,
            Some(_) => Allowed::EarlierChanges,
            None => Allowed::Last,
        };
        (path.clone(), subject.fs.read(path).expect("read"), allowed)
    };
    paths.iter().map(read).collect()
}

/// On two threads: no other test takes as long.
fn flip_bits(places: Places) -> Counts {
    std::thread::scope(|scope| {
        let parts = [0, 1].map(|part| scope.spawn(move || flip_bits_of(Places { part: (part, 2), ..places })));
        let mut counts = Counts::default();
        parts.into_iter().for_each(|part| counts.add(part.join().expect("a check catches panics")));
        counts
    })
}

fn flip_bits_of(places: Places) -> Counts {
    let mut counts = Counts::default();
    for subject in subjects() {
        for (path, bytes, allowed) in files(&subject) {
            let every = if bytes.len() <= EVERY_BIT_BYTES { 1 } else { 64 * 8 + 3 };
            for bit in places.of(&path, bytes.len() * 8, every) {
                counts.check(&subject, &format!("bit {bit}"), &path, allowed, |disk| {
                    disk.tamper(&path, |bytes| bytes[bit / 8] ^= 1 << (bit % 8)).expect("tamper");
                });
            }
        }
    }
    counts
}

fn cut_files(places: Places) -> Counts {
    let mut counts = Counts::default();
    for subject in subjects() {
        for (path, bytes, allowed) in files(&subject) {
            for len in places.of(&path, bytes.len(), 1) {
                counts.check(&subject, &format!("cut to {len}"), &path, allowed, |disk| {
                    disk.tamper(&path, |bytes| bytes.truncate(len)).expect("tamper");
                });
            }
        }
    }
    counts
}

/// Zeros for sectors, garbage behind the end, no file at all; and any bytes in any place, `bursts` times for each file.
fn spoil(seed: u64, bursts: usize) -> Counts {
    let mut counts = Counts::default();
    let mut random = Random::new(seed);
    for subject in subjects() {
        for (path, bytes, allowed) in files(&subject) {
            for start in (0..bytes.len().min(EVERY_BIT_BYTES)).step_by(512) {
                counts.check(&subject, &format!("zeros at {start}"), &path, allowed, |disk| {
                    let end = (start + 512).min(bytes.len());
                    disk.tamper(&path, |bytes| bytes[start..end].fill(0)).expect("tamper");
                });
            }
            for len in [1, 3, 12, 36, 512, 4096] {
                let zeros = len % 2 == 0 && random.chance(1, 2);
                let garbage: Vec<u8> = (0..len).map(|_| if zeros { 0 } else { random.next_u64() as u8 }).collect();
                counts.check(&subject, &format!("{len} bytes appended"), &path, allowed, |disk| {
                    disk.tamper(&path, |bytes| bytes.extend(&garbage)).expect("tamper");
                });
            }
            // Without its only manifest a folder is no database: it may not be taken for an empty one.
            counts.check(&subject, "deleted", &path, Allowed::Last, |disk| disk.remove(&path).expect("remove"));
            for burst in 0..bursts {
                let mut spoiled = bytes.clone();
                while spoiled == bytes {
                    mutate(&mut spoiled, &mut random);
                }
                let what = format!("seed {seed}, burst {burst}: {} bytes", spoiled.len());
                counts.check(&subject, &what, &path, allowed, |disk| {
                    disk.tamper(&path, |bytes| *bytes = spoiled).expect("tamper");
                });
            }
        }
    }
    counts
}

#[test]
fn flipped_bits_are_noticed() {
    flip_bits(Places::usual()).finish("D flipped bits");
}

#[test]
fn cut_files_are_noticed() {
    cut_files(Places::usual()).finish("D cut files");
}

#[test]
fn zeroed_sectors_missing_files_and_garbage_are_noticed() {
    spoil(7, 300).finish("D zeros, deletions, garbage");
}

/// A long campaign: rounds with other bits, lengths and bytes, until its time is over.
#[test]
#[ignore = "runs for as long as EBBTIDE_CAMPAIGN_SECONDS says"]
fn campaign() {
    let mut soak = Soak::new();
    while let Some(seed) = soak.next_seed() {
        // A prime, so that bits of all places in a byte take their turn.
        let places = Places::every(seed as usize, 61);
        let parts = [flip_bits(places), cut_files(places), spoil(seed, 200)];
        let (mut count, mut failures) = (0, 0);
        for part in parts {
            count += part.mutations;
            failures += part.failures.len();
            if !part.failures.is_empty() {
                println!("{}", part.report("D"));
            }
        }
        soak.note(&Part { tier: "D", seeds: (seed, seed), count, faults: 0, failures });
    }
    soak.finish();
}

/// Recomputes the checksums of a manifest, so that damage gets to what decodes it.
fn reseal(bytes: &mut [u8]) {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let crc = |bytes: &[u8]| crc32fast::hash(bytes).to_le_bytes();
    if bytes.len() < 36 {
        return;
    }
    let header = crc(&bytes[..32]);
    bytes[32..36].copy_from_slice(&header);
    let mut at = 36;
    while at + 12 <= bytes.len() {
        let end = (at + 12).saturating_add(word(bytes, at) as usize);
        if end > bytes.len() {
            return;
        }
        let payload = crc(&bytes[at + 12..end]);
        bytes[at + 4..at + 8].copy_from_slice(&payload);
        let place = (at as u64).to_le_bytes();
        let head = crc(&[&bytes[at..at + 8], &header[..], &place[..]].concat());
        bytes[at + 8..at + 12].copy_from_slice(&head);
        at = end;
    }
}

/// Some bytes of a file changed, cut out or put in.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.index(4) {
        let at = random.index(bytes.len() + 1);
        match random.index(5) {
            0 if at < bytes.len() => bytes[at] = random.next_u64() as u8,
            1 if at < bytes.len() => bytes[at] ^= 1 << random.index(8),
            2 => bytes.truncate(at),
            3 => {
                let end = (at + random.index(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                let with: Vec<u8> = (0..random.index(16)).map(|_| random.next_u64() as u8).collect();
                bytes.splice(at..at, with);
            }
        }
    }
}

/// Tier E: random bytes and random changes, with checksums that do not show them. Wrong rows may come of it, since nothing
/// tells them from right ones; a panic may not. Bytes of a log's records are decoded by Arrow, which trusts them: there the
/// checksums are left to do their work.
#[test]
fn decoders_take_any_bytes() {
    let subjects = subjects();
    let cases = std::env::var("EBBTIDE_FUZZ_CASES").ok().and_then(|s| s.parse().ok()).unwrap_or(1024_u64);
    let mut panics = Vec::new();
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..cases {
        for start in ["MANIFEST-", "wal-", "seg-"] {
            let mut random = Random::new(seed);
            let subject = &subjects[random.index(subjects.len())];
            let all = files(subject);
            let of_kind: Vec<_> = all.iter().filter(|(p, _, _)| p.to_string_lossy().contains(start)).collect();
            if of_kind.is_empty() {
                continue;
            }
            let (path, bytes, _) = of_kind[random.index(of_kind.len())];
            let disk = subject.fs.fork();
            // It would have most of it refused before it is decoded.
            let _unmarked = disk.remove(&Path::new(ROOT).join("CLOSED"));
            let mut bytes = bytes.clone();
            match random.index(8) {
                0 => bytes = (0..random.index(300)).map(|_| random.next_u64() as u8).collect(),
                _ => mutate(&mut bytes, &mut random),
            }
            if start == "MANIFEST-" && random.chance(3, 4) {
                reseal(&mut bytes);
            }
            disk.tamper(path, |old| *old = bytes).expect("tamper");
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let mended = repair(&disk, RepairMode::DryRun).is_ok();
                let db = open(&disk)?;
                let _report = db.verify()?;
                read(&db).map(|_| mended)
            }));
            match outcome {
                Ok(Ok(_)) => opened += 1,
                Ok(Err(_)) => refused += 1,
                Err(_) => panics.push(format!("seed {seed}: {start}")),
            }
        }
    }
    println!("E any bytes: {} cases: {opened} opened, {refused} refused, {} panics", opened + refused, panics.len());
    assert!(panics.is_empty(), "{} panics: {:?}", panics.len(), panics.iter().take(20).collect::<Vec<_>>());
}

/// Files of one kind in each other's place, and as they were at another time or in another database.
#[test]
fn swapped_files_are_noticed() {
    let mut counts = Counts::default();
    let (subjects, others) = (subjects(), subjects());
    for subject in &subjects {
        for (path, bytes, allowed) in files(subject) {
            let kind = |path: &Path| path.extension().map(|e| e.to_owned());
            for source in subjects.iter().chain(&others) {
                for (from, content, _) in files(source) {
                    if kind(&from) != kind(&path) || content == bytes {
                        continue;
                    }
                    let what = format!("replaced by {} of another ({})", from.display(), source.name);
                    counts.check(subject, &what, &path, allowed, |disk| {
                        disk.tamper(&path, |bytes| *bytes = content).expect("tamper");
                    });
                }
            }
        }
    }
    counts.finish("D swapped files");
}

/// A kind of damage: what it is called, the start of the file's name, and what happens to its bytes.
type Wound = (&'static str, &'static str, fn(&mut Vec<u8>));

const WOUNDS: [Wound; 6] = [
    ("a bit of a segment", "seg-", |bytes| bytes[20] ^= 1),
    ("the directory of a segment", "seg-", |bytes| {
        let at = bytes.len() - 300;
        bytes[at] ^= 1;
    }),
    ("an early record of the log", "wal-", |bytes| bytes[80] ^= 1),
    ("the log's header", "wal-", |bytes| bytes[5] ^= 1),
    ("an early edit of the manifest", "MANIFEST-", |bytes| bytes[150] ^= 1),
    ("half of the log", "wal-", |bytes| bytes.truncate(bytes.len() / 2)),
];

fn wounded(subject: &Subject, wound: &Wound) -> Option<(SimFs, Vec<u8>)> {
    let all = files(subject);
    let (path, _, _) =
        all.iter().find(|(p, _, _)| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(wound.1)))?;
    let disk = subject.fs.crash(ebbtide::fs::sim::Variant::V0, 1);
    disk.tamper(path, |bytes| {
        if bytes.len() > 200 {
            wound.2(bytes)
        }
    })
    .ok()?;
    let bytes = disk.read(path).ok()?;
    Some((disk, bytes))
}

/// Cut short at every step, and done again: it comes to the same rows, and the damaged file is still somewhere.
#[test]
fn an_interrupted_repair_is_done_again() {
    use ebbtide::fs::sim::Variant;
    let (mut runs, mut repairs) = (0, 0);
    for subject in &subjects() {
        for wound in &WOUNDS {
            let Some((disk, bytes)) = wounded(subject, wound) else { continue };
            let what = format!("{}: {}", subject.name, wound.0);
            let plan = match repair(&disk.fork(), RepairMode::DryRun) {
                Ok(plan) if plan.is_clean() => continue,
                Ok(plan) => plan,
                Err(error) => {
                    assert!(error.to_string().contains("manifest"), "{what}: {error}");
                    continue;
                }
            };
            repairs += 1;
            let whole = disk.fork();
            let report = repair(&whole, RepairMode::Apply).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!((&plan.faults, &plan.losses), (&report.faults, &report.losses), "{what}");
            let steps = whole.mutating_ops();
            let expected = read(&open(&whole).unwrap_or_else(|e| panic!("{what}: {e}"))).expect("read");
            for stop in 0..steps {
                for variant in [Variant::V0, [Variant::V1, Variant::V2, Variant::V3, Variant::V4][stop as usize % 4]] {
                    let cut = disk.fork();
                    cut.stop_after(stop);
                    assert!(repair(&cut, RepairMode::Apply).is_err(), "{what}: stopped at {stop}, and nobody noticed");
                    let after = cut.crash(variant, stop);
                    repair(&after, RepairMode::Apply).unwrap_or_else(|e| panic!("{what}: {stop} {variant:?}: {e}"));
                    let found = open(&after).and_then(|db| read(&db));
                    let found = found.unwrap_or_else(|e| panic!("{what}: {stop} {variant:?}: {e}"));
                    assert_eq!(expected, found, "{what}: {stop} {variant:?}");
                    let kept = after.files().iter().any(|p| after.read(p).is_ok_and(|b| b == bytes));
                    assert!(kept, "{what}: {stop} {variant:?}: the damaged file is gone: {:?}", after.files());
                    runs += 1;
                }
            }
        }
    }
    println!("repair: {repairs} repairs, cut short {runs} times");
    assert!(repairs >= 10, "only {repairs} of the wounds made a difference");
}

#[test]
fn repair_waits_for_no_lock_and_leaves_a_sound_database_alone() {
    let subject = subjects().remove(1);
    let disk = subject.fs.fork();
    let db = open(&disk).expect("open");
    let error = repair(&disk, RepairMode::DryRun).expect_err("the database is open");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    drop(db);
    let files = disk.files();
    let report = repair(&disk, RepairMode::Apply).expect("repair");
    assert!(report.is_clean() && report.folder.is_none(), "{report}");
    assert_eq!(files, disk.files());
    assert_eq!(Some(&read(&open(&disk).expect("open")).expect("read")), subject.states.last());
}

/// A disk that is mounted read-only.
#[derive(Debug)]
struct Mounted(SimFs);

impl Layer for Mounted {
    fn below(&self) -> &dyn Fs {
        &self.0
    }

    fn lock(&self, _path: &Path, _holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        Err(LockError::Io(std::io::ErrorKind::ReadOnlyFilesystem.into()))
    }
}

#[test]
fn damage_is_reported_on_a_disk_that_is_mounted_read_only() {
    let subject = subjects().remove(0);
    let (disk, _) = wounded(&subject, &WOUNDS[0]).expect("a segment");
    let files = disk.files();
    let on_mounted =
        |mode| Database::builder(ROOT).fs(Arc::new(Mounted(disk.clone()))).clock(Arc::new(clock())).repair(mode);
    let report = on_mounted(RepairMode::DryRun).expect("a report");
    assert!(!report.is_clean() && report.folder.is_none(), "{report}");
    let refused = on_mounted(RepairMode::Apply).expect_err("it cannot be repaired");
    assert!(refused.to_string().contains("cannot lock"), "{refused}");
    assert_eq!(files, disk.files());
    assert_eq!(report, repair(&disk, RepairMode::DryRun).expect("a report"));
}

/// The report says whose rows are gone, and from when to when.
#[test]
fn a_repair_says_what_is_lost() {
    let subject = subjects().remove(0);
    let (disk, _) = wounded(&subject, &WOUNDS[0]).expect("a segment");
    let report = repair(&disk, RepairMode::Apply).expect("repair");
    let [loss] = report.losses.as_slice() else { panic!("{report}") };
    assert_eq!((loss.collection.as_deref(), loss.metas.len()), (Some("c"), loss.metas.len()));
    assert!(!loss.metas.is_empty(), "the directory is whole: {report}");
    assert_eq!(loss.rows, Some(loss.metas.iter().map(|m| m.rows).sum()), "{report}");
    let before = subject.states.last().and_then(|s| s.get("c")).expect("rows");
    let held = read(&open(&disk).expect("open")).expect("read");
    let after = held.get("c").expect("the collection stays");
    let gone: Vec<i64> = before.iter().filter(|(id, _)| !after.contains_key(id)).map(|(_, row)| row.0).collect();
    let bounds =
        gone.iter().min().zip(gone.iter().max()).map(|(a, b)| (Timestamp::from_millis(*a), Timestamp::from_millis(*b)));
    assert_eq!((loss.rows, loss.times), (Some(gone.len() as u64), bounds), "{report}");
}
