//! Runs conformance cases: JSON files of steps, each case against a fresh database in memory on a virtual clock.
//!
//! 1. A step that is not understood is a failure, never skipped: an unknown key, a missing value, an unreadable file.
//! 2. A failed step does not end its case, so that one run shows all that is wrong; a database that cannot be opened
//!    again does.
//! 3. A crash is a power cut: whatever was not synced is lost.

mod compare;
mod reads;

use crate::db::Database;
use crate::error::Error;
use crate::fs::sim::{SimFs, Variant};
use crate::fs::{Fs, RealFs};
use crate::json::{json_of, value_of};
use crate::sweep::options::SweepOptions;
use ebbtide_ttl::{Timestamp, Value, VirtualClock};
use serde_json::{Map, Value as Json, json};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Runs SQL for `sql` steps; the query layer has one.
pub trait SqlRunner {
    /// Runs one statement and returns its rows by column name, as Extended JSON.
    ///
    /// # Errors
    /// What the statement fails with.
    fn run(&self, db: &Database, sql: &str) -> Result<Vec<Map<String, Json>>, Error>;
}

/// What became of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The case's file.
    pub path: PathBuf,
    /// The name that the case gives itself.
    pub name: String,
    /// One text for each step that failed; none if the case holds.
    pub failures: Vec<String>,
    /// Why the case was not run, if it was not.
    pub skipped: Option<String>,
}

impl Outcome {
    /// Whether the case was run and holds.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failures.is_empty() && self.skipped.is_none()
    }
}

/// Runs the cases in files, and in folders recursively (there, files whose name ends in `.json`), in order of path.
/// Cases with SQL are skipped if nothing runs SQL.
#[must_use]
pub fn run_paths(paths: &[PathBuf], sql: Option<&dyn SqlRunner>) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for path in paths {
        match RealFs::new().exists(path) {
            Ok(true) => walk(path, true, &mut |file| outcomes.push(run_file(file, sql))),
            Ok(false) => outcomes.push(unreadable(path, "there is no such file or folder")),
            Err(error) => outcomes.push(unreadable(path, &error.to_string())),
        }
    }
    outcomes
}

fn walk(path: &Path, named: bool, visit: &mut dyn FnMut(&Path)) {
    if path.is_dir() {
        for name in RealFs::new().list(path).unwrap_or_default() {
            walk(&path.join(name), false, visit);
        }
    } else if named || path.extension().is_some_and(|e| e == "json") {
        visit(path);
    }
}

fn unreadable(path: &Path, why: &str) -> Outcome {
    let failures = vec![format!("cannot read {}: {why}", path.display())];
    Outcome { path: path.to_owned(), name: path.display().to_string(), failures, skipped: None }
}

fn run_file(path: &Path, sql: Option<&dyn SqlRunner>) -> Outcome {
    let case: Json = match RealFs::new().read(path).map_err(|e| e.to_string()) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(case) => case,
            Err(error) => return unreadable(path, &format!("it is not JSON: {error}")),
        },
        Err(error) => return unreadable(path, &error),
    };
    let name = case.get("name").and_then(Json::as_str).map_or_else(|| path.display().to_string(), str::to_owned);
    let (failures, skipped) = match case.get("steps").and_then(Json::as_array) {
        None => (vec!["the case has no list of steps".to_owned()], None),
        Some(steps) if steps.is_empty() => (vec!["the case has no steps".to_owned()], None),
        Some(steps) if sql.is_none() && steps.iter().any(|s| s.get("sql").is_some()) => {
            (Vec::new(), Some("it has SQL steps, and nothing here runs SQL".to_owned()))
        }
        Some(steps) => (run_case(steps, sql), None),
    };
    Outcome { path: path.to_owned(), name, failures, skipped }
}

fn run_case(steps: &[Json], sql: Option<&dyn SqlRunner>) -> Vec<String> {
    let mut failures = Vec::new();
    let mut case = match Case::new(sql) {
        Ok(case) => case,
        Err(error) => return vec![format!("no database can be made: {}", described(&error))],
    };
    for (index, step) in steps.iter().enumerate() {
        // A panic is a failure of its step. The database may be of no use afterwards, so the case ends with it.
        let outcome = catch_unwind(AssertUnwindSafe(|| case.step(step)));
        let report = |what: &str| format!("step {} {}: {what}", index + 1, shown(step));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(Failure::Step(what))) => failures.push(report(&what)),
            Ok(Err(Failure::Case(what))) => {
                failures.push(report(&what));
                return failures;
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default();
                failures.push(report(&format!("expected no panic, actual: {text}")));
                return failures;
            }
        }
    }
    failures
}

