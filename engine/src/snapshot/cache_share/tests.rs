use super::*;

fn taken(parts: &[u64], room: u64) -> Vec<bool> {
    let mut share = CacheShare::new(parts.iter().sum(), room);
    parts.iter().map(|bytes| share.takes(*bytes)).collect()
}

#[test]
fn a_read_that_fits_goes_through_the_cache_and_of_others_the_first_half_of_the_room() {
    assert_eq!(taken(&[3, 4, 3, 0], 10), [true, true, true, true]);
    assert_eq!(taken(&[3, 2, 5, 1], 10), [true, true, false, false]);
    assert_eq!(taken(&[6, 1, 5], 10), [false, false, false]);
    assert_eq!(taken(&[0, 0], 0), [true, true]);
}
