//! Messages of an import: how it interpreted the input, and the result.

use super::bar::rate;
use super::command;
use super::doubts;
use super::job::Job;
use super::plan::CheckResult;
use super::plan::Plan;
use crate::args::{Cli, ImportArgs};
use crate::human::{counted, grouped};
use ebbtide_query::text_table::infer::Kind;
use std::time::Duration;

/// Maximum number of columns that are listed.
const COLUMNS_MAX: usize = 60;

/// Prints the detected options, as the full command.
pub(super) fn options(cli: &Cli, given: &ImportArgs, found: &ImportArgs) {
    let line = command::line(cli, found);
    if line != command::line(cli, given) {
        eprintln!("detected how the input is written; the full command is:\n  {line}");
    }
}

/// Prints the types of the columns.
pub(super) fn columns(plan: &Plan<'_>, checked: &CheckResult) {
    let schema = &checked.schema;
    let layout = &plan.settled.layout;
    let role = match (&layout.meta_field, layout.meta_columns.as_slice()) {
        (None, _) => {
            "no meta (all measurements are one series; --meta names the column that tells series apart)".to_owned()
        }
        (Some(field), []) => format!("meta {field}"),
        (Some(field), [one]) if field == one => format!("meta {one}"),
        (Some(field), columns) => format!("meta {field} from {}", columns.join(", ")),
    };
    let time = match plan.job.args.time.as_slice() {
        several @ [_, _, ..] => format!("{} from {}", layout.time_field, several.join(", ")),
        _ if layout.time_column != layout.time_field => format!("{} from {}", layout.time_field, layout.time_column),
        _ => layout.time_field.clone(),
    };
    eprintln!("{}: time {time}, {role}", plan.job.collection);
    let width = schema.fields.iter().map(|(n, _)| n.chars().count()).max().unwrap_or(0).min(32);
    for (name, ty) in schema.fields.iter().take(COLUMNS_MAX) {
        match plan.seen.iter().find(|s| s.name == *name) {
            Some(seen) => {
                let counted = checked.values.as_ref().map(|v| v.get(name).copied().unwrap_or(0));
                let values = grouped(counted.unwrap_or(seen.values()));
                eprintln!("  {name:width$}  {:9} {values:>11} values", ty.name());
            }
            None => eprintln!("  {name:width$}  {}", ty.name()),
        }
    }
    if schema.fields.len() > COLUMNS_MAX {
        eprintln!("  and {} more fields", schema.fields.len() - COLUMNS_MAX);
    }
    for (name, _) in
        plan.settled.kinds.iter().filter(|(name, kind)| *kind == Kind::Text && !plan.job.args.text.contains(name))
    {
        if let Some(doubt) = plan.seen.iter().find(|s| s.name == *name).and_then(doubts::note) {
            eprintln!("note: {doubt}");
        }
    }
    if let Some(known) = &plan.job.schema {
        let is_new = |name: &&str| known.field_type(name).is_none();
        let new: Vec<&str> = schema.fields.iter().map(|(name, _)| name.as_str()).filter(is_new).collect();
        if !new.is_empty() {
            eprintln!("note: fields that are new in {}: {}", plan.job.collection, new.join(", "));
        }
    }
    if let Some(series) = &checked.crowded {
        let whose = if series.is_empty() { "times".to_owned() } else { format!("times of {series}") };
        eprintln!(
            "note: most {whose} have several values; if they are of several stations, --meta COLUMN names the column that \
             tells them apart, and --meta-from-name '{{station}}.csv' takes it from the files' names"
        );
    }
    let typeless = plan.seen.iter().filter(|s| s.values() == 0).map(|s| s.name.as_str()).collect::<Vec<_>>();
    if !typeless.is_empty() {
        eprintln!("columns without a value, skipped: {}", typeless.join(", "));
    }
}

/// Prints how much was stored.
pub(super) fn imported(collection: &str, rows: u64, took: Duration) {
    let (seconds, rate) = (took.as_secs_f64(), rate(rows, took));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "for people")]
    let (rows, rate) = (counted(rows, "measurement"), grouped(rate as u64));
    eprintln!("{rows} imported into {collection} in {seconds:.1} s ({rate} per second)");
}

/// Prints how ambiguous and skipped local times were decided.
pub(super) fn decided(job: &Job<'_>) {
    let counts = job.folds.borrow_mut().counts();
    let parts = [
        (counts.earlier, "read as the earlier instant"),
        (counts.later, "read as the later instant"),
        (counts.once, "of the earlier ones came only once, so that the order of the rows does not tell"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", grouped(*count)))
        .collect();
    if !parts.is_empty() {
        eprintln!("local times that the clocks showed twice: {}", parts.join(", "));
    }
    if counts.skipped > 0 {
        eprintln!("local times that the clocks skipped: {}", grouped(counts.skipped));
    }
}

/// Prints the number of rows without values.
pub(super) fn left_out(rows: u64) {
    if rows > 0 {
        let were = if rows == 1 { "was" } else { "were" };
        eprintln!("{} without a value {were} skipped", counted(rows, "row"));
    }
}
