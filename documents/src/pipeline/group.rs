//! $group.

use super::accumulator::{Accumulator, Kind};
use super::{Result, too_much};
use crate::expression::{Expression, Value};
use crate::value_key;
use bson::raw::{CString, RawBson, RawDocument, RawDocumentBuf, cstr};
use std::collections::BTreeMap;

/// What a `$group` asks for.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) id: Expression,
    pub(super) fields: Vec<(CString, Kind, Expression)>,
}

impl Group {
    /// The top-level fields that it needs, if these are paths and constants alone.
    pub(super) fn needed_fields(&self) -> Option<Vec<String>> {
        let all = std::iter::once(&self.id).chain(self.fields.iter().map(|(_, _, expression)| expression));
        let mut needed = Vec::new();
        for expression in all {
            match (expression.constant(), expression.as_path().and_then(<[String]>::first)) {
                (Some(_), _) => {}
                (None, Some(field)) => needed.push(field.clone()),
                (None, None) => return None,
            }
        }
        Some(needed)
    }
}

/// The groups so far, in the order of their `_id`.
#[derive(Debug)]
pub(super) struct Grouping {
    groups: BTreeMap<Vec<u8>, (RawBson, Vec<Accumulator>)>,
    bytes: usize,
}

impl Grouping {
    pub(super) fn new(_: &Group) -> Grouping {
        Grouping { groups: BTreeMap::new(), bytes: 0 }
    }

    pub(super) fn take(&mut self, group: &Group, document: &RawDocument, now_ms: i64, bytes_max: usize) -> Result<()> {
        let id: Value = group.id.evaluate(document, now_ms)?;
        let id = id.unwrap_or(RawBson::Null);
        let key = value_key(id.as_raw_bson_ref());
        let bytes = &mut self.bytes;
        let (_, accumulators) = self.groups.entry(key).or_insert_with_key(|key| {
            *bytes += key.len() * 2 + 64 + group.fields.len() * size_of::<Accumulator>();
            (id, group.fields.iter().map(|(_, kind, _)| Accumulator::new(*kind)).collect())
        });
        for ((_, _, expression), accumulator) in group.fields.iter().zip(accumulators) {
            *bytes += accumulator.take(expression.evaluate(document, now_ms)?)?;
        }
        if *bytes > bytes_max { Err(too_much("$group", bytes_max)) } else { Ok(()) }
    }

    pub(super) fn finish(self, group: &Group) -> Result<Vec<RawDocumentBuf>> {
        let mut documents = Vec::with_capacity(self.groups.len());
        for (id, accumulators) in self.groups.into_values() {
            let mut document = RawDocumentBuf::new();
            document.append(cstr!("_id"), id);
            for ((name, _, _), accumulator) in group.fields.iter().zip(accumulators) {
                document.append(name, accumulator.finish()?);
            }
            documents.push(document);
        }
        Ok(documents)
    }
}
