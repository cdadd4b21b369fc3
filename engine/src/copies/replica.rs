//! Read replicas: databases that follow a copy.
//!
//! A replica has the segment files in a folder of its own and everything else in memory. It applies whole points, each in one step
//! for its readers: edits first, then the records of the log that they leave unsealed, which is what an open after a crash does.
//! A replica on demand has no folder: its segment files are fetched into a [`CopyCache`] when somebody reads them.

use super::cache::CopyCache;
use super::epochs;
use super::fetched::FetchedFs;
use super::folder::CopyFolder;
use super::load::{self, Loaded, Position};
use super::piece::{CopiedFile, Piece};
use super::place::{CopyPlace, no_point, not_kept};
use super::position::CopyPosition;
use super::source::files_of;
use super::status::ReplicaStatus;
use super::store::CopyStore;
use super::worker::{PAUSE_MIN, Worker};
use crate::db::Database;
use crate::engine::{Engine, OpenState};
use crate::error::{Error, Result};
use crate::fs::{FileLock, Fs};
use crate::open::{replay, state_of};
use crate::state::State;
use crate::wal::RawRecord;
#[cfg(doc)]
use ebbtide_ttl::Code;
use ebbtide_ttl::{Clock, Timestamp};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Without a piece for this long a replica looks whether it has fallen behind what the copy keeps.
const SILENCE: Duration = Duration::from_secs(30);
/// How many points are fetched before they are applied.
const POINTS_MAX: usize = 64;

/// A database that follows a copy, step by step. [`Replica::follow`] does it in the background.
#[derive(Debug)]
pub struct Replica {
    db: Database,
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    url: String,
    store: Arc<dyn CopyStore>,
    /// Its disk, if files are fetched on demand.
    on_demand: Option<Arc<FetchedFs>>,
    position: Position,
    /// When it last got a piece, by the monotonic clock.
    heard: Duration,
    /// Records that may not be sealed yet.
    records: Vec<RawRecord>,
}

impl Replica {
    /// Opens a replica with what the copy has now.
    pub(crate) fn open(place: &CopyPlace) -> Result<Replica> {
        let store = place.store()?;
        let (folder, lock) = CopyFolder::take(&place.fs, place.clock.as_ref(), &place.dir, &place.url)?;
        let found = load::load(store.as_ref(), None)?.ok_or_else(|| no_point(&place.url, None))?;
        folder.fetch_all(store.as_ref(), &found.2.files)?;
        Replica::begin(place, store, found, (place.fs.clone(), None), Some(lock))
    }

    /// Opens a replica whose files are fetched when they are read, with what the copy has now or at a position.
    pub(crate) fn open_on_demand(
        place: &CopyPlace,
        cache: &Arc<CopyCache>,
        at: Option<&CopyPosition>,
    ) -> Result<Replica> {
        let store = place.store()?;
        let found = match at {
            Some(at) => load::load_at(store.as_ref(), at.epoch, at.piece)?.ok_or_else(|| not_kept(at))?,
            None => load::load(store.as_ref(), None)?.ok_or_else(|| no_point(&place.url, None))?,
        };
        let fs = Arc::new(FetchedFs::new(&place.url, &place.dir, store.clone(), cache.clone()));
        found.2.files.values().for_each(|file| fs.add(file));
        Replica::begin(place, store, found, (fs.clone(), Some(fs)), None)
    }

    fn begin(
        place: &CopyPlace,
        store: Arc<dyn CopyStore>,
        (position, until, loaded): (Position, Timestamp, Loaded),
        (fs, on_demand): (Arc<dyn Fs>, Option<Arc<FetchedFs>>),
        lock: Option<Box<dyn FileLock>>,
    ) -> Result<Replica> {
        let (identity, records) = (loaded.identity, loaded.records.clone());
        let mut state = state_from(&fs, &place.dir, loaded, place.settings.cache_bytes_max)?;
        state.places.clone_from(&place.places);
        state.copied = Some(place_of(&place.url, position));
        let next_seq = state.applied_seq + 1;
        let opened = OpenState { identity, state, next_seq, log: None, manifest: None, lock, held: None };
        let (clock, dir) = (place.clock.clone(), place.dir.clone());
        let engine = Engine::new(fs.clone(), clock.clone(), dir.clone(), place.settings.clone(), true, opened);
        let url = place.url.clone();
        let status =
            ReplicaStatus { url: url.clone(), epoch: position.epoch, piece: position.number, until, failed: None };
        *engine.copies.replica.lock() = Some(status);
        let db = Database { engine: Arc::new(engine) };
        let heard = clock.monotonic();
        Ok(Replica { db, fs, clock, dir, url, store, on_demand, position, heard, records })
    }

