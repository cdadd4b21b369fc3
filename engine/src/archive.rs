//! Archives: what expires in a collection is moved to a table in object storage or in another folder, and dropped here once it is
//! there.
//!
//! 1. An edit names what is moved before its file is uploaded: the *intent*, with a random number that the file's name and the
//!    commit at the place carry. Whatever changes what an intent names takes it back with the same edit ([`gate::gate`]).
//! 2. Once the commit may have been sent, nothing takes the intent back but an edit that leaves a place which refuses this database:
//!    such changes are refused until it is known whether the place has the commit. Then the edit that drops the rows also names the
//!    version of the place that has them.
//! 3. To know it, the place is claimed again: a claim is a commit too, so that an older one which is still under way fails.
//! 4. Each archive is moved to by itself: a place that does not answer delays none of the others.
//! 5. Each open for writing claims the place with a number of its own, and must know the number of the owner before it. So of two
//!    copies of a folder only one archives: the other drops nothing until somebody says that it may.

pub(crate) mod apart;
pub(crate) mod bounds;
pub(crate) mod gate;
pub(crate) mod index;
pub(crate) mod mover;
pub(crate) mod of_collection;
mod segments;
mod snapshot;

pub use bounds::ArchivedBounds;
pub use snapshot::{ArchiveInfo, ArchivedScan, ArchivedUnit};

use crate::copies::CopyStore;
use crate::error::{Error, Result};
use crate::hand_off::sink::SinkError;
use crate::publication::{Publication, PublishedVersion};
use crate::sync::Mutex;
use arrow::array::RecordBatch;
use bytes::Bytes;
use ebbtide_buckets::{EncodedSegment, ReadAt, Schema, SegmentMeta};
use ebbtide_ttl::{Code, Value};
use segments::ArchiveSegments;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A random number, which tells owners of a place and commits at it apart.
pub type ArchiveNumber = [u8; 16];

/// Opens places by their URLs. [`crate::Builder::archives`] gives a database one.
pub trait ArchivePlaces: fmt::Debug + Send + Sync {
    /// Makes the place of a URL usable. Nothing is asked of it yet.
    ///
    /// # Errors
    /// What is wrong with the URL, or with the settings that it needs. No key is in the text.
    fn open(&self, url: &str) -> Result<Arc<dyn ArchivePlace>, SinkError>;

    /// Makes the store of a URL usable, for copies of whole databases ([`crate::Database::ship`]). Nothing is asked of it yet.
    ///
    /// # Errors
    /// As for [`ArchivePlaces::open`].
    fn copies(&self, url: &str) -> Result<Arc<dyn CopyStore>, SinkError> {
        Err(format!("no copies are kept at {url}").into())
    }

    /// The nearest folder above a place in object storage that has a table or a copy, as far as the store lets it be seen. Folders of a file
    /// system are checked without it.
    fn above(&self, _url: &str) -> Option<String> {
        None
    }
}

fn unreachable(error: impl std::fmt::Display) -> Error {
    Error::new(Code::HostUnreachable, format!("the archive cannot be read: {error}"))
}

/// A table at a place: a log of commits, and files that they name.
pub trait ArchivePlace: fmt::Debug + Send + Sync {
    /// Makes a database the owner of the place with one commit, if it is the owner already or there is none.
    ///
    /// # Errors
    /// The place belongs to another database or to a copy of this one, or cannot be reached.
    fn claim(&self, claim: &ArchiveClaim) -> Result<ArchiveClaimed, SinkError>;

    /// Whether rows with these fields can be added to the table.
    ///
    /// # Errors
    /// A field that the table cannot have, or has with another type; the place cannot be reached.
    fn check(&self, schema: &Schema) -> Result<(), SinkError>;

    /// Whether fields that the table has too have the same types there, as far as its log was read.
    fn has_types_of(&self, schema: &Schema) -> bool;

