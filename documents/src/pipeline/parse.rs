//! Reads pipelines.

mod accumulators;
mod bucket;
mod densify;
mod graph;
mod lookup;
mod nested;
mod outline;
mod windows;

use super::condition::{Condition, split_expressions};
use super::group::Group;
use super::project::{Field, Others, Projector, Tree};
use super::redact::Redact;
use super::unwind::Unwind;
use super::{Pipeline, Result, Stage, height};
use crate::expression::accumulator::Kind;
use crate::expression::{Constants, Expression, PATH_NAMES_MAX, members};
use crate::order::Number;
use crate::paths::is_operator;
use crate::raw::type_name;
use crate::{ExpressionError, Filter, Purpose, Sort, whole_number};
use bson::raw::{CString, RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;

/// Stages of a pipeline at most, with those of pipelines within it.
const STAGES_MAX: usize = 1000;

fn wrong(code: i32, message: impl Into<String>) -> ExpressionError {
    ExpressionError::new(code, message)
}

/// Checks what MongoDB looks at in all stages before it reads any.
pub(super) fn check_outline(stages: &RawArray) -> Result<()> {
    outline::check(stages)
}

pub(super) fn pipeline(stages: &RawArray, constants: &Constants) -> Result<Pipeline> {
    outline::check(stages)?;
    let pipeline = read(stages, constants, |_, _| Ok(false))?;
    // Only once all of it could be read.
    pipeline.check_constants()?;
    Ok(pipeline)
}

/// Reads a pipeline, whose constants are to be checked then. `skip` says of each stage whether it is left out.
fn read(
    stages: &RawArray,
    constants: &Constants,
    mut skip: impl FnMut(&str, RawBsonRef<'_>) -> Result<bool>,
) -> Result<Pipeline> {
    let mut read = Vec::new();
    for stage in stages.into_iter().map_while(std::result::Result::ok) {
        let (name, argument) = outline::stage_of(stage)?;
        if !skip(name, argument)? {
            one(name, argument, constants, &mut read)?;
        }
        if read.len() > STAGES_MAX {
            return Err(wrong(5_054_701, format!("Pipeline length must be no longer than {STAGES_MAX} stages")));
        }
    }
    if height(&read) > STAGES_MAX {
        let what = format!("a pipeline and those within it must have no more than {STAGES_MAX} stages");
        return Err(wrong(5_054_701, what));
    }
    join_sorts_and_limits(&mut read);
    Ok(Pipeline { stages: read })
}

/// A limit right after a sort needs no more of it than that.
fn join_sorts_and_limits(stages: &mut [Stage]) {
    for at in 1..stages.len() {
        if let [Stage::Sort(_, first), Stage::Limit(limit)] = &mut stages[at - 1..=at] {
            *first = Some(*limit);
        }
    }
}

fn one(name: &str, argument: RawBsonRef<'_>, constants: &Constants, stages: &mut Vec<Stage>) -> Result<()> {
    let stage = match name {
        "$match" => return matching(argument, constants, stages),
        "$project" => project(object(argument, 15969, "$project specification must be an object")?, constants)?,
        "$addFields" | "$set" => {
            let message = format!("{name} specification stage must be an object, got {}", type_name(argument));
            add_fields(name, object(argument, 40272, message)?, constants)?
        }
        "$unset" => unset(argument)?,
        "$group" => group(object(argument, 15947, "a group's fields must be specified in an object")?, constants)?,
        "$sort" => {
            let sort = object(argument, 15973, "the $sort key specification must be an object")?;
            if sort.is_empty() {
                return Err(wrong(15976, "$sort stage must have at least one sort key"));
            }
            for (path, direction) in members(sort) {
                match (Number::of(direction), whole_number(direction)) {
                    (_, Some(1 | -1)) => {}
                    (None, _) => {
                        let message = format!("Illegal key in $sort specification: {path}: {}", type_name(direction));
                        return Err(wrong(15974, message));
                    }
                    _ => {
                        return Err(wrong(
                            15975,
                            "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
                        ));
                    }
                }
            }
            Stage::Sort(Sort::of_paths(sort)?, None)
        }
        "$limit" => match (Number::of(argument), whole_number(argument)) {
            (_, Some(limit @ 1..)) => Stage::Limit(limit.unsigned_abs()),
            (_, Some(0)) => return Err(wrong(15958, "the limit must be positive")),
            _ => return Err(wrong(5_107_201, "invalid argument to $limit stage: Expected a non-negative number")),
        },
        "$skip" => match whole_number(argument) {
            Some(skip @ 0..) => Stage::Skip(skip.unsigned_abs()),
            _ => return Err(wrong(5_107_200, "invalid argument to $skip stage: Expected a non-negative number")),
        },
        "$count" => Stage::Count(count_name(argument)?),
        "$sortByCount" => {
            let id = sort_by_count(argument, constants)?;
            stages.push(Stage::Group(Group {
                id,
                fields: vec![(bson::raw::cstr!("count").to_owned(), Kind::Sum, constant(RawBsonRef::Int32(1))?)],
            }));
            Stage::Sort(Sort::of_paths(&rawdoc! { "count": -1 })?, None)
        }
        "$unwind" => Stage::Unwind(unwind(argument)?),
        "$replaceRoot" => {
            let object = object(argument, 40229, "expected an object as specification for $replaceRoot stage")?;
            let root = match members(object).as_slice() {
                [("newRoot", root)] => *root,
                [] => return Err(wrong(40414, "BSON field '$replaceRoot.newRoot' is missing but a required field")),
                others => {
                    let unknown =
                        others.iter().map(|(name, _)| *name).find(|name| *name != "newRoot").unwrap_or_default();
                    return Err(wrong(40415, format!("BSON field '$replaceRoot.{unknown}' is an unknown field.")));
                }
            };
            Stage::ReplaceRoot(constants.expression(root)?)
        }
        "$bucket" => return bucket::bucket(argument, constants, stages),
        "$sample" => bucket::sample(argument)?,
        "$bucketAuto" => bucket::bucket_auto(argument, constants)?,
        "$facet" => nested::facet(argument, constants)?,
        "$unionWith" => nested::union_with(argument, constants)?,
        "$lookup" => lookup::lookup(argument, constants)?,
        "$graphLookup" => graph::graph_lookup(argument, constants)?,
        "$redact" => Stage::Redact(Redact(constants.redaction(argument)?)),
        "$setWindowFields" => windows::set_window_fields(argument, constants)?,
        "$densify" => densify::densify(argument)?,
        "$fill" => return windows::fill(argument, constants, stages),
        "$out" | "$merge" => {
            return Err(wrong(40601, format!("{name} can only be the final stage in the pipeline")));
        }
        "$collStats" | "$currentOp" | "$indexStats" => {
            nested::check_argument(name, argument, constants)?;
            return Err(wrong(40602, format!("{name} is only valid as the first stage in a pipeline.")));
        }
        "$_internalInhibitOptimization" => Stage::Inhibit,
        "$replaceWith" => Stage::ReplaceRoot(constants.expression(argument)?),
        other => return Err(outline::unrecognized(other)),
    };
    stages.push(stage);
    Ok(())
}

fn object<'a>(argument: RawBsonRef<'a>, code: i32, message: impl Into<String>) -> Result<&'a RawDocument> {
    argument.as_document().ok_or_else(|| wrong(code, message))
}

