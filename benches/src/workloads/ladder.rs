//! Ladders: what decayed data takes, how long a decaying sweep takes, and how fast its bins are read.

use super::Plan;
use super::items::percentile;
use crate::Result;
use crate::folder::{UnsyncedFs, bytes_of, sync_files};
use crate::measure::{Stopwatch, progress, timed};
use crate::query::NamedSeries;
use crate::report::Report;
use crate::sql::Sql;
use crate::tsbs::{Cpu, Random, START_MS, STEP_MS};
use crate::weather::Weather;
use arrow::array::RecordBatch;
use ebbtide::buckets::{Bins, StoredField};
use ebbtide::ttl::{Granularity, Ladder, Precision, Rung, Timestamp, VirtualClock};
use ebbtide::{
    Aggregate, AggregateRequest, Collection, CollectionOptions, CollectionSnapshot, Database, DumpedRung,
    RollupRequest, ScanRequest, Settings, SweepOptions, TimeRange,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tempfile::TempDir;

const HOSTS: usize = 100;
const TICKS: usize = 8_640;
const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 24 * HOUR_S;
const DAY_MS: i64 = DAY_S * 1_000;

fn ladder(steps: &[i64]) -> Ladder {
    Ladder::new(steps.iter().map(|step| Rung { step_seconds: *step, expire_after_seconds: None }).collect())
}

/// A database on the real disk, with a clock that stands at `now`.
fn open(dir: &Path, now: Timestamp, fs: Option<UnsyncedFs>) -> Result<(Database, VirtualClock)> {
    let clock = VirtualClock::new(now);
    let builder = Database::builder(dir).clock(Arc::new(clock.clone()));
    let db = match fs {
        Some(fs) => builder.fs(Arc::new(fs)).open()?,
        None => builder.open()?,
    };
    Ok((db, clock))
}

pub(super) fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::new("ladder", &Settings::default());
    if plan.wants("size") {
        size(plan, &mut report)?;
    }
    if plan.wants("decay") {
        decay(plan, &mut report)?;
    }
    if plan.wants("beside") {
        beside(plan, &mut report)?;
    }
    if plan.wants("ingest") {
        ingest(plan, &mut report)?;
    }
    Ok(report)
}

/// Bytes of a day of TSBS cpu-only of which two hours are kept raw, and ten minutes for ever.
#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
fn size(plan: &Plan, report: &mut Report) -> Result<()> {
    let hosts = HOSTS * plan.scale;
    report.say(format!("size: TSBS cpu-only, {hosts} hosts, 24 h at 10 s, swept every hour of the data, compacted"));
    let bar = progress("size", 2 * TICKS as u64 / 360);
    let stored = |ladder: Option<&Ladder>| -> Result<(f64, usize)> {
        let folder = tempfile::tempdir()?;
        let (db, clock) = open(folder.path(), Timestamp::from_millis(START_MS), Some(UnsyncedFs::default()))?;
        let mut options = CollectionOptions::new("time").meta_field("tags");
        options.expire_after_seconds = ladder.map(|_| 2 * HOUR_S);
        let collection = db.create_collection("cpu", options)?;
        db.set_ladder("cpu", ladder.cloned(), false)?;
        let mut cpu = Cpu::new(hosts);
        for hour in 1..=TICKS / 360 {
            collection.insert(&cpu.ticks(360)?)?;
            clock.set(Timestamp::from_millis(START_MS + i64::try_from(hour)? * 360 * STEP_MS));
            db.sweep()?;
            bar.inc(1);
        }
        db.flush()?;
        db.compact(None)?;
        let request = RollupRequest { width_seconds: 600, ..RollupRequest::default() };
        let bins = match ladder {
            Some(_) => rows_of(&collection.snapshot()?.rollup(&request)?),
            None => 0,
        };
        Ok((bytes_of(folder.path(), |name| name.ends_with(".parquet"))? as f64, bins))
    };
    let (all, _) = stored(None)?;
    let (kept, bins) = stored(Some(&ladder(&[600])))?;
    bar.finish_and_clear();
    report.add("size: all raw", "MB", &[all / 1e6], format!("{} rows of 10 metrics", hosts * TICKS));
    report.add("size: 2 hours raw, 10 minutes for ever", "MB", &[kept / 1e6], format!("{bins} bins"));
    report.add("size: of all raw", "x", &[kept / all], "target 0.45");
    Ok(())
}

