//! Copies, archives and published tables in a folder: what they cost a writer, how late they are, and how fast they are read.

use super::Plan;
use super::weather::{NAMES, questions};
use crate::Result;
use crate::folder::{bytes_of, files_of};
use crate::measure::{Stopwatch, progress, timed};
use crate::query::NamedSeries;
use crate::question::Summary;
use crate::report::Report;
use crate::sql::Sql;
use crate::tsbs::{Cpu, Random, START_MS, STEP_MS};
use crate::weather::Weather;
use arrow::array::{ArrayRef, Float64Array, RecordBatch, TimestampMillisecondArray};
use ebbtide::ttl::{Granularity, SystemClock, Timestamp, VirtualClock};
use ebbtide::{Builder, CollectionOptions, Database, ScanRequest, Settings, ShipOptions, TimeRange};
use ebbtide_lake::Lake;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

const HOSTS: usize = 100;
/// Ten seconds of data each.
const TICKS: usize = 8_640;
/// Rows of a batch: those of 100 ticks.
const BATCH_TICKS: usize = 100;
/// The seconds between the versions that are published beside ingest.
const PUBLISH_PAUSE: u64 = 10;
/// The same where the ingest takes long enough: what `publish` has by default.
const PUBLISH_PAUSE_IF_LONG: u64 = 60;
/// The days of data whose ingest takes more than a minute.
const LONG: usize = 70;
/// Measurements a second of a steady ingest.
const STEADY_RATE: usize = 500_000;
/// Measurements a second while the lag is taken.
const LAG_RATE: usize = 100_000;
const LAG_SECONDS: usize = 20;
/// What a restore is measured with: half a gigabyte of doubles.
const NOISE_BATCHES: usize = 800;
const NOISE_ROWS: usize = 10_000;
const NOISE_FIELDS: usize = 8;

pub(super) fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::new("lake", &Settings::default());
    report.say(format!("TSBS cpu-only, {HOSTS} hosts; copies and tables in a folder of the same disk"));
    if plan.wants("ship") {
        ship(plan, &mut report)?;
    }
    if plan.wants("steady") {
        steady(plan, &mut report)?;
    }
    if plan.wants("restore") {
        restore(plan, &mut report)?;
    }
    if plan.wants("lag") {
        lag(&mut report)?;
    }
    if plan.wants("archive") {
        archive(plan, &mut report)?;
    }
    if plan.wants("queries") {
        queries(plan, &mut report)?;
    }
    Ok(report)
}

/// The twelve queries of the recorded weather over a collection and over its archive, as SQL, once what they need is in memory.
fn queries(plan: &Plan, report: &mut Report) -> Result<()> {
    let weather = Weather::load(&plan.root, plan.data.as_deref(), plan.scale)?;
    let (_, last) = weather.span();
    let folder = tempfile::tempdir()?;
    let clock = VirtualClock::new(Timestamp::from_millis(last));
    let db = builder(folder.path(), "db").clock(Arc::new(clock.clone())).open()?;
    let options = CollectionOptions::new("time").meta_field("station").granularity(Granularity::Hours);
    let local = db.create_collection("weather", options.clone())?;
    let options = options.expire_after_seconds(3_600).expire_into(url(folder.path(), "archive"));
    let moved = db.create_collection("moved", options)?;
    for batch in weather.batches(10_000)? {
        local.insert(&batch)?;
        moved.insert(&batch)?;
    }
    db.flush()?;
    db.compact(None)?;
    clock.set(Timestamp::from_millis(last).plus_seconds(2 * 86_400));
    db.sweep()?;
    let Some(sql) = Sql::over(&db)? else {
        report.say("queries: left out, since the program was built without SQL");
        return Ok(());
    };
    for (name, question) in questions(&weather) {
        let text = question.sql(NAMES);
        let newest = "latest_archived('moved')";
        let over_archive = text.replace("latest('weather')", newest).replace("FROM weather", "FROM archived('moved')");
        let expected = Summary::of(&sql.run(&text)?);
        let found = Summary::of(&sql.run(&over_archive)?);
        if !found.agrees(&expected) {
            return Err(format!("{name}: the archive has {found:?}, the collection {expected:?}").into());
        }
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for _ in 0..plan.asks() {
            here.push(timed(|| sql.run(&text))?.0);
            there.push(timed(|| sql.run(&over_archive))?.0);
        }
        let ratios: Vec<f64> = there.iter().zip(&here).map(|(there, here)| there / here).collect();
        report.add_millis(format!("{name}, collection"), &here, "");
        report.add_millis(format!("{name}, archive"), &there, "the same answer");
        report.add(format!("{name}: archive to collection"), "x", &ratios, "target 1.5");
    }
    Ok(())
}

