//! Lines that cannot be imported either end the import or are set aside.

use crate::{Failure, files};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of reasons printed to standard error; the file has all of them.
const SHOWN_MAX: usize = 5;

/// Collects bad lines.
pub(super) struct BadLines {
    path: Option<PathBuf>,
    /// `Some` once the import has begun.
    output: Option<Output>,
    max: u64,
    count: u64,
    reasons: Vec<String>,
    /// The last mark that was made.
    marked: Option<Mark>,
}

/// The file of bad lines, which is not touched before the first of them.
struct Output {
    /// The file as it was found, until the first line is set aside.
    found: Option<File>,
    /// Bytes of it that are never removed: what was there before and is kept, and the header.
    keep: u64,
    /// Whether what was there before is kept as a whole.
    appends: bool,
    /// `Some` from the first line on.
    writer: Option<csv::Writer<File>>,
}

impl Output {
    /// The writer. At the first line, the file is created if there is none, and what is not kept of it is removed.
    fn writer(&mut self, path: &Path) -> Result<&mut csv::Writer<File>, Failure> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.begin(path)?,
        };
        Ok(self.writer.insert(writer))
    }

    fn begin(&mut self, path: &Path) -> Result<csv::Writer<File>, Failure> {
        let fail = |e: io::Error| cannot_write(path, &e);
        let file = match self.found.take() {
            Some(file) => file,
            None => files::append(path)?,
        };
        if !self.appends && file.metadata().map_err(fail)?.len() > self.keep {
            file.set_len(self.keep).map_err(fail)?;
        }
        let mut writer = csv::Writer::from_writer(file);
        if self.keep == 0 {
            writer.write_record(["file", "line", "reason", "text"]).map_err(|e| cannot_write(path, &e))?;
            writer.flush().map_err(fail)?;
            self.keep = writer.get_ref().metadata().map_err(fail)?.len();
        }
        Ok(writer)
    }
}

fn cannot_write(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("cannot write {}: {error}", path.display()))
}

/// The file, if it exists. If it does not, it must be possible to create it later.
fn find(path: &Path) -> Result<Option<File>, Failure> {
    if path.exists() {
        return files::append(path).map(Some);
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(cannot_write(path, &format!("there is no folder {}", folder.display())));
    }
    tempfile::tempfile_in(folder).map_err(|e| cannot_write(path, &e))?;
    Ok(None)
}

/// What happens to existing lines in the file when the first line of an import is set aside.
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
        BadLines { path: path.map(Path::to_owned), output: None, max, count: 0, reasons: Vec::new(), marked: None }
    }

    /// Chooses the file, which must not be one of the inputs or in the database's folder.
    pub(super) fn open(&mut self, begin: &Begin, inputs: &[PathBuf], database: &Path) -> Result<(), Failure> {
        let Some(path) = self.path.as_ref().filter(|_| self.output.is_none()) else { return Ok(()) };
        files::keep_out(database, path)?;
        let found = find(path)?;
        let mut bytes = 0;
        if let Some(file) = &found {
            for input in inputs {
                if files::is_same(file, input)? {
                    let what = format!("--bad-lines {} would overwrite the input {}", path.display(), input.display());
                    return Err(Failure::usage(what));
                }
            }
            bytes = file.metadata().map_err(|e| cannot_write(path, &e))?.len();
        }
        let keep = match begin {
            Begin::New => 0,
            Begin::Append => bytes,
            Begin::After(mark) if mark.bytes <= bytes => mark.bytes,
            // The file is not the one of the interrupted import.
            Begin::After(_) => bytes,
        };
        self.output = Some(Output { found, keep, appends: matches!(begin, Begin::Append), writer: None });
        Ok(())
    }

    pub(super) fn lenient(&self) -> bool {
        self.path.is_some()
    }

    fn write(&mut self, record: [&str; 4]) -> Result<(), Failure> {
        let (Some(path), Some(output)) = (&self.path, &mut self.output) else { return Ok(()) };
        output.writer(path)?.write_record(record).map_err(|e| cannot_write(path, &e))
    }

    /// Sets a line aside; `text` is its content.
    pub(super) fn row(&mut self, file: &str, line: u64, reason: &str, text: &str) -> Result<(), Failure> {
        let place = format!("{file}:{line}: {reason}");
        let Some(path) = &self.path else { return Err(Failure::new(place)) };
        let path = path.display().to_string();
        self.write([file, &line.to_string(), reason, text])?;
        self.count += 1;
        if self.reasons.len() < SHOWN_MAX {
            self.reasons.push(place.clone());
        }
        if self.count > self.max {
            self.flush()?;
            return Err(Failure::new(format!(
                "there are more than {} bad lines, the last one at {place}; see {path} and --bad-lines-max",
                self.max
            )));
        }
        Ok(())
    }

    /// The current end of the file, which is durable when this returns.
    pub(super) fn mark(&mut self) -> Result<Mark, Failure> {
        if let Some(mark) = self.marked.as_ref().filter(|mark| mark.count == self.count) {
            return Ok(mark.clone());
        }
        self.flush()?;
        let (Some(path), Some(output)) = (&self.path, &self.output) else { return Ok(Mark::default()) };
        let bytes = match &output.writer {
            None => output.keep,
            Some(writer) => {
                let file = writer.get_ref();
                let data = file.sync_data().and_then(|()| file.metadata());
                data.map_err(|e| cannot_write(path, &e))?.len()
            }
        };
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
        let (Some(path), Some(output)) = (&self.path, &self.output) else { return Ok(()) };
        let Some(writer) = &output.writer else { return Ok(()) };
        // The header may have been written after the mark.
        let cut = writer.get_ref().set_len(mark.bytes.max(output.keep));
        cut.map_err(|e| cannot_write(path, &e))
    }

    /// Makes the lines readable for others.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        let (Some(path), Some(output)) = (&self.path, &mut self.output) else { return Ok(()) };
        output.writer.as_mut().map_or(Ok(()), csv::Writer::flush).map_err(|e| cannot_write(path, &e))
    }

    /// Prints how many lines were set aside, and the first reasons.
    pub(super) fn report(&mut self) -> Result<(), Failure> {
        self.flush()?;
        let Some(path) = self.path.as_ref().filter(|_| self.count > 0) else { return Ok(()) };
        let plural = if self.count == 1 { "" } else { "s" };
        let colon = if self.reasons.is_empty() { "" } else { ":" };
        eprintln!("{} bad line{plural} set aside in {}{colon}", self.count, path.display());
        for reason in &self.reasons {
            eprintln!("  {reason}");
        }
        if !self.reasons.is_empty() && self.count > self.reasons.len() as u64 {
            eprintln!("  and {} more", self.count - self.reasons.len() as u64);
        }
        Ok(())
    }
}
