//! Blocks of integers: a base, and the offsets from it in as many bytes as the largest needs.

use crate::segment::varint::{self, Cursor};

/// Differences from the minimum, or from the previous number.
const FROM_LEAST: u8 = 0;
const FROM_BEFORE: u8 = 1;

/// Appends numbers. Equal ones take one byte in total, unless `dense` asks for at least one byte each, so that a
/// reader can detect a forged count.
pub(super) fn put<T: Copy + Ord + Into<i64>>(out: &mut Vec<u8>, values: &[T], dense: bool) {
    let least: i64 = values.iter().copied().min().map_or(0, Into::into);
    let greatest: i64 = values.iter().copied().max().map_or(0, Into::into);
    let plain = width(greatest.wrapping_sub(least).cast_unsigned(), dense);
    let steps = || values.windows(2).map(|pair| pair[1].into().wrapping_sub(pair[0].into()));
    // The steps between times are usually smaller than their range; narrow values gain nothing.
    let least_step = if plain > 2 { steps().min().unwrap_or(0) } else { 0 };
    let widest = || steps().map(|step| step.wrapping_sub(least_step).cast_unsigned()).max().unwrap_or(0);
    let stepped = if plain > 2 { width(widest(), dense) } else { plain };
    if stepped < plain {
        out.extend([FROM_BEFORE, stepped]);
        varint::put_i64(out, values[0].into());
        varint::put_i64(out, least_step);
        // The first number has a delta as well, so that every number has one.
        let above = std::iter::once(0).chain(steps().map(|step| step.wrapping_sub(least_step).cast_unsigned()));
        put_narrow(out, above, values.len(), stepped);
    } else {
        out.extend([FROM_LEAST, plain]);
        varint::put_i64(out, least);
        let above = values.iter().map(|v| (*v).into().wrapping_sub(least).cast_unsigned());
        put_narrow(out, above, values.len(), plain);
    }
}

fn width(greatest: u64, dense: bool) -> u8 {
    match greatest {
        0 if !dense => 0,
        0..=0xFF => 1,
        0x100..=0xFFFF => 2,
        0x1_0000..=0xFFFF_FFFF => 4,
        _ => 8,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the width was chosen by the greatest of them")]
fn put_narrow(out: &mut Vec<u8>, values: impl Iterator<Item = u64>, count: usize, width: u8) {
    match width {
        0 => {}
        1 => put_bytes(out, values.map(|v| [v as u8]), count),
        2 => put_bytes(out, values.map(|v| (v as u16).to_le_bytes()), count),
        4 => put_bytes(out, values.map(|v| (v as u32).to_le_bytes()), count),
        _ => put_bytes(out, values.map(u64::to_le_bytes), count),
    }
}

/// Space for all of them is reserved first, so that the loop can be vectorized.
fn put_bytes<const N: usize>(out: &mut Vec<u8>, values: impl Iterator<Item = [u8; N]>, count: usize) {
    let start = out.len();
    out.resize(start + count * N, 0);
    let room = out[start..].as_chunks_mut::<N>().0;
    room.iter_mut().zip(values).for_each(|(place, bytes)| *place = bytes);
}

/// Reads `count` numbers.
pub(super) fn take(cursor: &mut Cursor<'_>, count: usize, dense: bool) -> Result<Vec<i64>, String> {
    let (kind, width) = (cursor.byte()?, cursor.byte()?);
    let narrowest = u8::from(dense);
    if !matches!(width, 0 | 1 | 2 | 4 | 8) || width < narrowest {
        return Err(format!("numbers of {width} bytes"));
    }
    let base = cursor.i64()?;
    match kind {
        FROM_LEAST => {
            let above = take_narrow(cursor, count, width)?;
            Ok(above.into_iter().map(|v| base.wrapping_add(v)).collect())
        }
        FROM_BEFORE => {
            let step = cursor.i64()?;
            let mut value = base.wrapping_sub(step);
            let above = take_narrow(cursor, count, width)?;
            let next = |v: i64| {
                value = value.wrapping_add(step).wrapping_add(v);
                value
            };
            Ok(above.into_iter().map(next).collect())
        }
        kind => Err(format!("unknown kind {kind} of numbers")),
    }
}

fn take_narrow(cursor: &mut Cursor<'_>, count: usize, width: u8) -> Result<Vec<i64>, String> {
    let bytes = count.checked_mul(usize::from(width)).ok_or("more numbers than there is room for")?;
    let bytes = cursor.take(bytes)?;
    Ok(match width {
        0 => vec![0; count],
        1 => bytes.iter().map(|b| i64::from(*b)).collect(),
        2 => bytes.as_chunks().0.iter().map(|b| i64::from(u16::from_le_bytes(*b))).collect(),
        4 => bytes.as_chunks().0.iter().map(|b| i64::from(u32::from_le_bytes(*b))).collect(),
        _ => bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
    })
}
