//! Copies: a database is shipped to a store while it is written, restored from there as of any moment, and followed by replicas.
//!
//! A copy consists of pieces, each with what changed between two moments: edits of the manifest and records of the log. Segment files
//! are shipped before the piece whose edits name them. So what the store has can be restored at any time, up to a piece.
//!
//! 1. A piece that is a point has everything that was acknowledged before its instant, and for each command all or nothing of what
//!    it did ([`source`]).
//! 2. Nothing is shipped that the writer could still lose: it is synced before ([`source`]).
//! 3. Pieces are numbered and made by create-if-absent; one whose fate is unknown is sent again, byte for byte ([`shipper`]).
//! 4. Of two writers one counts ([`epochs`]).
//! 5. A replica applies edits and records as an open after a crash would, and never sweeps: it drops what its primary has dropped
//!    ([`replica`]).
//! 6. What was restored drops nothing until somebody says that the clock is right ([`held`]).

mod epochs;
mod folder;
mod garbage;
mod held;
mod load;
mod piece;
mod replica;
mod restore;
mod shipper;
mod shipping;
mod source;
mod store;
mod writer;

pub(crate) use folder::check_folder;
pub(crate) use held::CopyHold;
pub use replica::{Following, Replica, ReplicaStatus};
pub use restore::Restored;
pub(crate) use restore::{promote, restore};
pub use shipper::{ShipOptions, ShipStatus, Shipper};
pub use shipping::Shipping;
pub use store::CopyStore;
pub use writer::ShippedNote;
pub(crate) use writer::Writer;

use crate::archive::ArchivePlaces;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::settings::Settings;
use crate::sync::Mutex;
use ebbtide_ttl::{Clock, Code};
use std::path::PathBuf;
use std::sync::Arc;

/// What an open database knows of its copies.
#[derive(Debug, Default)]
pub(crate) struct CopiesStatus {
    /// How far it is shipped by this process.
    pub(crate) ship: Mutex<Option<ShipStatus>>,
    /// What it follows.
    pub(crate) replica: Mutex<Option<ReplicaStatus>>,
}

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
    fn store(&self) -> Result<Arc<dyn CopyStore>> {
        store_of(self.places.as_deref(), &self.url)
    }

    /// Ships the database, step by step.
    pub(crate) fn shipper(self, options: ShipOptions) -> Result<Shipper> {
        let store = self.store()?;
        Ok(Shipper::new((self.fs, self.clock, self.dir), (&self.url, store), options))
    }
}

/// The store of a URL.
pub(crate) fn store_of(places: Option<&dyn ArchivePlaces>, url: &str) -> Result<Arc<dyn CopyStore>> {
    let places = places.ok_or_else(|| {
        Error::new(Code::IllegalOperation, "this program was opened without access to archives and copies")
    })?;
    crate::archive::check_url("the place of a copy", url)?;
    places.copies(url).map_err(|error| Error::new(Code::InvalidOptions, format!("{url} cannot have a copy: {error}")))
}

/// The error if a store has no copy, or none as of the time that was asked for.
fn no_point(url: &str, at: Option<ebbtide_ttl::Timestamp>) -> Error {
    let what = match at {
        None => format!("{url} has no copy of a database"),
        Some(at) => format!(
            "{url} has no copy of the database as of {at}: it begins later, or has been cleaned up to a later time"
        ),
    };
    Error::new(Code::NamespaceNotFound, what)
}
