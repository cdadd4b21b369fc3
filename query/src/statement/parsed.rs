//! From a text to its statements.

use super::error::SyntaxError;
use super::parameterized::ParameterizedQuery;
use super::{StatementKind, grammar, lexer};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use std::sync::OnceLock;

/// One statement of a text.
#[derive(Debug, Clone)]
pub struct Statement {
    /// The statement as it was typed, without its semicolon.
    pub text: String,
    /// What it asks for.
    pub kind: StatementKind,
    pub(crate) tokens: Vec<TokenWithSpan>,
    /// White space and comments between the tokens, each with the number of tokens before it.
    spaces: Vec<(usize, TokenWithSpan)>,
    pub(crate) line: u64,
    pub(crate) column: u64,
    pub(super) parameterized: OnceLock<Option<ParameterizedQuery>>,
}

impl Statement {
    /// What it begins with, in capitals: its first word, two words after CREATE, ALTER and DROP, and the word behind the tables
    /// of WITH.
    #[must_use]
    pub fn first_words(&self) -> String {
        let words = self.tokens.iter().map_while(|token| match &token.token {
            Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_uppercase()),
            _ => None,
        });
        let words: Vec<String> = words.take(2).collect();
        match words.first().map(String::as_str) {
            Some("CREATE" | "ALTER" | "DROP") => words.join(" "),
            Some("WITH") => self.word_behind_with().unwrap_or_else(|| "WITH".to_owned()),
            first => first.unwrap_or_default().to_owned(),
        }
    }

    /// The first word behind a parenthesis that is closed, other than AS.
    fn word_behind_with(&self) -> Option<String> {
        let mut depth = 0_usize;
        let mut closed = false;
        self.tokens.iter().find_map(|token| {
            let follows = std::mem::take(&mut closed) && depth == 0;
            match &token.token {
                Token::LParen => depth += 1,
                Token::RParen => (depth, closed) = (depth.saturating_sub(1), true),
                Token::Word(word) if follows && !word.value.eq_ignore_ascii_case("AS") => {
                    return Some(word.value.to_uppercase());
                }
                _ => {}
            }
            None
        })
    }

    /// Its tokens with white space and comments, as a tokenizer returns them.
    pub(crate) fn all_tokens(&self) -> Vec<TokenWithSpan> {
        let mut all = Vec::with_capacity(self.tokens.len() + self.spaces.len());
        let mut spaces = self.spaces.iter().peekable();
        for (at, token) in self.tokens.iter().enumerate() {
            all.push(token.clone());
            while let Some((_, space)) = spaces.next_if(|(before, _)| *before == at + 1) {
                all.push(space.clone());
            }
        }
        all
    }
}

/// Splits a text into statements and parses those that are Ebbtide's own.
///
/// # Errors
/// The first syntax error, with its position. Errors in the SQL that DataFusion runs are found when it is planned.
pub fn parse(text: &str) -> Result<Vec<Statement>, SyntaxError> {
    lexer::split(text)?
        .into_iter()
        .map(|piece| {
            let kind = grammar::parse(&piece).map_err(|e| e.shifted(text, piece.line, piece.column))?;
            let lexer::Piece { text, line, column, tokens, spaces } = piece;
            Ok(Statement { text, kind, tokens, spaces, line, column, parameterized: OnceLock::new() })
        })
        .collect()
}
