//! A time-series storage engine that forgets on schedule.
//!
//! Measurements are grouped into columnar buckets keyed by their meta value and a window of time. Rules say how long
//! measurements live, for a whole collection or for some metas only; what is past its time is invisible at once, and a
//! sweeper drops it in whole buckets, mostly by unlinking a file.
//!
//! ```
//! use ebbtide::{CollectionOptions, Database, json};
//! use serde_json::json;
//!
//! # let folder = tempfile::tempdir()?;
//! let db = Database::open(folder.path().join("weather"))?;
//! let options = CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(24 * 3600);
//! let weather = db.create_collection("weather", options)?;
//!
//! let now = db.clock().now().to_string();
//! let reading = json::value_of(&json!({"t": {"$date": now}, "sensor": "roof", "temp": 21.5}))?;
//! weather.insert_documents(&[reading])?; // Acknowledged: it survives a power cut.
//!
//! assert_eq!(weather.snapshot()?.count()?, 1);
//! db.sweep()?; // Drops what has expired; `start_background` does it by itself.
//! assert_eq!(weather.snapshot()?.count()?, 1);
//! db.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

/// The programs in the README and in the guide run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[doc = include_str!("../../docs/library.md")]
struct Readme;

/// The program of the page on documents.
#[cfg(doctest)]
#[doc = include_str!("../../docs/documents.md")]
struct DocumentsPage;

mod archive;
mod async_api;
mod background;
mod batch_id;
mod clean_shutdown;
mod clock_confirmation;
mod commands;
mod compact;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
mod copies;
mod copy;
mod db;
mod delete;
mod documents;
mod engine;
mod error;
mod failing;
mod fields;
mod file_access;
mod files;
mod framed;
pub mod fs;
mod hand_off;
mod holds;
mod identity;
mod insert;
pub mod json;
mod json_file;
mod ladder;
pub mod line_protocol;
mod maintenance;
mod manifest;
mod memtable;
mod metrics;
mod open;
mod options;
mod publication;
mod repair;
mod requests;
mod reserve;
mod seal;
mod segment;
mod settings;
mod snapshot;
mod state;
pub mod suggest;
mod sweep;
mod sync;
mod verify;
mod wal;

pub use crate::archive::{
    ArchiveClaim, ArchiveClaimed, ArchiveFetched, ArchiveFile, ArchiveInfo, ArchiveNumber, ArchiveOutcome, ArchivePart,
    ArchivePlace, ArchivePlaces, ArchiveRead, ArchivedBatches, ArchivedBounds, ArchivedFile, ArchivedScan,
    ArchivedUnit,
};
pub use crate::async_api::ScanStream;
pub use crate::background::Background;
pub use crate::batch_id::{BatchId, LastBatch};
pub use crate::commands::{REFUSED_OPTIONS, TIMESERIES_OPTIONS};
pub use crate::copies::{
    CopyCache, CopyPosition, CopyReader, CopyStore, Following, Replica, ReplicaStatus, Restored, ShipOptions,
    ShipStatus, ShippedNote, Shipper, Shipping, Unshipped,
};
pub use crate::db::{
    Builder, Collection, Database, DeleteRequest, Documents, FindAndModify, FindAndModifyOptions, FoundAndModified,
    HoldOptions, LenientReply, OnConflict, Replaces, Rewrite, UpdateRequest, Updated, WriteBatch, WriteBatchError,
    WriteOutcome, value_of_bson,
};
pub use crate::delete::Deleted;
pub use crate::delete::rows::RowPredicate;
pub use crate::documents::columns::{ColumnKind, DocumentColumn, DocumentColumns};
pub use crate::documents::find::{FindCursor, FindRequest};
pub use crate::documents::options::{DocumentsOptions, IndexSpec};
pub use crate::documents::pace::Stop;
pub use crate::documents::snapshot::{Document, DocumentsSnapshot, FindReport};
pub use crate::documents::usage::IndexUse;
pub use crate::error::{Error, ErrorKind, Result};
pub use crate::failing::FailingPlace;
pub use crate::file_access::FileAccess;
pub use crate::hand_off::sink::{ExpiredBucket, ExpirySink, SinkError};
pub use crate::insert::check_accepted;
pub use crate::ladder::DumpedRung;
pub use crate::manifest::SweepRecord;
pub use crate::metrics::{MetricsSnapshot, TtlMetrics};
pub use crate::options::{CollectionChange, CollectionOptions, check_collection_name};
pub use crate::publication::{
    PUBLISH_EVERY_SECONDS, Publication, PublicationInfo, PublishedBatches, PublishedRows, PublishedSegment,
    PublishedVersion,
};
pub use crate::repair::{Loss, LostMeta, RepairMode, RepairReport};
pub use crate::requests::{BegunRequest, Request, RequestKey};
pub use crate::settings::{
    DEFAULT_CACHE_BYTES_MAX, DEFAULT_MEMTABLE_AGE_MAX, DEFAULT_MEMTABLE_BYTES_MAX, DEFAULT_SEGMENT_ROWS_MAX,
    DEFAULT_WAL_FILE_BYTES_MAX, Durability, Settings,
};
pub use crate::snapshot::{
    Aggregate, AggregateGuard, AggregateRequest, Aggregated, Batches, BucketInfo, CollectionInfo, CollectionSnapshot,
    ExpiredUnit, ExpiryRow, FieldBound, FirstRows, HoldInfo, MetaFilter, MetaGroups, MetaPart, RollupRequest, RuleInfo,
    RungInfo, ScanReport, ScanRequest, ScanUnit, SegmentFiles, SegmentInfo, Snapshot, TimeRange, bins_at_end,
};
pub use crate::sweep::options::SweepOptions;
pub use crate::sweep::{Operation, SweepReport};
pub use crate::verify::VerifyReport;
/// The columnar layer: schemas, metas, windows.
pub use ebbtide_buckets as buckets;
pub use ebbtide_buckets::{TextCondition, TextPart};
/// Documents of ordinary collections: filters, updates, Extended JSON, expiry.
pub use ebbtide_documents as documents_model;
pub use ebbtide_documents::{DefaultTtl, bson};
/// Rules, filters, clocks and the value model.
pub use ebbtide_ttl as ttl;
pub use ebbtide_ttl::RuleChange;
