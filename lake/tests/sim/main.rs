//! Archives, published tables and copies on a simulated disk and a simulated store, of which both fail as they are told to.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

mod archive;
mod archive_copies;
mod archive_of_index;
mod archive_runs;
mod archive_segments;
mod copies;
mod copies_lost;
mod copies_promoted;
mod copies_reader;
mod copies_runs;
mod failing;
mod publish;
mod views;
mod world;
