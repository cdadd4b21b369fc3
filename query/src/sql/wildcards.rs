//! Items of a list that stand for columns: `COLUMNS(...)`, and `*` with names to change.

use super::expressions::calls_in;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart, SelectItem,
    SelectItemQualifiedWildcardKind, WildcardAdditionalOptions,
};

/// What is selected to learn which columns an item may stand for; `None` if it stands for itself.
pub(super) fn wildcard_of(item: &SelectItem) -> Option<SelectItem> {
    let mut wildcard = match item {
        SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) if options.opt_rename.is_some() => {
            item.clone()
        }
        item => match argument(calls_in(expr_of(item)?, is_columns).first()?) {
            Some(FunctionArgExpr::WildcardWithOptions(options)) => SelectItem::Wildcard(options),
            Some(FunctionArgExpr::QualifiedWildcard(name)) => {
                let table = SelectItemQualifiedWildcardKind::ObjectName(name);
                SelectItem::QualifiedWildcard(table, WildcardAdditionalOptions::default())
            }
            _ => SelectItem::Wildcard(WildcardAdditionalOptions::default()),
        },
    };
    if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = &mut wildcard {
        options.opt_rename = None;
    }
    Some(wildcard)
}

/// The expression of an item.
pub(super) fn expr_of(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// Whether an expression is a call of `COLUMNS`.
pub(super) fn is_columns(expr: &Expr) -> bool {
    let Expr::Function(Function { name, over: None, filter: None, .. }) = expr else { return false };
    matches!(
        name.0.as_slice(),
        [ObjectNamePart::Identifier(name)] if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("columns")
    )
}

/// The argument of a call of `COLUMNS`.
pub(super) fn argument(call: &Expr) -> Option<FunctionArgExpr> {
    let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = call else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(argument)] => Some(argument.clone()),
        _ => None,
    }
}
