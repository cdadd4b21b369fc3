//! A collection: inserts, deletes, and views of it.

use crate::batch_id::BatchId;
use crate::delete::{FilterPredicate, RowPredicate};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::insert::out_of_range;
use crate::snapshot::CollectionSnapshot;
use arrow::array::RecordBatch;
use ebbtide_buckets::{Accepted, Schema, batch_from_arrow, batch_from_documents};
#[cfg(doc)]
use ebbtide_ttl::Code;
use ebbtide_ttl::{Filter, OutOfRange, Timestamp, Value, in_range};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A collection of an open database.
#[derive(Debug, Clone)]
pub struct Collection {
    engine: Arc<Engine>,
    name: Arc<str>,
}

/// Documents that cannot be stored behind those before them, found in one go.
fn bad_documents(documents: &[Value], schema: &Schema) -> Result<Vec<(usize, Error)>> {
    let mut schema = schema.clone();
    let mut bad = Vec::new();
    let mut at = 0;
    while let Err(error) = batch_from_documents(&documents[at..], &schema) {
        let index = at + error.index;
        schema = batch_from_documents(&documents[at..index], &schema)?.schema;
        bad.push((index, Error::from(error).renumbered(index)));
        at = index + 1;
    }
    Ok(bad)
}

/// Documents whose time `outOfRange: reject` refuses.
fn out_of_range_documents(documents: &[Value], schema: &Schema) -> BTreeMap<usize, Error> {
    let precision = schema.precision;
    let refused = |(index, document): (usize, &Value)| match document.get(&schema.time) {
        Some(Value::Date(t)) if !in_range(t.to_units_saturating(precision), precision) => {
            Some((index, out_of_range(index, Timestamp::from_units(t.to_units(precision)?, precision))))
        }
        _ => None,
    };
    documents.iter().enumerate().filter_map(refused).collect()
}

/// What a lenient insert did.
#[derive(Debug, Clone, Default)]
pub struct LenientReply {
    /// Measurements stored.
    pub stored: u64,
    /// Those that were not, by index, with the reason.
    pub errors: Vec<(usize, Error)>,
}

impl Collection {
    pub(super) fn new(engine: Arc<Engine>, name: &str) -> Collection {
        Collection { engine, name: name.into() }
    }

    /// The collection's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A view of the collection as it is now, at the clock's instant.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`] if it was dropped.
    pub fn snapshot(&self) -> Result<CollectionSnapshot> {
        self.engine.snapshot().collection(&self.name)
    }

    /// Stores a batch of measurements, all or none. This is the fast door: columns stay columns.
    ///
    /// # Durability
    /// When this returns, the batch survives a power cut (with [`crate::Durability::Sync`]).
    /// # Errors
    /// [`Code::BadValue`] for a measurement without a time, [`Code::TypeMismatch`] for a field of another type, both
    /// with [`Error::index`]; [`Code::OutOfDiskSpace`]: nothing was stored; [`Code::NotWritable`]: writing has stopped,
    /// and whether the batch is stored shows when the database is opened again.
    pub fn insert(&self, batch: &RecordBatch) -> Result<u64> {
        self.insert_batch(batch, None)
    }

    /// Like [`Collection::insert`], for a program that has to know after a crash whether this batch was stored:
    /// [`CollectionSnapshot::last_batch`] then tells. The id is as durable as the rows, and outlives them: it stays when
    /// they are deleted or swept. Only the last id of a collection is kept, so one program at a time gives them. A batch
    /// without rows stores nothing, its id neither.
    ///
    /// # Errors
    /// As for [`Collection::insert`].
    pub fn insert_with_id(&self, batch: &RecordBatch, id: BatchId) -> Result<u64> {
        self.insert_batch(batch, Some(id))
    }

    fn insert_batch(&self, batch: &RecordBatch, id: Option<BatchId>) -> Result<u64> {
        self.insert_rows(batch.num_rows(), id, &|schema, rows| Ok(batch_from_arrow(&batch.slice(0, rows), schema)?))
    }

    /// Stores documents, all or none.
    ///
    /// # Errors
    /// As for [`Collection::insert`].
    pub fn insert_documents(&self, documents: &[Value]) -> Result<u64> {
        let build = |schema: &Schema, rows: usize| Ok(batch_from_documents(&documents[..rows], schema)?);
        self.insert_rows(documents.len(), None, &build)
    }

