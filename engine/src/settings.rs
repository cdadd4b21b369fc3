//! Settings of an open database, each with its documented default.

use crate::error::{Error, Result};
use ebbtide_ttl::Code;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Default of [`Settings::memtable_bytes_max`]: 64 MiB, some 500,000 rows of ten fields.
pub const DEFAULT_MEMTABLE_BYTES_MAX: usize = 64 << 20;
/// Default of [`Settings::memtable_age_max`]: five minutes.
pub const DEFAULT_MEMTABLE_AGE_MAX: Duration = Duration::from_secs(300);
/// Default of [`Settings::wal_file_bytes_max`]: 64 MiB.
pub const DEFAULT_WAL_FILE_BYTES_MAX: u64 = 64 << 20;
/// Default of [`Settings::segment_rows_max`]: a million rows, some 4 MB of ten slowly changing fields.
pub const DEFAULT_SEGMENT_ROWS_MAX: usize = 1 << 20;
/// Default of [`Settings::cache_bytes_max`]: 256 MiB.
pub const DEFAULT_CACHE_BYTES_MAX: usize = 256 << 20;

/// When an insert is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Durability {
    /// After it is synced: it survives a crash and a power cut.
    #[default]
    Sync,
    /// After it is written: it survives a crash of the process. A power cut may lose inserts of the last interval, always the
    /// newest ones. The background task syncs the log at this interval. Without it the log is synced by the first insert
    /// after the interval, by a flush, and on close, so the last inserts before a pause stay unsynced until one of these.
    Interval(Duration),
}

/// Settings of an open database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// When an insert is acknowledged. Default: [`Durability::Sync`].
    pub durability: Durability,
    /// Bytes of open buckets, over all collections, at which they are sealed. Default: [`DEFAULT_MEMTABLE_BYTES_MAX`].
    pub memtable_bytes_max: usize,
    /// Age of open buckets at which the background task seals them. Default: [`DEFAULT_MEMTABLE_AGE_MAX`].
    pub memtable_age_max: Duration,
    /// Size in bytes at which the log continues in a new file. Default: [`DEFAULT_WAL_FILE_BYTES_MAX`].
    pub wal_file_bytes_max: u64,
    /// Maximum number of rows in a segment. Default: [`DEFAULT_SEGMENT_ROWS_MAX`].
    pub segment_rows_max: usize,
    /// Bytes of memory for caches: half for directories of segments, half for decoded columns. Default: [`DEFAULT_CACHE_BYTES_MAX`].
    pub cache_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            durability: Durability::Sync,
            memtable_bytes_max: DEFAULT_MEMTABLE_BYTES_MAX,
            memtable_age_max: DEFAULT_MEMTABLE_AGE_MAX,
            wal_file_bytes_max: DEFAULT_WAL_FILE_BYTES_MAX,
            segment_rows_max: DEFAULT_SEGMENT_ROWS_MAX,
            cache_bytes_max: DEFAULT_CACHE_BYTES_MAX,
        }
    }
}

impl Settings {
    /// Checks every field.
    ///
    /// # Errors
    /// Names the field, its value and the limit.
    pub fn validate(&self) -> Result<()> {
        let least = |name: &str, value: u64, least: u64| {
            if value >= least {
                Ok(())
            } else {
                Err(Error::new(Code::BadValue, format!("setting {name} is {value}, it must be at least {least}")))
            }
        };
        least("memtable_bytes_max", self.memtable_bytes_max as u64, 1 << 12)?;
        least("wal_file_bytes_max", self.wal_file_bytes_max, 1 << 10)?;
        least("segment_rows_max", self.segment_rows_max as u64, 1)
    }
}
