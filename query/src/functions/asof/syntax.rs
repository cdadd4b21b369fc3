//! The syntax of `ASOF JOIN`: `ASOF [LEFT] JOIN t ON ... AND l.t >= r.t`; `ASOF JOIN t MATCH_CONDITION (l.t >= r.t) ON
//! ...`, which keeps all rows of the left side; and `ASOF JOIN t USING (s, time)`, whose last column is the time,
//! compared as left >= right.

use crate::statement::error::SyntaxError;
use crate::statement::lexer::Offsets;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use std::ops::Range;

/// Name of the function that marks the condition of an ASOF join.
pub(crate) const MARK: &str = "__asof";

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

/// Rewrites the ASOF joins of a statement as joins with a marker in their condition; `None` if there are none.
/// Positions before the first condition do not change.
/// `known` are the tokens of the text before any name in it was quoted.
pub(crate) fn desugar(text: &str, known: &[TokenWithSpan]) -> Result<Option<String>, SyntaxError> {
    if !known.iter().any(|token| is(Some(token), "ASOF")) {
        return Ok(None);
    }
    // The parser reports what cannot be tokenized.
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
            let message = "only ASOF JOIN and ASOF LEFT JOIN are supported: each row of the left side finds its row of the right side";
            return Err(SyntaxError::at(text, tokens[join].span.start, message.to_owned()));
        }
        if !is(tokens.get(join), "JOIN") {
            continue;
        }
        let plain = join == at + 1;
        match condition(&tokens, join + 1) {
            Some((using, None)) if is(tokens.get(using), "USING") => {
                let Some(name) = name_of(&tokens[join + 1..using]) else {
                    let message = "ASOF JOIN with USING needs a name for its right side: ASOF JOIN (...) AS r USING (sensor, time)";
                    return Err(SyntaxError::at(text, token.span.start, message.to_owned()));
                };
                if let Some(star) = star(&tokens, at) {
                    let Some(columns) = columns_of(&tokens, at, (using, &name)) else {
                        let message = "SELECT * over several joins with an ASOF JOIN by USING: name the columns, or write l.*, r.price";
                        return Err(SyntaxError::at(text, tokens[star].span.start, message.to_owned()));
                    };
                    edits.push((place(&tokens[star]), columns));
                }
                let (first, last) = (place(&tokens[join + 1]).start, place(&tokens[using - 1]).end);
                edits.push((place(token), "    ".to_owned()));
                edits.push((first..first, "(SELECT * FROM ".to_owned()));
                edits.push((last..last, format!(" WHERE {MARK}()) AS {name}")));
            }
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

/// The name of a table in a join: its alias, or else its own name.
fn name_of(table: &[TokenWithSpan]) -> Option<String> {
    match &table.last()?.token {
        Token::Word(name) => Some(name.to_string()),
        _ => None,
    }
}

/// Positions of the SELECT and the FROM of the query whose FROM clause contains the token at `at`.
fn query_of(tokens: &[TokenWithSpan], at: usize) -> Option<(usize, usize)> {
    let mut depth = 0_usize;
    let mut from = None;
    for (i, token) in tokens[..at].iter().enumerate().rev() {
        match &token.token {
            Token::RParen => depth += 1,
            Token::LParen if depth == 0 => return None,
            Token::LParen => depth -= 1,
            _ if depth > 0 => {}
            _ if is(Some(token), "FROM") && from.is_none() => from = Some(i),
            _ if is(Some(token), "SELECT") => return from.map(|from| (i, from)),
            _ => {}
        }
    }
    None
}

/// The `*` of the query whose FROM clause contains the token at `at`.
fn star(tokens: &[TokenWithSpan], at: usize) -> Option<usize> {
    let (select, from) = query_of(tokens, at)?;
    let begins = |token: &Token| matches!(token, Token::Comma | Token::Word(_));
    (select + 1..from).find(|i| {
        tokens[*i].token == Token::Mul
            && begins(&tokens[i - 1].token)
            && (*i + 1 == from || tokens[i + 1].token == Token::Comma)
    })
}

/// The meaning of `*` for two tables: all columns of the left one, and those of the right one that are not join keys.
/// DataFusion would take the keys of either side.
fn columns_of(tokens: &[TokenWithSpan], at: usize, (using, right): (usize, &str)) -> Option<String> {
    let (_, from) = query_of(tokens, at)?;
    let left = &tokens[from + 1..at];
    if left.iter().any(|t| t.token == Token::Comma || is(Some(t), "JOIN"))
        || tokens[using..].iter().any(|t| is(Some(t), "JOIN"))
    {
        return None;
    }
    let close = using + tokens[using..].iter().position(|t| t.token == Token::RParen)?;
    let keys: String = tokens[using + 1..=close].iter().map(|t| t.token.to_string()).collect();
    Some(format!("{}.*, {right}.* EXCLUDE {keys}", name_of(left)?))
}

/// Position of the ON or USING of a join whose table begins at `from`; or of its MATCH_CONDITION and the closing
/// bracket.
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
            _ if is(Some(token), "ON") || is(Some(token), "USING") => return Some((at, None)),
            _ if is(Some(token), "MATCH_CONDITION") => matching = Some(at),
            Token::Comma | Token::SemiColon => return None,
            _ if ENDS.iter().any(|w| is(Some(token), w)) => return None,
            _ => {}
        }
    }
    None
}
