//! Commands that read: find, count, distinct.

use crate::batches::first_batch;
use crate::command::Command;
use crate::cursors::{List, Results};
use crate::deadline::Deadline;
use crate::error::{CommandError, Result};
use crate::listed::{self, Wanted};
use crate::measurements::{Measurements, Query};
use crate::piped::{Context, Piped, READ_BYTES};
use crate::reply::empty;
use crate::source::{Source, check_hint, plan_of};
use crate::{aggregate, groups, profile, reply};
use bson::raw::{CString, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;
use ebbtide::FindRequest;
use ebbtide_documents::{Distinct, Pipeline, Projection, Sort, TypeClass, has_expressions, whole_number};
use ebbtide_ttl::Code;
use tokio::task::block_in_place;

pub(crate) const FIND: &[&str] = &[
    "filter",
    "sort",
    "projection",
    "skip",
    "limit",
    "batchSize",
    "singleBatch",
    "allowDiskUse",
    "allowPartialResults",
    "collation",
    "hint",
    "let",
    "min",
    "max",
    "returnKey",
    "showRecordId",
    "tailable",
    "awaitData",
    "noCursorTimeout",
    "oplogReplay",
];
const FIND_REFUSED: &[&str] =
    &["collation", "min", "max", "returnKey", "showRecordId", "tailable", "awaitData", "oplogReplay"];
pub(crate) const COUNT: &[&str] = &["query", "limit", "skip", "hint", "collation", "fields"];
pub(crate) const DISTINCT: &[&str] = &["key", "query", "hint", "collation"];

fn document_or_empty<'a>(command: &Command<'a>, option: &str) -> Result<&'a RawDocument> {
    Ok(command.document(option)?.unwrap_or_else(|| empty()))
}

pub(crate) fn find(command: &Command<'_>) -> Result<RawDocumentBuf> {
    command.refuse(FIND_REFUSED)?;
    for switch in ["singleBatch", "allowDiskUse", "allowPartialResults", "noCursorTimeout"] {
        command.switch(switch)?;
    }
    check_name(command)?;
    check_hint(command, command.get("hint"))?;
    let constants = command.constants()?;
    let filter = document_or_empty(command, "filter")?;
    let sort = document_or_empty(command, "sort")?;
    let projection = document_or_empty(command, "projection")?;
    let skip = command.count("skip")?.unwrap_or(0);
    let limit = command.count("limit")?.filter(|limit| *limit > 0);
    // What is computed is computed by a stage.
    let computed = computes(projection).then(|| Computed::of(projection)).transpose()?;
    if has_expressions(filter) {
        let mut stages = matching(filter, sort, skip, limit)?;
        if let Some(computed) = &computed {
            stages.push(rawdoc! { "$project": computed.stage.clone() });
        }
        let chosen = match &computed {
            Some(computed) => computed.elements.clone(),
            None => Projection::parse(projection)?,
        };
        let results = Box::new(block_in_place(|| aggregate::piped(command, &stages))?);
        return answer_find(command, projected(results, chosen));
    }
    let source = Source::of(command)?;
    command.note_plan(|| plan_of(&source, filter));
    let pipeline = |computed: &Computed| {
        let project = RawArrayBuf::from_iter([rawdoc! { "$project": computed.stage.clone() }]);
        Pipeline::parse_with(&project, &constants)
    };
    let pipeline = computed.as_ref().map(pipeline).transpose()?;
    let projection = if computed.is_some() { empty() } else { projection };
    let mut results: Box<dyn Results> = match source {
        Source::Measurements(snapshot) => {
            let sort_bytes_max = command.shared.settings.statement_bytes_max;
            let query = Query::new(filter)?.sort(sort)?.projection(projection)?.window(skip, limit, sort_bytes_max);
            let names_series = query.names_series(snapshot.schema());
            let plan = || Measurements::new(snapshot, query);
            Box::new(if names_series { plan() } else { block_in_place(plan) })
        }
        Source::Profile => {
            let wanted = Wanted { filter, sort, projection, skip, limit };
            Box::new(List::new(listed::find(profile::records(command), &wanted)?))
        }
        other => {
            let mut request = FindRequest::new(filter)?.sort(sort)?.projection(projection)?;
            (request.skip, request.limit) = (skip, limit);
            request.sort_bytes_max = command.shared.settings.statement_bytes_max;
            match other {
                Source::Documents(snapshot) => Box::new(snapshot.find(request)),
                _ => Box::new(List::new(Vec::new())),
            }
        }
    };
    if let (Some(pipeline), Some(computed)) = (pipeline, computed) {
        let piped = Piped::over(command, results, &pipeline, &Context::of(command)?);
        results = projected(Box::new(piped), computed.elements);
    }
    answer_find(command, results)
}

