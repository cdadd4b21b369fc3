//! Peak memory: many rows inserted, then an aggregate that reads all of them.

use super::Plan;
use crate::Result;
use crate::measure::{progress, timed};
use crate::report::{Report, kibibytes_of_process};
use crate::tsbs::Cpu;
use ebbtide::{Aggregate, AggregateRequest, CollectionOptions, Database, Settings};
use std::time::Duration;

const ROWS: usize = 10_000_000;
const HOSTS: usize = 1_000;
const TICKS: usize = 10;

#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
pub(super) fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::new("memory", &Settings::default());
    let batches = ROWS * plan.scale / (HOSTS * TICKS);
    let rows = batches * HOSTS * TICKS;
    report
        .say(format!("{rows} rows of TSBS cpu-only, {HOSTS} hosts, batches of 10,000; peaks are of the whole process"));
    let mebibytes = |key: &str| kibibytes_of_process(key).map(|k| vec![k as f64 / 1024.0]);
    let folder = tempfile::tempdir()?;
    let db = Database::open(folder.path())?;
    let cpu = db.create_collection("cpu", CollectionOptions::new("time").meta_field("tags"))?;
    let runtime = tokio::runtime::Runtime::new()?;
    let _entered = runtime.enter();
    let background = db.start_background()?;
    let mut generator = Cpu::new(HOSTS);
    let before = mebibytes("VmRSS")?;
    let bar = progress("rows", rows as u64);
    let (seconds, ()) = timed(|| {
        for _ in 0..batches {
            cpu.insert(&generator.ticks(TICKS)?)?;
            bar.inc((HOSTS * TICKS) as u64);
        }
        Ok(db.flush()?)
    })?;
    bar.finish_and_clear();
    report.add("before the first row", "MiB", &before, "");
    report.add(
        "peak while inserting",
        "MiB",
        &mebibytes("VmHWM")?,
        format!("{rows} rows in {seconds:.1} s, including their generation"),
    );
    drop(background);
    let resting = mebibytes("VmRSS")?;
    report.add("afterwards", "MiB", &resting, "");
    // Bins of seven minutes do not match the buckets, so every row is read.
    let aggregates = crate::tsbs::FIELDS.iter().map(|f| Aggregate::Avg((*f).to_owned())).collect();
    let request = AggregateRequest { aggregates, width: Some(Duration::from_secs(7 * 60)), ..Default::default() };
    let (seconds, answer) = timed(|| Ok(cpu.snapshot()?.aggregate(&request)?))?;
    let note = format!("{} groups in {seconds:.1} s; the peak while inserting is in it", answer.num_rows());
    report.add("peak with an aggregate of all rows", "MiB", &mebibytes("VmHWM")?, note);
    report.add("after it", "MiB", &mebibytes("VmRSS")?, "");
    db.close()?;
    Ok(report)
}
