//! Integration tests: SQL over a real database on a virtual clock, and the program itself.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aggregates;
mod bombs;
mod cases;
mod cli;
mod ddl;
mod directory;
mod dump;
mod guide;
mod import;
mod pictures;
mod prepared;
mod sql;
mod support;
mod upkeep;
mod weather;
