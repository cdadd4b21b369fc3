//! Makes expressions.

use super::dialect::EbbtideDialect;
use super::visit::each_expr_mut;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName, Value,
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
