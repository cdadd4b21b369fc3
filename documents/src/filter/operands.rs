//! What operators take.

use super::matching::whole;
use super::node::TypeSet;
use crate::Code;
use crate::order::Number;
use crate::raw::type_name;
use bson::RawDocument;
use bson::raw::{RawArray, RawBsonRef};
use bson::spec::ElementType;

type Result<T> = std::result::Result<T, String>;

/// The names of types, with their codes.
const TYPES: [(&str, i64, ElementType); 21] = [
    ("double", 1, ElementType::Double),
    ("string", 2, ElementType::String),
    ("object", 3, ElementType::EmbeddedDocument),
    ("array", 4, ElementType::Array),
    ("binData", 5, ElementType::Binary),
    ("undefined", 6, ElementType::Undefined),
    ("objectId", 7, ElementType::ObjectId),
    ("bool", 8, ElementType::Boolean),
    ("date", 9, ElementType::DateTime),
    ("null", 10, ElementType::Null),
    ("regex", 11, ElementType::RegularExpression),
    ("dbPointer", 12, ElementType::DbPointer),
    ("javascript", 13, ElementType::JavaScriptCode),
    ("symbol", 14, ElementType::Symbol),
    ("javascriptWithScope", 15, ElementType::JavaScriptCodeWithScope),
    ("int", 16, ElementType::Int32),
    ("timestamp", 17, ElementType::Timestamp),
    ("long", 18, ElementType::Int64),
    ("decimal", 19, ElementType::Decimal128),
    ("minKey", -1, ElementType::MinKey),
    ("maxKey", 127, ElementType::MaxKey),
];

/// Whether a value counts as true: all but false, null, undefined and numbers that are 0.
pub(super) fn is_true(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(b) => b,
        RawBsonRef::Null | RawBsonRef::Undefined => false,
        other => Number::of(other).is_none_or(|number| number.compare(Number::Int(0)).is_ne()),
    }
}

/// The operand of `$type`: a name, a code, or a list of them; or MongoDB's code of what is wrong with it, and what that is.
pub(super) fn types(operand: RawBsonRef<'_>) -> std::result::Result<TypeSet, (Code, String)> {
    let given = match operand {
        RawBsonRef::Array(list) => elements(list),
        one => vec![one],
    };
    if given.is_empty() {
        return Err((Code::FailedToParse, "$type needs at least one type".to_owned()));
    }
    let mut types = TypeSet::default();
    for value in given {
        if value == RawBsonRef::String("number") {
            for kind in [ElementType::Int32, ElementType::Int64, ElementType::Double, ElementType::Decimal128] {
                types.insert(kind);
            }
            continue;
        }
        let code = Number::of(value).map(Number::to_i64);
        let known = TYPES.iter().find(|(name, number, _)| match value {
            RawBsonRef::String(text) => text == *name,
            _ => code == Some(Some(*number)),
        });
        let Some((_, _, kind)) = known else {
            let names: Vec<_> = TYPES.iter().map(|(name, ..)| *name).collect();
            let is_possible = code.is_some() || matches!(value, RawBsonRef::String(_));
            let code = if is_possible { Code::BadValue } else { Code::TypeMismatch };
            let what = format!("$type does not know {}; types are number, {}", shown(value), names.join(", "));
            return Err((code, what));
        };
        types.insert(*kind);
    }
    Ok(types)
}

/// The operand of `$size`: a whole number that is not negative.
pub(super) fn size(operand: RawBsonRef<'_>) -> Result<usize> {
    let size = Number::of(operand).and_then(Number::to_i64).and_then(|size| usize::try_from(size).ok());
    size.ok_or_else(|| format!("$size needs a whole number that is not negative, not {}", shown(operand)))
}

/// The operand of `$mod`: a list of divisor and remainder, whose fractions are cut off.
pub(super) fn modulo(operand: RawBsonRef<'_>) -> Result<(i64, i64)> {
    let RawBsonRef::Array(list) = operand else {
        return Err(format!("$mod needs a list of divisor and remainder, not {}", shown(operand)));
    };
    let [divisor, remainder] = elements(list)[..] else {
        return Err("$mod needs a list of two numbers: divisor and remainder".to_owned());
    };
    let divisor = whole_operand(divisor, "the divisor of $mod")?;
    let remainder = whole_operand(remainder, "the remainder of $mod")?;
    if divisor == 0 { Err("the divisor of $mod cannot be 0".to_owned()) } else { Ok((divisor, remainder)) }
}

/// Pattern and options of `$regex`, which may be a text or a regular expression, and `$options` beside it.
pub(super) fn regex(operators: &RawDocument) -> Result<(String, String)> {
    let (pattern, own_options) = match operators.get("$regex") {
        Ok(Some(RawBsonRef::String(pattern))) => (pattern.to_owned(), ""),
        Ok(Some(RawBsonRef::RegularExpression(regex))) => (regex.pattern.as_str().to_owned(), regex.options.as_str()),
        _ => return Err("$regex needs a text or a regular expression".to_owned()),
    };
    let options = match operators.get("$options") {
        Ok(None) => own_options,
        Ok(Some(RawBsonRef::String(_))) if !own_options.is_empty() => {
            return Err("options stand in both $regex and $options; give them once".to_owned());
        }
        Ok(Some(RawBsonRef::String(options))) => options,
        _ => return Err("$options needs a text".to_owned()),
    };
    Ok((pattern, options.to_owned()))
}

/// The elements of a list that is an operand.
fn elements<'a>(list: &'a RawArray) -> Vec<RawBsonRef<'a>> {
    list.into_iter().map_while(std::result::Result::ok).collect()
}

/// A number without its fraction, for messages that name the operand.
fn whole_operand(value: RawBsonRef<'_>, what: &str) -> std::result::Result<i64, String> {
    whole(value).ok_or_else(|| format!("{what} must be a number that 64 bits hold, not {}", shown(value)))
}

/// A value in a message.
fn shown(value: RawBsonRef<'_>) -> String {
    let text: String = crate::json::relaxed_value_text(value).chars().take(80).collect();
    format!("{text} ({})", type_name(value))
}
