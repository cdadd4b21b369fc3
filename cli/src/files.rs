//! Access to files that are not part of a database: input, results, and the terminal.

use crate::Failure;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

/// Opens a file for reading.
#[expect(clippy::disallowed_methods, reason = "input files are not part of a database")]
pub(crate) fn open(path: &Path) -> Result<File, Failure> {
    let file = File::open(path).map_err(|e| Failure::new(format!("cannot open {}: {e}", path.display())))?;
    match file.metadata() {
        Ok(data) if data.is_dir() => Err(Failure::new(format!("{} is a folder; expected a file", path.display()))),
        _ => Ok(file),
    }
}

/// Opens a file for appending messages about an input, and creates it if necessary.
#[expect(clippy::disallowed_methods, reason = "a file for people is not part of a database")]
pub(crate) fn append(path: &Path) -> Result<File, Failure> {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    file.map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))
}

/// Whether an open file is the same file as `path`, also through links; `-` is standard input.
pub(crate) fn is_same(file: &File, path: &Path) -> Result<bool, Failure> {
    let fail = |e: io::Error| Failure::new(format!("cannot access {}: {e}", path.display()));
    let file = file.try_clone().and_then(same_file::Handle::from_file).map_err(fail)?;
    let other = if path == Path::new("-") { same_file::Handle::stdin() } else { same_file::Handle::from_path(path) };
    match other {
        Ok(other) => Ok(file == other),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(fail(e)),
    }
}

/// Refuses to write a file into the folder of a database, or that of a collection in it, under any name.
pub(crate) fn keep_out(database: &Path, output: &Path) -> Result<(), Failure> {
    // If the file does not exist yet, its nearest existing folder decides where it will be.
    let place = output.ancestors().skip(1).map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    let place = place.into_iter().find_map(|p| p.canonicalize().ok());
    // An existing file may be a link to a file in the database's folder.
    let target = output.canonicalize().ok().and_then(|p| p.parent().map(Path::to_owned));
    let is_within = |place: &Path, folder: &Path| {
        let numbered = place.extension().is_some_and(|number| number.to_string_lossy().parse::<u64>().is_ok());
        place == folder || (numbered && place.parent() == Some(folder))
    };
    match database.canonicalize() {
        Ok(folder) if place.into_iter().chain(target).any(|p| is_within(&p, &folder)) => Err(Failure::usage(format!(
            "{} is in the folder of the database: name a file outside it",
            output.display()
        ))),
        _ => Ok(()),
    }
}

/// Reads all of standard input.
pub(crate) fn read_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(|e| Failure::new(format!("cannot read standard input: {e}")))?;
    Ok(without_mark(text))
}

/// A text without the byte order mark that some programs write at its beginning.
fn without_mark(text: String) -> String {
    text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)
}

/// Reads a file of statements.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text).map_err(|e| Failure::new(format!("cannot read {}: {e}", path.display())))?;
    Ok(without_mark(text))
}

/// The bytes of an input that is no ordinary file, such as a pipe, in a file of their own, since they are read more than
/// once; `-` is standard input. `None` if it is one.
#[expect(clippy::disallowed_methods, reason = "input files are no part of a database")]
pub(crate) fn spool(path: &Path) -> Result<Option<tempfile::NamedTempFile>, Failure> {
    let mut input: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let is_special = path.metadata().is_ok_and(|data| !data.is_file() && !data.is_dir());
        match File::open(path) {
            Ok(file) if is_special => Box::new(file),
            _ => return Ok(None),
        }
    };
    let fail = |e: io::Error| Failure::new(format!("cannot keep {} in a temporary file: {e}", path.display()));
    let mut file = tempfile::NamedTempFile::new().map_err(fail)?;
    io::copy(&mut input, &mut file).map_err(fail)?;
    file.flush().map_err(fail)?;
    Ok(Some(file))
}

/// A file that gets its name only when it is complete; what is no ordinary file, such as a pipe or a device, is written to.
pub(crate) struct NewFile {
    place: Place,
    path: PathBuf,
}

enum Place {
    /// A file beside the one that it replaces, which is not a link.
    Part(tempfile::NamedTempFile, PathBuf),
    Special(File),
    /// Under any name, so that what was written to it before is not replaced.
    Stdout,
}

