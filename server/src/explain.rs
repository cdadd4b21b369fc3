//! `explain`: how a command finds its documents, and what it looked at on the way.
//!
//! 1. The reply has MongoDB's form: `queryPlanner` and, unless that alone is asked for, `executionStats` of a run that changes
//!    nothing.
//! 2. Over measurements it says how many buckets were looked at, which ones were skipped and by what, and how many rows which
//!    rule hides. Each meta has one effective rule, so these are counted rule by rule.

use crate::command::{Command, mismatch, missing};
use crate::conditions;
use crate::cursors::Results;
use crate::error::{CommandError, Result};
use crate::measurements::{Measurements, Query};
use crate::read;
use crate::reply::empty;
use crate::source::Source;
use crate::{aggregate, listed, profile, reply, write};
use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::error::ArrowError;
use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::rawdoc;
use ebbtide::buckets::value_at;
use ebbtide::{CollectionSnapshot, DocumentsSnapshot, MetaFilter, ScanReport, ScanRequest};
use ebbtide_documents::{has_expressions, split_expressions};
use ebbtide_ttl::{Clock, Code, RuleSet, Value};
use std::sync::Arc;

/// What kind of command is explained, and so what its plan is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Find,
    Count,
    Distinct,
    Delete,
    Update,
}

impl Kind {
    /// The stage around the one that looks for documents, with the name of its count.
    fn stage(self, is_time_series: bool) -> Option<(&'static str, &'static str)> {
        match self {
            Kind::Find => None,
            Kind::Count => Some(("COUNT", "nCounted")),
            Kind::Distinct => Some(("PROJECTION_DEFAULT", "nReturned")),
            Kind::Delete if is_time_series => Some(("BATCHED_DELETE", "nWouldDelete")),
            Kind::Delete => Some(("BATCHED_DELETE", "nWouldDelete")),
            Kind::Update => Some(("UPDATE", "nWouldModify")),
        }
    }
}

pub(crate) fn explain(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let RawBsonRef::Document(body) = command.subject() else {
        return Err(mismatch("explain", "a command", command.subject()));
    };
    let executes = match command.string("verbosity")? {
        Some("queryPlanner") => false,
        None | Some("executionStats" | "allPlansExecution") => true,
        Some(_) => {
            let what = "verbosity must be 'queryPlanner', 'executionStats' or 'allPlansExecution'";
            return Err(CommandError::new(Code::BadValue, what));
        }
    };
    let name = body.iter().next().and_then(std::result::Result::ok).map_or("", |(name, _)| name.as_str());
    let nothing = empty();
    let (options, kind) = match name {
        "find" => (read::FIND, Kind::Find),
        "count" => (read::COUNT, Kind::Count),
        "distinct" => (read::DISTINCT, Kind::Distinct),
        "delete" => (write::DELETE, Kind::Delete),
        "update" => (write::UPDATE, Kind::Update),
        "aggregate" => {
            return explain_aggregate(&command.within(body, aggregate::AGGREGATE)?, executes);
        }
        "findAndModify" | "findandmodify" => (write::FIND_AND_MODIFY, Kind::Update),
        other => {
            let shown: String = other.chars().take(60).collect();
            let what = format!("explain of '{}' is not available", shown.escape_debug());
            return Err(CommandError::new(Code::CommandNotFound, what));
        }
    };
    let inner = command.within(body, options)?;
    let filter = match kind {
        Kind::Find => inner.document("filter")?,
        Kind::Delete => only_query(&inner, "deletes")?,
        Kind::Update if name == "update" => only_query(&inner, "updates")?,
        _ => inner.document("query")?,
    };
    let filter = filter.unwrap_or(nothing);
    let limits = Limits {
        skip: if kind == Kind::Find { inner.count("skip")?.unwrap_or(0) } else { 0 },
        limit: if kind == Kind::Find { inner.count("limit")?.filter(|limit| *limit > 0) } else { None },
        sort: if kind == Kind::Find { inner.document("sort")?.unwrap_or(nothing) } else { nothing },
    };
    let reads = matches!(kind, Kind::Find | Kind::Count | Kind::Distinct);
    if reads && has_expressions(filter) {
        let stages = read::matching(filter, limits.sort, limits.skip, limits.limit)?;
        return explain_stages(&inner, &stages, executes);
    }
    let explained = explain_filter(&inner, filter, &limits, kind, executes)?;
    Ok(finished(&inner, explained))
}

/// How a find limits what it gets.
struct Limits<'a> {
    skip: u64,
    limit: Option<u64>,
    sort: &'a RawDocument,
}

