//! Ordinary collections: documents with an `_id`, which are written, refreshed, read by key, and forgotten.
//!
//! A document is in one place: in the memtable, or in one segment. A write that replaces it looks the old row up when it is
//! applied, and marks that row as superseded; there are no tombstones, so nothing that was purged can come back.
//!
//! 1. A command is evaluated by the thread that writes the log, on the newest state and under the log's lock. Its effect (new
//!    documents, removed keys) is one log record; replay applies records and never judges them again.
//! 2. A mark of the memtable is in memory only. It becomes durable in the edit that seals the row that replaces the old one,
//!    never before: otherwise a lost end of the log would lose both.
//! 3. What exchanges segments (a seal, a compaction) carries the marks set meanwhile over to the new segments, under the log's
//!    lock, which every writer needs.

pub(crate) mod changes;
pub(crate) mod columns;
pub(crate) mod compact;
pub(crate) mod due;
pub(crate) mod find;
mod forecast;
pub(crate) mod index;
mod listing;
pub(crate) mod memtable;
mod memtable_index;
pub(crate) mod options;
pub(crate) mod pace;
pub(crate) mod read_ahead;
pub(crate) mod seal;
pub(crate) mod segment;
mod segment_index;
pub(crate) mod snapshot;
pub(crate) mod state;
pub(crate) mod stored;
pub(crate) mod sweep;
pub(crate) mod transaction;
pub(crate) mod usage;
