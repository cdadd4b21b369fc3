//! The tables of the schema `ebbtide` and the rows of statements such as SWEEP: their columns and the source of their
//! rows.

use super::listing::{Column, batch, batch_in, count, flag, int, schema, text, time};
use super::text::value_text;
use crate::documents::cells::PlannedDocuments;
use crate::error::external;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result;
use ebbtide::documents_model::DefaultTtl;
use ebbtide::{
    BucketInfo, CollectionInfo, CollectionSnapshot, Database, DocumentsSnapshot, ExpiryRow, HoldInfo, Operation,
    PublicationInfo, RuleInfo, RungInfo, SegmentInfo, Snapshot, SweepRecord, TtlMetrics,
};
use ebbtide_ttl::{Bucketing, ExpiryMode, Granularity, OutOfRange, Precision, Value};

/// A system table.
pub(super) trait Table: Sync {
    /// Its columns, with times in `unit`.
    fn schema(&self, unit: Precision) -> SchemaRef;
    /// Its rows.
    fn rows(&self, database: &Database, snapshot: &Snapshot, unit: Precision) -> Result<RecordBatch>;
}

struct Listing<R: 'static> {
    columns: &'static [Column<R>],
    rows: fn(&Database, &Snapshot) -> ebbtide::Result<Vec<R>>,
}

impl<R: 'static> Table for Listing<R> {
    fn schema(&self, unit: Precision) -> SchemaRef {
        schema(self.columns, unit)
    }

    fn rows(&self, database: &Database, snapshot: &Snapshot, unit: Precision) -> Result<RecordBatch> {
        batch_in(self.columns, &(self.rows)(database, snapshot).map_err(external)?, unit)
    }
}

/// The system tables by name.
pub(super) const ALL: [(&str, &dyn Table); 11] = [
    ("collections", &COLLECTIONS),
    ("ttl_rules", &RULES),
    ("indexes", &INDEXES),
    ("buckets", &BUCKETS),
    ("segments", &SEGMENTS),
    ("holds", &HOLDS),
    ("ladders", &LADDERS),
    ("publications", &PUBLICATIONS),
    ("operations", &OPERATIONS),
    ("sweeps", &SWEEPS),
    ("parameters", &PARAMETERS),
];

/// Calls `row` for each collection.
pub(super) fn each(
    snapshot: &Snapshot,
    mut row: impl FnMut(CollectionSnapshot) -> ebbtide::Result<()>,
) -> ebbtide::Result<()> {
    snapshot.collections().iter().try_for_each(|name| row(snapshot.collection(name)?))
}

/// What `list` returns for each collection, with the collection's name.
fn named<T>(
    snapshot: &Snapshot,
    list: impl Fn(&CollectionSnapshot) -> ebbtide::Result<Vec<T>>,
) -> ebbtide::Result<Vec<(String, T)>> {
    let mut rows = Vec::new();
    each(snapshot, |c| {
        rows.extend(list(&c)?.into_iter().map(|item| (c.name().to_owned(), item)));
        Ok(())
    })?;
    Ok(rows)
}

/// A collection of either kind.
struct Listed {
    info: CollectionInfo,
    /// `None` for an ordinary collection.
    series: Option<CollectionSnapshot>,
    expire_after_seconds: Option<i64>,
}

impl Listed {
    fn of(&self, shown: impl Fn(&CollectionSnapshot) -> Option<String>) -> Option<String> {
        self.series.as_ref().and_then(shown)
    }
}

const COLLECTIONS: Listing<Listed> = Listing {
    columns: &[
        text("name", |row| Some(row.info.name.clone())),
        text("time_field", |row| row.of(|c| Some(c.options().time_field.clone()))),
        text("meta_field", |row| row.of(|c| c.options().meta_field.clone())),
        text("granularity", |row| row.of(|c| granularity(c).map(str::to_owned))),
        int("span_seconds", |row| row.series.as_ref().map(|c| c.options().bucketing.span_seconds())),
        text("precision", |row| row.of(|c| Some(c.options().precision.name().to_owned()))),
        text("expiry", |row| row.of(|c| Some(expiry(c.options().expiry).to_owned()))),
        text("out_of_range", |row| row.of(|c| Some(out_of_range(c.options().out_of_range).to_owned()))),
        int("expire_after_seconds", |row| row.expire_after_seconds),
        count("buckets", |row| row.info.buckets),
        count("measurements", |row| row.info.measurements),
        count("bytes", |row| row.info.bytes),
        time("first_time", |row| row.info.first_time),
        time("last_time", |row| row.info.last_time),
        text("state", |row| Some(row.info.state.clone())),
    ],
    rows: |_, snapshot| {
        let mut rows = Vec::new();
        each(snapshot, |c| {
            let (info, expire_after_seconds) = (c.info()?, c.rules().collection());
            rows.push(Listed { info, expire_after_seconds, series: Some(c) });
            Ok(())
        })?;
        for name in snapshot.document_collections() {
            let documents = snapshot.documents(&name)?;
            let expire_after_seconds = match documents.options().default_ttl {
                DefaultTtl::Off => None,
                DefaultTtl::Never => Some(-1),
                DefaultTtl::Seconds(seconds) => Some(i64::from(seconds)),
            };
            rows.push(Listed { info: documents.info()?, series: None, expire_after_seconds });
        }
        Ok(rows)
    },
};

