//! Options that describe how a text is written, and have no effect on other formats.

use crate::Failure;
use crate::args::{ImportArgs, InputFormat};

/// Refuses an option that has no effect on any of these formats.
pub(super) fn check(args: &ImportArgs, formats: &[InputFormat]) -> Result<(), Failure> {
    let Some(format) = formats.first().filter(|_| !formats.contains(&InputFormat::Csv)) else { return Ok(()) };
    let has_lines = formats.iter().any(|f| matches!(f, InputFormat::Ndjson | InputFormat::Influx));
    let refused = |option: &str, of: &str| {
        Err(Failure::usage(format!("{option} is for {of}; it has no effect on {}: leave it out", name(*format))))
    };
    match of_tables(args) {
        Some(option) => refused(option, "CSV files"),
        None if args.encoding.is_some() && !has_lines => refused("--encoding", "files of text"),
        None => Ok(()),
    }
}

/// The first option that is given and only describes CSV.
fn of_tables(args: &ImportArgs) -> Option<&'static str> {
    let options = [
        ("--text", !args.text.is_empty()),
        ("--number", !args.number.is_empty()),
        ("--decimal-comma", args.decimal_comma),
        ("--thousands", args.thousands.is_some()),
        ("--delimiter", args.delimiter.is_some()),
        ("--header", args.header),
        ("--no-header", args.no_header),
        ("--columns", !args.columns.is_empty()),
        ("--skip", args.skip.is_some()),
        ("--skip-after-header", args.skip_after_header.is_some()),
        ("--comment", args.comment.is_some()),
    ];
    options.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
}

fn name(format: InputFormat) -> &'static str {
    match format {
        InputFormat::Csv => "CSV",
        InputFormat::Ndjson => "NDJSON",
        InputFormat::Influx => "line protocol",
        InputFormat::Parquet => "Parquet",
        InputFormat::Arrow => "Arrow",
    }
}
