//! Restores a database from a copy, and makes a folder the primary.

use super::epochs::{self, Claim};
use super::folder::CopyFolder;
use super::held::CopyHold;
use super::load::{self, Loaded};
use super::piece::{Base, Head, Piece, piece_name};
use super::place::{CopyPlace, no_point};
use super::source::files_of;
use super::store::unreachable;
use super::writer::{Sent, Writer};
use crate::error::{Error, Result};
use crate::identity::{hex, new_identity};
use crate::open::state_of;
use ebbtide_ttl::{Code, Timestamp};
use serde::Serialize;
use std::collections::HashSet;

/// A new primary leaves out this many numbers of segments, which the old one may have used since: so a path in the folder of the
/// database always means the same file.
const SEGMENT_NUMBERS_SKIPPED: u64 = 1 << 32;

/// A database that was restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Restored {
    /// The database is as it was at this instant, by the clock of its writer.
    pub at: Timestamp,
    /// The epoch and the number of the last piece that was used.
    pub epoch: u64,
    /// The number of that piece.
    pub piece: u64,
    /// Segment files.
    pub files: u64,
    /// Bytes of segments that were fetched.
    pub fetched_bytes: u64,
    /// Records of the log.
    pub records: u64,
}

/// Restores the database as of the newest point, or as of `at`.
pub(crate) fn restore(place: &CopyPlace, at: Option<Timestamp>) -> Result<Restored> {
    let store = place.store()?;
    let found = load::load(store.as_ref(), at)?.ok_or_else(|| no_point(&place.url, at))?;
    let (folder, _lock) = CopyFolder::take(&place.fs, place.clock.as_ref(), &place.dir, &place.url)?;
    let (position, point, mut loaded) = found;
    retain_used(place, &mut loaded)?;
    let fetched_bytes = folder.fetch_all(store.as_ref(), &loaded.files)?;
    folder.become_database(&loaded, CopyHold { at: point, ends_by_clock: false }, None)?;
    let restored = Restored {
        at: point,
        epoch: position.epoch,
        piece: position.number,
        files: loaded.files.len() as u64,
        fetched_bytes,
        records: loaded.records.len() as u64,
    };
    check(place)?;
    Ok(restored)
}

/// Restores the database as of the newest point, and makes it the primary of the copy.
pub(crate) fn promote(place: &CopyPlace) -> Result<Restored> {
    let store = place.store()?;
    let store = store.as_ref();
    let newest = epochs::newest(store)?.ok_or_else(|| no_point(&place.url, None))?;
    let (folder, _lock) = CopyFolder::take(&place.fs, place.clock.as_ref(), &place.dir, &place.url)?;
    // Before the epoch is taken, which stops the primary: what is damaged is found, and most files are fetched.
    let (.., mut before) = load::load(store, None)?.ok_or_else(|| no_point(&place.url, None))?;
    retain_used(place, &mut before)?;
    let mut fetched_bytes = folder.fetch_all(store, &before.files)?;
    let mut writer = Writer::new(place.clock.as_ref(), &place.dir, vec![place.url.clone()]);
    let claim = Claim {
        epoch: newest.epoch + 1,
        database: newest.database,
        writer: writer.id.clone(),
        process: hex(new_identity(place.clock.as_ref(), &place.dir)),
        at: place.clock.now(),
    };
    if !epochs::take(store, &claim)? {
        return Err(other_writer(&place.url));
    }
    // Only now: what the primary before adds from here on does not count.
    let (position, point, mut loaded) = load::load(store, None)?.ok_or_else(|| no_point(&place.url, None))?;
    retain_used(place, &mut loaded)?;
    let mut state = state_of(&place.fs, &place.dir, 1, loaded.edits, 0).map_err(|(_, damage)| damage)?;
    state.next_segment += SEGMENT_NUMBERS_SKIPPED;
    loaded.edits = vec![state.checkpoint()];
    let head = Head {
        identity: loaded.identity,
        epoch: claim.epoch,
        number: 1,
        parent: Some((position.epoch, position.number)),
        previous: 0,
        at: point,
        is_point: true,
        edits: None,
        base: Some(Base {
            checkpoint: loaded.edits[0].clone(),
            files: loaded.files.values().cloned().collect(),
            records_from: 1,
        }),
        files: Vec::new(),
        last_seq: loaded.last_seq,
    };
    let piece = Piece { head, records: loaded.records.clone() }.encode()?;
    let is_first = store.put_if_absent(&piece_name(claim.epoch, 1), piece).map_err(unreachable)?;
    if !is_first || epochs::claim_of(store, claim.epoch + 1)?.is_some() {
        return Err(other_writer(&place.url));
    }
    fetched_bytes += folder.fetch_all(store, &loaded.files)?;
    writer.sent = vec![Sent { url: place.url.clone(), process: claim.process, epoch: claim.epoch, piece: 1 }];
    folder.become_database(&loaded, CopyHold { at: point, ends_by_clock: true }, Some(&writer))?;
    check(place)?;
    Ok(Restored {
        at: point,
        epoch: claim.epoch,
        piece: 1,
        files: loaded.files.len() as u64,
        fetched_bytes,
        records: loaded.records.len() as u64,
    })
}

/// Leaves out files that the database no longer has at its point: those of segments that were dropped or compacted after the base. Other
/// programs would read them as part of the collection.
fn retain_used(place: &CopyPlace, loaded: &mut Loaded) -> Result<()> {
    let state = state_of(&place.fs, &place.dir, 1, loaded.edits.clone(), 0).map_err(|(_, damage)| damage)?;
    let used: HashSet<String> = files_of(&state).into_iter().map(|file| file.path).collect();
    loaded.files.retain(|path, _| used.contains(path));
    Ok(())
}

/// Checks that the restored database can be read.
fn check(place: &CopyPlace) -> Result<()> {
    let (fs, clock, dir) = (place.fs.clone(), place.clock.clone(), place.dir.clone());
    crate::open::open(fs, clock, dir, place.settings.clone(), true).map(drop)
}

fn other_writer(url: &str) -> Error {
    Error::new(Code::LockBusy, format!("somebody else makes a database the primary of {url} at this moment: try again"))
}
