//! Commands on published tables: publish, unpublish, listPublications.

use super::args::Args;
use super::replies::{cursor, done, reply};
use crate::db::Database;
use crate::error::{Error, Result};
use crate::json::json_of;
use crate::publication::{PUBLISH_EVERY_SECONDS, PublicationInfo, PublishedVersion};
use ebbtide_ttl::{Code, Value};
use serde_json::{Map, Value as Json, json};

pub(super) const PUBLISH_OPTIONS: &[&str] = &["to", "everySeconds"];

pub(super) fn publish(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    let collection = args.collection()?;
    args.required("to")?;
    let every = match args.get("everySeconds") {
        None => PUBLISH_EVERY_SECONDS,
        Some(seconds) => seconds.as_i64().ok_or_else(|| {
            Error::new(
                Code::TypeMismatch,
                format!("everySeconds must be a whole number, not {}", super::args::kind(seconds)),
            )
        })?,
    };
    let made = db.publish(collection, args.string("to")?.unwrap_or_default(), every)?;
    Ok(version(&made))
}

pub(super) fn unpublish(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    db.unpublish(args.collection()?)?;
    Ok(done())
}

pub(super) fn list(db: &Database, _args: &Args<'_>) -> Result<Map<String, Json>> {
    let listed = |info: PublicationInfo| {
        let mut listed = json!({"collection": info.collection, "to": info.url, "everySeconds": info.every_seconds, "failed": info.failed});
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
