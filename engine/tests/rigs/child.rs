//! The process that is killed, fails, and stops: it runs a script, and says before and after each step what may be
//! stored.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use ebbtide::fs::RealFs;
use ebbtide::{Database, ErrorKind};
use ebbtide_ttl::{Timestamp, VirtualClock};
use serde::{Deserialize, Serialize};

use crate::expect::{Expected, There};
use crate::runner::{Outcome, Runner, add_more, find, note, open_at};
use crate::script::{NOON, Scenario, Step};
use crate::workloads;

/// Which part this process plays; without it, it is the test program.
const ROLE: &str = "EBBTIDE_RIG_ROLE";
const DIR: &str = "EBBTIDE_RIG_DIR";
const SAID: &str = "EBBTIDE_RIG_SAID";

/// What a process said last, one line of JSON each.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Said {
    /// What may be stored from here on, until more is said.
    May(Box<Expected>),
    /// The script came to its end, with or without refused steps.
    End { refused: usize, unknown: usize },
    /// A file was found damaged.
    Noticed(String),
    /// The change that comes next.
    Next(usize),
    /// What was counted.
    Counted(String),
    /// Something that must not be.
    Wrong(String),
}

/// This program in another part, on a folder, telling a file what it does.
pub(crate) fn command(role: &str, dir: &Path, said: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.env(ROLE, role).env(DIR, dir).env(SAID, said);
    command
}

/// Plays the part that the environment names.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let role = std::env::var(ROLE).ok()?;
    let (dir, said) = (PathBuf::from(std::env::var_os(DIR)?), PathBuf::from(std::env::var_os(SAID)?));
    let mut said = OpenOptions::new().append(true).create(true).open(said).expect("a file to talk to");
    let outcome = match role.as_str() {
        "full" => crate::full::in_own_mounts(&dir, &mut said),
        "power" => crate::ext4::in_own_mounts(&dir, &mut said),
        "states" => crate::ext4::states_in_own_mounts(&dir, &mut said),
        "calls" => crate::ext4::calls(&dir, &mut said),
        "read-only" => crate::limits::read_only_in_own_mounts(&dir, &mut said),
        "may-read" => crate::limits::without_rights(&dir, true, &mut said),
        "may-nothing" => crate::limits::without_rights(&dir, false, &mut said),
        "handles" => crate::limits::with_few_handles(&dir, &mut said),
        name => {
            let scenario = workloads::all().into_iter().find(|scenario| scenario.name == name).expect("a workload");
            script(&scenario, &dir, &mut said)
        }
    };
    if let Err(what) = outcome {
        say(&mut said, &Said::Wrong(what));
        return Some(ExitCode::FAILURE);
    }
    Some(ExitCode::SUCCESS)
}

fn line(what: &Said) -> Vec<u8> {
    let mut line = serde_json::to_vec(what).expect("plain data");
    line.push(b'\n');
    line
}

/// Writes a line with one system call.
pub(crate) fn say(to: &mut File, what: &Said) {
    write(to, &line(what));
}

/// Tries again if it fails: the call that is made to fail may be this one.
fn write(to: &mut File, line: &[u8]) {
    while to.write(line).ok() != Some(line.len()) {}
}

/// Says what may be stored when that changes.
struct Teller<'a> {
    said: &'a mut File,
    last: Vec<u8>,
}

impl Teller<'_> {
    fn may(&mut self, expected: &Expected) {
        let line = line(&Said::May(Box::new(expected.clone())));
        if line != self.last {
            write(self.said, &line);
            self.last = line;
        }
    }
}

