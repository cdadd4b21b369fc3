//! One pass over the archives of a collection: claims the place, settles what was under way, and moves what is due.

use super::of_collection::Archive;
use super::{
    ArchiveClaim, ArchiveFile, ArchiveNumber, ArchiveOutcome, ArchivePart, ArchivePlace, ArchiveRead, ArchiveRecord,
    ArchiveSlot, ArchivedFile, Intent,
};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::failing::Attempt;
use crate::hand_off::planned::{Group, Handed, Planned, due, plan_moves};
use crate::segment::row_number;
use crate::state::CollectionState;
use crate::sweep::drop_edit::{DropEdit, record_by_size, record_of};
use crate::sweep::plan::item::Item;
use ebbtide_buckets::{EncodedSegment, FileTypes, Schema, SealRun, Sealer, adapt, times as times_of, value_at};
use ebbtide_ttl::{Code, Cutoff, Timestamp, Value, Visit};
use std::collections::HashMap;
use std::sync::Arc;

/// Buckets and rows that are moved with one commit, about.
const BUCKETS_MAX: usize = 1 << 16;
const ROWS_MAX: u64 = 1 << 19;

/// What stops a pass: a fault of this database, or a refusal of the place, after which everything stays as it is.
enum Stopped {
    Here(Error),
    There(String),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped::Here(error)
    }
}

fn there(error: impl std::fmt::Display) -> Stopped {
    Stopped::There(error.to_string())
}

/// Moves what is due of a collection. `now` is the instant of the pass, unless the clock guard holds it.
pub(crate) fn run(
    engine: &Engine,
    id: u64,
    leave_a_core: bool,
    (now, at): (Option<Timestamp>, Timestamp),
) -> Result<Handed> {
    let mut handed = Handed::default();
    let Some(slot) = engine.state.read().by_id(id).map(|collection| collection.archiving.clone()) else {
        return Ok(handed);
    };
    let _pass = slot.pass.lock();
    let Some(group) = plan_moves(engine, id, now, leave_a_core)? else { return Ok(handed) };
    let urls: Vec<String> = group.collection.archives().map(|archive| archive.url.to_owned()).collect();
    let mut first = Some(group);
    for url in urls {
        let mover = Mover { engine, id, slot: &slot, url: &url, leave_a_core, now, at };
        let refused = mover.refused();
        let failed = match mover.run(&mut first, &mut handed) {
            Ok(()) => None,
            Err(Stopped::Here(error)) => {
                // What the place has is looked up again by the next pass.
                slot.set(&url, |status| status.owner = None);
                return Err(error);
            }
            Err(Stopped::There(why)) => Some(why),
        };
        if let Some(why) = &failed {
            tracing::error!(collection = id, %url, %why, "what is due could not be moved to the archive");
            handed.failed += 1;
        }
        let attempt = Attempt::of(failed.as_deref(), (refused, mover.refused()));
        crate::failing::places::note(engine, id, &url, attempt);
        slot.set(&url, |status| status.failed = failed);
    }
    Ok(handed)
}

/// Takes over the archives of a collection from a copy of this database; those that can be, if others cannot.
pub(crate) fn adopt(engine: &Engine, name: &str) -> Result<()> {
    engine.check_writable()?;
    let collection = engine.state.read().collection(name)?.clone();
    let slot = collection.archiving.clone();
    let _pass = slot.pass.lock();
    let at = engine.clock.now();
    if collection.archives().next().is_none() {
        return Err(Error::new(Code::InvalidOptions, format!("collection '{name}' has no archive")));
    }
    let mut refused = None;
    for archive in collection.archives() {
        let mover =
            Mover { engine, id: collection.id, slot: &slot, url: archive.url, leave_a_core: false, now: None, at };
        match mover.place().and_then(|place| mover.claim(place.as_ref(), true, &mut Visit::default())) {
            Ok(()) => {
                crate::failing::places::note(engine, collection.id, archive.url, Attempt::Succeeded);
                slot.set(archive.url, |status| status.failed = None);
            }
            Err(Stopped::Here(error)) => return Err(error),
            Err(Stopped::There(why)) => {
                refused.get_or_insert(Error::new(Code::IllegalOperation, why));
            }
        }
    }
    refused.map_or(Ok(()), Err)
}

