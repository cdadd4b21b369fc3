//! Columns of the system tables, as section 9 of the contract names them.

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use ebbtide_ttl::Precision;
use std::sync::Arc;

/// What a column of a listing holds.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    Time,
    Count,
    Int,
    Flag,
}

impl Kind {
    pub(super) fn arrow(self, unit: Precision) -> DataType {
        let unit = match unit {
            Precision::Ms => TimeUnit::Millisecond,
            Precision::Us => TimeUnit::Microsecond,
            Precision::Ns => TimeUnit::Nanosecond,
        };
        match self {
            Kind::Text => DataType::Utf8,
            Kind::Time => DataType::Timestamp(unit, Some("UTC".into())),
            Kind::Count => DataType::UInt64,
            Kind::Int => DataType::Int64,
            Kind::Flag => DataType::Boolean,
        }
    }
}

/// The columns of a system table, or of what a statement of upkeep replies.
pub(super) fn columns(table: &str) -> &'static [(&'static str, Kind)] {
    use Kind::{Count, Flag, Int, Text, Time};
    match table {
        "collections" => &[
            ("name", Text),
            ("time_field", Text),
            ("meta_field", Text),
            ("granularity", Text),
            ("span_seconds", Int),
            ("precision", Text),
            ("expiry", Text),
            ("out_of_range", Text),
            ("expire_after_seconds", Int),
            ("buckets", Count),
            ("measurements", Count),
            ("bytes", Count),
            ("first_time", Time),
            ("last_time", Time),
            ("state", Text),
        ],
        "ttl_rules" => &[
            ("collection", Text),
            ("rule", Text),
            ("filter", Text),
            ("expire_after_seconds", Int),
            ("buckets", Count),
            ("measurements", Count),
            ("bytes", Count),
            ("due_buckets", Count),
            ("due_measurements", Count),
            ("next_expiry", Time),
            ("state", Text),
        ],
        "buckets" => &[
            ("collection", Text),
            ("meta", Text),
            ("window_start", Time),
            ("window_end", Time),
            ("first_time", Time),
            ("last_time", Time),
            ("measurements", Count),
            ("bytes", Count),
            ("sealed", Flag),
            ("rule", Text),
            ("expires_at", Time),
        ],
        "segments" => &[
            ("collection", Text),
            ("file", Text),
            ("rows", Count),
            ("rows_written", Count),
            ("buckets", Count),
            ("bytes", Count),
            ("first_time", Time),
            ("last_time", Time),
        ],
        "operations" => &[
            ("operation", Text),
            ("started", Time),
            ("collection", Text),
            ("rule", Text),
            ("buckets", Count),
            ("measurements", Count),
        ],
        "sweeps" => &[
            ("at", Time),
            ("collection", Text),
            ("rule", Text),
            ("expire_after_seconds", Int),
            ("cutoff", Time),
            ("buckets", Count),
            ("measurements", Count),
            ("bytes", Count),
        ],
        "expiry" => &[("day", Time), ("rule", Text), ("buckets", Count), ("measurements", Count), ("bytes", Count)],
        "sweep" => &[
            ("passes", Count),
            ("sub_passes", Count),
            ("deleted_documents", Count),
            ("deleted_buckets", Count),
            ("deleted_bytes", Count),
            ("reclaimed_files", Count),
            ("failed_rules", Count),
        ],
        "columns" => &[("column", Text), ("type", Text), ("role", Text)],
        _ => &[("parameter", Text), ("value", Text)],
    }
}

/// The same as Arrow has it, with times in `unit`.
pub(super) fn schema(table: &str, unit: Precision) -> SchemaRef {
    let fields = columns(table).iter().map(|(name, kind)| Field::new(*name, kind.arrow(unit), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
