use super::*;
use arrow::array::{Decimal32Array, Decimal64Array, Float64Array, Int64Array, TimestampMicrosecondArray};
use arrow::compute::concat;
use proptest::prelude::*;

/// Numbers within a range that has about this many bits.
fn numbers() -> impl Strategy<Value = Vec<Option<i64>>> {
    let edge = prop_oneof![Just(0), Just(i64::MIN), Just(i64::MAX), any::<i64>(), -1000_i64..1000];
    (edge, 0..64_u32).prop_flat_map(|(from, bits)| {
        let span = ((1_u128 << bits) - 1) as u64;
        let number = (0..=span).prop_map(move |more| from.saturating_add_unsigned(more));
        prop::collection::vec(prop::option::weighted(0.9, number), 1..100)
    })
}

fn column(kind: usize, numbers: &[Option<i64>]) -> ArrayRef {
    let narrow = || numbers.iter().map(|n| n.map(|n| (n % 999_999_999) as i32));
    match kind {
        0 => Arc::new(numbers.iter().copied().collect::<Int64Array>()),
        1 => Arc::new(numbers.iter().copied().collect::<TimestampMicrosecondArray>().with_timezone("UTC")),
        2 => Arc::new(numbers.iter().map(|n| n.map(|n| n % 1_000_000)).collect::<Decimal64Array>()),
        _ => Arc::new(narrow().collect::<Decimal32Array>()),
    }
}

proptest! {
    #[test]
    fn pieces_of_blocks_are_the_rows_that_were_put(
        kind in 0..4_usize,
        blocks in prop::collection::vec((numbers(), any::<bool>()), 1..4),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![0..9_usize, SHORT..50]), 1..12),
    ) {
        let decoded: Vec<ArrayRef> = blocks.iter().map(|(numbers, _)| column(kind, numbers)).collect();
        let kept: Vec<Block> = decoded
            .iter()
            .zip(&blocks)
            .map(|(array, (_, plain))| if *plain { Block::Plain(array.clone()) } else { Block::of(array) })
            .collect();
        let mut pieces = Vec::new();
        for (block, array) in decoded.iter().enumerate() {
            let mut at = 0;
            for (start, length) in &cuts {
                let start = at + start.index(array.len() + 1 - at);
                let end = (start + length).min(array.len());
                pieces.push((block, start..end));
                at = end;
            }
        }
        let slices: Vec<ArrayRef> =
            pieces.iter().map(|(block, rows)| decoded[*block].slice(rows.start, rows.len())).collect();
        let expected = concat(&slices.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>()).unwrap();
        prop_assert_eq!(&join_narrow(&kept, &pieces).unwrap(), &expected);
        for (block, array) in kept.iter().zip(&decoded) {
            prop_assert_eq!(block.len(), array.len());
        }
    }

    #[test]
    fn a_block_takes_the_bytes_that_its_range_says(kind in 0..4_usize, numbers in numbers()) {
        let decoded = column(kind, &numbers);
        let whole = |n: &i64| match kind {
            2 => n % 1_000_000,
            3 => n % 999_999_999,
            _ => *n,
        };
        let known = numbers.iter().flatten().map(whole);
        let range = known.clone().min().zip(known.max());
        let width = cached_width(decoded.data_type(), || range.or(Some((0, 0)))).unwrap();
        let values = match Block::of(&decoded) {
            Block::Plain(array) => array.to_data().buffers()[0].len(),
            Block::Narrow(narrow) => narrow.differences.bytes(),
        };
        prop_assert_eq!(values, width * numbers.len());
    }
}

#[test]
fn what_is_no_whole_number_stays_as_it_is() {
    let doubles: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0]));
    let block = Block::of(&doubles);
    assert_eq!(block.bytes(), doubles.get_array_memory_size());
    assert_eq!(block.plain().unwrap().as_ref(), doubles.as_ref());
    assert_eq!(cached_width(doubles.data_type(), || None), Some(8));
    assert_eq!(cached_width(&DataType::Utf8View, || None), None);
    let block = Block::Plain(doubles);
    assert!(join_narrow(&[block], &[(0, 0..1)]).is_err());
    assert!(join_narrow(&[], &[(0, 0..1)]).is_err());
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    assert!(join_narrow(&[Block::of(&ints)], &[(0, 1..3)]).is_err());
}
