//! The texts that rows must contain to meet a condition.

use super::parameter_type;
use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::Cast;
use datafusion::logical_expr::expr::{InList, Like};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use ebbtide::{TextCondition, TextPart};

/// A condition with more alternatives is not pushed down.
const ALTERNATIVES_MAX: usize = 256;
/// Of two conditions that both must hold, one is left out if the alternatives of both together had more parts.
const PARTS_MAX: usize = 4096;

/// The texts that the columns of a row must contain for a condition to hold; `None` if it can hold without any.
pub(super) fn condition(filter: &Expr) -> Option<TextCondition> {
    alternatives(filter).map(|alternatives| TextCondition { alternatives })
}

/// The alternatives of a condition that is made of `=`, `IN`, `LIKE`, and functions that look for a text, with AND and OR.
fn alternatives(filter: &Expr) -> Option<Vec<Vec<TextPart>>> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            let (column, text) = if matches!(&**left, Expr::Column(_)) { (left, right) } else { (right, left) };
            one(column, [text_of(text)?])
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let (mut left, right) = (alternatives(left)?, alternatives(right)?);
            left.extend(right);
            (left.len() <= ALTERNATIVES_MAX).then_some(left)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            match (alternatives(left), alternatives(right)) {
                (Some(left), Some(right)) if can_be_combined(&left, &right) => {
                    let both = |left: &Vec<TextPart>, right: &Vec<TextPart>| [left.as_slice(), right].concat();
                    Some(left.iter().flat_map(|left| right.iter().map(|right| both(left, right))).collect())
                }
                (left, right) => left.or(right),
            }
        }
        Expr::InList(InList { expr, list, negated: false }) => {
            let alternative = |text: &Expr| Some(vec![part(expr, text_of(text)?)?]);
            if list.len() > ALTERNATIVES_MAX { None } else { list.iter().map(alternative).collect() }
        }
        Expr::Like(Like { negated: false, expr, pattern, escape_char, case_insensitive: false }) => {
            one(expr, pieces(text_of(pattern)?, *escape_char))
        }
        Expr::ScalarFunction(call) if matches!(call.name(), "contains" | "starts_with" | "ends_with") => {
            let [column, text] = call.args.as_slice() else { return None };
            one(column, [text_of(text)?])
        }
        _ => None,
    }
}

/// Whether each alternative of one condition can be joined with each of another.
fn can_be_combined(left: &[Vec<TextPart>], right: &[Vec<TextPart>]) -> bool {
    let parts = |of: &[Vec<TextPart>]| of.iter().map(Vec::len).sum::<usize>();
    left.len() * right.len() <= ALTERNATIVES_MAX && parts(left) * right.len() + parts(right) * left.len() <= PARTS_MAX
}

/// The one alternative that a column contains all of some texts.
fn one<'t>(column: &Expr, texts: impl IntoIterator<Item = &'t str>) -> Option<Vec<Vec<TextPart>>> {
    Some(vec![texts.into_iter().map(|text| part(column, text)).collect::<Option<_>>()?])
}

fn part(column: &Expr, text: &str) -> Option<TextPart> {
    let Expr::Column(column) = column else { return None };
    Some(TextPart { column: column.name.clone(), text: text.to_owned() })
}

/// A constant text. Nothing is known of a text made of parameters: their values take their place later.
fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str()?,
        other => is_text_of_parameters(other).then_some(""),
    }
}

/// Whether an expression becomes a constant text when its parameters have values.
fn is_text_of_parameters(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().is_some_and(|text| text.is_some()),
        Expr::Placeholder(placeholder) => parameter_type(placeholder).is_some_and(DataType::is_string),
        Expr::Cast(Cast { expr, field }) => {
            let is_parameter = matches!(&**expr, Expr::Placeholder(parameter) if parameter_type(parameter).is_some());
            field.data_type().is_string() && (is_parameter || is_text_of_parameters(expr))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
            is_text_of_parameters(left) && is_text_of_parameters(right)
        }
        _ => false,
    }
}

/// What a text must contain to match a pattern: what is between `%`, `_` and escapes, which are left out with the escape only.
fn pieces(pattern: &str, escape: Option<char>) -> impl Iterator<Item = &str> {
    let splits = move |c: char| matches!(c, '%' | '_' | '\\') || Some(c) == escape;
    pattern.split(splits).filter(|piece| !piece.is_empty())
}
