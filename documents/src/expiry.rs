//! When a document expires: by its own time to live, over the collection's default, and by TTL indexes.
//!
//! 1. The earliest instant counts, of all rules. Of equal ones the time to live of items decides, then the oldest index.
//! 2. A document is expired from that instant on, inclusive: [`ItemRules::expired_by`] alone compares it with the clock.
//!    What is decided for many documents at once, from least and greatest times, uses [`ebbtide_ttl::Cutoff`] with
//!    milliseconds: `Cutoff::new(now, seconds, Precision::Ms).hides(ms)` holds for the same instants.
//! 3. Instants do not wrap: milliseconds of 64 bits plus seconds of 31 bits fit a [`Timestamp`].
//! 4. Nothing here depends on when a sweep ran.

use crate::filter::Filter;
use crate::order::Number;
use crate::paths::{EndInList, Path};
use crate::raw::type_name;
use crate::{Code, Result, RuleError};
use bson::RawDocument;
use bson::raw::RawBsonRef;
use ebbtide_ttl::{Precision, Timestamp, due_instant};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::ControlFlow;

/// The longest time to live of an item, in seconds.
pub const TTL_SECONDS_MAX: u32 = 0x7FFF_FFFF;

/// The top-level field with an item's own time to live.
pub const TTL_FIELD: &str = "ttl";

/// The name of the rule that is the time to live of items, in listings.
pub const ITEMS_RULE: &str = "items";

/// A collection's `defaultTTL`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum DefaultTtl {
    /// There is none: the field `ttl` of items means nothing.
    #[default]
    Off,
    /// -1: items without a `ttl` of their own never expire.
    Never,
    /// Seconds for items without a `ttl` of their own, 1 to [`TTL_SECONDS_MAX`].
    Seconds(u32),
}

impl DefaultTtl {
    /// Reads the option.
    ///
    /// # Errors
    /// `InvalidOptions` for anything but `"off"`, -1 and an integer by value from 1 to [`TTL_SECONDS_MAX`].
    pub fn parse(value: RawBsonRef<'_>) -> Result<DefaultTtl> {
        if value == RawBsonRef::String("off") {
            return Ok(DefaultTtl::Off);
        }
        match ItemTtl::read(value) {
            ItemTtl::Never => Ok(DefaultTtl::Never),
            ItemTtl::Seconds(seconds) => Ok(DefaultTtl::Seconds(seconds)),
            ItemTtl::Inherit | ItemTtl::Invalid => {
                let given = shown(value);
                let message =
                    format!("defaultTTL must be \"off\", -1 or whole seconds from 1 to {TTL_SECONDS_MAX}, not {given}");
                Err(RuleError::new(Code::InvalidOptions, message))
            }
        }
    }

    /// The life in seconds, from its last write on, of an item with this `ttl`; `None` if it never expires by it. An
    /// invalid `ttl` counts as missing.
    #[must_use]
    pub fn life(self, item: ItemTtl) -> Option<u32> {
        match (self, item) {
            (DefaultTtl::Off, _) | (_, ItemTtl::Never) => None,
            (_, ItemTtl::Seconds(seconds)) => Some(seconds),
            (DefaultTtl::Never, ItemTtl::Inherit | ItemTtl::Invalid) => None,
            (DefaultTtl::Seconds(seconds), ItemTtl::Inherit | ItemTtl::Invalid) => Some(seconds),
        }
    }
}

/// As the option is given: `off`, -1 or seconds.
impl fmt::Display for DefaultTtl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DefaultTtl::Off => f.write_str("off"),
            DefaultTtl::Never => f.write_str("-1"),
            DefaultTtl::Seconds(seconds) => write!(f, "{seconds}"),
        }
    }
}

/// What the field `ttl` of an item says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ItemTtl {
    /// It is missing or null: the collection's default counts.
    Inherit,
    /// -1: never.
    Never,
    /// Seconds after the last write, 1 to [`TTL_SECONDS_MAX`].
    Seconds(u32),
    /// Something else, which is refused while the collection has a default, and counts as missing if it is stored.
    Invalid,
}

impl ItemTtl {
    /// Reads an item's top-level field `ttl`.
    #[must_use]
    pub fn of(document: &RawDocument) -> ItemTtl {
        crate::paths::member(document, TTL_FIELD).map_or(ItemTtl::Inherit, ItemTtl::read)
    }

    fn read(value: RawBsonRef<'_>) -> ItemTtl {
        match Number::of(value).and_then(Number::to_i64) {
            _ if value == RawBsonRef::Null => ItemTtl::Inherit,
            Some(-1) => ItemTtl::Never,
            Some(seconds) => match u32::try_from(seconds) {
                Ok(seconds @ 1..=TTL_SECONDS_MAX) => ItemTtl::Seconds(seconds),
                _ => ItemTtl::Invalid,
            },
            None => ItemTtl::Invalid,
        }
    }
}