/// The query of a command with one write.
fn only_query<'a>(command: &Command<'a>, list: &str) -> Result<Option<&'a RawDocument>> {
    match command.list(list)?.as_slice() {
        [one] => match one.get("q").ok().flatten() {
            Some(RawBsonRef::Document(query)) => Ok(Some(query)),
            Some(other) => Err(mismatch("q", "an object", other)),
            None => Err(missing("q", list)),
        },
        _ => Err(CommandError::new(Code::InvalidOptions, format!("explain takes one of {list} at a time"))),
    }
}

fn finished(command: &Command<'_>, mut explained: RawDocumentBuf) -> RawDocumentBuf {
    explained.append(cstr!("command"), without_generic(command));
    explained.append(
        cstr!("serverInfo"),
        rawdoc! {
            "host": command.shared.address.ip().to_string().as_str(),
            "port": i32::from(command.shared.address.port()),
            "version": env!("CARGO_PKG_VERSION"),
        },
    );
    reply::finished(explained)
}

fn without_generic(command: &Command<'_>) -> RawDocumentBuf {
    let mut shown = RawDocumentBuf::new();
    if let Some(Ok((name, value))) = command.body.iter().next() {
        shown.append(name, value);
    }
    command.options().for_each(|(name, value)| reply::append(&mut shown, name, RawBson::from(value)));
    shown
}

/// What a plan is and what it did.
struct Plan {
    /// The innermost stage.
    stage: RawDocumentBuf,
    /// What it did, if it ran.
    ran: Option<Ran>,
}

struct Ran {
    returned: u64,
    docs: u64,
    keys: u64,
    details: RawDocumentBuf,
}

fn explain_filter(
    command: &Command<'_>,
    filter: &RawDocument,
    limits: &Limits<'_>,
    kind: Kind,
    executes: bool,
) -> Result<RawDocumentBuf> {
    let begun = command.shared.clock.monotonic();
    let (plan, is_time_series) = match Source::of(command)? {
        Source::Missing => {
            ebbtide::FindRequest::new(filter)?;
            let ran = Ran { returned: 0, docs: 0, keys: 0, details: RawDocumentBuf::new() };
            (Plan { stage: rawdoc! { "stage": "EOF" }, ran: executes.then_some(ran) }, false)
        }
        Source::Documents(snapshot) => {
            let snapshot = snapshot.with_stop(command.deadline.stop());
            (of_documents(&snapshot, filter, limits, executes)?, false)
        }
        Source::Profile => {
            let records = profile::records(command);
            let docs = records.len() as u64;
            let returned = listed::matching(records, filter)?.len() as u64;
            let ran = Ran { returned, docs, keys: 0, details: RawDocumentBuf::new() };
            (Plan { stage: rawdoc! { "stage": "COLLSCAN" }, ran: executes.then_some(ran) }, false)
        }
        Source::Measurements(snapshot) => {
            if matches!(kind, Kind::Delete | Kind::Update) {
                // Writes take no other conditions.
                conditions::of_columns(filter)?;
            }
            let query = Query::new(filter)?.sort(limits.sort)?;
            let bytes_max = command.shared.settings.statement_bytes_max;
            let query = query.window(limits.skip, limits.limit, bytes_max);
            (of_measurements(command, snapshot, query, executes)?, true)
        }
    };
    let millis = command.shared.clock.monotonic().saturating_sub(begun).as_millis();
    let namespace = command.namespace(command.collection()?);
    let outer = kind.stage(is_time_series);
    let winning = match outer {
        Some((stage, _)) => rawdoc! { "stage": stage, "inputStage": plan.stage.clone() },
        None => plan.stage.clone(),
    };
    let mut explained = rawdoc! {
        "explainVersion": "1",
        "queryPlanner": {
            "namespace": namespace.as_str(),
            "indexFilterSet": false,
            "parsedQuery": filter.to_owned(),
            "winningPlan": winning,
            "rejectedPlans": [],
        },
    };
    if let Some(ran) = plan.ran {
        let mut stage = plan.stage;
        append_all(
            &mut stage,
            &rawdoc! { "nReturned": reply::count(ran.returned), "docsExamined": reply::count(ran.docs) },
        );
        append_all(&mut stage, &ran.details);
        if let Some((name, counted)) = outer {
            let mut around = rawdoc! { "stage": name };
            reply::append(&mut around, counted, reply::count(ran.returned));
            reply::append(&mut around, "inputStage", stage);
            stage = around;
        }
        explained.append(
            cstr!("executionStats"),
            rawdoc! {
                "executionSuccess": true,
                "nReturned": reply::count(if matches!(kind, Kind::Find | Kind::Distinct) { ran.returned } else { 0 }),
                "executionTimeMillis": reply::number(i64::try_from(millis).unwrap_or(i64::MAX)),
                "totalKeysExamined": reply::count(ran.keys),
                "totalDocsExamined": reply::count(ran.docs),
                "executionStages": stage,
            },
        );
    }
    Ok(explained)
}

