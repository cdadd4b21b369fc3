//! `strptime` and `try_strptime`: times from texts of a format.

#[cfg(test)]
mod tests;

use super::arguments::{is_text_or_null, returned, wrong};
use chrono::format::{Item, Parsed, StrftimeItems, parse};
use datafusion::arrow::array::{AsArray, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Result, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use std::sync::Arc;

/// The year of a time whose format has none, as in DuckDB.
const YEAR: i64 = 1900;

/// `strptime`, or `try_strptime`, which returns null for a text that is not of the format.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Strptime {
    tries: bool,
    signature: Signature,
}

impl Strptime {
    pub(super) fn udf(tries: bool) -> Arc<ScalarUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Strptime { tries, signature }))
    }
}

impl ScalarUDFImpl for Strptime {
    fn name(&self) -> &'static str {
        if self.tries { "try_strptime" } else { "strptime" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [text, format] = given else {
            return plan_err!("{} takes (text, format); arguments given: {}", self.name(), given.len());
        };
        for (at, what, kind) in [(1, "text", text), (2, "format", format)] {
            if !is_text_or_null(kind) {
                return wrong(self.name(), at, what, &format!("is {kind}, a text is wanted"));
            }
        }
        Ok(vec![DataType::Utf8, DataType::Utf8])
    }

    fn return_type(&self, _given: &[DataType]) -> Result<DataType> {
        Ok(DataType::Timestamp(TimeUnit::Microsecond, None))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let given = ColumnarValue::values_to_arrays(&args.args)?;
        let [texts, formats] = given.as_slice() else { return internal_err!("{} without a format", self.name()) };
        let mut known: Option<(&str, Format)> = None;
        let mut times = Vec::with_capacity(texts.len());
        for pair in texts.as_string::<i32>().iter().zip(formats.as_string::<i32>()) {
            let (Some(text), Some(wanted)) = pair else {
                times.push(None);
                continue;
            };
            let format = match known.take() {
                Some((same, format)) if same == wanted => format,
                _ => match Format::new(wanted) {
                    Ok(format) => format,
                    Err(why) => return wrong(self.name(), 2, "format", &why),
                },
            };
            let time = format.read(text);
            if time.is_none() && !self.tries {
                return exec_err!(
                    "strptime: '{text}' is not of the format '{wanted}'; try_strptime returns NULL for such texts"
                );
            }
            times.push(time);
            known = Some((wanted, format));
        }
        returned(Arc::new(TimestampMicrosecondArray::from(times)), &args.args)
    }
}

/// A format that was read.
struct Format(Vec<Item<'static>>);

impl Format {
    /// # Errors
    /// What is wrong with it, worded to follow `argument 2 (format)`.
    fn new(format: &str) -> std::result::Result<Format, String> {
        match StrftimeItems::new(&specifiers(format)?).parse_to_owned() {
            Ok(items) => Ok(Format(items)),
            Err(_) => Err(format!("is '{format}', which has a % that stands for nothing; write %Y-%m-%d %H:%M:%S")),
        }
    }

    /// The time of a text, in microseconds; `None` if the text is not of the format. What the format leaves out is that of
    /// 1900-01-01T00:00:00Z.
    fn read(&self, text: &str) -> Option<i64> {
        let mut parsed = Parsed::new();
        parse(&mut parsed, text, self.0.iter()).ok()?;
        if parsed.timestamp().is_none() {
            complete(&mut parsed)?;
        }
        let offset = parsed.offset().unwrap_or(0);
        let local = parsed.to_naive_datetime_with_offset(offset).ok()?;
        local.and_utc().timestamp_micros().checked_sub(i64::from(offset) * 1_000_000)
    }
}

/// A format in the words of the parser. It takes `%f` for a whole number of nanoseconds, while a fraction of a second is meant.
fn specifiers(format: &str) -> std::result::Result<String, String> {
    let (mut chars, mut out) = (format.chars(), String::with_capacity(format.len()));
    while let Some(char) = chars.next() {
        if char != '%' {
            out.push(char);
            continue;
        }
        match chars.next() {
            Some('f' | 'g' | 'n') if out.ends_with('.') => {
                out.pop();
                out.push_str("%.f");
            }
            Some('f') => out.push_str("%6f"),
            Some('g') => out.push_str("%3f"),
            Some('n') => out.push_str("%9f"),
            Some('Z') => return Err(format!("is '{format}': names of time zones are not read; %z reads an offset")),
            other => {
                out.push('%');
                out.extend(other);
            }
        }
    }
    Ok(out)
}

/// Adds what a format without it leaves out.
fn complete(parsed: &mut Parsed) -> Option<()> {
    let years =
        [parsed.year(), parsed.year_mod_100(), parsed.year_div_100(), parsed.isoyear(), parsed.isoyear_mod_100()];
    if years.iter().all(Option::is_none) {
        parsed.set_year(YEAR).ok()?;
    }
    let weeks = [parsed.isoweek(), parsed.week_from_sun(), parsed.week_from_mon()];
    if parsed.ordinal().is_none() && weeks.iter().all(Option::is_none) {
        if parsed.month().is_none() {
            let first = parsed.quarter().map_or(1, |quarter| 3 * i64::from(quarter) - 2);
            parsed.set_month(first).ok()?;
        }
        if parsed.day().is_none() {
            parsed.set_day(1).ok()?;
        }
    }
    if parsed.hour_mod_12().is_none() {
        parsed.set_hour12(12).ok()?;
    }
    if parsed.hour_div_12().is_none() {
        parsed.set_ampm(false).ok()?;
    }
    if parsed.minute().is_none() {
        parsed.set_minute(0).ok()?;
    }
    if parsed.second().is_none() {
        parsed.set_second(0).ok()?;
    }
    Some(())
}
