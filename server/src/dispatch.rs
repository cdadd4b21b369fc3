//! The commands: their names, their options, and who runs them.

use crate::client::Client;
use crate::command::Access::{self, Admin, Anyone, Read, Write};
use crate::command::{Command, Handler};
use crate::error::{CommandError, Result, ServerCode};
use crate::frame::Message;
use crate::operations::Operation;
use crate::shared::{Shared, add};
use crate::{
    admin, admission, aggregate, batches, collections, current, explain, handshake, login, profile, profiler, read,
    reply, write,
};
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::rawdoc;
use ebbtide_ttl::{Clock, Code};

/// To read a longer command takes long.
const QUICK_BYTES_MAX: usize = 16 << 10;

const HANDLERS: &[Handler] = &[
    Handler::new("aggregate", Read, aggregate::AGGREGATE, explain::aggregate),
    Handler::quick("buildInfo", Read, &[], handshake::build_info),
    Handler::open("collMod", Admin, collections::through_engine),
    Handler::new("collStats", Read, &["scale"], collections::stats),
    Handler::open("compact", Admin, collections::through_engine),
    Handler::quick("connectionStatus", Anyone, &["showPrivileges"], login::connection_status),
    Handler::quick("count", Read, read::COUNT, read::count),
    Handler::open("create", Admin, collections::create),
    Handler::new("createIndexes", Admin, &["indexes", "commitQuorum"], collections::create_indexes),
    Handler::new("currentOp", Read, current::CURRENT_OP, current::current_op),
    Handler::new("dbStats", Read, &["scale", "freeStorage"], collections::database_stats),
    Handler::new("delete", Write, write::DELETE, write::delete),
    Handler::new("distinct", Read, read::DISTINCT, read::distinct),
    Handler::open("drop", Admin, profile::drop_collection),
    Handler::new("dropDatabase", Admin, &[], collections::drop_database),
    Handler::open("dropIndexes", Admin, collections::drop_indexes),
    Handler::quick("endSessions", Read, &[], handshake::nothing),
    Handler::new("explain", Read, &["verbosity"], explain::explain),
    Handler::quick("find", Read, read::FIND, read::find),
    Handler::new("findAndModify", Write, write::FIND_AND_MODIFY, write::find_and_modify),
    Handler::quick("getCmdLineOpts", Admin, &[], admin::command_line),
    Handler::new("getLog", Read, &[], admin::log),
    Handler::quick("getMore", Read, &["collection", "batchSize"], batches::get_more),
    Handler::open("getParameter", Read, admin::get_parameter),
    Handler::quick_open("hello", Anyone, handshake::hello),
    Handler::quick("hostInfo", Read, &[], admin::host_info),
    Handler::new("insert", Write, write::INSERT, write::insert),
    Handler::quick_open("isMaster", Anyone, handshake::is_master),
    Handler::new("killCursors", Read, &["cursors"], batches::kill),
    Handler::quick("killOp", Read, &["op"], current::kill),
    Handler::quick("killSessions", Read, &[], handshake::nothing),
    Handler::new("listCollections", Read, collections::LIST, collections::list),
    Handler::quick("listCommands", Read, &[], list_commands),
    Handler::new("listDatabases", Read, &["filter", "nameOnly", "authorizedDatabases"], collections::list_databases),
    Handler::new("listIndexes", Read, &["cursor"], collections::list_indexes),
    Handler::quick("logout", Anyone, &[], login::logout),
    Handler::quick("ping", Anyone, &[], handshake::nothing),
    Handler::quick("profile", Admin, profile::PROFILE, profile::profile),
    Handler::quick("refreshSessions", Read, &[], handshake::nothing),
    Handler::open("renameCollection", Admin, collections::rename),
    Handler::quick("saslContinue", Anyone, login::SASL_CONTINUE, login::sasl_continue),
    Handler::quick("saslStart", Anyone, login::SASL_START, login::sasl_start),
    Handler::open("serverStatus", Read, admin::server_status),
    Handler::open("setParameter", Admin, admin::set_parameter),
    Handler::quick("top", Read, &[], admin::top),
    Handler::new("update", Write, write::UPDATE, write::update),
    Handler::new(
        "validate",
        Read,
        &["full", "scandata", "background", "repair", "metadata", "checkBSONConformance"],
        collections::validate,
    ),
    Handler::quick("whatsmyuri", Anyone, &[], handshake::whats_my_uri),
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

/// Whether a command can run on the thread that reads its connection: it waits for nothing, and runs what takes long within
/// `block_in_place`. Meanwhile that thread cannot serve others, and perhaps no other thread waits for their messages.
pub(crate) fn is_quick(message: &Message<'_>) -> bool {
    let is_short = message.body.as_bytes().len() <= QUICK_BYTES_MAX;
    is_short && find(name_of(message)).is_none_or(|handler| handler.is_quick)
}

/// Whether a message carries the proof of a login.
pub(crate) fn is_proof(message: &Message<'_>) -> bool {
    find(name_of(message)).is_some_and(|handler| handler.name == "saslContinue")
}

/// What a command needs: a pipeline that ends in a collection writes, and an explanation needs what it explains.
fn access(handler: &Handler, message: &Message<'_>) -> Access {
    match (handler.name, message.body.get_document("explain")) {
        ("explain", Ok(inner)) => {
            let name = inner.iter().next().and_then(std::result::Result::ok).map_or("", |(name, _)| name.as_str());
            find(name).map_or(handler.access, |explained| access_of(explained, inner))
        }
        // To ask for the level changes nothing.
        ("profile", _) if profile::only_asks(message.body) => Read,
        _ => access_of(handler, message.body),
    }
}

fn access_of(handler: &Handler, body: &RawDocument) -> Access {
    let Ok(stages) = body.get_array("pipeline") else { return handler.access };
    let is_write = |stage: bson::RawBsonRef<'_>| {
        let member = stage.as_document().and_then(|stage| stage.iter().next()?.ok());
        member.is_some_and(|(name, _)| ["$out", "$merge"].contains(&name.as_str()))
    };
    let writes = stages.into_iter().filter_map(std::result::Result::ok).any(is_write);
    if writes && handler.access == Read { Write } else { handler.access }
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
    let span = tracing::debug_span!("command", name, namespace = tracing::field::Empty).entered();
    let found = find(name).map(|handler| (handler, access(handler, message)));
    let begun = found.ok_or_else(|| unknown(name)).and_then(|(handler, access)| {
        login::check(shared, client, access, handler.name)?;
        let running = client.begin(operation(shared, client, message, (handler, access)));
        span.record("namespace", running.operation.namespace.as_str());
        Ok((handler, access, running))
    });
    let outcome = begun.as_ref().map_err(Clone::clone).and_then(|(handler, access, running)| {
        let command = Command::of(shared, client, message, handler, &running.operation)?;
        count(shared, handler.name);
        if *access == Write {
            admission::take_rows(&command, rows(message))?;
        }
        // What a pipeline stores waits where it is stored.
        if handler.access == Write
            && let Ok(Some(database)) = command.existing()
        {
            admission::wait_for_room(&command, &database)?;
        }
        (handler.run)(&command).map_err(|error| command.deadline.reason(error))
    });
    let reply = outcome.unwrap_or_else(|error| {
        count_refused(shared, client, name, &error);
        let mut reply = error.reply();
        let is_write = found.is_some_and(|(handler, _)| handler.access == Write);
        if is_write && error.code == ServerCode::MaxTimeMSExpired as i32 {
            // These look at their time only before they store anything; a pipeline with $merge may have stored some.
            reply::append(&mut reply, "n", 0);
        }
        reply
    });
    if let Ok((_, _, running)) = begun {
        ended(shared, client, &running.operation, &reply);
    }
    (!message.more_to_come).then_some(reply)
}

