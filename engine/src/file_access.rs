//! Which files of this machine a statement or a command may name.

use crate::error::{Error, Result};
use ebbtide_ttl::Code;
use serde_json::{Map, Value as Json};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files and folders of this machine that statements and commands may name: as tables, as results, and as places of archives and
/// published tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum FileAccess {
    /// All of them: statements are the program's own.
    #[default]
    All,
    /// These folders and what lies below them; without a folder, none. For statements of a server's clients.
    Below(Arc<[PathBuf]>),
}

impl FileAccess {
    /// Access to no file.
    #[must_use]
    pub fn none() -> Self {
        FileAccess::Below(Arc::default())
    }

    /// Access to these folders and what lies below them, for statements that come over the network.
    ///
    /// # Errors
    /// A folder that does not exist or cannot be read.
    pub fn below(folders: &[PathBuf]) -> Result<Self> {
        let resolved = |folder: &PathBuf| {
            let resolved = folder.canonicalize().and_then(|path| match path.is_dir() {
                true => Ok(path),
                false => Err(ErrorKind::NotADirectory.into()),
            });
            resolved.map_err(|e| {
                let message = format!("{}, a folder that clients may use: {e}", folder.display());
                Error::new(Code::InvalidOptions, message)
            })
        };
        Ok(FileAccess::Below(folders.iter().map(resolved).collect::<Result<_>>()?))
    }

    /// Whether every file may be named.
    #[must_use]
    pub fn is_unrestricted(&self) -> bool {
        *self == FileAccess::All
    }

    /// The path by which a file or folder is to be opened: where access is restricted, absolute and without links. `what` says what it
    /// is for.
    ///
    /// # Errors
    /// A path that is not in one of the folders, after its links have been followed.
    pub fn check(&self, what: &str, path: &Path) -> Result<PathBuf> {
        let FileAccess::Below(folders) = self else { return Ok(path.to_owned()) };
        let refused = |why: &str| Err(Error::new(Code::IllegalOperation, format!("{what}: {why}")));
        if folders.is_empty() {
            return refused(
                "statements that come over the network read and write no files of the server, unless its operator names folders for \
                 them with --client-folder",
            );
        }
        match resolve(path) {
            Some(path) if folders.iter().any(|folder| path.starts_with(folder)) => Ok(path),
            _ => {
                let named: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
                refused(&format!("{} is not in a folder that clients may use: {}", path.display(), named.join(", ")))
            }
        }
    }

    /// Refuses a command document that makes a folder an archive or a published table which it may not name.
    ///
    /// # Errors
    /// The first such folder.
    pub fn check_command(&self, command: &Map<String, Json>) -> Result<()> {
        let published = command.get("to").filter(|_| command.contains_key("publish"));
        let indexes = command.get("indexes").and_then(Json::as_array).into_iter().flatten();
        let of_indexes = indexes.chain(command.get("index")).filter_map(|index| index.get("expireInto"));
        let urls = [command.get("expireInto"), published].into_iter().flatten().chain(of_indexes);
        for url in urls.filter_map(Json::as_str) {
            if let Some(folder) = url.strip_prefix("file:") {
                self.check("an archive or a table in a folder", Path::new(folder.trim_start_matches("//")))?;
            }
        }
        Ok(())
    }
}

/// A path without links, also of what does not exist yet; `None` if that cannot be known.
fn resolve(path: &Path) -> Option<PathBuf> {
    match path.canonicalize() {
        Ok(path) => Some(path),
        // A link to nothing would be followed when the file is made.
        Err(e) if e.kind() == ErrorKind::NotFound && path.symlink_metadata().is_err() => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Some(resolve(parent)?.join(path.file_name()?))
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests;
