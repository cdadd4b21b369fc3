//! The segments of a collection for a table that is published: which of their rows are visible.

use super::CollectionSnapshot;
use super::scan::selection::BucketSelector;
use super::scan::{ScanRequest, ScanUnit};
use crate::error::Result;
use crate::publication::{PublishedBatches, PublishedRows, PublishedSegment};
use crate::segment::{Segment, row_number};
use ebbtide_buckets::{Schema, times};
use roaring::RoaringBitmap;
use std::ops::Range;
use std::sync::Arc;

/// A segment as it was when the snapshot was taken.
#[derive(Debug)]
struct Rows {
    segment: Arc<Segment>,
    schema: Arc<Schema>,
}

impl PublishedRows for Rows {
    fn read(&self, rows: &RoaringBitmap) -> Result<PublishedBatches> {
        let columns = self.schema.arrow().fields().iter().map(|field| field.name().clone()).collect();
        ScanUnit::of_rows(&self.segment, ranges_of(rows), columns, &self.schema).read()
    }
}

fn ranges_of(rows: &RoaringBitmap) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for row in rows.iter().map(u64::from) {
        match ranges.last_mut() {
            Some(last) if last.end == row => last.end += 1,
            _ => ranges.push(row..row + 1),
        }
    }
    ranges
}

impl CollectionSnapshot {
    /// The sealed segments that have something visible.
    pub(crate) fn published_segments(&self) -> Result<Vec<PublishedSegment>> {
        let request = ScanRequest::default();
        let mut selector = BucketSelector::new(self, &request);
        let schema = self.schema();
        let mut published = Vec::new();
        for segment in self.state.segments.values() {
            let Some((reader, selected)) = selector.select(segment)? else { continue };
            let mut visible = RoaringBitmap::new();
            for bucket in selected {
                let mut ranges = Vec::new();
                segment.push_live(&mut ranges, &reader, bucket.ordinal);
                let Some(filter) = bucket.filter else {
                    ranges.iter().for_each(|range| {
                        visible.insert_range(row_number(range.start)..row_number(range.end));
                    });
                    continue;
                };
                let mut rows = ranges.clone().into_iter().flatten();
                let unit = ScanUnit::of_rows(segment, ranges, vec![schema.time.clone()], schema);
                for batch in unit.read()? {
                    for (t, row) in times(&batch?)?.iter().zip(&mut rows) {
                        if filter.keeps(*t) {
                            visible.insert(row_number(row));
                        }
                    }
                }
            }
            let meta = &segment.file.meta;
            if !visible.is_empty() {
                published.push(PublishedSegment {
                    id: format!("{}-{}-{:08x}", segment.file.id, meta.bytes, meta.checksum),
                    rows: meta.rows,
                    visible,
                    deleted: segment.state.deleted.clone(),
                    source: Box::new(Rows { segment: segment.clone(), schema: schema.clone() }),
                });
            }
        }
        Ok(published)
    }
}
