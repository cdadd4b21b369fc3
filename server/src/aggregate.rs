//! `aggregate`: a pipeline over a collection.
//!
//! Filters at the beginning are asked of the collection, so that an index, or the times and metas of buckets, serve them; the
//! rest is done document by document, while results are fetched.

use crate::batches::first_batch;
use crate::collections::{batch_size, indexes_of, stats_of};
use crate::command::{Command, flag, mismatch};
use crate::cursors::Results;
use crate::error::{CommandError, Result};
use crate::groups::{self, Limits};
use crate::measurements::{Measurements, Query};
use crate::newest::newest;
use crate::piped::{Chained, Context, Piped};
use crate::source::{self, Source};
use crate::{current, listed, output, profile, reply};
use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;
use ebbtide::{CollectionSnapshot, FindRequest};
use ebbtide_documents::{Pipeline, all_of};
use ebbtide_ttl::Code;

pub(crate) const AGGREGATE: &[&str] =
    &["pipeline", "cursor", "explain", "allowDiskUse", "bypassDocumentValidation", "collation", "hint", "let"];

pub(crate) fn aggregate(command: &Command<'_>) -> Result<RawDocumentBuf> {
    command.refuse(&["collation"])?;
    source::check_hint(command, command.get("hint"))?;
    let constants = command.constants()?;
    let RawBsonRef::Array(stages) = command.required("pipeline")? else {
        return Err(mismatch("pipeline", "a list of stages", command.required("pipeline")?));
    };
    command.switch("allowDiskUse")?;
    let cursor_is_given = command.get("cursor").is_some();
    if !cursor_is_given {
        let what = "The 'cursor' option is required, except for aggregate with the explain argument";
        return Err(CommandError::new(Code::FailedToParse, what));
    }
    let of_database =
        matches!(command.subject(), RawBsonRef::Int32(1) | RawBsonRef::Int64(1) | RawBsonRef::Double(1.0));
    let name = if of_database { "$cmd.aggregate" } else { command.collection()? };
    let output = output::split(command, stages)?;
    let stages = output.as_ref().map_or(stages, |(_, before)| before);
    let context = Context::of(command)?;
    let (source, pipeline) = match own_source(command, stages, of_database)? {
        Some((documents, rest)) => (context.list(documents), Pipeline::parse_with(&rest, &constants)?),
        None if of_database => {
            let what = "a pipeline of a database begins with $currentOp; for documents name a collection";
            return Err(CommandError::new(Code::InvalidNamespace, what));
        }
        None => united_source(command, name, Pipeline::parse_with(stages, &constants)?, &context)?,
    };
    let mut results = Piped::over(command, source, &pipeline, &context);
    if let Some((output, _)) = output {
        output.write(command, &mut results)?;
        results = Piped::over(command, context.list(Vec::new()), &Pipeline::default(), &context);
    }
    first_batch(command, &command.namespace(name), Box::new(results), batch_size(command)?, false)
}

/// The results of stages over the collection of a command.
pub(crate) fn piped(command: &Command<'_>, stages: &RawArray) -> Result<Piped> {
    let pipeline = Pipeline::parse_with(stages, &command.constants()?)?;
    let context = Context::of(command)?;
    let (source, pipeline) = collection_source(command, command.collection()?, pipeline, &context)?;
    Ok(Piped::over(command, source, &pipeline, &context))
}

/// What of a pipeline the collection is asked for.
pub(crate) struct Planned {
    pub(crate) filter: RawDocumentBuf,
    pub(crate) sort: RawDocumentBuf,
    pub(crate) limit: Option<u64>,
    /// How many stages that are.
    pub(crate) taken: usize,
    /// Whether the last of them is a `$group` that aggregates of the engine answer.
    pub(crate) is_grouped: bool,
}

/// Plans a pipeline, for `explain`.
pub(crate) fn plan(command: &Command<'_>, stages: &RawArray) -> Result<Planned> {
    command.refuse(&["collation"])?;
    source::check_hint(command, command.get("hint"))?;
    let output = output::split(command, stages)?;
    let before = output.as_ref().map_or(stages, |(_, before)| before);
    let mut pipeline = Pipeline::parse_with(before, &command.constants()?)?;
    let filters = pipeline.take_leading_matches();
    let taken = filters.len();
    let mut planned =
        Planned { filter: all_of(filters), sort: RawDocumentBuf::new(), limit: None, taken, is_grouped: false };
    let Source::Measurements(snapshot) = Source::of(command)? else { return Ok(planned) };
    let query = Query::new(&planned.filter)?;
    if grouped(&limits(command), &snapshot, &query, &pipeline)?.is_some() {
        (planned.taken, planned.is_grouped) = (taken + 1, true);
    } else if let Some((sort, limit)) = pipeline.take_leading_sort() {
        (planned.taken, planned.sort, planned.limit) = (taken + 1, sort, limit);
    }
    Ok(planned)
}

