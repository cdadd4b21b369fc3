//! Where a copy is kept, and the folder of its database.

use super::position::CopyPosition;
use super::shipper::{ShipOptions, Shipper};
use super::store::CopyStore;
use crate::archive::ArchivePlaces;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::settings::Settings;
use ebbtide_ttl::{Clock, Code, Timestamp};
use std::path::PathBuf;
use std::sync::Arc;

/// Where a copy is, and where the database is or is to be.
pub(crate) struct CopyPlace {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dir: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) places: Option<Arc<dyn ArchivePlaces>>,
    pub(crate) url: String,
}

impl CopyPlace {
    pub(super) fn store(&self) -> Result<Arc<dyn CopyStore>> {
        store_of(self.places.as_deref(), &self.url)
    }

    /// Ships the database, step by step.
    pub(crate) fn shipper(self, options: ShipOptions) -> Result<Shipper> {
        let store = self.store()?;
        let writer = super::Writer::of_folder(self.fs.as_ref(), &self.dir)?;
        // A place that is in use stays.
        let is_new = !writer.is_some_and(|writer| writer.has_shipped_to(&self.url));
        if is_new {
            crate::archive::apart::check_folder(&self.dir, &self.url)?;
        }
        let mut shipper = Shipper::new((self.fs, self.clock, self.dir), (&self.url, store), options);
        shipper.new_among = self.places.filter(|_| is_new);
        Ok(shipper)
    }
}

/// The store of a URL.
fn store_of(places: Option<&dyn ArchivePlaces>, url: &str) -> Result<Arc<dyn CopyStore>> {
    let places = places.ok_or_else(|| {
        Error::new(Code::IllegalOperation, "this program was opened without access to archives and copies")
    })?;
    crate::archive::check_url("the place of a copy", url)?;
    places.copies(url).map_err(|error| Error::new(Code::InvalidOptions, format!("{url} cannot have a copy: {error}")))
}

/// The error if a copy does not have a position.
pub(super) fn not_kept(at: &CopyPosition) -> Error {
    let what = format!("the copy has no {at}: it is no longer kept, or was never shipped");
    Error::new(Code::NamespaceNotFound, what)
}

/// The error if a store has no copy, or none as of the time that was asked for.
pub(super) fn no_point(url: &str, at: Option<Timestamp>) -> Error {
    let what = match at {
        None => format!("{url} has no copy of a database"),
        Some(at) => format!(
            "{url} has no copy of the database as of {at}: it begins later, or has been cleaned up to a later time"
        ),
    };
    Error::new(Code::NamespaceNotFound, what)
}
