//! Names with capitals: SQL folds bare words to lower case, while collections and columns keep theirs.

use super::visit::{Flow, visit};
use crate::context::StatementContext;
use crate::error::QueryError;
use crate::statement::Statement;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::sql::parser::{CopyToSource, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{self, Visitor};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token};
use ebbtide::documents_model::bson::RawDocument;
use ebbtide::documents_model::bson::raw::RawBsonRef;
use ebbtide::{ColumnKind, DocumentsSnapshot};
use ebbtide_ttl::Precision;
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Quotes mixed-case names: a word that is exactly the name of a collection that the statement names, or of a column of one
/// (`sensorId`), is quoted. A word that is also an SQL keyword (`DATE`) is only quoted where `named` says that the statement
/// names something, or after a dot. `parsed` is the statement's tree, and `tree` parses the text of a view.
pub(crate) fn quote_mixed_case(
    context: &StatementContext,
    statement: &Statement,
    parsed: &DfStatement,
    tree: &dyn Fn(&str) -> Option<DfStatement>,
    named: &dyn Fn(Location) -> bool,
) -> String {
    let is_mixed =
        |token: &Token| matches!(token, Token::Word(word) if word.quote_style.is_none() && has_capitals(&word.value));
    if !statement.tokens.iter().any(|token| is_mixed(&token.token)) {
        return statement.text.clone();
    }
    let mut known = Known { context, tree, tables: HashSet::new(), names: HashSet::new(), members: HashSet::new() };
    known.add_tables(parsed);
    if known.names.is_empty() && known.members.is_empty() {
        return statement.text.clone();
    }
    let mut lines: Vec<String> = statement.text.split('\n').map(str::to_owned).collect();
    for (at, token) in statement.tokens.iter().enumerate().rev() {
        let Token::Word(word) = &token.token else { continue };
        let next = statement.tokens.get(at + 1).map(|t| &t.token);
        let is_call = matches!(next, Some(Token::LParen | Token::SingleQuotedString(_)));
        let is_insert_target = at > 0 && is_keyword(&statement.tokens[at - 1].token, "INTO");
        let is_member = at > 0 && statement.tokens[at - 1].token == Token::Period;
        let is_known = known.names.contains(&word.value) || (is_member && known.members.contains(&word.value));
        if word.quote_style.is_some() || !is_known || (is_call && !is_insert_target) {
            continue;
        }
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

fn has_capitals(name: &str) -> bool {
    name.chars().any(char::is_uppercase)
}

/// The names with capitals of the tables of a statement, and of their columns.
struct Known<'a> {
    context: &'a StatementContext,
    tree: &'a dyn Fn(&str) -> Option<DfStatement>,
    /// The tables whose names are known.
    tables: HashSet<String>,
    names: HashSet<String>,
    /// Names within objects, which only stand after a dot.
    members: HashSet<String>,
}

impl Known<'_> {
    fn add_tables(&mut self, statement: &DfStatement) {
        for table in tables_of(statement) {
            let folded = if table.quote_style.is_some() { None } else { Some(table.value.to_lowercase()) };
            let mut spellings = std::iter::once(table.value).chain(folded);
            if let Some(name) = spellings.find(|name| self.exists(name))
                && self.tables.insert(name.clone())
            {
                self.add_table(&name);
                self.add_name(&name);
            }
        }
    }

    fn exists(&self, name: &str) -> bool {
        self.context.snapshots().any(|snapshot| snapshot.has_collection(name))
            || self.context.view(name).is_some()
            || self.context.session_table(name).is_some()
    }

    fn add_table(&mut self, table: &str) {
        let context = self.context;
        for snapshot in context.snapshots() {
            if let Ok(documents) = snapshot.documents(table) {
                self.add_documents(&documents);
            }
            if let Ok(collection) = snapshot.collection(table) {
                // The meta has no type before the first measurement.
                collection.schema().meta.iter().for_each(|meta| self.add_name(meta));
                self.add_columns(&collection.schema().arrow());
            }
        }
        if let Some(view) = context.view(table).and_then(|text| (self.tree)(text)) {
            self.add_tables(&view);
        }
        if let Some(schema) = context.session_table(table) {
            self.add_columns(&schema);
        }
    }

    fn add_columns(&mut self, schema: &Schema) {
        for field in schema.fields() {
            self.add_name(field.name());
            self.add_members(field.data_type());
        }
    }

    /// The columns of an ordinary collection, and the paths of its indexes: a field may be named before a document has it.
    fn add_documents(&mut self, documents: &DocumentsSnapshot) {
        for column in documents.columns().iter() {
            self.add_name(&column.name);
            if let ColumnKind::Of(ty) = &column.kind {
                self.add_members(&ty.arrow(Precision::Ms));
            }
        }
        for index in &documents.options().indexes {
            for (path, _) in &index.key {
                self.add_path(path);
            }
            if let Some(filter) = index.filter.as_deref().and_then(|filter| RawDocument::from_bytes(filter).ok()) {
                self.add_paths(filter);
            }
        }
    }

    /// The paths in a filter of MongoDB's form.
    fn add_paths(&mut self, filter: &RawDocument) {
        for (name, value) in filter.iter().flatten() {
            match value {
                RawBsonRef::Array(several) if name.as_str().starts_with('$') => {
                    let filters = several.into_iter().flatten().filter_map(|one| one.as_document());
                    filters.for_each(|filter| self.add_paths(filter));
                }
                _ => self.add_path(name.as_str()),
            }
        }
    }

    fn add_path(&mut self, path: &str) {
        let mut names = path.split('.');
        names.next().into_iter().for_each(|name| self.add_name(name));
        self.members.extend(names.filter(|name| has_capitals(name)).map(str::to_owned));
    }

    fn add_name(&mut self, name: &str) {
        if has_capitals(name) {
            self.names.insert(name.to_owned());
        }
    }

    fn add_members(&mut self, ty: &DataType) {
        match ty {
            DataType::Struct(fields) => {
                for field in fields {
                    self.members.extend(Some(field.name()).filter(|name| has_capitals(name)).cloned());
                    self.add_members(field.data_type());
                }
            }
            DataType::List(item) => self.add_members(Field::data_type(item)),
            _ => {}
        }
    }
}

