//! How a database is opened.

use super::Database;
use crate::archive::ArchivePlaces;
use crate::copies::{self, CopyCache, CopyPlace, Replica, Restored, ShipOptions, Shipper, Unshipped, Writer};
use crate::error::{Error, Result};
use crate::fs::{Fs, RealFs};
use crate::repair::{RepairMode, RepairReport};
use crate::settings::Settings;
#[cfg(doc)]
use ebbtide_ttl::Code;
use ebbtide_ttl::{Clock, SystemClock, Timestamp};
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
    detach: bool,
}

impl Builder {
    pub(super) fn new(path: PathBuf) -> Builder {
        let (fs, clock) = (Arc::new(RealFs::new()), Arc::new(SystemClock::new()));
        Builder { path, fs, clock, settings: Settings::default(), read_only: false, archives: None, detach: false }
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

    /// Opens a folder that is no longer the primary of its copy as a database of its own: it forgets where it was shipped to.
    #[must_use]
    pub fn detach(mut self) -> Self {
        self.detach = true;
        self
    }

    /// Ships the database to the copy at `url`, step by step, while this or another process has it open for writing.
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] if the URL is wrong, [`Code::IllegalOperation`] without [`Builder::archives`].
    pub fn shipper(self, url: &str, options: ShipOptions) -> Result<Shipper> {
        self.place(url).shipper(options)
    }

    /// Makes the folder, which must be new or empty, the database that was shipped to `url`: as it is there, or as of `at`. Its
    /// sweeper is held until somebody confirms the clock ([`Database::confirm_clock`]).
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`] if there is no copy, or none as of that time; [`Code::NamespaceExists`] if the folder has a database;
    /// [`Code::HostUnreachable`] if the store cannot be reached: the same call goes on; [`Code::DataCorruptionDetected`] if what it
    /// has is damaged; errors of the file system.
    pub fn restore(self, url: &str, at: Option<Timestamp>) -> Result<Restored> {
        copies::restore(&self.place(url), at)
    }

    /// Makes the folder, which must be new, empty or that of a replica, the database that was shipped to `url`, and the primary of
    /// that copy: from now on only it is shipped there. The primary before refuses writes once it learns of it. What it
    /// acknowledged and had not shipped stays with it. The sweeper is held until the clock agrees with that of the primary before,
    /// or somebody confirms it.
    ///
    /// # Errors
    /// As for [`Builder::restore`]; [`Code::LockBusy`] if somebody else does the same at this moment.
    pub fn promote(self, url: &str) -> Result<Restored> {
        copies::promote(&self.place(url))
    }

    /// Opens a read replica of the database that is shipped to `url`. The folder, which must be new or empty or that of a replica, gets
    /// its segment files. A replica shows what its primary has shipped, hides what has expired by its own clock, and
    /// drops only what its primary has dropped.
    ///
    /// # Errors
    /// As for [`Builder::restore`]; [`Code::LockBusy`] if another process has the replica open.
    pub fn follow(self, url: &str) -> Result<Replica> {
        Replica::open(&self.place(url))
    }

    /// The same without a folder: segment files are fetched into `cache` when they are read.
    ///
    /// # Errors
    /// As for [`Builder::follow`].
    pub fn follow_on_demand(self, url: &str, cache: &Arc<CopyCache>) -> Result<Replica> {
        Replica::open_on_demand(&self.place(url), cache, None)
    }

    /// What former primaries of the copy at `url` had acknowledged and not shipped when they were replaced, as far as they have found out.
    ///
    /// # Errors
    /// As for [`Builder::restore`].
    pub fn unshipped(self, url: &str) -> Result<Vec<Unshipped>> {
        copies::unshipped(&self.place(url))
    }

    fn place(self, url: &str) -> CopyPlace {
        let Builder { path: dir, fs, clock, settings, archives: places, .. } = self;
        CopyPlace { fs, clock, dir, settings, places, url: url.to_owned() }
    }

    /// Opens the database; creates it if it does not exist and is opened for writing.
    ///
    /// # Errors
    /// [`Code::LockBusy`] naming the holder if another process writes to it, [`Code::DataCorruptionDetected`] with path
    /// and offset if it is damaged, [`Code::IncompatibleFormat`] if another version made it,
    /// [`Code::NamespaceNotFound`] if it is opened for reading and does not exist, and errors of the file system.
    pub fn open(mut self) -> Result<Database> {
        // Files are opened by path as long as the database is open, and the process may change its folder meanwhile.
        self.path = std::path::absolute(&self.path).map_err(|e| Error::io("find", &self.path, &e))?;
        if self.detach && !self.read_only && Writer::of_folder(self.fs.as_ref(), &self.path)?.is_some() {
            let _lock = crate::open::take_lock(self.fs.as_ref(), self.clock.as_ref(), &self.path)?;
            Writer::detach(self.fs.as_ref(), &self.path)?;
        }
        let engine = crate::open::open(self.fs, self.clock, self.path, self.settings, self.read_only)?;
        engine.state.write().places = self.archives;
        crate::failing::places::recall(&engine);
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
