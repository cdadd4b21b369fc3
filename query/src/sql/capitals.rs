//! NamePlaces with capitals: SQL folds bare words to lower case, while collections and columns keep theirs.

use super::visit::{Flow, visit};
use crate::error::QueryError;
use crate::statement::Statement;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{self, Visitor};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token};
use ebbtide::Snapshot;
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Quotes mixed-case names: a word that is exactly the name of a collection or column with capitals (`sensorId`) is
/// quoted. A word that is also an SQL keyword (`DATE`) is only quoted where `named` says that the statement names
/// something, or after a dot.
pub(crate) fn quote_mixed_case<'a>(
    snapshots: impl Iterator<Item = &'a Snapshot>,
    statement: &Statement,
    named: &dyn Fn(Location) -> bool,
) -> String {
    let mut names: Vec<String> = Vec::new();
    for (snapshot, name) in snapshots.flat_map(|one| one.all_collections().into_iter().map(move |name| (one, name))) {
        if let Ok(documents) = snapshot.documents(&name) {
            names.extend(documents.columns().iter().map(|column| column.name.clone()));
        }
        if let Ok(collection) = snapshot.collection(&name) {
            let schema = collection.schema();
            names.push(schema.time.clone());
            names.extend(schema.meta.clone());
            names.extend(schema.fields.iter().map(|(n, _)| n.clone()));
        }
        names.push(name);
    }
    names.retain(|n| n.chars().any(char::is_uppercase));
    if names.is_empty() {
        return statement.text.clone();
    }
    let mut lines: Vec<String> = statement.text.split('\n').map(str::to_owned).collect();
    for (at, token) in statement.tokens.iter().enumerate().rev() {
        let Token::Word(word) = &token.token else { continue };
        let next = statement.tokens.get(at + 1).map(|t| &t.token);
        let is_call = matches!(next, Some(Token::LParen | Token::SingleQuotedString(_)));
        let is_insert_target = at > 0 && is_keyword(&statement.tokens[at - 1].token, "INTO");
        if word.quote_style.is_some() || !names.contains(&word.value) || (is_call && !is_insert_target) {
            continue;
        }
        let is_member = at > 0 && statement.tokens[at - 1].token == Token::Period;
        if word.keyword != Keyword::NoKeyword && !is_member && !named(token.span.start) {
            continue;
        }
        let line = usize::try_from(token.span.start.line - 1).unwrap_or(usize::MAX);
        let column = usize::try_from(token.span.start.column - 1).unwrap_or(usize::MAX);
        let Some(text) = lines.get_mut(line) else { continue };
        let Some(start) = text.char_indices().nth(column).map(|(i, _)| i) else { continue };
        let end = start + word.value.len();
        if text.get(start..end) == Some(word.value.as_str()) {
            text.replace_range(start..end, &format!("\"{}\"", word.value));
        }
    }
    lines.join("\n")
}

/// The places where a statement names columns and tables.
pub(crate) fn locations_of_names(statement: &DfStatement) -> HashSet<Location> {
    let inner = match statement {
        DfStatement::Statement(inner) => inner,
        DfStatement::Explain(explain) => return locations_of_names(&explain.statement),
        _ => return HashSet::new(),
    };
    let mut names = NamePlaces(HashSet::new());
    if let ast::Statement::Insert(insert) = inner.as_ref() {
        names.0.extend(insert.columns.iter().flat_map(|name| &name.0).filter_map(|part| part.as_ident()).map(start_of));
    }
    let _infallible = visit(inner.as_ref(), &mut names);
    names.0
}

/// Where names of columns and tables start.
struct NamePlaces(HashSet<Location>);

impl Visitor for NamePlaces {
    type Break = Box<QueryError>;

    fn pre_visit_relation(&mut self, name: &ast::ObjectName) -> Flow {
        self.0.extend(name.0.iter().filter_map(|part| part.as_ident()).map(start_of));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &ast::Expr) -> Flow {
        match expr {
            ast::Expr::Identifier(name) => self.0.extend([start_of(name)]),
            ast::Expr::CompoundIdentifier(names) => self.0.extend(names.iter().map(start_of)),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn start_of(name: &ast::Ident) -> Location {
    name.span.start
}

fn is_keyword(token: &Token, keyword: &str) -> bool {
    matches!(token, Token::Word(w) if w.value.eq_ignore_ascii_case(keyword))
}
