//! Maps columns of the input to fields of the collection.

use super::job::Job;
use super::learnt::LearnedColumns;
use super::shape::Shape;
use super::step;
use crate::Failure;
use crate::args::ImportArgs;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StructArray};
use arrow::compute::{cast, nullif};
use arrow::datatypes::{DataType, Field, Fields, Float64Type, Schema as ArrowSchema};
use ebbtide::Database;
use ebbtide_buckets::{FieldType, Schema, timestamps};
use ebbtide_query::text_table::cells::Nulls;
use ebbtide_ttl::Precision;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The mapping of columns to fields.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) time_column: String,
    pub(super) time_field: String,
    pub(super) meta_columns: Vec<String>,
    pub(super) meta_field: Option<String>,
    pub(super) precision: Precision,
}

impl Layout {
    /// The mapping for columns with these names.
    pub(super) fn new(
        job: &Job<'_>,
        schema: Option<&Schema>,
        names: &[String],
        learnt: &LearnedColumns,
    ) -> Result<Layout, Failure> {
        let (args, shape, collection) = (job.args, &job.shape, &job.collection);
        let mut wanted = args.meta.clone();
        wanted.extend(job.names.iter().filter(|n| !args.meta.contains(n)).cloned());
        let has = |name: &str| names.iter().any(|n| n == name);
        let time_column = match (shape.time_by_name(names), args.time.first()) {
            (Some(name), _) => name,
            (None, Some(name)) => return Err(shape.unknown("time", name, names)),
            (None, None) => guess_time(names, learnt)?,
        };
        for name in &wanted {
            if !has(name) {
                return Err(shape.unknown("meta", name, names));
            }
            if *name == time_column || args.time.contains(name) {
                return Err(Failure::usage(format!("'{name}' cannot be both the time and the meta")));
            }
        }
        let known_meta = schema.and_then(|s| s.meta.clone());
        if schema.is_some() && known_meta.is_none() && !wanted.is_empty() {
            return Err(Failure::usage(format!(
                "collection '{collection}' was created without a meta field and cannot get one: import into a new \
                 collection, or first remove this one with ebbtide sql 'DROP COLLECTION {collection}'"
            )));
        }
        let members = match schema.and_then(|s| s.meta_type.as_ref()) {
            Some(FieldType::Object(members)) => members.iter().map(|(name, _)| name.clone()).collect(),
            _ => Vec::new(),
        };
        let meta_columns = match (wanted.is_empty(), &known_meta) {
            (true, Some(meta)) if has(meta) => vec![meta.clone()],
            (true, Some(_)) if members.len() > 1 && members.iter().all(|m| has(m)) => members,
            _ => wanted,
        };
        let meta_field = match (known_meta, meta_columns.as_slice(), &args.meta_field) {
            (_, [], _) => None,
            (Some(known), ..) => Some(known),
            (None, _, Some(name)) => Some(name.clone()),
            (None, [one], None) => Some(one.clone()),
            (None, _, None) => Some("meta".to_owned()),
        };
        check_meta_field(args, collection, meta_field.as_deref())?;
        let in_the_way =
            meta_field.as_ref().filter(|m| has(m) && !meta_columns.contains(m) && !shape.without.contains(m));
        if let Some(name) = in_the_way {
            return Err(Failure::usage(format!(
                "column '{name}' has the name of the meta field: say --meta-field NAME, or give the \
                 column another name with --rename"
            )));
        }
        Ok(Layout {
            time_field: schema.map_or_else(|| time_column.clone(), |s| s.time.clone()),
            time_column,
            meta_columns,
            meta_field,
            precision: schema.map_or_else(|| args.precision.map_or(Precision::Ms, Precision::from), |s| s.precision),
        })
    }