    /// Makes a segment the file of a commit. Nothing is stored yet.
    ///
    /// # Errors
    /// If the footer of the segment cannot be read.
    fn file(
        &self,
        number: ArchiveNumber,
        schema: &Arc<Schema>,
        segment: EncodedSegment,
    ) -> Result<ArchiveFile, SinkError>;

    /// Stores a file. It is not part of the table yet.
    ///
    /// # Errors
    /// The place cannot be reached.
    fn upload(&self, file: &ArchiveFile) -> Result<(), SinkError>;

    /// Adds a file to the table; returns the version that has it.
    ///
    /// # Errors
    /// If the owner is another, or the place cannot be reached: the commit may have been made all the same.
    fn commit(&self, owner: ArchiveNumber, file: &ArchiveFile) -> Result<u64, SinkError>;

    /// What became of the commit in a claim that failed, as far as the log was read.
    fn outcome(&self, claim: &ArchiveClaim) -> ArchiveOutcome;

    /// Removes files from the table, which stay in the store for those who read an older version; returns the version without them.
    ///
    /// # Errors
    /// As for [`ArchivePlace::commit`].
    fn retire(&self, owner: ArchiveNumber, files: &[String]) -> Result<u64, SinkError>;

    /// Removes from the store what was removed from the table more than an hour ago, up to a version; returns how many files.
    ///
    /// # Errors
    /// The place cannot be reached.
    fn clean(&self, version: u64) -> Result<u64, SinkError>;

    /// Removes a file that no version names.
    ///
    /// # Errors
    /// The place cannot be reached.
    fn remove(&self, name: &str) -> Result<(), SinkError>;

    /// The files of a version.
    ///
    /// # Errors
    /// The place cannot be reached, or its log is damaged.
    fn files(&self, version: u64) -> Result<Vec<ArchivedFile>, SinkError>;

    /// A file for random access, through the cache of the place. `fetched` counts what is fetched of it.
    ///
    /// # Errors
    /// The place cannot be reached.
    fn open(&self, file: &ArchivedFile, fetched: Arc<ArchiveFetched>) -> Result<Arc<dyn ReadAt>, SinkError>;

    /// Reads columns of a file, those that it has, and skips parts of it in which no time is within the bounds.
    ///
    /// # Errors
    /// The place cannot be reached, or the file is damaged.
    fn read(&self, file: &ArchivedFile, read: &ArchiveRead) -> Result<ArchivedBatches, SinkError>;

    /// Makes a version of a published table: takes the table over, if it belongs to this database or there is none, adds files of
    /// what is new, and leaves out what is no longer visible.
    ///
    /// # Errors
    /// The table is that of another database, or of a copy of this one; the place cannot be reached.
    fn publish(&self, content: &Publication) -> Result<PublishedVersion, SinkError>;

    /// The newest version of the table that a collection is published in, if there is one.
    ///
    /// # Errors
    /// The table is that of another database or collection; the place cannot be reached.
    fn published(&self, identity: [u8; 16], collection: u64) -> Result<Option<PublishedVersion>, SinkError>;

    /// How many requests the store has refused so far (429, 503). They were repeated. Zero if the store does not tell.
    fn refused(&self) -> u64 {
        0
    }

    /// Removes files that no commit names and that are older than an hour; returns how many there were.
    ///
    /// # Errors
    /// The place cannot be reached.
    fn vacuum(&self) -> Result<u64, SinkError>;

    /// Reads all files of a version and compares them with their checksums; returns what is wrong.
    ///
    /// # Errors
    /// The place cannot be reached.
    fn verify(&self, version: u64) -> Result<Vec<String>, SinkError>;
}

/// The batches of a file.
pub type ArchivedBatches = Box<dyn Iterator<Item = Result<RecordBatch, SinkError>> + Send>;

/// Who claims a place, and what it wants to know.
#[derive(Debug, Clone)]
pub struct ArchiveClaim {
    /// The identity of the database, which copies of its folder share.
    pub identity: [u8; 16],
    /// The number of the collection in it.
    pub collection: u64,
    /// The fields of the collection.
    pub schema: Arc<Schema>,
    /// The numbers of owners that this database knows as its own.
    pub known: Vec<ArchiveNumber>,
    /// The number of the new owner.
    pub owner: ArchiveNumber,
    /// The version that this database knows.
    pub version: Option<u64>,
    /// An earlier commit with an unknown outcome.
    pub commit: Option<ArchiveNumber>,
    /// Whether it takes over from a copy of itself.
    pub adopts: bool,
}

