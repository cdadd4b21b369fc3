//! What a folder knows of its copies: the files `SHIP` and `COPY`.

use crate::error::{Error, Result};
use crate::failing::{FailingPlace, Failure};
use crate::files::FileName;
use crate::fs::{Fs, replace};
use crate::identity::{hex, new_identity};
use ebbtide_ttl::{Clock, Code, Timestamp};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// A folder that is shipped, or was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Writer {
    /// A random number, in hexadecimal digits, which a copy of the folder has too.
    #[serde(rename = "writer")]
    pub(super) id: String,
    /// Where it was shipped to.
    places: Vec<String>,
    /// Why this folder is no longer the primary.
    superseded: Option<String>,
    /// How far it was shipped some seconds ago.
    shipped: Option<ShippedNote>,
    /// Where shipping fails, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failing: Option<(String, Failure)>,
}

/// How far the database at a folder was shipped, as it was noted there some seconds ago.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShippedNote {
    /// Where to.
    pub url: String,
    /// Everything acknowledged before this instant is in the copy.
    pub until: Timestamp,
    /// The number of the last record of the log that is in the copy.
    pub last_record: u64,
}

impl Writer {
    /// What the file says, if there is one.
    pub(crate) fn of_folder(fs: &dyn Fs, dir: &Path) -> Result<Option<Writer>> {
        let path = FileName::Shipping.path(dir);
        // Asked at each edit of the manifest, mostly of folders that are not shipped.
        if !fs.exists(&path).map_err(|e| Error::io("access", &path, &e))? {
            return Ok(None);
        }
        let content = match fs.read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            content => content.map_err(|e| Error::io("read", &path, &e))?,
        };
        serde_json::from_slice(&content).map(Some).map_err(|e| Error::corrupt(&path, 0, e))
    }

    /// A new one, which is not written yet.
    pub(super) fn new(clock: &dyn Clock, dir: &Path, places: Vec<String>) -> Writer {
        Writer { id: hex(new_identity(clock, dir)), places, superseded: None, shipped: None, failing: None }
    }

    pub(super) fn make(fs: &dyn Fs, clock: &dyn Clock, dir: &Path) -> Result<Writer> {
        let writer = Writer::new(clock, dir, Vec::new());
        writer.write(fs, dir)?;
        Ok(writer)
    }

    pub(super) fn write(&self, fs: &dyn Fs, dir: &Path) -> Result<()> {
        let path = FileName::Shipping.path(dir);
        let text = serde_json::to_vec_pretty(self).map_err(|e| Error::internal(format!("encode SHIP: {e}")))?;
        replace(fs, &path, &text).map_err(|e| Error::io("write", &path, &e))
    }

    pub(super) fn has_shipped_to(&self, url: &str) -> bool {
        self.places.iter().any(|place| place == url)
    }

    /// Notes that the folder is shipped to this place.
    pub(super) fn note(&mut self, fs: &dyn Fs, dir: &Path, url: &str) -> Result<()> {
        if self.has_shipped_to(url) {
            return Ok(());
        }
        self.places.push(url.to_owned());
        self.write(fs, dir)
    }

    /// Notes how far the folder is shipped.
    pub(super) fn note_shipped(&mut self, fs: &dyn Fs, dir: &Path, shipped: ShippedNote) -> Result<()> {
        self.shipped = Some(shipped);
        self.write(fs, dir)
    }

    /// Notes the outcome of an attempt to ship to a place.
    pub(super) fn note_failed(
        &mut self,
        fs: &dyn Fs,
        dir: &Path,
        (url, failed): (&str, Option<&str>),
        now: Timestamp,
    ) -> Result<()> {
        let before = self.failing.as_ref().filter(|(place, _)| place == url).map(|(_, failure)| failure);
        let after = Failure::after(before, failed, now);
        // A success at one place does not end the failure of another.
        if before == after.as_ref() {
            return Ok(());
        }
        self.failing = after.map(|after| (url.to_owned(), after));
        self.write(fs, dir)
    }

    /// The copy, if shipping to it fails.
    pub(crate) fn failing(self) -> Option<FailingPlace> {
        self.failing.map(|(url, failure)| failure.of("copy".to_owned(), url))
    }

    pub(crate) fn shipped(self) -> Option<ShippedNote> {
        self.shipped
    }

    /// Notes that another folder is the primary now.
    pub(super) fn supersede(&mut self, fs: &dyn Fs, dir: &Path, reason: &str) -> Result<()> {
        self.superseded = Some(reason.to_owned());
        self.write(fs, dir)
    }

    /// The error that refuses writes, if another folder is the primary.
    pub(crate) fn refusal(&self) -> Option<Error> {
        self.superseded.as_deref().map(not_primary)
    }

    /// Forgets all copies: the folder becomes a database of its own.
    pub(crate) fn detach(fs: &dyn Fs, dir: &Path) -> Result<()> {
        let path = FileName::Shipping.path(dir);
        match fs.remove(&path).and_then(|()| fs.sync_dir(dir)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", &path, &e)),
            _ => Ok(()),
        }
    }
}

/// The error that refuses writes in a folder that is no longer the primary.
pub(super) fn not_primary(reason: &str) -> Error {
    let what = format!(
        "{reason}: write there; to go on with this folder as a database of its own, detach it (ebbtide ship --detach)"
    );
    Error::new(Code::NotWritable, what)
}

/// Refuses to open a folder for writing that is a replica, or no longer the primary.
pub(crate) fn check_folder(fs: &dyn Fs, dir: &Path) -> Result<()> {
    let path = FileName::Copy.path(dir);
    if fs.exists(&path).map_err(|e| Error::io("access", &path, &e))? {
        let url = fs.read(&path).map_err(|e| Error::io("read", &path, &e))?;
        let (dir, url) = (dir.display(), String::from_utf8_lossy(&url).into_owned());
        let what = format!(
            "{dir} is a replica of {url}, or a restore into it has not ended: follow it, make it the primary with promote, or restore \
             again"
        );
        return Err(Error::new(Code::IllegalOperation, what));
    }
    match Writer::of_folder(fs, dir)?.and_then(|writer| writer.refusal()) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
