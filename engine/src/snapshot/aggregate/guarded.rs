//! Aggregates under a guard, for query engines that bound memory and can be stopped.

use super::{AggregateRequest, Gathered, fold};
use crate::error::{Error, Result};
use crate::snapshot::CollectionSnapshot;
use crate::snapshot::scan::ScanReport;
use arrow::array::RecordBatch;
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

/// What [`CollectionSnapshot::aggregate_guarded`] gives.
#[derive(Debug, Clone)]
pub struct Aggregated {
    /// The columns of [`CollectionSnapshot::aggregate`].
    pub groups: RecordBatch,
    /// Buckets that were answered by their directory.
    pub known: u64,
    /// What was read beside them, and all that was left out.
    pub report: ScanReport,
}

pub(super) fn refused() -> Error {
    Error::new(Code::Interrupted, "the aggregation was not to go on")
}

impl CollectionSnapshot {
    /// [`CollectionSnapshot::aggregate`] for as long as a guard lets it.
    ///
    /// # Errors
    /// As for [`CollectionSnapshot::aggregate`]; [`Code::Interrupted`] where the guard said no.
    pub fn aggregate_guarded(&self, request: &AggregateRequest, guard: &dyn AggregateGuard) -> Result<Aggregated> {
        let (mut left, mut segments) = (0, 0);
        let all = Gathered::in_rounds(self, request, guard, |shape, metas, round| {
            left += round.rest.iter().map(|rest| rest.found.len()).sum::<usize>();
            left += round.open.iter().map(|(_, found)| found.len()).sum::<usize>();
            segments += round.rest.len() as u64;
            let units = round.units(shape, metas)?;
            fold::fold_all(shape, &units, &mut round.table, guard)
        })?;
        let (mut report, left) = (all.report, left as u64);
        let known = report.buckets.saturating_sub(left);
        (report.buckets, report.segments) = (left, segments);
        report.rows_hidden += all.table.hidden;
        let groups = all.table.finish(self, request, &all.shape, &all.metas)?;
        Ok(Aggregated { groups, known, report })
    }

    /// First and last time of what is stored, whether it is visible or not. What was deleted may count.
    #[must_use]
    pub fn stored_times(&self) -> Option<(i64, i64)> {
        let sealed = self.state.segments.values().map(|segment| segment.live());
        let sealed = sealed.filter(|live| live.buckets > 0).map(|live| (live.first_min, live.last_max));
        let open = self.state.memtable.chunks().flat_map(|chunk| &chunk.buckets).map(|b| (b.first, b.last));
        sealed.chain(open).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }
}
