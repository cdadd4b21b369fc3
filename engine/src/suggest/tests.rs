use super::*;

#[test]
fn typing_errors_are_recognized_and_other_words_are_not() {
    assert_eq!(nearest("wheather", ["weather", "rain"]), Some("weather"));
    assert_eq!(nearest("tmep", ["temp", "dewp"]), Some("temp"));
    assert_eq!(nearest("HUORS", ["HOURS", "DAYS"]), Some("HOURS"));
    assert_eq!(nearest("zebra", ["weather", "rain"]), None);
    assert_eq!(nearest("x", ["", "y2"]), None);
    assert_eq!(nearest("", ["a"]), None);
}

#[test]
fn long_words_are_not_compared() {
    let long = "a".repeat(CHARS_MAX);
    assert_eq!(nearest(&long, [long.as_str()]), Some(long.as_str()));
    let longer = "a".repeat(CHARS_MAX + 1);
    assert_eq!(nearest(&longer, [longer.as_str()]), None);
}
