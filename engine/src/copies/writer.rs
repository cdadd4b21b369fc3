//! What a folder knows of its copies: the files `SHIP` and `COPY`.

use super::load::Position;
use crate::error::{Error, Result};
use crate::failing::{Attempt, FailingPlace, Failure};
use crate::files::FileName;
use crate::fs::{FileLock, Fs, LockError};
use crate::identity::{hex, new_identity};
use crate::json_file::{read_json, replace_json};
use crate::sync::yield_now;
use ebbtide_ttl::{Clock, Code, Timestamp};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// How often the lock of `SHIP` is tried. It is held while that small file is replaced.
const LOCK_TRIES: usize = 1_000_000;

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
    /// The last piece that was sent to each place; none of places that only earlier builds have shipped to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) sent: Vec<Sent>,
    /// Where shipping fails or is throttled, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failing: Option<(String, Failure)>,
}

/// A piece that was sent, or is about to be: this is noted before, so that a copy never has a piece of which its folder does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sent {
    pub(super) url: String,
    /// The process that has the epoch.
    pub(super) process: String,
    pub(super) epoch: u64,
    pub(super) piece: u64,
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
    /// The epoch that it was shipped in; 0 in a note by an earlier build.
    #[serde(default)]
    pub epoch: u64,
}

impl Writer {
    /// What the file says, if there is one.
    pub(crate) fn of_folder(fs: &dyn Fs, dir: &Path) -> Result<Option<Writer>> {
        let path = FileName::Shipping.path(dir);
        // Asked at each edit of the manifest, mostly of folders that are not shipped.
        if !fs.exists(&path).map_err(|e| Error::io("access", &path, &e))? {
            return Ok(None);
        }
        read_json(fs, &path)
    }

    /// A new one, which is not written yet.
    pub(super) fn new(clock: &dyn Clock, dir: &Path, places: Vec<String>) -> Writer {
        Writer {
            id: hex(new_identity(clock, dir)),
            places,
            superseded: None,
            shipped: None,
            sent: Vec::new(),
            failing: None,
        }
    }

    /// What the file says; it is made if there is none.
    pub(super) fn of_folder_or_new(fs: &dyn Fs, clock: &dyn Clock, dir: &Path) -> Result<Writer> {
        if let Some(writer) = Writer::of_folder(fs, dir)? {
            return Ok(writer);
        }
        let _lock = lock(fs, dir)?;
        // Another process may have made it.
        if let Some(writer) = Writer::of_folder(fs, dir)? {
            return Ok(writer);
        }
        let writer = Writer::new(clock, dir, Vec::new());
        writer.write(fs, dir)?;
        Ok(writer)
    }

    pub(super) fn write(&self, fs: &dyn Fs, dir: &Path) -> Result<()> {
        replace_json(fs, &FileName::Shipping.path(dir), self)
    }

    pub(super) fn has_shipped_to(&self, url: &str) -> bool {
        self.places.iter().any(|place| place == url)
    }

    /// What was sent last to this place.
    pub(super) fn sent_to(&self, url: &str) -> Option<&Sent> {
        self.sent.iter().find(|sent| sent.url == url)
    }

    /// Notes that the folder is shipped to this place, which has answered.
    pub(super) fn note(&mut self, fs: &dyn Fs, dir: &Path, url: &str) -> Result<()> {
        if self.has_shipped_to(url) && self.failing.is_none() {
            return Ok(());
        }
        self.change(fs, dir, |writer| {
            if !writer.has_shipped_to(url) {
                writer.places.push(url.to_owned());
            }
            writer.failing = None;
        })
    }

    /// Notes that a piece is about to be sent.
    pub(super) fn note_sent(&mut self, fs: &dyn Fs, dir: &Path, sent: Sent) -> Result<()> {
        self.change(fs, dir, |writer| match writer.sent.iter_mut().find(|before| before.url == sent.url) {
            // Another process has the next epoch: this piece will not count.
            Some(before) if before.epoch > sent.epoch => {}
            Some(before) => *before = sent,
            None => writer.sent.push(sent),
        })
    }

