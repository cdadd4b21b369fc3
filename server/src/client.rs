//! Clients, and what each of them runs.

use crate::operations::Operation;
use crate::scram::{Exchange, Verifier};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// A client, as long as it is connected.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: i32,
    pub(crate) peer: SocketAddr,
    pub(crate) login: Mutex<Login>,
    /// What the program calls itself.
    pub(crate) app_name: OnceLock<String>,
    /// The command that it runs.
    running: Mutex<Option<Arc<Operation>>>,
}

/// How far a client is with its login.
#[derive(Debug, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<User>,
    pub(crate) conversation: Option<Conversation>,
    /// Conversations so far.
    pub(crate) conversations: i32,
    /// Whether the last command was a login that was refused.
    pub(crate) was_refused: bool,
}

/// Who a client has proven to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    /// That of the password with which it was proven: with another one the login is over.
    pub(crate) verifier: Verifier,
}

/// A login that has begun.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) id: i32,
    pub(crate) name: String,
    /// Nothing if there is no account of this name.
    pub(crate) user: Option<User>,
    pub(crate) exchange: Exchange,
    /// Whether the client wants no empty exchange at the end.
    pub(crate) skips_empty: bool,
    /// Whether the proof was right, and the empty exchange is left.
    pub(crate) is_proven: bool,
}

impl Client {
    pub(crate) fn new(number: i32, peer: SocketAddr) -> Client {
        Client { number, peer, login: Mutex::default(), app_name: OnceLock::new(), running: Mutex::default() }
    }

    /// The command that it runs.
    pub(crate) fn running(&self) -> Option<Arc<Operation>> {
        self.running.lock().clone()
    }

    /// Says that it runs a command, as long as what is returned is kept.
    pub(crate) fn begin(&self, operation: Operation) -> Running<'_> {
        let operation = Arc::new(operation);
        *self.running.lock() = Some(operation.clone());
        Running { client: self, operation }
    }

    /// The account that it has logged in to.
    pub(crate) fn user_name(&self) -> Option<String> {
        self.login.lock().user.as_ref().map(|user| user.name.clone())
    }

    /// Whether the last command was a login that was refused; asked once.
    pub(crate) fn take_refusal(&self) -> bool {
        std::mem::take(&mut self.login.lock().was_refused)
    }
}

/// A command that a client runs, as long as this is kept.
pub(crate) struct Running<'a> {
    client: &'a Client,
    pub(crate) operation: Arc<Operation>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.client.running.lock() = None;
    }
}

/// The clients that are connected, by number.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<BTreeMap<i32, Arc<Client>>>);

impl Clients {
    /// Adds a client, as long as what is returned is kept.
    pub(crate) fn enter(&self, client: Client) -> Entered<'_> {
        let client = Arc::new(client);
        self.0.lock().insert(client.number, client.clone());
        Entered { clients: self, client }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.0.lock().values().cloned().collect()
    }
}

/// A client that is connected.
pub(crate) struct Entered<'a> {
    clients: &'a Clients,
    client: Arc<Client>,
}

impl Deref for Entered<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.clients.0.lock().remove(&self.client.number);
    }
}
