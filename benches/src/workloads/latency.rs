//! How long queries take while the same database is written at full speed and swept, compared with an idle database.

use super::Plan;
use crate::Result;
use crate::measure::{progress, timed};
use crate::query::NamedSeries;
use crate::report::Report;
use crate::tsbs::{Cpu, FIELDS, Random, START_MS};
use ebbtide::ttl::Precision;
use ebbtide::{
    Aggregate, AggregateRequest, CollectionChange, CollectionOptions, CollectionSnapshot, Database, Settings, TimeRange,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const HOSTS: usize = 100;
const TICKS: usize = 8_640;
const QUERIES: usize = 50_000;
const HOUR: i64 = 3_600_000;

pub(super) fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::new("latency", &Settings::default());
    report.say(format!(
        "max of five metrics by minute of one host in one of 23 hours, {QUERIES} times per run, over {} sealed rows; busy: the \
         same database takes batches of 10,000 rows without a pause in another collection, and is swept without a pause, \
         which drops all of them",
        HOSTS * TICKS
    ));
    let folder = tempfile::tempdir()?;
    let db = Database::open(folder.path())?;
    let asked = db.create_collection("asked", CollectionOptions::new("time").meta_field("tags"))?;
    let mut cpu = Cpu::new(HOSTS);
    for _ in 0..TICKS / 100 {
        asked.insert(&cpu.ticks(100)?)?;
    }
    db.flush()?;
    db.compact(None)?;
    let busy = db.create_collection("busy", CollectionOptions::new("time").meta_field("tags"))?;
    let change = CollectionChange { expire_after_seconds: Some(Some(3600)), ..Default::default() };
    db.modify_collection("busy", &change, None)?;
    let batches = (0..50).map(|_| cpu.ticks(100)).collect::<Result<Vec<_>>>()?;

    let bar = progress("queries", ((2 * plan.runs + 1) * QUERIES) as u64);
    // In both cases the queries find their data in memory.
    queries(&asked, &bar)?;
    let mut quiet = Vec::new();
    for _ in 0..plan.runs {
        quiet.extend(queries(&asked, &bar)?);
    }
    let (stop, rows, sweeps) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let runtime = tokio::runtime::Runtime::new()?;
    let _entered = runtime.enter();
    let _background = db.start_background()?;
    let (seconds, loaded) = timed(|| {
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| -> Result<()> {
                for batch in batches.iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                    rows.fetch_add(busy.insert(batch)?, Ordering::Relaxed);
                }
                Ok(())
            });
            let sweeper = scope.spawn(|| -> Result<()> {
                while !stop.load(Ordering::Relaxed) {
                    db.sweep()?;
                    sweeps.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
            let mut loaded = Ok(Vec::new());
            for _ in 0..plan.runs {
                loaded = loaded.and_then(|mut all: Vec<f64>| {
                    all.extend(queries(&asked, &bar)?);
                    Ok(all)
                });
            }
            stop.store(true, Ordering::Relaxed);
            writer.join().map_err(|_| "the writer panicked")??;
            sweeper.join().map_err(|_| "the sweeper panicked")??;
            loaded
        })
    })?;
    bar.finish_and_clear();
    let at = |sorted: &[f64], percent: usize| sorted.get(sorted.len() * percent / 100).copied().unwrap_or(0.0);
    let mut p99 = Vec::new();
    for (name, mut all) in [("quiet", quiet), ("busy", loaded)] {
        all.sort_by(f64::total_cmp);
        report.add_millis(format!("{name}, median"), &[at(&all, 50)], format!("{} queries", all.len()));
        report.add_millis(format!("{name}, 99th percentile"), &[at(&all, 99)], "");
        p99.push(at(&all, 99));
    }
    report.add("busy to quiet, 99th percentile", "x", &[p99[1] / p99[0]], "");
    #[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
    let speed = rows.load(Ordering::Relaxed) as f64 / seconds;
    report.add("ingest meanwhile", "rows/s", &[speed], format!("{} sweeps", sweeps.load(Ordering::Relaxed)));
    db.close()?;
    Ok(report)
}

/// Seconds of each query, each with a new snapshot.
fn queries(asked: &ebbtide::Collection, bar: &indicatif::ProgressBar) -> Result<Vec<f64>> {
    let mut random = Random::new(11);
    let mut seconds = Vec::with_capacity(QUERIES);
    for _ in 0..QUERIES {
        let hour = START_MS + i64::try_from(random.below(23))? * HOUR;
        let series = NamedSeries::new(Some("hostname"), vec![format!("host_{}", random.below(HOSTS))]);
        let request = AggregateRequest {
            aggregates: FIELDS.iter().take(5).map(|f| Aggregate::Max((*f).to_owned())).collect(),
            time: TimeRange::of_units(Some(hour), Some(hour + HOUR - 1), Precision::Ms),
            meta: Some(Arc::new(series)),
            width: Some(Duration::from_secs(60)),
            ..Default::default()
        };
        let (took, groups) = timed(|| {
            let snapshot: CollectionSnapshot = asked.snapshot()?;
            Ok(snapshot.aggregate(&request)?.num_rows())
        })?;
        if groups != 60 {
            return Err(format!("{groups} minutes in an hour").into());
        }
        seconds.push(took);
        bar.inc(1);
    }
    Ok(seconds)
}