fn constant(value: RawBsonRef<'_>) -> Result<Expression> {
    Expression::parse(value)
}

/// A filter. What of it has `$expr` is a stage of its own after the rest of it, which may then be asked of the collection.
fn matching(argument: RawBsonRef<'_>, constants: &Constants, stages: &mut Vec<Stage>) -> Result<()> {
    let filter = object(argument, 15959, "the match filter must be an expression in an object")?;
    let (rest, computed) = split_expressions(filter);
    let condition = if computed.is_empty() { None } else { Some(Condition::parse(&computed, constants)?) };
    let filter = Filter::parse(&without_comment(&rest), Purpose::Find)?;
    if condition.is_none() || !filter.is_everything() {
        stages.push(Stage::Match(Box::new(filter)));
    }
    stages.extend(condition.map(Stage::Condition));
    Ok(())
}

/// Not every collection that is asked knows `$comment`, which has no effect.
fn without_comment(filter: &RawDocument) -> RawDocumentBuf {
    let members = filter.iter().map_while(std::result::Result::ok);
    members.filter(|(name, _)| name.as_str() != "$comment").collect()
}

/// The names of a path in a projection.
fn path_of(path: &str) -> Result<Vec<&str>> {
    let names: Vec<&str> = path.split('.').collect();
    if names.len() > PATH_NAMES_MAX {
        return Err(wrong(15, format!("FieldPath is too long: it has more than {PATH_NAMES_MAX} names")));
    }
    if names.iter().any(|name| name.is_empty()) {
        let code = match path {
            "" => 40352,
            path if path.ends_with('.') => 40353,
            _ => 15998,
        };
        return Err(wrong(code, format!("FieldPath field names may not be empty strings: '{path}'")));
    }
    if let Some(name) = names.iter().find(|name| is_operator(name)) {
        return Err(wrong(
            16410,
            format!("FieldPath field names may not start with '$': '{name}'. Consider using $getField or $setField."),
        ));
    }
    if path.contains('\0') {
        return Err(wrong(16411, "FieldPath field names may not contain '\\0'."));
    }
    Ok(names)
}