/// Everything that a bin keeps of a field and `aggregate` knows.
fn aggregates(fields: &[String]) -> Vec<Aggregate> {
    let of = |field: &String| {
        [Aggregate::Count, Aggregate::Sum, Aggregate::Min, Aggregate::Max, Aggregate::First, Aggregate::Last]
            .map(|aggregate| aggregate(field.clone()))
    };
    std::iter::once(Aggregate::Rows).chain(fields.iter().flat_map(of)).collect()
}

/// The recorded weather in a closed database, at a time at which none of it is due. Its ladder has days and weeks.
fn undecayed(weather: &Weather, batches: &[RecordBatch]) -> Result<TempDir> {
    let (first, last) = weather.span();
    let folder = tempfile::tempdir()?;
    let (db, _) = open(folder.path(), Timestamp::from_millis(last), Some(UnsyncedFs::default()))?;
    let options = CollectionOptions::new("time").meta_field("station").granularity(Granularity::Hours);
    let collection = db.create_collection("weather", options.expire_after_seconds((last - first) / 1000))?;
    db.set_ladder("weather", Some(ladder(&[DAY_S, 7 * DAY_S])), false)?;
    batches.iter().try_for_each(|batch| collection.insert(batch).map(drop))?;
    db.flush()?;
    db.compact(None)?;
    drop(collection);
    db.close()?;
    sync_files(folder.path())?;
    Ok(folder)
}

/// Half of the recorded weather decays into days and weeks, then all of it; and what reads the bins.
fn decay(plan: &Plan, report: &mut Report) -> Result<()> {
    let weather = Weather::load(&plan.root, plan.data.as_deref(), plan.scale)?;
    let batches = weather.batches(10_000)?;
    let (first, last) = weather.span();
    let life = (last - first) / 1000;
    let middle = first + (last - first) / 2;
    report.say(format!("decay: {}, {} series, into days and weeks", weather.source, weather.series()));
    let bar = progress("decay", plan.runs as u64);
    let (mut sweeps, mut asks, mut writes, mut kept) = (Vec::new(), Vec::new(), Vec::new(), None);
    let mut note = String::new();
    for _ in 0..plan.runs {
        drop(kept.take());
        let folder = undecayed(&weather, &batches)?;
        // The same bins of the rows that are due next, in a process that has read nothing of them yet.
        let (db, _) = open(folder.path(), Timestamp::from_millis(last), None)?;
        let collection = db.collection("weather")?;
        let snapshot = collection.snapshot()?;
        let aggregates = aggregates(&weather.fields);
        let (took, bins) = timed(|| {
            let mut bins = 0;
            for width in [DAY_MS, 7 * DAY_MS] {
                let request = AggregateRequest {
                    aggregates: aggregates.clone(),
                    time: TimeRange::of_units(None, Some(middle), Precision::Ms),
                    by_meta: true,
                    width: Some(Precision::Ms.duration(width)),
                    ..AggregateRequest::default()
                };
                bins += snapshot.aggregate(&request)?.num_rows();
            }
            Ok(bins)
        })?;
        asks.push(took);
        drop((snapshot, collection));
        db.close()?;
        let (db, clock) = open(folder.path(), Timestamp::from_millis(last), None)?;
        clock.set(Timestamp::from_millis(middle).plus_seconds(life));
        let (took, swept) = timed(|| Ok(db.sweep()?))?;
        sweeps.push(took);
        writes.push(written(&db, middle, &batches)?);
        note = format!("{} of {} measurements, {bins} bins", swept.counts.deleted_documents, weather.rows());
        clock.set(Timestamp::from_millis(last + DAY_MS).plus_seconds(life));
        db.sweep()?;
        kept = Some((db, folder));
        bar.inc(1);
    }
    bar.finish_and_clear();
    report.add_millis("decay: sweep of half", &sweeps, note);
    report.add_millis("decay: aggregate of the same bins", &asks, "without deviations; nothing in memory before");
    report.add_millis("decay: the same bins written", &writes, "by a restore, without adding up what it reads");
    let ratio = |sweep: &f64, ask: &f64| sweep / ask;
    let ratios: Vec<f64> = sweeps.iter().zip(&asks).map(|(sweep, ask)| ratio(sweep, ask)).collect();
    report.add("decay: sweep to aggregate", "x", &ratios, "with the writing");
    let others = sweeps.iter().zip(&writes).map(|(sweep, write)| sweep - write);
    let ratios: Vec<f64> = { others }.zip(&asks).map(|(sweep, ask)| ratio(&sweep, ask)).collect();
    report.add("decay: sweep but for the writing, to aggregate", "x", &ratios, "target 1.5");
    if let Some((db, _folder)) = kept {
        reads(plan, report, &weather, &db)?;
    }
    Ok(())
}

