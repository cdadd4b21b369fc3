//! Integration tests: SQL over a real database on a virtual clock.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod aggregates;
mod bounded;
mod cases;
mod ddl;
mod depth;
mod differential;
mod directory;
mod early;
mod first_rows;
mod frames;
mod groups;
mod joins;
mod prepared;
mod repeated;
mod several;
mod sorted_runs;
mod sql;
mod support;
mod texts;
mod top_k_filter;
mod wrong_answers;
