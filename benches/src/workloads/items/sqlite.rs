//! The same in SQLite, by a Python program that is asked through its standard input.

use super::session::Session;
use super::{BATCH, LIFE};
use crate::Result;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(super) struct Sqlite {
    child: Child,
    input: Option<BufWriter<ChildStdin>>,
    output: BufReader<ChildStdout>,
}

impl Sqlite {
    /// A new database.
    pub(super) fn open(root: &Path, database: &Path) -> Result<Sqlite> {
        let program = root.join("benches/peers/items.py");
        let mut child = Command::new("python3")
            .arg(program)
            .arg(database)
            .args([BATCH.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().map(BufWriter::new);
        let output = child.stdout.take().map(BufReader::new).ok_or("Python has no output")?;
        Ok(Sqlite { child, input, output })
    }

    /// Seconds to put sessions in batches.
    pub(super) fn put(&mut self, sessions: impl Iterator<Item = Session>) -> Result<f64> {
        self.sessions("put", sessions)
    }

    /// Puts sessions at once, and without waiting for the disk.
    pub(super) fn fill(&mut self, sessions: impl Iterator<Item = Session>) -> Result<f64> {
        self.sessions("fill", sessions)
    }

    fn sessions(&mut self, command: &str, sessions: impl Iterator<Item = Session>) -> Result<f64> {
        let line = |session: Session| {
            let mut line = format!("{}\t{}\t", session.id, session.seen + i64::from(LIFE) * 1_000);
            line.write_str(&serde_json::to_string(&session)?)?;
            Ok(line)
        };
        let answer = self.ask(command, sessions.map(line))?;
        answer.first().copied().ok_or_else(|| "no answer from Python".into())
    }

    /// The p50 and the p99 of the last `measured` look-ups in microseconds.
    pub(super) fn get(&mut self, ids: impl Iterator<Item = String>, measured: u64) -> Result<[f64; 2]> {
        let answer = self.ask(&format!("get {measured}"), ids.map(Ok))?;
        <[f64; 2]>::try_from(answer).map_err(|answer| format!("{} figures from Python", answer.len()).into())
    }

    /// Seconds to delete what has expired at an instant in milliseconds.
    pub(super) fn expire(&mut self, at: i64) -> Result<f64> {
        let answer = self.ask(&format!("expire {at}"), std::iter::empty())?;
        answer.first().copied().ok_or_else(|| "no answer from Python".into())
    }

    fn ask(&mut self, command: &str, lines: impl Iterator<Item = Result<String>>) -> Result<Vec<f64>> {
        let input = self.input.as_mut().ok_or("Python has no input")?;
        writeln!(input, "{command}")?;
        for line in lines {
            writeln!(input, "{}", line?)?;
        }
        writeln!(input)?;
        input.flush()?;
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        answer.split_whitespace().map(|number| Ok(number.parse()?)).collect()
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        drop(self.input.take());
        // It ends with its input.
        let _ended = self.child.wait();
    }
}