fn append_all(document: &mut RawDocumentBuf, more: &RawDocument) {
    more.iter().filter_map(std::result::Result::ok).for_each(|(name, value)| document.append(name, value));
}

/// Over an ordinary collection.
fn of_documents(
    snapshot: &DocumentsSnapshot,
    filter: &RawDocument,
    limits: &Limits<'_>,
    executes: bool,
) -> Result<Plan> {
    let index = snapshot.index_for(filter)?;
    let stage = match index.as_deref() {
        Some("_id_") => rawdoc! { "stage": "IDHACK", "indexName": "_id_" },
        Some(name) => rawdoc! { "stage": "FETCH", "inputStage": { "stage": "IXSCAN", "indexName": name } },
        None => rawdoc! { "stage": "COLLSCAN" },
    };
    let mut ran = None;
    if executes {
        // A sort looks at all that match; without one the first ones are enough.
        let wanted = match limits.limit.filter(|_| limits.sort.is_empty()) {
            Some(limit) => limits.skip.saturating_add(limit),
            None => u64::MAX,
        };
        let mut found = 0_u64;
        let report = snapshot.clone().without_counting().for_each_where(filter, &mut |_| {
            found += 1;
            Ok(found < wanted)
        })?;
        let returned = report.returned.saturating_sub(limits.skip).min(limits.limit.unwrap_or(u64::MAX));
        let keys = if index.is_some() { report.examined } else { 0 };
        ran = Some(Ran { returned, docs: report.examined, keys, details: RawDocumentBuf::new() });
    }
    Ok(Plan { stage, ran })
}

/// The metas of which a rule is the effective one.
#[derive(Debug)]
struct OfRule {
    rules: RuleSet,
    rule: Option<usize>,
    selected: Option<Arc<dyn MetaFilter>>,
}

impl MetaFilter for OfRule {
    fn candidates(&self) -> &[(Vec<String>, Vec<Value>)] {
        self.selected.as_ref().map_or(&[], |selected| selected.candidates())
    }

    fn select(&self, metas: &ArrayRef) -> std::result::Result<BooleanArray, ArrowError> {
        let selected = self.selected.as_ref().map(|filter| filter.select(metas)).transpose()?;
        let one = |at: usize| {
            let is_selected = selected.as_ref().is_none_or(|selected| selected.is_valid(at) && selected.value(at));
            let rule = self.rules.effective(&value_at(metas.as_ref(), at)).map(|(rule, _)| rule);
            Some(is_selected && rule == self.rule)
        };
        Ok((0..metas.len()).map(one).collect())
    }
}

/// Over a time series.
fn of_measurements(command: &Command<'_>, snapshot: CollectionSnapshot, query: Query, executes: bool) -> Result<Plan> {
    let request = query.scan(&snapshot);
    let Some(request) = request else {
        let ran = Ran { returned: 0, docs: 0, keys: 0, details: RawDocumentBuf::new() };
        return Ok(Plan { stage: rawdoc! { "stage": "EOF" }, ran: executes.then_some(ran) });
    };
    let stage = rawdoc! { "stage": "TS_SCAN", "isSorted": query.is_in_order(&snapshot) };
    if !executes {
        return Ok(Plan { stage, ran: None });
    }
    let details = buckets(command, &snapshot, &request)?;
    let docs = details.rows;
    let mut results = Measurements::new(snapshot, query);
    let mut returned = 0;
    while !results.is_done() {
        returned += results.next_batch(usize::MAX, 4 << 20, command.deadline)?.len() as u64;
    }
    Ok(Plan { stage, ran: Some(Ran { returned, docs, keys: 0, details: details.shown }) })
}

struct Buckets {
    /// Visible rows of the buckets that were looked at.
    rows: u64,
    shown: RawDocumentBuf,
}