/// One field of a $project.
enum Said {
    Switch(bool),
    /// What is computed, and MongoDB's code where a projection that leaves fields out cannot have it.
    Computed(Expression, i32),
}

/// The error for an empty object, which neither includes nor computes a field.
fn refuse_empty(path: &str, of_project: bool) -> ExpressionError {
    match of_project {
        true => {
            wrong(51270, format!("An empty sub-projection is not a valid value. Found empty object at path {path}"))
        }
        false => wrong(40180, format!("an empty object is not a valid value. Found empty object at path {path}")),
    }
}

/// Takes nested objects of a projection apart into paths.
fn flatten(
    prefix: &str,
    object: &RawDocument,
    fields: &mut Vec<(String, Said)>,
    switches: bool,
    constants: &Constants,
) -> Result<()> {
    for (name, value) in members(object) {
        path_of(name)?;
        let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
        let said = match value {
            RawBsonRef::Boolean(b) if switches => Said::Switch(b),
            other if switches && Number::of(other).is_some() => {
                Said::Switch(Number::of(other).is_some_and(|n| n.to_i64() != Some(0)))
            }
            RawBsonRef::Document(inner) if inner.is_empty() => return Err(refuse_empty(&path, switches)),
            RawBsonRef::Document(inner) if is_nested(inner) => {
                flatten(&path, inner, fields, switches, constants)?;
                continue;
            }
            other => {
                let code = if other.as_document().is_some() { 31252 } else { 31310 };
                Said::Computed(constants.expression(other)?, code)
            }
        };
        fields.push((path, said));
    }
    Ok(())
}

/// Whether an object says something of members, and is no operator.
fn is_nested(object: &RawDocument) -> bool {
    let first = object.iter().next().and_then(std::result::Result::ok);
    first.is_some_and(|(name, _)| !name.as_str().starts_with('$'))
}

/// Errors within a $project come with its name, and an unknown operator with a code of its own.
fn in_project(error: ExpressionError) -> ExpressionError {
    let code = if error.code == 168 { 31325 } else { error.code };
    let message = error.message.replace("Unrecognized expression '", "Unknown expression '");
    ExpressionError { code, message: format!("Invalid $project :: caused by :: {message}") }
}

