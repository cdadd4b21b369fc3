//! Limits how far a statement grows when its expressions are rewritten.
//!
//! A short form may stand for a text that repeats an argument, and a row is repeated for each row that it is compared with. Where such
//! forms are nested, the copies multiply.

use datafusion::sql::sqlparser::ast::Expr;
use std::fmt::{self, Write};

/// Bytes of SQL that the copies in a statement may have.
const BYTES_MAX: usize = 2 << 20;

/// The copies that have been made in a statement.
#[derive(Debug, Default)]
pub(super) struct Copies {
    bytes: usize,
}

impl Copies {
    /// Counts `times` copies of an expression.
    ///
    /// # Errors
    /// What is refused, if the copies in the statement are too large.
    pub(super) fn add(&mut self, expr: &Expr, times: usize) -> Result<(), &'static str> {
        let Some(most) = (BYTES_MAX - self.bytes).checked_div(times) else { return Ok(()) };
        let mut text = Counted { bytes: 0, most };
        if write!(text, "{expr}").is_err() {
            return Err("a statement whose expressions are repeated too often; compute what they have in common in a \
                 subquery, or join with a table of VALUES");
        }
        self.bytes += text.bytes * times;
        Ok(())
    }
}

/// Counts the bytes of a text; those after the first `most` are an error.
struct Counted {
    bytes: usize,
    most: usize,
}

impl Write for Counted {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > self.most { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::ast::Ident;

    #[test]
    fn copies_are_counted_over_a_statement() {
        let name = Expr::Identifier(Ident::new("x".repeat(1_000)));
        let mut copies = Copies::default();
        assert_eq!(copies.add(&name, 0), Ok(()));
        assert_eq!(copies.add(&name, 2_000), Ok(()));
        assert_eq!(copies.add(&name, 50), Ok(()));
        assert!(copies.add(&name, 50).unwrap_err().contains("repeated too often"));
        assert_eq!(copies.bytes, 2_050_000);
        assert_eq!(copies.add(&name, 47), Ok(()));
    }
}
