//! A person's word that the time is right, left in the folder for the process that has the database open: that one
//! alone knows that its clock jumped, and it takes words from nobody else.

use crate::error::{Error, Result};
use crate::fs::{Fs, replace};
use ebbtide_ttl::Timestamp;
use std::path::Path;

pub(crate) const NAME: &str = "CLOCK";
pub(crate) const TMP: &str = "CLOCK.tmp";

/// Leaves word that it is `now`.
pub(crate) fn leave(fs: &dyn Fs, dir: &Path, now: Timestamp) -> Result<()> {
    let (tmp, path) = (dir.join(TMP), dir.join(NAME));
    let written = replace(fs, &tmp, &path, now.to_string().as_bytes());
    written.map_err(|e| Error::io("write the confirmation", &path, &e))
}

/// Takes the word that was left, if it holds for `now`: a clock that has jumped on since is as wrong as before.
pub(crate) fn take(fs: &dyn Fs, dir: &Path, now: Timestamp, tolerance_secs: i64) -> bool {
    let path = dir.join(NAME);
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
        tracing::warn!(path = %path.display(), ?confirmed, %now, "the confirmation is not of this time");
        return false;
    };
    tracing::info!(%confirmed, %now, "the clock was confirmed");
    // One that stays confirms nothing but this time once more, and goes at the next open.
    if let Err(error) = fs.remove(&path) {
        tracing::warn!(path = %path.display(), %error, "the confirmation of the clock could not be removed");
    }
    true
}
