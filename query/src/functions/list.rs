//! The list of `SHOW FUNCTIONS`.

use super::apart::APART;
use super::asof::MARK;
use super::uuids::{TRY_UUID, UUID};
use crate::sql::calls;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::common::Result;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::Documentation;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Functions that only rewritten statements call.
pub(crate) const INTERNAL: [&str; 4] = [MARK, APART, UUID, TRY_UUID];

/// Functions of this crate, and what they do.
const OWN_FUNCTIONS: [(&str, &str); 28] = [
    ("age", "months, days and the rest between two times: age(end, start)"),
    ("date_bin", "start of the bin that holds a time, also in a time zone"),
    ("date_bin_gapfill", "date_bin in GROUP BY, with a row for every bin"),
    ("date_diff", "how many hours, days, months ... begin between two times"),
    ("date_sub", "how many full hours, days, months ... lie between two times"),
    ("date_trunc", "start of the hour, day, month ... that holds a time"),
    ("delta", "last value minus the first one, by time"),
    ("expired", "table of what has expired and is still stored: expired('c')"),
    ("first", "value at the earliest time: first(value, time)"),
    ("histogram", "how often each value is there, or values in n bins"),
    ("increase", "total rise of a counter: increase(value, time)"),
    ("interpolate", "fills the gaps of date_bin_gapfill along straight lines"),
    ("last", "value at the latest time: last(value, time)"),
    ("latest", "table of the last row of each meta: latest('collection')"),
    ("latest_archived", "table of the last row of each meta in archived('collection'): latest_archived('collection')"),
    ("len", "characters of a text, or elements of a list"),
    ("locf", "fills the gaps of date_bin_gapfill with the last value"),
    ("make_timestamp", "time of a year, month, day, hour, minute and seconds"),
    ("mode", "the value that is there most often"),
    ("rate", "increase per second: rate(value, time)"),
    ("read_csv", "table of CSV files: read_csv('x.csv', delim = ';')"),
    ("read_json", "table of JSON files: read_json('x.ndjson')"),
    ("read_parquet", "table of Parquet files: read_parquet('x/*.parquet')"),
    ("rollup", "table of the bins of a ladder: rollup('c', '1 hour')"),
    ("strptime", "time of a text: strptime('6.5.2024', '%d.%m.%Y')"),
    ("time_bucket", "date_bin with weeks that start on Mondays"),
    ("time_weighted_avg", "average, weighted by how long each value held"),
    ("try_strptime", "strptime, and null for a text that is not of the format"),
];

/// Maximum length of a description in characters.
const WIDTH: usize = 60;

/// Functions whose name matches a pattern with `%`, or contains one without: name, kind and description.
pub(crate) fn rows(state: &SessionState, pattern: Option<&str>) -> Result<RecordBatch> {
    let mut functions: BTreeMap<String, (&str, String)> = BTreeMap::new();
    let describe =
        |documentation: Option<&Documentation>| documentation.map(|d| short(&d.description)).unwrap_or_default();
    for (name, function) in state.scalar_functions() {
        functions.insert(name.clone(), ("scalar", describe(function.documentation())));
    }
    for (name, function) in state.window_functions() {
        functions.insert(name.clone(), ("window", describe(function.documentation())));
    }
    for (name, function) in state.aggregate_functions() {
        functions.insert(name.clone(), ("aggregate", describe(function.documentation())));
    }
    for (name, meaning) in calls() {
        functions.insert(name.to_owned(), ("short form", short(&format!("is {meaning}"))));
    }
    for (name, description) in OWN_FUNCTIONS {
        let kind = functions.get(name).map_or("table", |(kind, _)| *kind);
        functions.insert(name.to_owned(), (kind, description.to_owned()));
    }
    functions.retain(|name, _| !INTERNAL.contains(&name.as_str()));
    if let Some(pattern) = pattern.map(str::to_lowercase) {
        functions.retain(|name, _| match pattern.contains('%') {
            true => is_like(name, &pattern),
            false => name.contains(&pattern),
        });
    }
    let column = |cell: &dyn Fn(&String, &(&str, String)) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(functions.iter().map(|(name, rest)| cell(name, rest))))
    };
    Ok(RecordBatch::try_from_iter([
        ("function", column(&|name, _| name.clone())),
        ("kind", column(&|_, (kind, _)| (*kind).to_owned())),
        ("description", column(&|_, (_, description)| description.clone())),
    ])?)
}

/// The first sentence of a description, cut to fit.
fn short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let sentence = line.split(". ").next().unwrap_or(line).trim_end_matches('.').replace('`', "");
    match sentence.chars().count() > WIDTH {
        true => sentence.chars().take(WIDTH - 3).chain("...".chars()).collect(),
        false => sentence,
    }
}

/// LIKE: `%` stands for any text, `_` for one character.
fn is_like(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    let (mut at, mut next, mut star) = (0, 0, None);
    while at < text.len() {
        match pattern.get(next) {
            Some('%') => {
                star = Some((next + 1, at));
                next += 1;
            }
            Some(c) if *c == '_' || *c == text[at] => (at, next) = (at + 1, next + 1),
            _ => match star {
                Some((after, from)) => {
                    star = Some((after, from + 1));
                    (at, next) = (from + 1, after);
                }
                None => return false,
            },
        }
    }
    pattern[next..].iter().all(|c| *c == '%')
}
