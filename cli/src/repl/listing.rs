//! The lists of the shell's `\\d`: all collections, and the details of one.

#[cfg(test)]
mod tests;

use crate::human::bytes;
use crate::{Failure, files, say, status};
use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use ebbtide::documents_model::DefaultTtl;
use ebbtide::{CollectionSnapshot, DocumentsSnapshot, Snapshot};
use ebbtide_query::Session;
use ebbtide_query::output::{TableStyle, render};
use ebbtide_query::suggest;
use ebbtide_ttl::{Timestamp, retention_text};
use serde_json::Value;
use std::sync::Arc;

/// Lists the collections with their retention and size.
pub(super) fn collections(session: &Session) -> Result<(), Failure> {
    of_each(&session.snapshots(), collections_of)
}

/// Does something for each database, under its URL if there are several.
fn of_each(snapshots: &[Snapshot], list: impl Fn(&Snapshot) -> Result<(), Failure>) -> Result<(), Failure> {
    for snapshot in snapshots {
        if let Some(position) = snapshot.position().filter(|_| snapshots.len() > 1) {
            say!("{}:", position.url);
        }
        list(snapshot)?;
    }
    Ok(())
}

fn collections_of(snapshot: &Snapshot) -> Result<(), Failure> {
    let mut names = snapshot.collections();
    names.extend(snapshot.document_collections());
    names.sort();
    if names.is_empty() {
        say!("no collections yet: CREATE COLLECTION makes one, and so does ebbtide import");
        return Ok(());
    }
    let info = |name: &String| match snapshot.documents(name) {
        Ok(documents) => documents.info(),
        Err(_) => snapshot.collection(name)?.info(),
    };
    let infos = names.iter().map(info).collect::<ebbtide::Result<Vec<_>>>()?;
    let text = |cells: Vec<String>| -> ArrayRef { Arc::new(StringArray::from(cells)) };
    let day = |at: Option<Timestamp>| at.map(|t| t.to_string().chars().take(10).collect()).unwrap_or_default();
    let keeps = |name: &String| match snapshot.documents(name) {
        Ok(documents) => Ok(keeps_of_documents(&documents)),
        Err(_) => Ok(keeps(&snapshot.collection(name)?)),
    };
    let keeps = names.iter().map(keeps).collect::<ebbtide::Result<_>>()?;
    let measurements = infos.iter().map(|i| i.measurements).collect::<Vec<_>>();
    let batch = RecordBatch::try_from_iter([
        ("name", text(names.clone())),
        ("keeps", text(keeps)),
        ("measurements", Arc::new(UInt64Array::from(measurements))),
        ("size", text(infos.iter().map(|i| bytes(i.bytes)).collect())),
        ("first", text(infos.iter().map(|i| day(i.first_time)).collect())),
        ("last", text(infos.iter().map(|i| day(i.last_time)).collect())),
    ])
    .map_err(ebbtide_query::QueryError::from)?;
    say!("{}", render(&batch.schema(), &[batch], TableStyle { width: files::width(), ..TableStyle::default() }));
    let views: Vec<&str> = snapshot.views().keys().map(String::as_str).collect();
    if !views.is_empty() {
        say!("views: {}", views.join(", "));
    }
    Ok(())
}

/// The retention of a collection, and the number of its partial rules.
fn keeps(collection: &CollectionSnapshot) -> String {
    let long = collection.rules().collection().map_or("forever".to_owned(), retention_text);
    match collection.rules().iter().filter(|rule| rule.name.is_some()).count() {
        0 => long,
        1 => format!("{long} + 1 rule"),
        count => format!("{long} + {count} rules"),
    }
}

fn keeps_of_documents(collection: &DocumentsSnapshot) -> String {
    let long = match collection.options().default_ttl {
        DefaultTtl::Off => "forever".to_owned(),
        DefaultTtl::Never => "by item".to_owned(),
        DefaultTtl::Seconds(seconds) => retention_text(i64::from(seconds)),
    };
    match collection.options().indexes.iter().filter(|index| index.expire_after_seconds.is_some()).count() {
        0 => long,
        1 => format!("{long} + 1 rule"),
        count => format!("{long} + {count} rules"),
    }
}

