//! Casts of texts that DataFusion reads otherwise than PostgreSQL: `'{a,b}'::text[]`, `'02:00:00'::interval`, `'\x00ff'::bytea`;
//! and the formats of `to_char`.

use super::intervals;
use crate::array_text::list;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{Expr, ExprSchemable};

/// Replaces literals under casts, and patterns, and puts formats behind their times.
#[derive(Debug)]
pub(super) struct Texts;

impl FunctionRewrite for Texts {
    fn name(&self) -> &'static str {
        "casts_of_texts"
    }

    fn rewrite(&self, mut expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        if let Expr::Cast(cast) = &mut expr
            && let Expr::Literal(value, _) = cast.expr.as_ref()
            && let Some(text) = value.try_as_str().flatten()
        {
            let read = match cast.field.data_type() {
                kind @ DataType::List(_) => Some(list(text, kind)?),
                DataType::Interval(_) => intervals::in_words(text).map(ScalarValue::from),
                kind if kind.is_binary() => in_hex(text)?.map(|bytes| ScalarValue::Binary(Some(bytes))),
                _ => None,
            };
            if let Some(read) = read {
                *cast.expr = Expr::Literal(read, None);
                return Ok(Transformed::yes(expr));
            }
        }
        let mut changed = false;
        if let Expr::ScalarFunction(made) = &mut expr
            && made.func.name() == "to_char"
        {
            if let [format, time] = made.args.as_mut_slice()
                && is_format(format, schema)
                && is_time(time, schema)
            {
                std::mem::swap(format, time);
                changed = true;
            }
            if let [_, Expr::Literal(pattern, _)] = made.args.as_mut_slice()
                && let Some(text) = pattern.try_as_str().flatten()
                && is_pattern(text)
            {
                *pattern = ScalarValue::from(specifiers(text)?);
                changed = true;
            }
        }
        Ok(Transformed::new_transformed(expr, changed))
    }
}

/// The bytes of a text that begins with `\x`; nothing of another text.
fn in_hex(text: &str) -> Result<Option<Vec<u8>>> {
    let Some(digits) = text.strip_prefix("\\x") else { return Ok(None) };
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(char::from(*high).to_digit(16)? * 16 + char::from(*low).to_digit(16)?).ok(),
        _ => None,
    };
    match digits.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>() {
        Some(bytes) => Ok(Some(bytes)),
        None => exec_err!("invalid input syntax for type bytea: '{text}'; after \\x come pairs of hexadecimal digits"),
    }
}

fn is_time(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|kind| kind.is_temporal())
}

/// Whether an argument is a text, or a parameter without a type.
fn is_format(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|kind| kind.is_string() || kind.is_null())
}

/// Whether an expression, without those inside it, may be replaced.
pub(super) fn may_be_rewritten(expr: &Expr) -> bool {
    match expr {
        Expr::Cast(cast) => {
            matches!(*cast.expr, Expr::Literal(..))
                && (matches!(cast.field.data_type(), DataType::List(_) | DataType::Interval(_))
                    || cast.field.data_type().is_binary())
        }
        Expr::ScalarFunction(call) => call.func.name() == "to_char",
        _ => false,
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
