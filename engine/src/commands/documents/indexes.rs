//! Commands on the indexes of ordinary collections: createIndexes, dropIndexes, listIndexes, and the `index` of collMod.

use super::{document, refused};
use crate::commands::args::{Args, mismatch, object};
use crate::commands::replies::{cursor, reply};
use crate::db::{Database, Documents};
use crate::documents::options::{DocumentsOptions, IndexSpec, check_key_path, check_ttl_key};
use crate::documents::snapshot::DocumentsSnapshot;
use crate::error::{Error, Result};
use crate::json::value_of;
use ebbtide_documents::json::to_relaxed;
use ebbtide_documents::{Filter, Purpose};
use ebbtide_ttl::{Code, ExpireAfterContext, Value, checked_index_name, exact_int, parse_expire_after};
use serde_json::{Map, Value as Json, json};

/// Options of an index that no collection here has.
const REFUSED: &[&str] = &[
    "unique",
    "sparse",
    "collation",
    "hidden",
    "weights",
    "default_language",
    "language_override",
    "textIndexVersion",
    "2dsphereIndexVersion",
    "bits",
    "min",
    "max",
    "wildcardProjection",
    "storageEngine",
];
/// Options that an index may have.
const KNOWN: &[&str] = &["key", "name", "expireAfterSeconds", "partialFilterExpression"];

pub(in crate::commands) fn create(db: &Database, documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    let specs = parse_all(args.required_array("indexes")?)?;
    let (before, after) = db.modify_documents(documents.name(), |options| {
        let before = options.indexes.len();
        specs.into_iter().try_for_each(|spec| add(options, spec))?;
        Ok((before, options.indexes.len()))
    })?;
    let mut answer = reply([
        ("numIndexesBefore", Json::from(before)),
        ("numIndexesAfter", Json::from(after)),
        ("createdCollectionAutomatically", Json::from(false)),
    ]);
    if before == after {
        answer.insert("note".to_owned(), Json::from("all indexes already exist"));
    }
    Ok(answer)
}

impl DocumentsOptions {
    /// Adds indexes, in the form of the `indexes` of the command `createIndexes`.
    ///
    /// # Errors
    /// As `createIndexes`: a list that is empty, an option that an index cannot have, an index that differs from one of the
    /// same name or key.
    pub fn add_indexes(&mut self, indexes: &Json) -> Result<()> {
        let list = indexes.as_array().ok_or_else(|| mismatch("indexes", "a list", indexes))?;
        parse_all(list)?.into_iter().try_for_each(|spec| add(self, spec))
    }
}

fn parse_all(indexes: &[Json]) -> Result<Vec<IndexSpec>> {
    if indexes.is_empty() {
        return Err(Error::new(Code::BadValue, "indexes is empty: describe at least one index"));
    }
    indexes.iter().map(parse).collect()
}

/// Reads one element of `indexes`.
fn parse(json: &Json) -> Result<IndexSpec> {
    if let Some(option) = json.as_object().and_then(|o| REFUSED.iter().find(|option| o.contains_key(**option))) {
        let what = format!("an index cannot have the option '{option}', which would have no effect here: leave it out");
        return Err(Error::new(Code::CannotCreateIndex, what));
    }
    let args = Args::nested("an index".to_owned(), json, &[KNOWN, &["v", "background"]].concat())?;
    let key = read_key(args.required("key")?)?;
    let name = match args.string("name")? {
        Some(name) => checked_index_name(name)?,
        None => default_name(&key),
    };
    let expire_after_seconds = args.value("expireAfterSeconds")?;
    let expire_after_seconds =
        expire_after_seconds.map(|e| parse_expire_after(&e, ExpireAfterContext::CreateIndexes)).transpose()?;
    let filter = args.get("partialFilterExpression").map(read_filter).transpose()?;
    if expire_after_seconds.is_some() {
        check_ttl_key(&key)?;
    }
    Ok(IndexSpec { name, key, expire_after_seconds, filter })
}

