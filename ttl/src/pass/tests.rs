use super::*;
use crate::code::Code;
use crate::value::Value;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Backlogs of rules by collection name; a visit takes some monotonic time.
struct Target<'a> {
    backlog: BTreeMap<String, u64>,
    failing: Vec<String>,
    clock: &'a Cell<Duration>,
    visit_takes: Duration,
    /// (collection, dropped) of each visit, by sub-pass.
    log: Vec<Vec<(String, u64)>>,
    /// Rules that appear at the sub-pass with this number.
    later: Vec<(usize, String, u64)>,
}

impl<'a> Target<'a> {
    fn new(clock: &'a Cell<Duration>, backlog: &[(&str, u64)]) -> Self {
        Target {
            backlog: backlog.iter().map(|(name, due)| ((*name).to_owned(), *due)).collect(),
            failing: Vec::new(),
            clock,
            visit_takes: Duration::ZERO,
            log: Vec::new(),
            later: Vec::new(),
        }
    }

    fn dropped_by_sub_pass(&self) -> Vec<u64> {
        self.log.iter().map(|visits| visits.iter().map(|(_, dropped)| dropped).sum()).collect()
    }
}

impl PassTarget for Target<'_> {
    fn rules(&mut self) -> Vec<RuleRef> {
        for (sub_pass, name, due) in &self.later {
            if *sub_pass == self.log.len() {
                self.backlog.insert(name.clone(), *due);
            }
        }
        self.log.push(Vec::new());
        self.backlog.keys().map(|name| RuleRef { collection: name.clone(), rule: None }).collect()
    }

    fn visit(&mut self, rule: &RuleRef, limit: VisitLimit) -> Result<Visit, String> {
        self.clock.set(self.clock.get() + self.visit_takes);
        let due = self.backlog.get_mut(&rule.collection).ok_or("no such rule")?;
        let dropped = limit.buckets.map_or(*due, |buckets| buckets.min(*due));
        self.log.last_mut().unwrap().push((rule.collection.clone(), dropped));
        if self.failing.contains(&rule.collection) {
            return Err("the disk is on fire".to_owned());
        }
        *due -= dropped;
        let stopped_at_limit = limit.buckets == Some(dropped);
        Ok(Visit { buckets: dropped, measurements: dropped * 3, bytes: dropped * 100, files: 0, stopped_at_limit })
    }
}

fn parameters(limit: i64, target_secs: i64) -> Parameters {
    Parameters { delete_target_docs: limit, sub_pass_target_secs: target_secs, ..Parameters::default() }
}

fn run(parameters: &Parameters, target: &mut Target<'_>, sub_passes_max: Option<u64>) -> PassReport {
    let clock = target.clock;
    run_pass(parameters, &|| clock.get(), target, sub_passes_max)
}

#[test]
fn mon_01_sub_passes_with_a_small_visit_limit() {
    let clock = Cell::default();
    let mut target = Target::new(&clock, &[("x", 59), ("y", 1)]);
    let report = run(&parameters(20, 0), &mut target, None);
    assert_eq!(target.dropped_by_sub_pass(), [21, 20, 19]);
    assert_eq!((report.passes, report.sub_passes, report.buckets), (1, 3, 60));
    assert_eq!((report.measurements, report.bytes, report.has_more), (180, 6_000, false));

    let mut target = Target::new(&clock, &[("x", 80), ("y", 30)]);
    let report = run(&parameters(20, 1_000), &mut target, None);
    assert_eq!((report.passes, report.sub_passes, report.buckets), (1, 1, 110));
    let visits: Vec<_> = target.log[0].iter().map(|(name, dropped)| (name.as_str(), *dropped)).collect();
    // Rounds: y leaves after the one that it did not fill.
    assert_eq!(visits, [("x", 20), ("y", 20), ("x", 20), ("y", 10), ("x", 20), ("x", 20), ("x", 0)]);
}

#[test]
fn mon_03_a_backlog_does_not_starve_other_rules() {
    let clock = Cell::default();
    let mut target = Target::new(&clock, &[("a", 10_000), ("b", 1)]);
    let report = run(&parameters(20, 0), &mut target, Some(1));
    assert_eq!((target.backlog["a"], target.backlog["b"]), (9_980, 0));
    assert_eq!((report.sub_passes, report.has_more), (1, true));
}

