//! The form in which the cache stores decoded blocks of a column. Whole numbers, decimals and times are stored as differences from the
//! block's minimum (frame of reference), in one, two or four bytes if all differences fit; otherwise as they were decoded.

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, NullBufferBuilder, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowNativeType, DataType, Decimal32Type, Decimal64Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow::error::ArrowError;
use std::ops::Range;
use std::sync::Arc;

/// The nulls of pieces with fewer rows are appended one by one.
const SHORT: usize = 16;

/// A block of a column.
#[derive(Debug, Clone)]
pub(super) enum Block {
    /// As it was decoded.
    Plain(ArrayRef),
    Narrow(Arc<Narrow>),
}

/// Whole numbers as differences from the least one.
#[derive(Debug)]
pub(super) struct Narrow {
    data_type: DataType,
    least: i64,
    differences: Differences,
    nulls: Option<NullBuffer>,
}

#[derive(Debug)]
enum Differences {
    One(Box<[u8]>),
    Two(Box<[u16]>),
    Four(Box<[u32]>),
}

/// A number of a column as it is decoded.
trait Number: ArrowNativeType {
    fn get(self) -> i64;

    /// A number that this type holds.
    fn of(value: i64) -> Self;
}

impl Number for i64 {
    fn get(self) -> i64 {
        self
    }

    fn of(value: i64) -> Self {
        value
    }
}

impl Number for i32 {
    fn get(self) -> i64 {
        self.into()
    }

    #[expect(clippy::cast_possible_truncation, reason = "it was of this type before")]
    fn of(value: i64) -> Self {
        value as i32
    }
}

/// The bytes of a whole number of this type as it is decoded; `None` for other types.
fn whole_width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Int64 | DataType::Timestamp(..) | DataType::Decimal64(..) => Some(size_of::<i64>()),
        DataType::Int32 | DataType::Decimal32(..) => Some(size_of::<i32>()),
        _ => None,
    }
}

/// The bytes that the cache needs for a value of this type. `range` gives the minimum and maximum of the column, if they are known.
/// Returns `None` for types without a fixed width.
pub(super) fn cached_width(data_type: &DataType, range: impl FnOnce() -> Option<(i64, i64)>) -> Option<usize> {
    let width = data_type.primitive_width()?;
    let narrow = whole_width(data_type).and_then(|whole| Some(width_of(range()?, whole)));
    Some(narrow.unwrap_or(width))
}

/// The bytes that a difference within a range needs, at most `width`.
fn width_of((least, greatest): (i64, i64), width: usize) -> usize {
    let needed = match greatest.abs_diff(least) {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    };
    needed.min(width)
}

impl Block {
    /// A decoded block in the form in which it takes least memory.
    pub(super) fn of(decoded: &ArrayRef) -> Block {
        let narrow = match whole_width(decoded.data_type()) {
            Some(8) => Narrow::of::<i64>(decoded),
            Some(_) => Narrow::of::<i32>(decoded),
            None => None,
        };
        narrow.map_or_else(|| Block::Plain(decoded.clone()), |narrow| Block::Narrow(Arc::new(narrow)))
    }

    /// The block, if it is as it was decoded.
    pub(super) fn plain(self) -> Option<ArrayRef> {
        match self {
            Block::Plain(array) => Some(array),
            Block::Narrow(_) => None,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Block::Plain(array) => array.len(),
            Block::Narrow(narrow) => narrow.differences.len(),
        }
    }

    /// What it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Block::Plain(array) => array.get_array_memory_size(),
            Block::Narrow(narrow) => {
                let nulls = narrow.nulls.as_ref().map_or(0, |nulls| nulls.buffer().capacity());
                size_of::<Narrow>() + narrow.differences.bytes() + nulls
            }
        }
    }

    fn data_type(&self) -> &DataType {
        match self {
            Block::Plain(array) => array.data_type(),
            Block::Narrow(narrow) => &narrow.data_type,
        }
    }

    fn nulls(&self) -> Option<&NullBuffer> {
        match self {
            Block::Plain(array) => array.nulls(),
            Block::Narrow(narrow) => narrow.nulls.as_ref(),
        }
    }
}

impl Narrow {
    /// `None` if it would take as much memory.
    fn of<T: Number>(decoded: &ArrayRef) -> Option<Narrow> {
        let values = values::<T>(decoded)?;
        let nulls = decoded.nulls().filter(|nulls| nulls.null_count() > 0);
        let bounds = |(least, greatest): (i64, i64), value: i64| (least.min(value), greatest.max(value));
        const NONE: (i64, i64) = (i64::MAX, i64::MIN);
        let known = match nulls {
            None => values.iter().map(|value| value.get()).fold(NONE, bounds),
            Some(nulls) => nulls.valid_indices().map(|row| values[row].get()).fold(NONE, bounds),
        };
        let range = if known == NONE { (0, 0) } else { known };
        let (least, width) = (range.0, width_of(range, size_of::<T>()));
        let difference = |value: &T| value.get().wrapping_sub(least).cast_unsigned();
        // Differences of nulls mean nothing.
        #[expect(clippy::cast_possible_truncation, reason = "the range was examined")]
        let differences = match width {
            width if width == size_of::<T>() => return None,
            1 => Differences::One(values.iter().map(|value| difference(value) as u8).collect()),
            2 => Differences::Two(values.iter().map(|value| difference(value) as u16).collect()),
            _ => Differences::Four(values.iter().map(|value| difference(value) as u32).collect()),
        };
        Some(Narrow { data_type: decoded.data_type().clone(), least, differences, nulls: nulls.cloned() })
    }

