//! Commands that the engine takes as Extended JSON: from BSON and back.

use crate::command::Command;
use crate::error::{CommandError, Result};
use crate::reply;
use bson::raw::{RawArrayBuf, RawBson, RawDocumentBuf};
use ebbtide::{Database, FileAccess};
use ebbtide_documents::json::{WRAPPERS, to_canonical_value, value_from_json};
use ebbtide_ttl::{Code, Value};
use serde_json::{Map, Value as Json};

/// The command as the engine takes it: its name, and every option but the generic ones.
pub(crate) fn of(command: &Command<'_>) -> Map<String, Json> {
    let subject = (command.handler.name.to_owned(), to_canonical_value(command.subject()));
    let options = command.options().map(|(name, value)| (name.to_owned(), to_canonical_value(value)));
    std::iter::once(subject).chain(options).collect()
}

/// Runs a command of the engine.
pub(crate) fn run(database: &Database, files: &FileAccess, command: Map<String, Json>) -> Result<Map<String, Json>> {
    files.check_command(&command)?;
    match database.run_command(&Json::Object(command))? {
        Json::Object(mut reply) => {
            reply.remove("ok");
            Ok(reply)
        }
        other => Err(CommandError::new(Code::InternalError, format!("a reply that is no object: {other}"))),
    }
}

/// A reply of the engine as BSON, without `ok`.
pub(crate) fn to_bson(reply: &Map<String, Json>) -> Result<RawDocumentBuf> {
    let mut document = RawDocumentBuf::new();
    for (name, value) in reply {
        reply::append(&mut document, name, value_of(value)?);
    }
    Ok(document)
}

/// A value as BSON, numbers in the smallest type that holds them.
pub(crate) fn value_of(json: &Json) -> Result<RawBson> {
    Ok(match json {
        Json::Number(number) => match number.as_i64() {
            Some(whole) => reply::number(whole),
            None => RawBson::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::Object(members) if members.keys().any(|name| WRAPPERS.contains(&name.as_str())) => value_from_json(json)?,
        Json::Object(members) => RawBson::Document(to_bson(members)?),
        Json::Array(items) => {
            let mut list = RawArrayBuf::new();
            for item in items {
                list.push(value_of(item)?);
            }
            RawBson::Array(list)
        }
        other => value_from_json(other)?,
    })
}

/// A parameter's value as BSON.
pub(crate) fn of_value(value: &Value) -> Result<RawBson> {
    value_of(&ebbtide::json::json_of(value))
}
