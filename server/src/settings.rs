//! Settings of a server.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// How a server is reached, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The address to listen on. Default: 127.0.0.1.
    pub listen: IpAddr,
    /// The port of MongoDB's wire protocol, 0 for any that is free; `None` to leave it closed. Default: 27017.
    pub mongodb: Option<u16>,
    /// Whether an address that other hosts can reach is allowed although there are no accounts. Default: no.
    pub insecure: bool,
    /// Connections at a time; more are closed at once. Default: 10,000.
    pub connections_max: usize,
    /// Bytes of messages that all connections together may hold while they are read and answered. Default: 512 MiB.
    pub message_memory_bytes: usize,
    /// How long a client may take for the rest of a message that it has begun, or for taking some of a reply. Default: 1
    /// minute.
    pub stall_max: Duration,
    /// Open cursors at a time. Default: 10,000.
    pub cursors_max: usize,
    /// After this time without use a cursor is closed. Default: 10 minutes.
    pub cursor_idle_max: Duration,
    /// After this time a cursor is closed, used or not, so that it lets go of its snapshot. Default: 1 hour.
    pub cursor_lifetime_max: Duration,
    /// Bytes that a sort of one command may hold in memory. Default: 100 MiB.
    pub sort_bytes_max: usize,
    /// Whether a write creates the collection that it names, as in MongoDB. Default: yes.
    pub auto_create: bool,
    /// How long commands that are running may take to end when the server stops. Default: 10 seconds.
    pub grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
            mongodb: Some(27017),
            insecure: false,
            connections_max: 10_000,
            message_memory_bytes: 512 << 20,
            stall_max: Duration::from_secs(60),
            cursors_max: 10_000,
            cursor_idle_max: Duration::from_secs(600),
            cursor_lifetime_max: Duration::from_secs(3600),
            sort_bytes_max: 100 << 20,
            auto_create: true,
            grace: Duration::from_secs(10),
        }
    }
}
