//! Queries through the library: aggregates, last points, and loops over the batches of a scan, whose units are shared
//! by as many threads as there are cores.

use crate::Result;
use arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array, RecordBatch};
use arrow::compute::cast;
use arrow::compute::kernels::cmp::gt;
use arrow::datatypes::{DataType, Float64Type};
use arrow::error::ArrowError;
use ebbtide::ttl::{Precision, Value};
use ebbtide::{Aggregate, AggregateRequest, CollectionSnapshot, MetaFilter, ScanRequest, ScanUnit};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Selects series by name: by the meta itself, or by a member of it.
#[derive(Debug, Clone)]
pub struct NamedSeries {
    member: Option<&'static str>,
    names: Vec<String>,
    candidates: [(Vec<String>, Vec<Value>); 1],
}

impl NamedSeries {
    /// A filter on metas, or on a member of them.
    #[must_use]
    pub fn new(member: Option<&'static str>, names: Vec<String>) -> Self {
        let path = member.into_iter().map(str::to_owned).collect();
        let candidates = [(path, names.iter().map(|name| Value::from(name.as_str())).collect())];
        NamedSeries { member, names, candidates }
    }
}

impl MetaFilter for NamedSeries {
    fn select(&self, metas: &ArrayRef) -> std::result::Result<BooleanArray, ArrowError> {
        let texts = match self.member {
            Some(member) => metas.as_struct().column_by_name(member).cloned(),
            None => Some(metas.clone()),
        };
        let texts = texts.ok_or_else(|| ArrowError::SchemaError("the metas have no such member".to_owned()))?;
        let texts = texts.as_string_view();
        Ok(texts.iter().map(|t| Some(t.is_some_and(|t| self.names.iter().any(|n| n == t)))).collect())
    }

    fn candidates(&self) -> &[(Vec<String>, Vec<Value>)] {
        &self.candidates
    }
}

/// A query that groups rows and computes one aggregate of each of its fields.
#[derive(Debug, Clone)]
pub struct Grouping {
    /// The aggregate of a field's values.
    pub aggregate: fn(String) -> Aggregate,
    /// Width of the groups in time, in units of the collection; `None` puts all times into one group.
    pub width: Option<i64>,
    /// Whether each series is a group of its own.
    pub by_series: bool,
    /// The fields, all of them numeric.
    pub fields: Vec<String>,
}

/// Runs `work` over all units on as many threads as there are cores, each with its own state.
///
/// # Errors
/// The first error that occurs.
pub fn on_all_cores<S: Send>(
    units: &[ScanUnit],
    start: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &RecordBatch) -> Result<()> + Sync,
) -> Result<Vec<S>> {
    let one = |state: &mut S, unit: &ScanUnit| -> Result<()> {
        for batch in unit.read()? {
            work(state, &batch?)?;
        }
        Ok(())
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(units.len());
    if cores <= 1 {
        let mut state = start();
        units.iter().try_for_each(|unit| one(&mut state, unit))?;
        return Ok(vec![state]);
    }
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let run = || -> Result<S> {
            let mut state = start();
            while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                one(&mut state, unit)?;
            }
            Ok(state)
        };
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|t| t.join().map_err(|_| "a thread of the query panicked")?).collect()
    })
}

/// The batches of a scan, in any order.
///
/// # Errors
/// Errors of the scan.
pub fn rows(snapshot: &CollectionSnapshot, request: &ScanRequest) -> Result<Vec<RecordBatch>> {
    let units = snapshot.scan(request)?;
    let found = on_all_cores(&units, Vec::new, |found, batch| {
        found.push(batch.clone());
        Ok(())
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// The rows of a scan in which a field is above a threshold.
///
/// # Errors
/// Errors of the scan.
pub fn rows_above(
    snapshot: &CollectionSnapshot,
    request: &ScanRequest,
    field: &str,
    above: f64,
) -> Result<Vec<RecordBatch>> {
    let units = snapshot.scan(request)?;
    let found = on_all_cores(&units, Vec::new, |found, batch| {
        let column = batch.column_by_name(field).ok_or("the field is not in the scan")?;
        let values = cast(column, &DataType::Float64)?;
        let hits = gt(values.as_primitive::<Float64Type>(), &Float64Array::new_scalar(above))?;
        let hits = arrow::compute::filter_record_batch(batch, &hits)?;
        if hits.num_rows() > 0 {
            found.push(hits);
        }
        Ok(())
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// Runs a grouping over the rows that a scan would return.
///
/// # Errors
/// Errors of the database.
pub fn group(snapshot: &CollectionSnapshot, request: &ScanRequest, grouping: &Grouping) -> Result<RecordBatch> {
    let aggregates = grouping.fields.iter().cloned().map(grouping.aggregate).collect();
    let (time, meta, by_meta) = (request.time, request.meta.clone(), grouping.by_series);
    Ok(snapshot.aggregate(&AggregateRequest {
        aggregates,
        time,
        meta,
        by_meta,
        meta_groups: None,
        width: grouping.width.map(|width| Precision::Ms.duration(width)),
        period: None,
        starts: None,
    })?)
}

/// A number that depends on all values of an answer, for comparing answers.
#[must_use]
pub fn checksum(answer: &RecordBatch) -> f64 {
    let numeric = answer.columns().iter().filter(|c| matches!(c.data_type(), DataType::Float64 | DataType::Int64));
    let doubles = numeric.filter_map(|column| cast(column, &DataType::Float64).ok());
    let mut values: Vec<f64> =
        doubles.flat_map(|c| c.as_primitive::<Float64Type>().iter().flatten().collect::<Vec<_>>()).collect();
    values.sort_by(f64::total_cmp);
    values.iter().sum()
}
