//! A file that only reserves space, so that a full disk can still be swept: the edit that drops data needs some space itself.

use crate::files::FileName;
use crate::fs::{Fs, write_synced};
use std::io;
use std::path::Path;

/// Space for the edits of many sweeps: an edit that removes a thousand segments takes about 4 KiB.
const BYTES: usize = 64 << 10;

/// Creates the reserve unless it is complete. If the disk is too full for it, a warning is logged.
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

/// Removes the reserve, so that an edit that found no space can be tried again; returns whether there was one. The next open
/// creates a new one. It gives no room where a file may not grow.
pub(crate) fn spend(fs: &dyn Fs, dir: &Path) -> bool {
    let removed = fs.remove(&FileName::Reserve.path(dir)).and_then(|()| fs.sync_dir(dir));
    removed.is_ok()
}
