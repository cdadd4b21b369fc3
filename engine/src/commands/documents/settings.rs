//! Commands on ordinary collections as a whole: create, collMod, collStats, and how listings show them.

use super::{indexes, refused};
use crate::commands::args::Args;
use crate::commands::replies::{done, reply};
use crate::db::{Database, Documents};
use crate::documents::options::DocumentsOptions;
use crate::documents::snapshot::DocumentsSnapshot;
use crate::error::Result;
use ebbtide_documents::DefaultTtl;
use ebbtide_documents::json::value_from_json;
use serde_json::{Map, Value as Json};

/// Options that ordinary collections do not have.
const REFUSED: &[&str] = &[
    "timeseries",
    "expireAfterSeconds",
    "graceSeconds",
    "maxBytes",
    "handOff",
    "expireInto",
    "keepSeconds",
    "ladder",
    "force",
    "capped",
    "cappedSize",
    "cappedMax",
    "size",
    "max",
    "validator",
    "validationLevel",
    "validationAction",
    "viewOn",
    "pipeline",
    "clusteredIndex",
    "collation",
    "storageEngine",
    "indexOptionDefaults",
    "changeStreamPreAndPostImages",
];

fn check_refused(args: &Args<'_>) -> Result<()> {
    match REFUSED.iter().find(|option| args.get(option).is_some()) {
        None => Ok(()),
        Some(option) => {
            let hint = match *option {
                "expireAfterSeconds" => "give it a defaultTTL, or make a TTL index on a field that holds a date",
                _ => "leave it out",
            };
            Err(refused(&format!("an ordinary collection cannot have the option '{option}': {hint}")))
        }
    }
}

/// Reads a `defaultTTL`.
fn read_default_ttl(json: &Json) -> Result<DefaultTtl> {
    Ok(DefaultTtl::parse(value_from_json(json)?.as_raw_bson_ref())?)
}

pub(in crate::commands) fn create(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    check_refused(args)?;
    let default_ttl = args.get("defaultTTL").map(read_default_ttl).transpose()?.unwrap_or_default();
    db.create_documents(args.collection()?, DocumentsOptions { default_ttl, indexes: Vec::new() })?;
    Ok(done())
}

pub(in crate::commands) fn modify(db: &Database, documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    check_refused(args)?;
    let default_ttl = args.get("defaultTTL").map(read_default_ttl).transpose()?;
    let changed = db.modify_documents(documents.name(), |options| {
        if let Some(default_ttl) = default_ttl {
            options.default_ttl = default_ttl;
        }
        args.get("index").map(|index| indexes::modify(options, index)).transpose()
    })?;
    let mut answer = done();
    if let Some((old, new)) = changed {
        if let Some(old) = old {
            answer.insert("expireAfterSeconds_old".to_owned(), Json::from(old));
        }
        answer.insert("expireAfterSeconds_new".to_owned(), Json::from(new));
    }
    Ok(answer)
}

pub(in crate::commands) fn stats(documents: &Documents) -> Result<Map<String, Json>> {
    let snapshot = documents.snapshot()?;
    let members = [
        ("ns", Json::from(documents.name())),
        ("count", snapshot.count()?.into()),
        ("size", snapshot.bytes().into()),
        ("nindexes", snapshot.options().indexes.len().into()),
    ];
    Ok(reply(members))
}

/// The options of an ordinary collection, in the form in which `create` takes them.
pub(in crate::commands) fn options_of(documents: &DocumentsSnapshot) -> Json {
    let default_ttl = match documents.options().default_ttl {
        DefaultTtl::Off => return Json::Object(Map::new()),
        DefaultTtl::Never => -1,
        DefaultTtl::Seconds(n) => i64::from(n),
    };
    Json::Object(reply([("defaultTTL", Json::from(default_ttl))]))
}

impl DocumentsSnapshot {
    /// The command document that makes a collection with this one's name and options.
    #[must_use]
    pub fn create_command(&self) -> Json {
        let mut create = reply([("create", Json::from(self.name()))]);
        if let Json::Object(options) = options_of(self) {
            create.extend(options);
        }
        Json::Object(create)
    }
}
