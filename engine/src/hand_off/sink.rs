//! Sinks: what takes over a collection's buckets before they are dropped.

use crate::error::{Error, Result as EngineResult};
use crate::sync::Mutex;
use arrow::array::RecordBatch;
use ebbtide_buckets::BucketId;
use ebbtide_ttl::{Code, Timestamp, Value};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// Why a sink refuses a bucket.
pub type SinkError = Box<dyn std::error::Error + Send + Sync>;

/// A bucket that is due, with everything that is stored in it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ExpiredBucket {
    /// The collection's name.
    pub collection: String,
    /// The rule by which it goes: `collection`, an index's name, or `size`.
    pub rule: String,
    /// Its meta; null if it has none. With `window` and `generation` it is the bucket's identity in its collection: what is handed
    /// over again under an identity replaces what came before.
    pub meta: Value,
    /// Beginning and end of its window.
    pub window: (Timestamp, Timestamp),
    /// Tells it from a bucket of the same meta and window that was dropped before; greater than the generation of that one.
    pub generation: u64,
    /// Its measurements in order of time, with all columns of the collection.
    pub rows: RecordBatch,
    /// CRC-32 of the Arrow IPC stream of `rows`.
    pub checksum: u32,
}

/// Gets what expires in a collection before it is dropped. See [`crate::Database::on_expiry`].
///
/// A function of an [`ExpiredBucket`] is a sink.
pub trait ExpirySink: Send + Sync {
    /// Takes over one bucket. An error leaves the bucket, hidden, for the next pass; others are handed over all the same, until several
    /// in a row are refused.
    ///
    /// # Errors
    /// Whatever keeps the sink from taking it; `SHOW TTL` shows it.
    fn hand_over(&self, bucket: &ExpiredBucket) -> Result<(), SinkError>;

    /// Makes durable what was handed over since the last call. Those buckets are dropped once it succeeds.
    ///
    /// # Errors
    /// As for [`ExpirySink::hand_over`], for all of these buckets.
    fn commit(&self) -> Result<(), SinkError> {
        Ok(())
    }

    /// At most how many buckets are handed over between two commits. Default: 256.
    fn buckets_at_once(&self) -> usize {
        256
    }
}

impl<F> ExpirySink for F
where
    F: Fn(&ExpiredBucket) -> Result<(), SinkError> + Send + Sync,
{
    fn hand_over(&self, bucket: &ExpiredBucket) -> Result<(), SinkError> {
        self(bucket)
    }
}

/// The sink of a collection in this process.
#[derive(Default)]
pub(crate) struct SinkSlot(pub(crate) Mutex<Slot>);

#[derive(Default)]
pub(crate) struct Slot {
    pub(crate) sink: Option<Arc<dyn ExpirySink>>,
    /// Why the last pass could not hand over all that was due.
    pub(crate) failed: Option<String>,
    /// Buckets that the sink refused when it got them last.
    pub(crate) refused: HashSet<BucketId>,
    /// Whether a call of the sink has not returned yet.
    pub(crate) is_busy: bool,
}

impl fmt::Debug for SinkSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkSlot").field("has_sink", &self.sink().is_some()).finish()
    }
}

impl SinkSlot {
    pub(crate) fn sink(&self) -> Option<Arc<dyn ExpirySink>> {
        self.0.lock().sink.clone()
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.0.lock().failed.clone()
    }
}

/// Reads the word of the option.
pub(crate) fn parse_hand_off(value: &Value) -> EngineResult<bool> {
    match value {
        Value::String(word) if word == "required" => Ok(true),
        Value::String(word) if word == "off" => Ok(false),
        Value::String(word) => {
            let what = format!("'{word}' is not a value of handOff; use one of required, off");
            Err(Error::new(Code::BadValue, what))
        }
        other => {
            let what = format!("handOff must be a string, not {}", other.class().name());
            Err(Error::new(Code::TypeMismatch, what))
        }
    }
}
