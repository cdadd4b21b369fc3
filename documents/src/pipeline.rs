//! Aggregation pipelines, document by document, with the meaning and the error codes that MongoDB gives them.
//!
//! 1. A pipeline is read once. A run of it takes documents one by one and hands on what comes out; stages that need all of their
//!    input first ($group, $sort) keep it within one limit of memory, and so do results that wait to be taken.
//! 2. Groups come in the order of their `_id`, so that a result is the same on each run.
//! 3. An unknown stage, operator or accumulator is an error that names it.

mod condition;
mod densify;
mod group;
mod lookup;
mod memory;
mod parse;
mod plan;
mod project;
mod sliding;
mod windows;

use crate::expression::accumulator::number;
use crate::expression::{Constants, Expression, Moment, Scope, check_document};
use crate::raw::owned;
use crate::stop::Stop;
use crate::{DOCUMENT_BYTES_MAX, ExpressionError, Filter, Sort};
use bson::raw::{CString, RawArray, RawBson, RawBsonRef, RawDocumentBuf};
pub use condition::{has_expressions, split_expressions};
pub use lookup::Foreign;
pub use plan::{FirstGroups, GroupPlan, WindowFigures};

use condition::Condition;
use densify::Densify;
use group::{Group, Grouping};
use lookup::{Lookup, Table};
use memory::Memory;
use project::Projector;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use windows::Windows;

type Result<T> = std::result::Result<T, ExpressionError>;

/// A pipeline such as `[{$match: {a: 1}}, {$group: {_id: "$b", n: {$sum: 1}}}]`.
///
/// ```
/// use ebbtide_documents::{Pipeline, bson::rawdoc};
///
/// let stages = rawdoc! { "p": [{ "$group": { "_id": "$b", "n": { "$sum": 1 } } }] };
/// let pipeline = Pipeline::parse(stages.get_array("p")?)?;
/// let mut run = pipeline.run(0, usize::MAX);
/// for b in [1, 2, 1] {
///     run.take(rawdoc! { "b": b })?;
/// }
/// run.finish()?;
/// assert_eq!(run.results(), [rawdoc! { "_id": 1, "n": 2 }, rawdoc! { "_id": 2, "n": 1 }]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Pipeline {
    stages: Vec<Stage>,
}

#[derive(Debug, Clone)]
enum Stage {
    Match(Box<Filter>),
    /// `$match` with `$expr`.
    Condition(Condition),
    Project(Projector),
    Group(Group),
    /// The order, and how many come first at most.
    Sort(Sort, Option<u64>),
    Limit(u64),
    Skip(u64),
    /// The name of the field.
    Count(CString),
    Unwind(Unwind),
    ReplaceRoot(Expression),
    /// `$sample`: this many documents, chosen at random.
    Sample(u64),
    Lookup(Box<Lookup>),
    Windows(Box<Windows>),
    Densify(Box<Densify>),
    /// `$_internalInhibitOptimization`: hands everything on, and what comes after it is not asked of the collection.
    Inhibit,
}

#[derive(Debug, Clone)]
struct Unwind {
    path: Vec<String>,
    index: Option<Vec<String>>,
    keeps_empty: bool,
}

impl Pipeline {
    /// Reads a pipeline.
    ///
    /// # Errors
    /// 40324 for a stage that is not known, and MongoDB's errors of stages, operators and accumulators.
    pub fn parse(stages: &RawArray) -> std::result::Result<Pipeline, ExpressionError> {
        parse::pipeline(stages, &Constants::default())
    }

    /// Reads a pipeline whose expressions see constants by name.
    ///
    /// # Errors
    /// As for [`Pipeline::parse`].
    pub fn parse_with(stages: &RawArray, constants: &Constants) -> std::result::Result<Pipeline, ExpressionError> {
        parse::pipeline(stages, constants)
    }

    /// Takes off the filters at the beginning, which then are asked of the collection: an index may serve them.
    #[must_use]
    pub fn take_leading_matches(&mut self) -> Vec<RawDocumentBuf> {
        let is_filter = |stage: &&Stage| matches!(stage, Stage::Match(_));
        let leading = self.stages.iter().take_while(is_filter).count();
        let taken = self.stages.drain(..leading);
        let filter = |stage| match stage {
            Stage::Match(filter) => Some(filter.as_document().to_owned()),
            _ => None,
        };
        taken.filter_map(filter).collect()
    }

    /// The top-level fields of the documents that it needs; `None` if it may need all.
    #[must_use]
    pub fn needed_fields(&self) -> Option<Vec<String>> {
        let mut fields = Vec::new();
        for stage in &self.stages {
            match stage.needs(&mut fields) {
                Needs::Nothing => {}
                Needs::OnlyThese => return Some(fields),
                Needs::All => return None,
            }
        }
        None
    }

