//! Reading a file of a table in the parts that are needed, of which some may be in memory.

use crate::bounds::rows_to_read;
use crate::file::PAGE_ROWS;
use crate::store::{Store, StoreError};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use ebbtide::buckets::{ReadAt, arrow_metadata};
use ebbtide::{ArchiveFetched, ArchiveRead, ArchivedBatches, ArchivedFile, SinkError};
use parquet::DecodeResult;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, RowSelection};
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};
use parquet::file::metadata::ParquetMetaDataPushDecoder;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// What is fetched of the end of a file at first: its metadata, in most cases all of it.
const END_BYTES: u64 = 1 << 15;
/// Parts that are no farther apart than this are fetched with one request.
const GAP_BYTES: u64 = 1 << 14;
/// How many parts the cache is laid out for.
const PARTS: usize = 1 << 12;
/// No row group has more rows.
const GROUP_ROWS_MAX: usize = 1 << 18;
/// The values of a column are cached in blocks of this many rows: those of a page.
const BLOCK_ROWS: usize = PAGE_ROWS;

/// Parts of files that were fetched, and values that were decoded from them, up to a number of bytes. Files never change.
pub(crate) struct FileCache(Cache<Key, Part, Bytewise>);

impl fmt::Debug for FileCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileCache({} bytes)", self.0.weight())
    }
}

impl FileCache {
    pub(crate) fn new(bytes_max: u64) -> FileCache {
        FileCache(Cache::with_weighter(PARTS, bytes_max, Bytewise))
    }
}

/// Identifies a cached part: the file, by the URL of its table and its name, and what is cached of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    file: Arc<str>,
    of: Of,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Of {
    Metadata,
    /// A block of a file that is read at random.
    Block(u64),
    Bytes(Range<u64>),
    Values {
        group: usize,
        column: usize,
        block: usize,
    },
}

#[derive(Clone)]
enum Part {
    Metadata(ArrowReaderMetadata),
    Bytes(Bytes),
    Values(ArrayRef),
}

#[derive(Clone)]
struct Bytewise;

impl Weighter<Key, Part> for Bytewise {
    fn weight(&self, key: &Key, part: &Part) -> u64 {
        let bytes = match part {
            Part::Metadata(metadata) => metadata.metadata().memory_size(),
            Part::Bytes(bytes) => bytes.len(),
            Part::Values(values) => values.get_array_memory_size(),
        };
        (bytes + key.file.len() + size_of::<Key>() + size_of::<Part>()) as u64
    }
}

/// Bytes of a block of a file that is read at random: those that a segment has under one checksum.
const BLOCK_BYTES: u64 = 4096;

/// A file of the table of a URL for random access.
pub(crate) fn open(
    (url, store, cache): (&str, Arc<dyn Store>, Arc<FileCache>),
    file: &ArchivedFile,
    fetched: Arc<ArchiveFetched>,
) -> Arc<dyn ReadAt> {
    let id = Arc::from(format!("{url}/{}", file.name));
    Arc::new(Remote { id, name: file.name.clone(), bytes: file.bytes, store, cache, fetched })
}

/// Reads a file of the table of a URL.
pub(crate) fn read(
    (url, store, cache): (&str, Arc<dyn Store>, Arc<FileCache>),
    file: &ArchivedFile,
    read: &ArchiveRead,
) -> Result<ArchivedBatches, SinkError> {
    let id = Arc::from(format!("{url}/{}", file.name));
    let remote =
        Remote { id, name: file.name.clone(), bytes: file.bytes, store, cache, fetched: Arc::clone(&read.fetched) };
    let metadata = remote.metadata()?;
    let groups = rows_to_read(metadata.metadata(), read)?;
    let wanted = read.schema.arrow();
    let fields = metadata.schema().fields().iter().enumerate();
    let columns: Vec<usize> =
        fields.filter(|(_, field)| wanted.index_of(field.name()).is_ok()).map(|(index, _)| index).collect();
    let schema = Arc::new(metadata.schema().project(&columns)?);
    let mut batches = Batches { remote, metadata, columns, schema, groups: groups.into(), group: None };
    let blocks = std::iter::from_fn(move || {
        let block = batches.next_block();
        if block.is_err() {
            // The decoder may be at another block than the one that comes next.
            batches.end();
        }
        block.transpose()
    });
    Ok(Box::new(blocks.flat_map(|block| match block {
        Ok(batches) => batches.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    })))
}

/// The batches of a file.
struct Batches {
    remote: Remote,
    metadata: ArrowReaderMetadata,
    /// The places of the columns in the file.
    columns: Vec<usize>,
    schema: SchemaRef,
    /// What is left to read: row groups, and rows of them in order.
    groups: VecDeque<(usize, Vec<Range<usize>>)>,
    group: Option<Group>,
}

