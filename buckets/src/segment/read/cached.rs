//! Rows of an open segment through the cache of decoded columns, a portion of some blocks at a time.

use super::{ArrowError, COLUMNS_AT_ONCE, Column, SegmentReader, columns_of, failure, read_next};
use crate::counts::{to_number, to_usize};
use crate::meta::column_of_keys;
use crate::segment::SegmentError;
use crate::segment::block::{Block, join_narrow};
use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{concat, take};
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Rows per block: those of a page, which is the smallest unit of decoding.
const BLOCK_ROWS: u64 = 8192;
/// A block of texts with more bytes is not cached: each one counts with the whole dictionary that it refers to.
const BLOCK_BYTES_MAX: usize = 2 * size_of::<u128>() * to_usize(BLOCK_ROWS);
/// Maximum number of blocks per portion, which is what is held of each column at a time.
const PORTION_BLOCKS: u64 = 16;
/// Rows of pieces shorter than this on average are picked one by one, rather than cut out as slices.
const SLICE_ROWS_MIN: usize = 16;
/// The column of metas is read from the file, rather than built from the directory, if there are fewer rows per meta than this and
/// more than [`METAS_MADE_MAX`] metas.
const ROWS_A_META_MIN: u64 = 16;
/// Up to this many metas are always built from the directory: reading them decodes whole pages and their dictionaries.
const METAS_MADE_MAX: usize = 2048;

/// The columns of the selected rows as they are stored (metas in their canonical form), a batch of rows at a time.
pub(super) struct CachedBatches {
    reader: SegmentReader,
    present: Arc<[Column]>,
    ranges: VecDeque<Range<u64>>,
    batch_rows: usize,
    failed: Arc<OnceLock<SegmentError>>,
    current: Option<Portion>,
}

/// Some of the rows, with what is needed of their columns.
struct Portion {
    /// Rows that are left, each piece by its block among those of the portion and its place there.
    pieces: VecDeque<(usize, Range<usize>)>,
    /// Rows that were returned.
    returned: usize,
    columns: Vec<Source>,
    paged: Option<ParquetRecordBatchReader>,
}

/// The source of a column.
enum Source {
    Blocks(Vec<Block>),
    /// Metas from the directory, and for each row which one it has.
    Metas(ArrayRef, UInt32Array),
    /// Its pages, decoded together with all other such columns.
    Pages,
}

impl CachedBatches {
    pub(super) fn new(
        reader: SegmentReader,
        present: Arc<[Column]>,
        ranges: &[Range<u64>],
        batch_rows: usize,
        failed: Arc<OnceLock<SegmentError>>,
    ) -> Self {
        let ranges = ranges.iter().filter(|range| !range.is_empty()).cloned().collect();
        CachedBatches { reader, present, ranges, batch_rows: batch_rows.max(1), failed, current: None }
    }

    /// Removes and returns the ranges of the next portion.
    fn next_ranges(&mut self) -> Vec<Range<u64>> {
        let mut taken = Vec::new();
        let (mut blocks, mut next_block) = (0, 0);
        while let Some(range) = self.ranges.front_mut() {
            next_block = next_block.max(range.start / BLOCK_ROWS);
            let end = range.end.min((next_block + PORTION_BLOCKS - blocks) * BLOCK_ROWS);
            if end <= range.start {
                break;
            }
            taken.push(range.start..end);
            let end_block = end.div_ceil(BLOCK_ROWS);
            blocks += end_block - next_block;
            next_block = end_block;
            range.start = end;
            if range.start == range.end {
                self.ranges.pop_front();
            }
        }
        taken
    }

    fn next_portion(&mut self) -> Result<Portion, SegmentError> {
        let ranges = self.next_ranges();
        let (blocks, pieces) = cut(&ranges);
        let metas = self.metas(&ranges);
        let mut of_blocks = self.blocks(&blocks)?.into_iter();
        let mut paged = Vec::new();
        let mut columns = Vec::with_capacity(self.present.len());
        for column in self.present.iter() {
            columns.push(match (self.is_cached(column), &metas) {
                (true, _) => Source::Blocks(of_blocks.next().unwrap_or_default()),
                (false, Some((keys, rows))) if self.is_meta(column) => Source::Metas(keys.clone(), rows.clone()),
                (false, _) => {
                    paged.push(column.clone());
                    Source::Pages
                }
            });
        }
        let paged = match paged.is_empty() {
            true => None,
            false => Some(self.reader.reader(&paged, &ranges, self.batch_rows, &self.failed)?),
        };
        Ok(Portion { pieces, returned: 0, columns, paged })
    }

