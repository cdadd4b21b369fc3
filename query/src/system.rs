//! System tables: what SHOW statements list, as plain tables in the schema `ebbtide`.

mod columns;

use crate::context::StatementContext;
use crate::error::external;
use async_trait::async_trait;
use columns::{Kind, columns, schema};
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, UInt64Array,
};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use ebbtide::{CollectionSnapshot, Snapshot};
use ebbtide_ttl::{ExpiryMode, OutOfRange, Precision, Timestamp, Value};
use std::sync::Arc;

/// Names of the system tables in the schema `ebbtide`.
pub const TABLES: [&str; 7] = ["collections", "ttl_rules", "buckets", "segments", "operations", "sweeps", "parameters"];

/// A system table: its rows are gathered from the statement's snapshot when it is scanned.
///
/// Its times are nanoseconds, so that those of every precision are exact. While something is stored that lies, or expires,
/// outside of 1677 to 2262, which nanoseconds do not reach, they are microseconds (milliseconds, some 290 000 years away).
#[derive(Debug)]
pub(crate) struct SystemTable {
    name: &'static str,
    unit: Precision,
}

impl SystemTable {
    pub(crate) fn new(name: &'static str, context: &StatementContext) -> Result<Self> {
        let snapshot = context.snapshot();
        let mut times = Vec::new();
        each(snapshot, |c| {
            let Some((first, last)) = c.time_range() else { return Ok(()) };
            // Spans only grow, so no window reaches further than the present one's width.
            let span = c.options().bucketing.span_seconds();
            let longest = c.rules().iter().map(|view| view.expire_after_seconds).max().unwrap_or(0);
            times.extend([first.plus_seconds(-span), last.plus_seconds(span).plus_seconds(longest)]);
            Ok(())
        })
        .map_err(external)?;
        times.extend(context.database().sweeps().iter().flat_map(|record| [record.at, record.cutoff]));
        times.extend(context.database().current_operation().map(|running| running.started));
        Ok(SystemTable { name, unit: unit_of(&times) })
    }

    fn rows(&self, context: &StatementContext) -> Result<RecordBatch> {
        let snapshot = context.snapshot();
        let mut rows = Rows::new(self.name);
        match self.name {
            "collections" => each(snapshot, |c| collection(&mut rows, c)),
            "ttl_rules" => each(snapshot, |c| rules(&mut rows, c)),
            "buckets" => each(snapshot, |c| buckets(&mut rows, c)),
            "segments" => each(snapshot, |c| {
                segments(&mut rows, c);
                Ok(())
            }),
            "operations" => {
                if let Some(running) = context.database().current_operation() {
                    rows.text("sweep");
                    rows.time(Some(running.started));
                    rows.text(&running.collection);
                    rows.text(&running.rule);
                    rows.count(running.buckets);
                    rows.count(running.measurements);
                }
                Ok(())
            }
            "sweeps" => {
                for record in context.database().sweeps() {
                    rows.time(Some(record.at));
                    rows.text(&record.collection);
                    rows.text(&record.rule);
                    rows.int(Some(record.expire_after_seconds));
                    rows.time(Some(record.cutoff));
                    rows.count(record.buckets);
                    rows.count(record.measurements);
                    rows.count(record.bytes);
                }
                Ok(())
            }
            _ => {
                for (name, value) in context.database().parameters() {
                    rows.text(name);
                    rows.text(&value_text(&value));
                }
                Ok(())
            }
        }
        .map_err(external)?;
        rows.finish_in(self.unit)
    }
}

/// The finest unit that holds all of `times`.
fn unit_of(times: &[Timestamp]) -> Precision {
    let holds_all = |unit: &Precision| times.iter().all(|t| t.to_units(*unit).is_some());
    [Precision::Ns, Precision::Us].into_iter().find(holds_all).unwrap_or(Precision::Ms)
}

#[async_trait]
impl TableProvider for SystemTable {
    fn schema(&self) -> SchemaRef {
        schema(self.name, self.unit)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let batch = self.rows(StatementContext::of(state.config())?.as_ref())?;
        MemTable::try_new(batch.schema(), vec![vec![batch]])?.scan(state, projection, filters, limit).await
    }
}

fn each(snapshot: &Snapshot, mut row: impl FnMut(&CollectionSnapshot) -> ebbtide::Result<()>) -> ebbtide::Result<()> {
    snapshot.collections().iter().try_for_each(|name| row(&snapshot.collection(name)?))
}

enum Column {
    Text(Vec<Option<String>>),
    Time(Vec<Option<Timestamp>>),
    Count(Vec<u64>),
    Int(Vec<Option<i64>>),
    Flag(Vec<bool>),
}

/// Rows of a listing, filled cell by cell from left to right.
pub(crate) struct Rows {
    table: &'static str,
    columns: Vec<Column>,
    next: usize,
}

