//! What bounds an aggregation: its memory, the rows that it reads, and whether it continues.

use crate::error::Error;
use ebbtide_ttl::Code;

/// Is asked before an aggregation takes much. Where it says no, the aggregation ends.
pub trait AggregateGuard: Sync {
    /// Whether groups may take about so many bytes of memory, together with all before.
    fn may_take(&self, _bytes: usize) -> bool {
        true
    }

    /// Whether so many rows may be read.
    fn may_read(&self, _rows: u64) -> bool {
        true
    }

    /// Whether to go on; asked every 65,536 rows or so, by several threads.
    fn may_go_on(&self) -> bool {
        true
    }
}

/// Says yes.
impl AggregateGuard for () {}

pub(super) fn refused() -> Error {
    Error::new(Code::Interrupted, "the aggregation was not to go on")
}
