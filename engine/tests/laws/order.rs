//! Law 3: what a pass leaves does not depend on the order in which data arrived and rules were made, nor on limits.

use crate::rig::World;
use crate::steps::{Action, NewRow, Setup, Step, SweepPlan, some_rows, some_setup, some_sweep};
use ebbtide::fs::sim::Random;
use ebbtide::ttl::ExpiryMode;
use proptest::prelude::*;

/// The same data and rules, brought in in two ways.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    setup: Setup,
    rows: Vec<NewRow>,
    seconds: i64,
    shuffle: u64,
    plan: SweepPlan,
}

pub(crate) fn some_case() -> impl Strategy<Value = Case> {
    let mode = prop_oneof![Just(ExpiryMode::Exact), Just(ExpiryMode::Bucket)];
    let seconds = prop_oneof![0..100_i64, 0..200_000_i64];
    (mode.prop_flat_map(some_setup), some_rows(60), seconds, any::<u64>(), some_sweep())
        .prop_map(|(setup, rows, seconds, shuffle, plan)| Case { setup, rows, seconds, shuffle, plan })
}

fn shuffled<T>(mut items: Vec<T>, random: &mut Random) -> Vec<T> {
    for end in (1..items.len()).rev() {
        items.swap(end, random.index(end + 1));
    }
    items
}

pub(crate) fn check(case: &Case) {
    let mut one = World::new(std::slice::from_ref(&case.setup));
    let rows = one.resolve(0, &case.rows);
    if rows.iter().any(|(_, row, _)| !one.pairs[0].model.in_range(row.t)) {
        return; // Arrival has an order then: a refusal concerns a whole insert.
    }
    if one.pairs[0].model.rules.partial.len() < case.setup.partial.len() {
        return; // Of two rules with one filter the second is refused: their order counts.
    }
    one.insert_resolved(0, rows.clone(), false);
    let pass = |world: &mut World| world.apply(0, &Step { of: 0, action: Action::Pass(case.seconds) });
    pass(&mut one);
    one.sweep(&SweepPlan { limit: 0, one_round: false, max_sub_passes: None });

    let mut random = Random::new(case.shuffle);
    let mut setup = case.setup.clone();
    setup.partial.reverse();
    let mut other = World::new(&[setup]);
    let rows = shuffled(rows, &mut random);
    for part in rows.chunks(1 + random.index(9)) {
        other.insert_resolved(0, part.to_vec(), random.chance(1, 2));
        let action = match random.below(4) {
            0 => Action::Flush,
            1 => Action::Compact,
            2 => Action::Reopen,
            _ => continue,
        };
        other.apply(0, &Step { of: 0, action });
    }
    pass(&mut other);
    other.sweep(&SweepPlan { max_sub_passes: None, ..case.plan.clone() });

    assert_eq!(one.seen(0), other.seen(0));
    assert_eq!(one.listed(0), other.listed(0));
    one.check();
    other.check();
}