/// What a scan looks at and skips.
fn buckets(command: &Command<'_>, snapshot: &CollectionSnapshot, request: &ScanRequest) -> Result<Buckets> {
    let skipped = |request: &ScanRequest| -> Result<ScanReport> { Ok(snapshot.scan_reported(request)?.1) };
    let nothing = ScanRequest { projection: Some(Vec::new()), ..ScanRequest::default() };
    let of_time = ScanRequest { time: request.time, ..nothing.clone() };
    let of_meta = ScanRequest { meta: request.meta.clone(), ..of_time.clone() };
    let all = ScanRequest { bounds: request.bounds.clone(), texts: request.texts.clone(), ..of_meta.clone() };
    let (time, meta, statistics) = (skipped(&of_time)?, skipped(&of_meta)?, skipped(&all)?);
    let (mut rows, mut by_rule, mut of_segments) = (0, Vec::new(), 0);
    let rules = snapshot.rules();
    for rule in std::iter::once(None).chain(rules.iter().map(Some)) {
        let index = rule.as_ref().map(|rule| rule.index);
        let selected = OfRule { rules: rules.clone(), rule: index, selected: request.meta.clone() };
        let of_rule = ScanRequest { meta: Some(Arc::new(selected)), ..all.clone() };
        let (units, report) = snapshot.scan_reported(&of_rule)?;
        let mut rows_hidden = report.rows_hidden;
        for unit in &units {
            command.deadline.check()?;
            for batch in unit.read()? {
                rows += batch?.num_rows() as u64;
            }
            rows_hidden += unit.rows_hidden();
        }
        match rule {
            // Segments that are expired as a whole are skipped before their metas are known, for whichever rule.
            None => of_segments = rows_hidden,
            Some(rule) => by_rule.push((rule.label().to_owned(), rows_hidden.saturating_sub(of_segments))),
        }
    }
    let mut hidden = RawArrayBuf::new();
    match by_rule.as_mut_slice() {
        [(_, only)] => *only += of_segments,
        _ if of_segments > 0 => hidden.push(rawdoc! { "wholeSegments": true, "rows": reply::count(of_segments) }),
        _ => {}
    }
    for (rule, rows) in by_rule.into_iter().filter(|(_, rows)| *rows > 0) {
        hidden.push(rawdoc! { "rule": rule, "rows": reply::count(rows) });
    }
    let between =
        |all: ScanReport, before: ScanReport| reply::count(all.buckets_pruned.saturating_sub(before.buckets_pruned));
    let mut shown = rawdoc! {
        "segmentsExamined": reply::count(statistics.segments),
        "bucketsExamined": reply::count(statistics.buckets),
        "bucketsSkipped": {
            "byTime": reply::count(time.buckets_pruned),
            "byMeta": between(meta, time),
            "byStatistics": between(statistics, meta),
        },
        "bucketsHidden": reply::count(statistics.buckets_hidden),
        "rowsHidden": hidden,
    };
    if statistics.rows_pruned > 0 {
        shown.append(cstr!("rowsSkippedByText"), reply::count(statistics.rows_pruned));
    }
    Ok(Buckets { rows, shown })
}

/// `aggregate`, which may be asked to explain itself.
pub(crate) fn aggregate(command: &Command<'_>) -> Result<RawDocumentBuf> {
    match command.switch("explain")? {
        Some(true) => explain_aggregate(command, false),
        _ => aggregate::aggregate(command),
    }
}

/// `aggregate` with `explain`, or the command `explain` of it.
fn explain_aggregate(command: &Command<'_>, executes: bool) -> Result<RawDocumentBuf> {
    let RawBsonRef::Array(stages) = command.required("pipeline")? else {
        return Err(mismatch("pipeline", "a list of stages", command.required("pipeline")?));
    };
    explain_stages(command, stages, executes)
}

fn explain_stages(command: &Command<'_>, stages: &RawArray, executes: bool) -> Result<RawDocumentBuf> {
    let planned = aggregate::plan(command, stages)?;
    let limits = Limits { skip: 0, limit: planned.limit, sort: &planned.sort };
    let cursor = explain_filter(command, &planned.filter, &limits, Kind::Find, executes)?;
    let mut inner = RawDocumentBuf::new();
    for name in ["queryPlanner", "executionStats"] {
        if let Ok(Some(value)) = cursor.get(name) {
            reply::append(&mut inner, name, RawBson::from(value));
        }
    }
    if planned.is_grouped {
        inner.append(cstr!("groupedBy"), "aggregates of the engine");
    }
    let mut shown = RawArrayBuf::new();
    shown.push(rawdoc! { "$cursor": inner });
    rest_of(stages, planned.taken).into_iter().for_each(|stage| shown.push(stage));
    Ok(finished(command, rawdoc! { "explainVersion": "1", "stages": shown }))
}

/// The stages after those that the collection is asked, which is not asked for `$expr`.
fn rest_of(stages: &RawArray, taken: usize) -> Vec<RawDocumentBuf> {
    let mut stages = stages.into_iter().filter_map(std::result::Result::ok).filter_map(RawBsonRef::as_document);
    let last = taken.checked_sub(1).and_then(|before| stages.nth(before));
    let computed = last.and_then(|stage| Some(split_expressions(stage.get_document("$match").ok()?).1));
    let condition = computed.filter(|filter| !filter.is_empty()).map(|filter| rawdoc! { "$match": filter });
    condition.into_iter().chain(stages.map(RawDocument::to_owned)).collect()
}
