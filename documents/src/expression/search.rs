//! `$regexMatch`, `$regexFind` and `$regexFindAll`: regular expressions, with the engine and the options of `$regex`.

use super::scope::Scope;
use super::{ExpressionError, Node, Result, Value, boolean, is_nothing, null};
use crate::Code;
use crate::filter::{Found, Pattern};
use bson::raw::{RawArrayBuf, RawBson, RawDocumentBuf, cstr};

/// Bytes that searches may go through between two questions whether the command was ended.
const ASK_BYTES: usize = 16 << 20;
/// Bytes that a match and each of its groups take, beside their texts.
const MATCH_BYTES: usize = 64;
const GROUP_BYTES: usize = 16;

/// What is wanted of the matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Whether there is one.
    Any,
    First,
    All,
}

/// A search in a text.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    operator: String,
    want: Want,
    input: Node,
    regex: Node,
    options: Node,
    /// The regular expression, if it is the same for all documents.
    compiled: Option<Pattern>,
}

impl Search {
    pub(super) fn new(operator: &str, [input, regex, options]: [Node; 3]) -> Search {
        let want = match operator {
            "$regexMatch" => Want::Any,
            "$regexFind" => Want::First,
            _ => Want::All,
        };
        let mut search = Search { operator: operator.to_owned(), want, input, regex, options, compiled: None };
        search.compiled = search.constant().and_then(Result::ok).flatten();
        search
    }

    pub(super) fn children(&self) -> Vec<&Node> {
        vec![&self.input, &self.regex, &self.options]
    }

    /// The regular expression, if it is the same for all documents.
    fn constant(&self) -> Option<Result<Option<Pattern>>> {
        match (&self.regex, &self.options) {
            (Node::Constant(regex), Node::Constant(options)) => Some(self.pattern(regex, options)),
            _ => None,
        }
    }

    /// Fails if a regular expression that is the same for all documents is wrong.
    pub(super) fn check(&self) -> Result<()> {
        match self.compiled {
            Some(_) => Ok(()),
            None => self.constant().map_or(Ok(()), |pattern| pattern.map(drop)),
        }
    }

    pub(super) fn evaluate(&self, scope: &mut Scope<'_>) -> Result<Value> {
        let before = scope.kept();
        let input = self.input.evaluate(scope)?;
        scope.keep(&input)?;
        let text = match &input {
            Some(RawBson::String(text)) => Some(text.as_str()),
            value if is_nothing(value) => None,
            _ => return Err(self.wrong(51104, "needs 'input' to be of type string")),
        };
        let made = match self.compiled {
            Some(_) => None,
            None => {
                let (regex, options) = (self.regex.evaluate(scope)?, self.options.evaluate(scope)?);
                // To compile a large one takes long.
                scope.ask()?;
                self.pattern(&regex, &options)?
            }
        };
        let result = match (text, self.compiled.as_ref().or(made.as_ref()), self.want) {
            (Some(text), Some(pattern), Want::Any) => Ok(boolean(pattern.is_match(text))),
            (Some(text), Some(pattern), Want::First) => match pattern.find(text, 0) {
                Some(found) => {
                    let place = code_points(&text[..found.span.start]);
                    Ok(Some(RawBson::Document(described(text, &found, place, scope)?)))
                }
                None => null(),
            },
            (Some(text), Some(pattern), Want::All) => all(text, pattern, scope),
            (.., Want::Any) => Ok(boolean(false)),
            (.., Want::First) => null(),
            (.., Want::All) => Ok(Some(RawBson::Array(RawArrayBuf::new()))),
        };
        scope.let_go(before);
        result
    }

    /// The regular expression that values are; nothing for null.
    fn pattern(&self, regex: &Value, options: &Value) -> Result<Option<Pattern>> {
        let (pattern, own_options) = match regex {
            value if is_nothing(value) => (None, ""),
            Some(RawBson::String(pattern)) => (Some(pattern.as_str()), ""),
            Some(RawBson::RegularExpression(regex)) => (Some(regex.pattern.as_str()), regex.options.as_str()),
            _ => return Err(self.wrong(51105, "needs 'regex' to be of type string or regex")),
        };
        let options = match options {
            value if is_nothing(value) => own_options,
            Some(RawBson::String(_)) if !own_options.is_empty() => {
                let what = "found regex option(s) specified in both 'regex' and 'option' fields";
                return Err(self.wrong(51107, what));
            }
            Some(RawBson::String(options)) => options,
            _ => return Err(self.wrong(51106, "needs 'options' to be of type string")),
        };
        if pattern.is_some_and(|pattern| pattern.contains('\0')) {
            return Err(self.wrong(51109, "regular expression cannot contain an embedded null byte"));
        }
        if options.contains('\0') {
            return Err(self.wrong(51110, "regular expression options cannot contain an embedded null byte"));
        }
        // Options are checked even if there is no pattern.
        let compiled = Pattern::new(pattern.unwrap_or_default(), options).map_err(|(code, what)| {
            let code = if code == Code::Location51108 { 51108 } else { 51111 };
            self.wrong(code, &what)
        })?;
        Ok(pattern.map(|_| compiled))
    }

    fn wrong(&self, code: i32, what: &str) -> ExpressionError {
        ExpressionError::new(code, format!("{}: {what}", self.operator))
    }
}

fn code_points(text: &str) -> usize {
    text.chars().count()
}

/// All matches, which do not overlap. After an empty one the search continues with the next code point.
fn all(text: &str, pattern: &Pattern, scope: &mut Scope<'_>) -> Result<Value> {
    let mut list = RawArrayBuf::new();
    // Where the search continues, and the code points before that.
    let (mut at, mut place) = (0, 0);
    let mut unasked = 0;
    loop {
        scope.step()?;
        unasked += text.len() - at;
        if unasked > ASK_BYTES {
            scope.ask()?;
            unasked = 0;
        }
        let Some(found) = pattern.find(text, at) else { break };
        let span = found.span.clone();
        place += code_points(&text[at..span.start]);
        list.push(described(text, &found, place, scope)?);
        let next = text[span.start..].chars().next().map_or(0, char::len_utf8);
        at = if span.is_empty() { span.start + next } else { span.end };
        place += code_points(&text[span.start..at]);
        if at >= text.len() {
            break;
        }
    }
    Ok(Some(RawBson::Array(list)))
}

/// A match: its text, the number of code points before it, and what its groups took. Counts it as kept before it is made: groups
/// within each other take the same text many times.
fn described(text: &str, found: &Found, place: usize, scope: &mut Scope<'_>) -> Result<RawDocumentBuf> {
    let texts: usize = found.groups.iter().flatten().map(ExactSizeIterator::len).sum();
    scope.keep_bytes(MATCH_BYTES + found.span.len() + texts + found.groups.len() * GROUP_BYTES)?;
    let group = |group: &Option<std::ops::Range<usize>>| match group {
        Some(span) => RawBson::String(text[span.clone()].to_owned()),
        None => RawBson::Null,
    };
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("match"), &text[found.span.clone()]);
    document.append(cstr!("idx"), i32::try_from(place).unwrap_or(i32::MAX));
    document.append(cstr!("captures"), found.groups.iter().map(group).collect::<RawArrayBuf>());
    Ok(document)
}

#[cfg(test)]
mod tests;
