//! Reads copies at exact positions.

use super::cache::CopyCache;
use super::place::CopyPlace;
use super::position::CopyPosition;
use super::replica::Replica;
use crate::archive::ArchivePlaces;
use crate::db::Database;
use crate::error::Result;
use crate::fs::{Fs, RealFs};
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::sync::Mutex;
use ebbtide_ttl::{Clock, SystemClock};
use std::path::PathBuf;
use std::sync::Arc;

/// How many databases are kept open; one of each copy if there are more copies.
const OPEN_MAX: usize = 4;
/// How many positions are remembered, so that a query that is a little behind another one finds its own; of each copy at least two.
const POSITIONS_MAX: usize = 16;

/// Opens copies at the positions that are asked for. Segment files are fetched into a folder when they are first read. A newer
/// position of a copy that is open takes the pieces in between.
#[derive(Debug)]
pub struct CopyReader {
    cache: Arc<CopyCache>,
    places: Arc<dyn ArchivePlaces>,
    settings: Settings,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// The one used last is the last.
    replicas: Vec<Replica>,
    /// The same.
    known: Vec<(CopyPosition, Database, Snapshot)>,
}

impl Open {
    fn keep(&mut self, replica: Replica) {
        self.replicas.push(replica);
        keep_newest(&mut self.replicas, OPEN_MAX, 1, Replica::url);
    }

    fn remember(&mut self, position: &CopyPosition, db: &Database, snapshot: &Snapshot) {
        self.known.push((position.clone(), db.clone(), snapshot.clone()));
        keep_newest(&mut self.known, POSITIONS_MAX, 2, |(position, ..)| &position.url);
    }
}

/// Removes the oldest of a copy that has more than `least`, if there are more than `most`.
fn keep_newest<T>(all: &mut Vec<T>, most: usize, least: usize, url: impl Fn(&T) -> &str) {
    if all.len() <= most {
        return;
    }
    let of_its_copy = |at: &usize| all.iter().filter(|one| url(one) == url(&all[*at])).count();
    if let Some(oldest) = (0..all.len()).find(|at| of_its_copy(at) > least) {
        all.remove(oldest);
    }
}

impl CopyReader {
    /// Reads copies in the stores of `places`, with files in this folder.
    #[must_use]
    pub fn new(places: Arc<dyn ArchivePlaces>, cache: Arc<CopyCache>, settings: Settings) -> CopyReader {
        CopyReader { cache, places, settings, open: Mutex::default() }
    }

    /// The folder with the files.
    #[must_use]
    pub fn cache(&self) -> &CopyCache {
        &self.cache
    }

    /// What a copy has at a position: a database that cannot be written, and a snapshot of it that is exactly that. Use
    /// [`Snapshot::at`] for the instant at which expiry is decided.
    ///
    /// # Errors
    /// [`ebbtide_ttl::Code::NamespaceNotFound`] if the copy does not have that position, or no longer;
    /// [`ebbtide_ttl::Code::HostUnreachable`] if the store cannot be reached; [`ebbtide_ttl::Code::DataCorruptionDetected`] if what it
    /// has is damaged.
    pub fn at(&self, position: &CopyPosition) -> Result<(Database, Snapshot)> {
        let mut open = self.open.lock();
        if let Some(at) = open.known.iter().position(|(known, ..)| known == position) {
            let known = open.known.remove(at);
            let found = (known.1.clone(), known.2.clone());
            open.known.push(known);
            return Ok(found);
        }
        let replica = self.replica_at(&mut open, position)?;
        let (db, snapshot) = (replica.database().clone(), replica.database().snapshot());
        open.remember(position, &db, &snapshot);
        open.keep(replica);
        Ok((db, snapshot))
    }

    /// Opens the newest state of a copy, so that the first [`CopyReader::at`] has less to read.
    ///
    /// # Errors
    /// As for [`CopyReader::at`].
    pub fn open_newest(&self, url: &str) -> Result<()> {
        let mut open = self.open.lock();
        let replica = Replica::open_on_demand(&self.place(url), &self.cache, None)?;
        open.keep(replica);
        Ok(())
    }

    fn place(&self, url: &str) -> CopyPlace {
        CopyPlace {
            fs: Arc::new(RealFs::new()) as Arc<dyn Fs>,
            clock: Arc::new(SystemClock::new()) as Arc<dyn Clock>,
            dir: PathBuf::from("copy"),
            settings: self.settings.clone(),
            places: Some(self.places.clone()),
            url: url.to_owned(),
        }
    }

    /// One of the replicas moved forward, or another one.
    fn replica_at(&self, open: &mut Open, position: &CopyPosition) -> Result<Replica> {
        let before = |replica: &Replica| {
            replica
                .place()
                .is_some_and(|at| at.url == position.url && at.epoch == position.epoch && at.piece <= position.piece)
        };
        let newest = open.replicas.iter().enumerate().filter(|(_, replica)| before(replica));
        let newest = newest.max_by_key(|(_, replica)| replica.place().map(|at| at.piece)).map(|(at, _)| at);
        if let Some(at) = newest {
            let mut replica = open.replicas.remove(at);
            if replica.catch_up_to(position)? {
                return Ok(replica);
            }
        }
        Replica::open_on_demand(&self.place(&position.url), &self.cache, Some(position))
    }
}
