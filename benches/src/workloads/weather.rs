//! Recorded weather: ingest until acknowledged and sealed, size after compaction, and queries by direct scan.

use super::Plan;
use crate::Result;
use crate::folder::{bytes_in, bytes_of};
use crate::measure::{Stopwatch, progress, timed, warm};
use crate::query::{Grouping, NamedSeries, checksum, group, rows, rows_above};
use crate::report::Report;
use crate::weather::Weather;
use arrow::array::RecordBatch;
use ebbtide::ttl::Granularity;
use ebbtide::{
    Aggregate, AggregateRequest, Collection, CollectionOptions, CollectionSnapshot, Database, FieldBound, ScanRequest,
    Settings, json,
};
use std::path::Path;
use std::sync::Arc;

const BATCH_ROWS: usize = 10_000;
const DOCUMENTS: usize = 200_000;
const DOCUMENT_BATCH: usize = 1_000;
const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

fn create(dir: &Path) -> Result<(Database, Collection)> {
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
    if let Some((db, collection, _folder)) = kept {
        report.say("queries: on the compacted database of the last run, files and directories warm");
        queries(&collection.snapshot()?, &weather, plan, &mut report)?;
        db.close()?;
    }
    Ok(report)
}

/// What the runs of the ingest measured.
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
        // As in a pipeline: what fills memory is sealed beside the writer.
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
        report.add("bytes a cell, sealed", "bytes", &self.bytes_sealed, "cells: rows x fields");
        let per_value: Vec<f64> = self.bytes_compacted.iter().map(|b| b / per_value).collect();
        report.add("bytes a cell, compacted", "bytes", &self.bytes_compacted, "cells: rows x fields");
        report.add("bytes a value, compacted", "bytes", &per_value, "values: cells that are not empty");
        report.add("bytes a cell, the whole folder", "bytes", &self.bytes_folder, "with log, manifest, reserve");
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
fn documents(weather: &Weather, plan: &Plan, report: &mut Report) -> Result<()> {
    let lines = weather.json_lines(DOCUMENTS);
    let parsed = lines.iter().map(|l| parse(l)).collect::<Result<Vec<_>>>()?;
    let bar = progress("documents", (plan.runs * 2 * lines.len()) as u64);
    let (mut ready, mut text) = (Vec::new(), Vec::new());
    for _ in 0..plan.runs {
        let folder = tempfile::tempdir()?;
        let (db, collection) = create(folder.path())?;
        let watch = Stopwatch::start();
        for batch in parsed.chunks(DOCUMENT_BATCH) {
            collection.insert_documents(batch)?;
            bar.inc(batch.len() as u64);
        }
        db.flush()?;
        ready.push(lines.len() as f64 / watch.seconds());

        let folder = tempfile::tempdir()?;
        let (db, collection) = create(folder.path())?;
        let watch = Stopwatch::start();
        for batch in lines.chunks(DOCUMENT_BATCH) {
            let documents = batch.iter().map(|l| parse(l)).collect::<Result<Vec<_>>>()?;
            collection.insert_documents(&documents)?;
            bar.inc(batch.len() as u64);
        }
        db.flush()?;
        text.push(lines.len() as f64 / watch.seconds());
    }
    bar.finish_and_clear();
    let note = format!("the first {} rows, sealed", lines.len());
    report.add("ingest, documents, batches of 1,000", "rows/s", &ready, note.clone());
    report.add("ingest, lines of JSON, batches of 1,000", "rows/s", &text, note);
    Ok(())
}

fn parse(line: &str) -> Result<ebbtide::ttl::Value> {
    Ok(json::value_of(&serde_json::from_str(line)?)?)
}

