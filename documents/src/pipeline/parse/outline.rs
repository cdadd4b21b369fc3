//! The outline of a pipeline: its stages by name, and the collections that these name.
//!
//! MongoDB looks at the outline of a whole pipeline, and of those within it, before it reads any stage. So of several mistakes one in
//! the outline is reported.

use super::super::Result;
use super::super::graph::GraphLookup;
use super::{object, wrong};
use crate::ExpressionError;
use crate::expression::members;
use crate::paths::member;
use crate::raw::type_name;
use bson::raw::{RawArray, RawBsonRef, RawDocument};

/// The stages that there are beside those that make documents of their own.
const STAGES: [&str; 28] = [
    "$match",
    "$project",
    "$addFields",
    "$set",
    "$unset",
    "$group",
    "$sort",
    "$limit",
    "$skip",
    "$count",
    "$sortByCount",
    "$unwind",
    "$replaceRoot",
    "$replaceWith",
    "$bucket",
    "$bucketAuto",
    "$setWindowFields",
    "$densify",
    "$fill",
    "$lookup",
    GraphLookup::NAME,
    "$redact",
    "$unionWith",
    "$facet",
    "$sample",
    "$out",
    "$merge",
    "$_internalInhibitOptimization",
];
/// Stages that make documents of their own, and so begin a pipeline.
pub(super) const SOURCES: [&str; 9] = [
    "$collStats",
    "$indexStats",
    "$currentOp",
    "$planCacheStats",
    "$geoNear",
    "$changeStream",
    "$search",
    "$documents",
    "$listSessions",
];
/// Pipelines within each other that are looked at; deeper ones are refused when they are read.
const DEPTH_MAX: usize = 100;

/// Checks the outline of a pipeline.
pub(super) fn check(stages: &RawArray) -> Result<()> {
    check_within(stages, 0)
}

fn check_within(stages: &RawArray, depth: usize) -> Result<()> {
    if depth > DEPTH_MAX {
        return Ok(());
    }
    stages.into_iter().map_while(std::result::Result::ok).try_for_each(|stage| {
        let (name, argument) = stage_of(stage)?;
        check_stage(name, argument, depth)
    })
}

/// The name of a stage and its argument.
pub(super) fn stage_of(stage: RawBsonRef<'_>) -> Result<(&str, RawBsonRef<'_>)> {
    let RawBsonRef::Document(stage) = stage else {
        return Err(wrong(14, "Each element of the 'pipeline' array must be an object"));
    };
    match members(stage).as_slice() {
        [one] => Ok(*one),
        _ => Err(wrong(40323, "A pipeline stage specification object must contain exactly one field.")),
    }
}

/// The list of stages that an option is.
pub(super) fn stages_of(value: RawBsonRef<'_>) -> Result<&RawArray> {
    match value {
        RawBsonRef::Array(stages) => Ok(stages),
        _ => Err(wrong(14, "'pipeline' option must be specified as an array")),
    }
}

pub(super) fn unrecognized(name: &str) -> ExpressionError {
    let shown: String = name.chars().take(60).collect();
    wrong(40324, format!("Unrecognized pipeline stage name: '{}'", shown.escape_debug()))
}

fn check_stage(name: &str, argument: RawBsonRef<'_>, depth: usize) -> Result<()> {
    match name {
        "$facet" => facets(argument)?.into_iter().try_for_each(|(_, stages)| check_within(stages, depth + 1)),
        "$unionWith" => match union(argument)? {
            (_, Some(stages)) => check_within(stages, depth + 1),
            (_, None) => Ok(()),
        },
        "$lookup" => {
            from_of(name, argument)?;
            match argument.as_document().and_then(|options| member(options, "pipeline")) {
                Some(stages) => check_within(stages_of(stages)?, depth + 1),
                None => Ok(()),
            }
        }
        GraphLookup::NAME => from_of(name, argument).map(drop),
        "$out" => check_out(argument),
        "$merge" => check_merge(argument),
        "$collStats" if argument.as_document().is_none() => {
            Err(wrong(5_447_000, format!("$collStats must take a nested object but found: {}", type_name(argument))))
        }
        name if STAGES.contains(&name) || SOURCES.contains(&name) => Ok(()),
        name => Err(unrecognized(name)),
    }
}

/// Refuses what cannot be the name of a collection that a stage reads or writes.
fn check_collection(stage: &str, name: &str) -> Result<()> {
    match name {
        "" => Err(wrong(73, format!("{stage} must name a collection"))),
        name if name.starts_with('.') => Err(wrong(73, format!("Collection names cannot start with '.': {name}"))),
        _ => Ok(()),
    }
}

/// The collection that a `$lookup` or `$graphLookup` reads.
pub(super) fn from_of<'a>(stage: &str, argument: RawBsonRef<'a>) -> Result<&'a str> {
    let what = format!("the {stage} stage specification must be an object, but found {}", type_name(argument));
    match member(object(argument, 9, what)?, "from") {
        Some(RawBsonRef::String(name)) => check_collection(stage, name).map(|()| name),
        Some(other) => {
            let given = type_name(other);
            Err(wrong(9, format!("{stage} 'from' field must be a string, but found {given}")))
        }
        None => Err(wrong(9, format!("missing 'from' option to {stage} stage specification"))),
    }
}

