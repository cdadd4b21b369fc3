//! Stages with pipelines of their own: $facet and $unionWith.

use super::super::facet::Facet;
use super::super::union::UnionWith;
use super::super::{Pipeline, Result, Stage};
use super::{object, read, wrong};
use crate::expression::{Constants, members};
use crate::raw::type_name;
use bson::raw::{CString, RawArray, RawBsonRef, RawDocument};

/// Stages that write.
const WRITES: [&str; 2] = ["$out", "$merge"];
/// Stages that make documents of their own, and so begin a pipeline.
const SOURCES: [&str; 9] = [
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

/// The stage around a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Around {
    Facet,
    Lookup,
    Union,
}

impl Around {
    /// Refuses a stage that cannot be in the pipeline.
    fn check(self, name: &str) -> Result<()> {
        let is_source = SOURCES.contains(&name);
        match self {
            Around::Facet if is_source || WRITES.contains(&name) || name == "$facet" => {
                Err(wrong(40600, format!("{name} is not allowed to be used within a $facet stage")))
            }
            Around::Lookup if WRITES.contains(&name) => {
                Err(wrong(51047, format!("{name} is not allowed within a $lookup's sub-pipeline")))
            }
            Around::Union if WRITES.contains(&name) => {
                Err(wrong(31441, format!("{name} is not allowed within a $unionWith's sub-pipeline")))
            }
            Around::Lookup | Around::Union if is_source => {
                Err(wrong(115, format!("{name} is not available within $lookup and $unionWith")))
            }
            _ => Ok(()),
        }
    }
}

/// The pipeline of a stage, whose constants are checked with those of the pipeline around it. A stage that cannot be in it is an
/// error once all of them are read, as in MongoDB.
pub(super) fn inner_pipeline(stages: &RawArray, constants: &Constants, around: Around) -> Result<Pipeline> {
    let mut refused = None;
    let pipeline = read(stages, constants, |name, argument| {
        let Err(error) = around.check(name) else { return Ok(false) };
        check_argument(name, argument, constants)?;
        refused.get_or_insert(error);
        Ok(true)
    })?;
    match refused {
        Some(error) => Err(error),
        None => Ok(pipeline),
    }
}

/// Refuses a wrong argument of a stage that cannot be where it is.
fn check_argument(name: &str, argument: RawBsonRef<'_>, constants: &Constants) -> Result<()> {
    let given = type_name(argument);
    let may_name = matches!(argument, RawBsonRef::String(_) | RawBsonRef::Document(_));
    match (name, argument) {
        ("$facet", _) => facet(argument, constants).map(drop),
        ("$out", RawBsonRef::Document(target)) if !names_collection(target) => {
            Err(wrong(16994, "If an object is passed to $out it must have exactly 2 fields: 'db' and 'coll'"))
        }
        ("$merge", RawBsonRef::Document(options)) if members(options).iter().all(|(name, _)| *name != "into") => {
            Err(wrong(40414, "BSON field '$merge.into' is missing but a required field"))
        }
        ("$out", _) if !may_name => {
            Err(wrong(16990, format!("$out only supports a string or object argument, not {given}")))
        }
        ("$merge", _) if !may_name => {
            Err(wrong(51182, format!("$merge requires a string or object argument, but found {given}")))
        }
        _ => Ok(()),
    }
}

/// Whether an object has the members `db` and `coll`, and no others.
fn names_collection(target: &RawDocument) -> bool {
    let mut names: Vec<&str> = members(target).into_iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names == ["coll", "db"]
}

/// The list of stages that an option is.
pub(super) fn stages_of(value: RawBsonRef<'_>) -> Result<&RawArray> {
    match value {
        RawBsonRef::Array(stages) => Ok(stages),
        _ => Err(wrong(14, "'pipeline' option must be specified as an array")),
    }
}

pub(super) fn facet(argument: RawBsonRef<'_>, constants: &Constants) -> Result<Stage> {
    let what = "the $facet specification must be a non-empty object";
    let specification = members(object(argument, 40169, what)?);
    if specification.is_empty() {
        return Err(wrong(40169, what));
    }
    let facet = |(name, value): (&str, RawBsonRef<'_>)| {
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
        let name = CString::try_from(name).map_err(|error| wrong(9, error.to_string()))?;
        Ok(Facet { name, pipeline: inner_pipeline(stages, constants, Around::Facet)? })
    };
    specification.into_iter().map(facet).collect::<Result<Vec<_>>>().map(Stage::Facet)
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

pub(super) fn union_with(argument: RawBsonRef<'_>, constants: &Constants) -> Result<Stage> {
    let (mut collection, mut stages) = (None, None);
    match argument {
        RawBsonRef::String(name) => collection = Some(name),
        RawBsonRef::Document(options) => {
            for (name, value) in members(options) {
                match (name, value) {
                    ("coll", RawBsonRef::String(name)) => collection = Some(name),
                    ("coll", other) => {
                        let given = type_name(other);
                        let what =
                            format!("BSON field '$unionWith.coll' is the wrong type '{given}', expected type 'string'");
                        return Err(wrong(14, what));
                    }
                    ("pipeline", RawBsonRef::Array(list)) => stages = Some(list),
                    ("pipeline", other) => {
                        let given = type_name(other);
                        let what = format!(
                            "BSON field '$unionWith.pipeline' is the wrong type '{given}', expected type 'array'"
                        );
                        return Err(wrong(14, what));
                    }
                    (other, _) => {
                        let what = format!("BSON field '$unionWith.{other}' is an unknown field.");
                        return Err(wrong(40415, what));
                    }
                }
            }
        }
        other => {
            let what = format!(
                "the $unionWith stage specification must be an object or string, but found {}",
                type_name(other)
            );
            return Err(wrong(9, what));
        }
    }
    let collection = collection.ok_or_else(|| {
        wrong(9, "$unionWith stage without explicit collection must have a pipeline with $documents as first stage")
    })?;
    if collection.is_empty() {
        return Err(wrong(73, "$unionWith must name a collection"));
    }
    let constants = constants.within(&[])?;
    let pipeline = match stages {
        Some(stages) => inner_pipeline(stages, &constants, Around::Union)?,
        None => Pipeline::default(),
    };
    Ok(Stage::Union(Box::new(UnionWith { collection: collection.to_owned(), pipeline })))
}
