//! Regular expressions with MongoDB's syntax, that of PCRE, matched in linear time.

mod translate;

use crate::Code;
use bson::raw::RawBsonRef;
use regex::{Regex, RegexBuilder};
use std::ops::Range;

/// A regular expression as it is written, and compiled.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pattern: String,
    options: String,
    regex: Regex,
    /// For each group of `regex`, whether it is one of the pattern; see [`translate::Translated`].
    groups: Vec<bool>,
}

/// Where a match and its groups are in a text, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) span: Range<usize>,
    /// Nothing for a group that takes no part in the match.
    pub(crate) groups: Vec<Option<Range<usize>>>,
}

impl Pattern {
    /// Compiles one; `Err` says what is wrong.
    pub(crate) fn new(pattern: &str, options: &str) -> Result<Pattern, (Code, String)> {
        let because =
            |code: Code, what: &str| (code, format!("the regular expression '{pattern}' cannot be used: {what}"));
        let wrong = |what: &str| because(Code::Location51091, what);
        if let Some(unknown) = options.chars().find(|c| !"imsux".contains(*c)) {
            let what = format!("the option '{unknown}' is not known; options are i, m, s, x and u");
            return Err(because(Code::Location51108, &what));
        }
        if pattern.contains('\0') {
            return Err(because(Code::BadValue, "it has a zero byte"));
        }
        let has = |option: char| options.contains(option);
        let translated = translate::translate(pattern, has('m'), has('x')).map_err(|what| wrong(&what))?;
        let regex = RegexBuilder::new(&translated.text)
            .case_insensitive(has('i'))
            .multi_line(has('m'))
            .dot_matches_new_line(has('s'))
            .ignore_whitespace(has('x'))
            .build()
            .map_err(|e| wrong(e.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ")))?;
        Ok(Pattern { pattern: pattern.to_owned(), options: options.to_owned(), regex, groups: translated.groups })
    }

    /// Whether a text has a match.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The first match that begins at `start` or after it.
    pub(crate) fn find(&self, text: &str, start: usize) -> Option<Found> {
        let captures = self.regex.captures_at(text, start)?;
        let groups: Vec<_> = self.groups.iter().zip(captures.iter().skip(1)).collect();
        // The line feed that an end takes is not part of the match.
        let has_taken = groups.iter().any(|(is_own, group)| !**is_own && group.is_some_and(|group| !group.is_empty()));
        let end = text.len() - usize::from(has_taken);
        let within = |span: Range<usize>| span.start.min(end)..span.end.min(end);
        let own = groups.iter().filter(|(is_own, _)| **is_own);
        Some(Found {
            span: within(captures.get(0)?.range()),
            groups: own.map(|(_, group)| group.map(|group| within(group.range()))).collect(),
        })
    }

    /// Whether a text has a match, or a regular expression is the same.
    pub(super) fn matches(&self, value: RawBsonRef<'_>) -> bool {
        match value {
            RawBsonRef::String(text) | RawBsonRef::Symbol(text) => self.is_match(text),
            RawBsonRef::RegularExpression(regex) => {
                self.pattern == regex.pattern.as_str() && self.options == regex.options.as_str()
            }
            _ => false,
        }
    }

    /// With what every matching text begins; `None` if that is not plain.
    pub(super) fn literal_start(&self) -> Option<String> {
        let rest = self.pattern.strip_prefix('^')?;
        if !self.options.is_empty() || rest.contains('|') {
            return None;
        }
        let is_plain = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '_' | '-' | '/' | ':' | '@' | ',');
        let length = rest.find(|c| !is_plain(c)).unwrap_or(rest.len());
        let (mut start, after) = rest.split_at(length);
        if after.starts_with(['*', '?', '{']) {
            // The last character may be missing.
            start = &start[..start.char_indices().next_back()?.0];
        }
        Some(start.to_owned())
    }
}

#[cfg(test)]
mod tests;
