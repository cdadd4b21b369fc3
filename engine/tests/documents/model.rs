//! The plain map that the engine is compared with.

use crate::steps::{NewDocument, Rule, Which};
use std::collections::BTreeMap;

/// A stored document. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) number: i64,
    pub(crate) ttl: Option<i64>,
    pub(crate) date: Option<i64>,
    pub(crate) written: i64,
}

/// Everything that is stored, expired or not, and the rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) documents: BTreeMap<i64, Kept>,
    pub(crate) default_ttl: Option<i64>,
    /// The seconds of the TTL index on `date`, if there is one.
    pub(crate) index: Option<i64>,
}

impl Model {
    /// When a document expires.
    pub(crate) fn expires_at(&self, kept: &Kept) -> Option<i64> {
        let life = match (self.default_ttl, kept.ttl) {
            (None, _) | (Some(_), Some(-1)) | (Some(-1), None) => None,
            (Some(_), Some(own)) => Some(own),
            (Some(default), None) => Some(default),
        };
        let by_item = life.map(|seconds| kept.written + seconds * 1_000);
        let by_index = self.index.and_then(|e| Some(kept.date? + e * 1_000));
        by_item.into_iter().chain(by_index).min()
    }

    pub(crate) fn is_visible(&self, kept: &Kept, now: i64) -> bool {
        self.expires_at(kept).is_none_or(|at| at > now)
    }

    pub(crate) fn visible(&self, now: i64) -> BTreeMap<i64, Kept> {
        let visible = self.documents.iter().filter(|(_, kept)| self.is_visible(kept, now));
        visible.map(|(id, kept)| (*id, kept.clone())).collect()
    }

    pub(crate) fn put(&mut self, document: &NewDocument, now: i64) {
        let date = document.date.map(|seconds| now + seconds * 1_000);
        let NewDocument { id, number, ttl, .. } = *document;
        self.documents.insert(id, Kept { number, ttl, date, written: now });
    }

    /// The stored documents that a command is about.
    pub(crate) fn chosen(&self, which: &Which) -> Vec<i64> {
        let is_meant = |(id, kept): &(&i64, &Kept)| match which {
            Which::Id(one) => *id == one,
            Which::Ids(ids) => ids.contains(id),
            Which::NumberAtMost(most) => kept.number <= *most,
            Which::All => true,
        };
        self.documents.iter().filter(is_meant).map(|(id, _)| *id).collect()
    }

    /// Adds to the numbers of visible documents; returns how many there were.
    pub(crate) fn add(&mut self, which: &Which, number: i64, now: i64) -> i64 {
        let mut matched = 0;
        for id in self.chosen(which) {
            if self.is_visible(&self.documents[&id], now) {
                let kept = self.documents.get_mut(&id).unwrap();
                kept.number += number;
                kept.written = now;
                matched += 1;
            }
        }
        matched
    }

    /// Removes documents for good, expired ones uncounted.
    pub(crate) fn delete(&mut self, which: &Which, now: i64) -> i64 {
        let mut counted = 0;
        for id in self.chosen(which) {
            let gone = self.documents.remove(&id).unwrap();
            counted += i64::from(self.is_visible(&gone, now));
        }
        counted
    }

    pub(crate) fn change(&mut self, rule: &Rule) {
        match rule {
            Rule::DefaultTtl(seconds) => self.default_ttl = *seconds,
            Rule::CreateIndex(e) => self.index = self.index.or(Some(*e)),
            Rule::ChangeIndex(e) => self.index = self.index.and(Some(*e)),
            Rule::DropIndex => self.index = None,
        }
    }

    /// Removes what has expired, of which a limited pass may leave some: `left` tells what is still stored.
    pub(crate) fn due(&self, now: i64) -> Vec<i64> {
        self.documents.iter().filter(|(_, kept)| !self.is_visible(kept, now)).map(|(id, _)| *id).collect()
    }
}
