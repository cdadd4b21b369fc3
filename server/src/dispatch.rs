//! The commands: their names, their options, and who runs them.

use crate::client::Client;
use crate::command::{Command, Handler};
use crate::error::{CommandError, Result};
use crate::frame::Message;
use crate::shared::{Shared, add};
use crate::{admin, aggregate, batches, collections, explain, handshake, read, reply, write};
use bson::raw::RawDocumentBuf;
use bson::rawdoc;
use ebbtide_ttl::Code;

const HANDLERS: &[Handler] = &[
    Handler::new("aggregate", aggregate::AGGREGATE, explain::aggregate),
    Handler::quick("buildInfo", &[], handshake::build_info),
    Handler::open("collMod", collections::through_engine),
    Handler::new("collStats", &["scale"], collections::stats),
    Handler::open("compact", collections::through_engine),
    Handler::quick("connectionStatus", &["showPrivileges"], handshake::connection_status),
    Handler::new("count", read::COUNT, read::count),
    Handler::open("create", collections::create),
    Handler::new("createIndexes", &["indexes", "commitQuorum"], collections::create_indexes),
    Handler::new("currentOp", admin::CURRENT_OP, admin::current_op),
    Handler::new("dbStats", &["scale", "freeStorage"], collections::database_stats),
    Handler::new("delete", write::DELETE, write::delete),
    Handler::new("distinct", read::DISTINCT, read::distinct),
    Handler::open("drop", collections::through_engine),
    Handler::new("dropDatabase", &[], collections::drop_database),
    Handler::open("dropIndexes", collections::through_engine),
    Handler::quick("endSessions", &[], handshake::nothing),
    Handler::new("explain", &["verbosity"], explain::explain),
    Handler::new("find", read::FIND, read::find),
    Handler::new("findAndModify", write::FIND_AND_MODIFY, write::find_and_modify),
    Handler::quick("getCmdLineOpts", &[], admin::command_line),
    Handler::new("getLog", &[], admin::log),
    Handler::new("getMore", &["collection", "batchSize"], batches::get_more),
    Handler::open("getParameter", admin::get_parameter),
    Handler::quick_open("hello", handshake::hello),
    Handler::quick("hostInfo", &[], admin::host_info),
    Handler::new("insert", write::INSERT, write::insert),
    Handler::quick_open("isMaster", handshake::is_master),
    Handler::new("killCursors", &["cursors"], batches::kill),
    Handler::quick("killSessions", &[], handshake::nothing),
    Handler::new("listCollections", collections::LIST, collections::list),
    Handler::quick("listCommands", &[], list_commands),
    Handler::new("listDatabases", &["filter", "nameOnly", "authorizedDatabases"], collections::list_databases),
    Handler::new("listIndexes", &["cursor"], collections::list_indexes),
    Handler::quick("ping", &[], handshake::nothing),
    Handler::quick("refreshSessions", &[], handshake::nothing),
    Handler::open("renameCollection", collections::rename),
    Handler::open("serverStatus", admin::server_status),
    Handler::open("setParameter", admin::set_parameter),
    Handler::new("update", write::UPDATE, write::update),
    Handler::new(
        "validate",
        &["full", "scandata", "background", "repair", "metadata", "checkBSONConformance"],
        collections::validate,
    ),
    Handler::quick("whatsmyuri", &[], handshake::whats_my_uri),
];

/// Names by which older clients call commands.
const ALIASES: &[(&str, &str)] = &[
    ("ismaster", "isMaster"),
    ("buildinfo", "buildInfo"),
    ("findandmodify", "findAndModify"),
    ("dbstats", "dbStats"),
    ("collstats", "collStats"),
];

fn find(name: &str) -> Option<&'static Handler> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
    HANDLERS.iter().find(|handler| handler.name == name)
}

fn name_of<'a>(message: &Message<'a>) -> &'a str {
    message.body.iter().next().and_then(std::result::Result::ok).map_or("", |(name, _)| name.as_str())
}

/// Whether a command can run where it is read, because it waits for nothing.
pub(crate) fn is_quick(message: &Message<'_>) -> bool {
    find(name_of(message)).is_none_or(|handler| handler.is_quick)
}

fn unknown(name: &str) -> CommandError {
    let shown: String = name.chars().take(60).collect();
    let near = ebbtide::suggest::nearest(name, HANDLERS.iter().map(|handler| handler.name));
    let hint = near.map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
    CommandError::new(Code::CommandNotFound, format!("no such command: '{}'{hint}", shown.escape_debug()))
}

/// Runs the command of a message; its reply, unless none is wanted.
pub(crate) fn run(shared: &Shared, client: &Client, message: &Message<'_>) -> Option<RawDocumentBuf> {
    let name = name_of(message);
    let _span = tracing::debug_span!("command", connection = client.number, name).entered();
    let outcome = find(name).ok_or_else(|| unknown(name)).and_then(|handler| {
        let command = Command::of(shared, client, message, handler)?;
        count(shared, handler.name);
        (handler.run)(&command)
    });
    let reply = outcome.unwrap_or_else(|error| {
        tracing::info!(name, code = error.code, error = error.message, peer = %client.peer, "a command was refused");
        error.reply()
    });
    (!message.more_to_come).then_some(reply)
}

fn count(shared: &Shared, name: &str) {
    let counters = &shared.counters;
    match name {
        "insert" => {}
        "find" => add(&counters.queries, 1),
        "update" => add(&counters.updates, 1),
        "delete" => add(&counters.deletes, 1),
        "getMore" => add(&counters.get_mores, 1),
        _ => add(&counters.commands, 1),
    }
}

fn list_commands(_: &Command<'_>) -> Result<RawDocumentBuf> {
    let mut commands = RawDocumentBuf::new();
    for handler in HANDLERS {
        reply::append(&mut commands, handler.name, rawdoc! { "help": "" });
    }
    Ok(reply::finished(rawdoc! { "commands": commands }))
}
