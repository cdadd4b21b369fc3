//! Commands on partial TTL indexes: createIndexes, dropIndexes, listIndexes.

use super::args::Args;
use super::documents;
use super::replies::{cursor, reply};
use crate::db::Database;
use crate::error::{Error, Result};
use crate::json::{json_of, value_of};
use crate::snapshot::CollectionSnapshot;
use ebbtide_ttl::{Code, PartialRule, RuleSelector, RuleSpec};
use serde_json::{Map, Value as Json, json};

pub(super) fn create(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    if let Some(documents) = documents::of(db, args)? {
        return documents::indexes::create(db, &documents, args);
    }
    let name = args.collection()?;
    let snapshot = db.snapshot().collection(name)?;
    let options = snapshot.options();
    let indexes = args.required_array("indexes")?;
    if indexes.is_empty() {
        return Err(Error::new(Code::BadValue, "indexes is empty: describe at least one index"));
    }
    let spec = |json: &Json| Ok(RuleSpec::parse(&value_of(json)?, &options.time_field, options.meta_field.as_deref())?);
    let specs = indexes.iter().map(spec).collect::<Result<Vec<_>>>()?;
    let created = db.create_rules(name, specs)?;
    let mut answer = reply([
        ("numIndexesBefore", Json::from(created.before)),
        ("numIndexesAfter", Json::from(created.after)),
        ("createdCollectionAutomatically", Json::from(false)),
    ]);
    if created.before == created.after {
        answer.insert("note".to_owned(), Json::from("all indexes already exist"));
    }
    Ok(answer)
}

pub(super) fn drop(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    if let Some(documents) = documents::of(db, args)? {
        return documents::indexes::drop(db, &documents, args);
    }
    let name = args.collection()?;
    let snapshot = db.snapshot().collection(name)?;
    let time_field = &snapshot.options().time_field;
    let before = snapshot.rules().partial().len();
    match args.required("index")? {
        Json::String(all) if all == "*" => db.drop_rules(name)?,
        Json::Array(names) => {
            let mut selectors = Vec::with_capacity(names.len());
            for json in names {
                let Some(index) = json.as_str() else {
                    return Err(args.mismatch("index", "a list of names", json));
                };
                let selector = RuleSelector::Name(index.to_owned());
                if !selectors.contains(&selector) {
                    selectors.push(selector);
                }
            }
            db.drop_rules_matching(name, &selectors)?;
        }
        one => db.drop_rules_matching(name, &[RuleSelector::parse(&value_of(one)?, time_field)?])?,
    }
    Ok(reply([("nIndexesWas", Json::from(before))]))
}

pub(super) fn list(db: &Database, args: &Args<'_>) -> Result<Map<String, Json>> {
    if let Some(documents) = documents::of(db, args)? {
        return documents::indexes::list(&documents);
    }
    let name = args.collection()?;
    Ok(cursor(name, indexes_of(&db.snapshot().collection(name)?)))
}

/// The partial TTL indexes, in the form of `createIndexes`.
fn indexes_of(collection: &CollectionSnapshot) -> Vec<Json> {
    let time_field = collection.options().time_field.as_str();
    let archives = collection.archives();
    let index = |rule: &PartialRule| {
        let mut index = json!({
            "key": {time_field: rule.key_direction},
            "name": rule.name,
            "expireAfterSeconds": rule.expire_after_seconds,
            "partialFilterExpression": json_of(rule.filter.source()),
        });
        if let Some(archive) = archives.iter().find(|archive| archive.index.as_ref() == Some(&rule.name)) {
            index["expireInto"] = Json::from(archive.url.as_str());
            if let Some(seconds) = archive.keep_seconds {
                index["keepSeconds"] = Json::from(seconds);
            }
        }
        index
    };
    collection.rules().partial().iter().map(index).collect()
}

impl CollectionSnapshot {
    /// The command document that makes this collection's partial TTL indexes; `None` if it has none.
    #[must_use]
    pub fn create_indexes_command(&self) -> Option<Json> {
        let indexes = indexes_of(self);
        (!indexes.is_empty()).then(|| json!({"createIndexes": self.name(), "indexes": indexes}))
    }
}
