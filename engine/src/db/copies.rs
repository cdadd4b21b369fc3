//! Copies of an open database.

use super::Database;
use crate::copies::{CopyPlace, ReplicaStatus, ShipOptions, ShipStatus, ShippedNote, Shipping, Writer};
use crate::error::{Error, Result};
use crate::failing::FailingPlace;
#[cfg(doc)]
use ebbtide_ttl::Code;

impl Database {
    /// Ships the database to the copy at `url`, in a thread, until what is returned is dropped: segment files once, and the log in
    /// pieces. [`Builder::restore`](crate::Builder::restore) makes a database of it, [`Builder::follow`](crate::Builder::follow) a
    /// read replica.
    ///
    /// # Errors
    /// [`Code::IllegalOperation`] for a database that is read only, or was opened without
    /// [`Builder::archives`](crate::Builder::archives); [`Code::InvalidOptions`] if the URL is wrong. What goes wrong later is in
    /// [`Database::ship_status`], and is tried again.
    pub fn ship(&self, url: &str, options: ShipOptions) -> Result<Shipping> {
        let engine = &self.engine;
        engine.check_writable()?;
        let (fs, clock, dir) = (engine.fs.clone(), engine.clock.clone(), engine.dir.clone());
        let (settings, places) = (engine.settings.clone(), engine.state.read().places.clone());
        let every = options.every;
        let shipper = CopyPlace { fs, clock, dir, settings, places, url: url.to_owned() }.shipper(options)?;
        Ok(Shipping::begin(engine, shipper, every))
    }

    /// How far the database is shipped by this process; `None` if it is not.
    #[must_use]
    pub fn ship_status(&self) -> Option<ShipStatus> {
        self.engine.copies.ship.lock().clone()
    }

    /// How far any process had shipped the database some seconds ago, and how many records of the log there are beyond it.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn shipped(&self) -> Result<Option<(ShippedNote, u64)>> {
        let engine = &self.engine;
        let note = Writer::of_folder(engine.fs.as_ref(), &engine.dir)?.and_then(Writer::shipped);
        let last = engine.state.read().applied_seq;
        Ok(note.map(|note| {
            let behind = last.saturating_sub(note.last_record);
            (note, behind)
        }))
    }

    /// Why this database refuses writes: another folder was made the primary of its copy, as any process has found out; `None` otherwise.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn superseded(&self) -> Result<Option<Error>> {
        let writer = Writer::of_folder(self.engine.fs.as_ref(), &self.engine.dir)?;
        Ok(writer.and_then(|writer| writer.refusal()))
    }

    /// The archives, published tables and the copy that could not be written to, or were throttled, when any process tried last.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn failing_places(&self) -> Result<Vec<FailingPlace>> {
        crate::failing::places::list(&self.engine)
    }

    /// How far this replica is; `None` for any other database.
    #[must_use]
    pub fn replica_status(&self) -> Option<ReplicaStatus> {
        self.engine.copies.replica.lock().clone()
    }
}
