//! Archives and published tables that could not be written to: the file `FAILING`, which other processes read.

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::FileName;
use crate::fs::{Fs, replace};
use crate::publication::publisher::named;
use crate::state::State;
use crate::sync::Mutex;
use ebbtide_ttl::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// An archive, a published table or a copy that could not be written to when it was tried last.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailingPlace {
    /// What is there: `archive of weather`, `table of weather`, `table of weather, rung of 3600 s`, or `copy`.
    pub what: String,
    /// Where it is.
    pub url: String,
    /// When the first of the attempts failed that have all failed since then.
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

/// The places that failed, by URL; `None` before the file was read.
#[derive(Debug, Default)]
pub(crate) struct Failing(Mutex<Option<BTreeMap<String, Failure>>>);

/// Notes the outcome of an attempt to write to a place. If the note cannot be stored, the log says so.
pub(crate) fn note(engine: &Engine, url: &str, failed: Option<&str>) {
    if engine.check_writable().is_err() {
        return;
    }
    let (fs, dir) = (engine.fs.as_ref(), engine.dir.as_path());
    let places = places(&engine.state.read());
    let mut known = engine.failing.0.lock();
    let known = known.get_or_insert_with(|| read(fs, dir).unwrap_or_default());
    let before = known.get(url);
    let after = Failure::after(before, failed, engine.clock.now());
    if before == after.as_ref() {
        return;
    }
    known.retain(|place, _| place != url && places.iter().any(|(_, known)| known == place));
    known.extend(after.map(|after| (url.to_owned(), after)));
    if let Err(error) = write(fs, dir, known) {
        tracing::warn!(%error, "it could not be noted which archives and tables fail");
    }
}

/// The archives and tables that failed, by the file, and the copy.
pub(crate) fn list(engine: &Engine) -> Result<Vec<FailingPlace>> {
    let (fs, dir) = (engine.fs.as_ref(), engine.dir.as_path());
    let mut known = read(fs, dir)?;
    let places = places(&engine.state.read());
    let failing = places.into_iter().filter_map(|(what, url)| Some(known.remove(&url)?.of(what, url)));
    let mut failing: Vec<FailingPlace> = failing.collect();
    failing.extend(crate::copies::Writer::of_folder(fs, dir)?.and_then(crate::copies::Writer::failing));
    Ok(failing)
}

/// What writes to which place.
fn places(state: &State) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for collection in state.collections.values() {
        all.extend(collection.archives().map(|a| (format!("archive of {}", collection.name), a.url.to_owned())));
        if let Some(publication) = &collection.publication {
            let (name, rung) = named(state, &collection.name);
            let rung = rung.map_or(String::new(), |step| format!(", rung of {step} s"));
            all.push((format!("table of {name}{rung}"), publication.url.clone()));
        }
    }
    all
}

fn read(fs: &dyn Fs, dir: &Path) -> Result<BTreeMap<String, Failure>> {
    let path = FileName::Failing.path(dir);
    let content = match fs.read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        content => content.map_err(|e| Error::io("read", &path, &e))?,
    };
    // The next attempt that fails writes it again.
    Ok(serde_json::from_slice(&content).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "the file is damaged: which archives and tables fail is not known");
        BTreeMap::new()
    }))
}

fn write(fs: &dyn Fs, dir: &Path, failing: &BTreeMap<String, Failure>) -> Result<()> {
    let path = FileName::Failing.path(dir);
    let text = serde_json::to_vec_pretty(failing).map_err(|e| Error::internal(format!("encode FAILING: {e}")))?;
    replace(fs, &path, &text).map_err(|e| Error::io("write", &path, &e))
}
