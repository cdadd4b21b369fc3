//! Values in the places of a statement's parameters.

use super::{Statement, lexer::Offsets};
use crate::array_text;
use crate::error::{QueryError, Result};
use datafusion::arrow::array::Array;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::tokenizer::Token;
use ebbtide_ttl::Code;

impl Statement {
    /// Its parameters, `$1` and so on, as often as they occur: the token's index, and the number. Those in a PREPARE are not its own:
    /// they get their values from EXECUTE.
    fn parameters(&self) -> impl Iterator<Item = (usize, usize)> {
        let prepares = match self.tokens.first().map(|first| &first.token) {
            Some(Token::Word(word)) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case("PREPARE"),
            _ => false,
        };
        let tokens = if prepares { &[][..] } else { self.tokens.as_slice() };
        tokens.iter().enumerate().filter_map(|(at, token)| match &token.token {
            Token::Placeholder(name) => Some((at, name.strip_prefix('$')?.parse().ok().filter(|number| *number > 0)?)),
            _ => None,
        })
    }

    /// The items of the list in `= ANY($1)`, as literals, if the parameter at this token is one and its list has items. It may be
    /// given as PostgreSQL's text for an array. The condition is then written with IN.
    fn searched(&self, at: usize, value: &ScalarValue) -> Result<Option<String>> {
        let token = |at: Option<usize>| at.and_then(|at| self.tokens.get(at)).map(|token| &token.token);
        let is_any = |token: Option<&Token>| matches!(token, Some(Token::Word(word)) if ["ANY", "SOME"].iter().any(|any| word.value.eq_ignore_ascii_case(any)));
        let is_searched = token(at.checked_sub(3)) == Some(&Token::Eq)
            && is_any(token(at.checked_sub(2)))
            && token(at.checked_sub(1)) == Some(&Token::LParen)
            && token(Some(at + 1)) == Some(&Token::RParen);
        if !is_searched {
            return Ok(None);
        }
        let items = match value.try_as_str().flatten() {
            Some(text) => array_items(&array_text::list(text, &DataType::new_list(DataType::Utf8, true))?)?,
            None => array_items(value)?,
        };
        Ok(items.filter(|items| !items.is_empty()).map(|items| items.join(", ")))
    }

    /// The number of its parameters: the highest that occurs.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.parameters().map(|(_, number)| number).max().unwrap_or(0)
    }

    /// Its text with values in the places of its parameters, for statements that [`Session::prepare`] does not take.
    ///
    /// # Errors
    /// [`Code::BadValue`] unless there is exactly one value per parameter; [`Code::TypeMismatch`] for a value that has no
    /// literal, as an object.
    ///
    /// [`Session::prepare`]: crate::Session::prepare
    pub fn with_values(&self, values: &[ScalarValue]) -> Result<String> {
        let expected = self.parameter_count();
        if values.len() != expected {
            let message =
                format!("wrong number of values for the parameters: expected {expected}, got {}", values.len());
            return Err(QueryError::new(Code::BadValue, message));
        }
        let offsets = Offsets::new(&self.text);
        let (mut text, mut from) = (String::with_capacity(self.text.len()), 0);
        for (at, number) in self.parameters() {
            let value = &values[number - 1];
            let (first, last, literal) = match self.searched(at, value)? {
                Some(items) => (at - 3, at + 1, format!("IN ({items})")),
                None => (at, at, literal(value)?),
            };
            text.push_str(&self.text[from..offsets.of(self.tokens[first].span.start)]);
            text.push_str(&literal);
            from = offsets.of(self.tokens[last].span.end);
        }
        text.push_str(&self.text[from..]);
        Ok(text)
    }
}