    /// Takes off a `$sort` at the beginning, and the limit of a `$limit` right after it, which then are asked of the collection.
    #[must_use]
    pub fn take_leading_sort(&mut self) -> Option<(RawDocumentBuf, Option<u64>)> {
        let Some(Stage::Sort(sort, limit)) = self.stages.first() else { return None };
        let taken = (sort.to_document(), *limit);
        self.stages.remove(0);
        Some(taken)
    }

    /// Begins a run. `now_ms` is the instant of `$$NOW`, in milliseconds since 1970; `bytes_max` the memory that all stages may keep
    /// together.
    #[must_use]
    pub fn run(&self, now_ms: i64, bytes_max: usize) -> PipelineRun {
        let states = self.stages.iter().map(|stage| match stage {
            Stage::Group(_) => State::Group(Grouping::default()),
            Stage::Sort(..) | Stage::Sample(_) => State::Sort { found: Vec::new(), bytes: 0 },
            Stage::Lookup(_) => State::Lookup(None),
            Stage::Windows(_) | Stage::Densify(_) => State::Kept { found: Vec::new(), bytes: 0 },
            Stage::Limit(_) | Stage::Skip(_) | Stage::Count(_) => State::Counted(0),
            _ => State::Nothing,
        });
        let states = states.collect();
        let (foreign, results) = (Box::new(()), Results::default());
        let memory = Memory::new(bytes_max);
        PipelineRun { stages: self.stages.clone(), states, results, now_ms, memory, is_full: false, foreign }
    }

    /// The collections that its stages look into.
    pub fn foreign_collections(&self) -> impl Iterator<Item = &str> {
        self.stages.iter().filter_map(|stage| match stage {
            Stage::Lookup(lookup) => Some(lookup.from.as_str()),
            _ => None,
        })
    }
}

/// What a stage and those after it need of the documents, beyond the fields that are named.
enum Needs {
    /// It hands on the rest.
    Nothing,
    /// Nothing more.
    OnlyThese,
    All,
}

impl Stage {
    /// Fails if an expression in it has a constant part that fails.
    fn check_constants(&self) -> Result<()> {
        match self {
            Stage::Condition(condition) => condition.check_constants(),
            Stage::Project(projector) => projector.tree.check_constants(),
            Stage::Group(group) => {
                group.id.check_constants()?;
                group.fields.iter().try_for_each(|(_, _, argument)| argument.check_constants())
            }
            Stage::ReplaceRoot(root) => root.check_constants(),
            _ => Ok(()),
        }
    }

    fn needs(&self, fields: &mut Vec<String>) -> Needs {
        let only = |known: bool| if known { Needs::OnlyThese } else { Needs::All };
        let handed_on = |known: bool| if known { Needs::Nothing } else { Needs::All };
        match self {
            Stage::Match(filter) => {
                fields.extend(filter.fields());
                Needs::Nothing
            }
            Stage::Condition(condition) => handed_on(condition.add_fields(fields)),
            Stage::Project(projector) => match projector.others {
                project::Others::LeftOut => only(projector.tree.add_fields(fields)),
                project::Others::Kept => handed_on(projector.tree.add_fields(fields)),
            },
            Stage::Group(group) => only(group.add_fields(fields)),
            Stage::Sort(sort, _) => {
                fields.extend(sort.paths().filter_map(|(path, _)| Some(path.split('.').next()?.to_owned())));
                Needs::Nothing
            }
            Stage::Unwind(unwind) => {
                fields.extend(unwind.path.first().cloned());
                Needs::Nothing
            }
            Stage::ReplaceRoot(root) => only(root.add_fields(fields)),
            Stage::Count(_) => Needs::OnlyThese,
            Stage::Lookup(_) | Stage::Windows(_) | Stage::Densify(_) => Needs::All,
            Stage::Limit(_) | Stage::Skip(_) | Stage::Sample(_) | Stage::Inhibit => Needs::Nothing,
        }
    }
}

#[derive(Debug)]
enum State {
    Nothing,
    Counted(u64),
    Sort {
        found: Vec<(Vec<u8>, RawDocumentBuf)>,
        bytes: usize,
    },
    Group(Grouping),
    /// The other collection, once it was read.
    Lookup(Option<Table>),
    /// Documents of a stage that needs all of them.
    Kept {
        found: Vec<RawDocumentBuf>,
        bytes: usize,
    },
}