fn project(object: &RawDocument, constants: &Constants) -> Result<Stage> {
    if object.is_empty() {
        return Err(wrong(
            51272,
            "Invalid $project :: caused by :: projection specification must have at least one field",
        ));
    }
    let mut fields = Vec::new();
    flatten("", object, &mut fields, true, constants).map_err(in_project)?;
    let is_id = |path: &str| path == "_id";
    let deciding = fields.iter().find(|(path, said)| !is_id(path) || matches!(said, Said::Computed(..)));
    let includes = match deciding {
        Some((_, said)) => !matches!(said, Said::Switch(false)),
        None => fields.iter().any(|(_, said)| matches!(said, Said::Switch(true))),
    };
    let mut tree = Tree::default();
    let has_id = fields.iter().any(|(path, _)| path.split('.').next() == Some("_id"));
    if includes && !has_id {
        tree.add(&["_id"], Field::Include)?;
    }
    for (path, said) in fields {
        let field = match (said, includes) {
            (Said::Switch(true), true) => Field::Include,
            (Said::Switch(false), false) => Field::Exclude,
            (Said::Switch(false), true) if is_id(&path) => Field::Exclude,
            (Said::Switch(true), false) if is_id(&path) => Field::Include,
            (Said::Switch(false), true) => {
                let message = format!("Cannot do exclusion on field {path} in inclusion projection");
                return Err(in_project(wrong(31254, message)));
            }
            (Said::Switch(true), false) => {
                let message = format!("Cannot do inclusion on field {path} in exclusion projection");
                return Err(in_project(wrong(31253, message)));
            }
            (Said::Computed(expression, _), true) => Field::Computed(expression),
            (Said::Computed(_, code), false) => {
                let message = format!("Cannot use an expression on field {path} in an exclusion projection");
                return Err(in_project(wrong(code, message)));
            }
        };
        tree.add(&path_of(&path)?, field).map_err(in_project)?;
    }
    let others = if includes { Others::LeftOut } else { Others::Kept };
    Ok(Stage::Project(Projector { tree, others }))
}

fn add_fields(name: &str, object: &RawDocument, constants: &Constants) -> Result<Stage> {
    let within = |error: ExpressionError| ExpressionError {
        message: format!("Invalid {name} :: caused by :: {}", error.message),
        ..error
    };
    let mut fields = Vec::new();
    flatten("", object, &mut fields, false, constants).map_err(within)?;
    let mut tree = Tree::default();
    for (path, said) in fields {
        if let Said::Computed(expression, _) = said {
            let collision = |error: ExpressionError| within(ExpressionError { code: 40176, ..error });
            tree.add(&path_of(&path).map_err(within)?, Field::Computed(expression)).map_err(collision)?;
        }
    }
    Ok(Stage::Project(Projector { tree, others: Others::Kept }))
}

fn unset(argument: RawBsonRef<'_>) -> Result<Stage> {
    let paths: Vec<RawBsonRef<'_>> = match argument {
        RawBsonRef::Array(list) => list.into_iter().map_while(std::result::Result::ok).collect(),
        one @ RawBsonRef::String(_) => vec![one],
        _ => return Err(wrong(31002, "$unset specification must be a string or an array")),
    };
    if paths.is_empty() {
        return Err(wrong(31119, "$unset specification must be a string or an array with at least one field"));
    }
    let mut tree = Tree::default();
    for path in paths {
        let path = path.as_str().ok_or_else(|| {
            wrong(31120, "$unset specification must be a string or an array containing only string values")
        })?;
        tree.add(&path_of(path)?, Field::Exclude)?;
    }
    Ok(Stage::Project(Projector { tree, others: Others::Kept }))
}

fn group(object: &RawDocument, constants: &Constants) -> Result<Stage> {
    let (mut id, mut fields) = (None, Vec::new());
    for (name, value) in members(object) {
        if name == "_id" {
            if id.is_some() {
                return Err(wrong(15948, "a group's _id may only be specified once"));
            }
            let is_switch =
                |value: RawBsonRef<'_>| matches!(value, RawBsonRef::Boolean(_)) || Number::of(value).is_some();
            let said = value.as_document().filter(|object| is_nested(object)).map(members).unwrap_or_default();
            if said.into_iter().any(|(_, value)| is_switch(value)) {
                return Err(wrong(17390, "$group does not support inclusion-style expressions"));
            }
            id = Some(constants.expression(value)?);
        } else {
            fields.push(bucket::field(name, value, constants)?);
        }
    }
    let id = id.ok_or_else(|| wrong(15955, "a group specification must include an _id"))?;
    Ok(Stage::Group(Group { id, fields }))
}

