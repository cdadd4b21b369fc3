//! Delta packing in whole bytes: the encoding DELTA_BINARY_PACKED with widths that are multiples of eight bits and one base
//! for a page, so that the compressor after it sees equal differences as equal bytes. Packed as tightly as possible,
//! they would straddle bytes and not compress. Readers see the usual encoding.

use super::failed;
use crate::segment::decimals::valid_runs;
use crate::segment::{SegmentError, varint};
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::datatypes::{DataType, Decimal32Type, Decimal64Type, Int64Type};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::page::{CompressedPage, Page, PageWriteSpec, PageWriter};
use parquet::column::writer::{ColumnCloseResult, ColumnWriter, ColumnWriterImpl, get_column_writer};
use parquet::data_type::DataType as ParquetType;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::PageEncodingStats;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use std::sync::{Arc, Mutex, PoisonError};
use zstd::zstd_safe::CParameter;

/// The format has blocks of a multiple of this many differences: here a page is one block, so that the header of a block
/// interrupts the differences only once.
const BLOCK_MIN: usize = 128;
/// Differences per miniblock, each of which has its own width: the minimum that the format allows.
const PART: usize = 32;
const ZSTD_LEVEL: i32 = 1;
/// Noisy differences repeat by chance, and a reference to such a match takes more space than its bytes. With a small window
/// and long matches only, runs are still found.
const ZSTD_PARAMETERS: [CParameter; 2] = [CParameter::MinMatch(7), CParameter::HashLog(6)];

/// Whether columns of this type can be written so.
pub(super) fn can_write(ty: &DataType) -> bool {
    matches!(ty, DataType::Int64 | DataType::Decimal32(..) | DataType::Decimal64(..))
}

/// A column chunk ready to be appended to a row group.
pub(super) struct ByteAlignedChunk {
    pub(super) bytes: Bytes,
    pub(super) closed: ColumnCloseResult,
}

/// Writes the slices of a column chunk. `properties` are those of the file for these columns: plain and
/// uncompressed, the form in which pages arrive here.
pub(super) fn write(
    descriptor: &ColumnDescPtr,
    properties: &WriterPropertiesPtr,
    compression: Compression,
    slices: impl Iterator<Item = Result<ArrayRef, SegmentError>>,
    mut seen: impl FnMut(&ArrayRef),
) -> Result<ByteAlignedChunk, SegmentError> {
    let file = Arc::new(Mutex::new(Vec::new()));
    let mut compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(failed)?;
    ZSTD_PARAMETERS.iter().try_for_each(|p| compressor.set_parameter(*p)).map_err(failed)?;
    let nullable = descriptor.max_def_level() > 0;
    let bits = if descriptor.physical_type() == Type::INT32 { 32 } else { 64 };
    let pages = Repack { sink: file.clone(), at: 0, compressor, nullable, bits };
    let mut writer = get_column_writer(descriptor.clone(), properties.clone(), Box::new(pages));
    for slice in slices {
        let slice = slice?;
        seen(&slice);
        append(&mut writer, &slice, nullable)?;
    }
    let mut closed = writer.close().map_err(failed)?;
    let stats = closed.metadata.page_encoding_stats().cloned().unwrap_or_default();
    let stats = stats.into_iter().map(|s| PageEncodingStats { encoding: Encoding::DELTA_BINARY_PACKED, ..s }).collect();
    closed.metadata = closed
        .metadata
        .into_builder()
        .set_compression(compression)
        .set_encodings(vec![Encoding::RLE, Encoding::DELTA_BINARY_PACKED])
        .set_page_encoding_stats(stats)
        .build()
        .map_err(failed)?;
    let bytes = std::mem::take(&mut *file.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(ByteAlignedChunk { bytes: bytes.into(), closed })
}

fn append(writer: &mut ColumnWriter<'_>, slice: &ArrayRef, nullable: bool) -> Result<(), SegmentError> {
    match (writer, slice.data_type()) {
        (ColumnWriter::Int32ColumnWriter(writer), DataType::Decimal32(..)) => {
            append_to(writer, slice.as_primitive::<Decimal32Type>(), nullable)
        }
        (ColumnWriter::Int64ColumnWriter(writer), DataType::Decimal64(..)) => {
            append_to(writer, slice.as_primitive::<Decimal64Type>(), nullable)
        }
        (ColumnWriter::Int64ColumnWriter(writer), DataType::Int64) => {
            append_to(writer, slice.as_primitive::<Int64Type>(), nullable)
        }
        (_, other) => Err(failed(format!("{other} is not delta-packed"))),
    }
}

fn append_to<T: ArrowPrimitiveType, P: ParquetType<T = T::Native>>(
    writer: &mut ColumnWriterImpl<'_, P>,
    slice: &PrimitiveArray<T>,
    nullable: bool,
) -> Result<(), SegmentError> {
    if !nullable {
        return writer.write_batch(slice.values(), None, None).map(drop).map_err(failed);
    }
    let mut levels = vec![0; slice.len()];
    let mut values = Vec::with_capacity(slice.len());
    for (from, to) in valid_runs(slice) {
        levels[from..to].fill(1);
        values.extend_from_slice(&slice.values()[from..to]);
    }
    writer.write_batch(&values, Some(&levels), None).map(drop).map_err(failed)
}

/// Receives plain pages and writes them delta-packed and compressed.
struct Repack {
    sink: Arc<Mutex<Vec<u8>>>,
    at: u64,
    compressor: zstd::bulk::Compressor<'static>,
    nullable: bool,
    /// Bits of a value.
    bits: u32,
}

impl PageWriter for Repack {
    fn write_page(&mut self, page: CompressedPage) -> ParquetResult<PageWriteSpec> {
        let Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, statistics } =
            page.compressed_page()
        else {
            return Err(ParquetError::General("only plain data pages are repacked".to_owned()));
        };
        if *encoding != Encoding::PLAIN {
            return Err(ParquetError::General(format!("a page in {encoding} cannot be repacked")));
        }
        let levels = match (self.nullable, buf.first_chunk::<4>()) {
            (true, Some(len)) => 4 + u32::from_le_bytes(*len) as usize,
            _ => 0,
        };
        let (levels, plain) = buf
            .split_at_checked(levels)
            .ok_or_else(|| ParquetError::General("a page is shorter than its levels".to_owned()))?;
        let mut raw = levels.to_vec();
        let values = match self.bits {
            32 => numbers(plain, |b| i64::from(i32::from_le_bytes(b))),
            _ => numbers(plain, i64::from_le_bytes),
        };
        pack(&values, self.bits, &mut raw);
        let packed = self.compressor.compress(&raw).map_err(|e| ParquetError::General(e.to_string()))?;
        let page = Page::DataPage {
            buf: packed.into(),
            num_values: *num_values,
            encoding: Encoding::DELTA_BINARY_PACKED,
            def_level_encoding: *def_level_encoding,
            rep_level_encoding: *rep_level_encoding,
            statistics: statistics.clone(),
        };
        let mut sink = TrackedWrite::new(Vec::new());
        let mut spec = SerializedPageWriter::new(&mut sink).write_page(CompressedPage::new(page, raw.len()))?;
        spec.offset += self.at;
        let bytes = sink.into_inner()?;
        self.at += bytes.len() as u64;
        self.sink.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
        Ok(spec)
    }

    fn close(&mut self) -> ParquetResult<()> {
        Ok(())
    }
}