/// A run of a pipeline.
#[derive(Debug)]
pub struct PipelineRun {
    stages: Vec<Stage>,
    states: Vec<State>,
    results: Results,
    now_ms: i64,
    memory: Memory,
    /// Whether no further document changes the result.
    is_full: bool,
    foreign: Box<dyn Foreign>,
}

/// Results that were not taken yet.
#[derive(Debug, Default)]
struct Results {
    documents: Vec<RawDocumentBuf>,
    bytes: usize,
}

/// What stages hand documents on with.
struct Feed<'a> {
    stages: &'a [Stage],
    states: &'a mut [State],
    results: &'a mut Results,
    memory: &'a Memory,
    foreign: &'a dyn Foreign,
    moment: Moment<'a>,
}

impl PipelineRun {
    /// With other collections, for `$lookup`.
    #[must_use]
    pub fn with_foreign(self, foreign: Box<dyn Foreign>) -> PipelineRun {
        PipelineRun { foreign, ..self }
    }

    /// Takes the next document. Returns whether more can change the result.
    ///
    /// # Errors
    /// Errors of operators, and `ExceededMemoryLimit` if the stages would keep too much.
    pub fn take(&mut self, document: RawDocumentBuf) -> std::result::Result<bool, ExpressionError> {
        self.take_unless(document, &|| false)
    }

    /// The same; `stop` is asked now and then whether to give up.
    ///
    /// # Errors
    /// As for [`PipelineRun::take`]; 50 if it was stopped.
    pub fn take_unless(
        &mut self,
        document: RawDocumentBuf,
        stop: &dyn Fn() -> bool,
    ) -> std::result::Result<bool, ExpressionError> {
        if self.is_full {
            return Ok(false);
        }
        let stop = Stop(stop);
        stop.check()?;
        let more = self.feed(stop).give(document)?;
        self.is_full = !more;
        Ok(more)
    }

    /// Ends the input.
    ///
    /// # Errors
    /// As for [`PipelineRun::take`].
    pub fn finish(&mut self) -> std::result::Result<(), ExpressionError> {
        self.finish_unless(&|| false)
    }

    /// Ends the input; `stop` is asked now and then whether to give up.
    ///
    /// # Errors
    /// As for [`PipelineRun::take`]; 50 if it was stopped.
    pub fn finish_unless(&mut self, stop: &dyn Fn() -> bool) -> std::result::Result<(), ExpressionError> {
        for at in 0..self.stages.len() {
            let state = std::mem::replace(&mut self.states[at], State::Nothing);
            let mut feed = self.feed(Stop(stop));
            let stage = &feed.stages[at];
            feed.stages = &feed.stages[at + 1..];
            feed.states = &mut feed.states[at + 1..];
            feed.release(stage, state)?;
        }
        Ok(())
    }

    /// The results so far, which are taken.
    pub fn results(&mut self) -> Vec<RawDocumentBuf> {
        self.memory.give_back(self.results.bytes);
        std::mem::take(&mut self.results).documents
    }

    /// The bytes of the results that were not taken yet.
    #[must_use]
    pub fn results_bytes(&self) -> usize {
        self.results.bytes
    }

    fn feed<'a>(&'a mut self, stop: Stop<'a>) -> Feed<'a> {
        let PipelineRun { stages, states, results, now_ms, memory, foreign, .. } = self;
        let moment = Moment { now_ms: *now_ms, stop };
        Feed { stages, states, results, memory, foreign: &**foreign, moment }
    }
}

