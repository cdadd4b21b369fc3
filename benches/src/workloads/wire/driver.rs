//! MongoDB's Python driver, in a program that is asked through its standard input.

use crate::Result;
use crate::weather::Weather;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(super) struct Driver {
    child: Child,
    input: Option<BufWriter<ChildStdin>>,
    output: BufReader<ChildStdout>,
}

/// An answer to a pipeline: the seconds of the runs on each server.
#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    pub(super) took: Vec<Vec<f64>>,
    /// Without decoding the documents.
    pub(super) raw: Vec<Vec<f64>>,
    /// What differs between the answers, if they do.
    pub(super) differs: Option<String>,
}

/// Seconds of round trips.
#[derive(Debug, Deserialize)]
pub(super) struct RoundTrips {
    pub(super) pings: Vec<f64>,
    pub(super) finds: Vec<f64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Expired {
    /// Nothing if they did not expire within a minute.
    pub(super) seconds: Option<f64>,
    /// How many rows are left.
    pub(super) rows: u64,
}

impl Driver {
    /// Nothing if there is no Python with pymongo.
    pub(super) fn start(root: &Path) -> Result<Option<Driver>> {
        let Some(python) = std::env::var_os("EBBTIDE_PYTHON") else { return Ok(None) };
        if !Command::new(&python).args(["-c", "import pymongo"]).stderr(Stdio::null()).status()?.success() {
            return Ok(None);
        }
        let mut command = Command::new(python);
        command.arg(root.join("benches/peers/wire.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let input = child.stdin.take().map(BufWriter::new);
        let output = child.stdout.take().map(BufReader::new).ok_or("Python has no output")?;
        Ok(Some(Driver { child, input, output }))
    }

    /// Gives it the documents; its version.
    pub(super) fn load(&mut self, weather: &Weather) -> Result<String> {
        self.send(&json!({ "do": "data", "rows": weather.rows() }))?;
        let input = self.input.as_mut().ok_or("Python has no input")?;
        for document in weather.documents() {
            input.write_all(document?.as_bytes())?;
        }
        let told: Value = self.answer()?;
        let how = if told["is_in_c"] == true { "with" } else { "without" };
        Ok(format!("pymongo {} {how} its extension in C", told["driver"].as_str().unwrap_or_default()))
    }

    /// Seconds for making BSON of all documents.
    pub(super) fn encode(&mut self, batch: usize, runs: usize) -> Result<Vec<f64>> {
        (0..runs).map(|_| self.ask_for(&json!({ "do": "encode", "batch": batch }))).collect()
    }

    /// Seconds for inserting all documents into a new collection.
    pub(super) fn insert(&mut self, uri: &str, batch: usize) -> Result<f64> {
        self.ask_for(&json!({ "do": "insert", "uri": uri, "batch": batch }))
    }

    pub(super) fn ask(&mut self, uris: &[String], pipeline: &Value, runs: usize) -> Result<Asked> {
        self.ask_for(&json!({ "do": "ask", "uris": uris, "pipeline": pipeline, "runs": runs }))
    }

    pub(super) fn round_trips(&mut self, uri: &str, station: &str, since: i64, runs: usize) -> Result<RoundTrips> {
        self.ask_for(&json!({ "do": "round_trips", "uri": uri, "station": station, "since": since, "runs": runs }))
    }

    pub(super) fn expire(&mut self, uri: &str, seconds: i64, left: usize) -> Result<Expired> {
        self.ask_for(&json!({ "do": "expire", "uri": uri, "seconds": seconds, "left": left }))
    }

    /// Runs a command; the end of the server is no error.
    pub(super) fn command(&mut self, uri: &str, database: &str, body: Value) -> Result<Value> {
        self.ask_for(&json!({ "do": "command", "uri": uri, "database": database, "body": body }))
    }

    fn ask_for<T: DeserializeOwned>(&mut self, command: &Value) -> Result<T> {
        self.send(command)?;
        self.answer()
    }

    fn send(&mut self, command: &Value) -> Result<()> {
        let input = self.input.as_mut().ok_or("Python has no input")?;
        Ok(writeln!(input, "{command}")?)
    }

    fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.input.as_mut().ok_or("Python has no input")?.flush()?;
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("the driver ended: its error is above".into());
        }
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.input.take());
        // It ends with its input.
        let _ended = self.child.wait();
    }
}
