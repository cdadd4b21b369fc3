//! Statements about PostgreSQL's catalog in words that DataFusion knows.
//!
//! Parameters of what is left out stay in the statement, where their values do not matter: a client sends as many as it wrote.

use super::catalog::{VIEW_TEXTS, is_added};
use crate::context::PG_CATALOG;
use crate::sql::visit::{each_expr, each_expr_mut};
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, JoinOperator, Query, Select,
    SelectItem, SetExpr, Statement, TableFactor, Value, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use std::ops::ControlFlow;

/// Tables without rows about the tables of users: none has defaults, keys, indexes, policies or types of its own.
const WITHOUT_ROWS: [&str; 11] = [
    "pg_attrdef",
    "pg_auth_members",
    "pg_collation",
    "pg_constraint",
    "pg_enum",
    "pg_index",
    "pg_inherits",
    "pg_partitioned_table",
    "pg_policy",
    "pg_sequence",
    "pg_trigger",
];

/// Tables of `information_schema` without rows, and their columns of text.
const INFORMATION: [(&str, &str); 14] = [
    ("character_sets", "character_set_catalog character_set_schema character_set_name default_collate_name"),
    ("check_constraints", "constraint_catalog constraint_schema constraint_name check_clause"),
    ("collations", "collation_catalog collation_schema collation_name pad_attribute"),
    (
        "column_privileges",
        "grantor grantee table_catalog table_schema table_name column_name privilege_type is_grantable",
    ),
    (
        "constraint_column_usage",
        "table_catalog table_schema table_name column_name constraint_catalog constraint_schema constraint_name",
    ),
    ("domains", "domain_catalog domain_schema domain_name data_type domain_default udt_catalog udt_schema udt_name"),
    ("element_types", "object_catalog object_schema object_name object_type collection_type_identifier data_type"),
    (
        "key_column_usage",
        "constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name column_name \
         ordinal_position position_in_unique_constraint",
    ),
    (
        "referential_constraints",
        "constraint_catalog constraint_schema constraint_name unique_constraint_catalog unique_constraint_schema \
         unique_constraint_name match_option update_rule delete_rule",
    ),
    ("role_table_grants", "grantor grantee table_catalog table_schema table_name privilege_type is_grantable"),
    (
        "sequences",
        "sequence_catalog sequence_schema sequence_name data_type start_value minimum_value maximum_value increment cycle_option",
    ),
    (
        "table_constraints",
        "constraint_catalog constraint_schema constraint_name table_catalog table_schema table_name constraint_type \
         is_deferrable initially_deferred enforced nulls_distinct",
    ),
    (
        "table_privileges",
        "grantor grantee table_catalog table_schema table_name privilege_type is_grantable with_hierarchy",
    ),
    (
        "triggers",
        "trigger_catalog trigger_schema trigger_name event_manipulation event_object_schema event_object_table action_statement",
    ),
];

/// What a table of `information_schema` is replaced by: a query in parentheses; `None` for one that is there.
fn information(name: &str) -> Option<TableFactor> {
    let text = match name {
        "columns" => super::COLUMNS.to_owned(),
        _ => {
            let (_, columns) = INFORMATION.iter().find(|(table, _)| *table == name)?;
            let columns: Vec<String> =
                columns.split(' ').map(|column| format!("CAST(NULL AS TEXT) AS {column}")).collect();
            format!("SELECT * FROM (SELECT {} WHERE false) AS {name}", columns.join(", "))
        }
    };
    let Some(Statement::Query(query)) = Parser::parse_sql(&PostgreSqlDialect {}, &text).ok()?.pop() else {
        return None;
    };
    let SetExpr::Select(mut select) = *query.body else { return None };
    Some(select.from.pop()?.relation)
}

/// The text with what comes before names of types are looked up: `to_regtype(x)` is `x::regtype`.
pub(super) fn with_lookups(text: &str) -> Option<String> {
    let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, text).ok()?;
    each_expr_mut(&mut statements, &mut |expr| {
        if let Some((name, [argument])) = call(expr).as_ref().map(|(name, args)| (name.as_str(), args.as_slice()))
            && let Some(kind) = name.strip_prefix("to_").filter(|kind| kind.starts_with("reg"))
            && let Some(cast) = parsed(&format!("CAST({argument} AS {kind})"))
        {
            *expr = cast;
        }
    });
    let texts: Vec<String> = statements.iter().map(ToString::to_string).collect();
    Some(texts.join("; "))
}

/// Rewrites a statement.
pub(super) struct Known;

