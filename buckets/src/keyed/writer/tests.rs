//! Filters of few and of many keys.

use super::*;

fn bytes(filter: &Sbbf) -> Vec<u8> {
    let mut bytes = Vec::new();
    filter.write_bitset(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_filter_of_few_keys_has_the_bytes_of_a_large_one_that_was_folded() {
    for keys in [1, 2, 25, 500, FEW_KEYS] {
        let mut few = KeyFilter::Few { keys: Vec::new(), ends: Vec::new() };
        let mut many = KeyFilter::Many(Sbbf::new_with_num_of_bytes(FILTER_BYTES));
        for key in 0..keys {
            few.insert(&key.to_be_bytes());
            many.insert(&key.to_be_bytes());
        }
        assert!(matches!(few, KeyFilter::Few { .. }));
        assert_eq!(bytes(&few.close()), bytes(&many.close()), "{keys} keys");
    }
}

#[test]
fn a_filter_has_the_keys_from_before_it_became_large() {
    let mut filter = KeyFilter::Few { keys: Vec::new(), ends: Vec::new() };
    let keys = FEW_KEYS + 10;
    for key in 0..keys {
        filter.insert(&key.to_be_bytes());
    }
    assert!(matches!(filter, KeyFilter::Many(_)));
    let filter = filter.close();
    assert!((0..keys).all(|key| filter.check(&key.to_be_bytes()[..])));
}
