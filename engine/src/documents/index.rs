//! Which rows of a segment an index points a query to.
//!
//! The part of an index that is about one segment is made when a query first needs it, in one pass over the segment, and stays in
//! memory as long as the segment: a segment never changes. It has the beginning of each key only, so it may point to rows that do
//! not match; a query looks at every document that it returns.

use super::memtable::Stored;
use super::options::IndexSpec;
use super::segment::DocumentSegment;
use super::snapshot::raw;
use crate::error::Result;
use ebbtide_documents::{Filter, Interval, Multiplicity, Path, index_keys, value_key};
use roaring::RoaringBitmap;
use std::sync::Arc;

/// Bytes of a key that are kept.
const KEY_BYTES: usize = 24;

/// What an index says of one segment: keys in ascending order, each with its row.
#[derive(Debug, Default)]
pub(crate) struct SegmentIndex {
    keys: Vec<u8>,
    ends: Vec<u32>,
    rows: Vec<u32>,
}

impl SegmentIndex {
    /// Reads all documents of a segment.
    fn build(segment: &DocumentSegment, path: &Path) -> Result<SegmentIndex> {
        let mut entries: Vec<(Vec<u8>, u32)> = Vec::new();
        for row in segment.rows(&RoaringBitmap::new())? {
            let (row, _, stored) = row?;
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
    fn rows(&self, intervals: &[Interval]) -> RoaringBitmap {
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
    fn bytes(&self) -> usize {
        self.keys.len() + (self.ends.len() + self.rows.len()) * size_of::<u32>()
    }
}

/// The index that serves a query, and where to look in it.
#[derive(Debug)]
pub(crate) struct Chosen<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    path: Path,
    intervals: Vec<Interval>,
}

impl<'a> Chosen<'a> {
    /// The first index whose leading field the filter bounds; single values before ranges. The filter of an index says which
    /// documents expire through it; it knows the others too.
    pub(crate) fn of(indexes: &'a [IndexSpec], filter: &Filter) -> Option<Chosen<'a>> {
        let chosen = |index: &'a IndexSpec| {
            let path = Path::new(&index.key.first()?.0);
            let intervals = filter.intervals(&path, Multiplicity::Many)?;
            Some(Chosen { name: &index.name, path, intervals })
        };
        indexes.iter().filter_map(chosen).min_by_key(|chosen| !chosen.intervals.iter().all(Interval::is_point))
    }

    /// The rows of a segment to look at, and how many documents were read to find that out.
    pub(crate) fn rows(&self, segment: &DocumentSegment) -> Result<(RoaringBitmap, u64)> {
        let mut read = 0;
        let index = match segment.index(self.path.as_str()) {
            Some(index) => index,
            None => {
                let built = Arc::new(SegmentIndex::build(segment, &self.path)?);
                tracing::debug!(
                    segment = segment.id(),
                    path = self.path.as_str(),
                    bytes = built.bytes(),
                    "made an index"
                );
                segment.keep_index(self.path.as_str(), built.clone());
                read = segment.file.meta.rows;
                built
            }
        };
        Ok((index.rows(&self.intervals), read))
    }

    /// Whether a document that is in no segment is to be looked at.
    pub(crate) fn includes(&self, stored: &Stored) -> bool {
        let keys = index_keys(raw(&stored.document), &self.path);
        keys.into_iter().any(|value| {
            let key = value_key(value);
            self.intervals.iter().any(|interval| interval.contains(&key))
        })
    }
}
