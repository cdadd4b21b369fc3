use super::{Times, age, full_months};
use chrono::NaiveDateTime;
use datafusion::arrow::array::{ArrayRef, TimestampSecondArray};
use datafusion::arrow::datatypes::IntervalMonthDayNano;
use std::sync::Arc;

const HOUR: i64 = 3_600_000_000_000;

fn time(text: &str) -> NaiveDateTime {
    format!("{text}:00").parse().unwrap()
}

#[test]
fn ages_are_those_of_postgres() {
    for (end, start, months, days, hours) in [
        ("2001-04-10T00:00", "1957-06-13T00:00", 525, 27, 0),
        ("2024-03-01T00:00", "2024-01-31T00:00", 1, 1, 0),
        ("2024-03-31T06:00", "2024-02-29T12:00", 1, 1, 18),
        ("2024-01-31T00:00", "2024-03-01T00:00", -1, -1, 0),
        ("2024-03-01T00:00", "2023-03-01T00:00", 12, 0, 0),
        ("2024-01-01T00:00", "2024-01-01T12:00", 0, 0, -12),
        ("2024-02-01T00:00", "2024-01-31T12:00", 0, 0, 12),
    ] {
        let expected = IntervalMonthDayNano::new(months, days, hours * HOUR);
        assert_eq!(age(time(end), time(start)), expected, "{end} {start}");
    }
}

#[test]
fn months_are_full_at_the_end_of_a_shorter_one() {
    for (start, end, months) in [
        ("2024-01-31T00:00", "2024-02-29T00:00", 1),
        ("2024-01-31T12:00", "2024-02-29T06:00", 0),
        ("2024-01-31T00:00", "2024-02-28T00:00", 0),
        ("2024-01-15T00:00", "2024-03-14T00:00", 1),
        ("2024-03-15T00:00", "2024-01-15T00:00", -2),
        ("2020-02-29T00:00", "2024-02-29T00:00", 48),
    ] {
        assert_eq!(full_months(time(start), time(end)), months, "{start} {end}");
    }
}

#[test]
fn times_of_several_zones_are_shown_by_one_clock() {
    let times = |zone: Option<&str>| -> ArrayRef {
        Arc::new(TimestampSecondArray::from(vec![Some(-1), None]).with_timezone_opt(zone.map(str::to_owned)))
    };
    for (zones, hours) in [
        ([None, None], 0),
        ([Some("+02:00"), None], 2),
        ([None, Some("+02:00")], 2),
        ([Some("UTC"), Some("+02:00")], 2),
        ([Some("+02:00"), Some("+05:00")], 2),
    ] {
        let [first, second] = zones.map(times);
        let clocks = Times::of_one_clock("age", [(1, &first), (2, &second)]).unwrap();
        for clock in clocks {
            let expected = i128::from(hours * HOUR) - 1_000_000_000;
            assert_eq!([clock.local(0).unwrap(), clock.local(1).unwrap()], [Some(expected), None], "{zones:?}");
        }
    }
}
