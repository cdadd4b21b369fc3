//! Lists and objects.

use super::compare::order;
use super::{ExpressionError, Result, Value, boolean, is_nothing, is_true, null, type_of};
use crate::order::Number;
use crate::raw::owned;
use bson::raw::{CString, RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Elements that `$range` makes at most.
const RANGE_MAX: usize = 1 << 20;

/// The elements of a list, without copies of them.
pub(super) fn borrowed(list: &RawArray) -> impl Iterator<Item = RawBsonRef<'_>> {
    list.into_iter().map_while(std::result::Result::ok)
}

pub(super) fn elements(list: &RawArray) -> impl Iterator<Item = RawBson> {
    borrowed(list).map(owned)
}

/// Bytes to sort the elements of lists, beside the lists.
pub(super) fn sort_bytes(values: &[Value]) -> usize {
    let count: usize = values.iter().filter_map(as_list).map(|list| borrowed(list).count()).sum();
    count * size_of::<RawBsonRef<'_>>()
}

pub(super) fn as_list(value: &Value) -> Option<&RawArray> {
    match value {
        Some(RawBson::Array(list)) => Some(list),
        _ => None,
    }
}

/// The elements of the list that an operator goes through; nothing for null.
pub(super) fn input(name: &str, code: i32, value: &Value) -> Result<Option<Vec<RawBson>>> {
    if is_nothing(value) {
        return Ok(None);
    }
    let wrong = || ExpressionError::new(code, format!("input to {name} must be an array not {}", type_of(value)));
    Ok(Some(elements(as_list(value).ok_or_else(wrong)?).collect()))
}

/// The limit of `$filter`; none for null.
pub(super) fn limit(value: &RawBson) -> Result<Option<usize>> {
    if matches!(value, RawBson::Null) {
        return Ok(None);
    }
    let whole = crate::whole_number(value.as_raw_bson_ref()).filter(|limit| i32::try_from(*limit).is_ok());
    let wrong = || ExpressionError::new(327_391, "$filter: limit must be represented as a 32-bit integral value");
    match whole.ok_or_else(wrong)? {
        n @ 1.. => Ok(usize::try_from(n).ok()),
        n => Err(ExpressionError::new(327_392, format!("$filter: limit must be greater than 0: {n}"))),
    }
}

/// A whole number of 32 bits. `code` is for what is no number, the next one for other numbers.
pub(super) fn whole(name: &str, code: i32, value: &Value) -> Result<i64> {
    let given = value.as_ref().map(RawBson::as_raw_bson_ref);
    let number = given.and_then(crate::whole_number).filter(|n| i32::try_from(*n).is_ok());
    number.ok_or_else(|| {
        let is_number = given.and_then(Number::of).is_some();
        let found = type_of(value);
        let what = format!("{name} needs a whole number of 32 bits, found {found}");
        ExpressionError::new(code + i32::from(is_number), what)
    })
}

fn list_of(name: &str, code: i32, value: &Value) -> Result<Vec<RawBson>> {
    let wrong = || ExpressionError::new(code, format!("{name}'s argument must be an array, but is {}", type_of(value)));
    Ok(elements(as_list(value).ok_or_else(wrong)?).collect())
}

fn count(n: usize) -> Value {
    Some(RawBson::Int32(i32::try_from(n).unwrap_or(i32::MAX)))
}

fn of(values: impl IntoIterator<Item = RawBson>) -> Value {
    Some(RawBson::Array(values.into_iter().collect()))
}

/// The element at a number, which counts from the end if it is negative.
fn at(list: Vec<RawBson>, index: i64) -> Value {
    let from_end = || usize::try_from(index.unsigned_abs()).ok().and_then(|back| list.len().checked_sub(back));
    let at = if index < 0 { from_end() } else { usize::try_from(index).ok() };
    at.and_then(|at| list.into_iter().nth(at))
}