#[test]
fn a_visit_that_drops_exactly_its_limit_has_reached_it() {
    let clock = Cell::default();
    let mut target = Target::new(&clock, &[("x", 20)]);
    assert_eq!(run(&parameters(20, 0), &mut target, None).sub_passes, 2);
    let mut target = Target::new(&clock, &[("x", 19)]);
    assert_eq!(run(&parameters(20, 0), &mut target, None).sub_passes, 1);
}

#[test]
fn a_pass_with_nothing_due_counts_one_sub_pass() {
    let clock = Cell::default();
    let report = run(&Parameters::default(), &mut Target::new(&clock, &[]), None);
    assert_eq!((report.passes, report.sub_passes), (1, 1));
    let report = run(&Parameters::default(), &mut Target::new(&clock, &[("x", 0)]), None);
    assert_eq!((report.passes, report.sub_passes, report.buckets), (1, 1, 0));
    let report = run(&Parameters::default(), &mut Target::new(&clock, &[("x", 5)]), Some(0));
    assert_eq!((report.passes, report.sub_passes, report.buckets), (0, 0, 0));
}

#[test]
fn a_sub_pass_begins_no_round_after_its_target_time() {
    let clock = Cell::default();
    let mut target = Target::new(&clock, &[("x", 100)]);
    target.visit_takes = Duration::from_secs(4);
    // Rounds end at 4, 8 and 12 s.
    let report = run(&parameters(20, 10), &mut target, Some(1));
    assert_eq!((report.buckets, report.has_more, report.duration), (60, true, Duration::from_secs(12)));
    let mut target = Target::new(&clock, &[("x", 100)]);
    target.visit_takes = Duration::from_secs(5);
    // The second one ends at 10 s: the time is over.
    assert_eq!(run(&parameters(20, 10), &mut target, Some(1)).buckets, 40);
}

#[test]
fn a_rule_that_fails_is_counted_once_and_the_rest_go_on() {
    let clock = Cell::default();
    let mut target = Target::new(&clock, &[("a", 50), ("bad", 7), ("c", 50)]);
    target.failing.push("bad".to_owned());
    let report = run(&parameters(20, 0), &mut target, None);
    assert_eq!((report.buckets, report.sub_passes), (100, 3));
    assert_eq!(report.failed.len(), 1);
    assert_eq!((report.failed[0].0.collection.as_str(), report.failed[0].1.as_str()), ("bad", "the disk is on fire"));
}

#[test]
fn rules_made_during_a_pass_are_met_by_its_next_sub_pass() {
    let clock = Cell::default();
    let mut target = Target::new(&clock, &[("x", 30)]);
    target.later.push((1, "new".to_owned(), 5));
    let report = run(&parameters(20, 0), &mut target, None);
    assert_eq!((report.sub_passes, report.buckets), (2, 35));
}

#[test]
fn a_target_without_progress_does_not_hang_the_pass() {
    struct Stuck;
    impl PassTarget for Stuck {
        fn rules(&mut self) -> Vec<RuleRef> {
            vec![RuleRef { collection: "x".to_owned(), rule: Some("r".to_owned()) }]
        }
        fn visit(&mut self, _: &RuleRef, _: VisitLimit) -> Result<Visit, String> {
            Ok(Visit { stopped_at_limit: true, ..Visit::default() })
        }
    }
    let report = run_pass(&Parameters::default(), &|| Duration::ZERO, &mut Stuck, None);
    assert_eq!((report.sub_passes, report.has_more), (1, false));
}

