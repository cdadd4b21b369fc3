//! What an index says of one segment.

use super::stored::{Stored, raw};
use crate::error::Result;
use ebbtide_documents::{Interval, Path, index_keys, value_key};
use roaring::RoaringBitmap;

/// Bytes of a key that are kept.
pub(super) const KEY_BYTES: usize = 24;

/// What an index says of one segment: keys in ascending order, each with its row.
#[derive(Debug, Default)]
pub(crate) struct SegmentIndex {
    keys: Vec<u8>,
    ends: Vec<u32>,
    rows: Vec<u32>,
}

impl SegmentIndex {
    /// Of all documents of a segment, each with its row.
    pub(super) fn build(documents: impl Iterator<Item = Result<(u32, Stored)>>, path: &Path) -> Result<SegmentIndex> {
        let mut entries: Vec<(Vec<u8>, u32)> = Vec::new();
        for document in documents {
            let (row, stored) = document?;
            for value in index_keys(raw(&stored.document), path) {
                let mut key = value_key(value);
                key.truncate(KEY_BYTES);
                entries.push((key, row));
            }
        }
        entries.sort_unstable();
        entries.dedup();
        let mut index = SegmentIndex::default();
        for (key, row) in entries {
            index.keys.extend_from_slice(&key);
            index.ends.push(u32::try_from(index.keys.len()).unwrap_or(u32::MAX));
            index.rows.push(row);
        }
        Ok(index)
    }

    fn key(&self, at: usize) -> &[u8] {
        let place = |at: usize| usize::try_from(self.ends[at]).unwrap_or(usize::MAX);
        let start = at.checked_sub(1).map_or(0, place);
        self.keys.get(start..place(at)).unwrap_or_default()
    }

    /// The first position of which the key fulfils a condition that holds from some position on.
    fn position(&self, holds: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.rows.len());
        while low < high {
            let middle = low.midpoint(high);
            if holds(self.key(middle)) { high = middle } else { low = middle + 1 }
        }
        low
    }

    /// The rows that may have a key in one of the intervals.
    pub(super) fn rows(&self, intervals: &[Interval]) -> RoaringBitmap {
        let mut rows = RoaringBitmap::new();
        for interval in intervals {
            let start = &interval.start[..interval.start.len().min(KEY_BYTES)];
            let from = self.position(|key| key >= start);
            let to = self.position(|key| key >= interval.end.as_slice());
            rows.extend(self.rows.get(from..to).unwrap_or_default());
        }
        rows
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.keys.len() + (self.ends.len() + self.rows.len()) * size_of::<u32>()
    }
}