/// The facets of a `$facet` by name.
pub(super) fn facets(argument: RawBsonRef<'_>) -> Result<Vec<(&str, &RawArray)>> {
    let what = "the $facet specification must be a non-empty object";
    let specification = members(object(argument, 40169, what)?);
    if specification.is_empty() {
        return Err(wrong(40169, what));
    }
    let mut facets = Vec::with_capacity(specification.len());
    for (name, value) in specification {
        check_name(name)?;
        let RawBsonRef::Array(stages) = value else {
            let what = format!("arguments to $facet must be arrays, {name} is type {}", type_name(value));
            return Err(wrong(40170, what));
        };
        let other = |stage: &RawBsonRef<'_>| stage.as_document().is_none();
        if let Some(other) = stages.into_iter().map_while(std::result::Result::ok).find(other) {
            let what = format!(
                "elements of arrays in $facet spec must be non-empty objects, {name} argument contained an element of type {}",
                type_name(other)
            );
            return Err(wrong(40171, what));
        }
        facets.push((name, stages));
    }
    Ok(facets)
}

/// Refuses what cannot be the name of a facet.
fn check_name(name: &str) -> Result<()> {
    match name {
        "" => Err(wrong(15998, "FieldPath field names may not be empty strings.")),
        name if name.starts_with('$') => {
            let what =
                format!("FieldPath field names may not start with '$'. Consider using $getField or $setField: {name}");
            Err(wrong(16410, what))
        }
        name if name.contains('.') => {
            let what =
                format!("FieldPath field names may not contain '.'. Consider using $getField or $setField: {name}");
            Err(wrong(16412, what))
        }
        _ => Ok(()),
    }
}

/// The collection of a `$unionWith`, and its stages.
pub(super) fn union(argument: RawBsonRef<'_>) -> Result<(&str, Option<&RawArray>)> {
    let (mut collection, mut stages) = (None, None);
    match argument {
        RawBsonRef::String(name) => collection = Some(name),
        RawBsonRef::Document(options) => {
            for (name, value) in members(options) {
                let mistyped = |wanted: &str| {
                    let given = type_name(value);
                    let what =
                        format!("BSON field '$unionWith.{name}' is the wrong type '{given}', expected type '{wanted}'");
                    Err(wrong(14, what))
                };
                match (name, value) {
                    ("coll", RawBsonRef::String(name)) => collection = Some(name),
                    ("coll", RawBsonRef::Null) => {}
                    ("coll", _) => return mistyped("string"),
                    ("pipeline", RawBsonRef::Array(list)) => stages = Some(list),
                    ("pipeline", _) => return mistyped("array"),
                    (other, _) => {
                        let what = format!("BSON field '$unionWith.{other}' is an unknown field.");
                        return Err(wrong(40415, what));
                    }
                }
            }
        }
        other => {
            let given = type_name(other);
            let what = format!("the $unionWith stage specification must be an object or string, but found {given}");
            return Err(wrong(9, what));
        }
    }
    let what = "$unionWith stage without explicit collection must have a pipeline with $documents as first stage";
    let collection = collection.ok_or_else(|| wrong(9, what))?;
    // The empty name is an error once the collection is read, as in MongoDB.
    if !collection.is_empty() {
        check_collection("$unionWith", collection)?;
    }
    Ok((collection, stages))
}

fn check_out(argument: RawBsonRef<'_>) -> Result<()> {
    match argument {
        RawBsonRef::String(name) => check_collection("$out", name),
        RawBsonRef::Document(target) => {
            if !names_collection(target) {
                return Err(wrong(
                    16994,
                    "If an object is passed to $out it must have exactly 2 fields: 'db' and 'coll'",
                ));
            }
            members(target).into_iter().try_for_each(|(name, value)| match value {
                RawBsonRef::String(text) if name == "coll" => check_collection("$out", text),
                RawBsonRef::String(_) => Ok(()),
                other => Err(wrong(13111, format!("wrong type for field ({name}) {} != string", type_name(other)))),
            })
        }
        other => {
            let given = type_name(other);
            Err(wrong(16990, format!("$out only supports a string or object argument, but found {given}")))
        }
    }
}

/// Whether an object has the members `db` and `coll`, and no others.
fn names_collection(target: &RawDocument) -> bool {
    let mut names: Vec<&str> = members(target).into_iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names == ["coll", "db"]
}

fn check_merge(argument: RawBsonRef<'_>) -> Result<()> {
    match argument {
        RawBsonRef::String(name) => check_collection("$merge", name),
        RawBsonRef::Document(options) if member(options, "into").is_none() => {
            Err(wrong(40414, "BSON field '$merge.into' is missing but a required field"))
        }
        RawBsonRef::Document(_) => Ok(()),
        other => {
            let given = type_name(other);
            Err(wrong(14, format!("$merge requires a string or object argument, but found {given}")))
        }
    }
}