fn default_name(key: &[(String, i32)]) -> String {
    key.iter().map(|(path, direction)| format!("{path}_{direction}")).collect::<Vec<_>>().join("_")
}

fn read_key(json: &Json) -> Result<Vec<(String, i32)>> {
    let members = object(json).ok_or_else(|| mismatch("the key of an index", "an object", json))?;
    if members.is_empty() {
        let what = "the key of an index is empty: name at least one field, such as {expires: 1}";
        return Err(Error::new(Code::CannotCreateIndex, what));
    }
    let one = |(path, json): (&String, &Json)| {
        let cannot = |what: String| Err(Error::new(Code::CannotCreateIndex, what));
        check_key_path(path)?;
        match json {
            Json::String(kind) => {
                cannot(format!("an index of kind '{kind}' is not possible: the value of a key is 1 or -1"))
            }
            json => match whole(json)? {
                Some(1) => Ok((path.clone(), 1)),
                Some(-1) => Ok((path.clone(), -1)),
                _ => cannot(format!("the value of key field '{path}' must be 1 or -1")),
            },
        }
    };
    members.iter().map(one).collect()
}

fn whole(json: &Json) -> Result<Option<i64>> {
    Ok(match value_of(json)? {
        Value::Int(i) => Some(i),
        Value::Double(d) => exact_int(d),
        _ => None,
    })
}

fn read_filter(json: &Json) -> Result<Vec<u8>> {
    let what = "partialFilterExpression";
    object(json).ok_or_else(|| mismatch(what, "an object", json))?;
    let filter = document(json, what)?;
    Filter::parse(&filter, Purpose::Partial)?;
    Ok(filter.into_bytes())
}

/// Adds an index to those of a collection, unless it is there.
fn add(options: &mut DocumentsOptions, spec: IndexSpec) -> Result<()> {
    if spec.key.as_slice() == [("_id".to_owned(), 1)] && spec.filter.is_none() {
        return Ok(()); // Every document is found by its _id.
    }
    if options.indexes.contains(&spec) {
        return Ok(());
    }
    options.indexes.iter().try_for_each(|other| spec.check_beside(other))?;
    options.indexes.push(spec);
    Ok(())
}

/// Which index is meant.
enum Selector {
    Name(String),
    Key(Vec<(String, i32)>),
}

impl Selector {
    fn parse(json: &Json) -> Result<Selector> {
        match json {
            Json::String(name) => Ok(Selector::Name(name.clone())),
            Json::Object(members) => {
                let part = |(path, json): (&String, &Json)| {
                    let direction = whole(json)?.and_then(|n| i32::try_from(n).ok());
                    Ok((path.clone(), direction.unwrap_or_default()))
                };
                Ok(Selector::Key(members.iter().map(part).collect::<Result<Vec<_>>>()?))
            }
            other => Err(mismatch("an index", "a name or a key pattern", other)),
        }
    }

    /// The position of the index among those of the collection.
    fn find(&self, options: &DocumentsOptions) -> Result<usize> {
        let selects = |index: &IndexSpec| match self {
            Selector::Name(name) => index.name == *name,
            Selector::Key(key) => index.key == *key,
        };
        let mut found = options.indexes.iter().enumerate().filter(|(_, index)| selects(index));
        match (found.next(), found.next()) {
            (Some((at, _)), None) => Ok(at),
            (Some((_, a)), Some((_, b))) => {
                let what =
                    format!("several indexes have this key, among them '{}' and '{}': give a name", a.name, b.name);
                Err(Error::new(Code::AmbiguousIndexKeyPattern, what))
            }
            (None, _) => {
                let names: Vec<&str> = options.indexes.iter().map(|index| index.name.as_str()).collect();
                let there =
                    if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
                let wanted = match self {
                    Selector::Name(name) => format!("the name '{name}'"),
                    Selector::Key(_) => "this key".to_owned(),
                };
                Err(Error::new(Code::IndexNotFound, format!("the collection has no index with {wanted}; {there}")))
            }
        }
    }
}

