//! Writes a field as a date, for types that are stored through serde.
//!
//! ```
//! #[derive(serde::Serialize)]
//! struct Reading {
//!     #[serde(serialize_with = "ebbtide::json::date::serialize")]
//!     time: i64, // Milliseconds since 1970.
//!     temp: f64,
//! }
//!
//! let value = ebbtide::json::to_value(&Reading { time: 0, temp: 21.5 })?;
//! let epoch = ebbtide::ttl::Value::Date(ebbtide::ttl::Timestamp::EPOCH);
//! assert_eq!(value.get("time"), Some(&epoch));
//! # Ok::<(), ebbtide::Error>(())
//! ```

use super::json_of;
use ebbtide_ttl::{Timestamp, Value};
use serde::{Serialize, Serializer, ser};
use std::time::{SystemTime, UNIX_EPOCH};

/// What stands for an instant, or for none.
pub trait ToDate {
    /// The instant; `None` is null.
    fn to_date(&self) -> Option<Timestamp>;
}

impl ToDate for Timestamp {
    fn to_date(&self) -> Option<Timestamp> {
        Some(*self)
    }
}

/// Milliseconds since 1970.
impl ToDate for i64 {
    fn to_date(&self) -> Option<Timestamp> {
        Some(Timestamp::from_millis(*self))
    }
}

impl ToDate for SystemTime {
    fn to_date(&self) -> Option<Timestamp> {
        match self.duration_since(UNIX_EPOCH) {
            Ok(since) => i128::try_from(since.as_nanos()).ok().map(Timestamp::from_nanos),
            Err(before) => i128::try_from(before.duration().as_nanos()).ok().map(|nanos| Timestamp::from_nanos(-nanos)),
        }
    }
}

impl<T: ToDate> ToDate for Option<T> {
    fn to_date(&self) -> Option<Timestamp> {
        self.as_ref().and_then(T::to_date)
    }
}

/// Serialises an instant as `{"$date": ...}`: for `#[serde(serialize_with = "ebbtide::json::date::serialize")]`.
///
/// # Errors
/// Only what the serializer reports.
pub fn serialize<T: ToDate, S: Serializer>(instant: &T, serializer: S) -> Result<S::Ok, S::Error> {
    json_of(&instant.to_date().map_or(Value::Null, Value::Date)).serialize(serializer)
}

/// Times that serialise as RFC 3339 texts by themselves, such as chrono's `DateTime` with its feature `serde`: for
/// `#[serde(serialize_with = "ebbtide::json::date::text::serialize")]`.
pub mod text {
    use super::{Serialize, Serializer, Timestamp, ser};

    /// Serialises a time as `{"$date": ...}`.
    ///
    /// # Errors
    /// If it does not serialise as an RFC 3339 text.
    pub fn serialize<T: Serialize, S: Serializer>(time: &T, serializer: S) -> Result<S::Ok, S::Error> {
        let json = serde_json::to_value(time).map_err(ser::Error::custom)?;
        let instant = match json.as_str() {
            Some(text) => Some(Timestamp::parse(text).map_err(ser::Error::custom)?),
            None if json.is_null() => None,
            None => return Err(ser::Error::custom(format!("{json} is not an RFC 3339 text"))),
        };
        super::serialize(&instant, serializer)
    }
}