/// The items of a list, as literals; `None` for a value of another type.
fn array_items(value: &ScalarValue) -> Result<Option<Vec<String>>> {
    let ScalarValue::List(list) = value else { return Ok(None) };
    let items = list.value(0);
    (0..items.len()).map(|at| literal(&ScalarValue::try_from_array(&items, at)?)).collect::<Result<_>>().map(Some)
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A value as it is written in SQL.
fn literal(value: &ScalarValue) -> Result<String> {
    if value.is_null() {
        return Ok("NULL".to_owned());
    }
    let text = || match value.cast_to(&DataType::Utf8)? {
        ScalarValue::Utf8(Some(text)) => Ok::<_, QueryError>(text),
        _ => Err(QueryError::new(Code::InternalError, "a value has no text")),
    };
    let kind = value.data_type();
    Ok(match &kind {
        DataType::Boolean => text()?,
        kind if kind.is_integer() => match text()? {
            // The least value cannot be written as a negated literal.
            negative if negative.starts_with('-') => format!("CAST({} AS BIGINT)", quoted(&negative)),
            text => text,
        },
        DataType::Float32 | DataType::Float64 => format!("CAST({} AS DOUBLE)", quoted(&text()?)),
        DataType::Decimal128(precision, scale) => {
            format!("CAST({} AS DECIMAL({precision}, {scale}))", quoted(&text()?))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => quoted(&text()?),
        // In its own unit: nanoseconds reach from 1677 to 2262 alone.
        DataType::Timestamp(unit, _) => {
            let digits = match unit {
                TimeUnit::Second => 0,
                TimeUnit::Millisecond => 3,
                TimeUnit::Microsecond => 6,
                TimeUnit::Nanosecond => 9,
            };
            format!("CAST({} AS TIMESTAMP({digits}))", quoted(&text()?))
        }
        DataType::Date32 => format!("CAST({} AS DATE)", quoted(&text()?)),
        DataType::Interval(_) => format!("CAST({} AS INTERVAL)", quoted(&text()?)),
        DataType::List(_) => format!("[{}]", array_items(value)?.unwrap_or_default().join(", ")),
        DataType::Binary => match value {
            ScalarValue::Binary(Some(bytes)) => {
                format!("X'{}'", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
            }
            _ => "NULL".to_owned(),
        },
        other => {
            let message = format!("a value of the type {other} cannot be a parameter here");
            return Err(QueryError::new(Code::TypeMismatch, message));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn values_stand_where_parameters_stood() {
        let statement = &parse("  INSERT INTO w -- $9\n VALUES ($1, '$2', $2, $1); ").unwrap()[0];
        assert_eq!(statement.parameter_count(), 2);
        let text = statement.with_values(&["it's".into(), ScalarValue::Float64(None)]).unwrap();
        assert_eq!(text, "INSERT INTO w -- $9\n VALUES ('it''s', '$2', NULL, 'it''s')");
        assert!(statement.with_values(&[]).unwrap_err().message().contains("expected 2, got 0"));
    }

    #[test]
    fn parameters_of_what_is_prepared_get_no_values_yet() {
        let statement = &parse("prepare p AS SELECT $1::int + $2").unwrap()[0];
        assert_eq!(statement.parameter_count(), 0);
        assert_eq!(statement.with_values(&[]).unwrap(), "prepare p AS SELECT $1::int + $2");
    }

    #[test]
    fn a_condition_on_the_items_of_a_list_is_written_with_in() {
        let texts = ScalarValue::new_list_nullable(&["it's".into(), ScalarValue::Utf8(None)], &DataType::Utf8);
        let none = ScalarValue::new_list_nullable(&[], &DataType::Utf8);
        for (list, written) in [
            (ScalarValue::List(texts), "s IN ('it''s', NULL) OR n = 7"),
            (ScalarValue::from("{it's,NULL}"), "s IN ('it''s', NULL) OR n = 7"),
            (ScalarValue::List(none), "s = ANY([]) OR n = 7"),
        ] {
            let statement = &parse("DELETE FROM w WHERE s = any ( $1 ) OR n = $2").unwrap()[0];
            let text = statement.with_values(&[list, 7i64.into()]).unwrap();
            assert_eq!(text.replace("any ( [] )", "ANY([])"), format!("DELETE FROM w WHERE {written}"));
        }
        let statement = &parse("DELETE FROM w WHERE s = ANY($1)").unwrap()[0];
        assert!(statement.with_values(&["roof".into()]).unwrap_err().message().contains("'roof' is not an array"));
    }

    #[test]
    fn a_value_is_written_so_that_it_is_read_as_itself() {
        for (value, written) in [
            (ScalarValue::from(7i64), "7"),
            (ScalarValue::from(i64::MIN), "CAST('-9223372036854775808' AS BIGINT)"),
            (ScalarValue::from(f64::NEG_INFINITY), "CAST('-inf' AS DOUBLE)"),
            (ScalarValue::from(true), "true"),
            (
                ScalarValue::TimestampNanosecond(Some(1), Some("UTC".into())),
                "CAST('1970-01-01T00:00:00.000000001Z' AS TIMESTAMP(9))",
            ),
            (
                ScalarValue::TimestampMicrosecond(Some(10_413_792_000_000_001), Some("UTC".into())),
                "CAST('2300-01-01T00:00:00.000001Z' AS TIMESTAMP(6))",
            ),
            (ScalarValue::Date32(Some(1)), "CAST('1970-01-02' AS DATE)"),
            (ScalarValue::Decimal128(Some(-105), 5, 1), "CAST('-10.5' AS DECIMAL(5, 1))"),
            (ScalarValue::Binary(Some(vec![0, 255])), "X'00ff'"),
        ] {
            assert_eq!(literal(&value).unwrap(), written);
        }
    }
}
