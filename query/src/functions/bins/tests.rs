use super::*;

fn interval(months: i32, days: i32, nanoseconds: i64) -> IntervalMonthDayNano {
    IntervalMonthDayNano { months, days, nanoseconds }
}

fn seconds(text: &str) -> i64 {
    i64::try_from(Timestamp::parse(text).unwrap().nanos().div_euclid(SECOND)).unwrap()
}

fn zoned(months: i32, days: i32, minutes: i64, zone: &str) -> Bins {
    let width = interval(months, days, minutes * 60_000_000_000);
    Bins::new(width, TimeUnit::Second, None, Some(zone.parse().unwrap())).unwrap()
}

/// Starts of the bins, beginning with the bin of `from`.
fn starts(bins: &Bins, from: &str, count: usize) -> Vec<String> {
    let mut start = bins.start(seconds(from)).unwrap();
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(Timestamp::from_nanos(i128::from(start) * SECOND).to_string());
        start = bins.next(start).unwrap();
    }
    all
}

#[test]
fn fixed_widths_floor_towards_the_past() {
    let hour = Bins::new(interval(0, 0, 3_600_000_000_000), TimeUnit::Millisecond, None, None).unwrap();
    assert_eq!(hour.start(3_600_000).unwrap(), 3_600_000);
    assert_eq!(hour.start(-1).unwrap(), -3_600_000);
    assert_eq!(hour.next(-3_600_000).unwrap(), 0);
    // The whole range of milliseconds, not only that of nanoseconds.
    assert_eq!(hour.start(i64::MAX).unwrap(), i64::MAX - i64::MAX.rem_euclid(3_600_000));
    assert!(hour.start(i64::MIN).is_err());
}

#[test]
fn widths_that_are_no_whole_units_start_at_the_first_unit_inside() {
    let odd = Bins::new(interval(0, 0, 1_500_000), TimeUnit::Millisecond, None, None).unwrap();
    let starts: Vec<i64> = (0..7).map(|t| odd.start(t).unwrap()).collect();
    assert_eq!(starts, [0, 0, 2, 3, 3, 5, 6]);
    assert_eq!([0, 2, 3, 5].map(|t| odd.next(t).unwrap()), [2, 3, 5, 6]);
    let narrow = Bins::new(interval(0, 0, 1), TimeUnit::Millisecond, None, None).unwrap();
    assert_eq!((narrow.start(7).unwrap(), narrow.next(7).unwrap()), (7, 8));
}

#[test]
fn the_bin_of_the_last_time_gives_what_each_time_gives() {
    let odd = Bins::new(interval(0, 0, 1_500_000), TimeUnit::Millisecond, None, None).unwrap();
    let origin = Timestamp::parse("2024-01-31T00:00:00Z").unwrap();
    let months = Bins::new(interval(1, 0, 0), TimeUnit::Second, Some(origin), None).unwrap();
    let days = zoned(0, 1, 0, "America/St_Johns");
    // Clocks there went from 00:01 back to 23:01 of the day before.
    let night = seconds("2010-11-07T02:00:00Z");
    let times = [
        (&odd, -20..20, 1),
        (&months, seconds("2023-11-01")..seconds("2024-06-01"), 40_000),
        (&days, night..night + 10_000, 30),
    ];
    for (bins, times, step) in times {
        let last = LastBin::default();
        for time in times.step_by(step) {
            assert_eq!(last.start(bins, time).unwrap(), bins.start(time).unwrap(), "{time}");
        }
    }
}

#[test]
fn months_clamp_to_the_ends_of_short_ones() {
    let origin = Timestamp::parse("2024-01-31T00:00:00Z").unwrap();
    let bins = Bins::new(interval(1, 0, 0), TimeUnit::Second, Some(origin), None).unwrap();
    let found = starts(&bins, "2023-12-31T00:00:00Z", 5);
    let days = ["2023-12-31", "2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30"];
    assert_eq!(found, days.map(|d| format!("{d}T00:00:00Z")));
    assert_eq!(bins.start(seconds("2024-02-28T23:59:59Z")).unwrap(), seconds("2024-01-31T00:00:00Z"));
}

