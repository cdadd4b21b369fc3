//! How a database is opened.

use super::Database;
use crate::archive::ArchivePlaces;
use crate::error::Result;
use crate::fs::{Fs, RealFs};
use crate::repair::{RepairMode, RepairReport};
use crate::settings::Settings;
#[cfg(doc)]
use ebbtide_ttl::Code;
use ebbtide_ttl::{Clock, SystemClock};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a database is opened.
#[derive(Debug)]
pub struct Builder {
    path: PathBuf,
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    read_only: bool,
    archives: Option<Arc<dyn ArchivePlaces>>,
}

impl Builder {
    pub(super) fn new(path: PathBuf) -> Builder {
        let (fs, clock) = (Arc::new(RealFs::new()), Arc::new(SystemClock::new()));
        Builder { path, fs, clock, settings: Settings::default(), read_only: false, archives: None }
    }

    /// Sets the disk. Default: the operating system's.
    #[must_use]
    pub fn fs(mut self, fs: Arc<dyn Fs>) -> Self {
        self.fs = fs;
        self
    }

    /// Sets the clock. Default: the machine's.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the settings. Default: [`Settings::default`].
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets what opens archives. Default: none, and then what expires in a collection with an archive stays, hidden.
    #[must_use]
    pub fn archives(mut self, places: Arc<dyn ArchivePlaces>) -> Self {
        self.archives = Some(places);
        self
    }

    /// Opens the database for reading only, as it is at that moment; another process may be writing. Nothing is written or swept.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Opens the database; creates it if it does not exist and is opened for writing.
    ///
    /// # Errors
    /// [`Code::LockBusy`] naming the holder if another process writes to it, [`Code::DataCorruptionDetected`] with path
    /// and offset if it is damaged, [`Code::IncompatibleFormat`] if another version made it,
    /// [`Code::NamespaceNotFound`] if it is opened for reading and does not exist, and errors of the file system.
    pub fn open(self) -> Result<Database> {
        let engine = crate::open::open(self.fs, self.clock, self.path, self.settings, self.read_only)?;
        engine.state.write().places = self.archives;
        Ok(Database { engine: Arc::new(engine) })
    }

    /// Examines the database for damage, and with [`RepairMode::Apply`] sets aside what is damaged, so that the
    /// database opens again without it. Nothing is deleted; the report says what is lost.
    ///
    /// # Errors
    /// [`Code::LockBusy`] if it is open for writing; [`Code::DataCorruptionDetected`] if no manifest can be read, and
    /// then nothing was done; [`Code::IncompatibleFormat`] if another version made it;
    /// [`Code::NamespaceNotFound`] if it does not exist, and errors of the file system.
    pub fn repair(self, mode: RepairMode) -> Result<RepairReport> {
        crate::repair::repair(&self.fs, self.clock.as_ref(), &self.path, mode)
    }
}

impl Database {
    /// Opens the database at `path` for writing, with default settings; creates it if it does not exist.
    ///
    /// # Errors
    /// As for [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).open()
    }

    /// A builder for opening the database at `path` with other settings, another clock, or for reading only.
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder::new(path.as_ref().to_owned())
    }

    /// Repairs the database at `path`, which must not be open. See [`Builder::repair`].
    ///
    /// # Errors
    /// As for [`Builder::repair`].
    pub fn repair(path: impl AsRef<Path>, mode: RepairMode) -> Result<RepairReport> {
        Self::builder(path).repair(mode)
    }
}
