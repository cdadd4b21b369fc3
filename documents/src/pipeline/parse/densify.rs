//! $densify.

use super::super::densify::{Bounds, Densify, is_positive};
use super::super::{Result, Stage};
use super::{object, path_of, wrong};
use crate::expression::{Distance, members};
use crate::order::{Number, compare};
use crate::raw::{owned, type_name};
use bson::raw::{RawBson, RawBsonRef};

pub(super) fn densify(argument: RawBsonRef<'_>) -> Result<Stage> {
    let what = format!("The $densify stage specification must be an object, found {}", type_name(argument));
    let (mut path, mut partition, mut range) = (None, Vec::new(), None);
    for (name, value) in members(object(argument, 5_733_401, what)?) {
        let names = |path: &str| -> Result<Vec<String>> { Ok(path_of(path)?.into_iter().map(str::to_owned).collect()) };
        match (name, value) {
            ("field", RawBsonRef::String(field)) => path = Some(names(field)?),
            ("partitionByFields", RawBsonRef::Array(fields)) => {
                for field in fields.into_iter().map_while(std::result::Result::ok) {
                    partition
                        .push(names(field.as_str().ok_or_else(|| wrong(14, "partitionByFields must hold strings"))?)?);
                }
            }
            ("range", RawBsonRef::Document(spec)) => range = Some(spec),
            ("field" | "partitionByFields" | "range", other) => {
                let what = format!("BSON field '$densify.{name}' is the wrong type '{}'", type_name(other));
                return Err(wrong(14, what));
            }
            (other, _) => return Err(wrong(40415, format!("BSON field '$densify.{other}' is an unknown field."))),
        }
    }
    let missing = |name: &str| wrong(40414, format!("BSON field '$densify.{name}' is missing but a required field"));
    let path = path.ok_or_else(|| missing("field"))?;
    let (mut step, mut unit, mut bounds) = (None, None, None);
    for (name, value) in members(range.ok_or_else(|| missing("range"))?) {
        match (name, value) {
            ("step", value) if Number::of(value).is_some() => step = Some(owned(value)),
            ("unit", RawBsonRef::String(text)) => {
                let what = || wrong(9, format!("unknown time unit value: {text}"));
                unit = Some(Distance::named(text).ok_or_else(what)?);
            }
            ("bounds", value) => bounds = Some(parse_bounds(value)?),
            ("step" | "unit", other) => {
                return Err(wrong(14, format!("'{name}' of $densify cannot be {}", type_name(other))));
            }
            (other, _) => {
                return Err(wrong(40415, format!("BSON field '$densify.range.{other}' is an unknown field.")));
            }
        }
    }
    let step = step.ok_or_else(|| missing("range.step"))?;
    let bounds = bounds.ok_or_else(|| missing("range.bounds"))?;
    if !is_positive(step.as_raw_bson_ref()) {
        return Err(wrong(
            5_733_401,
            "the step parameter in a range statement must be a strictly positive numeric value",
        ));
    }
    if unit.is_some() && crate::whole_number(step.as_raw_bson_ref()).is_none() {
        return Err(wrong(
            6_586_400,
            "The step parameter in a range satement must be a whole number when densifying a date range",
        ));
    }
    if let Bounds::Explicit(low, high) = &bounds {
        let is_date = |value: &RawBson| matches!(value, RawBson::DateTime(_));
        if is_date(low) != is_date(high) {
            return Err(wrong(5_733_402, "A bounding array must contain either both dates or both numeric types"));
        }
        if is_date(low) != unit.is_some() {
            return Err(wrong(5_733_501, "A bounding array of dates needs a unit, and one of numbers none"));
        }
        if compare(high.as_raw_bson_ref(), low.as_raw_bson_ref()).is_lt() {
            return Err(wrong(5_733_402, "the first element in the bounds must be less than or equal to the second"));
        }
        let class = |value: &RawBson| value.as_raw_bson_ref().element_type();
        if !is_date(low) && (class(low) != class(high) || class(low) != class(&step)) {
            return Err(wrong(5_876_900, "Upper bound, lower bound, and step must all have the same type"));
        }
    }
    if matches!(bounds, Bounds::Partition) && partition.is_empty() {
        return Err(wrong(
            5_733_408,
            "one may not specify the bounds as 'partition' without specifying a non-empty array of partitionByFields",
        ));
    }
    Ok(Stage::Densify(Box::new(Densify { path, partition, step, unit, bounds })))
}

fn parse_bounds(value: RawBsonRef<'_>) -> Result<Bounds> {
    match value {
        RawBsonRef::String("full") => Ok(Bounds::Full),
        RawBsonRef::String("partition") => Ok(Bounds::Partition),
        RawBsonRef::String(_) => Err(wrong(5_946_802, "Bounds string must either be 'full' or 'partition'")),
        RawBsonRef::Array(list) => {
            let ends: Vec<RawBsonRef<'_>> = list.into_iter().map_while(std::result::Result::ok).collect();
            let is_value = |end: &RawBsonRef<'_>| matches!(end, RawBsonRef::DateTime(_)) || Number::of(*end).is_some();
            match ends.as_slice() {
                [low, high] if is_value(low) && is_value(high) => Ok(Bounds::Explicit(owned(*low), owned(*high))),
                [_, _] => {
                    Err(wrong(5_733_402, "A bounding array must contain either both dates or both numeric types"))
                }
                _ => Err(wrong(5_733_403, "a bounding array in a range statement must have exactly two elements")),
            }
        }
        _ => Err(wrong(5_733_404, "the bounds parameter in a range statement must be a string or an array")),
    }
}
