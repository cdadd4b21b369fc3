//! Says why the type of a column is ambiguous, with the options that decide it.

use crate::Failure;
use ebbtide_query::text_table::infer::{self, ColumnStats, Place, TextReason};
use std::collections::HashSet;

/// An ambiguity of a column, and the option that most likely resolves it.
#[derive(Debug)]
pub(super) struct Doubt {
    text: String,
    option: Option<String>,
}

impl Doubt {
    pub(super) fn new(column: &str, doubt: &infer::Doubt) -> Self {
        match doubt {
            infer::Doubt::Padded(place) => padded_numbers(column, place),
            infer::Doubt::Foreign(place) => foreign_numbers(column, place),
            infer::Doubt::Rounded(place) => rounded(column, place),
            infer::Doubt::NoNumber(place) => misfit(column, place, "numbers"),
            infer::Doubt::NoTime(place) => misfit(column, place, "times"),
            infer::Doubt::Nul(place) => nul(column, place),
            infer::Doubt::Refused(name) => {
                let text = format!("column '{column}' cannot be imported: the collection holds {name} there");
                Doubt { text, option: None }
            }
        }
    }

    /// All ambiguities in one message, with the options that resolve them.
    pub(super) fn failure(doubts: &[Doubt]) -> Failure {
        const SHOWN_MAX: usize = 10;
        let mut lines: Vec<String> = doubts.iter().take(SHOWN_MAX).map(|d| d.text.clone()).collect();
        if doubts.len() > SHOWN_MAX {
            lines.push(format!("and {} more columns", doubts.len() - SHOWN_MAX));
        }
        let all: Vec<&str> = doubts.iter().filter_map(|d| d.option.as_deref()).collect();
        let mut known = HashSet::new();
        let is_part = |option: &str| all.iter().any(|other| *other != option && other.ends_with(option));
        let options: Vec<&str> = all.iter().copied().filter(|&o| !is_part(o) && known.insert(o)).collect();
        // All numbers of a file are written in one way.
        let ways = options.iter().filter(|o| o.starts_with("--thousands") || o.starts_with("--decimal-comma")).count();
        if doubts.len() > 1 && !options.is_empty() && ways < 2 {
            lines.push(format!("the first choice of each: {}", options.join(" ")));
        }
        Failure::new(lines.join("\n"))
    }
}

/// The error for the column of the time.
pub(super) fn about_time(column: &str, doubt: &infer::Doubt) -> Failure {
    match doubt {
        infer::Doubt::NoTime(place) => Failure::new(format!(
            "{}:{}: column '{column}' contains the time, but '{}' is not a time: {}",
            place.file, place.line, place.value, place.reason
        )),
        other => Doubt::failure(&[Doubt::new(column, other)]),
    }
}

/// What a text column may have been meant to be, and the option for it.
pub(super) fn note(column: &ColumnStats) -> Option<String> {
    let (name, values) = (&column.name, column.values());
    Some(match column.text_reason()? {
        TextReason::Padded => {
            format!("{name} is text, since its numbers have leading zeros; --number {name} reads numbers")
        }
        TextReason::Mixed { count, what, other } => format!(
            "{name} is text: {count} of {values} values are {what}, '{}' in line {} is not; --null '{}' if it marks a \
             missing value",
            other.value, other.line, other.value
        ),
    })
}

fn padded_numbers(name: &str, place: &Place) -> Doubt {
    let option = format!("--number {}", word(name));
    let text = format!(
        "{}:{}: column '{name}' contains numbers, and '{}' with leading zeros; to read it as a number, say {option}; to \
         import the column as text, say --text {}",
        place.file,
        place.line,
        place.value,
        word(name)
    );
    Doubt { text, option: Some(option) }
}

fn rounded(name: &str, place: &Place) -> Doubt {
    let option = format!("--text {}", word(name));
    let text = format!(
        "{}:{}: column '{name}' becomes double, which cannot hold '{}' exactly; to import the column as text, say {option}",
        place.file, place.line, place.value
    );
    Doubt { text, option: Some(option) }
}

fn nul(name: &str, place: &Place) -> Doubt {
    let text = format!(
        "{}:{}: column '{name}' has a NUL byte in '{}': the file is damaged, or was not written to its end; to set such \
         lines aside, say --bad-lines FILE",
        place.file, place.line, place.value
    );
    Doubt { text, option: None }
}

fn foreign_numbers(name: &str, place: &Place) -> Doubt {
    let null = format!("--null {}", quoted(&place.value));
    let ways = notation(&place.value);
    let way: String = ways.iter().map(|(when, option)| format!("if {when}, say {option}; ")).collect();
    let text = format!(
        "{}:{}: column '{name}' contains numbers, but '{}' is not a readable number; {way}if it marks a missing value, \
         say {null}; to import the column as text, say --text {}; to set such lines aside, say --bad-lines FILE",
        place.file,
        place.line,
        place.value,
        word(name)
    );
    let option = match ways {
        [] => Some(null),
        [(_, option)] => Some((*option).to_owned()),
        _ => None,
    };
    Doubt { text, option }
}

fn misfit(name: &str, place: &Place, what: &str) -> Doubt {
    let null = format!("--null {}", quoted(&place.value));
    let text = format!(
        "{}:{}: column '{name}' contains {what}, but '{}' is not one; if it marks a missing value, add {null}; to import the \
         column as text, add --text {}; to set such lines aside, add --bad-lines FILE",
        place.file,
        place.line,
        place.value,
        word(name)
    );
    Doubt { text, option: Some(null) }
}

/// The options that may read a number in another notation, with the case in which each applies.
fn notation(value: &str) -> &'static [(&'static str, &'static str)] {
    const COMMAS: (&str, &str) = ("the comma separates thousands", "--thousands ,");
    const BOTH: (&str, &str) = ("the point separates thousands", "--thousands . --decimal-comma");
    const DECIMAL: (&str, &str) = ("it has a decimal comma", "--decimal-comma");
    let whole = value.split(['e', 'E']).next().unwrap_or_default();
    let grouped = |text: &str, mark: char| text.contains(mark) && text.split(mark).skip(1).all(|g| g.len() == 3);
    match (whole.matches(',').count(), whole.matches('.').count()) {
        (1.., 1) if whole.rsplit_once('.').is_some_and(|(groups, _)| grouped(groups, ',')) => &[COMMAS],
        (1, 1..) if whole.rsplit_once(',').is_some_and(|(groups, _)| grouped(groups, '.')) => &[BOTH],
        (1, 0) if grouped(whole, ',') => &[COMMAS, DECIMAL],
        (1, 0) => &[DECIMAL],
        (2.., 0) if grouped(whole, ',') => &[COMMAS],
        _ => &[],
    }
}

/// A word for a shell, quoted if necessary.
fn word(text: &str) -> String {
    if text.chars().all(|c| c.is_alphanumeric() || c == '_') { text.to_owned() } else { quoted(text) }
}

/// A word quoted for a shell.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "'\\''"))
}
