//! Locks with a rank. A debug build panics if a thread takes one out of order, even if no other thread competes for it.

use super::{Mutex, MutexGuard, RwLock};
use std::ops::{Deref, DerefMut};

/// The order in which locks are taken: while one is held, only later ones may be taken. Every lock that is not listed is a leaf:
/// no other lock is taken while it is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// `Sweeper::pass`: sweeps run one after the other.
    Pass,
    /// `Engine::maintenance`: segments, rules and collections are changed by one thread at a time.
    Maintenance,
    /// `Engine::inserts`: inserts between validation and visibility.
    Queue,
    /// `Engine::log`.
    Log,
    /// `Engine::manifest`.
    Manifest,
    /// `Engine::state`: held only to copy a few pointers, never across I/O.
    State,
}

/// A lock with its place in the order.
#[derive(Debug)]
pub(crate) struct Ordered<L> {
    rank: Rank,
    lock: L,
}

/// The guard of an [`Ordered`] lock.
#[derive(Debug)]
pub(crate) struct OrderedGuard<G> {
    guard: G,
    _place: held::Place,
}

/// The guard of an ordered mutex.
pub(crate) type Guard<'a, T> = OrderedGuard<MutexGuard<'a, T>>;

impl<T> Ordered<Mutex<T>> {
    pub(crate) fn mutex(rank: Rank, value: T) -> Self {
        Ordered { rank, lock: Mutex::new(value) }
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let place = held::take(self.rank);
        OrderedGuard { guard: self.lock.lock(), _place: place }
    }
}

impl<T> Ordered<RwLock<T>> {
    pub(crate) fn rw_lock(rank: Rank, value: T) -> Self {
        Ordered { rank, lock: RwLock::new(value) }
    }

    pub(crate) fn read(&self) -> OrderedGuard<impl Deref<Target = T> + '_> {
        let place = held::take(self.rank);
        OrderedGuard { guard: self.lock.read(), _place: place }
    }

    pub(crate) fn write(&self) -> OrderedGuard<impl DerefMut<Target = T> + '_> {
        let place = held::take(self.rank);
        OrderedGuard { guard: self.lock.write(), _place: place }
    }
}

impl<G> OrderedGuard<G> {
    /// The guard itself, to wait with.
    pub(crate) fn inner(&mut self) -> &mut G {
        &mut self.guard
    }
}

impl<G: Deref> Deref for OrderedGuard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for OrderedGuard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// The ranks that a thread holds. Shuttle runs many threads on one, so they are not told apart there.
#[cfg(all(debug_assertions, not(feature = "shuttle")))]
mod held {
    use super::Rank;
    use std::cell::RefCell;

    thread_local! {
        static RANKS: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    #[derive(Debug)]
    pub(super) struct Place(Rank);

    pub(super) fn take(rank: Rank) -> Place {
        RANKS.with_borrow_mut(|ranks| {
            let out_of_order = ranks.iter().find(|held| **held >= rank);
            assert!(out_of_order.is_none(), "lock {rank:?} is taken while {ranks:?} are held");
            ranks.push(rank);
        });
        Place(rank)
    }

    impl Drop for Place {
        fn drop(&mut self) {
            RANKS.with_borrow_mut(|ranks| {
                if let Some(at) = ranks.iter().rposition(|rank| *rank == self.0) {
                    ranks.remove(at);
                }
            });
        }
    }
}

#[cfg(not(all(debug_assertions, not(feature = "shuttle"))))]
mod held {
    #[derive(Debug)]
    pub(super) struct Place;

    pub(super) fn take(_: super::Rank) -> Place {
        Place
    }
}

#[cfg(all(test, debug_assertions, not(feature = "shuttle")))]
mod tests;
