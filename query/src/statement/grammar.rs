//! The grammar of Ebbtide's own statements, by recursive descent over the tokens of one statement.

mod collections;
mod expiry;
mod holds;
mod indexes;
mod ladders;
mod listings;
mod publications;

use self::listings::{LISTINGS, near_listing};
use super::error::SyntaxError;
use super::lexer::Piece;
use super::parser::Parser;
use super::{Alteration, Pivot, StatementKind};
use datafusion::sql::sqlparser::tokenizer::Token;
use ebbtide::suggest;
use ebbtide_ttl::Code;
use serde_json::{Map, json};

/// Parses one statement.
pub(super) fn parse(piece: &Piece) -> Result<StatementKind, SyntaxError> {
    let mut p = Parser { piece, next: 0, depth: 0 };
    let kind = match p.words(2).as_slice() {
        [a, b] if a == "CREATE" && b == "COLLECTION" => p.create_collection()?,
        [a, b] if a == "CREATE" && (b == "TTL" || b == "INDEX") => p.create_index(b == "TTL")?,
        [a, b] if a == "CREATE" && b == "UNIQUE" => {
            p.next = 1;
            let what = "a unique index is not possible: only the _id of a document is unique; leave UNIQUE out for an index that \
                        finds documents";
            return Err(SyntaxError { code: Code::CannotCreateIndex, ..p.error(what) });
        }
        [a, b] if a == "DROP" && b == "COLLECTION" => p.drop_collection()?,
        [a, b] if a == "DROP" && (b == "TTL" || (b == "INDEX" && p.names_a_collection())) => {
            p.drop_index(b == "TTL")?
        }
        [a, b] if a == "ALTER" && (b == "COLLECTION" || b == "TABLE") => p.alter_collection()?,
        [a, b] if a == "ALTER" && b == "TTL" => p.alter_index()?,
        [a, b] if a == "CREATE" && b == "HOLD" => p.create_hold()?,
        [a, b] if a == "DROP" && b == "HOLD" => p.drop_hold()?,
        [a, b] if (a == "CREATE" || a == "ALTER") && b == "LADDER" => p.put_ladder()?,
        [a, b] if a == "DROP" && b == "LADDER" => p.drop_ladder()?,
        [a, b] if a == "SET" && b == "PARAMETER" => p.set_parameter()?,
        [a, b] if a == "EXPLAIN" && b == "EXPIRY" => p.explain_expiry()?,
        [a, b] if a == "SHOW" && LISTINGS.contains(&b.as_str()) => p.show()?,
        [a, b] if (a == "CREATE" || a == "DROP" || a == "ALTER") && near_own(b) => {
            p.next = 1;
            return Err(p.expected(&["COLLECTION", "TTL"]));
        }
        [a, b] if a == "SHOW" && near_listing(b) => {
            p.next = 1;
            return Err(p.expected(&LISTINGS));
        }
        [a, ..] if a == "PUBLISH" => p.publish()?,
        [a, ..] if a == "UNPUBLISH" => p.unpublish()?,
        [a, ..] if a == "SWEEP" => {
            p.next = 1;
            StatementKind::Sweep
        }
        [a, b] if a == "CONFIRM" && b == "CLOCK" => {
            p.next = 2;
            let document = Map::from_iter([("confirmClock".to_owned(), json!(1))]);
            StatementKind::Command { document, done: "the clock is confirmed".to_owned(), lenient: false }
        }
        [a, ..] if a == "FLUSH" => {
            p.next = 1;
            StatementKind::Flush
        }
        [a, ..] if a == "COMPACT" => {
            p.next = 1;
            StatementKind::Compact(if p.at_end() { None } else { Some(p.name("a collection")?) })
        }
        [a, b] if a == "CREATE" && b == "TABLE" => match p.create_table()? {
            Some(create) => return Ok(create),
            None => return Ok(StatementKind::Sql),
        },
        [a, b] if a == "COPY" && b == "COLLECTION" => {
            p.next = 2;
            let collection = p.name("a collection")?;
            p.need_word("TO")?;
            StatementKind::Alter { collection, change: Alteration::Copy(p.name("the new collection")?) }
        }
        [a, ..] if a == "PIVOT" || a == "UNPIVOT" => {
            return Ok(StatementKind::Pivot(Box::new(Pivot::parse(piece, a == "UNPIVOT")?)));
        }
        [a, ..] if a == "SUMMARIZE" || a == "SUMMARISE" => {
            p.next = 1;
            return p.summarized();
        }
        [a, ..] if (a == "DESCRIBE" || a == "DESC") && piece.tokens.len() == 2 && !is_text(piece, 1) => {
            p.next = 1;
            StatementKind::Describe(p.name("a collection")?)
        }
        _ => return Ok(StatementKind::Sql),
    };
    p.end()?;
    Ok(kind)
}
/// Whether a token is a text, such as the name of a file.
fn is_text(piece: &Piece, at: usize) -> bool {
    matches!(piece.tokens.get(at).map(|t| &t.token), Some(Token::SingleQuotedString(_)))
}

fn near_own(word: &str) -> bool {
    word != "COLLECTION" && suggest::nearest(word, ["COLLECTION"]).is_some()
}

impl Parser<'_> {
    /// What is summarized: the name of a table, or a query.
    fn summarized(&self) -> Result<StatementKind, SyntaxError> {
        let Some(text) = self.rest() else {
            return Err(self.error("expected a collection or a query, found the end of the statement"));
        };
        let is_query = ["SELECT", "WITH", "FROM", "VALUES"].iter().any(|word| self.is_word(word));
        Ok(StatementKind::Summarize(if is_query { format!("({text})") } else { text.to_owned() }))
    }

    fn set_parameter(&mut self) -> Result<StatementKind, SyntaxError> {
        self.next = 2;
        let name = self.name("a parameter")?;
        if !self.take(&Token::Eq) {
            self.need_word("TO").map_err(|_| self.expected(&["'='"]))?;
        }
        let value = self.literal()?;
        let done = format!("{name} is now {value}");
        let document = Map::from_iter([("setParameter".to_owned(), json!(1)), (name, value)]);
        Ok(StatementKind::Command { document, done, lenient: false })
    }
}