/// The groups of a `$group` at the beginning, if the engine's aggregates answer it.
fn grouped(
    limits: &Limits<'_>,
    snapshot: &CollectionSnapshot,
    query: &Query,
    pipeline: &Pipeline,
) -> Result<Option<Vec<RawDocumentBuf>>> {
    let schema = snapshot.schema();
    let Some(plan) = pipeline.plan_group(&schema.time, schema.meta.as_deref()) else { return Ok(None) };
    groups::grouped(snapshot, query, &plan, limits)
}

/// What the engine's aggregates may take for a command.
pub(crate) fn limits<'a>(command: &Command<'a>) -> Limits<'a> {
    let bytes_max = command.shared.settings.statement_bytes_max;
    Limits { now_ms: command.now_ms, bytes_max, deadline: command.deadline }
}

/// The documents of a stage that makes its own, and the stages after it.
fn own_source(
    command: &Command<'_>,
    stages: &RawArray,
    of_database: bool,
) -> Result<Option<(Vec<RawDocumentBuf>, RawArrayBuf)>> {
    let mut stages = stages.into_iter().filter_map(std::result::Result::ok);
    let Some(RawBsonRef::Document(first)) = stages.next() else { return Ok(None) };
    let Some((name, argument)) = first.iter().next().and_then(std::result::Result::ok) else { return Ok(None) };
    let documents = match (name.as_str(), argument) {
        ("$currentOp", RawBsonRef::Document(options)) if of_database => current_operations(command, options)?,
        ("$indexStats", RawBsonRef::Document(options)) if !of_database && options.is_empty() => index_stats(command)?,
        ("$collStats", RawBsonRef::Document(options)) if !of_database => vec![collection_stats(command, options)?],
        _ => return Ok(None),
    };
    Ok(Some((documents, stages.collect())))
}

/// `$currentOp`. Idle connections and cursors run nothing, and are not shown.
fn current_operations(command: &Command<'_>, options: &RawDocument) -> Result<Vec<RawDocumentBuf>> {
    let known = ["allUsers", "idleConnections", "idleCursors", "idleSessions", "localOps", "truncateOps", "backtrace"];
    let mut sees_all = false;
    for (name, value) in options.iter().filter_map(std::result::Result::ok) {
        if !known.contains(&name.as_str()) {
            let shown: String = name.as_str().chars().take(60).collect();
            let what = format!("unknown option '{}' of $currentOp", shown.escape_debug());
            return Err(CommandError::new(Code::FailedToParse, what));
        }
        let is_set = flag(name.as_str(), value)?;
        sees_all |= is_set && name.as_str() == "allUsers";
    }
    Ok(current::operations(command, !sees_all))
}

/// `$indexStats`: the indexes, and how often each was used. Those of measurements are rules, which tell no query where to look.
fn index_stats(command: &Command<'_>) -> Result<Vec<RawDocumentBuf>> {
    let Ok(indexes) = indexes_of(command) else { return Ok(Vec::new()) };
    let host = command.shared.address.to_string();
    let uses = match Source::of(command)? {
        Source::Documents(snapshot) => snapshot.index_uses(),
        _ => Vec::new(),
    };
    let accesses = |name: Option<&str>| match uses.iter().find(|used| Some(used.name.as_str()) == name) {
        Some(used) => {
            rawdoc! { "ops": i64::try_from(used.count).unwrap_or(i64::MAX), "since": reply::date(used.since) }
        }
        None => rawdoc! { "ops": 0_i64, "since": reply::date(command.shared.begun) },
    };
    let one = |spec: RawDocumentBuf| {
        let mut shown = RawDocumentBuf::new();
        for name in ["name", "key"] {
            if let Ok(Some(value)) = spec.get(name) {
                reply::append(&mut shown, name, RawBson::from(value));
            }
        }
        reply::append(&mut shown, "host", host.as_str());
        reply::append(&mut shown, "accesses", accesses(spec.get_str("name").ok()));
        reply::append(&mut shown, "spec", spec);
        shown
    };
    Ok(indexes.into_iter().map(one).collect())
}

