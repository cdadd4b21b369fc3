//! Makes the versions of published tables.

use super::{OwnerNumber, Publication, PublicationInfo, PublicationRecord, PublishedVersion, Status};
use crate::archive::apart::{check_above, check_folder, check_places};
use crate::archive::{ArchivePlace, ArchivePlaces, check_url};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::failing::Attempt;
use crate::ladder::name::named;
use crate::ladder::rung_of;
use crate::manifest::Op;
use crate::snapshot::Snapshot;
use crate::state::{CollectionState, State};
use ebbtide_ttl::Code;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How much longer than an interval it may take until the next version is there, in seconds, beside a tenth of the interval.
const SLACK_SECONDS: i64 = 15;
/// How many earlier numbers are known as this database's own.
const OWNERS_KEPT: usize = 15;

/// A collection, or the rung of its ladder with this step in seconds.
pub(crate) type Published<'a> = (&'a str, Option<i64>);

/// The number of the collection, or of the one of the rung.
fn id_of(state: &State, (name, rung): Published<'_>) -> Result<u64> {
    let collection = state.collection(name)?;
    let Some(step) = rung else { return Ok(collection.id) };
    let mut rungs = collection.ladder.iter().flat_map(|ladder| &ladder.rungs);
    let found = rungs.find(|record| record.rung.step_seconds == step).map(|record| record.collection);
    found.ok_or_else(|| {
        Error::new(Code::InvalidOptions, format!("the ladder of collection '{name}' has no rung of {step} s"))
    })
}

/// The publication of a collection, as far as it is known without the table.
fn info(state: &State, of: &CollectionState) -> Option<PublicationInfo> {
    let record = of.publication.as_ref()?;
    let (collection, rung) = named(state, &of.name);
    let status = of.publishing.status.lock();
    Some(PublicationInfo {
        collection,
        rung,
        url: record.url.clone(),
        every_seconds: record.every_seconds,
        last: status.last.clone(),
        age_seconds: None,
        failed: status.failed.clone(),
    })
}

/// The published collections. If this process has made no version, the table is asked for its newest one.
pub(crate) fn list(engine: &Engine) -> Vec<PublicationInfo> {
    let (mut found, places) = {
        let state = engine.state.read();
        let found = state.collections.values().filter_map(|c| Some((c.id, info(&state, c)?)));
        let mut found: Vec<_> = found.collect();
        found.sort_by(|(_, a), (_, b)| (&a.collection, a.rung).cmp(&(&b.collection, b.rung)));
        (found, state.places.clone())
    };
    for (id, info) in &mut found {
        if let (None, Some(places)) = (&info.last, &places) {
            let newest = places.open(&info.url).and_then(|place| place.published(engine.identity, *id));
            match newest {
                Ok(last) => info.last = last,
                Err(error) => info.failed = info.failed.take().or(Some(format!("the table cannot be read: {error}"))),
            }
        }
        let made_at = info.last.as_ref().and_then(|last| last.made_at);
        let now = engine.clock.now().nanos();
        let age = made_at.map(|made_at| (now - made_at.nanos()).max(0) / 1_000_000_000);
        info.age_seconds = age.and_then(|seconds| i64::try_from(seconds).ok());
    }
    found.into_iter().map(|(_, info)| info).collect()
}