impl NewFile {
    /// `database` is the folder in which the file must not be.
    pub(crate) fn create(path: &Path, database: &Path) -> Result<Self, Failure> {
        keep_out(database, path)?;
        if path.is_dir() {
            return Err(Failure::usage(format!("{} is a folder: name a file", path.display())));
        }
        let place = Place::of(path).map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))?;
        Ok(NewFile { place, path: path.to_owned() })
    }

    /// Removes the incomplete file when Ctrl-C ends the process, which it then does at once.
    #[expect(clippy::disallowed_methods, reason = "a result is not part of a database")]
    pub(crate) fn gone_if_interrupted(self, runtime: &tokio::runtime::Runtime) -> Self {
        /// What shells return for a process that SIGINT has ended.
        const INTERRUPTED: i32 = 130;
        if let Place::Part(part, _) = &self.place {
            let part = part.path().to_owned();
            let mut interrupted = Box::pin(tokio::signal::ctrl_c());
            // The signal is handled from the first poll on.
            runtime.block_on(async { drop(futures::poll!(&mut interrupted)) });
            runtime.spawn(async move {
                if interrupted.await.is_ok() {
                    drop(std::fs::remove_file(part));
                    std::process::exit(INTERRUPTED);
                }
            });
        }
        self
    }

    pub(crate) fn sink(&self) -> Result<Box<dyn Write + Send>, Failure> {
        let file: Box<dyn Write + Send> = match &self.place {
            Place::Part(part, _) => Box::new(part.reopen().map_err(|e| self.failed(&e))?),
            Place::Special(file) => Box::new(file.try_clone().map_err(|e| self.failed(&e))?),
            Place::Stdout => Box::new(io::stdout()),
        };
        let file = BufWriter::new(file);
        let is_packed = self.path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz"));
        Ok(if is_packed { Box::new(Packed(GzEncoder::new(file, Compression::default()))) } else { Box::new(file) })
    }

    pub(crate) fn keep(self) -> Result<(), Failure> {
        let failed = |e: &dyn std::fmt::Display| Failure::new(format!("cannot write {}: {e}", self.path.display()));
        let Place::Part(part, target) = self.place else { return Ok(()) };
        if let Ok(replaced) = target.metadata() {
            part.as_file().set_permissions(replaced.permissions()).map_err(|e| failed(&e))?;
        }
        part.persist(&target).map(|_| ()).map_err(|e| failed(&e.error))
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::new(format!("cannot write {}: {error}", self.path.display()))
    }
}

impl Place {
    #[expect(clippy::disallowed_methods, reason = "a result is not part of a database")]
    fn of(path: &Path) -> io::Result<Place> {
        let existing = path.metadata();
        let is_stdout = || ["/dev", "/proc"].iter().any(|devices| path.starts_with(devices)) && is_stdout(path);
        if existing.is_ok() && is_stdout() {
            return Ok(Place::Stdout);
        }
        if existing.as_ref().is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            return Ok(Place::Special(std::fs::OpenOptions::new().write(true).open(path)?));
        }
        let target = match (existing, path.read_link()) {
            (Ok(_), _) => path.canonicalize()?,
            // A link to a file that is not there yet.
            (Err(_), Ok(link)) => path.parent().unwrap_or(Path::new("")).join(link),
            (Err(_), Err(_)) => path.to_owned(),
        };
        let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut part = tempfile::Builder::new();
        part.prefix(".ebbtide-part-");
        // Temporary files are private; a result is an ordinary file.
        #[cfg(unix)]
        part.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        Ok(Place::Part(part.tempfile_in(folder)?, target))
    }
}

/// Whether a path is standard output.
fn is_stdout(path: &Path) -> bool {
    let handles = same_file::Handle::stdout().and_then(|stdout| Ok((stdout, same_file::Handle::from_path(path)?)));
    handles.is_ok_and(|(stdout, other)| stdout == other)
}

/// Compresses what is written with gzip; a flush ends it.
struct Packed<W: Write>(GzEncoder<W>);

impl<W: Write> Write for Packed<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.try_finish()?;
        self.0.get_mut().flush()
    }
}

/// Creates a folder and its parents unless they exist.
#[expect(clippy::disallowed_methods, reason = "a folder for results is not part of a database")]
pub(crate) fn make_folder(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path).map_err(|e| Failure::new(format!("cannot create folder {}: {e}", path.display())))
}

/// Standard output.
pub(crate) fn stdout() -> Box<dyn Write + Send> {
    Box::new(BufWriter::new(io::stdout()))
}

/// Standard error.
pub(crate) fn stderr() -> Box<dyn Write + Send> {
    Box::new(io::stderr())
}

/// Whether results are read by a person.
pub(crate) fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether statements are typed by a person.
pub(crate) fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Whether standard error gets colours.
pub(crate) fn colours() -> bool {
    stderr_is_terminal() && !no_colour()
}

/// Whether the user wants no colours.
fn no_colour() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Whether messages are read by a person.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Whether standard output supports colours.
pub(crate) fn colour() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
    stdout_is_terminal() && !no_colour() && !dumb
}

/// Prints an error message, wrapped between words. The lines after the first show a position in a statement and are not
/// wrapped.
pub(crate) fn complain(message: &str) {
    let width = if stderr_is_terminal() { width().map_or(100, usize::from) } else { usize::MAX };
    let message = format!("error: {message}");
    let (first, rest) = message.split_once('\n').unwrap_or((&message, ""));
    eprintln!("{}", wrapped(first, width));
    if !rest.is_empty() {
        eprintln!("{rest}");
    }
}

/// Wraps a text at spaces into lines of at most `width` characters; longer words are not broken.
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

/// Width of the terminal in characters; `None` if standard output is not a terminal.
pub(crate) fn width() -> Option<u16> {
    if !stdout_is_terminal() {
        return None;
    }
    let table = comfy_table::Table::new();
    table.width().or_else(|| std::env::var("COLUMNS").ok()?.parse().ok()).or(Some(100))
}

#[cfg(test)]
mod tests;