/// The name of the width of windows; `None` if the width was given in seconds.
fn granularity(c: &CollectionSnapshot) -> Option<&'static str> {
    match c.options().bucketing {
        Bucketing::Preset(Granularity::Seconds) => Some("seconds"),
        Bucketing::Preset(Granularity::Minutes) => Some("minutes"),
        Bucketing::Preset(Granularity::Hours) => Some("hours"),
        Bucketing::Custom { .. } => None,
    }
}

fn expiry(mode: ExpiryMode) -> &'static str {
    match mode {
        ExpiryMode::Exact => "exact",
        ExpiryMode::Bucket => "bucket",
    }
}

fn out_of_range(policy: OutOfRange) -> &'static str {
    match policy {
        OutOfRange::Suspend => "suspend",
        OutOfRange::Reject => "reject",
        OutOfRange::Expire => "expire",
    }
}

const RULES: Listing<(String, RuleInfo)> = Listing {
    columns: &[
        text("collection", |(name, _)| Some(name.clone())),
        text("rule", |(_, rule)| Some(rule.rule.clone())),
        text("filter", |(_, rule)| rule.filter.as_ref().map(value_text)),
        int("expire_after_seconds", |(_, rule)| Some(rule.expire_after_seconds)),
        count("buckets", |(_, rule)| rule.buckets),
        count("measurements", |(_, rule)| rule.measurements),
        count("bytes", |(_, rule)| rule.bytes),
        count("due_buckets", |(_, rule)| rule.due_buckets),
        count("due_measurements", |(_, rule)| rule.due_measurements),
        time("next_expiry", |(_, rule)| rule.next_expiry),
        text("state", |(_, rule)| Some(rule.state.clone())),
    ],
    rows: |_, snapshot| {
        let mut rows = named(snapshot, CollectionSnapshot::rule_infos)?;
        for name in snapshot.document_collections() {
            let rules = snapshot.documents(&name)?.rule_infos()?;
            rows.extend(rules.into_iter().map(|rule| (name.clone(), rule)));
        }
        Ok(rows)
    },
};

/// An index as a listing shows it.
struct Index {
    collection: String,
    name: String,
    key: String,
    filter: Option<String>,
    expire_after_seconds: Option<i64>,
}

const INDEXES: Listing<Index> = Listing {
    columns: &[
        text("collection", |index| Some(index.collection.clone())),
        text("name", |index| Some(index.name.clone())),
        text("key", |index| Some(index.key.clone())),
        text("filter", |index| index.filter.clone()),
        int("expire_after_seconds", |index| index.expire_after_seconds),
    ],
    rows: |_, snapshot| {
        let mut rows = Vec::new();
        each(snapshot, |c| {
            rows.extend(c.rules().iter().filter_map(|rule| {
                Some(Index {
                    collection: c.name().to_owned(),
                    name: rule.name?.to_owned(),
                    key: c.options().time_field.clone(),
                    filter: rule.filter.map(|filter| value_text(filter.source())),
                    expire_after_seconds: Some(rule.expire_after_seconds),
                })
            }));
            Ok(())
        })?;
        for name in snapshot.document_collections() {
            let documents = snapshot.documents(&name)?;
            let field = |(path, way): &(String, i32)| format!("{path}{}", if *way < 0 { " DESC" } else { "" });
            rows.extend(documents.options().indexes.iter().map(|index| Index {
                collection: name.clone(),
                name: index.name.clone(),
                key: index.key.iter().map(field).collect::<Vec<_>>().join(", "),
                filter: index.filter_text(),
                expire_after_seconds: index.expire_after_seconds,
            }));
        }
        Ok(rows)
    },
};

