//! `ASOF JOIN` as it is written: `ASOF [LEFT] JOIN t ON ... AND l.t >= r.t`, and `ASOF JOIN t MATCH_CONDITION (l.t >= r.t)
//! ON ...`, which keeps all rows of the left side.

use super::MARK;
use crate::statement::SyntaxError;
use crate::statement::lexer::Offsets;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use std::ops::Range;

/// Words that end the condition of a join.
const ENDS: [&str; 20] = [
    "WHERE",
    "GROUP",
    "HAVING",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "FETCH",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "WINDOW",
    "QUALIFY",
    "JOIN",
    "LEFT",
    "RIGHT",
    "INNER",
    "FULL",
    "CROSS",
    "ASOF",
    "NATURAL",
];

fn is(token: Option<&TokenWithSpan>, word: &str) -> bool {
    matches!(token.map(|t| &t.token), Some(Token::Word(w)) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
}

/// Writes the ASOF joins of a statement as joins with a mark in their condition; nothing if there are none. Up to the
/// first condition all places stay what they are.
pub(crate) fn desugar(text: &str) -> Result<Option<String>, SyntaxError> {
    // What cannot be read at all, the parser says better.
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location() else { return Ok(None) };
    let tokens: Vec<TokenWithSpan> =
        tokens.into_iter().filter(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF)).collect();
    let offsets = Offsets::new(text);
    let place = |token: &TokenWithSpan| offsets.of(token.span.start)..offsets.of(token.span.end);
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        // `AS asof` is a name.
        if !is(Some(token), "ASOF") || (at > 0 && is(tokens.get(at - 1), "AS")) {
            continue;
        }
        let mut join = at + 1;
        if is(tokens.get(join), "LEFT") || is(tokens.get(join), "INNER") {
            join += 1 + usize::from(is(tokens.get(join + 1), "OUTER"));
        } else if is(tokens.get(join), "RIGHT") || is(tokens.get(join), "FULL") {
            let message =
                "ASOF JOIN and ASOF LEFT JOIN are there; rows of the right side are found by those of the left";
            return Err(SyntaxError::at(text, tokens[join].span.start, message.to_owned()));
        }
        if !is(tokens.get(join), "JOIN") {
            continue;
        }
        let plain = join == at + 1;
        match condition(&tokens, join + 1) {
            Some((on, None)) => {
                edits.push((place(token), "    ".to_owned()));
                edits.push((place(&tokens[on]), format!("ON {MARK}() AND")));
            }
            Some((matching, Some(close))) if plain => {
                edits.push((place(token), "LEFT".to_owned()));
                edits.push((place(&tokens[matching]), format!("ON {MARK}() AND")));
                if is(tokens.get(close + 1), "ON") {
                    edits.push((place(&tokens[close + 1]), "AND".to_owned()));
                } else if is(tokens.get(close + 1), "USING") {
                    let message = "ASOF JOIN takes ON with the columns of both sides: ON l.sensor = r.sensor";
                    return Err(SyntaxError::at(text, tokens[close + 1].span.start, message.to_owned()));
                }
            }
            _ => {
                let message = "ASOF JOIN needs its condition: ON l.sensor = r.sensor AND l.time >= r.time";
                return Err(SyntaxError::at(text, token.span.start, message.to_owned()));
            }
        }
    }
    if edits.is_empty() {
        return Ok(None);
    }
    let mut text = text.to_owned();
    edits.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
    for (range, new) in edits {
        text.replace_range(range, &new);
    }
    Ok(Some(text))
}

/// The ON of a join whose table begins at `from`; or its MATCH_CONDITION and the bracket that closes it.
fn condition(tokens: &[TokenWithSpan], from: usize) -> Option<(usize, Option<usize>)> {
    let mut depth = 0_usize;
    let mut matching = None;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen if depth == 0 => return None,
            Token::RParen => {
                depth -= 1;
                if let (0, Some(matching)) = (depth, matching) {
                    return Some((matching, Some(at)));
                }
            }
            _ if depth > 0 => {}
            _ if is(Some(token), "ON") => return Some((at, None)),
            _ if is(Some(token), "MATCH_CONDITION") => matching = Some(at),
            Token::Comma | Token::SemiColon => return None,
            _ if ENDS.iter().any(|w| is(Some(token), w)) => return None,
            _ => {}
        }
    }
    None
}
