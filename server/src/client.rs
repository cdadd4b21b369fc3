//! A client.

use crate::scram::{Exchange, Verifier};
use parking_lot::Mutex;
use std::net::SocketAddr;

/// A client, as long as it is connected.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: i32,
    pub(crate) peer: SocketAddr,
    pub(crate) login: Mutex<Login>,
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
        Client { number, peer, login: Mutex::default() }
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
