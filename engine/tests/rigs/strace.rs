//! Tier G: `strace` kills the process before each system call that changes the disk, makes calls fail, and makes
//! writes get lost.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebbtide::ErrorKind;
use ebbtide::fs::RealFs;
use ebbtide_ttl::{Code, Timestamp, VirtualClock};

use crate::Outcome;
use crate::child::{Said, command, expectation, heard, reopened, worked_on};
use crate::expect::Expected;
use crate::runner::{find, open_at};
use crate::script::Scenario;
use crate::workloads;

/// Calls that change something, or tell the outside that something is done.
const CHANGING: [&str; 13] = [
    "write",
    "pwrite64",
    "fdatasync",
    "fsync",
    "openat",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "mkdir",
    "ftruncate",
    "fallocate",
];
/// Calls that only look; they can fail all the same.
const LOOKING: [&str; 3] = ["getdents64", "statx", "flock"];
/// Failing calls of a run by default.
const ERRORS_DEFAULT: usize = 320;
const LOST_WRITES: usize = 120;
/// Kills that a run has at least, or the scripts have become too short.
const KILLS_MIN: usize = 600;
/// A process that takes longer hangs.
const SECONDS_MAX: &str = "120";
const FAILURES_MAX: usize = 20;

/// A system call that the undisturbed script makes: which, and the how many-th of its kind.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) nth: usize,
    /// It creates a file.
    creates: bool,
    /// It names a file of the database.
    inside: bool,
}

impl Call {
    /// Whether the disk, or what the outside knows, changes by it.
    pub(crate) fn changes(&self) -> bool {
        CHANGING.contains(&self.name.as_str()) && (self.name != "openat" || self.creates)
    }
}

/// One run: the script, and what `strace` does to it.
struct Strike {
    scenario: Scenario,
    call: String,
    /// `signal=SIGKILL:when=7`
    how: String,
}

impl Strike {
    fn label(&self) -> String {
        format!("{}:{}:{}", self.scenario.name, self.call, self.how)
    }
}

/// Why `strace` cannot be used here, if it cannot.
pub(crate) fn unusable() -> Option<String> {
    let run = |args: &[&str]| Command::new("strace").args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match run(&["--version"]) {
        Err(error) => return Some(format!("skipped: strace cannot be started ({error})")),
        Ok(status) if !status.success() => return Some(format!("skipped: strace --version ends with {status}")),
        Ok(_) => {}
    }
    let probe = ["-f", "-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:error=EIO:when=1", "true"];
    match run(&probe) {
        Ok(status) if status.success() => None,
        _ => Some("skipped: strace may not trace a process here (ptrace is forbidden, or it cannot inject)".to_owned()),
    }
}

/// A folder in memory where there is one: a sync of a real disk takes milliseconds, and proves nothing more here.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = tempfile::Builder::new().prefix("ebbtide-rig-").tempdir_in("/dev/shm");
    memory.or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}

