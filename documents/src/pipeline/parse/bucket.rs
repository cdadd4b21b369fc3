//! $bucket, which is a `$group` by a `$switch`, and a `$sort`; $bucketAuto.

use super::super::bucket_auto::BucketAuto;
use super::super::group::{Field, Group};
use super::super::{Result, Stage};
use super::accumulators::accumulator;
use super::{constant, is_nested, object, wrong};
use crate::Sort;
use crate::expression::accumulator::Kind;
use crate::expression::{Constants, Expression, members};
use crate::order::{Number, TypeClass, compare};
use crate::raw::type_name;
use bson::raw::{CString, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::rawdoc;

pub(super) fn bucket(argument: RawBsonRef<'_>, constants: &Constants, stages: &mut Vec<Stage>) -> Result<()> {
    let what = "Argument to $bucket stage must be an object";
    let (mut by, mut boundaries, mut default, mut fields) = (None, None, None, None);
    for (name, value) in members(object(argument, 40201, what)?) {
        match name {
            "groupBy" => by = Some(checked_by(value, constants)?),
            "boundaries" => boundaries = Some(checked_boundaries(value, constants)?),
            "default" => {
                default = Some(constant_of(value, constants, 40195, "The $bucket 'default' field must be a constant")?)
            }
            "output" => {
                let what = "The $bucket 'output' field must be an object";
                fields = Some(object(value, 40196, what)?);
            }
            other => return Err(wrong(40197, format!("Unrecognized option to $bucket: {other}."))),
        }
    }
    let (Some(by), Some(boundaries)) = (by, boundaries) else {
        return Err(wrong(40198, "$bucket requires 'groupBy' and 'boundaries' to be specified."));
    };
    if let (Some(default), Some(lowest), Some(highest)) = (&default, boundaries.first(), boundaries.last()) {
        let at = default.as_raw_bson_ref();
        let is_class = TypeClass::of(at) == TypeClass::of(lowest.as_raw_bson_ref());
        let within = compare(at, lowest.as_raw_bson_ref()).is_ge() && compare(at, highest.as_raw_bson_ref()).is_lt();
        if is_class && within {
            let what = "The $bucket 'default' field must be less than the lowest boundary or greater than or equal to the highest boundary.";
            return Err(wrong(40199, what));
        }
    }
    let mut branches = RawArrayBuf::new();
    for pair in boundaries.windows(2) {
        let literal = |value: &RawBson| rawdoc! { "$const": value.clone() };
        branches.push(rawdoc! {
            "case": { "$and": [{ "$gte": ["$$by", literal(&pair[0])] }, { "$lt": ["$$by", literal(&pair[1])] }] },
            "then": literal(&pair[0]),
        });
    }
    let mut switch = rawdoc! { "branches": branches };
    if let Some(default) = default {
        switch.append(cstr!("default"), rawdoc! { "$const": default });
    }
    // A variable, since there may be many boundaries, and what they are compared with large.
    let id = rawdoc! { "$let": { "vars": { "by": by }, "in": { "$switch": switch } } };
    let id = constants.expression(RawBsonRef::Document(&id))?;
    let fields = match fields {
        Some(fields) => output(fields, constants)?,
        None => vec![count()?],
    };
    stages.push(Stage::Group(Group { id, fields }));
    stages.push(Stage::Sort(Sort::of_paths(&rawdoc! { "_id": 1 })?, None));
    Ok(())
}

/// The number of documents, which is computed where no output is given.
fn count() -> Result<Field> {
    Ok((cstr!("count").to_owned(), Kind::Sum, constant(RawBsonRef::Int32(1))?))
}

/// `$bucketAuto`.
pub(super) fn bucket_auto(argument: RawBsonRef<'_>, constants: &Constants) -> Result<Stage> {
    let what = format!("The argument to $bucketAuto must be an object, but found type: {}", type_name(argument));
    let (mut by, mut buckets, mut fields) = (None, None, Vec::new());
    for (name, value) in members(object(argument, 40240, what)?) {
        match (name, value) {
            ("groupBy", value) => by = Some(bucket_auto_by(value, constants)?),
            ("buckets", value) => buckets = Some(bucket_count(value)?),
            ("output", value) => {
                let what =
                    format!("The $bucketAuto 'output' field must be an object, but found type: {}", type_name(value));
                fields = output(object(value, 40244, what)?, constants)?;
            }
            ("granularity", RawBsonRef::String(_)) => {
                return Err(wrong(115, "the 'granularity' of $bucketAuto is not available: leave it out"));
            }
            ("granularity", other) => {
                let what = format!(
                    "The $bucketAuto 'granularity' field must be a string, but found type: {}",
                    type_name(other)
                );
                return Err(wrong(40261, what));
            }
            (other, _) => return Err(wrong(40245, format!("Unrecognized option to $bucketAuto: {other}"))),
        }
    }
    let (Some(by), Some(count_max)) = (by, buckets) else {
        return Err(wrong(40246, "$bucketAuto requires 'groupBy' and 'buckets' to be specified"));
    };
    let count_max = match usize::try_from(count_max) {
        Ok(count_max @ 1..) => count_max,
        _ => {
            let what = format!("The $bucketAuto 'buckets' field must be greater than 0, but found: {count_max}");
            return Err(wrong(40243, what));
        }
    };
    if fields.is_empty() {
        fields.push(count()?);
    }
    Ok(Stage::BucketAuto(Box::new(BucketAuto { by, count: count_max, fields })))
}

fn bucket_auto_by(value: RawBsonRef<'_>, constants: &Constants) -> Result<Expression> {
    match value {
        RawBsonRef::String(path) if path.starts_with('$') => {}
        RawBsonRef::Document(object) if !is_nested(object) && !object.is_empty() => {}
        _ => {
            let what = "The $bucketAuto 'groupBy' field must be defined as a $-prefixed path or an expression object";
            return Err(wrong(40239, what));
        }
    }
    constants.expression(value)
}

/// The `buckets` of a `$bucketAuto`: a whole number of 32 bits.
fn bucket_count(value: RawBsonRef<'_>) -> Result<i32> {
    if Number::of(value).is_none() {
        let given = type_name(value);
        let what = format!("The $bucketAuto 'buckets' field must be a numeric value, but found type: {given}");
        return Err(wrong(40241, what));
    }
    let count = crate::whole_number(value).and_then(|count| i32::try_from(count).ok());
    count.ok_or_else(|| wrong(40242, "The $bucketAuto 'buckets' field must be representable as a 32-bit integer"))
}

fn checked_by(value: RawBsonRef<'_>, constants: &Constants) -> Result<RawBson> {
    match value {
        RawBsonRef::String(path) if path.starts_with('$') => {}
        RawBsonRef::Document(object) if !is_nested(object) => {}
        _ => {
            let what = "The $bucket 'groupBy' field must be defined as a $-prefixed path or an expression";
            return Err(wrong(40202, what));
        }
    }
    constants.expression(value)?;
    Ok(crate::raw::owned(value))
}

fn constant_of(value: RawBsonRef<'_>, constants: &Constants, code: i32, what: &str) -> Result<RawBson> {
    match constants.expression(value)?.constant() {
        Some(constant) => Ok(constant.clone().unwrap_or(RawBson::Null)),
        None => Err(wrong(code, what)),
    }
}

fn checked_boundaries(value: RawBsonRef<'_>, constants: &Constants) -> Result<Vec<RawBson>> {
    let RawBsonRef::Array(list) = value else {
        return Err(wrong(40200, "The $bucket 'boundaries' field must be an array"));
    };
    let what = "The $bucket 'boundaries' field must be an array of constant values";
    let one = |value| constant_of(value, constants, 40191, what);
    let read = list.into_iter().map_while(std::result::Result::ok).map(one).collect::<Result<Vec<_>>>()?;
    if read.len() < 2 {
        return Err(wrong(40192, "The $bucket 'boundaries' field must have at least 2 values"));
    }
    for pair in read.windows(2) {
        let (a, b) = (pair[0].as_raw_bson_ref(), pair[1].as_raw_bson_ref());
        if TypeClass::of(a) != TypeClass::of(b) {
            let what = "All values in the 'boundaries' option to $bucket must have the same type.";
            return Err(wrong(40193, what));
        }
        if compare(a, b).is_ge() {
            let what = "The 'boundaries' option to $bucket must be sorted in ascending order.";
            return Err(wrong(40194, what));
        }
    }
    Ok(read)
}

fn output(computed: &RawDocument, constants: &Constants) -> Result<Vec<Field>> {
    let mut fields = Vec::new();
    for (name, value) in members(computed) {
        if name == "_id" {
            constants.expression(value)?;
            return Err(wrong(15948, "a group's _id may only be specified once"));
        }
        fields.push(field(name, value, constants)?);
    }
    Ok(fields)
}

/// One field of a `$group`, `$bucket` or `$bucketAuto`.
pub(super) fn field(name: &str, value: RawBsonRef<'_>, constants: &Constants) -> Result<Field> {
    if name.contains('.') {
        return Err(wrong(40235, format!("The field name '{name}' cannot contain '.'")));
    }
    if name.starts_with('$') {
        return Err(wrong(40236, format!("The field name '{name}' cannot be an operator name")));
    }
    let RawBsonRef::Document(object) = value else {
        return Err(wrong(40234, format!("The field '{name}' must be an accumulator object")));
    };
    let object = members(object);
    let [(operator, argument)] = object.as_slice() else {
        return Err(wrong(40238, format!("The field '{name}' must specify one accumulator")));
    };
    let (kind, argument) = accumulator(operator, *argument, constants)?;
    Ok((CString::try_from(name).map_err(|e| wrong(9, e.to_string()))?, kind, argument))
}

/// `$sample`.
pub(super) fn sample(argument: RawBsonRef<'_>) -> Result<Stage> {
    let mut size = None;
    for (name, value) in members(object(argument, 28745, "the $sample stage specification must be an object")?) {
        if name != "size" {
            return Err(wrong(28748, format!("unrecognized option to $sample: {name}")));
        }
        let number = Number::of(value).map(crate::expression::real_of);
        match (number, crate::whole_number(value)) {
            (None, _) => return Err(wrong(28746, "size argument to $sample must be a number")),
            (_, Some(n @ 0..)) => size = Some(n.unsigned_abs()),
            (Some(n), None) if n >= 1.0 => {
                size = Some(crate::order::integer_of(n.trunc()).map_or(u64::MAX, i64::unsigned_abs))
            }
            _ => return Err(wrong(28747, "size argument to $sample must be a positive integer")),
        }
    }
    size.map(Stage::Sample).ok_or_else(|| wrong(28749, "$sample stage must specify a size"))
}

/// An object of one member.
pub(super) fn single(name: &str, value: RawBson) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    if let Ok(name) = CString::try_from(name) {
        document.append(name, value);
    }
    document
}
