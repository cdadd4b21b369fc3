//! $lookup: documents of another collection with an equal value, or what a pipeline makes of its documents.

use super::feed::{InnerRun, Shared, kept_bytes};
use super::project::set;
use super::{Result, Stage};
use crate::expression::{Expression, Moment, Value};
use crate::paths::{EndInList, Path, index_keys};
use crate::{ExpressionError, Filter, Purpose, value_key};
use bson::raw::{CString, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::ops::ControlFlow;

/// Takes a document, and returns whether it can use more.
pub type Take<'t> = dyn FnMut(RawDocumentBuf) -> std::result::Result<bool, ExpressionError> + 't;

/// The other collections of a database, for `$lookup` and `$unionWith`.
pub trait Foreign: Debug + Send {
    /// Visits the documents of a collection that match a filter until no more can be used; none of a collection that does not
    /// exist. `stop` is asked now and then whether to give up.
    ///
    /// # Errors
    /// Those of `take`, errors of reading, and any if it was stopped.
    fn visit(
        &self,
        collection: &str,
        filter: &RawDocument,
        stop: &dyn Fn() -> bool,
        take: &mut Take<'_>,
    ) -> std::result::Result<(), ExpressionError>;
}

/// No other collections.
impl Foreign for () {
    fn visit(
        &self,
        _: &str,
        _: &RawDocument,
        _: &dyn Fn() -> bool,
        _: &mut Take<'_>,
    ) -> std::result::Result<(), ExpressionError> {
        Ok(())
    }
}

/// What a `$lookup` asks for.
#[derive(Debug, Clone)]
pub(super) struct Lookup {
    pub(super) from: String,
    /// The paths of equal values, here and there; without them all documents are joined.
    pub(super) equal: Option<(Path, Path)>,
    pub(super) into: Vec<String>,
    pub(super) inner: Option<Inner>,
}

/// The pipeline of a `$lookup`.
#[derive(Debug, Clone)]
pub(super) struct Inner {
    /// The values of its variables, which are the last ones that it sees.
    pub(super) values: Vec<Expression>,
    /// What the collection is asked.
    pub(super) filter: RawDocumentBuf,
    pub(super) stages: Vec<Stage>,
}

/// The other collection, by the values of the field.
#[derive(Debug, Default)]
pub(super) struct Table {
    documents: Vec<RawDocumentBuf>,
    by_value: HashMap<Vec<u8>, Vec<usize>>,
    /// The results of a pipeline that are the same for every document.
    results: Option<RawArrayBuf>,
    /// About the memory that it takes.
    pub(super) bytes: usize,
}

impl Table {
    /// Adds a document, with its values at a path; returns the memory that it takes.
    fn add(&mut self, document: RawDocumentBuf, path: Option<&Path>) -> usize {
        let at = self.documents.len();
        let mut bytes = kept_bytes(&document);
        for key in path.map(|path| index_keys(&document, path)).unwrap_or_default() {
            // An empty list has no element; what is looked for then is null or the list.
            let key = if key == RawBsonRef::Undefined { RawBsonRef::Null } else { key };
            let key = value_key(key);
            bytes += key.len() + 64;
            let found = self.by_value.entry(key).or_default();
            if found.last() != Some(&at) {
                found.push(at);
            }
        }
        self.documents.push(document);
        self.bytes += bytes;
        bytes
    }
}

impl Lookup {
    fn load(&self, shared: Shared<'_>) -> Result<Table> {
        let mut table = Table::default();
        let path = self.equal.as_ref().map(|(_, foreign)| foreign);
        let filter = self.inner.as_ref().map_or(crate::raw::empty(), |inner| &*inner.filter);
        shared.foreign.visit(&self.from, filter, shared.moment.stop.0, &mut |document| {
            shared.memory.take(table.add(document, path), "$lookup")?;
            Ok(true)
        })?;
        Ok(table)
    }

    /// The document with the list of what it finds.
    pub(super) fn joined(
        &self,
        document: &RawDocument,
        table: &mut Option<Table>,
        shared: Shared<'_>,
    ) -> Result<RawDocumentBuf> {
        let table = match table {
            Some(table) => table,
            None => table.insert(self.load(shared)?),
        };
        let list: RawArrayBuf = match (&self.equal, &self.inner) {
            (Some((local, foreign)), None) => {
                let found = equal(document, local, foreign, table)?;
                found.into_iter().map(|at| RawBson::Document(table.documents[at].clone())).collect()
            }
            (Some((local, foreign)), Some(inner)) => {
                let found = equal(document, local, foreign, table)?;
                inner.results(document, found.into_iter().map(|at| &table.documents[at]), shared)?
            }
            (None, Some(inner)) => match &table.results {
                Some(results) => results.clone(),
                None => {
                    let results = inner.results(document, table.documents.iter(), shared)?;
                    if inner.values.is_empty() {
                        shared.memory.take(results.as_bytes().len(), "$lookup")?;
                        table.bytes += results.as_bytes().len();
                        table.results = Some(results.clone());
                    }
                    results
                }
            },
            (None, None) => RawArrayBuf::new(),
        };
        let list: Value = Some(RawBson::Array(list));
        Ok(set(document, &self.into, list))
    }
}

impl Inner {
    /// What the pipeline makes of documents of the other collection, for one of this.
    fn results<'d>(
        &self,
        document: &RawDocument,
        candidates: impl Iterator<Item = &'d RawDocumentBuf>,
        shared: Shared<'_>,
    ) -> Result<RawArrayBuf> {
        let mut variables = shared.moment.variables.to_vec();
        for value in &self.values {
            variables.push(value.evaluate_at(document, shared.moment)?);
        }
        let moment = Moment { variables: &variables, ..shared.moment };
        let shared = Shared { moment, ..shared };
        // What does not match is not copied.
        let conditions = self.stages.iter().take_while(|stage| stage.is_condition()).count();
        let (conditions, stages) = self.stages.split_at(conditions);
        let mut run = InnerRun::new(stages);
        for candidate in candidates {
            moment.stop.check()?;
            if all_hold(conditions, candidate, moment)? && !run.take(stages, candidate.clone(), shared)? {
                break;
            }
        }
        run.finish(stages, shared)?;
        let results = run.results();
        shared.memory.give_back(results.bytes);
        Ok(results.documents.into_iter().map(RawBson::Document).collect())
    }
}

