//! Many documents, converted on several threads.

use super::infer::Limits;
use super::{Accepted, BatchError, Measurement, convert};
use crate::parallel::{cores, on_threads};
use crate::schema::Schema;
use arrow::compute::concat_batches;
use std::sync::atomic::{AtomicBool, Ordering};

/// A part has at least this many documents: a thread is started for it.
const PART_ROWS_MIN: usize = 2048;
/// The number of a row whose meta is null.
const NULL_META: u32 = u32::MAX;

/// The result depends on all documents together.
struct Dependent;

impl From<BatchError> for Dependent {
    fn from(_: BatchError) -> Self {
        Dependent
    }
}

/// Converts parts of the documents at the same time. Returns `None` if there are too few of them, and if the result depends on all
/// of them together: if they have new fields, change the schema, are refused, or may exceed a limit together.
pub(super) fn in_parts<'a>(docs: &[impl Measurement<'a>], schema: &Schema) -> Option<Accepted> {
    let threads = cores().min(docs.len() / PART_ROWS_MIN);
    if threads < 2 || schema.fields.is_empty() {
        return None;
    }
    let mut limits = Limits::new(schema);
    let (fields, ended) = (limits.fields(), AtomicBool::new(false));
    let goes_on = |limits: &Limits| match limits.fields() == fields && !ended.load(Ordering::Relaxed) {
        true => Ok(()),
        false => Err(Dependent),
    };
    let parts: Vec<_> = docs.chunks(docs.len().div_ceil(threads)).collect();
    let part = |at: usize| match convert(parts[at], schema, goes_on) {
        Ok((accepted, limits)) if accepted.schema == *schema => Ok((accepted, limits)),
        _ => {
            ended.store(true, Ordering::Relaxed);
            Err(Dependent)
        }
    };
    let parts = on_threads(threads, parts.len(), &|| true, part).ok()?;
    parts.iter().try_for_each(|(_, part)| limits.add_items(part.items(), "")).ok()?;
    let batches = parts.iter().map(|(part, _)| &part.batch);
    let batch = concat_batches(&schema.arrow(), batches).ok()?;
    let meta_numbers = joined(parts.into_iter().map(|(part, _)| part.meta_numbers));
    Some(Accepted { batch, schema: schema.clone(), meta_numbers })
}

/// The numbers of all parts. The same meta has another number in each part.
fn joined(parts: impl Iterator<Item = Option<Vec<u32>>>) -> Option<Vec<u32>> {
    let mut all: Vec<u32> = Vec::new();
    let mut first = 0;
    for part in parts {
        let part = part?;
        let last = part.iter().filter(|number| **number != NULL_META).max().copied();
        all.extend(part.into_iter().map(|number| if number == NULL_META { number } else { first + number }));
        first += last.map_or(0, |last| last + 1);
    }
    Some(all)
}
