//! Recorded weather: ingest until acknowledged and sealed, size after compaction, and queries.

use super::Plan;
use crate::Result;
use crate::ask::ask;
use crate::folder::{bytes_in, bytes_of};
use crate::measure::{Stopwatch, progress, timed};
use crate::question::{Kind, Names, Question};
use crate::report::Report;
use crate::sql::Sql;
use crate::weather::Weather;
use arrow::array::RecordBatch;
use ebbtide::ttl::Granularity;
use ebbtide::{Collection, CollectionOptions, Database, Settings, json};
use std::path::Path;

pub(super) const BATCH_ROWS: usize = 10_000;
const DOCUMENTS: usize = 600_000;
const DOCUMENT_BATCH: usize = 1_000;
const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
pub(super) const NAMES: Names = Names { collection: "weather", meta: "station", member: None };

pub(super) fn create(dir: &Path) -> Result<(Database, Collection)> {
    let db = Database::open(dir)?;
    let options = CollectionOptions::new("time").meta_field("station").granularity(Granularity::Hours);
    let weather = db.create_collection("weather", options)?;
    Ok((db, weather))
}

pub(super) fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::new("weather", &Settings::default());
    let weather = Weather::load(&plan.root, plan.data.as_deref(), plan.scale)?;
    let batches = weather.batches(BATCH_ROWS)?;
    let (count, cells) = (weather.rows(), weather.rows() * weather.fields.len());
    report.say(format!(
        "{}: {count} rows of {} stations x {} fields, {} of {cells} cells hold a value; in the order of arrival",
        weather.source,
        weather.series(),
        weather.fields.len(),
        weather.values()
    ));
    report.say(format!(
        "every batch of {BATCH_ROWS} rows is synced to the log before the next is sent; then all is sealed (flush); windows of 30 days"
    ));

    let bar = progress("ingest", (plan.runs * batches.len()) as u64);
    let mut figures = Ingest::default();
    let mut kept = None;
    for _ in 0..plan.runs {
        drop(kept.take());
        let folder = tempfile::tempdir()?;
        let (db, collection) = create(folder.path())?;
        figures.batches(&db, &collection, &batches, &bar)?;
        figures.size(&db, folder.path(), cells)?;
        kept = Some((db, collection, folder));
    }
    bar.finish_and_clear();
    figures.report(&mut report, &weather);
    documents(&weather, plan, &mut report)?;
    if let Some((db, collection, folder)) = kept {
        report.say("queries: on the compacted database of the last run, files and directories warm");
        cold(folder.path(), &weather, plan, &mut report)?;
        queries(&db, &collection, &weather, plan, &mut report)?;
        db.close()?;
    }
    Ok(report)
}

/// The results of the ingest runs.
#[derive(Default)]
struct Ingest {
    acknowledged: Vec<f64>,
    sealed: Vec<f64>,
    compaction: Vec<f64>,
    bytes_sealed: Vec<f64>,
    bytes_compacted: Vec<f64>,
    bytes_folder: Vec<f64>,
    segments: usize,
}

#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
impl Ingest {
    fn batches(
        &mut self,
        db: &Database,
        weather: &Collection,
        batches: &[RecordBatch],
        bar: &indicatif::ProgressBar,
    ) -> Result<()> {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        // As in a pipeline, full memtables are sealed by the background task.
        let runtime = tokio::runtime::Runtime::new()?;
        let _entered = runtime.enter();
        let _background = db.start_background()?;
        let watch = Stopwatch::start();
        for batch in batches {
            weather.insert(batch)?;
            bar.inc(1);
        }
        self.acknowledged.push(rows as f64 / watch.seconds());
        db.flush()?;
        self.sealed.push(rows as f64 / watch.seconds());
        Ok(())
    }

    fn size(&mut self, db: &Database, folder: &Path, cells: usize) -> Result<()> {
        let segments = || bytes_of(folder, |name| name.ends_with(".parquet"));
        self.bytes_sealed.push(segments()? as f64 / cells as f64);
        let (seconds, ()) = timed(|| Ok(db.compact(None)?))?;
        self.compaction.push(seconds);
        self.bytes_compacted.push(segments()? as f64 / cells as f64);
        self.bytes_folder.push(bytes_in(folder)? as f64 / cells as f64);
        self.segments = db.collection("weather")?.snapshot()?.segments().len();
        Ok(())
    }

    fn report(&self, report: &mut Report, weather: &Weather) {
        let per_value = weather.values() as f64 / (weather.rows() * weather.fields.len()) as f64;
        report.add("ingest, batches of 10,000, acknowledged", "rows/s", &self.acknowledged, "");
        report.add("ingest, batches of 10,000, acknowledged and sealed", "rows/s", &self.sealed, "");
        report.add("compaction", "s", &self.compaction, format!("to {} segments", self.segments));
        report.add("bytes per cell, sealed", "bytes", &self.bytes_sealed, "cells: rows x fields");
        let per_value: Vec<f64> = self.bytes_compacted.iter().map(|b| b / per_value).collect();
        report.add("bytes per cell, compacted", "bytes", &self.bytes_compacted, "cells: rows x fields");
        report.add("bytes per value, compacted", "bytes", &per_value, "values: cells that are not empty");
        report.add("bytes per cell, the whole folder", "bytes", &self.bytes_folder, "with log, manifest, reserve");
    }
}

