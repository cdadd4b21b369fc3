//! The operators that are functions of their values, by name.

use super::{Result, Scope, Value, accumulator, arithmetic, compare, convert, date, list, object, real, set, text};
use bson::raw::RawBson;

/// A function of values.
#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    /// How many arguments it takes.
    pub(super) arguments: (usize, usize),
    /// The names of its arguments, if it takes an object of them instead of a list; those from the second number of `required`
    /// on may be left out.
    pub(super) named: Option<(&'static [&'static str], usize)>,
    pub(super) run: fn(&'static str, &[Value]) -> Result<Value>,
}

impl Operator {
    /// Whether the first null is the result, whatever comes after it.
    pub(super) fn stops_at_null(&self) -> bool {
        matches!(self.name, "$add" | "$concat" | "$concatArrays" | "$multiply" | "$setIntersection" | "$setUnion")
    }

    /// Whether the next argument is needed after these values: `onNull` only if there is no date, the value of `$setField` only
    /// if there is an object, a set of `$setEquals` only if those before it are equal. The value of one that is not needed is undefined.
    pub(super) fn needs_next(&self, values: &[Value], scope: &mut Scope<'_>) -> Result<bool> {
        Ok(match (self.name, values) {
            ("$dateToString", [date, _, _]) => super::is_nothing(date),
            ("$setField", [_, input]) => matches!(input, Some(RawBson::Document(_))),
            ("$setEquals", [.., last]) if list::as_list(last).is_none() => false,
            ("$setEquals", _) => self.last_are_equal(values, scope)?,
            _ => true,
        })
    }

    /// Whether the last two values are equal sets.
    fn last_are_equal(&self, values: &[Value], scope: &mut Scope<'_>) -> Result<bool> {
        let Some(two) = values.last_chunk::<2>() else { return Ok(true) };
        let before = scope.kept();
        scope.keep_bytes(self.work_bytes(two))?;
        scope.let_go(before);
        let [previous, last] = two;
        set::all_equal(self.name, previous, std::slice::from_ref(last))
    }

    /// Bytes that it needs for its work with these values, beside them and its result.
    pub(super) fn work_bytes(&self, values: &[Value]) -> usize {
        match self.name {
            "$maxN" | "$minN" | "$setDifference" | "$setEquals" | "$setIntersection" | "$setIsSubset" | "$setUnion" => {
                list::sort_bytes(values)
            }
            _ => 0,
        }
    }

    /// Whether it gives another value each time.
    pub(crate) fn is_random(&self) -> bool {
        self.name == "$rand"
    }
}

const ANY: usize = usize::MAX;

const fn fixed(name: &'static str, count: usize, run: fn(&'static str, &[Value]) -> Result<Value>) -> Operator {
    Operator { name, arguments: (count, count), named: None, run }
}

