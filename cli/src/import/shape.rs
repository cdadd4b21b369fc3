//! The user's options about columns.

use crate::Failure;
use crate::args::ImportArgs;
use ebbtide_buckets::Schema;
use std::collections::BTreeSet;

/// Usual names of a time column.
const TIME_NAMES: [&str; 8] = ["time", "timestamp", "ts", "datetime", "date_time", "date", "t", "valid_time"];

/// The user's options about columns.
#[derive(Debug, Clone, Default)]
pub(super) struct Shape {
    pub(super) time: Vec<String>,
    pub(super) columns: Vec<String>,
    pub(super) no_header: bool,
    pub(super) without: Vec<String>,
    rename: Vec<(String, String)>,
    /// The time of all rows, for a table without one.
    pub(super) at: Option<String>,
    /// The time field of the collection, if it exists.
    known_time: Option<String>,
}

impl Shape {
    pub(super) fn new(args: &ImportArgs, schema: Option<&Schema>) -> Self {
        Shape {
            time: args.time.clone(),
            columns: args.columns.clone(),
            no_header: args.no_header,
            without: args.without.clone(),
            rename: args.rename.clone(),
            at: args.at.clone(),
            known_time: schema.map(|s| s.time.clone()),
        }
    }

    /// Whether the first record is a header.
    pub(super) fn has_header(&self) -> bool {
        !self.no_header
    }

    /// The name of the field for a time in several columns.
    pub(super) fn time_field(&self) -> String {
        self.known_time.clone().unwrap_or_else(|| "time".to_owned())
    }

    /// The new name of a column.
    pub(super) fn rename<'a>(&'a self, name: &'a str) -> &'a str {
        self.rename.iter().find(|(old, _)| old == name).map_or(name, |(_, new)| new)
    }

    /// The new names of all columns; an error if a column to be renamed or skipped does not exist.
    pub(super) fn renamed(&self, names: Vec<String>, file: &str) -> Result<Vec<String>, Failure> {
        let absent = |name: &str, option: &str, names: &[String]| {
            let hint = ebbtide_query::suggest::hint(name, names.iter().map(String::as_str));
            Failure::new(format!("{file} has no column '{name}' as {option} says{hint}"))
        };
        if let Some((old, _)) = self.rename.iter().find(|(old, _)| !names.contains(old)) {
            return Err(absent(old, "--rename", &names));
        }
        let names: Vec<String> = names.iter().map(|n| self.rename(n).to_owned()).collect();
        match self.without.iter().find(|w| !names.contains(w)) {
            Some(name) => Err(absent(name, "--without", &names)),
            None => Ok(names),
        }
    }

    /// The column with the time, according to the options, the collection or its name.
    pub(super) fn time_by_name(&self, names: &[String]) -> Option<String> {
        if self.at.is_some() {
            return Some(self.time_field());
        }
        if let [time] = self.time.as_slice() {
            return names.contains(time).then(|| time.clone());
        }
        if self.time.len() > 1 {
            return Some(self.time_field());
        }
        if let Some(time) = self.known_time.as_ref().filter(|t| names.contains(t)) {
            return Some(time.clone());
        }
        TIME_NAMES.iter().find_map(|t| names.iter().find(|n| n.eq_ignore_ascii_case(t))).cloned()
    }

    /// The error for a column that does not exist.
    pub(super) fn unknown(&self, what: &str, name: &str, names: &[String]) -> Failure {
        let hint = ebbtide_query::suggest::hint(name, names.iter().map(String::as_str));
        let all: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let all: Vec<&str> = all.into_iter().collect();
        Failure::new(format!("there is no column '{name}' for the {what}{hint} (columns: {})", all.join(", ")))
    }
}