/// The twelve queries, by direct scan.
fn queries(snapshot: &CollectionSnapshot, weather: &Weather, plan: &Plan, report: &mut Report) -> Result<()> {
    let runs = plan.runs.max(5);
    let (first, last) = weather.span();
    let t0 = (first + (last - first) / 2) / HOUR * HOUR;
    let within = |length: i64| ScanRequest { time: (Some(t0), Some(t0 + length - 1)), ..ScanRequest::default() };
    let of = |names: &[String]| Some(Arc::new(NamedSeries::new(None, names.to_vec())) as _);
    let one = of(&weather.stations[..1]);
    let eight: Vec<String> =
        weather.stations.iter().step_by((weather.stations.len() / 8).max(1)).take(8).cloned().collect();
    let eight = of(&eight);
    let temp = vec!["temp".to_owned()];
    let five: Vec<String> = weather.fields.iter().take(5).cloned().collect();
    let all = &weather.fields;

    let (s, n) = warm(runs, || rows(snapshot, &ScanRequest { meta: one.clone(), ..within(12 * HOUR) }))?;
    report.add_millis("1 single series, raw rows of 12 h", &s, format!("{n} rows"));

    let mut grouped = |name: &str,
                       request: ScanRequest,
                       aggregate: fn(String) -> Aggregate,
                       width,
                       by_series,
                       fields: &[String]|
     -> Result<()> {
        let grouping = Grouping { aggregate, width, by_series, fields: fields.to_vec() };
        let (s, groups) = warm(runs, || group(snapshot, &request, &grouping))?;
        report.add_millis(name, &s, format!("{} groups, sum {:.1}", groups.num_rows(), checksum(&groups)));
        Ok(())
    };
    use Aggregate::{Avg, Max, Min};
    let of_one = |length| ScanRequest { meta: one.clone(), ..within(length) };
    let of_eight = |length| ScanRequest { meta: eight.clone(), ..within(length) };
    grouped("2 one series, max by minute, 12 h", of_one(12 * HOUR), Max, Some(HOUR / 60), false, &temp)?;
    grouped("3 8 series, max of 5 fields by hour, 1 day", of_eight(DAY), Max, Some(HOUR), false, &five)?;
    grouped("4 8 series, max of all fields by hour, 7 days", of_eight(7 * DAY), Max, Some(HOUR), false, all)?;
    grouped("5 avg of one field by hour and series, 7 days", within(7 * DAY), Avg, Some(HOUR), true, &temp)?;
    grouped("6 avg of all fields by hour and series, 7 days", within(7 * DAY), Avg, Some(HOUR), true, all)?;
    let newest = ScanRequest { time: (Some(t0 - 5 * HOUR), Some(t0 - 1)), ..ScanRequest::default() };
    grouped("7 max by minute before t0, newest 5", newest, Max, Some(HOUR / 60), false, &temp)?;
    let region = weather.regions.first().copied().unwrap_or(0);
    let of_region = ScanRequest { meta: of(&weather.stations[..region]), ..ScanRequest::default() };
    grouped("12 avg by hour of one region over everything", of_region, Avg, Some(HOUR), false, &temp)?;

    let three = vec![Min("temp".to_owned()), Max("temp".to_owned()), Avg("temp".to_owned())];
    let three = AggregateRequest { aggregates: three, ..AggregateRequest::default() };
    let (s, answer) = warm(runs, || Ok(snapshot.aggregate(&three)?))?;
    let note = format!("{} rows, sum {:.1}", answer.num_rows(), checksum(&answer));
    report.add_millis("11 min, max, avg of one field over everything", &s, note);

    let above = 35.0;
    let bound = FieldBound { field: "temp".to_owned(), min: Some(above), max: None };
    let request = ScanRequest { bounds: vec![bound], ..within(7 * DAY) };
    let (s, n) = warm(runs, || rows_above(snapshot, &request, "temp", above))?;
    report.add_millis("8 all rows above a threshold, 7 days", &s, format!("{n} rows"));
    let (s, points) = warm(runs, || Ok(snapshot.last_points(&ScanRequest::default())?))?;
    report.add_millis("9 last point of every station", &s, format!("{} rows", points.num_rows()));
    let (s, n) = warm(runs, || Ok(snapshot.count()?))?;
    report.add_millis("10 count of everything", &s, format!("{n} rows"));
    report.figures.sort_by_key(|f| f.name.split(' ').next().and_then(|n| n.parse::<u32>().ok()).unwrap_or(0));
    Ok(())
}
