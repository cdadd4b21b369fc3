//! Turns records of text inputs into rows. A file uses its decoder twice, first to learn the types of its columns and
//! then to make rows; a pipe does both with each block.

use super::Failure;
use super::doubts::{self, Doubt};
use super::job::Job;
use super::layout::Layout;
use super::learnt::LearnedColumns;
use super::rows::Rows;
use ebbtide_buckets::{FieldType, Schema};
use ebbtide_query::text_table::infer::{ColumnStats, Kind, finer};
use ebbtide_query::text_table::split::Record;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;

/// The form that rows are converted to.
#[derive(Debug, Clone)]
pub(super) struct RowSpec {
    pub(super) layout: Layout,
    /// The types of the columns of CSV files.
    pub(super) kinds: Vec<(String, Kind)>,
    /// The schema for reading documents, which they extend.
    pub(super) schema: RefCell<Schema>,
}

impl RowSpec {
    /// Determines it from what was learnt. `schema` is the collection's, if it exists.
    pub(super) fn new(job: &Job<'_>, schema: Option<&Schema>, learnt: &LearnedColumns) -> Result<Self, Failure> {
        let mut names = learnt.names.clone();
        names.extend(learnt.seen.iter().map(|s| s.name.clone()));
        let mut layout = match job.influx {
            true => Layout::influx(job.args, &job.collection, schema)?,
            false => Layout::new(job, schema, &names, learnt)?,
        };
        if schema.is_none() && job.args.precision.is_none() {
            layout.precision = learnt.seen.iter().map(ColumnStats::finest).fold(layout.precision, finer);
        }
        RowSpec::of(job, schema, layout, &learnt.seen)
    }

    /// For a known layout.
    pub(super) fn of(
        job: &Job<'_>,
        schema: Option<&Schema>,
        layout: Layout,
        seen: &[ColumnStats],
    ) -> Result<Self, Failure> {
        let kinds = kinds(job, schema, &layout, seen)?;
        if let [meta] = layout.meta_columns.as_slice()
            && !kinds.iter().any(|(name, _)| name == meta)
            && seen.iter().any(|column| column.name == *meta && column.values() == 0)
        {
            return Err(Failure::new(format!(
                "the meta, column '{meta}', has no values in the input: name another column with --meta"
            )));
        }
        let fresh = || Schema::new(layout.time_field.clone(), layout.meta_field.clone(), layout.precision);
        let schema = RefCell::new(schema.cloned().unwrap_or_else(fresh));
        Ok(RowSpec { layout, kinds, schema })
    }
}

/// Turns records into rows.
pub(super) trait Decoder {
    /// Whether a record is a row; the first ones may be a header.
    fn is_row(&mut self, record: &Record<'_>) -> Result<bool, Failure>;

    /// Examines the values of rows; breaks when it knows enough.
    fn learn(&mut self, rows: &[Record<'_>], learnt: &mut LearnedColumns) -> Result<ControlFlow<()>, Failure>;

    /// Sets the form of the rows that follow.
    fn begin(&mut self, settled: &Rc<RowSpec>);

    /// Skips rows.
    fn pass_over(&mut self, rows: &[Record<'_>]);

    /// How many of these rows to add before the batch is asked whether it is full, at least one.
    fn room(&self, rows: &[Record<'_>]) -> usize;

    /// Adds rows to the next batch; bad ones are set aside.
    fn add(&mut self, rows: &[Record<'_>]) -> Result<(), Failure>;

    /// Whether the batch is full.
    fn is_full(&self) -> bool;

    /// The batch of the added rows; `None` if there are none. `end` is the number of rows of the input up to its end.
    fn finish(&mut self, end: u64) -> Result<Option<Rows>, Failure>;
}

/// The input of a decoder, and its job.
pub(super) struct Input<'a> {
    pub(super) name: Rc<str>,
    pub(super) constants: Vec<(String, String)>,
    pub(super) job: Rc<Job<'a>>,
}

/// The types of the columns of CSV files.
fn kinds(
    job: &Job<'_>,
    schema: Option<&Schema>,
    layout: &Layout,
    seen: &[ColumnStats],
) -> Result<Vec<(String, Kind)>, Failure> {
    let known_meta = |name: &str| -> Option<FieldType> {
        let ty = schema?.meta_type.as_ref()?;
        match (layout.meta_columns.len(), ty) {
            (1, ty) => Some(ty.clone()),
            (_, FieldType::Object(members)) => members.iter().find(|(n, _)| n == name).map(|(_, t)| t.clone()),
            _ => None,
        }
    };
    let lenient = job.bad.borrow().lenient();
    let (mut kinds, mut doubts) = (Vec::new(), Vec::new());
    for column in seen {
        let kind = if column.name == layout.time_column {
            Some(column.time_kind(lenient).map_err(|doubt| doubts::about_time(&column.name, &doubt))?)
        } else {
            let known = if layout.meta_columns.contains(&column.name) {
                known_meta(&column.name)
            } else {
                schema.and_then(|s| s.field_type(&column.name).cloned())
            };
            let is_text = job.args.text.contains(&column.name) || (known.is_none() && job.names.contains(&column.name));
            match column.kind(known.as_ref(), is_text, lenient) {
                Ok(kind) => kind,
                Err(doubt) => {
                    doubts.push(Doubt::new(&column.name, &doubt));
                    None
                }
            }
        };
        kinds.extend(kind.map(|k| (column.name.clone(), k)));
    }
    if !doubts.is_empty() {
        return Err(Doubt::failure(&doubts));
    }
    if let Some(name) = job.args.number.iter().find(|t| !seen.iter().any(|s| s.name == **t)) {
        let names: Vec<String> = seen.iter().map(|s| s.name.clone()).collect();
        return Err(job.shape.unknown("option --number", name, &names));
    }
    if let Some(name) = job.args.text.iter().find(|t| !seen.iter().any(|s| s.name == **t)) {
        let names: Vec<String> = seen.iter().map(|s| s.name.clone()).collect();
        return Err(job.shape.unknown("option --text", name, &names));
    }
    Ok(kinds)
}