/// What a claim found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveClaimed {
    /// The version of the claim.
    pub version: u64,
    /// Whether the commit that was asked for was made before. If not, it never will be.
    pub is_committed: bool,
}

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveOutcome {
    /// It was made with this version, and the table has its file.
    Made(u64),
    /// The table does not have its file, and another owner has claimed the place since: this database cannot add it any more.
    Absent,
    /// The place refuses this database, and it is not known whether the commit was made or will be.
    Refused,
    /// Nothing is known of it.
    Unknown,
}

/// The file of a commit.
#[derive(Debug, Clone)]
pub struct ArchiveFile {
    /// The number of the commit.
    pub number: ArchiveNumber,
    /// The file's name at the place.
    pub name: String,
    /// What is in it.
    pub bytes: Bytes,
    /// CRC-32 of it.
    pub checksum: u32,
    /// The fields of its rows.
    pub schema: Arc<Schema>,
    /// How many rows it has.
    pub rows: u64,
    /// The first and the last time in it.
    pub times: (i64, i64),
    /// Bounds of its metas.
    pub bounds: Vec<ArchivedBounds>,
    /// The summary of the segment that it is; none for a Parquet file without a bucket directory.
    pub segment: Option<SegmentMeta>,
}

/// A file of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedFile {
    /// Its name at the place.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// CRC-32 of it.
    pub checksum: u32,
    /// How many rows it has.
    pub rows: u64,
    /// The first and the last time in it, in the unit of the collection.
    pub times: (i64, i64),
    /// Bounds of its metas, as far as they are known.
    pub bounds: Vec<ArchivedBounds>,
    /// The summary of the segment that it is; none if an earlier build wrote it, as a Parquet file without a bucket directory.
    pub segment: Option<SegmentMeta>,
}

/// What to read of a file.
#[derive(Debug, Clone)]
pub struct ArchiveRead {
    /// The fields to read.
    pub schema: Arc<Schema>,
    /// The first and the last stored time that are of interest.
    pub times: (i64, i64),
    /// Paths of member names, the meta field first, each with values: metas of interest have one of these values there.
    pub metas: Vec<(Vec<String>, Vec<Value>)>,
    /// Which part of the row groups that may have such rows is read.
    pub part: ArchivePart,
    /// Counts what is fetched.
    pub fetched: Arc<ArchiveFetched>,
}

/// One of several parts that are read independently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchivePart {
    /// Below the number of parts.
    pub number: usize,
    /// The number of parts, at least 1.
    pub of: usize,
}

impl ArchivePart {
    /// The only part.
    pub const ALL: ArchivePart = ArchivePart { number: 0, of: 1 };

    /// Whether the part has what is at this place in a list of all.
    #[must_use]
    pub fn has(self, place: usize) -> bool {
        place % self.of == self.number
    }
}

/// What reads of an archive have fetched so far.
#[derive(Debug, Default)]
pub struct ArchiveFetched {
    requests: AtomicU64,
    bytes: AtomicU64,
    cached: AtomicU64,
}

impl ArchiveFetched {
    /// Counts a request that got this many bytes.
    pub fn add(&self, bytes: u64) {
        self.requests.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts bytes that were in memory.
    pub fn add_cached(&self, bytes: u64) {
        self.cached.fetch_add(bytes, Relaxed);
    }

    /// Requests.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Bytes that were fetched.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Bytes that were in memory.
    pub fn cached_bytes(&self) -> u64 {
        self.cached.load(Relaxed)
    }
}

/// What the manifest knows of an archive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ArchiveRecord {
    /// The numbers with which this database owns the place, or may.
    owners: Vec<ArchiveNumber>,
    /// The version of the place that has what was dropped here, and nothing that is stored here.
    pub(crate) version: Option<u64>,
    intent: Option<Intent>,
}

