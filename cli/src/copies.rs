//! `ebbtide ship`, `ebbtide restore --from` and `ebbtide promote`: copies of whole databases.

use crate::args::{Cli, PromoteArgs, ShipArgs};
use crate::human::{bytes, counted};
use crate::signals::{self, Signals};
use crate::{Failure, files, open, parse_time, say};
use ebbtide::{Restored, ShipOptions, ShipStatus, Shipper};
use ebbtide_ttl::{Clock, Code, SystemClock, parse_retention};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The longest pause after an error.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How often the command says how far it is.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// How long the last changes may take to be shipped when the command ends, before unanswered requests are cancelled.
const GRACE: Duration = Duration::from_secs(10);

/// How a database is shipped, from what was written in words.
pub(crate) fn ship_options(every: &str, keep: &str) -> Result<ShipOptions, Failure> {
    let seconds = |text: &str| match parse_retention(text) {
        Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds.unsigned_abs())),
        Ok(_) => Err(Failure::usage(format!("'{text}' is too short: one second is the least"))),
        Err(error) => Err(Failure::usage(error.to_string())),
    };
    let keep = if keep.eq_ignore_ascii_case("forever") { None } else { Some(seconds(keep)?) };
    Ok(ShipOptions { every: seconds(every)?, keep })
}

/// Runs `ebbtide ship`, until a signal ends it.
pub(crate) fn ship(cli: &Cli, args: &ShipArgs, runtime: &tokio::runtime::Runtime) -> Result<(), Failure> {
    let options = ship_options(&args.every, &args.keep)?;
    let every = options.every;
    let Some(to) = &args.to else {
        if cli.read_only {
            return Err(Failure::usage("--detach writes to the database: drop --read-only"));
        }
        open::must_exist(cli)?;
        open::builder(&cli.db).detach().open()?.close()?;
        say!("{} is a database of its own now, and shipped nowhere", cli.db.display());
        return Ok(());
    };
    open::must_exist(cli)?;
    let mut shipper = open::builder(&cli.db).shipper(to, options)?;
    if args.once {
        told(&shipper.ship_now()?)?;
        return Ok(());
    }
    let end = signalled(runtime)?;
    let clock = SystemClock::new();
    let (mut pause, mut said) = (every, None::<Duration>);
    loop {
        let wait = match shipper.step() {
            Ok(true) => {
                pause = every;
                let now = clock.monotonic();
                if said.is_none_or(|said| now.saturating_sub(said) >= SAY_EVERY) {
                    // A closed standard output does not end it.
                    drop(told(shipper.status()));
                    said = Some(now);
                }
                pause
            }
            Ok(false) => Duration::ZERO,
            // A writer that changes the files faster than they are read is no reason to end, nor is a store that does not answer, nor
            // a disk that is full until the next sweep.
            Err(error)
                if shipper.superseded().is_some()
                    || !matches!(error.code(), Code::HostUnreachable | Code::LockBusy | Code::OutOfDiskSpace) =>
            {
                return Err(error.into());
            }
            Err(error) => {
                eprintln!("{error}; retrying");
                pause = (pause * 2).clamp(Duration::from_secs(1), PAUSE_MAX);
                pause
            }
        };
        if !matches!(end.recv_timeout(wait), Err(RecvTimeoutError::Timeout)) {
            return ship_the_last(&mut shipper);
        }
    }
}

/// Gets one message when a signal asks the program to end. A second signal ends it at once.
fn signalled(runtime: &tokio::runtime::Runtime) -> Result<Receiver<()>, Failure> {
    let mut signals = runtime.block_on(async { Signals::new() })?;
    let (sender, receiver) = channel();
    runtime.spawn(async move {
        signals.next().await;
        // If this fails, the command is ending already.
        let _ = sender.send(());
        tokio::spawn(async {
            tokio::time::sleep(GRACE).await;
            open::cancel_requests().await;
        });
        signals::second(&mut signals).await;
        files::complain("ended at once by a second signal; the next ebbtide ship continues");
        std::process::exit(1);
    });
    Ok(receiver)
}

/// Ships what has changed since the last piece.
fn ship_the_last(shipper: &mut Shipper) -> Result<(), Failure> {
    let status = shipper.ship_now().map_err(|error| {
        Failure::new(format!("the last changes were not shipped: {error}; the next ebbtide ship continues"))
    })?;
    // A closed standard output is no failure.
    drop(told(&status));
    Ok(())
}

/// Says how far it is.
fn told(status: &ShipStatus) -> Result<(), Failure> {
    let until = status.shipped_until.map_or_else(|| "nothing".to_owned(), |until| format!("everything before {until}"));
    let sent = bytes(status.bytes);
    say!("shipped {until} to {}: epoch {}, piece {}; {sent} were sent", status.url, status.epoch, status.piece);
    Ok(())
}

/// Runs `ebbtide restore --from`.
pub(crate) fn restore(cli: &Cli, url: &str, at: Option<&str>) -> Result<(), Failure> {
    if cli.read_only {
        return Err(Failure::usage("a restore makes a database: drop --read-only"));
    }
    let restored = open::builder(&cli.db).restore(url, parse_time("--at", at)?)?;
    say!("{} has the database as it was at {}: {}", cli.db.display(), restored.at, size(&restored));
    say!("nothing is dropped from it until the time is confirmed: ebbtide clock --confirm --db {}", cli.db.display());
    Ok(())
}

/// Runs `ebbtide promote`.
pub(crate) fn promote(cli: &Cli, args: &PromoteArgs) -> Result<(), Failure> {
    if cli.read_only {
        return Err(Failure::usage("a promotion makes a database: drop --read-only"));
    }
    let promoted = open::builder(&cli.db).promote(&args.from)?;
    say!("{} is the primary of {} now, as of {}: {}", cli.db.display(), args.from, promoted.at, size(&promoted));
    say!("what the primary before acknowledged later is not here; it refuses writes once it learns of this");
    Ok(())
}

fn size(restored: &Restored) -> String {
    let (files, records) = (counted(restored.files, "segment"), counted(restored.records, "log record"));
    format!("{files}, {records}, {} fetched", bytes(restored.fetched_bytes))
}