    /// The copy that it follows.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The position of what its database shows.
    pub(super) fn place(&self) -> Option<Arc<CopyPosition>> {
        self.db.engine.state.read().copied.clone()
    }

    /// Applies the pieces up to a position in the epoch of this one; returns whether it got there.
    pub(super) fn catch_up_to(&mut self, to: &CopyPosition) -> Result<bool> {
        let store = self.store.clone();
        let (mut waiting, mut at) = (Vec::new(), self.position);
        while at.epoch == to.epoch
            && at.number < to.piece
            && let Some((position, piece)) = load::piece_after(store.as_ref(), at)?
        {
            at = position;
            let is_point = piece.head.is_point;
            waiting.push(piece);
            if is_point {
                self.apply(position, std::mem::take(&mut waiting))?;
            }
        }
        Ok((self.position.epoch, self.position.number) == (to.epoch, to.piece))
    }

    /// The database, which cannot be written. What its snapshots show changes with [`Replica::catch_up`].
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.db
    }

    /// Applies what was shipped since the last call; returns how many pieces that were.
    ///
    /// # Errors
    /// [`Code::HostUnreachable`] if the store cannot be reached, [`Code::DataCorruptionDetected`] if what it has is damaged, and errors
    /// of the file system. In that case nothing is applied.
    pub fn catch_up(&mut self) -> Result<usize> {
        let mut applied = self.try_catch_up();
        // There may be more of them than are fetched at once.
        while let Ok(all) = applied
            && all >= POINTS_MAX
            && let Ok(more @ 1..) = self.try_catch_up()
        {
            applied = Ok(all + more);
        }
        if let Some(status) = self.db.engine.copies.replica.lock().as_mut() {
            status.failed = applied.as_ref().err().map(ToString::to_string);
        }
        applied
    }

    fn try_catch_up(&mut self) -> Result<usize> {
        let store = self.store.clone();
        let (mut points, mut waiting, mut at) = (Vec::new(), Vec::new(), self.position);
        while points.len() < POINTS_MAX
            && let Some((position, piece)) = load::piece_after(store.as_ref(), at)?
        {
            at = position;
            let is_point = piece.head.is_point;
            waiting.push(piece);
            if is_point {
                points.push((position, std::mem::take(&mut waiting)));
            }
        }
        // Only pieces that were there before a younger epoch was taken are known to count: its first piece says which.
        if epochs::claim_of(store.as_ref(), self.position.epoch + 1)?.is_some() {
            let begun = load::newest_begun(store.as_ref())?.is_some_and(|epoch| epoch > self.position.epoch);
            return if begun { self.reload() } else { Ok(0) };
        }
        let now = self.clock.monotonic();
        if points.is_empty() && self.is_left_behind(now)? {
            return self.reload();
        }
        let mut applied = 0;
        for (position, pieces) in points {
            applied += pieces.len();
            self.apply(position, pieces)?;
            self.heard = now;
        }
        Ok(applied)
    }

    /// Whether the pieces that follow are no longer kept.
    fn is_left_behind(&self, now: Duration) -> Result<bool> {
        if now.saturating_sub(self.heard) < SILENCE {
            return Ok(false);
        }
        let bases = load::bases(self.store.as_ref(), self.position.epoch)?;
        Ok(bases.iter().any(|(number, _)| *number > self.position.number))
    }

    /// Takes the newest state of the copy, whatever the replica had.
    fn reload(&mut self) -> Result<usize> {
        let found = load::load(self.store.as_ref(), None)?;
        let Some((position, until, loaded)) = found.filter(|(position, ..)| *position != self.position) else {
            return Ok(0);
        };
        self.take(loaded.files.values())?;
        self.records.clone_from(&loaded.records);
        let next = state_from(&self.fs, &self.dir, loaded, self.db.engine.settings.cache_bytes_max)?;
        self.publish(next, position, until, true);
        Ok(1)
    }

    /// Fetches files, unless that is done on demand.
    fn take<'f>(&self, files: impl IntoIterator<Item = &'f CopiedFile>) -> Result<()> {
        match &self.on_demand {
            Some(fs) => files.into_iter().for_each(|file| fs.add(file)),
            None => drop(CopyFolder::of_replica(&self.fs, &self.dir).fetch_each(self.store.as_ref(), files)?),
        }
        Ok(())
    }

    /// Applies the pieces up to a point.
    fn apply(&mut self, position: Position, pieces: Vec<Piece>) -> Result<()> {
        self.take(pieces.iter().flat_map(|piece| &piece.head.files))?;
        let engine = &self.db.engine;
        let mut next = engine.state.read().clone();
        let mut records = self.records.clone();
        let applied_seq = next.applied_seq;
        // Collections that have other segments: what is not in these comes from the records.
        let mut changed: Option<HashSet<u64>> = Some(HashSet::new());
        let mut until = Timestamp::EPOCH;
        for Piece { head, records: new } in pieces {
            until = head.at;
            match (head.edits, head.base) {
                (Some(edits), _) => {
                    for op in edits.into_iter().flatten() {
                        if let Some(changed) = &mut changed {
                            changed.extend(op.collection());
                        }
                        next.apply(op)?;
                    }
                }
                (None, Some(base)) => {
                    self.take(&base.files)?;
                    let loaded = Loaded { edits: vec![base.checkpoint], ..Loaded::default() };
                    next = state_from(&self.fs, &self.dir, loaded, engine.settings.cache_bytes_max)?;
                    changed = None;
                }
                (None, None) => return Err(Error::internal("a piece has neither edits nor a base")),
            }
            load::add_records(&mut records, new, head.last_seq);
        }
        if let Some(changed) = &changed {
            changed.iter().for_each(|id| next.forget_open_of(*id));
        }
        let is_again = |collection: u64| changed.as_ref().is_none_or(|changed| changed.contains(&collection));
        for record in &records {
            let seq = record.seq;
            replay(&mut next, record, |collection| seq > applied_seq || is_again(collection))?;
        }
        let first_logged = next.logs.first().copied().unwrap_or(0);
        records.retain(|record| record.seq >= first_logged);
        self.records = records;
        self.publish(next, position, until, changed.is_none());
        Ok(())
    }

    /// Shows a state to readers. Files that it no longer has are unlinked when the last snapshot of them is gone. Of a state that edits
    /// have made these are known.
    fn publish(&mut self, mut next: State, position: Position, until: Timestamp, is_anew: bool) {
        let engine = &self.db.engine;
        let retired = next.take_retired();
        let before = {
            let mut state = engine.state.write();
            next.places.clone_from(&state.places);
            next.copied = Some(place_of(&self.url, position));
            std::mem::replace(&mut *state, next)
        };
        if is_anew {
            let kept: HashSet<String> = files_of(&engine.state.read()).into_iter().map(|file| file.path).collect();
            before.retire_all_but(|path| kept.contains(path));
        }
        drop((retired, before));
        self.position = position;
        if let Some(status) = engine.copies.replica.lock().as_mut() {
            (status.epoch, status.piece, status.until) = (position.epoch, position.number, until);
        }
    }

    /// Follows the copy in a thread, which looks for pieces that often.
    #[must_use]
    pub fn follow(mut self, every: Duration) -> Following {
        let db = self.db.clone();
        let worker = Worker::begin(move || {
            if let Err(error) = self.catch_up() {
                tracing::warn!(%error, "the replica could not apply what was shipped; it is tried again");
            }
            Some(every.max(PAUSE_MIN))
        });
        Following { db, _worker: worker }
    }
}

/// A replica that follows its copy in the background, until this is dropped.
#[derive(Debug)]
pub struct Following {
    db: Database,
    _worker: Worker,
}

impl Following {
    /// The database, which cannot be written.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.db
    }
}

fn place_of(url: &str, position: Position) -> Arc<CopyPosition> {
    Arc::new(CopyPosition { url: url.to_owned(), epoch: position.epoch, piece: position.number })
}

/// The state of a copy.
fn state_from(fs: &Arc<dyn Fs>, dir: &std::path::Path, loaded: Loaded, cache_bytes_max: usize) -> Result<State> {
    let mut state = state_of(fs, dir, 1, loaded.edits, cache_bytes_max).map_err(|(_, damage)| damage)?;
    state.unlinks = true;
    state.applied_seq = state.applied_seq.max(loaded.last_seq);
    for record in &loaded.records {
        replay(&mut state, record, |_| true)?;
    }
    Ok(state)
}