/// Runs a script as far as it goes.
fn script(scenario: &Scenario, dir: &Path, said: &mut File) -> Result<(), String> {
    let mut runner = Runner::new(RealFs::new(), dir, scenario.settings.clone());
    let mut teller = Teller { said, last: Vec::new() };
    teller.may(&runner.expected);
    let (mut refused, mut unknown) = (0, 0);
    match runner.open() {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            say(teller.said, &Said::Noticed(error.to_string()));
            return Ok(());
        }
        Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::Full) => {
            say(teller.said, &Said::End { refused: 1, unknown: 0 });
            return Ok(());
        }
        Err(error) => return Err(format!("open: {:?}: {error}", error.kind())),
    }
    for (at, step) in scenario.steps.iter().enumerate() {
        let mut during = runner.expected.clone();
        if !runner.poisoned {
            note(&mut during, step, There::Maybe, None);
        }
        teller.may(&during);
        let outcome = match runner.step(step) {
            Ok((outcome, _)) => outcome,
            Err(what) if what.contains("unexpected error Corrupt") => {
                say(teller.said, &Said::Noticed(what));
                return Ok(());
            }
            Err(what) => return Err(format!("step {at}: {what}")),
        };
        teller.may(&runner.expected);
        refused += usize::from(outcome == Outcome::Refused);
        unknown += usize::from(outcome == Outcome::Unknown);
        if outcome != Outcome::Done && matches!(step, Step::Reopen) {
            break;
        }
    }
    say(teller.said, &Said::End { refused, unknown });
    Ok(())
}

/// The whole lines that a process said.
pub(crate) fn heard(said: &Path) -> Result<Vec<Said>, String> {
    let text = std::fs::read(said).unwrap_or_default();
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines = text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).map_err(|error| format!("unreadable: {error}"))).collect()
}

/// What may be stored, by all that was said.
pub(crate) fn expectation(heard: &[Said]) -> Result<Expected, String> {
    let mut expected = Expected { now: NOON, ..Expected::default() };
    for said in heard {
        match said {
            Said::May(may) => expected = (**may).clone(),
            Said::Wrong(what) => return Err(format!("in the process: {what}")),
            Said::End { .. } | Said::Noticed(_) | Said::Next(_) | Said::Counted(_) => {}
        }
    }
    Ok(expected)
}

/// Opens what a process left, and compares.
pub(crate) fn reopened(dir: &Path, expected: &Expected, scenario: &Scenario) -> Result<Database, String> {
    let clock = VirtualClock::new(Timestamp::from_millis(expected.now));
    let db = open_at(&RealFs::new(), dir, &clock, &scenario.settings)
        .map_err(|error| format!("does not open: {:?}: {error}", error.kind()))?;
    let found = find(&db, expected).map_err(|error| format!("cannot be read: {:?}: {error}", error.kind()))?;
    expected.check(&found)?;
    Ok(db)
}

/// Works on with what was recovered: what it held stays, what is added stays too, and no file is damaged.
pub(crate) fn worked_on(db: Database, dir: &Path, expected: &Expected, scenario: &Scenario) -> Result<(), String> {
    let said = |error: ebbtide::Error| format!("cannot work on: {:?}: {error}", error.kind());
    let mut wanted = find(&db, expected).map_err(said)?;
    if !wanted.collections.contains_key("c") {
        db.create_collection("c", ebbtide::CollectionOptions::new("t").meta_field("m")).map_err(said)?;
        wanted.collections.insert("c".to_owned(), Default::default());
    }
    add_more(&db, &mut wanted, expected.now)?;
    db.flush().map_err(said)?;
    db.compact(None).map_err(said)?;
    let faults = db.verify().map_err(said)?.faults;
    if let Some(fault) = faults.first() {
        return Err(format!("damaged: {fault}"));
    }
    db.close().map_err(said)?;
    let clock = VirtualClock::new(Timestamp::from_millis(expected.now));
    let again = open_at(&RealFs::new(), dir, &clock, &scenario.settings).map_err(said)?;
    let again = find(&again, expected).map_err(said)?;
    if again == wanted { Ok(()) } else { Err(format!("after working on: expected={wanted:?} found={again:?}")) }
}
