//! Which columns a statement can mean: planning takes longer for each column of its tables, and a collection may have
//! thousands.

use datafusion::sql::sqlparser::keywords::{Keyword, RESERVED_FOR_TABLE_ALIAS};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};
use std::collections::HashSet;

/// Keywords before a parenthesis that are not names of a table, beside [`RESERVED_FOR_TABLE_ALIAS`].
const NO_TABLES: [Keyword; 16] = [
    Keyword::ALL,
    Keyword::AND,
    Keyword::AS,
    Keyword::BETWEEN,
    Keyword::BY,
    Keyword::CASE,
    Keyword::DISTINCT,
    Keyword::ELSE,
    Keyword::FILTER,
    Keyword::IN,
    Keyword::NOT,
    Keyword::OR,
    Keyword::OVER,
    Keyword::THEN,
    Keyword::VALUES,
    Keyword::WHEN,
];

/// All words of a statement that names the columns that it reads.
#[derive(Debug)]
pub(crate) struct NamedColumns(HashSet<String>);

impl NamedColumns {
    /// `None` if the statement may read columns without naming them.
    pub(crate) fn of(tokens: &[TokenWithSpan]) -> Option<NamedColumns> {
        let mut words = HashSet::new();
        let (mut before, mut earlier) = (None, None);
        // For each parenthesis that is open, whether what is selected was said.
        let mut has_list = vec![false];
        for TokenWithSpan { token, .. } in tokens {
            match token {
                Token::Mul if !multiplies(before) && !counts(earlier, before) => return None,
                Token::LParen if may_name_columns_by_place(earlier, before) => return None,
                Token::LParen => has_list.push(false),
                Token::RParen => drop(has_list.pop()),
                Token::Word(word) => {
                    let has_list = has_list.last_mut()?;
                    match word.keyword {
                        // These take columns that no word names.
                        Keyword::NATURAL | Keyword::PIVOT | Keyword::UNPIVOT | Keyword::TABLE => return None,
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
        Some(NamedColumns(words))
    }

    pub(crate) fn contains(&self, column: &str) -> bool {
        match column.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii()) {
            true => self.0.contains(&column.to_lowercase()),
            false => self.0.contains(column),
        }
    }
}

/// Whether a parenthesis after these tokens may begin the list of names in `w AS r(a, b)`.
fn may_name_columns_by_place(earlier: Option<&Token>, before: Option<&Token>) -> bool {
    let is_after_table = match earlier {
        Some(Token::RParen) => true,
        Some(Token::Word(word)) => word.keyword == Keyword::AS || may_be_table(word),
        _ => false,
    };
    is_after_table && matches!(before, Some(Token::Word(word)) if may_be_table(word))
}

/// Whether a word may be the name of a table.
fn may_be_table(word: &Word) -> bool {
    !RESERVED_FOR_TABLE_ALIAS.contains(&word.keyword) && !NO_TABLES.contains(&word.keyword)
}

/// Whether a star after this token can only be a product's.
fn multiplies(before: Option<&Token>) -> bool {
    match before {
        Some(Token::Word(word)) => word.keyword == Keyword::NoKeyword,
        Some(Token::Number(..)) => true,
        _ => false,
    }
}

/// Whether a star after these tokens is the one of `count(*)`.
fn counts(earlier: Option<&Token>, before: Option<&Token>) -> bool {
    let is_count = matches!(earlier, Some(Token::Word(word)) if word.value.eq_ignore_ascii_case("count"));
    is_count && before == Some(&Token::LParen)
}

#[cfg(test)]
mod tests;