fn count_name(argument: RawBsonRef<'_>) -> Result<CString> {
    match argument {
        RawBsonRef::String("") => Err(wrong(40157, "the count field must be a non-empty string")),
        RawBsonRef::String(name) if name.starts_with('$') => {
            Err(wrong(40158, "the count field cannot be a $-prefixed path"))
        }
        RawBsonRef::String(name) if name.contains('.') => Err(wrong(40160, "the count field cannot contain '.'")),
        RawBsonRef::String(name) => {
            CString::try_from(name).map_err(|_| wrong(40159, "the count field cannot contain a null byte"))
        }
        _ => Err(wrong(40156, "the count field must be a non-empty string")),
    }
}

fn sort_by_count(argument: RawBsonRef<'_>, constants: &Constants) -> Result<Expression> {
    match argument {
        RawBsonRef::String(path) if path.starts_with('$') => constants.expression(argument),
        RawBsonRef::String(_) => Err(wrong(
            40148,
            "the sortByCount field must be defined as a $-prefixed path or an expression inside an object",
        )),
        RawBsonRef::Document(object) if !is_nested(object) && !object.is_empty() => constants.expression(argument),
        RawBsonRef::Document(_) => Err(wrong(
            40147,
            "the sortByCount field must be defined as a $-prefixed path or an expression inside an object",
        )),
        _ => Err(wrong(40149, "the sortByCount field must be specified as a string or as an object")),
    }
}

fn unwind(argument: RawBsonRef<'_>) -> Result<Unwind> {
    let (mut path, mut index, mut keeps_empty) = (None, None, false);
    match argument {
        RawBsonRef::String(text) => path = Some(text),
        RawBsonRef::Document(object) => {
            for (name, value) in members(object) {
                match (name, value) {
                    ("path", RawBsonRef::String(text)) => path = Some(text),
                    ("path", other) => {
                        return Err(wrong(
                            28808,
                            format!("expected a string as the path for $unwind stage, got {}", type_name(other)),
                        ));
                    }
                    ("preserveNullAndEmptyArrays", RawBsonRef::Boolean(keeps)) => keeps_empty = keeps,
                    ("preserveNullAndEmptyArrays", other) => {
                        let message = format!(
                            "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage, got {}",
                            type_name(other)
                        );
                        return Err(wrong(28809, message));
                    }
                    ("includeArrayIndex", RawBsonRef::String(text)) if text.starts_with('$') => {
                        return Err(wrong(
                            28822,
                            "includeArrayIndex option to $unwind stage should not be prefixed with a '$'",
                        ));
                    }
                    ("includeArrayIndex", RawBsonRef::String(text)) if !text.is_empty() => {
                        index = Some(path_of(text)?.into_iter().map(str::to_owned).collect());
                    }
                    ("includeArrayIndex", _) => {
                        return Err(wrong(
                            28810,
                            "expected a non-empty string for the includeArrayIndex option to $unwind stage",
                        ));
                    }
                    (other, _) => return Err(wrong(28811, format!("unrecognized option to $unwind stage: {other}"))),
                }
            }
        }
        other => {
            let message = format!(
                "expected either a string or an object as specification for $unwind stage, got {}",
                type_name(other)
            );
            return Err(wrong(15981, message));
        }
    }
    let path = path.ok_or_else(|| wrong(28812, "no path specified to $unwind stage"))?;
    let path = path
        .strip_prefix('$')
        .ok_or_else(|| wrong(28818, format!("path option to $unwind stage should be prefixed with a '$': {path}")))?;
    Ok(Unwind { path: path_of(path)?.into_iter().map(str::to_owned).collect(), index, keeps_empty })
}