    /// The layout of line protocol: its times in `time`, its tags in an object.
    pub(super) fn influx(args: &ImportArgs, collection: &str, schema: Option<&Schema>) -> Result<Layout, Failure> {
        if !args.meta.is_empty() || !args.time.is_empty() || args.at.is_some() {
            return Err(Failure::usage("line protocol names its time and meta itself: drop --time, --at and --meta"));
        }
        if let Some(schema) = schema
            && schema.meta.is_none()
        {
            return Err(Failure::usage(format!("collection '{collection}' has no meta field for the tags")));
        }
        let named = args.meta_field.clone().unwrap_or_else(|| "tags".to_owned());
        let time = schema.map_or_else(|| "time".to_owned(), |s| s.time.clone());
        let meta_field = schema.and_then(|s| s.meta.clone()).unwrap_or(named);
        check_meta_field(args, collection, Some(&meta_field))?;
        Ok(Layout {
            time_column: time.clone(),
            time_field: time,
            meta_columns: Vec::new(),
            meta_field: Some(meta_field),
            precision: schema.map_or_else(|| args.precision.map_or(Precision::Ms, Precision::from), |s| s.precision),
        })
    }

    /// Creates the collection according to the options and the data.
    pub(super) fn create(&self, job: &Job<'_>, database: &Database, step: Option<step::Step>) -> Result<(), Failure> {
        let mut series = serde_json::Map::new();
        series.insert("timeField".to_owned(), self.time_field.clone().into());
        if let Some(meta) = &self.meta_field {
            series.insert("metaField".to_owned(), meta.clone().into());
        }
        let granularity = match (&job.args.granularity, step) {
            (Some(word), _) => word.clone(),
            (None, Some(step)) => {
                eprintln!("granularity {}: a series has a measurement every {} (median)", step.granularity(), step);
                step.granularity().to_owned()
            }
            (None, None) => "seconds".to_owned(),
        };
        series.insert("granularity".to_owned(), granularity.into());
        if self.precision != Precision::Ms {
            eprintln!("precision {}: the times are that fine", self.precision.name());
            series.insert("precision".to_owned(), self.precision.name().into());
        }
        let mut document = serde_json::Map::new();
        document.insert("create".to_owned(), job.collection.clone().into());
        document.insert("timeseries".to_owned(), series.into());
        if let Some(seconds) = job.args.expire_after {
            document.insert("expireAfterSeconds".to_owned(), seconds.into());
        }
        database.run_command(&serde_json::Value::Object(document))?;
        Ok(())
    }

