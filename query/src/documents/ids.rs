//! Conditions on `_id` that are look-ups.

use super::cells::ID;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use ebbtide::ColumnKind;
use ebbtide_buckets::FieldType;
use serde_json::{Value, json};

/// The only values that `_id` may have for a condition to be true, as Extended JSON; `None` if the condition says nothing of the
/// kind.
pub(crate) fn ids_of(condition: &Expr, kind: &ColumnKind) -> Option<Vec<Value>> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            let literal = match (left.as_ref(), right.as_ref()) {
                (Expr::Column(column), literal) | (literal, Expr::Column(column)) if column.name == ID => literal,
                _ => return None,
            };
            Some(vec![id_of(literal, kind)?])
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let (mut left, right) = (ids_of(left, kind)?, ids_of(right, kind)?);
            left.extend(right);
            Some(left)
        }
        Expr::InList(InList { expr, list, negated: false }) => match expr.as_ref() {
            Expr::Column(column) if column.name == ID => list.iter().map(|literal| id_of(literal, kind)).collect(),
            _ => None,
        },
        _ => None,
    }
}

/// A filter in MongoDB's form for what conditions that are joined by AND say of `_id`.
pub(crate) fn filter_of<'a>(conditions: impl IntoIterator<Item = &'a Expr>, kind: &ColumnKind) -> Value {
    match conditions.into_iter().find_map(|condition| ids_of(condition, kind)) {
        Some(ids) => json!({ ID: {"$in": ids} }),
        None => json!({}),
    }
}

fn id_of(literal: &Expr, kind: &ColumnKind) -> Option<Value> {
    let Expr::Literal(value, _) = literal else { return None };
    match (value, kind) {
        (
            ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) | ScalarValue::LargeUtf8(Some(text)),
            kind,
        ) => match kind {
            ColumnKind::Of(FieldType::String) => Some(json!(text)),
            ColumnKind::Json => serde_json::from_str(text).ok(),
            _ => None,
        },
        (ScalarValue::Int64(Some(whole)), ColumnKind::Of(FieldType::Int64)) => Some(json!(whole)),
        (ScalarValue::Float64(Some(number)), ColumnKind::Of(FieldType::Double)) if number.is_finite() => {
            Some(json!({"$numberDouble": number.to_string()}))
        }
        (ScalarValue::TimestampMillisecond(Some(ms), _), ColumnKind::Of(FieldType::Timestamp)) => {
            Some(json!({"$date": {"$numberLong": ms.to_string()}}))
        }
        _ => None,
    }
}