/// A row group that is being read.
struct Group {
    number: usize,
    blocks: VecDeque<Block>,
    /// The places of the columns, in the list of those that are read, of which values have to be decoded.
    missing: Vec<usize>,
    /// Decodes the missing columns of the blocks that lack any of them, a block at a time.
    decoder: Option<ParquetPushDecoder>,
}

/// Rows of a row group that are decoded, and kept, together.
struct Block {
    number: usize,
    /// The rows of the row group.
    rows: Range<usize>,
    /// Those that are wanted.
    wanted: Vec<Range<usize>>,
    /// The values of each column, as far as they are in memory.
    values: Vec<Option<ArrayRef>>,
}

impl Block {
    fn lacks_any(&self) -> bool {
        self.values.iter().any(Option::is_none)
    }
}

impl Batches {
    /// The wanted rows of the next block.
    fn next_block(&mut self) -> Result<Option<Vec<RecordBatch>>, SinkError> {
        loop {
            if let Some(group) = &mut self.group
                && let Some(block) = group.blocks.pop_front()
            {
                let number = group.number;
                return self.batches_of(number, block).map(Some);
            }
            let Some((number, rows)) = self.groups.pop_front() else { return Ok(None) };
            self.group = Some(self.begin(number, &rows)?);
        }
    }

    /// Leaves out what is left.
    fn end(&mut self) {
        self.groups.clear();
        self.group = None;
    }

    fn begin(&self, number: usize, wanted: &[Range<usize>]) -> Result<Group, SinkError> {
        let rows = self.metadata.metadata().row_group(number).num_rows();
        let rows = usize::try_from(rows).ok().filter(|rows| *rows <= GROUP_ROWS_MAX);
        let rows = rows.ok_or_else(|| self.remote.damaged("a row group has too many rows"))?;
        let mut blocks: VecDeque<Block> = VecDeque::new();
        for range in wanted {
            let range = range.start..range.end.min(rows);
            for block in range.start / BLOCK_ROWS..range.end.div_ceil(BLOCK_ROWS) {
                let of_block = block * BLOCK_ROWS..rows.min((block + 1) * BLOCK_ROWS);
                let both = range.start.max(of_block.start)..range.end.min(of_block.end);
                match blocks.back_mut() {
                    Some(last) if last.number == block => last.wanted.push(both),
                    Some(last) if last.number > block => {
                        return Err(self.remote.damaged("pages are not in order").into());
                    }
                    _ => {
                        let values = self.columns.iter().map(|column| self.remote.values(number, *column, block));
                        let values = values.collect();
                        blocks.push_back(Block { number: block, rows: of_block, wanted: vec![both], values });
                    }
                }
            }
        }
        let lacks = |at: &usize| blocks.iter().any(|block| block.values[*at].is_none());
        let missing: Vec<usize> = (0..self.columns.len()).filter(lacks).collect();
        let decoder = if missing.is_empty() { None } else { Some(self.decoder(number, rows, &missing, &blocks)?) };
        Ok(Group { number, blocks, missing, decoder })
    }

    fn decoder(
        &self,
        group: usize,
        rows: usize,
        missing: &[usize],
        blocks: &VecDeque<Block>,
    ) -> Result<ParquetPushDecoder, SinkError> {
        let metadata = self.metadata.clone();
        let columns = missing.iter().map(|at| self.columns[*at]);
        let mask = ProjectionMask::roots(metadata.parquet_schema(), columns);
        let selected = blocks.iter().filter(|block| block.lacks_any()).map(|block| block.rows.clone());
        let builder = ParquetPushDecoderBuilder::new_with_metadata(metadata).with_projection(mask);
        let builder = builder.with_row_groups(vec![group]).with_batch_size(BLOCK_ROWS);
        Ok(builder.with_row_selection(RowSelection::from_consecutive_ranges(selected, rows)).build()?)
    }

    fn batches_of(&mut self, group: usize, mut block: Block) -> Result<Vec<RecordBatch>, SinkError> {
        if block.lacks_any() {
            self.decode(group, &mut block)?;
        }
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), block.values.into_iter().flatten().collect())?;
        Ok(block.wanted.iter().map(|wanted| rows.slice(wanted.start - block.rows.start, wanted.len())).collect())
    }

    /// Adds to a block the columns that it lacks.
    fn decode(&mut self, number: usize, block: &mut Block) -> Result<(), SinkError> {
        let ended = |remote: &Remote| remote.damaged("a row group has fewer rows than its metadata says");
        let group = self.group.as_mut().ok_or_else(|| ended(&self.remote))?;
        let decoder = group.decoder.as_mut().ok_or_else(|| ended(&self.remote))?;
        let decoded = loop {
            match decoder.try_decode()? {
                DecodeResult::Data(batch) if batch.num_rows() == block.rows.len() => break batch,
                DecodeResult::Data(_) | DecodeResult::Finished => return Err(ended(&self.remote).into()),
                DecodeResult::NeedsData(ranges) => {
                    let parts = self.remote.ranges(&ranges)?;
                    decoder.push_ranges(ranges, parts)?;
                }
            }
        };
        for (at, values) in group.missing.iter().zip(decoded.columns()) {
            let known = &mut block.values[*at];
            if known.is_none() {
                *known = Some(Arc::clone(values));
                self.remote.keep_values(number, self.columns[*at], block.number, values);
            }
        }
        Ok(())
    }
}

