//! Casts of texts that DataFusion reads otherwise than PostgreSQL: `'{a,b}'::text[]`, `'02:00:00'::interval`; and the patterns
//! of `to_char`.

use super::intervals;
use datafusion::arrow::array::{ArrayRef, ListArray, StringArray};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, exec_datafusion_err, plan_err};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use std::sync::Arc;

/// Replaces literals under casts, and patterns.
#[derive(Debug)]
pub(super) struct Texts;

impl FunctionRewrite for Texts {
    fn name(&self) -> &'static str {
        "casts_of_texts"
    }

    fn rewrite(&self, mut expr: Expr, _: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        if let Expr::Cast(cast) = &mut expr
            && let Expr::Literal(value, _) = cast.expr.as_ref()
            && let Some(text) = value.try_as_str().flatten()
        {
            let read = match cast.field.data_type() {
                kind @ DataType::List(_) => Some(list(text, kind)?),
                DataType::Interval(_) => intervals::in_words(text).map(ScalarValue::from),
                _ => None,
            };
            if let Some(read) = read {
                *cast.expr = Expr::Literal(read, None);
                return Ok(Transformed::yes(expr));
            }
        }
        if let Expr::ScalarFunction(made) = &mut expr
            && made.func.name() == "to_char"
            && let [_, Expr::Literal(pattern, _)] = made.args.as_mut_slice()
            && let Some(text) = pattern.try_as_str().flatten()
            && is_pattern(text)
        {
            *pattern = ScalarValue::from(specifiers(text)?);
            return Ok(Transformed::yes(expr));
        }
        Ok(Transformed::no(expr))
    }
}

/// Whether an expression, without those inside it, may be replaced.
pub(super) fn may_be_rewritten(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(cast) => {
            matches!(*cast.expr, Expr::Literal(..))
                && matches!(cast.field.data_type(), DataType::List(_) | DataType::Interval(_))
        }
        Expr::ScalarFunction(call) => call.func.name() == "to_char",
        _ => false,
    }
}

/// The list of this type that PostgreSQL's text for an array stands for.
pub(crate) fn list(text: &str, kind: &DataType) -> Result<ScalarValue> {
    let wrong = || exec_datafusion_err!("'{text}' is not an array: one is written as '{{a,b}}'");
    let DataType::List(item) = kind else { return Err(wrong()) };
    let items: ArrayRef = Arc::new(StringArray::from(items(text).ok_or_else(wrong)?));
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let items = cast_with_options(&items, item.data_type(), &strict)?;
    let offsets = OffsetBuffer::from_lengths([items.len()]);
    Ok(ScalarValue::List(Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, None)?)))
}

/// The items of an array of one dimension; nothing for null.
fn items(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let (mut items, mut chars) = (Vec::new(), inner.chars().peekable());
    if inner.trim().is_empty() {
        return Some(items);
    }
    loop {
        while chars.next_if(|char| char.is_whitespace()).is_some() {}
        let (mut item, is_quoted) = (String::new(), chars.next_if_eq(&'"').is_some());
        if is_quoted {
            loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => item.push(chars.next()?),
                    char => item.push(char),
                }
            }
            while chars.next_if(|char| char.is_whitespace()).is_some() {}
        } else {
            while let Some(char) = chars.next_if(|char| *char != ',') {
                match char {
                    '{' | '}' | '"' => return None,
                    '\\' => item.push(chars.next()?),
                    char => item.push(char),
                }
            }
            item.truncate(item.trim_end().len());
        }
        match item {
            item if !is_quoted && item.is_empty() => return None,
            item if !is_quoted && item.eq_ignore_ascii_case("null") => items.push(None),
            item => items.push(Some(item)),
        }
        match chars.next() {
            None => return Some(items),
            Some(',') => {}
            Some(_) => return None,
        }
    }
}

/// PostgreSQL's patterns for parts of a time, the longest first, and what they are in `strftime`'s words.
const PATTERNS: [(&str, &str); 27] = [
    ("FMMonth", "%B"),
    ("FMDay", "%A"),
    ("FMHH24", "%-H"),
    ("FMHH12", "%-I"),
    ("FMDD", "%-d"),
    ("FMMM", "%-m"),
    ("Month", "%B"),
    ("YYYY", "%Y"),
    ("IYYY", "%G"),
    ("HH24", "%H"),
    ("HH12", "%I"),
    ("Day", "%A"),
    ("DDD", "%j"),
    ("Mon", "%b"),
    ("YY", "%y"),
    ("MM", "%m"),
    ("DD", "%d"),
    ("Dy", "%a"),
    ("ID", "%u"),
    ("IW", "%V"),
    ("HH", "%I"),
    ("MI", "%M"),
    ("SS", "%S"),
    ("MS", "%3f"),
    ("US", "%6f"),
    ("AM", "%p"),
    ("PM", "%p"),
];

/// Whether a format is one of PostgreSQL's: it has a pattern in capitals, and no `%`.
fn is_pattern(format: &str) -> bool {
    let marks = ["YY", "MM", "DD", "HH", "MI", "SS", "IW", "Mon", "Day", "Dy"];
    !format.contains('%') && marks.iter().any(|mark| format.contains(mark))
}

/// A format of PostgreSQL in `strftime`'s words.
fn specifiers(format: &str) -> Result<String> {
    let (mut rest, mut out) = (format, String::new());
    while let Some(char) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (text, after) = quoted.split_once('"').unwrap_or((quoted, ""));
            out.push_str(text);
            rest = after;
        } else if let Some((pattern, specifier)) = PATTERNS.iter().find(|(pattern, _)| rest.starts_with(pattern)) {
            out.push_str(specifier);
            rest = &rest[pattern.len()..];
        } else if char.is_alphabetic() && char != 'T' {
            return plan_err!(
                "to_char: '{format}' has a pattern that is not known here; write it with %Y %m %d %H %M %S, or put text in \
                 double quotes"
            );
        } else {
            out.push(char);
            rest = &rest[char.len_utf8()..];
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_as_postgres_writes_them() {
        let of = |text| items(text).map(|items| items.join_nulls());
        assert_eq!(of("{a,b}").as_deref(), Some("a|b"));
        assert_eq!(of(" { a b , \"c,\\\"d\" , NULL, \"NULL\" } ").as_deref(), Some("a b|c,\"d|-|NULL"));
        assert_eq!(of("{}").as_deref(), Some(""));
        for text in ["", "a", "{a", "{a,}", "{,a}", "{{a}}", "{\"a}", "{\"a\"b}"] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    trait Joined {
        fn join_nulls(&self) -> String;
    }

    impl Joined for Vec<Option<String>> {
        fn join_nulls(&self) -> String {
            self.iter().map(|item| item.as_deref().unwrap_or("-")).collect::<Vec<_>>().join("|")
        }
    }

    #[test]
    fn patterns_of_postgres_are_understood_or_refused() {
        for (format, expected) in [
            ("YYYY-MM-DD HH24:MI:SS.MS", "%Y-%m-%d %H:%M:%S.%3f"),
            ("FMDD. FMMonth YY", "%-d. %B %y"),
            ("YYYY-MM-DD\"T\"HH24\"h\"", "%Y-%m-%dT%Hh"),
            ("IYYY-IW", "%G-%V"),
        ] {
            assert!(is_pattern(format));
            assert_eq!(specifiers(format).unwrap(), expected);
        }
        assert!(specifiers("YYYY quarter").unwrap_err().to_string().contains("%Y %m"));
        assert!(!is_pattern("%Y-MM") && !is_pattern("at noon") && !is_pattern(""));
    }
}