/// A value for a message, cut where it gets long.
fn shown(value: &impl ToString) -> String {
    const CHARS_MAX: usize = 600;
    let text = value.to_string();
    match text.char_indices().nth(CHARS_MAX) {
        Some((at, _)) => format!("{} ...", &text[..at]),
        None => text,
    }
}

fn described(error: &Error) -> String {
    format!("{}: {error}", error.code())
}

enum Failure {
    /// The step does not hold.
    Step(String),
    /// It does not, and no further step can be run.
    Case(String),
}

impl From<String> for Failure {
    fn from(what: String) -> Self {
        Failure::Step(what)
    }
}

type Outcomes = Result<(), Failure>;

/// A case that is running.
struct Case<'a> {
    sql: Option<&'a dyn SqlRunner>,
    clock: VirtualClock,
    fs: SimFs,
    db: Option<Database>,
}

const DATABASE: &str = "/conformance/db";

impl<'a> Case<'a> {
    fn new(sql: Option<&'a dyn SqlRunner>) -> Result<Self, Error> {
        let mut case = Case { sql, clock: VirtualClock::new(Timestamp::EPOCH), fs: SimFs::new(DATABASE), db: None };
        case.db = Some(case.open()?);
        Ok(case)
    }

    fn open(&self) -> Result<Database, Error> {
        let builder = Database::builder(DATABASE).fs(Arc::new(self.fs.clone()));
        builder.clock(Arc::new(self.clock.clone())).open()
    }

    fn db(&self) -> Result<&Database, Failure> {
        self.db.as_ref().ok_or_else(|| Failure::Case("the database is not open".to_owned()))
    }

    fn step(&mut self, step: &Json) -> Outcomes {
        let Some(step) = step.as_object() else { return Err("a step must be an object".to_owned().into()) };
        let kinds = [
            "at",
            "jump",
            "run",
            "sweep",
            "sql",
            "aggregate",
            "last",
            "list",
            "rollup",
            "reopen",
            "crash",
            "flush",
            "compact",
        ];
        let mut found = kinds.into_iter().filter(|kind| step.contains_key(*kind));
        let (Some(kind), None) = (found.next(), found.next()) else {
            return Err(format!("a step must have exactly one of the keys {}", kinds.join(", ")).into());
        };
        check_keys(step, kind)?;
        let argument = &step[kind];
        match kind {
            "at" => self.clock.set(instant(argument)?),
            "jump" => self.clock.jump(instant(argument)?),
            "run" => self.run(step)?,
            "sweep" => self.sweep(step)?,
            "sql" => self.run_sql(step)?,
            "aggregate" | "last" | "list" => {
                let name = argument.as_str().ok_or_else(|| format!("{kind} must name a collection"))?;
                let collection = self.db()?.snapshot().collection(name);
                let reply = collection.and_then(|collection| match kind {
                    "aggregate" => reads::aggregates(&collection),
                    "last" => reads::last_points(&collection),
                    _ => reads::listings(&collection),
                });
                check_reply(step, &reply.map_err(|e| described(&e))?)?;
            }
            "rollup" => self.rollup(step)?,
            "reopen" => self.reopen()?,
            "crash" => self.crash()?,
            "flush" => self.db()?.flush().map_err(|e| described(&e))?,
            _ => self.db()?.compact(None).map_err(|e| described(&e))?,
        }
        Ok(())
    }

    fn run(&self, step: &Map<String, Json>) -> Outcomes {
        let outcome = self.db()?.run_command(&step["run"]);
        let refused = outcome.as_ref().ok().and_then(first_write_error);
        match (refused, step.get("error")) {
            (Some((code, message)), Some(_)) => check_error(step, &code, &message)?,
            _ => check_outcome(step, &outcome)?,
        }
        outcome.map_or(Ok(()), |reply| check_reply(step, &reply))
    }

