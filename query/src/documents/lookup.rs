//! Conditions that look-ups by `_id` or by an index serve, in MongoDB's form.
//!
//! Such a filter matches at least the documents of which a condition is true; the condition itself is applied to what it matches.

use super::cells::{ID, PlannedDocuments};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use ebbtide::ColumnKind;
use ebbtide::documents_model::json::value_from_json;
use ebbtide_buckets::FieldType;
use serde_json::{Map, Value, json};

/// A filter for conditions that are joined by AND: on `_id` alone if one of them names ids.
pub(crate) fn filter_of<'a>(conditions: impl IntoIterator<Item = &'a Expr>, planned: &PlannedDocuments) -> Value {
    let mut filters: Vec<Value> =
        conditions.into_iter().filter_map(|condition| of_condition(condition, planned)).collect();
    if let Some(ids) = filters.iter().position(|filter| filter[ID]["$in"].is_array()) {
        return filters.swap_remove(ids);
    }
    if filters.len() > 1 { json!({ "$and": filters }) } else { filters.pop().unwrap_or_else(|| json!({})) }
}

/// What a condition says of `_id` and of the leading fields of indexes; `None` if nothing.
pub(crate) fn of_condition(condition: &Expr, planned: &PlannedDocuments) -> Option<Value> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let (left, right) = (of_condition(left, planned)?, of_condition(right, planned)?);
            Some(united(left, right))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            match (of_condition(left, planned), of_condition(right, planned)) {
                (Some(left), Some(right)) => Some(json!({ "$and": [left, right] })),
                (one, other) => one.or(other),
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (left.as_ref(), right.as_ref()) {
            (Expr::Literal(literal, _), field) => of_comparison(field, op.swap()?, literal, planned),
            (field, Expr::Literal(literal, _)) => of_comparison(field, *op, literal, planned),
            _ => None,
        },
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let (Expr::Literal(low, _), Expr::Literal(high, _)) = (low.as_ref(), high.as_ref()) else { return None };
            let low = of_comparison(expr, Operator::GtEq, low, planned)?;
            Some(json!({ "$and": [low, of_comparison(expr, Operator::LtEq, high, planned)?] }))
        }
        Expr::InList(InList { expr, list, negated: false }) => {
            let (path, kind) = indexed(expr, planned)?;
            let value = |item: &Expr| match item {
                Expr::Literal(literal, _) => value_of(literal, &kind),
                _ => None,
            };
            let mut values = list.iter().map(value).collect::<Option<Vec<_>>>()?;
            values.dedup();
            Some(json!({ path: { "$in": values } }))
        }
        _ => None,
    }
}

/// A filter for either of two; values of one field are put into one list.
fn united(mut left: Value, right: Value) -> Value {
    let path = left.as_object().filter(|members| members.len() == 1).and_then(|members| members.keys().next()).cloned();
    if let Some(path) = path
        && let Some(values) = left.get_mut(&path).and_then(|test| test.get_mut("$in")).and_then(Value::as_array_mut)
        && let Some(others) = right.get(&path).and_then(|test| test.get("$in")).and_then(Value::as_array)
    {
        for other in others {
            if !values.contains(other) {
                values.push(other.clone());
            }
        }
        return left;
    }
    json!({ "$or": [left, right] })
}

fn of_comparison(field: &Expr, op: Operator, literal: &ScalarValue, planned: &PlannedDocuments) -> Option<Value> {
    let (path, kind) = indexed(field, planned)?;
    let value = value_of(literal, &kind)?;
    if op == Operator::Eq {
        return Some(json!({ path: { "$in": [value] } }));
    }
    let is_number = kind == ColumnKind::Of(FieldType::Double);
    let operator = match op {
        // In columns the two zeros are in order.
        Operator::Lt if is_number => "$lte",
        Operator::Gt if is_number => "$gte",
        Operator::Lt => "$lt",
        Operator::LtEq => "$lte",
        Operator::Gt => "$gt",
        Operator::GtEq => "$gte",
        _ => return None,
    };
    match &kind {
        // The order of texts is not that of the values in them.
        ColumnKind::Json | ColumnKind::Unknown => None,
        _ if path == ID => None,
        // In columns NaN is in the order of numbers, in filters it is not.
        _ if is_number => {
            let nan = json!({ &path: {"$in": [{"$numberDouble": "NaN"}]} });
            Some(json!({ "$or": [{ &path: { operator: value } }, nan] }))
        }
        ColumnKind::Of(_) => Some(json!({ path: { operator: value } })),
    }
}

/// The path that an expression reads and what its values are, if look-ups or an index find documents by it.
fn indexed(field: &Expr, planned: &PlannedDocuments) -> Option<(String, ColumnKind)> {
    let names = names_of(field)?;
    let path = names.join(".");
    let plain = names.iter().all(|name| !name.is_empty() && !name.contains('.') && !name.starts_with('$'));
    if !plain || !planned.looked_up().contains(&path) {
        return None;
    }
    Some((path, planned.kind_of(&names)?))
}

/// The names that lead to a member of a column.
fn names_of(field: &Expr) -> Option<Vec<&str>> {
    match field {
        Expr::Column(column) => Some(vec![column.name.as_str()]),
        Expr::ScalarFunction(call) if call.name() == "get_field" => {
            let (object, members) = call.args.split_first()?;
            let mut names = names_of(object)?;
            for member in members {
                let Expr::Literal(name, _) = member else { return None };
                names.push(name.try_as_str()??);
            }
            Some(names)
        }
        _ => None,
    }
}

/// A constant as the value that it equals in documents, in Extended JSON.
fn value_of(literal: &ScalarValue, kind: &ColumnKind) -> Option<Value> {
    match (literal, kind) {
        (
            ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) | ScalarValue::LargeUtf8(Some(text)),
            kind,
        ) => match kind {
            ColumnKind::Of(FieldType::String) => Some(json!(text)),
            ColumnKind::Json => serde_json::from_str(text).ok().map(as_integer).filter(is_exact),
            _ => None,
        },
        (ScalarValue::Boolean(Some(flag)), ColumnKind::Of(FieldType::Bool)) => Some(json!(flag)),
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

/// A whole number that was written as a double as an integer, which a filter finds the double by too.
fn as_integer(value: Value) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and within the integers that a double holds")]
    match value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0) {
        Some(number) if value.is_f64() => json!(number as i64),
        _ => value,
    }
}

/// Whether a value in JSON text is read as the one that was shown: not an object that might be taken for operators, and not a
/// fraction, of which the last digit may differ.
fn is_exact(value: &Value) -> bool {
    const OF_ONE_VALUE: [&str; 5] = ["$oid", "$date", "$binary", "$numberDecimal", "$numberDouble"];
    let is_one = |members: &Map<String, Value>| members.keys().all(|key| OF_ONE_VALUE.contains(&key.as_str()));
    match value {
        Value::Bool(_) | Value::String(_) => true,
        Value::Number(number) => number.is_i64(),
        Value::Object(members) => members.len() == 1 && is_one(members) && value_from_json(value).is_ok(),
        Value::Null | Value::Array(_) => false,
    }
}
