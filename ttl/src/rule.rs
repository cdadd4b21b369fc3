//! The rules of a collection: its own `expireAfterSeconds` and its partial TTL indexes.
//!
//! 1. The effective rule of a meta is the shortest one that matches; of equally short ones the collection's own, then
//!    the oldest. So another rule never makes data live longer.
//! 2. Several rules change together or not at all.

mod seconds;
mod spec;

pub use seconds::{
    EXPIRE_AFTER_SECONDS_MAX, ExpireAfterContext, parse_expire_after, parse_expire_after_or_off, parse_grace,
    parse_keep, parse_max_bytes,
};
pub use spec::{RuleChange, RuleSelector, RuleSpec, checked_index_name, parse_expire_into};

use crate::code::{Code, RuleError};
use crate::filter::Filter;
use crate::value::Value;
use serde::{Deserialize, Serialize};

/// The index of the collection's own rule in a [`RuleSet`], also when it has none; the partial rules start at 1.
pub const COLLECTION_RULE: usize = 0;
/// The name of that rule in listings; no index can have this name.
const COLLECTION_RULE_LABEL: &str = "collection";

/// A partial TTL index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialRule {
    /// The name, unique in the collection.
    pub name: String,
    /// The key's direction, 1 or -1: shown, and part of the identity, without any other effect.
    pub key_direction: i32,
    /// E in seconds.
    pub expire_after_seconds: i64,
    /// The metas that the rule applies to.
    pub filter: Filter,
}

impl PartialRule {
    fn is_same_index(&self, spec: &RuleSpec) -> bool {
        self.key_direction == spec.key_direction && self.filter == spec.filter
    }
}

/// One rule of a set, of either kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleView<'a> {
    /// Its place in the set, as in [`RuleSet::effective`].
    pub index: usize,
    /// The partial rule's name; `None` for the collection's own.
    pub name: Option<&'a str>,
    /// E in seconds.
    pub expire_after_seconds: i64,
    /// The metas that the rule applies to; `None` for all.
    pub filter: Option<&'a Filter>,
}

impl RuleView<'_> {
    /// The name that listings show: the rule's, or `collection`.
    #[must_use]
    pub fn label(&self) -> &str {
        self.name.unwrap_or(COLLECTION_RULE_LABEL)
    }
}

/// What [`RuleSet::create`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Created {
    /// Partial rules before.
    pub before: usize,
    /// Partial rules after.
    pub after: usize,
}

/// All rules of a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSet {
    collection: Option<i64>,
    partial: Vec<PartialRule>,
}

impl RuleSet {
    /// A set without partial rules.
    #[must_use]
    pub fn new(expire_after_seconds: Option<i64>) -> Self {
        RuleSet { collection: expire_after_seconds, partial: Vec::new() }
    }

    /// The collection's own E in seconds.
    #[must_use]
    pub fn collection(&self) -> Option<i64> {
        self.collection
    }

    /// Sets, changes or removes the collection's own E.
    pub fn change_collection(&mut self, expire_after_seconds: Option<i64>) {
        self.collection = expire_after_seconds;
    }

    /// The partial rules in order of creation.
    #[must_use]
    pub fn partial(&self) -> &[PartialRule] {
        &self.partial
    }

