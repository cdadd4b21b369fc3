//! $setWindowFields, and $fill, which is one.

use super::super::project::{Field, Others, Projector, Tree};
use super::super::windows::{Change, End, Function, Window, Windows};
use super::super::{Result, Stage};
use super::accumulators::accumulator;
use super::bucket::single;
use super::{object, path_of, wrong};
use crate::expression::{Constants, Distance, Expression, decimal_of, members};
use crate::order::Number;
use crate::raw::{owned, type_name};
use crate::{Decimal, Sort};
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;

pub(super) fn set_window_fields(argument: RawBsonRef<'_>, constants: &Constants) -> Result<Stage> {
    let what = format!("the $setWindowFields stage specification must be an object, found {}", type_name(argument));
    let (mut partition, mut sort, mut output) = (None, None, None);
    for (name, value) in members(object(argument, 9, what)?) {
        match (name, value) {
            ("partitionBy", value) => partition = Some(constants.expression(value)?),
            ("sortBy", RawBsonRef::Document(by)) => sort = Some(by),
            ("output", RawBsonRef::Document(fields)) => output = Some(fields),
            ("sortBy" | "output", other) => {
                let what = format!("BSON field '$setWindowFields.{name}' is the wrong type '{}'", type_name(other));
                return Err(wrong(14, what));
            }
            (other, _) => {
                return Err(wrong(40415, format!("BSON field '$setWindowFields.{other}' is an unknown field.")));
            }
        }
    }
    let missing = || wrong(40414, "BSON field '$setWindowFields.output' is missing but a required field");
    let mut windows = begun(partition, sort)?;
    for (name, value) in members(output.ok_or_else(missing)?) {
        let path = path_of(name)?.into_iter().map(str::to_owned).collect();
        let what = format!("The field '{name}' must be an object");
        let function = function(object(value, 9, what)?, &windows, constants)?;
        windows.outputs.push((path, function));
    }
    Ok(Stage::Windows(Box::new(windows)))
}

fn begun(partition: Option<Expression>, sort: Option<&RawDocument>) -> Result<Windows> {
    let by = match sort.map(members).as_deref() {
        Some([(path, direction)]) => {
            let path = Expression::parse(RawBsonRef::String(&format!("${path}")))?;
            Some((path, crate::whole_number(*direction) == Some(1)))
        }
        _ => None,
    };
    Ok(Windows { partition, sort: sort.map(Sort::of_paths).transpose()?, by, outputs: Vec::new() })
}

/// One window function with its window.
fn function(spec: &RawDocument, windows: &Windows, constants: &Constants) -> Result<Function> {
    let (mut operator, mut window) = (None, None);
    for (name, value) in members(spec) {
        match name {
            "window" => {
                let what = format!("'window' field must be an object, but got {}", type_name(value));
                window = Some(object(value, 9, what)?);
            }
            name if operator.is_none() => operator = Some((name, value)),
            name => return Err(wrong(9, format!("Window function found an unknown argument: {name}"))),
        }
    }
    let (name, argument) = operator.ok_or_else(|| wrong(9, "Expected a $-prefixed window function"))?;
    let needs_sort = || match windows.sort {
        Some(_) => Ok(()),
        None => Err(wrong(9, format!("{name} must be specified with a top level sortBy expression"))),
    };
    if matches!(name, "$derivative" | "$integral" | "$expMovingAvg") {
        needs_sort()?;
    }
    let read = || window.map(|window| parse_window(window, windows)).transpose();
    if matches!(name, "$derivative" | "$integral") {
        let compound = || wrong(9, format!("{name} requires a non-compound sortBy"));
        let (by, _) = windows.by.as_ref().ok_or_else(compound)?;
        return change(name, argument, (read()?, by), constants);
    }
    let read = read()?;
    let no_window = || match window {
        None => Ok(()),
        Some(_) => Err(wrong(5_371_601, format!("{name} does not accept a 'window' field"))),
    };
    match name {
        "$rank" | "$denseRank" | "$documentNumber" => {
            if windows.by.is_none() {
                let what =
                    format!("{name} must be specified with a top level sortBy expression with exactly one element");
                return Err(wrong(5_371_602, what));
            }
            no_window()?;
            if !argument.as_document().is_some_and(RawDocument::is_empty) {
                return Err(wrong(5_371_603, format!("{name} must be specified with '{{}}' as the value")));
            }
            Ok(match name {
                "$rank" => Function::Rank,
                "$denseRank" => Function::DenseRank,
                _ => Function::DocumentNumber,
            })
        }
        "$shift" => {
            needs_sort()?;
            no_window()?;
            shift(argument, constants)
        }
        "$expMovingAvg" => {
            no_window()?;
            moving_average(argument, constants)
        }
        "$covariancePop" | "$covarianceSamp" => {
            let pair = constants.expression(argument)?;
            Ok(Function::Covariance(pair, name == "$covarianceSamp", read.unwrap_or(Window::WHOLE)))
        }
        "$locf" | "$linearFill" => {
            no_window()?;
            let input = constants.expression(argument)?;
            if name == "$locf" {
                return Ok(Function::Locf(input));
            }
            if windows.by.is_none() {
                let what = "$linearFill must be specified with a top level sortBy expression with exactly one element";
                return Err(wrong(605_001, what));
            }
            Ok(Function::LinearFill(input))
        }
        name => {
            let (kind, argument) = accumulator(name, argument, constants).map_err(|error| match error.code {
                15952 => wrong(9, format!("Unrecognized window function, {name}")),
                _ => error,
            })?;
            Ok(Function::Accumulate(Box::new(kind), argument, read.unwrap_or(Window::WHOLE)))
        }
    }
}

