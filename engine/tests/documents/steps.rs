//! What can happen to an ordinary collection.

use crate::documents::{Command, NewDocument, Rule, Which};
use ebbtide::fs::sim::Variant;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// A power cut after so many changing steps of the disk.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    pub(crate) after: u64,
    pub(crate) variant: Variant,
    pub(crate) seed: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Command(Command),
    Pass(i64),
    /// To the instant at which the document with this number in the order of `_id`s expires, and so many milliseconds.
    ToExpiry(u8, i64),
    Work(Work),
    /// A command at the moment when the work begins to write a segment; after it if it writes none.
    Beside(Work, Command),
    Reopen,
    Crash(Cut),
    /// The step is cut off in its midst.
    CutOff(Box<Step>, Cut),
}

/// What the engine does by itself.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    Flush,
    Compact,
    Sweep(i64),
}

fn some_document() -> impl Strategy<Value = NewDocument> {
    let ttl = prop_oneof![3 => Just(None), 2 => select(vec![-1, 1, 10, 60, 3_600]).prop_map(Some)];
    let date = prop_oneof![2 => Just(None), 2 => (-100_i64..200).prop_map(Some)];
    (0_i64..24, 0_i64..100, ttl, date).prop_map(|(id, number, ttl, date)| NewDocument { id, number, ttl, date })
}

fn some_which() -> impl Strategy<Value = Which> {
    prop_oneof![
        4 => (0_i64..24).prop_map(Which::Id),
        1 => vec(0_i64..24, 0..6).prop_map(Which::Ids),
        2 => (0_i64..100).prop_map(Which::NumberAtMost),
        1 => Just(Which::All),
    ]
}

fn some_rule() -> impl Strategy<Value = Rule> {
    let default_ttl = prop_oneof![Just(None), select(vec![-1, 1, 20, 60, 3_600]).prop_map(Some)];
    prop_oneof![
        3 => default_ttl.prop_map(Rule::DefaultTtl),
        2 => select(vec![0, 5, 60]).prop_map(Rule::CreateIndex),
        1 => select(vec![0, 30, 600]).prop_map(Rule::ChangeIndex),
        1 => Just(Rule::DropIndex),
    ]
}

fn some_cut() -> impl Strategy<Value = Cut> {
    let variant = select(Variant::WITHIN_CONTRACT.to_vec());
    (0_u64..12, variant, any::<u64>()).prop_map(|(after, variant, seed)| Cut { after, variant, seed })
}

fn some_write() -> impl Strategy<Value = Command> {
    prop_oneof![
        4 => vec(some_document(), 1..8).prop_map(Command::Put),
        2 => some_document().prop_map(Command::Insert),
        2 => (some_which(), 1_i64..5).prop_map(|(which, number)| Command::Add(which, number)),
        2 => some_which().prop_map(Command::Delete),
    ]
}

fn some_work() -> impl Strategy<Value = Work> {
    prop_oneof![
        3 => Just(Work::Flush),
        2 => Just(Work::Compact),
        3 => select(vec![0_i64, 1, 3]).prop_map(Work::Sweep),
    ]
}

fn some_step() -> impl Strategy<Value = Step> {
    let cuttable = prop_oneof![
        3 => some_write().prop_map(Step::Command),
        2 => some_work().prop_map(Step::Work),
        1 => (some_work(), some_write()).prop_map(|(work, command)| Step::Beside(work, command)),
        2 => some_rule().prop_map(|rule| Step::Command(Command::Change(rule))),
    ];
    let cuttable = cuttable.boxed();
    prop_oneof![
        10 => cuttable.clone(),
        2 => select(vec![1_i64, 9, 30, 100, 4_000]).prop_map(Step::Pass),
        2 => (any::<u8>(), -1_i64..2).prop_map(|(document, ms)| Step::ToExpiry(document, ms)),
        1 => Just(Step::Reopen),
        1 => some_cut().prop_map(Step::Crash),
        2 => (cuttable, some_cut()).prop_map(|(step, cut)| Step::CutOff(Box::new(step), cut)),
    ]
}

pub(crate) fn some_run() -> impl Strategy<Value = Vec<Step>> {
    vec(some_step(), 4..40)
}
