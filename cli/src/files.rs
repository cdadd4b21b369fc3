//! The door to files that are no database: input, results, and the terminal.

use crate::Failure;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

/// Opens a file for reading.
#[expect(clippy::disallowed_methods, reason = "input files are no part of a database")]
pub(crate) fn open(path: &Path) -> Result<File, Failure> {
    let file = File::open(path).map_err(|e| Failure::new(format!("cannot open {}: {e}", path.display())))?;
    match file.metadata() {
        Ok(data) if data.is_dir() => Err(Failure::new(format!("{} is a folder, a file is expected", path.display()))),
        _ => Ok(file),
    }
}

/// Opens a file of messages about an input for writing at its end, whatever is in it.
#[expect(clippy::disallowed_methods, reason = "a file for people is no part of a database")]
pub(crate) fn append(path: &Path) -> Result<File, Failure> {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    file.map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))
}

/// Whether an open file is the one of this name, which may be a link, or another name of it; `-` is standard input.
pub(crate) fn is_same(file: &File, path: &Path) -> Result<bool, Failure> {
    let fail = |e: io::Error| Failure::new(format!("cannot look at {}: {e}", path.display()));
    let file = file.try_clone().and_then(same_file::Handle::from_file).map_err(fail)?;
    let other = if path == Path::new("-") { same_file::Handle::stdin() } else { same_file::Handle::from_path(path) };
    match other {
        Ok(other) => Ok(file == other),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(fail(e)),
    }
}

/// Refuses to write a file into the folder of a database, by whatever name.
pub(crate) fn keep_out(database: &Path, output: &Path) -> Result<(), Failure> {
    // Of what is not there yet, the folder that is going to hold it tells where it is.
    let place = output.ancestors().skip(1).map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    let place = place.into_iter().find_map(|p| p.canonicalize().ok());
    // What is there already may be a link to a file in it.
    let target = output.canonicalize().ok().and_then(|p| p.parent().map(Path::to_owned));
    match database.canonicalize() {
        Ok(folder) if place.into_iter().chain(target).any(|p| p == folder) => Err(Failure::usage(format!(
            "{} is in the folder of the database: name a place outside of it",
            output.display()
        ))),
        _ => Ok(()),
    }
}

/// Reads all of standard input.
pub(crate) fn read_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(|e| Failure::new(format!("cannot read standard input: {e}")))?;
    Ok(text)
}

/// Bytes of standard input in a file of their own, since Parquet and Arrow are not read in order.
pub(crate) fn spool_stdin() -> Result<tempfile::NamedTempFile, Failure> {
    let fail = |e: io::Error| Failure::new(format!("cannot keep standard input in a temporary file: {e}"));
    let mut file = tempfile::NamedTempFile::new().map_err(fail)?;
    io::copy(&mut BufReader::new(io::stdin().lock()), &mut file).map_err(fail)?;
    file.flush().map_err(fail)?;
    Ok(file)
}

/// A file that takes its name only when it is complete.
pub(crate) struct NewFile {
    part: tempfile::NamedTempFile,
    path: PathBuf,
}

impl NewFile {
    /// `database` is the folder that it must not be in.
    pub(crate) fn create(path: &Path, database: &Path) -> Result<Self, Failure> {
        keep_out(database, path)?;
        let fail = |e: io::Error| Failure::new(format!("cannot write {}: {e}", path.display()));
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let part = tempfile::Builder::new().prefix(".ebbtide-part-").tempfile_in(folder).map_err(fail)?;
        Ok(NewFile { part, path: path.to_owned() })
    }

    pub(crate) fn sink(&self) -> Result<Box<dyn Write + Send>, Failure> {
        let file =
            self.part.reopen().map_err(|e| Failure::new(format!("cannot write {}: {e}", self.path.display())))?;
        Ok(Box::new(BufWriter::new(file)))
    }

    pub(crate) fn keep(self) -> Result<(), Failure> {
        let fail = |e: &dyn std::fmt::Display| Failure::new(format!("cannot write {}: {e}", self.path.display()));
        readable_by_others(self.part.path()).map_err(|e| fail(&e))?;
        self.part.persist(&self.path).map(|_| ()).map_err(|e| fail(&e.error))
    }
}

/// Temporary files are made private; a result is an ordinary file.
#[cfg(unix)]
fn readable_by_others(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable_by_others(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Creates a folder, and those above it, unless they exist.
#[expect(clippy::disallowed_methods, reason = "a folder for results is no part of a database")]
pub(crate) fn make_folder(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path).map_err(|e| Failure::new(format!("cannot create folder {}: {e}", path.display())))
}

/// Standard output.
pub(crate) fn stdout() -> Box<dyn Write + Send> {
    Box::new(BufWriter::new(io::stdout()))
}

/// Whether results are read by a person.
pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether statements are typed by a person.
pub(crate) fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Whether messages are read by a person.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Whether standard output takes colours.
pub(crate) fn colour() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
    stdout_is_terminal() && !refused && !dumb
}

/// Tells why something failed, in lines that break between words. What follows the first line shows a place in a statement
/// and stays as it is.
pub(crate) fn complain(message: &str) {
    let width = if stderr_is_terminal() { width().map_or(100, usize::from) } else { usize::MAX };
    let message = format!("error: {message}");
    let (first, rest) = message.split_once('\n').unwrap_or((&message, ""));
    eprintln!("{}", wrapped(first, width));
    if !rest.is_empty() {
        eprintln!("{rest}");
    }
}

/// A text in lines of at most so many characters, as far as its words allow it.
pub(crate) fn wrapped(text: &str, width: usize) -> String {
    let (mut lines, mut used) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            lines.push('\n');
            used = 0;
        } else if used > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += length;
    }
    lines
}

/// Columns of the terminal; `None` if standard output is none.
pub(crate) fn width() -> Option<u16> {
    if !stdout_is_terminal() {
        return None;
    }
    let table = comfy_table::Table::new();
    table.width().or_else(|| std::env::var("COLUMNS").ok()?.parse().ok()).or(Some(100))
}

#[cfg(test)]
mod tests;