/// A pass over one archive.
struct Mover<'a> {
    engine: &'a Engine,
    id: u64,
    slot: &'a ArchiveSlot,
    url: &'a str,
    leave_a_core: bool,
    now: Option<Timestamp>,
    at: Timestamp,
}

impl Mover<'_> {
    /// `planned` is what is due of the collection, as long as nothing has changed since.
    fn run(&self, planned: &mut Option<Group>, handed: &mut Handed) -> Result<(), Stopped> {
        let mut opened = None;
        let refused = loop {
            let group = match planned.take() {
                Some(group) => group,
                None => match plan_moves(self.engine, self.id, self.now, self.leave_a_core)? {
                    Some(group) => group,
                    None => break None,
                },
            };
            handed.held = group.held;
            handed.unread.extend(group.unread.iter().cloned());
            let Some(Archive { record, .. }) = group.collection.archive_at(self.url) else {
                // The collection got another one meanwhile.
                *planned = Some(group);
                return Ok(());
            };
            let (is_known, has_intent) = (record.version.is_some(), record.intent.is_some());
            if !has_intent && !group.buckets.iter().any(|bucket| bucket.into.as_deref() == Some(self.url)) {
                *planned = Some(group);
                break None;
            }
            let place = self.opened(&mut opened)?;
            if !is_known || self.slot.of(self.url).owner.is_none() {
                self.claim(place.as_ref(), false, &mut handed.dropped)?;
                continue;
            }
            if has_intent {
                self.take_back(place.as_ref())?;
                continue;
            }
            // What the table cannot have is not uploaded, and what was kept for long enough is removed all the same.
            if let Err(refused) = place.check(&group.collection.schema.without_untyped()) {
                break Some(refused);
            }
            if !self.move_some(place.as_ref(), group, &mut handed.dropped)? {
                break None;
            }
        };
        self.remove_old(&mut opened, &mut handed.dropped)?;
        refused.map_or(Ok(()), |refused| Err(there(refused)))
    }

    fn opened<'p>(&self, place: &'p mut Option<Arc<dyn ArchivePlace>>) -> Result<&'p Arc<dyn ArchivePlace>, Stopped> {
        match place {
            Some(place) => Ok(place),
            none => Ok(none.insert(self.place()?)),
        }
    }

    /// Removes from the archive what has been there for as long as it is kept. A version that the manifest does not name yet may
    /// be read: files leave the store an hour after the version that removed them.
    fn remove_old(&self, place: &mut Option<Arc<dyn ArchivePlace>>, dropped: &mut Visit) -> Result<(), Stopped> {
        loop {
            let present = self.present()?;
            let archive = self.archive_in(&present)?;
            let (Some(now), Some(keep), Some(version)) = (self.now, archive.keep_seconds, archive.record.version)
            else {
                return Ok(());
            };
            if self.engine.state.read().suspension_of(&present).is_some() {
                return Ok(());
            }
            let place = self.opened(place)?;
            let cutoff = Cutoff::new(now, keep, present.options.precision);
            let mut old = Vec::new();
            for file in place.files(version).map_err(there)? {
                if cutoff.hides(file.times.1) && !is_held(place.as_ref(), &present, &file)? {
                    old.push(file.name);
                }
            }
            let owner = self.slot.of(self.url).owner;
            let version = match owner {
                _ if old.is_empty() => version,
                None => {
                    self.claim(place.as_ref(), false, dropped)?;
                    continue;
                }
                Some(owner) => {
                    let version = place.retire(owner, &old).map_err(there)?;
                    self.record(|archive| archive.version = Some(version))?;
                    tracing::info!(collection = %present.name, files = old.len(), "removed from the archive: kept for long enough");
                    version
                }
            };
            place.clean(version).map_err(there)?;
            return Ok(());
        }
    }

    /// How many requests the store has refused so far because there were too many.
    fn refused(&self) -> u64 {
        self.place().map_or(0, |place| place.refused())
    }

    fn place(&self) -> Result<Arc<dyn ArchivePlace>, Stopped> {
        let places = self.engine.state.read().places.clone();
        let places = places.ok_or_else(|| there("this program was opened without access to archives"))?;
        places.open(self.url).map_err(there)
    }

    fn present(&self) -> Result<Arc<CollectionState>> {
        let present = self.engine.state.read().by_id(self.id).cloned();
        present.ok_or_else(|| Error::new(Code::NamespaceNotFound, "the collection was dropped meanwhile"))
    }

    fn number(&self) -> ArchiveNumber {
        crate::identity::new_identity(self.engine.clock.as_ref(), &self.engine.dir)
    }

    fn archive_in<'c>(&self, collection: &'c CollectionState) -> Result<Archive<'c>> {
        let archive = collection.archive_at(self.url);
        archive.ok_or_else(|| Error::new(Code::InvalidOptions, "the collection got another archive meanwhile"))
    }

    fn record_in<'c>(&self, collection: &'c CollectionState) -> Result<&'c ArchiveRecord> {
        Ok(self.archive_in(collection)?.record)
    }

    /// Changes the record of the archive by an edit of its own.
    fn record(&self, change: impl FnOnce(&mut ArchiveRecord)) -> Result<()> {
        let _maintenance = self.engine.maintenance.lock();
        let present = self.present()?;
        let mut archive = self.record_in(&present)?.clone();
        change(&mut archive);
        self.engine.commit(vec![present.set_archive(self.url, archive)])
    }

    /// Claims the place with a new number, which is durable here before, and settles an intent that may have been committed: what
    /// the place has is dropped here, and the version of the claim is the one that is known from then on.
    fn claim(&self, place: &dyn ArchivePlace, adopts: bool, dropped: &mut Visit) -> Result<(), Stopped> {
        let before = self.record_in(&*self.present()?)?.clone();
        let begun = self.slot.of(self.url).claiming.filter(|begun| before.owners.contains(begun));
        let owner = match begun {
            Some(owner) => owner,
            None => {
                let owner = self.number();
                self.record(|archive| archive.owners.push(owner))?;
                self.slot.set(self.url, |status| status.claiming = Some(owner));
                owner
            }
        };
        let present = self.present()?;
        let claim = ArchiveClaim {
            identity: self.engine.identity,
            collection: self.id,
            schema: Arc::new(present.schema.without_untyped()),
            known: present.owners(),
            owner,
            version: before.version,
            commit: before.intent.as_ref().map(|intent| intent.number),
            adopts,
        };
        let claimed = match place.claim(&claim) {
            Ok(claimed) => claimed,
            Err(refused) => {
                self.settle(place, &claim, dropped)?;
                return Err(there(refused));
            }
        };
        let _moving = self.slot.moving.lock();
        let archive = ArchiveRecord { owners: vec![owner], version: Some(claimed.version), intent: None };
        match before.intent.as_ref() {
            Some(intent) if claimed.is_committed => {
                let visit = self.drop_moved(intent, archive)?;
                dropped.add(&visit);
            }
            intent => {
                self.record(|record| *record = archive)?;
                if let Some(intent) = intent {
                    remove_unneeded(place, &intent.file);
                }
            }
        }
        self.slot.set(self.url, |status| {
            (status.owner, status.sent, status.claiming) = (Some(owner), None, None);
            status.is_refused = false;
        });
        Ok(())
    }

    /// Settles what is being moved after a claim that failed, if the log that was read tells what became of it.
    fn settle(&self, place: &dyn ArchivePlace, claim: &ArchiveClaim, dropped: &mut Visit) -> Result<(), Stopped> {
        let outcome = place.outcome(claim);
        self.slot.set(self.url, |status| status.is_refused = outcome == ArchiveOutcome::Refused);
        let _moving = self.slot.moving.lock();
        let present = self.present()?;
        let Some(Archive { record, .. }) = present.archive_at(self.url) else { return Ok(()) };
        let Some(intent) = record.intent.as_ref().filter(|intent| Some(intent.number) == claim.commit) else {
            return Ok(());
        };
        match outcome {
            ArchiveOutcome::Made(version) => {
                let archive = ArchiveRecord { version: Some(version), ..record.without_intent() };
                dropped.add(&self.drop_moved(intent, archive)?);
            }
            // The file stays until a vacuum: the place is not this database's.
            ArchiveOutcome::Absent => self.record(|archive| archive.intent = None)?,
            ArchiveOutcome::Refused | ArchiveOutcome::Unknown => return Ok(()),
        }
        self.slot.set(self.url, |status| status.sent = None);
        Ok(())
    }

    /// Takes back an intent of this process that was not committed.
    fn take_back(&self, place: &dyn ArchivePlace) -> Result<(), Stopped> {
        let present = self.present()?;
        let file = self.record_in(&present)?.intent.as_ref().map(|intent| intent.file.clone());
        self.record(|archive| archive.intent = None)?;
        if let Some(file) = file {
            remove_unneeded(place, &file);
        }
        Ok(())
    }

    /// Moves the first buckets of a group that are for this archive and go by one rule. Returns whether anything was moved.
    fn move_some(&self, place: &dyn ArchivePlace, group: Group, dropped: &mut Visit) -> Result<bool, Stopped> {
        let (collection, buckets) = first_of_one_rule(group, self.url);
        let Some(rule) = buckets.first().map(|planned| planned.rule.clone()) else { return Ok(false) };
        let number = self.number();
        let (schema, segment) = segment_of(&collection, &buckets)?;
        let file = place.file(number, &schema, segment).map_err(there)?;
        let intent = intent_of(&file, &buckets, rule);
        let owner = {
            let _maintenance = self.engine.maintenance.lock();
            let present = self.present()?;
            let owner = self.slot.of(self.url).owner;
            // The collection may have left the place meanwhile and returned.
            let Some(owner) = owner else { return Ok(false) };
            if !self.is_unchanged((&collection, &present), &buckets)? {
                return Ok(false);
            }
            let archive = ArchiveRecord { intent: Some(intent.clone()), ..self.record_in(&present)?.clone() };
            self.engine.commit(vec![present.set_archive(self.url, archive)])?;
            owner
        };
        place.upload(&file).map_err(there)?;
        let _moving = self.slot.moving.lock();
        {
            let maintenance = self.engine.maintenance.lock();
            let present = self.present()?;
            let record = present.archive_at(self.url).and_then(|archive| archive.record.intent.as_ref());
            let is_there = record.is_some_and(|there| there.number == number);
            if !is_there || !self.is_unchanged((&collection, &present), &buckets)? {
                drop(maintenance);
                if is_there {
                    self.take_back(place)?;
                } else {
                    remove_unneeded(place, &file.name);
                }
                return Ok(false);
            }
            self.slot.set(self.url, |status| status.sent = Some(number));
        }
        let version = match place.commit(owner, &file) {
            Ok(version) => version,
            Err(error) => {
                // It may be there all the same: the next claim tells.
                self.slot.set(self.url, |status| status.owner = None);
                return Err(there(error));
            }
        };
        let archive = ArchiveRecord { owners: vec![owner], version: Some(version), intent: None };
        let visit = self.drop_moved(&intent, archive)?;
        self.slot.set(self.url, |status| status.sent = None);
        dropped.add(&visit);
        Ok(true)
    }

    /// Whether buckets are still due and the same.
    fn is_unchanged(&self, (then, now): (&CollectionState, &CollectionState), buckets: &[Planned]) -> Result<bool> {
        let (still_due, _, _) = due(now, self.now)?;
        let still_due: HashMap<_, _> = still_due.iter().map(|planned| (&planned.id, planned)).collect();
        Ok(buckets
            .iter()
            .all(|planned| still_due.get(&planned.id).is_some_and(|other| planned.is_same(other, (then, now)))))
    }

    /// Drops what the place has, with the edit that names the version that has it.
    fn drop_moved(&self, intent: &Intent, archive: ArchiveRecord) -> Result<Visit> {
        let _maintenance = self.engine.maintenance.lock_leaving(self.leave_a_core);
        let present = self.present()?;
        let mut edit = DropEdit::of(self.engine, &present);
        // A repair may have set segments aside.
        let pieces = intent.pieces.iter().filter(|(segment, _)| present.segments.contains_key(segment));
        let item = Item::Bucket { pieces: pieces.copied().collect(), rows: intent.rows, bytes: intent.bytes };
        edit.add_unexpired(&item)?;
        let mut ops = vec![present.set_archive(self.url, archive)];
        let (files, pieces) = edit.edits(self.engine, self.now, &mut ops)?;
        let Intent { buckets, rows: measurements, bytes, .. } = *intent;
        let visit = Visit { buckets, measurements, bytes, files, ..Visit::default() };
        ops.push(match &intent.rule {
            Some((label, e)) => record_of(self.engine, &present, self.at, (*e, label), &visit),
            None => record_by_size(&present, self.at, intent.window_end, &visit),
        });
        pieces.commit(self.engine, ops)?;
        Ok(visit)
    }
}

