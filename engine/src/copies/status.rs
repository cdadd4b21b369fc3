//! How far a database is shipped, or follows its primary.

use crate::error::Error;
use crate::sync::Mutex;
use ebbtide_ttl::{Code, Timestamp};
use serde::Serialize;

/// What an open database knows of its copies.
#[derive(Debug, Default)]
pub(crate) struct CopiesStatus {
    /// How far it is shipped by this process.
    pub(crate) ship: Mutex<Option<ShipStatus>>,
    /// What it follows.
    pub(crate) replica: Mutex<Option<ReplicaStatus>>,
}

/// How far a database is shipped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ShipStatus {
    /// Where to.
    pub url: String,
    /// The epoch that this process ships in; 0 before it has one.
    pub epoch: u64,
    /// The number of the last piece of it that counts.
    pub piece: u64,
    /// Everything acknowledged before this instant is in the copy.
    pub shipped_until: Option<Timestamp>,
    /// The number of the last record of the log that is in the copy.
    pub last_record: u64,
    /// Records of the log that were read and are not in the copy yet.
    pub records_behind: u64,
    /// Bytes that were sent.
    pub bytes: u64,
    /// The error of the last attempt.
    pub failed: Option<String>,
}

/// How far a replica is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ReplicaStatus {
    /// What it follows.
    pub url: String,
    /// The epoch of the last piece that it has.
    pub epoch: u64,
    /// The number of that piece.
    pub piece: u64,
    /// The replica has everything that its primary acknowledged before this instant, by the clock of the primary.
    pub until: Timestamp,
    /// The error of the last attempt to apply what was shipped.
    pub failed: Option<String>,
}

impl ReplicaStatus {
    /// The error that refuses writes.
    pub(crate) fn refusal(&self) -> Error {
        let what = format!(
            "this is a read replica of {}: write to its primary, or make a replica the primary with promote",
            self.url
        );
        Error::new(Code::IllegalOperation, what)
    }
}