    fn rollup(&self, step: &Map<String, Json>) -> Outcomes {
        let name = step["rollup"].as_str().ok_or_else(|| "rollup must name a collection".to_owned())?;
        let width = step.get("width").and_then(Json::as_i64).ok_or_else(|| "width must be whole seconds".to_owned())?;
        let bins = self.db()?.snapshot().collection(name).and_then(|collection| reads::bins(&collection, width));
        check_outcome(step, &bins)?;
        bins.map_or(Ok(()), |bins| check_reply(step, &bins))
    }

    fn sweep(&self, step: &Map<String, Json>) -> Outcomes {
        let db = self.db()?;
        let options = step["sweep"].as_object().ok_or_else(|| "sweep must hold an object".to_owned())?;
        let known = ["maxSubPasses", "dryRun", "at"];
        if let Some(unknown) = options.keys().find(|k| !known.contains(&k.as_str())) {
            return Err(format!("a sweep has no option '{unknown}'; it has {}", known.join(", ")).into());
        }
        let is_dry = match options.get("dryRun") {
            None => false,
            Some(given) => given.as_bool().ok_or_else(|| "dryRun must be true or false".to_owned())?,
        };
        let reply = if is_dry {
            let at = options.get("at").map_or_else(|| Ok(db.clock().now()), instant)?;
            dry_run(db, at).map_err(|e| described(&e))?
        } else {
            if options.contains_key("at") {
                return Err("at belongs to a dryRun".to_owned().into());
            }
            let max_sub_passes = match options.get("maxSubPasses") {
                None => None,
                Some(given) => Some(given.as_u64().ok_or_else(|| "maxSubPasses must be a whole number".to_owned())?),
            };
            let report = db
                .sweep_with(&SweepOptions { max_sub_passes, ..SweepOptions::default() })
                .map_err(|e| described(&e))?;
            serde_json::to_value(report).map_err(|e| format!("the report does not serialise: {e}"))?
        };
        check_reply(step, &reply)
    }

    fn run_sql(&self, step: &Map<String, Json>) -> Outcomes {
        let sql = step["sql"].as_str().ok_or_else(|| "sql must hold a text".to_owned())?;
        let runner = self.sql.ok_or_else(|| "nothing here runs SQL".to_owned())?;
        let outcome = runner.run(self.db()?, sql).map(|rows| rows.into_iter().map(Json::Object).collect::<Vec<_>>());
        check_outcome(step, &outcome)?;
        let (Some(expected), Ok(actual)) = (step.get("rows"), &outcome) else { return Ok(()) };
        let wanted = expected.as_array().ok_or_else(|| "rows must be a list".to_owned())?;
        let more = compare::MoreColumns::of(sql);
        let compared = match step.get("unordered").map(Json::as_bool) {
            Some(Some(true)) => compare::same_rows_unordered(actual, wanted, more),
            None | Some(Some(false)) => compare::same_rows(actual, expected, more),
            Some(None) => return Err("unordered must be true or false".to_owned().into()),
        };
        compared.map_err(|what| {
            let actual = Json::Array(actual.clone());
            Failure::Step(format!("{what}; expected {}, actual {}", shown(expected), shown(&actual)))
        })
    }

    fn reopen(&mut self) -> Outcomes {
        let closed = self.db.take().map_or(Ok(()), Database::close);
        self.db = Some(self.open().map_err(|e| Failure::Case(format!("it does not open again: {}", described(&e))))?);
        closed.map_err(|e| Failure::Step(format!("it does not close: {}", described(&e))))
    }

    fn crash(&mut self) -> Outcomes {
        let after = self.fs.crash(Variant::V0, 0);
        if let Some(db) = self.db.take() {
            db.abandon();
        }
        self.fs = after;
        self.db = Some(self.open().map_err(|e| Failure::Case(format!("it does not open again: {}", described(&e))))?);
        Ok(())
    }
}

/// Whether a reply has what the step expects of it.
fn check_reply(step: &Map<String, Json>, actual: &Json) -> Outcomes {
    let Some(expected) = step.get("reply") else { return Ok(()) };
    compare::contains(actual, expected)
        .map_err(|what| Failure::Step(format!("{what}; expected {}, actual {}", shown(expected), shown(actual))))
}

