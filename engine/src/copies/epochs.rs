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
use std::fmt;

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

/// Before the CRC-32 of all that precedes it, at the end of an object. Objects of earlier builds have none.
const CRC_MARK: &str = ",\"crc\":\"";
/// The mark, eight digits, a quote and a brace.
const CRC_BYTES: usize = CRC_MARK.len() + 8 + 2;

impl Claim {
    fn encode(&self) -> Result<Bytes> {
        let mut text = serde_json::to_string(self).map_err(|e| Error::internal(format!("encode a claim: {e}")))?;
        text.truncate(text.len() - 1);
        let crc = crc32fast::hash(text.as_bytes());
        Ok(format!("{text}{CRC_MARK}{crc:08x}\"}}").into())
    }

    /// Whether both are of one process, which may have put its claim back later.
    pub(super) fn is_same(&self, other: &Claim) -> bool {
        *self == Claim { at: self.at, ..other.clone() }
    }

    /// The claim that an object has, which is to be that of this epoch.
    fn decode(content: &[u8], epoch: u64) -> Result<Claim> {
        let fails = |what: &dyn fmt::Display| damaged(&epoch_name(epoch), what);
        let claim: Claim = serde_json::from_slice(content).map_err(|e| fails(&e))?;
        let (checked, crc) = content.split_at(content.len().saturating_sub(CRC_BYTES));
        if let Some(crc) = crc.strip_prefix(CRC_MARK.as_bytes())
            && *crc != *format!("{:08x}\"}}", crc32fast::hash(checked)).as_bytes()
        {
            return Err(fails(&"its CRC-32 does not match"));
        }
        match claim.epoch == epoch {
            true => Ok(claim),
            false => Err(fails(&format!("it is a renamed copy of that of epoch {}", claim.epoch))),
        }
    }
}

fn epoch_name(epoch: u64) -> String {
    format!("epochs/{epoch:010}")
}

/// The claim of an epoch, if somebody has taken it.
pub(super) fn claim_of(store: &dyn CopyStore, epoch: u64) -> Result<Option<Claim>> {
    let Some(content) = store.get(&epoch_name(epoch)).map_err(unreachable)? else { return Ok(None) };
    Claim::decode(&content, epoch).map(Some)
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
    if store.put_if_absent(&epoch_name(claim.epoch), claim.encode()?).map_err(unreachable)? {
        return Ok(true);
    }
    // An earlier try may have succeeded without an answer.
    Ok(claim_of(store, claim.epoch)?.as_ref() == Some(claim))
}

#[cfg(test)]
mod tests;