impl Rows {
    pub(crate) fn new(table: &'static str) -> Self {
        let column = |(_, kind): &(&str, Kind)| match kind {
            Kind::Text => Column::Text(Vec::new()),
            Kind::Time => Column::Time(Vec::new()),
            Kind::Count => Column::Count(Vec::new()),
            Kind::Int => Column::Int(Vec::new()),
            Kind::Flag => Column::Flag(Vec::new()),
        };
        Rows { table, columns: columns(table).iter().map(column).collect(), next: 0 }
    }

    fn next(&mut self) -> Option<&mut Column> {
        let at = self.next;
        self.next = (at + 1) % self.columns.len().max(1);
        self.columns.get_mut(at)
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.optional_text(Some(text.to_owned()));
    }

    fn optional_text(&mut self, text: Option<String>) {
        if let Some(Column::Text(cells)) = self.next() {
            cells.push(text);
        }
    }

    pub(crate) fn time(&mut self, time: Option<Timestamp>) {
        if let Some(Column::Time(cells)) = self.next() {
            cells.push(time);
        }
    }

    pub(crate) fn count(&mut self, count: u64) {
        if let Some(Column::Count(cells)) = self.next() {
            cells.push(count);
        }
    }

    fn int(&mut self, int: Option<i64>) {
        if let Some(Column::Int(cells)) = self.next() {
            cells.push(int);
        }
    }

    fn flag(&mut self, flag: bool) {
        if let Some(Column::Flag(cells)) = self.next() {
            cells.push(flag);
        }
    }

    /// The rows, with times in the finest unit that holds them.
    pub(crate) fn finish(self) -> Result<RecordBatch> {
        let times = self.columns.iter().flat_map(|column| match column {
            Column::Time(cells) => cells.as_slice(),
            _ => &[],
        });
        let unit = unit_of(&times.flatten().copied().collect::<Vec<_>>());
        self.finish_in(unit)
    }

    fn finish_in(self, unit: Precision) -> Result<RecordBatch> {
        let columns: Result<Vec<ArrayRef>> = self.columns.into_iter().map(|column| column.array(unit)).collect();
        Ok(RecordBatch::try_new(schema(self.table, unit), columns?)?)
    }
}

impl Column {
    fn array(self, unit: Precision) -> Result<ArrayRef> {
        Ok(match self {
            Column::Text(cells) => Arc::new(StringArray::from(cells)),
            Column::Time(cells) => {
                let mut units = Vec::with_capacity(cells.len());
                for t in cells {
                    // Even milliseconds end before the latest time's expiry does.
                    let held = |t: Timestamp| match unit {
                        Precision::Ms => Some(t.to_units_saturating(unit)),
                        unit => t.to_units(unit),
                    };
                    match t.map(|t| held(t).ok_or(t)).transpose() {
                        Ok(cell) => units.push(cell),
                        Err(t) => {
                            return exec_err!(
                                "{} do not reach to {t}, which was stored after the statement had been prepared; \
                                 prepare it, or create its view, again",
                                unit.name()
                            );
                        }
                    }
                }
                match unit {
                    Precision::Ms => Arc::new(TimestampMillisecondArray::from(units).with_timezone("UTC")),
                    Precision::Us => Arc::new(TimestampMicrosecondArray::from(units).with_timezone("UTC")),
                    Precision::Ns => Arc::new(TimestampNanosecondArray::from(units).with_timezone("UTC")),
                }
            }
            Column::Count(cells) => Arc::new(UInt64Array::from(cells)),
            Column::Int(cells) => Arc::new(Int64Array::from(cells)),
            Column::Flag(cells) => Arc::new(BooleanArray::from(cells)),
        })
    }
}

fn collection(rows: &mut Rows, c: &CollectionSnapshot) -> ebbtide::Result<()> {
    let (info, options) = (c.info()?, c.options());
    rows.text(&info.name);
    rows.text(&options.time_field);
    rows.optional_text(options.meta_field.clone());
    rows.optional_text(granularity(c));
    rows.int(Some(options.bucketing.span_seconds()));
    rows.text(options.precision.name());
    rows.text(match options.expiry {
        ExpiryMode::Exact => "exact",
        ExpiryMode::Bucket => "bucket",
    });
    rows.text(match options.out_of_range {
        OutOfRange::Suspend => "suspend",
        OutOfRange::Reject => "reject",
        OutOfRange::Expire => "expire",
    });
    rows.int(c.rules().collection());
    rows.count(info.buckets);
    rows.count(info.measurements);
    rows.count(info.bytes);
    rows.time(info.first_time);
    rows.time(info.last_time);
    rows.text(&info.state);
    Ok(())
}

