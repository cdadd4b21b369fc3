//! Wrong clocks, on the simulated disk.
//!
//! Each fault of the clock meets every scenario of the crash tests (`tests/crash`), a few times over. Beside the
//! scenario's own collections lie others that a wrong clock would empty ([`side`]). After each step everything is
//! compared with a plain model: what is visible follows the clock to the millisecond, what is stored changes only by
//! sweeps that the guard let through, and of these the model knows which rows they drop ([`run`]).
//!
//! `EBBTIDE_CLOCK_SEEDS` is how many runs each pair takes, `EBBTIDE_CLOCK_REPLAY` runs a single one: a failure prints
//! its value.

#[path = "../shared/documents.rs"]
#[expect(dead_code, reason = "no scenario here has an ordinary collection")]
mod documents;
#[path = "../crash/expect.rs"]
mod expect;
mod faults;
mod forecast;
#[path = "../crash/kept.rs"]
mod kept;
mod run;
#[path = "../crash/runner.rs"]
mod runner;
#[path = "../crash/scenarios.rs"]
mod scenarios;
#[path = "../crash/script.rs"]
#[expect(dead_code, reason = "no scenario here has an ordinary collection")]
mod script;
mod side;
mod strikes;

use faults::{FAULTS, Fault};
use run::{Run, Tally};
use scenarios::scenarios;
use script::Scenario;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs of each fault in each scenario.
const SEEDS_DEFAULT: u64 = 5;
/// No fewer runs than this count as the tier.
const RUNS_MIN: u64 = 900;
/// Failures that are reported before the rest is left out.
const FAILURES_MAX: usize = 20;

fn one(fault: &Fault, scenario: &Scenario, seed: u64, blind: bool, tally: &mut Tally) -> Result<(), String> {
    let run = AssertUnwindSafe(|| Run::new(fault, scenario, seed, blind)?.all(tally));
    match catch_unwind(run) {
        Ok(outcome) => outcome,
        Err(payload) => {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}

/// All runs with one fault, and what went wrong in them.
fn with_fault(fault: &Fault, replay: Option<&str>, seeds: u64) -> (Tally, Vec<String>) {
    let (mut tally, mut failures) = (Tally::default(), Vec::new());
    for scenario in scenarios() {
        for seed in 0..seeds {
            let label = format!("{}:{}:{seed}", fault.number, scenario.name);
            if replay.is_some_and(|replay| replay != label) || failures.len() >= FAILURES_MAX {
                continue;
            }
            tally.runs += 1;
            if let Err(what) = one(fault, &scenario, seed, false, &mut tally) {
                failures.push(format!("EBBTIDE_CLOCK_REPLAY='{label}': {what}"));
            }
        }
    }
    if replay.is_none() && tally.fired == 0 {
        failures.push(format!("fault {} never fired", fault.number));
    }
    (tally, failures)
}

/// On two threads: nothing else here takes as long.
#[test]
fn wrong_clocks_drop_nothing_early_and_keep_nothing_longer() {
    let replay = std::env::var("EBBTIDE_CLOCK_REPLAY").ok();
    let seeds =
        std::env::var("EBBTIDE_CLOCK_SEEDS").map_or(SEEDS_DEFAULT, |text| text.parse().expect("a whole number"));
    let next = AtomicUsize::new(0);
    let work = || {
        let faults = std::iter::from_fn(|| FAULTS.get(next.fetch_add(1, Ordering::Relaxed)));
        faults.map(|fault| (fault, with_fault(fault, replay.as_deref(), seeds))).collect::<Vec<_>>()
    };
    let mut outcomes = std::thread::scope(|scope| {
        let beside = scope.spawn(work);
        let mut outcomes = work();
        outcomes.extend(beside.join().expect("a run catches panics"));
        outcomes
    });
    outcomes.sort_by_key(|(fault, _)| fault.number);
    let (mut runs, mut failures) = (0, Vec::new());
    for (fault, (tally, failed)) in outcomes {
        println!("fault {}: {tally}; {}", fault.number, fault.what);
        if let Some(beyond) = fault.beyond {
            println!("    the catalogue asks for more than the contract has: {beyond}");
        }
        runs += tally.runs;
        failures.extend(failed);
    }
    println!("tier J: {runs} runs, {} failures", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(replay.is_some() || runs >= RUNS_MIN, "{runs} runs are too few");
}

/// A canary: an engine that trusts the wall clock, as one does whose guard is switched off behind the model's back.
#[test]
fn a_sweeper_that_trusts_the_wall_clock_is_noticed() {
    let jump = FAULTS.iter().find(|fault| fault.number == 47).expect("it is one of them");
    for (runs, scenario) in scenarios().iter().enumerate() {
        if let Err(what) = one(jump, scenario, 0, true, &mut Tally::default()) {
            println!("canary: a sweep without a guard: noticed after {} runs: {what}", runs + 1);
            return;
        }
    }
    panic!("nobody noticed that the guard is off");
}
