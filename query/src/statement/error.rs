//! Errors in the text of a statement.

use datafusion::sql::sqlparser::tokenizer::Location;
use ebbtide_ttl::Code;
use std::fmt;

/// A syntax error, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// [`Code::FailedToParse`], or [`Code::IDLUnknownField`] for an option that does not exist.
    pub code: Code,
    /// What is wrong and, if it can be guessed, what was meant.
    pub message: String,
    /// Line in the whole text, counted from 1; 0 if unknown.
    pub line: u64,
    /// Column in that line in characters, counted from 1.
    pub column: u64,
    /// The text of that line.
    pub source: String,
}

impl SyntaxError {
    /// An error at a position in a text.
    pub(crate) fn at(text: &str, location: Location, message: impl Into<String>) -> Self {
        let line = usize::try_from(location.line.saturating_sub(1)).unwrap_or(usize::MAX);
        let source = text.lines().nth(line).unwrap_or_default().to_owned();
        let (line, column) = (location.line, location.column);
        SyntaxError { code: Code::FailedToParse, message: message.into(), line, column, source }
    }

    /// The same error, with its position in the text that a statement was cut from.
    pub(crate) fn shifted(mut self, whole: &str, line: u64, column: u64) -> Self {
        if self.line == 0 {
            return self;
        }
        if self.line == 1 {
            self.column += column;
        }
        self.line += line;
        let index = usize::try_from(self.line - 1).unwrap_or(usize::MAX);
        if let Some(source) = whole.lines().nth(index) {
            source.clone_into(&mut self.source);
        }
        self
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return f.write_str(&self.message);
        }
        write!(f, "{} (line {}, column {})", self.message, self.line, self.column)?;
        // Long lines are cut around the position, so that the caret stays on the screen.
        let column = usize::try_from(self.column.saturating_sub(1)).unwrap_or(0);
        let from = column.saturating_sub(50);
        let shown: String = self.source.chars().skip(from).take(74).map(|c| if c == '\t' { ' ' } else { c }).collect();
        write!(f, "\n  {}\n  {}^", shown.trim_end(), " ".repeat(column - from))
    }
}
