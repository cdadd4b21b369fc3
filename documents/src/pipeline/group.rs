//! $group.

use super::Result;
use super::memory::Memory;
use crate::expression::accumulator::{Accumulator, Kind, size_of_value};
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
    /// Adds the top-level fields that it needs; whether these are known.
    pub(super) fn add_fields(&self, fields: &mut Vec<String>) -> bool {
        self.id.add_fields(fields)
            && self.fields.iter().all(|(_, kind, argument)| {
                if let Kind::Top(sort, _) | Kind::Bottom(sort, _) = kind {
                    fields.extend(sort.fields());
                }
                argument.add_fields(fields)
            })
    }
}

/// The groups so far, in the order of their `_id`.
#[derive(Debug)]
pub(super) struct Grouping {
    groups: BTreeMap<Vec<u8>, (RawBson, Vec<Accumulator>)>,
    bytes: usize,
    /// The key of the metas of each group whose figures come by windows.
    metas: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Grouping {
    pub(super) fn new(_: &Group) -> Grouping {
        Grouping { groups: BTreeMap::new(), bytes: 0, metas: BTreeMap::new() }
    }

    /// The accumulators of the group that a window belongs to. `None` if the result depends on the order of documents: two
    /// `_id`s compare equal but differ (1 and 1.0; the first document's is kept), or the group spans several metas.
    pub(super) fn of_window(
        &mut self,
        group: &Group,
        id: RawBson,
        metas: Option<Vec<u8>>,
    ) -> Option<&mut Vec<Accumulator>> {
        let key = value_key(id.as_raw_bson_ref());
        if let Some(metas) = metas
            && *self.metas.entry(key.clone()).or_insert_with(|| metas.clone()) != metas
        {
            return None;
        }
        let fresh = || group.fields.iter().map(|(_, kind, _)| Accumulator::new(kind)).collect();
        let (known, accumulators) = self.groups.entry(key).or_insert_with(|| (id.clone(), fresh()));
        (*known == id).then_some(accumulators)
    }

    pub(super) fn take(&mut self, group: &Group, document: &RawDocument, now_ms: i64, memory: &Memory) -> Result<()> {
        let id: Value = group.id.evaluate(document, now_ms)?;
        let id = id.unwrap_or(RawBson::Null);
        let key = value_key(id.as_raw_bson_ref());
        let before = self.bytes;
        let bytes = &mut self.bytes;
        let (_, accumulators) = self.groups.entry(key).or_insert_with_key(|key| {
            *bytes += key.len() + size_of_value(&id) + 128 + group.fields.len() * size_of::<Accumulator>();
            (id, group.fields.iter().map(|(_, kind, _)| Accumulator::new(kind)).collect())
        });
        for ((_, _, expression), accumulator) in group.fields.iter().zip(accumulators) {
            let known = accumulator.bytes();
            accumulator.take_from(expression.evaluate(document, now_ms)?, document)?;
            *bytes = *bytes + accumulator.bytes() - known;
        }
        memory.change(before, *bytes, "$group")
    }

    /// About the memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
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
