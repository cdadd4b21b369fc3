//! What holds keep of a collection.

use super::CollectionState;
use crate::error::Result;
use crate::holds::Hold;
use crate::segment::Segment;
use crate::segment::bounds::BucketBounds;
use ebbtide_buckets::{BucketId, SegmentReader, time_values};
use ebbtide_ttl::Value;
use roaring::RoaringBitmap;
use std::collections::HashSet;

impl CollectionState {
    /// The active hold that covers a measurement.
    pub(crate) fn hold_on(&self, meta: &Value, t: i64) -> Option<&Hold> {
        let precision = self.options.precision;
        self.holds.iter().find(|hold| hold.covers(t, precision) && hold.filter.matches_meta(meta))
    }

    /// Whether a hold may cover something that a segment holds; told without its directory.
    pub(crate) fn may_be_held(&self, segment: &Segment) -> bool {
        let live = segment.live();
        self.holds.iter().any(|hold| hold.overlaps(live.first_min, live.last_max, self.options.precision))
    }

    /// The buckets of a segment that have a measurement which a hold covers.
    pub(crate) fn held_buckets(&self, segment: &Segment, reader: &SegmentReader) -> Result<RoaringBitmap> {
        let mut held = RoaringBitmap::new();
        if !self.may_be_held(segment) {
            return Ok(held);
        }
        for (ordinal, _, bounds) in segment.live_buckets(reader) {
            if self.is_piece_held(segment, (reader, ordinal), &bounds)? {
                held.insert(crate::segment::ordinal_number(ordinal));
            }
        }
        Ok(held)
    }

    fn is_piece_held(
        &self,
        segment: &Segment,
        (reader, ordinal): (&SegmentReader, usize),
        bounds: &BucketBounds,
    ) -> Result<bool> {
        let precision = self.options.precision;
        let near = self.holds.iter().filter(|hold| hold.overlaps(bounds.first, bounds.last, precision));
        let mut meta = None;
        for hold in near {
            let meta = meta.get_or_insert_with(|| segment.meta(reader, ordinal).value());
            let times = || {
                let ranges = segment.live_ranges(reader, ordinal);
                let mut times = Vec::new();
                for batch in reader.read(std::slice::from_ref(&self.schema.time), &self.schema, &ranges, 1 << 13)? {
                    times.extend_from_slice(time_values(batch?.column(0))?);
                }
                Ok(times)
            };
            if hold.filter.matches_meta(meta) && hold.covers_any((bounds.first, bounds.last), precision, times)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The open buckets that have a measurement which a hold covers.
    pub(crate) fn held_open_buckets(&self) -> Result<HashSet<BucketId>> {
        let mut held = HashSet::new();
        if self.holds.is_empty() {
            return Ok(held);
        }
        for chunk in self.memtable.chunks() {
            let times = ebbtide_buckets::times(&chunk.batch)?;
            for bucket in &chunk.buckets {
                let meta = bucket.id.meta.value();
                if bucket.rows.iter().any(|row| self.hold_on(&meta, times[*row as usize]).is_some()) {
                    held.insert(bucket.id.clone());
                }
            }
        }
        Ok(held)
    }
}