/// `$collStats`.
fn collection_stats(command: &Command<'_>, options: &RawDocument) -> Result<RawDocumentBuf> {
    let name = command.collection()?;
    let mut stats = rawdoc! {
        "ns": command.namespace(name).as_str(),
        "host": command.shared.address.to_string(),
        "localTime": crate::handshake::now(command),
    };
    for (option, value) in options.iter().filter_map(std::result::Result::ok) {
        let figures = |scale| stats_of(command, name, scale);
        match (option.as_str(), value) {
            ("storageStats", RawBsonRef::Document(options)) => {
                let scale = options.get("scale").ok().flatten().and_then(ebbtide_documents::whole_number);
                reply::append(&mut stats, "storageStats", figures(scale.filter(|scale| *scale > 0).unwrap_or(1))?);
            }
            ("count", _) => {
                let count = figures(1)?.get("count").ok().flatten().and_then(ebbtide_documents::whole_number);
                reply::append(&mut stats, "count", reply::number(count.unwrap_or_default()));
            }
            (other, _) => {
                let shown: String = other.chars().take(60).collect();
                let what =
                    format!("'{}' of $collStats is not available: storageStats and count are", shown.escape_debug());
                return Err(CommandError::new(Code::IDLUnknownField, what));
            }
        }
    }
    Ok(stats)
}

/// The documents that a pipeline begins with, and what is left of it. `$unionWith` reads one collection after the other, so that
/// each is asked what its part of the pipeline begins with.
fn united_source(
    command: &Command<'_>,
    name: &str,
    mut pipeline: Pipeline,
    context: &Context,
) -> Result<(Box<dyn Results>, Pipeline)> {
    let mut cut = context.cut_at_union(&mut pipeline);
    let (mut source, mut pipeline) = collection_source(command, name, pipeline, context)?;
    while let Some((union, after)) = cut {
        let first = Piped::over(command, source, &pipeline, context);
        let (other, rest) = united_source(command, &union.collection, union.pipeline, context)?;
        let second = Piped::over(command, other, &rest, context);
        source = Box::new(Chained::new(Box::new(first), Box::new(second)));
        pipeline = after;
        cut = context.cut_at_union(&mut pipeline);
    }
    Ok((source, pipeline))
}

/// The documents of one collection that a pipeline begins with, and what is left of it.
fn collection_source(
    command: &Command<'_>,
    name: &str,
    mut pipeline: Pipeline,
    context: &Context,
) -> Result<(Box<dyn Results>, Pipeline)> {
    let filter = all_of(pipeline.take_leading_matches());
    let source = context.source(name)?;
    // The first collection is that of the command.
    command.note_first_plan(|| source::plan_of(&source, &filter));
    Ok(match source {
        Source::Missing => (context.list(Vec::new()), pipeline),
        Source::Profile => (context.list(listed::matching(profile::records(command), &filter)?), pipeline),
        Source::Documents(snapshot) => (Box::new(snapshot.find(FindRequest::new(&filter)?)), pipeline),
        Source::Measurements(snapshot) => {
            measurements_source(command, snapshot, Query::new(&filter)?, pipeline, context)?
        }
    })
}

/// Groups that the engine's aggregates answer, or measurements in the order of a sort at the beginning.
fn measurements_source(
    command: &Command<'_>,
    snapshot: CollectionSnapshot,
    mut query: Query,
    mut pipeline: Pipeline,
    context: &Context,
) -> Result<(Box<dyn Results>, Pipeline)> {
    let limits = Limits { bytes_max: context.list_bytes(), ..limits(command) };
    if let Some(grouped) = grouped(&limits, &snapshot, &query, &pipeline)? {
        pipeline.skip_first();
        return Ok((context.list(grouped), pipeline));
    }
    if let Some(name) = pipeline.leading_count()
        && let Some(rows) = groups::counted(&snapshot, &query, &limits)?
    {
        let mut document = RawDocumentBuf::new();
        reply::append(&mut document, name, reply::count(rows));
        pipeline.skip_first();
        // Of nothing there is no document.
        return Ok((context.list(if rows == 0 { Vec::new() } else { vec![document] }), pipeline));
    }
    if let Some(documents) = newest(&snapshot, &query, &pipeline)? {
        return Ok((context.list(documents), pipeline));
    }
    let needed = pipeline.needed_fields();
    if let Some((sort, limit)) = pipeline.take_leading_sort() {
        query = query.sort(&sort)?.window(0, limit, command.shared.settings.statement_bytes_max);
    }
    if let Some(fields) = needed {
        query = query.only_fields(fields);
    }
    Ok((Box::new(Measurements::new(snapshot, query)), pipeline))
}