impl VisitorMut for Known {
    type Break = ();

    // After its parts, so that what is put there stays.
    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, .. } = table
            && let [ast::ObjectNamePart::Identifier(only)] = name.0.as_slice()
            && is_added(&only.value)
        {
            *name = ast::ObjectName::from(vec![ast::Ident::new(PG_CATALOG), only.clone()]);
        }
        if let TableFactor::Table { name, alias, .. } = table
            && let name = name.to_string().replace('"', "").to_ascii_lowercase()
            && let Some(name) = name.rsplit_once("information_schema.").map(|(_, name)| name)
            && let Some(mut put) = information(name)
        {
            if let (TableFactor::Derived { alias: named, .. }, Some(alias)) = (&mut put, alias.take()) {
                *named = Some(alias);
            }
            *table = put;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let put = match expr {
            Expr::Subquery(query) if has_no_rows(query) => nothing(expr),
            Expr::Subquery(query) => {
                single(query);
                None
            }
            Expr::Exists { subquery, negated } if has_no_rows(subquery) => {
                let found = if *negated { "true OR" } else { "false AND" };
                let parameters = parameters(expr);
                match parameters.is_empty() {
                    true => parsed(found.split(' ').next().unwrap_or_default()),
                    false => parsed(&format!("({found} concat({}) IS NULL)", parameters.join(", "))),
                }
            }
            Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
                let escape = escape_char.as_ref().and_then(|escape| text_of(&escape.value)).unwrap_or("\\").to_owned();
                if escape != "\\" && escape.chars().count() == 1 {
                    // Through a character that no pattern has: an escape before an escape is the character itself.
                    let pattern_of = format!(
                        "replace(replace(replace(replace({pattern}, '\\', '\\\\'), '{0}{0}', chr(1)), '{0}', '\\'), chr(1), '{0}')",
                        escape.replace('\'', "''"),
                    );
                    if let Some(escaped) = parsed(&pattern_of) {
                        (**pattern, *escape_char) = (escaped, None);
                    }
                }
                None
            }
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => match (is_truth(left), text_in(right)) {
                (true, Some("t" | "true")) => parsed(&format!("({left} = true)")),
                (true, Some("f" | "false")) => parsed(&format!("({left} = false)")),
                _ => None,
            },
            Expr::Function(function) => match &function.args {
                FunctionArguments::Subquery(_) if is_named(&function.name, "array") => empty_list(expr),
                _ => match call(expr).as_ref().map(|(name, args)| (name.as_str(), args.as_slice())) {
                    // One row for each item is what `unnest` beside it makes.
                    Some(("generate_subscripts", [list, dimension])) => {
                        parsed(&format!("CAST(array_length({list}, {dimension}) AS INT)"))
                    }
                    Some(("pg_get_viewdef", [of, ..])) => parsed(&format!(
                        "(SELECT min(texts.definition) FROM pg_catalog.{VIEW_TEXTS} texts WHERE texts.oid = {of})"
                    )),
                    _ => None,
                },
            },
            _ => None,
        };
        if let Some(put) = put {
            *expr = put;
        }
        ControlFlow::Continue(())
    }
}

fn parsed(text: &str) -> Option<Expr> {
    Parser::new(&PostgreSqlDialect {}).try_with_sql(text).ok()?.parse_expr().ok()
}

fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
        _ => None,
    }
}

fn text_in(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => text_of(&value.value),
        _ => None,
    }
}

/// Whether a name ends with this word.
fn is_named(name: &ast::ObjectName, word: &str) -> bool {
    name.0.last().and_then(|part| part.as_ident()).is_some_and(|part| part.value.eq_ignore_ascii_case(word))
}

/// The name of a function without its schema, in small letters, and its arguments.
fn call(expr: &Expr) -> Option<(String, Vec<Expr>)> {
    let Expr::Function(function) = expr else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    let argument = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    let name = function.name.0.last()?.as_ident()?.value.to_ascii_lowercase();
    Some((name, list.args.iter().map(argument).collect::<Option<Vec<_>>>()?))
}

/// The parameters within an expression, as texts.
fn parameters(of: &Expr) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    each_expr(of, &mut |expr| {
        if let Expr::Value(value) = expr
            && let Value::Placeholder(name) = &value.value
        {
            let text = format!("CAST({name} AS TEXT)");
            if !found.contains(&text) {
                found.push(text);
            }
        }
    });
    found
}

