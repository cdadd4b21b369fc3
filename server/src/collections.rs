//! Commands on collections and databases as a whole, and on indexes.

use crate::batches::first_batch;
use crate::command::{Command, count_of, mismatch, missing, refuse_buckets, whole_part};
use crate::cursors::List;
use crate::databases::check_new_collection;
use crate::error::{CommandError, Result, ServerCode};
use crate::{json, reply};
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::rawdoc;
use ebbtide::{Database, DocumentsOptions, FileAccess, HoldInfo};
use ebbtide_documents::{Filter, Purpose, TypeClass, whole_number};
use ebbtide_ttl::Code;
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeSet;

/// Options of an index that drivers send and that say nothing.
const INDEX_NOISE: [&str; 3] = ["v", "background", "ns"];
/// Options of an index that say nothing when they are false.
const INDEX_SWITCHES: [&str; 3] = ["unique", "sparse", "hidden"];

/// The database, where a missing one has no collections.
fn existing(command: &Command<'_>, collection: &str) -> Result<Database> {
    let missing = || {
        let what = format!("ns not found: '{}' does not exist", command.namespace(collection));
        CommandError::new(Code::NamespaceNotFound, what)
    };
    command.existing()?.ok_or_else(missing)
}

fn files<'c>(command: &'c Command<'_>) -> &'c FileAccess {
    &command.shared.settings.files
}

/// Runs a command on one collection that the engine knows as it is.
pub(crate) fn through_engine(command: &Command<'_>) -> Result<RawDocumentBuf> {
    Ok(reply::finished(json::to_bson(&answer_of_engine(command)?)?))
}

fn answer_of_engine(command: &Command<'_>) -> Result<Map<String, Json>> {
    let collection = command.collection()?;
    let mut answer = json::run(&existing(command, collection)?, files(command), json::of(command))?;
    if let Some(Json::String(_)) = answer.get("ns") {
        answer.insert("ns".to_owned(), Json::from(command.namespace(collection)));
    }
    Ok(answer)
}

pub(crate) fn drop_collection(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let indexes = indexes_of(command).map_or(0, |listed| listed.len());
    let mut answer = answer_of_engine(command)?;
    answer.insert("nIndexesWas".to_owned(), Json::from(indexes));
    Ok(reply::finished(json::to_bson(&answer)?))
}

pub(crate) fn drop_indexes(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let collection = command.collection()?;
    let database = existing(command, collection)?;
    let drops_all = drops_all(command)?;
    let mut request = json::of(command);
    if drops_all {
        request.insert("index".to_owned(), Json::from("*"));
    }
    let mut answer = json::run(&database, files(command), request)?;
    if database.documents(collection).is_ok() {
        count_id_index(&mut answer, "nIndexesWas");
    }
    if drops_all {
        answer.insert("msg".to_owned(), Json::from("non-_id indexes dropped for collection"));
    }
    Ok(reply::finished(json::to_bson(&answer)?))
}

/// Whether the `index` of a `dropIndexes` means all but that on `_id`: `*`, or a list with nothing else.
///
/// # Errors
/// For what is neither a name, a list of names nor a key, for the index on `_id`, and for a name that is listed twice.
fn drops_all(command: &Command<'_>) -> Result<bool> {
    let of_id = || CommandError::new(Code::InvalidOptions, "cannot drop _id index");
    match command.get("index") {
        None => Ok(false),
        Some(RawBsonRef::String(name)) => Ok(name == "*"),
        Some(RawBsonRef::Document(key)) if is_id(key) => Err(of_id()),
        Some(RawBsonRef::Document(_)) => Ok(false),
        Some(RawBsonRef::Array(names)) => {
            let mut known = BTreeSet::new();
            for name in names.into_iter().filter_map(std::result::Result::ok) {
                match name {
                    RawBsonRef::String("_id_") => return Err(of_id()),
                    RawBsonRef::String(name) if known.insert(name) => {}
                    RawBsonRef::String(name) => {
                        let shown: String = name.chars().take(60).collect();
                        let what = format!("index '{}' is listed twice: name it once", shown.escape_debug());
                        return Err(CommandError::new(Code::IndexNotFound, what));
                    }
                    other => return Err(mismatch("index", "a list of names", other)),
                }
            }
            Ok(known.len() == 1 && known.contains("*"))
        }
        Some(other) => Err(mismatch("index", "a name, a list of names or a key", other)),
    }
}

