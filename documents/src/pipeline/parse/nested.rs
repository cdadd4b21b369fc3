//! Stages with pipelines of their own: $facet and $unionWith.

use super::super::facet::Facet;
use super::super::union::UnionWith;
use super::super::{Pipeline, Result, Stage};
use super::outline::{self, SOURCES};
use super::{read, wrong};
use crate::expression::Constants;
use bson::raw::{CString, RawArray, RawBsonRef};

/// Stages that write.
const WRITES: [&str; 2] = ["$out", "$merge"];

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
pub(super) fn check_argument(name: &str, argument: RawBsonRef<'_>, constants: &Constants) -> Result<()> {
    match (name, argument) {
        ("$facet", _) => facet(argument, constants).map(drop),
        ("$indexStats", RawBsonRef::Document(options)) if options.is_empty() => Ok(()),
        ("$indexStats", _) => Err(wrong(28803, "The $indexStats stage specification must be an empty object")),
        _ => Ok(()),
    }
}

pub(super) fn facet(argument: RawBsonRef<'_>, constants: &Constants) -> Result<Stage> {
    let facet = |(name, stages): (&str, &RawArray)| -> Result<Facet> {
        let name = CString::try_from(name).map_err(|error| wrong(9, error.to_string()))?;
        Ok(Facet { name, pipeline: inner_pipeline(stages, constants, Around::Facet)? })
    };
    outline::facets(argument)?.into_iter().map(facet).collect::<Result<Vec<_>>>().map(Stage::Facet)
}

pub(super) fn union_with(argument: RawBsonRef<'_>, constants: &Constants) -> Result<Stage> {
    let (collection, stages) = outline::union(argument)?;
    let constants = constants.within(&[])?;
    let pipeline = match stages {
        Some(stages) => inner_pipeline(stages, &constants, Around::Union)?,
        None => Pipeline::default(),
    };
    Ok(Stage::Union(Box::new(UnionWith { collection: collection.to_owned(), pipeline })))
}
