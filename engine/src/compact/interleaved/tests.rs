use super::*;

fn rows(first: i64, last: i64, rows: u64) -> Rows {
    Rows { first, last, rows }
}

#[test]
fn rows_lie_between_those_of_others_as_far_as_both_have_some_there() {
    let cases: [(&str, &[Rows], &[u64]); 9] = [
        ("alone", &[rows(0, 99, 100)], &[0]),
        ("in order", &[rows(0, 99, 100), rows(100, 199, 100)], &[0, 0]),
        ("interleaved", &[rows(0, 99, 50), rows(0, 99, 50)], &[50, 50]),
        ("three of them", &[rows(0, 98, 33), rows(1, 99, 33), rows(2, 97, 33)], &[33, 33, 33]),
        ("few between many", &[rows(0, 999, 1000), rows(0, 999, 10)], &[10, 10]),
        ("many few between many", &[rows(0, 99, 100), rows(0, 99, 30), rows(0, 99, 30)], &[60, 30, 30]),
        ("the end of one", &[rows(0, 99, 100), rows(90, 189, 100)], &[10, 10]),
        ("many within the end of one", &[rows(0, 99, 100), rows(95, 99, 1000)], &[5, 5]),
        ("the ends of time", &[rows(i64::MIN, i64::MAX, u64::MAX), rows(i64::MAX, i64::MAX, u64::MAX)], &[1, 1]),
    ];
    for (name, parts, expected) in cases {
        assert_eq!(between_of(parts), expected, "{name}");
    }
}
