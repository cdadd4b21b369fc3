//! From measurements in segments and in memory to bins.

use crate::error::{Error, Result};
use crate::segment::{Segment, ordinal_number, row_number};
use crate::snapshot::row_filter::RowFilter;
use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use ebbtide_buckets::{Bins, Chunk, SegmentReader, time_values, to_usize};
use roaring::RoaringBitmap;
use std::ops::Range;

/// Rows read at a time.
const BATCH_ROWS: usize = 1 << 16;

/// A bucket of a segment: its ordinal, that of its meta, and which of its live rows are taken.
pub(crate) type Taken = (usize, usize, Option<RowFilter>);

/// Adds the live rows of buckets of a segment, which are in the order of their ordinals.
pub(crate) fn add_sealed(bins: &mut Bins, segment: &Segment, reader: &SegmentReader, buckets: &[Taken]) -> Result<()> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut pieces: Vec<Piece> = Vec::new();
    let mut last: Option<(usize, u32)> = None;
    for (ordinal, meta, filter) in buckets {
        let number = match last {
            Some((same, number)) if same == *meta => number,
            _ => bins.meta(&reader.directory().meta(*meta)),
        };
        last = Some((*meta, number));
        let of_bucket = segment.live_ranges(reader, *ordinal);
        pieces.push((number, *filter, len(&of_bucket)));
        ranges.extend(of_bucket);
    }
    add_ranges(bins, (segment, reader), ranges, pieces)
}

/// Adds live rows of a segment: those of whole buckets, and single ones by their numbers.
pub(crate) fn add_numbered(
    bins: &mut Bins,
    segment: &Segment,
    reader: &SegmentReader,
    (whole, single): (&RoaringBitmap, &RoaringBitmap),
) -> Result<()> {
    let (mut ranges, mut pieces): (Vec<Range<u64>>, Vec<Piece>) = Default::default();
    for (ordinal, meta, _) in segment.live_buckets(reader) {
        let of_bucket = match whole.contains(ordinal_number(ordinal)) {
            true => segment.live_ranges(reader, ordinal),
            false => {
                let rows = reader.directory().rows(ordinal);
                let numbers = single.range(row_number(rows.start)..row_number(rows.end));
                numbers.map(|row| u64::from(row)..u64::from(row) + 1).collect()
            }
        };
        if !of_bucket.is_empty() {
            pieces.push((bins.meta(&reader.directory().meta(meta)), None, len(&of_bucket)));
            ranges.extend(of_bucket);
        }
    }
    add_ranges(bins, (segment, reader), ranges, pieces)
}

/// Rows of one bucket: the number of their meta, which of them are taken, and how many there are.
type Piece = (u32, Option<RowFilter>, u64);

fn len(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Adds rows of ascending ranges, which come in pieces.
fn add_ranges(
    bins: &mut Bins,
    (segment, reader): (&Segment, &SegmentReader),
    ranges: Vec<Range<u64>>,
    pieces: Vec<Piece>,
) -> Result<()> {
    if ranges.is_empty() {
        return Ok(());
    }
    let ranges = joined(ranges);
    let rows = len(&ranges);
    bins.add_in_parts(rows, |part| add_part(part, (segment, reader), &ranges, &pieces))
}

/// Adds the rows to some of the fields.
fn add_part(
    bins: &mut Bins,
    (segment, reader): (&Segment, &SegmentReader),
    ranges: &[Range<u64>],
    pieces: &[Piece],
) -> Result<()> {
    let schema = reader.schema();
    let fields: Vec<String> = bins.field_names().map(str::to_owned).collect();
    let present = |field: &String| schema.field_type(field).is_some();
    let mut columns: Vec<String> = fields.iter().filter(|field| present(field)).cloned().collect();
    columns.push(schema.time.clone());
    let mut left = pieces.iter().copied().peekable();
    for batch in reader.read_stored(&columns, ranges, BATCH_ROWS)? {
        let mut stored = batch?;
        let time = stored.pop().ok_or_else(|| Error::internal("the times were not read"))?;
        let times = time_values(&time)?;
        let mut runs: Vec<(u32, Range<usize>)> = Vec::new();
        let mut start = 0;
        while start < times.len() {
            let Some((meta, filter, rows)) = left.peek_mut() else {
                return Err(Error::internal("more rows were read than requested"));
            };
            let end = times.len().min(start.saturating_add(to_usize(*rows)));
            let kept = filter.map_or(0..end - start, |filter| filter.cut(&times[start..end]).0);
            runs.push((*meta, start + kept.start..start + kept.end));
            *rows -= (end - start) as u64;
            if *rows == 0 {
                left.next();
            }
            start = end;
        }
        if runs.iter().any(|(_, rows)| !times[rows.clone()].is_sorted()) {
            return Err(Error::corrupt(&segment.file.path, 0, "the rows of a bucket are not in the order of time"));
        }
        let mut stored = stored.into_iter();
        let of_fields: Vec<Option<ArrayRef>> =
            fields.iter().map(|field| present(field).then(|| stored.next()).flatten()).collect();
        bins.fold(times, &of_fields, &runs)?;
    }
    match left.next() {
        None => Ok(()),
        Some(_) => Err(Error::corrupt(&segment.file.path, 0, "rows are missing at the end")),
    }
}

/// Adjacent ranges as one.
fn joined(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

/// Adds rows of buckets in memory, each in order of time.
pub(crate) fn add_open(bins: &mut Bins, chunk: &Chunk, buckets: &[(usize, &[u32])]) -> Result<()> {
    let (mut rows, mut pieces): (Vec<u32>, Vec<(u32, Range<usize>)>) = Default::default();
    for (bucket, of_bucket) in buckets {
        let start = rows.len();
        rows.extend(*of_bucket);
        pieces.push((bins.meta(&chunk.buckets[*bucket].id.meta), start..rows.len()));
    }
    let rows = UInt32Array::from(rows);
    let times = take(chunk.batch.column(0), &rows, None)?;
    let column = |field: &str| chunk.batch.column_by_name(field).map(|column| take(column, &rows, None)).transpose();
    let columns = bins.field_names().map(column).collect::<Result<Vec<_>, _>>()?;
    Ok(bins.fold(time_values(&times)?, &columns, &pieces)?)
}