fn end(value: RawBsonRef<'_>, of_documents: bool) -> Result<End> {
    match value {
        RawBsonRef::String("unbounded") => Ok(End::Unbounded),
        RawBsonRef::String("current") => Ok(End::Current),
        other if of_documents && whole_offset(other).is_none() => {
            Err(wrong(9, "Numeric document-based bounds must be an integer"))
        }
        other if Number::of(other).is_some() => Ok(End::Offset(owned(other))),
        _ => Err(wrong(9, "Window bounds must be 'unbounded', 'current' or a number")),
    }
}

/// A number of documents or units, which is an int32 in MongoDB too.
fn whole_offset(value: RawBsonRef<'_>) -> Option<i32> {
    crate::whole_number(value).and_then(|offset| i32::try_from(offset).ok())
}

fn parse_window(window: &RawDocument, windows: &Windows) -> Result<Window> {
    let (mut documents, mut range, mut unit) = (None, None, None);
    for (name, value) in members(window) {
        let bounds = |of_documents: bool| -> Result<(End, End)> {
            let RawBsonRef::Array(list) = value else {
                return Err(wrong(9, "Window bounds must be a 2-element array"));
            };
            let ends: Vec<RawBsonRef<'_>> = list.into_iter().map_while(std::result::Result::ok).collect();
            let [low, high] = ends.as_slice() else {
                return Err(wrong(9, "Window bounds must be a 2-element array"));
            };
            let (low, high) = (end(*low, of_documents)?, end(*high, of_documents)?);
            let at = |end: &End| match end {
                End::Unbounded => None,
                End::Current => Some(Number::Int(0)),
                End::Offset(by) => Number::of(by.as_raw_bson_ref()),
            };
            if at(&low).zip(at(&high)).is_some_and(|(low, high)| low.compare(high).is_gt()) {
                return Err(wrong(5_339_900, "Lower bound must not exceed upper bound"));
            }
            Ok((low, high))
        };
        match name {
            "documents" => documents = Some(bounds(true)?),
            "range" => range = Some(bounds(false)?),
            "unit" => unit = Some(distance(value)?),
            other => return Err(wrong(9, format!("'window' field has an unknown argument: {other}"))),
        }
    }
    match (documents, range, unit) {
        (Some(_), Some(_), _) => Err(wrong(9, "Window bounds can specify either 'documents' or 'range', not both.")),
        (Some(_), None, Some(_)) => Err(wrong(9, "'unit' is only allowed with 'range' bounds")),
        (Some((low, high)), None, None) => {
            let is_bounded = low != End::Unbounded || high != End::Unbounded;
            if is_bounded && windows.sort.is_none() {
                return Err(wrong(5_339_901, "Document-based bounds require a sortBy"));
            }
            Ok(Window::Documents(low, high))
        }
        (None, Some((low, high)), unit) => match windows.by {
            None => Err(wrong(5_339_902, "Range-based bounds require sortBy a single field")),
            Some((_, false)) => Err(wrong(5_429_404, "Range-based bounds require an ascending sortBy")),
            Some((_, true)) => {
                let is_whole = |end: &End| match end {
                    End::Offset(by) => whole_offset(by.as_raw_bson_ref()).is_some(),
                    _ => true,
                };
                if unit.is_some() && !(is_whole(&low) && is_whole(&high)) {
                    return Err(wrong(9, "With 'unit', range-based bounds must be an integer"));
                }
                Ok(Window::Range(low, high, unit))
            }
        },
        (None, None, Some(_)) => Err(wrong(9, "'unit' is only allowed with 'range' bounds")),
        (None, None, None) => Ok(Window::WHOLE),
    }
}

