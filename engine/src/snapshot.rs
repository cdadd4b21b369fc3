//! What a reader holds: one version of everything, and one reading of the clock.
//!
//! Expiry is decided here for every read, whoever reads: a measurement at `t` is visible iff the cut-off of its meta's
//! effective rule does not hide `t`. Whether a sweep has run makes no difference in mode `exact`.

mod aggregate;
mod last;
mod listing;
mod row_filter;
mod scan;

pub use aggregate::{Aggregate, AggregateGuard, AggregateRequest, Aggregated, KnownAggregate};
pub use listing::{BucketInfo, CollectionInfo, ExpiryRow, RuleInfo, SegmentInfo};
pub use scan::{Batches, FieldBound, MetaFilter, ScanReport, ScanRequest, ScanUnit};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::options::CollectionOptions;
use crate::state::CollectionState;
use arrow::array::RecordBatch;
use ebbtide_buckets::{PATH_SEPARATOR, Schema, value_at};
use ebbtide_ttl::{Code, Cutoff, ExpiryMode, OutOfRange, RuleSet, Timestamp, Value, exact_int, int_fits_double};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An immutable view of the database at one instant of the clock.
#[derive(Debug, Clone)]
pub struct Snapshot {
    now: Timestamp,
    collections: Arc<BTreeMap<String, Arc<CollectionState>>>,
}

impl Snapshot {
    /// What is there now, at the clock's instant. The clock is read last: what a sweep dropped before had expired then.
    pub(crate) fn take_now(core: &Core) -> Self {
        let snapshot = Self::take(core, Timestamp::EPOCH);
        Snapshot { now: core.clock.now(), ..snapshot }
    }

    pub(crate) fn take(core: &Core, now: Timestamp) -> Self {
        Snapshot { now, collections: Arc::new(core.state.read().collections.clone()) }
    }

    /// The instant at which expiry is decided.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The same data as it looks at another instant; what has been dropped is gone.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Self {
        Snapshot { now, collections: self.collections.clone() }
    }

    /// Names of the collections, sorted.
    #[must_use]
    pub fn collections(&self) -> Vec<String> {
        self.collections.keys().cloned().collect()
    }

    /// One collection.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`].
    pub fn collection(&self, name: &str) -> Result<CollectionSnapshot> {
        let state = self.collections.get(name).ok_or_else(|| Error::no_collection(name))?;
        Ok(CollectionSnapshot { now: self.now, state: state.clone(), suspended: suspension(state) })
    }
}

/// How many live measurements outside of 1970..2038 suspend expiry, if any do.
pub(crate) fn suspension(state: &CollectionState) -> Option<u64> {
    if state.options.out_of_range == OutOfRange::Expire {
        return None;
    }
    Some(state.out_of_range()).filter(|count| *count > 0)
}

/// One collection in a [`Snapshot`].
#[derive(Debug, Clone)]
pub struct CollectionSnapshot {
    pub(crate) now: Timestamp,
    pub(crate) state: Arc<CollectionState>,
    pub(crate) suspended: Option<u64>,
}

impl CollectionSnapshot {
    /// The collection's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The collection's schema: time, meta and the fields that were seen so far.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.state.schema
    }

    /// The collection's options.
    #[must_use]
    pub fn options(&self) -> &CollectionOptions {
        &self.state.options
    }

    /// The collection's expiry rules.
    #[must_use]
    pub fn rules(&self) -> &RuleSet {
        &self.state.rules
    }

    /// The instant at which expiry is decided.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The number of live measurements outside of 1970..2038 that suspend expiry, if any do.
    #[must_use]
    pub fn suspended(&self) -> Option<u64> {
        self.suspended
    }

    /// What a reader must not see now of measurements under a rule of `e` seconds; of those without a rule it sees all.
    pub(crate) fn cutoff(&self, e: Option<i64>) -> Cutoff {
        match e {
            Some(e) if self.suspended.is_none() && self.state.options.expiry == ExpiryMode::Exact => {
                Cutoff::new(self.now, e, self.state.options.precision)
            }
            _ => Cutoff::NONE,
        }
    }
}

/// Refuses to widen fields of which some stored whole number would lose precision as floating point. `incoming` is what
/// brings the floating-point numbers. Segments in `looked` are taken for read; those that were read are added.
pub(crate) fn check_widening(
    core: &Core,
    name: &str,
    fields: &[String],
    incoming: &RecordBatch,
    looked: &mut BTreeSet<u64>,
) -> Result<()> {
    let mut snapshot = Snapshot::take_now(core).collection(name)?;
    let state = Arc::make_mut(&mut snapshot.state);
    Arc::make_mut(&mut state.segments).retain(|id, _| !looked.contains(id));
    for field in fields {
        let top = field.split(PATH_SEPARATOR).next().unwrap_or(field).to_owned();
        // Who brings the field's first whole numbers may still be on the way: then nothing that is stored has it.
        if snapshot.schema().arrow().index_of(&top).is_err() {
            continue;
        }
        let request = ScanRequest { projection: Some(vec![top]), include_hidden: true, ..ScanRequest::default() };
        for unit in snapshot.scan(&request)? {
            for batch in unit.read()? {
                let batch = batch?;
                let lossy = |v: &i64| !int_fits_double(*v);
                if let Some(value) = ebbtide_buckets::ints_at(batch.column(0), field).iter().find(|v| lossy(v)) {
                    let index = first_fraction(incoming, field).unwrap_or(0);
                    let field = field.replace(PATH_SEPARATOR, ".");
                    let what = format!(
                        "index {index}: field '{field}' is int64, the value is a double: the field cannot become double, \
                         since it holds {value}, which a double cannot; insert a whole number, or delete that measurement"
                    );
                    return Err(Error::new(Code::TypeMismatch, what).with_index(index));
                }
            }
        }
    }
    looked.extend(snapshot.state.segments.keys());
    Ok(())
}

/// The first row of a batch that holds a number at `path` that is not whole.
fn first_fraction(batch: &RecordBatch, path: &str) -> Option<usize> {
    fn holds_fraction(value: &Value, path: &[&str]) -> bool {
        match (value, path) {
            (Value::Array(items), path) => items.iter().any(|item| holds_fraction(item, path)),
            (Value::Double(d), []) => exact_int(*d).is_none(),
            (object, [name, rest @ ..]) => object.get(name).is_some_and(|member| holds_fraction(member, rest)),
            _ => false,
        }
    }
    let path: Vec<&str> = path.split(PATH_SEPARATOR).collect();
    let (top, rest) = path.split_first()?;
    let column = batch.column_by_name(top)?;
    (0..batch.num_rows()).find(|row| holds_fraction(&value_at(column.as_ref(), *row), rest))
}
