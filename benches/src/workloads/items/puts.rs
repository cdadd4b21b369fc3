//! Single durable puts of several threads, beside a sync of a file.

use super::super::Plan;
use super::{MILLION, Stores, percentile, session};
use crate::Result;
use crate::measure::{Stopwatch, timed};
use crate::report::Report;
use ebbtide::Documents;
use ebbtide::fs::{Fs, RealFs};

/// Threads, and puts of each.
const THREADS: [(u64, u64); 3] = [(1, 2_000), (8, 1_000), (64, 1_000)];
const SYNCS: u64 = 1_000;

pub(super) fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let stores = Stores::new(plan)?;
    let mut syncs = Vec::new();
    for (threads, each) in THREADS {
        let (mut p50s, mut rates, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for run in 0..plan.runs as u64 {
            let mut around = fdatasyncs()?;
            let first = run * MILLION;
            let (seconds, mut micros) = timed(|| puts(&stores.sessions, threads, each, first))?;
            around.extend(fdatasyncs()?);
            let sync = percentile(&mut around, 50);
            syncs.push(sync);
            p50s.push(percentile(&mut micros, 50));
            rates.push((threads * each) as f64 / seconds);
            ratios.push(percentile(&mut micros, 50) / sync);
        }
        let (target, rate) = match threads {
            1 => ("target 1.3", ""),
            64 => ("target 2.2", "target 60,000"),
            _ => ("target 2.2", ""),
        };
        report.add(format!("single puts from {threads} threads, p50"), "us", &p50s, "");
        report.add(format!("single puts from {threads} threads, p50 by that of fdatasync"), "x", &ratios, target);
        report.add(format!("single puts from {threads} threads"), "/s", &rates, rate);
    }
    report.add("fdatasync of an append of 4 KiB, p50", "us", &syncs, "before and after each of these");
    Ok(())
}

/// Microseconds of each put.
fn puts(sessions: &Documents, threads: u64, each: u64, first: u64) -> Result<Vec<f64>> {
    let of_thread = |thread: u64| {
        (0..each)
            .map(|n| {
                let session = session::session(first + thread * each + n, 0);
                let watch = Stopwatch::start();
                sessions.put(&session)?;
                Ok(watch.seconds() * 1e6)
            })
            .collect::<std::result::Result<Vec<f64>, ebbtide::Error>>()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || of_thread(thread))).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| "a thread panicked")??);
        }
        Ok(all)
    })
}

/// Microseconds of each sync.
fn fdatasyncs() -> Result<Vec<f64>> {
    let folder = tempfile::tempdir()?;
    let mut file = RealFs::new().create(&folder.path().join("appended"))?;
    let page = [7_u8; 4096];
    (0..SYNCS)
        .map(|_| {
            let watch = Stopwatch::start();
            file.append(&page)?;
            file.sync()?;
            Ok(watch.seconds() * 1e6)
        })
        .collect()
}
