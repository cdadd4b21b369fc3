//! Aggregation pipelines, document by document, with the meaning and the error codes that MongoDB gives them.
//!
//! 1. A pipeline is read once. A run of it takes documents one by one and hands on what comes out; stages that need all of their
//!    input first ($group, $sort) keep it within one limit of memory, and so do results that wait to be taken.
//! 2. Groups come in the order of their `_id`, so that a result is the same on each run.
//! 3. An unknown stage, operator or accumulator is an error that names it.

mod bucket_auto;
mod condition;
mod covariance;
mod densify;
mod facet;
mod feed;
mod graph;
mod group;
mod lookup;
mod memory;
mod parse;
mod plan;
mod project;
mod redact;
mod sliding;
mod union;
mod unwind;
mod windows;

use crate::expression::{Constants, Expression, Moment};
use crate::stop::Stop;
use crate::{ExpressionError, Filter, Sort};
use bson::raw::{CString, RawArray, RawArrayBuf, RawDocument, RawDocumentBuf};
use bson::rawdoc;
pub use condition::{has_expressions, split_expressions};
pub use lookup::{Foreign, Take};
pub use memory::Memory;
pub use plan::{FirstGroups, GroupPlan, WindowFigures};
pub use union::UnionWith;

use bucket_auto::BucketAuto;
use condition::Condition;
use densify::Densify;
use facet::Facet;
use feed::{Feed, Results, Shared, State};
use graph::GraphLookup;
use group::Group;
use lookup::Lookup;
use memory::kept_bytes;
use project::Projector;
use redact::Redact;
use unwind::Unwind;
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
    Graph(Box<GraphLookup>),
    Redact(Redact),
    Windows(Box<Windows>),
    Densify(Box<Densify>),
    BucketAuto(Box<BucketAuto>),
    Facet(Vec<Facet>),
    Union(Box<UnionWith>),
    /// `$_internalInhibitOptimization`: hands everything on, and what comes after it is not asked of the collection.
    Inhibit,
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

    /// Checks the outline of a pipeline: the names of its stages, and the collections that these read and write. MongoDB reports a
    /// mistake in it before any other.
    ///
    /// # Errors
    /// 40324 for a stage that is not known, and MongoDB's errors of `$facet`, `$lookup`, `$graphLookup`, `$unionWith`, `$out` and
    /// `$merge`.
    pub fn check_outline(stages: &RawArray) -> std::result::Result<(), ExpressionError> {
        parse::check_outline(stages)
    }

    /// Takes off the filters at the beginning, which then are asked of the collection: an index may serve them.
    #[must_use]
    pub fn take_leading_matches(&mut self) -> Vec<RawDocumentBuf> {
        let filters: Vec<_> = self.stages.iter().map_while(Stage::as_filter).collect();
        self.stages.drain(..filters.len());
        filters
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
        self.run_within(now_ms, &Memory::new(bytes_max))
    }

    /// Begins a run that shares its memory with others.
    #[must_use]
    pub fn run_within(&self, now_ms: i64, memory: &Memory) -> PipelineRun {
        PipelineRun {
            stages: self.stages.clone(),
            states: State::of(&self.stages),
            results: Results::default(),
            now_ms,
            memory: memory.clone(),
            is_full: false,
            foreign: Box::new(()),
        }
    }

    fn check_constants(&self) -> Result<()> {
        self.stages.iter().try_for_each(Stage::check_constants)
    }

    /// Whether its stages read other collections.
    #[must_use]
    pub fn reads_others(&self) -> bool {
        self.stages.iter().any(Stage::reads_others)
    }
}

/// One filter for several.
#[must_use]
pub fn all_of(mut filters: Vec<RawDocumentBuf>) -> RawDocumentBuf {
    match filters.len() {
        0 => RawDocumentBuf::new(),
        1 => filters.remove(0),
        _ => rawdoc! { "$and": filters.into_iter().collect::<RawArrayBuf>() },
    }
}

/// The stages through which a document may pass within one call, with those of inner pipelines. Calls nest that deep.
fn height(stages: &[Stage]) -> usize {
    stages.len() + stages.iter().map(Stage::height).max().unwrap_or(0)
}

/// The conditions at the beginning of stages, and the stages after them: what does not match need not be copied for these.
fn split_conditions(stages: &[Stage]) -> (&[Stage], &[Stage]) {
    stages.split_at(stages.iter().take_while(|stage| stage.is_condition()).count())
}