/// A file in a store.
#[derive(Debug, Clone)]
struct Remote {
    id: Arc<str>,
    name: String,
    bytes: u64,
    store: Arc<dyn Store>,
    cache: Arc<FileCache>,
    fetched: Arc<ArchiveFetched>,
}

impl Remote {
    fn damaged(&self, what: &str) -> StoreError {
        StoreError::new(&format!("{} is damaged: {what}", self.name))
    }

    fn key(&self, of: Of) -> Key {
        Key { file: Arc::clone(&self.id), of }
    }

    /// Values of a column, if they are in memory.
    fn values(&self, group: usize, column: usize, block: usize) -> Option<ArrayRef> {
        match self.cache.0.get(&self.key(Of::Values { group, column, block })) {
            Some(Part::Values(values)) => {
                self.fetched.add_cached(values.get_array_memory_size() as u64);
                Some(values)
            }
            _ => None,
        }
    }

    fn keep_values(&self, group: usize, column: usize, block: usize, values: &ArrayRef) {
        self.cache.0.insert(self.key(Of::Values { group, column, block }), Part::Values(Arc::clone(values)));
    }

    /// The metadata. Threads that need it at the same time fetch it once.
    fn metadata(&self) -> Result<ArrowReaderMetadata, SinkError> {
        let key = self.key(Of::Metadata);
        let part = self.cache.0.get_or_insert_with(&key, || self.fetch_metadata().map(Part::Metadata))?;
        match part {
            Part::Metadata(metadata) => Ok(metadata),
            Part::Bytes(_) | Part::Values(_) => Err(self.damaged("it has no metadata").into()),
        }
    }

    fn fetch_metadata(&self) -> Result<ArrowReaderMetadata, SinkError> {
        let mut decoder = ParquetMetaDataPushDecoder::try_new(self.bytes)?;
        let end = self.bytes.saturating_sub(END_BYTES)..self.bytes;
        let mut wanted = vec![end];
        loop {
            let parts = self.fetch(&wanted)?;
            decoder.push_ranges(wanted, parts)?;
            wanted = match decoder.try_decode()? {
                DecodeResult::NeedsData(ranges) => ranges,
                DecodeResult::Data(metadata) => {
                    return Ok(arrow_metadata(metadata)?);
                }
                DecodeResult::Finished => return Err(self.damaged("it has no metadata").into()),
            };
        }
    }