/// A null in the place of an expression.
fn nothing(expr: &Expr) -> Option<Expr> {
    let parameters = parameters(expr);
    match parameters.is_empty() {
        true => parsed("CAST(NULL AS TEXT)"),
        false => parsed(&format!("CASE WHEN false THEN concat({}) END", parameters.join(", "))),
    }
}

/// A list without items in the place of `ARRAY(SELECT ...)`.
fn empty_list(expr: &Expr) -> Option<Expr> {
    let parameters = parameters(expr);
    match parameters.is_empty() {
        true => parsed("array_remove(make_array(CAST('' AS TEXT)), '')"),
        false => parsed(&format!("array_remove(make_array(left(concat({}), 0)), '')", parameters.join(", "))),
    }
}

/// Whether a column holds truths, by its name.
fn is_truth(expr: &Expr) -> bool {
    let name = match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(names) => names.last(),
        _ => None,
    };
    let truths =
        ["indis", "attis", "atthas", "attnotnull", "relhas", "relis", "rolcan", "rolsuper", "condeferr", "datis"];
    name.is_some_and(|name| truths.iter().any(|truth| name.value.to_ascii_lowercase().starts_with(truth)))
}

/// The tables that a query reads by inner joins, each with the name by which its columns are known.
fn tables(select: &Select) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut add = |table: &TableFactor| {
        if let TableFactor::Table { name, alias, .. } = table
            && let Some(name) = name.0.last().and_then(|part| part.as_ident())
        {
            let known = alias.as_ref().map_or(name, |alias| &alias.name);
            found.push((name.value.to_ascii_lowercase(), known.value.clone()));
        }
    };
    for from in &select.from {
        add(&from.relation);
        for join in &from.joins {
            let is_inner = matches!(
                join.join_operator,
                JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_)
            );
            if is_inner {
                add(&join.relation);
            }
        }
    }
    found
}

/// Whether a query about the tables of users has no rows.
fn has_no_rows(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let is_count = |item: &SelectItem| item.to_string().to_ascii_lowercase().contains("count(");
    !select.projection.iter().any(is_count)
        && tables(select).iter().any(|(table, _)| WITHOUT_ROWS.contains(&table.as_str()))
}

/// Puts an aggregate into a subquery for one value that refers to what is around it: DataFusion asks for one, and there is
/// one row.
fn single(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let known = tables(select);
    let mut is_correlated = false;
    each_expr(&select.selection, &mut |expr| {
        if let Expr::CompoundIdentifier(names) = expr
            && let Some(table) = names.len().checked_sub(2).and_then(|at| names.get(at))
        {
            is_correlated |= !known.iter().any(|(_, known)| *known == table.value);
        }
    });
    let [item] = select.projection.as_mut_slice() else { return };
    let (SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }) = item else { return };
    if is_correlated
        && query.limit_clause.is_none()
        && !matches!(value, Expr::Function(_) | Expr::Case { .. })
        && let Some(least) = parsed(&format!("min({value})"))
    {
        *value = least;
    }
}

#[cfg(test)]
mod tests {
    use crate::postgres::rewritten;

    #[test]
    fn parameters_of_what_is_left_out_stay() {
        let text = rewritten(
            "SELECT CASE WHEN c.relkind = $2 THEN (SELECT seqmin FROM pg_sequence s WHERE s.seqrelid = c.oid AND s.x = $1) END, \
             ARRAY(SELECT $3 FROM pg_roles) FROM pg_class c",
        );
        let text = text.unwrap();
        assert!(!text.contains("pg_sequence") && !text.contains("pg_roles"), "{text}");
        assert!(["$1", "$2", "$3"].iter().all(|parameter| text.contains(parameter)), "{text}");
    }

    #[test]
    fn what_datafusion_does_not_know_is_written_otherwise() {
        for (asked, meant) in [
            ("SELECT 1 FROM pg_namespace WHERE nspname LIKE $1 || '%' ESCAPE '/'", "replace("),
            ("SELECT 1 FROM pg_index i WHERE i.indisprimary = 't'", "i.indisprimary = true"),
            ("SELECT 1 FROM pg_type t WHERE t.oid = to_regtype($1)", "WHERE typname = $1"),
            ("SELECT pg_get_viewdef(c.oid, true) FROM pg_class c", "texts.oid = c.oid"),
            ("SELECT generate_subscripts(indkey, $1::int) FROM pg_index", "array_length(indkey, $1"),
            ("SELECT * FROM pg_indexes", "FROM pg_catalog.pg_indexes"),
        ] {
            let text = rewritten(asked).unwrap();
            assert!(text.contains(meant) && !text.contains("ESCAPE"), "{asked}\n{text}");
        }
    }
}