/// Publishes a collection or a rung at a place, or changes where and how often, and makes the first version there.
pub(crate) fn publish_to(
    engine: &Engine,
    of: Published<'_>,
    url: &str,
    every_seconds: i64,
) -> Result<PublishedVersion> {
    check_new_place(engine, of, url)?;
    let (id, is_new, before) = {
        let _maintenance = engine.maintenance.lock();
        engine.check_writable()?;
        let state = engine.state.read();
        let id = id_of(&state, of)?;
        let collection = state.by_id(id).ok_or_else(|| Error::internal("a ladder names a rung that is not there"))?;
        let before = collection.publication.as_ref().filter(|record| record.url == url);
        let owners = before.map(|record| record.owners.clone()).unwrap_or_default();
        let record = PublicationRecord { url: url.to_owned(), every_seconds, owners };
        record.check()?;
        let takes = |c: &Arc<CollectionState>| {
            let published = c.publication.as_ref().is_some_and(|other| other.url == url);
            (c.id != id && published) || c.archive_at(url).is_some()
        };
        if let Some(other) = state.collections.values().find(|c| takes(c)) {
            let (other, _) = named(&state, &other.name);
            let what = format!("collection '{other}' has a table there: each table needs a place of its own");
            return Err(Error::new(Code::InvalidOptions, what));
        }
        if before.is_none() {
            check_places(&state, url)?;
        }
        let (is_moved, before) = (before.is_none(), collection.publication.as_deref().cloned());
        let (slot, is_new) = (collection.publishing.clone(), collection.publication.as_deref() != Some(&record));
        drop(state);
        if is_new {
            engine.commit(vec![Op::SetPublication { collection: id, publication: Some(record) }])?;
        }
        if is_moved {
            *slot.status.lock() = Status::default();
        }
        (id, is_new, before)
    };
    let made = run(engine, id, true);
    if is_new && made.is_err() {
        let _maintenance = engine.maintenance.lock();
        let present = engine.state.read().by_id(id).and_then(|collection| collection.publication.clone());
        // The number of this process stays known: its version may arrive later.
        let known = |record: &PublicationRecord| present.as_ref().filter(|present| present.url == record.url);
        let publication = before.map(|record| match known(&record).map(|present| present.owners.clone()) {
            Some(owners) => PublicationRecord { owners, ..record },
            None => record,
        });
        engine.commit(vec![Op::SetPublication { collection: id, publication }])?;
    }
    made
}

/// Refuses a new place that is within a table or a copy, or in the folder of the database. No lock is held while a store answers.
fn check_new_place(engine: &Engine, of: Published<'_>, url: &str) -> Result<()> {
    engine.check_writable()?;
    check_url("the place of a table", url)?;
    let places = {
        let state = engine.state.read();
        let is_there = |c: &Arc<CollectionState>| c.publication.as_ref().is_some_and(|record| record.url == url);
        if state.by_id(id_of(&state, of)?).is_some_and(is_there) {
            return Ok(());
        }
        state.places.clone()
    };
    check_folder(&engine.dir, url)?;
    places.map_or(Ok(()), |places| check_above(places.as_ref(), url))
}

/// Ends the publication of a collection or a rung. The table stays as it is.
pub(crate) fn unpublish(engine: &Engine, of: Published<'_>) -> Result<()> {
    let _maintenance = engine.maintenance.lock();
    engine.check_writable()?;
    let id = id_of(&engine.state.read(), of)?;
    if engine.state.read().by_id(id).is_none_or(|collection| collection.publication.is_none()) {
        return Err(not_published(of));
    }
    engine.commit(vec![Op::SetPublication { collection: id, publication: None }])
}

fn not_published((name, rung): Published<'_>) -> Error {
    let rung = rung.map_or(String::new(), |step| format!(" RUNG {step} SECONDS"));
    let what = format!("{name}{rung} is not published: PUBLISH {name}{rung} TO 'URL' does it");
    Error::new(Code::InvalidOptions, what)
}

/// Makes a version of the table of a collection or a rung.
pub(crate) fn run_now(engine: &Engine, of: Published<'_>) -> Result<PublishedVersion> {
    let id = id_of(&engine.state.read(), of)?;
    run(engine, id, false)
}

/// The published collections whose interval is over, by number: those first whose last version was begun first.
pub(crate) fn due(engine: &Engine) -> Vec<u64> {
    let now = engine.clock.monotonic();
    let begun = |collection: &CollectionState| collection.publishing.status.lock().begun;
    let is_due = |c: &&Arc<CollectionState>| {
        let Some(record) = &c.publication else { return false };
        let every = Duration::from_secs(record.every_seconds.unsigned_abs());
        begun(c).is_none_or(|begun| now.saturating_sub(begun) >= every)
    };
    let state = engine.state.read();
    let mut due: Vec<_> = state.collections.values().filter(is_due).map(|c| (begun(c), c.id)).collect();
    due.sort_unstable();
    due.into_iter().map(|(_, id)| id).collect()
}

/// Makes a version of a collection's table; the log says why if that fails.
pub(crate) fn run_in_background(engine: &Engine, id: u64) {
    if let Err(error) = run(engine, id, false) {
        tracing::error!(%error, collection = id, "a collection could not be published");
    }
}

