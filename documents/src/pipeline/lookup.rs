//! $lookup: documents of another collection with an equal value, or what a pipeline makes of its documents.

use super::condition::Condition;
use super::feed::{InnerRun, Shared};
use super::memory::{Memory, kept_bytes};
use super::project::set;
use super::{Result, Stage, all_hold, split_conditions};
use crate::expression::{Expression, Moment, Node, Value, Variable};
use crate::paths::{EndInList, Path, index_keys};
use crate::stop::Stop;
use crate::{ExpressionError, Filter, Purpose, append_value_key, value_key};
use bson::raw::{CString, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::ops::ControlFlow;

/// Takes a document, and returns whether it can use more.
pub type Take<'t> = dyn FnMut(RawDocumentBuf) -> std::result::Result<bool, ExpressionError> + 't;

/// The other collections of a database, for `$lookup`, `$graphLookup` and `$unionWith`.
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
    /// What its first stage compares, if it is such a condition.
    pub(super) equality: Option<Equality>,
    pub(super) stages: Vec<Stage>,
}

/// A field of the other collection's documents, and the variable that it has to be equal to.
#[derive(Debug, Clone)]
pub(super) struct Equality {
    field: Expression,
    variable: Expression,
}

impl Equality {
    /// That of `{$expr: {$eq: ["$k", "$$x"]}}`. In an `$and` it is the first operand, since an operand before it could fail.
    pub(super) fn of(stages: &[Stage]) -> Option<Equality> {
        let Stage::Condition(Condition::Expression(condition)) = stages.first()? else { return None };
        let mut node = condition.node();
        if let Node::And(operands) = node {
            node = operands.first()?;
        }
        let Node::Call(operator, operands) = node else { return None };
        match operands.as_slice() {
            [field @ Node::Path(Variable::Root, names), variable @ Node::Path(Variable::Outer(_), _)]
            | [variable @ Node::Path(Variable::Outer(_), _), field @ Node::Path(Variable::Root, names)]
                if operator.name == "$eq" && !names.is_empty() =>
            {
                let expression = |node: &Node| Expression::of_node(node.clone());
                Some(Equality { field: expression(field), variable: expression(variable) })
            }
            _ => None,
        }
    }

    /// The key of a value; one that is missing is equal to nothing else.
    fn key(value: Value) -> Vec<u8> {
        let mut key = vec![u8::from(value.is_some())];
        append_value_key(&mut key, value.unwrap_or(RawBson::Null).as_raw_bson_ref());
        key
    }
}

/// The other collection, by the values of the field.
#[derive(Debug, Default)]
pub(super) struct Table {
    documents: Vec<RawDocumentBuf>,
    by_value: HashMap<Vec<u8>, Vec<usize>>,
    /// The results of a pipeline that are the same for every document.
    results: Option<RawArrayBuf>,
    /// The run of the pipeline, which keeps the collections that its own `$lookup`s have read.
    run: InnerRun,
    /// About the memory that the documents, the values and the results take.
    bytes: usize,
}

impl Table {
    /// About the memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.run.bytes()
    }

    /// Forgets results: variables of a `$lookup` around this one may decide them.
    pub(super) fn forget_results(&mut self, memory: &Memory) {
        let bytes = self.results.take().map_or(0, |results| results.as_bytes().len());
        memory.give_back(bytes);
        self.bytes -= bytes;
    }

    /// The document with a number.
    pub(super) fn document(&self, at: usize) -> &RawDocumentBuf {
        &self.documents[at]
    }

    /// The numbers of the documents that may have a value. For a list or a regular expression these are all documents: the table does not
    /// have lists as values, nor texts by patterns.
    pub(super) fn candidates(&self, value: &RawBson) -> Cow<'_, [usize]> {
        match value {
            RawBson::Array(_) | RawBson::RegularExpression(_) => Cow::Owned((0..self.documents.len()).collect()),
            value => {
                let found = self.by_value.get(&value_key(value.as_raw_bson_ref()));
                Cow::Borrowed(found.map_or(&[][..], Vec::as_slice))
            }
        }
    }

    /// Adds a document, with the keys of its values; returns the memory that it takes.
    pub(super) fn add(&mut self, document: RawDocumentBuf, keys: Vec<Vec<u8>>) -> usize {
        let at = self.documents.len();
        let mut bytes = kept_bytes(&document);
        for key in keys {
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
        let mut filter = crate::raw::empty();
        if let Some(inner) = &self.inner {
            filter = &inner.filter;
            table.run = InnerRun::new(split_conditions(&inner.stages).1);
        }
        shared.foreign.visit(&self.from, filter, shared.moment.stop.0, &mut |document| {
            let keys = self.keys(&document, shared.moment)?;
            shared.memory.take(table.add(document, keys), "$lookup")?;
            Ok(true)
        })?;
        Ok(table)
    }

    /// The keys by which a document of the other collection is found.
    fn keys(&self, document: &RawDocument, moment: Moment<'_>) -> Result<Vec<Vec<u8>>> {
        if let Some((_, foreign)) = &self.equal {
            return Ok(keys_at(document, foreign));
        }
        match self.inner.as_ref().and_then(|inner| inner.equality.as_ref()) {
            Some(equality) => Ok(vec![Equality::key(equality.field.evaluate_at(document, moment)?)]),
            None => Ok(Vec::new()),
        }
    }

    /// The document with the list of what it finds.
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
        let found = match &self.equal {
            Some((local, foreign)) => Some(equal(document, (local, foreign), table, shared.moment.stop)?),
            None => None,
        };
        let list = match &self.inner {
            Some(inner) => inner.list(document, found, table, shared)?,
            None => {
                let found = found.unwrap_or_default().into_iter();
                found.map(|at| RawBson::Document(table.documents[at].clone())).collect()
            }
        };
        let list: Value = Some(RawBson::Array(list));
        Ok(set(document, &self.into, list))
    }
}

