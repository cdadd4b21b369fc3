//! How documents go through the stages of a pipeline.

use super::bucket_auto::BucketAuto;
use super::facet::Facets;
use super::group::Grouping;
use super::lookup::{Foreign, Table};
use super::memory::{Memory, kept_bytes};
use super::union::{KeptUnion, UnionWith};
use super::{Result, Stage};
use crate::expression::accumulator::number;
use crate::expression::{Moment, Scope, check_document};
use crate::{DOCUMENT_BYTES_MAX, ExpressionError};
use bson::raw::{RawBson, RawDocumentBuf};
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// What a stage keeps between documents.
#[derive(Debug)]
pub(super) enum State {
    Nothing,
    Counted(u64),
    /// Documents by the keys of their order, and the bytes of both.
    Sort {
        found: Vec<(Vec<u8>, RawDocumentBuf)>,
        bytes: usize,
    },
    Group(Grouping),
    /// The other collection, once it was read.
    Lookup(Option<Box<Table>>),
    /// Documents of a stage that needs all of them.
    Kept {
        found: Vec<RawDocumentBuf>,
        bytes: usize,
    },
    /// A run for each facet.
    Facet(Facets),
    /// Of a `$unionWith`: whether the stages after it need no more, and the documents of the other collection.
    Union {
        is_full: bool,
        kept: KeptUnion,
    },
}

impl State {
    /// The state of each stage before the first document.
    pub(super) fn of(stages: &[Stage]) -> Vec<State> {
        stages.iter().map(State::new).collect()
    }

    fn new(stage: &Stage) -> State {
        match stage {
            Stage::Group(_) => State::Group(Grouping::default()),
            Stage::Sort(..) | Stage::Sample(_) | Stage::BucketAuto(_) => State::Sort { found: Vec::new(), bytes: 0 },
            Stage::Lookup(_) | Stage::Graph(_) => State::Lookup(None),
            Stage::Windows(_) | Stage::Densify(_) => State::Kept { found: Vec::new(), bytes: 0 },
            Stage::Limit(_) | Stage::Skip(_) | Stage::Count(_) => State::Counted(0),
            Stage::Facet(facets) => State::Facet(Facets::new(facets)),
            Stage::Union(_) => State::Union { is_full: false, kept: KeptUnion::default() },
            _ => State::Nothing,
        }
    }

    /// Whether it is of a stage that keeps documents, or what it needs of them, until the end of its input.
    fn keeps_input(&self) -> bool {
        matches!(self, State::Sort { .. } | State::Group(_) | State::Kept { .. } | State::Facet(_))
    }

    /// The bytes that are counted for what it keeps.
    pub(super) fn bytes(&self) -> usize {
        match self {
            State::Sort { bytes, .. } | State::Kept { bytes, .. } => *bytes,
            State::Group(grouping) => grouping.bytes(),
            State::Lookup(table) => table.as_ref().map_or(0, |table| table.bytes()),
            State::Facet(facets) => facets.bytes(),
            State::Union { kept, .. } => kept.bytes(),
            State::Nothing | State::Counted(_) => 0,
        }
    }
}

/// Results that were not taken yet.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) documents: VecDeque<RawDocumentBuf>,
    pub(super) bytes: usize,
}

/// What all stages of a run have in common, also those of pipelines within it.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub(super) memory: &'a Memory,
    pub(super) foreign: &'a dyn Foreign,
    pub(super) moment: Moment<'a>,
}

/// What stages hand documents on with.
pub(super) struct Feed<'a> {
    pub(super) stages: &'a [Stage],
    pub(super) states: &'a mut [State],
    pub(super) results: &'a mut Results,
    pub(super) shared: Shared<'a>,
}

/// The run of a pipeline within another one, with the memory of that one.
#[derive(Debug, Default)]
pub(super) struct InnerRun {
    states: Vec<State>,
    results: Results,
    is_full: bool,
}

impl InnerRun {
    pub(super) fn new(stages: &[Stage]) -> InnerRun {
        InnerRun { states: State::of(stages), results: Results::default(), is_full: false }
    }

