//! The first pass over the files, which collects everything that is known before the first row is stored.

use super::bar::Bar;
use super::decoder::RowSpec;
use super::learnt::LearnedColumns;
use super::source::Source;
use super::{Failure, Job, Rows, columnar, step, text_file};
use crate::args::InputFormat;
use ebbtide_buckets::{Schema, batch_from_arrow};
use ebbtide_query::text_table::infer::{self, ColumnStats};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::rc::Rc;

/// Number of rows examined to determine the step of the data, shared among several files.
const SAMPLE_ROWS: usize = 200_000;
/// Minimum number of rows examined per file.
const SAMPLE_ROWS_MIN: usize = 5_000;

/// Receives rows of the file with this number, and returns whether to continue with it.
pub(super) type Take<'a> = dyn FnMut(usize, Rows) -> Result<ControlFlow<()>, Failure> + 'a;

/// Everything that is known before the first row is stored.
pub(super) struct Plan<'a> {
    pub(super) job: Rc<Job<'a>>,
    pub(super) sources: Vec<Source>,
    pub(super) seen: Vec<ColumnStats>,
    pub(super) settled: Rc<RowSpec>,
}

impl Plan<'_> {
    /// Passes on the rows of all files, starting with a given file and row.
    pub(super) fn rows(&self, schema: &Schema, (file, from): (usize, u64), give: &mut Take<'_>) -> Result<(), Failure> {
        self.job.folds.borrow_mut().restart();
        *self.settled.schema.borrow_mut() = schema.clone();
        for (at, source) in self.sources.iter().enumerate().skip(file) {
            let from = if at == file { from } else { 0 };
            let give = &mut |rows: Rows| give(at, rows);
            match source.is_text() {
                true => text_file::read(source, &self.job, &self.settled, from, give)?,
                false => columnar::read(source, &self.job, &self.settled.layout, from, give)?,
            }
            self.job.folds.borrow_mut().next_file();
        }
        Ok(())
    }

    pub(super) fn only_csv(&self) -> bool {
        self.sources.iter().all(|s| s.format == InputFormat::Csv)
    }
}

pub(super) struct CheckResult {
    pub(super) rows: u64,
    pub(super) step: Option<step::Step>,
    /// A series with several values at most of its times; empty if there is only one series.
    pub(super) crowded: Option<String>,
    pub(super) schema: Schema,
    /// Number of values by field, without those of bad lines, if all rows were made.
    pub(super) values: Option<HashMap<String, u64>>,
}

/// Reads everything once, to determine the types of columns and to check that each measurement has a time and that
/// types agree. `None` if no row can be imported.
pub(super) fn check<'a>(
    job: &Rc<Job<'a>>,
    sources: Vec<Source>,
    bar: &Bar<'_>,
) -> Result<Option<(Plan<'a>, CheckResult)>, Failure> {
    let known = job.schema.as_deref();
    let mut learnt = LearnedColumns::default();
    for source in &sources {
        if source.is_text() {
            text_file::learn(source, job, &mut learnt, &|rows| bar.tick(rows))?;
        } else if job.shape.time.len() > 1 || job.shape.at.is_some() {
            return Err(Failure::usage("--at, and --time with several columns, are for text files only"));
        } else {
            columnar::learn(source, job, &mut learnt)?;
        }
    }
    if learnt.rows == 0 && sources.iter().all(|s| s.format == InputFormat::Csv) {
        return Err(Failure::new("there are no measurements: the files contain only a header"));
    }
    let settled = RowSpec::new(job, known, &learnt)?;
    let LearnedColumns { seen, rows, .. } = learnt;
    let mut plan = Plan { job: Rc::clone(job), sources, seen, settled: Rc::new(settled) };
    let whole = !plan.only_csv() || job.bad.borrow().lenient() || job.args.skip_empty || job.args.dry_run;
    let layout = &plan.settled.layout;
    let time_is_full = plan.seen.iter().any(|s| s.name == layout.time_column && s.values() == rows);
    let share = (SAMPLE_ROWS / plan.sources.len().max(1)).max(SAMPLE_ROWS_MIN);
    let mut trial = Trial {
        schema: plan.settled.schema.borrow().clone(),
        sample: share,
        // The contents of CSV files are already known: a sample is enough for the step.
        stops: !whole && time_is_full,
        meter: step::Meter::default(),
        values: HashMap::new(),
        rows: 0,
        file: (0, 0),
    };
    let before = trial.schema.clone();
    plan.rows(&before, (0, 0), &mut |file, rows| trial.take(&plan, file, rows, bar))?;
    if known.is_none() && job.args.precision.is_none() {
        // Settings that depend on the values.
        let layout = &mut Rc::make_mut(&mut plan.settled).layout;
        layout.precision = infer::finer(layout.precision, job.finest.get());
    }
    let rows = if whole { trial.rows } else { rows };
    if rows == 0 {
        return Ok(None);
    }
    let (crowded, step) = (trial.meter.crowded(), trial.meter.step());
    let values = whole.then_some(trial.values);
    Ok(Some((plan, CheckResult { rows, step, crowded, schema: trial.schema, values })))
}

/// Converts rows to check whether they can be stored.
struct Trial {
    /// The schema, extended by what is found.
    schema: Schema,
    /// Number of rows of each file that the meter examines.
    sample: usize,
    /// Whether a sample is enough.
    stops: bool,
    meter: step::Meter,
    values: HashMap<String, u64>,
    rows: u64,
    /// The current file, and the number of its rows so far.
    file: (usize, usize),
}

impl Trial {
    fn take(
        &mut self,
        plan: &Plan<'_>,
        file: usize,
        mut rows: Rows,
        bar: &Bar<'_>,
    ) -> Result<ControlFlow<()>, Failure> {
        let accepted = loop {
            if rows.batch.num_rows() == 0 {
                return Ok(ControlFlow::Continue(()));
            }
            match batch_from_arrow(&rows.batch, &self.schema) {
                Ok(accepted) => break accepted,
                Err(e) => rows.set_aside(e.index, &e.error.message, plan.job.bad)?,
            }
        };
        if self.file.0 != file {
            self.file = (file, 0);
        }
        if self.file.1 < self.sample {
            let layout = &plan.settled.layout;
            self.meter.look(&accepted.batch, &layout.time_field, layout.meta_field.as_deref());
        }
        for (field, column) in accepted.batch.schema_ref().fields().iter().zip(accepted.batch.columns()) {
            *self.values.entry(field.name().clone()).or_default() += (column.len() - column.null_count()) as u64;
        }
        self.schema = accepted.schema;
        self.file.1 += rows.batch.num_rows();
        self.rows += rows.batch.num_rows() as u64;
        bar.tick(self.rows);
        let enough = self.stops && self.file.1 >= self.sample;
        Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}
