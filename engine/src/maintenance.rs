//! The lock that is held by whatever rewrites segments or the catalogue: flush, compaction, sweep, delete, commands that
//! change it.

use crate::sync::{AtomicBool, AtomicU64, Guard, Mutex, Ordered, Ordering, Rank};

/// The lock, which knows whether somebody waits for it.
#[derive(Debug)]
pub(crate) struct Maintenance {
    lock: Ordered<Mutex<()>>,
    awaited: AtomicU64,
    /// Whether who holds it works beside writers that go on.
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
        self.awaited.fetch_add(1, Ordering::Relaxed);
        let guard = self.lock.lock();
        self.awaited.fetch_sub(1, Ordering::Relaxed);
        self.beside_writers.store(false, Ordering::Relaxed);
        guard
    }

    /// The same for work in the background: writers keep a core of their own.
    pub(crate) fn lock_beside_writers(&self) -> Guard<'_, ()> {
        let guard = self.lock();
        self.beside_writers.store(true, Ordering::Relaxed);
        guard
    }

    /// Whether the holder may take all cores: somebody waits for it, or nobody else is known to work.
    pub(crate) fn may_use_all_cores(&self) -> bool {
        !self.beside_writers.load(Ordering::Relaxed) || self.awaited.load(Ordering::Relaxed) > 0
    }
}
