//! Turns records of text inputs into rows. A file uses its decoder twice, first to learn the types of its columns and
//! then to make rows; a pipe does both with each block.

use super::Failure;
use super::csv_file::Table;
use super::documents::Documents;
use super::infer::{ColumnStats, Kind, finer};
use super::job::Job;
use super::layout::Layout;
use super::rows::Rows;
use super::source::Source;
use super::text::{self, Record};
use crate::args::InputFormat;
use ebbtide_buckets::Schema;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;

/// What is known about the columns before rows are made.
#[derive(Debug, Default)]
pub(super) struct LearnedColumns {
    pub(super) seen: Vec<ColumnStats>,
    /// The names of columns about which nothing else is known.
    pub(super) names: Vec<String>,
    pub(super) rows: u64,
}

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
            false => Layout::new(job, schema, &names, &learnt.seen)?,
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
        let kinds = job.kinds(schema, &layout, seen)?;
        let fresh = || Schema::new(layout.time_field.clone(), layout.meta_field.clone(), layout.precision);
        let schema = RefCell::new(schema.cloned().unwrap_or_else(fresh));
        Ok(RowSpec { layout, kinds, schema })
    }
}

/// Turns records into rows.
pub(super) trait Decoder {
    /// Whether a record is a row; the first ones may be a header.
    fn is_row(&mut self, record: &Record<'_>) -> Result<bool, Failure>;

    /// Examines the values of a row; breaks when it knows enough.
    fn learn(&mut self, row: &Record<'_>, learnt: &mut LearnedColumns) -> Result<ControlFlow<()>, Failure>;

    /// Sets the form of the rows that follow.
    fn begin(&mut self, settled: &Rc<RowSpec>);

    /// Skips a row.
    fn pass_over(&mut self, row: &Record<'_>);

    /// Adds a row to the next batch, or sets a bad one aside.
    fn add(&mut self, row: &Record<'_>) -> Result<(), Failure>;

    /// Whether the batch is full.
    fn is_full(&self) -> bool;

    /// The batch of the added rows; `None` if there are none. `end` is the number of rows of the input up to its end.
    fn finish(&mut self, end: u64) -> Result<Option<Rows>, Failure>;
}

/// The decoder for a text format. `name` is the input's name, `constants` are columns with one value in all rows.
pub(super) fn decoder<'a>(
    format: InputFormat,
    name: &str,
    constants: &[(String, String)],
    job: &Rc<Job<'a>>,
) -> Box<dyn Decoder + 'a> {
    let input = Input { name: name.into(), constants: constants.to_vec(), job: Rc::clone(job) };
    match format {
        InputFormat::Csv => Box::new(Table::new(input)),
        _ => Box::new(Documents::new(input, format)),
    }
}

/// The input of a decoder, and its job.
pub(super) struct Input<'a> {
    pub(super) name: Rc<str>,
    pub(super) constants: Vec<(String, String)>,
    pub(super) job: Rc<Job<'a>>,
}

/// Learns the types of a file's columns.
pub(super) fn learn(
    source: &Source,
    job: &Rc<Job<'_>>,
    learnt: &mut LearnedColumns,
    tick: &dyn Fn(u64),
) -> Result<(), Failure> {
    let mut decoder = decoder(source.format, &source.name, &source.constants, job);
    let mut is_empty = true;
    text::blocks(source, &job.split(source), &mut |block| {
        for record in block.records() {
            is_empty = false;
            if decoder.is_row(&record)? && decoder.learn(&record, learnt)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        tick(learnt.rows);
        Ok(ControlFlow::Continue(()))
    })?;
    match (is_empty, job.args.skip) {
        (false, _) => Ok(()),
        (true, Some(skip)) => {
            Err(Failure::new(format!("--skip {skip} leaves nothing of {}: the file has fewer lines", source.name)))
        }
        (true, None) => Err(Failure::new(format!("{} contains no lines", source.name))),
    }
}

/// Passes on the rows of a file in batches, starting with a given row.
pub(super) fn read(
    source: &Source,
    job: &Rc<Job<'_>>,
    settled: &Rc<RowSpec>,
    from: u64,
    give: &mut dyn FnMut(Rows) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    let mut decoder = decoder(source.format, &source.name, &source.constants, job);
    decoder.begin(settled);
    let (mut at, mut stopped) = (0, false);
    text::blocks(source, &job.split(source), &mut |block| {
        for record in block.records() {
            if !decoder.is_row(&record)? {
                continue;
            }
            at += 1;
            if at <= from {
                decoder.pass_over(&record);
                continue;
            }
            decoder.add(&record)?;
            if decoder.is_full()
                && let Some(rows) = decoder.finish(at)?
                && give(rows)?.is_break()
            {
                stopped = true;
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if !stopped && let Some(rows) = decoder.finish(at)? {
        let _ = give(rows)?;
    }
    Ok(())
}
