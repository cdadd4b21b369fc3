//! What the connections of a server share.

use crate::cursors::Cursors;
use crate::databases::Databases;
use crate::settings::Settings;
use ebbtide_ttl::{Clock, SystemClock};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Bytes of one permit for the memory of messages.
pub(crate) const MEMORY_UNIT: usize = 64 << 10;

/// What the connections of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) databases: Databases,
    pub(crate) settings: Settings,
    pub(crate) cursors: Cursors,
    pub(crate) clock: SystemClock,
    pub(crate) started: Duration,
    pub(crate) counters: Counters,
    /// The memory of messages, in units of [`MEMORY_UNIT`].
    pub(crate) memory: Semaphore,
    pub(crate) address: SocketAddr,
    next_connection: AtomicI32,
}

impl Shared {
    pub(crate) fn new(databases: Databases, settings: Settings, address: SocketAddr) -> Shared {
        let clock = SystemClock::new();
        Shared {
            databases,
            cursors: Cursors::new(&settings),
            memory: Semaphore::new((settings.message_memory_bytes / MEMORY_UNIT).max(1)),
            address,
            settings,
            started: clock.monotonic(),
            clock,
            counters: Counters::default(),
            next_connection: AtomicI32::new(1),
        }
    }

    /// The monotonic time.
    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// The number of a new connection.
    pub(crate) fn next_connection(&self) -> i32 {
        self.next_connection.fetch_add(1, Ordering::Relaxed)
    }
}

/// What happened since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicUsize,
    pub(crate) connections_made: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) inserts: AtomicU64,
    pub(crate) queries: AtomicU64,
    pub(crate) updates: AtomicU64,
    pub(crate) deletes: AtomicU64,
    pub(crate) get_mores: AtomicU64,
    pub(crate) commands: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
