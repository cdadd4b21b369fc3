//! Refuses `SET` statements that would have no effect.

use crate::error::{QueryError, Result};
use crate::suggest;
use datafusion::sql::sqlparser::ast::{Expr, Ident, ObjectName, Set, Statement, Value};
use ebbtide_ttl::Code;

/// Refuses settings without effect: time zones other than UTC, and anything that is not a single assignment.
///
/// # Errors
/// [`Code::BadValue`].
pub(super) fn check(statement: &Statement) -> Result<()> {
    let Statement::Set(set) = statement else { return Ok(()) };
    let refuse = |message: String| Err(QueryError::new(Code::BadValue, message));
    let value = match set {
        Set::SetTimeZone { value, .. } => value,
        Set::SingleAssignment { variable, values, .. } => {
            let name = variable.to_string().to_lowercase();
            if !matches!(name.as_str(), "timezone" | "time.zone" | "time_zone" | "datafusion.execution.time_zone") {
                return Ok(());
            }
            match values.as_slice() {
                [value] => value,
                _ => return refuse("a time zone is a single text, such as 'UTC'".to_owned()),
            }
        }
        other => return refuse(format!("not supported: {other}; SET name = value sets one setting")),
    };
    let zone = match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(zone) | Value::DoubleQuotedString(zone) => zone.clone(),
            other => other.to_string(),
        },
        Expr::Identifier(name) => name.value.clone(),
        other => other.to_string(),
    };
    if ["UTC", "Z", "+00", "+00:00", "GMT", "Etc/UTC"].iter().any(|utc| zone.eq_ignore_ascii_case(utc)) {
        return Ok(());
    }
    if zone.parse::<arrow::array::timezone::Tz>().is_err() {
        let hint = suggest::hint(&zone, chrono_tz::TZ_VARIANTS.iter().map(|z| z.name()));
        return refuse(format!("there is no time zone '{zone}'{hint}"));
    }
    refuse(format!(
        "not supported: a time zone other than UTC for a whole session; name the zone where it matters: \
         date_bin('1 day', time, '{zone}'), to_char(time AT TIME ZONE '{zone}', '%H:%M')"
    ))
}

/// Rewrites `SET TIME ZONE 'UTC'` for DataFusion.
pub(super) fn rewrite(statement: &mut Statement) {
    if let Statement::Set(Set::SetTimeZone { value, .. }) = statement {
        let variable = ObjectName::from(["datafusion", "execution", "time_zone"].map(Ident::new).to_vec());
        let values = vec![value.clone()];
        *statement = Statement::Set(Set::SingleAssignment { scope: None, hivevar: false, variable, values });
    }
}