impl Feed<'_> {
    /// Gives a document to the first stage. Returns whether it can use more.
    fn give(&mut self, document: RawDocumentBuf) -> Result<bool> {
        check_document(&document)?;
        let Some((stage, stages)) = self.stages.split_first() else {
            check_size(&document)?;
            let bytes = kept_bytes(&document);
            self.memory.take(bytes, "the results of a pipeline")?;
            self.results.bytes += bytes;
            self.results.documents.push(document);
            return Ok(true);
        };
        let Some((state, states)) = self.states.split_first_mut() else { return Ok(false) };
        let (memory, foreign, moment) = (self.memory, self.foreign, self.moment);
        let mut next = Feed { stages, states, results: self.results, memory, foreign, moment };
        match (stage, state) {
            (Stage::Match(filter), _) => {
                if filter.matches(&document) {
                    next.give(document)
                } else {
                    Ok(true)
                }
            }
            (Stage::Condition(condition), _) => {
                if condition.holds(&document, moment)? {
                    next.give(document)
                } else {
                    Ok(true)
                }
            }
            (Stage::Project(projector), _) => {
                let projected = projector.apply(&document, &mut Scope::new(&document, moment))?;
                next.give(projected)
            }
            (Stage::Group(group), State::Group(grouping)) => {
                grouping.take(group, &document, moment, memory)?;
                Ok(true)
            }
            (Stage::Sort(sort, limit), State::Sort { found, bytes }) => {
                keep("$sort", sort.key(&document)?, *limit, memory, document, found, bytes)?;
                Ok(true)
            }
            (Stage::Sample(size), State::Sort { found, bytes }) => {
                let key = RandomState::new().hash_one(0_u8).to_be_bytes().to_vec();
                keep("$sample", key, Some(*size), memory, document, found, bytes)?;
                Ok(true)
            }
            (Stage::Lookup(lookup), State::Lookup(table)) => {
                let table = match table {
                    Some(table) => table,
                    None => table.insert(lookup.load(foreign, memory, moment.stop.0)?),
                };
                next.give(lookup.joined(&document, table)?)
            }
            (Stage::Windows(_) | Stage::Densify(_), State::Kept { found, bytes }) => {
                let more = kept_bytes(&document);
                memory.take(more, if matches!(stage, Stage::Windows(_)) { "$setWindowFields" } else { "$densify" })?;
                *bytes += more;
                found.push(document);
                Ok(true)
            }
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

    /// Hands on what a stage has kept.
    fn release(&mut self, stage: &Stage, state: State) -> Result<()> {
        let sorted = |mut found: Vec<(Vec<u8>, RawDocumentBuf)>, limit: Option<u64>| {
            found.sort_by(|a, b| a.0.cmp(&b.0));
            let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
            found.into_iter().take(limit).map(|(_, document)| document).collect()
        };
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
            (Stage::Windows(windows), State::Kept { found, bytes }) => {
                held = bytes;
                windows.apply(found, &mut held, self.moment, self.memory)?
            }
            (Stage::Densify(densify), State::Kept { found, bytes }) => {
                held = bytes;
                densify.apply(found, &mut held, (self.moment.stop, self.memory))?
            }
            (Stage::Group(group), State::Group(grouping)) => {
                held = grouping.bytes();
                grouping.finish(group)?
            }
            (_, State::Lookup(Some(table))) => {
                held = table.bytes;
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
            self.memory.give_back(handed_on);
            held -= handed_on;
            if !self.give(document)? {
                break;
            }
        }
        self.memory.give_back(held);
        Ok(())
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

/// About the memory that a document takes where it is kept.
fn kept_bytes(document: &RawDocumentBuf) -> usize {
    document.as_bytes().len() + 64
}

/// Keeps a document for a sort.
fn keep(
    stage: &str,
    key: Vec<u8>,
    limit: Option<u64>,
    memory: &Memory,
    document: RawDocumentBuf,
    found: &mut Vec<(Vec<u8>, RawDocumentBuf)>,
    bytes: &mut usize,
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

impl Unwind {
    fn give(&self, document: RawDocumentBuf, next: &mut Feed<'_>) -> Result<bool> {
        let mut value = RawBsonRef::Document(&document);
        for name in &self.path {
            let inner = value.as_document().and_then(|object| object.get(name).ok().flatten());
            let Some(inner) = inner else { return self.empty(document.clone(), next) };
            value = inner;
        }
        let list = match value {
            RawBsonRef::Array(list) => list,
            RawBsonRef::Null | RawBsonRef::Undefined => return self.empty(document.clone(), next),
            // A value alone is a list of one, without a number.
            _ => return next.give(self.with_index(document.clone(), RawBson::Null)),
        };
        let elements: Vec<RawBson> = list.into_iter().map_while(std::result::Result::ok).map(owned).collect();
        if elements.is_empty() {
            return if self.keeps_empty {
                let without = project::set(&document, &self.path, None);
                next.give(self.with_index(without, RawBson::Null))
            } else {
                Ok(true)
            };
        }
        // Without the list, which would be copied for each of its elements.
        let rest = project::set(&document, &self.path, Some(RawBson::Null));
        for (at, element) in elements.into_iter().enumerate() {
            next.moment.stop.check()?;
            let unwound = project::set(&rest, &self.path, Some(element));
            let at = RawBson::Int64(i64::try_from(at).unwrap_or(i64::MAX));
            if !next.give(self.with_index(unwound, at))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Of a document without a list.
    fn empty(&self, document: RawDocumentBuf, next: &mut Feed<'_>) -> Result<bool> {
        if self.keeps_empty { next.give(self.with_index(document, RawBson::Null)) } else { Ok(true) }
    }

    fn with_index(&self, document: RawDocumentBuf, at: RawBson) -> RawDocumentBuf {
        match &self.index {
            Some(path) => project::set(&document, path, Some(at)),
            None => document,
        }
    }
}

#[cfg(test)]
mod tests;
