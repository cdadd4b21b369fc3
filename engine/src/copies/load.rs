//! What a copy has: the database as of one of its points.

use super::epochs;
use super::piece::{CopiedFile, Piece, bases_folder, crc_of, millis, parse_base_name, piece_name};
use super::store::{CopyStore, damaged, unreachable};
use crate::error::Result;
use crate::manifest::Op;
use crate::wal::RawRecord;
use ebbtide_ttl::Timestamp;
use std::collections::BTreeMap;

/// A piece of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) epoch: u64,
    pub(super) number: u64,
    /// The CRC-32 of the piece.
    pub(super) crc: u32,
}

/// A database as of a point.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) identity: [u8; 16],
    pub(super) edits: Vec<Vec<Op>>,
    /// Records of the log without a gap, up to the last one.
    pub(super) records: Vec<RawRecord>,
    /// The segment files, by their paths in the folder of the database.
    pub(super) files: BTreeMap<String, CopiedFile>,
    pub(super) last_seq: u64,
}

impl Loaded {
    /// Adds what a piece brings.
    pub(super) fn add(&mut self, piece: Piece) -> Result<()> {
        let Piece { head, records } = piece;
        self.identity = head.identity;
        match (head.edits, head.base) {
            (Some(edits), base) if base.is_none() || !self.edits.is_empty() => {
                self.edits.extend(edits);
                self.files.extend(head.files.into_iter().map(|file| (file.path.clone(), file)));
            }
            (_, Some(base)) => {
                self.edits = vec![base.checkpoint];
                self.files = base.files.into_iter().map(|file| (file.path.clone(), file)).collect();
            }
            _ => return Err(damaged(&piece_name(head.epoch, head.number), "it has neither edits nor a base")),
        }
        add_records(&mut self.records, records, head.last_seq);
        self.last_seq = head.last_seq;
        Ok(())
    }
}

/// Appends records. Records before a gap in the numbers are in segments and are dropped; so are all, if the one with the number
/// `last_seq` is missing.
pub(super) fn add_records(records: &mut Vec<RawRecord>, more: Vec<RawRecord>, last_seq: u64) {
    for record in more {
        if records.last().is_some_and(|last| last.seq + 1 != record.seq) {
            records.clear();
        }
        records.push(record);
    }
    if records.last().is_some_and(|last| last.seq != last_seq) {
        records.clear();
    }
}

/// A piece with its place, checked.
pub(super) fn piece_at(store: &dyn CopyStore, epoch: u64, number: u64) -> Result<Option<(Position, Piece)>> {
    let name = piece_name(epoch, number);
    let Some(bytes) = store.get(&name).map_err(unreachable)? else { return Ok(None) };
    let piece = Piece::decode(&name, &bytes)?;
    if (piece.head.epoch, piece.head.number) != (epoch, number) {
        return Err(damaged(&name, "it is a renamed copy of another piece"));
    }
    Ok(Some((Position { epoch, number, crc: crc_of(&bytes) }, piece)))
}

/// The piece after this one.
pub(super) fn piece_after(store: &dyn CopyStore, at: Position) -> Result<Option<(Position, Piece)>> {
    let next = piece_at(store, at.epoch, at.number + 1)?;
    if let Some((position, piece)) = &next
        && piece.head.previous != at.crc
    {
        return Err(damaged(&piece_name(position.epoch, position.number), "it does not follow the piece before it"));
    }
    Ok(next)
}

/// The pieces of an epoch that have a base, newest first: their numbers and instants, as far as the store lists them. If it lists
/// none, the first piece may be one: it has a base, and is the first that is listed.
pub(super) fn bases(store: &dyn CopyStore, epoch: u64) -> Result<Vec<(u64, Option<i128>)>> {
    let listed = store.list(&bases_folder(epoch)).map_err(unreachable)?;
    let mut bases: Vec<_> =
        listed.iter().filter_map(|name| parse_base_name(name)).map(|(number, at)| (number, Some(at))).collect();
    if bases.is_empty() {
        bases.push((1, None));
    }
    bases.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
    Ok(bases)
}

