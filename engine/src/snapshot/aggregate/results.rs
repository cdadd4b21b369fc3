//! The result of an aggregation, made from the states of its groups.

use super::groups::{Shape, Table};
use super::request::{Aggregate, AggregateRequest};
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::snapshot::CollectionSnapshot;
use crate::snapshot::meta_numbers::MetaNumbers;
use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema};
use ebbtide_buckets::{FieldType, column_of_keys, to_number};
use ebbtide_ttl::{Code, Precision};
use std::sync::Arc;

/// A group: the rank of its meta, its number in time, and its place, a table and a slot in it.
type Group = (u32, i64, (u32, u32));

/// The result: groups sorted by meta and time.
pub(super) fn results(
    mut tables: Tables,
    snapshot: &CollectionSnapshot,
    request: &AggregateRequest,
    shape: &Shape,
    metas: &MetaNumbers,
) -> Result<RecordBatch> {
    let one = !request.by_meta && shape.bins.is_none();
    if one {
        tables.of(0, 0).slot(0, 0); // One row even if nothing was aggregated.
    }
    let mut order: Vec<u32> = (0..metas.keys.len()).filter_map(|meta| u32::try_from(meta).ok()).collect();
    order.sort_unstable_by(|a, b| metas.keys[*a as usize].cmp(&metas.keys[*b as usize]));
    let mut ranks: Vec<u32> = vec![0; metas.keys.len().max(1)];
    (0..).zip(&order).for_each(|(rank, meta)| ranks[*meta as usize] = rank);
    let mut groups: Vec<Group> = Vec::new();
    for (at, table) in (0..).zip(tables.all()) {
        let slots = (0..table.rows.len()).filter(|slot| one || table.rows[*slot] > 0);
        groups.extend(slots.map(|slot| {
            let (meta, group) = table.key(slot);
            (ranks[meta as usize], group, (at, to_number(slot)))
        }));
    }
    groups.sort_unstable();

    let schema = snapshot.schema();
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    if let Some(name) = schema.meta.as_ref().filter(|_| request.by_meta) {
        let column = match &schema.meta_type {
            Some(ty) => {
                let keys: Vec<_> = groups.iter().map(|(rank, ..)| order[*rank as usize] as usize).collect();
                meta_column(metas, &keys, ty, schema.precision)?
            }
            None => new_null_array(&DataType::Null, groups.len()),
        };
        fields.push(Field::new(name, column.data_type().clone(), true));
        columns.push(column);
    }
    if let Some(bins) = &shape.bins {
        let starts: Int64Array = groups.iter().map(|(_, group, _)| bins.start(*group)).collect();
        let starts = cast(&starts, &FieldType::Timestamp.arrow(schema.precision))?;
        fields.push(Field::new(&schema.time, starts.data_type().clone(), false));
        columns.push(starts);
    }
    for aggregate in &request.aggregates {
        let column = column(tables.all(), shape, aggregate, &groups)?;
        fields.push(Field::new(aggregate.name(), column.data_type().clone(), true));
        columns.push(column);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(groups.len()));
    Ok(RecordBatch::try_new_with_options(Arc::new(ArrowSchema::new(fields)), columns, &options)?)
}

#[expect(clippy::cast_possible_wrap, clippy::cast_precision_loss, reason = "counts; means are rounded")]
fn column(tables: &[Table], shape: &Shape, aggregate: &Aggregate, groups: &[Group]) -> Result<ArrayRef> {
    let slots = || groups.iter().map(|(_, _, (table, slot))| (&tables[*table as usize], *slot as usize));
    let Some(name) = aggregate.field() else {
        return Ok(Arc::new(slots().map(|(table, slot)| Some(table.rows[slot] as i64)).collect::<Int64Array>()));
    };
    let at = shape.fields.iter().position(|f| f.name == name);
    let at = at.ok_or_else(|| Error::internal("an aggregate of a field that was not read"))?;
    let int = shape.fields[at].int;
    if let Aggregate::First(_) | Aggregate::Last(_) = aggregate {
        let bits = slots().map(|(table, slot)| {
            let edge = table.edges[at][slot];
            if matches!(aggregate, Aggregate::First(_)) { edge.first?.1 } else { edge.last?.1 }
        });
        return Ok(match int {
            true => Arc::new(bits.map(|b| b.map(u64::cast_signed)).collect::<Int64Array>()),
            false => Arc::new(bits.map(|b| b.map(f64::from_bits)).collect::<Float64Array>()),
        });
    }
    if int {
        let ints = || slots().map(|(table, slot)| table.ints(at, slot));
        let sum = |sum: i128| {
            i64::try_from(sum).map_err(|_| {
                let what = format!(
                    "the sum of field '{name}' does not fit into 64 bits: request its average, or smaller groups"
                );
                Error::new(Code::BadValue, what)
            })
        };
        return Ok(match aggregate {
            Aggregate::Min(_) => Arc::new(ints().map(|t| t.map(|t| t.min)).collect::<Int64Array>()),
            Aggregate::Max(_) => Arc::new(ints().map(|t| t.map(|t| t.max)).collect::<Int64Array>()),
            Aggregate::Sum(_) => {
                let sums = ints().map(|t| t.map(|t| sum(t.sum)).transpose());
                Arc::new(Int64Array::from(sums.collect::<Result<Vec<_>>>()?))
            }
            Aggregate::Avg(_) => {
                Arc::new(ints().map(|t| t.map(|t| t.sum as f64 / t.count as f64)).collect::<Float64Array>())
            }
            _ => Arc::new(ints().map(|t| Some(t.map_or(0, |t| t.count as i64))).collect::<Int64Array>()),
        });
    }
    let doubles = || slots().map(|(table, slot)| table.doubles(at, slot));
    Ok(match aggregate {
        Aggregate::Min(_) => Arc::new(doubles().map(|t| t.map(|t| t.min)).collect::<Float64Array>()),
        Aggregate::Max(_) => Arc::new(doubles().map(|t| t.map(|t| t.max)).collect::<Float64Array>()),
        Aggregate::Sum(_) => Arc::new(doubles().map(|t| t.map(|t| t.sum)).collect::<Float64Array>()),
        Aggregate::Avg(_) => Arc::new(doubles().map(|t| t.map(|t| t.sum / t.count as f64)).collect::<Float64Array>()),
        _ => Arc::new(doubles().map(|t| Some(t.map_or(0, |t| t.count as i64))).collect::<Int64Array>()),
    })
}

/// A column with the metas of groups, which come in runs of one meta.
fn meta_column(metas: &MetaNumbers, of_groups: &[usize], ty: &FieldType, precision: Precision) -> Result<ArrayRef> {
    let mut distinct = Vec::new();
    let mut numbers: Vec<u32> = Vec::with_capacity(of_groups.len());
    let mut before = None;
    for meta in of_groups {
        if before != Some(*meta) {
            distinct.push(metas.keys[*meta].clone());
            before = Some(*meta);
        }
        numbers.push(to_number(distinct.len() - 1));
    }
    let column = column_of_keys(&distinct, ty, precision);
    Ok(arrow::compute::take(&column, &arrow::array::UInt32Array::from(numbers), None)?)
}