fn distance(value: RawBsonRef<'_>) -> Result<Distance> {
    let text = value.as_str().ok_or_else(|| wrong(9, "'unit' must be a string"))?;
    Distance::named(text).ok_or_else(|| wrong(9, format!("unknown time unit value: {text}")))
}

fn shift(argument: RawBsonRef<'_>, constants: &Constants) -> Result<Function> {
    let (mut output, mut by, mut default) = (None, None, None);
    let what = "Argument to $shift must be an object";
    for (name, value) in members(object(argument, 9, what)?) {
        match name {
            "output" => output = Some(constants.expression(value)?),
            "by" => {
                let whole = crate::whole_number(value);
                by = Some(whole.ok_or_else(|| wrong(9, "'$shift:by' field must be an integer"))?);
            }
            "default" => {
                let constant = constants.expression(value)?.constant().cloned();
                default =
                    constant.ok_or_else(|| wrong(9, "'$shift:default' expression must yield a constant value."))?;
            }
            other => return Err(wrong(9, format!("Unknown argument in $shift: {other}"))),
        }
    }
    match (output, by) {
        (Some(output), Some(by)) => Ok(Function::Shift(output, by, default)),
        _ => Err(wrong(9, "$shift requires 'output' and 'by'")),
    }
}

/// `$derivative` and `$integral`, with their window and the field of the sort.
fn change(
    name: &str,
    argument: RawBsonRef<'_>,
    (window, by): (Option<Window>, &Expression),
    constants: &Constants,
) -> Result<Function> {
    let (mut input, mut unit) = (None, None);
    let what = format!("{name} expects an object, but got {}", type_name(argument));
    for (member, value) in members(object(argument, 9, what)?) {
        match member {
            "input" => input = Some(constants.expression(value)?),
            "unit" => {
                let millis = distance(value)?.millis();
                let what = "unit must be 'week' or smaller";
                unit = Some(millis.ok_or_else(|| wrong(5_490_704, what))?);
            }
            other => return Err(wrong(9, format!("{name} got unexpected argument: {other}"))),
        }
    }
    let input = input.ok_or_else(|| wrong(9, format!("{name} requires an 'input' expression")))?;
    let change = |window| Change { input, by: by.clone(), unit, window };
    match (name, window) {
        ("$derivative", None) => Err(wrong(9, "$derivative requires explicit window bounds")),
        ("$derivative", Some(window)) => Ok(Function::Derivative(change(window))),
        (_, window) => Ok(Function::Integral(change(window.unwrap_or(Window::WHOLE)))),
    }
}

fn moving_average(argument: RawBsonRef<'_>, constants: &Constants) -> Result<Function> {
    let (mut input, mut weight) = (None, None);
    let what = "$expMovingAvg must have exactly one argument that is an object";
    for (name, value) in members(object(argument, 9, what)?) {
        let is_share = |alpha: Number| alpha.compare(Number::Int(0)).is_gt() && alpha.compare(Number::Int(1)).is_lt();
        match (name, Number::of(value)) {
            ("input", _) => input = Some(constants.expression(value)?),
            ("N", Some(n)) if weight.is_none() && n.to_i64().is_some_and(|n| n >= 1) => {
                weight = Some(Decimal::from_i64(2).divide(decimal_of(n.plus(Number::Int(1)))));
            }
            ("alpha", Some(alpha)) if weight.is_none() && is_share(alpha) => weight = Some(decimal_of(alpha)),
            _ => {
                let what =
                    "$expMovingAvg takes 'input' and either 'N', a positive whole number, or 'alpha', between 0 and 1";
                return Err(wrong(9, what));
            }
        }
    }
    match (input, weight) {
        (Some(input), Some(weight)) => Ok(Function::MovingAverage(input, weight)),
        _ => Err(wrong(9, "$expMovingAvg sub object must have 'input' and either 'N' or 'alpha'")),
    }
}

