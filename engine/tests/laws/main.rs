//! The laws of expiry, tried on random runs.
//!
//! A run makes collections, and then inserts, moves the clock, sweeps, seals, compacts, deletes, changes rules, closes,
//! and cuts the power, on a simulated disk and a virtual clock. After every step the engine is compared with a plain
//! model that keeps each measurement in a list ([`model`]). The nine laws:
//!
//! 1. Nothing goes early.
//! 2. Nothing stays for ever.
//! 3. A pass is idempotent; its result does not depend on limits, sub-passes, order of rules or order of arrival.
//! 4. Another rule never makes data live longer, one less never shorter.
//! 5. Every measurement lies in one bucket and in its window.
//! 6. A crash within a pass changes nothing in the end.
//! 7. A clock that steps back brings nothing back and drops nothing early.
//! 8. In mode `exact` no reader can tell whether a sweep has run.
//! 9. Counters only grow, by what was dropped.
//!
//! [`ladder`] has the law of the ladder, with a model of its own.
//!
//! A failure prints its seed. `PROPTEST_CASES` sets the number of runs, `EBBTIDE_LAWS_SEED` the seed.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

mod canaries;
mod compare;
mod ladder;
mod meta;
mod model;
mod order;
mod rig;
#[path = "../shared/soak.rs"]
mod soak;
mod steps;
mod write;

use ebbtide::ttl::ExpiryMode;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use rig::World;
use soak::{Part, Soak, number};
use std::fmt::Debug;

/// Runs of each law.
const CASES: u32 = 256;
/// What runs by default: the same runs everywhere, so that a failure is somebody's change and not bad luck.
const SEED: u64 = 0x0eb6_71de;

/// How many cases, and of which seed.
#[derive(Clone, Copy)]
struct Plan {
    cases: u32,
    seed: u64,
}

impl Plan {
    fn of(cases: u32) -> Plan {
        let cases = number("PROPTEST_CASES").map_or(cases, |cases| u32::try_from(cases).unwrap());
        Plan { cases, seed: number("EBBTIDE_LAWS_SEED").unwrap_or(SEED) }
    }
}

/// What failed, and how to see it again.
fn check<S: Strategy<Value: Debug>>(plan: Plan, strategy: S, law: impl Fn(S::Value)) -> Result<(), String> {
    let Plan { cases, seed } = plan;
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 3_000, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let outcome = TestRunner::new_with_rng(config, rng).run(&strategy, |value| {
        law(value);
        Ok::<(), TestCaseError>(())
    });
    outcome.map_err(|error| format!("{error}\nto see it again: EBBTIDE_LAWS_SEED={seed} PROPTEST_CASES={cases}"))
}

fn runs(plan: Plan, mode: ExpiryMode) -> Result<(), String> {
    check(plan, steps::some_run(mode), |run| World::new(&run.setups).run(&run))
}

fn passes(plan: Plan) -> Result<(), String> {
    check(plan, order::some_case(), |case| order::check(&case))
}

#[test]
fn the_engine_agrees_with_a_plain_model_in_mode_exact() {
    runs(Plan::of(CASES), ExpiryMode::Exact).unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn the_engine_agrees_with_a_plain_model_in_mode_bucket() {
    runs(Plan::of(CASES), ExpiryMode::Bucket).unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn a_pass_gives_the_same_result_however_data_came_and_rules_were_made() {
    passes(Plan::of(CASES / 4)).unwrap_or_else(|what| panic!("{what}"));
}

/// A long campaign: rounds of all laws with fresh seeds, until its time is over.
#[test]
#[ignore = "runs for as long as EBBTIDE_CAMPAIGN_SECONDS says"]
fn campaign() {
    let mut soak = Soak::new();
    while let Some(seed) = soak.next_seed() {
        let plan = Plan { cases: CASES, seed };
        let outcomes =
            [runs(plan, ExpiryMode::Exact), runs(plan, ExpiryMode::Bucket), passes(plan), ladder::runs(plan)];
        let failures = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        failures.clone().for_each(|what| println!("{what}"));
        let count = outcomes.len() * CASES as usize;
        soak.note(&Part { tier: "C", seeds: (seed, seed), count, faults: 0, failures: failures.count() });
    }
    soak.finish();
}
