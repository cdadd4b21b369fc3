//! Sweeps that drop half of a million items.

use super::super::Plan;
use super::sqlite::Sqlite;
use super::{BATCH, LIFE, MILLION, session};
use crate::Result;
use crate::folder::{files_of, seconds_of_removal};
use crate::measure::timed;
use crate::report::Report;
use ebbtide::ttl::{Timestamp, VirtualClock};
use ebbtide::{Database, DefaultTtl, DocumentsOptions};
use std::sync::Arc;

const START: i64 = 1_760_000_000_000;
const LIVES: u64 = 100;

pub(super) fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    one_life(plan, report)?;
    many_lives(plan, report)
}

/// All items live half an hour, and come within one.
fn one_life(plan: &Plan, report: &mut Report) -> Result<()> {
    let life = i64::from(LIFE) * 1_000;
    let written = move |n: u64| START + i64::try_from(n).unwrap_or(0) * life / i64::try_from(MILLION).unwrap_or(1);
    let now = START + life + life / 2;
    half(plan, report, "sweep of half of 1,000,000 items of one life", "target 5", |_| None, written, now)
}

/// All items come at once, and live 1 to 100 minutes.
fn many_lives(plan: &Plan, report: &mut Report) -> Result<()> {
    let ttl = |n: u64| i32::try_from((session::random(9, n) % LIVES + 1) * 60).ok();
    let name = "sweep of half of 1,000,000 items with 100 different ttls";
    half(plan, report, name, "target 100", ttl, |_| START, START + 50 * 60_000)
}

fn half(
    plan: &Plan,
    report: &mut Report,
    name: &str,
    target: &str,
    ttl: impl Fn(u64) -> Option<i32>,
    written: impl Fn(u64) -> i64,
    now: i64,
) -> Result<()> {
    let (mut ours, mut theirs, mut floor, mut freed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut note = String::new();
    let made = |n: u64| {
        let mut session = session::session(n, 0);
        session.ttl = ttl(n);
        // What the peer indexes: the expiry without the life that it adds.
        let life = session.ttl.map_or(i64::from(LIFE), i64::from);
        session.seen = written(n) + (life - i64::from(LIFE)) * 1_000;
        session
    };
    for _ in 0..plan.runs {
        let folder = tempfile::tempdir()?;
        let clock = VirtualClock::new(Timestamp::from_millis(START));
        let db = Database::builder(folder.path().join("ebbtide")).clock(Arc::new(clock.clone())).open()?;
        let options = DocumentsOptions { default_ttl: DefaultTtl::Seconds(LIFE), ..DocumentsOptions::default() };
        let items = db.create_documents("items", options)?;
        for start in (0..MILLION).step_by(usize::try_from(BATCH)?) {
            clock.set(Timestamp::from_millis(written(start)));
            items.put_many(&(start..start + BATCH).map(made).collect::<Vec<_>>())?;
        }
        db.flush()?;
        db.compact(None)?;
        let files = || files_of(folder.path(), &|name| name.ends_with(".parquet"));
        let (before, stored) = (files()?, items.snapshot()?.count()?);
        clock.set(Timestamp::from_millis(now));
        let due = stored - items.snapshot()?.count()?;
        let (seconds, swept) = timed(|| Ok(db.sweep()?))?;
        if let Some(held) = &swept.held {
            return Err(format!("the sweep was held: {held}").into());
        }
        ours.push(seconds);
        let (bytes, after) = (before.values().sum::<u64>(), files()?);
        let share = (bytes - after.values().sum::<u64>()) as f64 / bytes as f64;
        freed.push(share * stored as f64 / due.max(1) as f64 * 100.0);
        note =
            format!("{} of {stored}, {} files, {target}", swept.counts.deleted_documents, swept.counts.reclaimed_files);
        let removed = before.into_iter().filter(|(path, _)| !after.contains_key(path));
        floor.push(seconds_of_removal(folder.path(), removed.map(|(_, length)| length))?);
        let mut sqlite = Sqlite::open(&plan.root, &folder.path().join("items.sqlite"))?;
        for start in (0..MILLION).step_by(100_000) {
            sqlite.fill((start..start + 100_000).map(made))?;
        }
        theirs.push(sqlite.expire(now)?);
    }
    report.add_millis(name, &ours, note);
    report.add_millis(format!("{name}, the file system alone"), &floor, "removes files of the same lengths");
    report.add_millis(format!("{name}, SQLite"), &theirs, "");
    report.add(format!("{name}: space freed"), "%", &freed, "of the bytes of what was due, at once");
    Ok(())
}
