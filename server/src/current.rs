//! What runs now, `currentOp`, and its end, `killOp`.

use crate::accounts::Role;
use crate::client::Client;
use crate::command::Command;
use crate::error::{CommandError, Result, ServerCode};
use crate::handshake::now;
use crate::operations::Operation;
use crate::reply;
use bson::raw::{RawArrayBuf, RawDocumentBuf, cstr};
use bson::rawdoc;
use std::sync::Arc;

pub(crate) const CURRENT_OP: &[&str] = &["$all", "$ownOps", "active"];

pub(crate) fn current_op(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let own = command.flag("$ownOps")?.unwrap_or(false);
    let running: RawArrayBuf = operations(command, own).into_iter().collect();
    Ok(reply::finished(rawdoc! { "inprog": running }))
}

/// What runs: commands, and passes of the sweepers. Where there are accounts, only administrators see the commands of others.
pub(crate) fn operations(command: &Command<'_>, only_own: bool) -> Vec<RawDocumentBuf> {
    let own = command.client.user_name();
    let sees_all = !only_own && may_see_all(command);
    let clients = command.shared.clients.all();
    let running = clients.iter().filter_map(|client| Some((client, client.running()?)));
    let seen = running.filter(|(_, operation)| sees_all || operation.user == own);
    let mut shown: Vec<_> = seen.map(|(client, operation)| of_command(command, client, &operation)).collect();
    shown.extend(sweeps(command));
    shown
}

fn may_see_all(command: &Command<'_>) -> bool {
    let gate = &command.shared.gate;
    let user = command.client.login.lock().user.clone();
    !gate.needs_login() || user.and_then(|user| gate.role(&user)) == Some(Role::Admin)
}

fn of_command(command: &Command<'_>, client: &Client, operation: &Operation) -> RawDocumentBuf {
    let took = command.shared.now().saturating_sub(operation.begun);
    let mut shown = rawdoc! {
        "type": "op",
        "host": command.shared.address.to_string(),
        "desc": format!("conn{}", client.number),
        "connectionId": client.number,
        "client": client.peer.to_string(),
    };
    if let Some(name) = client.app_name.get() {
        shown.append(cstr!("appName"), name.as_str());
    }
    shown.append(cstr!("active"), true);
    shown.append(cstr!("currentOpTime"), now(command).try_to_rfc3339_string().unwrap_or_default());
    if let Some(user) = &operation.user {
        let mut users = RawArrayBuf::new();
        users.push(rawdoc! { "user": user.as_str(), "db": "admin" });
        shown.append(cstr!("effectiveUsers"), &users);
    }
    shown.append(cstr!("opid"), operation.number);
    shown.append(cstr!("secs_running"), i64::try_from(took.as_secs()).unwrap_or(i64::MAX));
    shown.append(cstr!("microsecs_running"), i64::try_from(took.as_micros()).unwrap_or(i64::MAX));
    shown.append(cstr!("op"), operation.kind());
    shown.append(cstr!("ns"), operation.namespace.as_str());
    shown.append(cstr!("command"), operation.command.clone());
    if let Some(plan) = operation.plan.lock().as_deref() {
        shown.append(cstr!("planSummary"), plan);
    }
    if operation.is_killed() {
        shown.append(cstr!("killPending"), true);
    }
    shown
}

/// Passes of the sweepers.
fn sweeps(command: &Command<'_>) -> Vec<RawDocumentBuf> {
    let of = |(name, database): (String, ebbtide::Database)| {
        let pass = database.current_operation()?;
        let started = reply::date(pass.started);
        let took = now(command).timestamp_millis().saturating_sub(started.timestamp_millis()).max(0);
        Some(rawdoc! {
            "type": "op",
            "desc": "TTLMonitor",
            "active": true,
            "secs_running": took / 1000,
            "microsecs_running": took.saturating_mul(1000),
            "op": "remove",
            "ns": format!("{name}.{}", pass.collection),
            "rule": pass.rule,
            "started": started,
            "progress": {
                "deletedBuckets": reply::count(pass.buckets), "deletedDocuments": reply::count(pass.measurements),
            },
        })
    };
    command.shared.databases.all().into_iter().filter_map(of).collect()
}

/// Ends a command, of whatever connection, the next time that it looks whether it should.
pub(crate) fn kill(command: &Command<'_>) -> Result<RawDocumentBuf> {
    command.check_admin()?;
    let missing = || CommandError::of_server(ServerCode::NoSuchKey, "Missing expected field \"op\"");
    let number = command.whole("op")?.ok_or_else(missing)?;
    let running = command.shared.clients.all().iter().filter_map(|client| client.running()).collect::<Vec<Arc<_>>>();
    let found = running.into_iter().find(|operation| i64::from(operation.number) == number);
    if let Some(operation) = found {
        if operation.user != command.client.user_name() && !may_see_all(command) {
            let what = "not authorized to end the command of another account: it needs the role admin";
            return Err(CommandError::of_server(ServerCode::Unauthorized, what));
        }
        tracing::info!(opid = number, peer = %command.client.peer, "a command is ended");
        operation.kill();
    }
    Ok(reply::finished(rawdoc! { "info": "attempting to kill op" }))
}
