//! Leaves out rows of segments that, by the n-gram filters, cannot contain the texts that are looked for.

use crate::error::Result;
use crate::segment::Segment;
use crate::snapshot::cache_share::CacheShare;
use crate::snapshot::row_filter::RowFilter;
use ebbtide_buckets::{SegmentError, SegmentReader, TextCondition, on_threads};
use std::ops::Range;
use std::sync::Arc;

/// Segments on other machines whose filters are read at the same time.
const FETCHED_AT_ONCE: usize = 16;

/// The rows of a segment that are selected, by the filter that they have to pass.
pub(super) type RowsByFilter = Vec<(Option<RowFilter>, Vec<Range<u64>>)>;

/// The selected rows of a segment.
pub(super) struct SelectedRows {
    pub(super) segment: Arc<Segment>,
    pub(super) reader: SegmentReader,
    pub(super) rows: RowsByFilter,
}

/// The filters of the segments of a scan, which has conditions on texts. They take at most half of the cache.
pub(super) struct TextFilters<'r> {
    conditions: &'r [TextCondition],
    cached: Option<CacheShare>,
    /// Rows that were left out.
    pub(super) rows_pruned: u64,
}

impl<'r> TextFilters<'r> {
    pub(super) fn new(conditions: &'r [TextCondition]) -> TextFilters<'r> {
        TextFilters { conditions, cached: None, rows_pruned: 0 }
    }

    /// Whether enough segments are waiting to be asked together.
    pub(super) fn are_enough(&self, waiting: &[SelectedRows]) -> bool {
        let is_remote = |last: &SelectedRows| last.reader.is_remote();
        waiting.len() >= FETCHED_AT_ONCE || waiting.last().is_some_and(|last| !is_remote(last))
    }

    /// Removes rows that cannot match.
    pub(super) fn apply(&mut self, waiting: &mut [SelectedRows]) -> Result<()> {
        let keep: Vec<bool> = waiting.iter().map(|of_segment| self.takes(of_segment)).collect();
        let threads = if waiting.iter().any(|one| one.reader.is_remote()) { FETCHED_AT_ONCE } else { 1 };
        let left = on_threads(threads, waiting.len(), &|| true, |at| {
            let mut left: Vec<Vec<Range<u64>>> = waiting[at].rows.iter().map(|(_, ranges)| ranges.clone()).collect();
            let mut lists: Vec<_> = left.iter_mut().collect();
            waiting[at].reader.retain_matching(&mut lists, self.conditions, keep[at])?;
            Ok::<_, SegmentError>(left)
        })?;
        for (of_segment, left) in waiting.iter_mut().zip(left) {
            for ((_, ranges), left) in of_segment.rows.iter_mut().zip(left) {
                self.rows_pruned += count(ranges) - count(&left);
                *ranges = left;
            }
        }
        Ok(())
    }

    /// Whether the cache keeps the filters of a segment that have to be read.
    fn takes(&mut self, of_segment: &SelectedRows) -> bool {
        let room = || of_segment.segment.file.cache_room();
        let cached = self.cached.get_or_insert_with(|| CacheShare::of_half(room()));
        let has_rows = of_segment.rows.iter().any(|(_, ranges)| !ranges.is_empty());
        has_rows && cached.takes(of_segment.reader.filter_bytes(self.conditions))
    }
}

pub(super) fn count(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}
