//! `x::uuid` and `UUID '...'`: calls of functions in the place of casts to a type that DataFusion does not know.

use super::expressions::{call, cast_of};
use super::visit::Flow;
use crate::error::QueryError;
use crate::functions::uuids::{TRY_UUID, UUID};
use datafusion::sql::sqlparser::ast::{CastKind, DataType, Expr, Value, VisitorMut};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use std::ops::ControlFlow;

/// Whether a statement of these tokens may have such casts.
pub(super) fn may_cast(tokens: &[TokenWithSpan]) -> bool {
    tokens.iter().any(|token| matches!(&token.token, Token::Word(word) if word.keyword == Keyword::UUID))
}

/// Whether an expression is such a cast, or one of its result.
pub(super) fn is_cast_to_uuid(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_cast_to_uuid(inner),
        Expr::Cast { expr: inner, data_type, .. } => *data_type == DataType::Uuid || is_cast_to_uuid(inner),
        _ => false,
    }
}

/// Replaces the casts, once columns are named: their names show the casts.
pub(super) struct Uuids;

impl VisitorMut for Uuids {
    type Break = Box<QueryError>;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        match expr {
            Expr::TypedString(typed) if typed.data_type == DataType::Uuid => {
                *expr = call(UUID, vec![Expr::Value(typed.value.clone())]);
            }
            Expr::Cast { kind, expr: of, data_type: DataType::Uuid, .. } => {
                let name = if matches!(kind, CastKind::TryCast | CastKind::SafeCast) { TRY_UUID } else { UUID };
                let given = std::mem::replace(of.as_mut(), Expr::Value(Value::Null.into()));
                *expr = call(name, vec![cast_of(given, DataType::Varchar(None))]);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