fn documents(weather: &Weather, plan: &Plan, report: &mut Report) -> Result<()> {
    let lines = weather.json_lines(DOCUMENTS);
    let parsed = lines.iter().map(|l| parse(l)).collect::<Result<Vec<_>>>()?;
    let bar = progress("documents", (plan.runs * 2 * lines.len()) as u64);
    let (mut ready, mut text) = (Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        ready.push(rate(lines.len(), |collection| {
            for batch in parsed.chunks(DOCUMENT_BATCH) {
                collection.insert_documents(batch)?;
                bar.inc(batch.len() as u64);
            }
            Ok(())
        })?);
        text.push(rate(lines.len(), |collection| {
            for batch in lines.chunks(DOCUMENT_BATCH) {
                let documents = batch.iter().map(|l| parse(l)).collect::<Result<Vec<_>>>()?;
                collection.insert_documents(&documents)?;
                bar.inc(batch.len() as u64);
            }
            Ok(())
        })?);
    }
    bar.finish_and_clear();
    let note = format!("the first {} rows, sealed while writing", lines.len());
    report.add("ingest, documents, batches of 1,000", "rows/s", &ready, note.clone());
    report.add("ingest, lines of JSON, batches of 1,000", "rows/s", &text, note);
    Ok(())
}

/// Rows per second of `insert` in a new database, until everything is sealed.
#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
fn rate(rows: usize, insert: impl FnOnce(&Collection) -> Result<()>) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let (db, collection) = create(folder.path())?;
    let runtime = tokio::runtime::Runtime::new()?;
    let _entered = runtime.enter();
    let _background = db.start_background()?;
    let watch = Stopwatch::start();
    insert(&collection)?;
    db.flush()?;
    Ok(rows as f64 / watch.seconds())
}

fn parse(line: &str) -> Result<ebbtide::ttl::Value> {
    Ok(json::from_slice(line.as_bytes())?)
}

/// The first query of databases that were just opened: no directory is in memory yet.
fn cold(folder: &Path, weather: &Weather, plan: &Plan, report: &mut Report) -> Result<()> {
    let (first, last) = weather.span();
    let t0 = (first + (last - first) / 2) / HOUR * HOUR;
    let (series, fields) = (weather.stations[..1].to_vec(), Vec::new());
    let question =
        Question { what: Kind::Rows { above: None }, series, from: Some(t0), to: Some(t0 + 12 * HOUR), fields };
    let mut seconds = Vec::new();
    for _ in 0..plan.runs.max(5) {
        let db = Database::builder(folder).read_only().open()?;
        let snapshot = db.collection("weather")?.snapshot()?;
        seconds.push(timed(|| question.direct(&snapshot, NAMES))?.0);
    }
    report.add_millis("1 single series, raw rows of 12 h, before directories are in memory", &seconds, "");
    Ok(())
}

/// The twelve queries.
pub(super) fn questions(weather: &Weather) -> [(&'static str, Question); 12] {
    let (first, last) = weather.span();
    let t0 = (first + (last - first) / 2) / HOUR * HOUR;
    let one = &weather.stations[..1];
    let eight: Vec<String> =
        weather.stations.iter().step_by((weather.stations.len() / 8).max(1)).take(8).cloned().collect();
    let region = &weather.stations[..weather.regions.first().copied().unwrap_or(0)];
    let all = &weather.fields;
    let within = |what: Kind, series: &[String], length: i64, fields: &[String]| Question {
        what,
        series: series.to_vec(),
        from: Some(t0),
        to: Some(t0 + length),
        fields: fields.to_vec(),
    };
    let whole = |what: Kind, series: &[String], fields: &[String]| Question {
        from: None,
        to: None,
        ..within(what, series, 0, fields)
    };
    let max = |width| Kind::Max { width, newest: None };
    let avg = |by_series| Kind::Avg { width: HOUR, by_series };
    let temp = &["temp".to_owned()];
    let newest = Kind::Max { width: MINUTE, newest: Some(5) };
    [
        ("1 single series, raw rows of 12 h", within(Kind::Rows { above: None }, one, 12 * HOUR, all)),
        ("2 one series, max by minute, 12 h", within(max(MINUTE), one, 12 * HOUR, temp)),
        ("3 8 series, max of 5 fields by hour, 1 day", within(max(HOUR), &eight, DAY, &all[..all.len().min(5)])),
        ("4 8 series, max of all fields by hour, 7 days", within(max(HOUR), &eight, 7 * DAY, all)),
        ("5 avg of one field by hour and series, 7 days", within(avg(true), &[], 7 * DAY, temp)),
        ("6 avg of all fields by hour and series, 7 days", within(avg(true), &[], 7 * DAY, all)),
        ("7 max by minute before t0, newest 5", Question { to: Some(t0), ..whole(newest, &[], temp) }),
        ("8 all rows above a threshold, 7 days", within(Kind::Rows { above: Some(35.0) }, &[], 7 * DAY, temp)),
        ("9 last point of every station", whole(Kind::Last, &[], all)),
        ("10 count of everything", whole(Kind::Count, &[], &[])),
        ("11 min, max, avg of one field over everything", whole(Kind::Summary, &[], temp)),
        ("12 avg by hour of one region over everything", whole(avg(false), region, temp)),
    ]
}

fn queries(db: &Database, collection: &Collection, weather: &Weather, plan: &Plan, report: &mut Report) -> Result<()> {
    let (snapshot, sql) = (collection.snapshot()?, Sql::over(db)?);
    for (name, question) in questions(weather).into_iter().filter(|(name, _)| plan.wants(name)) {
        ask(report, &snapshot, sql.as_ref(), NAMES, (name, &[question]), plan.asks())?;
    }
    Ok(())
}
