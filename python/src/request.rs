//! Reads without SQL: which measurements, from Python's arguments.

use crate::errors;
use crate::values::{instant_of, json_of_py};
use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::error::ArrowError;
use ebbtide::buckets::value_at;
use ebbtide::{Aggregate, AggregateGuard, CollectionSnapshot, MetaFilter, TimeRange, json};
use ebbtide_ttl::{Filter, Precision, Timestamp};
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Which measurements are read.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Which<'py> {
    start: Option<Bound<'py, PyAny>>,
    end: Option<Bound<'py, PyAny>>,
    r#where: Option<Bound<'py, PyAny>>,
}

impl Which<'_> {
    /// From `start` on, and before `end`.
    ///
    /// # Errors
    /// TypeError for what is no instant.
    pub(crate) fn times(&self) -> PyResult<TimeRange> {
        let start = self.start.as_ref().map(instant_of).transpose()?;
        let end = self.end.as_ref().map(instant_of).transpose()?;
        Ok(TimeRange::new(start, end.map(|end| Timestamp::from_nanos(end.nanos() - 1))))
    }

    /// The metas that `where` selects.
    ///
    /// # Errors
    /// For a filter that is wrong, or about more than the meta.
    pub(crate) fn metas(&self, collection: &CollectionSnapshot) -> PyResult<Option<Arc<dyn MetaFilter>>> {
        let Some(given) = &self.r#where else { return Ok(None) };
        let py = given.py();
        let filter = json::value_of(&json_of_py(given)?).map_err(|error| errors::of_engine(py, &error))?;
        let filter = Filter::parse_query(&filter).map_err(|error| errors::of_engine(py, &error.into()))?;
        match collection.options().meta_field.as_deref() {
            Some(meta) if filter.is_meta_only(meta) => Ok(Some(Arc::new(Metas(filter)))),
            Some(meta) => Err(errors::invalid(py, format!("'where' is about the meta field '{meta}' alone: use SQL"))),
            None => Err(errors::invalid(py, "'where' selects metas, and the collection has no meta field")),
        }
    }
}

/// Metas that match a filter.
#[derive(Debug)]
struct Metas(Filter);

impl MetaFilter for Metas {
    fn select(&self, metas: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        Ok((0..metas.len()).map(|row| Some(self.0.matches_meta(&value_at(metas.as_ref(), row)))).collect())
    }
}

/// Which aggregates, in which groups.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Groups {
    /// Fields, each with the name of an aggregate.
    aggregates: Vec<(String, String)>,
    pub(crate) by_meta: bool,
    width_nanos: Option<i128>,
}

impl Groups {
    /// The aggregates.
    ///
    /// # Errors
    /// For a name that is none.
    pub(crate) fn aggregates(&self, py: Python<'_>) -> PyResult<Vec<Aggregate>> {
        self.aggregates.iter().map(|(field, function)| aggregate_of(py, field, function)).collect()
    }

    /// The width of a group in units of a collection.
    ///
    /// # Errors
    /// For a width that is no multiple of a unit.
    pub(crate) fn width(&self, py: Python<'_>, precision: Precision) -> PyResult<Option<Duration>> {
        let Some(nanos) = self.width_nanos else { return Ok(None) };
        match i64::try_from(nanos / precision.nanos()) {
            Ok(width) if nanos % precision.nanos() == 0 => Ok(Some(precision.duration(width))),
            _ => {
                let what =
                    format!("'every' is no multiple of the unit of the collection's times, {}", precision.name());
                Err(errors::invalid(py, what))
            }
        }
    }
}

fn aggregate_of(py: Python<'_>, field: &str, function: &str) -> PyResult<Aggregate> {
    let of = field.to_owned();
    Ok(match (function, field) {
        ("count", "*") => Aggregate::Rows,
        ("count", _) => Aggregate::Count(of),
        ("sum", _) => Aggregate::Sum(of),
        ("avg", _) => Aggregate::Avg(of),
        ("min", _) => Aggregate::Min(of),
        ("max", _) => Aggregate::Max(of),
        ("first", _) => Aggregate::First(of),
        ("last", _) => Aggregate::Last(of),
        _ => {
            let known = "the aggregates are count, sum, avg, min, max, first and last";
            return Err(errors::invalid(py, format!("there is no aggregate '{function}': {known}")));
        }
    })
}

/// Cancels an aggregation that nobody waits for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waited(Arc<AtomicBool>);

impl Waited {
    /// Cancels it.
    pub(crate) fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl AggregateGuard for Waited {
    fn may_go_on(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}