    /// Notes that the copy at a place has nothing of what was sent there.
    pub(super) fn forget_sent(&mut self, fs: &dyn Fs, dir: &Path, url: &str) -> Result<()> {
        match self.sent.iter().any(|sent| sent.url == url) {
            true => self.change(fs, dir, |writer| writer.sent.retain(|sent| sent.url != url)),
            false => Ok(()),
        }
    }

    /// Whether this folder has what the copy at `url` has up to a piece, which `process` has made. It has, if the piece was sent from here,
    /// or from the folder that this one is a copy of, before it was copied. What only earlier builds have shipped counts as sent from here.
    pub(super) fn has_sent(&self, url: &str, process: &str, at: Position) -> bool {
        let is_here = |sent: &Sent| sent.url == url;
        // A later epoch begins with all that was in the copy, even if nothing of it has arrived. One place may have two URLs.
        let has = |sent: &Sent| {
            (is_here(sent) && sent.epoch > at.epoch) || (sent.process == process && sent.piece >= at.number)
        };
        let is_of_earlier_builds = || match self.has_shipped_to(url) {
            true => !self.sent.iter().any(is_here),
            false => self.sent.is_empty() && !self.places.is_empty(),
        };
        self.sent.iter().any(has) || is_of_earlier_builds()
    }

    /// Changes the file as it is now: another process may have changed it. A file that is gone or of another writer stays so.
    fn change(&mut self, fs: &dyn Fs, dir: &Path, change: impl FnOnce(&mut Writer)) -> Result<()> {
        let _lock = lock(fs, dir)?;
        let Some(mut now) = Writer::of_folder(fs, dir)?.filter(|now| now.id == self.id) else { return Ok(()) };
        change(&mut now);
        now.write(fs, dir)?;
        *self = now;
        Ok(())
    }

    /// Notes how far the folder is shipped.
    pub(super) fn note_shipped(&mut self, fs: &dyn Fs, dir: &Path, shipped: ShippedNote) -> Result<()> {
        self.change(fs, dir, |writer| writer.shipped = Some(shipped))
    }

    /// Notes the outcome of an attempt to ship to a place.
    pub(super) fn note_outcome(
        &mut self,
        fs: &dyn Fs,
        dir: &Path,
        (url, attempt): (&str, Attempt<'_>),
        now: Timestamp,
    ) -> Result<()> {
        let before = self.failing.as_ref().filter(|(place, _)| place == url).map(|(_, failure)| failure);
        let after = Failure::after(before, attempt, now);
        // A success at one place does not end the failure of another.
        if before == after.as_ref() {
            return Ok(());
        }
        let failing = after.map(|after| (url.to_owned(), after));
        self.change(fs, dir, |writer| writer.failing = failing)
    }

    /// The copy, if shipping to it fails or is throttled.
    pub(crate) fn failing(self, now: Timestamp) -> Option<FailingPlace> {
        self.failing.and_then(|(url, failure)| failure.at(now, "copy".to_owned(), url))
    }

    pub(crate) fn shipped(self) -> Option<ShippedNote> {
        self.shipped
    }

    /// Notes that another folder is the primary now.
    pub(super) fn supersede(&mut self, fs: &dyn Fs, dir: &Path, reason: &str) -> Result<()> {
        self.change(fs, dir, |writer| (writer.superseded, writer.failing) = (Some(reason.to_owned()), None))
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

/// Keeps other processes from changing the file `SHIP` until the returned lock is dropped.
fn lock(fs: &dyn Fs, dir: &Path) -> Result<Box<dyn FileLock>> {
    let path = FileName::ShippingLock.path(dir);
    for _ in 0..LOCK_TRIES {
        match fs.lock(&path, "") {
            Ok(lock) => return Ok(lock),
            Err(LockError::Held { .. }) => yield_now(),
            Err(LockError::Io(e)) => return Err(Error::io("lock", &path, &e)),
        }
    }
    Err(Error::new(
        Code::LockBusy,
        format!("another process ships this database and holds {}: try again", path.display()),
    ))
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
    check_no_copy(fs, dir)?;
    match Writer::of_folder(fs, dir)?.and_then(|writer| writer.refusal()) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Refuses the folder of a replica, or of a restore that has not ended.
pub(crate) fn check_no_copy(fs: &dyn Fs, dir: &Path) -> Result<()> {
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
    Ok(())
}
