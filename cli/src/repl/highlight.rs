//! Colours SQL while it is typed, which has to work for unfinished text.

#[cfg(test)]
mod tests;

/// The kind of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Keyword,
    /// Only coloured if a parenthesis follows: many functions have the names of columns.
    Function,
}

const KEYWORD: &str = "1;34";
const FUNCTION: &str = "36";
const STRING: &str = "32";
const NUMBER: &str = "35";
const COMMENT: &str = "90";

/// The text with colours; `kind` classifies words.
pub(super) fn paint(text: &str, kind: impl Fn(&str) -> Option<Word>) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (len, colour) = match first {
            '\'' => (quoted(rest, '\''), Some(STRING)),
            '"' => (quoted(rest, '"'), None),
            '-' if rest.starts_with("--") => (rest.find('\n').unwrap_or(rest.len()), Some(COMMENT)),
            '/' if rest.starts_with("/*") => (rest[2..].find("*/").map_or(rest.len(), |end| end + 4), Some(COMMENT)),
            c if c.is_ascii_digit() => (number(rest), Some(NUMBER)),
            c if c.is_alphabetic() || c == '_' => {
                let len = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                let called = rest[len..].trim_start().starts_with('(');
                let colour = match kind(&rest[..len]) {
                    Some(Word::Keyword) => Some(KEYWORD),
                    Some(Word::Function) if called => Some(FUNCTION),
                    _ => None,
                };
                (len, colour)
            }
            c => (c.len_utf8(), None),
        };
        let (piece, after) = rest.split_at(len);
        match colour {
            // Each line separately: a terminal may draw them one by one.
            Some(colour) => {
                for (i, line) in piece.split('\n').enumerate() {
                    if i > 0 {
                        out.push('\n');
                    }
                    if !line.is_empty() {
                        out.push_str(&format!("\x1b[{colour}m{line}\x1b[0m"));
                    }
                }
            }
            None => out.push_str(piece),
        }
        rest = after;
    }
    out
}

/// Length of the quoted text at the beginning; a doubled quote does not end it.
fn quoted(text: &str, quote: char) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return at + 1;
        }
    }
    text.len()
}

/// Length of the number at the beginning.
fn number(text: &str) -> usize {
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let sign = matches!(c, '+' | '-') && matches!(before, 'e' | 'E');
        if !(c.is_ascii_alphanumeric() || c == '.' || sign) {
            return at;
        }
        before = c;
    }
    text.len()
}