const BUCKETS: Listing<(String, BucketInfo)> = Listing {
    columns: &[
        text("collection", |(name, _)| Some(name.clone())),
        text("meta", |(_, bucket)| (!bucket.meta.is_null()).then(|| value_text(&bucket.meta))),
        time("window_start", |(_, bucket)| Some(bucket.window_start)),
        time("window_end", |(_, bucket)| Some(bucket.window_end)),
        time("first_time", |(_, bucket)| Some(bucket.first_time)),
        time("last_time", |(_, bucket)| Some(bucket.last_time)),
        count("measurements", |(_, bucket)| bucket.measurements),
        count("bytes", |(_, bucket)| bucket.bytes),
        flag("sealed", |(_, bucket)| bucket.sealed),
        text("rule", |(_, bucket)| bucket.rule.clone()),
        time("expires_at", |(_, bucket)| bucket.expires_at),
    ],
    rows: |_, snapshot| named(snapshot, CollectionSnapshot::buckets),
};

const SEGMENTS: Listing<(String, SegmentInfo)> = Listing {
    columns: &[
        text("collection", |(name, _)| Some(name.clone())),
        text("file", |(_, segment)| Some(segment.file.clone())),
        count("rows", |(_, segment)| segment.rows),
        count("rows_written", |(_, segment)| segment.rows_written),
        count("buckets", |(_, segment)| segment.buckets),
        count("bytes", |(_, segment)| segment.bytes),
        time("first_time", |(_, segment)| segment.first_time),
        time("last_time", |(_, segment)| segment.last_time),
    ],
    rows: |_, snapshot| {
        let mut rows = named(snapshot, |c| Ok(c.segments()))?;
        for name in snapshot.document_collections() {
            let segments = snapshot.documents(&name)?.segments();
            rows.extend(segments.into_iter().map(|segment| (name.clone(), segment)));
        }
        Ok(rows)
    },
};

const HOLDS: Listing<HoldInfo> = Listing {
    columns: &[
        text("name", |hold| Some(hold.name.clone())),
        text("collection", |hold| Some(hold.collection.clone())),
        text("filter", |hold| hold.filter.as_ref().map(value_text)),
        time("from_time", |hold| hold.from),
        time("to_time", |hold| hold.to),
        text("reason", |hold| Some(hold.reason.clone())),
        time("made_at", |hold| Some(hold.made_at)),
        time("lifted_at", |hold| hold.lifted_at),
        count("measurements", |hold| hold.measurements),
    ],
    rows: |_, snapshot| snapshot.holds(),
};

const LADDERS: Listing<RungInfo> = Listing {
    columns: &[
        text("collection", |rung| Some(rung.collection.clone())),
        int("step_seconds", |rung| Some(rung.step_seconds)),
        int("expire_after_seconds", |rung| rung.expire_after_seconds),
        text("fields", |rung| rung.fields.as_ref().map(|fields| fields.join(", "))),
        count("bins", |rung| rung.bins),
        count("bytes", |rung| rung.bytes),
        time("first_bin", |rung| rung.first_bin),
        time("last_bin", |rung| rung.last_bin),
        time("next_expiry", |rung| rung.next_expiry),
    ],
    rows: |_, snapshot| snapshot.ladders(),
};

const PUBLICATIONS: Listing<PublicationInfo> = Listing {
    columns: &[
        text("collection", |info| Some(info.collection.clone())),
        int("rung", |info| info.rung),
        text("url", |info| Some(info.url.clone())),
        int("every_seconds", |info| Some(info.every_seconds)),
        int("version", |info| info.last.as_ref().and_then(|last| i64::try_from(last.version).ok())),
        int("files", |info| info.last.as_ref().and_then(|last| i64::try_from(last.files).ok())),
        int("measurements", |info| info.last.as_ref().and_then(|last| i64::try_from(last.measurements).ok())),
        time("made_at", |info| info.last.as_ref().and_then(|last| last.made_at)),
        int("age_seconds", |info| info.age_seconds),
        time("hides_before", |info| info.last.as_ref().map(|last| last.hides_before)),
        text("failed", |info| info.failed.clone()),
    ],
    rows: |database, _| Ok(database.publications()),
};

