//! Reading a file of a table in the parts that are needed, of which some may be in memory.

use crate::bounds::rows_to_read;
use crate::store::{Store, StoreError};
use arrow::array::RecordBatch;
use bytes::Bytes;
use ebbtide::{ArchiveFetched, ArchiveRead, ArchivedBatches, ArchivedFile, SinkError};
use parquet::DecodeResult;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::push_decoder::{ParquetPushDecoder, ParquetPushDecoderBuilder};
use parquet::file::metadata::ParquetMetaDataPushDecoder;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// What is fetched of the end of a file at first: its metadata, in most cases all of it.
const END_BYTES: u64 = 1 << 15;
/// Parts that are no farther apart than this are fetched with one request.
const GAP_BYTES: u64 = 1 << 14;
/// How many parts the cache is laid out for.
const PARTS: usize = 1 << 12;

/// Parts of files that were fetched, up to a number of bytes. Files never change.
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

/// The file, by the URL of its table and its name, and the range; none for its metadata.
type Key = (Arc<str>, Option<Range<u64>>);

#[derive(Clone)]
enum Part {
    Bytes(Bytes),
    Metadata(ArrowReaderMetadata),
}

#[derive(Clone)]
struct Bytewise;

impl Weighter<Key, Part> for Bytewise {
    fn weight(&self, key: &Key, part: &Part) -> u64 {
        let bytes = match part {
            Part::Bytes(bytes) => bytes.len(),
            Part::Metadata(metadata) => metadata.metadata().memory_size(),
        };
        (bytes + key.0.len() + size_of::<Key>() + size_of::<Part>()) as u64
    }
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
    let (groups, rows) = rows_to_read(metadata.metadata(), read)?;
    let wanted = read.schema.arrow();
    let fields = metadata.schema().fields().iter().enumerate();
    let roots: Vec<usize> =
        fields.filter(|(_, field)| wanted.index_of(field.name()).is_ok()).map(|(index, _)| index).collect();
    let mask = ProjectionMask::roots(metadata.parquet_schema(), roots);
    let builder = ParquetPushDecoderBuilder::new_with_metadata(metadata).with_projection(mask);
    let decoder = builder.with_row_groups(groups).with_row_selection(rows).build()?;
    Ok(Box::new(Batches { decoder, remote }))
}

/// The batches of a file.
struct Batches {
    decoder: ParquetPushDecoder,
    remote: Remote,
}

impl Batches {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SinkError> {
        loop {
            match self.decoder.try_decode()? {
                DecodeResult::Data(batch) => return Ok(Some(batch)),
                DecodeResult::Finished => return Ok(None),
                DecodeResult::NeedsData(ranges) => {
                    let parts = self.remote.ranges(&ranges)?;
                    self.decoder.push_ranges(ranges, parts)?;
                }
            }
        }
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, SinkError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

/// A file in a store.
struct Remote {
    id: Arc<str>,
    name: String,
    bytes: u64,
    store: Arc<dyn Store>,
    cache: Arc<FileCache>,
    fetched: Arc<ArchiveFetched>,
}

impl Remote {
    /// The metadata. Threads that need it at the same time fetch it once.
    fn metadata(&self) -> Result<ArrowReaderMetadata, SinkError> {
        let key = (Arc::clone(&self.id), None);
        let part = self.cache.0.get_or_insert_with(&key, || self.fetch_metadata().map(Part::Metadata))?;
        match part {
            Part::Metadata(metadata) => Ok(metadata),
            Part::Bytes(_) => Err(StoreError::new("the end of the file cannot be read").into()),
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
                    return Ok(ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())?);
                }
                DecodeResult::Finished => return Err(StoreError::new("the end of the file cannot be read").into()),
            };
        }
    }

    /// Parts of the file, from memory as far as they are there.
    fn ranges(&self, wanted: &[Range<u64>]) -> Result<Vec<Bytes>, StoreError> {
        let key = |range: &Range<u64>| (Arc::clone(&self.id), Some(range.clone()));
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
