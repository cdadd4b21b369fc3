//! What a scan is asked for, and what it reports.

use crate::snapshot::time_range::TimeRange;
use arrow::array::{ArrayRef, BooleanArray};
use arrow::error::ArrowError;
use ebbtide_buckets::TextCondition;
use ebbtide_ttl::Value;
use std::fmt::Debug;
use std::sync::Arc;

/// Selects metas. It is called once per segment with the distinct metas in it, not once per row.
pub trait MetaFilter: Debug + Send + Sync {
    /// For each meta in a column of the meta field's type (all null if no measurement has had a meta), whether its measurements
    /// are selected; null is no.
    ///
    /// # Errors
    /// Any error of the evaluation. The filter is then called again with only those metas that have visible measurements; the
    /// scan fails if that call fails too.
    fn select(&self, metas: &ArrayRef) -> Result<BooleanArray, ArrowError>;

    /// Paths of member names (empty for the meta itself), each with values: every selected meta has one of these values there. Metas
    /// are looked up by them in the postings of a segment, and [`MetaFilter::select`] is called only with those that are found.
    fn candidates(&self) -> &[(Vec<String>, Vec<Value>)] {
        &[]
    }
}

/// Bounds of a numeric field, both inclusive. Buckets without a value within them are skipped, and so are other rows outside them where
/// that saves reading; the rest of these rows is returned.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldBound {
    /// The field's name.
    pub field: String,
    /// The lower bound.
    pub min: Option<f64>,
    /// The upper bound.
    pub max: Option<f64>,
}

/// The first rows of an order by one column, whatever decides between rows with equal values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstRows {
    /// The time field, or a numeric field.
    pub column: String,
    /// Whether the greatest values come first. NaN is greater than all other numbers.
    pub descending: bool,
    /// Whether rows without a value come first.
    pub nulls_first: bool,
    /// How many rows.
    pub rows: u64,
}

/// What to read.
#[derive(Debug, Clone, Default)]
pub struct ScanRequest {
    /// The columns, in order; all columns of the schema if `None`.
    pub projection: Option<Vec<String>>,
    /// The times of the measurements. Exact.
    pub time: TimeRange,
    /// Selects metas; all if `None`. Exact.
    pub meta: Option<Arc<dyn MetaFilter>>,
    /// Bounds of numeric fields, used only to skip buckets and rows.
    pub bounds: Vec<FieldBound>,
    /// Conditions on texts, used only to skip blocks without a matching row, according to the n-gram filters of segments.
    pub texts: Vec<TextCondition>,
    /// The first rows of an order, if only these are needed: buckets that contain none of them are skipped. Rows are neither sorted
    /// nor filtered.
    pub first: Option<FirstRows>,
    /// Whether expired measurements that are still stored are included.
    pub include_hidden: bool,
}

/// What a scan reads and what it skips, for `EXPLAIN ANALYZE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScanReport {
    /// Segments that are read.
    pub segments: u64,
    /// Buckets (parts of one in a segment or in memory) that are read.
    pub buckets: u64,
    /// Buckets skipped by time, meta, bounds or an order.
    pub buckets_pruned: u64,
    /// Rows of segments, in the buckets counted as read, that are skipped by n-gram filters.
    pub rows_pruned: u64,
    /// Buckets hidden as a whole because they are expired.
    pub buckets_hidden: u64,
    /// Rows of those buckets, and expired rows of open buckets with visible ones. [`crate::ScanUnit::rows_hidden`] counts those of
    /// sealed buckets.
    pub rows_hidden: u64,
}