pub(super) fn element_at(name: &'static str, values: &[Value]) -> Result<Value> {
    if is_nothing(&values[0]) || is_nothing(&values[1]) {
        return null();
    }
    let list = list_of(name, 28689, &values[0])?;
    if values[1].as_ref().is_none_or(|value| crate::order::Number::of(value.as_raw_bson_ref()).is_none()) {
        let message = format!("$arrayElemAt's second argument must be a numeric value, but is {}", type_of(&values[1]));
        return Err(ExpressionError::new(28690, message));
    }
    Ok(at(list, whole(name, 28690, &values[1])?))
}

/// `$first` and `$last`.
pub(super) fn end(name: &'static str, values: &[Value]) -> Result<Value> {
    if is_nothing(&values[0]) {
        return null();
    }
    Ok(at(list_of(name, 28689, &values[0])?, if name == "$first" { 0 } else { -1 }))
}

pub(super) fn size(_: &'static str, values: &[Value]) -> Result<Value> {
    let wrong = || {
        let message = format!("The argument to $size must be an array, but was of type: {}", type_of(&values[0]));
        ExpressionError::new(17124, message)
    };
    Ok(count(elements(as_list(&values[0]).ok_or_else(wrong)?).count()))
}

pub(super) fn is_list(_: &'static str, values: &[Value]) -> Result<Value> {
    Ok(boolean(as_list(&values[0]).is_some()))
}

pub(super) fn contains(_: &'static str, values: &[Value]) -> Result<Value> {
    let wrong = || {
        let message = format!("$in requires an array as a second argument, found: {}", type_of(&values[1]));
        ExpressionError::new(40081, message)
    };
    let mut found = elements(as_list(&values[1]).ok_or_else(wrong)?);
    Ok(boolean(found.any(|element| order(&values[0], &Some(element)).is_eq())))
}

/// Where `$indexOfArray` and its kind begin to search, and where they end, if that is given.
pub(super) fn bounds(name: &str, values: &[Value]) -> Result<(usize, Option<usize>)> {
    let bound = |at: usize| match values.get(at) {
        None => Ok(None),
        Some(value) => {
            let bound = whole(name, 40095, value).map_err(|error| ExpressionError { code: 40096, ..error })?;
            usize::try_from(bound).map(Some).map_err(|_| {
                ExpressionError::new(40097, format!("{name} requires a nonnegative bound, found: {bound}"))
            })
        }
    };
    Ok((bound(2)?.unwrap_or(0), bound(3)?))
}

pub(super) fn index_of(name: &'static str, values: &[Value]) -> Result<Value> {
    if is_nothing(&values[0]) {
        return null();
    }
    let list = list_of(name, 40090, &values[0])?;
    let (start, end) = bounds(name, values)?;
    let end = end.unwrap_or(list.len());
    let window = list.iter().enumerate().take(end).skip(start);
    let found = window.into_iter().find(|(_, element)| order(&values[1], &Some((*element).clone())).is_eq());
    Ok(found.map_or(Some(RawBson::Int32(-1)), |(at, _)| count(at)))
}

pub(super) fn concat(name: &'static str, values: &[Value]) -> Result<Value> {
    let mut all = RawArrayBuf::new();
    for value in values {
        if is_nothing(value) {
            return null();
        }
        let wrong = || ExpressionError::new(28664, format!("{name} only supports arrays, not {}", type_of(value)));
        elements(as_list(value).ok_or_else(wrong)?).for_each(|element| all.push(element));
    }
    Ok(Some(RawBson::Array(all)))
}

pub(super) fn reverse(_: &'static str, values: &[Value]) -> Result<Value> {
    if is_nothing(&values[0]) {
        return null();
    }
    let wrong = || {
        let message =
            format!("The argument to $reverseArray must be an array, but was of type: {}", type_of(&values[0]));
        ExpressionError::new(34435, message)
    };
    let list: Vec<RawBson> = elements(as_list(&values[0]).ok_or_else(wrong)?).collect();
    Ok(of(list.into_iter().rev()))
}