pub(super) fn has_rules(session: &Session) -> Result<bool, Failure> {
    for snapshot in session.snapshots() {
        for name in snapshot.collections() {
            if snapshot.collection(&name)?.rules().iter().next().is_some() {
                return Ok(true);
            }
        }
        for name in snapshot.document_collections() {
            if snapshot.documents(&name)?.options().expires() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Shows one collection: its columns, what is stored by age and rule, and what expires next.
pub(super) fn collection(session: &Session, name: &str) -> Result<(), Failure> {
    of_each(&having(session, name)?, |snapshot| collection_of(snapshot, name))
}

/// The databases that have a collection of this name; an error if there is none.
fn having(session: &Session, name: &str) -> Result<Vec<Snapshot>, Failure> {
    let mut snapshots = session.snapshots();
    if !snapshots.iter().any(|snapshot| known(snapshot, name).is_ok()) {
        snapshots.iter().take(1).try_for_each(|snapshot| known(snapshot, name).map(drop))?;
    }
    snapshots.retain(|snapshot| known(snapshot, name).is_ok());
    Ok(snapshots)
}

fn collection_of(snapshot: &Snapshot, name: &str) -> Result<(), Failure> {
    let name = known(snapshot, name)?;
    if let Ok(documents) = snapshot.documents(&name) {
        let columns = ebbtide_query::system::describe_documents(&documents).map_err(ebbtide_query::QueryError::from)?;
        let style = TableStyle { width: files::width(), ..TableStyle::default() };
        say!("{}", render(&columns.schema(), &[columns], style));
        return status::documents_status(&documents);
    }
    let collection = snapshot.collection(&name)?;
    let columns = ebbtide_query::system::describe_rows(&collection).map_err(ebbtide_query::QueryError::from)?;
    say!("{}", render(&columns.schema(), &[columns], TableStyle { width: files::width(), ..TableStyle::default() }));
    status::one_status(&collection)
}

/// Prints the statements that make the collections, or one of them.
pub(super) fn schema(session: &Session, name: Option<&str>) -> Result<(), Failure> {
    let snapshots = match name {
        Some(name) => having(session, name)?,
        None => session.snapshots(),
    };
    of_each(&snapshots, |snapshot| schema_of(snapshot, name))
}

fn schema_of(snapshot: &Snapshot, name: Option<&str>) -> Result<(), Failure> {
    for line in statements_of_all(snapshot, name)? {
        say!("{line}");
    }
    Ok(())
}

/// What makes the collections and views, or one collection.
fn statements_of_all(snapshot: &Snapshot, name: Option<&str>) -> Result<Vec<String>, Failure> {
    let names = match name {
        Some(name) => vec![known(snapshot, name)?],
        None => snapshot.collections().into_iter().chain(snapshot.document_collections()).collect(),
    };
    let mut lines = Vec::new();
    for name in names {
        lines.extend(match snapshot.documents(&name) {
            Ok(documents) => statements_of_documents(&documents),
            Err(_) => statements_of(&snapshot.collection(&name)?),
        });
    }
    if name.is_none() {
        lines.extend(views_in_order(snapshot));
    }
    Ok(lines)
}

/// What makes the views, each after those that it names.
fn views_in_order(snapshot: &Snapshot) -> Vec<String> {
    let mut left: Vec<(&String, &String)> = snapshot.views().iter().collect();
    let mut lines = Vec::new();
    while !left.is_empty() {
        let words =
            |text: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect::<Vec<_>>();
        let names = |(name, text): (&String, &String), other: &String| name != other && words(text).contains(other);
        let is_free = |view: &(&String, &String)| !left.iter().any(|(other, _)| names(*view, other));
        // A text may contain a name that it does not read.
        let at = left.iter().position(is_free).unwrap_or_default();
        lines.push(format!("{};", left.remove(at).1));
    }
    lines
}

/// What makes a collection, its rules and its ladder.
fn statements_of(collection: &CollectionSnapshot) -> Vec<String> {
    let name = quoted(collection.name());
    let create = collection.create_command();
    let of_time_series = create["timeseries"].as_object().into_iter().flatten();
    // An archive is named behind the retention, if there is one.
    let expires = !create["expireAfterSeconds"].is_null();
    let has_clause = |key: &str| NOT_IN_WITH.contains(&key) || (expires && OF_RETENTION.contains(&key));
    let others = create.as_object().into_iter().flatten().filter(|(key, _)| !has_clause(key.as_str()));
    let option = |(key, value): (&String, &Value)| format!("{key} = {}", literal(value));
    let options = of_time_series.chain(others).map(option).collect::<Vec<_>>().join(", ");
    let clause = |words: &str, key: &str, unit: &str| match &create[key] {
        Value::Null => String::new(),
        value => format!(" {words} {}{unit}", literal(value)),
    };
    let expiry = clause("EXPIRE AFTER", "expireAfterSeconds", " SECONDS");
    let archive = match expires {
        true => clause("INTO", "expireInto", "") + &clause("KEEP", "keepSeconds", " SECONDS"),
        false => String::new(),
    };
    let mut lines = vec![format!("CREATE COLLECTION {name} WITH ({options}){expiry}{archive};")];
    lines.extend(ladder_of(&name, &create["ladder"]));
    // Their filters are documents.
    lines.extend(collection.create_indexes_command().map(|rules| format!("-- ebbtide command '{rules}'")));
    lines
}

/// Parts of the command that makes a collection for which SQL has clauses or statements.
const NOT_IN_WITH: [&str; 4] = ["create", "timeseries", "expireAfterSeconds", "ladder"];
const OF_RETENTION: [&str; 2] = ["expireInto", "keepSeconds"];

/// What makes the ladder of a collection, if it has one.
fn ladder_of(name: &str, ladder: &Value) -> Option<String> {
    let rung = |rung: &Value| match &rung["expireAfterSeconds"] {
        Value::Null => format!("STEP '{} seconds' FOREVER", rung["step"]),
        seconds => format!("STEP '{} seconds' FOR {seconds} SECONDS", rung["step"]),
    };
    let rungs = ladder["rungs"].as_array()?.iter().map(rung).collect::<Vec<_>>().join(", ");
    let fields = ladder["fields"].as_array().map(|fields| {
        let fields = fields.iter().filter_map(Value::as_str).map(quoted).collect::<Vec<_>>();
        format!(" FIELDS ({})", fields.join(", "))
    });
    Some(format!("CREATE LADDER ON {name} ({rungs}){};", fields.unwrap_or_default()))
}

fn literal(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        other => other.to_string(),
    }
}

/// What makes an ordinary collection and its indexes.
fn statements_of_documents(collection: &DocumentsSnapshot) -> Vec<String> {
    let expiry = match collection.options().default_ttl {
        DefaultTtl::Off => String::new(),
        DefaultTtl::Never => " EXPIRE ITEMS".to_owned(),
        DefaultTtl::Seconds(seconds) => format!(" EXPIRE ITEMS AFTER {seconds} SECONDS"),
    };
    let mut lines = vec![format!("CREATE COLLECTION {}{expiry};", quoted(collection.name()))];
    lines.extend(collection.create_indexes_command().map(|rules| format!("-- ebbtide command '{rules}'")));
    lines
}

/// A name as SQL has it.
fn quoted(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && name.starts_with(|c: char| !c.is_ascii_digit());
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// The name of a collection, however its letters are written.
fn known(snapshot: &Snapshot, name: &str) -> Result<String, Failure> {
    let mut names = snapshot.collections();
    names.extend(snapshot.document_collections());
    let name = name.trim_matches('"');
    if let Some(text) = snapshot.views().get(name) {
        return Err(Failure::new(format!("'{name}' is a view: {text}")));
    }
    let found = names.iter().find(|n| *n == name).or(names.iter().find(|n| n.eq_ignore_ascii_case(name)));
    found.cloned().ok_or_else(|| {
        let hint = suggest::hint(name, names.iter().map(String::as_str));
        Failure::new(format!("collection '{name}' does not exist{hint} (\\d lists them)"))
    })
}
