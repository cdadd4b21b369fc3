//! Writing a segment: rows in order of meta and time, each column in the encoding that its values ask for.

mod byte_aligned;
mod choose;

use super::directory::{self, Entry};
use super::file_types::{FileType, FileTypes};
use super::ngrams::{BuiltFilter, FilterBuilder, FilterPlace, FilterPlaces};
use super::physical::{Physical, join_decimals};
use super::stats::StatsBuilder;
use super::{
    BLOCK_BYTES, EncodedSegment, FORMAT_VERSION, KEY_DIRECTORY, KEY_FILTERS, KEY_SCHEMA, KEY_TAIL, SealRun,
    SegmentError, SegmentMeta, TAIL_MARK,
};
use crate::chunk::times;
use crate::counts::{to_number, to_usize};
use crate::parallel::parallel;
use crate::schema::{FieldType, Schema};
use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array, new_empty_array};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use ebbtide_ttl::in_range;
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use std::fmt::Write;
use std::sync::Arc;

/// Rows gathered and written at a time, at most.
const SLICE_ROWS: usize = 65_536;
/// Bytes of a slice, about, at most: offsets of texts and lists have 31 bits.
const SLICE_BYTES: usize = 256 << 20;

pub(crate) fn failed(error: impl std::fmt::Display) -> SegmentError {
    SegmentError::new("(new)", 0, format!("cannot be made: {error}"))
}

/// Measurements to be written to segments: every column is converted to its stored form once, however many
/// segments the rows go into.
#[derive(Debug)]
pub struct Sealer<'a> {
    schema: &'a Schema,
    /// The times of each piece.
    times: Vec<ArrayRef>,
    columns: Columns,
    types: FileTypes,
}

impl<'a> Sealer<'a> {
    /// Takes canonical batches, adapted to the schema. Their columns get the types in `types`, widened where these do not hold
    /// their values. `help` is asked before each column until it says yes: then the other
    /// cores take columns too, if there are rows enough to be worth it.
    ///
    /// # Errors
    /// If one of them is not under the schema, or they have more rows than a segment can hold.
    pub fn new(
        schema: &'a Schema,
        types: &FileTypes,
        pieces: &[RecordBatch],
        help: &dyn Fn() -> bool,
    ) -> Result<Sealer<'a>, SegmentError> {
        let arrow = schema.arrow();
        if let Some(piece) = pieces.iter().position(|p| p.schema_ref().fields() != arrow.fields()) {
            return Err(failed(format!("piece {piece} is not under the segment's schema")));
        }
        let times = pieces.iter().map(|p| p.column(0).clone()).collect();
        let (columns, found) = Columns::new(schema, types, pieces, help)?;
        Ok(Sealer { schema, times, columns, types: types.widened_by(&found) })
    }

    /// The types that the segments have, and those that come after them at least.
    #[must_use]
    pub fn types(&self) -> &FileTypes {
        &self.types
    }

    /// Seals buckets into a Parquet file with their directory inside, with `help` as in [`Sealer::new`].
    ///
    /// # Errors
    /// If the buckets are not as [`SealRun`] says, out of order or none, or the columns cannot be written.
    pub fn encode(&self, runs: &[SealRun], help: &dyn Fn() -> bool) -> Result<EncodedSegment, SegmentError> {
        let entries = self.entries(runs)?;
        let indices: Vec<(u32, u32)> = runs.iter().flat_map(|run| run.rows.iter().copied()).collect();
        write(self.schema, &self.columns, &entries, &indices, help)
    }

    fn entries(&self, runs: &[SealRun]) -> Result<Vec<Entry>, SegmentError> {
        if runs.is_empty() {
            return Err(failed("no rows"));
        }
        let ordered = runs.windows(2).all(|pair| pair[0].id < pair[1].id);
        if !ordered || runs.iter().any(|run| run.rows.is_empty()) {
            return Err(failed("buckets are out of order or empty"));
        }
        let precision = self.schema.precision;
        let pieces: Vec<&[i64]> = self.times.iter().map(|column| times(column, precision)).collect();
        let time = |(piece, row): &(u32, u32)| pieces.get(*piece as usize)?.get(*row as usize).copied();
        let mut entries = Vec::with_capacity(runs.len());
        for run in runs {
            let mut out_of_range = 0;
            let (mut first, mut last) = (None, i64::MIN);
            for row in &run.rows {
                let time = time(row).ok_or_else(|| failed("a bucket names a row that is not there"))?;
                if time < last {
                    return Err(failed("rows of a bucket are not in time order"));
                }
                first = first.or(Some(time));
                last = time;
                out_of_range += u32::from(!in_range(time, precision));
            }
            let (first, rows) = (first.unwrap_or(last), run.rows.len() as u64);
            entries.push(Entry { meta: run.id.meta.clone(), window: run.id.window, first, last, rows, out_of_range });
        }
        Ok(entries)
    }
}

