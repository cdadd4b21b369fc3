//! Queries by hand: loops over the batches of a scan, units shared by as many threads as there are cores.

use crate::Result;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use arrow::error::ArrowError;
use ebbtide::buckets::time_values;
use ebbtide::{CollectionSnapshot, MetaFilter, ScanRequest, ScanUnit};
use std::collections::HashMap as Map;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Chooses the series of some names: the meta itself, or a member of it.
#[derive(Debug, Clone)]
pub struct NamedSeries {
    /// The member of the meta that holds the name; the meta itself if `None`.
    pub member: Option<&'static str>,
    /// The names.
    pub names: Vec<String>,
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
}

/// How values become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate {
    /// The greatest value.
    Max,
    /// The mean.
    Avg,
}

/// A query that groups.
#[derive(Debug, Clone)]
pub struct Grouping {
    /// What it does with the values.
    pub aggregate: Aggregate,
    /// Width of the groups in time, in units of the collection; all times are one group if `None`.
    pub width: Option<i64>,
    /// Whether each series is a group of its own, and by which member of the meta it is named.
    pub by_series: bool,
    /// The fields, all numeric.
    pub fields: Vec<String>,
}

/// The state of one group's field: enough for every [`Aggregate`].
#[derive(Debug, Clone, Copy)]
pub struct Sums {
    /// Values.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// The least of them.
    pub min: f64,
    /// The greatest of them.
    pub max: f64,
}

impl Sums {
    const NONE: Sums = Sums { count: 0, sum: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY };

    fn merge(&mut self, other: &Sums) {
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    fn add(&mut self, values: &[f64]) {
        for v in values {
            self.sum += v;
            self.max = self.max.max(*v);
            self.min = self.min.min(*v);
        }
        self.count += values.len() as u64;
    }
}

/// Groups: name of the series (empty if they are not told apart), start of the group in time, one state a field.
pub type Groups = Map<(Arc<str>, i64), Vec<Sums>>;

/// Runs `work` over all units on as many threads as there are cores, each with a state of its own.
///
/// # Errors
/// The first that is met.
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

/// Rows of a scan.
///
/// # Errors
/// What the scan says.
pub fn rows(snapshot: &CollectionSnapshot, request: &ScanRequest) -> Result<usize> {
    let units = snapshot.scan(request)?;
    let counts = on_all_cores(
        &units,
        || 0,
        |sum, batch| {
            *sum += batch.num_rows();
            Ok(())
        },
    )?;
    Ok(counts.iter().sum())
}

/// Rows of a scan of which a field is above a threshold.
///
/// # Errors
/// What the scan says.
pub fn rows_above(snapshot: &CollectionSnapshot, request: &ScanRequest, field: &str, above: f64) -> Result<usize> {
    let units = snapshot.scan(request)?;
    let counts = on_all_cores(
        &units,
        || 0,
        |sum, batch| {
            let column = batch.column_by_name(field).ok_or("the field is not in the scan")?;
            let values = cast(column, &DataType::Float64)?;
            let hits: BooleanArray = values.as_primitive::<Float64Type>().iter().map(|v| Some(v? > above)).collect();
            *sum += arrow::compute::filter_record_batch(batch, &hits)?.num_rows();
            Ok(())
        },
    )?;
    Ok(counts.iter().sum())
}

/// Runs a grouping over a scan. The projection of the request is set here.
///
/// # Errors
/// What the scan says.
pub fn group(snapshot: &CollectionSnapshot, request: &ScanRequest, grouping: &Grouping) -> Result<Groups> {
    let schema = snapshot.schema();
    let mut columns = grouping.fields.clone();
    if grouping.width.is_some() {
        columns.push(schema.time.clone());
    }
    let meta = schema.meta.clone().filter(|_| grouping.by_series);
    columns.extend(meta.clone());
    let request = ScanRequest { projection: Some(columns), ..request.clone() };
    let units = snapshot.scan(&request)?;
    let time = schema.time.clone();
    let parts = on_all_cores(&units, Groups::new, |groups, batch| {
        let fields = batch.columns()[..grouping.fields.len()]
            .iter()
            .map(|column| cast(column, &DataType::Float64))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let times = match grouping.width {
            Some(_) => Some(time_values(batch.column_by_name(&time).ok_or("no time in the scan")?)?),
            None => None,
        };
        let names = meta.as_ref().and_then(|meta| batch.column_by_name(meta)).map(names_of).transpose()?;
        let mut start = 0;
        while start < batch.num_rows() {
            // Rows lie by series and time, so a group is a run of rows.
            let from = times.zip(grouping.width).map(|(times, width)| times[start].div_euclid(width) * width);
            let mut end = start + 1;
            let inside = |row: usize| {
                times
                    .zip(from)
                    .zip(grouping.width)
                    .is_none_or(|((t, from), width)| (from..from + width).contains(&t[row]))
                    && names.as_ref().is_none_or(|n| n.as_string_view().value(row) == n.as_string_view().value(start))
            };
            while end < batch.num_rows() && inside(end) {
                end += 1;
            }
            let name: Arc<str> = names.as_ref().map_or("", |n| n.as_string_view().value(start)).into();
            let sums = groups.entry((name, from.unwrap_or(0))).or_insert_with(|| vec![Sums::NONE; fields.len()]);
            for (sums, field) in sums.iter_mut().zip(&fields) {
                add_run(sums, field, start..end);
            }
            start = end;
        }
        Ok(())
    })?;
    let mut parts = parts.into_iter();
    let mut all = parts.next().unwrap_or_default();
    for part in parts {
        for (key, sums) in part {
            match all.get_mut(&key) {
                Some(known) => known.iter_mut().zip(&sums).for_each(|(a, b)| a.merge(b)),
                None => drop(all.insert(key, sums)),
            }
        }
    }
    Ok(all)
}

fn names_of(metas: &ArrayRef) -> Result<ArrayRef> {
    match metas.data_type() {
        DataType::Struct(_) => Ok(metas.as_struct().column_by_name("hostname").ok_or("the meta has no name")?.clone()),
        _ => Ok(metas.clone()),
    }
}

fn add_run(sums: &mut Sums, field: &ArrayRef, rows: std::ops::Range<usize>) {
    let values = field.as_primitive::<Float64Type>();
    if values.null_count() == 0 {
        sums.add(&values.values()[rows]);
        return;
    }
    for row in rows {
        if values.is_valid(row) {
            sums.add(&values.values()[row..=row]);
        }
    }
}

/// One number that all values of an answer go into: to compare answers, and to keep them from being optimised away.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a figure for the eye")]
pub fn checksum(groups: &Groups, aggregate: Aggregate) -> f64 {
    let value = |s: &Sums| match aggregate {
        Aggregate::Max => s.max,
        Aggregate::Avg => s.sum / s.count as f64,
    };
    let mut values: Vec<f64> = groups.values().flatten().filter(|s| s.count > 0).map(value).collect();
    values.sort_by(f64::total_cmp);
    values.iter().sum()
}

/// The newest instant of every series and how many values there are: scans the newest times first and widens until
/// every series of `series` was met.
///
/// # Errors
/// What the scan says.
pub fn last_points(snapshot: &CollectionSnapshot, end: i64, step: i64, series: usize) -> Result<usize> {
    let schema = snapshot.schema().clone();
    let meta = schema.meta.clone().ok_or("a collection without metas has no series")?;
    let mut width = step;
    loop {
        let from = end.saturating_sub(width - 1);
        let request = ScanRequest { time: (Some(from), Some(end)), ..ScanRequest::default() };
        let units = snapshot.scan(&request)?;
        let parts = on_all_cores(&units, Map::<String, (i64, RecordBatch)>::new, |last, batch| {
            let names = names_of(batch.column_by_name(&meta).ok_or("no meta in the scan")?)?;
            let names = names.as_string_view();
            let times = time_values(batch.column_by_name(&schema.time).ok_or("no time in the scan")?)?;
            for (row, time) in times.iter().enumerate() {
                // Rows of a series are in the order of time within a batch: the last of a run is its newest.
                if row + 1 < batch.num_rows() && names.value(row + 1) == names.value(row) {
                    continue;
                }
                match last.get_mut(names.value(row)) {
                    Some(known) if known.0 >= *time => {}
                    Some(known) => *known = (*time, batch.slice(row, 1)),
                    None => drop(last.insert(names.value(row).to_owned(), (*time, batch.slice(row, 1)))),
                }
            }
            Ok(())
        })?;
        let mut found = Map::new();
        for (name, row) in parts.into_iter().flatten() {
            let newest = found.entry(name).or_insert_with(|| row.clone());
            if newest.0 < row.0 {
                *newest = row;
            }
        }
        if found.len() >= series || width > end.saturating_sub(i64::MIN) / 32 {
            return Ok(found.len());
        }
        width = width.saturating_mul(24);
    }
}
