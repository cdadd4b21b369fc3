//! Sweeps over many buckets: how long a drop takes, and how that grows with the amount of stored data.

use super::Plan;
use crate::Result;
use crate::fleet::{Fleet, START_MS, WINDOW_MS};
use crate::folder::{UnsyncedFs, bytes_of, sync_files};
use crate::measure::{progress, timed};
use crate::report::Report;
use crate::weather::Weather;
use ebbtide::ttl::{Filter, Granularity, RuleSpec, Timestamp, Value, VirtualClock};
use ebbtide::{Collection, CollectionOptions, Database, ScanRequest, Settings, SweepReport};
use std::path::Path;
use std::sync::Arc;

const HOUR_S: i64 = 3_600;

/// A database with a fleet, with the files merged that the background task would merge.
fn build(
    dir: &Path,
    fleet: Fleet,
    merged: bool,
    rules: impl Fn(&Database) -> Result<()>,
) -> Result<(Database, VirtualClock)> {
    filled(dir, Timestamp::from_millis(START_MS), merged, |db| {
        let fleet_collection = db.create_collection("fleet", CollectionOptions::new("t").meta_field("sensor"))?;
        rules(db)?;
        fleet.fill(db, &fleet_collection)
    })
}

/// A filled database, opened on the real disk with a virtual clock.
fn filled(
    dir: &Path,
    now: Timestamp,
    merged: bool,
    fill: impl Fn(&Database) -> Result<()>,
) -> Result<(Database, VirtualClock)> {
    let clock = VirtualClock::new(now);
    let open = |fs: Option<Arc<UnsyncedFs>>| {
        let builder = Database::builder(dir).clock(Arc::new(clock.clone()));
        match fs {
            Some(fs) => builder.fs(fs).open(),
            None => builder.open(),
        }
    };
    let db = open(Some(Arc::new(UnsyncedFs::default())))?;
    fill(&db)?;
    if merged {
        db.compact(None)?;
    }
    db.close()?;
    sync_files(dir)?;
    Ok((open(None)?, clock))
}

fn rule(db: &Database, name: &str, seconds: i64, sensor: Filter) -> Result<()> {
    db.create_rules("fleet", vec![RuleSpec::new(name, seconds, sensor)])?;
    Ok(())
}

fn sweep(db: &Database) -> Result<(f64, SweepReport)> {
    let (seconds, report) = timed(|| Ok(db.sweep()?))?;
    match &report.held {
        Some(held) => Err(format!("the sweep was held: {held}").into()),
        None => Ok((seconds, report)),
    }
}

fn at(windows: i64, seconds: i64) -> Timestamp {
    Timestamp::from_millis(START_MS + windows * WINDOW_MS).plus_seconds(seconds)
}

pub(super) fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::new("expiry", &Settings::default());
    report.say("except for the weather: one measurement per bucket, windows of 1 h; filled without waiting for syncs, synced as a whole, swept on the real disk");
    let bar = progress("expiry", (plan.runs * 8) as u64);
    half_of_weather(plan, &mut report, &bar)?;
    half_of_fleet(plan, false, &mut report, &bar)?;
    half_of_fleet(plan, true, &mut report, &bar)?;
    for buckets in [1_000, 100_000, 1_000_000] {
        hundred(plan, buckets * plan.scale, &mut report, &bar)?;
    }
    million(plan, &mut report, &bar)?;
    several(plan, &mut report, &bar)?;
    last_points(plan, &mut report)?;
    bar.finish_and_clear();
    Ok(report)
}

/// Half of a year of recorded weather is due by the collection's own rule.
fn half_of_weather(plan: &Plan, report: &mut Report, bar: &indicatif::ProgressBar) -> Result<()> {
    let weather = Weather::load(&plan.root, plan.data.as_deref(), plan.scale)?;
    let batches = weather.batches(10_000)?;
    let (first, last) = weather.span();
    let life = (last - first) / 1000;
    let half = Half { name: format!("sweep that drops half of {}", weather.source), collection: "weather" };
    let middle = Timestamp::from_millis(first + (last - first) / 2);
    half.measure(plan, middle.plus_seconds(life), report, bar, |dir| {
        filled(dir, Timestamp::from_millis(last), true, |db| {
            let options = CollectionOptions::new("time").meta_field("station").granularity(Granularity::Hours);
            let collection = db.create_collection("weather", options.expire_after_seconds(life))?;
            batches.iter().try_for_each(|batch| collection.insert(batch).map(drop))?;
            Ok(db.flush()?)
        })
    })
}

