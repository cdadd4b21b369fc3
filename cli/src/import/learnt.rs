//! What is known about the columns of an input before rows are made.

use ebbtide_query::text_table::infer::ColumnStats;

/// What is known about the columns before rows are made.
#[derive(Debug, Default)]
pub(super) struct LearnedColumns {
    pub(super) seen: Vec<ColumnStats>,
    /// The names of columns of Parquet, Arrow and NDJSON files.
    pub(super) names: Vec<String>,
    /// Those that hold times.
    pub(super) times: Vec<String>,
    pub(super) rows: u64,
}