/// Writes the named rows, which belong to these buckets.
fn write(
    schema: &Schema,
    columns: &Columns,
    entries: &[Entry],
    indices: &[(u32, u32)],
    help: &dyn Fn() -> bool,
) -> Result<EncodedSegment, SegmentError> {
    let rows = indices.len() as u64;
    let plan = choose::choose(columns, indices, help)?;
    let per_bucket = directory::stats_per_bucket(rows, entries.len() as u64);
    let groups: Vec<Vec<Rows>> = indices
        .chunks(choose::ROW_GROUP_ROWS)
        .map(|group| group.chunks(columns.slice_rows).map(|slice| columns.rows(slice)).collect())
        .collect();
    let mut writer = file_writer(columns.schema.clone(), Arc::new(choose::properties(schema, &plan)))?;
    let job = Job {
        columns,
        groups: &groups,
        buckets: per_bucket.then_some(entries),
        properties: writer.properties().clone(),
        byte_aligned_properties: choose::byte_aligned_properties(EnabledStatistics::Page),
        plan: &plan,
    };
    let texts = job.texts(schema);
    let encoded =
        parallel(rows, columns.stored.len() + texts.len(), help, |at| match at.checked_sub(columns.stored.len()) {
            Some(text) => job.filter(texts[text]).map(Encoded::Filter),
            None => job.column(at).map(|(chunks, stats)| Encoded::Column(chunks, stats)),
        })?;

    let mut stats = Vec::new();
    let mut filters = Vec::new();
    let mut chunks: Vec<Vec<Chunk>> = Vec::new();
    chunks.resize_with(groups.len(), Vec::new);
    for part in encoded {
        match part {
            Encoded::Filter(filter) => filters.push(filter),
            Encoded::Column(of_column, stat) => {
                stats.extend(stat);
                for (group, leaves) in chunks.iter_mut().zip(of_column) {
                    group.extend(leaves);
                }
            }
        }
    }
    for group in chunks {
        let mut row_group = writer.next_row_group().map_err(failed)?;
        for chunk in group {
            match chunk {
                Chunk::Arrow(chunk) => chunk.append_to_row_group(&mut row_group),
                Chunk::ByteAligned(chunk) => row_group.append_column(&chunk.bytes, chunk.closed),
            }
            .map_err(failed)?;
        }
        row_group.close().map_err(failed)?;
    }
    let names = texts.iter().map(|at| columns.schema.field(*at).name().as_str());
    let filters = write_filters(&mut writer, names.zip(filters))?;
    let (bytes, checksum) =
        finish(writer, schema, filters, |checksums| directory::encode(entries, checksums, per_bucket, &stats))?;
    let meta = SegmentMeta { checksum, ..meta_of(entries, rows, bytes.len() as u64) };
    Ok(EncodedSegment { bytes, meta })
}

/// A Parquet file in memory for these columns, without rows so far.
fn file_writer(
    schema: SchemaRef,
    properties: WriterPropertiesPtr,
) -> Result<SerializedFileWriter<Vec<u8>>, SegmentError> {
    let descriptor = ArrowSchemaConverter::new().convert(&schema).map_err(failed)?;
    SerializedFileWriter::new(Vec::new(), descriptor.root_schema_ptr(), properties).map_err(failed)
}