/// The newest epoch with a piece.
pub(super) fn newest_begun(store: &dyn CopyStore) -> Result<Option<u64>> {
    let Some(newest) = epochs::newest(store)? else { return Ok(None) };
    Ok(newest_base(store, newest.epoch)?.map(|piece| piece.head.epoch))
}

/// The newest piece with a base, in this epoch or one before.
pub(super) fn newest_base(store: &dyn CopyStore, newest: u64) -> Result<Option<Piece>> {
    for epoch in (1..=newest).rev() {
        for (number, _) in bases(store, epoch)? {
            if let Some((_, piece)) = piece_at(store, epoch, number)? {
                return Ok(Some(piece));
            }
        }
    }
    Ok(None)
}

/// The database as of the newest point, or of the newest one that is not after `at`, with that point and its instant.
pub(super) fn load(store: &dyn CopyStore, at: Option<Timestamp>) -> Result<Option<(Position, Timestamp, Loaded)>> {
    let mut from = newest_begun(store)?.map(|epoch| (epoch, u64::MAX));
    while let Some((epoch, end)) = from {
        from = None;
        let bases: Vec<_> = bases(store, epoch)?.into_iter().filter(|(number, _)| *number <= end).collect();
        let is_late = |base_at: Option<i128>| base_at.zip(at).is_some_and(|(base_at, at)| base_at > millis(at));
        for (number, base_at) in bases.iter().copied() {
            if is_late(base_at) {
                continue;
            }
            let Some((position, piece)) = piece_at(store, epoch, number)? else { continue };
            from = piece.head.parent;
            if let Some(found) = load_from(store, (position, piece), end, at)? {
                return Ok(Some(found));
            }
        }
        // Each piece of an epoch names the one before the epoch.
        for (number, _) in bases.into_iter().filter(|(_, base_at)| is_late(*base_at)) {
            if from.is_none()
                && let Some((_, piece)) = piece_at(store, epoch, number)?
            {
                from = piece.head.parent;
            }
        }
    }
    Ok(None)
}

/// The database as of a piece, with its instant; `None` if the copy does not have it, or it is no point.
pub(super) fn load_at(store: &dyn CopyStore, epoch: u64, number: u64) -> Result<Option<(Position, Timestamp, Loaded)>> {
    for (base, _) in bases(store, epoch)?.into_iter().filter(|(base, _)| *base <= number) {
        let Some(piece) = piece_at(store, epoch, base)? else { continue };
        let found = load_from(store, piece, number, None)?;
        return Ok(found.filter(|(position, ..)| position.number == number));
    }
    Ok(None)
}

/// The same, from a piece with a base on.
fn load_from(
    store: &dyn CopyStore,
    (mut position, piece): (Position, Piece),
    end: u64,
    at: Option<Timestamp>,
) -> Result<Option<(Position, Timestamp, Loaded)>> {
    let is_late = |piece: &Piece| at.is_some_and(|at| piece.head.at > at);
    if is_late(&piece) {
        return Ok(None);
    }
    let Some(base) = &piece.head.base else {
        return Err(damaged(&piece_name(position.epoch, position.number), "it has no base"));
    };
    let mut loaded = Loaded::default();
    for number in base.records_from..position.number {
        let missing = || damaged(&piece_name(position.epoch, number), "it is missing");
        let (_, piece) = piece_at(store, position.epoch, number)?.ok_or_else(missing)?;
        add_records(&mut loaded.records, piece.records, piece.head.last_seq);
    }
    let mut point = None;
    // Pieces after the newest point are kept until there is another one.
    let mut waiting = vec![(position, piece)];
    loop {
        if waiting.last().is_some_and(|(_, piece)| piece.head.is_point) {
            for (at, piece) in waiting.drain(..) {
                point = Some((at, piece.head.at));
                loaded.add(piece)?;
            }
        }
        match piece_after(store, position)? {
            Some((next, piece)) if next.number <= end && !is_late(&piece) => {
                position = next;
                waiting.push((next, piece));
            }
            _ => return Ok(point.map(|(position, at)| (position, at, loaded))),
        }
    }
}