/// Plays a part on a folder under `strace`; what it traced, and how it ended.
fn run(role: &str, dir: &Path, at: &Path, options: &[&str]) -> Result<(String, Option<i32>), String> {
    let (trace, errors) = (at.join("trace"), at.join("stderr"));
    let child = command(role, dir, &at.join("said"));
    let stderr = std::fs::File::create(&errors).map_err(|error| error.to_string())?;
    let mut strace = Command::new("timeout");
    strace.args(["--foreground", SECONDS_MAX, "strace", "-f", "-qq", "-o"]).arg(&trace).args(options);
    strace.arg(child.get_program()).envs(child.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let status = strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).status();
    let status = status.map_err(|error| format!("strace: {error}"))?;
    let text = |path: &Path| {
        let bytes = std::fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    // What is killed takes strace and timeout with it.
    match status.code().or(status.signal().map(|signal| 128 + signal)) {
        Some(124) => Err(format!("the process hangs: {}", text(&errors))),
        Some(code) if code != 0 && code != 128 + 9 => {
            // What went wrong in the process says more than that it ended.
            expectation(&heard(&at.join("said"))?)?;
            Err(format!("the process ended with {code}: {}", text(&errors)))
        }
        code => Ok((text(&trace), code)),
    }
}

/// Plays a part until it is killed before a call; whether it was.
pub(crate) fn killed_at(role: &str, call: &Call, dir: &Path, at: &Path) -> Result<bool, String> {
    let (trace, inject) =
        (format!("trace={}", call.name), format!("inject={}:signal=SIGKILL:when={}", call.name, call.nth));
    run(role, dir, at, &["-e", &trace, "-e", &inject]).map(|(_, code)| code == Some(128 + 9))
}

/// The calls of an undisturbed workload, which has to come to its end.
pub(crate) fn calls(scenario: &Scenario, base: &Path) -> Result<Vec<Call>, String> {
    let calls = calls_of(scenario.name, base)?;
    let at = base.join(scenario.name);
    let said = heard(&at.join("said"))?;
    worked_on(
        reopened(&at.join("db"), &expectation(&said)?, scenario)?,
        &at.join("db"),
        &expectation(&said)?,
        scenario,
    )?;
    Ok(calls)
}

/// The calls of the thread that plays a part, from the first that concerns its folder on.
pub(crate) fn calls_of(role: &str, base: &Path) -> Result<Vec<Call>, String> {
    let at = folder(base, role)?;
    let names = [CHANGING.as_slice(), LOOKING.as_slice()].concat().join(",");
    let (trace, _) = run(role, &at.join("db"), &at, &["-e", &format!("trace={names}")])?;
    let said = heard(&at.join("said"))?;
    if !matches!(said.last(), Some(Said::End { refused: 0, unknown: 0 })) {
        return Err(format!("{role} does not run by itself: {:?}", said.last()));
    }
    let dir = at.join("db").display().to_string();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut main, mut begun, mut calls) = (None, false, Vec::new());
    for line in trace.lines() {
        let Some((thread, rest)) = line.split_once(char::is_whitespace) else { continue };
        let Some((name, arguments)) = rest.trim_start().split_once('(') else { continue };
        // Which thread becomes the leader of a group is not the same each time: they are struck with the first calls.
        if *main.get_or_insert(thread) != thread || name.contains(' ') {
            continue;
        }
        let nth = counts.entry(name).or_default();
        *nth += 1;
        let inside = arguments.contains(&dir);
        begun |= inside;
        if begun {
            let creates = name == "openat" && arguments.contains("O_CREAT");
            calls.push(Call { name: name.to_owned(), nth: *nth, creates, inside });
        }
    }
    Ok(calls)
}

fn folder(base: &Path, name: &str) -> Result<PathBuf, String> {
    let at = base.join(name.replace([':', '='], "-"));
    std::fs::create_dir(&at).map_err(|error| format!("{}: {error}", at.display()))?;
    Ok(at)
}

