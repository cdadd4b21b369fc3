//! What a plan does, in words: what `EXPLAIN` tells.
//!
//! `EXPLAIN PLAN` and `EXPLAIN VERBOSE` show the plan itself.

use crate::documents::scan::DocumentsScanExec;
use crate::engine_aggregate::EngineAggregateExec;
use crate::exec::BucketScanExec;
use crate::groups::GroupsExec;
use crate::sorted_runs::SortRunsExec;
use crate::top_k_filter::TopKFilterExec;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::common::Result;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use std::sync::Arc;

/// Nodes that move rows and change none.
const SILENT: [&str; 16] = [
    "CooperativeExec",
    "StoppableExec",
    "CoalesceBatchesExec",
    "CoalescePartitionsExec",
    "ProjectionExec",
    "RepartitionExec",
    "SortPreservingMergeExec",
    "UnorderedExec",
    "OutputRequirementExec",
    "DataSinkExec",
    "PlaceholderRowExec",
    "EncodeTextsExec",
    "DecodeTextsExec",
    // Of workers.
    "BroadcastExec",
    "DistributedExec",
    "SamplerExec",
];

/// A row that tells what a plan does.
pub(crate) fn explained(plan: &Arc<dyn ExecutionPlan>) -> Result<RecordBatch> {
    let mut lines = Vec::new();
    tell(plan, 0, &mut lines);
    if lines.is_empty() {
        lines.push("gives a row without reading anything".to_owned());
    }
    lines.push("(EXPLAIN ANALYZE runs the statement and counts; EXPLAIN PLAN shows the plan itself)".to_owned());
    let column = |text: String| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
    Ok(RecordBatch::try_from_iter([
        ("plan_type", column("what is done, from the inside out".to_owned())),
        ("plan", column(lines.join("\n"))),
    ])?)
}

/// Tells of what a node reads, then of the node.
fn tell(node: &Arc<dyn ExecutionPlan>, depth: usize, lines: &mut Vec<String>) {
    let inputs = node.children();
    let deeper = if inputs.len() > 1 { depth + 1 } else { depth };
    for input in inputs {
        tell(input, deeper, lines);
    }
    if let Some(words) = words(node) {
        let line = format!("{}- {words}", "  ".repeat(depth));
        // The two halves of a sort or a group are one to the reader.
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }
}

fn words(node: &Arc<dyn ExecutionPlan>) -> Option<String> {
    if let Some(scan) = node.downcast_ref::<BucketScanExec>() {
        return Some(scan.words());
    }
    if let Some(scan) = node.downcast_ref::<DocumentsScanExec>() {
        return Some(scan.words());
    }
    if let Some(aggregate) = node.downcast_ref::<EngineAggregateExec>() {
        return Some(aggregate.words());
    }
    if let Some(sort) = node.downcast_ref::<SortExec>() {
        let by = sort.expr().iter().map(|by| plain(&by.to_string())).collect::<Vec<_>>().join(", ");
        return Some(match sort.fetch() {
            Some(rows) => format!("keeps the first {rows} rows by {by}; only these are in memory"),
            None => format!("sorts by {by}; rows beyond --memory go to disk"),
        });
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        return Some(format!("keeps rows where {}", plain(&filter.predicate().to_string())));
    }
    let grouped = node.downcast_ref::<GroupsExec>().map_or(node, GroupsExec::original);
    if let Some(aggregate) = grouped.downcast_ref::<AggregateExec>() {
        let keys: Vec<String> = aggregate.group_expr().expr().iter().map(|(_, name)| plain(name)).collect();
        let calls: Vec<String> = aggregate.aggr_expr().iter().map(|call| plain(call.name())).collect();
        let calls = if calls.is_empty() { "distinct rows".to_owned() } else { calls.join(", ") };
        return Some(match keys.is_empty() {
            true => format!("computes {calls} over all rows"),
            false => format!("computes {calls} for each {}; groups beyond --memory go to disk", keys.join(", ")),
        });
    }
    if let Some(sort) = node.downcast_ref::<SortRunsExec>() {
        let by = plain(&sort.order().to_string());
        return Some(format!(
            "sorts by {by}, whole runs of rows where they are stored so; rows beyond --memory go to disk"
        ));
    }
    if let Some(filter) = node.downcast_ref::<TopKFilterExec>() {
        return Some(plain(&filter.words()));
    }
    #[cfg(feature = "workers")]
    if let Some(words) = crate::workers::words(node) {
        return Some(words);
    }
    let shown = displayable(node.as_ref()).one_line().to_string();
    let detail = shown.trim().split_once(": ").map(|(_, detail)| plain(detail)).unwrap_or_default();
    let told = match node.name() {
        name if SILENT.contains(&name) => return None,
        "HashJoinExec" => format!("joins with a table of the first input in memory: {detail}"),
        "SortMergeJoinExec" => format!("joins inputs that are sorted: {detail}"),
        "NestedLoopJoinExec" => format!("compares each row with each one, which takes long for many: {detail}"),
        "CrossJoinExec" => "pairs each row with each one, which makes many".to_owned(),
        "AsofExec" => "finds for each row the nearest one in time of the second input, which is in memory".to_owned(),
        "GapFillExec" => "adds rows for bins without any; all bins are in memory".to_owned(),
        "ExpiredExec" => "reads what has expired and is still stored".to_owned(),
        "RollupExec" => "merges the bins of a rung and computes those of stored measurements".to_owned(),
        "LatestExec" => "reads the newest bucket of each series".to_owned(),
        "WindowAggExec" => format!("computes over windows, with all rows of a partition in memory: {detail}"),
        "FrameExec" => format!("computes over windows as the rows pass, with a frame in memory: {detail}"),
        "BoundedWindowAggExec" => format!("computes over windows as the rows pass: {detail}"),
        "GlobalLimitExec" | "LocalLimitExec" => format!("ends after some rows: {detail}"),
        "UnionExec" => "gives the rows of one input after the other".to_owned(),
        "StreamingTableExec" => "reads a file as a whole".to_owned(),
        "DataSourceExec" => format!("reads files: {detail}"),
        name => format!("{}: {detail}", name.trim_end_matches("Exec").to_lowercase()),
    };
    Some(told.trim_end_matches([':', ' ']).to_owned())
}

/// An expression without the places of its columns: `temp@2 > 5`.
fn plain(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        told.push_str(&rest[..at]);
        rest = rest[at + 1..].trim_start_matches(|c: char| c.is_ascii_digit());
    }
    told.push_str(rest);
    match told.char_indices().nth(200) {
        Some((end, _)) => format!("{}...", &told[..end]),
        None => told,
    }
}
