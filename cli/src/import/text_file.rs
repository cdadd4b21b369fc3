//! Passes over a text file: one to learn the types of its columns, and one to make rows.

use super::Failure;
use super::csv_file::Table;
use super::decoder::{Decoder, Input, RowSpec};
use super::documents::Documents;
use super::job::Job;
use super::learnt::LearnedColumns;
use super::rows::Rows;
use super::source::{self, Source};
use crate::args::InputFormat;
use ebbtide_query::text_table::split::{Block, Record};
use std::ops::ControlFlow;
use std::rc::Rc;

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

/// Learns the types of a file's columns.
pub(super) fn learn(
    source: &Source,
    job: &Rc<Job<'_>>,
    learnt: &mut LearnedColumns,
    tick: &dyn Fn(u64),
) -> Result<(), Failure> {
    let mut decoder = decoder(source.format, &source.name, &source.constants, job);
    let mut is_empty = true;
    source::blocks(source, &job.split(source), &mut |block| {
        is_empty &= block.is_empty();
        let rows = rows_of(block, decoder.as_mut())?;
        let next = decoder.learn(&rows, learnt)?;
        tick(learnt.rows);
        Ok(next)
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
    source::blocks(source, &job.split(source), &mut |block| {
        let rows = rows_of(block, decoder.as_mut())?;
        let stored = usize::try_from(from.saturating_sub(at)).unwrap_or(usize::MAX).min(rows.len());
        let (stored, mut left) = rows.split_at(stored);
        decoder.pass_over(stored);
        at += stored.len() as u64;
        while !left.is_empty() {
            let (next, others) = left.split_at(decoder.room(left));
            decoder.add(next)?;
            left = others;
            at += next.len() as u64;
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

/// The records of a block that are rows.
pub(super) fn rows_of<'b>(block: &'b Block, decoder: &mut dyn Decoder) -> Result<Vec<Record<'b>>, Failure> {
    let mut rows = Vec::with_capacity(block.len());
    for record in block.records() {
        if decoder.is_row(&record)? {
            rows.push(record);
        }
    }
    Ok(rows)
}