/// Whether a key is that of the index on `_id`.
fn is_id(key: &RawDocument) -> bool {
    only_field(key) == Some(("_id", Some(1)))
}

/// The field of a key that has one, and its direction.
fn only_field(key: &RawDocument) -> Option<(&str, Option<i64>)> {
    let mut members = key.iter().filter_map(std::result::Result::ok);
    let (name, value) = members.next()?;
    members.next().is_none().then(|| (name.as_str(), whole_number(value)))
}

/// The index on `_id` counts, as in MongoDB.
fn count_id_index(answer: &mut Map<String, Json>, name: &str) {
    let counted = answer.get(name).and_then(Json::as_i64).unwrap_or_default();
    answer.insert(name.to_owned(), Json::from(counted + 1));
}

pub(crate) fn create(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let collection = command.collection()?;
    check_new_collection(collection)?;
    let database = command.shared.databases.get_or_create(command.database)?;
    if database.snapshot().has_collection(collection) && command.options().next().is_none() {
        let what = format!("Collection {} already exists.", command.namespace(collection));
        return Err(CommandError::new(Code::NamespaceExists, what));
    }
    let mut request = json::of(command);
    // That asks for nothing.
    request.retain(|name, value| name != "capped" || *value != Json::Bool(false));
    json::run(&database, files(command), request)?;
    Ok(reply::done())
}

pub(crate) fn rename(command: &Command<'_>) -> Result<RawDocumentBuf> {
    command.check_admin()?;
    let from = command.collection()?;
    let to = command.string("to")?.ok_or_else(|| missing("to", "renameCollection"))?;
    let parts = |namespace: &str| namespace.split_once('.').map(|(d, c)| (d.to_owned(), c.to_owned()));
    let wrong = || CommandError::new(Code::InvalidNamespace, "renameCollection and to must be 'database.collection'");
    let ((database, from), (target, to)) = (parts(from).ok_or_else(wrong)?, parts(to).ok_or_else(wrong)?);
    if database != target {
        let what = format!("a collection cannot go from database '{database}' to '{target}': dump and restore it");
        return Err(CommandError::new(Code::IllegalOperation, what));
    }
    let missing =
        || CommandError::new(Code::NamespaceNotFound, format!("Source collection {database}.{from} does not exist"));
    let found = command.shared.databases.get(&database)?.ok_or_else(missing)?;
    check_new_collection(&to)?;
    let mut renamed = json::of(command);
    renamed.insert("renameCollection".to_owned(), Json::from(from));
    renamed.insert("to".to_owned(), Json::from(to));
    json::run(&found, files(command), renamed)?;
    Ok(reply::done())
}

pub(crate) fn create_indexes(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let collection = command.collection()?;
    match command.get("commitQuorum") {
        None | Some(RawBsonRef::String(_) | RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_)) => {}
        Some(RawBsonRef::Document(_)) => {
            let what = "commitQuorum must be a string or a number, not an object: if createIndex was called with two option \
                        documents, put all options into one";
            return Err(CommandError::new(Code::TypeMismatch, what));
        }
        Some(other) => return Err(mismatch("commitQuorum", "a string or a number", other)),
    }
    if let Some(RawBsonRef::Array(indexes)) = command.get("indexes") {
        let indexes = indexes.into_iter().filter_map(std::result::Result::ok);
        indexes.filter_map(RawBsonRef::as_document).try_for_each(check_index)?;
    }
    let mut request = json::of(command);
    request.remove("commitQuorum");
    if let Some(Json::Array(indexes)) = request.get_mut("indexes") {
        for index in indexes.iter_mut().filter_map(Json::as_object_mut) {
            INDEX_NOISE.iter().for_each(|noise| drop(index.remove(*noise)));
            INDEX_SWITCHES.iter().for_each(|switch| {
                if index.get(*switch) == Some(&Json::Bool(false)) {
                    index.remove(*switch);
                }
            });
            if index.get("collation") == Some(&json!({"locale": "simple"})) {
                index.remove("collation");
            }
        }
    }
    let database = command.shared.databases.get_or_create(command.database)?;
    if !database.snapshot().has_collection(collection) {
        // Nothing is left of a command that is refused.
        let indexes = request.get("indexes").ok_or_else(|| missing("indexes", "createIndexes"))?;
        DocumentsOptions::default().add_indexes(indexes)?;
    }
    let is_new = ensure_collection(command, &database, collection)?;
    let mut answer = json::run(&database, files(command), request)?;
    if answer.contains_key("note") {
        answer.remove("createdCollectionAutomatically");
    } else if answer.contains_key("createdCollectionAutomatically") {
        answer.insert("createdCollectionAutomatically".to_owned(), Json::from(is_new));
    }
    if database.documents(collection).is_ok() {
        ["numIndexesBefore", "numIndexesAfter"].into_iter().for_each(|name| count_id_index(&mut answer, name));
    }
    Ok(reply::finished(json::to_bson(&answer)?))
}

