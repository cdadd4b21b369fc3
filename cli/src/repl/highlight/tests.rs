use super::*;

/// Shows colours as letters around the coloured text.
fn painted(text: &str) -> String {
    let kind = |word: &str| match word.to_uppercase().as_str() {
        "SELECT" | "FROM" => Some(Word::Keyword),
        "AVG" => Some(Word::Function),
        _ => None,
    };
    let text = paint(text, kind).replace("\x1b[0m", ">");
    [(KEYWORD, "k<"), (FUNCTION, "f<"), (STRING, "s<"), (NUMBER, "n<"), (COMMENT, "c<")]
        .iter()
        .fold(text, |text, (colour, letter)| text.replace(&format!("\x1b[{colour}m"), letter))
}

#[test]
fn words_strings_numbers_and_comments_have_their_colours() {
    assert_eq!(painted("select avg(v), avg from w"), "k<select> f<avg>(v), avg k<from> w");
    assert_eq!(painted("'a''b' \"from\" 1.5e-3-x2"), "s<'a''b'> \"from\" n<1.5e-3>-x2");
    assert_eq!(painted("1 -- from\n/* a\nb */ from"), "n<1> c<-- from>\nc</* a>\nc<b */> k<from>");
}

#[test]
fn unfinished_text_keeps_every_letter() {
    for text in ["'it", "\"a", "/* b", "--", "'\u{e9}\u{4e2d}", "1e", "select '\n'' x", "/*"] {
        let plain = paint(text, |_| Some(Word::Keyword));
        let mut left = String::new();
        let mut rest = plain.as_str();
        while let Some(at) = rest.find("\x1b[") {
            left.push_str(&rest[..at]);
            rest = rest[at..].split_once('m').map_or("", |(_, after)| after);
        }
        left.push_str(rest);
        assert_eq!(left, text);
    }
}