/// Whether a document meets the conditions of stages.
fn all_hold(stages: &[Stage], document: &RawDocument, moment: Moment<'_>) -> Result<bool> {
    for stage in stages {
        if !stage.admits(document, moment)? {
            return Ok(false);
        }
    }
    Ok(true)
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
    /// The filter that it is, if a collection can be asked it.
    fn as_filter(&self) -> Option<RawDocumentBuf> {
        match self {
            Stage::Match(filter) => Some(filter.as_document().to_owned()),
            _ => None,
        }
    }

    fn is_condition(&self) -> bool {
        matches!(self, Stage::Match(_) | Stage::Condition(_))
    }

    /// Whether it hands a document on, as far as that is a question of its condition.
    fn admits(&self, document: &RawDocument, moment: Moment<'_>) -> Result<bool> {
        match self {
            Stage::Match(filter) => Ok(filter.matches(document)),
            Stage::Condition(condition) => condition.holds(document, moment),
            _ => Ok(true),
        }
    }

    fn reads_others(&self) -> bool {
        match self {
            Stage::Lookup(_) | Stage::Graph(_) | Stage::Union(_) => true,
            Stage::Facet(facets) => facets.iter().any(|facet| facet.pipeline.reads_others()),
            _ => false,
        }
    }

    /// The height of the pipelines within it.
    fn height(&self) -> usize {
        match self {
            Stage::Lookup(lookup) => lookup.inner.as_ref().map_or(0, |inner| height(&inner.stages)),
            Stage::Union(union) => height(&union.pipeline.stages),
            Stage::Facet(facets) => facets.iter().map(|facet| height(&facet.pipeline.stages)).max().unwrap_or(0),
            _ => 0,
        }
    }

    /// Fails if an expression in it has a constant part that fails.
    fn check_constants(&self) -> Result<()> {
        match self {
            Stage::Condition(condition) => condition.check_constants(),
            Stage::Project(projector) => projector.tree.check_constants(),
            Stage::Group(group) => {
                group.id.check_constants()?;
                group.fields.iter().try_for_each(|(_, _, argument)| argument.check_constants())
            }
            Stage::BucketAuto(buckets) => {
                buckets.by.check_constants()?;
                buckets.fields.iter().try_for_each(|(_, _, argument)| argument.check_constants())
            }
            Stage::ReplaceRoot(root) | Stage::Redact(Redact(root)) => root.check_constants(),
            Stage::Lookup(lookup) => match &lookup.inner {
                Some(inner) => inner.stages.iter().try_for_each(Stage::check_constants),
                None => Ok(()),
            },
            Stage::Union(union) => union.pipeline.check_constants(),
            Stage::Facet(facets) => facets.iter().try_for_each(|facet| facet.pipeline.check_constants()),
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
            Stage::BucketAuto(buckets) => {
                only(buckets.by.add_fields(fields) && group::add_fields(&buckets.fields, fields))
            }
            Stage::Facet(facets) => {
                let needed: Option<Vec<_>> = facets.iter().map(|facet| facet.pipeline.needed_fields()).collect();
                fields.extend(needed.iter().flatten().flatten().cloned());
                only(needed.is_some())
            }
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
            Stage::Lookup(_) | Stage::Graph(_) | Stage::Redact(_) | Stage::Windows(_) | Stage::Densify(_) => Needs::All,
            Stage::Limit(_) | Stage::Skip(_) | Stage::Sample(_) | Stage::Union(_) | Stage::Inhibit => Needs::Nothing,
        }
    }
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

impl PipelineRun {
    /// With other collections, for `$lookup`, `$graphLookup` and `$unionWith`.
    #[must_use]
    pub fn with_foreign(mut self, foreign: Box<dyn Foreign>) -> PipelineRun {
        self.foreign = foreign;
        self
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
        self.feed(Stop(stop)).finish()
    }

    /// The results so far, which are taken.
    pub fn results(&mut self) -> Vec<RawDocumentBuf> {
        self.memory.give_back(self.results.bytes);
        std::mem::take(&mut self.results).documents.into()
    }

    /// The first of the results that were not taken yet.
    #[must_use]
    pub fn next_result(&self) -> Option<&RawDocumentBuf> {
        self.results.documents.front()
    }

    /// Takes the first of the results that were not taken yet.
    pub fn take_result(&mut self) -> Option<RawDocumentBuf> {
        let result = self.results.documents.pop_front()?;
        let bytes = kept_bytes(&result);
        self.memory.give_back(bytes);
        self.results.bytes -= bytes;
        Some(result)
    }

    /// The bytes of the results that were not taken yet.
    #[must_use]
    pub fn results_bytes(&self) -> usize {
        self.results.bytes
    }

    fn feed<'a>(&'a mut self, stop: Stop<'a>) -> Feed<'a> {
        let PipelineRun { stages, states, results, now_ms, memory, foreign, .. } = self;
        let moment = Moment { now_ms: *now_ms, stop, variables: &[] };
        Feed { stages, states, results, shared: Shared { memory, foreign: &**foreign, moment } }
    }
}

impl Drop for PipelineRun {
    /// What it kept no longer counts for the runs that share its memory.
    fn drop(&mut self) {
        self.memory.give_back(self.results.bytes + self.states.iter().map(State::bytes).sum::<usize>());
    }
}

#[cfg(test)]
mod tests;