/// Whether a hold covers a measurement in a file of the archive.
fn is_held(place: &dyn ArchivePlace, collection: &CollectionState, file: &ArchivedFile) -> Result<bool, Stopped> {
    for hold in collection.holds.iter() {
        let times = hold.range(collection.options.precision);
        if file.times.1 < times.0 || file.times.0 > times.1 {
            continue;
        }
        let schema = Schema { fields: Vec::new(), ..(*collection.schema).clone() };
        let read = ArchiveRead {
            schema: Arc::new(schema),
            times,
            metas: Vec::new(),
            part: ArchivePart::ALL,
            fetched: Arc::default(),
        };
        for batch in place.read(file, &read).map_err(there)? {
            let batch = adapt(&batch.map_err(there)?, &read.schema).map_err(Error::from)?;
            let metas = collection.schema.meta.as_ref().and_then(|meta| batch.column_by_name(meta));
            for (row, t) in times_of(&batch).map_err(Error::from)?.iter().enumerate() {
                let meta = metas.map_or(Value::Null, |metas| value_at(metas.as_ref(), row));
                if hold.covers(*t, collection.options.precision) && hold.filter.matches_meta(&meta) {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// A file that cannot be removed now is found by a vacuum.
fn remove_unneeded(place: &dyn ArchivePlace, file: &str) {
    if let Err(error) = place.remove(file) {
        tracing::debug!(%file, %error, "a file that the archive does not need stays until a vacuum");
    }
}

fn first_of_one_rule(group: Group, url: &str) -> (Arc<CollectionState>, Vec<Planned>) {
    let Group { collection, buckets, .. } = group;
    let mut buckets: Vec<Planned> =
        buckets.into_iter().filter(|planned| planned.into.as_deref() == Some(url)).collect();
    // A file has few windows of all series rather than all windows of few: most reads are of some time.
    buckets.sort_by(|a, b| (a.id.window, &a.id.meta).cmp(&(b.id.window, &b.id.meta)));
    let mut rows = 0;
    let mut chosen: Vec<Planned> = Vec::new();
    for planned in buckets {
        if chosen.first().is_some_and(|first| first.rule != planned.rule) {
            continue;
        }
        if chosen.len() == BUCKETS_MAX || (rows > 0 && rows + planned.bucket.rows > ROWS_MAX) {
            break;
        }
        rows += planned.bucket.rows;
        chosen.push(planned);
    }
    // The rows of a series lie together, so that a reader fetches few pages of the file.
    chosen.sort_by(|a, b| a.id.cmp(&b.id));
    (collection, chosen)
}

/// The measurements of buckets, which are in order, as a segment with the fields and types that a table has.
fn segment_of(collection: &CollectionState, buckets: &[Planned]) -> Result<(Arc<Schema>, EncodedSegment)> {
    let schema = Arc::new(collection.schema.without_untyped());
    let mut rows = Vec::with_capacity(buckets.len());
    let mut runs = Vec::with_capacity(buckets.len());
    for (piece, planned) in (0..).zip(buckets) {
        let batch = adapt(&planned.rows(collection)?, &schema)?;
        let count = row_number(batch.num_rows() as u64);
        runs.push(SealRun { id: planned.id.clone(), rows: (0..count).map(|row| (piece, row)).collect() });
        rows.push(batch);
    }
    let segment = Sealer::new(&schema, &FileTypes::plain(&schema), &rows, &|| false)?.encode(&runs, &|| false)?;
    Ok((schema, segment))
}

fn intent_of(file: &ArchiveFile, buckets: &[Planned], rule: Option<(String, i64)>) -> Intent {
    let number: ArchiveNumber = file.number;
    Intent {
        number,
        file: file.name.clone(),
        checksum: file.checksum,
        pieces: buckets.iter().flat_map(|planned| planned.bucket.pieces.iter().copied()).collect(),
        buckets: buckets.len() as u64,
        rows: file.rows,
        bytes: buckets.iter().map(|planned| planned.bucket.bytes).sum(),
        rule,
        window_end: buckets.iter().map(|planned| planned.id.window.end).max().unwrap_or(i64::MIN),
    }
}
