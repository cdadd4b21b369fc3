//! Copies: a database is shipped to a store while it is written, restored from there as of any moment, and followed by replicas.
//!
//! A copy consists of pieces, each with what changed between two moments: edits of the manifest and records of the log. Segment files
//! are shipped before the piece whose edits name them. So what the store has can be restored at any time, up to a piece.
//!
//! 1. A piece that is a point has everything that was acknowledged before its instant, and for each command all or nothing of what
//!    it did ([`source`]).
//! 2. Nothing is shipped that the writer could still lose: it is synced before ([`source`]).
//! 3. Pieces are numbered and made by create-if-absent; one whose fate is unknown is sent again, byte for byte ([`shipper`]).
//! 4. Of two writers one counts ([`epochs`]). A folder notes each piece before it is sent, so an older copy of it is found out
//!    ([`writer`]).
//! 5. A replica applies edits and records as an open after a crash would, and never sweeps: it drops what its primary has dropped
//!    ([`replica`]).
//! 6. A copy can be read at an exact position, with its segment files fetched when they are needed ([`reader`], [`fetched`]).
//! 7. What was restored drops nothing until somebody says that the clock is right ([`held`]).

mod cache;
mod epochs;
mod fetched;
mod folder;
mod garbage;
mod held;
mod load;
mod lost;
mod piece;
mod place;
pub(crate) mod position;
mod reader;
mod replica;
mod restore;
mod shipper;
mod shipping;
mod source;
mod status;
mod store;
mod unshipped;
mod worker;
mod writer;

pub use cache::CopyCache;
pub(crate) use held::CopyHold;
pub(crate) use place::CopyPlace;
pub use position::CopyPosition;
pub use reader::CopyReader;
pub use replica::{Following, Replica};
pub use restore::Restored;
pub(crate) use restore::{promote, restore};
pub use shipper::{ShipOptions, Shipper};
pub use shipping::Shipping;
pub(crate) use status::CopiesStatus;
pub use status::{ReplicaStatus, ShipStatus};
pub use store::CopyStore;
pub use unshipped::Unshipped;
pub use writer::ShippedNote;
pub(crate) use writer::{Writer, check_folder, check_no_copy};

use crate::error::Result;

/// What former primaries of a copy had acknowledged and not shipped.
pub(crate) fn unshipped(place: &CopyPlace) -> Result<Vec<Unshipped>> {
    unshipped::list(place.store()?.as_ref())
}
