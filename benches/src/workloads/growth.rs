//! How the cost of each operation grows with the amount of stored data, over three decades of size.

use super::Plan;
use crate::Result;
use crate::fleet::{Fleet, START_MS, WINDOW_MS};
use crate::folder::write_file;
use crate::measure::{median, progress, timed};
use crate::plot::{Line, log_log};
use crate::report::Report;
use ebbtide::ttl::{Timestamp, VirtualClock};
use ebbtide::{Aggregate, AggregateRequest, CollectionChange, CollectionOptions, Database, ScanRequest, Settings};
use std::sync::Arc;

const WINDOWS: usize = 10;
const NAMES: [&str; 5] = ["ingest", "open", "last point of every series", "avg of everything", "sweep of everything"];

pub(super) fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::new("growth", &Settings::default());
    report
        .say(format!("one measurement per bucket, {WINDOWS} windows of 1 h per series, batches of up to 50,000 rows"));
    let sizes = [1_000, 10_000, 100_000, 1_000_000].map(|size| size * plan.scale);
    let bar = progress("growth", (sizes.len() * plan.runs) as u64);
    let mut lines = NAMES.map(|name| Line { name, points: Vec::new() });
    for buckets in sizes {
        let mut seconds: [Vec<f64>; 5] = Default::default();
        for _ in 0..plan.runs {
            for (all, took) in seconds.iter_mut().zip(measure(buckets)?) {
                all.push(took);
            }
            bar.inc(1);
        }
        for (line, seconds) in lines.iter_mut().zip(&seconds) {
            report.add_millis(format!("{}, {buckets} buckets", line.name), seconds, "");
            #[expect(clippy::cast_precision_loss, reason = "sizes are small")]
            line.points.push((buckets as f64, median(seconds) * 1e3));
        }
    }
    bar.finish_and_clear();
    if let Some(path) = &plan.svg {
        write_file(path, log_log("Cost by amount of data stored", "buckets", "ms", &lines).as_bytes())?;
    }
    Ok(report)
}

/// Seconds of each operation at one size.
fn measure(buckets: usize) -> Result<[f64; 5]> {
    let folder = tempfile::tempdir()?;
    let clock = VirtualClock::new(Timestamp::from_millis(START_MS));
    let open = || Database::builder(folder.path()).clock(Arc::new(clock.clone())).open();
    let fleet = Fleet { series: buckets / WINDOWS, windows: WINDOWS };
    let db = open()?;
    let collection = db.create_collection("fleet", CollectionOptions::new("t").meta_field("sensor"))?;
    let change = CollectionChange { expire_after_seconds: Some(Some(24 * 3600)), ..Default::default() };
    db.modify_collection("fleet", &change, None)?;
    let (ingest, ()) = timed(|| fleet.fill(&db, &collection))?;
    drop(collection);
    db.close()?;
    let (opening, db) = timed(|| Ok(open()?))?;
    let snapshot = db.collection("fleet")?.snapshot()?;
    let (last, points) = timed(|| Ok(snapshot.last_points(&ScanRequest::default())?))?;
    let request = AggregateRequest { aggregates: vec![Aggregate::Avg("v".to_owned())], ..Default::default() };
    let (average, _) = timed(|| Ok(snapshot.aggregate(&request)?))?;
    if points.num_rows() != fleet.series {
        return Err(format!("{} last points of {} series", points.num_rows(), fleet.series).into());
    }
    drop(snapshot);
    clock.set(Timestamp::from_millis(START_MS + 100 * WINDOW_MS));
    let (sweep, swept) = timed(|| Ok(db.sweep()?))?;
    if swept.counts.deleted_buckets != buckets as u64 {
        return Err(format!("{} buckets of {buckets} were dropped", swept.counts.deleted_buckets).into());
    }
    Ok([ingest, opening, last, average, sweep])
}
