//! Runs of operations against the plain model of the laws.

use crate::rig::World;
use crate::steps::some_run;
use ebbtide::ttl::ExpiryMode;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const SEED_BYTES: usize = 32;

/// The input is the seed of a run. Its bytes are not the random numbers themselves: behind their end there would be zeros,
/// and whoever draws until a number pleases would draw for ever.
pub(super) fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    let mode = if mode % 2 == 0 { ExpiryMode::Exact } else { ExpiryMode::Bucket };
    let mut seed = [0; SEED_BYTES];
    for (at, byte) in rest.iter().enumerate() {
        seed[at % SEED_BYTES] ^= byte;
    }
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config { failure_persistence: None, ..Config::default() }, rng);
    let Ok(tree) = some_run(mode).new_tree(&mut runner) else { return };
    let run = tree.current();
    World::new(&run.setups).run(&run);
}