impl Inner {
    /// What the pipeline makes of the other collection for a document of this one; of the documents with these numbers, if there
    /// are paths of equal values.
    fn list(
        &self,
        document: &RawDocument,
        found: Option<BTreeSet<usize>>,
        table: &mut Table,
        shared: Shared<'_>,
    ) -> Result<RawArrayBuf> {
        if let Some(results) = &table.results {
            return Ok(results.clone());
        }
        let mut variables = shared.moment.variables.to_vec();
        for value in &self.values {
            variables.push(value.evaluate_at(document, shared.moment)?);
        }
        let moment = Moment { variables: &variables, ..shared.moment };
        let shared = Shared { moment, ..shared };
        let is_same = found.is_none() && self.values.is_empty();
        let (documents, by_value, run) = (&table.documents, &table.by_value, &mut table.run);
        let list = match (found, &self.equality) {
            (Some(found), _) => self.results(run, found.iter().map(|at| &documents[*at]), shared)?,
            (None, Some(equality)) => {
                let key = Equality::key(equality.variable.evaluate_at(document, moment)?);
                let found = by_value.get(&key).map_or(&[][..], Vec::as_slice);
                self.results(run, found.iter().map(|at| &documents[*at]), shared)?
            }
            (None, None) => self.results(run, documents.iter(), shared)?,
        };
        if is_same {
            shared.memory.take(list.as_bytes().len(), "$lookup")?;
            table.bytes += list.as_bytes().len();
            table.results = Some(list.clone());
        }
        Ok(list)
    }

    /// What the pipeline makes of some documents.
    fn results<'d>(
        &self,
        run: &mut InnerRun,
        candidates: impl Iterator<Item = &'d RawDocumentBuf>,
        shared: Shared<'_>,
    ) -> Result<RawArrayBuf> {
        let (conditions, stages) = split_conditions(&self.stages);
        for candidate in candidates {
            shared.moment.stop.check()?;
            if all_hold(conditions, candidate, shared.moment)? && !run.take(stages, candidate.clone(), shared)? {
                break;
            }
        }
        let results = run.restart(stages, shared)?;
        shared.memory.give_back(results.bytes);
        Ok(results.documents.into_iter().map(RawBson::Document).collect())
    }
}

/// The keys by which a document is found, of the values that a path reaches. An empty list has no element; what is looked for then
/// is null or the list.
pub(super) fn keys_at(document: &RawDocument, path: &Path) -> Vec<Vec<u8>> {
    let key = |key: RawBsonRef<'_>| value_key(if key == RawBsonRef::Undefined { RawBsonRef::Null } else { key });
    index_keys(document, path).into_iter().map(key).collect()
}

/// The numbers of the documents with a value that is equal to one of this document.
fn equal(
    document: &RawDocument,
    (local, foreign): (&Path, &Path),
    table: &Table,
    stop: Stop<'_>,
) -> Result<BTreeSet<usize>> {
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
        let candidates = table.candidates(&value);
        let filter = is_equal(foreign, value)?;
        for at in candidates.iter() {
            stop.check()?;
            if filter.matches(&table.documents[*at]) {
                found.insert(*at);
            }
        }
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
