//! DuckDB in a Python process, connected by pipes.

use super::cells::{Row, from_json};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(crate) struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts it; an error says why that is not possible.
    pub(crate) fn start() -> Result<Peer, String> {
        let python = std::env::var("EBBTIDE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        match Command::new(&python).args(["-c", "import duckdb"]).output() {
            Ok(output) if output.status.success() => {}
            Ok(_) => return Err(format!("{python} has no package duckdb")),
            Err(error) => return Err(format!("cannot run {python}: {error}")),
        }
        let mut child = Command::new(&python)
            .args(["-c", include_str!("peer.py")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot run {python}: {e}"))?;
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Ok(Peer { child, input, output })
    }

    fn ask(&mut self, request: &Value) -> Result<Value, String> {
        writeln!(self.input, "{request}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let mut answer: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        match answer.get("error") {
            Some(error) => Err(error.as_str().unwrap().to_owned()),
            None => Ok(answer["rows"].take()),
        }
    }

    pub(crate) fn run(&mut self, statements: &[String]) {
        if let Err(error) = self.ask(&json!({ "run": statements })) {
            panic!("{error}\n{}", statements.join(";\n"));
        }
    }

    pub(crate) fn rows(&mut self, query: &str) -> Result<Vec<Row>, String> {
        let rows = self.ask(&json!({ "query": query }))?;
        let row = |row: &Value| row.as_array().unwrap().iter().map(from_json).collect();
        Ok(rows.as_array().unwrap().iter().map(row).collect())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
