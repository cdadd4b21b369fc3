//! Integration tests: the program, run as a user runs it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod archive;
mod archive_on_servers;
mod bombs;
mod cli;
mod copies;
mod documents;
mod dump;
mod frictions_import;
mod frictions_sql;
mod guide;
mod import;
mod manual;
mod pictures;
mod readers;
mod round_trips;
mod safety;
#[cfg(all(unix, feature = "server"))]
mod serve;
#[cfg(all(unix, feature = "server"))]
mod serve_copies;
#[cfg(all(unix, feature = "server"))]
mod serve_flight;
#[cfg(all(unix, feature = "server"))]
mod serve_http;
#[cfg(all(target_os = "linux", feature = "server"))]
mod serve_memory;
#[cfg(all(unix, feature = "server"))]
mod serve_page;
#[cfg(all(unix, feature = "server"))]
mod serve_postgres;
#[cfg(all(unix, feature = "workers"))]
mod several_copies;
#[path = "../../../lake/tests/shared/stores.rs"]
mod stores;
mod two_ways;
mod weather;
#[cfg(all(unix, feature = "workers"))]
mod workers;
