//! Regular expressions with MongoDB's syntax, that of PCRE, matched in linear time.

mod translate;

use crate::Code;
use bson::raw::RawBsonRef;
use regex::{Regex, RegexBuilder};

/// A regular expression as it is written, and compiled.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    pattern: String,
    options: String,
    regex: Regex,
}

impl Pattern {
    /// Compiles one; `Err` says what is wrong.
    pub(super) fn new(pattern: &str, options: &str) -> Result<Pattern, (Code, String)> {
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
        let regex = RegexBuilder::new(&translated)
            .case_insensitive(has('i'))
            .multi_line(has('m'))
            .dot_matches_new_line(has('s'))
            .ignore_whitespace(has('x'))
            .build()
            .map_err(|e| wrong(e.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ")))?;
        Ok(Pattern { pattern: pattern.to_owned(), options: options.to_owned(), regex })
    }

    /// Whether a text has a match, or a regular expression is the same.
    pub(super) fn matches(&self, value: RawBsonRef<'_>) -> bool {
        match value {
            RawBsonRef::String(text) | RawBsonRef::Symbol(text) => self.regex.is_match(text),
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
