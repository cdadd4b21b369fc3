//! Long campaigns: rounds with fresh seeds until their time is over, and a line for the ledger after each part.
//!
//! `EBBTIDE_CAMPAIGN_SECONDS` is how long each test binary goes on, a minute by default; `EBBTIDE_COMMIT` names what is
//! tested in the ledger. A campaign can be stopped at any moment: what it printed counts.

use std::time::Duration;

use ebbtide_ttl::{Clock, SystemClock};

/// A number that the environment gives.
pub(crate) fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text}, it must be a whole number")))
}

/// A seed that nobody had before.
pub(crate) fn fresh_seed() -> u64 {
    // Milliseconds: short enough to be typed.
    u64::try_from(SystemClock::new().now().nanos() / 1_000_000).unwrap_or(1)
}

/// What a part of a campaign did.
pub(crate) struct Part {
    pub(crate) tier: &'static str,
    pub(crate) seeds: (u64, u64),
    pub(crate) count: usize,
    pub(crate) faults: u64,
    pub(crate) failures: usize,
}

pub(crate) struct Soak {
    clock: SystemClock,
    end: Duration,
    seed: u64,
    cpu_seconds: f64,
    failures: usize,
}

impl Soak {
    pub(crate) fn new() -> Soak {
        let end = Duration::from_secs(number("EBBTIDE_CAMPAIGN_SECONDS").unwrap_or(60));
        Soak { clock: SystemClock::new(), end, seed: fresh_seed(), cpu_seconds: cpu_seconds(), failures: 0 }
    }

    /// The seed of the next round, or `None` when the time is over.
    pub(crate) fn next_seed(&mut self) -> Option<u64> {
        self.seed += 1;
        (self.clock.monotonic() < self.end).then_some(self.seed)
    }

    /// Prints a line for the ledger.
    pub(crate) fn note(&mut self, part: &Part) {
        let Part { tier, seeds, count, faults, failures } = part;
        let commit = std::env::var("EBBTIDE_COMMIT").unwrap_or_else(|_| "unknown".to_owned());
        let spent = cpu_seconds() - std::mem::replace(&mut self.cpu_seconds, cpu_seconds());
        let utc = self.clock.now().to_string();
        let utc = utc.get(..19).unwrap_or(&utc);
        println!("ledger: {utc}Z,{commit},{tier},{},{},{count},{spent:.0},{faults},{failures}", seeds.0, seeds.1);
        self.failures += failures;
    }

    /// The end of a campaign.
    pub(crate) fn finish(self) {
        assert_eq!(self.failures, 0, "the campaign failed: see above");
    }
}

/// Processor time of this process, where Linux tells; elsewhere 0.
fn cpu_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program comes before, in parentheses, and may hold anything.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND
}