fn builder(folder: &Path, name: &str) -> Builder {
    Database::builder(folder.join(name)).archives(Arc::new(Lake::new()))
}

fn url(folder: &Path, name: &str) -> String {
    format!("file://{}", folder.join(name).display())
}

fn batches(scale: usize) -> Result<Vec<RecordBatch>> {
    let mut cpu = Cpu::new(HOSTS);
    (0..TICKS * scale / BATCH_TICKS).map(|_| cpu.ticks(BATCH_TICKS)).collect()
}

/// What a database beside its inserts does.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    Nothing,
    Ship,
    Publish,
}

/// Ingest alone, beside shipping, and beside publishing; then the restore of the copy.
#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
fn ship(plan: &Plan, report: &mut Report) -> Result<()> {
    let batches = batches(plan.scale)?;
    let rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>() as f64;
    let pause = if plan.scale < LONG { PUBLISH_PAUSE } else { PUBLISH_PAUSE_IF_LONG };
    let bar = progress("ship", 3 * plan.runs as u64);
    let (mut alone, mut shipped, mut published) = (Vec::new(), Vec::new(), Vec::new());
    let (mut ships, mut publishes, mut restores) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        for beside in [Beside::Nothing, Beside::Ship, Beside::Publish] {
            let folder = tempfile::tempdir()?;
            let db = builder(folder.path(), "db").open()?;
            let collection = db.create_collection("cpu", CollectionOptions::new("time").meta_field("tags"))?;
            let shipping = match beside {
                Beside::Ship => Some(db.ship(&url(folder.path(), "copy"), ShipOptions::default())?),
                _ => None,
            };
            let (took, ()) = std::thread::scope(|scope| {
                let (ends, ended) = std::sync::mpsc::channel::<()>();
                if beside == Beside::Publish {
                    let (db, url) = (&db, url(folder.path(), "table"));
                    scope.spawn(move || {
                        while ended.recv_timeout(Duration::from_secs(pause)) == Err(RecvTimeoutError::Timeout) {
                            if let Err(error) = db.publish("cpu", &url, 60) {
                                eprintln!("{error}");
                            }
                        }
                    });
                }
                let done = timed(|| {
                    batches.iter().try_for_each(|batch| collection.insert(batch).map(drop))?;
                    Ok(db.flush()?)
                });
                drop(ends);
                done
            })?;
            match beside {
                Beside::Nothing => alone.push(rows / took),
                Beside::Ship => shipped.push(rows / took),
                Beside::Publish => published.push(rows / took),
            }
            if let Some(shipping) = shipping {
                let (rest, status) = timed(|| Ok(shipping.ship_now()?))?;
                ships.push(rest * 1e3);
                let bytes = status.bytes as f64;
                drop(shipping);
                let place = url(folder.path(), "copy");
                let (took, restored) = timed(|| Ok(builder(folder.path(), "restored").restore(&place, None)?))?;
                let files = bytes_of(&folder.path().join("restored"), |name| name.ends_with(".parquet"))? as f64;
                restores.push(files / took / 1e6);
                report.say(format!(
                    "{bytes} bytes shipped; {} segments, {} records restored",
                    restored.files, restored.records
                ));
            }
            if beside == Beside::Publish {
                // Versions are numbered from 0.
                let last = db.publications().first().and_then(|p| p.last.as_ref().map(|v| v.version));
                publishes.push(last.map_or(0, |version| version + 1) as f64);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let ratio = |a: &[f64]| a.iter().zip(&alone).map(|(a, b)| a / b).collect::<Vec<_>>();
    report.add("ingest alone", "rows/s", &alone, "durable batches of 10,000 rows of 10 metrics, then a flush");
    report.add("ingest beside ship", "rows/s", &shipped, "a piece each second");
    report.add("ship: of ingest alone", "x", &ratio(&shipped), "target 0.9");
    report.add("ship: the rest after the last insert", "ms", &ships, "");
    report.add("ingest beside publish", "rows/s", &published, format!("a version each {pause} seconds"));
    report.add("publish: of ingest alone", "x", &ratio(&published), "target 0.97");
    report.add("versions published", "", &publishes, "");
    report.add("restore", "MB/s", &restores, "of segments, from a folder");
    Ok(())
}

/// Ingest at a constant rate, alone and beside shipping. `--scale` says how many minutes.
#[expect(clippy::disallowed_methods, reason = "the rate is by the wall clock")]
#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
fn steady(plan: &Plan, report: &mut Report) -> Result<()> {
    let planned = Duration::from_secs(60 * plan.scale as u64);
    let (mut alone, mut shipped, mut rests) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        for beside in [Beside::Nothing, Beside::Ship] {
            let folder = tempfile::tempdir()?;
            let db = builder(folder.path(), "db").open()?;
            let collection = db.create_collection("cpu", CollectionOptions::new("time").meta_field("tags"))?;
            let place = url(folder.path(), "copy");
            let shipping = (beside == Beside::Ship).then(|| db.ship(&place, ShipOptions::default())).transpose()?;
            let mut cpu = Cpu::new(HOSTS);
            let (started, mut due, mut rows) = (Stopwatch::start(), Duration::ZERO, 0);
            while due < planned {
                let batch = cpu.ticks(BATCH_TICKS)?;
                collection.insert(&batch)?;
                rows += batch.num_rows();
                due += Duration::from_secs_f64(batch.num_rows() as f64 / STEADY_RATE as f64);
                std::thread::sleep(due.saturating_sub(started.elapsed()));
            }
            let rate = rows as f64 / started.elapsed().as_secs_f64();
            match shipping {
                None => alone.push(rate),
                Some(shipping) => {
                    shipped.push(rate);
                    let (rest, status) = timed(|| Ok(shipping.ship_now()?))?;
                    rests.push(rest * 1e3);
                    report.say(format!("{rows} rows, {} bytes shipped", status.bytes));
                }
            }
        }
    }
    let ratios: Vec<f64> = shipped.iter().zip(&alone).map(|(shipped, alone)| shipped / alone).collect();
    let what =
        format!("durable batches of 10,000 rows of 10 metrics, {STEADY_RATE} rows/s for {} s", planned.as_secs());
    report.add("steady ingest alone", "rows/s", &alone, what);
    report.add("steady ingest beside ship", "rows/s", &shipped, "a piece each second");
    report.add("ship: of steady ingest alone", "x", &ratios, "target 0.9");
    report.add("ship: the rest after the last of them", "ms", &rests, "");
    Ok(())
}

/// A restore of measurements that cannot be compressed, beside a copy of the store's files to the same disk. Half a gigabyte for each
/// unit of scale.
#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
#[expect(clippy::disallowed_methods, reason = "files of the bench, not of the engine")]
fn restore(plan: &Plan, report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let db = builder(folder.path(), "db").open()?;
    let collection = db.create_collection("noise", CollectionOptions::new("time"))?;
    for batch in 0..NOISE_BATCHES * plan.scale {
        collection.insert(&noise(batch)?)?;
    }
    db.flush()?;
    let place = url(folder.path(), "copy");
    let shipping = db.ship(&place, ShipOptions::default())?;
    shipping.ship_now()?;
    drop((shipping, collection, db));
    // The copy has all of it, and the disk may have no room for a fourth copy.
    std::fs::remove_dir_all(folder.path().join("db"))?;
    let (mut restored, mut copied) = (Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        let run = tempfile::tempdir()?;
        let (took, _) = timed(|| Ok(builder(run.path(), "restored").restore(&place, None)?))?;
        let bytes = bytes_of(&run.path().join("restored"), |name| name.ends_with(".parquet"))?;
        restored.push(bytes as f64 / took / 1e6);
        let (took, bytes) = timed(|| copied_to(&folder.path().join("copy"), &run.path().join("plain")))?;
        copied.push(bytes as f64 / took / 1e6);
    }
    let ratios: Vec<f64> = restored.iter().zip(&copied).map(|(restored, copied)| restored / copied).collect();
    report.add("restore", "MB/s", &restored, "of segments that cannot be compressed, from a folder");
    report.add("copy of the same files", "MB/s", &copied, "one after the other, each with a sync");
    report.add("restore: of the copy", "x", &ratios, "target 0.7");
    Ok(())
}

/// Measurements with fields of random bits.
fn noise(batch: usize) -> Result<RecordBatch> {
    let mut random = Random::new(batch as u64);
    let first = START_MS + i64::try_from(batch * NOISE_ROWS)?;
    let times: Vec<i64> = (first..).take(NOISE_ROWS).collect();
    let mut columns: Vec<(String, ArrayRef)> =
        vec![("time".to_owned(), Arc::new(TimestampMillisecondArray::from(times)))];
    for field in 0..NOISE_FIELDS {
        let values = (0..NOISE_ROWS).map(|_| f64::from_bits(random.bits() >> 12 | 1.0_f64.to_bits()));
        columns.push((format!("f{field}"), Arc::new(Float64Array::from_iter_values(values))));
    }
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// Copies files as a program without Ebbtide would, and returns their bytes.
#[expect(clippy::disallowed_methods, reason = "the disk itself is measured")]
fn copied_to(from: &Path, to: &Path) -> Result<u64> {
    std::fs::create_dir_all(to)?;
    let mut bytes = 0;
    for (number, path) in files_of(from, &|_| true)?.into_keys().enumerate() {
        let mut copy = std::fs::File::create(to.join(number.to_string()))?;
        bytes += std::io::copy(&mut std::fs::File::open(path)?, &mut copy)?;
        copy.sync_all()?;
    }
    Ok(bytes)
}

/// How long after its acknowledgement a measurement is in the copy, at a constant rate.
#[expect(clippy::disallowed_methods, reason = "the rate is by the wall clock")]
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures for the eye"
)]
fn lag(report: &mut Report) -> Result<()> {
    let mut cpu = Cpu::new(HOSTS);
    let per_tick = 10;
    let batch = cpu.ticks(per_tick)?;
    let pause = Duration::from_secs_f64(batch.num_rows() as f64 / LAG_RATE as f64);
    let folder = tempfile::tempdir()?;
    let db = builder(folder.path(), "db").open()?;
    let collection = db.create_collection("cpu", CollectionOptions::new("time").meta_field("tags"))?;
    // On a server, if the environment names a place there.
    let place = std::env::var("EBBTIDE_LAKE_URL");
    let place = place.map_or_else(|_| url(folder.path(), "copy"), |place| format!("{place}/{}", std::process::id()));
    let shipping = db.ship(&place, ShipOptions::default())?;
    let clock = SystemClock::new();
    let (started, mut lags) = (Stopwatch::start(), Vec::new());
    let mut next = Duration::ZERO;
    while started.elapsed() < Duration::from_secs(LAG_SECONDS as u64) {
        collection.insert(&cpu.ticks(per_tick)?)?;
        next += pause;
        if let Some(until) = db.ship_status().and_then(|status| status.shipped_until) {
            let nanos = ebbtide::ttl::Clock::now(&clock).nanos() - until.nanos();
            lags.push(nanos as f64 / 1e6);
        }
        std::thread::sleep(next.saturating_sub(started.elapsed()));
    }
    drop(shipping);
    lags.sort_by(f64::total_cmp);
    let at = |share: f64| lags.get(((lags.len() - 1) as f64 * share) as usize).copied().unwrap_or(f64::NAN);
    report.add(
        "lag of ship, median",
        "ms",
        &[at(0.5)],
        format!(
            "{LAG_RATE} rows/s for {LAG_SECONDS} s, a piece each second, to {}",
            place.split("://").next().unwrap_or("")
        ),
    );
    report.add("lag of ship, p99", "ms", &[at(0.99)], "target 2 s");
    Ok(())
}

