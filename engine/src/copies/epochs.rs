//! Epochs: who may ship to a place.
//!
//! 1. An epoch is taken by creating its object, which one of several succeeds in; its number follows the newest one's. Epochs are
//!    never removed.
//! 2. Every name of a piece has its epoch, and the first piece of an epoch says which piece before it counts as the last one. It
//!    is made after the epoch was taken. So what the writer before adds later is not read.
//! 3. A writer looks for a younger epoch after each piece: only if there is none does the piece count as shipped. A younger one
//!    that was taken for the same folder means that another process ships it; one that another writer took means that this
//!    folder is no longer the primary.

use super::store::{CopyStore, damaged, unreachable};
use crate::error::{Error, Result};
use bytes::Bytes;
use ebbtide_ttl::Timestamp;
use serde::{Deserialize, Serialize};

/// Who has taken an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    pub(super) epoch: u64,
    /// The identity of the database, in hexadecimal digits.
    pub(super) database: String,
    /// The folder that is the primary, in hexadecimal digits: a promotion makes another one.
    pub(super) writer: String,
    /// A number of the process that took it.
    pub(super) process: String,
    pub(super) at: Timestamp,
}

fn epoch_name(epoch: u64) -> String {
    format!("epochs/{epoch:010}")
}

/// The claim of an epoch, if somebody has taken it.
pub(super) fn claim_of(store: &dyn CopyStore, epoch: u64) -> Result<Option<Claim>> {
    let name = epoch_name(epoch);
    let Some(content) = store.get(&name).map_err(unreachable)? else { return Ok(None) };
    serde_json::from_slice(&content).map(Some).map_err(|e| damaged(&name, e))
}

/// The newest epoch. A listing may lack the newest ones, so it only says where to begin.
pub(super) fn newest(store: &dyn CopyStore) -> Result<Option<Claim>> {
    let listed = store.list("epochs").map_err(unreachable)?;
    let listed = listed.iter().filter_map(|name| name.parse::<u64>().ok()).max().unwrap_or(1);
    let mut newest = None;
    for epoch in listed.. {
        match claim_of(store, epoch)? {
            Some(claim) => newest = Some(claim),
            None => break,
        }
    }
    Ok(newest)
}

/// Takes an epoch; returns whether it is this claim's.
pub(super) fn take(store: &dyn CopyStore, claim: &Claim) -> Result<bool> {
    let content = serde_json::to_vec(claim).map_err(|e| Error::internal(format!("encode a claim: {e}")))?;
    if store.put_if_absent(&epoch_name(claim.epoch), Bytes::from(content)).map_err(unreachable)? {
        return Ok(true);
    }
    // An earlier try may have succeeded without an answer.
    Ok(claim_of(store, claim.epoch)?.as_ref() == Some(claim))
}
