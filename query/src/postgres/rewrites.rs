//! Statements about PostgreSQL's catalog in words that DataFusion knows.
//!
//! A statement that reads other tables too is answered as it is written: only names of tables, types and functions are changed in it.
//! Parameters of what is left out stay in the statement, where their values do not matter: a client sends as many as it wrote.

use super::catalog::{VIEW_TEXTS, is_added};
use crate::context::PG_CATALOG;
use crate::error::QueryError;
use crate::functions::TABLE_FUNCTIONS;
use crate::sql::lists::{has_aggregate, query_of};
use crate::sql::visit::{Flow, each_expr, each_expr_mut, visit};
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, JoinOperator, Query,
    Select, SelectItem, SetExpr, Statement, TableFactor, Value, VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion_pg_catalog::pg_catalog::PG_CATALOG_TABLES;
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

/// What a table of `information_schema`, or `pg_views`, is replaced by: a query in parentheses; `None` for one that is there.
fn information(name: &str) -> Option<TableFactor> {
    let text = match name {
        "columns" => super::COLUMNS.to_owned(),
        "views" => super::VIEWS.to_owned(),
        "pg_views" => super::PG_VIEWS.to_owned(),
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

/// Replaces what looks names of types up: `to_regtype(x)` is `x::regtype`.
pub(super) fn look_up(node: &mut impl VisitMut) {
    each_expr_mut(node, &mut |expr| {
        if let Some((name, [argument])) = call(expr).as_ref().map(|(name, args)| (name.as_str(), args.as_slice()))
            && let Some(kind) = name.strip_prefix("to_").filter(|kind| kind.starts_with("reg"))
            && let Some(cast) = parsed(&format!("CAST({argument} AS {kind})"))
        {
            *expr = cast;
        }
    });
}

/// A text in which names of types are [looked up](look_up).
pub(super) fn with_lookups(text: &str) -> Option<String> {
    let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, text).ok()?;
    look_up(&mut statements);
    let texts: Vec<String> = statements.iter().map(ToString::to_string).collect();
    Some(texts.join("; "))
}

/// Whether a statement is a query of tables of the catalog alone.
pub(super) fn is_of_catalog(statement: &Statement) -> bool {
    let is_query = matches!(statement, Statement::Query(_) | Statement::Explain { .. });
    is_query && Tables::of(statement).of_catalog && !reads_others(statement)
}

/// Whether a statement reads tables that are not of the catalog.
pub(super) fn reads_others(statement: &Statement) -> bool {
    let tables = Tables::of(statement);
    tables.others.iter().any(|name| !tables.named.contains(name))
}

/// The tables of a statement.
#[derive(Default)]
struct Tables {
    /// Whether there are some of the catalog.
    of_catalog: bool,
    /// Those that are not of the catalog.
    others: Vec<String>,
    /// Names that WITH gives to queries.
    named: Vec<String>,
}

impl Tables {
    fn of(statement: &Statement) -> Tables {
        let mut tables = Tables::default();
        let _infallible = visit(statement, &mut tables);
        tables
    }
}

impl Visitor for Tables {
    type Break = Box<QueryError>;

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        let named = query.with.iter().flat_map(|with| &with.cte_tables);
        self.named.extend(named.map(|table| table.alias.name.value.to_ascii_lowercase()));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> Flow {
        match table {
            TableFactor::Table { name, args: None, .. } if is_catalog_table(name) => self.of_catalog = true,
            TableFactor::Table { name, args: None, .. } => {
                let parts =
                    name.0.iter().filter_map(|part| part.as_ident()).map(|part| part.value.to_ascii_lowercase());
                self.others.push(parts.collect::<Vec<_>>().join("."));
            }
            TableFactor::Table { name, .. } | TableFactor::Function { name, .. } => {
                let reads = |name: &&str| TABLE_FUNCTIONS.contains(name) || name.starts_with("read_");
                self.others.extend(last_of(name).filter(|name| reads(&name.as_str())));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// The last part of a name in small letters.
fn last_of(name: &ast::ObjectName) -> Option<String> {
    Some(name.0.last()?.as_ident()?.value.to_ascii_lowercase())
}

fn is_catalog_table(name: &ast::ObjectName) -> bool {
    let parts: Vec<String> =
        name.0.iter().filter_map(|part| part.as_ident()).map(|part| part.value.to_ascii_lowercase()).collect();
    match parts.as_slice() {
        [only] => PG_CATALOG_TABLES.contains(&only.as_str()) || is_added(only),
        [.., schema, _] => schema == PG_CATALOG || schema == "information_schema",
        [] => false,
    }
}

/// Rewrites a statement.
pub(super) struct Known {
    /// Whether it [is of the catalog](is_of_catalog) alone.
    pub(super) of_catalog: bool,
}

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
            && let Some((_, name)) = ["information_schema.", "pg_catalog."].iter().find_map(|of| name.rsplit_once(*of))
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
            Expr::Function(_) if !self.of_catalog => view_text(expr),
            _ if !self.of_catalog => None,
            Expr::Subquery(query) if is_null(query) => nothing(expr),
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
                _ => function_of(left, right).or_else(|| function_of(right, left)),
            },
            Expr::Function(function) => match query_of(function) {
                // DataFusion cannot run all lists about the rows around them, so these are empty.
                Some(query) if has_no_rows(query) || is_of_rows_around(query) => empty_list(expr),
                Some(_) => None,
                None => match call(expr).as_ref().map(|(name, args)| (name.as_str(), args.as_slice())) {
                    // One row for each item is what `unnest` beside it makes.
                    Some(("generate_subscripts", [list, dimension])) => {
                        parsed(&format!("CAST(array_length({list}, {dimension}) AS INT)"))
                    }
                    _ => view_text(expr),
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

/// A condition that looks for a function by its number, where a column of a type has its name here: `p.oid = t.typreceive`.
fn function_of(number: &Expr, column: &Expr) -> Option<Expr> {
    const COLUMNS: [&str; 6] = ["typinput", "typoutput", "typreceive", "typsend", "typmodin", "typmodout"];
    let (Expr::CompoundIdentifier(number), Expr::CompoundIdentifier(names)) = (number, column) else { return None };
    let is_function = names.last().is_some_and(|name| COLUMNS.iter().any(|of| name.value.eq_ignore_ascii_case(of)));
    let (last, table) = number.split_last()?;
    if !is_function || !last.value.eq_ignore_ascii_case("oid") {
        return None;
    }
    let name = table.iter().cloned().chain([ast::Ident::new("proname")]).collect();
    let (left, right) = (Box::new(Expr::CompoundIdentifier(name)), Box::new(column.clone()));
    Some(Expr::BinaryOp { left, op: BinaryOperator::Eq, right })
}

/// What `pg_get_viewdef(...)` is replaced by.
fn view_text(expr: &Expr) -> Option<Expr> {
    match call(expr).as_ref().map(|(name, args)| (name.as_str(), args.as_slice())) {
        Some(("pg_get_viewdef", [of, ..])) => {
            parsed(&format!("(SELECT min(texts.definition) FROM pg_catalog.{VIEW_TEXTS} texts WHERE texts.oid = {of})"))
        }
        _ => None,
    }
}

/// The name of a function without its schema, in small letters, and its arguments.
fn call(expr: &Expr) -> Option<(String, Vec<Expr>)> {
    let Expr::Function(function) = expr else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    let argument = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    let name = last_of(&function.name)?;
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

/// The names by which the columns of a query's tables are known.
fn names(select: &Select) -> Vec<String> {
    let tables = select
        .from
        .iter()
        .flat_map(|from| std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)));
    let name = |table: &TableFactor| match table {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            Some(alias.name.value.to_ascii_lowercase())
        }
        TableFactor::Table { name, .. } => last_of(name),
        _ => None,
    };
    tables.filter_map(name).collect()
}

/// The tables that have to have rows for a query to have some.
fn required(select: &Select) -> Vec<String> {
    let mut found = Vec::new();
    for from in &select.from {
        let name = |table: &TableFactor| match table {
            TableFactor::Table { name, .. } => last_of(name),
            _ => None,
        };
        let mut of_joins: Vec<String> = name(&from.relation).into_iter().collect();
        for join in &from.joins {
            match &join.join_operator {
                JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_) => {
                    of_joins.extend(name(&join.relation));
                }
                JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => {}
                JoinOperator::Right(_) | JoinOperator::RightOuter(_) => {
                    of_joins.clear();
                    of_joins.extend(name(&join.relation));
                }
                _ => of_joins.clear(),
            }
        }
        found.extend(of_joins);
    }
    found
}

/// Whether a query reads rows of a table that has none, and has no row of an aggregate either.
fn has_no_rows(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    reads_nothing(select) && (is_grouped(select) || !(select.having.is_some() || has_aggregate(&select.projection)))
}

fn reads_nothing(select: &Select) -> bool {
    required(select).iter().any(|table| WITHOUT_ROWS.contains(&table.as_str()))
}

/// Whether there is a row for each group, and none where there are no rows.
fn is_grouped(select: &Select) -> bool {
    let GroupByExpr::Expressions(groups, modifiers) = &select.group_by else { return true };
    let is_one =
        |group: &Expr| !matches!(group, Expr::GroupingSets(_) | Expr::Cube(_) | Expr::Rollup(_) | Expr::Tuple(_));
    !groups.is_empty() && modifiers.is_empty() && groups.iter().all(is_one)
}

/// Whether a subquery for one value is NULL: it has no rows, or one with an aggregate that is NULL of no rows.
fn is_null(query: &Query) -> bool {
    const COUNTS: [&str; 4] = ["approx_distinct", "count", "grouping", "regr_count"];
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let is_null_of_none = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. } => {
            matches!(value, Expr::Function(function)
                if has_aggregate(value) && last_of(&function.name).is_some_and(|name| !COUNTS.contains(&name.as_str())))
                && call(value).is_some_and(|(_, args)| !has_aggregate(&args))
        }
        _ => false,
    };
    has_no_rows(query) || (reads_nothing(select) && select.projection.iter().all(is_null_of_none))
}

/// Whether a query refers to what is around it, in its condition or by a function of columns.
fn is_of_rows_around(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let unnests = select.from.iter().any(|from| {
        let mut has_columns = false;
        if !matches!(from.relation, TableFactor::Table { args: None, .. } | TableFactor::Derived { .. }) {
            each_expr(&from.relation, &mut |expr| {
                has_columns |= matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
            });
        }
        has_columns
    });
    unnests || refers_outside(select)
}

/// Whether the condition of a query refers to a table around it.
fn refers_outside(select: &Select) -> bool {
    let known = names(select);
    let mut found = false;
    each_expr(&select.selection, &mut |expr| {
        if let Expr::CompoundIdentifier(names) = expr
            && let Some(table) = names.len().checked_sub(2).and_then(|at| names.get(at))
        {
            found |= !known.iter().any(|known| table.value.eq_ignore_ascii_case(known));
        }
    });
    found
}

/// Puts an aggregate into a subquery for one value that refers to what is around it: DataFusion asks for one, and there is
/// one row.
fn single(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let is_correlated = refers_outside(select);
    let [item] = select.projection.as_mut_slice() else { return };
    let (SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }) = item else { return };
    if is_correlated
        && query.limit_clause.is_none()
        && !matches!(value, Expr::Function(_) | Expr::Case { .. })
        && !has_aggregate(value)
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
             ARRAY(SELECT $3 FROM pg_policy) FROM pg_class c",
        );
        let text = text.unwrap();
        assert!(!text.contains("pg_sequence") && !text.contains("pg_policy"), "{text}");
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
            ("SELECT 1 FROM pg_type a JOIN pg_proc ON pg_proc.oid = a.typreceive", "pg_proc.proname = a.typreceive"),
            ("SELECT 1 FROM pg_type t, pg_proc p WHERE t.typsend = p.oid", "p.proname = t.typsend"),
        ] {
            let text = rewritten(asked).unwrap();
            assert!(text.contains(meant) && !text.contains("ESCAPE"), "{asked}\n{text}");
        }
    }
    #[test]
    fn statements_that_read_other_tables_are_left_as_they_are() {
        for text in [
            "SELECT mpg_city, (SELECT max(x) FROM q WHERE q.k = w.k) FROM w",
            "SELECT ARRAY(SELECT pg_number FROM q) FROM w",
            "SELECT (SELECT q.pg FROM public.pg_constraint AS q WHERE q.k = w.k) FROM pg_readings AS w",
            "SELECT w.pg_x, EXISTS (SELECT 1 FROM other.pg_index) FROM latest('w') AS w",
            "SELECT a FROM w WHERE pg_x LIKE 'a/%' ESCAPE '/' AND indisprimary = 't' AND n = ANY('{1,2}')",
            "INSERT INTO w (t, mpg_city) VALUES (now(), 1)",
            "SELECT ARRAY(SELECT 1), version(1)",
        ] {
            assert_eq!(rewritten(text), None, "{text}");
        }
    }

    #[test]
    fn names_of_the_catalog_are_known_beside_other_tables() {
        for (asked, meant) in [
            ("SELECT mpg_city FROM w JOIN pg_class c ON true", "JOIN pg_catalog.pg_class c"),
            ("SELECT mpg_city, pg_catalog.upper(s) FROM w", "SELECT mpg_city, upper(s)"),
            ("SELECT mpg_city FROM w JOIN pg_indexes ON true", "JOIN pg_catalog.pg_indexes"),
            ("SELECT s, 'w'::regclass FROM w", "FROM pg_catalog.pg_class"),
            (
                "SELECT s, current_user, (SELECT max(x) FROM q WHERE q.k = w.k) FROM w",
                "(SELECT max(x) FROM q WHERE q.k = w.k)",
            ),
            ("WITH w AS (SELECT 1 FROM pg_class) SELECT EXISTS (SELECT 1 FROM pg_index) FROM w", "SELECT false FROM w"),
        ] {
            let text = rewritten(asked).unwrap();
            assert!(text.contains(meant), "{asked}\n{text}");
        }
    }

    #[test]
    fn subqueries_about_tables_without_rows_have_the_value_that_they_have_of_no_rows() {
        let null = "CAST(NULL AS TEXT)";
        let empty = "array_remove(make_array(CAST('' AS TEXT)), '')";
        for (asked, meant) in [
            ("(SELECT indexrelid FROM pg_index LIMIT 1)", null),
            ("(SELECT array_agg(indexrelid) FROM pg_index LIMIT 1)", null),
            ("coalesce((SELECT string_agg(x, ',') FROM pg_index), '')", "coalesce(CAST(NULL AS TEXT), '')"),
            ("1 + (SELECT count(*) FROM pg_index)", "(SELECT count(*) FROM pg_catalog.pg_index)"),
            ("1 + (SELECT coalesce(sum(x), 0) FROM pg_index)", "coalesce(sum(x), 0)"),
            ("EXISTS (SELECT 1 FROM pg_index)", "SELECT false FROM"),
            ("EXISTS (SELECT count(*) FROM pg_index)", "EXISTS (SELECT count(*)"),
            ("EXISTS (SELECT count(*) FROM pg_index GROUP BY x)", "SELECT false FROM"),
            ("ARRAY(SELECT x FROM pg_index)", empty),
            ("ARRAY(SELECT count(*) FROM pg_index)", "ARRAY(SELECT count(*)"),
            ("ARRAY(SELECT x FROM pg_roles)", "ARRAY(SELECT x FROM pg_catalog.pg_roles)"),
            ("ARRAY(SELECT x FROM unnest(c.reloptions) x)", empty),
            ("EXISTS (SELECT 1 FROM pg_class d LEFT JOIN pg_index i ON true)", "EXISTS (SELECT 1"),
            ("EXISTS (SELECT 1 FROM pg_index i RIGHT JOIN pg_class d ON true)", "EXISTS (SELECT 1"),
            ("EXISTS (SELECT 1 FROM pg_class d RIGHT JOIN pg_index i ON true)", "SELECT false FROM"),
            ("EXISTS (SELECT 1 FROM pg_index i FULL JOIN pg_class d ON true)", "EXISTS (SELECT 1"),
            ("EXISTS (SELECT 1 FROM pg_index i LEFT JOIN pg_class d ON true)", "SELECT false FROM"),
        ] {
            let text = rewritten(&format!("SELECT {asked} FROM pg_class c")).unwrap();
            assert!(text.contains(meant), "{asked}\n{text}");
        }
    }

    #[test]
    fn an_aggregate_of_a_subquery_is_not_put_into_another_one() {
        for (asked, meant) in [
            ("(SELECT max(x) + 1 FROM pg_type t WHERE t.oid = c.oid)", "SELECT max(x) + 1 FROM"),
            ("(SELECT count(*)::int FROM pg_type t WHERE t.oid = c.oid)", "SELECT count(*)::INT FROM"),
            ("(SELECT t.x FROM pg_type t WHERE t.oid = c.oid)", "SELECT min(t.x) FROM"),
            ("(SELECT t.x FROM pg_type t LEFT JOIN pg_am a ON true WHERE a.oid = T.oid)", "SELECT t.x FROM"),
        ] {
            let text = rewritten(&format!("SELECT 1 FROM pg_class c WHERE 1 = {asked}")).unwrap();
            assert!(text.contains(meant), "{asked}\n{text}");
        }
    }
}
