//! The only door to locks and atomics.
//!
//! The feature `shuttle` puts in their place those of the crate of that name, which hands the processor from thread to
//! thread as a test says: `tests/models` runs the engine through thousands of orders that way, and repeats the ones that
//! fail. A `OnceLock` needs no place here as long as nothing waits or reads the disk inside of its `get_or_init`.

pub(crate) mod order;

pub(crate) use order::{Guard, Ordered, Rank};
#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(feature = "shuttle")]
mod controlled;
#[cfg(feature = "shuttle")]
pub(crate) use controlled::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