/// Runs all strikes on all cores. `check` gets the folder and whether the strike met its call.
fn all(
    base: &Path,
    mut strikes: Vec<Strike>,
    check: impl Fn(&Strike, &Path, bool, usize) -> Result<(), String> + Sync,
) -> Result<usize, String> {
    if let Ok(replay) = std::env::var("EBBTIDE_RIG_REPLAY") {
        strikes.retain(|strike| strike.label() == replay);
    }
    let (next, struck) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    let one = |strike: &Strike, number: usize| -> Result<(), String> {
        let at = folder(base, &strike.label())?;
        let trace = format!("trace={}", strike.call);
        let inject = format!("inject={}:{}", strike.call, strike.how);
        let (trace, code) = run(strike.scenario.name, &at.join("db"), &at, &["-e", &trace, "-e", &inject])?;
        let met = code == Some(128 + 9) || trace.contains("(INJECTED)");
        struck.fetch_add(usize::from(met), Ordering::Relaxed);
        check(strike, &at, met, number)?;
        std::fs::remove_dir_all(&at).map_err(|error| error.to_string())
    };
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(strike) = strikes.get(number) else { break };
            if let Err(what) = one(strike, number) {
                let mut failures = failures.lock().expect("no panic");
                failures.push(format!("EBBTIDE_RIG_REPLAY='{}': {what}", strike.label()));
                if failures.len() >= FAILURES_MAX {
                    break;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let (failures, struck) = (failures.into_inner().expect("no panic"), struck.into_inner());
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    // A strike can miss, since threads do not share calls in the same way each time. Many cannot.
    if struck * 10 < strikes.len() * 8 {
        return Err(format!("only {struck} of {} strikes met their call", strikes.len()));
    }
    Ok(struck)
}

/// The calls of every script, with the script.
fn points(base: &Path) -> Result<Vec<(Scenario, Call)>, String> {
    let mut points = Vec::new();
    for scenario in workloads::all() {
        points.extend(calls(&scenario, base)?.into_iter().map(|call| (scenario.clone(), call)));
    }
    Ok(points)
}

fn ended(at: &Path, scenario: &Scenario, number: usize) -> Result<(), String> {
    let expected = expectation(&heard(&at.join("said"))?)?;
    let db = reopened(&at.join("db"), &expected, scenario)?;
    if number.is_multiple_of(4) { worked_on(db, &at.join("db"), &expected, scenario) } else { Ok(()) }
}

/// Kills before every changing call of both scripts.
pub(crate) fn kills() -> Outcome {
    if let Some(why) = unusable() {
        return Ok(why);
    }
    let base = scratch();
    let mut points = points(base.path())?;
    points.retain(|(_, call)| call.changes());
    let strikes: Vec<Strike> = points
        .into_iter()
        .map(|(scenario, call)| Strike { scenario, how: format!("signal=SIGKILL:when={}", call.nth), call: call.name })
        .collect();
    let planned = strikes.len();
    if planned < KILLS_MIN {
        return Err(format!("only {planned} kills, {KILLS_MIN} are wanted"));
    }
    let struck = all(base.path(), strikes, |strike, at, _, number| ended(at, &strike.scenario, number))?;
    Ok(format!("tier G: {struck} kills of {planned} planned, nothing lost"))
}

/// How a call can fail.
fn errors_of(call: &Call) -> &'static [&'static str] {
    match call.name.as_str() {
        "pwrite64" => &["error=EIO", "error=ENOSPC", "retval=0", "error=EINTR"],
        "fdatasync" | "fsync" => &["error=EIO", "error=ENOSPC"],
        "openat" if call.creates => &["error=EMFILE", "error=ENOSPC", "error=EACCES"],
        "openat" if call.inside => &["error=EMFILE", "error=EIO"],
        "rename" | "renameat" | "renameat2" => &["error=EIO", "error=ENOSPC"],
        "unlink" | "unlinkat" | "ftruncate" | "getdents64" => &["error=EIO"],
        "mkdir" => &["error=ENOSPC", "error=EACCES"],
        "flock" => &["error=ENOLCK"],
        "statx" if call.inside => &["error=EACCES"],
        _ => &[],
    }
}

/// Takes so many out of a list, evenly.
pub(crate) fn thinned<T>(list: Vec<T>, most: usize) -> Vec<T> {
    let len = list.len().max(1);
    list.into_iter()
        .enumerate()
        .filter(|(at, _)| at * most / len != (at + 1) * most / len || most >= len)
        .map(|(_, t)| t)
        .collect()
}

/// Makes calls fail, once and for ever.
pub(crate) fn errors() -> Outcome {
    if let Some(why) = unusable() {
        return Ok(why);
    }
    let base = scratch();
    let mut strikes = Vec::new();
    for (scenario, call) in points(base.path())? {
        for error in errors_of(&call) {
            // An interrupted call is tried again: for ever, if it is interrupted for ever.
            for when in ["", "+"].iter().take(if *error == "error=EINTR" { 1 } else { 2 }) {
                let how = format!("{error}:when={}{when}", call.nth);
                strikes.push(Strike { scenario: scenario.clone(), call: call.name.clone(), how });
            }
        }
    }
    let possible = strikes.len();
    let most = std::env::var("EBBTIDE_RIG_ERRORS").ok().and_then(|text| text.parse().ok()).unwrap_or(ERRORS_DEFAULT);
    if std::env::var("EBBTIDE_RIG_REPLAY").is_err() {
        strikes = thinned(strikes, most);
    }
    let counts = Mutex::new((0, 0));
    let struck = all(base.path(), strikes, |strike, at, met, number| {
        let heard = heard(&at.join("said"))?;
        let Some(Said::End { refused, unknown }) = heard.last() else {
            return Err(format!("the script did not end: {:?}", heard.last()));
        };
        if met && strike.how.contains("EINTR") && (*refused, *unknown) != (0, 0) {
            return Err("an interrupted call was not tried again".to_owned());
        }
        let mut counts = counts.lock().expect("no panic");
        *counts = (counts.0 + usize::from(*refused > 0), counts.1 + usize::from(*unknown > 0));
        drop(counts);
        ended(at, &strike.scenario, number)
    })?;
    let (refused, unknown) = counts.into_inner().expect("no panic");
    Ok(format!(
        "tier G: {struck} failing calls of {possible} possible, {refused} runs with a refused step, {unknown} that stopped \
         writing, nothing lost"
    ))
}

/// Makes writes that claim success, and of which 100 bytes never reach the file: more than is promised. It is
/// noticed, or costs the end; what is there is right.
pub(crate) fn lost_writes() -> Outcome {
    if let Some(why) = unusable() {
        return Ok(why);
    }
    let base = scratch();
    let mut points = points(base.path())?;
    points.retain(|(_, call)| call.name == "pwrite64");
    let strikes = points.into_iter().map(|(scenario, call)| {
        let how = format!("retval=100:when={}", call.nth);
        Strike { scenario, call: call.name, how }
    });
    let counts =
        Mutex::new(BTreeMap::from([("noticed at once", 0), ("noticed later", 0), ("tail", 0), ("no harm", 0)]));
    let strikes = thinned(strikes.collect(), LOST_WRITES);
    let struck = all(base.path(), strikes, |strike, at, _, _| {
        let heard = heard(&at.join("said"))?;
        let expected = expectation(&heard)?;
        let outcome = match heard.last() {
            Some(Said::Noticed(_)) => "noticed at once",
            _ => after_a_lost_write(&at.join("db"), &expected, &strike.scenario)?,
        };
        *counts.lock().expect("no panic").entry(outcome).or_default() += 1;
        Ok(())
    })?;
    Ok(format!("tier G: {struck} lost writes, {:?}", counts.into_inner().expect("no panic")))
}

fn after_a_lost_write(dir: &Path, expected: &Expected, scenario: &Scenario) -> Result<&'static str, String> {
    let clock = VirtualClock::new(Timestamp::from_millis(expected.now));
    let found = open_at(&RealFs::new(), dir, &clock, &scenario.settings).and_then(|db| find(&db, expected));
    let found = match found {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::Corrupt || error.code() == Code::IncompatibleFormat => {
            return Ok("noticed later");
        }
        Err(error) => return Err(format!("neither noticed nor opened: {:?}: {error}", error.kind())),
    };
    for (name, collection) in &found.collections {
        let Some(known) = expected.collections.get(name) else { continue };
        if let Some(wrong) = collection.wrong.first() {
            return Err(format!("wrong row: {wrong}"));
        }
        let stored: BTreeSet<i64> = collection.stored.iter().copied().collect();
        if stored.len() != collection.stored.len() {
            return Err("a row is there twice".to_owned());
        }
        if let Some(id) = stored.iter().find(|id| !known.rows.contains_key(id)) {
            return Err(format!("row {id} was never given"));
        }
        // Ids grow from insert to insert, and those that are under way together share their hundreds.
        let last = stored.last().map_or(i64::MIN, |id| id / 100);
        if let Some(id) = known.sure.difference(&stored).find(|id| **id / 100 < last) {
            return Err(format!("row {id} is lost, and rows behind it are there"));
        }
    }
    Ok(if expected.check(&found).is_ok() { "no harm" } else { "tail" })
}