    fn is_meta(&self, column: &Column) -> bool {
        self.reader.schema().meta.as_ref() == Some(&column.name)
    }

    /// Whether a column is cached in blocks.
    fn is_cached(&self, column: &Column) -> bool {
        self.reader.cached_width(column.at).is_some()
    }

    /// The metas of rows, and for each row which one it has; `None` if there are so many that reading them is faster.
    fn metas(&self, ranges: &[Range<u64>]) -> Option<(ArrayRef, UInt32Array)> {
        let column = self.present.iter().find(|column| self.is_meta(column) && !self.is_cached(column))?;
        let directory = self.reader.directory();
        let rows_max: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let mut metas: Vec<usize> = Vec::new();
        let mut rows = Vec::with_capacity(usize::try_from(rows_max).ok()?);
        for range in ranges {
            let mut at = range.start;
            let mut bucket = directory.bucket_of_row(at);
            while at < range.end {
                let meta = directory.meta_ordinal(bucket);
                if metas.last() != Some(&meta) {
                    metas.push(meta);
                }
                let end = directory.rows(bucket).end.min(range.end);
                rows.resize(rows.len() + usize::try_from(end - at).ok()?, u32::try_from(metas.len() - 1).ok()?);
                (at, bucket) = (end, bucket + 1);
            }
            if metas.len() > METAS_MADE_MAX && metas.len() as u64 * ROWS_A_META_MIN > rows_max {
                return None;
            }
        }
        let keys: Vec<_> = metas.into_iter().map(|meta| directory.meta(meta)).collect();
        Some((column_of_keys(&keys, &column.ty, self.reader.schema().precision), rows.into()))
    }

    /// The given blocks of each column that is cached, from the cache or newly decoded.
    fn blocks(&self, blocks: &[u64]) -> Result<Vec<Vec<Block>>, SegmentError> {
        let Some((cache, segment)) = &self.reader.1 else { return Ok(Vec::new()) };
        let cached: Vec<&Column> = self.present.iter().filter(|column| self.is_cached(column)).collect();
        let keys = cached.iter().flat_map(|column| blocks.iter().map(|block| (*segment, column.at, *block)));
        let mut found = cache.get(keys);
        let lacks_column =
            |column: usize| found.iter().skip(column * blocks.len()).take(blocks.len()).any(Option::is_none);
        let columns: Vec<usize> = (0..cached.len()).filter(|column| lacks_column(*column)).collect();
        let lacks_block = |block: usize| found.iter().skip(block).step_by(blocks.len()).any(Option::is_none);
        let missing: Vec<usize> = (0..blocks.len()).filter(|block| lacks_block(*block)).collect();
        let ranges: Vec<Range<u64>> = missing.iter().map(|at| self.rows_of(blocks[*at])).collect();
        for columns in columns.chunks(COLUMNS_AT_ONCE) {
            let wanted: Vec<Column> = columns.iter().map(|column| cached[*column].clone()).collect();
            let mut pages = self.reader.reader(&wanted, &ranges, to_usize(BLOCK_ROWS), &self.failed)?;
            for (block, range) in missing.iter().zip(&ranges) {
                let batch = self.next_of(&mut pages, range.end - range.start)?;
                let decoded = columns_of(&batch, &wanted).map_err(|e| self.failure(&e))?;
                for (column, decoded) in columns.iter().zip(decoded) {
                    let kept = Block::of(&decoded);
                    if kept.bytes() <= BLOCK_BYTES_MAX {
                        cache.put((*segment, cached[*column].at, blocks[*block]), kept);
                    }
                    found[column * blocks.len() + block] = Some(Block::Plain(decoded));
                }
            }
        }
        let mut found = found.into_iter().flatten();
        Ok((0..cached.len()).map(|_| found.by_ref().take(blocks.len()).collect()).collect())
    }

    fn rows_of(&self, block: u64) -> Range<u64> {
        block * BLOCK_ROWS..((block + 1) * BLOCK_ROWS).min(self.reader.directory().row_count())
    }

    /// The next batch, which must have this number of rows.
    fn next_of(&self, pages: &mut ParquetRecordBatchReader, rows: u64) -> Result<RecordBatch, SegmentError> {
        let batch = read_next(pages).transpose().map_err(|e| self.failure(&e))?;
        let missing = || ArrowError::ParquetError(format!("a block of {rows} rows is not whole"));
        batch.filter(|batch| batch.num_rows() as u64 == rows).ok_or_else(|| self.failure(&missing()))
    }

