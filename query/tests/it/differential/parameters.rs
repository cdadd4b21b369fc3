//! Statements with parameters, or with other constants, in place of the constants that something is compared with.

use ebbtide_query::ScalarValue;
use ebbtide_ttl::Timestamp;

/// A statement as it is prepared, its values, and others of the same types.
#[derive(Default)]
pub(crate) struct Parameters {
    pub(crate) text: String,
    pub(crate) values: Vec<ScalarValue>,
    pub(crate) others: Vec<ScalarValue>,
    /// The statement with the other values.
    pub(crate) other_text: String,
}

/// The statement with parameters; `None` if it compares nothing with a constant.
pub(crate) fn parameters(sql: &str) -> Option<Parameters> {
    let mut found = Parameters::default();
    let (mut rest, mut is_quoted, mut is_compared, mut is_list) = (sql, false, false, false);
    while let Some(c) = rest.chars().next() {
        if is_compared
            && !is_quoted
            && let Some((length, value, other, other_text)) = constant(rest)
        {
            found.values.push(value);
            found.others.push(other);
            found.other_text.push_str(&other_text);
            found.text.push_str(&format!("${}", found.values.len()));
            rest = &rest[length..];
            is_compared = false;
            continue;
        }
        found.text.push(c);
        found.other_text.push(c);
        is_quoted ^= c == '\'' || c == '"';
        is_list = !is_quoted && ((is_list && !matches!(c, '(' | ')')) || found.text.ends_with(" IN ("));
        let begins = matches!(c, '=' | '<' | '>') || (is_list && matches!(c, '(' | ','));
        is_compared = !is_quoted && (begins || (is_compared && c == ' '));
        rest = &rest[c.len_utf8()..];
    }
    (!found.values.is_empty()).then_some(found)
}

/// The constant that a text begins with: its length, its value, and another of its type as a value and as text.
fn constant(text: &str) -> Option<(usize, ScalarValue, ScalarValue, String)> {
    let (is_time, after) = match text.strip_prefix("TIMESTAMP ") {
        Some(after) => (true, after),
        None => (false, text),
    };
    let before = text.len() - after.len();
    if let Some(quoted) = after.strip_prefix('\'') {
        let end = quoted.find('\'')?;
        let (content, length) = (&quoted[..end], before + end + 2);
        // A quote within the text.
        if text[length..].starts_with('\'') {
            return None;
        }
        if is_time {
            let nanos = i64::try_from(Timestamp::parse(content).ok()?.nanos()).ok()?;
            let instant = |nanos| ScalarValue::TimestampNanosecond(Some(nanos), Some("UTC".into()));
            let earlier = nanos.wrapping_sub(86_400_000_000_000);
            let other = format!("TIMESTAMP '{}'", Timestamp::from_nanos(earlier.into()));
            return Some((length, instant(nanos), instant(earlier), other));
        }
        let other = format!("{content}b");
        return Some((length, ScalarValue::from(content), ScalarValue::from(other.as_str()), format!("'{other}'")));
    }
    let end = after.char_indices().find(|(at, c)| !(c.is_ascii_digit() || *c == '.' || (*at == 0 && *c == '-')));
    let number = &after[..end.map_or(after.len(), |(at, _)| at)];
    let is_longer = after[number.len()..].starts_with(|c: char| c.is_alphanumeric() || c == ':' || c == '_');
    if is_time || is_longer {
        return None;
    }
    if let Ok(whole) = number.parse::<i64>() {
        let other = whole.wrapping_add(1);
        return Some((number.len(), whole.into(), other.into(), other.to_string()));
    }
    let double: f64 = number.parse().ok()?;
    let other = double + 0.5;
    Some((number.len(), double.into(), other.into(), format!("{other:?}")))
}