    /// Orders the columns of a batch: the time, the meta, the other fields.
    pub(super) fn arrange(&self, batch: &RecordBatch, file: &str) -> Result<RecordBatch, Failure> {
        let missing = |name: &str| {
            let schema = batch.schema();
            let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            Failure::new(format!("{file} has no column '{name}'; it has: {}", names.join(", ")))
        };
        let time = batch.column_by_name(&self.time_column).ok_or_else(|| missing(&self.time_column))?;
        let mut fields = vec![Field::new(&self.time_field, time.data_type().clone(), true)];
        let mut columns: Vec<ArrayRef> = vec![Arc::clone(time)];
        if let Some(meta) = &self.meta_field {
            let mut parts = Vec::new();
            for name in &self.meta_columns {
                match batch.column_by_name(name) {
                    Some(column) => parts.push((name, Arc::clone(column))),
                    // A column without any value was skipped.
                    None if self.meta_columns.len() > 1 => {}
                    None => return Err(missing(name)),
                }
            }
            let column: ArrayRef = match parts.as_slice() {
                [(_, one)] if self.meta_columns.len() == 1 => Arc::clone(one),
                parts => {
                    let fields: Fields =
                        parts.iter().map(|(n, c)| Field::new(n.as_str(), c.data_type().clone(), true)).collect();
                    let columns = parts.iter().map(|(_, c)| Arc::clone(c)).collect();
                    Arc::new(StructArray::try_new(fields, columns, None).map_err(ebbtide_query::QueryError::from)?)
                }
            };
            fields.push(Field::new(meta, column.data_type().clone(), true));
            columns.push(column);
        }
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            if *field.name() != self.time_column && !self.meta_columns.contains(field.name()) {
                fields.push(Field::new(field.name(), field.data_type().clone(), true));
                columns.push(Arc::clone(column));
            }
        }
        Ok(RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns)
            .map_err(ebbtide_query::QueryError::from)?)
    }

    /// Applies the options to a batch of another program: renames and skips columns, replaces markers by null, and
    /// reads times that are text, numbers or without a zone. If any of a row's times cannot be read, the time of the row becomes null,
    /// and the row is listed with the reason.
    ///
    /// # Errors
    /// A batch that cannot be imported at all.
    pub(super) fn adapt(
        &self,
        batch: &RecordBatch,
        job: &Job<'_>,
        constants: &[(String, String)],
    ) -> Result<(RecordBatch, BTreeMap<usize, String>), String> {
        let (shape, nulls) = (&job.shape, &job.cells.nulls);
        let mut fields = Vec::new();
        let mut columns: Vec<ArrayRef> = Vec::new();
        let mut unread = BTreeMap::new();
        for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            let name = shape.rename(field.name());
            if shape.without.iter().any(|w| w == name) {
                continue;
            }
            if constants.iter().any(|(n, _)| n == name) {
                return Err(format!("the file already has a column '{name}'; leave it out with --without {name}"));
            }
            let mut column = Arc::clone(column);
            if !nulls.is_empty() {
                column = without_markers(&column, nulls).map_err(|e| e.to_string())?;
            }
            let is_time = name == self.time_column;
            if is_time || is_local(&column, job) {
                let other = if is_time { String::new() } else { format!("\0{name}") };
                let key = |row: usize| self.series_key(batch, shape, row) + &other;
                let (read, wrong) = instants(&column, job, &key).map_err(|e| format!("column '{name}': {e}"))?;
                column = read;
                for (row, reason) in wrong {
                    unread.entry(row).or_insert_with(|| format!("column '{name}': {reason}"));
                }
            }
            fields.push(Field::new(name, column.data_type().clone(), true));
            columns.push(column);
        }
        for (name, text) in constants {
            let column = job.constant(name, text).column(batch.num_rows());
            fields.push(Field::new(name, column.data_type().clone(), true));
            columns.push(column);
        }
        if let Some(time) = fields.iter().position(|field| *field.name() == self.time_column)
            && !unread.is_empty()
        {
            let is_unread = (0..batch.num_rows()).map(|row| Some(unread.contains_key(&row))).collect();
            columns[time] = nullif(&columns[time], &is_unread).map_err(|e| e.to_string())?;
        }
        let adapted = RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns).map_err(|e| e.to_string())?;
        Ok((adapted, unread))
    }

    /// The key of a row's series.
    fn series_key(&self, batch: &RecordBatch, shape: &Shape, row: usize) -> String {
        let columns = batch.schema_ref().fields().iter().zip(batch.columns());
        let metas = columns.filter(|(field, _)| self.meta_columns.iter().any(|m| m == shape.rename(field.name())));
        let texts = metas.map(|(_, column)| ebbtide_query::output::text(column.as_ref(), row).unwrap_or_default());
        texts.collect::<Vec<_>>().join("\0")
    }
}

/// Refuses a name of the meta field that would have no effect.
fn check_meta_field(args: &ImportArgs, collection: &str, found: Option<&str>) -> Result<(), Failure> {
    match (args.meta_field.as_deref(), found) {
        (Some(given), Some(found)) if given != found => {
            Err(Failure::usage(format!("the meta field of collection '{collection}' is '{found}': drop --meta-field")))
        }
        (Some(_), None) => Err(Failure::usage(
            "--meta-field names the field for the columns of --meta: add --meta COLUMN, or drop --meta-field",
        )),
        _ => Ok(()),
    }
}

