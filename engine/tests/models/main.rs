//! The engine's own code under thousands of orders of its threads, on a simulated disk and a simulated clock.
//!
//! Every lock of the engine, of the disk and of the clock is a point where another thread may go on; shuttle chooses
//! which one does, by chance or with few changes of hand at unlikely points. `rig.rs` says how to run more of them, and how
//! to repeat one that failed.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

mod changes;
mod closing;
mod commits;
mod documents;
mod faults;
mod pins;
mod rig;
mod sweeps;
