//! Operators that take an object of named arguments.

use super::{Node, Parser, is_part_of_date, members, nothing};
use crate::expression::arranged::Zip;
use crate::expression::search::Search;
use crate::expression::{ExpressionError, Result};
use crate::raw::type_name;
use crate::update::{ElementSort, WrongSort};
use bson::RawDocument;
use bson::raw::RawBsonRef;

/// MongoDB's numbers for what may be wrong with named arguments.
struct Codes {
    /// The argument is no object; and what it should be.
    no_object: (i32, &'static str),
    /// An argument is not known.
    unknown: i32,
    /// An argument is missing; one number for each that is required, or one for all.
    missing: &'static [i32],
}

const fn made_of(code: i32, what: &'static str, unknown: i32, missing: &'static [i32]) -> Codes {
    Codes { no_object: (code, what), unknown, missing }
}

fn codes(operator: &str) -> Codes {
    let object = "only supports an object as its argument";
    match operator {
        "$convert" => made_of(9, "expects an object of named arguments", 9, &[9]),
        "$dateToString" => made_of(18629, object, 18534, &[18628]),
        "$dateTrunc" => made_of(5_439_007, object, 5_439_008, &[5_439_009]),
        "$dateAdd" | "$dateSubtract" => {
            made_of(5_166_400, "expects an object as its argument", 5_166_401, &[5_166_402])
        }
        "$dateDiff" => made_of(5_166_301, object, 5_166_302, &[5_166_303]),
        "$dateFromParts" => made_of(40519, object, 40518, &[40516]),
        "$dateFromString" => made_of(40540, object, 40541, &[40542]),
        "$dateToParts" => made_of(40524, object, 40520, &[40522]),
        "$firstN" | "$lastN" => made_of(5_787_801, object, 5_787_901, &[5_787_906, 5_787_907]),
        "$minN" | "$maxN" => made_of(5_787_900, object, 5_787_901, &[5_787_906, 5_787_907]),
        "$regexFind" | "$regexFindAll" | "$regexMatch" => {
            made_of(51103, "expects an object of named arguments", 31024, &[31022, 31023])
        }
        "$replaceAll" | "$replaceOne" => {
            made_of(51751, "requires an object as an argument", 51750, &[51749, 51748, 51747])
        }
        "$setField" => made_of(4_161_100, object, 4_161_101, &[4_161_102, 4_161_109, 4_161_103]),
        "$sortArray" => made_of(2_942_500, "requires an object as an argument", 2_942_501, &[2_942_502, 2_942_503]),
        "$unsetField" => made_of(4_161_100, object, 4_161_101, &[4_161_102, 4_161_109]),
        "$zip" => made_of(34460, "only supports an object as an argument", 34464, &[34465]),
        part if is_part_of_date(part) => made_of(40536, "takes a date or an object", 40535, &[40539]),
        _ => made_of(50696, "only supports an object as an argument", 50694, &[50695]),
    }
}

fn unknown(operator: &str, name: &str) -> ExpressionError {
    ExpressionError::new(codes(operator).unknown, format!("Unrecognized argument to {operator}: {name}"))
}

/// The object of an operator's arguments.
fn object_of<'d>(operator: &str, argument: RawBsonRef<'d>) -> Result<&'d RawDocument> {
    match argument {
        RawBsonRef::Document(object) => Ok(object),
        other => {
            let (code, wanted) = codes(operator).no_object;
            Err(ExpressionError::new(code, format!("{operator} {wanted}, found {}", type_name(other))))
        }
    }
}

