use super::*;

fn stored(range: impl Into<TimeRange>, precision: Precision) -> (i64, i64) {
    range.into().units(precision)
}

#[test]
fn bounds_between_two_stored_times_exclude_what_is_outside() {
    let at = Timestamp::from_nanos;
    assert_eq!(stored(at(1_000_000)..at(2_000_000), Precision::Ms), (1, 1));
    assert_eq!(stored(at(1_000_001)..at(2_000_001), Precision::Ms), (2, 2));
    assert_eq!(stored(at(-1)..=at(1_999_999), Precision::Ms), (0, 1));
    assert_eq!(stored(at(-1_000_001)..=at(-1), Precision::Ms), (-1, -1));
    assert_eq!(stored(at(5).., Precision::Ns), (5, i64::MAX));
    assert_eq!(stored(TimeRange::default(), Precision::Us), (i64::MIN, i64::MAX));
}

#[test]
fn ranges_beyond_all_stored_times_are_empty() {
    let beyond = Timestamp::from_nanos(i128::from(i64::MAX) + 1);
    assert_eq!(stored(beyond.., Precision::Ns), (i64::MAX, i64::MIN));
    let before = TimeRange::new(None, Some(Timestamp::from_nanos(i128::from(i64::MIN) - 1)));
    assert_eq!(stored(before, Precision::Ns), (i64::MAX, i64::MIN));
    let all = TimeRange::of_units(Some(i64::MIN), Some(i64::MAX), Precision::Ms);
    assert_eq!(stored(all, Precision::Ms), (i64::MIN, i64::MAX));
}
