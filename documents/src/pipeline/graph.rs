//! $graphLookup: the documents of another collection that are reached from a document, step by step.
//!
//! 1. Each step looks for the documents with one of the values that the step before it has met. No value is looked for twice, and no
//!    document is found twice, so that a search ends where documents lead to each other.
//! 2. Documents are in the order of their steps, and those of one step in the order of the collection.

use super::Result;
use super::condition::Condition;
use super::feed::Shared;
use super::lookup::{Table, keys_at};
use super::memory::{Memory, kept_bytes};
use super::project::set;
use crate::expression::{Expression, Value};
use crate::paths::{Path, list_index, member};
use crate::raw::owned;
use crate::{Filter, Purpose, append_value_key, value_key};
use bson::raw::{CString, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;
use std::collections::{BTreeSet, HashSet};

/// What a `$graphLookup` asks for.
#[derive(Debug, Clone)]
pub(super) struct GraphLookup {
    pub(super) from: String,
    /// The values of the first step.
    pub(super) start: Expression,
    /// Where a document that was found has the values of the next step.
    pub(super) connect_from: Vec<String>,
    /// Where documents have the values that are looked for.
    pub(super) connect_to: Path,
    pub(super) into: Vec<String>,
    /// The number of the last step; the first one has the number 0.
    pub(super) depth_max: Option<u64>,
    /// Where a document is given the number of its step.
    pub(super) depth_field: Option<Vec<String>>,
    /// What the collection is asked.
    pub(super) filter: RawDocumentBuf,
    /// What its documents must meet beside that.
    pub(super) condition: Option<Condition>,
}

/// The search for one document.
#[derive(Default)]
struct Search {
    /// The values that were looked for, or will be in the next step.
    known: HashSet<Vec<u8>>,
    /// The values of the next step.
    next: Vec<RawBson>,
    /// The documents that were found, by their `_id`.
    visited: HashSet<Vec<u8>>,
    /// The documents that were found, by their number, and their steps.
    found: Vec<(usize, u64)>,
    /// About the memory that all of that takes, with the documents.
    bytes: usize,
}

impl Search {
    /// Adds a value for the next step.
    fn meet(&mut self, value: RawBsonRef<'_>, memory: &Memory) -> Result<()> {
        let key = value_key(value);
        let bytes = 2 * key.len() + 128;
        // Nothing is equal to undefined.
        if value == RawBsonRef::Undefined || !self.known.insert(key) {
            return Ok(());
        }
        self.next.push(owned(value));
        self.count(bytes, memory)
    }

    /// Counts memory that it takes from now on.
    fn count(&mut self, bytes: usize, memory: &Memory) -> Result<()> {
        memory.take(bytes, GraphLookup::NAME)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl GraphLookup {
    pub(super) const NAME: &'static str = "$graphLookup";

    fn load(&self, shared: Shared<'_>) -> Result<Table> {
        let mut table = Table::default();
        shared.foreign.visit(&self.from, &self.filter, shared.moment.stop.0, &mut |document| {
            let keys = keys_at(&document, &self.connect_to);
            shared.memory.take(table.add(document, keys), GraphLookup::NAME)?;
            Ok(true)
        })?;
        Ok(table)
    }

    /// The document with the list of what is reached from it.
    pub(super) fn joined(
        &self,
        document: &RawDocument,
        table: &mut Option<Box<Table>>,
        shared: Shared<'_>,
    ) -> Result<RawDocumentBuf> {
        let table = match table {
            Some(table) => table,
            None => table.insert(Box::new(self.load(shared)?)),
        };
        let mut search = Search::default();
        match self.start.evaluate_at(document, shared.moment)? {
            Some(RawBson::Array(list)) => {
                let mut values = list.into_iter().map_while(std::result::Result::ok);
                values.try_for_each(|value| search.meet(value, shared.memory))?;
            }
            Some(value) => search.meet(value.as_raw_bson_ref(), shared.memory)?,
            None => {}
        }
        let mut depth = 0;
        while !search.next.is_empty() && self.depth_max.is_none_or(|max| depth <= max) {
            self.step(depth, &mut search, table, shared)?;
            depth += 1;
        }
        let list: RawArrayBuf =
            search.found.iter().map(|(at, depth)| self.shown(table.document(*at), *depth)).collect();
        shared.memory.give_back(search.bytes);
        Ok(set(document, &self.into, Some(RawBson::Array(list))))
    }

    /// Finds the documents of one step.
    fn step(&self, depth: u64, search: &mut Search, table: &Table, shared: Shared<'_>) -> Result<()> {
        let mut reached: BTreeSet<usize> = BTreeSet::new();
        for value in std::mem::take(&mut search.next) {
            let candidates = table.candidates(&value);
            let filter = has_value(&self.connect_to, value)?;
            for at in candidates.iter() {
                shared.moment.stop.check()?;
                if filter.matches(table.document(*at)) {
                    reached.insert(*at);
                }
            }
        }
        for at in reached {
            shared.moment.stop.check()?;
            let document = table.document(at);
            if let Some(condition) = &self.condition
                && !condition.holds(document, shared.moment)?
            {
                continue;
            }
            if search.visited.insert(identity(document, at)) {
                search.found.push((at, depth));
                search.count(kept_bytes(document), shared.memory)?;
                visit_values(document, &self.connect_from, &mut |value| search.meet(value, shared.memory))?;
            }
        }
        Ok(())
    }

    /// A document that was found in a step.
    fn shown(&self, document: &RawDocumentBuf, depth: u64) -> RawBson {
        let depth: Value = Some(RawBson::Int64(i64::try_from(depth).unwrap_or(i64::MAX)));
        RawBson::Document(match &self.depth_field {
            Some(field) => set(document, field, depth),
            None => document.clone(),
        })
    }
}

/// What a document is known by: its `_id`, or its number where it has none, as measurements.
fn identity(document: &RawDocument, at: usize) -> Vec<u8> {
    match member(document, "_id") {
        Some(id) => {
            let mut key = vec![1];
            append_value_key(&mut key, id);
            key
        }
        None => at.to_be_bytes().to_vec(),
    }
}

/// Takes a value that a path reaches.
type Visit<'v> = dyn FnMut(RawBsonRef<'_>) -> Result<()> + 'v;

/// Visits the values that a path reaches: of a list at its end each element.
fn visit_values(document: &RawDocument, names: &[String], visit: &mut Visit<'_>) -> Result<()> {
    let Some((name, mut rest)) = names.split_first() else { return Ok(()) };
    let Some(mut value) = member(document, name) else { return Ok(()) };
    // A number is an element of a list here, and a name everywhere else.
    while let (RawBsonRef::Array(list), Some((next, after))) = (value, rest.split_first()) {
        let Some(index) = list_index(next) else { break };
        let Some(element) = list.into_iter().map_while(std::result::Result::ok).nth(index) else { return Ok(()) };
        (value, rest) = (element, after);
    }
    match value {
        RawBsonRef::Array(list) => {
            for element in list.into_iter().map_while(std::result::Result::ok) {
                match element {
                    element if rest.is_empty() => visit(element)?,
                    RawBsonRef::Document(inner) => visit_values(inner, rest, visit)?,
                    _ => {}
                }
            }
            Ok(())
        }
        value if rest.is_empty() => visit(value),
        RawBsonRef::Document(inner) => visit_values(inner, rest, visit),
        _ => Ok(()),
    }
}

/// The filter for a value. As in MongoDB, a regular expression finds the texts that match it, and null finds no document in which
/// the field is missing.
fn has_value(path: &Path, value: RawBson) -> Result<Filter> {
    let mut filter = RawDocumentBuf::new();
    if let Ok(name) = CString::try_from(path.as_str()) {
        filter.append(name, rawdoc! { "$in": [value], "$exists": true });
    }
    Ok(Filter::parse(&filter, Purpose::Find)?)
}
