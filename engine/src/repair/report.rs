//! The report of a repair: faults, and what is lost with them.

use ebbtide_ttl::{Timestamp, Value};
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

/// Metas of one loss that are printed; the report in the folder has all.
const METAS_SHOWN: usize = 20;

/// What a repair found, and what it did or would do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RepairReport {
    /// What is wrong: one sentence for each fault, with path and offset.
    pub faults: Vec<String>,
    /// Whether changes at the end of the manifest are lost: data that they deleted or dropped may be visible again.
    pub changes_lost: bool,
    /// What cannot be read any more.
    pub losses: Vec<Loss>,
    /// The files that were or would be set aside, by their paths in the folder of the database.
    pub set_aside: Vec<String>,
    /// The folder that they were moved into; `None` if nothing was done.
    pub folder: Option<PathBuf>,
}

/// Measurements that cannot be read any more.
#[derive(Debug, Clone, PartialEq)]
pub struct Loss {
    /// The file that they were in.
    pub file: String,
    /// Their collection; `None` if that is not known.
    pub collection: Option<String>,
    /// Whether these are not measurements but bins of a rung of the collection's ladder.
    pub of_bins: bool,
    /// How many; `None` if that is not known.
    pub rows: Option<u64>,
    /// How many bytes of the file are lost.
    pub bytes: u64,
    /// The earliest and the latest time, if they are known.
    pub times: Option<(Timestamp, Timestamp)>,
    /// The metas with their rows and times; empty if they cannot be read.
    pub metas: Vec<LostMeta>,
}

/// The share of one meta in a [`Loss`].
#[derive(Debug, Clone, PartialEq)]
pub struct LostMeta {
    /// The meta.
    pub meta: Value,
    /// How many measurements.
    pub rows: u64,
    /// The time of the earliest.
    pub first: Timestamp,
    /// The time of the latest.
    pub last: Timestamp,
}

impl RepairReport {
    /// Whether there is nothing to repair.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    /// The number of measurements that are known to be lost; losses of unknown size are not counted.
    #[must_use]
    pub fn rows_lost(&self) -> u64 {
        self.losses.iter().filter(|loss| !loss.of_bins).filter_map(|loss| loss.rows).sum()
    }

    pub(super) fn text(&self, metas_max: usize) -> Result<String, fmt::Error> {
        let mut out = String::new();
        if self.is_clean() {
            writeln!(out, "nothing is damaged")?;
            return Ok(out);
        }
        for fault in &self.faults {
            writeln!(out, "damaged: {fault}")?;
        }
        if self.changes_lost {
            writeln!(
                out,
                "lost: the last changes of the manifest. Measurements that they deleted may be back, and rules and \
                 collections are as they were before; what has expired stays hidden"
            )?;
        }
        for loss in &self.losses {
            loss.write(&mut out, metas_max)?;
        }
        for name in &self.set_aside {
            match &self.folder {
                Some(folder) => writeln!(out, "set aside: {name} in {}", folder.display())?,
                None => writeln!(out, "to set aside: {name}")?,
            }
        }
        Ok(out)
    }
}

impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(METAS_SHOWN)?)
    }
}

impl Loss {
    fn write(&self, out: &mut String, metas_max: usize) -> fmt::Result {
        match &self.collection {
            Some(name) => write!(out, "lost: collection '{name}', ")?,
            None => write!(out, "lost: unknown collection, ")?,
        }
        let what = if self.of_bins { "bins" } else { "measurements" };
        match self.rows {
            Some(rows) => write!(out, "{rows} {what}")?,
            None => write!(out, "unknown number of {what}")?,
        }
        if let Some((first, last)) = self.times {
            write!(out, " from {first} to {last}")?;
        }
        writeln!(out, " ({} bytes of {})", self.bytes, self.file)?;
        for lost in self.metas.iter().take(metas_max) {
            let meta = crate::json::json_of(&lost.meta);
            writeln!(out, "  meta {meta}: {} from {} to {}", lost.rows, lost.first, lost.last)?;
        }
        match self.metas.len() {
            0 => writeln!(out, "  metas: unreadable"),
            n if n > metas_max => writeln!(out, "  and {} more metas", n - metas_max),
            _ => Ok(()),
        }
    }
}

/// A path as text.
pub(super) fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
