//! Archives and published tables that cannot be written to, or slowly: the file `FAILING`, which other processes read.

pub(crate) mod places;

use crate::error::{ErrorKind, Result};
use crate::files::FileName;
use crate::fs::Fs;
use crate::json_file::{read_json, replace_json};
use crate::sync::Mutex;
use ebbtide_ttl::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// What is said of a place that is throttled.
const THROTTLED: &str = "its store refuses requests because there are too many (429, 503); they are repeated";

/// An archive, a published table or a copy that could not be written to when it was tried last, or was throttled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailingPlace {
    /// What is there: `archive of weather`, `table of weather`, `table of weather, rung of 3600 s`, or `copy`.
    pub what: String,
    /// Where it is.
    pub url: String,
    /// Since when every attempt has failed, or was throttled.
    pub since: Timestamp,
    /// The error of the last attempt; numbers in it may be those of an earlier one.
    pub error: String,
    /// Whether the last attempt has succeeded, after requests that the store refused because there were too many (429, 503).
    pub throttled: bool,
}

/// What became of an attempt to write to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt<'a> {
    Succeeded,
    /// It has succeeded after requests that were refused because there were too many.
    Throttled,
    Failed(&'a str),
}

impl<'a> Attempt<'a> {
    /// `refused`: how many requests the store had refused before and after the attempt because there were too many.
    pub(crate) fn of(failed: Option<&'a str>, (before, after): (u64, u64)) -> Attempt<'a> {
        match failed {
            Some(error) => Attempt::Failed(error),
            None if after > before => Attempt::Throttled,
            None => Attempt::Succeeded,
        }
    }
}

/// Since when a place has failed or is throttled, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    since: Timestamp,
    error: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    throttled: bool,
}

impl Failure {
    /// What is known after an attempt; `None` after one that succeeded.
    pub(crate) fn after(before: Option<&Failure>, attempt: Attempt<'_>, now: Timestamp) -> Option<Failure> {
        // A duration in an error does not make it another one.
        let plain = |text: &str| text.replace(|c: char| c.is_ascii_digit() || c == '.', "");
        let (error, throttled) = match attempt {
            Attempt::Succeeded => return None,
            Attempt::Throttled => (THROTTLED, true),
            Attempt::Failed(error) => (error, false),
        };
        Some(match before.filter(|before| before.throttled == throttled) {
            Some(before) if plain(&before.error) == plain(error) => before.clone(),
            before => Failure { since: before.map_or(now, |before| before.since), error: error.to_owned(), throttled },
        })
    }

    pub(crate) fn of(self, what: String, url: String) -> FailingPlace {
        FailingPlace { what, url, since: self.since, error: self.error, throttled: self.throttled }
    }
}

/// The places that failed, by collection and URL; `None` before the file was read.
#[derive(Debug, Default)]
pub(crate) struct Failing(Mutex<Option<Places>>);

type Places = BTreeMap<String, Failure>;

impl Failing {
    /// Stores what is known of a place after an attempt. Of other places it keeps those in `present`.
    fn note(
        &self,
        (fs, dir): (&dyn Fs, &Path),
        (key, attempt): (&str, Attempt<'_>),
        now: Timestamp,
        present: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let mut known = self.0.lock();
        let mut all = known.take().map_or_else(|| read(fs, dir), Ok)?;
        let before = all.get(key);
        let after = Failure::after(before, attempt, now);
        if before != after.as_ref() {
            all.retain(|place, _| place != key && present(place));
            all.extend(after.map(|after| (key.to_owned(), after)));
            replace_json(fs, &FileName::Failing.path(dir), &all)?;
        }
        *known = Some(all);
        Ok(())
    }
}

fn read(fs: &dyn Fs, dir: &Path) -> Result<Places> {
    match read_json(fs, &FileName::Failing.path(dir)) {
        // The next attempt that fails writes it again.
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            tracing::warn!(%error, "which archives and tables fail is not known");
            Ok(Places::new())
        }
        failing => Ok(failing?.unwrap_or_default()),
    }
}