#[test]
fn days_of_a_zone_have_23_or_25_hours_when_clocks_change() {
    let bins = zoned(0, 1, 0, "America/New_York");
    let spring = ["2024-03-09T05:00:00Z", "2024-03-10T05:00:00Z", "2024-03-11T04:00:00Z", "2024-03-12T04:00:00Z"];
    assert_eq!(starts(&bins, "2024-03-09T12:00:00Z", 4), spring);
    let autumn = ["2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z"];
    assert_eq!(starts(&bins, "2024-11-03T04:00:00Z", 2), autumn);
    let months = zoned(1, 0, 0, "America/New_York");
    assert_eq!(
        starts(&months, "2024-03-20T00:00:00Z", 2),
        ["2024-03-01T05:00:00Z", "2024-04-01T04:00:00Z"].map(String::from)
    );
}

#[test]
fn a_day_without_midnight_starts_when_its_clock_does() {
    // At 2018-11-04T00:00 clocks in Sao Paulo went to 01:00; on 2018-02-18T00:00 they went back to 23:00.
    let bins = zoned(0, 1, 0, "America/Sao_Paulo");
    assert_eq!(
        starts(&bins, "2018-11-03T12:00:00Z", 3),
        ["2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"]
    );
    assert_eq!(
        starts(&bins, "2018-02-17T12:00:00Z", 3),
        ["2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z", "2018-02-19T03:00:00Z"]
    );
}

#[test]
fn hours_of_a_zone_that_come_twice_are_two_bins() {
    let bins = zoned(0, 0, 60, "America/New_York");
    assert_eq!(
        starts(&bins, "2024-11-03T04:30:00Z", 4),
        ["2024-11-03T04:00:00Z", "2024-11-03T05:00:00Z", "2024-11-03T06:00:00Z", "2024-11-03T07:00:00Z"]
    );
    let quarter_days = zoned(0, 0, 360, "America/New_York");
    assert_eq!(
        starts(&quarter_days, "2024-11-03T04:30:00Z", 3),
        ["2024-11-03T04:00:00Z", "2024-11-03T11:00:00Z", "2024-11-03T17:00:00Z"]
    );
    // 90 minutes: 01:30 occurs twice, and the time in between belongs to the first.
    let odd = zoned(0, 0, 90, "America/New_York");
    assert_eq!(
        starts(&odd, "2024-11-03T04:30:00Z", 4),
        ["2024-11-03T04:00:00Z", "2024-11-03T05:30:00Z", "2024-11-03T06:30:00Z", "2024-11-03T08:00:00Z"]
    );
    assert_eq!(odd.start(seconds("2024-11-03T06:10:00Z")).unwrap(), seconds("2024-11-03T05:30:00Z"));
    // Two o'clock is skipped in spring: its bin starts with the transition.
    let spring = zoned(0, 0, 120, "America/New_York");
    assert_eq!(
        starts(&spring, "2024-03-10T05:30:00Z", 4),
        ["2024-03-10T05:00:00Z", "2024-03-10T07:00:00Z", "2024-03-10T08:00:00Z", "2024-03-10T10:00:00Z"]
    );
}

#[test]
fn starts_are_in_order_idempotent_and_followed_by_their_next() {
    let widths = [(0, 0, 15), (0, 0, 40), (0, 0, 60), (0, 0, 90), (0, 0, 480), (0, 1, 0), (0, 7, 0), (1, 0, 0)];
    for zone in ["America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo", "+05:30", "UTC"] {
        for (months, days, minutes) in widths {
            let bins = zoned(months, days, minutes, zone);
            for from in ["2018-02-16T00:00:00Z", "2018-11-02T00:00:00Z", "2024-03-09T00:00:00Z", "2024-04-05T00:00:00Z"]
            {
                let mut current = bins.start(seconds(from)).unwrap();
                for step in 0..600 {
                    let time = seconds(from) + step * 600;
                    let start = bins.start(time).unwrap();
                    assert!(start <= time && start >= current, "{zone} {minutes} {time}");
                    assert_eq!(bins.start(start).unwrap(), start, "{zone} {months} {days} {minutes} {time}");
                    while current < start {
                        current = bins.next(current).unwrap();
                        assert_eq!(bins.start(current).unwrap(), current, "{zone} {months} {days} {minutes}");
                    }
                    assert_eq!(current, start, "{zone} {months} {days} {minutes} {time}");
                    assert!(bins.next(start).unwrap() > time);
                }
            }
        }
    }
}

#[test]
fn widths_that_are_none_are_refused() {
    let refuse = |i| Bins::new(i, TimeUnit::Second, None, None).unwrap_err();
    assert!(refuse(interval(0, 0, 0)).contains("not positive"));
    assert!(refuse(interval(0, -1, 0)).contains("not positive"));
    assert!(refuse(interval(1, 1, 0)).contains("mixes"));
}
