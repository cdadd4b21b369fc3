//! Planted bugs: clocks that make the engine behave as if it had one. The laws have to notice each of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use ebbtide::ttl::{Clock, ExpiryMode, Timestamp, VirtualClock};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::rig::{ClockOf, World};
use crate::steps::some_run;

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plant {
    /// `<` in the place of `<=`: what is just at the cut-off stays.
    Below,
    /// `<=` of the next instant: what expires in a moment is gone.
    Beyond,
    /// The guard looks at the wall clock alone, so that no jump is one.
    RawClock,
}

#[derive(Debug)]
struct Planted {
    clock: VirtualClock,
    plant: Plant,
}

impl Clock for Planted {
    fn now(&self) -> Timestamp {
        let now = self.clock.now();
        match self.plant {
            Plant::Below => Timestamp::from_nanos(now.nanos() - 1),
            Plant::Beyond => now.plus_seconds(1),
            Plant::RawClock => now,
        }
    }

    fn monotonic(&self) -> Duration {
        match self.plant {
            Plant::RawClock => Duration::from_nanos(u64::try_from(self.clock.now().nanos()).unwrap_or(0)),
            _ => self.clock.monotonic(),
        }
    }

    fn is_virtual(&self) -> bool {
        true
    }
}

/// The clock that an engine with a bug goes by.
fn planted(clock: &VirtualClock, plant: Plant) -> Arc<dyn Clock> {
    Arc::new(Planted { clock: clock.clone(), plant })
}

#[test]
fn every_planted_bug_is_noticed() {
    const CASES_MAX: u32 = 256;
    let plants: [(Plant, ClockOf); 3] = [
        (Plant::Below, |clock| planted(clock, Plant::Below)),
        (Plant::Beyond, |clock| planted(clock, Plant::Beyond)),
        (Plant::RawClock, |clock| planted(clock, Plant::RawClock)),
    ];
    for (plant, clock_of) in plants {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let strategy = some_run(ExpiryMode::Exact);
        let noticed = (1..=CASES_MAX).find(|_| {
            let run = strategy.new_tree(&mut runner).expect("a run").current();
            catch_unwind(AssertUnwindSafe(|| World::planted(&run.setups, clock_of).run(&run))).is_err()
        });
        let cases = noticed.unwrap_or_else(|| panic!("nobody noticed {plant:?} in {CASES_MAX} runs"));
        println!("canary: {plant:?}: noticed after {cases} runs");
    }
}