fn answer_find(command: &Command<'_>, results: Box<dyn Results>) -> Result<RawDocumentBuf> {
    let namespace = command.namespace(command.collection()?);
    let only_one = command.switch("singleBatch")?.unwrap_or(false);
    let batch_size = command.count("batchSize")?;
    let is_short = results.is_short();
    let answer = || first_batch(command, &namespace, results, batch_size, only_one);
    if is_short { answer() } else { block_in_place(answer) }
}

/// A find as stages of a pipeline.
pub(crate) fn matching(filter: &RawDocument, sort: &RawDocument, skip: u64, limit: Option<u64>) -> Result<RawArrayBuf> {
    let mut stages = RawArrayBuf::from_iter([rawdoc! { "$match": filter.to_owned() }]);
    if !Sort::parse(sort)?.is_empty() {
        stages.push(rawdoc! { "$sort": sort.to_owned() });
    }
    if skip > 0 {
        stages.push(rawdoc! { "$skip": reply::count(skip) });
    }
    if let Some(limit) = limit {
        stages.push(rawdoc! { "$limit": reply::count(limit) });
    }
    Ok(stages)
}

/// A projection that computes something, in two steps.
struct Computed {
    /// What a `$project` does.
    stage: RawDocumentBuf,
    /// The `$slice` and `$elemMatch` of a find, which choose elements of what the stage keeps.
    elements: Projection,
}

impl Computed {
    fn of(projection: &RawDocument) -> Result<Computed> {
        let mut elements = RawDocumentBuf::new();
        let stage = without_elements("", projection, &mut elements);
        Ok(Computed { stage, elements: Projection::of_elements(&elements)? })
    }
}

/// A projection with whole lists where elements of them are chosen; how these are chosen is added to `elements`.
fn without_elements(prefix: &str, projection: &RawDocument, elements: &mut RawDocumentBuf) -> RawDocumentBuf {
    let mut stage = RawDocumentBuf::new();
    for (name, value) in projection.iter().filter_map(std::result::Result::ok) {
        let path = format!("{prefix}{name}");
        let members = match value {
            RawBsonRef::Document(object) => object.iter().filter_map(std::result::Result::ok).take(2).collect(),
            _ => Vec::new(),
        };
        match (value, members.as_slice()) {
            (_, [(operator, argument)]) if *operator == "$slice" && Projection::is_slice(*argument) => {
                stage.append(name, 1);
            }
            // As what is computed it comes in the order in which it is written.
            (_, [(operator, _)]) if *operator == "$elemMatch" => stage.append(name, format!("${path}")),
            (RawBsonRef::Document(inner), [(first, _), ..]) if !first.as_str().starts_with('$') => {
                stage.append(name, without_elements(&format!("{path}."), inner, elements));
                continue;
            }
            _ => {
                stage.append(name, value);
                continue;
            }
        }
        if let Ok(path) = CString::try_from(path) {
            elements.append(path, value);
        }
    }
    stage
}

/// The results with a find's projection.
fn projected(results: Box<dyn Results>, projection: Projection) -> Box<dyn Results> {
    if projection.is_whole() { results } else { Box::new(Projected { results, projection }) }
}

/// Results of a pipeline, with a find's projection.
struct Projected {
    results: Box<dyn Results>,
    projection: Projection,
}

impl Results for Projected {
    fn next_batch(&mut self, count: usize, bytes: usize, deadline: Deadline<'_>) -> Result<Vec<RawDocumentBuf>> {
        let batch = self.results.next_batch(count, bytes, deadline)?;
        Ok(batch.iter().map(|document| self.projection.apply(document, 0)).collect())
    }

    fn is_done(&self) -> bool {
        self.results.is_done()
    }
}

/// Whether a projection computes something, beyond what `$slice` and `$elemMatch` choose.
fn computes(projection: &RawDocument) -> bool {
    projection.iter().filter_map(std::result::Result::ok).any(|(_, value)| match value {
        RawBsonRef::Document(object) => match object.iter().next() {
            Some(Ok((name, argument))) if name.as_str().starts_with('$') => match name.as_str() {
                "$slice" => !Projection::is_slice(argument),
                name => !matches!(name, "$elemMatch" | "$meta"),
            },
            _ => computes(object),
        },
        RawBsonRef::String(_) | RawBsonRef::Array(_) => true,
        _ => false,
    })
}

pub(crate) fn count(command: &Command<'_>) -> Result<RawDocumentBuf> {
    block_in_place(|| counted(command))
}

/// Refuses a name that no collection can have.
fn check_name(command: &Command<'_>) -> Result<()> {
    if !command.collection()?.contains('$') {
        return Ok(());
    }
    Err(CommandError::new(Code::InvalidNamespace, "the name of a collection must not hold '$'"))
}

