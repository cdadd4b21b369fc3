//! Refuses, by name, parts of SQL that DataFusion would silently leave out of the plan, or answer wrongly.

use super::joins::constraint;
use super::visit::{Flow, visit};
use crate::error::{QueryError, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArgumentClause, FunctionArguments, GroupByExpr, JoinConstraint, JoinOperator, LimitClause,
    NamedWindowDefinition, NamedWindowExpr, NullTreatment, OrderByExpr, OrderByKind, Query, Select, SetExpr,
    SetOperator, SetQuantifier, TableAlias, TableFactor, TableWithJoins, UnaryOperator, Visit, Visitor,
    WindowFrameBound, WindowSpec, WindowType,
};
use ebbtide_ttl::Code;
use std::ops::ControlFlow;

/// Refuses parts of a statement that have no effect, or another one than they should.
///
/// # Errors
/// [`Code::BadValue`], with the name of the part.
pub(super) fn check(statement: &impl Visit) -> Result<()> {
    visit(statement, &mut Refusal)
}

struct Refusal;

pub(super) fn refused(what: &str) -> Flow {
    ControlFlow::Break(Box::new(QueryError::new(Code::BadValue, format!("not supported: {what}"))))
}

/// Refuses joins without a condition, which DataFusion would run as cross joins, and kinds of joins that it does not support.
fn joins(from: &[TableWithJoins]) -> Flow {
    for join in from.iter().flat_map(|from| &from.joins) {
        match (&join.join_operator, constraint(&join.join_operator)) {
            (JoinOperator::CrossJoin(JoinConstraint::None), _) => {}
            (JoinOperator::CrossJoin(_), _) => return refused("CROSS JOIN with a condition; write JOIN"),
            (_, Some(JoinConstraint::None)) => {
                let message = "a join needs a condition: write ON a.x = b.x or USING (x) after its table, or CROSS JOIN for every pair of rows";
                return ControlFlow::Break(Box::new(QueryError::new(Code::BadValue, message)));
            }
            (_, Some(_)) => {}
            (_, None) => {
                return refused(
                    "this kind of JOIN; there are INNER, LEFT, RIGHT, FULL, CROSS, ASOF, SEMI and ANTI joins",
                );
            }
        }
    }
    ControlFlow::Continue(())
}

/// Refuses the first part that is used.
fn first(parts: &[(bool, &str)]) -> Flow {
    match parts.iter().find(|(is_used, _)| *is_used) {
        Some((_, what)) => refused(what),
        None => ControlFlow::Continue(()),
    }
}

const SAMPLE: &str = "TABLESAMPLE and SAMPLE; write WHERE random() < 0.01 for one row in a hundred";