    /// Takes the next document. Returns whether more can change the result.
    pub(super) fn take(&mut self, stages: &[Stage], document: RawDocumentBuf, shared: Shared<'_>) -> Result<bool> {
        if !self.is_full {
            self.is_full = !self.feed(stages, shared).give(document)?;
        }
        Ok(!self.is_full)
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// The bytes that are counted for what it keeps.
    pub(super) fn bytes(&self) -> usize {
        self.results.bytes + self.states.iter().map(State::bytes).sum::<usize>()
    }

    /// Ends the input.
    pub(super) fn finish(&mut self, stages: &[Stage], shared: Shared<'_>) -> Result<()> {
        self.feed(stages, shared).finish()
    }

    /// Ends the input and takes the results, whose bytes are still counted. After that another run can begin, which finds the
    /// collections that stages have read so far.
    pub(super) fn restart(&mut self, stages: &[Stage], shared: Shared<'_>) -> Result<Results> {
        let mut feed = self.feed(stages, shared);
        for (at, stage) in stages.iter().enumerate() {
            match stage {
                Stage::Lookup(_) | Stage::Graph(_) => {}
                Stage::Union(union) => feed.unite_again(at, union)?,
                _ => feed.finish_stage(at)?,
            }
        }
        for (state, stage) in self.states.iter_mut().zip(stages) {
            match state {
                State::Lookup(Some(table)) => table.forget_results(shared.memory),
                State::Union { is_full, .. } => *is_full = false,
                _ => *state = State::new(stage),
            }
        }
        self.is_full = false;
        Ok(self.results())
    }

    /// The results so far, which are taken, and the bytes that are still counted for them.
    pub(super) fn results(&mut self) -> Results {
        std::mem::take(&mut self.results)
    }

    fn feed<'a>(&'a mut self, stages: &'a [Stage], shared: Shared<'a>) -> Feed<'a> {
        Feed { stages, states: &mut self.states, results: &mut self.results, shared }
    }
}