impl Parser<'_> {
    /// Arguments by name, in the order of `names`; those that are left out are missing.
    pub(super) fn named(
        &mut self,
        operator: &str,
        names: &[&str],
        required: usize,
        argument: RawBsonRef<'_>,
    ) -> Result<Vec<Node>> {
        let object = object_of(operator, argument)?;
        let mut nodes: Vec<Option<Node>> = vec![None; names.len()];
        for (name, value) in members(object) {
            let at = names.iter().position(|known| *known == name).ok_or_else(|| unknown(operator, name))?;
            nodes[at] = Some(self.any(value)?);
        }
        if let Some(at) = nodes.iter().take(required).position(Option::is_none) {
            let message = format!("Missing '{}' parameter to {operator}", names[at]);
            let missing = codes(operator).missing;
            let code = missing.get(at).or(missing.last()).copied().unwrap_or_default();
            return Err(ExpressionError::new(code, message));
        }
        check_members(operator, object)?;
        // What is left out is undefined, which differs from what is missing in a document.
        let given = nodes.into_iter().map(|node| node.unwrap_or_else(nothing));
        Ok(given.collect())
    }

    /// `$regexMatch` and its kind.
    pub(super) fn search(&mut self, operator: &str, argument: RawBsonRef<'_>) -> Result<Node> {
        let mut nodes = self.named(operator, &["input", "regex", "options"], 2, argument)?.into_iter();
        let mut next = || nodes.next().unwrap_or_else(nothing);
        let arguments = [next(), next(), next()];
        Ok(Node::Search(Box::new(Search::new(operator, arguments))))
    }

    /// `$sortArray`, whose sort is no expression.
    pub(super) fn sorted(&mut self, operator: &str, argument: RawBsonRef<'_>) -> Result<Node> {
        let (mut input, mut sort) = (None, None);
        for (name, value) in members(object_of(operator, argument)?) {
            match name {
                "input" => input = Some(self.any(value)?),
                "sortBy" => {
                    sort = Some(ElementSort::parse(value).map_err(|(wrong, what)| {
                        let code = match wrong {
                            WrongSort::Members => 2_942_505,
                            WrongSort::Direction => 2_942_506,
                            WrongSort::Type => 2_942_507,
                        };
                        ExpressionError::new(code, format!("{operator}: {what}"))
                    })?);
                }
                other => return Err(unknown(operator, other)),
            }
        }
        let missing = |code, name| ExpressionError::new(code, format!("{operator} requires '{name}' to be specified"));
        let input = input.ok_or_else(|| missing(2_942_502, "input"))?;
        let sort = sort.ok_or_else(|| missing(2_942_503, "sortBy"))?;
        Ok(Node::Sorted(Box::new(input), sort))
    }

    /// `$zip`.
    pub(super) fn zip(&mut self, operator: &str, argument: RawBsonRef<'_>) -> Result<Node> {
        let wrong = |code, what: String| ExpressionError::new(code, what);
        let (mut inputs, mut defaults, mut is_longest) = (Vec::new(), Vec::new(), false);
        for (name, value) in members(object_of(operator, argument)?) {
            match (name, value) {
                ("inputs", RawBsonRef::Array(_)) => inputs = self.arguments(value)?,
                ("defaults", RawBsonRef::Array(_)) => defaults = self.arguments(value)?,
                ("useLongestLength", RawBsonRef::Boolean(longest)) => is_longest = longest,
                ("inputs" | "defaults", other) => {
                    let code = if name == "inputs" { 34461 } else { 34462 };
                    let found = type_name(other);
                    return Err(wrong(code, format!("{name} must be an array of expressions, found {found}")));
                }
                ("useLongestLength", other) => {
                    return Err(wrong(34463, format!("useLongestLength must be a bool, found {}", type_name(other))));
                }
                (other, _) => return Err(unknown(operator, other)),
            }
        }
        if inputs.is_empty() {
            return Err(wrong(34465, "$zip requires at least one input array".to_owned()));
        }
        if !defaults.is_empty() && !is_longest {
            return Err(wrong(34466, "cannot specify defaults unless useLongestLength is true".to_owned()));
        }
        if !defaults.is_empty() && defaults.len() != inputs.len() {
            return Err(wrong(34467, "defaults and inputs must have the same length".to_owned()));
        }
        Ok(Node::Zip(Box::new(Zip { inputs, defaults, is_longest })))
    }
}

/// What some operators ask of their arguments as they are written.
fn check_members(operator: &str, object: &RawDocument) -> Result<()> {
    match operator {
        "$dateFromParts" => check_parts(object),
        "$setField" | "$unsetField" => check_field(operator, object),
        _ => Ok(()),
    }
}

/// A date is made of its month or of its week.
fn check_parts(object: &RawDocument) -> Result<()> {
    let has = |name: &str| members(object).iter().any(|(known, _)| *known == name);
    let wrong = |code, what| Err(ExpressionError::new(code, format!("$dateFromParts {what}")));
    match (has("year"), has("isoWeekYear")) {
        (false, false) => wrong(40516, "requires either 'year' or 'isoWeekYear' to be present"),
        (true, is_iso) if is_iso || has("isoWeek") || has("isoDayOfWeek") => {
            wrong(40489, "does not allow mixing natural dates with ISO dates")
        }
        (false, true) if has("month") || has("day") => {
            wrong(40525, "does not allow mixing ISO dates with natural dates")
        }
        _ => Ok(()),
    }
}

/// The name of a field is a text, as it is or in `$literal`.
fn check_field(operator: &str, object: &RawDocument) -> Result<()> {
    let field = members(object).into_iter().find(|(name, _)| *name == "field").map(|(_, value)| value);
    let wrong = |code, what: String| Err(ExpressionError::new(code, format!("{operator} {what}")));
    let (text, is_literal) = match field {
        Some(RawBsonRef::Document(object)) => match members(object).as_slice() {
            [("$literal" | "$const", literal)] => (Some(*literal), true),
            _ => (None, false),
        },
        Some(RawBsonRef::Array(_)) => (None, false),
        other => (other, false),
    };
    match text {
        Some(RawBsonRef::String(path)) if !is_literal && path.starts_with('$') => {
            let what = format!(
                "requires a constant 'field', but '{path}' is a field path reference which is not allowed in this \
                 context. Did you mean {{$literal: '{path}'}}?"
            );
            wrong(4_161_108, what)
        }
        Some(RawBsonRef::String(_)) => Ok(()),
        None => {
            wrong(4_161_106, "requires 'field' to evaluate to a constant, but got a non-constant argument".to_owned())
        }
        Some(other) => {
            wrong(4_161_107, format!("requires 'field' to evaluate to type String, but got {}", type_name(other)))
        }
    }
}

/// `$rand` takes an object or a list of nothing.
pub(super) fn check_no_arguments(operator: &str, argument: RawBsonRef<'_>) -> Result<()> {
    let is_empty = match argument {
        RawBsonRef::Document(object) => object.is_empty(),
        RawBsonRef::Array(list) => list.is_empty(),
        other => {
            let what = format!("invalid parameter: expected an object ({operator}), not {}", type_name(other));
            return Err(ExpressionError::new(10065, what));
        }
    };
    if is_empty {
        return Ok(());
    }
    Err(ExpressionError::new(3_040_501, format!("{operator} does not currently accept arguments")))
}
