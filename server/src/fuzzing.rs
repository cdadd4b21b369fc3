//! For fuzz targets: what a client sends, read as a connection reads it. It is no part of the interface.

use crate::client::Client;
use crate::databases::Databases;
use crate::dispatch;
use crate::error::Failure;
use crate::frame::{self, Message};
use crate::gate::Gate;
use crate::scram::{ClientFirst, Exchange, Verifier};
use crate::settings::Settings;
use crate::shared::Shared;
use bson::RawDocumentBuf;
use ebbtide::Database;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Reads a message; whether it is one.
#[must_use]
pub fn is_message(bytes: &[u8]) -> bool {
    frame::unpacked(bytes).is_ok_and(|unpacked| Message::parse(unpacked.bytes()).is_ok())
}

/// Both messages of a login, with a NUL between them, for a name that nobody has; whether the server was convinced.
#[must_use]
pub fn logs_in(bytes: &[u8]) -> bool {
    let (first, last) = bytes.split_at(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
    let Some(first) = ClientFirst::parse(first) else { return false };
    let verifier = Verifier::of_nobody(&[7; 32], &first.name);
    Exchange::begin(&first, verifier)
        .is_ok_and(|(exchange, _)| exchange.finish(last.get(1..).unwrap_or_default()).is_some())
}

/// A client of a server without ports.
#[derive(Debug)]
pub struct Connected {
    shared: Shared,
    client: Client,
}

impl Connected {
    /// Of a server with one database, called `db`.
    ///
    /// # Errors
    /// None for that name.
    pub fn new(database: Database) -> Result<Connected, Failure> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let gate = Gate::new(None, Duration::ZERO)?;
        let shared = Shared::new(Databases::of("db", database)?, Settings::default(), gate, address);
        Ok(Connected { shared, client: Client::new(1, address) })
    }

    /// Runs a message; its reply, if it is a message that wants one.
    #[must_use]
    pub fn run(&self, message: &[u8]) -> Option<RawDocumentBuf> {
        let unpacked = frame::unpacked(message).ok()?;
        dispatch::run(&self.shared, &self.client, &Message::parse(unpacked.bytes()).ok()?)
    }
}
