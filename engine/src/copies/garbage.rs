//! Removes from a copy what no kept point in time needs.
//!
//! The boundary is the newest base that is not younger than the oldest point to keep. Pieces before the first one that this base
//! needs go; so do files that they name and the base does not, and everything of earlier epochs that the base does not name. It is
//! called by a writer that has just seen that no younger epoch was there, so the boundary is part of every later state of the copy.

use super::load::{bases, piece_at};
use super::piece::{Base, CopiedFile, bases_folder, files_folder, millis, parse_base_name, piece_name, pieces_folder};
use super::store::{CopyStore, unreachable};
use crate::error::Result;
use ebbtide_ttl::Timestamp;
use std::collections::{BTreeMap, HashSet};

/// Removes what is needed by no point in time from `since` on. Returns how many objects were removed.
pub(super) fn collect(store: &dyn CopyStore, epoch: u64, since: Timestamp) -> Result<u64> {
    let Some(Boundary { epoch, number, base }) = boundary(store, epoch, since)? else { return Ok(0) };
    let (needed, records_from): (HashSet<String>, u64) =
        (base.files.iter().map(CopiedFile::object).collect(), base.records_from);
    let mut removed = 0;
    let mut remove = |name: &str| {
        removed += 1;
        store.remove(name).map_err(unreachable)
    };
    for old in 1..=epoch {
        // Nobody begins to read there any more.
        let folder = bases_folder(old);
        for name in store.list(&folder).map_err(unreachable)? {
            if old < epoch || parse_base_name(&name).is_some_and(|(base, _)| base < number) {
                remove(&format!("{folder}/{name}"))?;
            }
        }
        let folder = pieces_folder(old);
        let mut pieces: Vec<u64> =
            store.list(&folder).map_err(unreachable)?.iter().filter_map(|name| name.parse().ok()).collect();
        pieces.retain(|piece| old < epoch || *piece < records_from);
        pieces.sort_unstable();
        for piece in pieces {
            if old == epoch
                && let Some((_, found)) = piece_at(store, old, piece)?
            {
                let of_base = found.head.base.into_iter().flat_map(|base| base.files);
                let named: BTreeMap<String, CopiedFile> =
                    found.head.files.into_iter().chain(of_base).map(|file| (file.object(), file)).collect();
                for (object, _) in
                    named.into_iter().filter(|(object, file)| file.epoch == epoch && !needed.contains(object))
                {
                    remove(&object)?;
                }
            }
            remove(&piece_name(old, piece))?;
        }
        if old < epoch {
            let folder = files_folder(old);
            for name in store.list(&folder).map_err(unreachable)? {
                let object = format!("{folder}/{name}");
                if !needed.contains(&object) {
                    remove(&object)?;
                }
            }
        }
    }
    Ok(removed)
}

/// A piece with a base.
struct Boundary {
    epoch: u64,
    number: u64,
    base: Base,
}

/// The newest base that is not after `since`.
fn boundary(store: &dyn CopyStore, newest: u64, since: Timestamp) -> Result<Option<Boundary>> {
    let mut from = Some((newest, u64::MAX));
    while let Some((epoch, end)) = from {
        from = None;
        for (number, at) in bases(store, epoch)?.into_iter().filter(|(number, _)| *number <= end) {
            let Some((_, piece)) = piece_at(store, epoch, number)? else { continue };
            from = piece.head.parent;
            let Some(base) = piece.head.base else { continue };
            if at.unwrap_or(millis(piece.head.at)) <= millis(since) && piece.head.is_point {
                return Ok(Some(Boundary { epoch, number, base }));
            }
        }
    }
    Ok(None)
}
