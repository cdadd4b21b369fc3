//! Ordinary collections in SQL: each is a table with a column for each top-level name of its documents.

pub(crate) mod cells;
pub(crate) mod json;
pub(crate) mod lookup;
pub(crate) mod scan;
pub(crate) mod table;
pub(crate) mod values;
pub(crate) mod write;
