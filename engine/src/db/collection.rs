//! A collection: inserts, deletes and snapshots.

use crate::batch_id::BatchId;
use crate::db::raw::RawMeasurement;
use crate::delete::rows::RowPredicate;
use crate::delete::{Deleted, FilterPredicate};
use crate::documents::pace::Stop;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::insert::out_of_range;
use crate::snapshot::CollectionSnapshot;
use arrow::array::RecordBatch;
use ebbtide_buckets::{
    Accepted, Cell, Measurement, Schema, batch_from_arrow, batch_from_documents, batch_from_measurements,
};
use ebbtide_documents::bson::RawDocument;
use ebbtide_ttl::{Filter, OutOfRange, Timestamp, Value, in_range};
use std::collections::BTreeMap;
use std::sync::Arc;
#[cfg(doc)]
use {crate::options::CollectionOptions, ebbtide_ttl::Code};

/// A collection of an open database.
///
/// ```
/// use ebbtide::ttl::{Filter, Timestamp, Value};
/// use ebbtide::{CollectionOptions, Database};
///
/// # let folder = tempfile::tempdir()?;
/// # let db = Database::open(folder.path().join("db"))?;
/// let weather = db.create_collection("weather", CollectionOptions::new("t").meta_field("station"))?;
/// let reading = |minute: i64, station: &str, temp: f64| {
///     let t = Timestamp::from_millis(1_700_000_000_000).plus_seconds(60 * minute);
///     Value::Object(vec![
///         ("t".into(), Value::Date(t)),
///         ("station".into(), Value::from(station)),
///         ("temp".into(), Value::Double(temp)),
///     ])
/// };
/// weather.insert_documents(&[reading(0, "roof", 21.5), reading(1, "roof", 21.7), reading(0, "cellar", 12.0)])?;
/// assert_eq!(weather.delete(&Filter::is_in("station", vec![Value::from("cellar")]))?, 1);
/// assert_eq!(weather.snapshot()?.count()?, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Collection {
    pub(crate) engine: Arc<Engine>,
    name: Arc<str>,
    stop: Stop,
}

/// The documents that cannot be stored after the valid ones before them, with the reasons.
fn bad_documents<'a>(documents: &[impl Measurement<'a>], schema: &Schema) -> Result<Vec<(usize, Error)>> {
    let mut schema = schema.clone();
    let mut bad = Vec::new();
    let mut at = 0;
    while let Err(error) = batch_from_measurements(&documents[at..], &schema) {
        let index = at + error.index;
        schema = batch_from_measurements(&documents[at..index], &schema)?.schema;
        bad.push((index, Error::from(error).renumbered(index)));
        at = index + 1;
    }
    Ok(bad)
}

/// Documents that `outOfRange: reject` refuses.
fn out_of_range_documents<'a>(documents: &[impl Measurement<'a>], schema: &Schema) -> BTreeMap<usize, Error> {
    let precision = schema.precision;
    let mut refused = BTreeMap::new();
    for (index, document) in documents.iter().enumerate() {
        let Ok(members) = document.members() else { continue };
        // What cannot be read is refused for that.
        let Ok(members) = members.collect::<std::result::Result<Vec<_>, _>>() else { continue };
        let time = members.iter().find(|(name, _)| *name == schema.time);
        if let Some((_, Cell::Date(t))) = time
            && !in_range(t.to_units_saturating(precision), precision)
            && let Some(units) = t.to_units(precision)
        {
            refused.insert(index, out_of_range(index, Timestamp::from_units(units, precision)));
        }
    }
    refused
}

/// The result of a lenient insert.
#[derive(Debug, Clone, Default)]
pub struct LenientReply {
    /// Number of measurements stored.
    pub stored: u64,
    /// Measurements that were not stored, by index, with the reason.
    pub errors: Vec<(usize, Error)>,
}

impl Collection {
    pub(super) fn new(engine: Arc<Engine>, name: &str) -> Collection {
        Collection { engine, name: name.into(), stop: Stop::default() }
    }

    /// The collection's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same, for inserts and deletes that may be stopped until they are committed: then nothing of them is stored.
    #[must_use]
    pub fn with_stop(self, stop: Stop) -> Collection {
        Collection { stop, ..self }
    }

    /// A view of the collection as it is now, at the clock's instant.
    ///
    /// # Errors
    /// [`Code::NamespaceNotFound`] if it was dropped.
    pub fn snapshot(&self) -> Result<CollectionSnapshot> {
        self.engine.snapshot().collection(&self.name)
    }

