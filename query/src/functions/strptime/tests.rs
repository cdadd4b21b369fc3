use super::*;
use chrono::DateTime;

#[test]
fn texts_are_read_by_their_format() {
    for (text, format, expected) in [
        ("2024-05-06 07:08:09", "%Y-%m-%d %H:%M:%S", Some("2024-05-06T07:08:09Z")),
        ("06.05.24", "%d.%m.%y", Some("2024-05-06T00:00:00Z")),
        ("May 6, 2024 7 PM", "%B %-d, %Y %I %p", Some("2024-05-06T19:00:00Z")),
        ("2024-05-06T07:08:09.5", "%Y-%m-%dT%H:%M:%S.%f", Some("2024-05-06T07:08:09.500000Z")),
        ("20240506070809123456", "%Y%m%d%H%M%S%f", Some("2024-05-06T07:08:09.123456Z")),
        ("07:08:09,123", "%H:%M:%S,%g", Some("1900-01-01T07:08:09.123Z")),
        ("2024-05-06 07:00 +0200", "%Y-%m-%d %H:%M %z", Some("2024-05-06T05:00:00Z")),
        ("2024-127", "%Y-%j", Some("2024-05-06T00:00:00Z")),
        ("2024-W19-1", "%G-W%V-%u", Some("2024-05-06T00:00:00Z")),
        ("1714979289", "%s", Some("2024-05-06T07:08:09Z")),
        ("2024", "%Y", Some("2024-01-01T00:00:00Z")),
        ("100 %", "%j %%", Some("1900-04-10T00:00:00Z")),
        ("2024-02-30", "%Y-%m-%d", None),
        ("2024-05-06 ", "%Y-%m-%dT", None),
        ("2024-05-06", "%d.%m.%Y", None),
        ("", "%Y", None),
    ] {
        let expected = expected.map(|time| DateTime::parse_from_rfc3339(time).unwrap().timestamp_micros());
        assert_eq!(Format::new(format).unwrap().read(text), expected, "{text}");
    }
}

#[test]
fn wrong_formats_are_described() {
    for (format, expected) in
        [("%Q", "stands for nothing"), ("%Y %Z", "%z reads an offset"), ("%", "stands for nothing")]
    {
        let why = Format::new(format).err().unwrap();
        assert!(why.contains(expected) && why.contains(format), "{why}");
    }
}