/// The collection's own rule makes half of the windows due, or slightly more if the cut-off is to be at the end of a
/// file: each file holds a sixteenth of the rule's life.
fn half_of_fleet(plan: &Plan, at_end_of_file: bool, report: &mut Report, bar: &indicatif::ProgressBar) -> Result<()> {
    let fleet = Fleet { series: 1_000, windows: 1_600 * plan.scale };
    let windows = i64::try_from(fleet.windows)?;
    let life = windows * HOUR_S;
    let (first, partition) = (START_MS / WINDOW_MS, windows / 16);
    let (due, place) = match at_end_of_file {
        false => (windows / 2, "through"),
        true => (((first + windows / 2) / partition + 1) * partition - first, "at the end of"),
    };
    let name = format!("sweep that drops half of {} buckets, cut-off {place} a file", fleet.buckets());
    let half = Half { name, collection: "fleet" };
    half.measure(plan, at(due, life - 1), report, bar, |dir| {
        build(dir, fleet, false, |db| {
            let change = ebbtide::CollectionChange { expire_after_seconds: Some(Some(life)), ..Default::default() };
            Ok(db.modify_collection("fleet", &change, None)?)
        })
    })
}

/// A sweep that drops about half of a collection.
struct Half {
    name: String,
    collection: &'static str,
}

impl Half {
    #[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
    fn measure(
        &self,
        plan: &Plan,
        now: Timestamp,
        report: &mut Report,
        bar: &indicatif::ProgressBar,
        build: impl Fn(&Path) -> Result<(Database, VirtualClock)>,
    ) -> Result<()> {
        let (mut seconds, mut back, mut note) = (Vec::new(), Vec::new(), String::new());
        for _ in 0..plan.runs {
            let folder = tempfile::tempdir()?;
            let (db, clock) = build(folder.path())?;
            let segments = || bytes_of(folder.path(), |name| name.ends_with(".parquet"));
            let rows = || Ok::<_, ebbtide::Error>(db.collection(self.collection)?.snapshot()?.segments());
            let stored: u64 = rows()?.iter().map(|s| s.rows).sum();
            let before = segments()?;
            clock.set(now);
            let (took, swept) = sweep(&db)?;
            seconds.push(took);
            let given_back = (before - segments()?) as f64;
            let kept =
                |s: &ebbtide::SegmentInfo| s.bytes as f64 * (s.rows_written - s.rows) as f64 / s.rows_written as f64;
            let kept: f64 = rows()?.iter().map(kept).sum();
            back.push(given_back / (given_back + kept) * 100.0);
            let (dropped, files) = (swept.counts.deleted_documents, swept.counts.reclaimed_files);
            note = format!("{dropped} of {stored} measurements, {files} files unlinked");
            bar.inc(1);
        }
        report.add_millis(self.name.clone(), &seconds, note);
        let kept = "of the bytes that held due rows; the rest is in the file that contains the cut-off";
        report.add(format!("{}: space freed", self.name), "%", &back, kept);
        Ok(())
    }
}

/// A partial rule makes 100 buckets of one series due.
fn hundred(plan: &Plan, buckets: usize, report: &mut Report, bar: &indicatif::ProgressBar) -> Result<()> {
    let fleet = Fleet { series: (buckets / 100).max(10), windows: 100 };
    let (mut seconds, mut counts) = (Vec::new(), SweepReport::default());
    let life = 30 * 24 * HOUR_S;
    for _ in 0..plan.runs {
        let folder = tempfile::tempdir()?;
        let noisy = |db: &Database| rule(db, "noisy", life, Filter::eq("sensor", Value::from("s5")));
        let (db, clock) = build(folder.path(), fleet, true, noisy)?;
        clock.set(at(200, life));
        let (took, swept) = sweep(&db)?;
        seconds.push(took);
        counts = swept;
        bar.inc(1);
    }
    let (dropped, files) = (counts.counts.deleted_buckets, counts.counts.reclaimed_files);
    let note = format!("{dropped} dropped, {files} files; a series with its own rule, files merged before");
    report.add_millis(format!("sweep of 100 buckets out of {buckets}"), &seconds, note);
    Ok(())
}

