//! Sweeps that are held since the database was restored or made the primary: the file `HELD`.

use crate::error::Result;
use crate::files::FileName;
use crate::fs::Fs;
use crate::json_file::{read_json, replace_json};
use ebbtide_ttl::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::Path;

/// Why sweeps are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopyHold {
    /// The clock of the writer at the point that was restored.
    pub(crate) at: Timestamp,
    /// Whether a clock that agrees with it ends the hold: after a promotion, not after a restore.
    pub(crate) ends_by_clock: bool,
}

impl fmt::Display for CopyHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.ends_by_clock { "made the primary" } else { "restored" };
        write!(
            f,
            "the database was {what} as of {}; nothing is dropped until somebody confirms the time (ebbtide clock --confirm, or the \
             command confirmClock)",
            self.at
        )
    }
}

impl CopyHold {
    /// Whether the clock agrees with that of the writer: the time since the point is within the tolerance.
    pub(crate) fn agrees(&self, now: Timestamp, tolerance_secs: i64) -> bool {
        self.ends_by_clock && self.at <= now && now <= self.at.plus_seconds(tolerance_secs)
    }

    pub(crate) fn read(fs: &dyn Fs, dir: &Path) -> Result<Option<CopyHold>> {
        read_json(fs, &FileName::SweepsHeld.path(dir))
    }

    pub(crate) fn write(&self, fs: &dyn Fs, dir: &Path) -> Result<()> {
        replace_json(fs, &FileName::SweepsHeld.path(dir), self)
    }

    /// Removes the file. One that cannot be removed holds sweeps again after the next open.
    pub(crate) fn end(fs: &dyn Fs, dir: &Path) {
        let path = FileName::SweepsHeld.path(dir);
        match fs.remove(&path).and_then(|()| fs.sync_dir(dir)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "the hold of sweeps could not be removed");
            }
            _ => {}
        }
    }
}
