//! What a published table has: the segments of a collection, and which of their rows are visible; the bins of a rung.

use super::scan::selection::BucketSelector;
use super::scan::{ScanRequest, ScanUnit};
use super::{CollectionSnapshot, RollupRequest};
use crate::error::Result;
use crate::hand_off::planned::checksum_of;
use crate::publication::{PublishedBatches, PublishedRows, PublishedSegment};
use crate::segment::{Segment, row_number};
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{cast, concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema};
use ebbtide_buckets::{EncodedSegment, FieldType, Schema, adapt, times};
use roaring::RoaringBitmap;
use std::collections::BTreeMap;
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

    fn file(&self) -> Result<Option<EncodedSegment>> {
        let file = &self.segment.file;
        let reader = file.reader()?;
        match reader.has_plain_columns(&self.schema) {
            true => Ok(Some(EncodedSegment { bytes: reader.bytes()?.into(), meta: file.meta })),
            false => Ok(None),
        }
    }
}

/// A part of the bins of a rung.
#[derive(Debug)]
struct BinRows(RecordBatch);

impl PublishedRows for BinRows {
    fn read(&self, rows: &RoaringBitmap) -> Result<PublishedBatches> {
        let batch = take_record_batch(&self.0, &UInt32Array::from_iter_values(rows))?;
        Ok(Box::new(std::iter::once(Ok(batch))))
    }
}

/// Bins of each series in one part, at most: about ten days of bins of an hour.
const BINS_OF_PART: i64 = 256;

/// The rows that bins show, as a table has them: it has no decimals of 38 digits, so sums of whole numbers become doubles.
fn in_a_table(of: &Schema, rows: &RecordBatch) -> Result<(Schema, RecordBatch)> {
    let mut schema = Schema::new(of.time.clone(), None, of.precision);
    if let Some(meta) = of.meta.as_ref().filter(|meta| rows.column_by_name(meta).is_some()) {
        (schema.meta, schema.meta_type) = (Some(meta.clone()), of.meta_type.clone());
    }
    let (mut names, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in rows.schema_ref().fields().iter().zip(rows.columns()) {
        let ty = match field.data_type() {
            DataType::Int64 => FieldType::Int64,
            DataType::Boolean => FieldType::Bool,
            DataType::Utf8View => FieldType::String,
            DataType::Timestamp(..) => FieldType::Timestamp,
            _ => FieldType::Double,
        };
        let is_field = *field.name() != schema.time && Some(field.name()) != schema.meta.as_ref();
        let is_decimal = matches!(field.data_type(), DataType::Decimal128(..));
        columns.push(if is_decimal { cast(column, &DataType::Float64)? } else { column.clone() });
        names.push(Field::new(field.name(), columns[names.len()].data_type().clone(), true));
        if is_field {
            schema.fields.push((field.name().clone(), ty));
        }
    }
    let rows = RecordBatch::try_new(Arc::new(ArrowSchema::new(names)), columns)?;
    let rows = adapt(&rows, &schema)?;
    Ok((schema, rows))
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
    /// What the bins of a rung show, in parts of time.
    pub(crate) fn published_bins(&self, step_seconds: i64) -> Result<(Arc<Schema>, Vec<PublishedSegment>)> {
        let bins = self.rollup(&RollupRequest { width_seconds: step_seconds, ..RollupRequest::default() })?;
        let bins = concat_batches(&self.rollup_schema(None)?, &bins)?;
        let (schema, bins) = in_a_table(self.schema(), &bins)?;
        let width = step_seconds.saturating_mul(schema.precision.per_second()).saturating_mul(BINS_OF_PART);
        let mut parts: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
        for (row, t) in (0..).zip(times(&bins)?) {
            parts.entry(t.div_euclid(width)).or_default().push(row);
        }
        let mut published = Vec::with_capacity(parts.len());
        for (part, rows) in parts {
            let rows = take_record_batch(&bins, &UInt32Array::from(rows))?;
            let count = rows.num_rows() as u64;
            published.push(PublishedSegment {
                // Another content makes it another one.
                id: format!("bins-{part}-{count}-{:08x}", checksum_of(&rows)?),
                rows: count,
                visible: (0..row_number(count)).collect(),
                deleted: RoaringBitmap::new(),
                source: Box::new(BinRows(rows)),
            });
        }
        Ok((Arc::new(schema), published))
    }

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