/// Refuses keys that a step of this kind does not have: a misspelt `reply` must not pass.
fn check_keys(step: &Map<String, Json>, kind: &str) -> Result<(), String> {
    let more: &[&str] = match kind {
        "run" => &["reply", "error", "error_contains"],
        "sweep" | "aggregate" | "last" | "list" => &["reply"],
        "rollup" => &["width", "reply", "error", "error_contains"],
        "sql" => &["rows", "unordered", "error", "error_contains"],
        _ => &[],
    };
    let is_known = |key: &str| key == kind || key == "comment" || more.contains(&key);
    match step.keys().find(|key| !is_known(key)) {
        Some(unknown) => Err(format!("a step of kind '{kind}' has no key '{unknown}'")),
        None if step.contains_key("error_contains") && !step.contains_key("error") => {
            Err("error_contains needs error".to_owned())
        }
        None => Ok(()),
    }
}

fn instant(json: &Json) -> Result<Timestamp, Failure> {
    if let Some(text) = json.as_str() {
        return Timestamp::parse(text).map_err(Failure::Step);
    }
    match value_of(json) {
        Ok(Value::Date(t)) => Ok(t),
        _ => Err(format!("{json} is not a time: write it as \"2024-01-31T12:00:00Z\"").into()),
    }
}

/// Whether a step fails exactly if it should, and as it should.
fn check_outcome<T: Debug>(step: &Map<String, Json>, outcome: &Result<T, Error>) -> Result<(), String> {
    let Some(expected) = step.get("error") else {
        return match outcome {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("expected success, actual {}", described(error))),
        };
    };
    let Err(error) = outcome else { return Err(format!("expected error {expected}, actual success")) };
    check_error(step, error.code().name(), &error.to_string())
}

/// The code name and the message of the first document that a command refused, if it refused single ones.
fn first_write_error(reply: &Json) -> Option<(String, String)> {
    let first = reply.get("writeErrors")?.get(0)?;
    let text = |name: &str| first.get(name).and_then(Json::as_str).unwrap_or_default().to_owned();
    Some((text("codeName"), text("errmsg")))
}

/// Whether an error is the one that a step expects.
fn check_error(step: &Map<String, Json>, code: &str, message: &str) -> Result<(), String> {
    const MESSAGE_CHARS_MIN: usize = 10;
    let expected = step.get("error").and_then(Json::as_str).ok_or("error must hold the name of a code")?;
    if code != expected {
        return Err(format!("expected error {expected}, actual {code}: {message}"));
    }
    if message.chars().count() < MESSAGE_CHARS_MIN {
        return Err(format!("expected a message that says something, actual '{message}'"));
    }
    match step.get("error_contains").map(Json::as_str) {
        Some(Some(part)) if !message.to_lowercase().contains(&part.to_lowercase()) => {
            Err(format!("expected a message that contains '{part}', actual '{message}'"))
        }
        Some(None) => Err("error_contains must hold a text".to_owned()),
        _ => Ok(()),
    }
}

/// What a sweep at `at` would drop, under the names of a sweep's own reply. No pass is run, so none is counted.
fn dry_run(db: &Database, at: Timestamp) -> Result<Json, Error> {
    let snapshot = db.snapshot();
    let (mut buckets, mut measurements, mut bytes) = (0_u64, 0_u64, 0_u64);
    for name in snapshot.collections() {
        for row in snapshot.collection(&name)?.explain_expiry(at, None)? {
            buckets += row.buckets;
            measurements += row.measurements;
            bytes += row.bytes;
        }
    }
    for name in snapshot.document_collections() {
        for row in snapshot.documents(&name)?.explain_expiry(at, None)? {
            buckets += row.buckets;
            measurements += row.measurements;
            bytes += row.bytes;
        }
    }
    Ok(json!({
        "at": json_of(&Value::Date(at)),
        "passes": 0,
        "subPasses": 0,
        "deletedBuckets": buckets,
        "deletedDocuments": measurements,
        "deletedBytes": bytes,
        "reclaimedFiles": 0,
        "failedRules": 0,
    }))
}

#[cfg(test)]
mod tests;