impl Feed<'_> {
    /// Gives a document to the first stage. Returns whether it can use more.
    pub(super) fn give(&mut self, document: RawDocumentBuf) -> Result<bool> {
        check_document(&document)?;
        let Some((stage, stages)) = self.stages.split_first() else {
            check_size(&document)?;
            let bytes = kept_bytes(&document);
            self.shared.memory.take(bytes, "the results of a pipeline")?;
            self.results.bytes += bytes;
            self.results.documents.push_back(document);
            return Ok(true);
        };
        let Some((state, states)) = self.states.split_first_mut() else { return Ok(false) };
        let shared = self.shared;
        if state.keeps_input() {
            return keep(stage, state, document, shared);
        }
        let moment = shared.moment;
        let mut next = Feed { stages, states, results: self.results, shared };
        match (stage, state) {
            (Stage::Match(_) | Stage::Condition(_), _) => {
                if stage.admits(&document, moment)? {
                    next.give(document)
                } else {
                    Ok(true)
                }
            }
            (Stage::Project(projector), _) => {
                let projected = projector.apply(&document, &mut Scope::new(&document, moment))?;
                next.give(projected)
            }
            (Stage::Lookup(lookup), State::Lookup(table)) => {
                let joined = lookup.joined(&document, table, shared)?;
                next.give(joined)
            }
            (Stage::Graph(graph), State::Lookup(table)) => {
                let joined = graph.joined(&document, table, shared)?;
                next.give(joined)
            }
            (Stage::Redact(redact), _) => match redact.object(&document, &mut Scope::new(&document, moment))? {
                Some(kept) => next.give(kept),
                None => Ok(true),
            },
            (Stage::Limit(limit), State::Counted(count)) => {
                if *count >= *limit {
                    return Ok(false);
                }
                *count += 1;
                let is_full = *count >= *limit;
                Ok(next.give(document)? && !is_full)
            }
            (Stage::Skip(skip), State::Counted(count)) if *count < *skip => {
                *count += 1;
                Ok(true)
            }
            (Stage::Count(_), State::Counted(count)) => {
                *count += 1;
                Ok(true)
            }
            (Stage::Unwind(unwind), _) => unwind.give(document, &mut next),
            (Stage::Union(_), State::Union { is_full, .. }) => {
                let more = next.give(document)?;
                *is_full = !more;
                Ok(more)
            }
            (Stage::ReplaceRoot(root), _) => match root.evaluate_at(&document, moment)? {
                Some(RawBson::Document(inner)) => next.give(inner),
                other => {
                    let message = format!(
                        "'newRoot' expression must evaluate to an object, but resulting value was of type {}",
                        crate::expression::type_of(&other)
                    );
                    Err(ExpressionError::new(40228, message))
                }
            },
            _ => next.give(document),
        }
    }

    /// Ends the input: each stage in turn hands on what it has kept.
    pub(super) fn finish(&mut self) -> Result<()> {
        (0..self.stages.len()).try_for_each(|at| self.finish_stage(at))
    }

    fn finish_stage(&mut self, at: usize) -> Result<()> {
        let state = std::mem::replace(&mut self.states[at], State::Nothing);
        let stage = &self.stages[at];
        let (stages, states) = (&self.stages[at + 1..], &mut self.states[at + 1..]);
        let mut next = Feed { stages, states, results: self.results, shared: self.shared };
        next.release(stage, state)
    }

    /// Hands on what a stage has kept.
    fn release(&mut self, stage: &Stage, state: State) -> Result<()> {
        let Shared { memory, moment, .. } = self.shared;
        let mut held = 0;
        let kept: Vec<RawDocumentBuf> = match (stage, state) {
            (Stage::Sort(_, limit), State::Sort { found, bytes }) => {
                held = bytes;
                sorted(found, *limit)
            }
            (Stage::Sample(size), State::Sort { found, bytes }) => {
                held = bytes;
                sorted(found, Some(*size))
            }
            (Stage::BucketAuto(buckets), State::Sort { found, bytes }) => {
                held = bytes;
                buckets.apply(found, &mut held, moment, memory)?
            }
            (Stage::Windows(windows), State::Kept { found, bytes }) => {
                held = bytes;
                windows.apply(found, &mut held, moment, memory)?
            }
            (Stage::Densify(densify), State::Kept { found, bytes }) => {
                held = bytes;
                densify.apply(found, &mut held, (moment.stop, memory))?
            }
            (Stage::Group(group), State::Group(grouping)) => {
                held = grouping.bytes();
                grouping.finish(group)?
            }
            (Stage::Facet(facets), State::Facet(runs)) => vec![runs.finish(facets, &mut held, self.shared)?],
            (Stage::Union(union), State::Union { is_full: false, .. }) => {
                return self.unite(union, &mut KeptUnion::nothing());
            }
            (_, State::Lookup(Some(table))) => {
                held = table.bytes();
                Vec::new()
            }
            (Stage::Count(name), State::Counted(count @ 1..)) => {
                let mut document = RawDocumentBuf::new();
                document.append(name, number(count));
                vec![document]
            }
            _ => Vec::new(),
        };
        for document in kept {
            // What is handed on is counted where it goes.
            let handed_on = kept_bytes(&document).min(held);
            memory.give_back(handed_on);
            held -= handed_on;
            if !self.give(document)? {
                break;
            }
        }
        memory.give_back(held);
        Ok(())
    }

    /// Hands on the results of a pipeline over another collection, whose documents are kept for another time.
    fn unite_again(&mut self, at: usize, union: &UnionWith) -> Result<()> {
        let (before, states) = self.states.split_at_mut(at + 1);
        let Some(State::Union { is_full: false, kept }) = before.last_mut() else { return Ok(()) };
        let stages = &self.stages[at + 1..];
        Feed { stages, states, results: self.results, shared: self.shared }.unite(union, kept)
    }

    /// Hands on the results of a pipeline over another collection.
    fn unite(&mut self, union: &UnionWith, kept: &mut KeptUnion) -> Result<()> {
        let shared = self.shared;
        if union.collection.is_empty() {
            return Err(ExpressionError::new(73, "$unionWith must name a collection"));
        }
        let (filter, stages) = union.split();
        let mut run = InnerRun::new(stages);
        let mut is_full = false;
        let mut take = |document: RawDocumentBuf| -> Result<bool> {
            shared.moment.stop.check()?;
            let more = run.take(stages, document, shared)?;
            is_full = !self.give_all(run.results())?;
            Ok(more && !is_full)
        };
        if let Some(documents) = kept.documents() {
            for document in documents {
                if !take(document.clone())? {
                    break;
                }
            }
        } else {
            let mut is_whole = true;
            shared.foreign.visit(&union.collection, &filter, shared.moment.stop.0, &mut |document| {
                kept.add(&document, shared.memory)?;
                is_whole = take(document)?;
                Ok(is_whole)
            })?;
            kept.end(is_whole, shared.memory);
        }
        if is_full {
            shared.memory.give_back(run.bytes());
            return Ok(());
        }
        run.finish(stages, shared)?;
        self.give_all(run.results()).map(drop)
    }

    /// Hands on results of an inner pipeline. Returns whether the next stage can use more.
    fn give_all(&mut self, results: Results) -> Result<bool> {
        self.shared.memory.give_back(results.bytes);
        for document in results.documents {
            if !self.give(document)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Refuses a result that is larger than a document may be, with the room that MongoDB leaves for results.
fn check_size(document: &RawDocumentBuf) -> Result<()> {
    let (bytes, max) = (document.as_bytes().len(), DOCUMENT_BYTES_MAX + (16 << 10));
    if bytes <= max {
        return Ok(());
    }
    let what = format!("a result of {bytes} bytes is too large: size must be between 0 and {max} (16 MB)");
    Err(ExpressionError::new(10334, what))
}

/// The first documents in the order of their keys.
fn sorted(mut found: Vec<(Vec<u8>, RawDocumentBuf)>, limit: Option<u64>) -> Vec<RawDocumentBuf> {
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    found.into_iter().take(limit).map(|(_, document)| document).collect()
}

/// Keeps what a stage needs of a document until the end of its input. Returns whether it can use more documents.
fn keep(stage: &Stage, state: &mut State, document: RawDocumentBuf, shared: Shared<'_>) -> Result<bool> {
    let Shared { memory, moment, .. } = shared;
    match (stage, state) {
        (Stage::Facet(facets), State::Facet(runs)) => return runs.take(facets, &document, shared),
        (Stage::Group(group), State::Group(grouping)) => grouping.take(group, &document, moment, memory)?,
        (_, State::Sort { found, bytes }) => keep_by_key(stage, document, (found, bytes), shared)?,
        (_, State::Kept { found, bytes }) => {
            let more = kept_bytes(&document);
            memory.take(more, if matches!(stage, Stage::Windows(_)) { "$setWindowFields" } else { "$densify" })?;
            *bytes += more;
            found.push(document);
        }
        _ => {}
    }
    Ok(true)
}

/// Keeps a document for a stage that needs all of them in an order.
fn keep_by_key(
    stage: &Stage,
    document: RawDocumentBuf,
    kept: (&mut Vec<(Vec<u8>, RawDocumentBuf)>, &mut usize),
    shared: Shared<'_>,
) -> Result<()> {
    let (name, key, limit) = match stage {
        Stage::Sort(sort, limit) => ("$sort", sort.key(&document)?, *limit),
        Stage::BucketAuto(buckets) => (BucketAuto::NAME, buckets.key(&document, shared.moment)?, None),
        Stage::Sample(size) => ("$sample", RandomState::new().hash_one(0_u8).to_be_bytes().to_vec(), Some(*size)),
        _ => return Ok(()),
    };
    keep_first(name, key, limit, shared.memory, document, kept)
}

/// Keeps a document among the first ones by their keys.
fn keep_first(
    stage: &str,
    key: Vec<u8>,
    limit: Option<u64>,
    memory: &Memory,
    document: RawDocumentBuf,
    (found, bytes): (&mut Vec<(Vec<u8>, RawDocumentBuf)>, &mut usize),
) -> Result<()> {
    let size = |(key, document): &(Vec<u8>, RawDocumentBuf)| key.len() + kept_bytes(document);
    let candidate = (key, document);
    let (before, room) = (*bytes, memory.left());
    *bytes += size(&candidate);
    found.push(candidate);
    let wanted = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    if found.len() > wanted.saturating_mul(2).max(1 << 10) || (*bytes - before > room && found.len() > wanted) {
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found.truncate(wanted);
        *bytes = found.iter().map(size).sum();
    }
    memory.change(before, *bytes, stage)
}
