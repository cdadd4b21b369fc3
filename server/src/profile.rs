//! `profile`, and the collection `system.profile`.

use crate::collections;
use crate::command::{Command, mismatch};
use crate::error::{CommandError, Result};
use crate::profiler::{COLLECTION, Levels};
use crate::reply;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;
use ebbtide_ttl::Code;

pub(crate) const PROFILE: &[&str] = &["slowms", "sampleRate", "filter"];

/// Whether a command asks for the level and changes nothing.
pub(crate) fn only_asks(body: &RawDocument) -> bool {
    let is_none = |value| ebbtide_documents::whole_number(value).is_some_and(|level| !(0..=2).contains(&level));
    let mut members = body.iter().filter_map(std::result::Result::ok);
    members.next().is_some_and(|(_, value)| is_none(value))
        && members.all(|(name, _)| !PROFILE.contains(&name.as_str()))
}

pub(crate) fn profile(command: &Command<'_>) -> Result<RawDocumentBuf> {
    command.refuse(&["filter"])?;
    let database = command.existing()?;
    let was = command.shared.profiler.levels(command.database);
    let mut levels = Levels { slow_ms: command.whole("slowms")?.unwrap_or(was.slow_ms), ..was };
    if let Some(rate) = command.get("sampleRate") {
        let number = match rate {
            RawBsonRef::Double(rate) => rate,
            other => match ebbtide_documents::whole_number(other) {
                Some(rate) => rate as f64,
                None => return Err(mismatch("sampleRate", "a number", other)),
            },
        };
        if !(0.0..=1.0).contains(&number) {
            return Err(CommandError::new(Code::BadValue, "'sampleRate' must be between 0.0 and 1.0 inclusive"));
        }
        levels.sample_rate = number;
    }
    match ebbtide_documents::whole_number(command.subject()) {
        Some(level @ 0..=2) => levels.level = i32::try_from(level).unwrap_or_default(),
        // As in MongoDB another number changes nothing of the level.
        Some(_) => {}
        None => return Err(mismatch("profile", "a number: 0, 1, 2, or -1 to ask", command.subject())),
    }
    if levels != was {
        let sweeps = database.map_or(0, |database| database.sweeps_after(u64::MAX).1);
        command.shared.profiler.set(command.database, levels, sweeps);
        tracing::info!(database = command.database, ?levels, "what is profiled was set");
    }
    Ok(reply::finished(rawdoc! {
        "was": was.level, "slowms": reply::number(was.slow_ms), "sampleRate": was.sample_rate,
    }))
}

/// `drop`: that of `system.profile` forgets the records.
pub(crate) fn drop_collection(command: &Command<'_>) -> Result<RawDocumentBuf> {
    let collection = command.collection()?;
    if collection != COLLECTION {
        return collections::drop_collection(command);
    }
    if command.shared.profiler.levels(command.database).level > 0 {
        let what = "turn off profiling before dropping system.profile collection";
        return Err(CommandError::new(Code::IllegalOperation, what));
    }
    command.shared.profiler.clear(command.database);
    Ok(reply::finished(rawdoc! { "ns": command.namespace(collection) }))
}

/// The records of the command's database, with what the sweeper did until now.
pub(crate) fn records(command: &Command<'_>) -> Vec<RawDocumentBuf> {
    let shared = command.shared;
    shared.profiler.note_sweeps(|| shared.databases.all());
    shared.profiler.records(command.database)
}