#[test]
fn parameters_are_set_by_name() {
    let mut parameters = Parameters::default();
    let defaults: Vec<_> = Parameters::names().map(|name| (name, parameters.get(name).unwrap())).collect();
    let expected = [
        ("ttlMonitorEnabled", Value::Bool(true)),
        ("ttlMonitorSleepSecs", Value::Int(60)),
        ("ttlMonitorSubPassTargetSecs", Value::Int(60)),
        ("ttlIndexDeleteTargetDocs", Value::Int(50_000)),
        ("ttlIndexDeleteTargetTimeMS", Value::Int(1_000)),
        ("ttlClockJumpToleranceSecs", Value::Int(3_600)),
        ("ttlHandOffTimeoutMS", Value::Int(30_000)),
    ];
    assert_eq!(defaults, expected);
    assert_eq!(parameters.set("ttlMonitorSleepSecs", &Value::Double(5.0)), Ok(Value::Int(60)));
    assert_eq!(parameters.sleep(), Duration::from_secs(5));
    assert_eq!(parameters.set("ttlMonitorEnabled", &Value::Bool(false)), Ok(Value::Bool(true)));
    assert!(!parameters.monitor_enabled);
    let limit = parameters.visit_limit();
    assert_eq!((limit.buckets, limit.time), (Some(50_000), Some(Duration::from_secs(1))));
    parameters.set("ttlIndexDeleteTargetDocs", &Value::Int(0)).unwrap();
    parameters.set("ttlIndexDeleteTargetTimeMS", &Value::Int(0)).unwrap();
    assert_eq!(parameters.visit_limit(), VisitLimit { buckets: None, time: None });
}

#[test]
fn wrong_parameters_are_refused_and_change_nothing() {
    let mut parameters = Parameters::default();
    let mut refused = |name: &str, value: Value| parameters.set(name, &value).unwrap_err().code;
    assert_eq!(refused("ttlMonitorNap", Value::Int(1)), Code::InvalidOptions);
    assert_eq!(refused("ttlMonitorSleepSecs", Value::Int(0)), Code::BadValue);
    assert_eq!(refused("ttlMonitorSleepSecs", Value::Int(-1)), Code::BadValue);
    assert_eq!(refused("ttlMonitorSleepSecs", Value::Int(1 << 31)), Code::BadValue);
    assert_eq!(refused("ttlMonitorSleepSecs", Value::Double(1.5)), Code::BadValue);
    assert_eq!(refused("ttlMonitorSleepSecs", Value::Double(f64::NAN)), Code::BadValue);
    assert_eq!(refused("ttlMonitorSleepSecs", Value::from("60")), Code::TypeMismatch);
    assert_eq!(refused("ttlMonitorEnabled", Value::Int(1)), Code::TypeMismatch);
    assert_eq!(refused("ttlIndexDeleteTargetDocs", Value::Int(-1)), Code::BadValue);
    assert_eq!(refused("ttlIndexDeleteTargetTimeMS", Value::Int(-1)), Code::BadValue);
    assert_eq!(refused("ttlMonitorSubPassTargetSecs", Value::Int(-1)), Code::BadValue);
    assert_eq!(refused("ttlClockJumpToleranceSecs", Value::Int(-1)), Code::BadValue);
    assert_eq!(refused("ttlHandOffTimeoutMS", Value::Int(0)), Code::BadValue);
    assert_eq!(parameters, Parameters::default());
    assert_eq!(parameters.get("x").unwrap_err().code, Code::InvalidOptions);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// What a pass drops does not depend on its limits, nor on how many sub-passes they make of it; and in the first
    /// round of the first sub-pass every rule is visited.
    #[test]
    fn the_result_does_not_depend_on_limits(
        due in prop::collection::vec(0_u64..60, 0..6), limit in 0_i64..25, target_secs in 0_i64..4, takes in 0_u64..3,
    ) {
        let clock = Cell::default();
        let names: Vec<_> = (0..due.len()).map(|i| format!("c{i}")).collect();
        let backlog: Vec<_> = names.iter().map(String::as_str).zip(due.iter().copied()).collect();
        let mut target = Target::new(&clock, &backlog);
        target.visit_takes = Duration::from_secs(takes);
        let report = run(&parameters(limit, target_secs), &mut target, None);
        prop_assert_eq!(report.buckets, due.iter().sum::<u64>());
        prop_assert!(target.backlog.values().all(|left| *left == 0));
        prop_assert_eq!(report.sub_passes, target.log.len() as u64);
        prop_assert!(!report.has_more && report.passes == 1);
        let first: Vec<_> = target.log[0].iter().take(names.len()).map(|(name, _)| name.clone()).collect();
        prop_assert_eq!(first, names);
        // A second pass at the same instant has nothing left to do.
        let again = run(&parameters(limit, target_secs), &mut target, None);
        prop_assert_eq!((again.buckets, again.sub_passes), (0, 1));
    }
}
