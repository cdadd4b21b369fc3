//! Lines that cannot be imported: they end the import, or are set aside.

use crate::{Failure, files};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Reasons that are told on standard error; the file has them all.
const SHOWN_MAX: usize = 5;

/// Takes bad lines.
pub(super) struct BadLines {
    file: Option<(PathBuf, csv::Writer<File>)>,
    max: u64,
    count: u64,
    reasons: Vec<String>,
}

/// How far a file of bad lines had come.
pub(super) struct Mark {
    count: u64,
    reasons: usize,
    bytes: u64,
}

impl BadLines {
    /// Without a path the first bad line is an error. `append` keeps what is in the file.
    pub(super) fn new(path: Option<&Path>, max: u64, append: bool) -> Result<Self, Failure> {
        let mut bad = BadLines { file: None, max, count: 0, reasons: Vec::new() };
        if let Some(path) = path {
            let file = files::create(path, append)?;
            let is_new = file.metadata().map_or(0, |m| m.len()) == 0;
            bad.file = Some((path.to_owned(), csv::Writer::from_writer(file)));
            if is_new {
                bad.write(["file", "line", "reason", "text"])?;
                bad.flush()?;
            }
        }
        Ok(bad)
    }

    pub(super) fn lenient(&self) -> bool {
        self.file.is_some()
    }

    fn write(&mut self, record: [&str; 4]) -> Result<(), Failure> {
        let Some((path, writer)) = &mut self.file else { return Ok(()) };
        let fail = |e: csv::Error| Failure::new(format!("cannot write {}: {e}", path.display()));
        writer.write_record(record).map_err(fail)
    }

    /// Sets a line aside; `text` is what it holds.
    pub(super) fn row(&mut self, file: &str, line: u64, reason: &str, text: &str) -> Result<(), Failure> {
        let place = format!("{file}:{line}: {reason}");
        let Some((path, _)) = &self.file else { return Err(Failure::new(place)) };
        let path = path.display().to_string();
        self.write([file, &line.to_string(), reason, text])?;
        self.count += 1;
        if self.count > self.max {
            self.flush()?;
            return Err(Failure::new(format!(
                "there are more than {} bad lines, the last is {place}; see {path}, and --bad-lines-max",
                self.max
            )));
        }
        if self.reasons.len() < SHOWN_MAX {
            self.reasons.push(place);
        }
        Ok(())
    }

    /// Where the file is now.
    pub(super) fn mark(&mut self) -> Result<Mark, Failure> {
        self.flush()?;
        let bytes = self.file.as_ref().map_or(0, |(_, w)| w.get_ref().metadata().map_or(0, |m| m.len()));
        Ok(Mark { count: self.count, reasons: self.reasons.len(), bytes })
    }

    /// Forgets what came after a mark: it will come again.
    pub(super) fn rewind(&mut self, mark: &Mark) -> Result<(), Failure> {
        self.flush()?;
        self.count = mark.count;
        self.reasons.truncate(mark.reasons);
        match &self.file {
            Some((path, writer)) => {
                let fail = |e| Failure::new(format!("cannot write {}: {e}", path.display()));
                writer.get_ref().set_len(mark.bytes).map_err(fail)
            }
            None => Ok(()),
        }
    }

    /// Makes the lines so far readable for others.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        match &mut self.file {
            Some((path, writer)) => {
                writer.flush().map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))
            }
            None => Ok(()),
        }
    }

    /// Tells how many lines were set aside, and why the first ones.
    pub(super) fn report(&mut self) -> Result<(), Failure> {
        self.flush()?;
        let Some((path, _)) = self.file.as_ref().filter(|_| self.count > 0) else { return Ok(()) };
        let plural = if self.count == 1 { "" } else { "s" };
        eprintln!("{} bad line{plural} set aside in {}:", self.count, path.display());
        for reason in &self.reasons {
            eprintln!("  {reason}");
        }
        if self.count > self.reasons.len() as u64 {
            eprintln!("  and {} more", self.count - self.reasons.len() as u64);
        }
        Ok(())
    }
}
