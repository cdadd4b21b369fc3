use super::*;
use arrow::array::{ArrayRef, StringViewArray};
use std::sync::Arc;

#[test]
fn pieces_hold_every_row_once_and_no_more_than_one_insert_should() {
    let long = "x".repeat(INSERT_BYTES / 3);
    let texts: Vec<&str> = (0..100).map(|i| if i % 10 == 0 { long.as_str() } else { "short" }).collect();
    let column: ArrayRef = Arc::new(StringViewArray::from(texts));
    let batch = RecordBatch::try_from_iter([("v", column)]).unwrap();
    let mut from = 0;
    let mut pieces = 0;
    while from < batch.num_rows() {
        let piece = piece(&batch, from, 40);
        assert!((1..=40).contains(&piece.num_rows()));
        assert!(batch_bytes(&piece) <= INSERT_BYTES);
        assert_eq!(piece, batch.slice(from, piece.num_rows()));
        from += piece.num_rows();
        pieces += 1;
    }
    assert!((5..20).contains(&pieces), "{pieces}");
}

#[test]
fn a_row_that_is_too_large_for_a_piece_is_one_of_its_own() {
    let column: ArrayRef = Arc::new(StringViewArray::from(vec!["x".repeat(INSERT_BYTES + 1), "y".to_owned()]));
    let batch = RecordBatch::try_from_iter([("v", column)]).unwrap();
    assert_eq!(piece(&batch, 0, 10).num_rows(), 1);
}