const fn ranged(
    name: &'static str,
    arguments: (usize, usize),
    run: fn(&'static str, &[Value]) -> Result<Value>,
) -> Operator {
    Operator { name, arguments, named: None, run }
}

const fn named(
    name: &'static str,
    names: &'static [&'static str],
    required: usize,
    run: fn(&'static str, &[Value]) -> Result<Value>,
) -> Operator {
    Operator { name, arguments: (0, ANY), named: Some((names, required)), run }
}

/// The arguments of `$dateFromParts`, in the order in which MongoDB evaluates them.
const PARTS_OF_DATE: &[&str] = &[
    "hour",
    "minute",
    "second",
    "millisecond",
    "timezone",
    "year",
    "month",
    "day",
    "isoWeekYear",
    "isoWeek",
    "isoDayOfWeek",
];

static OPERATORS: &[Operator] = &[
    fixed("$abs", 1, arithmetic::abs),
    fixed("$acos", 1, real::trigonometric),
    fixed("$acosh", 1, real::trigonometric),
    ranged("$add", (0, ANY), arithmetic::add),
    ranged("$allElementsTrue", (1, 1), list::all_true),
    ranged("$anyElementTrue", (1, 1), list::any_true),
    fixed("$arrayElemAt", 2, list::element_at),
    fixed("$arrayToObject", 1, list::to_object),
    fixed("$asin", 1, real::trigonometric),
    fixed("$asinh", 1, real::trigonometric),
    fixed("$atan", 1, real::trigonometric),
    fixed("$atan2", 2, real::angle_of_point),
    fixed("$atanh", 1, real::trigonometric),
    ranged("$avg", (0, ANY), accumulator::accumulate),
    fixed("$binarySize", 1, object::binary_size),
    fixed("$bsonSize", 1, object::bson_size),
    fixed("$ceil", 1, arithmetic::round_to_whole),
    fixed("$cmp", 2, compare::cmp),
    ranged("$concat", (0, ANY), text::concat),
    ranged("$concatArrays", (0, ANY), list::concat),
    named("$convert", &["input", "to", "onError", "onNull"], 2, convert::convert),
    fixed("$cos", 1, real::trigonometric),
    fixed("$cosh", 1, real::trigonometric),
    named("$dateAdd", &["startDate", "unit", "amount", "timezone"], 3, date::add),
    named("$dateDiff", &["startDate", "endDate", "unit", "timezone", "startOfWeek"], 3, date::difference),
    named("$dateFromParts", PARTS_OF_DATE, 0, date::of_parts),
    named("$dateFromString", &["dateString", "format", "timezone", "onError", "onNull"], 1, date::of_text),
    named("$dateSubtract", &["startDate", "unit", "amount", "timezone"], 3, date::add),
    named("$dateToParts", &["date", "timezone", "iso8601"], 1, date::to_parts),
    named("$dateToString", &["date", "format", "timezone", "onNull"], 1, date::to_text),
    named("$dateTrunc", &["date", "unit", "binSize", "timezone", "startOfWeek"], 2, date::truncate),
    ranged("$dayOfMonth", (1, 1), date::part),
    ranged("$dayOfWeek", (1, 1), date::part),
    ranged("$dayOfYear", (1, 1), date::part),
    fixed("$degreesToRadians", 1, real::angle),
    fixed("$divide", 2, arithmetic::divide),
    fixed("$eq", 2, compare::test),
    fixed("$exp", 1, arithmetic::real),
    fixed("$first", 1, list::end),
    named("$firstN", &["n", "input"], 2, accumulator::several),
    fixed("$floor", 1, arithmetic::round_to_whole),
    fixed("$gt", 2, compare::test),
    fixed("$gte", 2, compare::test),
    ranged("$hour", (1, 1), date::part),
    fixed("$in", 2, list::contains),
    ranged("$indexOfArray", (2, 4), list::index_of),
    ranged("$indexOfBytes", (2, 4), text::index_of),
    ranged("$indexOfCP", (2, 4), text::index_of),
    fixed("$isArray", 1, list::is_list),
    fixed("$isNumber", 1, convert::is_number),
    ranged("$isoDayOfWeek", (1, 1), date::part),
    ranged("$isoWeek", (1, 1), date::part),
    ranged("$isoWeekYear", (1, 1), date::part),
    fixed("$last", 1, list::end),
    named("$lastN", &["n", "input"], 2, accumulator::several),
    fixed("$ln", 1, arithmetic::real),
    fixed("$log", 2, real::log),
    fixed("$log10", 1, arithmetic::real),
    fixed("$lt", 2, compare::test),
    fixed("$lte", 2, compare::test),
    named("$ltrim", &["input", "chars"], 1, text::trim),
    ranged("$max", (0, ANY), accumulator::accumulate),
    named("$maxN", &["n", "input"], 2, accumulator::several),
    ranged("$mergeObjects", (0, ANY), list::merge_objects),
    ranged("$millisecond", (1, 1), date::part),
    ranged("$min", (0, ANY), accumulator::accumulate),
    named("$minN", &["n", "input"], 2, accumulator::several),
    ranged("$minute", (1, 1), date::part),
    fixed("$mod", 2, arithmetic::modulo),
    ranged("$month", (1, 1), date::part),
    ranged("$multiply", (0, ANY), arithmetic::multiply),
    fixed("$ne", 2, compare::test),
    fixed("$not", 1, compare::not),
    fixed("$objectToArray", 1, list::of_object),
    fixed("$pow", 2, arithmetic::power),
    fixed("$radiansToDegrees", 1, real::angle),
    fixed("$rand", 0, real::random),
    ranged("$range", (2, 3), list::range),
    named("$replaceAll", &["input", "find", "replacement"], 3, text::replace),
    named("$replaceOne", &["input", "find", "replacement"], 3, text::replace),
    fixed("$reverseArray", 1, list::reverse),
    ranged("$round", (1, 2), arithmetic::round),
    named("$rtrim", &["input", "chars"], 1, text::trim),
    ranged("$second", (1, 1), date::part),
    fixed("$setDifference", 2, set::difference),
    ranged("$setEquals", (2, ANY), set::equals),
    named("$setField", &["field", "input", "value"], 3, object::set_field),
    ranged("$setIntersection", (0, ANY), set::intersection),
    fixed("$setIsSubset", 2, set::is_subset),
    ranged("$setUnion", (0, ANY), set::union),
    fixed("$sin", 1, real::trigonometric),
    fixed("$sinh", 1, real::trigonometric),
    fixed("$size", 1, list::size),
    ranged("$slice", (2, 3), list::slice),
    fixed("$split", 2, text::split),
    fixed("$sqrt", 1, arithmetic::real),
    ranged("$stdDevPop", (0, ANY), accumulator::accumulate),
    ranged("$stdDevSamp", (0, ANY), accumulator::accumulate),
    fixed("$strLenBytes", 1, text::length),
    fixed("$strLenCP", 1, text::length),
    fixed("$strcasecmp", 2, text::compare_caseless),
    fixed("$substr", 3, text::part_of_bytes),
    fixed("$substrBytes", 3, text::part_of_bytes),
    fixed("$substrCP", 3, text::part),
    fixed("$subtract", 2, arithmetic::subtract),
    ranged("$sum", (0, ANY), accumulator::accumulate),
    fixed("$tan", 1, real::trigonometric),
    fixed("$tanh", 1, real::trigonometric),
    fixed("$toBool", 1, convert::to_bool),
    fixed("$toDate", 1, convert::to_date),
    fixed("$toDecimal", 1, convert::to_decimal),
    fixed("$toDouble", 1, convert::to_double),
    fixed("$toInt", 1, convert::to_int),
    fixed("$toLong", 1, convert::to_long),
    fixed("$toLower", 1, text::case),
    fixed("$toObjectId", 1, convert::to_object_id),
    fixed("$toString", 1, convert::to_text),
    fixed("$toUpper", 1, text::case),
    named("$trim", &["input", "chars"], 1, text::trim),
    ranged("$trunc", (1, 2), arithmetic::round),
    fixed("$tsIncrement", 1, object::part_of_timestamp),
    fixed("$tsSecond", 1, object::part_of_timestamp),
    fixed("$type", 1, convert::type_name),
    named("$unsetField", &["field", "input"], 2, object::set_field),
    ranged("$week", (1, 1), date::part),
    ranged("$year", (1, 1), date::part),
];

/// The operator of this name.
pub(super) fn operator(name: &str) -> Option<&'static Operator> {
    OPERATORS.binary_search_by(|operator| operator.name.cmp(name)).ok().map(|at| &OPERATORS[at])
}

#[cfg(test)]
mod tests;
