//! find: a filter, a sort order, a limit and a projection.
//!
//! Documents are returned in the requested order, and among equals in the order of time, then of meta, so that a
//! flush or a compaction does not change what a limit returns.

use super::args::{Args, mismatch};
use super::documents;
use super::projection::Projection;
use super::replies::{cursor, reply};
use crate::db::Database;
use crate::error::{Error, Result};
use crate::json::{json_of, value_of};
use crate::snapshot::{CollectionSnapshot, MetaFilter, MetaPart, ScanRequest, TimeRange};
use arrow::array::RecordBatch;
use ebbtide_buckets::value_at;
use ebbtide_ttl::{Code, Filter, Value, exact_int};
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) fn find(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    if let Some(documents) = documents::of(db, args)? {
        return documents::read::find(&documents, args);
    }
    let name = args.collection()?;
    let collection = db.snapshot().collection(name)?;
    let filter = match args.value("filter")? {
        Some(filter) => Filter::parse_query(&filter)?,
        None => Filter::everything(),
    };
    let query = Query {
        filter,
        sort: args.get("sort").map_or(Ok(Vec::new()), parse_sort)?,
        projection: args.get("projection").map_or(Ok(Projection::All), Projection::parse)?,
        skip: args.count("skip")?,
        limit: Some(args.count("limit")?).filter(|limit| *limit > 0),
    };
    let documents = query.run(&collection)?;
    Ok(cursor(name, documents.iter().map(json_of).collect()))
}

pub(super) fn count(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    if let Some(documents) = documents::of(db, args)? {
        return documents::read::count(&documents, args);
    }
    let found = matching(db, args, Projection::fields_only(&[]))?.len() as u64;
    let (skip, limit) = (args.count("skip")?, Some(args.count("limit")?).filter(|limit| *limit > 0));
    Ok(reply([("n", Json::from(found.saturating_sub(skip).min(limit.unwrap_or(u64::MAX))))]))
}

pub(super) fn distinct(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    if let Some(documents) = documents::of(db, args)? {
        return documents::read::distinct(&documents, args);
    }
    let key = args.required("key")?.as_str();
    let path = key.ok_or_else(|| args.mismatch("key", "a string", args.get("key").unwrap_or(&Json::Null)))?;
    let found = matching(db, args, Projection::fields_only(&[path.split('.').next().unwrap_or(path)]))?;
    let mut values: BTreeSet<Value> = BTreeSet::new();
    for document in &found {
        match at_path(document, path) {
            Some(Value::Array(items)) => values.extend(items.iter().cloned()),
            Some(value) => drop(values.insert(value.clone())),
            None => {}
        }
    }
    Ok(reply([("values", values.iter().map(json_of).collect())]))
}

/// The measurements that match `query` of a command.
fn matching(db: &Database, args: &Args<'_>, projection: Projection) -> Result<Vec<Value>> {
    let collection = db.snapshot().collection(args.collection()?)?;
    let filter = args.value("query")?.map_or(Ok(Filter::everything()), |filter| Filter::parse_query(&filter))?;
    Query { filter, sort: Vec::new(), projection, skip: 0, limit: None }.run(&collection)
}

/// A field's path and whether it sorts from the greatest down.
type SortKey = (String, bool);

fn parse_sort(json: &Json) -> Result<Vec<SortKey>> {
    let members = json.as_object().ok_or_else(|| mismatch("sort of find", "an object", json))?;
    let key = |(path, json): (&String, &Json)| {
        let direction = match value_of(json)? {
            Value::Int(i) => Some(i),
            Value::Double(d) => exact_int(d),
            _ => None,
        };
        if path.split('.').any(str::is_empty) || path.starts_with('$') {
            return Err(Error::new(Code::BadValue, format!("'{path}' is not a field's path in a sort")));
        }
        match direction {
            Some(1) => Ok((path.clone(), false)),
            Some(-1) => Ok((path.clone(), true)),
            _ => Err(Error::new(Code::BadValue, format!("the direction of '{path}' in a sort must be 1 or -1"))),
        }
    };
    members.iter().map(key).collect()
}