/// Counts and logs a command that was refused.
pub(crate) fn count_refused(shared: &Shared, client: &Client, name: &str, error: &CommandError) {
    add(&shared.counters.refused, 1);
    tracing::info!(name, code = error.code, error = error.message, peer = %client.peer, "a command was refused");
}

/// What is known of a command that begins.
fn operation(
    shared: &Shared,
    client: &Client,
    message: &Message<'_>,
    (handler, access): (&'static Handler, Access),
) -> Operation {
    let writes = matches!(access, Write | Admin);
    let mut operation = Operation::new(shared.next_operation(), (handler.name, writes), message);
    operation.user = client.user_name();
    operation.begun = shared.now();
    operation.is_profiled = shared.profiler.is_on(&operation.database) && !operation.is_of(profiler::COLLECTION);
    operation
}

/// Counts and records a command that ended.
fn ended(shared: &Shared, client: &Client, operation: &Operation, reply: &RawDocument) {
    let took = shared.now().saturating_sub(operation.begun);
    if operation.has_collection {
        shared.usage.add(operation, took);
    }
    if shared.profiler.is_slow(took) {
        let Operation { name, namespace, .. } = operation;
        let (millis, plan) = (took.as_millis() as u64, operation.plan.lock().clone().unwrap_or_default());
        tracing::info!(name, namespace, millis, plan, peer = %client.peer, "a command was slow");
    }
    if operation.is_profiled {
        shared.profiler.note(client, operation, (shared.clock.now(), took), reply);
    }
}

/// The documents, updates or deletes of a write.
fn rows(message: &Message<'_>) -> usize {
    let beside: usize = message.sequences.iter().map(|sequence| sequence.documents.len()).sum();
    let lists = ["documents", "updates", "deletes"].into_iter().filter_map(|list| message.body.get_array(list).ok());
    let within: usize = lists.map(|list| list.into_iter().count()).sum();
    (beside + within).max(1)
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

#[cfg(test)]
mod tests;
