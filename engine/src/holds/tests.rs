use super::*;

fn held(from: Option<&str>, to: Option<&str>) -> Hold {
    let instant = |text: &str| Timestamp::parse(text).unwrap();
    Hold {
        name: "h".to_owned(),
        collection: 1,
        collection_name: "c".to_owned(),
        filter: Filter::everything(),
        from: from.map(instant),
        to: to.map(instant),
        reason: "because".to_owned(),
        made_at: instant("2024-01-01T00:00:00Z"),
        lifted_at: None,
    }
}

#[test]
fn a_range_begins_at_the_first_unit_that_is_not_before_it_and_ends_before_its_end() {
    let whole = held(Some("1970-01-01T00:00:01Z"), Some("1970-01-01T00:00:02Z"));
    assert_eq!(whole.range(Precision::Ms), (1000, 1999));
    let finer = held(Some("1970-01-01T00:00:00.0000001Z"), Some("1970-01-01T00:00:00.0010001Z"));
    assert_eq!(finer.range(Precision::Ms), (1, 1), "0 ms is before its beginning, 1 ms before its end");
    assert_eq!(finer.range(Precision::Ns), (100, 1_000_099));
    assert_eq!(held(None, None).range(Precision::Us), (i64::MIN, i64::MAX));
}

#[test]
fn times_are_read_only_where_the_ends_of_a_bucket_do_not_tell() {
    let hold = held(Some("1970-01-01T00:00:01Z"), Some("1970-01-01T00:00:02Z"));
    let unread = || panic!("the ends tell");
    let covers = |ends| hold.covers_any(ends, Precision::Ms, unread).unwrap();
    assert!(covers((1000, 5000)) && covers((0, 1999)) && covers((1500, 1500)));
    assert!(!covers((0, 999)) && !covers((2000, 3000)));
    assert!(!hold.covers_any((0, 3000), Precision::Ms, || Ok(vec![0, 999, 2000, 3000])).unwrap());
    assert!(hold.covers_any((0, 3000), Precision::Ms, || Ok(vec![0, 1000, 3000])).unwrap());
}
