//! Just enough of SQL's lexical structure to part statements, and to tell the few that are about the connection.

/// A token of SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A word or a number as it was written.
    Word(&'a str),
    /// What stood in single quotes or between dollar tags.
    Text(String),
    /// What stood in double quotes.
    Name(String),
    Sign(char),
}

impl Token<'_> {
    /// Whether it is this word, in any case.
    pub(super) fn is(&self, word: &str) -> bool {
        matches!(self, Token::Word(written) if written.eq_ignore_ascii_case(word))
    }

    /// What it says, without quotes; names that are not quoted are folded by the caller.
    pub(super) fn text(&self) -> String {
        match self {
            Token::Word(word) => (*word).to_owned(),
            Token::Text(text) | Token::Name(text) => text.clone(),
            Token::Sign(sign) => sign.to_string(),
        }
    }
}

/// A token with the place of its first byte and of the one after it.
pub(super) type Placed<'a> = (usize, Token<'a>, usize);

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

/// The bytes of white space and comments that a text begins with.
fn space(text: &str) -> usize {
    let mut rest = text;
    loop {
        let before = rest.len();
        rest = rest.trim_start();
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.find('\n').map_or("", |end| &comment[end..]);
        } else if rest.starts_with("/*") {
            rest = &rest[block_comment(rest)..];
        }
        if rest.len() == before {
            return text.len() - rest.len();
        }
    }
}

/// The bytes of a comment that may contain others.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        match rest {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at.min(text.len())
}

/// What stands in quotes at the beginning of a text, and the bytes that it takes. An end that is missing is the text's.
fn quoted(text: &str, quote: char, has_escapes: bool) -> (String, usize) {
    let mut inner = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' && has_escapes {
            inner.extend(chars.next().map(|(_, c)| c));
        } else if c != quote {
            inner.push(c);
        } else if chars.next_if(|(_, c)| *c == quote).is_some() {
            inner.push(quote);
        } else {
            return (inner, at + c.len_utf8());
        }
    }
    (inner, text.len())
}

/// The tag of a text between dollar signs, as `$$` or `$body$`.
fn dollar_tag(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('$')?;
    let end = inner.find('$')?;
    let is_tag =
        inner[..end].chars().all(|c| is_word(c) && c != '$') && !inner.starts_with(|c: char| c.is_ascii_digit());
    is_tag.then(|| &text[..end + 2])
}

/// The token that a text begins with, and the bytes that it takes. The text is not empty and begins with no space.
fn token(text: &str) -> (Token<'_>, usize) {
    let first = text.chars().next().unwrap_or_default();
    let escapes = text.starts_with("E'") || text.starts_with("e'");
    if escapes || first == '\'' {
        let skipped = usize::from(escapes);
        let (inner, length) = quoted(&text[skipped..], '\'', escapes);
        return (Token::Text(inner), skipped + length);
    }
    if first == '"' {
        let (inner, length) = quoted(text, '"', false);
        return (Token::Name(inner), length);
    }
    if let Some(tag) = dollar_tag(text) {
        let body = &text[tag.len()..];
        let (inner, rest) = body.split_once(tag).unwrap_or((body, ""));
        return (Token::Text(inner.to_owned()), text.len() - rest.len());
    }
    if is_word(first) {
        let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
        return (Token::Word(&text[..end]), end);
    }
    (Token::Sign(first), first.len_utf8())
}

/// The tokens of a text, without white space and comments.
pub(super) fn tokens(text: &str) -> impl Iterator<Item = Placed<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += space(&text[at..]);
        if at >= text.len() {
            return None;
        }
        let (token, length) = token(&text[at..]);
        let begin = at;
        at += length;
        Some((begin, token, at))
    })
}

/// The statements of a text, parted at its semicolons; those without a token are left out.
pub(super) fn statements(text: &str) -> Vec<&str> {
    let (mut all, mut from, mut has_token) = (Vec::new(), 0, false);
    for (begin, token, end) in tokens(text) {
        match token {
            Token::Sign(';') => {
                if has_token {
                    all.push(&text[from..begin]);
                }
                (from, has_token) = (end, false);
            }
            _ => has_token = true,
        }
    }
    if has_token {
        all.push(&text[from..]);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_parted_outside_of_quotes_and_comments() {
        for (text, parts) in [
            ("", vec![]),
            (" ; -- a;b\n ;/* ; /* ; */ ; */;", vec![]),
            ("a;b", vec!["a", "b"]),
            ("a 'x;''y;' ; b \"c;\"\"d;\";", vec!["a 'x;''y;' ", " b \"c;\"\"d;\""]),
            (r"a E'\';' 'b\'; c", vec![r"a E'\';' 'b\'", " c"]),
            ("a $$;$$ $x$ ; $$ ; $x$ ; b $1;", vec!["a $$;$$ $x$ ; $$ ; $x$ ", " b $1"]),
            ("a 'never ends; b", vec!["a 'never ends; b"]),
            ("ä ; 'ö;'", vec!["ä ", " 'ö;'"]),
            ("a /* never ends; b", vec!["a /* never ends; b"]),
        ] {
            assert_eq!(statements(text), parts, "{text}");
        }
    }

    #[test]
    fn tokens_lose_their_quotes() {
        let of = |text| tokens(text).map(|(_, token, _)| token).collect::<Vec<_>>();
        let text = |text: &str| Token::Text(text.to_owned());
        assert_eq!(
            of("SET a.b = 'it''s'"),
            [Token::Word("SET"), Token::Word("a"), Token::Sign('.'), Token::Word("b"), Token::Sign('='), text("it's")]
        );
        assert_eq!(
            of(r#"E'a\'b' "c""d" $q$e'f$q$ 10"#),
            [text("a'b"), Token::Name("c\"d".to_owned()), text("e'f"), Token::Word("10")]
        );
    }
}
