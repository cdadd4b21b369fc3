//! Checks whether whole-number fields may become floating point: no stored number may lose precision.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::snapshot::ScanRequest;
use arrow::array::RecordBatch;
use ebbtide_buckets::{PATH_SEPARATOR, value_at};
use ebbtide_ttl::{Code, Value, exact_int, int_fits_double};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Refuses to widen fields that hold a whole number which would lose precision as floating point. `incoming` is the batch that
/// contains the floating-point numbers. Segments in `looked` are skipped; those that are read are added to it.
pub(crate) fn check_widening(
    engine: &Engine,
    name: &str,
    fields: &[String],
    incoming: &RecordBatch,
    looked: &mut BTreeSet<u64>,
) -> Result<()> {
    let mut snapshot = engine.snapshot().collection(name)?;
    let state = Arc::make_mut(&mut snapshot.state);
    Arc::make_mut(&mut state.segments).retain(|id, _| !looked.contains(id));
    for field in fields {
        let top = field.split(PATH_SEPARATOR).next().unwrap_or(field).to_owned();
        // The insert that introduces the field may still be queued: then nothing stored has it.
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
