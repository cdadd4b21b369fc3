use super::*;
use arrow::array::{Array, ArrayRef, Int64Array};
use std::sync::Arc;

fn block(first: i64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(first..first + 1_000))
}

fn held(cache: &BlockCache, block: u64) -> bool {
    cache.get(std::iter::once((0, 0, block)))[0].is_some()
}

#[test]
fn what_is_used_outlives_what_is_not_and_the_budget_is_kept() {
    let budget = 10 * block(0).get_array_memory_size();
    let cache = BlockCache::new(budget);
    for number in 0..100_u64 {
        cache.put((0, 0, number), Block::Plain(block(0)));
        assert!(held(&cache, 0), "block 0 is used all the time, and gone after {number}");
        let inside = cache.lock();
        let bytes: usize = inside.0.iter().flat_map(|generation| generation.kept.values()).map(Kept::bytes).sum();
        assert!(bytes <= budget, "{bytes} bytes are held of {budget}");
        assert_eq!(bytes, inside.0.iter().map(|generation| generation.bytes).sum::<usize>());
    }
    assert!(held(&cache, 99) && !held(&cache, 1));
}

#[test]
fn a_block_that_is_put_twice_counts_once() {
    let cache = BlockCache::new(usize::MAX);
    (0..3).for_each(|_| cache.put((0, 0, 7), Block::Plain(block(0))));
    let held: usize = cache.lock().0.iter().map(|generation| generation.bytes).sum();
    assert_eq!(held, block(0).get_array_memory_size());
}

#[test]
fn what_fits_is_found_each_time_that_all_of_it_is_read() {
    let size = block(0).get_array_memory_size();
    let cache = BlockCache::new(80 * size);
    let fitting = (cache.room() / size) as u64 - 1;
    for number in 0..fitting {
        cache.put((0, 0, number), Block::Plain(block(0)));
    }
    for round in 0..20 {
        let lost: Vec<u64> = (0..fitting).filter(|number| !held(&cache, *number)).collect();
        assert!(lost.is_empty(), "round {round}: {lost:?} of {fitting} are gone");
    }
}

#[test]
fn a_cache_without_a_budget_keeps_nothing() {
    let cache = BlockCache::new(0);
    cache.put((0, 0, 1), Block::Plain(block(1)));
    assert!(!held(&cache, 1));
}

#[test]
fn segments_get_numbers_of_their_own() {
    let cache = BlockCache::new(1 << 20);
    let (a, b) = (cache.number(), cache.number());
    cache.put((a, 0, 0), Block::Plain(block(1)));
    assert!(a != b && cache.get(std::iter::once((b, 0, 0)))[0].is_none());
}
