use super::*;

#[test]
fn literal_starts() {
    let cases = [
        ("^abc", "", Some("abc")),
        ("^abc$", "", Some("abc")),
        ("^ab.c", "", Some("ab")),
        ("^abc*", "", Some("ab")),
        ("^abc?", "", Some("ab")),
        ("^abc{0,1}", "", Some("ab")),
        ("^abc+", "", Some("abc")),
        ("^user:42/", "", Some("user:42/")),
        ("^", "", Some("")),
        ("^\\d", "", Some("")),
        ("^(ab)", "", Some("")),
        ("^*", "", None),
        ("abc", "", None),
        ("^abc", "i", None),
        ("^abc", "m", None),
        ("^abc|d", "", None),
    ];
    for (pattern, options, start) in cases {
        let found = Pattern::new(pattern, options).ok().and_then(|pattern| pattern.literal_start());
        assert_eq!(found.as_deref(), start, "{pattern}");
    }
}

#[test]
fn what_is_not_supported_is_named() {
    let cases = [
        ("(?!a)", "look-ahead"),
        ("(?<=a)", "look-behind"),
        ("a*+", "possessive"),
        ("a?+", "possessive"),
        ("a{2}+", "possessive"),
        ("(?|a)", "resets numbers"),
        ("(?(1)a)", "condition"),
        ("(?P=n)", "back-reference"),
        ("\\k<n>", "back-reference"),
        ("(?&n)", "recursion"),
        ("(?1)", "recursion"),
        ("(*UCP)a", "verb"),
        ("\\Ka", "escape \\K"),
        ("[[.a.]]", "collating"),
        ("(?J)", "option 'J'"),
    ];
    for (pattern, what) in cases {
        let message = Pattern::new(pattern, "").unwrap_err().1;
        assert!(message.contains(what) && message.contains("linear time"), "{pattern}: {message}");
    }
    for pattern in
        ["(", "[a", "[z-a]", "a\\", "\\x{110000}", "\\x{41", "(?i", "a{3,2}", "*", "[[:foo:]]", "(?:a{1000}){1000}"]
    {
        let message = Pattern::new(pattern, "").unwrap_err().1;
        assert!(message.contains(&format!("'{pattern}' cannot be used: ")), "{message}");
    }
}
