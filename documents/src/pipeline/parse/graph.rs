//! $graphLookup.

use super::super::condition::{Condition, split_expressions};
use super::super::graph::GraphLookup;
use super::super::{Result, Stage};
use super::outline::from_of;
use super::{object, path_of, without_comment, wrong};
use crate::expression::{Constants, Expression, members};
use crate::order::Number;
use crate::paths::Path;
use crate::raw::type_name;
use crate::{ExpressionError, Filter, Purpose, whole_number};
use bson::raw::{RawBsonRef, RawDocumentBuf};

/// The options as they are written.
#[derive(Default)]
struct Options<'a> {
    start: Option<Expression>,
    connect_from: Option<&'a str>,
    connect_to: Option<&'a str>,
    into: Option<&'a str>,
    depth_max: Option<u64>,
    depth_field: Option<Vec<String>>,
    restriction: Option<(RawDocumentBuf, Option<Condition>)>,
}

pub(super) fn graph_lookup(argument: RawBsonRef<'_>, constants: &Constants) -> Result<Stage> {
    let from = from_of(GraphLookup::NAME, argument)?.to_owned();
    let Options { start, connect_from, connect_to, into, depth_max, depth_field, restriction } =
        options(argument, constants)?;
    // An empty text counts as not given, as in MongoDB.
    let given = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
    let (Some(start), Some(connect_from), Some(connect_to), Some(into)) =
        (start, given(connect_from), given(connect_to), given(into))
    else {
        let what = "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and 'connectToField' to be specified.";
        return Err(wrong(40105, what));
    };
    let into = names_of(&into)?;
    let connect_from = names_of(&connect_from)?;
    path_of(&connect_to)?;
    let connect_to = Path::new(&connect_to);
    let (filter, condition) = restriction.unwrap_or_default();
    Ok(Stage::Graph(Box::new(GraphLookup {
        from,
        start,
        connect_from,
        connect_to,
        into,
        depth_max,
        depth_field,
        filter,
        condition,
    })))
}

fn options<'a>(argument: RawBsonRef<'a>, constants: &Constants) -> Result<Options<'a>> {
    let mut options = Options::default();
    for (name, value) in argument.as_document().map(members).unwrap_or_default() {
        let text = || match value {
            RawBsonRef::String(text) => Ok(text),
            other => {
                let what = format!("expected string as argument for {name}, found: {}", type_name(other));
                Err(wrong(40103, what))
            }
        };
        match name {
            "from" => {}
            "startWith" => options.start = Some(constants.expression(value)?),
            "connectFromField" => options.connect_from = Some(text()?),
            "connectToField" => options.connect_to = Some(text()?),
            "as" => options.into = Some(text()?),
            "depthField" => options.depth_field = Some(names_of(text()?)?),
            "maxDepth" => options.depth_max = Some(depth_of(value)?),
            "restrictSearchWithMatch" => options.restriction = Some(restriction(value, constants)?),
            other => return Err(wrong(40104, format!("Unknown argument to $graphLookup: {other}"))),
        }
    }
    Ok(options)
}

fn names_of(path: &str) -> Result<Vec<String>> {
    Ok(path_of(path)?.into_iter().map(str::to_owned).collect())
}

fn depth_of(value: RawBsonRef<'_>) -> Result<u64> {
    let Some(number) = Number::of(value) else {
        return Err(wrong(40100, format!("maxDepth must be numeric, found type: {}", type_name(value))));
    };
    // Of a fraction the whole part counts.
    if !number.is_nan() && number.compare(Number::Int(-1)).is_le() {
        return Err(wrong(40101, "maxDepth requires a nonnegative argument"));
    }
    let depth = whole_number(value).and_then(|depth| u64::try_from(depth).ok());
    depth.ok_or_else(|| wrong(40102, "maxDepth must be a whole number of 64 bits"))
}

/// The filter that the collection is asked, and what of it is asked of its documents.
fn restriction(value: RawBsonRef<'_>, constants: &Constants) -> Result<(RawDocumentBuf, Option<Condition>)> {
    let what = format!("restrictSearchWithMatch must be an object, found {}", type_name(value));
    let (asked, computed) = split_expressions(object(value, 40185, what)?);
    let within = |error: ExpressionError| ExpressionError {
        message: format!(
            "Failed to parse 'restrictSearchWithMatch' option to $graphLookup :: caused by :: {}",
            error.message
        ),
        ..error
    };
    let condition = match computed.is_empty() {
        true => None,
        false => Some(Condition::parse(&computed, constants).map_err(within)?),
    };
    let asked = without_comment(&asked);
    Filter::parse(&asked, Purpose::Find).map_err(|error| within(error.into()))?;
    Ok((asked, condition))
}
