//! One pass of the sweeper: sub-passes of rounds, in which no rule's backlog starves another rule.

mod parameters;

pub use parameters::Parameters;

use std::time::Duration;

/// Identifies a rule of a collection in a pass.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RuleRef {
    /// The collection's name.
    pub collection: String,
    /// The partial rule's name; `None` for the collection's own rule.
    pub rule: Option<String>,
}

/// How far a visit to a rule may go; it stops at whichever limit it reaches first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VisitLimit {
    /// Number of buckets; `None` is no limit.
    pub buckets: Option<u64>,
    /// Monotonic time; `None` is no limit.
    pub time: Option<Duration>,
}

/// What a visit to a rule dropped, or counted to be dropped by the end of the sub-pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Visit {
    /// Buckets.
    pub buckets: u64,
    /// Measurements in them.
    pub measurements: u64,
    /// Bytes of the buckets.
    pub bytes: u64,
    /// Files unlinked.
    pub files: u64,
    /// Whether it reached a limit, so that there may be more to drop. A visit that dropped nothing is never asked for
    /// more in the same pass.
    pub stopped_at_limit: bool,
}

impl Visit {
    /// Adds the counts of another one.
    pub fn add(&mut self, more: &Visit) {
        self.buckets += more.buckets;
        self.measurements += more.measurements;
        self.bytes += more.bytes;
        self.files += more.files;
    }
}

/// What a pass sweeps.
pub trait PassTarget {
    /// The rules to visit. Called once for each sub-pass, so the next one includes rules created meanwhile.
    fn rules(&mut self) -> Vec<RuleRef>;

    /// Drops what is due through a rule, up to the limit. A rule that no longer exists has nothing due.
    ///
    /// # Errors
    /// Why the rule could not be swept; the pass continues with the others.
    fn visit(&mut self, rule: &RuleRef, limit: VisitLimit) -> Result<Visit, String>;
}

/// What a pass did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PassReport {
    /// 1, or 0 if no sub-pass was allowed.
    pub passes: u64,
    /// Sub-passes, at least one a pass.
    pub sub_passes: u64,
    /// Buckets dropped.
    pub buckets: u64,
    /// Measurements in them.
    pub measurements: u64,
    /// Bytes of the buckets.
    pub bytes: u64,
    /// Files unlinked.
    pub files: u64,
    /// The rules that failed, each once, with the reason. A rule that failed is not visited again in the same pass.
    pub failed: Vec<(RuleRef, String)>,
    /// Duration in monotonic time.
    pub duration: Duration,
    /// Whether rules were left that had stopped at a limit, because no further sub-pass was allowed.
    pub has_more: bool,
}

/// Runs one pass: sub-passes until in the last one no rule stopped at a limit, or `sub_passes_max` is reached.
///
/// A sub-pass visits all rules in turn, then in further rounds those that stopped at a limit, until there are none or
/// the sub-pass's target time is over. The caller checks beforehand whether sweeping is enabled.
pub fn run_pass(
    parameters: &Parameters,
    monotonic: &dyn Fn() -> Duration,
    target: &mut dyn PassTarget,
    sub_passes_max: Option<u64>,
) -> PassReport {
    let start = monotonic();
    let mut report = PassReport::default();
    if sub_passes_max == Some(0) {
        return report;
    }
    report.passes = 1;
    loop {
        report.has_more = run_sub_pass(parameters, monotonic, target, &mut report);
        report.sub_passes += 1;
        if !report.has_more || sub_passes_max.is_some_and(|max| report.sub_passes >= max) {
            break;
        }
    }
    report.duration = monotonic().saturating_sub(start);
    report
}

/// Returns whether some rule's last visit stopped at a limit.
fn run_sub_pass(
    parameters: &Parameters,
    monotonic: &dyn Fn() -> Duration,
    target: &mut dyn PassTarget,
    report: &mut PassReport,
) -> bool {
    let start = monotonic();
    let limit = parameters.visit_limit();
    let mut work = target.rules();
    work.retain(|rule| report.failed.iter().all(|(failed, _)| failed != rule));
    loop {
        let mut more = Vec::new();
        for rule in work {
            match target.visit(&rule, limit) {
                Ok(visit) => {
                    report.buckets = report.buckets.saturating_add(visit.buckets);
                    report.measurements = report.measurements.saturating_add(visit.measurements);
                    report.bytes = report.bytes.saturating_add(visit.bytes);
                    report.files = report.files.saturating_add(visit.files);
                    // Without the second condition a target that makes no progress would be visited forever.
                    if visit.stopped_at_limit && (visit.buckets > 0 || visit.measurements > 0) {
                        more.push(rule);
                    }
                }
                Err(reason) => report.failed.push((rule, reason)),
            }
        }
        work = more;
        let elapsed = monotonic().saturating_sub(start);
        if work.is_empty() || elapsed >= parameters.sub_pass_target() {
            return !work.is_empty();
        }
    }
}

#[cfg(test)]
mod tests;
