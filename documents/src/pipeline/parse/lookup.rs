//! $lookup.

use super::super::lookup::Lookup;
use super::super::{Result, Stage};
use super::{object, path_of, wrong};
use crate::expression::members;
use crate::paths::Path;
use crate::raw::type_name;
use bson::raw::RawBsonRef;

pub(super) fn lookup(argument: RawBsonRef<'_>) -> Result<Stage> {
    let (mut from, mut local, mut foreign, mut into) = (None, None, None, None);
    let what = format!("the $lookup specification must be an Object, but found {}", type_name(argument));
    for (name, value) in members(object(argument, 9, what)?) {
        let place = match name {
            "from" => &mut from,
            "localField" => &mut local,
            "foreignField" => &mut foreign,
            "as" => &mut into,
            "pipeline" | "let" => {
                let what = "$lookup with 'let' and 'pipeline' is not available: give localField and foreignField";
                return Err(wrong(115, what));
            }
            other => return Err(wrong(9, format!("unknown argument to $lookup: {other}"))),
        };
        let RawBsonRef::String(text) = value else {
            let what = format!("$lookup argument '{name}: ...' must be a string, is type {}", type_name(value));
            return Err(wrong(9, what));
        };
        *place = Some(text);
    }
    let from = from.ok_or_else(|| wrong(9, "must specify 'pipeline' when 'from' is empty"))?;
    let into = into.ok_or_else(|| wrong(9, "must specify 'as' field for a $lookup"))?;
    let (Some(local), Some(foreign)) = (local, foreign) else {
        let what = "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified";
        return Err(wrong(9, what));
    };
    path_of(local)?;
    path_of(foreign)?;
    Ok(Stage::Lookup(Box::new(Lookup {
        from: from.to_owned(),
        local: Path::new(local),
        foreign: Path::new(foreign),
        into: path_of(into)?.into_iter().map(str::to_owned).collect(),
    })))
}
