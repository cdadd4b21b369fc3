//! What writes to which place, and what became of it.

use super::{Attempt, FailingPlace, read};
use crate::copies::Writer;
use crate::engine::Engine;
use crate::error::Result;
use crate::ladder::name::named;
use crate::state::State;

/// Notes the outcome of an attempt of a collection to write to a place. If the note cannot be stored, the log says so.
pub(crate) fn note(engine: &Engine, collection: u64, url: &str, attempt: Attempt<'_>) {
    if engine.check_writable().is_err() {
        return;
    }
    let places = places(&engine.state.read());
    let key = key_of(collection, url);
    let folder = (engine.fs.as_ref(), engine.dir.as_path());
    let present = |key: &str| places.iter().any(|place| place.key == key);
    if let Err(error) = engine.failing.note(folder, (&key, attempt), engine.clock.now(), present) {
        tracing::warn!(%error, "it could not be noted which archives and tables fail");
    }
}

/// Takes from the file why archives failed when any process tried last: listings of rules show it.
pub(crate) fn recall(engine: &Engine) {
    let state = engine.state.read();
    if state.collections.values().all(|collection| collection.archives().next().is_none()) {
        return;
    }
    let known = match read(engine.fs.as_ref(), &engine.dir) {
        Ok(known) => known,
        Err(error) => {
            tracing::warn!(%error, "which archives fail is not known");
            return;
        }
    };
    for collection in state.collections.values() {
        for archive in collection.archives() {
            let failure = known.get(&key_of(collection.id, archive.url));
            if let Some(failure) = failure.filter(|failure| failure.throttled.is_none()) {
                collection.note_archive_failure(archive.url, &failure.error);
            }
        }
    }
}

/// The archives and tables that failed, by the file, and the copy.
pub(crate) fn list(engine: &Engine) -> Result<Vec<FailingPlace>> {
    let mut known = read(engine.fs.as_ref(), &engine.dir)?;
    let places = places(&engine.state.read());
    let now = engine.clock.now();
    let failing = places.into_iter().filter_map(|place| known.remove(&place.key)?.at(now, place.what, place.url));
    let mut failing: Vec<FailingPlace> = failing.collect();
    failing.extend(Writer::of_folder(engine.fs.as_ref(), &engine.dir)?.and_then(|writer| writer.failing(now)));
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
