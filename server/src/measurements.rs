//! Measurements as documents: how values of BSON are read, and finds over a time-series collection.
//!
//! 1. A whole number has the smallest of MongoDB's types that holds it, as drivers choose it too: in the columns int32 and int64
//!    are one type.
//! 2. Without another sort documents come in the order of time, and of several at one instant in that of the meta; so they are
//!    read in slices of time, each sorted by itself, and no more is in memory than a slice.
//! 3. The filter on meta and time selects buckets; all of the filter is asked of each row.

use crate::columns::{Column, columns_of};
use crate::conditions::{self, Condition};
use crate::cursors::Results;
use crate::deadline::Deadline;
use crate::error::{CommandError, Result};
use crate::reply;
use arrow::array::RecordBatch;
use bson::raw::{RawDocument, RawDocumentBuf};
use ebbtide::buckets::{FieldType, Schema, time_values, value_at};
use ebbtide::{
    CollectionSnapshot, FieldBound, MetaFilter, MetaPart, ScanRequest, ScanUnit, TextCondition, TextPart, TimeRange,
};
use ebbtide_documents::{DocumentWriter, Projection, Sort};
use ebbtide_ttl::{Code, Filter, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Rows that a slice of time should have.
const SLICE_ROWS: u64 = 8192;
/// Up to this many texts that a field may be equal to are looked for in n-gram filters.
const TEXTS_MAX: usize = 256;
/// Rows that are read in little time.
const SHORT_ROWS: u64 = 1024;

/// What a find over measurements asks for.
#[derive(Debug)]
pub(crate) struct Query {
    filter: Filter,
    /// The conditions that cannot be evaluated on columns.
    others: Vec<Condition>,
    sort: Sort,
    projection: Option<Projection>,
    /// Fields that are needed; all without them.
    fields: Option<BTreeSet<String>>,
    skip: u64,
    limit: Option<u64>,
    sort_bytes_max: usize,
}

/// The part of a query that selects buckets: what a scan or an aggregate asks for.
pub(crate) struct Selection {
    /// The times, both inclusive, in units of the collection's precision; `None` if nothing is stored.
    pub(crate) times: Option<(i64, i64)>,
    pub(crate) meta: Option<Arc<dyn MetaFilter>>,
    /// Whether it selects just the measurements that match.
    pub(crate) is_exact: bool,
}

impl Query {
    pub(crate) fn new(filter: &RawDocument) -> Result<Query> {
        let (filter, others) = match filter.is_empty() {
            true => (Filter::everything(), Vec::new()),
            false => conditions::split(filter)?,
        };
        let sort = Sort::parse(reply::empty())?;
        let sort_bytes_max = usize::MAX;
        Ok(Query { filter, others, sort, projection: None, fields: None, skip: 0, limit: None, sort_bytes_max })
    }

    pub(crate) fn sort(mut self, sort: &RawDocument) -> Result<Query> {
        self.sort = Sort::parse(sort)?;
        Ok(self)
    }

    pub(crate) fn projection(mut self, projection: &RawDocument) -> Result<Query> {
        let parsed = Projection::parse(projection)?;
        if !parsed.is_whole() {
            self.fields = parsed.included_fields().map(|fields| fields.map(str::to_owned).collect());
            self.projection = Some(parsed);
        }
        Ok(self)
    }

    /// These top-level fields alone are needed.
    pub(crate) fn only_fields(mut self, fields: impl IntoIterator<Item = String>) -> Query {
        self.fields = Some(fields.into_iter().collect());
        self
    }

    pub(crate) fn window(mut self, skip: u64, limit: Option<u64>, sort_bytes_max: usize) -> Query {
        (self.skip, self.limit, self.sort_bytes_max) = (skip, limit, sort_bytes_max);
        self
    }

    /// Whether a value says which series it is about, so that looking for them takes little time.
    pub(crate) fn names_series(&self, schema: &Schema) -> bool {
        let part = MetaPart::of(&self.filter, schema);
        part.is_some_and(|part| part.candidates().iter().any(|(_, values)| values.len() == 1))
    }

    /// What it selects of a collection.
    pub(crate) fn selection(&self, snapshot: &CollectionSnapshot) -> Selection {
        let schema = snapshot.schema();
        let (from, to) = self.filter.time_bounds(&schema.time);
        let wanted = TimeRange::new(from, to).units(schema.precision);
        let times = snapshot.time_range().map(|(first, last)| {
            let (first, last) = TimeRange::from(first..=last).units(schema.precision);
            (first.max(wanted.0), last.min(wanted.1))
        });
        let meta = MetaPart::of(&self.filter, schema).map(|part| Arc::new(part) as _);
        let is_exact = self.others.is_empty() && self.filter.is_of_time_and_meta(&schema.time, schema.meta.as_deref());
        Selection { times, meta, is_exact }
    }

    /// What a scan for it asks for; nothing if no time can match.
    pub(crate) fn scan(&self, snapshot: &CollectionSnapshot) -> Option<ScanRequest> {
        let Selection { times, meta, .. } = self.selection(snapshot);
        let (from, to) = times.filter(|(from, to)| from <= to)?;
        let (bounds, texts) = (self.field_bounds(snapshot), self.field_texts(snapshot));
        let time = TimeRange::of_units(Some(from), Some(to), snapshot.schema().precision);
        Some(ScanRequest { time, meta, bounds, texts, ..ScanRequest::default() })
    }

    /// Whether documents come in the order that is asked for, without a sort of all of them.
    pub(crate) fn is_in_order(&self, snapshot: &CollectionSnapshot) -> bool {
        self.time_order(&snapshot.schema().time).is_some()
    }

    /// Bounds of fields, which skip buckets and rows.
    fn field_bounds(&self, snapshot: &CollectionSnapshot) -> Vec<FieldBound> {
        let schema = snapshot.schema();
        let is_number = |name: &&str| {
            let is_field = schema.fields.iter().any(|(field, _)| field == name);
            is_field && matches!(schema.field_type(name), Some(FieldType::Int64 | FieldType::Double))
        };
        let of_field = |name: &str| match self.filter.number_bounds(name) {
            (None, None) => None,
            (min, max) => Some(FieldBound { field: name.to_owned(), min, max }),
        };
        self.filter.fields().into_iter().filter(is_number).filter_map(of_field).collect()
    }

    /// Texts that fields must be equal to, which skip rows.
    fn field_texts(&self, snapshot: &CollectionSnapshot) -> Vec<TextCondition> {
        let schema = snapshot.schema();
        let is_text = |name: &&str| {
            let is_field = schema.fields.iter().any(|(field, _)| field == name);
            is_field && schema.field_type(name) == Some(&FieldType::String)
        };
        let equal_to = |name: &str, values: Vec<Value>| {
            let texts = values.into_iter().filter_map(|value| match value {
                Value::String(text) => Some(vec![TextPart { column: name.to_owned(), text }]),
                _ => None,
            });
            TextCondition { alternatives: texts.collect() }
        };
        let of_field = |name| self.filter.candidates(name).into_iter().map(move |(path, values)| (name, path, values));
        let fields = self.filter.fields().into_iter().filter(is_text).flat_map(of_field);
        let fields = fields.filter(|(_, path, values)| path.is_empty() && values.len() <= TEXTS_MAX);
        fields.map(|(name, _, values)| equal_to(name, values)).collect()
    }

    /// Whether documents come in the order of time, and then from the latest on.
    fn time_order(&self, time: &str) -> Option<bool> {
        let mut paths = self.sort.paths();
        match (paths.next(), paths.next()) {
            (None, _) => Some(false),
            (Some((path, descending)), None) if path == time => Some(descending),
            _ => None,
        }
    }
}

/// The results of a find over measurements.
pub(crate) struct Measurements {
    snapshot: CollectionSnapshot,
    query: Query,
    meta: Option<Arc<dyn MetaFilter>>,
    bounds: Vec<FieldBound>,
    texts: Vec<TextCondition>,
    /// Nothing for all.
    columns: Option<Vec<String>>,
    /// Whether the scan finds just what matches, and no row need be asked.
    is_exact: bool,
    /// The scan of all that is not read yet, if it is one slice.
    planned: Option<Vec<ScanUnit>>,
    /// Whether the latest come first; `None` for another order, in which all is one slice.
    descending: Option<bool>,
    /// The times that are not read yet, both inclusive; `None` once all are.
    rest: Option<(i64, i64)>,
    /// How much time the next slice takes.
    width: u64,
    /// What was read and not fetched, the next one last.
    ready: Vec<RawDocumentBuf>,
    skip: u64,
    left: u64,
}

impl Measurements {
    pub(crate) fn new(snapshot: CollectionSnapshot, query: Query) -> Measurements {
        let schema = snapshot.schema();
        let columns = query.fields.as_ref().map(|fields| {
            let mut needed: BTreeSet<String> = query.filter.fields().into_iter().map(str::to_owned).collect();
            query.others.iter().for_each(|other| other.add_fields(&mut needed));
            needed.extend(query.sort.paths().filter_map(|(path, _)| Some(path.split('.').next()?.to_owned())));
            needed.extend(fields.iter().cloned());
            // Time and meta make the order definite.
            needed.extend(std::iter::once(schema.time.clone()).chain(schema.meta.clone()));
            schema.column_names().filter(|name| needed.contains(*name)).map(str::to_owned).collect()
        });
        let Selection { times: rest, meta, is_exact } = query.selection(&snapshot);
        let (bounds, texts) = (query.field_bounds(&snapshot), query.field_texts(&snapshot));
        let descending = query.time_order(&schema.time);
        let (skip, left) = (query.skip, query.limit.unwrap_or(u64::MAX));
        let rest = rest.filter(|(from, to)| from <= to && left > 0);
        let mut found = Measurements {
            snapshot,
            query,
            meta,
            bounds,
            texts,
            columns,
            is_exact,
            planned: None,
            descending,
            rest,
            width: u64::MAX,
            ready: Vec::new(),
            skip,
            left,
        };
        found.plan();
        found
    }

    /// Finds the time of the first slice: as much as should hold the rows that are wanted.
    fn plan(&mut self) {
        let (Some((from, to)), Some(_)) = (self.rest, self.descending) else { return };
        // What is wrong is told when it is read. Slices without rows of the texts that are looked for make the next ones wider.
        let request = ScanRequest { texts: Vec::new(), ..self.request(from, to) };
        let Ok(units) = self.snapshot.scan(&request) else { return };
        let rows: u64 = units.iter().map(ScanUnit::rows_estimate).sum();
        let wanted = self.left.saturating_add(self.skip).clamp(128, SLICE_ROWS);
        if rows <= wanted.saturating_mul(2) {
            self.planned = Some(units);
        } else {
            self.width = (to.abs_diff(from) / (rows / wanted).max(1)).max(1);
        }
    }

    fn request(&self, from: i64, to: i64) -> ScanRequest {
        ScanRequest {
            projection: self.columns.clone(),
            time: TimeRange::of_units(Some(from), Some(to), self.snapshot.schema().precision),
            meta: self.meta.clone(),
            bounds: self.bounds.clone(),
            texts: self.texts.clone(),
            ..ScanRequest::default()
        }
    }

    /// Reads the next slice of time.
    fn read_slice(&mut self, deadline: Deadline<'_>) -> Result<()> {
        let Some((from, to)) = self.rest else { return Ok(()) };
        let is_all = self.planned.is_some() || to.abs_diff(from) < self.width;
        let (first, last, rest) = match (self.descending, is_all) {
            (_, true) | (None, _) => (from, to, None),
            (Some(false), false) => {
                let last = from.saturating_add_unsigned(self.width - 1);
                (from, last, Some((last.saturating_add(1), to)))
            }
            (Some(true), false) => {
                let first = to.saturating_sub_unsigned(self.width - 1);
                (first, to, Some((from, first.saturating_sub(1))))
            }
        };
        let mut found: Vec<(Vec<u8>, RawDocumentBuf)> = Vec::new();
        let wanted = usize::try_from(self.skip.saturating_add(self.left)).unwrap_or(usize::MAX);
        let (mut bytes, mut rows) = (0, 0);
        let units = match self.planned.take() {
            Some(units) => units,
            None => self.snapshot.scan(&self.request(first, last))?,
        };
        for unit in units {
            for batch in unit.read()? {
                deadline.check()?;
                let batch = batch?;
                rows += batch.num_rows() as u64;
                let begin = found.len();
                self.collect(&batch, &mut found, deadline)?;
                bytes += found[begin..].iter().map(size).sum::<usize>();
                if found.len() > wanted.saturating_mul(2).max(1 << 14) || bytes > self.query.sort_bytes_max {
                    found.sort_by(|a, b| a.0.cmp(&b.0));
                    found.truncate(wanted);
                    bytes = found.iter().map(size).sum();
                }
                if bytes > self.query.sort_bytes_max {
                    let limit = self.query.sort_bytes_max >> 20;
                    let what =
                        format!("the sort needs more than {limit} MB of memory: narrow the filter, or add a limit");
                    return Err(CommandError::new(Code::ExceededMemoryLimit, what));
                }
            }
            // What does not match counts too: where more of it does, a slice of the same time has that many documents.
            rows += unit.rows_outside();
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let passed = usize::try_from(self.skip).unwrap_or(usize::MAX).min(found.len());
        self.skip -= passed as u64;
        found.drain(..passed);
        self.ready.extend(found.into_iter().rev().map(|(_, document)| document));
        // Slices of about the same number of rows.
        if rows > SLICE_ROWS * 2 {
            self.width = (self.width / 2).max(1);
        } else if rows < SLICE_ROWS / 2 {
            self.width = self.width.saturating_mul(2);
        }
        self.rest = rest;
        Ok(())
    }

    /// Adds the rows that match, each with the key of its order.
    fn collect(
        &self,
        batch: &RecordBatch,
        found: &mut Vec<(Vec<u8>, RawDocumentBuf)>,
        deadline: Deadline<'_>,
    ) -> Result<()> {
        let schema = self.snapshot.schema();
        let columns = columns_of(batch);
        let times = batch.column_by_name(&schema.time).map(time_values).transpose().map_err(ebbtide::Error::from)?;
        let meta = schema.meta.as_ref().and_then(|meta| columns.iter().find(|column| column.name() == meta));
        let mut asked = BTreeSet::new();
        self.query.others.iter().for_each(|other| other.add_fields(&mut asked));
        let asked: Vec<&Column<'_>> = columns.iter().filter(|column| asked.contains(column.name())).collect();
        for row in 0..batch.num_rows() {
            let field = |name: &str| match batch.column_by_name(name) {
                Some(column) => Cow::Owned(value_at(column.as_ref(), row)),
                None => Cow::Owned(Value::Null),
            };
            if !self.is_exact && !self.query.filter.matches(&field) {
                continue;
            }
            if !self.query.others.is_empty() {
                // A regular expression may take long.
                deadline.check()?;
                let document = document_of(row, asked.iter().copied(), 0);
                if !conditions::all_hold(&self.query.others, &field, &document) {
                    continue;
                }
            }
            let document = document_of(row, &columns, found.last().map_or(0, |(_, last)| last.as_bytes().len()));
            let mut key = if self.descending.is_none() { self.query.sort.key(&document)? } else { Vec::new() };
            key.extend(times.iter().flat_map(|times| time_key(times[row], self.descending == Some(true))));
            if let Some(meta) = meta {
                meta.append_key(row, &mut key);
            }
            let shown = match &self.query.projection {
                Some(projection) => projection.apply(&document, 0),
                None => document,
            };
            found.push((key, shown));
        }
        Ok(())
    }
}

/// What a row has in some columns, of about this number of bytes.
fn document_of<'c, 'a: 'c>(
    row: usize,
    columns: impl IntoIterator<Item = &'c Column<'a>>,
    bytes: usize,
) -> RawDocumentBuf {
    let mut writer = DocumentWriter::with_capacity(bytes);
    columns.into_iter().for_each(|column| column.append(row, &mut writer));
    writer.finish()
}

fn size((key, document): &(Vec<u8>, RawDocumentBuf)) -> usize {
    key.len() + document.as_bytes().len() + size_of::<(Vec<u8>, RawDocumentBuf)>()
}

/// Bytes in the order of the times.
fn time_key(units: i64, descending: bool) -> [u8; 8] {
    let flipped = units.cast_unsigned() ^ (1 << 63);
    if descending { !flipped } else { flipped }.to_be_bytes()
}

impl Results for Measurements {
    fn next_batch(&mut self, count: usize, bytes: usize, deadline: Deadline<'_>) -> Result<Vec<RawDocumentBuf>> {
        let (mut batch, mut size) = (Vec::new(), 0);
        while batch.len() < count && self.left > 0 {
            let Some(next) = self.ready.last() else {
                if self.rest.is_none() {
                    break;
                }
                self.read_slice(deadline)?;
                continue;
            };
            size += next.as_bytes().len();
            if size > bytes && !batch.is_empty() {
                break;
            }
            batch.extend(self.ready.pop());
            self.left -= 1;
        }
        Ok(batch)
    }

    fn is_done(&self) -> bool {
        self.left == 0 || (self.rest.is_none() && self.ready.is_empty())
    }

    fn is_short(&self) -> bool {
        let rows = |units: &Vec<ScanUnit>| units.iter().map(ScanUnit::rows_estimate).sum::<u64>();
        let is_cheap = self.query.others.is_empty();
        self.rest.is_none() || self.planned.as_ref().is_some_and(|units| is_cheap && rows(units) <= SHORT_ROWS)
    }
}

#[cfg(test)]
mod tests;