/// What one series' day costs to read out of an archive.
#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
fn archive(plan: &Plan, report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let clock = VirtualClock::new(Timestamp::from_millis(START_MS));
    let db = builder(folder.path(), "db").clock(Arc::new(clock.clone())).open()?;
    let place = url(folder.path(), "archive");
    let options = CollectionOptions::new("time").meta_field("tags").expire_after_seconds(3_600).expire_into(&place);
    let collection = db.create_collection("cpu", options)?;
    let days = 30 * plan.scale;
    let mut cpu = Cpu::new(HOSTS);
    let bar = progress("archive", days as u64);
    let end = |day: usize| -> Result<Timestamp> {
        Ok(Timestamp::from_millis(START_MS + i64::try_from(day * TICKS)? * STEP_MS))
    };
    for day in 1..=days {
        for _ in 0..TICKS / BATCH_TICKS {
            collection.insert(&cpu.ticks(BATCH_TICKS)?)?;
        }
        collection.insert(&cpu.ticks(TICKS % BATCH_TICKS)?)?;
        clock.set(end(day)?.plus_seconds(7_200));
        db.sweep()?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let stored = bytes_of(&folder.path().join("archive"), |name| name.ends_with(".parquet"))? as f64;
    let snapshot = db.snapshot().collection("cpu")?;
    let day = days / 2;
    let request = ScanRequest {
        time: TimeRange::from(end(day)?..end(day + 1)?),
        meta: Some(Arc::new(NamedSeries::new(Some("hostname"), vec!["host_7".to_owned()]))),
        ..ScanRequest::default()
    };
    let (took, (rows, fetched)) = timed(|| {
        let collection = snapshot.archived_collection()?.ok_or("the archive has files that are no segments")?;
        let mut rows = 0;
        for unit in collection.scan(&request)? {
            for batch in unit.read()? {
                rows += batch?.num_rows();
            }
        }
        Ok((rows, collection.fetched().map_or(0, |fetched| fetched.bytes())))
    })?;
    report.add("archive: a series' day", "ms", &[took * 1e3], format!("{rows} rows of {days} days, {stored} bytes"));
    report.add("archive: bytes fetched", "%", &[100.0 * fetched as f64 / stored], "target 3");
    Ok(())
}
