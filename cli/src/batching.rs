//! Batches of rows that one insert can hold.

use arrow::array::RecordBatch;
use ebbtide_buckets::batch_bytes;

/// Bytes of measurements in one insert, about. An insert has a limit, and is in memory more than once.
pub(crate) const INSERT_BYTES: usize = 32 << 20;

/// The rows from one on that go into one insert: at most so many, and no more than it should hold unless one row alone is
/// larger.
pub(crate) fn piece(batch: &RecordBatch, from: usize, at_most: usize) -> RecordBatch {
    let mut piece = batch.slice(from, at_most.min(batch.num_rows() - from));
    while piece.num_rows() > 1 && batch_bytes(&piece) > INSERT_BYTES {
        piece = piece.slice(0, piece.num_rows().div_ceil(2));
    }
    piece
}

#[cfg(test)]
mod tests;