/// A negative limit means its magnitude, as in MongoDB; 0 is none.
fn limit_of_count(command: &Command<'_>) -> Result<Option<u64>> {
    let Some(value) = command.get("limit") else { return Ok(None) };
    let Some(limit) = whole_number(value) else {
        let code = if TypeClass::of(value) == TypeClass::Number { Code::FailedToParse } else { Code::BadValue };
        return Err(CommandError::new(code, "limit must be a whole number"));
    };
    Ok(Some(limit.unsigned_abs()).filter(|limit| *limit > 0))
}

fn counted(command: &Command<'_>) -> Result<RawDocumentBuf> {
    command.refuse(&["collation"])?;
    check_name(command)?;
    check_hint(command, command.get("hint"))?;
    let filter = document_or_empty(command, "query")?;
    let limit = limit_of_count(command)?;
    let skip = command.count("skip")?.unwrap_or(0);
    if has_expressions(filter) {
        let mut stages = matching(filter, empty(), skip, limit)?;
        stages.push(rawdoc! { "$count": "n" });
        let counted = aggregate::piped(command, &stages)?.next_batch(1, READ_BYTES, command.deadline)?;
        let counted = counted.first().and_then(|counted| counted.get("n").ok()?).and_then(whole_number);
        return Ok(reply::finished(rawdoc! { "n": reply::count(counted.map_or(0, i64::unsigned_abs)) }));
    }
    let source = Source::of(command)?;
    command.note_plan(|| plan_of(&source, filter));
    let found = match source {
        Source::Documents(snapshot) if filter.is_empty() => snapshot.count()?,
        Source::Documents(snapshot) => snapshot.with_stop(command.deadline.stop()).count_where(filter)?,
        Source::Profile => listed::matching(profile::records(command), filter)?.len() as u64,
        Source::Measurements(snapshot) if filter.is_empty() => snapshot.count()?,
        Source::Measurements(snapshot) => {
            let query = Query::new(filter)?;
            match groups::counted(&snapshot, &query, &aggregate::limits(command))? {
                Some(found) => found,
                None => one_by_one(command, &mut Measurements::new(snapshot, query.only_fields([])))?,
            }
        }
        Source::Missing => {
            FindRequest::new(filter)?;
            0
        }
    };
    let counted = found.saturating_sub(skip).min(limit.unwrap_or(u64::MAX));
    Ok(reply::finished(rawdoc! { "n": reply::count(counted) }))
}

fn one_by_one(command: &Command<'_>, results: &mut dyn Results) -> Result<u64> {
    let mut found = 0;
    while !results.is_done() {
        found += results.next_batch(usize::MAX, usize::MAX, command.deadline)?.len() as u64;
    }
    Ok(found)
}

pub(crate) fn distinct(command: &Command<'_>) -> Result<RawDocumentBuf> {
    command.refuse(&["collation"])?;
    check_name(command)?;
    check_hint(command, command.get("hint"))?;
    let filter = document_or_empty(command, "query")?;
    let path = command.string("key")?.ok_or_else(|| crate::command::missing("key", "distinct"))?;
    if has_expressions(filter) {
        let mut matching = aggregate::piped(command, &matching(filter, empty(), 0, None)?)?;
        return different(command, path, &mut matching).map(values_reply);
    }
    let source = Source::of(command)?;
    command.note_plan(|| plan_of(&source, filter));
    let values = match source {
        Source::Documents(snapshot) => snapshot.with_stop(command.deadline.stop()).distinct(path, filter)?,
        Source::Profile => {
            let mut values = Distinct::new(path)?;
            listed::matching(profile::records(command), filter)?.iter().for_each(|record| values.add(record));
            values.into_values()
        }
        Source::Measurements(snapshot) => {
            let query = Query::new(filter)?.only_fields(path.split('.').take(1).map(str::to_owned));
            match groups::metas_by(&snapshot, &query, path, &aggregate::limits(command))? {
                Some(documents) => different(command, path, &mut List::new(documents))?,
                None => different(command, path, &mut Measurements::new(snapshot, query))?,
            }
        }
        Source::Missing => {
            FindRequest::new(filter)?;
            Distinct::new(path)?.into_values()
        }
    };
    Ok(values_reply(values))
}

/// The different values that a path reaches in documents.
fn different(command: &Command<'_>, path: &str, results: &mut dyn Results) -> Result<Vec<RawBson>> {
    let mut values = Distinct::new(path)?;
    while !results.is_done() {
        let batch = results.next_batch(usize::MAX, READ_BYTES, command.deadline)?;
        batch.iter().for_each(|document| values.add(document));
        if values.bytes() > ebbtide_documents::DOCUMENT_BYTES_MAX {
            let what = "the different values are larger than a document may be: use an aggregation with $group";
            return Err(CommandError::new(Code::BSONObjectTooLarge, what));
        }
    }
    Ok(values.into_values())
}

fn values_reply(values: Vec<RawBson>) -> RawDocumentBuf {
    let list: RawArrayBuf = values.into_iter().collect();
    reply::finished(rawdoc! { "values": list })
}
