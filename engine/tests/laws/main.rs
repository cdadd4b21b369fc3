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
//! A failure prints its seed. `PROPTEST_CASES` sets the number of runs, `EBBTIDE_LAWS_SEED` the seed.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

mod compare;
mod meta;
mod model;
mod order;
mod rig;
mod steps;
mod write;

use ebbtide::ttl::ExpiryMode;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use rig::World;
use std::fmt::Debug;

/// Runs of each law.
const CASES: u32 = 256;
/// What runs by default: the same runs everywhere, so that a failure is somebody's change and not bad luck.
const SEED: u64 = 0x0eb6_71de;

fn check<S: Strategy<Value: Debug>>(cases: u32, strategy: S, law: impl Fn(S::Value)) {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number in the environment"));
    let seed = number("EBBTIDE_LAWS_SEED").unwrap_or(SEED);
    let cases = number("PROPTEST_CASES").map_or(cases, |cases| u32::try_from(cases).unwrap());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 3_000, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let outcome = TestRunner::new_with_rng(config, rng).run(&strategy, |value| {
        law(value);
        Ok::<(), TestCaseError>(())
    });
    if let Err(error) = outcome {
        panic!("{error}\nto see it again: EBBTIDE_LAWS_SEED={seed} PROPTEST_CASES={cases}");
    }
}

#[test]
fn the_engine_agrees_with_a_plain_model_in_mode_exact() {
    check(CASES, steps::some_run(ExpiryMode::Exact), |run| World::new(&run.setups).run(&run));
}

#[test]
fn the_engine_agrees_with_a_plain_model_in_mode_bucket() {
    check(CASES, steps::some_run(ExpiryMode::Bucket), |run| World::new(&run.setups).run(&run));
}

#[test]
fn a_pass_gives_the_same_result_however_data_came_and_rules_were_made() {
    check(CASES / 4, order::some_case(), |case| order::check(&case));
}
