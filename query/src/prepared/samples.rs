//! Values for the parameters of a query whose columns are asked for before there are any.

use super::PreparedQuery;
use crate::error::{QueryError, Result};
use crate::session::Session;
use crate::statement::{Statement, StatementKind, parse};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use ebbtide_ttl::Code;

/// The microseconds of an hour.
const HOUR: i64 = 3_600_000_000;

impl Session {
    /// What is known of the parameters and columns of a query that cannot be planned without values, as one with `$1` for the
    /// zone of a time or the offset of a frame: the types of its parameters, and the columns that it has with values that fit
    /// these places.
    ///
    /// # Errors
    /// What is wrong with the query with these values.
    pub async fn described_by_samples(
        &self,
        statement: &Statement,
        prepared: Option<&PreparedQuery>,
    ) -> Result<(Vec<Option<DataType>>, SchemaRef)> {
        let mut types = match prepared {
            Some(prepared) => prepared.parameter_types()?,
            None => vec![None; statement.parameter_count()],
        };
        let samples = samples(&statement.tokens, &mut types)?;
        let text = statement.with_values(&samples)?;
        let filled = match parse(&text)?.as_slice() {
            [one] if one.kind == StatementKind::Sql => one.clone(),
            _ => return Err(QueryError::new(Code::BadValue, "expected one query")),
        };
        let columns = self.prepare_new(filled, &text).await?.columns(self).await?;
        Ok((types, columns))
    }
}

/// The place of a parameter among the others.
fn number(token: &TokenWithSpan) -> Option<usize> {
    let Token::Placeholder(name) = &token.token else { return None };
    name.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
}

fn samples(tokens: &[TokenWithSpan], types: &mut [Option<DataType>]) -> Result<Vec<ScalarValue>> {
    let mut samples = vec![None; types.len()];
    for (at, token) in tokens.iter().enumerate() {
        let Some(number) = number(token) else { continue };
        if let (Some(place), Some(kind)) = (samples.get_mut(number), types.get_mut(number))
            && let Some(sample) = in_place(tokens, at)
        {
            kind.get_or_insert(sample.data_type());
            place.get_or_insert(sample);
        }
    }
    let of_type = |(number, (sample, kind)): (usize, (Option<ScalarValue>, &Option<DataType>))| match (sample, kind) {
        (Some(sample), _) => Ok(sample),
        (None, Some(DataType::Timestamp(..))) => Ok(instant(number)),
        (None, Some(kind)) => Ok(ScalarValue::try_new_null(kind)?),
        (None, None) => Ok(ScalarValue::Null),
    };
    samples.into_iter().zip(types.iter()).enumerate().map(of_type).collect()
}

/// Later parameters stand for later instants.
fn instant(number: usize) -> ScalarValue {
    let micros = i64::try_from(number).unwrap_or_default().saturating_mul(HOUR);
    ScalarValue::TimestampMicrosecond(Some(micros), Some("UTC".into()))
}

/// A value that fits the place of a parameter.
fn in_place(tokens: &[TokenWithSpan], at: usize) -> Option<ScalarValue> {
    let word = |at: Option<usize>| match &tokens.get(at?)?.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_ascii_lowercase()),
        _ => None,
    };
    let before = |count: usize| word(at.checked_sub(count));
    let is = |found: Option<String>, words: &[&str]| found.is_some_and(|found| words.contains(&found.as_str()));
    let kind = cast_of(tokens, at);
    if is(before(2), &["date_trunc", "date_part", "date_diff", "datediff"]) {
        Some(ScalarValue::from("day"))
    } else if is(before(1), &["zone"]) && is(before(2), &["time"]) {
        Some(ScalarValue::from("UTC"))
    } else if is(word(Some(at + 1)), &["preceding", "following"]) {
        Some(ScalarValue::from(1_i64))
    } else if kind.is_some_and(|kind| kind.starts_with("timestamp")) {
        Some(instant(at))
    } else {
        None
    }
}

/// The type in `$1::type` or `CAST($1 AS type)`, in small letters.
fn cast_of(tokens: &[TokenWithSpan], at: usize) -> Option<String> {
    let is_cast = match &tokens.get(at + 1)?.token {
        Token::DoubleColon => true,
        Token::Word(word) => word.value.eq_ignore_ascii_case("as"),
        _ => false,
    };
    match &tokens.get(at + 2)?.token {
        Token::Word(word) if is_cast => Some(word.value.to_ascii_lowercase()),
        _ => None,
    }
}
