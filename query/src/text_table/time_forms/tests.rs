use super::*;

fn patterns(cells: &[&str]) -> String {
    match written(cells.iter().copied()) {
        TimeForm::Plainly => "plainly".to_owned(),
        TimeForm::Unknown => "unknown".to_owned(),
        TimeForm::As(ways) => ways.iter().map(|w| w.patterns.join(" | ")).collect::<Vec<_>>().join(" or "),
    }
}

#[test]
fn the_way_in_which_times_are_written_is_told_where_it_is_certain() {
    let cases: [(&[&str], &str); 22] = [
        (&["2024-01-31 12:00", "2024-02-01"], "plainly"),
        (&["31.01.2024", "01.02.2024"], "%d.%m.%Y"),
        (&["01.02.2024"], "%d.%m.%Y"),
        (&["31.01.24 7:05"], "%d.%m.%y %H:%M"),
        (&["01/02/2024", "02/02/2024"], "%d/%m/%Y or %m/%d/%Y"),
        (&["01/02/2024", "13/02/2024"], "%d/%m/%Y"),
        (&["1/2/2024 1:05 PM", "1/13/2024 12:05 am"], "%m/%d/%Y %I:%M %p"),
        (&["01-02-03"], "%y-%m-%d or %d-%m-%y or %m-%d-%y"),
        (&["24-01-31", "24-02-01"], "%y-%m-%d or %d-%m-%y"),
        (&["13-Feb-2024 01:02:03"], "%d-%b-%Y %H:%M:%S"),
        (&["March 4, 2024"], "%B %d, %Y"),
        (&["20240131", "20240201"], "%Y%m%d"),
        (&["2024013123", "2024020100"], "%Y%m%d%H"),
        (&["20240131 0700"], "%Y%m%d %H%M"),
        (&["31.01.2024", "31.01.2024 12:30"], "%d.%m.%Y | %d.%m.%Y %H:%M"),
        (&["31/01/2024 00:00 UTC"], "%d/%m/%Y %H:%M UTC"),
        (&["31/01/2024 00:00:00.5+01:00"], "%d/%m/%Y %H:%M:%S%.f%z"),
        (&["01/Feb/2024:00:00:00 -0300"], "%d/%b/%Y:%H:%M:%S %z"),
        (&["2017-01", "2017-02"], "%Y-%m"),
        (&["1704067200"], "unknown"),
        (&["99.99.2024"], "unknown"),
        (&["x", "", "12"], "unknown"),
    ];
    for (cells, expected) in cases {
        assert_eq!(patterns(cells), expected, "{cells:?}");
    }
}

#[test]
fn units_and_parts_of_times_are_told() {
    assert_eq!(unix_unit(["1704067200", "1704067200.5"].into_iter()), Some("s"));
    assert_eq!(unix_unit(["1704067200000", "1704067200"].into_iter()), None);
    assert_eq!(unix_unit(["5551234567"].into_iter()), None);
    assert_eq!((part("YR", "24"), part("Mon", "Jan"), part("hour", "2400")), (Some("%y"), Some("%b"), None));
    for (name, expected) in [("TIME", true), ("Hora UTC", true), ("time (local)", true), ("time_of_max", false)] {
        assert_eq!(is_clock_name(name), expected, "{name}");
    }
    for (cell, expected) in [("07:00", true), ("0700 UTC", true), ("24:00", true), ("25:00", false), ("7.5.1", false)] {
        assert_eq!(is_clock(cell), expected, "{cell}");
    }
}
