//! Lines that cannot be imported either end the import or are set aside.

use crate::{Failure, files};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Maximum number of reasons printed to standard error; the file has all of them.
const SHOWN_MAX: usize = 5;

/// Collects bad lines.
pub(super) struct BadLines {
    path: Option<PathBuf>,
    /// `Some` once the import has begun.
    file: Option<csv::Writer<File>>,
    max: u64,
    count: u64,
    reasons: Vec<String>,
    /// The last mark that was made.
    marked: Option<Mark>,
}

/// What happens to existing lines in the file when an import begins.
pub(super) enum Begin {
    /// They are removed.
    New,
    /// They are kept.
    Append,
    /// They are kept up to this mark: an interrupted import continues.
    After(Mark),
}

/// A position in a file of bad lines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    count: u64,
    bytes: u64,
    #[serde(skip)]
    reasons: usize,
}

impl BadLines {
    /// Without a path, the first bad line is an error.
    pub(super) fn new(path: Option<&Path>, max: u64) -> Self {
        BadLines { path: path.map(Path::to_owned), file: None, max, count: 0, reasons: Vec::new(), marked: None }
    }

    /// Opens the file, which must not be one of the inputs or in the database's folder.
    pub(super) fn open(&mut self, begin: &Begin, inputs: &[PathBuf], database: &Path) -> Result<(), Failure> {
        let Some(path) = self.path.as_ref().filter(|_| self.file.is_none()) else { return Ok(()) };
        files::keep_out(database, path)?;
        let file = files::append(path)?;
        for input in inputs {
            if files::is_same(&file, input)? {
                let what = format!("--bad-lines {} would overwrite the input {}", path.display(), input.display());
                return Err(Failure::usage(what));
            }
        }
        let fail = |e| Failure::new(format!("cannot write {}: {e}", path.display()));
        let bytes = file.metadata().map_err(fail)?.len();
        let keep = match begin {
            Begin::New => 0,
            Begin::Append => bytes,
            Begin::After(mark) if mark.bytes <= bytes => mark.bytes,
            // The file is not the one of the interrupted import.
            Begin::After(_) => bytes,
        };
        if keep < bytes {
            file.set_len(keep).map_err(fail)?;
        }
        self.file = Some(csv::Writer::from_writer(file));
        if keep == 0 {
            self.write(["file", "line", "reason", "text"])?;
            self.flush()?;
        }
        Ok(())
    }

    pub(super) fn lenient(&self) -> bool {
        self.path.is_some()
    }

    fn write(&mut self, record: [&str; 4]) -> Result<(), Failure> {
        let (Some(path), Some(writer)) = (&self.path, &mut self.file) else { return Ok(()) };
        let fail = |e: csv::Error| Failure::new(format!("cannot write {}: {e}", path.display()));
        writer.write_record(record).map_err(fail)
    }

    /// Sets a line aside; `text` is its content.
    pub(super) fn row(&mut self, file: &str, line: u64, reason: &str, text: &str) -> Result<(), Failure> {
        let place = format!("{file}:{line}: {reason}");
        let Some(path) = &self.path else { return Err(Failure::new(place)) };
        let path = path.display().to_string();
        self.write([file, &line.to_string(), reason, text])?;
        self.count += 1;
        if self.count > self.max {
            self.flush()?;
            return Err(Failure::new(format!(
                "there are more than {} bad lines, the last one at {place}; see {path} and --bad-lines-max",
                self.max
            )));
        }
        if self.reasons.len() < SHOWN_MAX {
            self.reasons.push(place);
        }
        Ok(())
    }

    /// The current end of the file, which is durable when this returns.
    pub(super) fn mark(&mut self) -> Result<Mark, Failure> {
        if let Some(mark) = self.marked.as_ref().filter(|mark| mark.count == self.count) {
            return Ok(mark.clone());
        }
        self.flush()?;
        let (Some(path), Some(writer)) = (&self.path, &self.file) else { return Ok(Mark::default()) };
        let file = writer.get_ref();
        let length = file.sync_data().and_then(|()| file.metadata());
        let bytes = length.map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))?.len();
        let mark = Mark { count: self.count, bytes, reasons: self.reasons.len() };
        self.marked = Some(mark.clone());
        Ok(mark)
    }

    /// Adds the number of lines that an interrupted import set aside before.
    pub(super) fn add_earlier(&mut self, earlier: &Mark) {
        self.count += earlier.count;
    }

    /// Removes the lines after a mark: they will be added again.
    pub(super) fn rewind(&mut self, mark: &Mark) -> Result<(), Failure> {
        self.flush()?;
        self.count = mark.count;
        self.reasons.truncate(mark.reasons);
        self.marked = None;
        let (Some(path), Some(writer)) = (&self.path, &self.file) else { return Ok(()) };
        let cut = writer.get_ref().set_len(mark.bytes);
        cut.map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))
    }

    /// Makes the lines readable for others.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        let (Some(path), Some(writer)) = (&self.path, &mut self.file) else { return Ok(()) };
        writer.flush().map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))
    }

    /// Prints how many lines were set aside, and the first reasons.
    pub(super) fn report(&mut self) -> Result<(), Failure> {
        self.flush()?;
        let Some(path) = self.path.as_ref().filter(|_| self.count > 0) else { return Ok(()) };
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
