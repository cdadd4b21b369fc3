//! The keys of the requests that are known: those that are stored, and those that are under way.

use crate::sync::{Condvar, Mutex};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// The collection of the keys.
pub(crate) const REQUESTS: &str = ".requests";

/// How long a key is known, and how many are at most: the oldest are forgotten first.
pub(super) const LIMITS: Limits = Limits { life: Duration::from_secs(3600), most: 100_000, at_once: 1000 };

/// Identifies a request, for example the SHA-256 of who sends it and of the key that he gave it.
pub type RequestKey = [u8; 32];

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    life: Duration,
    most: usize,
    /// So many are forgotten with one command.
    at_once: usize,
}

/// The requests that are known.
pub(crate) struct Requests {
    pub(super) known: Mutex<Known>,
    pub(super) ended: Condvar,
}

#[derive(Default)]
pub(super) struct Known {
    /// Those that are stored; `None` until they are first asked for.
    pub(super) remembered: Option<Remembered>,
    /// Those that are being stored or forgotten.
    pub(super) under_way: HashSet<RequestKey>,
}

/// The requests that are stored.
#[derive(Debug)]
pub(super) struct Remembered {
    /// The number of their collection.
    pub(super) collection: u64,
    /// Since when each is known, by the monotonic clock.
    pub(super) since: HashMap<RequestKey, Duration>,
    /// The oldest first.
    pub(super) order: VecDeque<RequestKey>,
}

impl Remembered {
    pub(super) fn add(&mut self, key: RequestKey, now: Duration) {
        if self.since.insert(key, now).is_none() {
            self.order.push_back(key);
        }
    }

    pub(super) fn remove(&mut self, keys: &[RequestKey]) {
        for key in keys {
            self.since.remove(key);
        }
        self.order.retain(|key| self.since.contains_key(key));
    }

    /// The oldest keys, if it is time to forget some: there are too many, enough of them are old, or `asked` is.
    pub(super) fn due(&self, asked: &RequestKey, now: Duration, limits: Limits) -> Vec<RequestKey> {
        let is_old =
            |key: &RequestKey| self.since.get(key).is_some_and(|since| now.saturating_sub(*since) >= limits.life);
        if self.order.len() >= limits.most {
            return self.order.iter().take(limits.at_once).copied().collect();
        }
        if is_old(asked) || self.order.get(limits.at_once - 1).is_some_and(is_old) {
            return self.order.iter().take_while(|key| is_old(key)).copied().collect();
        }
        Vec::new()
    }
}

impl Requests {
    pub(crate) fn new() -> Self {
        Requests { known: Mutex::new(Known::default()), ended: Condvar::new() }
    }

    pub(super) fn end(&self, keys: impl IntoIterator<Item = RequestKey>) {
        let mut known = self.known.lock();
        for key in keys {
            known.under_way.remove(&key);
        }
        drop(known);
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests;
