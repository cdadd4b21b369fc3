//! `aggregate`: a pipeline over a collection.
//!
//! Filters at the beginning are asked of the collection, so that an index, or the times and metas of buckets, serve them; the
//! rest is done document by document, while results are fetched.

use crate::batches::first_batch;
use crate::collections::{batch_size, stats_of};
use crate::command::{Command, mismatch};
use crate::cursors::{List, Results};
use crate::deadline::Deadline;
use crate::error::{CommandError, Result};
use crate::groups::{self, Limits};
use crate::measurements::{Measurements, Query};
use crate::read::Source;
use crate::{admin, reply};
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;
use ebbtide::{CollectionSnapshot, FindRequest};
use ebbtide_documents::{Pipeline, PipelineRun};
use ebbtide_ttl::{Clock, Code, Precision};

pub(crate) const AGGREGATE: &[&str] =
    &["pipeline", "cursor", "explain", "allowDiskUse", "bypassDocumentValidation", "collation", "hint", "let"];

/// Documents that are read at a time.
const READ: usize = 1024;
/// Bytes of them.
const READ_BYTES: usize = 4 << 20;

pub(crate) fn aggregate(command: &Command<'_>) -> Result<RawDocumentBuf> {
    command.refuse(&["explain", "collation", "hint", "let"])?;
    let RawBsonRef::Array(stages) = command.required("pipeline")? else {
        return Err(mismatch("pipeline", "a list of stages", command.required("pipeline")?));
    };
    let cursor_is_given = command.get("cursor").is_some();
    if !cursor_is_given {
        let what = "The 'cursor' option is required, except for aggregate with the explain argument";
        return Err(CommandError::new(Code::FailedToParse, what));
    }
    let of_database =
        matches!(command.subject(), RawBsonRef::Int32(1) | RawBsonRef::Int64(1) | RawBsonRef::Double(1.0));
    let name = if of_database { "$cmd.aggregate" } else { command.collection()? };
    let (source, pipeline) = match own_source(command, stages, of_database)? {
        Some((documents, rest)) => (Box::new(List::new(documents)) as Box<dyn Results>, Pipeline::parse(&rest)?),
        None if of_database => {
            let what = "a pipeline of a database begins with $currentOp; for documents name a collection";
            return Err(CommandError::new(Code::InvalidNamespace, what));
        }
        None => collection_source(command, Pipeline::parse(stages)?)?,
    };
    let run = pipeline.run(now_ms(command), command.shared.settings.sort_bytes_max);
    let results = Piped { source: Some(source), run, ready: Vec::new().into_iter() };
    first_batch(command, &command.namespace(name), Box::new(results), batch_size(command)?, false)
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
        ("$currentOp", _) if of_database => admin::operations(command)?,
        ("$collStats", RawBsonRef::Document(options)) if !of_database => vec![collection_stats(command, options)?],
        _ => return Ok(None),
    };
    Ok(Some((documents, stages.collect())))
}

/// `$collStats`.
fn collection_stats(command: &Command<'_>, options: &RawDocument) -> Result<RawDocumentBuf> {
    let name = command.collection()?;
    let mut stats = rawdoc! { "ns": command.namespace(name).as_str(), "localTime": crate::handshake::now(command) };
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

/// The documents that a pipeline begins with, and what is left of it.
fn collection_source(command: &Command<'_>, whole: Pipeline) -> Result<(Box<dyn Results>, Pipeline)> {
    let mut pipeline = whole.clone();
    let filter = all_of(pipeline.take_leading_matches());
    Ok(match Source::of(command)? {
        Source::Missing => (Box::new(List::new(Vec::new())), pipeline),
        Source::Documents(snapshot) => (Box::new(snapshot.find(FindRequest::new(&filter)?)), pipeline),
        Source::Measurements(snapshot) => {
            // What a filter on measurements does not know is asked of each document.
            let (query, pipeline) = match Query::new(&filter) {
                Ok(query) => (query, pipeline),
                Err(_) => (Query::new(&rawdoc! {})?, whole),
            };
            measurements_source(command, snapshot, query, pipeline)?
        }
    })
}

/// Groups that the engine's aggregates answer, or measurements in the order of a sort at the beginning.
fn measurements_source(
    command: &Command<'_>,
    snapshot: CollectionSnapshot,
    mut query: Query,
    mut pipeline: Pipeline,
) -> Result<(Box<dyn Results>, Pipeline)> {
    let schema = snapshot.schema();
    if let Some(plan) = pipeline.plan_group(&schema.time, schema.meta.as_deref()) {
        let bytes_max = command.shared.settings.sort_bytes_max;
        let limits = Limits { now_ms: now_ms(command), bytes_max, deadline: command.deadline };
        if let Some(grouped) = groups::grouped(&snapshot, &query, &plan, &limits)? {
            pipeline.skip_first();
            return Ok((Box::new(List::new(grouped)), pipeline));
        }
    }
    let needed = pipeline.needed_fields();
    if let Some((sort, limit)) = pipeline.take_leading_sort() {
        query = query.sort(&sort)?.window(0, limit, command.shared.settings.sort_bytes_max);
    }
    if let Some(fields) = needed {
        query = query.only_fields(fields);
    }
    Ok((Box::new(Measurements::new(snapshot, query)), pipeline))
}

/// The instant of `$$NOW`.
fn now_ms(command: &Command<'_>) -> i64 {
    command.shared.clock.now().to_units_saturating(Precision::Ms)
}

/// One filter for several.
fn all_of(mut filters: Vec<RawDocumentBuf>) -> RawDocumentBuf {
    match filters.len() {
        0 => RawDocumentBuf::new(),
        1 => filters.remove(0),
        _ => rawdoc! { "$and": filters.into_iter().collect::<RawArrayBuf>() },
    }
}

/// Results of a pipeline.
struct Piped {
    /// Nothing once all has been read.
    source: Option<Box<dyn Results>>,
    run: PipelineRun,
    ready: std::vec::IntoIter<RawDocumentBuf>,
}

impl Piped {
    /// Reads until something comes out, or the end.
    fn fill(&mut self, deadline: Deadline<'_>) -> Result<()> {
        while self.ready.as_slice().is_empty() {
            let Some(source) = &mut self.source else { return Ok(()) };
            deadline.check()?;
            let mut more = true;
            for document in source.next_batch(READ, READ_BYTES, deadline)? {
                more = self.run.take(document)?;
                if !more {
                    break;
                }
            }
            if !more || source.is_done() {
                self.source = None;
                self.run.finish()?;
            }
            self.ready = self.run.results().into_iter();
        }
        Ok(())
    }
}

impl Results for Piped {
    fn next_batch(&mut self, count: usize, bytes: usize, deadline: Deadline<'_>) -> Result<Vec<RawDocumentBuf>> {
        let (mut batch, mut size) = (Vec::new(), 0);
        while batch.len() < count {
            self.fill(deadline)?;
            let Some(next) = self.ready.as_slice().first() else { break };
            size += next.as_bytes().len();
            if size > bytes && !batch.is_empty() {
                return Ok(batch);
            }
            batch.extend(self.ready.next());
        }
        // So that the reply with the last documents also says that there are no more.
        if count > 0 {
            self.fill(deadline)?;
        }
        Ok(batch)
    }

    fn is_done(&self) -> bool {
        self.source.is_none() && self.ready.as_slice().is_empty()
    }
}
