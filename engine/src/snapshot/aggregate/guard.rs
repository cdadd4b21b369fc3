//! What bounds an aggregation: its memory, the rows that it reads, and whether it continues.

use crate::error::Error;
use ebbtide_ttl::Code;

/// Consulted before an aggregation takes memory, reads rows, or continues; `false` cancels the aggregation.
pub trait AggregateGuard: Sync {
    /// Whether groups may take about `bytes` of memory in total.
    fn may_take(&self, _bytes: usize) -> bool {
        true
    }

    /// Whether this number of rows may be read.
    fn may_read(&self, _rows: u64) -> bool {
        true
    }

    /// Whether to continue; called about every 65,536 rows, by several threads.
    fn may_go_on(&self) -> bool {
        true
    }
}

/// Never cancels.
impl AggregateGuard for () {}

pub(super) fn refused() -> Error {
    Error::new(Code::Interrupted, "the aggregation was cancelled")
}
