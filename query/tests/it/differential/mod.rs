//! Compares SQL results: random statements over random databases, each compared with DuckDB over the rows that a plain
//! model calls visible, with the same statement without the fast paths, with a variant that must return the same
//! rows (SQLancer's partitioning and no-optimization oracles), with the same statement after it has run with other constants, and
//! with a prepared query that has run with other values.
//!
//! A failure prints `EBBTIDE_SQL_REPLAY`, which runs that statement alone. `EBBTIDE_SQL_STATEMENTS` sets the number of
//! statements, `EBBTIDE_SQL_SEED` the seed. `EBBTIDE_PYTHON` names a Python that has DuckDB.

mod cells;
mod draw;
mod expressions;
mod parameters;
mod peer;
mod statements;
mod text;
mod world;

use cells::{Row, difference, rows, scale_times};
use ebbtide_query::{ScalarValue, Session};
use parameters::{Parameters, parameters};
use peer::Peer;
use statements::{Statement, statement};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use text::{Dialect, render};
use world::{PHASES, World};

/// Statements in each phase of a database.
const STATEMENTS_PER_PHASE: u64 = 100;
const STATEMENTS: u64 = 4_000;
const SEED: u64 = 1;
/// The run ends after this many failures.
const FAILURES_MAX: usize = 25;
/// Maximum number of databases built to find a smaller one that also fails.
const SHRINK_STEPS_MAX: usize = 40;
/// So many rows, and those that always stay, are shown as SQL for DuckDB.
const ROWS_SHOWN_MAX: usize = 8;

/// The position of a statement.
#[derive(Debug, Clone, Copy)]
struct Place {
    seed: u64,
    phase: u64,
    number: u64,
}

fn ebbtide(world: &World, session: &Session, sql: &str) -> Result<Vec<Row>, String> {
    let run = || world.runtime.block_on(session.execute(sql));
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(result)) => Ok(rows(&result.batches)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("PANIC".to_owned()),
    }
}

/// The answer of a query that is prepared, and run with each of these values in turn; whether it has a generic plan at last.
fn prepared(world: &World, sql: &str, runs: &[&[ScalarValue]]) -> (Result<Vec<Row>, String>, bool) {
    let run = || {
        let query = world.runtime.block_on(world.fast.prepare(sql)).map_err(|error| error.to_string())?;
        let mut last = Err(String::new());
        for values in runs {
            let result = world.runtime.block_on(query.execute(values));
            last = result.map(|result| rows(&result.batches)).map_err(|error| error.to_string());
        }
        Ok((last, format!("{query:?}").contains("GenericPlan")))
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => (Err(error), false),
        Err(_) => (Err("PANIC".to_owned()), false),
    }
}

/// What is wrong with a statement that has run with other constants, or was prepared and has run with other values, if it has
/// these rows.
fn check_prepared(world: &World, sql: &str, statement: &Statement, fast: &[Row], counts: &Counts) -> Option<String> {
    let Parameters { text, values, others, other_text } = parameters(sql)?;
    // The fast session has run the statement; now it runs a text that differs in its constants alone, and then the statement again.
    let _other = (ebbtide(world, &world.fast, &other_text), ebbtide(world, &world.fast, &other_text));
    let found = match ebbtide(world, &world.fast, sql) {
        Ok(rows) => difference(fast.to_vec(), rows, &statement.columns, statement.ordered),
        Err(error) => Some(error),
    };
    if let Some(found) = found {
        return Some(format!("repeated: {found}\n  after {other_text}"));
    }
    let (answer, is_generic) = prepared(world, &text, &[&others, &others, &values]);
    counts.generic.fetch_add(u64::from(is_generic), Ordering::Relaxed);
    let found = match answer {
        Ok(rows) => difference(fast.to_vec(), rows, &statement.columns, statement.ordered),
        // Some types cannot be inferred: then the first run fails as well.
        Err(error) if error == "PANIC" || prepared(world, &text, &[&values]).0.is_ok() => Some(error),
        Err(_) => None,
    };
    found.map(|found| format!("prepared: {found}\n  {text} with {values:?} after {others:?}"))
}