pub(super) fn slice(name: &'static str, values: &[Value]) -> Result<Value> {
    if values.iter().any(is_nothing) {
        return null();
    }
    let wrong = || {
        ExpressionError::new(
            28724,
            format!("First argument to $slice must be an array, but is of type: {}", type_of(&values[0])),
        )
    };
    let list: Vec<RawBson> = elements(as_list(&values[0]).ok_or_else(wrong)?).collect();
    let first = whole(name, 28725, &values[1])?;
    let back = |n: i64| list.len().saturating_sub(usize::try_from(n.unsigned_abs()).unwrap_or(usize::MAX));
    let forward = |n: i64| usize::try_from(n).unwrap_or(usize::MAX);
    let (start, length) = match values.get(2) {
        None if first < 0 => (back(first), usize::MAX),
        None => (0, forward(first)),
        Some(length) => {
            let length = whole(name, 28727, length)?;
            if length <= 0 {
                return Err(ExpressionError::new(
                    28729,
                    format!("Third argument to $slice must be positive: {length}"),
                ));
            }
            (if first < 0 { back(first) } else { forward(first) }, forward(length))
        }
    };
    Ok(of(list.into_iter().skip(start).take(length)))
}

pub(super) fn range(name: &'static str, values: &[Value]) -> Result<Value> {
    let (start, end) = (whole(name, 34443, &values[0])?, whole(name, 34445, &values[1])?);
    let step = values.get(2).map(|step| whole(name, 34447, step)).transpose()?.unwrap_or(1);
    if step == 0 {
        return Err(ExpressionError::new(34449, "$range requires a non-zero step value"));
    }
    let mut list = RawArrayBuf::new();
    let (mut next, mut made) = (start, 0);
    while (step > 0 && next < end) || (step < 0 && next > end) {
        if made == RANGE_MAX {
            return Err(ExpressionError::new(146, format!("$range makes at most {RANGE_MAX} elements")));
        }
        list.push(i32::try_from(next).unwrap_or(i32::MAX));
        (next, made) = (next + step, made + 1);
    }
    Ok(Some(RawBson::Array(list)))
}

pub(super) fn all_true(name: &'static str, values: &[Value]) -> Result<Value> {
    let wrong = |e: ExpressionError| ExpressionError::new(17040, e.message);
    Ok(boolean(list_of(name, 17040, &values[0]).map_err(wrong)?.into_iter().all(|element| is_true(&Some(element)))))
}

pub(super) fn any_true(name: &'static str, values: &[Value]) -> Result<Value> {
    Ok(boolean(list_of(name, 17041, &values[0])?.into_iter().any(|element| is_true(&Some(element)))))
}

/// The members of an object that is made: of a name that comes again the last value, in the place of the first.
#[derive(Default)]
struct Merged {
    members: Vec<(CString, RawBson)>,
    places: HashMap<CString, usize>,
}

impl Merged {
    fn put(&mut self, name: CString, value: RawBson) {
        match self.places.entry(name) {
            Entry::Occupied(place) => self.members[*place.get()].1 = value,
            Entry::Vacant(place) => {
                self.members.push((place.key().clone(), value));
                place.insert(self.members.len() - 1);
            }
        }
    }

    fn into_value(self) -> Value {
        let mut document = RawDocumentBuf::new();
        self.members.into_iter().for_each(|(name, value)| document.append(name, value));
        Some(RawBson::Document(document))
    }
}

/// The members of several objects in one; of a name that several have, the last.
pub(super) fn merge_objects(_: &'static str, values: &[Value]) -> Result<Value> {
    let mut merged = Merged::default();
    // A list alone is a list of objects.
    let spread: Vec<Value> = match values {
        [Some(RawBson::Array(list))] => elements(list).map(Some).collect(),
        values => values.to_vec(),
    };
    for value in &spread {
        match value {
            value if is_nothing(value) => {}
            Some(RawBson::Document(document)) => {
                for (name, value) in document.iter().map_while(std::result::Result::ok) {
                    merged.put(name.to_owned(), owned(value));
                }
            }
            other => {
                let message = format!("$mergeObjects requires object inputs, but input is of type {}", type_of(other));
                return Err(ExpressionError::new(40400, message));
            }
        }
    }
    Ok(merged.into_value())
}