/// Whether a document meets the conditions of stages.
fn all_hold(stages: &[Stage], document: &RawDocument, moment: Moment<'_>) -> Result<bool> {
    for stage in stages {
        if !stage.admits(document, moment)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The numbers of the documents with a value that is equal to one of this document.
fn equal(document: &RawDocument, local: &Path, foreign: &Path, table: &Table) -> Result<BTreeSet<usize>> {
    let mut wanted: Vec<RawBson> = Vec::new();
    local.visit(document, EndInList::Elements, &mut |value| {
        wanted.extend(value.filter(|value| *value != RawBsonRef::Undefined).map(crate::raw::owned));
        ControlFlow::Continue(())
    });
    // Null is looked for only where the path reaches nothing at all.
    if wanted.is_empty() {
        wanted.push(RawBson::Null);
    }
    let mut found: BTreeSet<usize> = BTreeSet::new();
    for value in wanted {
        // Lists are equal to lists within documents too, which the table does not know.
        let everything: Vec<usize>;
        let candidates = match &value {
            RawBson::Array(_) => {
                everything = (0..table.documents.len()).collect();
                everything.as_slice()
            }
            value => table.by_value.get(&value_key(value.as_raw_bson_ref())).map_or(&[][..], Vec::as_slice),
        };
        let filter = is_equal(foreign, value.clone())?;
        found.extend(candidates.iter().filter(|at| filter.matches(&table.documents[**at])));
    }
    Ok(found)
}

fn is_equal(path: &Path, value: RawBson) -> Result<Filter> {
    let mut filter = RawDocumentBuf::new();
    if let Ok(name) = CString::try_from(path.as_str()) {
        filter.append(name, rawdoc! { "$eq": value });
    }
    Ok(Filter::parse(&filter, Purpose::Find)?)
}
