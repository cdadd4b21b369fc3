//! Splits batches into pieces that one insert can hold.

use arrow::array::RecordBatch;
use ebbtide_buckets::batch_bytes;

/// Approximate maximum bytes of measurements per insert. The engine's limit is higher, but an insert is in memory more
/// than once.
pub(crate) const INSERT_BYTES: usize = 32 << 20;

/// The rows from index `from` that go into one insert: at most `at_most`, and at most [`INSERT_BYTES`] unless a single
/// row is larger.
pub(crate) fn piece(batch: &RecordBatch, from: usize, at_most: usize) -> RecordBatch {
    let mut piece = batch.slice(from, at_most.min(batch.num_rows() - from));
    while piece.num_rows() > 1 && batch_bytes(&piece) > INSERT_BYTES {
        piece = piece.slice(0, piece.num_rows().div_ceil(2));
    }
    piece
}

#[cfg(test)]
mod tests;
