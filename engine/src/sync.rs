//! All locks and atomics of the engine.
//!
//! The feature `shuttle` replaces them by those of the crate of that name, which lets a test control the order in which
//! threads run: `tests/models` runs the engine in thousands of orders, and can repeat those that fail. A `OnceLock` need not be
//! replaced as long as its `get_or_init` neither waits nor reads the disk.

pub(crate) mod order;

pub(crate) use order::{Guard, Ordered, Rank};
#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::thread::yield_now;

#[cfg(feature = "shuttle")]
mod controlled;
#[cfg(feature = "shuttle")]
pub(crate) use controlled::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle::thread::yield_now;