/// What is wrong with the results of a statement.
fn check(world: &World, peer: Option<&mut Peer>, statement: &Statement, counts: &Counts) -> Option<String> {
    let sql = render(&statement.text, Dialect::Ebbtide);
    let (columns, ordered) = (&statement.columns, statement.ordered);
    let fast = ebbtide(world, &world.fast, &sql);
    let slow = ebbtide(world, &world.slow, &sql);
    if fast.as_ref().is_err_and(|e| e == "PANIC") || slow.as_ref().is_err_and(|e| e == "PANIC") {
        return Some(format!("panic: {fast:?} {slow:?}"));
    }
    match (&fast, &slow) {
        (Ok(fast), Ok(slow)) => {
            if let Some(found) = difference(fast.clone(), slow.clone(), columns, ordered) {
                return Some(format!("fast paths on and off: {found}"));
            }
        }
        (Err(_), Err(_)) => {}
        (Ok(_), Err(error)) | (Err(error), Ok(_)) if explained(error) => {}
        (fast, slow) => return Some(format!("fast paths on: {}\n  off: {}", brief(fast), brief(slow))),
    }
    if statement.prepared
        && let Ok(fast) = &fast
        && let Some(found) = check_prepared(world, &sql, statement, fast, counts)
    {
        return Some(found);
    }
    if let (Some(twin), Ok(fast)) = (&statement.twin, &fast) {
        let twin = render(twin, Dialect::Ebbtide);
        let found = match ebbtide(world, &world.fast, &twin) {
            Ok(other) => difference(fast.clone(), other, columns, false),
            Err(error) => Some(error).filter(|error| !explained(error)),
        };
        if let Some(found) = found {
            return Some(format!("twin: {found}\n  {twin}"));
        }
    }
    let (Some(peer), true) = (peer, statement.peer) else {
        return fast.err().filter(|error| !explained(error)).map(|error| format!("refused: {error}"));
    };
    let of_peer = render(&statement.text, Dialect::DuckDb);
    match (fast, peer.rows(&of_peer)) {
        (Ok(fast), Ok(mut other)) => {
            scale_times(&mut other, columns);
            difference(fast, other, columns, ordered).map(|found| format!("Ebbtide and DuckDB: {found}"))
        }
        (Err(error), _) if explained(&error) => None,
        // DuckDB also computes the arguments of rows that a FILTER leaves out.
        (Ok(_), Err(error)) if error.contains("Overflow in") && of_peer.contains(" FILTER (") => None,
        (fast, other) => Some(format!("Ebbtide: {}\n  DuckDB: {}", brief(&fast), brief(&other))),
    }
}

fn brief(answer: &Result<Vec<Row>, String>) -> String {
    match answer {
        Ok(rows) => format!("{} rows, {:?}", rows.len(), rows.first()),
        Err(error) => format!("error: {error}"),
    }
}

/// Known errors: docs/sql.md says what is not supported.
fn explained(error: &str) -> bool {
    let known = [
        "physical plan does not support logical expression",
        "outer columns may be used only in the WHERE of a subquery",
        "with a subquery in this place",
        "with columns of the outer query",
        "a member of an object of the outer query",
        "projections require unique expression names",
        "two columns are called",
        "conflicting ordering requirements in aggregate functions",
        "does not satisfy order requirements",
        // DataFusion forgets an order where the condition makes an expression equal to what it is sorted by.
        "expects PARTITION BY expression to be ordered",
        // Times of two precisions near the ends of the coarser one.
        "exceeds the representable i64 range",
        // DuckDB gives sums a wider type, and refuses other results that do not fit.
        "overflow",
    ];
    known.iter().any(|part| error.contains(part))
}

fn world_at(place: Place, keep: Option<Vec<i64>>) -> World {
    let mut world = World::new(place.seed, keep);
    while world.phase < place.phase {
        world.advance();
    }
    world
}

/// A smaller set of rows with which the statement still fails, and how it fails.
fn shrink(place: Place, statement: &Statement, mut peer: Option<&mut Peer>, found: String) -> (usize, String) {
    let wanted = |found: &str| found.split(':').next().unwrap_or_default().to_owned();
    let mut kept = world_at(place, None).keys();
    if found.contains("error: ") || found.contains("not supported") {
        return (kept.len(), found);
    }
    let mut best = found;
    let (mut size, mut steps) = (kept.len().div_ceil(2), 0);
    while size > 0 && steps < SHRINK_STEPS_MAX {
        let mut at = 0;
        while at < kept.len() && steps < SHRINK_STEPS_MAX {
            let mut fewer = kept.clone();
            fewer.drain(at..(at + size).min(fewer.len()));
            steps += 1;
            let world = world_at(place, Some(fewer.clone()));
            if let Some(peer) = &mut peer {
                peer.run(&world.script());
            }
            match check(&world, peer.as_deref_mut(), statement, &Counts::default()) {
                Some(found) if wanted(&found) == wanted(&best) && !found.contains("error: ") => {
                    (kept, best) = (fewer, found);
                }
                _ => at += size,
            }
        }
        size /= 2;
    }
    if kept.len() <= ROWS_SHOWN_MAX {
        println!("{};", world_at(place, Some(kept.clone())).script().join(";\n"));
    }
    (kept.len(), best)
}