    /// Stores a batch of measurements, all or none, and returns their number. This is the fastest way to insert, since columns
    /// stay columns.
    ///
    /// # Durability
    /// When this returns, the batch survives a power cut (with [`crate::Durability::Sync`]).
    /// # Errors
    /// [`Code::BadValue`] for a measurement without a time, [`Code::TypeMismatch`] for a field of another type, both
    /// with [`Error::index`]; [`Code::OutOfDiskSpace`] if nothing was stored for lack of space; [`Code::NotWritable`] if
    /// writes are disabled: whether the batch was stored is known when the database is opened again.
    pub fn insert(&self, batch: &RecordBatch) -> Result<u64> {
        self.insert_batch(batch, None)
    }

    /// Like [`Collection::insert`], for a program that has to know after a crash whether this batch was stored:
    /// [`CollectionSnapshot::last_batch`] returns the last id. The id is as durable as the rows, and is kept when they are
    /// deleted or swept. A collection keeps only its last id, so only one program at a time should use ids. A batch without
    /// rows stores nothing, and no id.
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
        self.insert_measurements(&documents.iter().collect::<Vec<_>>())
    }

    /// Stores documents of BSON, all or none, without making values of them: what is in a document goes into the columns as it
    /// is read. An ObjectId as `_id` is stored if the collection's [`CollectionOptions::ids`] say so.
    ///
    /// # Errors
    /// As for [`Collection::insert`], and [`Code::BadValue`] for a type of BSON that no column has.
    pub fn insert_bson(&self, documents: &[&RawDocument]) -> Result<u64> {
        self.insert_measurements(&self.raw(documents)?)
    }

    /// Like [`Collection::insert_documents_lenient`], for documents of BSON.
    ///
    /// # Errors
    /// As for [`Collection::insert_documents_lenient`].
    pub fn insert_bson_lenient(&self, documents: &[&RawDocument]) -> Result<LenientReply> {
        self.insert_lenient(&self.raw(documents)?)
    }

    fn raw<'a>(&self, documents: &[&'a RawDocument]) -> Result<Vec<RawMeasurement<'a>>> {
        let ids = self.engine.state.read().collection(&self.name)?.options.ids;
        Ok(documents.iter().map(|document| RawMeasurement { document, ids }).collect())
    }

    fn insert_measurements<'a>(&self, documents: &[impl Measurement<'a>]) -> Result<u64> {
        let build = |schema: &Schema, rows: usize| Ok(batch_from_measurements(&documents[..rows], schema)?);
        self.insert_rows(documents.len(), None, &build)
    }

    /// Stores the first `rows` measurements, which `build` converts to a batch.
    fn insert_rows(
        &self,
        rows: usize,
        id: Option<BatchId>,
        build: &dyn Fn(&Schema, usize) -> Result<Accepted>,
    ) -> Result<u64> {
        let stored = self.engine.insert(&self.name, id, &|schema| build(schema, rows), &self.stop);
        stored.map_err(|error| self.first_fault(error, build))
    }

    /// The error about the first bad measurement. Each check examines all measurements before the next check begins, so a
    /// measurement before the reported one may fail a later check.
    pub(super) fn first_fault(&self, mut error: Error, build: &dyn Fn(&Schema, usize) -> Result<Accepted>) -> Error {
        while let Some(before) = error.index().filter(|index| *index > 0) {
            match self.engine.check(&self.name, &|schema| build(schema, before)) {
                Err(earlier) if earlier.index().is_some_and(|index| index < before) => error = earlier,
                _ => break,
            }
        }
        error
    }

    /// The error about the first of `documents` that [`Collection::insert_documents`] would refuse; otherwise `error`, which is
    /// about a document after them.
    pub(crate) fn fault_before(&self, documents: &[Value], error: Error) -> Error {
        self.first_fault(error.with_index(documents.len()), &|schema, rows| {
            Ok(batch_from_documents(&documents[..rows], schema)?)
        })
    }

    /// Whether an insert would take these measurements as the schema is now. Nothing is stored.
    ///
    /// # Errors
    /// As for [`Collection::insert`], but those about the disk.
    pub fn check_measurements<'a>(&self, measurements: &[impl Measurement<'a>]) -> Result<()> {
        let build = |schema: &Schema, rows: usize| Ok(batch_from_measurements(&measurements[..rows], schema)?);
        let checked = self.engine.check(&self.name, &|schema| build(schema, measurements.len()));
        checked.map_err(|error| self.first_fault(error, &build))
    }

    /// Stores values that serialize to documents, all or none. Annotate times with [`crate::json::date`].
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
    /// Only errors that concern the insert as a whole, as for [`Collection::insert`]; nothing is stored then.
    pub fn insert_documents_lenient(&self, documents: &[Value]) -> Result<LenientReply> {
        self.insert_lenient(&documents.iter().collect::<Vec<_>>())
    }

    /// Which of these measurements a lenient insert would not store as the schema is now, by index, with the reason. Nothing is
    /// stored.
    ///
    /// # Errors
    /// As for [`Collection::insert_documents_lenient`], but those about the disk.
    pub fn check_measurements_lenient<'a>(&self, measurements: &[impl Measurement<'a>]) -> Result<Vec<(usize, Error)>> {
        let checked = self.store_lenient(measurements, &|some| self.check_measurements(some).map(|()| 0));
        Ok(checked?.errors)
    }

    fn insert_lenient<'a, M: Measurement<'a>>(&self, documents: &[M]) -> Result<LenientReply> {
        self.store_lenient(documents, &|documents| self.insert_measurements(documents))
    }

    fn store_lenient<'a, M: Measurement<'a>>(
        &self,
        documents: &[M],
        store: &dyn Fn(&[M]) -> Result<u64>,
    ) -> Result<LenientReply> {
        match store(documents) {
            Ok(stored) => return Ok(LenientReply { stored, errors: Vec::new() }),
            Err(error) if error.kind() != ErrorKind::Invalid => return Err(error),
            Err(_) => {}
        }
        let collection = self.snapshot()?;
        let mut refused: BTreeMap<usize, Error> = match collection.options().out_of_range {
            OutOfRange::Reject => out_of_range_documents(documents, collection.schema()),
            _ => BTreeMap::new(),
        };
        // Rarely runs more than once: for errors that depend on all documents together, or on what is stored. A refused
        // document does not determine the type of a field, so each round checks the others again.
        loop {
            let mut errors = refused.clone();
            let left: Vec<usize> = (0..documents.len()).filter(|index| !refused.contains_key(index)).collect();
            let all: Vec<M> = left.iter().map(|i| documents[*i]).collect();
            for (at, error) in bad_documents(&all, collection.schema())? {
                errors.insert(left[at], error.renumbered(left[at]));
            }
            let left: Vec<usize> = left.into_iter().filter(|index| !errors.contains_key(index)).collect();
            let kept: Vec<M> = left.iter().map(|i| documents[*i]).collect();
            match store(&kept) {
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
    /// When this returns, the delete survives a power cut.
    /// # Errors
    /// [`Code::NamespaceNotFound`]; damage in a segment: nothing was deleted.
    pub fn delete(&self, filter: &Filter) -> Result<u64> {
        self.delete_with_bins(filter).map(|deleted| deleted.measurements)
    }

    /// Like [`Collection::delete`]; says also which bins of the collection's ladder stay. A filter on meta and time alone takes out
    /// bins of measurements that have decayed, as far as it covers them; a coarser bin that it cuts is made anew from finer ones
    /// where these have all of it.
    ///
    /// # Errors
    /// As for [`Collection::delete`].
    pub fn delete_with_bins(&self, filter: &Filter) -> Result<Deleted> {
        self.delete_in(filter, true)
    }

    /// Like [`Collection::delete`], but what is deleted decays into the rungs of the collection's ladder, with the same edit, and bins
    /// stay as they are.
    ///
    /// # Errors
    /// As for [`Collection::delete`].
    pub fn delete_into_ladder(&self, filter: &Filter) -> Result<u64> {
        self.delete_in(filter, false).map(|deleted| deleted.measurements)
    }

    fn delete_in(&self, filter: &Filter, ladder: bool) -> Result<Deleted> {
        let snapshot = self.snapshot()?;
        let (time_field, meta_field) = (&snapshot.options().time_field, snapshot.options().meta_field.as_deref());
        let predicate = FilterPredicate { filter, time_field, meta_field };
        crate::delete::delete(&self.engine, &self.name, &predicate, ladder, &self.stop)
    }

    /// Like [`Collection::delete_with_bins`], with any predicate over rows.
    ///
    /// # Errors
    /// As for [`Collection::delete`], and errors of the predicate.
    pub fn delete_where(&self, predicate: &dyn RowPredicate) -> Result<Deleted> {
        crate::delete::delete(&self.engine, &self.name, predicate, true, &self.stop)
    }
}
