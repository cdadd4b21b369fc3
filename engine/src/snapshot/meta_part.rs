//! The part of a filter that is about the meta.

use super::MetaFilter;
use arrow::array::{ArrayRef, BooleanArray};
use arrow::error::ArrowError;
use ebbtide_buckets::{FieldType, Schema, value_at};
use ebbtide_ttl::{Filter, Value};

/// The conditions of a filter that mention only the meta, asked once per distinct meta.
#[derive(Debug)]
pub struct MetaPart {
    filter: Filter,
    candidates: Vec<(Vec<String>, Vec<Value>)>,
}

impl MetaPart {
    /// That of a filter on a collection with this schema; `None` if it has no such condition.
    #[must_use]
    pub fn of(filter: &Filter, schema: &Schema) -> Option<MetaPart> {
        let meta = schema.meta.as_deref()?;
        let mut candidates = filter.candidates(meta);
        // A list that has the wanted value is not the wanted value.
        let is_list = matches!(schema.meta_type, Some(FieldType::List(_)));
        candidates.retain(|(path, values)| values.iter().all(is_looked_up) && !(path.is_empty() && is_list));
        let filter = filter.meta_part(meta);
        (!filter.is_everything()).then_some(MetaPart { filter, candidates })
    }
}

/// Whether metas are found by such a value: one that is stored as it is given.
fn is_looked_up(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Int(_) | Value::Bool(_))
}

impl MetaFilter for MetaPart {
    fn select(&self, metas: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        Ok((0..metas.len()).map(|at| Some(self.filter.matches_meta(&value_at(metas.as_ref(), at)))).collect())
    }

    fn candidates(&self) -> &[(Vec<String>, Vec<Value>)] {
        &self.candidates
    }
}