struct Query {
    filter: Filter,
    sort: Vec<SortKey>,
    projection: Projection,
    skip: u64,
    limit: Option<u64>,
}

/// A document that matches, with what it is sorted by.
struct Candidate {
    keys: Vec<Value>,
    document: Value,
}

impl Query {
    fn run(&self, collection: &CollectionSnapshot) -> Result<Vec<Value>> {
        // These only make the order definite: the time, and the meta if the collection has one.
        let schema = collection.schema();
        let sort: Vec<SortKey> = {
            let implied = std::iter::once(&schema.time).chain(&schema.meta).map(|name| (name.clone(), false));
            self.sort.iter().cloned().chain(implied).collect()
        };
        let wanted = self.limit.and_then(|limit| usize::try_from(self.skip.saturating_add(limit)).ok());
        let mut found: Vec<Candidate> = Vec::new();
        for unit in collection.scan(&self.request(collection, &sort))? {
            for batch in unit.read()? {
                self.collect(&batch?, &sort, &mut found);
                // Keeps memory in proportion to what is asked for, at the cost of a sort now and then.
                if let Some(wanted) = wanted.filter(|wanted| found.len() > wanted.saturating_mul(2).max(1 << 14)) {
                    order(&mut found, &sort);
                    found.truncate(wanted);
                }
            }
        }
        order(&mut found, &sort);
        let skip = ebbtide_buckets::to_usize(self.skip);
        let limit = self.limit.map_or(usize::MAX, ebbtide_buckets::to_usize);
        Ok(found.into_iter().skip(skip).take(limit).map(|found| found.document).collect())
    }

    fn request(&self, collection: &CollectionSnapshot, sort: &[SortKey]) -> ScanRequest {
        let schema = collection.schema();
        let known: Vec<String> = schema.arrow().fields().iter().map(|f| f.name().clone()).collect();
        let columns = self.projection.fields().map(|fields| {
            let mut needed: BTreeSet<&str> = self.filter.fields();
            needed.extend(sort.iter().map(|(path, _)| path.split('.').next().unwrap_or(path)));
            needed.extend(fields);
            known.iter().filter(|name| needed.contains(name.as_str())).cloned().collect()
        });
        let (first, last) = self.filter.time_bounds(&schema.time);
        ScanRequest {
            projection: Some(columns.unwrap_or(known)),
            time: TimeRange::new(first, last),
            meta: MetaPart::of(&self.filter, schema).map(|part| Arc::new(part) as Arc<dyn MetaFilter>),
            ..ScanRequest::default()
        }
    }

    fn collect(&self, batch: &RecordBatch, sort: &[SortKey], found: &mut Vec<Candidate>) {
        let schema = batch.schema();
        let matches_all = self.filter.is_everything();
        for row in 0..batch.num_rows() {
            let field = |name: &str| match batch.column_by_name(name) {
                Some(column) => Cow::Owned(value_at(column.as_ref(), row)),
                None => Cow::Owned(Value::Null),
            };
            if !matches_all && !self.filter.matches(&field) {
                continue;
            }
            let columns = schema.fields().iter().zip(batch.columns());
            let members = columns.map(|(field, column)| (field.name().into(), value_at(column.as_ref(), row)));
            let document = Value::Object(members.filter(|(_, value)| !value.is_null()).collect());
            let keys = sort.iter().map(|(path, _)| at_path(&document, path).cloned().unwrap_or_default()).collect();
            let Value::Object(members) = document else { continue };
            found.push(Candidate { keys, document: Value::Object(self.projection.apply(members)) });
        }
    }
}

fn at_path<'v>(document: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(document, |value, name| value.get(name))
}

fn order(found: &mut [Candidate], sort: &[SortKey]) {
    found.sort_by(|a, b| {
        let pairs = a.keys.iter().zip(&b.keys).zip(sort);
        pairs
            .map(|((a, b), (_, descending))| if *descending { b.cmp(a) } else { a.cmp(b) })
            .find(|ordering| *ordering != Ordering::Equal)
            .unwrap_or(Ordering::Equal)
    });
}
