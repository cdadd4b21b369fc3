//! `repair` and `clock`: for an operator when something is wrong.

use crate::args::{Cli, ClockArgs, RepairArgs};
use crate::human::{bytes, contents_of, counted, kind_of_contents};
use crate::{Failure, open, say};
use ebbtide::{Database, RepairMode};
use ebbtide_ttl::Code;

/// Runs `ebbtide repair`.
pub(crate) fn repair(cli: &Cli, args: &RepairArgs) -> Result<(), Failure> {
    if args.yes && cli.read_only {
        return Err(Failure::usage("a repair writes to the database: drop --read-only, or add --dry-run"));
    }
    let mode = if args.yes { RepairMode::Apply } else { RepairMode::DryRun };
    let report = Database::repair(&cli.db, mode).map_err(|error| match error.code() {
        Code::LockBusy => Failure::new(format!("{error}; ebbtide verify reads all of a database that is in use")),
        _ => error.into(),
    })?;
    for line in report.to_string().lines() {
        say!("{line}");
    }
    if report.is_clean() {
        return Ok(());
    }
    if !args.yes {
        let what = "nothing was changed; restore a backup if there is one, or set damaged files aside with \
                    ebbtide repair --yes";
        return Err(Failure::new(what));
    }
    let faults = Database::builder(&cli.db).read_only().open()?.verify()?.faults;
    match faults.first() {
        None => say!("the database opens again; known to be lost: {}", counted(report.rows_lost(), "measurement")),
        Some(fault) => return Err(Failure::new(format!("still damaged: {fault}"))),
    }
    Ok(())
}

/// Runs `ebbtide clock`.
pub(crate) fn clock(cli: &Cli, args: &ClockArgs) -> Result<(), Failure> {
    if args.confirm && cli.read_only {
        return Err(Failure::usage("confirming the clock writes to the database: drop --read-only"));
    }
    let database = open::for_reading(cli)?;
    let is_held = database.clock_held().is_some();
    let shown = show_clock(&database);
    drop(database);
    if args.confirm && shown.as_ref().err().is_none_or(|failure| failure.pipe) {
        confirm(cli, is_held)?;
    }
    shown
}

fn show_clock(database: &Database) -> Result<(), Failure> {
    let snapshot = database.snapshot();
    let now = snapshot.now();
    say!("the clock says {now}");
    let (mut newest, mut due) = (None, (0, 0, 0));
    for name in snapshot.collections() {
        let collection = snapshot.collection(&name)?;
        newest = newest.max(collection.info()?.last_time);
        for row in collection.explain_expiry(now, None)? {
            due = (due.0 + row.buckets, due.1 + row.measurements, due.2 + row.bytes);
        }
    }
    for name in snapshot.document_collections() {
        for row in snapshot.documents(&name)?.explain_expiry(now, None)? {
            due = (due.0 + row.buckets, due.1 + row.measurements, due.2 + row.bytes);
        }
    }
    if let Some(newest) = newest {
        say!("the newest stored measurement is from {newest}");
    }
    if let Some(last) = database.sweeps().last() {
        say!("the last drop was at {}", last.at);
        if now < last.at {
            say!("the clock is earlier than that, which cannot make anything expire too early");
        }
    }
    if let Some(held) = database.clock_held() {
        say!("{held}");
    }
    say!("a sweep now would drop {}, {}", contents_of(kind_of_contents(&snapshot), due.0, due.1), bytes(due.2));
    Ok(())
}

fn confirm(cli: &Cli, is_held: bool) -> Result<(), Failure> {
    match Database::open(&cli.db) {
        Ok(database) => {
            database.confirm_clock();
            database.close()?;
            match is_held {
                true => say!("the time is confirmed: sweeps run again"),
                false => say!("no program has the database open: the next one that opens it accepts the clock"),
            }
            Ok(())
        }
        Err(error) if error.code() == Code::LockBusy => {
            let now = Database::confirm_clock_at(&cli.db)?;
            say!(
                "recorded for the program that has the database open that it is {now}: its next sweep accepts the clock"
            );
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}