/// Writes the filters of columns behind the row groups, except those that would take too much; returns where they are.
fn write_filters<'c>(
    writer: &mut SerializedFileWriter<Vec<u8>>,
    filters: impl Iterator<Item = (&'c str, BuiltFilter)>,
) -> Result<Vec<FilterPlace>, SegmentError> {
    let mut places = Vec::new();
    for (column, filter) in filters {
        let leaves = writer.flushed_row_groups().iter().flat_map(|group| group.columns());
        let of_column = leaves.filter(|leaf| matches!(leaf.column_path().parts(), [name] if name == column));
        let bytes = of_column.map(|leaf| u64::try_from(leaf.compressed_size()).unwrap_or(0)).sum();
        if let Some(filter) = filter.bytes(bytes) {
            let (offset, length) = (writer.bytes_written() as u64, filter.len() as u64);
            writer.write_all(&filter).map_err(failed)?;
            places.push(FilterPlace { column: column.to_owned(), offset, length });
        }
    }
    Ok(places)
}

/// A part of a segment that is encoded by itself.
enum Encoded {
    /// The leaves of a column for each row group, and its statistics.
    Column(Vec<Vec<Chunk>>, Option<StatsBuilder>),
    Filter(BuiltFilter),
}

/// A leaf of a row group, written.
enum Chunk {
    Arrow(Box<ArrowColumnChunk>),
    ByteAligned(Box<byte_aligned::ByteAlignedChunk>),
}

/// What the columns of a segment are encoded from, and how.
struct Job<'a> {
    columns: &'a Columns,
    /// The rows of each row group, in slices.
    groups: &'a [Vec<Rows>],
    /// The buckets that have statistics of their own, if they do.
    buckets: Option<&'a [Entry]>,
    properties: WriterPropertiesPtr,
    byte_aligned_properties: WriterPropertiesPtr,
    plan: &'a choose::Plan,
}

impl Job<'_> {
    /// Encodes one column, row group by row group, and gathers its statistics.
    ///
    /// The writers of its leaves are made here, a row group at a time, and not for all columns at once: each holds a
    /// compressor of about a megabyte, however few its rows are.
    fn column(&self, at: usize) -> Result<(Vec<Vec<Chunk>>, Option<StatsBuilder>), SegmentError> {
        let field = self.columns.schema.field(at);
        let alone = Arc::new(ArrowSchema::new(vec![field.clone()]));
        let file = file_writer(alone.clone(), self.properties.clone())?;
        let factory = ArrowRowGroupWriterFactory::new(&file, alone);
        let byte_aligned = self.plan.choices[at].iter().any(|choice| choice.byte_aligned);
        let mut watch = Watch::new(field, self.buckets);
        let mut chunks = Vec::with_capacity(self.groups.len());
        for slices in self.groups {
            let mut slices = slices.iter().map(|slice| self.columns.gather_column(at, slice));
            if byte_aligned {
                let (descriptor, compression) = (file.schema_descr().column(0), self.plan.compression);
                let seen = |array: &ArrayRef| watch.see(array);
                let chunk = byte_aligned::write(&descriptor, &self.byte_aligned_properties, compression, slices, seen)?;
                chunks.push(vec![Chunk::ByteAligned(Box::new(chunk))]);
                continue;
            }
            let mut leaves = factory.create_column_writers(0).map_err(failed)?;
            slices.try_for_each(|array| {
                let array = array?;
                for (writer, leaf) in leaves.iter_mut().zip(compute_leaves(field, &array).map_err(failed)?) {
                    writer.write(&leaf).map_err(failed)?;
                }
                watch.see(&array);
                Ok(())
            })?;
            let closed = leaves.into_iter().map(|leaf| Ok(Chunk::Arrow(Box::new(leaf.close().map_err(failed)?))));
            chunks.push(closed.collect::<Result<_, SegmentError>>()?);
        }
        Ok((chunks, watch.stats))
    }

    /// The columns of texts, other than the meta, that have rows enough for a filter.
    fn texts(&self, schema: &Schema) -> Vec<usize> {
        let rows = self.groups.iter().flatten().map(|slice| slice.flat.len()).sum();
        let is_meta = |field: &Field| schema.meta.as_ref() == Some(field.name());
        let fields = self.columns.schema.fields().iter().enumerate();
        let texts = fields.filter(|(_, field)| FilterBuilder::is_for(field.data_type(), rows) && !is_meta(field));
        texts.map(|(at, _)| at).collect()
    }

    /// The filter of a column of texts.
    fn filter(&self, at: usize) -> Result<BuiltFilter, SegmentError> {
        let mut filter = FilterBuilder::new();
        for slice in self.groups.iter().flatten() {
            filter.add(&self.columns.gather_column(at, slice)?);
        }
        Ok(filter.finish())
    }
}

