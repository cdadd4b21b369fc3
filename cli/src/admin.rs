//! `command`, `sweep` and `verify`.

use crate::args::{Cli, CommandArgs, SweepArgs};
use crate::human::{bytes, contents_of, counted, kind_of_contents};
use crate::{Failure, expired_to, files, open, parse_now, say};
use ebbtide::{Database, SweepOptions};
use ebbtide_query::output::{TableStyle, render};
use ebbtide_query::system;
use ebbtide_ttl::{Clock, Timestamp, VirtualClock};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// The commands that change nothing.
const READING: [&str; 13] = [
    "collStats",
    "count",
    "currentOp",
    "distinct",
    "find",
    "getParameter",
    "listCollections",
    "listHolds",
    "listIndexes",
    "listLadders",
    "listPublications",
    "ping",
    "serverStatus",
];

/// Runs `ebbtide command`.
pub(crate) fn command(cli: &Cli, args: &CommandArgs) -> Result<(), Failure> {
    let text = if args.document == "-" { files::read_stdin()? } else { args.document.clone() };
    let document: Value =
        serde_json::from_str(&text).map_err(|e| Failure::usage(format!("the command is not JSON: {e}")))?;
    let name = document.as_object().and_then(|d| d.keys().next()).map_or("", String::as_str);
    if name == "setParameter" {
        return Err(Failure::usage(
            "a parameter holds until the program that sets it ends, so here it would have no effect: set it in the program that has the \
             database open, such as ebbtide serve",
        ));
    }
    let database = match name {
        "create" => open::or_new(cli)?,
        name if READING.contains(&name) => open::for_reading(cli)?,
        _ => open::for_writing(cli)?,
    };
    match database.run_command(&document) {
        Ok(reply) => {
            say!("{}", pretty(&reply));
            Ok(())
        }
        Err(error) => Err(Failure::new(format!("{} (code {}, {})", error, error.code().number(), error.code().name()))),
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}

/// Runs `ebbtide sweep`.
pub(crate) fn sweep(cli: &Cli, args: &SweepArgs) -> Result<(), Failure> {
    let now = parse_now(args.now.as_deref())?;
    if args.dry_run {
        return dry_run(cli, now);
    }
    if cli.read_only {
        return Err(Failure::usage("a sweep writes to the database: drop --read-only, or add --dry-run"));
    }
    let database = match now {
        None => open::for_writing(cli)?,
        Some(now) => {
            // Checks that a database exists; the clock has to be set before it is opened for writing.
            drop(open::for_reading(cli)?);
            open::builder(&cli.db).clock(Arc::new(VirtualClock::new(now)) as Arc<dyn Clock>).open()?
        }
    };
    let sink = args.expired_to.as_deref().map(|to| expired_to::sink(&cli.db, to)).transpose()?;
    if sink.is_some() {
        refuse_archives(&database)?;
    }
    // Lines of JSON have the standard output to themselves.
    let tells = args.expired_to.as_deref() != Some(Path::new("-"));
    let report =
        database.sweep_with(&SweepOptions { sink, without_sink: args.without_sink, ..SweepOptions::default() })?;
    let counts = &report.counts;
    let kind = kind_of_contents(&database.snapshot());
    let dropped = contents_of(kind, counts.deleted_buckets, counts.deleted_documents);
    if let Some(held) = &report.held {
        let by_size = if counts.deleted_buckets > 0 { format!("; {dropped} dropped by size") } else { String::new() };
        return Err(Failure::new(format!("nothing was dropped because it has expired: {held}{by_size}")));
    }
    if tells {
        say!("{dropped} dropped, {} freed", bytes(counts.deleted_bytes));
    }
    if counts.held_buckets > 0 && tells {
        say!("{} stay under a hold", counted(counts.held_buckets, "expired bucket"));
    }
    if counts.failed_rules > 0 {
        let rules = counted(counts.failed_rules, "rule");
        return Err(Failure::new(format!("{rules} failed; see the messages above")));
    }
    Ok(())
}

/// Refuses a sweep with a file for a database that moves something to archives, where the file would not get it.
fn refuse_archives(database: &Database) -> Result<(), Failure> {
    let snapshot = database.snapshot();
    for name in snapshot.collections() {
        if !snapshot.collection(&name)?.archives().is_empty() {
            return Err(Failure::usage(format!(
                "what expires in '{name}' is moved to an archive and would not be written: sweep without --expired-to; archived('{name}') \
                 reads it"
            )));
        }
    }
    Ok(())
}

fn dry_run(cli: &Cli, now: Option<Timestamp>) -> Result<(), Failure> {
    let database = open::for_reading(cli)?;
    let snapshot = database.snapshot();
    let at = now.unwrap_or(snapshot.now());
    let mut total = (0, 0, 0);
    for name in snapshot.collections() {
        let collection = snapshot.collection(&name)?;
        let rows = collection.explain_expiry(at, None)?;
        if collection.suspended().is_some() {
            say!("{name}: nothing expires, {}", collection.state());
        } else if !rows.is_empty() {
            say!("{name}:");
            let batch = system::expiry_rows(&rows).map_err(ebbtide_query::QueryError::from)?;
            say!(
                "{}",
                render(&batch.schema(), &[batch], TableStyle { width: files::width(), ..TableStyle::default() })
            );
        }
        for row in rows {
            total = (total.0 + row.buckets, total.1 + row.measurements, total.2 + row.bytes);
        }
    }
    for name in snapshot.document_collections() {
        let rows = snapshot.documents(&name)?.explain_expiry(at, None)?;
        if !rows.is_empty() {
            say!("{name}:");
            let batch = system::expiry_rows(&rows).map_err(ebbtide_query::QueryError::from)?;
            let style = TableStyle { width: files::width(), ..TableStyle::default() };
            say!("{}", render(&batch.schema(), &[batch], style));
        }
        for row in rows {
            total = (total.0 + row.buckets, total.1 + row.measurements, total.2 + row.bytes);
        }
    }
    say!(
        "a sweep at {at} would drop {}, {}",
        contents_of(kind_of_contents(&snapshot), total.0, total.1),
        bytes(total.2)
    );
    Ok(())
}

/// Runs `ebbtide verify`.
pub(crate) fn verify(cli: &Cli) -> Result<(), Failure> {
    let database = open::for_reading(cli)?;
    let report = database.verify()?;
    for fault in &report.faults {
        say!("{fault}");
    }
    if report.faults.is_empty() {
        let (sealed, logged) = (bytes(report.bytes), bytes(report.log_bytes));
        let only_logged = counted(report.log_rows, "row");
        say!(
            "no faults: {} segments, {} rows, {sealed} read; {only_logged} only in the log, {logged} read",
            report.segments,
            report.rows
        );
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} found; restore a backup, or see what ebbtide repair reports",
        counted(report.faults.len() as u64, "fault")
    )))
}