/// Makes a version of a collection's table.
pub(crate) fn run(engine: &Engine, id: u64, adopts: bool) -> Result<PublishedVersion> {
    let present = || {
        let present = engine.state.read().by_id(id).cloned();
        present.ok_or_else(|| Error::new(Code::NamespaceNotFound, "the collection was dropped meanwhile"))
    };
    let slot = present()?.publishing.clone();
    let _pass = slot.pass.lock();
    slot.status.lock().begun = Some(engine.clock.monotonic());
    let collection = present()?;
    let url = collection.publication.as_ref().map(|record| record.url.as_str());
    let refused = || url.and_then(|url| place_of(engine, url).ok()).map_or(0, |place| place.refused());
    let before = refused();
    let made = make(engine, &collection, adopts);
    let failed = made.as_ref().err().map(ToString::to_string);
    if let Some(url) = url {
        let attempt = Attempt::of(failed.as_deref(), (before, refused()));
        crate::failing::places::note(engine, id, url, attempt);
    }
    let mut status = slot.status.lock();
    if let Ok(version) = &made {
        status.last = Some(version.clone());
    }
    status.failed = failed;
    drop(status);
    made
}

fn place_of(engine: &Engine, url: &str) -> Result<Arc<dyn ArchivePlace>> {
    let places: Option<Arc<dyn ArchivePlaces>> = engine.state.read().places.clone();
    let places = places.ok_or_else(|| failed("this program was opened without access to archives and tables"))?;
    places.open(url).map_err(failed)
}

fn make(engine: &Engine, collection: &CollectionState, adopts: bool) -> Result<PublishedVersion> {
    let id = collection.id;
    let (name, rung) = named(&engine.state.read(), &collection.name);
    let record = collection.publication.clone().ok_or_else(|| not_published((&name, rung)))?;
    let place = place_of(engine, &record.url)?;
    {
        let maintenance = engine.maintenance.lock_beside_writers();
        engine.check_writable()?;
        crate::seal::flush(engine, &maintenance, Some(&name))?;
    }
    let owner = own(engine, collection, &record, adopts)?;
    let now = engine.clock.now();
    let is_held = engine.sweeper.held(now, engine.clock.monotonic()).is_some();
    let ahead = record.every_seconds + record.every_seconds / 10 + SLACK_SECONDS;
    let hides_before = if is_held { now } else { now.plus_seconds(ahead) };
    let of = rung_of(&collection.name).map_or(id, |(parent, _)| parent);
    let snapshot = Snapshot::take(&engine.state.read(), hides_before).collection_of_id(of);
    let snapshot =
        snapshot.ok_or_else(|| Error::new(Code::NamespaceNotFound, "the collection was dropped meanwhile"))?;
    let (schema, segments) = match rung {
        Some(step) => snapshot.published_bins(step)?,
        None => (snapshot.schema().clone(), snapshot.published_segments()?),
    };
    // A rung has the rule of its bins.
    let rules = if rung.is_some() { &collection.rules } else { &snapshot.state.rules };
    let content = Publication {
        identity: engine.identity,
        collection: id,
        name: rung.map_or_else(|| name.clone(), |step| format!("{name}_{step}s")),
        known: record.owners.iter().copied().chain([owner]).collect(),
        owner,
        adopts,
        schema,
        rules: rules.clone(),
        segments,
        hides_before: if snapshot.suspended().is_some() { now } else { hides_before },
        may_vacuum: !is_held && snapshot.suspended().is_none(),
    };
    place.publish(&content).map_err(failed)
}

/// The number of this process, which is durable before the table has it. Who may be taking a table over gets a new one: a copy of the
/// folder may know the present one.
fn own(engine: &Engine, collection: &CollectionState, record: &PublicationRecord, adopts: bool) -> Result<OwnerNumber> {
    let known = collection.publishing.status.lock().owner;
    if let Some(owner) = known.filter(|owner| record.owners.contains(owner) && !adopts) {
        return Ok(owner);
    }
    let owner = crate::identity::new_identity(engine.clock.as_ref(), &engine.dir);
    let mut record = record.clone();
    // The last one may be that of a process whose version never arrived.
    record.owners = record.owners.iter().rev().take(OWNERS_KEPT).rev().copied().chain([owner]).collect();
    let _maintenance = engine.maintenance.lock();
    engine.commit(vec![Op::SetPublication { collection: collection.id, publication: Some(record) }])?;
    collection.publishing.status.lock().owner = Some(owner);
    Ok(owner)
}

fn failed(error: impl fmt::Display) -> Error {
    Error::new(Code::HostUnreachable, format!("the table was not published: {error}"))
}