/// Refuses an index without a key or a name, a version that no index has, and another index in place of that on `_id`.
fn check_index(index: &RawDocument) -> Result<()> {
    let get = |name: &str| index.get(name).ok().flatten();
    let required = |name: &str| {
        let what = format!("an index must have the field '{name}'");
        get(name).ok_or_else(|| CommandError::new(Code::FailedToParse, what))
    };
    let key = match required("key")? {
        RawBsonRef::Document(key) => key,
        other => return Err(mismatch("the field 'key' of an index", "an object", other)),
    };
    let name = match required("name")? {
        RawBsonRef::String(name) => name,
        other => return Err(mismatch("the field 'name' of an index", "a string", other)),
    };
    match get("v") {
        None | Some(RawBsonRef::Null) => {}
        Some(version) if TypeClass::of(version) != TypeClass::Number => {
            return Err(mismatch("the field 'v' of an index", "a number", version));
        }
        Some(version) if matches!(whole_number(version), Some(1 | 2)) => {}
        Some(_) => return Err(CommandError::new(Code::CannotCreateIndex, "an index must have v: 2 or v: 1")),
    }
    if name == "_id_" && !is_id(key) {
        let what = "the index name '_id_' is reserved for the _id index, which must have the key {_id: 1}";
        return Err(CommandError::new(Code::BadValue, what));
    }
    if only_field(key) == Some(("_id", Some(-1))) {
        return Err(CommandError::new(Code::BadValue, "the key of an index on _id must be {_id: 1}"));
    }
    Ok(())
}

