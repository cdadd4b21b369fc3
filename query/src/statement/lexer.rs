//! Splits SQL text into statements and their tokens, respecting quotes and comments.

use super::error::SyntaxError;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

/// The tokens of one statement, without white space and comments, and its position in the text.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// The statement as it was typed, without its semicolon.
    pub(crate) text: String,
    /// Zero-based line on which the statement's text begins within the whole text.
    pub(crate) line: u64,
    /// Characters before the statement on that line.
    pub(crate) column: u64,
    /// Its tokens; locations are relative to `text`, from 1.
    pub(crate) tokens: Vec<TokenWithSpan>,
    /// White space and comments between the tokens, each with the number of tokens before it.
    pub(crate) spaces: Vec<(usize, TokenWithSpan)>,
}

/// Whether the text ends inside quotes or a comment, or after a statement without a semicolon.
#[must_use]
pub fn is_incomplete(text: &str) -> bool {
    match Tokenizer::new(&GenericDialect {}, text).tokenize_with_location() {
        Err(_) => true,
        Ok(tokens) => tokens
            .iter()
            .rev()
            .find(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF))
            .is_some_and(|t| t.token != Token::SemiColon),
    }
}

/// Splits `text` at its semicolons.
pub(crate) fn split(text: &str) -> Result<Vec<Piece>, SyntaxError> {
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize_with_location().map_err(|e| {
        let message = e.message.strip_suffix('.').unwrap_or(&e.message).to_owned();
        SyntaxError::at(text, e.location, message)
    })?;
    refuse_grouped_digits(text, &tokens)?;
    let offsets = Offsets::new(text);
    let mut pieces = Vec::new();
    let (mut current, mut between) = (Vec::new(), Vec::new());
    let mut finish = |tokens: &mut Vec<TokenWithSpan>, spaces: &mut Vec<_>, end: Option<Location>| {
        let mut spaces = std::mem::take(spaces);
        if let Some(first) = tokens.first() {
            let start = first.span.start;
            let end = end.map_or(text.len(), |l| offsets.of(l));
            let slice = text.get(offsets.of(start)..end).unwrap_or_default().trim_end().to_owned();
            let mut tokens = std::mem::take(tokens);
            for token in tokens.iter_mut().chain(spaces.iter_mut().map(|(_, space)| space)) {
                rebase(&mut token.span.start, start);
                rebase(&mut token.span.end, start);
            }
            pieces.push(Piece { text: slice, line: start.line - 1, column: start.column - 1, tokens, spaces });
        }
    };
    for token in tokens {
        match token.token {
            Token::SemiColon => finish(&mut current, &mut between, Some(token.span.start)),
            Token::EOF => {}
            Token::Whitespace(_) if current.is_empty() => {}
            Token::Whitespace(_) => between.push((current.len(), token)),
            _ => current.push(token),
        }
    }
    finish(&mut current, &mut between, None);
    Ok(pieces)
}

/// Refuses `1_000`, which is tokenized as `1` with the name `_000`.
fn refuse_grouped_digits(text: &str, tokens: &[TokenWithSpan]) -> Result<(), SyntaxError> {
    for pair in tokens.windows(2) {
        if let [
            TokenWithSpan { token: Token::Number(digits, _), span },
            TokenWithSpan { token: Token::Word(word), span: next },
        ] = pair
            && span.end == next.start
            && word.quote_style.is_none()
            && word.value.strip_prefix('_').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        {
            let (given, plain) = (format!("{digits}{}", word.value), word.value.replace('_', ""));
            let message = format!("{given} is not a number here; write {digits}{plain} without _");
            return Err(SyntaxError::at(text, span.start, message));
        }
    }
    Ok(())
}

fn rebase(location: &mut Location, start: Location) {
    if location.line == start.line {
        location.column = location.column + 1 - start.column;
    }
    location.line = location.line + 1 - start.line;
}

/// Byte offsets of locations.
pub(crate) struct Offsets<'a> {
    text: &'a str,
    lines: Vec<usize>,
}

impl<'a> Offsets<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Offsets { text, lines }
    }

    pub(crate) fn of(&self, location: Location) -> usize {
        let index = |n: u64| usize::try_from(n.saturating_sub(1)).unwrap_or(usize::MAX);
        let Some(&line) = self.lines.get(index(location.line)) else { return self.text.len() };
        let (rest, column) = (&self.text[line..], index(location.column));
        match rest.as_bytes().get(..column) {
            Some(before) if before.is_ascii() => line + column,
            _ => rest.char_indices().nth(column).map_or(self.text.len(), |(i, _)| line + i),
        }
    }
}
