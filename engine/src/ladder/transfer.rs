//! Bins on their way out of a database and into another one, as a dump and a restore carry them.

use super::alter::{opened, stored_bins};
use super::decay::Pieces;
use super::fold::add_open;
use crate::db::Collection;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::manifest::Op;
use crate::snapshot::CollectionSnapshot;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema};
use ebbtide_buckets::{Bins, Chunk, Schema, StoredField};
use ebbtide_ttl::{Code, Timestamp};
use std::sync::Arc;

/// What a dump has of a rung.
#[derive(Debug, Clone)]
pub struct DumpedRung {
    /// The width of its bins.
    pub step_seconds: i64,
    /// Bins that end here or earlier may have lost something and are not shown.
    pub gone_before: Option<Timestamp>,
    /// The columns of `bins`.
    pub schema: Schema,
    /// The states of bins, without what the measurements that a dump has add to them.
    pub bins: RecordBatch,
}

impl CollectionSnapshot {
    /// What a dump has of the rungs besides the measurements that it has: the visible ones and [`CollectionSnapshot::retained`].
    ///
    /// # Errors
    /// Damage in a segment.
    pub fn dumped_rungs(&self) -> Result<Vec<DumpedRung>> {
        let Some(ladder) = &self.state.ladder else { return Ok(Vec::new()) };
        let precision = self.options().precision;
        let mut lost: Option<Bins> = None;
        let mut dumped = Vec::new();
        for (record, rung) in ladder.rungs.iter().zip(self.rungs.iter()) {
            let mut bins = stored_bins((ladder, record, rung), &self.state, record.rung.step_seconds, true)?;
            // Those of the finest rung merge into all others.
            let lost = match &lost {
                Some(lost) => lost,
                None => lost.insert(self.not_dumped(bins.empty())?),
            };
            bins.merge(lost, |_, _| true);
            bins.retain(|_, bin| !record.is_gone(bin));
            let (schema, bins) = bins.to_stored(&self.state.schema, StoredField::plain)?;
            let gone_before = record.gone_before.map(|t| Timestamp::from_units(t, precision));
            dumped.push(DumpedRung { step_seconds: record.rung.step_seconds, gone_before, schema, bins });
        }
        Ok(dumped)
    }

    /// Bins of the stored measurements that a dump does not have.
    fn not_dumped(&self, mut bins: Bins) -> Result<Bins> {
        for batch in self.unretained()? {
            let chunk = Chunk::build(batch?, &self.state.schema, self.options().bucketing.span_seconds());
            let rows: Vec<(usize, &[u32])> =
                chunk.buckets.iter().enumerate().map(|(at, bucket)| (at, bucket.rows.as_slice())).collect();
            add_open(&mut bins, &chunk, &rows)?;
        }
        Ok(bins)
    }
}

impl Collection {
    /// Adds bins of [`CollectionSnapshot::dumped_rungs`] to the rung of this step, as a restore does.
    ///
    /// # Durability
    /// When this returns, they survive a power cut. At no time is there a part of them.
    /// # Errors
    /// [`Code::BadValue`] if there is no such rung, or the columns are not those of bins.
    pub fn restore_bins(&self, step_seconds: i64, gone_before: Option<Timestamp>, bins: &RecordBatch) -> Result<()> {
        restore(&self.engine, self.name(), (step_seconds, gone_before), bins)
    }
}

fn restore(
    engine: &Engine,
    name: &str,
    (step_seconds, gone_before): (i64, Option<Timestamp>),
    batch: &RecordBatch,
) -> Result<()> {
    let _maintenance = engine.maintenance.lock();
    engine.check_writable()?;
    let snapshot = engine.snapshot().collection(name)?;
    let collection = &snapshot.state;
    let mut ladder = collection.ladder.as_deref().cloned();
    let records = ladder.iter_mut().flat_map(|ladder| &mut ladder.rungs).zip(snapshot.rungs.iter());
    let Some((record, rung)) = { records }.find(|(record, _)| record.rung.step_seconds == step_seconds) else {
        let what = format!("collection '{name}' has no rung of {step_seconds} s");
        return Err(Error::new(Code::BadValue, what));
    };
    let precision = collection.options.precision;
    if let Some(gone) = gone_before {
        record.lose(gone.to_units_saturating(precision));
    }
    let (record, ladder) = (*record, ladder.clone().ok_or_else(|| Error::internal("the ladder is gone"))?);
    let all_cores = engine.maintenance.may_use_all_cores();
    let mut bins = Bins::new(record.step(precision), ladder.fields(&collection.schema)).on_all_cores(all_cores);
    let of_parquet = |error| Error::new(Code::BadValue, format!("these are no bins: {error}"));
    bins.add_stored(&plain(batch)?, &collection.schema, StoredField::plain).map_err(of_parquet)?;
    bins.retain(|_, bin| !record.is_gone(bin));
    let mut pieces = Pieces::default();
    if !bins.is_empty() {
        pieces.write(engine, rung, &bins, (collection, &ladder))?;
    }
    let rungs: Vec<u64> = pieces.rungs().collect();
    let ops = vec![Op::SetLadder { collection: collection.id, ladder: Some(ladder) }];
    pieces.commit(engine, ops)?;
    opened(engine, &rungs)
}

/// Texts in the form that bins have.
fn plain(batch: &RecordBatch) -> Result<RecordBatch> {
    let plain = |(field, column): (&Arc<Field>, &ArrayRef)| -> Result<(Field, ArrayRef)> {
        let column = match column.data_type() {
            DataType::Utf8 | DataType::LargeUtf8 => cast(column, &DataType::Utf8View)?,
            _ => column.clone(),
        };
        Ok((Field::new(field.name(), column.data_type().clone(), true), column))
    };
    let columns = batch.schema_ref().fields().iter().zip(batch.columns()).map(plain).collect::<Result<Vec<_>>>()?;
    let (fields, columns): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
    Ok(RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns)?)
}
