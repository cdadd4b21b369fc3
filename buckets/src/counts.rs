//! Converts counts to indices without silent clamping.

const _: () = assert!(usize::BITS == 64, "rows and bytes are counted in 64 bits");

/// The number of something that is held in memory, in 32 bits.
///
/// # Panics
/// From 2^32 on, which would not fit into memory.
#[must_use]
pub fn to_number(index: usize) -> u32 {
    u32::try_from(index).expect("2^32 items do not fit into memory")
}

/// A count of rows or bytes as an index.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits: checked above")]
pub const fn to_usize(count: u64) -> usize {
    count as usize
}
