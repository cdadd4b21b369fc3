//! What of a damaged log is kept, and what is lost.

use crate::error::{Error, Result};
use crate::state::State;
use crate::wal::{self, FaultKind, LogFault, LogPart, LogRecord, LogVisitor};
use std::collections::BTreeMap;

/// Looks for a record of a collection that the manifest never created: it says that the manifest has lost its end.
pub(super) struct LostEnd(pub(super) Option<Error>);

impl LogVisitor for LostEnd {
    fn wants(&self, _seq: u64, _collection: u64) -> bool {
        false
    }

    fn record(&mut self, _first_seq: u64, _record: LogRecord) -> Result<()> {
        Ok(())
    }

    fn fault(&mut self, fault: LogFault<'_>) -> Result<()> {
        if fault.kind == FaultKind::UnknownCollection && self.0.is_none() {
            self.0 = Some(fault.error);
        }
        Ok(())
    }
}

/// Keeps the records before the first damage, and collects what is lost with and after it.
pub(super) struct Salvage<'a> {
    pub(super) state: &'a State,
    pub(super) faults: Vec<String>,
    /// Records before the first damage.
    pub(super) kept: Vec<LogRecord>,
    /// By log file, what cannot be kept.
    pub(super) lost: BTreeMap<u64, LostRecords>,
    /// Whether damage was found: nothing after it is kept.
    pub(super) broken: bool,
    /// The highest sequence number seen.
    pub(super) last_seq: u64,
}

/// What is lost of one log file.
#[derive(Default)]
pub(super) struct LostRecords {
    /// Those that can be read.
    pub(super) records: Vec<LogRecord>,
    /// Bytes that cannot be read; `None` if there was no damage in this file.
    pub(super) unread: Option<u64>,
}

impl Salvage<'_> {
    /// Whether rows of a collection are lost with a record: no segment has them.
    fn is_loss(&self, seq: u64, collection: u64) -> bool {
        collection >= self.state.next_collection || self.state.is_unsealed(seq, collection)
    }

    /// What is lost with records that cannot be kept.
    pub(super) fn losses_of<'a>(&'a self, lost: &'a LostRecords) -> impl Iterator<Item = &'a LogPart> {
        let parts = lost.records.iter().flat_map(|record| record.parts.iter().map(|part| (record.seq, part)));
        parts.filter(|(seq, part)| self.is_loss(*seq, part.collection)).map(|(_, part)| part)
    }
}

impl LogVisitor for Salvage<'_> {
    fn wants(&self, seq: u64, collection: u64) -> bool {
        self.is_loss(seq, collection)
    }

    fn record(&mut self, first_seq: u64, record: LogRecord) -> Result<()> {
        self.last_seq = self.last_seq.max(record.seq);
        if self.broken || record.parts.iter().any(|part| part.collection >= self.state.next_collection) {
            self.lost.entry(first_seq).or_default().records.push(record);
        } else {
            self.kept.push(record);
        }
        Ok(())
    }

    fn fault(&mut self, fault: LogFault<'_>) -> Result<()> {
        if fault.kind == FaultKind::UnknownCollection {
            return Ok(()); // Noted as a fault of the manifest.
        }
        self.broken = true;
        self.faults.push(fault.error.to_string());
        let lost = self.lost.entry(fault.first_seq).or_default();
        let (file, at) = fault.unread.unwrap_or_default();
        let records = wal::salvage(file, at);
        let parts = records.iter().flat_map(|record| &record.parts);
        let read: u64 = parts.filter(|part| part.content.is_some()).map(|part| part.bytes).sum();
        // A damaged file held records: if none of them can be read, the loss is unknown.
        let unread = (file.len() - at) as u64 - read;
        if unread > 0 || records.is_empty() {
            lost.unread = Some(lost.unread.unwrap_or(0) + unread);
        }
        self.last_seq = records.iter().map(|r| r.seq).fold(self.last_seq, u64::max);
        lost.records.extend(records);
        Ok(())
    }
}
