//! The lock for everything that rewrites segments or the catalogue: flush, compaction, sweep, delete, and commands that change
//! collections.

use crate::sync::{AtomicBool, AtomicU64, Guard, Mutex, Ordered, Ordering, Rank};

/// The lock, which also knows whether a thread waits for it.
#[derive(Debug)]
pub(crate) struct Maintenance {
    lock: Ordered<Mutex<()>>,
    awaited: AtomicU64,
    /// Whether the holder works in the background while inserts continue.
    beside_writers: AtomicBool,
}

impl Maintenance {
    pub(crate) fn new() -> Self {
        Maintenance {
            lock: Ordered::mutex(Rank::Maintenance, ()),
            awaited: AtomicU64::new(0),
            beside_writers: AtomicBool::new(false),
        }
    }

    pub(crate) fn lock(&self) -> Guard<'_, ()> {
        self.lock_leaving(false)
    }

    /// Takes the lock for background work, which leaves a core to writers.
    pub(crate) fn lock_beside_writers(&self) -> Guard<'_, ()> {
        self.lock_leaving(true)
    }

    /// Takes the lock for work that may leave a core to writers.
    pub(crate) fn lock_leaving(&self, a_core: bool) -> Guard<'_, ()> {
        self.awaited.fetch_add(1, Ordering::Relaxed);
        let guard = self.lock.lock();
        self.awaited.fetch_sub(1, Ordering::Relaxed);
        self.beside_writers.store(a_core, Ordering::Relaxed);
        guard
    }

    /// Whether another thread waits for the lock.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) > 0
    }

    /// Whether the holder may use all cores: it does not work in the background, or another thread waits for the lock.
    pub(crate) fn may_use_all_cores(&self) -> bool {
        !self.beside_writers.load(Ordering::Relaxed) || self.is_awaited()
    }
}