    /// Reads bytes of the file: from `held` if it has all of their blocks, otherwise from the cache or the store.
    fn read_with(&self, held: &HashMap<u64, Bytes>, offset: u64, len: usize) -> io::Result<Bytes> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.bytes);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let numbers: Vec<u64> = blocks_of(&(offset..end)).collect();
        let skip = usize::try_from(offset % BLOCK_BYTES).unwrap_or(usize::MAX);
        let blocks: Option<Vec<Bytes>> = numbers.iter().map(|number| held.get(number).cloned()).collect();
        let blocks = match blocks {
            Some(blocks) => blocks,
            None => self.blocks(&numbers).map_err(unreachable)?,
        };
        let all = match blocks.as_slice() {
            [one] => one.clone(),
            several => Bytes::from(several.concat()),
        };
        match skip.checked_add(len).filter(|end| *end <= all.len()) {
            Some(end) => Ok(all.slice(skip..end)),
            None => Err(unreachable(self.damaged("a part of it was not returned"))),
        }
    }

    /// Blocks of the file, in order, from memory as far as they are there.
    fn blocks(&self, numbers: &[u64]) -> Result<Vec<Bytes>, StoreError> {
        let range = |number: u64| {
            let start = number.saturating_mul(BLOCK_BYTES);
            start..start.saturating_add(BLOCK_BYTES).min(self.bytes)
        };
        let cached = |number: &u64| match self.cache.0.get(&self.key(Of::Block(*number))) {
            Some(Part::Bytes(bytes)) => Some(bytes),
            _ => None,
        };
        let mut blocks: Vec<Option<Bytes>> = numbers.iter().map(cached).collect();
        self.fetched.add_cached(blocks.iter().flatten().map(|block| block.len() as u64).sum());
        let missing: Vec<u64> =
            numbers.iter().zip(&blocks).filter(|(_, block)| block.is_none()).map(|(number, _)| *number).collect();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for number in &missing {
            match runs.last_mut() {
                Some(last) if last.end == range(*number).start => last.end = range(*number).end,
                _ => runs.push(range(*number)),
            }
        }
        let fetched = self.fetch(&runs)?;
        let parts = fetched.iter().flat_map(|run| run.chunks(usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX)));
        // A block that is kept must not keep what was fetched with it.
        let mut parts = missing.iter().zip(parts.map(Bytes::copy_from_slice));
        for block in blocks.iter_mut().filter(|block| block.is_none()) {
            let Some((number, part)) = parts.next() else { break };
            self.cache.0.insert(self.key(Of::Block(*number)), Part::Bytes(part.clone()));
            *block = Some(part);
        }
        Ok(blocks.into_iter().flatten().collect())
    }

    /// Parts of the file, from memory as far as they are there.
    fn ranges(&self, wanted: &[Range<u64>]) -> Result<Vec<Bytes>, StoreError> {
        let key = |range: &Range<u64>| self.key(Of::Bytes(range.clone()));
        let mut parts: Vec<Option<Bytes>> = Vec::with_capacity(wanted.len());
        for range in wanted {
            let part = match self.cache.0.get(&key(range)) {
                Some(Part::Bytes(bytes)) => Some(bytes),
                _ => None,
            };
            self.fetched.add_cached(part.as_ref().map_or(0, |part| part.len() as u64));
            parts.push(part);
        }
        let missing: Vec<Range<u64>> =
            wanted.iter().zip(&parts).filter(|(_, part)| part.is_none()).map(|(range, _)| range.clone()).collect();
        let mut fetched = self.fetch(&missing)?.into_iter();
        for (range, part) in wanted.iter().zip(&mut parts) {
            if part.is_none() {
                *part = fetched.next();
                if let Some(bytes) = part {
                    self.cache.0.insert(key(range), Part::Bytes(bytes.clone()));
                }
            }
        }
        Ok(parts.into_iter().flatten().collect())
    }

    /// Fetches parts, those that are close to each other with one request.
    fn fetch(&self, wanted: &[Range<u64>]) -> Result<Vec<Bytes>, StoreError> {
        let requests = merged(wanted);
        let fetched = self.store.get_ranges(&self.name, &requests)?;
        for part in &fetched {
            self.fetched.add(part.len() as u64);
        }
        let part = |range: &Range<u64>| {
            let which = requests.partition_point(|request| request.end < range.end);
            let (request, bytes) = (requests.get(which)?, fetched.get(which)?);
            let begin = usize::try_from(range.start.checked_sub(request.start)?).ok()?;
            let length = usize::try_from(range.end - range.start).ok()?;
            let part = bytes.get(begin..begin + length)?;
            // A part that is kept must not keep what was fetched with it.
            Some(if length == bytes.len() { bytes.clone() } else { Bytes::copy_from_slice(part) })
        };
        let parts: Option<Vec<Bytes>> = wanted.iter().map(part).collect();
        parts.ok_or_else(|| StoreError::new(&format!("{} is shorter than it was", self.name)))
    }
}

/// The numbers of the blocks that have these bytes.
fn blocks_of(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}

fn unreachable(error: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::HostUnreachable, error.to_string())
}

/// A file for one read, with the blocks that it needs, whatever becomes of them in the cache.
#[derive(Debug)]
struct Prepared {
    remote: Remote,
    /// By number.
    blocks: HashMap<u64, Bytes>,
}

impl ReadAt for Prepared {
    fn len(&self) -> u64 {
        self.remote.len()
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.remote.read_with(&self.blocks, offset, len)
    }
}

impl ReadAt for Remote {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.read_with(&HashMap::new(), offset, len)
    }

    fn prepare(&self, ranges: &[Range<u64>]) -> io::Result<Option<Arc<dyn ReadAt>>> {
        let mut numbers: Vec<u64> = ranges.iter().flat_map(blocks_of).collect();
        numbers.dedup();
        let blocks = self.blocks(&numbers).map_err(unreachable)?;
        let blocks = numbers.into_iter().zip(blocks).collect();
        Ok(Some(Arc::new(Prepared { remote: self.clone(), blocks })))
    }

    fn is_remote(&self) -> bool {
        true
    }
}

/// Ranges that cover what is wanted, in order, with gaps of more than [`GAP_BYTES`] between them.
fn merged(wanted: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted = wanted.to_vec();
    sorted.sort_unstable_by_key(|range| (range.start, range.end));
    let mut all: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match all.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP_BYTES) => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_close_are_fetched_together() {
        let far = GAP_BYTES + 1;
        assert_eq!(merged(&[10..20, 0..5, 20 + far..30 + far, 12..14]), [0..20, 20 + far..30 + far]);
        assert_eq!(merged(&[]), []);
    }
}
