//! What a client asks before it does anything, and to find out whether the server is still there.

use crate::command::Command;
use crate::error::Result;
use crate::frame::{Compressor, WRITE_BATCH_MAX};
use crate::{login, reply};
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf, cstr};
use bson::{DateTime, rawdoc};
use ebbtide_documents::DOCUMENT_BYTES_MAX;
use ebbtide_ttl::Clock;

/// The version of MongoDB whose commands and replies these are.
const MONGODB_VERSION: [i32; 4] = [8, 0, 0, 0];
/// The wire protocol's version that goes with it: drivers of 2026 want at least 9.
const WIRE_VERSION: i32 = 25;

/// Characters of a program's name that are kept.
const APP_NAME_MAX: usize = 128;

pub(crate) fn nothing(_: &Command<'_>) -> Result<RawDocumentBuf> {
    Ok(reply::done())
}

pub(crate) fn hello(command: &Command<'_>) -> Result<RawDocumentBuf> {
    greeting(command, rawdoc! { "isWritablePrimary": true })
}

pub(crate) fn is_master(command: &Command<'_>) -> Result<RawDocumentBuf> {
    greeting(command, rawdoc! { "ismaster": true })
}

fn greeting(command: &Command<'_>, mut reply: RawDocumentBuf) -> Result<RawDocumentBuf> {
    if let Some(RawBsonRef::Document(about)) = command.get("client")
        && let Ok(application) = about.get_document("application")
        && let Ok(name) = application.get_str("name")
    {
        // The first greeting counts.
        let _ = command.client.app_name.set(name.chars().take(APP_NAME_MAX).collect());
    }
    let limit = |bytes: usize| i32::try_from(bytes).unwrap_or(i32::MAX);
    reply.append(cstr!("helloOk"), true);
    reply.append(cstr!("maxBsonObjectSize"), limit(DOCUMENT_BYTES_MAX));
    reply.append(cstr!("maxMessageSizeBytes"), limit(command.shared.settings.message_bytes_max));
    reply.append(cstr!("maxWriteBatchSize"), limit(WRITE_BATCH_MAX));
    reply.append(cstr!("localTime"), now(command));
    reply.append(cstr!("logicalSessionTimeoutMinutes"), 30);
    reply.append(cstr!("connectionId"), command.client.number);
    reply.append(cstr!("minWireVersion"), 0);
    reply.append(cstr!("maxWireVersion"), WIRE_VERSION);
    reply.append(cstr!("readOnly"), false);
    let mut agreed = RawArrayBuf::new();
    if let Some(RawBsonRef::Array(names)) = command.get("compression") {
        let known = names.into_iter().filter_map(std::result::Result::ok).filter_map(RawBsonRef::as_str);
        known.filter_map(Compressor::named).for_each(|known| agreed.push(known.name()));
    }
    if !agreed.is_empty() {
        reply.append(cstr!("compression"), &agreed);
    }
    if command.shared.gate.needs_login() {
        if command.get("saslSupportedMechs").is_some() {
            reply.append(cstr!("saslSupportedMechs"), bson::rawbson!([login::MECHANISM]));
        }
        // What is wrong with it is told to the saslStart that follows.
        if let Some(RawBsonRef::Document(members)) = command.get("speculativeAuthenticate")
            && let Ok(begun) = login::start(command.shared, command.client, members)
        {
            reply.append(cstr!("speculativeAuthenticate"), begun);
        }
    }
    Ok(reply::finished(reply))
}

/// The wall clock's instant.
pub(crate) fn now(command: &Command<'_>) -> DateTime {
    reply::date(command.shared.clock.now())
}

pub(crate) fn build_info(_: &Command<'_>) -> Result<RawDocumentBuf> {
    let [major, minor, patch, rest] = MONGODB_VERSION;
    let mut version = RawArrayBuf::new();
    [major, minor, patch, rest].into_iter().for_each(|part| version.push(part));
    Ok(reply::finished(rawdoc! {
        "version": format!("{major}.{minor}.{patch}").as_str(),
        "gitVersion": "",
        "versionArray": version,
        "ebbtide": env!("CARGO_PKG_VERSION"),
        "modules": RawArrayBuf::new(),
        "bits": 64,
        "debug": cfg!(debug_assertions),
        "maxBsonObjectSize": i32::try_from(DOCUMENT_BYTES_MAX).unwrap_or(i32::MAX),
        "storageEngines": ["ebbtide"],
    }))
}

pub(crate) fn whats_my_uri(command: &Command<'_>) -> Result<RawDocumentBuf> {
    Ok(reply::finished(rawdoc! { "you": command.client.peer.to_string().as_str() }))
}