/// Gathers the statistics of one column as its rows go by: for each of `buckets`, or as a whole.
struct Watch<'a> {
    stats: Option<StatsBuilder>,
    buckets: Option<&'a [Entry]>,
    bucket: usize,
    left_in_bucket: u64,
}

impl<'a> Watch<'a> {
    fn new(field: &Field, buckets: Option<&'a [Entry]>) -> Self {
        let stats = StatsBuilder::new(field.name(), field.data_type(), buckets.map_or(1, <[Entry]>::len));
        Watch { stats, buckets, bucket: 0, left_in_bucket: buckets.map_or(u64::MAX, |b| b[0].rows) }
    }

    fn see(&mut self, array: &ArrayRef) {
        let Some(stats) = &mut self.stats else { return };
        let mut from = 0;
        while from < array.len() {
            let take = to_usize(self.left_in_bucket).min(array.len() - from);
            stats.add(self.bucket, array, from..from + take);
            from += take;
            self.left_in_bucket -= take as u64;
            let next = self.buckets.and_then(|b| b.get(self.bucket + 1)).filter(|_| self.left_in_bucket == 0);
            if let Some(next) = next {
                self.bucket += 1;
                self.left_in_bucket = next.rows;
            }
        }
    }
}

fn meta_of(entries: &[Entry], rows: u64, bytes: u64) -> SegmentMeta {
    let metas = 1 + entries.windows(2).filter(|pair| pair[0].meta != pair[1].meta).count();
    SegmentMeta {
        rows,
        buckets: to_number(entries.len()),
        metas: to_number(metas),
        bytes,
        first: entries.iter().map(|e| e.first).min().unwrap_or(0),
        last: entries.iter().map(|e| e.last).max().unwrap_or(0),
        window_start: entries.iter().map(|e| e.window.start).min().unwrap_or(0),
        window_end: entries.iter().map(|e| e.window.end).max().unwrap_or(0),
        out_of_range: entries.iter().map(|e| u64::from(e.out_of_range)).sum(),
        checksum: 0,
    }
}

/// Rows to gather: by piece and place, and by place among the rows of all pieces.
struct Rows {
    pairs: Vec<(usize, usize)>,
    flat: UInt32Array,
}

/// A column in the form in which it is stored.
#[derive(Debug)]
enum Stored {
    /// All pieces as one, which is quick to gather from.
    Whole(ArrayRef),
    /// Each piece: texts and lists with offsets, which as one could outgrow them.
    Pieces(Vec<ArrayRef>),
}

impl Stored {
    fn data_type(&self) -> Option<&DataType> {
        match self {
            Stored::Whole(all) => Some(all.data_type()),
            Stored::Pieces(pieces) => pieces.first().map(Array::data_type),
        }
    }
}