    /// Whether there is no rule, so that nothing ever expires.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.collection.is_none() && self.partial.is_empty()
    }

    /// All rules: the collection's own first, then the partial ones in order of creation.
    pub fn iter(&self) -> impl Iterator<Item = RuleView<'_>> {
        let own = self.collection.map(|seconds| RuleView {
            index: COLLECTION_RULE,
            name: None,
            expire_after_seconds: seconds,
            filter: None,
        });
        let partial = self.partial.iter().enumerate().map(|(i, rule)| RuleView {
            index: i + 1,
            name: Some(&rule.name),
            expire_after_seconds: rule.expire_after_seconds,
            filter: Some(&rule.filter),
        });
        own.into_iter().chain(partial)
    }

    /// The rule at an index returned by [`RuleSet::effective`].
    #[must_use]
    pub fn rule(&self, index: usize) -> Option<RuleView<'_>> {
        self.iter().find(|rule| rule.index == index)
    }

    /// The rule with this name; `None` names the collection's own.
    #[must_use]
    pub fn find(&self, name: Option<&str>) -> Option<RuleView<'_>> {
        self.iter().find(|rule| rule.name == name)
    }

    /// The rule that decides for a meta, with its E in seconds: the shortest that matches; of equal ones the
    /// collection's own, then the oldest. `None`: what has this meta never expires.
    #[must_use]
    pub fn effective(&self, meta: &Value) -> Option<(usize, i64)> {
        let mut best = self.collection.map(|seconds| (COLLECTION_RULE, seconds));
        for (i, rule) in self.partial.iter().enumerate() {
            let is_shorter = best.is_none_or(|(_, seconds)| rule.expire_after_seconds < seconds);
            if is_shorter && rule.filter.matches_meta(meta) {
                best = Some((i + 1, rule.expire_after_seconds));
            }
        }
        best
    }

    /// The one rule that is effective for every meta, if rules can be compared without looking at metas: there is none
    /// at all (`Some(None)`), or no partial rule is shorter than the collection's own.
    #[must_use]
    pub fn effective_for_all(&self) -> Option<Option<(usize, i64)>> {
        match self.collection {
            None => self.partial.is_empty().then_some(None),
            Some(seconds) => self
                .partial
                .iter()
                .all(|rule| rule.expire_after_seconds >= seconds)
                .then_some(Some((COLLECTION_RULE, seconds))),
        }
    }

    /// The shortest E of all rules, in seconds: nothing younger has expired.
    #[must_use]
    pub fn shortest(&self) -> Option<i64> {
        self.iter().map(|rule| rule.expire_after_seconds).min()
    }

    /// Creates partial rules, all or none. An existing rule with the same name and E stays unchanged.
    ///
    /// # Errors
    /// `IndexOptionsConflict` if the same key and filter have another E or name, `IndexKeySpecsConflict` if the name is
    /// another index's, `CannotCreateIndex` for a name that is empty or too long.
    pub fn create(&mut self, specs: Vec<RuleSpec>) -> Result<Created, RuleError> {
        let before = self.partial.len();
        for spec in specs {
            match self.admit(&spec) {
                Ok(true) => self.partial.push(PartialRule {
                    name: spec.name,
                    key_direction: spec.key_direction,
                    expire_after_seconds: spec.expire_after_seconds,
                    filter: spec.filter,
                }),
                Ok(false) => {}
                Err(error) => {
                    self.partial.truncate(before);
                    return Err(error);
                }
            }
        }
        Ok(Created { before, after: self.partial.len() })
    }

    /// Whether there is such a rule, with the same name and number of seconds.
    pub fn has(&self, spec: &RuleSpec) -> bool {
        let is_it = |rule: &PartialRule| {
            rule.name == spec.name && rule.expire_after_seconds == spec.expire_after_seconds && rule.is_same_index(spec)
        };
        self.partial.iter().any(is_it)
    }

    /// Whether a new rule is to be added.
    fn admit(&self, spec: &RuleSpec) -> Result<bool, RuleError> {
        checked_index_name(&spec.name)?;
        if self.has(spec) {
            return Ok(false);
        }
        if let Some(same) = self.partial.iter().find(|rule| rule.is_same_index(spec)) {
            let message = format!(
                "the index exists as '{}' with expireAfterSeconds {}: it cannot be made as '{}' with {}; change it with collMod",
                same.name, same.expire_after_seconds, spec.name, spec.expire_after_seconds
            );
            return Err(RuleError::new(Code::IndexOptionsConflict, message));
        }
        if self.partial.iter().any(|rule| rule.name == spec.name) {
            let message = format!("an index '{}' with another key or filter exists; choose another name", spec.name);
            return Err(RuleError::new(Code::IndexKeySpecsConflict, message));
        }
        Ok(true)
    }

    /// Changes the E of a partial rule and returns the old one.
    ///
    /// # Errors
    /// `IndexNotFound`; `AmbiguousIndexKeyPattern` if several match a key pattern.
    pub fn modify(&mut self, selector: &RuleSelector, expire_after_seconds: i64) -> Result<i64, RuleError> {
        let i = self.position(selector)?;
        Ok(std::mem::replace(&mut self.partial[i].expire_after_seconds, expire_after_seconds))
    }

    /// The partial rule that is meant.
    ///
    /// # Errors
    /// As for [`RuleSet::modify`].
    pub fn select(&self, selector: &RuleSelector) -> Result<&PartialRule, RuleError> {
        Ok(&self.partial[self.position(selector)?])
    }

    /// Removes partial rules, all or none, and returns them.
    ///
    /// # Errors
    /// As for [`RuleSet::modify`].
    pub fn drop_rules(&mut self, selectors: &[RuleSelector]) -> Result<Vec<PartialRule>, RuleError> {
        let mut left = self.clone();
        let mut dropped = Vec::with_capacity(selectors.len());
        for selector in selectors {
            let i = left.position(selector)?;
            dropped.push(left.partial.remove(i));
        }
        *self = left;
        Ok(dropped)
    }

    /// Removes all partial rules and returns them; the collection's own stays.
    pub fn drop_all(&mut self) -> Vec<PartialRule> {
        std::mem::take(&mut self.partial)
    }

    fn position(&self, selector: &RuleSelector) -> Result<usize, RuleError> {
        let mut found = self.partial.iter().enumerate().filter(|(_, rule)| selector.selects(rule));
        match (found.next(), found.next()) {
            (Some((i, _)), None) => Ok(i),
            (Some((_, a)), Some((_, b))) => Err(RuleError::new(
                Code::AmbiguousIndexKeyPattern,
                format!("{selector} is that of '{}' and of '{}', perhaps of more; give a name", a.name, b.name),
            )),
            (None, _) => {
                let names: Vec<String> = self.partial.iter().take(12).map(|rule| format!("'{}'", rule.name)).collect();
                let there = if names.is_empty() { "none at all".to_owned() } else { names.join(", ") };
                Err(RuleError::new(Code::IndexNotFound, format!("there is no index with {selector}; there is {there}")))
            }
        }
    }
}

#[cfg(test)]
mod tests;