    /// Stores the first `rows` measurements that `build` makes a batch of.
    fn insert_rows(
        &self,
        rows: usize,
        id: Option<BatchId>,
        build: &dyn Fn(&Schema, usize) -> Result<Accepted>,
    ) -> Result<u64> {
        let stored = self.engine.insert(&self.name, id, &|schema| build(schema, rows));
        stored.map_err(|error| self.first_fault(error, build))
    }

    /// The error about the first bad measurement. Checks follow each other, each over all measurements, so one before the
    /// one that failed may fail a later check.
    fn first_fault(&self, mut error: Error, build: &dyn Fn(&Schema, usize) -> Result<Accepted>) -> Error {
        while let Some(before) = error.index().filter(|index| *index > 0) {
            match self.engine.check(&self.name, &|schema| build(schema, before)) {
                Err(earlier) if earlier.index().is_some_and(|index| index < before) => error = earlier,
                _ => break,
            }
        }
        error
    }

    /// The first of `documents` that [`Collection::insert_documents`] would refuse, with the reason; else `error`, which is
    /// about one behind them.
    pub(crate) fn fault_before(&self, documents: &[Value], error: Error) -> Error {
        self.first_fault(error.with_index(documents.len()), &|schema, rows| {
            Ok(batch_from_documents(&documents[..rows], schema)?)
        })
    }

    /// Stores anything that serialises to documents, all or none. Times are written with [`crate::json::date`].
    ///
    /// # Errors
    /// As for [`Collection::insert`].
    pub fn insert_serialized<T: serde::Serialize>(&self, items: &[T]) -> Result<u64> {
        let documents = items.iter().map(crate::json::to_value).collect::<Result<Vec<_>>>()?;
        self.insert_documents(&documents)
    }

    /// Stores the documents that can be stored, in one atomic batch, and says why the others cannot.
    ///
    /// # Errors
    /// Only what concerns the insert as a whole, as for [`Collection::insert`]; nothing is stored then.
    pub fn insert_documents_lenient(&self, documents: &[Value]) -> Result<LenientReply> {
        let collection = self.snapshot()?;
        let mut refused: BTreeMap<usize, Error> = match collection.options().out_of_range {
            OutOfRange::Reject => out_of_range_documents(documents, collection.schema()),
            _ => BTreeMap::new(),
        };
        // Seldom more than once: what only all documents together show, or what is stored. A refused document gives no
        // field its type, so each round judges the others anew.
        loop {
            let mut errors = refused.clone();
            let left: Vec<usize> = (0..documents.len()).filter(|index| !refused.contains_key(index)).collect();
            let all: Vec<Value> = left.iter().map(|i| documents[*i].clone()).collect();
            for (at, error) in bad_documents(&all, collection.schema())? {
                errors.insert(left[at], error.renumbered(left[at]));
            }
            let left: Vec<usize> = left.into_iter().filter(|index| !errors.contains_key(index)).collect();
            let kept: Vec<Value> = left.iter().map(|i| documents[*i].clone()).collect();
            match self.insert_documents(&kept) {
                Ok(stored) => return Ok(LenientReply { stored, errors: errors.into_iter().collect() }),
                Err(error) => match error.index().and_then(|at| left.get(at)) {
                    Some(index) => {
                        refused.insert(*index, error.renumbered(*index));
                    }
                    None => return Err(error),
                },
            }
        }
    }

    /// Deletes every stored measurement that matches, hidden ones too; returns how many of them were visible.
    ///
    /// # Durability
    /// When this returns, they do not come back.
    /// # Errors
    /// [`Code::NamespaceNotFound`]; damage in a segment: nothing was deleted.
    pub fn delete(&self, filter: &Filter) -> Result<u64> {
        let time_field = self.snapshot()?.options().time_field.clone();
        self.delete_where(&FilterPredicate { filter, time_field: &time_field })
    }

    /// Like [`Collection::delete`], with any predicate over rows.
    ///
    /// # Errors
    /// As for [`Collection::delete`], and what the predicate says.
    pub fn delete_where(&self, predicate: &dyn RowPredicate) -> Result<u64> {
        crate::delete::delete(&self.engine, &self.name, predicate)
    }
}