    /// Appends the numbers of some rows.
    fn append<T: Number>(&self, rows: Range<usize>, into: &mut Vec<T>) {
        let number = |difference: i64| T::of(self.least.wrapping_add(difference));
        match &self.differences {
            Differences::One(all) => into.extend(all[rows].iter().map(|d| number((*d).into()))),
            Differences::Two(all) => into.extend(all[rows].iter().map(|d| number((*d).into()))),
            Differences::Four(all) => into.extend(all[rows].iter().map(|d| number((*d).into()))),
        }
    }
}

impl Differences {
    fn len(&self) -> usize {
        match self {
            Differences::One(all) => all.len(),
            Differences::Two(all) => all.len(),
            Differences::Four(all) => all.len(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Differences::One(all) => size_of_val(&**all),
            Differences::Two(all) => size_of_val(&**all),
            Differences::Four(all) => size_of_val(&**all),
        }
    }
}

/// The values of a column of whole numbers.
fn values<T: Number>(array: &ArrayRef) -> Option<arrow::buffer::ScalarBuffer<T>> {
    let data = array.to_data();
    let [buffer] = data.buffers() else { return None };
    Some(arrow::buffer::ScalarBuffer::new(buffer.clone(), data.offset(), data.len()))
}

/// Rows of whole numbers, some of whose blocks are narrow: pieces, each of a block and within it.
pub(super) fn join_narrow(blocks: &[Block], pieces: &[(usize, Range<usize>)]) -> Result<ArrayRef, ArrowError> {
    let Some(ty) = pieces.first().and_then(|(block, _)| blocks.get(*block)).map(Block::data_type) else {
        return Err(not_read());
    };
    match ty {
        DataType::Int64 => joined::<Int64Type>(ty, blocks, pieces),
        DataType::Timestamp(TimeUnit::Second, _) => joined::<TimestampSecondType>(ty, blocks, pieces),
        DataType::Timestamp(TimeUnit::Millisecond, _) => joined::<TimestampMillisecondType>(ty, blocks, pieces),
        DataType::Timestamp(TimeUnit::Microsecond, _) => joined::<TimestampMicrosecondType>(ty, blocks, pieces),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => joined::<TimestampNanosecondType>(ty, blocks, pieces),
        DataType::Decimal64(..) => joined::<Decimal64Type>(ty, blocks, pieces),
        DataType::Int32 => joined::<Int32Type>(ty, blocks, pieces),
        DataType::Decimal32(..) => joined::<Decimal32Type>(ty, blocks, pieces),
        _ => Err(not_whole()),
    }
}

fn joined<T>(ty: &DataType, blocks: &[Block], pieces: &[(usize, Range<usize>)]) -> Result<ArrayRef, ArrowError>
where
    T: ArrowPrimitiveType<Native: Number>,
{
    let rows = pieces.iter().map(|(_, piece)| piece.len()).sum();
    let mut numbers: Vec<T::Native> = Vec::with_capacity(rows);
    let mut nulls = NullBufferBuilder::new(rows);
    for (block, piece) in pieces {
        let block = blocks.get(*block).filter(|block| piece.end <= block.len()).ok_or_else(not_read)?;
        match block {
            Block::Narrow(narrow) => narrow.append(piece.clone(), &mut numbers),
            Block::Plain(array) => {
                let array = array.as_primitive_opt::<T>().ok_or_else(not_whole)?;
                numbers.extend_from_slice(&array.values()[piece.clone()]);
            }
        }
        match block.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => nulls.append_n_non_nulls(piece.len()),
            Some(of_block) if piece.len() < SHORT => {
                piece.clone().for_each(|row| nulls.append(of_block.is_valid(row)));
            }
            Some(of_block) => nulls.append_buffer(&of_block.slice(piece.start, piece.len())),
        }
    }
    let array = PrimitiveArray::<T>::try_new(numbers.into(), nulls.finish())?;
    Ok(Arc::new(array.with_data_type(ty.clone())))
}

fn not_read() -> ArrowError {
    ArrowError::ParquetError("a block was not read".to_owned())
}

fn not_whole() -> ArrowError {
    ArrowError::ParquetError("a block is not of whole numbers".to_owned())
}

#[cfg(test)]
mod tests;