/// `$fill`: window functions for methods, and then values for what is null.
pub(super) fn fill(argument: RawBsonRef<'_>, constants: &Constants, stages: &mut Vec<Stage>) -> Result<()> {
    let what = format!("the $fill stage specification must be an object, found {}", type_name(argument));
    let (mut partition, mut sort, mut output) = (None, None, None);
    for (name, value) in members(object(argument, 9, what)?) {
        match (name, value) {
            ("partitionBy", RawBsonRef::Null) => {}
            ("partitionBy", by @ (RawBsonRef::Document(_) | RawBsonRef::String(_))) if partition.is_none() => {
                partition = Some(owned(by));
            }
            ("partitionBy", other) if partition.is_none() => {
                let kind = type_name(other);
                let what = format!("BSON field '$fill.partitionBy' is the wrong type '{kind}', expected type 'object'");
                return Err(wrong(14, what));
            }
            ("partitionByFields", RawBsonRef::Array(fields)) if partition.is_none() => {
                let mut parts = RawDocumentBuf::new();
                for field in fields.into_iter().map_while(std::result::Result::ok) {
                    let field = field.as_str().ok_or_else(|| wrong(14, "partitionByFields must hold strings"))?;
                    single(field, RawBson::String(format!("${field}")))
                        .into_iter()
                        .map_while(std::result::Result::ok)
                        .for_each(|(name, value)| parts.append(name, value));
                }
                partition = Some(RawBson::Document(parts));
            }
            ("partitionBy" | "partitionByFields", _) => {
                let what = "Maximum one of 'partitionBy' and 'partitionByFields' can be specified in '$fill'";
                return Err(wrong(6_050_204, what));
            }
            ("sortBy", RawBsonRef::Document(by)) => sort = Some(by),
            ("output", RawBsonRef::Document(fields)) => output = Some(fields),
            (other, _) => return Err(wrong(40415, format!("BSON field '$fill.{other}' is an unknown field."))),
        }
    }
    let output = output.ok_or_else(|| wrong(40414, "BSON field '$fill.output' is missing but a required field"))?;
    // Values alone need no partitions, which then are not read either.
    let is_method = |spec: &RawDocument| members(spec).iter().any(|(name, _)| *name == "method");
    let has_methods = members(output).into_iter().any(|(_, spec)| spec.as_document().is_some_and(is_method));
    let partition = partition.filter(|_| has_methods);
    let partition = partition.map(|value| constants.expression(value.as_raw_bson_ref())).transpose()?;
    let (mut windows, mut values) = (begun(partition, sort)?, Tree::default());
    let mut has_values = false;
    for (name, value) in members(output) {
        let what = "The output of $fill must be an object with 'value' or 'method'";
        let spec = members(object(value, 14, what)?);
        let path: Vec<&str> = path_of(name)?;
        match spec.as_slice() {
            [("value", value)] => {
                let filled = rawdoc! { "$ifNull": [format!("${name}"), owned(*value)] };
                values.add(&path, Field::Computed(constants.expression(RawBsonRef::Document(&filled))?))?;
                has_values = true;
            }
            [("method", RawBsonRef::String(method @ ("locf" | "linear")))] => {
                let name = if *method == "locf" { "$locf" } else { "$linearFill" };
                let spec = single(name, RawBson::String(format!("${}", path.join("."))));
                let function = function(&spec, &windows, constants)?;
                windows.outputs.push((path.into_iter().map(str::to_owned).collect(), function));
            }
            [("method", _)] => {
                return Err(wrong(6_050_202, "Method must be either 'locf' or 'linear'"));
            }
            _ => return Err(wrong(40415, what)),
        }
    }
    if !windows.outputs.is_empty() {
        stages.push(Stage::Windows(Box::new(windows)));
    }
    if has_values {
        stages.push(Stage::Project(Projector { tree: values, others: Others::Kept }));
    }
    Ok(())
}
