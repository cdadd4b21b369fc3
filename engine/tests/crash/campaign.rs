//! What a tier of runs has in common: a budget, counts, and failures with the value that replays each.

use std::collections::BTreeMap;

use ebbtide::fs::sim::Lie;

use crate::soak::{Part, Soak, number};

/// Failures that are reported before a campaign gives up.
const FAILURES_MAX: usize = 20;

/// Images or runs over all scenarios: a budget, counts and failures.
pub(crate) struct Campaign {
    name: &'static str,
    pub(crate) budget: usize,
    pub(crate) seed: u64,
    pub(crate) replay: Option<String>,
    pub(crate) lie: Option<Lie>,
    pub(crate) points: usize,
    pub(crate) images: usize,
    pub(crate) nested: usize,
    pub(crate) worked_on: usize,
    pub(crate) detected: usize,
    pub(crate) harmless: usize,
    pub(crate) torn: usize,
    pub(crate) fired: usize,
    /// Fault runs with two faults.
    pub(crate) pairs: usize,
    pub(crate) survived: usize,
    /// How often writing stopped for good.
    pub(crate) stops: usize,
    /// By kind of fault, step and file, how often a call failed; and by kind, how often a run was cut off.
    struck: BTreeMap<String, usize>,
    failures: Vec<String>,
}

impl Campaign {
    pub(crate) fn new(name: &'static str, budget: usize) -> Self {
        Campaign {
            name,
            budget,
            seed: number("EBBTIDE_CRASH_SEED").unwrap_or(1),
            replay: std::env::var("EBBTIDE_CRASH_REPLAY").ok(),
            lie: None,
            points: 0,
            images: 0,
            nested: 0,
            worked_on: 0,
            detected: 0,
            harmless: 0,
            torn: 0,
            fired: 0,
            pairs: 0,
            survived: 0,
            stops: 0,
            struck: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    /// Makes another choice among all images.
    pub(crate) fn seeded(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Runs on a disk that lies: what this campaign finds is its own worth.
    pub(crate) fn lying(mut self, lie: Lie) -> Self {
        self.lie = Some(lie);
        self.replay = None;
        self
    }

    /// Adds what another part of the same tier found.
    pub(crate) fn add(&mut self, other: Campaign) {
        self.points += other.points;
        self.images += other.images;
        self.nested += other.nested;
        self.worked_on += other.worked_on;
        self.detected += other.detected;
        self.harmless += other.harmless;
        self.torn += other.torn;
        self.fired += other.fired;
        self.pairs += other.pairs;
        self.survived += other.survived;
        self.stops += other.stops;
        other.struck.into_iter().for_each(|(what, times)| self.struck(what, times));
        self.failures.extend(other.failures);
    }

    pub(crate) fn has_failed(&self) -> bool {
        !self.failures.is_empty()
    }

    pub(crate) fn images(&self) -> usize {
        self.images
    }

    /// Whether a run with this label is wanted.
    pub(crate) fn wants(&self, label: &str) -> bool {
        self.replay.as_ref().is_none_or(|replay| replay == label)
    }

    pub(crate) fn fail(&mut self, label: &str, context: &str, what: &str) {
        self.failures.push(format!("EBBTIDE_CRASH_REPLAY='{label}'  ({context}): {what}"));
        if self.failures.len() >= FAILURES_MAX && self.lie.is_none() {
            panic!("{}", self.report());
        }
    }

    /// Counts the calls that failed, from what the disk recorded: `17 append /data/db/wal-1.log at 36 +9 -> Enospc`.
    pub(crate) fn count_faults(&mut self, steps: &[String]) {
        for (step, fault) in steps.iter().filter_map(|step| step.split_once(" -> ")) {
            let mut words = step.split(' ').skip(1);
            let (call, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let file = path.rsplit('/').next().and_then(|name| name.split(['-', '.']).next()).unwrap_or_default();
            self.struck(format!("{fault} {call} {file}"), 1);
        }
    }

    /// Counts what struck.
    pub(crate) fn struck(&mut self, what: String, times: usize) {
        *self.struck.entry(what).or_default() += times;
    }

    /// Prints how often each fault struck, with its rows in the catalogue, and fails if one of these never did.
    pub(crate) fn expect_struck(&self, wanted: &[(u8, &str)]) {
        for (fault, times) in &self.struck {
            let rows: Vec<String> = wanted.iter().filter(|(_, w)| w == fault).map(|(row, _)| row.to_string()).collect();
            println!(
                "fault {}: {fault}: {times} times",
                if rows.is_empty() { "-".to_owned() } else { rows.join(", ") }
            );
        }
        let never: Vec<_> =
            wanted.iter().filter(|(_, w)| self.struck.get(*w).is_none_or(|times| *times == 0)).collect();
        assert!(never.is_empty(), "these faults never struck: {never:?}");
    }

    fn report(&self) -> String {
        let Campaign {
            name,
            seed,
            points,
            images,
            nested,
            worked_on,
            detected,
            harmless,
            torn,
            fired,
            pairs,
            survived,
            stops,
            ..
        } = self;
        let failures = self.failures.len();
        let mut text = format!(
            "tier {name}: seed={seed} points={points} images={images} crashes_in_recovery={nested} \
             worked_on={worked_on} flips_detected={detected} flips_harmless={harmless} flips_taken_for_torn={torn} fault_runs_fired={fired} fault_pairs={pairs} \
             fault_runs_survived={survived} stops={stops} failures={failures}"
        );
        for failure in &self.failures {
            text.push('\n');
            text.push_str(failure);
        }
        text
    }

    pub(crate) fn finish(self) {
        println!("{}", self.report());
        assert!(self.failures.is_empty(), "{}", self.report());
    }

    /// The end of a part of a long campaign, which goes on whatever was found.
    pub(crate) fn note(self, soak: &mut Soak, tier: &'static str, count: usize) {
        if self.has_failed() {
            println!("{}", self.report());
        }
        let (faults, failures) = (self.fired as u64, self.failures.len());
        soak.note(&Part { tier, seeds: (self.seed, self.seed), count, faults, failures });
    }
}
