//! Archives and published tables that could not be written to: the file `FAILING`, which other processes read.

use crate::copies::Writer;
use crate::engine::Engine;
use crate::error::{ErrorKind, Result};
use crate::files::FileName;
use crate::fs::{read_json, replace_json};
use crate::publication::publisher::named;
use crate::state::State;
use crate::sync::Mutex;
use ebbtide_ttl::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An archive, a published table or a copy that could not be written to when it was tried last.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailingPlace {
    /// What is there: `archive of weather`, `table of weather`, `table of weather, rung of 3600 s`, or `copy`.
    pub what: String,
    /// Where it is.
    pub url: String,
    /// Since when every attempt has failed.
    pub since: Timestamp,
    /// The error of the last attempt; numbers in it may be those of an earlier one.
    pub error: String,
}

/// Since when a place has failed, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    since: Timestamp,
    error: String,
}

impl Failure {
    /// What is known after an attempt; `None` after one that succeeded.
    pub(crate) fn after(before: Option<&Failure>, failed: Option<&str>, now: Timestamp) -> Option<Failure> {
        // A duration in an error does not make it another one.
        let plain = |text: &str| text.replace(|c: char| c.is_ascii_digit() || c == '.', "");
        let error = failed?;
        Some(match before {
            Some(before) if plain(&before.error) == plain(error) => before.clone(),
            before => Failure { since: before.map_or(now, |before| before.since), error: error.to_owned() },
        })
    }

    pub(crate) fn of(self, what: String, url: String) -> FailingPlace {
        FailingPlace { what, url, since: self.since, error: self.error }
    }
}

/// The places that failed, by collection and URL; `None` before the file was read.
#[derive(Debug, Default)]
pub(crate) struct Failing(Mutex<Option<Places>>);

type Places = BTreeMap<String, Failure>;

/// Notes the outcome of an attempt of a collection to write to a place. If the note cannot be stored, the log says so.
pub(crate) fn note(engine: &Engine, collection: u64, url: &str, failed: Option<&str>) {
    if engine.check_writable().is_err() {
        return;
    }
    let places = places(&engine.state.read());
    let key = key_of(collection, url);
    let mut known = engine.failing.0.lock();
    let noted = known.take().map_or_else(|| read(engine), Ok).and_then(|mut all| {
        let before = all.get(&key);
        let after = Failure::after(before, failed, engine.clock.now());
        if before != after.as_ref() {
            all.retain(|place, _| *place != key && places.iter().any(|known| known.key == *place));
            all.extend(after.map(|after| (key, after)));
            replace_json(engine.fs.as_ref(), &FileName::Failing.path(&engine.dir), &all)?;
        }
        Ok(all)
    });
    match noted {
        Ok(all) => *known = Some(all),
        Err(error) => tracing::warn!(%error, "it could not be noted which archives and tables fail"),
    }
}

/// The archives and tables that failed, by the file, and the copy.
pub(crate) fn list(engine: &Engine) -> Result<Vec<FailingPlace>> {
    let mut known = read(engine)?;
    let places = places(&engine.state.read());
    let failing = places.into_iter().filter_map(|place| Some(known.remove(&place.key)?.of(place.what, place.url)));
    let mut failing: Vec<FailingPlace> = failing.collect();
    failing.extend(Writer::of_folder(engine.fs.as_ref(), &engine.dir)?.and_then(Writer::failing));
    Ok(failing)
}

/// A place that a collection writes to.
struct Place {
    key: String,
    what: String,
    url: String,
}

fn key_of(collection: u64, url: &str) -> String {
    format!("{collection} {url}")
}

fn places(state: &State) -> Vec<Place> {
    let mut all = Vec::new();
    for collection in state.collections.values() {
        let place = |what: String, url: &str| Place { key: key_of(collection.id, url), what, url: url.to_owned() };
        all.extend(collection.archives().map(|archive| place(format!("archive of {}", collection.name), archive.url)));
        if let Some(publication) = &collection.publication {
            let (name, rung) = named(state, &collection.name);
            let rung = rung.map_or(String::new(), |step| format!(", rung of {step} s"));
            all.push(place(format!("table of {name}{rung}"), &publication.url));
        }
    }
    all
}

fn read(engine: &Engine) -> Result<Places> {
    match read_json(engine.fs.as_ref(), &FileName::Failing.path(&engine.dir)) {
        // The next attempt that fails writes it again.
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            tracing::warn!(%error, "which archives and tables fail is not known");
            Ok(Places::new())
        }
        failing => Ok(failing?.unwrap_or_default()),
    }
}