/// Brings the pieces of a column into the narrowest form that holds their values and what `known` holds; returns the narrowest
/// type for their values alone as well.
fn store(ty: &FieldType, known: Option<&FileType>, columns: &[ArrayRef]) -> Result<(Stored, FileType), SegmentError> {
    let joined = |found: &FileType| known.map_or_else(|| found.clone(), |known| known.join(found));
    let known_scale = match known {
        // The type that holds any value needs no look at the values.
        Some(FileType::Double) => None,
        Some(FileType::Decimal { scale, .. }) => Some(*scale),
        _ => Some(0),
    };
    let found = match (ty, known_scale) {
        (FieldType::Double, None) => FileType::Double,
        (FieldType::Double, Some(scale)) => match join_decimals(columns, scale) {
            Some((all, found)) if Physical::of(ty, &joined(&found)).is_narrow() => {
                return Ok((Stored::Whole(all), found));
            }
            Some((_, found)) => found,
            None => FileType::of(ty, columns),
        },
        _ => FileType::of(ty, columns),
    };
    let physical = Physical::of(ty, &joined(&found));
    let stored = columns.iter().map(|c| physical.store(c)).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let stored = match stored.as_slice() {
        [one] => Stored::Whole(one.clone()),
        [first, _, ..] if without_offsets(first.data_type()) => {
            let pieces: Vec<&dyn Array> = stored.iter().map(AsRef::as_ref).collect();
            Stored::Whole(concat(&pieces).map_err(failed)?)
        }
        _ => Stored::Pieces(stored),
    };
    Ok((stored, found))
}

/// All columns of all pieces in the form in which they are stored.
#[derive(Debug)]
struct Columns {
    schema: SchemaRef,
    stored: Vec<Stored>,
    /// Where the rows of each piece begin among those of all.
    starts: Vec<u32>,
    slice_rows: usize,
}

impl Columns {
    /// The columns, and the narrowest types that they could have.
    fn new(
        schema: &Schema,
        types: &FileTypes,
        pieces: &[RecordBatch],
        help: &dyn Fn() -> bool,
    ) -> Result<(Columns, Vec<(String, FileType)>), SegmentError> {
        let arrow = schema.arrow();
        let mut starts = Vec::with_capacity(pieces.len());
        let mut rows: usize = 0;
        for piece in pieces {
            starts.push(u32::try_from(rows).map_err(|_| failed("more than 2^32 rows at once"))?);
            rows += piece.num_rows();
        }
        u32::try_from(rows).map_err(|_| failed("more than 2^32 rows at once"))?;
        let stored = parallel(rows as u64, arrow.fields().len(), help, |at| {
            let field = arrow.field(at);
            let ty = schema.field_type(field.name()).unwrap_or(&FieldType::Unknown);
            let columns: Vec<ArrayRef> = pieces.iter().map(|p| p.column(at).clone()).collect();
            let (stored, found) = store(ty, types.of(field.name(), at), &columns)?;
            let ty = stored.data_type().cloned().unwrap_or_else(|| field.data_type().clone());
            Ok((Field::new(field.name(), ty, field.is_nullable()), stored, (field.name().clone(), found)))
        })?;
        let mut columns = Columns { schema: Arc::new(ArrowSchema::empty()), stored: Vec::new(), starts, slice_rows: 0 };
        let (mut fields, mut found) = (Vec::with_capacity(stored.len()), Vec::with_capacity(stored.len()));
        for (field, column, ty) in stored {
            fields.push(field);
            columns.stored.push(column);
            found.push(ty);
        }
        columns.schema = Arc::new(ArrowSchema::new(fields));
        let bytes: usize = pieces.iter().map(RecordBatch::get_array_memory_size).sum();
        let row_bytes = bytes / rows.max(1) + 1;
        columns.slice_rows = (SLICE_BYTES / row_bytes).clamp(256, SLICE_ROWS);
        Ok((columns, found))
    }

