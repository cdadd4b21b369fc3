//! An operator's confirmation that the clock is right, stored in the folder for the process that has the database open:
//! only that process knows that its clock jumped.

use crate::error::{Error, Result};
use crate::files::FileName;
use crate::fs::{Fs, replace};
use ebbtide_ttl::Timestamp;
use std::path::Path;

/// Records that the time is `now`.
pub(crate) fn write(fs: &dyn Fs, dir: &Path, now: Timestamp) -> Result<()> {
    let path = FileName::ClockConfirmation.path(dir);
    let written = replace(fs, &path, now.to_string().as_bytes());
    written.map_err(|e| Error::io("write the confirmation of the clock", &path, &e))
}

/// Takes the confirmation, if it covers `now`: a clock that has jumped again since is as wrong as before.
pub(crate) fn take(fs: &dyn Fs, dir: &Path, now: Timestamp, tolerance_secs: i64) -> bool {
    let path = FileName::ClockConfirmation.path(dir);
    let read = || Ok::<_, std::io::Error>(if fs.exists(&path)? { Some(fs.read(&path)?) } else { None });
    let confirmed = match read() {
        Ok(None) => return false,
        Ok(Some(text)) => std::str::from_utf8(&text).ok().and_then(|text| Timestamp::parse(text).ok()),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the confirmation of the clock cannot be read");
            return false;
        }
    };
    let Some(confirmed) = confirmed.filter(|confirmed| now <= confirmed.plus_seconds(tolerance_secs)) else {
        tracing::warn!(path = %path.display(), ?confirmed, %now, "the confirmation of the clock is for another time");
        return false;
    };
    tracing::info!(%confirmed, %now, "the clock was confirmed");
    // If it stays, it confirms only the same time again, and the next open removes it.
    if let Err(error) = fs.remove(&path) {
        tracing::warn!(path = %path.display(), %error, "the confirmation of the clock could not be removed");
    }
    true
}