    fn failure(&self, error: &ArrowError) -> SegmentError {
        failure(&self.failed, self.reader.name(), error)
    }

    fn batch(&mut self) -> Result<Vec<ArrayRef>, SegmentError> {
        let mut portion = match self.current.take() {
            Some(portion) => portion,
            None => self.next_portion()?,
        };
        let pieces = portion.next_pieces(self.batch_rows);
        let rows: usize = pieces.iter().map(|(_, piece)| piece.len()).sum();
        let paged = match &mut portion.paged {
            Some(pages) => Some(self.next_of(pages, rows as u64)?),
            None => None,
        };
        let mut columns = Vec::with_capacity(self.present.len());
        for (Column { name, .. }, source) in self.present.iter().zip(&portion.columns) {
            let array = match (source, &paged) {
                (Source::Blocks(blocks), _) => join(blocks, &pieces),
                (Source::Metas(keys, of_rows), _) => take(keys, &of_rows.slice(portion.returned, rows), None),
                (Source::Pages, Some(batch)) => named(batch, name),
                (Source::Pages, None) => Err(ArrowError::SchemaError(format!("column '{name}' was not read"))),
            };
            columns.push(array.map_err(|e| self.failure(&e))?);
        }
        portion.returned += rows;
        self.current = Some(portion).filter(|portion| !portion.pieces.is_empty());
        Ok(columns)
    }
}

impl Iterator for CachedBatches {
    type Item = Result<Vec<ArrayRef>, SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.current.is_none() && self.ranges.is_empty() {
            return None;
        }
        let batch = self.batch();
        if batch.is_err() {
            self.ranges.clear();
        }
        Some(batch)
    }
}

impl Portion {
    /// Removes the first rows.
    fn next_pieces(&mut self, mut rows: usize) -> Vec<(usize, Range<usize>)> {
        let mut taken = Vec::new();
        while let Some((block, piece)) = self.pieces.front_mut().filter(|_| rows > 0) {
            let end = piece.end.min(piece.start + rows);
            taken.push((*block, piece.start..end));
            rows -= end - piece.start;
            piece.start = end;
            if piece.start == piece.end {
                self.pieces.pop_front();
            }
        }
        taken
    }
}

/// The blocks that ranges touch, and the ranges cut by them.
fn cut(ranges: &[Range<u64>]) -> (Vec<u64>, VecDeque<(usize, Range<usize>)>) {
    let mut blocks: Vec<u64> = Vec::new();
    let mut pieces = VecDeque::with_capacity(ranges.len());
    for range in ranges {
        for block in range.start / BLOCK_ROWS..range.end.div_ceil(BLOCK_ROWS) {
            if blocks.last() != Some(&block) {
                blocks.push(block);
            }
            let start = block * BLOCK_ROWS;
            let place = |row: u64| to_usize(row.clamp(start, start + BLOCK_ROWS) - start);
            pieces.push_back((blocks.len() - 1, place(range.start)..place(range.end)));
        }
    }
    (blocks, pieces)
}

fn join(blocks: &[Block], pieces: &[(usize, Range<usize>)]) -> Result<ArrayRef, ArrowError> {
    if blocks.iter().any(|block| matches!(block, Block::Narrow(_))) {
        return join_narrow(blocks, pieces);
    }
    let plain = |block: usize, end: usize| match blocks.get(block) {
        Some(Block::Plain(array)) if end <= array.len() => Ok(array),
        _ => Err(ArrowError::ParquetError("a block was not read".to_owned())),
    };
    let rows: usize = pieces.iter().map(|(_, piece)| piece.len()).sum();
    let mut parts = Vec::new();
    if rows < pieces.len() * SLICE_ROWS_MIN {
        for pieces in pieces.chunk_by(|(a, _), (b, _)| a == b) {
            let Some((block, last)) = pieces.last() else { continue };
            let rows: UInt32Array = pieces.iter().flat_map(|(_, piece)| piece.clone().map(to_number)).collect();
            parts.push(take(plain(*block, last.end)?, &rows, None)?);
        }
    } else {
        for (block, piece) in pieces {
            parts.push(plain(*block, piece.end)?.slice(piece.start, piece.len()));
        }
    }
    match parts.as_slice() {
        [one] => Ok(one.clone()),
        several => concat(&several.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>()),
    }
}

pub(super) fn named(batch: &RecordBatch, name: &str) -> Result<ArrayRef, ArrowError> {
    let lacking = || ArrowError::SchemaError(format!("column '{name}' was not read"));
    batch.column_by_name(name).cloned().ok_or_else(lacking)
}