/// Everything of 100,000 series is due.
fn million(plan: &Plan, report: &mut Report, bar: &indicatif::ProgressBar) -> Result<()> {
    let fleet = Fleet { series: 100_000, windows: 10 };
    let (mut seconds, mut counts) = (Vec::new(), SweepReport::default());
    for _ in 0..plan.runs {
        let folder = tempfile::tempdir()?;
        let (db, clock) = build(folder.path(), fleet, false, |db| {
            let change =
                ebbtide::CollectionChange { expire_after_seconds: Some(Some(24 * HOUR_S)), ..Default::default() };
            Ok(db.modify_collection("fleet", &change, None)?)
        })?;
        clock.set(at(20, 24 * HOUR_S));
        let (took, swept) = sweep(&db)?;
        seconds.push(took);
        counts = swept;
        bar.inc(1);
    }
    let c = &counts.counts;
    let note = format!("{} dropped, {} files", c.deleted_buckets, c.reclaimed_files);
    report.add_millis("sweep of 1,000,000 buckets of 100,000 series", &seconds, note);
    Ok(())
}

/// The newest measurement of each of 100,000 series.
fn last_points(plan: &Plan, report: &mut Report) -> Result<()> {
    let fleet = Fleet { series: 100_000 * plan.scale, windows: 3 };
    let folder = tempfile::tempdir()?;
    let (db, _) = build(folder.path(), fleet, false, |_| Ok(()))?;
    let snapshot = db.collection("fleet")?.snapshot()?;
    let look = || timed(|| Ok(snapshot.last_points(&ScanRequest::default())?));
    let (cold, points) = look()?;
    let warm = (0..plan.runs.max(5)).map(|_| Ok(look()?.0)).collect::<Result<Vec<_>>>()?;
    let note = format!("{} rows", points.num_rows());
    report.add_millis("last point of every series, before directories are in memory", &[cold], note.clone());
    report.add_millis("last point of every series", &warm, note);
    Ok(())
}

/// Three rules and the collection's own, each with something due.
fn several(plan: &Plan, report: &mut Report, bar: &indicatif::ProgressBar) -> Result<()> {
    let fleet = Fleet { series: 1_000, windows: 500 * plan.scale };
    let (mut first, mut idle, mut counts) = (Vec::new(), Vec::new(), SweepReport::default());
    for _ in 0..plan.runs {
        let folder = tempfile::tempdir()?;
        let (db, clock) = build(folder.path(), fleet, false, |db| {
            let change =
                ebbtide::CollectionChange { expire_after_seconds: Some(Some(400 * HOUR_S)), ..Default::default() };
            db.modify_collection("fleet", &change, None)?;
            for (name, hours, series) in [("day", 24, 0..100), ("week", 168, 100..300), ("fortnight", 336, 300..500)] {
                let series = series.map(|s| Value::from(format!("s{s}").as_str())).collect();
                rule(db, name, hours * HOUR_S, Filter::is_in("sensor", series))?;
            }
            Ok(())
        })?;
        clock.set(at(500, 0));
        let (took, swept) = sweep(&db)?;
        first.push(took);
        counts = swept;
        idle.push(sweep(&db)?.0);
        let _left: Collection = db.collection("fleet")?;
        bar.inc(1);
    }
    let note = format!("{} of {} buckets", counts.counts.deleted_buckets, fleet.buckets());
    report.add_millis("sweep under four rules", &first, note);
    report.add_millis("the next sweep, nothing due", &idle, "");
    Ok(())
}
