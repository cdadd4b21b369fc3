//! The first reading of the files: everything that is known before the first row is stored.

use super::infer::{self, Kind, Seen};
use super::layout::Layout;
use super::report::Bar;
use super::source::Source;
use super::{Failure, Job, Rows, columnar, csv_file, documents, step};
use crate::args::InputFormat;
use ebbtide_buckets::{Schema, batch_from_arrow};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// Rows that are looked at to learn the step of the data.
const SAMPLE_ROWS: usize = 200_000;

/// Takes rows of the file of this number, and says whether more are wanted.
pub(super) type Take<'a> = dyn FnMut(usize, Rows<'_>) -> Result<ControlFlow<()>, Failure> + 'a;

/// Everything that is known before the first row is stored.
pub(super) struct Plan<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) sources: Vec<Source>,
    pub(super) seen: Vec<Seen>,
    pub(super) kinds: Vec<(String, Kind)>,
    pub(super) layout: Layout,
}

impl Plan<'_> {
    /// Gives the rows of all files from one on, the first of them from one of its rows on.
    pub(super) fn rows(&self, schema: &Schema, (file, from): (usize, u64), give: &mut Take<'_>) -> Result<(), Failure> {
        let mut grown = schema.clone();
        for (at, source) in self.sources.iter().enumerate().skip(file) {
            let from = if at == file { from } else { 0 };
            let (job, layout) = (self.job, &self.layout);
            let give = &mut |rows: Rows<'_>| give(at, rows);
            match source.format {
                InputFormat::Csv => csv_file::read(source, job, &self.kinds, layout, from, give)?,
                InputFormat::Ndjson | InputFormat::Influx => {
                    documents::read(source, job, layout, &mut grown, from, give)?;
                }
                InputFormat::Parquet | InputFormat::Arrow => columnar::read(source, job, layout, from, give)?,
            }
        }
        Ok(())
    }

    pub(super) fn only_csv(&self) -> bool {
        self.sources.iter().all(|s| s.format == InputFormat::Csv)
    }
}

pub(super) struct Checked {
    pub(super) rows: u64,
    pub(super) step: Option<step::Step>,
    pub(super) schema: Schema,
    /// Values by field, without those of lines that are set aside, if all rows were made.
    pub(super) values: Option<HashMap<String, u64>>,
}

/// Reads everything once: what the columns hold, whether each measurement has a time and types agree.
pub(super) fn check<'a>(job: &'a Job<'a>, sources: Vec<Source>, bar: &Bar<'_>) -> Result<(Plan<'a>, Checked), Failure> {
    let schema = job.schema.as_deref();
    let mut seen: Vec<Seen> = Vec::new();
    let mut rows = 0;
    let mut names: Vec<String> = Vec::new();
    for source in &sources {
        match source.format {
            InputFormat::Csv => rows += csv_file::look(source, job, &mut seen, &|rows| bar.tick(rows))?,
            InputFormat::Ndjson => names.extend(documents::first_names(source, job)?),
            InputFormat::Influx => {}
            InputFormat::Parquet | InputFormat::Arrow => {
                if job.shape.time.len() > 1 || job.shape.at.is_some() {
                    return Err(Failure::usage("--at, and --time with two columns, are for text files only"));
                }
                names.extend(columnar::names(source, job)?);
            }
        }
    }
    names.extend(seen.iter().map(|s| s.name.clone()));
    let mut layout = if sources.iter().all(|s| s.format == InputFormat::Influx) {
        Layout::influx(job.args, &job.collection, schema)?
    } else {
        Layout::new(job.args, &job.shape, &job.collection, schema, &names, &seen)?
    };
    let chosen = schema.is_some() || job.args.precision.is_some();
    if !chosen {
        layout.precision = seen.iter().map(Seen::finest).fold(layout.precision, infer::finer);
    }
    let kinds = job.kinds(schema, &layout, &seen)?;
    let mut plan = Plan { job, sources, seen, kinds, layout };
    let mut schema = match &job.schema {
        Some(schema) => schema.as_ref().clone(),
        None => Schema::new(plan.layout.time_field.clone(), plan.layout.meta_field.clone(), plan.layout.precision),
    };
    let only_csv = plan.only_csv();
    if only_csv && rows == 0 {
        return Err(Failure::new("there are no measurements: the files hold a header only"));
    }
    let whole = !only_csv || job.bad.borrow().lenient() || job.args.skip_empty || job.args.dry_run;
    let time_is_full = plan.seen.iter().any(|s| s.name == plan.layout.time_column && s.values() == rows);
    let mut meter = step::Meter::default();
    let mut found = 0;
    let mut values: HashMap<String, u64> = HashMap::new();
    let before = schema.clone();
    plan.rows(&before, (0, 0), &mut |_, mut rows| {
        let accepted = loop {
            if rows.batch.num_rows() == 0 {
                return Ok(ControlFlow::Continue(()));
            }
            match batch_from_arrow(&rows.batch, &schema) {
                Ok(accepted) => break accepted,
                Err(e) => rows.set_aside(e.index, &e.error.message, job.bad)?,
            }
        };
        if found < SAMPLE_ROWS {
            meter.look(&accepted.batch, &plan.layout.time_field, plan.layout.meta_field.as_deref());
        }
        for (field, column) in accepted.batch.schema_ref().fields().iter().zip(accepted.batch.columns()) {
            *values.entry(field.name().clone()).or_default() += (column.len() - column.null_count()) as u64;
        }
        schema = accepted.schema;
        found += rows.batch.num_rows();
        bar.tick(found as u64);
        // What CSV holds is known already: a sample tells the step.
        let enough = !whole && found >= SAMPLE_ROWS && time_is_full;
        Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    if !chosen {
        // What only the values tell.
        plan.layout.precision = infer::finer(plan.layout.precision, job.finest.get());
    }
    let rows = if whole { found as u64 } else { rows };
    if rows == 0 {
        return Err(Failure::new("there are no measurements in the files"));
    }
    Ok((plan, Checked { rows, step: meter.step(), schema, values: whole.then_some(values) }))
}
