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
const THROTTLED: &str = "its store refuses requests (429, 503), and they are repeated";
/// For how many seconds after the last refusal a place counts as throttled: between refusals there are attempts without any.
const THROTTLED_FOR: i64 = 600;

/// An archive, a published table or a copy that could not be written to when it was tried last, or was throttled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailingPlace {
    /// What is there: `archive of weather`, `table of weather`, `table of weather, rung of 3600 s`, or `copy`.
    pub what: String,
    /// Where it is.
    pub url: String,
    /// Since when every attempt has failed, or since when requests are refused, with less than ten minutes in between.
    pub since: Timestamp,
    /// The error of the last attempt; numbers in it may be those of an earlier one.
    pub error: String,
    /// Whether writing succeeds, but in the last ten minutes only after requests that the store refused (429, 503).
    pub throttled: bool,
}

/// What became of an attempt to write to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt<'a> {
    Succeeded,
    /// It has succeeded after requests that were refused.
    Throttled,
    Failed(&'a str),
}

impl<'a> Attempt<'a> {
    /// `refused`: how many requests the store had refused before and after the attempt.
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
    /// When requests were refused last, to the minute, if the place is throttled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    throttled: Option<Timestamp>,
}

impl Failure {
    /// What is known after an attempt; `None` if the place neither fails nor is throttled.
    pub(crate) fn after(before: Option<&Failure>, attempt: Attempt<'_>, now: Timestamp) -> Option<Failure> {
        // A duration in an error does not make it another one.
        let plain = |text: &str| text.replace(|c: char| c.is_ascii_digit() || c == '.', "");
        let throttled = before.and_then(|before| Some((before, before.throttled?)));
        match (attempt, throttled) {
            (Attempt::Succeeded, Some((before, last))) if is_within(last, THROTTLED_FOR, now) => Some(before.clone()),
            (Attempt::Succeeded, _) => None,
            (Attempt::Throttled, Some((before, last))) if is_within(last, 60, now) => Some(before.clone()),
            (Attempt::Throttled, throttled) => {
                let before = throttled.filter(|(_, last)| is_within(*last, THROTTLED_FOR, now));
                let since = before.map_or(now, |(before, _)| before.since);
                Some(Failure { since, error: THROTTLED.to_owned(), throttled: Some(now) })
            }
            (Attempt::Failed(error), _) => Some(match before.filter(|before| before.throttled.is_none()) {
                Some(before) if plain(&before.error) == plain(error) => before.clone(),
                before => {
                    let since = before.map_or(now, |before| before.since);
                    Failure { since, error: error.to_owned(), throttled: None }
                }
            }),
        }
    }

    /// What it is at an instant: nothing if the last refusal is too long ago.
    pub(crate) fn at(self, now: Timestamp, what: String, url: String) -> Option<FailingPlace> {
        let is_over = self.throttled.is_some_and(|last| !is_within(last, THROTTLED_FOR, now));
        (!is_over).then_some(FailingPlace {
            what,
            url,
            since: self.since,
            error: self.error,
            throttled: self.throttled.is_some(),
        })
    }
}

fn is_within(last: Timestamp, seconds: i64, now: Timestamp) -> bool {
    last <= now && now < last.plus_seconds(seconds)
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
