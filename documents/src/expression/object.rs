//! Objects with a field set or removed, the sizes of values, and the parts of timestamps.

use super::{ExpressionError, Result, Value, is_nothing, null, type_of};
use bson::raw::{CString, RawBson, RawDocumentBuf};

/// `$setField` of a name, an object and a value, and `$unsetField` of a name and an object. A value that is missing removes the
/// field.
pub(super) fn set_field(name: &'static str, values: &[Value]) -> Result<Value> {
    let [Some(RawBson::String(field)), input, rest @ ..] = values else { return null() };
    if is_nothing(input) {
        return null();
    }
    let Some(RawBson::Document(document)) = input else {
        let what = format!("{name} requires 'input' to evaluate to type Object, but got {}", type_of(input));
        return Err(ExpressionError::new(4_161_105, what));
    };
    let field = CString::try_from(field.as_str())
        .map_err(|_| ExpressionError::new(4_161_107, format!("{name}: 'field' contains a null byte")))?;
    let mut value = rest.first().and_then(Option::as_ref);
    let (mut changed, mut is_known) = (RawDocumentBuf::new(), false);
    for (member, old) in document.iter().map_while(std::result::Result::ok) {
        if *member != field {
            changed.append(member, old);
            continue;
        }
        is_known = true;
        if let Some(value) = value.take() {
            changed.append(member, value.as_raw_bson_ref());
        }
    }
    if let Some(value) = value.filter(|_| !is_known) {
        changed.append(field, value.as_raw_bson_ref());
    }
    Ok(Some(RawBson::Document(changed)))
}

fn wrong(code: i32, name: &str, wanted: &str, value: &Value) -> ExpressionError {
    ExpressionError::new(code, format!("{name} requires {wanted}, found: {}", type_of(value)))
}

fn size(bytes: usize) -> Result<Value> {
    Ok(Some(RawBson::Int32(i32::try_from(bytes).unwrap_or(i32::MAX))))
}

pub(super) fn bson_size(name: &'static str, values: &[Value]) -> Result<Value> {
    match &values[0] {
        value if is_nothing(value) => null(),
        Some(RawBson::Document(document)) => size(document.as_bytes().len()),
        value => Err(wrong(31393, name, "a document input", value)),
    }
}

pub(super) fn binary_size(name: &'static str, values: &[Value]) -> Result<Value> {
    match &values[0] {
        value if is_nothing(value) => null(),
        Some(RawBson::String(text)) => size(text.len()),
        Some(RawBson::Binary(binary)) => size(binary.bytes.len()),
        value => Err(wrong(51276, name, "a string or BinData argument", value)),
    }
}

/// `$tsSecond` and `$tsIncrement`.
pub(super) fn part_of_timestamp(name: &'static str, values: &[Value]) -> Result<Value> {
    let is_second = name == "$tsSecond";
    match &values[0] {
        value if is_nothing(value) => null(),
        Some(RawBson::Timestamp(stamp)) => {
            Ok(Some(RawBson::Int64(i64::from(if is_second { stamp.time } else { stamp.increment }))))
        }
        value => Err(wrong(if is_second { 5_687_301 } else { 5_687_302 }, name, "a timestamp", value)),
    }
}