/// The word for the width of windows; none if it was given in seconds.
fn granularity(c: &CollectionSnapshot) -> Option<String> {
    use ebbtide_ttl::{Bucketing, Granularity};
    match c.options().bucketing {
        Bucketing::Preset(Granularity::Seconds) => Some("seconds".to_owned()),
        Bucketing::Preset(Granularity::Minutes) => Some("minutes".to_owned()),
        Bucketing::Preset(Granularity::Hours) => Some("hours".to_owned()),
        Bucketing::Custom { .. } => None,
    }
}

fn rules(rows: &mut Rows, c: &CollectionSnapshot) -> ebbtide::Result<()> {
    for info in c.rule_infos()? {
        rows.text(c.name());
        rows.text(&info.rule);
        rows.optional_text(info.filter.as_ref().map(value_text));
        rows.int(Some(info.expire_after_seconds));
        rows.count(info.buckets);
        rows.count(info.measurements);
        rows.count(info.bytes);
        rows.count(info.due_buckets);
        rows.count(info.due_measurements);
        rows.time(info.next_expiry);
        rows.text(&info.state);
    }
    Ok(())
}

fn buckets(rows: &mut Rows, c: &CollectionSnapshot) -> ebbtide::Result<()> {
    for info in c.buckets()? {
        rows.text(c.name());
        rows.optional_text((!info.meta.is_null()).then(|| value_text(&info.meta)));
        rows.time(Some(info.window_start));
        rows.time(Some(info.window_end));
        rows.time(Some(info.first_time));
        rows.time(Some(info.last_time));
        rows.count(info.measurements);
        rows.count(info.bytes);
        rows.flag(info.sealed);
        rows.optional_text(info.rule);
        rows.time(info.expires_at);
    }
    Ok(())
}

fn segments(rows: &mut Rows, c: &CollectionSnapshot) {
    for info in c.segments() {
        rows.text(c.name());
        rows.text(&info.file);
        rows.count(info.rows);
        rows.count(info.rows_written);
        rows.count(info.buckets);
        rows.count(info.bytes);
        rows.time(info.first_time);
        rows.time(info.last_time);
    }
}

/// The rows of `EXPLAIN EXPIRY`.
///
/// # Errors
/// A time that no unit of Arrow reaches.
pub fn expiry_rows(all: &[ebbtide::ExpiryRow]) -> Result<RecordBatch> {
    let mut rows = Rows::new("expiry");
    for row in all {
        rows.time(Some(row.day));
        rows.text(&row.rule);
        rows.count(row.buckets);
        rows.count(row.measurements);
        rows.count(row.bytes);
    }
    rows.finish()
}

/// The row of SWEEP.
pub(crate) fn sweep_row(counts: &ebbtide::TtlMetrics) -> Result<RecordBatch> {
    let mut rows = Rows::new("sweep");
    for count in [
        counts.passes,
        counts.sub_passes,
        counts.deleted_documents,
        counts.deleted_buckets,
        counts.deleted_bytes,
        counts.reclaimed_files,
        counts.failed_rules,
    ] {
        rows.count(count);
    }
    rows.finish()
}

/// The rows of `DESCRIBE`: column, type and role.
///
/// # Errors
/// None in practice: the columns are all text.
pub fn describe_rows(c: &CollectionSnapshot) -> Result<RecordBatch> {
    let schema = c.schema();
    let mut rows = Rows::new("columns");
    rows.text(&schema.time);
    rows.text(&format!("timestamp({})", schema.precision.name()));
    rows.text("time");
    if let Some(meta) = &schema.meta {
        rows.text(meta);
        rows.text(&schema.meta_type.as_ref().map_or("not known yet".to_owned(), |t| t.name()));
        rows.text("meta");
    }
    for (name, ty) in &schema.fields {
        rows.text(name);
        rows.text(&ty.name());
        rows.text("field");
    }
    rows.finish()
}

/// A value as text: a string without quotation marks, everything else as JSON.
#[must_use]
pub fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => json(other).to_string(),
    }
}

fn json(value: &Value) -> serde_json::Value {
    use serde_json::Value as Json;
    match value {
        Value::Null => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Int(i) => Json::from(*i),
        Value::Double(d) => serde_json::Number::from_f64(*d).map_or_else(|| Json::String(d.to_string()), Json::Number),
        Value::String(s) => Json::String(s.clone()),
        Value::Date(t) => serde_json::json!({ "$date": t.to_string() }),
        Value::Binary(bytes) => Json::String(bytes.iter().map(|b| format!("{b:02x}")).collect()),
        Value::Array(items) => Json::Array(items.iter().map(json).collect()),
        Value::Object(members) => Json::Object(members.iter().map(|(k, v)| (k.to_string(), json(v))).collect()),
    }
}