pub(in crate::commands) fn drop(db: &Database, documents: &Documents, args: &Args<'_>) -> Result<Map<String, Json>> {
    let index = args.required("index")?;
    if index.as_str() == Some("_id_") || *index == json!({"_id": 1}) {
        return Err(refused("the index on _id cannot be dropped"));
    }
    let before = db.modify_documents(documents.name(), |options| {
        let before = options.indexes.len();
        match index {
            Json::String(all) if all == "*" => options.indexes.clear(),
            Json::Array(names) => {
                let mut selected = Vec::new();
                for json in names {
                    let Json::String(name) = json else { return Err(args.mismatch("index", "a list of names", json)) };
                    selected.push(Selector::Name(name.clone()).find(options)?);
                }
                selected.sort_unstable();
                selected.dedup();
                selected.into_iter().rev().for_each(|at| std::mem::drop(options.indexes.remove(at)));
            }
            one => {
                let at = Selector::parse(one)?.find(options)?;
                options.indexes.remove(at);
            }
        }
        Ok(before)
    })?;
    Ok(reply([("nIndexesWas", Json::from(before))]))
}

pub(in crate::commands) fn list(documents: &Documents) -> Result<Map<String, Json>> {
    Ok(cursor(documents.name(), indexes_of(&documents.snapshot()?)))
}

/// The indexes, in the form in which `createIndexes` takes them.
fn indexes_of(documents: &DocumentsSnapshot) -> Vec<Json> {
    let index = |index: &IndexSpec| {
        let key: Map<String, Json> = index.key.iter().map(|(path, way)| (path.clone(), Json::from(*way))).collect();
        let mut listed = reply([("key", Json::Object(key)), ("name", Json::from(index.name.as_str()))]);
        if let Some(e) = index.expire_after_seconds {
            listed.insert("expireAfterSeconds".to_owned(), Json::from(e));
        }
        if let Some(filter) = &index.filter {
            listed.insert("partialFilterExpression".to_owned(), to_relaxed(crate::documents::stored::raw(filter)));
        }
        Json::Object(listed)
    };
    documents.options().indexes.iter().map(index).collect()
}

impl DocumentsSnapshot {
    /// The command document that makes this collection's indexes; `None` if it has none.
    #[must_use]
    pub fn create_indexes_command(&self) -> Option<Json> {
        let indexes = indexes_of(self);
        (!indexes.is_empty()).then(|| json!({"createIndexes": self.name(), "indexes": indexes}))
    }
}

/// Changes the E of an index as the `index` of collMod says, or gives one to a plain index. Returns the old and the new E.
pub(super) fn modify(options: &mut DocumentsOptions, index: &Json) -> Result<(Option<i64>, i64)> {
    let args = Args::nested("index".to_owned(), index, &["name", "keyPattern", "expireAfterSeconds"])?;
    let selector = match (args.get("name"), args.get("keyPattern")) {
        (Some(name @ Json::String(_)), None) => Selector::parse(name)?,
        (None, Some(pattern @ Json::Object(_))) => Selector::parse(pattern)?,
        (Some(other), None) => return Err(mismatch("the name of an index", "a string", other)),
        (None, Some(other)) => return Err(mismatch("a keyPattern", "an object", other)),
        _ => return Err(refused("index needs either a name or a keyPattern")),
    };
    let Some(e) = args.get("expireAfterSeconds") else { return Err(refused("index needs expireAfterSeconds")) };
    let e = parse_expire_after(&value_of(e)?, ExpireAfterContext::CollModIndex)?;
    let at = selector.find(options)?;
    let index = &mut options.indexes[at];
    match index.key.as_slice() {
        [(path, _)] if path != "_id" => {}
        _ => return Err(refused("only an index with one key field, which is not _id, can expire documents")),
    }
    Ok((index.expire_after_seconds.replace(e), e))
}
