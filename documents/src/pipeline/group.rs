//! $group.

use super::Result;
use super::memory::Memory;
use crate::expression::accumulator::{Accumulator, Kind, size_of_value};
use crate::expression::{Expression, ExpressionError, Moment, Node, Scope};
use crate::raw::writer::DocumentWriter;
use crate::value_key;
use bson::raw::{CString, RawBson, RawDocument, RawDocumentBuf, cstr};
use std::collections::BTreeMap;

/// A computed field: its name, the accumulator, and what it takes of each document.
pub(super) type Field = (CString, Kind, Expression);

/// What a `$group` asks for.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) id: Expression,
    pub(super) fields: Vec<Field>,
}

/// Gives a document to the accumulators of fields, whose bytes are counted.
pub(super) fn take_all(
    fields: &[Field],
    accumulators: &mut [Accumulator],
    document: &RawDocument,
    moment: Moment<'_>,
    bytes: &mut usize,
) -> Result<()> {
    for ((_, kind, expression), accumulator) in fields.iter().zip(accumulators) {
        let known = accumulator.bytes();
        accumulator.take_from(kind, expression.evaluate_at(document, moment)?, document)?;
        *bytes = *bytes + accumulator.bytes() - known;
    }
    Ok(())
}

/// Appends the results of the accumulators of fields.
pub(super) fn write_all(fields: &[Field], accumulators: Vec<Accumulator>, document: &mut DocumentWriter) -> Result<()> {
    for ((name, kind, _), accumulator) in fields.iter().zip(accumulators) {
        document.append(name, accumulator.finish(kind)?.as_raw_bson_ref());
    }
    Ok(())
}

impl Group {
    /// The `_id` of a document's group. A missing value is null, also as the only member of an object, as in MongoDB.
    fn id_of(&self, document: &RawDocument, moment: Moment<'_>) -> Result<RawBson> {
        if let Node::Object(members) = self.id.node()
            && let [(name, node)] = members.as_slice()
        {
            let value = node.evaluate(&mut Scope::new(document, moment))?;
            let mut id = RawDocumentBuf::new();
            id.append(name, value.unwrap_or(RawBson::Null));
            return Ok(RawBson::Document(id));
        }
        Ok(self.id.evaluate_at(document, moment)?.unwrap_or(RawBson::Null))
    }

    /// Adds the top-level fields that it needs; whether these are known.
    pub(super) fn add_fields(&self, fields: &mut Vec<String>) -> bool {
        self.id.add_fields(fields) && add_fields(&self.fields, fields)
    }
}

/// Adds the top-level fields that computed fields need; whether these are known.
pub(super) fn add_fields(computed: &[Field], fields: &mut Vec<String>) -> bool {
    computed.iter().all(|(_, kind, argument)| {
        if let Kind::Top(sort, _) | Kind::Bottom(sort, _) = kind {
            fields.extend(sort.fields());
        }
        argument.add_fields(fields)
    })
}

/// The bytes of a document.
pub(super) fn document_bytes(document: &RawDocumentBuf) -> usize {
    document.as_bytes().len()
}

/// The groups so far, in the order of their `_id`.
#[derive(Debug, Default)]
pub(super) struct Grouping {
    groups: BTreeMap<Vec<u8>, (RawBson, Vec<Accumulator>)>,
    bytes: usize,
}

impl Grouping {
    pub(super) fn take(
        &mut self,
        group: &Group,
        document: &RawDocument,
        moment: Moment<'_>,
        memory: &Memory,
    ) -> Result<()> {
        let id = group.id_of(document, moment)?;
        let key = value_key(id.as_raw_bson_ref());
        let before = self.bytes;
        let bytes = &mut self.bytes;
        let (_, accumulators) = self.groups.entry(key).or_insert_with_key(|key| {
            *bytes += key.len() + size_of_value(&id) + 128 + group.fields.len() * size_of::<Accumulator>();
            (id, group.fields.iter().map(|(_, kind, _)| Accumulator::new(kind)).collect())
        });
        take_all(&group.fields, accumulators, document, moment, bytes)?;
        memory.change(before, *bytes, "$group")
    }

    /// About the memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn finish(self, group: &Group) -> Result<Vec<RawDocumentBuf>> {
        let mut documents = Vec::with_capacity(self.groups.len());
        for (id, accumulators) in self.groups.into_values() {
            let mut document = DocumentWriter::with_capacity(documents.last().map_or(0, document_bytes));
            document.append(cstr!("_id"), id.as_raw_bson_ref());
            write_all(&group.fields, accumulators, &mut document)?;
            if document.is_too_long() {
                return Err(ExpressionError::new(10334, "a group's document has 2 GiB; the limit is 16 MiB"));
            }
            documents.push(document.finish());
        }
        Ok(documents)
    }
}
