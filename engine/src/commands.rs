//! Command documents in MongoDB's form.
//!
//! 1. Nothing is ignored: an unknown command, option or value is an error that names it and lists what is known.
//! 2. A command is checked as a whole before it does anything.
//! 3. Commands only translate into calls of [`Database`] and its collections, snapshots and rules.

mod args;
mod collections;
mod data;
mod documents;
mod find;
mod holds;
mod indexes;
mod projection;
mod publications;
mod replies;
mod server;

pub use collections::{REFUSED_OPTIONS, TIMESERIES_OPTIONS};

use crate::db::Database;
use crate::error::{Error, Result};
use args::Args;
use ebbtide_ttl::Code;
use serde_json::{Map, Value as Json};

/// Runs a command whose options were checked for unknown names.
type Handler = fn(&Database, &Args<'_>) -> Result<Map<String, Json>>;

struct Command {
    name: &'static str,
    options: &'static [&'static str],
    run: Handler,
}

const COMMANDS: &[Command] = &[
    Command { name: "collMod", options: collections::MODIFY_OPTIONS, run: collections::modify },
    Command { name: "collStats", options: &[], run: collections::stats },
    Command { name: "compact", options: &[], run: collections::compact },
    Command { name: "confirmClock", options: &[], run: server::confirm_clock },
    Command { name: "count", options: &["query", "limit", "skip"], run: find::count },
    Command { name: "create", options: collections::CREATE_OPTIONS, run: collections::create },
    Command { name: "createHold", options: holds::CREATE_OPTIONS, run: holds::create },
    Command { name: "createIndexes", options: &["indexes"], run: indexes::create },
    Command { name: "currentOp", options: &[], run: server::current_op },
    Command { name: "delete", options: &["deletes", "ordered", "ladder"], run: data::delete },
    Command { name: "distinct", options: &["key", "query"], run: find::distinct },
    Command { name: "drop", options: &[], run: collections::drop },
    Command { name: "dropHold", options: &[], run: holds::drop },
    Command { name: "dropIndexes", options: &["index"], run: indexes::drop },
    Command { name: "find", options: &["filter", "sort", "projection", "skip", "limit"], run: find::find },
    Command { name: "findAndModify", options: documents::write::FIND_AND_MODIFY, run: data::find_and_modify },
    Command { name: GET_PARAMETER, options: &[], run: server::get_parameter },
    Command { name: "insert", options: &["documents", "ordered"], run: data::insert },
    Command { name: "listCollections", options: &["filter", "nameOnly"], run: collections::list },
    Command { name: "listHolds", options: &[], run: holds::list },
    Command { name: "listIndexes", options: &[], run: indexes::list },
    Command { name: "listLadders", options: &[], run: collections::list_ladders },
    Command { name: "listPublications", options: &[], run: publications::list },
    Command { name: "ping", options: &[], run: server::ping },
    Command { name: "publish", options: publications::PUBLISH_OPTIONS, run: publications::publish },
    Command { name: "serverStatus", options: &[], run: server::server_status },
    Command { name: "renameCollection", options: collections::RENAME_OPTIONS, run: collections::rename },
    Command { name: SET_PARAMETER, options: &[], run: server::set_parameter },
    Command { name: "unpublish", options: publications::UNPUBLISH_OPTIONS, run: publications::unpublish },
    Command { name: "update", options: &["updates", "ordered"], run: data::update },
];

/// Commands whose options are the names of parameters, which they check themselves.
const GET_PARAMETER: &str = "getParameter";
const SET_PARAMETER: &str = "setParameter";

impl Database {
    /// Runs one command document in MongoDB's form, and returns its reply.
    ///
    /// # Errors
    /// Errors have MongoDB's code and code name for the same mistake.
    pub fn run_command(&self, command: &Json) -> Result<Json> {
        let members = command.as_object().ok_or_else(|| {
            let what = format!("a command must be an object such as {{\"ping\": 1}}, not {}", args::kind(command));
            Error::new(Code::TypeMismatch, what)
        })?;
        let Some(name) = members.keys().next() else {
            return Err(Error::new(Code::CommandNotFound, "the command is empty: its first key must name what to do"));
        };
        let known = COMMANDS.iter().find(|c| c.name == name).ok_or_else(|| unknown_command(name))?;
        let args = match known.name {
            GET_PARAMETER | SET_PARAMETER => Args::unchecked(known.name, members),
            _ => Args::of_command(known.name, members, known.options)?,
        };
        let mut reply = (known.run)(self, &args)?;
        reply.insert("ok".to_owned(), Json::from(1));
        Ok(Json::Object(reply))
    }
}

fn unknown_command(name: &str) -> Error {
    let shown: String = name.chars().take(60).collect();
    let hint = match crate::suggest::nearest(name, COMMANDS.iter().map(|c| c.name)) {
        _ if name == "aggregate" => "a server runs pipelines: start one with ebbtide serve".to_owned(),
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("the commands are {}", COMMANDS.iter().map(|c| c.name).collect::<Vec<_>>().join(", ")),
    };
    Error::new(Code::CommandNotFound, format!("there is no command '{}'; {hint}", shown.escape_debug()))
}

#[cfg(test)]
mod tests;
