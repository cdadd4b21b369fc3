use super::wrapped;

#[test]
fn messages_break_between_words() {
    assert_eq!(wrapped("no such file, or none that can be read", 14), "no such file,\nor none that\ncan be read");
    assert_eq!(wrapped("a-word-that-is-too-long it", 5), "a-word-that-is-too-long\nit");
    assert_eq!(wrapped("short", 80), "short");
}
