//! Integration tests: the program, run as a user runs it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bombs;
mod cli;
mod dump;
mod guide;
mod import;
mod pictures;
mod round_trips;
mod safety;
mod upkeep;
mod weather;
