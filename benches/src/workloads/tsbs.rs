//! TSBS cpu-only: ingest, bytes per value, and the fifteen query types.

use super::Plan;
use crate::Result;
use crate::ask::ask;
use crate::folder::{bytes_of, write_file};
use crate::measure::{Stopwatch, progress};
use crate::question::{Kind, Names, Question};
use crate::report::Report;
use crate::sql::Sql;
use crate::tsbs::{Cpu, FIELDS, Random, START_MS};
use arrow::array::RecordBatch;
use arrow::ipc::writer::FileWriter;
use ebbtide::{Collection, CollectionOptions, Database, Settings};
use std::path::Path;

const HOSTS: usize = 100;
const TICKS: usize = 8_640;
const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
/// Each run draws the windows and hosts of the queries at random, from a fixed seed.
const QUERY_SEED: u64 = 7;
const NAMES: Names = Names { collection: "cpu", meta: "tags", member: Some("hostname") };

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
    plan.export.as_deref().map_or(Ok(()), |path| export(path, &batches))?;
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
    report.add("bytes per value, compacted", "bytes", &bytes, "times and tags included");
    if let Some((db, cpu, _folder)) = kept {
        report.say("queries by direct scan on the compacted database, warm; hosts and windows drawn for each run");
        queries(&db, &cpu, hosts, plan, &mut report)?;
        db.close()?;
    }
    Ok(report)
}

/// Writes the batches as an Arrow file.
fn export(path: &Path, batches: &[RecordBatch]) -> Result<()> {
    let Some(first) = batches.first() else { return Ok(()) };
    let mut writer = FileWriter::try_new(Vec::new(), first.schema_ref())?;
    batches.iter().try_for_each(|batch| writer.write(batch))?;
    write_file(path, &writer.into_inner()?)
}

struct Draw {
    random: Random,
    hosts: usize,
}

impl Draw {
    fn question(&mut self, what: Kind, fields: Vec<String>, of: usize, hours: i64) -> Question {
        let slack = usize::try_from((24 - hours).max(0) * 3600).unwrap_or(0);
        let start = START_MS + i64::try_from(self.random.below(slack)).unwrap_or(0) * 1000;
        let series = self.some_hosts(of);
        let (from, to) = match what {
            Kind::Last => (None, None),
            Kind::Max { newest: Some(_), .. } => (None, Some(start + hours * HOUR)),
            _ => (Some(start), Some(start + hours * HOUR)),
        };
        Question { what, series, from, to, fields }
    }

    fn some_hosts(&mut self, count: usize) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        while names.len() < count.min(self.hosts) {
            let name = format!("host_{}", self.random.below(self.hosts));
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

fn queries(db: &Database, cpu: &Collection, hosts: usize, plan: &Plan, report: &mut Report) -> Result<()> {
    let fields = |count: usize| FIELDS.iter().take(count).map(|f| (*f).to_owned()).collect::<Vec<_>>();
    let (snapshot, sql) = (cpu.snapshot()?, Sql::over(db)?);
    let mut ask_drawn = |name: &str, what: Kind, count: usize, of: usize, hours: i64| -> Result<()> {
        if !plan.wants(name) {
            return Ok(());
        }
        let mut draw = Draw { random: Random::new(QUERY_SEED), hosts };
        let draws: Vec<Question> =
            (0..plan.runs.max(15)).map(|_| draw.question(what.clone(), fields(count), of, hours)).collect();
        ask(report, &snapshot, sql.as_ref(), NAMES, (name, &draws), plan.asks())
    };
    let max = |width| Kind::Max { width, newest: None };
    for (metrics, of, hours) in [(1, 1, 1), (1, 1, 12), (1, 8, 1), (5, 1, 1), (5, 1, 12), (5, 8, 1)] {
        ask_drawn(&format!("single-groupby-{metrics}-{of}-{hours}"), max(MINUTE), metrics, of, hours)?;
    }
    ask_drawn("cpu-max-all-1", max(HOUR), 10, 1, 8)?;
    ask_drawn("cpu-max-all-8", max(HOUR), 10, 8, 8)?;
    ask_drawn("cpu-max-all-32-24", max(HOUR), 10, 32, 24)?;
    for (name, count) in [("double-groupby-1", 1), ("double-groupby-5", 5), ("double-groupby-all", 10)] {
        ask_drawn(name, Kind::Avg { width: HOUR, by_series: true }, count, 0, 12)?;
    }
    ask_drawn("high-cpu-1", Kind::Rows { above: Some(90.0) }, 1, 1, 12)?;
    ask_drawn("high-cpu-all", Kind::Rows { above: Some(90.0) }, 1, 0, 12)?;
    ask_drawn("lastpoint", Kind::Last, 10, 0, 0)?;
    ask_drawn("groupby-orderby-limit", Kind::Max { width: MINUTE, newest: Some(5) }, 1, 0, 1)
}