pub(super) fn of_object(_: &'static str, values: &[Value]) -> Result<Value> {
    if is_nothing(&values[0]) {
        return null();
    }
    let Some(RawBson::Document(document)) = &values[0] else {
        let message = format!("$objectToArray requires a document input, found: {}", type_of(&values[0]));
        return Err(ExpressionError::new(40390, message));
    };
    let member = |(name, value): (&bson::raw::CStr, RawBsonRef<'_>)| {
        let mut pair = RawDocumentBuf::new();
        pair.append(bson::raw::cstr!("k"), name.as_str());
        pair.append(bson::raw::cstr!("v"), value);
        RawBson::Document(pair)
    };
    Ok(of(document.iter().map_while(std::result::Result::ok).map(member)))
}

/// `$arrayToObject`: of lists of a name and a value, or of objects with `k` and `v`, as the first element is.
pub(super) fn to_object(name: &'static str, values: &[Value]) -> Result<Value> {
    if is_nothing(&values[0]) {
        return null();
    }
    let list = list_of(name, 40386, &values[0])?;
    let of_lists = match list.first() {
        None | Some(RawBson::Document(_)) => false,
        Some(RawBson::Array(_)) => true,
        Some(other) => {
            let found = crate::raw::type_name(other.as_raw_bson_ref());
            return Err(ExpressionError::new(40398, format!("Unrecognised input type format for {name}: {found}")));
        }
    };
    let mut merged = Merged::default();
    for pair in &list {
        let (key, value) = match pair {
            RawBson::Array(list) if of_lists => pair_of_list(name, list)?,
            RawBson::Document(object) if !of_lists => pair_of_object(name, object)?,
            other => {
                let (code, first) = if of_lists { (40396, "Array") } else { (40391, "Object") };
                let found = crate::raw::type_name(other.as_raw_bson_ref());
                let what =
                    format!("{name} requires a consistent input format. {first} was detected, now found: {found}");
                return Err(ExpressionError::new(code, what));
            }
        };
        let code = if of_lists { 4_940_400 } else { 4_940_401 };
        let key = CString::try_from(key.as_str())
            .map_err(|_| ExpressionError::new(code, "Key field cannot contain an embedded null byte"))?;
        merged.put(key, value);
    }
    Ok(merged.into_value())
}

fn pair_of_list(name: &str, list: &RawArray) -> Result<(String, RawBson)> {
    let pair: Vec<RawBson> = elements(list).collect();
    let count = pair.len();
    let [key, value] = <[RawBson; 2]>::try_from(pair).map_err(|_| {
        let what = format!("{name} requires an array of size 2 arrays, found array of size: {count}");
        ExpressionError::new(40397, what)
    })?;
    match key {
        RawBson::String(key) => Ok((key, value)),
        other => {
            let what = format!("{name} requires keys of type string, found: {}", type_of(&Some(other)));
            Err(ExpressionError::new(40395, what))
        }
    }
}

fn pair_of_object(name: &str, object: &RawDocument) -> Result<(String, RawBson)> {
    let count = object.iter().count();
    if count != 2 {
        let what = format!("{name} requires an object keys of 'k' and 'v'. Found incorrect number of keys:{count}");
        return Err(ExpressionError::new(40392, what));
    }
    let get = |name: &str| object.get(name).ok().flatten().map(owned);
    match (get("k"), get("v")) {
        (Some(RawBson::String(key)), Some(value)) => Ok((key, value)),
        (Some(other), Some(_)) => {
            let what = format!("{name} requires a 'k' of type string, found: {}", type_of(&Some(other)));
            Err(ExpressionError::new(40394, what))
        }
        _ => Err(ExpressionError::new(40393, format!("{name} requires an object with keys 'k' and 'v'"))),
    }
}
