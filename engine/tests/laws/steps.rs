//! What can happen to a database, and how a run of it is made up.
//!
//! A step names things by small numbers that are resolved when it runs (the third rule there is, the time at which the
//! fifth bucket goes), so that a run stays meaningful when proptest takes steps out of it.

use crate::meta::{Family, MetaFilter, some_filter};
use ebbtide::fs::sim::Variant;
use ebbtide::ttl::{ExpiryMode, OutOfRange, Precision};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// How a collection starts.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) family: Family,
    pub(crate) precision: Precision,
    pub(crate) span_seconds: i64,
    pub(crate) mode: ExpiryMode,
    pub(crate) out_of_range: OutOfRange,
    pub(crate) own: Option<i64>,
    pub(crate) partial: Vec<(i64, MetaFilter)>,
}

/// Where in time a new measurement lies.
#[derive(Debug, Clone)]
pub(crate) enum When {
    /// So many seconds and nanoseconds from now.
    Near(i64, i32),
    /// So many units from the instant that is just expired under some rule.
    Edge(u8, i64),
    /// So many units from an end of the present window.
    WindowEdge(u8, i64),
    /// Time and meta of a measurement that is there.
    Again(u8),
    /// Outside of 1970..2038, or just inside: one of a list.
    Odd(u8),
}

#[derive(Debug, Clone)]
pub(crate) struct NewRow {
    pub(crate) when: When,
    pub(crate) meta: u8,
    pub(crate) spelling: u8,
    pub(crate) k: i64,
}

/// What is wrong with a measurement that must be refused.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    NoTime,
    TextAsTime,
    TextAsNumber,
}

#[derive(Debug, Clone)]
pub(crate) enum Delete {
    All,
    OutOfRange,
    Older(i64),
    Newer(i64),
    Numbered(i64),
    Metas(MetaFilterOfAny),
}

/// A filter for each family: which one is meant shows when the step runs.
pub(crate) type MetaFilterOfAny = Vec<MetaFilter>;

#[derive(Debug, Clone)]
pub(crate) enum Change {
    Own(Option<i64>),
    Create(i64, MetaFilterOfAny),
    Drop(u8),
    DropAll,
    Retime(u8, i64),
    OutOfRange(OutOfRange),
    Mode(ExpiryMode),
    Span(i64),
    /// Several at once, with a fault in it: nothing of it may happen.
    Refused(i64),
}

#[derive(Debug, Clone)]
pub(crate) struct SweepPlan {
    /// Buckets a visit; 0 is no limit.
    pub(crate) limit: i64,
    /// Whether each sub-pass is one round.
    pub(crate) one_round: bool,
    pub(crate) max_sub_passes: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct Cut {
    /// So many changing operations later the process is gone.
    pub(crate) after: u64,
    pub(crate) variant: Variant,
    pub(crate) seed: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    Insert {
        rows: Vec<NewRow>,
        columnar: bool,
    },
    InsertFaulty {
        rows: Vec<NewRow>,
        at: u8,
        fault: Fault,
    },
    /// Lets so many seconds pass, or steps the clock back.
    Pass(i64),
    /// To so many units from the instant at which some bucket goes.
    ToExpiry(u8, i64),
    /// Sets the wall clock alone.
    Jump(i64),
    Confirm,
    Sweep(SweepPlan),
    SweepCut(Cut),
    Flush,
    FlushCut(Cut),
    Compact,
    CompactCut(Cut),
    Reopen,
    Crash(Cut),
    Delete(Delete),
    Change(Change),
    /// Takes a snapshot and keeps it.
    Hold,
}

#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// Of which collection.
    pub(crate) of: usize,
    pub(crate) action: Action,
}

#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) setups: Vec<Setup>,
    pub(crate) steps: Vec<Step>,
}

fn some_e() -> BoxedStrategy<i64> {
    prop_oneof![
        2 => select(vec![0_i64, 1, 60, 3_600]),
        1 => 0..200_i64,
        1 => select(vec![86_400_i64, 2_592_000, 2_147_483_647]),
    ]
    .boxed()
}

fn some_span() -> impl Strategy<Value = i64> + Clone {
    select(vec![1_i64, 7, 10, 60, 3_600, 86_400, 31_536_000])
}

fn some_seconds() -> BoxedStrategy<i64> {
    prop_oneof![3 => -5..5_i64, 3 => -100..100_i64, 2 => -8_000..4_000_i64, 1 => -200_000..100_000_i64].boxed()
}

fn some_row() -> impl Strategy<Value = NewRow> {
    let units = || select(vec![-1_i64, 0, 1]);
    let when = prop_oneof![
        12 => (some_seconds(), select(vec![0, 1, 499_999_999, 999_999_999])).prop_map(|(s, ns)| When::Near(s, ns)),
        6 => (any::<u8>(), units()).prop_map(|(rule, units)| When::Edge(rule, units)),
        3 => (any::<u8>(), units()).prop_map(|(end, units)| When::WindowEdge(end, units)),
        3 => any::<u8>().prop_map(When::Again),
    ];
    let when = prop_oneof![60 => when, 1 => any::<u8>().prop_map(When::Odd)];
    (when, any::<u8>(), 0..8_u8, 0..4_i64).prop_map(|(when, meta, spelling, k)| NewRow { when, meta, spelling, k })
}

