//! The tables that a statement names, from its tokens.

use datafusion::sql::sqlparser::keywords::{Keyword, RESERVED_FOR_TABLE_ALIAS};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// A list in parentheses, or the statement itself.
#[derive(Default)]
struct Scope {
    has_select: bool,
    is_in_from: bool,
    /// Whether it stands for a table.
    is_table: bool,
}

/// The names by which columns of tables are qualified, each once.
pub(super) fn named(tokens: &[TokenWithSpan]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut scopes = vec![Scope { has_select: true, ..Scope::default() }];
    let mut expects = false;
    for (at, TokenWithSpan { token, .. }) in tokens.iter().enumerate() {
        let Some(scope) = scopes.last_mut() else { break };
        let mut name = None;
        match token {
            Token::LParen => {
                let is_table = std::mem::take(&mut expects);
                // A join in parentheses begins with a table.
                expects = is_table;
                scopes.push(Scope { is_table, is_in_from: is_table, ..Scope::default() });
            }
            Token::RParen => {
                if scopes.pop().is_some_and(|scope| scope.is_table) {
                    name = alias(tokens, at + 1);
                }
                expects = false;
            }
            Token::Comma => expects = scope.is_in_from,
            Token::Word(word) => match word.keyword {
                Keyword::SELECT => (scope.has_select, scope.is_in_from, expects) = (true, false, false),
                Keyword::FROM if scope.has_select => (scope.is_in_from, expects) = (true, true),
                Keyword::JOIN => expects = true,
                Keyword::WHERE | Keyword::GROUP | Keyword::ORDER | Keyword::HAVING | Keyword::LIMIT => {
                    (scope.is_in_from, expects) = (false, false);
                }
                Keyword::LATERAL | Keyword::VALUES => {}
                _ if expects => {
                    expects = false;
                    let end = end_of_name(tokens, at);
                    let own = tokens.get(end).and_then(|token| word_of(&token.token));
                    name = alias(tokens, after_arguments(tokens, end + 1)).or(own);
                }
                _ => {}
            },
            _ => {}
        }
        found.extend(name.filter(|name| !found.contains(name)));
    }
    found
}

/// The last part of a name with dots.
fn end_of_name(tokens: &[TokenWithSpan], at: usize) -> usize {
    match tokens.get(at + 1).map(|token| &token.token) {
        Some(Token::Period) => end_of_name(tokens, at + 2),
        _ => at,
    }
}

/// What follows the arguments of a call, if there are any.
fn after_arguments(tokens: &[TokenWithSpan], at: usize) -> usize {
    if tokens.get(at).is_none_or(|token| token.token != Token::LParen) {
        return at;
    }
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(at) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return place + 1;
        }
    }
    tokens.len()
}

/// `AS a` or `a`.
fn alias(tokens: &[TokenWithSpan], at: usize) -> Option<String> {
    let Token::Word(word) = &tokens.get(at)?.token else { return None };
    match word.keyword {
        Keyword::AS => word_of(&tokens.get(at + 1)?.token),
        keyword if RESERVED_FOR_TABLE_ALIAS.contains(&keyword) => None,
        _ => word_of(&tokens[at].token),
    }
}

fn word_of(token: &Token) -> Option<String> {
    match token {
        Token::Word(word) => Some(word.value.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::named;
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

    #[test]
    fn tables_are_found_by_their_names_and_aliases() {
        for (sql, expected) in [
            ("SELECT x FROM p JOIN q USING (x), r", "p q r"),
            ("SELECT x FROM a.p AS l LEFT JOIN (SELECT f(x, y) FROM q) m ON l.x = m.x WHERE x IN (1, 2)", "l q m"),
            ("SELECT extract(hour FROM t) FROM latest('w', 3) w JOIN w ON true", "w"),
            ("FROM (p JOIN q ON true), LATERAL (SELECT 1) z ORDER BY x, y", "p q z"),
        ] {
            let mut tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location().unwrap();
            tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
            assert_eq!(named(&tokens).join(" "), expected, "{sql}");
        }
    }
}
