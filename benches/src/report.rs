//! The report of a workload: figures with their spread, the machine and the versions.

use crate::Result;
use crate::folder::write_file;
use crate::measure::median;
use crate::question::AnsweredQuery;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use ebbtide::Settings;
use ebbtide::fs::{Fs, RealFs};
use ebbtide::ttl::{Clock, SystemClock};
use serde::Serialize;
use std::path::Path;

/// One measured figure.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// The unit of the values.
    pub unit: &'static str,
    /// The median of the runs.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
    /// Number of runs.
    pub runs: usize,
    /// Details: numbers of rows, a checksum of the answer.
    pub note: String,
}

/// The machine on which the figures were measured.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Model of the first processor.
    pub cpu: String,
    /// Number of processors that the system reports.
    pub cores: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The kernel.
    pub kernel: String,
}

/// The whole report of a workload.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The workload.
    pub workload: String,
    /// The start of the run.
    pub date: String,
    /// The machine.
    pub machine: Machine,
    /// Packages that the figures depend on, with their versions.
    pub versions: Vec<(String, String)>,
    /// Settings of the database.
    pub settings: Settings,
    /// Notes on the data and the method.
    pub data: Vec<String>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// The queries and their answers, so that other engines can run the same.
    pub queries: Vec<AnsweredQuery>,
}

impl Report {
    /// An empty report.
    #[must_use]
    pub fn new(workload: &str, settings: &Settings) -> Self {
        Report {
            workload: workload.to_owned(),
            date: SystemClock::new().now().to_string(),
            machine: machine(),
            versions: versions(),
            settings: settings.clone(),
            data: Vec::new(),
            figures: Vec::new(),
            queries: Vec::new(),
        }
    }

    /// Adds a note about the data or the method.
    pub fn say(&mut self, line: impl Into<String>) {
        self.data.push(line.into());
    }

    /// Adds a figure from the values of its runs.
    pub fn add(&mut self, name: impl Into<String>, unit: &'static str, values: &[f64], note: impl Into<String>) {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        self.figures.push(Figure {
            name: name.into(),
            unit,
            median: median(values),
            min: least,
            max: greatest,
            runs: values.len(),
            note: note.into(),
        });
    }

    /// Adds a figure in milliseconds from seconds.
    pub fn add_millis(&mut self, name: impl Into<String>, seconds: &[f64], note: impl Into<String>) {
        let millis: Vec<f64> = seconds.iter().map(|s| s * 1e3).collect();
        self.add(name, "ms", &millis, note);
    }

    /// The report as text.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(ASCII_MARKDOWN);
        table.set_header(["figure", "unit", "median", "min", "max", "runs", "note"]);
        for f in &self.figures {
            let (median, min, max) = (number(f.median), number(f.min), number(f.max));
            let runs = f.runs.to_string();
            table.add_row([&f.name, f.unit, &median, &min, &max, &runs, &f.note]);
        }
        for at in 2..=5 {
            if let Some(column) = table.column_mut(at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let m = &self.machine;
        let versions: Vec<String> = self.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        format!(
            "workload {}, {}\n{}, {} cores, {} GiB, {}\n{}\n{}\n\n{table}\n",
            self.workload,
            self.date,
            m.cpu,
            m.cores,
            m.memory_bytes >> 30,
            m.kernel,
            versions.join(", "),
            self.data.join("\n"),
        )
    }

    /// Writes the report as JSON.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write_json(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        write_file(path, text.as_bytes())
    }
}

/// A number with four significant digits and separated thousands.
fn number(v: f64) -> String {
    let digits = match v.abs() {
        a if a >= 1000.0 => 0,
        a if a >= 100.0 => 1,
        a if a >= 10.0 => 2,
        a if a >= 1.0 => 3,
        _ => 4,
    };
    let plain = format!("{v:.digits$}");
    if digits > 0 {
        return plain;
    }
    let mut grouped = String::new();
    for (at, c) in plain.chars().enumerate() {
        if at > 0 && (plain.len() - at) % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(c);
    }
    grouped
}

fn machine() -> Machine {
    let fs = RealFs::new();
    // The kernel's files report no length; if they cannot be read, the machine stays unnamed.
    let text = |path: &str| read_endless(&fs, Path::new(path)).unwrap_or_default();
    let cpus = text("/proc/cpuinfo");
    let value = |line: &str| line.split_once(':').map(|(_, v)| v.trim().to_owned()).unwrap_or_default();
    let memory = text("/proc/meminfo");
    let kib = memory.lines().find(|l| l.starts_with("MemTotal")).map(value).unwrap_or_default();
    let kib: u64 = kib.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    Machine {
        cpu: cpus.lines().find(|l| l.starts_with("model name")).map(value).unwrap_or_default(),
        cores: cpus.lines().filter(|l| l.starts_with("processor")).count(),
        memory_bytes: kib << 10,
        kernel: text("/proc/version").split(" (").next().unwrap_or_default().trim().to_owned(),
    }
}

/// A memory figure of this process in KiB, by its name in the kernel's status: `VmRSS` is the current size, `VmHWM` the
/// peak.
///
/// # Errors
/// If the kernel does not report it.
pub fn kibibytes_of_process(key: &str) -> Result<u64> {
    let text = read_endless(&RealFs::new(), Path::new("/proc/self/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let number = line.and_then(|rest| rest.split_whitespace().next()).ok_or("the kernel does not tell")?;
    Ok(number.parse()?)
}

fn read_endless(fs: &RealFs, path: &Path) -> Result<String> {
    Ok(String::from_utf8(fs.read(path)?)?)
}

fn versions() -> Vec<(String, String)> {
    let lock = include_str!("../../Cargo.lock");
    let wanted = ["ebbtide", "arrow", "parquet", "zstd-sys"];
    let mut versions = Vec::new();
    let mut name = "";
    for line in lock.lines() {
        if let Some(found) = quoted(line, "name = ") {
            name = found;
        } else if let Some(version) = quoted(line, "version = ").filter(|_| wanted.contains(&name)) {
            versions.push((name.to_owned(), version.to_owned()));
        }
    }
    versions
}

fn quoted<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key).map(|value| value.trim_matches('"'))
}
