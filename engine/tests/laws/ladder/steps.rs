//! What happens in a run with a ladder.

use crate::steps::Cut;
use ebbtide::fs::sim::Variant;
use ebbtide::ttl::Precision;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// A measurement: when, after now or at an edge, of which meta, with which values.
#[derive(Debug, Clone)]
pub(crate) struct NewRow {
    pub(crate) when: When,
    pub(crate) m: Option<i64>,
    pub(crate) i: Option<i64>,
    pub(crate) d: Option<f64>,
    pub(crate) s: Option<u8>,
    pub(crate) b: Option<bool>,
    /// Gives the field `i` a double.
    pub(crate) widens: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum When {
    /// Seconds and units from now.
    Near(i64, i64),
    /// Units from the start of a bin of this width, so many bins ago.
    Edge(i64, i64, i64),
    /// The time of another row.
    Again(u8),
    /// Far outside of the usual.
    Odd(u8),
}

#[derive(Debug, Clone)]
pub(crate) struct LadderStep {
    pub(crate) rungs: Vec<(i64, Option<i64>)>,
    /// Which fields; all if none.
    pub(crate) fields: Option<u8>,
    pub(crate) force: bool,
}

/// A condition of a delete: one meta, a range of seconds from now, the value of `i`.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    pub(crate) m: Option<i64>,
    pub(crate) from: Option<When>,
    pub(crate) to: Option<When>,
    pub(crate) i: Option<i64>,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Insert(Vec<NewRow>),
    Pass(i64),
    Sweep,
    SweepCut(Cut),
    Flush,
    Compact,
    CompactCut(Cut),
    Reopen,
    Crash(Cut),
    Delete(Condition),
    DeleteIntoLadder(Condition),
    Own(Option<i64>),
    Partial(Option<i64>),
    Ladder(LadderStep),
    LadderCut(LadderStep, Cut),
    NoLadder { force: bool },
}

#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) precision: Precision,
    pub(crate) span_seconds: i64,
    pub(crate) is_bucket_mode: bool,
    pub(crate) own: Option<i64>,
    pub(crate) ladder: LadderStep,
    pub(crate) steps: Vec<Step>,
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        6 => (-400_i64..60, -2_i64..3).prop_map(|(seconds, units)| When::Near(seconds, units)),
        5 => (select(vec![10_i64, 60, 120, 3600]), 0_i64..8, -1_i64..2).prop_map(|(w, bins, units)| When::Edge(w, bins, units)),
        2 => any::<u8>().prop_map(When::Again),
        2 => (-90_000_i64..90_000).prop_map(|seconds| When::Near(seconds, 0)),
    ]
}

fn double() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => (-40_i32..80).prop_map(|v| f64::from(v) / 4.0),
        3 => -1e6_f64..1e6,
        1 => select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e15, 5e-324, -1e-7]),
    ]
}

fn new_row() -> impl Strategy<Value = NewRow> {
    let rare = prop_oneof![60 => when(), 1 => any::<u8>().prop_map(When::Odd)];
    let i = prop_oneof![12 => -5_i64..20, 1 => select(vec![i64::MAX, i64::MIN, 1 << 53])];
    let values = (option::weighted(0.9, i), option::weighted(0.8, double()), option::weighted(0.5, 0_u8..6));
    let rest = (option::weighted(0.5, any::<bool>()), proptest::bool::weighted(0.01));
    (rare, option::weighted(0.9, 0_i64..3), values, rest).prop_map(|(when, m, (i, d, s), (b, widens))| NewRow {
        when,
        m,
        i,
        d,
        s,
        b,
        widens,
    })
}

fn ladder() -> impl Strategy<Value = LadderStep> {
    let steps = select(vec![vec![10], vec![60], vec![10, 60], vec![10, 120], vec![60, 120, 3600], vec![10, 60, 3600]]);
    let life = prop_oneof![3 => Just(None), 4 => (0_i64..900).prop_map(Some), 1 => (0_i64..20_000).prop_map(Some)];
    (steps, vec(life, 3), option::weighted(0.4, any::<u8>()), any::<bool>()).prop_map(
        |(steps, lives, fields, force)| {
            // A rung lives at least as long as the one before.
            let mut least = Some(0);
            let mut rungs = Vec::new();
            for (step, life) in steps.into_iter().zip(lives) {
                let life = least.and_then(|least: i64| life.map(|life: i64| life.max(least)));
                least = life;
                rungs.push((step, life));
            }
            LadderStep { rungs, fields, force }
        },
    )
}

fn condition() -> impl Strategy<Value = Condition> {
    let edge = || option::weighted(0.6, when());
    (option::weighted(0.5, 0_i64..3), edge(), edge(), option::weighted(0.2, -5_i64..20))
        .prop_map(|(m, from, to, i)| Condition { m, from, to, i })
}

fn cut() -> impl Strategy<Value = Cut> {
    (0_u64..30, select(Variant::WITHIN_CONTRACT.to_vec()), any::<u64>()).prop_map(|(after, variant, seed)| Cut {
        after,
        variant,
        seed,
    })
}

fn e() -> impl Strategy<Value = Option<i64>> {
    option::weighted(0.85, 0_i64..400)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => vec(new_row(), 1..9).prop_map(Step::Insert),
        5 => (1_i64..400).prop_map(Step::Pass),
        1 => (-200_i64..0).prop_map(Step::Pass),
        7 => Just(Step::Sweep),
        2 => cut().prop_map(Step::SweepCut),
        3 => Just(Step::Flush),
        2 => Just(Step::Compact),
        1 => cut().prop_map(Step::CompactCut),
        1 => Just(Step::Reopen),
        1 => cut().prop_map(Step::Crash),
        3 => condition().prop_map(Step::Delete),
        1 => condition().prop_map(Step::DeleteIntoLadder),
        1 => e().prop_map(Step::Own),
        1 => e().prop_map(Step::Partial),
        2 => ladder().prop_map(Step::Ladder),
        1 => (ladder(), cut()).prop_map(|(ladder, cut)| Step::LadderCut(ladder, cut)),
        1 => any::<bool>().prop_map(|force| Step::NoLadder { force }),
    ]
}

pub(crate) fn some_run() -> impl Strategy<Value = Run> {
    let precision = select(vec![Precision::Ms, Precision::Us, Precision::Ns]);
    let setup = (precision, select(vec![30_i64, 60, 600, 3600]), proptest::bool::weighted(0.25), e(), ladder());
    (setup, vec(step(), 1..18)).prop_map(|((precision, span_seconds, is_bucket_mode, own, ladder), steps)| Run {
        precision,
        span_seconds,
        is_bucket_mode,
        own,
        ladder,
        steps,
    })
}
