//! Makes expressions, and adds to them.

use super::dialect::EbbtideDialect;
use super::visit::{each_expr_mut, each_outer_expr_mut};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, Value,
};
use datafusion::sql::sqlparser::parser::Parser;

/// A call of a function by its name.
pub(super) fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).collect();
    let list = FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() };
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(list),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// `CAST(expr AS kind)`.
pub(crate) fn cast_of(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

/// Those within an expression, or the expression itself, that `is` selects, but not those of subqueries.
pub(super) fn calls_in(expr: &Expr, is: fn(&Expr) -> bool) -> Vec<Expr> {
    let mut found = Vec::new();
    each_outer_expr_mut(&mut expr.clone(), &mut |expr| {
        if is(expr) {
            found.push(expr.clone());
        }
    });
    found
}

/// Parses an expression and substitutes `args` for `$1` and so on.
pub(super) fn filled(text: &str, args: &[Expr]) -> Option<Expr> {
    let mut expr = Parser::new(&EbbtideDialect).try_with_sql(text).ok()?.parse_expr().ok()?;
    each_expr_mut(&mut expr, &mut |expr| {
        if let Expr::Value(value) = expr
            && let Value::Placeholder(place) = &value.value
            && let Some(arg) = place.strip_prefix('$').and_then(|n| args.get(n.parse::<usize>().ok()?.checked_sub(1)?))
        {
            *expr = match arg {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) | Expr::Cast { .. } => arg.clone(),
                other => Expr::Nested(Box::new(other.clone())),
            };
        }
    });
    Some(expr)
}

/// Adds a condition to the FILTER of all aggregates of an expression, but not to those of subqueries; returns whether there are any.
/// `aggregates` says what an aggregate is.
pub(super) fn add_filter(expr: &mut Expr, condition: &Expr, aggregates: fn(&Function) -> bool) -> bool {
    let mut is_found = false;
    each_outer_expr_mut(expr, &mut |expr| {
        if let Expr::Function(call) = expr
            && aggregates(call)
        {
            call.filter = Some(Box::new(match call.filter.take() {
                Some(given) => {
                    let left = Box::new(Expr::Nested(given));
                    Expr::BinaryOp { left, op: BinaryOperator::And, right: Box::new(condition.clone()) }
                }
                None => condition.clone(),
            }));
            is_found = true;
        }
    });
    is_found
}