/// Up to so many rows.
pub(crate) fn some_rows(max: usize) -> impl Strategy<Value = Vec<NewRow>> {
    vec(some_row(), 1..max)
}

fn some_cut() -> impl Strategy<Value = Cut> {
    let after = prop_oneof![0..6_u64, 0..40_u64];
    (after, select(Variant::WITHIN_CONTRACT.to_vec()), any::<u64>()).prop_map(|(after, variant, seed)| Cut {
        after,
        variant,
        seed,
    })
}

fn filters() -> impl Strategy<Value = MetaFilterOfAny> {
    Family::ALL.map(some_filter).to_vec()
}

fn some_change() -> impl Strategy<Value = Change> {
    let out_of_range = select(vec![OutOfRange::Suspend, OutOfRange::Reject, OutOfRange::Expire]);
    prop_oneof![
        3 => proptest::option::weighted(0.8, some_e()).prop_map(Change::Own),
        3 => (some_e(), filters()).prop_map(|(e, filters)| Change::Create(e, filters)),
        2 => any::<u8>().prop_map(Change::Drop),
        1 => Just(Change::DropAll),
        2 => (any::<u8>(), some_e()).prop_map(|(rule, e)| Change::Retime(rule, e)),
        1 => out_of_range.prop_map(Change::OutOfRange),
        1 => select(vec![ExpiryMode::Exact, ExpiryMode::Bucket]).prop_map(Change::Mode),
        1 => some_span().prop_map(Change::Span),
        1 => some_e().prop_map(Change::Refused),
    ]
}

fn some_delete() -> impl Strategy<Value = Delete> {
    prop_oneof![
        1 => Just(Delete::All),
        2 => Just(Delete::OutOfRange),
        2 => some_seconds().prop_map(Delete::Older),
        2 => some_seconds().prop_map(Delete::Newer),
        3 => (0..4_i64).prop_map(Delete::Numbered),
        3 => filters().prop_map(Delete::Metas),
    ]
}

pub(crate) fn some_sweep() -> impl Strategy<Value = SweepPlan> {
    let limit = prop_oneof![2 => Just(0_i64), 3 => 1..5_i64];
    let max_sub_passes = proptest::option::weighted(0.2, 1..3_u64);
    (limit, any::<bool>(), max_sub_passes).prop_map(|(limit, one_round, max_sub_passes)| SweepPlan {
        limit,
        one_round,
        max_sub_passes,
    })
}

fn some_action() -> impl Strategy<Value = Action> {
    let fault = select(vec![Fault::NoTime, Fault::TextAsTime, Fault::TextAsNumber]);
    let many = some_rows(12).boxed();
    prop_oneof![
        18 => (many.clone(), any::<bool>()).prop_map(|(rows, columnar)| Action::Insert { rows, columnar }),
        1 => (many, any::<u8>(), fault).prop_map(|(rows, at, fault)| Action::InsertFaulty { rows, at, fault }),
        3 => some_seconds().prop_map(|seconds| Action::Pass(seconds.abs())),
        1 => some_seconds().prop_map(Action::Pass),
        6 => (any::<u8>(), select(vec![-1_i64, 0, 1])).prop_map(|(bucket, units)| Action::ToExpiry(bucket, units)),
        1 => (-10_000..20_000_i64).prop_map(Action::Jump),
        1 => Just(Action::Confirm),
        10 => some_sweep().prop_map(Action::Sweep),
        2 => some_cut().prop_map(Action::SweepCut),
        6 => Just(Action::Flush),
        1 => some_cut().prop_map(Action::FlushCut),
        3 => Just(Action::Compact),
        1 => some_cut().prop_map(Action::CompactCut),
        2 => Just(Action::Reopen),
        2 => some_cut().prop_map(Action::Crash),
        4 => some_delete().prop_map(Action::Delete),
        6 => some_change().prop_map(Action::Change),
        2 => Just(Action::Hold),
    ]
}

pub(crate) fn some_setup(mode: ExpiryMode) -> impl Strategy<Value = Setup> {
    let out_of_range = select(vec![OutOfRange::Suspend, OutOfRange::Suspend, OutOfRange::Reject, OutOfRange::Expire]);
    let precision = select(vec![Precision::Ms, Precision::Us, Precision::Ns]);
    let options = (precision, some_span(), out_of_range, proptest::option::weighted(0.7, some_e()));
    select(Family::ALL.to_vec()).prop_flat_map(move |family| {
        let count = if family == Family::Absent { 0..=0 } else { 0..=2 };
        (options.clone(), vec((some_e(), some_filter(family)), count)).prop_map(
            move |((precision, span_seconds, out_of_range, own), partial)| Setup {
                family,
                precision,
                span_seconds,
                mode,
                out_of_range,
                own,
                partial,
            },
        )
    })
}

/// A run of one or two collections in this mode.
pub(crate) fn some_run(mode: ExpiryMode) -> impl Strategy<Value = Run> {
    let setups = prop_oneof![2 => vec(some_setup(mode), 1), 1 => vec(some_setup(mode), 2)];
    let step = (0..2_usize, some_action()).prop_map(|(of, action)| Step { of, action });
    (setups, vec(step, 1..24)).prop_map(|(setups, steps)| Run { setups, steps })
}
