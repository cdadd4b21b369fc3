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

#[test]
fn bins_at_the_ends_of_the_longest_ranges_stay_within_them() {
    let all = (i64::MIN, i64::MAX);
    assert_eq!(bins_at_end(all, 10, 1, true), (9_223_372_036_854_775_800, i64::MAX));
    assert_eq!(bins_at_end(all, 10, 1, false), (i64::MIN, -9_223_372_036_854_775_801));
    assert_eq!(bins_at_end(all, 10, i64::MAX, true), all);
    assert_eq!(bins_at_end(all, 10, i64::MAX, false), all);
    assert_eq!(bins_at_end((-25, 25), 10, 2, true), (10, 25));
    assert_eq!(bins_at_end((-25, 25), 10, 2, false), (-25, -11));
    assert_eq!(bins_at_end((5, 5), i64::MAX, 3, true), (5, 5));
}

#[test]
fn the_first_instant_and_a_width_of_nothing_are_no_failure() {
    let first = Timestamp::from_nanos(i128::MIN);
    assert_eq!(stored(Timestamp::EPOCH..first, Precision::Ms), (i64::MAX, i64::MIN));
    for width in [0, -1, i64::MIN] {
        assert_eq!(bins_at_end((7, 1234), width, 3, true), (1232, 1234));
    }
}
