//! The lock for everything that rewrites segments or the catalogue: flush, compaction, sweep, delete, and commands that change
//! collections.

use crate::sync::{AtomicBool, AtomicU64, Guard, Mutex, Ordered, Ordering, Rank};

/// The lock, which also knows whether a thread waits for it.
#[derive(Debug)]
pub(crate) struct Maintenance {
    lock: Ordered<Mutex<()>>,
    awaited: AtomicU64,
    /// Whether the holder leaves a core to inserts and queries.
    leaves_a_core: AtomicBool,
}

impl Maintenance {
    pub(crate) fn new() -> Self {
        Maintenance {
            lock: Ordered::mutex(Rank::Maintenance, ()),
            awaited: AtomicU64::new(0),
            leaves_a_core: AtomicBool::new(false),
        }
    }

    pub(crate) fn lock(&self) -> Guard<'_, ()> {
        self.lock_leaving(false)
    }

    /// Takes the lock for background work, which leaves a core to writers.
    pub(crate) fn lock_beside_writers(&self) -> Guard<'_, ()> {
        self.lock_leaving(true)
    }

    /// Takes the lock, and says whether its holder leaves a core to writers.
    pub(crate) fn lock_leaving(&self, a_core: bool) -> Guard<'_, ()> {
        self.awaited.fetch_add(1, Ordering::Relaxed);
        let guard = self.lock.lock();
        self.awaited.fetch_sub(1, Ordering::Relaxed);
        self.leaves_a_core.store(a_core, Ordering::Relaxed);
        guard
    }

    /// Whether another thread waits for the lock.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) > 0
    }

    /// Whether the holder may use all cores: it does not leave one to writers, or another thread waits for the lock.
    pub(crate) fn may_use_all_cores(&self) -> bool {
        !self.leaves_a_core.load(Ordering::Relaxed) || self.is_awaited()
    }
}
