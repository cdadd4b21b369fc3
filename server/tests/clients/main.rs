//! Programs that people use, against the server: mongosh, MongoDB's drivers, and what is built on them.
//!
//! `server/tests/drivers/install FOLDER` installs them; `EBBTIDE_CLIENTS` names that folder. Without it the tests say that they
//! are skipped.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

mod child;
mod constant;
mod examples;
mod influx;
mod kills;
mod page;
mod programs;
mod prometheus;
mod support;
