use super::*;
use arrow::array::Float64Array;
use std::sync::Arc;

fn decimal(whole: u8, scale: u8) -> FileType {
    FileType::Decimal { whole, scale }
}

fn int(digits: u8) -> FileType {
    FileType::Int64 { digits }
}

fn object(members: &[(&str, FileType)]) -> FileType {
    FileType::Object(members.iter().map(|(name, ty)| ((*name).to_owned(), ty.clone())).collect())
}

fn of_doubles(values: &[f64]) -> FileType {
    FileType::of(&FieldType::Double, &[Arc::new(Float64Array::from(values.to_vec()))])
}

#[test]
fn doubles_have_the_narrowest_type_that_holds_them() {
    for (values, expected) in [
        (&[][..], decimal(0, 0)),
        (&[0.0], decimal(0, 0)),
        (&[0.5], decimal(0, 1)),
        (&[1.5, -22.25], decimal(2, 2)),
        (&[999_999_999.0], decimal(9, 0)),
        (&[-1_000_000_000.0], decimal(10, 0)),
        (&[123_456_789.125], decimal(9, 3)),
        (&[99_999_999_999_999.5], decimal(14, 1)),
        (&[999_999_999_999_999.0], decimal(15, 0)),
        (&[1e15], FileType::Double),
        (&[1e15, 0.1], FileType::Double),
        (&[0.000_000_1], FileType::Double),
        (&[-0.0], FileType::Double),
        (&[f64::NAN], FileType::Double),
    ] {
        assert_eq!(of_doubles(values), expected, "{values:?}");
    }
}

#[test]
fn whole_numbers_are_counted_by_their_digits() {
    let of = |values: &[i64]| FileType::of(&FieldType::Int64, &[Arc::new(Int64Array::from(values.to_vec()))]);
    for (values, digits) in [(&[][..], 0), (&[0], 0), (&[9], 1), (&[-10, 3], 2), (&[i64::MIN], 19), (&[i64::MAX], 19)] {
        assert_eq!(of(values), int(digits), "{values:?}");
    }
}

#[test]
fn a_join_holds_both() {
    let list = |ty: FileType| FileType::List(Box::new(ty));
    for (a, b, joined) in [
        (decimal(3, 1), decimal(2, 2), decimal(3, 2)),
        (decimal(8, 1), decimal(2, 2), decimal(8, 2)),
        (decimal(14, 1), decimal(2, 2), FileType::Double),
        (int(3), decimal(1, 2), decimal(3, 2)),
        (int(16), decimal(1, 0), FileType::Double),
        (int(3), FileType::Double, FileType::Double),
        (decimal(1, 1), FileType::Double, FileType::Double),
        (int(3), int(4), int(4)),
        (FileType::Unknown, FileType::String, FileType::String),
        (list(FileType::Unknown), list(int(1)), list(int(1))),
        (object(&[("a", int(1))]), object(&[("a", decimal(2, 1))]), object(&[("a", decimal(2, 1))])),
    ] {
        assert_eq!(a.join(&b), joined, "{a:?} {b:?}");
        assert_eq!(b.join(&a), joined, "{b:?} {a:?}");
        assert!(joined.is_possible());
    }
    let (a, b) = (object(&[("a", int(1)), ("b", int(1))]), object(&[("b", int(2)), ("c", int(1))]));
    assert_eq!(a.join(&b), object(&[("b", int(2)), ("c", int(1)), ("a", int(1))]));
}

fn columns(columns: &[(&str, FileType)]) -> Vec<(String, FileType)> {
    columns.iter().map(|(name, ty)| ((*name).to_owned(), ty.clone())).collect()
}

#[test]
fn a_generation_begins_when_a_type_in_files_changes() {
    let mut types = FileTypes::default();
    // What comes, the generation then, and the oldest one whose segments have these types.
    for (found, generation, since) in [
        (columns(&[("v", decimal(3, 1))]), 0, 0),
        (columns(&[("v", decimal(8, 0))]), 0, 0),
        (columns(&[("v", decimal(1, 1)), ("n", int(2))]), 1, 0),
        (columns(&[("v", decimal(1, 2)), ("n", int(9))]), 2, 2),
        (columns(&[("n", int(19))]), 2, 2),
        (columns(&[("v", decimal(9, 0))]), 2, 2),
        (columns(&[("v", FileType::Double)]), 3, 3),
        (columns(&[("o", object(&[]))]), 4, 3),
        (columns(&[("o", object(&[("a", FileType::Bool)]))]), 5, 5),
        (columns(&[("o", object(&[("a", FileType::Bool)]))]), 5, 5),
    ] {
        let next = types.widened_by(&found);
        assert!(next.may_follow(&types), "{next:?}");
        assert_eq!(next.fault(), None);
        types = next;
        assert_eq!(types.generation(), generation, "{found:?}");
        assert!(types.are_those_of(since) && (since == 0 || !types.are_those_of(since - 1)), "{found:?}");
    }
    assert!(!FileTypes::default().may_follow(&types));
}

#[test]
fn types_that_cannot_be_are_told() {
    for ty in [decimal(200, 100), decimal(1, 7), decimal(10, 6), int(20), FileType::List(Box::new(int(99)))] {
        let types = FileTypes { generation: 0, widened: 0, columns: columns(&[("v", ty)]) };
        assert!(types.fault().is_some_and(|what| what.contains("'v'")), "{types:?}");
    }
    assert!(FileTypes { generation: 1, widened: 2, columns: Vec::new() }.fault().is_some());
}
