//! Published tables: what is visible of a collection, as a table that other programs read, kept up by the background.
//!
//! 1. A commit has everything that was acknowledged before it began: open buckets are sealed for it.
//! 2. A table has no clock. So each commit leaves out what will have expired when the next one is due, unless expiry is suspended or
//!    the clock guard holds: then nothing is left out early, and nothing is removed from the store.
//! 3. The bins of a rung are computed for each version, in parts of time that are told apart by what they have: parts that have not
//!    changed keep their files.
//! 4. Files of the table are known by the segments that they were made of, whose checksums tell them from those of any other
//!    database. So a copy of a folder, or one that was restored, can go on with the table once it is told to.

pub(crate) mod publisher;

use crate::error::{Error, Result};
use crate::sync::Mutex;
use arrow::array::RecordBatch;
use ebbtide_buckets::{EncodedSegment, Schema};
use ebbtide_ttl::{Code, RuleSet, Timestamp};
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A random number, which tells the publishers of a table apart.
type OwnerNumber = [u8; 16];

/// The interval of a publication that names none, in seconds.
pub const PUBLISH_EVERY_SECONDS: i64 = 60;
/// The longest interval, in seconds: a day.
const EVERY_SECONDS_MAX: i64 = 86_400;

/// Where a collection is published, in the manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PublicationRecord {
    pub(crate) url: String,
    pub(crate) every_seconds: i64,
    /// The numbers with which this database owns the table, or may.
    owners: Vec<OwnerNumber>,
}

impl PublicationRecord {
    /// What must be true of it, beside its URL.
    pub(crate) fn check(&self) -> Result<()> {
        if (1..=EVERY_SECONDS_MAX).contains(&self.every_seconds) {
            return Ok(());
        }
        let what = format!("everySeconds is {}: it must be 1 to {EVERY_SECONDS_MAX}", self.every_seconds);
        Err(Error::new(Code::InvalidOptions, what))
    }
}

/// The publication of a collection in this process. All versions of the collection share it.
#[derive(Default)]
pub(crate) struct PublicationSlot {
    /// Held while a version is made.
    pass: Mutex<()>,
    status: Mutex<Status>,
}

#[derive(Default)]
struct Status {
    /// The number with which this process owns the table.
    owner: Option<OwnerNumber>,
    last: Option<PublishedVersion>,
    failed: Option<String>,
    /// When the last version was begun, by the monotonic clock.
    begun: Option<Duration>,
}

impl fmt::Debug for PublicationSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicationSlot").finish_non_exhaustive()
    }
}

/// What a version of a published table is to have.
#[derive(Debug)]
pub struct Publication {
    /// The identity of the database, which copies of its folder share.
    pub identity: [u8; 16],
    /// The number of the collection in it.
    pub collection: u64,
    /// The collection's name.
    pub name: String,
    /// The numbers of owners that this database knows as its own.
    pub known: Vec<OwnerNumber>,
    /// The number of this process.
    pub owner: OwnerNumber,
    /// Whether it takes the table over from a copy of this database.
    pub adopts: bool,
    /// The fields of the collection.
    pub schema: Arc<Schema>,
    /// Its rules, for those who ask after the publisher has stopped.
    pub rules: Arc<RuleSet>,
    /// The segments with something visible, and which of their rows are.
    pub segments: Vec<PublishedSegment>,
    /// Everything that expires up to this instant is left out.
    pub hides_before: Timestamp,
    /// Whether files that the table no longer has may be removed from the store.
    pub may_vacuum: bool,
}

/// A segment, and which of its rows are visible.
#[derive(Debug)]
pub struct PublishedSegment {
    /// Tells it from any other segment, of this database or of another one.
    pub id: String,
    /// How many rows it has, visible or not.
    pub rows: u64,
    /// The numbers of the visible rows.
    pub visible: RoaringBitmap,
    /// The numbers of rows that were deleted.
    pub deleted: RoaringBitmap,
    /// Reads rows of it.
    pub source: Box<dyn PublishedRows>,
}

/// The rows of a segment.
pub trait PublishedRows: fmt::Debug + Send + Sync {
    /// Some of the rows, in order, with all columns of the collection.
    ///
    /// # Errors
    /// Damage in the segment.
    fn read(&self, rows: &RoaringBitmap) -> Result<PublishedBatches>;

    /// All of the rows as the file that they are stored in, if that has the types of a table.
    ///
    /// # Errors
    /// Damage in the segment.
    fn file(&self) -> Result<Option<EncodedSegment>> {
        Ok(None)
    }
}

/// The batches of a segment.
pub type PublishedBatches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// A version of a published table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedVersion {
    /// Its number in the table's log.
    pub version: u64,
    /// How many files it has.
    pub files: u64,
    /// How many measurements are in them.
    pub measurements: u64,
    /// When it was made, by the clock of the place; none if the table does not tell.
    pub made_at: Option<Timestamp>,
    /// Everything that expires up to this instant is left out.
    pub hides_before: Timestamp,
}

/// A publication and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicationInfo {
    /// The collection's name.
    pub collection: String,
    /// The step of the rung whose bins are published, in seconds; none for the measurements.
    pub rung: Option<i64>,
    /// Where the table is.
    pub url: String,
    /// The seconds between versions, in the background.
    pub every_seconds: i64,
    /// The last version that this process made, or else the newest of the table.
    pub last: Option<PublishedVersion>,
    /// For how many seconds that version has been there.
    pub age_seconds: Option<i64>,
    /// Why the last try of this process failed, if it did, or why the table cannot be read.
    pub failed: Option<String>,
}
