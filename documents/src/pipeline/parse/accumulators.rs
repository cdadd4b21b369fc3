//! Accumulators as they are written in `$group`, `$bucket` and `$setWindowFields`.

use super::super::Result;
use super::{constant, object, wrong};
use crate::Sort;
use crate::expression::accumulator::{Kind, count_of, kind_of_several};
use crate::expression::{Constants, Expression, members};
use crate::order::Number;
use crate::raw::type_name;
use bson::raw::RawBsonRef;

/// An accumulator and what it takes of each document.
pub(super) fn accumulator(
    operator: &str,
    argument: RawBsonRef<'_>,
    constants: &Constants,
) -> Result<(Kind, Expression)> {
    match operator {
        "$firstN" | "$lastN" | "$minN" | "$maxN" => several(operator, argument, constants),
        "$top" | "$topN" | "$bottom" | "$bottomN" => extreme(operator, argument, constants),
        "$median" | "$percentile" => percentile(operator, argument, constants),
        _ => {
            let kind = Kind::named(operator);
            let kind = kind.ok_or_else(|| wrong(15952, format!("unknown group operator '{operator}'")))?;
            let argument = match (&kind, argument) {
                (Kind::Count, RawBsonRef::Document(nothing)) if nothing.is_empty() => constant(RawBsonRef::Null)?,
                (Kind::Count, _) => return Err(wrong(14, "$count takes no arguments, i.e. $count:{}")),
                // A list of one is that one, as everywhere; of more there is none to take.
                (_, RawBsonRef::Array(list)) => {
                    let elements: Vec<RawBsonRef<'_>> = list.into_iter().map_while(std::result::Result::ok).collect();
                    match elements.as_slice() {
                        [one] => constants.expression(*one)?,
                        _ => return Err(wrong(40237, format!("The {operator} accumulator is a unary operator"))),
                    }
                }
                (_, argument) => constants.expression(argument)?,
            };
            Ok((kind, argument))
        }
    }
}

/// The `n` of an accumulator: a constant.
fn count(operator: &str, n: RawBsonRef<'_>, constants: &Constants) -> Result<usize> {
    let n = constants.expression(n)?;
    let Some(n) = n.constant() else {
        return Err(wrong(115, format!("the 'n' of {operator} must be a constant here")));
    };
    count_of(n)
}

fn several(operator: &str, argument: RawBsonRef<'_>, constants: &Constants) -> Result<(Kind, Expression)> {
    let what = format!("specification must be an object; found {operator}: {}", type_name(argument));
    let (mut input, mut n) = (None, None);
    for (name, value) in members(object(argument, 5_787_900, what)?) {
        match name {
            "input" => input = Some(constants.expression(value)?),
            "n" => n = Some(count(operator, value, constants)?),
            other => return Err(wrong(5_787_901, format!("Unknown argument for 'n' operator: {other}"))),
        }
    }
    let n = n.ok_or_else(|| wrong(5_787_906, "Missing value for 'n'"))?;
    let input = input.ok_or_else(|| wrong(5_787_907, "Missing value for 'input'"))?;
    Ok((kind_of_several(operator, n), input))
}

fn extreme(operator: &str, argument: RawBsonRef<'_>, constants: &Constants) -> Result<(Kind, Expression)> {
    let is_several = operator.ends_with('N');
    let what = format!("specification must be an object; found {operator}: {}", type_name(argument));
    let (mut output, mut sort, mut n) = (None, None, None);
    for (name, value) in members(object(argument, 5_788_001, what)?) {
        match (name, value) {
            ("output", value) => output = Some(constants.expression(value)?),
            ("sortBy", RawBsonRef::Document(by)) => sort = Some(Sort::of_paths(by)?),
            ("sortBy", other) => {
                let what = format!("expected 'sortBy' to already be an object, got {}", type_name(other));
                return Err(wrong(5_788_604, what));
            }
            ("n", value) if is_several => n = Some(count(operator, value, constants)?),
            (other, _) => return Err(wrong(5_788_002, format!("Unknown argument to {operator} '{other}'"))),
        }
    }
    if is_several && n.is_none() {
        return Err(wrong(5_788_003, "Missing value for 'n'"));
    }
    let output = output.ok_or_else(|| wrong(5_788_004, "Missing value for 'output'"))?;
    let sort = sort.ok_or_else(|| wrong(5_788_005, "Missing value for 'sortBy'"))?;
    let kind = match operator.starts_with("$top") {
        true => Kind::Top(sort, n),
        false => Kind::Bottom(sort, n),
    };
    Ok((kind, output))
}

fn percentile(operator: &str, argument: RawBsonRef<'_>, constants: &Constants) -> Result<(Kind, Expression)> {
    let (mut input, mut method, mut shares) = (None, None, None);
    let what = format!("specification must be an object; found {operator}: {}", type_name(argument));
    for (name, value) in members(object(argument, 7_429_703, what)?) {
        match (name, value) {
            ("input", value) => input = Some(constants.expression(value)?),
            ("method", RawBsonRef::String("approximate")) => method = Some(()),
            ("method", _) => {
                return Err(wrong(2, "Currently only 'approximate' can be used as percentile 'method'"));
            }
            ("p", RawBsonRef::Array(list)) if operator == "$percentile" => {
                let share = |value: RawBsonRef<'_>| {
                    let share = Number::of(value).map(crate::expression::real_of);
                    share.filter(|share| (0.0..=1.0).contains(share))
                };
                let read: Option<Vec<f64>> = list.into_iter().map_while(std::result::Result::ok).map(share).collect();
                shares = read.filter(|shares| !shares.is_empty());
                if shares.is_none() {
                    return Err(wrong(7_750_301, "'p' must be a non-empty array of numbers from 0 to 1"));
                }
            }
            ("p", _) if operator == "$percentile" => {
                return Err(wrong(7_750_300, "'p' must be a constant array of numbers from 0 to 1"));
            }
            (other, _) => {
                return Err(wrong(40415, format!("BSON field '{operator}.{other}' is an unknown field.")));
            }
        }
    }
    let missing = |name: &str| wrong(40414, format!("BSON field '{operator}.{name}' is missing but a required field"));
    let input = input.ok_or_else(|| missing("input"))?;
    method.ok_or_else(|| missing("method"))?;
    match operator {
        "$median" => Ok((Kind::Percentile(vec![0.5], true), input)),
        _ => Ok((Kind::Percentile(shares.ok_or_else(|| missing("p"))?, false), input)),
    }
}