/// The names of the tables of a statement, and of those that its table functions read.
fn tables_of(statement: &DfStatement) -> Vec<ast::Ident> {
    let mut tables = Tables(Vec::new());
    match statement {
        DfStatement::Statement(inner) => visit(inner.as_ref(), &mut tables).unwrap_or_default(),
        DfStatement::Explain(explain) => return tables_of(&explain.statement),
        DfStatement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => visit(query, &mut tables).unwrap_or_default(),
            CopyToSource::Relation(name) => tables.add(name),
        },
        _ => {}
    }
    tables.0
}

struct Tables(Vec<ast::Ident>);

impl Tables {
    fn add(&mut self, name: &ast::ObjectName) {
        self.0.extend(name.0.last().and_then(|part| part.as_ident()).cloned());
    }

    fn add_arguments(&mut self, arguments: &[ast::FunctionArg]) {
        for argument in arguments {
            let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument)) = argument else { continue };
            match argument {
                ast::Expr::Identifier(name) => self.0.push(name.clone()),
                ast::Expr::Value(value) => {
                    let text = value.value.clone().into_string();
                    self.0.extend(text.map(|text| ast::Ident::with_quote('"', text)));
                }
                _ => {}
            }
        }
    }
}

impl Visitor for Tables {
    type Break = Box<QueryError>;

    fn pre_visit_relation(&mut self, name: &ast::ObjectName) -> Flow {
        self.add(name);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &ast::TableFactor) -> Flow {
        match table {
            ast::TableFactor::Table { args: Some(arguments), .. } => self.add_arguments(&arguments.args),
            ast::TableFactor::Function { args, .. } => self.add_arguments(args),
            ast::TableFactor::TableFunction { expr: ast::Expr::Function(call), .. } => {
                if let ast::FunctionArguments::List(list) = &call.args {
                    self.add_arguments(&list.args);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// The places where a statement names columns and tables.
pub(crate) fn locations_of_names(statement: &DfStatement) -> HashSet<Location> {
    let inner = match statement {
        DfStatement::Statement(inner) => inner,
        DfStatement::Explain(explain) => return locations_of_names(&explain.statement),
        _ => return HashSet::new(),
    };
    let mut names = NamePlaces(HashSet::new());
    let _infallible = visit(inner.as_ref(), &mut names);
    names.0
}

/// Where names of columns and tables start.
struct NamePlaces(HashSet<Location>);

impl NamePlaces {
    fn add(&mut self, name: &ast::ObjectName) {
        self.0.extend(name.0.iter().filter_map(|part| part.as_ident()).map(start_of));
    }
}

impl Visitor for NamePlaces {
    type Break = Box<QueryError>;

    fn pre_visit_statement(&mut self, statement: &ast::Statement) -> Flow {
        match statement {
            ast::Statement::Insert(insert) => insert.columns.iter().for_each(|name| self.add(name)),
            ast::Statement::Update(update) => {
                for assignment in &update.assignments {
                    match &assignment.target {
                        ast::AssignmentTarget::ColumnName(name) => self.add(name),
                        ast::AssignmentTarget::Tuple(names) => names.iter().for_each(|name| self.add(name)),
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ast::ObjectName) -> Flow {
        self.add(name);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &ast::Expr) -> Flow {
        match expr {
            ast::Expr::Identifier(name) => self.0.extend([start_of(name)]),
            ast::Expr::CompoundIdentifier(names) => self.0.extend(names.iter().map(start_of)),
            // The parser takes the name `user` for a call.
            ast::Expr::Function(call) if call.args == ast::FunctionArguments::None => self.add(&call.name),
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
