//! Stages with pipelines of their own: $facet and $unionWith.

use super::super::facet::Facet;
use super::super::union::UnionWith;
use super::super::{Pipeline, Result, Stage};
use super::{object, read, wrong};
use crate::expression::{Constants, members};
use crate::raw::type_name;
use bson::raw::{CString, RawArray, RawBsonRef};

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

/// The pipeline of a stage, whose constants are checked with those of the pipeline around it.
pub(super) fn inner_pipeline(stages: &RawArray, constants: &Constants, around: Around) -> Result<Pipeline> {
    let names = stages.into_iter().map_while(std::result::Result::ok).filter_map(RawBsonRef::as_document);
    names.filter_map(|stage| members(stage).first().map(|(name, _)| *name)).try_for_each(|name| around.check(name))?;
    read(stages, constants)
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
