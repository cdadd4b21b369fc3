//! Commands on published tables: publish, unpublish, listPublications.

use super::args::Args;
use super::replies::{cursor, done, reply};
use crate::db::Database;
use crate::error::{Error, Result};
use crate::json::json_of;
use crate::publication::{PUBLISH_EVERY_SECONDS, PublicationInfo, PublishedVersion};
use ebbtide_ttl::{Code, Value};
use serde_json::{Map, Value as Json, json};

pub(super) const PUBLISH_OPTIONS: &[&str] = &["to", "everySeconds", "rung"];
pub(super) const UNPUBLISH_OPTIONS: &[&str] = &["rung"];

/// The longest interval of a rung that names none, in seconds: a day.
const RUNG_EVERY_SECONDS_MAX: i64 = 86_400;

fn seconds(args: &Args<'_>, option: &str) -> Result<Option<i64>> {
    let wrong = |value: &Json| {
        let what = format!("{option} must be a whole number, not {}", super::args::kind(value));
        Error::new(Code::TypeMismatch, what)
    };
    args.get(option).map(|value| value.as_i64().ok_or_else(|| wrong(value))).transpose()
}

pub(super) fn publish(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    let collection = args.collection()?;
    args.required("to")?;
    let (url, every) = (args.string("to")?.unwrap_or_default(), seconds(args, "everySeconds")?);
    let made = match seconds(args, "rung")? {
        None => db.publish(collection, url, every.unwrap_or(PUBLISH_EVERY_SECONDS))?,
        Some(step) => {
            let every = every.unwrap_or_else(|| step.clamp(PUBLISH_EVERY_SECONDS, RUNG_EVERY_SECONDS_MAX));
            db.publish_rung(collection, step, url, every)?
        }
    };
    Ok(version(&made))
}

pub(super) fn unpublish(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    let collection = args.collection()?;
    match seconds(args, "rung")? {
        None => db.unpublish(collection)?,
        Some(step) => db.unpublish_rung(collection, step)?,
    }
    Ok(done())
}

pub(super) fn list(db: &Database, _args: &Args<'_>) -> Result<Map<String, Json>> {
    let listed = |info: PublicationInfo| {
        let mut listed = json!({"collection": info.collection, "to": info.url, "everySeconds": info.every_seconds, "failed": info.failed});
        if let Some(step) = info.rung {
            listed["rung"] = step.into();
        }
        if let (Json::Object(listed), Some(last)) = (&mut listed, &info.last) {
            listed.extend(version(last));
            listed.insert("ageSeconds".to_owned(), info.age_seconds.into());
        }
        listed
    };
    Ok(cursor("$cmd.listPublications", db.publications().into_iter().map(listed).collect()))
}

fn version(made: &PublishedVersion) -> Map<String, Json> {
    reply([
        ("version", made.version.into()),
        ("files", made.files.into()),
        ("measurements", made.measurements.into()),
        ("madeAt", made.made_at.map_or(Json::Null, |at| json_of(&Value::Date(at)))),
        ("hidesBefore", json_of(&Value::Date(made.hides_before))),
    ])
}
