//! $lookup.

use super::super::lookup::{Equality, Inner, Lookup};
use super::super::{Result, Stage, all_of};
use super::nested::{Around, inner_pipeline};
use super::outline::{from_of, stages_of};
use super::{object, path_of, wrong};
use crate::expression::{Constants, members};
use crate::paths::Path;
use crate::raw::type_name;
use bson::raw::{RawArray, RawBsonRef, RawDocument};

pub(super) fn lookup(argument: RawBsonRef<'_>, constants: &Constants) -> Result<Stage> {
    let from = from_of("$lookup", argument)?;
    let (mut local, mut foreign, mut into, mut variables, mut stages) = (None, None, None, None, None);
    for (name, value) in argument.as_document().map(members).unwrap_or_default() {
        let place = match name {
            "from" => continue,
            "localField" => &mut local,
            "foreignField" => &mut foreign,
            "as" => &mut into,
            "pipeline" => {
                stages = Some(stages_of(value)?);
                continue;
            }
            "let" => {
                let what = format!("$lookup argument 'let: ...' must be an object, is type {}", type_name(value));
                variables = Some(object(value, 9, what)?);
                continue;
            }
            other => return Err(wrong(9, format!("unknown argument to $lookup: {other}"))),
        };
        let RawBsonRef::String(text) = value else {
            let what = format!("$lookup argument '{name}: ...' must be a string, is type {}", type_name(value));
            return Err(wrong(9, what));
        };
        *place = Some(text);
    }
    // An empty text counts as not given, as in MongoDB.
    let given = |text: &&str| !text.is_empty();
    let into = into.filter(given).ok_or_else(|| wrong(9, "must specify 'as' field for a $lookup"))?;
    let equal = match (local.filter(given), foreign.filter(given)) {
        (Some(local), Some(foreign)) => {
            path_of(local)?;
            path_of(foreign)?;
            Some((Path::new(local), Path::new(foreign)))
        }
        (None, None) if stages.is_some() => None,
        _ if stages.is_some() => {
            let what = "$lookup requires both or neither of 'localField' and 'foreignField' to be specified";
            return Err(wrong(9, what));
        }
        _ => {
            let what = "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified";
            return Err(wrong(9, what));
        }
    };
    let inner = match (variables, stages) {
        (variables, Some(stages)) => Some(inner(variables, stages, constants)?),
        (Some(_), None) => return Err(wrong(9, "$lookup with a 'let' argument must also specify 'pipeline'")),
        (None, None) => None,
    };
    Ok(Stage::Lookup(Box::new(Lookup {
        from: from.to_owned(),
        equal,
        into: path_of(into)?.into_iter().map(str::to_owned).collect(),
        inner,
    })))
}

/// The pipeline of a `$lookup` with its variables, whose values do not see each other.
fn inner(variables: Option<&RawDocument>, stages: &RawArray, constants: &Constants) -> Result<Inner> {
    let variables = variables.map(members).unwrap_or_default();
    let values = variables.iter().map(|(_, value)| constants.expression(*value)).collect::<Result<Vec<_>>>()?;
    let names: Vec<&str> = variables.iter().map(|(name, _)| *name).collect();
    let mut pipeline = inner_pipeline(stages, &constants.within(&names)?, Around::Lookup)?;
    let filter = all_of(pipeline.take_leading_matches());
    let equality = Equality::of(&pipeline.stages);
    Ok(Inner { values, filter, equality, stages: pipeline.stages })
}
