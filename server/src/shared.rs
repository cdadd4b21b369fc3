//! What the connections of a server share.

use crate::cancellations::Cancellations;
use crate::client::Clients;
use crate::cursors::Cursors;
use crate::databases::Databases;
use crate::gate::Gate;
use crate::limits::Rates;
use crate::profiler::Profiler;
use crate::settings::Settings;
use crate::sql::Sql;
use crate::usage::Usage;
use ebbtide_ttl::{Clock, SystemClock, Timestamp};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// Bytes of one permit for the memory of messages.
pub(crate) const MEMORY_UNIT: usize = 64 << 10;

/// What the connections of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) databases: Databases,
    pub(crate) settings: Settings,
    pub(crate) cursors: Cursors,
    pub(crate) gate: Gate,
    pub(crate) clock: Arc<SystemClock>,
    pub(crate) clients: Clients,
    pub(crate) profiler: Profiler,
    pub(crate) usage: Usage,
    /// When it was made, by the monotonic clock and by the other.
    pub(crate) started: Duration,
    pub(crate) begun: Timestamp,
    pub(crate) counters: Counters,
    pub(crate) rates: Rates,
    /// Held by the one writer that makes room for all.
    pub(crate) room: Arc<tokio::sync::Mutex<()>>,
    /// The memory of messages, in units of [`MEMORY_UNIT`].
    pub(crate) memory: Semaphore,
    /// Held by the one message that takes more memory than there is: see [`Shared::grow`].
    beyond: Semaphore,
    pub(crate) address: SocketAddr,
    /// What runs SQL, if anything does.
    pub(crate) sql: Option<Arc<dyn Sql>>,
    pub(crate) cancellations: Cancellations,
    next_connection: AtomicI32,
    next_operation: AtomicI32,
}

impl Shared {
    pub(crate) fn new(databases: Databases, settings: Settings, gate: Gate, address: SocketAddr) -> Shared {
        let clock = SystemClock::new();
        Shared {
            databases,
            cursors: Cursors::new(&settings),
            gate,
            rates: Rates::new(settings.rows_per_second_max),
            room: Arc::default(),
            memory: Semaphore::new((settings.message_memory_bytes / MEMORY_UNIT).max(1)),
            beyond: Semaphore::new(1),
            address,
            sql: None,
            cancellations: Cancellations::default(),
            settings,
            started: clock.monotonic(),
            begun: clock.now(),
            clock: Arc::new(clock),
            clients: Clients::default(),
            profiler: Profiler::new(),
            usage: Usage::default(),
            counters: Counters::default(),
            next_connection: AtomicI32::new(1),
            next_operation: AtomicI32::new(1),
        }
    }

    /// The monotonic time.
    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// The units of so many bytes of memory: all that there are at most.
    pub(crate) fn units(&self, bytes: usize) -> u32 {
        let most = (self.settings.message_memory_bytes / MEMORY_UNIT).max(1);
        u32::try_from(bytes.div_ceil(MEMORY_UNIT).min(most)).unwrap_or(u32::MAX)
    }

    /// Waits until there is memory for so many bytes of a message in all. Messages that have come in part could wait for each other
    /// for ever: so one at a time takes what it needs beyond the limit.
    pub(crate) async fn grow<'a>(&'a self, memory: &mut MessageMemory<'a>, bytes: usize) -> io::Result<()> {
        let have = memory.units.as_ref().map_or(0, SemaphorePermit::num_permits);
        let more = self.units(bytes).saturating_sub(u32::try_from(have).unwrap_or(u32::MAX));
        if more == 0 || memory.beyond.is_some() {
            return Ok(());
        }
        tokio::select! {
            biased;
            more = self.memory.acquire_many(more) => {
                let more = more.map_err(io::Error::other)?;
                match &mut memory.units {
                    Some(units) => units.merge(more),
                    none => *none = Some(more),
                }
            }
            beyond = self.beyond.acquire() => memory.beyond = Some(beyond.map_err(io::Error::other)?),
        }
        Ok(())
    }

    /// Waits for the turn of a proof from this address: it is looked at as long as what is returned is kept. Nothing if too many
    /// wait.
    pub(crate) async fn turn(&self, peer: IpAddr) -> Option<SemaphorePermit<'_>> {
        let place = self.gate.place(peer);
        let taken = place.acquire().await.ok()?;
        // Those that had the place before may have been refused.
        let wait = self.gate.turn(peer, self.now())?;
        if wait.is_zero() {
            return Some(taken);
        }
        drop(taken);
        tokio::time::sleep(wait).await;
        place.acquire().await.ok()
    }

    /// Counts and reports a refused login.
    pub(crate) fn refuse_login(&self, peer: SocketAddr, name: &str) {
        add(&self.counters.logins_refused, 1);
        self.gate.refuse(peer.ip(), self.now());
        let shown: String = name.chars().take(80).collect();
        tracing::warn!(%peer, name = %shown.escape_debug(), "a login was refused");
    }

    /// The number of a command.
    pub(crate) fn next_operation(&self) -> i32 {
        self.next_operation.fetch_add(1, Ordering::Relaxed)
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
    pub(crate) logins: AtomicU64,
    pub(crate) logins_refused: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) inserts: AtomicU64,
    pub(crate) queries: AtomicU64,
    pub(crate) updates: AtomicU64,
    pub(crate) deletes: AtomicU64,
    pub(crate) get_mores: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) http_requests: AtomicU64,
    pub(crate) sql_statements: AtomicU64,
    pub(crate) sql_failed: AtomicU64,
    pub(crate) sql_running: AtomicUsize,
    pub(crate) http_bytes_in: AtomicU64,
    pub(crate) lines_stored: AtomicU64,
    pub(crate) rows_posted: AtomicU64,
    pub(crate) samples_stored: AtomicU64,
    pub(crate) requests_repeated: AtomicU64,
    pub(crate) writes_refused: AtomicU64,
}

/// Waits until the server stops.
pub(crate) async fn is_stopped(stopped: &mut watch::Receiver<bool>) {
    // An error means that the server is gone.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// The memory that a message has, as it comes.
#[derive(Default)]
pub(crate) struct MessageMemory<'a> {
    units: Option<SemaphorePermit<'a>>,
    beyond: Option<SemaphorePermit<'a>>,
}

/// Work on so many bytes. Other connections need not wait for it unless it is little: handing them to another thread takes
/// some microseconds.
pub(crate) fn aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes <= MEMORY_UNIT { work() } else { tokio::task::block_in_place(work) }
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
