use super::*;

#[test]
fn names_are_read_as_they_are_written() {
    let segment = |generation, id| FileName::Segment(SegmentName { generation, id });
    for name in [
        FileName::Lock,
        FileName::Manifest(7),
        FileName::Log(NUMBER_END - 1),
        segment(None, 0),
        segment(Some(0), 1),
        segment(Some(u32::MAX), NUMBER_END - 1),
        FileName::CompactFirst,
        FileName::Reserve,
        FileName::ShutdownMarker,
        FileName::ClockConfirmation,
        FileName::Shipping,
        FileName::ShippingLock,
        FileName::SweepsHeld,
        FileName::Copy,
        FileName::Failing,
    ] {
        assert_eq!(FileName::parse(&name.to_string()), Some(name), "{name}");
    }
    for name in ["seg-1.parquet", "seg-0-0000000000000001.parquet", "seg-ffffffff-1.parquet", "seg--.parquet", "other"]
    {
        assert_eq!(FileName::parse(name), None, "{name}");
    }
}

#[test]
fn by_name_the_marker_comes_first_and_then_the_newest_types() {
    let segment = |generation, id| FileName::Segment(SegmentName { generation: Some(generation), id }).to_string();
    let names = [FileName::CompactFirst.to_string(), segment(2, 9), segment(1, 3), segment(1, 8), segment(0, 1)];
    assert!(names.is_sorted(), "{names:?}");
}

#[test]
fn folders_are_named_for_people() {
    for (name, id, folder) in [
        ("weather", 1, "weather.1"),
        ("a/b.c d-e_f", 20, "a_b_c_d-e_f.20"),
        ("Z\u{fc}rich \u{1f327}", 3, "Z_rich__.3"),
        (&"n".repeat(255), 4, &format!("{}.4", "n".repeat(60))),
    ] {
        assert_eq!(collection_folder(name, id), folder);
        assert_eq!(collection_of(folder), Some(id));
    }
    for other in
        ["weather", "weather.", "weather.0", "weather.01", "weather.x", "w w.1", "v.1.2", "a.18446744073709551615"]
    {
        assert_eq!(collection_of(other), None, "{other}");
    }
}
