//! The lists of the shell's `\\d`: all collections, and the details of one.

use crate::human::bytes;
use crate::{Failure, files, say, status};
use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use ebbtide::CollectionSnapshot;
use ebbtide_query::Session;
use ebbtide_query::output::{TableStyle, render};
use ebbtide_query::suggest;
use ebbtide_ttl::{Timestamp, retention_text};
use std::sync::Arc;

/// Lists the collections with their retention and size.
pub(super) fn collections(session: &Session) -> Result<(), Failure> {
    let snapshot = session.snapshot();
    let names = snapshot.collections();
    if names.is_empty() {
        say!("no collections yet: CREATE COLLECTION makes one, and so does ebbtide import");
        return Ok(());
    }
    let infos = names.iter().map(|name| snapshot.collection(name)?.info()).collect::<ebbtide::Result<Vec<_>>>()?;
    let text = |cells: Vec<String>| -> ArrayRef { Arc::new(StringArray::from(cells)) };
    let day = |at: Option<Timestamp>| at.map(|t| t.to_string().chars().take(10).collect()).unwrap_or_default();
    let keeps = names.iter().map(|n| Ok(keeps(&snapshot.collection(n)?))).collect::<ebbtide::Result<_>>()?;
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
    say!("{}", render(&batch.schema(), &[batch], TableStyle { width: files::width(), rows_max: None }));
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

pub(super) fn has_rules(session: &Session) -> Result<bool, Failure> {
    let snapshot = session.snapshot();
    for name in snapshot.collections() {
        if snapshot.collection(&name)?.rules().iter().next().is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Shows one collection: its columns, what is stored by age and rule, and what expires next.
pub(super) fn collection(session: &Session, name: &str) -> Result<(), Failure> {
    let snapshot = session.snapshot();
    let names = snapshot.collections();
    let name = name.trim_matches('"');
    let Some(found) = names.iter().find(|n| *n == name).or(names.iter().find(|n| n.eq_ignore_ascii_case(name))) else {
        let hint = suggest::hint(name, names.iter().map(String::as_str));
        return Err(Failure::new(format!("collection '{name}' does not exist{hint} (\\d lists them)")));
    };
    let collection = snapshot.collection(found)?;
    let columns = ebbtide_query::system::describe_rows(&collection).map_err(ebbtide_query::QueryError::from)?;
    say!("{}", render(&columns.schema(), &[columns], TableStyle { width: files::width(), rows_max: None }));
    status::one_status(&collection)
}