/// What is being moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Intent {
    number: ArchiveNumber,
    file: String,
    checksum: u32,
    /// By segment and number of the bucket in it. All that is live of a bucket is moved.
    pieces: Vec<(u64, u32)>,
    buckets: u64,
    rows: u64,
    bytes: u64,
    /// The rule's name and E; none by size.
    rule: Option<(String, i64)>,
    /// The end of the last window.
    window_end: i64,
}

impl ArchiveRecord {
    fn without_intent(&self) -> ArchiveRecord {
        ArchiveRecord { intent: None, ..self.clone() }
    }
}

/// The archives of a collection in this process. All versions of the collection share it.
#[derive(Default)]
pub(crate) struct ArchiveSlot {
    /// Held while a commit is on its way, until what it has is dropped here. Taken before the maintenance lock by whatever would
    /// change what is moved, so that it waits rather than fails.
    pub(crate) moving: Mutex<()>,
    /// Held by the pass that moves.
    pass: Mutex<()>,
    /// By URL.
    status: Mutex<BTreeMap<String, Status>>,
    /// The files that were read last.
    files: ArchiveSegments,
}

/// An archive in this process.
#[derive(Debug, Clone, Default)]
struct Status {
    /// The number with which this process owns the place.
    owner: Option<ArchiveNumber>,
    /// The number of the intent whose commit was sent by this process and did not fail for certain.
    sent: Option<ArchiveNumber>,
    /// The number of a claim of this process that was not answered.
    claiming: Option<ArchiveNumber>,
    /// Whether the last claim was refused by what the log of the place says, and what is being moved stayed in doubt.
    is_refused: bool,
    /// What keeps things from being moved.
    failed: Option<String>,
}

impl ArchiveSlot {
    fn of(&self, url: &str) -> Status {
        self.status.lock().get(url).cloned().unwrap_or_default()
    }

    fn set(&self, url: &str, change: impl FnOnce(&mut Status)) {
        change(self.status.lock().entry(url.to_owned()).or_default());
    }

    /// Forgets that places are owned, but for those that the collection has: they are claimed again if it returns.
    fn retain(&self, is_there: impl Fn(&str) -> bool) {
        let mut all = self.status.lock();
        all.iter_mut().filter(|(url, _)| !is_there(url)).for_each(|(_, status)| status.owner = None);
    }
}

impl fmt::Debug for ArchiveSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArchiveSlot").finish_non_exhaustive()
    }
}

/// Reads the option `expireInto`.
pub(crate) fn parse_expire_into(value: &Value) -> Result<Option<String>> {
    let url = ebbtide_ttl::parse_expire_into(value)?;
    url.as_ref().map_or(Ok(()), |url| check_url("expireInto", url))?;
    Ok(url)
}

/// Longest URL of a place, in bytes.
const URL_BYTES_MAX: usize = 2048;

/// Checks the URL of a place. It is stored and shown, so it must not have a password in it.
pub(crate) fn check_url(of: &str, url: &str) -> Result<()> {
    const SCHEMES: [&str; 4] = ["file://", "s3://", "gs://", "az://"];
    let rest = SCHEMES.iter().find_map(|scheme| url.strip_prefix(scheme));
    let wrong = match rest {
        None => "it must begin with file://, s3://, gs:// or az://",
        Some("" | "/") => "it names no folder or bucket",
        Some(_) if url.len() > URL_BYTES_MAX => "it is longer than 2048 bytes",
        Some(rest) if rest.contains(['@', '?', '#']) => {
            "it must not hold '@', '?' or '#': keys come from the environment, never from the URL"
        }
        Some(_) if url.chars().any(char::is_control) => "it must not hold control characters",
        Some(_) => return Ok(()),
    };
    // A URL with a password is not repeated.
    Err(Error::new(Code::InvalidOptions, format!("the URL of {of} is not allowed: {wrong}")))
}
