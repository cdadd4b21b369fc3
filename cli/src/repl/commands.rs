//! The shell's own commands: how they are written, and what they do.

/// A command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Command {
    pub(super) action: Action,
    /// How it may be written; the first is the one that help shows.
    pub(super) names: &'static [&'static str],
    pub(super) takes: &'static str,
    pub(super) help: &'static str,
}

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Collections,
    Rules,
    Functions,
    Schema,
    Chart,
    Format,
    Expanded,
    Rows,
    Timing,
    Pager,
    Read,
    Output,
    Edit,
    Help,
    Quit,
}

const fn command(action: Action, names: &'static [&'static str], takes: &'static str, help: &'static str) -> Command {
    Command { action, names, takes, help }
}

/// Every command.
pub(super) const COMMANDS: [Command; 15] = [
    command(
        Action::Collections,
        &["\\d", "\\dt", "\\l", ".tables"],
        "[NAME]",
        "collections, or one: its columns, its rules, what goes next",
    ),
    command(Action::Rules, &["\\ttl", ".ttl"], "", "rules and what they cover"),
    command(
        Action::Functions,
        &["\\df", ".functions"],
        "[WORD]",
        "functions, or those with WORD in their name and what they do",
    ),
    command(Action::Schema, &[".schema"], "[NAME]", "the statements that make the collections, or one"),
    command(Action::Chart, &[".chart"], "[FILE]", "draw the last query's rows here, or into an .svg or .png"),
    command(Action::Format, &[".format", ".mode"], "WORD", "table, csv, json or ndjson"),
    command(Action::Expanded, &["\\x", ".expanded"], "[on|off]", "show each row as a record, a line a column"),
    command(Action::Rows, &[".rows"], "N", "rows shown of a table"),
    command(Action::Timing, &[".timing", "\\timing"], "[on|off]", "say how long statements take"),
    command(Action::Pager, &[".pager"], "[on|off]", "show long and wide tables in a pager"),
    command(Action::Read, &["\\i", ".read"], "FILE", "run the statements and commands of a file"),
    command(Action::Output, &["\\o", ".output", ".once"], "FILE", "write the rows of the next query to a file"),
    command(Action::Edit, &["\\e", ".edit"], "", "edit the last statement in $EDITOR, then run it"),
    command(Action::Help, &[".help", "\\?", "\\h"], "", "this text"),
    command(Action::Quit, &[".quit", ".exit", "\\q"], "", "leave (also Ctrl-D)"),
];

/// Every way to write a command.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().flat_map(|command| command.names).copied()
}

/// What a word that was typed does.
pub(super) fn action(word: &str) -> Option<Action> {
    COMMANDS.iter().find(|command| command.names.contains(&word)).map(|command| command.action)
}

const STATEMENTS: &str = "\
Tab completes, Ctrl-R searches what was typed before,
Ctrl-C stops a statement or clears the line
  CREATE COLLECTION c WITH (timeField = 't', metaField = 's')
         EXPIRE AFTER 7 DAYS;
  CREATE TTL INDEX i ON c (t) EXPIRE AFTER 1 DAY WHERE s = 'x';
  ALTER COLLECTION c EXPIRE AFTER 30 DAYS;   SHOW TTL;   SWEEP;
  EXPLAIN EXPIRY FOR c WITH (expireAfterSeconds = 2592000);   -- a dry run
for time series, beside DataFusion's functions (docs/sql.md shows each):
  date_bin('1 hour', t [, zone or origin])   first(v, t), last(v, t)
  date_trunc('day', t [, zone])              approx_percentile_cont(...)
  date_bin_gapfill('1 hour', t)              locf(agg), interpolate(agg)
  latest('c')                                time_weighted_avg(v, t)
  increase(v, t), rate(v, t), delta(v, t)    mode(v), histogram(v, 10)
  l ASOF [LEFT] JOIN r ON l.s = r.s AND l.t >= r.t
  FROM 'x.csv';   SUMMARIZE c;   PIVOT c ON s USING avg(v) GROUP BY t;";

/// What `.help` prints.
pub(super) fn help() -> String {
    let mut text = "statements end with a semicolon and may go over several lines\n".to_owned();
    for command in COMMANDS {
        let head = format!("{} {}", command.names[0], command.takes);
        text.push_str(&format!("  {:<18} {}\n", head.trim_end(), command.help));
    }
    text + STATEMENTS
}