fn report(place: Place, statement: &Statement, peer: Option<&mut Peer>, found: String) -> String {
    let (rows, found) = shrink(place, statement, peer, found);
    let Place { seed, phase, number } = place;
    let report = format!(
        "{found}\n  Ebbtide: {}\n  DuckDB: {}\n  with {rows} keys; again: EBBTIDE_SQL_REPLAY={seed}:{phase}:{number} \
         cargo test -p ebbtide-query --test it differential -- --nocapture",
        render(&statement.text, Dialect::Ebbtide),
        render(&statement.text, Dialect::DuckDb),
    );
    println!("{report}\n");
    report
}

/// Runs the statements of one database, and returns the failures.
fn run_world(seed: u64, mut peer: Option<&mut Peer>, counts: &Counts) -> Vec<String> {
    let mut world = World::new(seed, None);
    let mut failures = Vec::new();
    for phase in 1..=PHASES {
        world.advance();
        if let Some(peer) = &mut peer {
            peer.run(&world.script());
        }
        for number in 0..STATEMENTS_PER_PHASE {
            let statement = statement(&world, seed, number);
            counts.statements.fetch_add(1, Ordering::Relaxed);
            counts.twins.fetch_add(u64::from(statement.twin.is_some()), Ordering::Relaxed);
            if let Some(found) = check(&world, peer.as_deref_mut(), &statement, counts) {
                failures.push(report(Place { seed, phase, number }, &statement, peer.as_deref_mut(), found));
                if let Some(peer) = &mut peer {
                    peer.run(&world.script());
                }
            }
        }
    }
    failures
}

#[derive(Debug, Default)]
struct Counts {
    next: AtomicU64,
    statements: AtomicU64,
    twins: AtomicU64,
    /// Prepared queries that have a generic plan.
    generic: AtomicU64,
}

fn replay(text: &str) {
    let parts: Vec<u64> = text.split(':').map(|part| part.parse().unwrap()).collect();
    let place = Place { seed: parts[0], phase: parts[1], number: parts[2] };
    let world = world_at(place, None);
    let mut peer = Peer::start().map_err(|why| println!("without DuckDB: {why}")).ok();
    if let Some(peer) = &mut peer {
        peer.run(&world.script());
    }
    let statement = statement(&world, place.seed, place.number);
    println!("{}\n{statement:?}", world.story.join("\n"));
    let found = check(&world, peer.as_mut(), &statement, &Counts::default());
    if let Some(found) = found {
        panic!("{}", report(place, &statement, peer.as_mut(), found));
    }
}

fn number_of(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

#[test]
fn random_statements_have_the_answers_of_duckdb_of_plain_plans_and_of_their_twins() {
    if let Ok(place) = std::env::var("EBBTIDE_SQL_REPLAY") {
        return replay(&place);
    }
    let (first, wanted) = (number_of("EBBTIDE_SQL_SEED", SEED), number_of("EBBTIDE_SQL_STATEMENTS", STATEMENTS));
    let worlds = wanted.div_ceil(STATEMENTS_PER_PHASE * PHASES);
    let threads = number_of("EBBTIDE_SQL_THREADS", std::thread::available_parallelism().map_or(1, usize::from) as u64);
    let (counts, failures) = (Counts::default(), Mutex::new(Vec::new()));
    let compared = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut peer = match Peer::start() {
                    Ok(peer) => Some(peer),
                    Err(why) => {
                        println!("skipped: comparing with DuckDB ({why}); the other comparisons are made");
                        None
                    }
                };
                compared.fetch_add(u64::from(peer.is_some()), Ordering::Relaxed);
                loop {
                    let seed = first + counts.next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + worlds || failures.lock().unwrap().len() >= FAILURES_MAX {
                        return;
                    }
                    let found = run_world(seed, peer.as_mut(), &counts);
                    failures.lock().unwrap().extend(found);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    println!(
        "{} statements ({} with a twin, {} with a generic plan), seeds {first} to {}, {} failures, DuckDB: {}",
        counts.statements.load(Ordering::Relaxed),
        counts.twins.load(Ordering::Relaxed),
        counts.generic.load(Ordering::Relaxed),
        first + worlds - 1,
        failures.len(),
        if compared.load(Ordering::Relaxed) > 0 { "yes" } else { "no" },
    );
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(wanted < 1_000 || counts.generic.load(Ordering::Relaxed) > 0, "no prepared query has a generic plan");
}
