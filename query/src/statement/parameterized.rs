//! Queries with parameters in place of the literals that they compare something with, so that queries that differ in these
//! alone are recognized.

#[cfg(test)]
mod tests;

use super::Statement;
use super::lexer::Offsets;
use datafusion::arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use ebbtide_ttl::Timestamp;

/// A query of more tokens, or with more literals, is left as it is.
const TOKENS_MAX: usize = 512;
const VALUES_MAX: usize = 64;

/// A query with parameters, `$1` and so on, and their values.
#[derive(Debug, Clone)]
pub(crate) struct ParameterizedQuery {
    pub(crate) query: OpenQuery,
    pub(crate) values: Vec<ScalarValue>,
}

/// The text of a query with parameters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct OpenQuery {
    pub(crate) text: String,
    /// The types of the literals that were in the places of the parameters; `None` if a client wrote the parameters.
    pub(crate) types: Option<Vec<DataType>>,
}

impl Statement {
    /// This query with parameters; `None` if it has parameters already, or is long, or may be no query.
    pub(crate) fn parameterized(&self) -> Option<&ParameterizedQuery> {
        self.parameterized.get_or_init(|| parameterized(&self.text, &self.tokens)).as_ref()
    }
}

fn parameterized(text: &str, tokens: &[TokenWithSpan]) -> Option<ParameterizedQuery> {
    let is_query = ["SELECT", "WITH", "FROM"].iter().any(|first| is_word(tokens.first(), first));
    let is_open = |token: &TokenWithSpan| matches!(token.token, Token::Placeholder(_));
    if !is_query || tokens.len() > TOKENS_MAX || tokens.iter().any(is_open) {
        return None;
    }
    let offsets = Offsets::new(text);
    let (mut open, mut values) = (String::with_capacity(text.len()), Vec::new());
    let (mut copied, mut next) = (0, 0);
    for Literal { first, end, value } in Literals::of(tokens) {
        // Some literals are in more than one of these places.
        if first < next {
            continue;
        }
        open.push_str(text.get(copied..offsets.of(tokens.get(first)?.span.start))?);
        values.push(value);
        open.push_str(&format!(" ${} ", values.len()));
        (copied, next) = (offsets.of(tokens.get(end - 1)?.span.end), end);
    }
    open.push_str(text.get(copied..)?);
    let types = Some(values.iter().map(ScalarValue::data_type).collect());
    (values.len() <= VALUES_MAX).then_some(ParameterizedQuery { query: OpenQuery { text: open, types }, values })
}

/// A literal, and the tokens that it consists of.
struct Literal {
    first: usize,
    end: usize,
    value: ScalarValue,
}

impl Literal {
    /// The one that begins at a token.
    fn at(tokens: &[TokenWithSpan], first: usize) -> Option<Literal> {
        let token = |at: usize| tokens.get(first + at).map(|token| &token.token);
        let number = |text: &str| match text.parse::<i64>() {
            Ok(whole) => Some(ScalarValue::from(whole)),
            Err(_) if text.contains(['.', 'e', 'E']) => Some(ScalarValue::from(text.parse::<f64>().ok()?)),
            Err(_) => None,
        };
        let (length, value) = match (token(0)?, token(1)) {
            (Token::Number(text, false), _) => (1, number(text)?),
            (Token::Minus, Some(Token::Number(text, false))) => (2, number(&format!("-{text}"))?),
            (Token::SingleQuotedString(text), _) => (1, ScalarValue::from(text.as_str())),
            (Token::Word(_), Some(Token::SingleQuotedString(text))) if is_word(tokens.get(first), "TIMESTAMP") => {
                // Which of the two parsers reads it depends on what it is compared with.
                let nanos = string_to_timestamp_nanos(text).ok()?;
                let is_clear = Timestamp::parse(text).is_ok_and(|instant| instant.nanos() == i128::from(nanos));
                (2, is_clear.then_some(ScalarValue::TimestampNanosecond(Some(nanos), None))?)
            }
            _ => return None,
        };
        Some(Literal { first, end: first + length, value })
    }
}

/// The literals of a query that come after a comparison and before the end of a condition.
struct Literals<'a> {
    tokens: &'a [TokenWithSpan],
    /// Whether the items of a list may be parameters.
    has_one_list: bool,
    found: Vec<Literal>,
}

impl<'a> Literals<'a> {
    fn of(tokens: &'a [TokenWithSpan]) -> Vec<Literal> {
        // A query with a parameter in one list and another list, or an OR, has no plan for all values.
        let lists = tokens.iter().filter(|token| ["IN", "OR"].iter().any(|word| is_word(Some(token), word))).count();
        let mut literals = Literals { tokens, has_one_list: lists == 1, found: Vec::new() };
        for at in 0..tokens.len() {
            literals.after(at);
        }
        literals.found
    }

    /// Those that come after a token.
    fn after(&mut self, at: usize) {
        let tokens = self.tokens;
        let token = tokens.get(at);
        if token.is_some_and(|token| is_comparison(&token.token)) {
            self.found.extend(Literal::at(tokens, at + 1).filter(|literal| self.is_operand(literal)));
        } else if is_word(token, "BETWEEN")
            && let Some(low) = Literal::at(tokens, at + 1)
            && is_word(tokens.get(low.end), "AND")
        {
            let high = Literal::at(tokens, low.end + 1).filter(|literal| self.is_operand(literal));
            self.found.push(low);
            self.found.extend(high);
        } else if self.has_one_list && is_word(token, "IN") {
            self.found.extend(self.list(at + 1).unwrap_or_default());
        }
    }

    /// The items of a list in parentheses, if all are literals.
    fn list(&self, open: usize) -> Option<Vec<Literal>> {
        let token = |at: usize| self.tokens.get(at).map(|token| &token.token);
        let (mut items, mut at) = (Vec::new(), open);
        if token(open)? != &Token::LParen {
            return None;
        }
        loop {
            let item = Literal::at(self.tokens, at + 1)?;
            at = item.end;
            items.push(item);
            match token(at)? {
                Token::Comma => {}
                Token::RParen => return Some(items),
                _ => return None,
            }
        }
    }

    /// Whether a condition ends after a literal. A literal before anything else may be the operand of another operator, or be in
    /// a part of the query where it cannot be a parameter.
    fn is_operand(&self, literal: &Literal) -> bool {
        const ENDS: [&str; 6] = ["AND", "OR", "GROUP", "ORDER", "LIMIT", "HAVING"];
        match self.tokens.get(literal.end) {
            None => true,
            Some(token) if token.token == Token::RParen => true,
            token => ENDS.iter().any(|word| is_word(token, word)),
        }
    }
}

fn is_comparison(token: &Token) -> bool {
    matches!(token, Token::Eq | Token::DoubleEq | Token::Neq | Token::Lt | Token::LtEq | Token::Gt | Token::GtEq)
}

/// Whether a token is this word of SQL.
fn is_word(token: Option<&TokenWithSpan>, word: &str) -> bool {
    let token = token.map(|token| &token.token);
    matches!(token, Some(Token::Word(found)) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}