impl Visitor for Refusal {
    type Break = Box<QueryError>;

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        // Without `..`, so that parts added by a new version of the parser have to be considered here.
        let Query {
            with,
            body,
            order_by,
            limit_clause,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators: _,
        } = query;
        let limit_by = matches!(limit_clause, Some(LimitClause::LimitOffset { limit_by, .. }) if !limit_by.is_empty());
        let fills = |by: &OrderByExpr| by.with_fill.is_some();
        let (interpolates, fills) = match order_by {
            Some(order) => (
                order.interpolate.is_some(),
                matches!(&order.kind, OrderByKind::Expressions(by) if by.iter().any(fills)),
            ),
            None => (false, false),
        };
        let repeats = keeps_repeated_rows(body);
        let mut tables = with.iter().flat_map(|with| &with.cte_tables);
        let ties = fetch.as_ref().is_some_and(|fetch| fetch.with_ties || fetch.percent);
        first(&[
            (!locks.is_empty(), "FOR UPDATE and FOR SHARE; a statement sees one instant and locks nothing"),
            (for_clause.is_some(), "FOR XML and FOR JSON; use --format json for JSON"),
            (settings.is_some(), "SETTINGS"),
            (format_clause.is_some(), "FORMAT in SQL; choose a format with --format csv or -o FILE"),
            (repeats, "INTERSECT ALL and EXCEPT ALL; INTERSECT and EXCEPT return each row once"),
            (limit_by, "LIMIT ... BY; write QUALIFY row_number() OVER (PARTITION BY x ORDER BY y) <= n"),
            (ties, "FETCH ... PERCENT and WITH TIES"),
            (interpolates || fills, "WITH FILL and INTERPOLATE; date_bin_gapfill fills gaps"),
            (
                tables.any(|table| table.materialized.is_some() || table.from.is_some()),
                "[NOT] MATERIALIZED; leave the word out",
            ),
        ])
    }

    fn pre_visit_select(&mut self, select: &Select) -> Flow {
        let Select {
            select_token: _,
            optimizer_hints,
            distinct: _,
            select_modifiers,
            top,
            top_before_distinct: _,
            projection: _,
            exclude,
            into: _,
            from,
            lateral_views,
            prewhere,
            selection: _,
            connect_by,
            group_by,
            cluster_by,
            distribute_by,
            sort_by,
            having: _,
            named_window,
            qualify: _,
            window_before_qualify: _,
            value_table_mode,
            flavor: _,
        } = select;
        let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = group_by;
        let negative = named_window.iter().any(|NamedWindowDefinition(_, window)| match window {
            NamedWindowExpr::WindowSpec(window) => has_negative_distance(window),
            NamedWindowExpr::NamedWindow(_) => false,
        });
        joins(from)?;
        let global = |table: &TableWithJoins| table.joins.iter().any(|join| join.global);
        first(&[
            (!optimizer_hints.is_empty(), "optimizer hints"),
            (select_modifiers.as_ref().is_some_and(|m| m.is_any_set()), "modifiers of SELECT such as HIGH_PRIORITY"),
            (top.is_some(), "TOP; write LIMIT n at the end"),
            (exclude.is_some(), "EXCLUDE after the list; write * EXCLUDE (a, b)"),
            (!lateral_views.is_empty(), "LATERAL VIEW; unnest(x) turns a list into rows"),
            (prewhere.is_some(), "PREWHERE; write WHERE"),
            (!connect_by.is_empty(), "CONNECT BY; write WITH RECURSIVE"),
            (!modifiers.is_empty(), "WITH ROLLUP, CUBE and TOTALS; write GROUP BY ROLLUP (a, b)"),
            (!cluster_by.is_empty() || !distribute_by.is_empty(), "CLUSTER BY and DISTRIBUTE BY"),
            (!sort_by.is_empty(), "SORT BY; write ORDER BY"),
            (negative, NEGATIVE_DISTANCE),
            (value_table_mode.is_some(), "SELECT AS VALUE and SELECT AS STRUCT"),
            (from.iter().any(global), "GLOBAL JOIN; leave out GLOBAL"),
        ])
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> Flow {
        let alias_at = |alias: &Option<TableAlias>| alias.as_ref().is_some_and(|alias| alias.at.is_some());
        match table {
            TableFactor::Table {
                name: _,
                alias,
                args,
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
            } => {
                let is_final = alias.as_ref().is_some_and(|alias| {
                    !alias.explicit
                        && alias.name.quote_style.is_none()
                        && alias.name.value.eq_ignore_ascii_case("final")
                });
                first(&[
                    (sample.is_some(), SAMPLE),
                    (is_final, "FINAL; measurements are never merged, so leave the word out"),
                    (
                        !with_hints.is_empty(),
                        "WITH (NOLOCK) and other hints; a statement sees one instant and locks nothing",
                    ),
                    (version.is_some(), "FOR SYSTEM_TIME AS OF; ebbtide sql --now TIME reads at another instant"),
                    (*with_ordinality, "WITH ORDINALITY; row_number() OVER () numbers rows"),
                    (!partitions.is_empty(), "PARTITION; collections have none"),
                    (json_path.is_some(), "a path into JSON after a table"),
                    (!index_hints.is_empty(), "USE INDEX and other hints"),
                    (alias_at(alias), "AT after a table"),
                    (args.as_ref().is_some_and(|args| args.settings.is_some()), "SETTINGS"),
                ])
            }
            TableFactor::Derived { lateral: _, subquery: _, alias, sample } => {
                first(&[(sample.is_some(), SAMPLE), (alias_at(alias), "AT after a table")])
            }
            TableFactor::Function { lateral: _, name: _, args: _, with_ordinality, alias } => first(&[
                (*with_ordinality, "WITH ORDINALITY; row_number() OVER () numbers rows"),
                (alias_at(alias), "AT after a table"),
            ]),
            TableFactor::NestedJoin { table_with_joins, alias: _ } => {
                joins(std::slice::from_ref(table_with_joins.as_ref()))
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        match expr {
            Expr::Function(Function { parameters, name, .. }) if *parameters != FunctionArguments::None => {
                refused(&format!("{name}(...)(...): a function has one list of arguments"))
            }
            Expr::Function(function) => first(&[
                (
                    skips_nulls_over_rows(function),
                    "lead, and lag with a negative distance, over several rows with IGNORE NULLS",
                ),
                (
                    matches!(&function.over, Some(WindowType::WindowSpec(window)) if has_negative_distance(window)),
                    NEGATIVE_DISTANCE,
                ),
            ]),
            Expr::SimilarTo { .. } => first(&[(true, "SIMILAR TO; write LIKE, or ~ with a regular expression")]),
            _ => ControlFlow::Continue(()),
        }
    }
}

const NEGATIVE_DISTANCE: &str = "a negative distance in a window; PRECEDING and FOLLOWING say the direction";

/// Whether rows that occur several times are told apart by INTERSECT or EXCEPT: DataFusion returns too many or too few.
fn keeps_repeated_rows(body: &SetExpr) -> bool {
    match body {
        SetExpr::SetOperation { op, set_quantifier, left, right } => {
            let all = matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName);
            (*op != SetOperator::Union && all) || keeps_repeated_rows(left) || keeps_repeated_rows(right)
        }
        _ => false,
    }
}

/// `lead(x, 2) IGNORE NULLS` and the like: DataFusion takes other rows.
fn skips_nulls_over_rows(function: &Function) -> bool {
    let FunctionArguments::List(list) = &function.args else { return false };
    let clauses = &list.clauses;
    let ignores = function.null_treatment == Some(NullTreatment::IgnoreNulls)
        || clauses.contains(&FunctionArgumentClause::IgnoreOrRespectNulls(NullTreatment::IgnoreNulls));
    let name = function.name.to_string().to_lowercase();
    match list.args.get(1).map(ToString::to_string) {
        Some(distance) if ignores => match name.as_str() {
            "lead" => distance != "1",
            "lag" => distance.parse::<u64>().is_err(),
            _ => false,
        },
        _ => false,
    }
}

fn has_negative_distance(window: &WindowSpec) -> bool {
    let is_negative = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(Some(distance)) | WindowFrameBound::Following(Some(distance)) => {
            match distance.as_ref() {
                Expr::Interval(interval) => interval.value.to_string().trim_matches(['\'', ' ']).starts_with('-'),
                Expr::UnaryOp { op: UnaryOperator::Minus, .. } => true,
                _ => false,
            }
        }
        _ => false,
    };
    let Some(frame) = &window.window_frame else { return false };
    is_negative(&frame.start_bound) || frame.end_bound.as_ref().is_some_and(is_negative)
}