fn guess_time(names: &[String], learnt: &LearnedColumns) -> Result<String, Failure> {
    let of_texts = learnt.seen.iter().filter(|s| s.is_time()).map(|s| &s.name);
    let times: BTreeSet<&String> = of_texts.chain(&learnt.times).collect();
    match Vec::from_iter(times).as_slice() {
        [one] => Ok((*one).clone()),
        [] if !learnt.seen.is_empty() => Err(Failure::new(format!(
            "no column contains times (columns: {}); for a table without times, such as a list of stations, give all rows one \
             time with --at 1970-01-01; a column with times of another form is named with --time",
            names.join(", ")
        ))),
        _ => Err(Failure::new(format!(
            "cannot tell which column holds the time; name it with --time (columns: {})",
            names.join(", ")
        ))),
    }
}

/// Replaces markers of missing values by null.
fn without_markers(column: &ArrayRef, nulls: &Nulls) -> Result<ArrayRef, arrow::error::ArrowError> {
    let marked: BooleanArray = match column.data_type() {
        ty if ty.is_numeric() => {
            let numbers = cast(column, &DataType::Float64)?;
            numbers.as_primitive::<Float64Type>().iter().map(|n| Some(n.is_some_and(|n| nulls.has_number(n)))).collect()
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let texts = cast(column, &DataType::Utf8View)?;
            texts.as_string_view().iter().map(|t| Some(t.is_some_and(|t| nulls.has(t.trim().as_bytes())))).collect()
        }
        _ => return Ok(Arc::clone(column)),
    };
    nullif(column.as_ref(), &marked)
}

/// The row of a batch whose time cannot be read, and why.
type UnreadTime = (usize, String);

/// Whether a column has times without a zone, and `--time-zone` says which is meant.
fn is_local(column: &ArrayRef, job: &Job<'_>) -> bool {
    matches!(column.data_type(), DataType::Timestamp(_, None) | DataType::Date32 | DataType::Date64)
        && job.cells.times.has_zone()
}

/// Reads times that a file stores as text, as numbers in the unit of `--time-format`, or as times without a zone where
/// `--time-zone` is given. Each is read once, in order, since the meaning of a local time may depend on the times before it.
fn instants(
    column: &ArrayRef,
    job: &Job<'_>,
    key: &dyn Fn(usize) -> String,
) -> Result<(ArrayRef, Vec<UnreadTime>), String> {
    let (mut times, is_local) = (Cow::Borrowed(&job.cells.times), is_local(column, job));
    if is_local {
        times = Cow::Owned(times.general());
    }
    let is_text = column.data_type().is_string();
    if column.data_type().is_integer() && times.is_general() {
        return Err("the times are whole numbers: add --time-format s, ms, us or ns".to_owned());
    }
    if !is_text && !is_local && !column.data_type().is_integer() {
        return Ok((Arc::clone(column), Vec::new()));
    }
    let texts = cast(column, &DataType::Utf8View).map_err(|e| e.to_string())?;
    let texts = texts.as_string_view();
    let (mut read, mut unread) = (Vec::with_capacity(texts.len()), Vec::new());
    for (row, text) in texts.iter().enumerate() {
        read.push(match text {
            None => None,
            Some(text) => {
                let key = if times.decides() { key(row) } else { String::new() };
                let mut folds = job.folds.borrow_mut();
                let time = times.read_in(text.trim().as_bytes(), folds.series(key.as_bytes()));
                time.map_err(|reason| unread.push((row, reason))).ok()
            }
        });
    }
    // The finest unit that holds all times: nanoseconds only reach from 1677 to 2262.
    for precision in [Precision::Ns, Precision::Us, Precision::Ms] {
        let units: Option<Vec<Option<i64>>> = read
            .iter()
            .map(|t| match t {
                None => Some(None),
                Some(t) => t.to_units(precision).map(Some),
            })
            .collect();
        if let Some(units) = units {
            return Ok((timestamps(units, precision), unread));
        }
    }
    Err("the times are out of range".to_owned())
}