/// Checks the `ttl` of a document that is to be written.
///
/// # Errors
/// `BadValue` if the collection has a default and the `ttl` is anything but null, -1 and an integer by value from 1 to
/// [`TTL_SECONDS_MAX`].
pub fn check_ttl(document: &RawDocument, default_ttl: DefaultTtl) -> Result<()> {
    if default_ttl == DefaultTtl::Off || ItemTtl::of(document) != ItemTtl::Invalid {
        return Ok(());
    }
    let given = crate::paths::member(document, TTL_FIELD).map_or(String::new(), shown);
    let message = format!(
        "field 'ttl': the collection has a defaultTTL, so ttl must be null, -1 (never) or whole seconds from 1 to \
         {TTL_SECONDS_MAX}, not {given}"
    );
    Err(RuleError::new(Code::BadValue, message))
}

/// A value in a message: its text, and its type where the text alone might mislead.
fn shown(value: RawBsonRef<'_>) -> String {
    let text: String = crate::json::relaxed_value_text(value).chars().take(80).collect();
    format!("{text} ({})", type_name(value))
}

/// A TTL index: documents expire a while after the earliest of their dates on a path.
#[derive(Debug, Clone)]
pub struct TtlIndex {
    /// The index's name.
    pub name: String,
    /// The path of its key.
    pub path: Path,
    /// E in seconds, 0 to 2147483647.
    pub expire_after_seconds: u32,
    /// The documents that it applies to; `None` for all.
    pub filter: Option<Filter>,
}

impl TtlIndex {
    /// The date that decides for a document, in milliseconds since the epoch; `None` if the index does not apply to it.
    #[must_use]
    pub fn date(&self, document: &RawDocument) -> Option<i64> {
        let date = earliest_date(document, &self.path)?;
        self.filter.as_ref().is_none_or(|filter| filter.matches(document)).then_some(date)
    }
}

/// The earliest date that a path reaches, in milliseconds since the epoch: through lists, whose elements count, but not
/// those of a list within a list. BSON timestamps and texts are no dates.
#[must_use]
pub fn earliest_date(document: &RawDocument, path: &Path) -> Option<i64> {
    let mut earliest = None;
    path.visit(document, EndInList::Elements, &mut |value| {
        if let Some(RawBsonRef::DateTime(date)) = value {
            let ms = date.timestamp_millis();
            earliest = Some(earliest.map_or(ms, |least: i64| least.min(ms)));
        }
        ControlFlow::Continue(())
    });
    earliest
}

/// The rule by which a document expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuleName<'r> {
    /// The time to live of items.
    Items,
    /// The TTL index of this name.
    Index(&'r str),
}

/// As listings show it: `items`, or the index's name.
impl fmt::Display for RuleName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleName::Items => ITEMS_RULE,
            RuleName::Index(name) => name,
        })
    }
}

/// All rules of an ordinary collection.
#[derive(Debug, Clone, Default)]
pub struct ItemRules {
    /// The life of items without a `ttl`, and whether a `ttl` means anything.
    pub default_ttl: DefaultTtl,
    /// The TTL indexes in order of creation.
    pub indexes: Vec<TtlIndex>,
}

impl ItemRules {
    /// Whether there is no rule, so that nothing ever expires.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.default_ttl == DefaultTtl::Off && self.indexes.is_empty()
    }

    /// The instant from which a document is expired, and the rule. `ts_ms` is the document's `_ts`: its last write, in
    /// milliseconds since the epoch. `None`: it never expires.
    #[must_use]
    pub fn expires_at(&self, document: &RawDocument, ts_ms: i64) -> Option<(Timestamp, RuleName<'_>)> {
        let by_ttl = match self.default_ttl {
            DefaultTtl::Off => None,
            default => default.life(ItemTtl::of(document)).map(|life| (instant(ts_ms, life), RuleName::Items)),
        };
        let by_index = self.indexes.iter().filter_map(|index| {
            let at = instant(index.date(document)?, index.expire_after_seconds);
            Some((at, RuleName::Index(&index.name)))
        });
        // The first of several least ones.
        by_ttl.into_iter().chain(by_index).min_by_key(|(at, _)| *at)
    }

    /// The rule through which a document is expired at `now`; `None` while it is visible.
    #[must_use]
    pub fn expired_by(&self, document: &RawDocument, ts_ms: i64, now: Timestamp) -> Option<RuleName<'_>> {
        self.expires_at(document, ts_ms).and_then(|(at, rule)| has_expired(Some(at), now).then_some(rule))
    }
}

/// Whether a document that expires at this instant, if it ever does, is expired at `now`.
#[must_use]
pub fn has_expired(at: Option<Timestamp>, now: Timestamp) -> bool {
    at.is_some_and(|at| at <= now)
}

fn instant(ms: i64, seconds: u32) -> Timestamp {
    due_instant(ms, i64::from(seconds), Precision::Ms)
}

#[cfg(test)]
mod tests;