fn numbers<const N: usize>(plain: &[u8], number: impl Fn([u8; N]) -> i64) -> Vec<i64> {
    plain.as_chunks::<N>().0.iter().map(|bytes| number(*bytes)).collect()
}

/// Appends delta-packed values of the given width.
#[expect(clippy::cast_possible_truncation, reason = "differences wrap in the bits of a value; parts have 32 values")]
fn pack(values: &[i64], bits: u32, out: &mut Vec<u8>) {
    let block = values.len().saturating_sub(1).max(1).next_multiple_of(BLOCK_MIN);
    varint::put_u64(out, block as u64);
    varint::put_u64(out, (block / PART) as u64);
    varint::put_u64(out, values.len() as u64);
    varint::put_i64(out, values.first().copied().unwrap_or(0));
    if values.len() < 2 {
        return;
    }
    let wrapped = |d: i64| if bits == 32 { i64::from(d as i32) } else { d };
    let differences: Vec<i64> = values.windows(2).map(|pair| wrapped(pair[1].wrapping_sub(pair[0]))).collect();
    let base = base_of(&differences, bits);
    let mask = u64::MAX >> (64 - bits);
    // Places after the last difference are padding of the width of their part.
    let mut above = vec![0; block];
    above.iter_mut().zip(&differences).for_each(|(a, d)| *a = d.wrapping_sub(base).cast_unsigned() & mask);
    let parts = above.as_chunks::<PART>().0;
    let width = |part: &[u64; PART]| (64 - part.iter().fold(0, |all, a| all | a).leading_zeros()).div_ceil(8) as u8;
    let widths: Vec<u8> = parts.iter().map(width).collect();
    varint::put_i64(out, base);
    out.extend(widths.iter().map(|bytes| bytes * 8));
    for (part, width) in parts.iter().zip(widths).take(differences.len().div_ceil(PART)) {
        match width {
            0 => {}
            1 => out.extend(part.map(|a| a as u8)),
            2 => out.extend(part.map(|a| (a as u16).to_le_bytes()).as_flattened()),
            width => part.iter().for_each(|a| out.extend(&a.to_le_bytes()[..usize::from(width)])),
        }
    }
}

/// The base that is subtracted from all differences of a page, such that nearly all of them fit into few bytes. The others
/// wrap around and take the full width.
fn base_of(differences: &[i64], bits: u32) -> i64 {
    let base_of = |bytes: u32| -(1_i64 << (bytes * 8 - 1).min(62));
    let outside = |bytes: &u32| {
        let base = base_of(*bytes);
        differences.iter().filter(|d| **d < base || **d >= -base).count()
    };
    let bytes = (1..bits / 8).find(|bytes| outside(bytes) * 16 <= differences.len());
    bytes.map_or_else(|| differences.iter().copied().min().unwrap_or(0), base_of)
}

#[cfg(test)]
mod tests;
