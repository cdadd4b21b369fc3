//! Logins: `saslStart`, `saslContinue`, `logout`, `connectionStatus`.
//!
//! A login that is refused says the same whatever was wrong with it, so that nobody learns which names there are.

use crate::client::{Client, Conversation};
use crate::command::{Access, Command, mismatch, missing};
use crate::error::{CommandError, Result, ServerCode};
use crate::reply;
use crate::scram::{ClientFirst, Exchange};
use crate::shared::{Shared, add};
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Binary, rawdoc, spec::BinarySubtype};

pub(crate) const SASL_START: &[&str] = &["mechanism", "payload", "autoAuthorize", "options"];
pub(crate) const SASL_CONTINUE: &[&str] = &["conversationId", "payload"];
/// The one mechanism of logins.
pub(crate) const MECHANISM: &str = "SCRAM-SHA-256";

/// Checks that a client may run a command that needs this.
pub(crate) fn check(shared: &Shared, client: &Client, access: Access, name: &str) -> Result<()> {
    let Some(needed) = access.role().filter(|_| shared.gate.needs_login()) else { return Ok(()) };
    let login = client.login.lock();
    let role = login.user.as_ref().and_then(|user| shared.gate.role(user));
    match role {
        Some(role) if role >= needed => Ok(()),
        Some(role) => {
            let what = format!("not authorized to execute command {name}: it needs the role {needed}, not {role}");
            Err(CommandError::of_server(ServerCode::Unauthorized, what))
        }
        None => {
            let what = format!("Command {name} requires authentication");
            Err(CommandError::of_server(ServerCode::Unauthorized, what))
        }
    }
}

/// Whether a client has not logged in where that is needed.
pub(crate) fn is_stranger(shared: &Shared, client: &Client) -> bool {
    shared.gate.needs_login() && client.login.lock().user.as_ref().is_none_or(|user| shared.gate.role(user).is_none())
}

fn refused(shared: &Shared, client: &Client, name: &str) -> CommandError {
    shared.refuse_login(client.peer, name);
    CommandError::of_server(ServerCode::AuthenticationFailed, "Authentication failed.")
}

fn out_of_order(what: &str) -> CommandError {
    CommandError::of_server(ServerCode::ProtocolError, what)
}

fn bytes<'a>(value: Option<RawBsonRef<'a>>, of: &str) -> Result<&'a [u8]> {
    match value {
        Some(RawBsonRef::Binary(binary)) => Ok(binary.bytes),
        Some(other) => Err(mismatch("payload", "binary data", other)),
        None => Err(missing("payload", of)),
    }
}

fn step(id: i32, done: bool, payload: String) -> RawDocumentBuf {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: payload.into_bytes() };
    rawdoc! { "conversationId": id, "done": done, "payload": payload }
}

/// Begins a login with the members of `saslStart`, which newer drivers put into their first greeting.
pub(crate) fn start(shared: &Shared, client: &Client, members: &RawDocument) -> Result<RawDocumentBuf> {
    let get = |name: &str| members.get(name).ok().flatten();
    match get("mechanism") {
        Some(RawBsonRef::String(MECHANISM)) => {}
        Some(RawBsonRef::String(other)) => {
            let shown: String = other.chars().take(40).collect();
            let what = format!(
                "Received authentication for mechanism {} which is not enabled: use {MECHANISM}",
                shown.escape_debug()
            );
            return Err(CommandError::of_server(ServerCode::MechanismUnavailable, what));
        }
        Some(other) => return Err(mismatch("mechanism", "a string", other)),
        None => return Err(missing("mechanism", "saslStart")),
    }
    let payload = bytes(get("payload"), "saslStart")?;
    let skips_empty = match get("options") {
        Some(RawBsonRef::Document(options)) => options.get_bool("skipEmptyExchange").unwrap_or(false),
        _ => false,
    };
    if !shared.gate.needs_login() {
        let what = "Authentication failed: there are no accounts here, so connect without a name and a password, or add \
                    an account with ebbtide user add";
        return Err(CommandError::of_server(ServerCode::AuthenticationFailed, what));
    }
    let mut login = client.login.lock();
    login.conversation = None;
    let begun = ClientFirst::parse(payload).and_then(|first| Some((shared.gate.verifier(&first.name)?, first)));
    let Some(((user, verifier), first)) = begun else {
        login.was_refused = true;
        return Err(refused(shared, client, ""));
    };
    let (exchange, challenge) = Exchange::begin(&first, verifier).map_err(out_of_order)?;
    login.conversations = login.conversations.wrapping_add(1);
    let id = login.conversations;
    login.conversation = Some(Conversation { id, name: first.name, user, exchange, skips_empty, is_proven: false });
    Ok(step(id, false, challenge))
}

pub(crate) fn sasl_start(command: &Command<'_>) -> Result<RawDocumentBuf> {
    start(command.shared, command.client, command.body).map(reply::finished)
}

pub(crate) fn sasl_continue(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let (shared, client) = (command.shared, command.client);
    let payload = bytes(command.get("payload"), "saslContinue")?;
    let id = command.whole("conversationId")?.ok_or_else(|| missing("conversationId", "saslContinue"))?;
    let mut login = client.login.lock();
    let mut conversation = login.conversation.take().ok_or_else(|| out_of_order("No SASL session state found"))?;
    if i64::from(conversation.id) != id {
        return Err(out_of_order("sasl: Mismatched conversation id"));
    }
    let proof = if conversation.is_proven {
        payload.is_empty().then(String::new)
    } else {
        conversation.exchange.finish(payload)
    };
    let (Some(proof), Some(user)) = (proof, conversation.user.clone()) else {
        login.was_refused = true;
        return Err(refused(shared, client, &conversation.name));
    };
    let done = conversation.skips_empty || conversation.is_proven;
    let answer = step(conversation.id, done, proof);
    if done {
        add(&shared.counters.logins, 1);
        tracing::info!(peer = %client.peer, name = %user.name.escape_debug(), "logged in");
        login.user = Some(user);
    } else {
        conversation.is_proven = true;
        login.conversation = Some(conversation);
    }
    Ok(reply::finished(answer))
}

pub(crate) fn logout(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let mut login = command.client.login.lock();
    (login.user, login.conversation) = (None, None);
    Ok(reply::done())
}

pub(crate) fn connection_status(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let (mut users, mut roles) = (RawArrayBuf::new(), RawArrayBuf::new());
    let user = command.client.login.lock().user.clone();
    if let Some(user) = user
        && let Some(role) = command.shared.gate.role(&user)
    {
        users.push(rawdoc! { "user": user.name.as_str(), "db": "admin" });
        roles.push(rawdoc! { "role": role.name(), "db": "admin" });
    }
    let mut info = rawdoc! { "authenticatedUsers": users, "authenticatedUserRoles": roles };
    if command.flag("showPrivileges")? == Some(true) {
        info.append(cstr!("authenticatedUserPrivileges"), RawArrayBuf::new());
    }
    Ok(reply::finished(rawdoc! { "authInfo": info }))
}