/// Seconds in which the bins of all rungs are written into another database, synced and committed: those of a restore, but for
/// the time in which it adds up what it reads.
fn written(db: &Database, now_ms: i64, batches: &[RecordBatch]) -> Result<f64> {
    let snapshot = db.collection("weather")?.snapshot()?;
    let rungs = snapshot.dumped_rungs()?;
    let folder = tempfile::tempdir()?;
    let (other, _) = open(folder.path(), Timestamp::from_millis(now_ms), None)?;
    let collection = other.create_collection("weather", snapshot.options().clone())?;
    other.set_ladder("weather", snapshot.ladder(), false)?;
    // Its fields are known from measurements.
    batches.iter().take(1).try_for_each(|batch| collection.insert(batch).map(drop))?;
    other.flush()?;
    let write = || rungs.iter().try_for_each(|rung| collection.restore_bins(rung.step_seconds, None, &rung.bins));
    let (restored, ()) = timed(|| Ok(write()?))?;
    let schema = collection.snapshot()?.schema().clone();
    let fields = || schema.fields.iter().map(|(name, ty)| (name.as_str(), ty));
    let add = |rung: &DumpedRung| -> Result<usize> {
        let mut bins = Bins::new(schema.precision.per_second() * rung.step_seconds, fields());
        bins.add_stored(&rung.bins, &schema, StoredField::plain)?;
        Ok(bins.len())
    };
    let (added, bins) = timed(|| rungs.iter().map(add).sum::<Result<usize>>())?;
    (bins > 0).then_some(restored - added).ok_or_else(|| "nothing decayed".into())
}

