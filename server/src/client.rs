//! A client.

use std::net::SocketAddr;

/// A client, as long as it is connected.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: i32,
    pub(crate) peer: SocketAddr,
}
