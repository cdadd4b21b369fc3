//! Ordinary collections: a store of sessions of 200 to 400 bytes, beside SQLite with the same data in the same batches.

mod expiry;
mod puts;
mod session;
mod sqlite;

use super::Plan;
use crate::Result;
use crate::measure::{Stopwatch, timed};
use crate::report::{Report, kibibytes_of_process};
use ebbtide::{Background, Database, DefaultTtl, Documents, DocumentsOptions, Settings};
use session::{Session, id, random};
use sqlite::Sqlite;
use tempfile::TempDir;

/// Documents of a batch.
const BATCH: u64 = 1_000;
/// Batches that are made before they are timed.
const AHEAD: u64 = 20;
const MILLION: u64 = 1_000_000;
/// Refreshes and reads of a measurement.
const OPERATIONS: u64 = 200_000;
const HOT: u64 = 100_000;
/// Reads before those that are measured. Of hot sessions they miss about one in 3,000.
const WARM: u64 = 8 * HOT;
/// A session's life in seconds.
const LIFE: u32 = 30 * 60;

pub(super) fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::new("items", &Settings::default());
    let mean = (0..BATCH).map(|n| Ok(session::bson(&session::session(n, 0))?.len() as f64)).sum::<Result<f64>>()?;
    report.say(format!(
        "sessions of {:.0} bytes of BSON with random ids; one durable commit per batch",
        mean / BATCH as f64
    ));
    report.say("SQLite through Python: WAL, synchronous FULL, 256 MiB of cache, INSERT OR REPLACE of a JSON text, an index on the expiry");
    let wanted = |stage: &str| plan.only.as_deref().is_none_or(|only| stage.starts_with(only));
    if wanted("million") {
        million(plan, &mut report)?;
    }
    if wanted("large") {
        large(plan, &mut report)?;
    }
    if wanted("puts") {
        puts::run(plan, &mut report)?;
    }
    if wanted("expiry") {
        expiry::run(plan, &mut report)?;
    }
    Ok(report)
}

/// A store of sessions in a folder of its own, with the background task, and the same table in SQLite.
struct Stores {
    sessions: Documents,
    db: Database,
    _background: Background,
    sqlite: Sqlite,
    _runtime: tokio::runtime::Runtime,
    _folder: TempDir,
}

impl Stores {
    fn new(plan: &Plan) -> Result<Stores> {
        let folder = tempfile::tempdir()?;
        let db = Database::open(folder.path().join("ebbtide"))?;
        let options = DocumentsOptions { default_ttl: DefaultTtl::Seconds(LIFE), ..DocumentsOptions::default() };
        let sessions = db.create_documents("sessions", options)?;
        let runtime = tokio::runtime::Runtime::new()?;
        let background = {
            let _entered = runtime.enter();
            db.start_background()?
        };
        let sqlite = Sqlite::open(&plan.root, &folder.path().join("items.sqlite"))?;
        Ok(Stores { sessions, db, _background: background, sqlite, _runtime: runtime, _folder: folder })
    }

    /// Seconds that each of both takes to put sessions in batches, first the one, then the other.
    fn put(&mut self, count: u64, session: impl Fn(u64) -> Session) -> Result<(f64, f64)> {
        let ours = self.put_ours(count, &session)?;
        let mut theirs = 0.0;
        for start in (0..count).step_by(usize::try_from(AHEAD * BATCH)?) {
            theirs += self.sqlite.put((start..(start + AHEAD * BATCH).min(count)).map(&session))?;
        }
        Ok((ours, theirs))
    }

    fn put_ours(&self, count: u64, session: impl Fn(u64) -> Session) -> Result<f64> {
        let mut seconds = 0.0;
        for start in (0..count).step_by(usize::try_from(AHEAD * BATCH)?) {
            let batches = (start..(start + AHEAD * BATCH).min(count)).map(&session).collect::<Vec<_>>();
            let (took, ()) = timed(|| {
                for batch in batches.chunks(usize::try_from(BATCH)?) {
                    self.sessions.put_many(batch)?;
                }
                Ok(())
            })?;
            seconds += took;
        }
        Ok(seconds)
    }

    /// Refreshes of random sessions among `count`.
    fn refresh(&mut self, count: u64, seed: u64) -> Result<(f64, f64)> {
        self.put(OPERATIONS, |n| session::session(random(seed, n) % count, 1 + n))
    }
}

/// Adds the rates of both and their ratio.
fn compare(report: &mut Report, name: &str, count: u64, seconds: &[(f64, f64)], note: &str) {
    let rates = |of: fn(&(f64, f64)) -> f64| seconds.iter().map(|s| count as f64 / of(s)).collect::<Vec<f64>>();
    report.add(name, "/s", &rates(|s| s.0), note);
    report.add(format!("{name}, SQLite"), "/s", &rates(|s| s.1), "");
    let ratios: Vec<f64> = seconds.iter().map(|(ours, theirs)| theirs / ours).collect();
    report.add(format!("{name}: ratio"), "x", &ratios, "target 1.5");
}

