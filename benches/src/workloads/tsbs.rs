//! TSBS cpu-only: ingest, bytes a value, and the fifteen query types by direct scan.

use super::Plan;
use crate::Result;
use crate::folder::bytes_of;
use crate::measure::{Stopwatch, progress, warm};
use crate::query::{Grouping, NamedSeries, checksum, group, rows_above};
use crate::report::Report;
use crate::tsbs::{Cpu, FIELDS, Random, START_MS};
use ebbtide::{Aggregate, CollectionOptions, CollectionSnapshot, Database, FieldBound, ScanRequest, Settings};
use std::sync::Arc;

const HOSTS: usize = 100;
const TICKS: usize = 8_640;
const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
/// The windows and hosts of the queries are drawn anew for each run, always the same ones.
const QUERY_SEED: u64 = 7;

#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
pub(super) fn run(plan: &Plan) -> Result<Report> {
    let hosts = HOSTS * plan.scale;
    let mut report = Report::new("tsbs", &Settings::default());
    let rows = hosts * TICKS;
    report
        .say(format!("cpu-only from our own generator, seed 123: {hosts} hosts, 24 h, 10 s: {rows} rows x 10 metrics"));
    report.say("every batch of 10,000 rows is synced to the log before the next is sent; then all is sealed (flush)");
    let ticks = (10_000 / hosts).max(1);
    let mut cpu = Cpu::new(hosts);
    let batches: Vec<_> =
        (0..TICKS.div_ceil(ticks)).map(|at| cpu.ticks(ticks.min(TICKS - at * ticks))).collect::<Result<_>>()?;
    let bar = progress("ingest", (plan.runs * batches.len()) as u64);
    let (mut acknowledged, mut sealed, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    let mut kept = None;
    for _ in 0..plan.runs {
        drop(kept.take());
        let folder = tempfile::tempdir()?;
        let db = Database::open(folder.path())?;
        let cpu = db.create_collection("cpu", CollectionOptions::new("time").meta_field("tags"))?;
        let watch = Stopwatch::start();
        for batch in &batches {
            cpu.insert(batch)?;
            bar.inc(1);
        }
        acknowledged.push((rows * 10) as f64 / watch.seconds());
        db.flush()?;
        sealed.push((rows * 10) as f64 / watch.seconds());
        db.compact(None)?;
        bytes.push(bytes_of(folder.path(), |name| name.ends_with(".parquet"))? as f64 / (rows * 10) as f64);
        kept = Some((db, cpu, folder));
    }
    bar.finish_and_clear();
    report.add("ingest, acknowledged", "metrics/s", &acknowledged, "");
    report.add("ingest, acknowledged and sealed", "metrics/s", &sealed, "");
    report.add("bytes a value, compacted", "bytes", &bytes, "times and tags included");
    if let Some((db, cpu, _folder)) = kept {
        report.say("queries by direct scan on the compacted database, warm; hosts and windows drawn anew for each run");
        queries(&cpu.snapshot()?, hosts, plan.runs.max(15), &mut report)?;
        db.close()?;
    }
    Ok(report)
}

struct Draw {
    random: Random,
    hosts: usize,
}

impl Draw {
    fn window(&mut self, hours: i64) -> (Option<i64>, Option<i64>) {
        let slack = usize::try_from((24 - hours).max(0) * 3600).unwrap_or(0);
        let offset = i64::try_from(self.random.below(slack)).unwrap_or(0) * 1000;
        (Some(START_MS + offset), Some(START_MS + offset + hours * HOUR - 1))
    }

    fn some_hosts(&mut self, count: usize) -> Option<Arc<dyn ebbtide::MetaFilter>> {
        let mut names: Vec<String> = Vec::new();
        while names.len() < count.min(self.hosts) {
            let name = format!("host_{}", self.random.below(self.hosts));
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Some(Arc::new(NamedSeries::new(Some("hostname"), names)))
    }
}

fn queries(snapshot: &CollectionSnapshot, hosts: usize, runs: usize, report: &mut Report) -> Result<()> {
    let fields = |count: usize| FIELDS.iter().take(count).map(|f| (*f).to_owned()).collect::<Vec<_>>();
    let max = |width, count| Grouping {
        aggregate: Aggregate::Max,
        width: Some(width),
        by_series: false,
        fields: fields(count),
    };
    let new_draw = || Draw { random: Random::new(QUERY_SEED), hosts };
    for (metrics, of, hours) in [(1, 1, 1), (1, 1, 12), (1, 8, 1), (5, 1, 1), (5, 1, 12), (5, 8, 1)] {
        let mut draw = new_draw();
        let (s, groups) = warm(runs, || {
            let request = ScanRequest { time: draw.window(hours), meta: draw.some_hosts(of), ..ScanRequest::default() };
            group(snapshot, &request, &max(MINUTE, metrics))
        })?;
        report.add_millis(
            format!("single-groupby-{metrics}-{of}-{hours}"),
            &s,
            format!("{} groups", groups.num_rows()),
        );
    }
    for (name, of, hours) in [("cpu-max-all-1", 1, 8), ("cpu-max-all-8", 8, 8), ("cpu-max-all-32-24", 32, 24)] {
        let mut draw = new_draw();
        let (s, groups) = warm(runs, || {
            let request = ScanRequest { time: draw.window(hours), meta: draw.some_hosts(of), ..ScanRequest::default() };
            group(snapshot, &request, &max(HOUR, 10))
        })?;
        report.add_millis(name, &s, format!("{} groups, sum {:.0}", groups.num_rows(), checksum(&groups)));
    }
    for (name, count) in [("double-groupby-1", 1), ("double-groupby-5", 5), ("double-groupby-all", 10)] {
        let mut draw = new_draw();
        let grouping =
            Grouping { aggregate: Aggregate::Avg, width: Some(HOUR), by_series: true, fields: fields(count) };
        let (s, groups) = warm(runs, || {
            group(snapshot, &ScanRequest { time: draw.window(12), ..ScanRequest::default() }, &grouping)
        })?;
        report.add_millis(name, &s, format!("{} groups", groups.num_rows()));
    }
    for (name, all) in [("high-cpu-1", false), ("high-cpu-all", true)] {
        let mut draw = new_draw();
        let bound = FieldBound { field: FIELDS[0].to_owned(), min: Some(90.0), max: None };
        let (s, n) = warm(runs, || {
            let meta = if all { None } else { draw.some_hosts(1) };
            let request =
                ScanRequest { time: draw.window(12), meta, bounds: vec![bound.clone()], ..ScanRequest::default() };
            rows_above(snapshot, &request, FIELDS[0], 90.0)
        })?;
        report.add_millis(name, &s, format!("{n} rows"));
    }
    let (s, points) = warm(runs, || Ok(snapshot.last_points(&ScanRequest::default())?))?;
    report.add_millis("lastpoint", &s, format!("{} rows", points.num_rows()));
    let mut draw = new_draw();
    let (s, groups) = warm(runs, || {
        let end = draw.window(1).1.unwrap_or(i64::MAX);
        // Whole minutes from the newest back: five of them hold the answer, since no host ever pauses.
        let request = ScanRequest {
            time: (Some(end.div_euclid(MINUTE) * MINUTE - 4 * MINUTE), Some(end)),
            ..ScanRequest::default()
        };
        group(snapshot, &request, &max(MINUTE, 1))
    })?;
    report.add_millis("groupby-orderby-limit", &s, format!("{} groups", groups.num_rows()));
    Ok(())
}
