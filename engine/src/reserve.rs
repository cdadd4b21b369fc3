//! A file that only takes up room, so that a full disk can still be swept: the edit that drops needs a little space itself.

use crate::fs::Fs;
use std::io;
use std::path::Path;

pub(crate) const NAME: &str = "RESERVE";
/// Room for the edits of many sweeps: one that removes a thousand segments takes some 4 KiB.
const BYTES: usize = 64 << 10;

/// Makes the reserve if it is not there in full. On a full disk there is none, and the log says so.
pub(crate) fn make(fs: &dyn Fs, dir: &Path) {
    if let Err(error) = try_make(fs, dir) {
        tracing::warn!(dir = %dir.display(), %error, "no room for the reserve: a full disk may not be swept");
    }
}

fn try_make(fs: &dyn Fs, dir: &Path) -> io::Result<()> {
    let path = dir.join(NAME);
    if fs.exists(&path)? {
        if fs.len(&path)? == BYTES as u64 {
            return Ok(());
        }
        fs.remove(&path)?;
    }
    let mut file = fs.create(&path)?;
    let made = file.append(&vec![0; BYTES]).and_then(|()| file.sync());
    if made.is_err() {
        fs.remove(&path)?;
    }
    made
}

/// Gives the reserve's room to the edit that is about to be tried again. It is made anew at the next open.
pub(crate) fn spend(fs: &dyn Fs, dir: &Path) -> bool {
    let removed = fs.remove(&dir.join(NAME)).and_then(|()| fs.sync_dir(dir));
    removed.is_ok()
}