fn rows_of(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

/// The columns of a field in a rollup, as a list in SQL.
fn result_columns(snapshot: &CollectionSnapshot, field: &str) -> Result<String> {
    let schema = snapshot.rollup_schema(Some(&[field.to_owned()]))?;
    let names = schema.fields().iter().map(|column| column.name().as_str());
    Ok(names.filter(|name| name.starts_with(&format!("{field}_"))).collect::<Vec<_>>().join(", "))
}

/// One field by day, of which nothing is stored but bins.
fn reads(plan: &Plan, report: &mut Report, weather: &Weather, db: &Database) -> Result<()> {
    let snapshot = db.collection("weather")?.snapshot()?;
    if !snapshot.scan(&ScanRequest { include_hidden: true, ..ScanRequest::default() })?.is_empty() {
        return Err("something is stored raw".into());
    }
    let field = weather.fields.first().ok_or("no fields")?.clone();
    let station = weather.stations.first().ok_or("no stations")?;
    let one = NamedSeries::new(None, vec![station.clone()]);
    let sql = Sql::over(db)?;
    for (what, meta) in [("one series", Some(one)), ("all series", None)] {
        let of_one = meta.as_ref().map_or(String::new(), |_| format!(" WHERE station = '{station}'"));
        let request = RollupRequest {
            width_seconds: DAY_S,
            fields: Some(vec![field.clone()]),
            meta: meta.map(|series| Arc::new(series) as _),
            ..RollupRequest::default()
        };
        let ask = || timed(|| Ok(rows_of(&snapshot.rollup(&request)?)));
        let (cold, bins) = ask()?;
        let warm = (0..plan.asks()).map(|_| Ok(ask()?.0)).collect::<Result<Vec<_>>>()?;
        let target = if what == "one series" { "0.3 ms" } else { "5 ms" };
        report.add_millis(
            format!("decay: rollup of {field} by day, {what}"),
            &warm,
            format!("{bins} bins, target {target}"),
        );
        report.add_millis(format!("decay: rollup of {field} by day, {what}, first call"), &[cold], "");
        let Some(sql) = &sql else { continue };
        let columns = result_columns(&snapshot, &field)?;
        let text = format!("SELECT time, station, measurements, {columns} FROM rollup('weather', '1 day'){of_one}");
        let ask = || timed(|| Ok(rows_of(&sql.run(&text)?)));
        let rows = ask()?.1;
        if rows != bins {
            return Err(format!("{rows} rows of {bins} bins: {text}").into());
        }
        let warm = (0..plan.asks()).map(|_| Ok(ask()?.0)).collect::<Result<Vec<_>>>()?;
        let target = if what == "one series" { "0.8 ms" } else { "8 ms" };
        report.add_millis(format!("decay: rollup of {field} by day, {what}, SQL"), &warm, format!("target {target}"));
        let prepared = sql.prepare(&text)?;
        let warm = (0..plan.asks()).map(|_| Ok(timed(|| prepared(&[]))?.0)).collect::<Result<Vec<_>>>()?;
        report.add_millis(format!("decay: rollup of {field} by day, {what}, prepared"), &warm, "");
    }
    Ok(())
}

/// Other statements while half of the recorded weather decays, compared with the same statements before.
fn beside(plan: &Plan, report: &mut Report) -> Result<()> {
    let weather = Weather::load(&plan.root, plan.data.as_deref(), plan.scale)?;
    let batches = weather.batches(10_000)?;
    let (first, last) = weather.span();
    let middle = Timestamp::from_millis(first + (last - first) / 2);
    let (mut quiet, mut busy) = (Latencies::default(), Latencies::default());
    let mut sweeps = Vec::new();
    let bar = progress("beside", plan.runs as u64);
    for _ in 0..plan.runs {
        let folder = undecayed(&weather, &batches)?;
        let (db, clock) = open(folder.path(), Timestamp::from_millis(last), None)?;
        let others = db.create_collection("others", CollectionOptions::new("time").meta_field("tags"))?;
        let rows = Cpu::new(1).ticks(1)?;
        let statements = |into: &mut Latencies, go_on: &dyn Fn() -> bool| -> Result<()> {
            let mut random = Random::new(11);
            while go_on() {
                let (took, bins) = timed(|| month_of_one(&db, &weather, last, &mut random))?;
                (bins > 0).then_some(()).ok_or("a month without measurements")?;
                into.queries.push(took);
                into.inserts.push(timed(|| Ok(others.insert(&rows)?))?.0);
            }
            Ok(())
        };
        // The first statements find nothing in memory.
        let of_seconds = |seconds: f64| {
            let watch = Stopwatch::start();
            move || watch.seconds() < seconds
        };
        statements(&mut Latencies::default(), &of_seconds(1.0))?;
        statements(&mut quiet, &of_seconds(1.0))?;
        clock.set(middle.plus_seconds((last - first) / 1000));
        let swept = AtomicBool::new(false);
        let as_in_background = SweepOptions { leave_a_core: true, ..SweepOptions::default() };
        std::thread::scope(|scope| -> Result<()> {
            let sweeper = scope.spawn(|| {
                let outcome = timed(|| Ok(db.sweep_with(&as_in_background)?.counts.deleted_documents));
                swept.store(true, Ordering::Relaxed);
                outcome
            });
            statements(&mut busy, &|| !swept.load(Ordering::Relaxed))?;
            let (took, rows) = sweeper.join().map_err(|_| "the sweeper panicked")??;
            sweeps.push(took);
            (rows > 0).then_some(()).ok_or_else(|| "nothing decayed".into())
        })?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    report.say("beside: the greatest value of a field by day of one series' last 30 days; durable inserts of one row elsewhere");
    report.add_millis("beside: sweep of half", &sweeps, "with these statements");
    for (what, pick) in
        [("queries", (|of| &mut of.queries) as fn(&mut Latencies) -> &mut Vec<f64>), ("inserts", |of| &mut of.inserts)]
    {
        let [(quiet_count, quiet_p99), (busy_count, busy_p99)] = [&mut quiet, &mut busy].map(|of| {
            let all = pick(of);
            (all.len(), percentile(all, 99))
        });
        report.add_millis(format!("beside: {what} before, p99"), &[quiet_p99], format!("{quiet_count} of them"));
        report.add_millis(format!("beside: {what} meanwhile, p99"), &[busy_p99], format!("{busy_count} of them"));
        report.add(format!("beside: {what}, p99 meanwhile to before"), "x", &[busy_p99 / quiet_p99], "target 3");
    }
    Ok(())
}

/// Seconds of statements.
#[derive(Default)]
struct Latencies {
    queries: Vec<f64>,
    inserts: Vec<f64>,
}

/// The greatest value of a field by day of a series' last 30 days.
fn month_of_one(db: &Database, weather: &Weather, last: i64, random: &mut Random) -> Result<usize> {
    let station = weather.stations[random.below(weather.stations.len())].clone();
    let request = AggregateRequest {
        aggregates: weather.fields.first().map(|field| Aggregate::Max(field.clone())).into_iter().collect(),
        time: TimeRange::of_units(Some(last - 30 * DAY_MS), None, Precision::Ms),
        meta: Some(Arc::new(NamedSeries::new(None, vec![station]))),
        width: Some(Precision::Ms.duration(DAY_MS)),
        ..AggregateRequest::default()
    };
    Ok(db.snapshot().collection("weather")?.aggregate(&request)?.num_rows())
}

/// Ingest beside sweeps without a pause that drop, or decay, all that is older than an hour.
fn ingest(plan: &Plan, report: &mut Report) -> Result<()> {
    let mut cpu = Cpu::new(HOSTS);
    let batches = (0..TICKS / 100).map(|_| cpu.ticks(100)).collect::<Result<Vec<_>>>()?;
    report.say("ingest: TSBS cpu-only, 100 hosts, batches of 10,000 rows, the clock at the newest of each; swept without a pause");
    let bar = progress("ingest", 2 * plan.runs as u64);
    let (mut dropping, mut decaying, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut sweeps = (0, 0);
    for _ in 0..plan.runs {
        let (dropped, drops) = beside_sweeps(&batches, None)?;
        let (decayed, decays) = beside_sweeps(&batches, Some(ladder(&[600])))?;
        dropping.push(dropped);
        decaying.push(decayed);
        ratios.push(decayed / dropped);
        sweeps = (drops, decays);
        bar.inc(2);
    }
    bar.finish_and_clear();
    report.add("ingest beside dropping sweeps", "rows/s", &dropping, format!("{} sweeps", sweeps.0));
    report.add("ingest beside decaying sweeps", "rows/s", &decaying, format!("{} sweeps", sweeps.1));
    report.add("ingest beside sweeps: decaying to dropping", "x", &ratios, "target 0.8");
    Ok(())
}

/// Rows per second that are acknowledged, and how many sweeps ran meanwhile.
#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
fn beside_sweeps(batches: &[RecordBatch], ladder: Option<Ladder>) -> Result<(f64, u64)> {
    let folder = tempfile::tempdir()?;
    let (db, clock) = open(folder.path(), Timestamp::from_millis(START_MS), None)?;
    let options = CollectionOptions::new("time").meta_field("tags").expire_after_seconds(HOUR_S);
    let collection: Collection = db.create_collection("cpu", options)?;
    db.set_ladder("cpu", ladder, false)?;
    let (stop, sweeps) = (AtomicBool::new(false), AtomicU64::new(0));
    let rate = std::thread::scope(|scope| {
        let sweeper = scope.spawn(|| -> Result<()> {
            while !stop.load(Ordering::Relaxed) {
                db.sweep()?;
                sweeps.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let (watch, mut rows) = (Stopwatch::start(), 0);
        let write = || -> Result<f64> {
            for (at, batch) in (1..).zip(batches) {
                clock.set(Timestamp::from_millis(START_MS + at * 100 * STEP_MS));
                rows += collection.insert(batch)?;
            }
            Ok(rows as f64 / watch.seconds())
        };
        let rate = { write }();
        stop.store(true, Ordering::Relaxed);
        sweeper.join().map_err(|_| "the sweeper panicked")??;
        rate
    })?;
    db.close()?;
    Ok((rate, sweeps.into_inner()))
}