/// Creates an ordinary collection where there is none; whether it did.
pub(crate) fn ensure_collection(command: &Command<'_>, database: &Database, name: &str) -> Result<bool> {
    if database.snapshot().has_collection(name) {
        return Ok(false);
    }
    check_new_collection(name)?;
    if !command.shared.settings.auto_create {
        let what = format!("collection '{name}' does not exist, and writes create none here: create it first");
        return Err(CommandError::new(Code::NamespaceNotFound, what));
    }
    match database.create_documents(name, DocumentsOptions::default()) {
        Ok(_) => Ok(true),
        // Another client was first.
        Err(error) if error.code() == Code::NamespaceExists => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(crate) const LIST: &[&str] = &["filter", "nameOnly", "cursor", "authorizedCollections"];

pub(crate) fn list(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let filter = command.document("filter")?;
    if let Some(Ok(name)) = filter.map(|filter| filter.get_str("name")) {
        refuse_buckets(name)?;
    }
    let filter = match filter {
        Some(filter) => Filter::parse(filter, Purpose::Find)?,
        None => Filter::everything(),
    };
    let name_only = command.switch("nameOnly")?.unwrap_or(false);
    let mut listed = Vec::new();
    if let Some(database) = command.existing()? {
        for one in batch_of(json::run(&database, files(command), one_member("listCollections"))?) {
            let mut one = one;
            if one.get("type").and_then(Json::as_str) == Some("collection") {
                one.insert("idIndex".to_owned(), json!({"v": 2, "key": {"_id": 1}, "name": "_id_"}));
            }
            let document = json::to_bson(&one)?;
            if filter.matches(&document) {
                one.retain(|name, _| !name_only || name == "name" || name == "type");
                listed.push(json::to_bson(&one)?);
            }
        }
    }
    let namespace = command.namespace("$cmd.listCollections");
    first_batch(command, &namespace, Box::new(List::new(listed)), batch_size(command)?, false)
}

fn one_member(name: &str) -> Map<String, Json> {
    [(name.to_owned(), Json::from(1))].into_iter().collect()
}

/// The documents in a reply with a cursor.
fn batch_of(mut reply: Map<String, Json>) -> Vec<Map<String, Json>> {
    let batch = reply.get_mut("cursor").and_then(|cursor| cursor.get_mut("firstBatch")).map(Json::take);
    let Some(Json::Array(batch)) = batch else { return Vec::new() };
    batch.into_iter().filter_map(|one| if let Json::Object(one) = one { Some(one) } else { None }).collect()
}

/// The `batchSize` in the option `cursor`.
pub(crate) fn batch_size(command: &Command<'_>) -> Result<Option<u64>> {
    let Some(cursor) = command.document("cursor")? else { return Ok(None) };
    let size = cursor.get("batchSize").ok().flatten();
    if let Some((unknown, _)) = cursor.iter().filter_map(std::result::Result::ok).find(|(name, _)| *name != "batchSize")
    {
        let shown: String = unknown.as_str().chars().take(60).collect();
        return Err(CommandError::new(
            Code::IDLUnknownField,
            format!("unknown option '{}' of cursor", shown.escape_debug()),
        ));
    }
    size.map(|size| count_of("batchSize", size)).transpose()
}

pub(crate) fn list_indexes(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let listed = indexes_of(command)?;
    let namespace = command.namespace(command.collection()?);
    first_batch(command, &namespace, Box::new(List::new(listed)), batch_size(command)?, false)
}

/// The indexes of a collection, as they are listed.
pub(crate) fn indexes_of(command: &Command<'_>) -> Result<Vec<RawDocumentBuf>> {
    let collection = command.collection()?;
    let database = existing(command, collection)?;
    let request: Map<_, _> = [("listIndexes".to_owned(), Json::from(collection))].into_iter().collect();
    let made = batch_of(json::run(&database, files(command), request)?);
    let mut listed = Vec::new();
    if database.documents(collection).is_ok() {
        listed.push(rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" });
    }
    for index in made {
        let mut document = rawdoc! { "v": 2 };
        for (name, value) in &index {
            reply::append(&mut document, name, json::value_of(value)?);
        }
        listed.push(document);
    }
    Ok(listed)
}

fn whole(figures: &Map<String, Json>, name: &str) -> i64 {
    figures.get(name).and_then(Json::as_i64).unwrap_or_default()
}

/// The `scale` of a command on sizes; a fraction is cut off.
fn scale(command: &Command<'_>) -> Result<i64> {
    match command.get("scale").map(|scale| whole_part("scale", scale)).transpose()? {
        Some(scale) if scale < 1 => {
            let what = format!("scale must be 1 or more, not {scale}");
            Err(match command.handler.name {
                "collStats" => CommandError::of_server(ServerCode::Location51024, what),
                _ => CommandError::new(Code::BadValue, what),
            })
        }
        scale => Ok(scale.unwrap_or(1)),
    }
}

fn figures_of(database: &Database, collection: &str) -> Result<Map<String, Json>> {
    let request = [("collStats".to_owned(), Json::from(collection))];
    // Nothing in it names a file.
    json::run(database, &FileAccess::All, request.into_iter().collect())
}

pub(crate) fn stats(command: &Command<'_>) -> Result<RawDocumentBuf> {
    Ok(reply::finished(stats_of(command, command.collection()?, scale(command)?)?))
}

/// The figures of a collection, sizes in units of `scale` bytes.
pub(crate) fn stats_of(command: &Command<'_>, collection: &str, scale: i64) -> Result<RawDocumentBuf> {
    let database = existing(command, collection)?;
    let figures = figures_of(&database, collection)?;
    let (count, size) = (whole(&figures, "count"), whole(&figures, "size"));
    let mut answer = rawdoc! {
        "ns": command.namespace(collection).as_str(),
        "size": reply::number(size / scale),
        "count": reply::number(count),
        "avgObjSize": reply::number(size.checked_div(count).unwrap_or_default()),
        "storageSize": reply::number(size / scale),
        "totalSize": reply::number(size / scale),
        "scaleFactor": reply::number(scale),
        "capped": false,
    };
    let indexes = figures.get("nindexes").and_then(Json::as_i64).map_or(0, |n| n + 1);
    answer.append(cstr!("nindexes"), reply::number(indexes));
    if let Ok(documents) = database.snapshot().documents(collection) {
        let mut sizes = RawDocumentBuf::new();
        let mut total = 0;
        for used in documents.index_uses() {
            let bytes = i64::try_from(documents.index_bytes(&used.name)).unwrap_or(i64::MAX);
            reply::append(&mut sizes, &used.name, reply::number(bytes / scale));
            total += bytes;
        }
        answer.append(cstr!("totalIndexSize"), reply::number(total / scale));
        answer.append(cstr!("indexSizes"), sizes);
    }
    if let Some(timeseries) = figures.get("timeseries").and_then(Json::as_object) {
        // mongosh adds these figures up and fails on others.
        let numbers = timeseries.iter().filter(|(_, value)| value.is_number());
        let numbers: Map<_, _> = numbers.map(|(name, value)| (name.clone(), value.clone())).collect();
        reply::append(&mut answer, "timeseries", json::to_bson(&numbers)?);
    }
    Ok(answer)
}

pub(crate) fn database_stats(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let scale = scale(command)?;
    let (mut collections, mut objects, mut size, mut indexes) = (0, 0, 0, 0);
    if let Some(database) = command.existing()? {
        for name in database.snapshot().all_collections() {
            let Ok(figures) = figures_of(&database, &name) else { continue };
            collections += 1;
            objects += whole(&figures, "count");
            size += whole(&figures, "size");
            indexes += figures.get("nindexes").and_then(Json::as_i64).map_or(0, |n| n + 1);
        }
    }
    Ok(reply::finished(rawdoc! {
        "db": command.database,
        "collections": reply::number(collections),
        "views": 0,
        "objects": reply::number(objects),
        "avgObjSize": reply::number(size.checked_div(objects).unwrap_or_default()),
        "dataSize": reply::number(size / scale),
        "storageSize": reply::number(size / scale),
        "indexes": reply::number(indexes),
        "indexSize": 0,
        "totalSize": reply::number(size / scale),
        "scaleFactor": reply::number(scale),
    }))
}

pub(crate) fn list_databases(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let filter = match command.document("filter")? {
        Some(filter) => Filter::parse(filter, Purpose::Find)?,
        None => Filter::everything(),
    };
    let name_only = command.flag("nameOnly")?.unwrap_or(false);
    let (mut listed, mut total) = (RawArrayBuf::new(), 0);
    for (name, database) in command.shared.databases.all() {
        let collections = database.snapshot().all_collections();
        let sizes = collections.iter().filter_map(|one| Some(whole(&figures_of(&database, one).ok()?, "size")));
        let size: i64 = sizes.sum();
        let document =
            rawdoc! { "name": name.as_str(), "sizeOnDisk": reply::number(size), "empty": collections.is_empty() };
        // As in MongoDB a database exists with its first collection.
        if collections.is_empty() || !filter.matches(&document) {
            continue;
        }
        total += size;
        listed.push(if name_only {
            rawdoc! { "name": name.as_str() }
        } else {
            document
        });
    }
    let mut answer = rawdoc! { "databases": listed };
    if !name_only {
        answer.append(cstr!("totalSize"), reply::number(total));
        answer.append(cstr!("totalSizeMb"), reply::number(total >> 20));
    }
    Ok(reply::finished(answer))
}

pub(crate) fn drop_database(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let mut answer = RawDocumentBuf::new();
    if let Some(database) = command.existing()? {
        // A collection that cannot be dropped leaves all others there.
        let is_active = |hold: &HoldInfo| hold.lifted_at.is_none() && hold.measurements > 0;
        if let Some(hold) = database.snapshot().holds()?.into_iter().find(is_active) {
            let HoldInfo { name, collection, .. } = hold;
            let what = format!("hold '{name}' keeps measurements of '{collection}': lift the hold first");
            return Err(CommandError::new(Code::IllegalOperation, what));
        }
        for name in database.snapshot().all_collections() {
            match database.drop_collection(&name) {
                Err(error) if error.code() != Code::NamespaceNotFound => return Err(error.into()),
                _ => {}
            }
        }
        answer.append(cstr!("dropped"), command.database);
    }
    Ok(reply::finished(answer))
}

pub(crate) fn validate(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let collection = command.collection()?;
    command.refuse(&["repair"])?;
    let database = existing(command, collection)?;
    if !database.snapshot().has_collection(collection) {
        let what = format!("Collection '{}' does not exist to validate.", command.namespace(collection));
        return Err(CommandError::new(Code::NamespaceNotFound, what));
    }
    let report = database.verify()?;
    let faults: RawArrayBuf = report.faults.iter().map(|fault| RawBson::String(fault.clone())).collect();
    Ok(reply::finished(rawdoc! {
        "ns": command.namespace(collection).as_str(),
        "nInvalidDocuments": 0,
        "nrecords": reply::number(whole(&figures_of(&database, collection)?, "count")),
        "valid": faults.is_empty(),
        "repaired": false,
        "warnings": [],
        "errors": faults,
    }))
}
