//! Which columns a statement can mean, for functions whose tables may have hundreds of them: planning takes longer for each.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use std::collections::HashSet;

/// All words of a statement that names the columns that it reads.
#[derive(Debug)]
pub(crate) struct NamedColumns(HashSet<String>);

impl NamedColumns {
    /// `None` if the statement calls no such function, or may read columns without naming them.
    pub(crate) fn of(tokens: &[TokenWithSpan]) -> Option<NamedColumns> {
        let mut words = HashSet::new();
        let (mut before, mut earlier) = (None, None);
        // For each parenthesis that is open, whether what is selected was said.
        let mut has_list = vec![false];
        for TokenWithSpan { token, .. } in tokens {
            match token {
                Token::Mul if !multiplies(before) => return None,
                Token::LParen if may_name_columns_by_place(earlier, before) => return None,
                Token::LParen => has_list.push(false),
                Token::RParen => drop(has_list.pop()),
                Token::Word(word) => {
                    let has_list = has_list.last_mut()?;
                    match word.keyword {
                        // These take columns that no word names.
                        Keyword::NATURAL | Keyword::PIVOT | Keyword::UNPIVOT => return None,
                        Keyword::SELECT => *has_list = true,
                        Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT => *has_list = false,
                        // FROM without SELECT reads all columns.
                        Keyword::FROM if !*has_list => return None,
                        _ => {}
                    }
                    words.insert(word.value.to_lowercase());
                }
                _ => {}
            }
            (earlier, before) = (before, Some(token));
        }
        words.contains("rollup").then_some(NamedColumns(words))
    }

    pub(super) fn contains(&self, column: &str) -> bool {
        self.0.contains(&column.to_lowercase())
    }
}

/// Whether a parenthesis after these tokens may begin the list of names in `rollup(...) AS r(a, b)`.
fn may_name_columns_by_place(earlier: Option<&Token>, before: Option<&Token>) -> bool {
    let is_after_table = match earlier {
        Some(Token::RParen) => true,
        Some(Token::Word(word)) => word.keyword == Keyword::AS,
        _ => false,
    };
    is_after_table && matches!(before, Some(Token::Word(_)))
}

/// Whether a star after this token can only be a product's.
fn multiplies(before: Option<&Token>) -> bool {
    match before {
        Some(Token::Word(word)) => word.keyword == Keyword::NoKeyword,
        Some(Token::Number(..)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
