//! What a copy should have and has no longer: somebody has removed objects, or a rule of the store has.

use super::piece::{CopiedFile, files_folder};
use super::store::{CopyStore, unreachable};
use crate::error::Result;
use std::collections::{BTreeSet, HashSet};

/// The first of these objects that the store does not have.
pub(super) fn first_lost(store: &dyn CopyStore, names: impl Iterator<Item = String>) -> Result<Option<String>> {
    for name in names {
        if !store.exists(&name).map_err(unreachable)? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// The files among these that the store does not have.
pub(super) fn lost_files<'a>(
    store: &dyn CopyStore,
    files: impl Iterator<Item = &'a CopiedFile> + Clone,
) -> Result<Vec<CopiedFile>> {
    let mut there = HashSet::new();
    for epoch in files.clone().map(|file| file.epoch).collect::<BTreeSet<_>>() {
        let folder = files_folder(epoch);
        let names = store.list(&folder).map_err(unreachable)?;
        there.extend(names.into_iter().map(|name| format!("{folder}/{name}")));
    }
    let mut lost = Vec::new();
    for file in files.filter(|file| !there.contains(&file.object())) {
        // A listing may lack the newest.
        if !store.exists(&file.object()).map_err(unreachable)? {
            lost.push(file.clone());
        }
    }
    Ok(lost)
}