    fn rows(&self, rows: &[(u32, u32)]) -> Rows {
        let any_pieces = self.stored.iter().any(|stored| matches!(stored, Stored::Pieces(_)));
        let pairs = rows.iter().take(if any_pieces { rows.len() } else { 0 });
        Rows {
            pairs: pairs.map(|(piece, row)| (*piece as usize, *row as usize)).collect(),
            flat: rows.iter().map(|(piece, row)| self.starts[*piece as usize] + row).collect(),
        }
    }

    /// The named rows of one column.
    fn gather_column(&self, at: usize, rows: &Rows) -> Result<ArrayRef, SegmentError> {
        match &self.stored[at] {
            Stored::Whole(all) => take(all, &rows.flat, None).map_err(failed),
            Stored::Pieces(pieces) if pieces.is_empty() => Ok(new_empty_array(self.schema.field(at).data_type())),
            Stored::Pieces(pieces) => {
                let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
                interleave(&pieces, &rows.pairs).map_err(failed)
            }
        }
    }

    /// The named rows as one batch.
    fn gather(&self, rows: &[(u32, u32)]) -> Result<RecordBatch, SegmentError> {
        let rows = self.rows(rows);
        let columns = (0..self.stored.len()).map(|at| self.gather_column(at, &rows)).collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(self.schema.clone(), columns).map_err(failed)
    }
}

/// Whether any number of such columns can be joined: nothing in them counts bytes or items in 31 bits.
fn without_offsets(ty: &DataType) -> bool {
    match ty {
        DataType::Boolean | DataType::Utf8View => true,
        DataType::Struct(members) => !members.is_empty() && members.iter().all(|m| without_offsets(m.data_type())),
        ty => ty.is_primitive(),
    }
}

/// Writes what follows the data, and seals all of it under checksums; returns the one of the tail with the file.
fn finish(
    mut writer: SerializedFileWriter<Vec<u8>>,
    schema: &Schema,
    filters: Vec<FilterPlace>,
    directory: impl FnOnce(&[u32]) -> std::io::Result<Vec<u8>>,
) -> Result<(Vec<u8>, u32), SegmentError> {
    writer.flush().map_err(failed)?;
    let data_end = writer.inner().len();
    assert_eq!(data_end, writer.bytes_written(), "every data byte is under a checksum");
    let checksums: Vec<u32> = writer.inner().chunks(BLOCK_BYTES).map(crc32fast::hash).collect();
    let directory = directory(&checksums).map_err(failed)?;
    let json = serde_json::to_string(schema).map_err(failed)?;
    let place = format!("{data_end},{},{:08x},{FORMAT_VERSION}", directory.len(), crc32fast::hash(&directory));
    let mut keys = vec![(KEY_DIRECTORY, place), (KEY_SCHEMA, json)];
    if !filters.is_empty() {
        keys.push((KEY_FILTERS, serde_json::to_string(&FilterPlaces::new(filters)).map_err(failed)?));
    }
    seal_file(writer, 0, &directory, keys)
}

/// Writes a directory behind the data, then the footer with these keys and the checksum of all that follows the data;
/// returns what the writer holds of the file, from the byte `start` on, and that checksum.
pub(crate) fn seal_file(
    mut writer: SerializedFileWriter<Vec<u8>>,
    start: usize,
    directory: &[u8],
    keys: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<(Vec<u8>, u32), SegmentError> {
    let data_end = writer.bytes_written();
    writer.write_all(directory).map_err(failed)?;
    let mut tail = String::from_utf8_lossy(TAIL_MARK).into_owned();
    // The checksum is written as zeros first and filled in when all that it covers is there.
    let _written = write!(tail, "{data_end:016x};crc={:08x}", 0);
    for (key, value) in keys.into_iter().chain([(KEY_TAIL, tail)]) {
        writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
    }
    let mut bytes = writer.into_inner().map_err(failed)?;
    let crc = crc32fast::hash(&bytes[data_end - start..]);
    let at = super::read::tail_checksum_at(&bytes).ok_or_else(|| failed("the tail's key is not in the footer"))?;
    bytes[at..at + 8].copy_from_slice(format!("{crc:08x}").as_bytes());
    Ok((bytes, crc))
}