/// Inserts and refreshes of a million sessions, and their size.
fn million(plan: &Plan, report: &mut Report) -> Result<()> {
    let (mut inserts, mut refreshes) = (Vec::new(), Vec::new());
    let (mut sealed, mut compacted, mut own) = (Vec::new(), Vec::new(), 0);
    for run in 0..plan.runs as u64 {
        let mut stores = Stores::new(plan)?;
        let (ours, theirs) = stores.put(MILLION, |n| session::session(n, 0))?;
        let (flushed, ()) = timed(|| Ok(stores.db.flush()?))?;
        inserts.push((ours + flushed, theirs));
        let bytes = || Ok::<_, ebbtide::Error>(stores.sessions.snapshot()?.segment_bytes() as f64 / MILLION as f64);
        sealed.push(bytes()?);
        stores.db.compact(None)?;
        compacted.push(bytes()?);
        refreshes.push(stores.refresh(MILLION, run)?);
    }
    compare(report, "inserts, 1,000,000 sessions", MILLION, &inserts, "batches of 1,000, with the last seal");
    compare(report, "refreshes, random, at 1,000,000 keys", OPERATIONS, &refreshes, "batches of 1,000");
    for start in (0..MILLION).step_by(usize::try_from(BATCH)?) {
        let block = (start..start + BATCH).map(|n| session::bson(&session::session(n, 0)));
        own += zstd::bulk::compress(&block.collect::<Result<Vec<_>>>()?.concat(), 3)?.len();
    }
    let own = own as f64 / MILLION as f64;
    report.add("bytes a session, zstd-3 in blocks of 1,000", "bytes", &[own], "");
    report.add("bytes a session, sealed", "bytes", &sealed, format!("{:.3} x", sealed[0] / own));
    let note = format!("{:.3} x, target 1.25", compacted[0] / own);
    report.add("bytes a session, compacted", "bytes", &compacted, note);
    Ok(())
}

/// Refreshes, reads and memory at ten million sessions.
fn large(plan: &Plan, report: &mut Report) -> Result<()> {
    let count = 10 * MILLION * plan.scale as u64;
    let mut stores = Stores::new(plan)?;
    let (seconds, ()) = timed(|| {
        stores.put_ours(count, |n| session::session(n, 0))?;
        Ok(stores.db.flush()?)
    })?;
    report.add("inserts, until 10,000,000 sessions are sealed", "/s", &[count as f64 / seconds], "");
    for start in (0..count).step_by(100_000) {
        stores.sqlite.fill((start..start + 100_000).map(|n| session::session(n, 0)))?;
    }
    let mebibytes = |key: &str| kibibytes_of_process(key).map(|k| k as f64 / 1024.0);
    let seconds = (0..plan.runs as u64).map(|run| stores.refresh(count, run)).collect::<Result<Vec<_>>>()?;
    compare(report, "refreshes, random, at 10,000,000 keys", OPERATIONS, &seconds, "batches of 1,000");
    report.add("segments", "", &[stores.sessions.snapshot()?.segments().len() as f64], "");
    let uniform = |n: u64| random(77, n) % count;
    read(report, &mut stores, "get, uniformly random of 10,000,000", uniform, ["target 50", "target 500"])?;
    let hot = |n: u64| random(78, random(79, n) % HOT) % count;
    read(report, &mut stores, "get, of 100,000 hot of 10,000,000", hot, ["target 5", "target 50"])?;
    report.add("memory at 10,000,000 keys", "MiB", &[mebibytes("VmRSS")?], "of the whole process, target 512");
    report.add("memory at 10,000,000 keys, peak", "MiB", &[mebibytes("VmHWM")?], "with all inserts");
    Ok(())
}

fn read(
    report: &mut Report,
    stores: &mut Stores,
    name: &str,
    key: impl Fn(u64) -> u64,
    targets: [&'static str; 2],
) -> Result<()> {
    let mut micros = Vec::new();
    for n in 0..WARM + OPERATIONS {
        let id = id(key(n));
        let watch = Stopwatch::start();
        let found: Option<Session> = stores.sessions.get(id)?;
        if n >= WARM {
            micros.push(watch.seconds() * 1e6);
        }
        found.ok_or("a session is missing")?;
    }
    let theirs = stores.sqlite.get((0..WARM + OPERATIONS).map(|n| id(key(n))), OPERATIONS)?;
    for (at, (share, target)) in [50, 99].into_iter().zip(targets).enumerate() {
        report.add(format!("{name}, p{share}"), "us", &[percentile(&mut micros, share)], target);
        report.add(format!("{name}, p{share}, SQLite"), "us", &[theirs[at]], "");
    }
    Ok(())
}

/// A percentile of the values, by the nearest-rank method.
pub(super) fn percentile(values: &mut [f64], share: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get((values.len() * share / 100).min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
}
