//! What a sweep drops, and how it is cut where a visit has reached its limit.

use crate::error::Result;
use crate::segment::{Segment, ordinal_number};
use ebbtide_buckets::to_usize;
use roaring::RoaringBitmap;
use std::ops::Range;

/// Something to drop.
#[derive(Debug)]
pub(crate) enum Item {
    /// Everything that is left of a segment. `counted` of its buckets were counted by visits that stopped at a limit within it.
    Segment { segment: u64, buckets: u64, counted: u64, rows: u64, bytes: u64 },
    /// Some buckets of a segment, none of which has pieces elsewhere.
    Part { segment: u64, ordinals: RoaringBitmap, rows: u64, bytes: u64 },
    /// One bucket, wherever its pieces are.
    Bucket { pieces: Vec<(u64, u32)>, rows: u64, bytes: u64 },
}

impl Item {
    pub(crate) fn buckets(&self) -> u64 {
        match self {
            Item::Segment { buckets, .. } => *buckets,
            Item::Part { ordinals, .. } => ordinals.len(),
            Item::Bucket { .. } => 1,
        }
    }

    /// Whether it is everything that is left of a segment, counted to the end.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Item::Segment { buckets, counted, .. } if counted == buckets)
    }

    /// The segments that it touches.
    pub(in crate::sweep) fn segments(&self) -> Vec<u64> {
        match self {
            Item::Segment { segment, .. } | Item::Part { segment, .. } => vec![*segment],
            Item::Bucket { pieces, .. } => pieces.iter().map(|(segment, _)| *segment).collect(),
        }
    }

    pub(crate) fn rows(&self) -> u64 {
        match self {
            Item::Segment { rows, .. } | Item::Part { rows, .. } | Item::Bucket { rows, .. } => *rows,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Item::Segment { bytes, .. } | Item::Part { bytes, .. } | Item::Bucket { bytes, .. } => *bytes,
        }
    }
}

/// Collects buckets of a segment in ascending order; neighbours enter the bitmap as one range.
#[derive(Default)]
pub(super) struct OrdinalRuns {
    ordinals: RoaringBitmap,
    run: Range<u32>,
    rows: u64,
}

impl OrdinalRuns {
    pub(super) fn add(&mut self, ordinal: u32, rows: u64) {
        assert!(ordinal >= self.run.end, "buckets come in ascending order");
        if ordinal != self.run.end || self.run.is_empty() {
            self.ordinals.insert_range(self.run.clone());
            self.run.start = ordinal;
        }
        self.run.end = ordinal + 1;
        self.rows += rows;
    }

    pub(super) fn item(mut self, segment: &Segment) -> Item {
        self.ordinals.insert_range(self.run);
        part_of(segment, self.ordinals, self.rows)
    }
}

fn part_of(segment: &Segment, ordinals: RoaringBitmap, rows: u64) -> Item {
    Item::Part { segment: segment.file.id, ordinals, rows, bytes: segment.share(rows) }
}

/// The first `buckets` buckets of a segment.
pub(in crate::sweep) fn first_of(segment: &Segment, buckets: u64) -> Result<Item> {
    let reader = segment.file.reader()?;
    let mut first = OrdinalRuns::default();
    for (ordinal, _, bounds) in segment.live_buckets(&reader).take(to_usize(buckets)) {
        first.add(ordinal_number(ordinal), bounds.rows);
    }
    Ok(first.item(segment))
}

/// Splits buckets of a segment, with `rows` rows in all, into the first `limit` and the others.
pub(super) fn split(segment: &Segment, mut all: RoaringBitmap, rows: u64, limit: u64) -> Result<(Item, Item)> {
    let end = u32::try_from(limit).ok().and_then(|limit| all.select(limit));
    let mut rest = RoaringBitmap::new();
    if let Some(end) = end {
        rest = all.clone();
        rest.remove_range(..end);
        all.remove_range(end..);
    }
    let reader = segment.file.reader()?;
    let live_buckets = all.iter().filter_map(|ordinal| segment.bounds(&reader, ordinal as usize));
    let first_rows: u64 = live_buckets.map(|b| b.rows).sum();
    assert!(first_rows <= rows, "some buckets have {first_rows} rows, all of them {rows}");
    Ok((part_of(segment, all, first_rows), part_of(segment, rest, rows - first_rows)))
}
