//! A file that only takes up room, so that a full disk can still be swept: the edit that drops needs some space itself.

use crate::files::FileName;
use crate::fs::{Fs, write_synced};
use std::io;
use std::path::Path;

/// Room for the edits of many sweeps: one that removes a thousand segments takes some 4 KiB.
const BYTES: usize = 64 << 10;

/// Creates the reserve unless all of it is there. On a full disk there is none, and a warning says so.
pub(crate) fn make(fs: &dyn Fs, dir: &Path) {
    if let Err(error) = try_make(fs, dir) {
        tracing::warn!(dir = %dir.display(), %error, "no room for the reserve: a full disk may not be swept");
    }
}

fn try_make(fs: &dyn Fs, dir: &Path) -> io::Result<()> {
    let path = FileName::Reserve.path(dir);
    if fs.exists(&path)? && fs.len(&path)? == BYTES as u64 {
        return Ok(());
    }
    write_synced(fs, &path, &vec![0; BYTES]).map(drop)
}

/// Removes the reserve, so that an edit that had no room can be tried again; says whether there was one. The next open
/// makes a new one.
pub(crate) fn spend(fs: &dyn Fs, dir: &Path) -> bool {
    let removed = fs.remove(&FileName::Reserve.path(dir)).and_then(|()| fs.sync_dir(dir));
    removed.is_ok()
}
