//! The ways to read a collection that no command has: aggregates, last points and listings, as JSON.

use crate::error::Result;
use crate::json::json_of;
use crate::snapshot::{Aggregate, AggregateRequest, CollectionSnapshot, RollupRequest, ScanRequest};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Decimal128Type;
use ebbtide_buckets::{FieldType, value_at};
use ebbtide_ttl::Value;
use serde_json::{Map, Value as Json, json};

/// Every aggregate of every numeric field, in one group.
pub(super) fn aggregates(collection: &CollectionSnapshot) -> Result<Json> {
    let mut aggregates = vec![Aggregate::Rows];
    for (name, ty) in &collection.schema().fields {
        if matches!(ty, FieldType::Int64 | FieldType::Double) {
            let of = |aggregate: fn(String) -> Aggregate| aggregate(name.clone());
            aggregates.extend([of(Aggregate::Count), of(Aggregate::Sum), of(Aggregate::Avg), of(Aggregate::Min)]);
            aggregates.extend([of(Aggregate::Max), of(Aggregate::First), of(Aggregate::Last)]);
        }
    }
    let groups = collection.aggregate(&AggregateRequest { aggregates, ..AggregateRequest::default() })?;
    Ok(rows(&groups).into_iter().next().unwrap_or_default())
}

/// The last measurement of every series.
pub(super) fn last_points(collection: &CollectionSnapshot) -> Result<Json> {
    Ok(Json::Array(rows(&collection.last_points(&ScanRequest::default())?)))
}

/// The bins of a width, in order of meta and time.
pub(super) fn bins(collection: &CollectionSnapshot, width_seconds: i64) -> Result<Json> {
    let request = RollupRequest { width_seconds, ..RollupRequest::default() };
    Ok(Json::Array(collection.rollup(&request)?.iter().flat_map(rows).collect()))
}

/// What listings show of a collection, its buckets and its rules.
pub(super) fn listings(collection: &CollectionSnapshot) -> Result<Json> {
    let buckets = collection.buckets()?;
    let buckets = buckets.iter().map(|b| json!({"meta": json_of(&b.meta), "measurements": b.measurements}));
    let rules = collection.rule_infos()?;
    let rules = rules.iter().map(
        |r| json!({"rule": r.rule, "buckets": r.buckets, "measurements": r.measurements, "dueBuckets": r.due_buckets}),
    );
    let measurements = collection.info()?.measurements;
    Ok(json!({
        "measurements": measurements,
        "buckets": buckets.collect::<Vec<_>>(),
        "rules": rules.collect::<Vec<_>>(),
    }))
}

fn rows(batch: &RecordBatch) -> Vec<Json> {
    let schema = batch.schema();
    let row = |row| {
        let cells = schema.fields().iter().zip(batch.columns());
        let cell = |(field, column): (&arrow::datatypes::FieldRef, &arrow::array::ArrayRef)| {
            let value = match column.as_primitive_opt::<Decimal128Type>() {
                Some(sums) if sums.is_null(row) => Value::Null,
                Some(sums) => i64::try_from(sums.value(row)).map_or_else(|_| Value::Null, Value::Int),
                None => value_at(column.as_ref(), row),
            };
            (field.name().clone(), json_of(&value))
        };
        Json::Object(cells.map(cell).collect::<Map<_, _>>())
    };
    (0..batch.num_rows()).map(row).collect()
}