const OPERATIONS: Listing<Operation> = Listing {
    columns: &[
        text("operation", |_| Some("sweep".to_owned())),
        time("started", |running| Some(running.started)),
        text("collection", |running| Some(running.collection.clone())),
        text("rule", |running| Some(running.rule.clone())),
        count("buckets", |running| running.buckets),
        count("measurements", |running| running.measurements),
    ],
    rows: |database, _| Ok(database.current_operation().into_iter().collect()),
};

const SWEEPS: Listing<SweepRecord> = Listing {
    columns: &[
        time("at", |record| Some(record.at)),
        text("collection", |record| Some(record.collection.clone())),
        text("rule", |record| Some(record.rule.clone())),
        int("expire_after_seconds", |record| (record.rule != "size").then_some(record.expire_after_seconds)),
        time("cutoff", |record| Some(record.cutoff)),
        count("buckets", |record| record.buckets),
        count("measurements", |record| record.measurements),
        count("bytes", |record| record.bytes),
    ],
    rows: |database, _| Ok(database.sweeps()),
};

const PARAMETERS: Listing<(&str, Value)> = Listing {
    columns: &[
        text("parameter", |(name, _)| Some((*name).to_owned())),
        text("value", |(_, value)| Some(value_text(value))),
    ],
    rows: |database, _| Ok(database.parameters()),
};

/// The rows of `EXPLAIN EXPIRY`.
///
/// # Errors
/// If a time fits none of Arrow's units.
pub fn expiry_rows(rows: &[ExpiryRow]) -> Result<RecordBatch> {
    const COLUMNS: &[Column<ExpiryRow>] = &[
        time("day", |row| Some(row.day)),
        text("rule", |row| Some(row.rule.clone())),
        count("buckets", |row| row.buckets),
        count("measurements", |row| row.measurements),
        count("bytes", |row| row.bytes),
    ];
    batch(COLUMNS, rows)
}

/// The row of SWEEP.
pub(crate) fn sweep_row(counts: &TtlMetrics) -> Result<RecordBatch> {
    const COLUMNS: &[Column<TtlMetrics>] = &[
        count("passes", |counts| counts.passes),
        count("sub_passes", |counts| counts.sub_passes),
        count("deleted_documents", |counts| counts.deleted_documents),
        count("deleted_buckets", |counts| counts.deleted_buckets),
        count("deleted_bytes", |counts| counts.deleted_bytes),
        count("reclaimed_files", |counts| counts.reclaimed_files),
        count("failed_rules", |counts| counts.failed_rules),
    ];
    batch(COLUMNS, std::slice::from_ref(counts))
}

/// The rows of `DESCRIBE`: column, type and role.
///
/// # Errors
/// None in practice: all columns are text.
pub fn describe_rows(c: &CollectionSnapshot) -> Result<RecordBatch> {
    const COLUMNS: &[Column<(String, String, &str)>] = &[
        text("column", |(name, _, _)| Some(name.clone())),
        text("type", |(_, ty, _)| Some(ty.clone())),
        text("role", |(_, _, role)| Some((*role).to_owned())),
    ];
    let schema = c.schema();
    let mut rows = vec![(schema.time.clone(), format!("timestamp({})", schema.precision.name()), "time")];
    if let Some(meta) = &schema.meta {
        let ty = schema.meta_type.as_ref().map_or("not known yet".to_owned(), |ty| ty.name());
        rows.push((meta.clone(), ty, "meta"));
    }
    rows.extend(schema.fields.iter().map(|(name, ty)| (name.clone(), ty.name(), "field")));
    batch(COLUMNS, &rows)
}

/// The rows of `DESCRIBE` for an ordinary collection.
///
/// # Errors
/// None in practice: all columns are text.
pub fn describe_documents(documents: &DocumentsSnapshot) -> Result<RecordBatch> {
    const COLUMNS: &[Column<(String, String, &str)>] = &[
        text("column", |(name, _, _)| Some(name.clone())),
        text("type", |(_, ty, _)| Some(ty.clone())),
        text("role", |(_, _, role)| Some((*role).to_owned())),
    ];
    batch(COLUMNS, &PlannedDocuments::new(documents).described())
}

/// What a type of Arrow is called.
pub(crate) fn type_name(kind: &DataType) -> String {
    match kind {
        DataType::Float64 => "double".to_owned(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "string".to_owned(),
        DataType::Boolean => "bool".to_owned(),
        DataType::Timestamp(unit, _) => format!("timestamp({unit})"),
        DataType::Struct(_) => "object".to_owned(),
        DataType::List(field) => format!("list of {}", type_name(field.data_type())),
        other => other.to_string().to_lowercase(),
    }
}
