//! Ladders: bins that stay when measurements go.
//!
//! A rung is a collection of its own that no user sees: its time is the start of a bin, its meta that of the measurements, its
//! fields the states of `ebbtide_buckets::Bins`, and its rule the life of a bin. So sealing, dropping, compaction, opening,
//! verification and repair know rungs without knowing of them. What is particular is here.
//!
//! # Why a bin counts every measurement once
//!
//! A bin is what its rung has stored, together with all measurements that are stored, visible or not (`snapshot/rollup.rs`). An edit
//! that drops measurements adds what they come to to every rung ([`decay`]); so at every moment each measurement is in one of
//! the two. Bins that have expired take nothing: then, and when a sweep drops bins, `RungRecord::gone_before` says up to which
//! instant bins have lost something, and they are not shown again, whatever becomes of the rung's life.

pub(crate) mod alter;
pub(crate) mod compact;
pub(crate) mod decay;
pub(crate) mod delete;
pub(crate) mod fold;
pub(crate) mod name;
mod transfer;

pub use transfer::DumpedRung;

use crate::holds::Hold;
use ebbtide_buckets::{Bins, FieldType, Schema, StoredField, Window};
use ebbtide_ttl::{Cutoff, Ladder, Precision, RUNG_RULE, Rung, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the names of rungs begin with. No collection of a user begins with a dot.
const RUNG_PREFIX: &str = ".rung.";

/// A ladder in the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LadderRecord {
    /// How often the ladder was changed.
    pub(crate) number: u32,
    /// The fields that bins have states of; all that can be aggregated if `None`.
    pub(crate) fields: Option<Vec<String>>,
    /// The number of the ladder with which a field's states began.
    pub(crate) since: BTreeMap<String, u32>,
    /// The same for all other fields.
    pub(crate) others_since: u32,
    /// Fields that were called otherwise when their states began.
    pub(crate) renamed: BTreeMap<String, String>,
    /// The finest first.
    pub(crate) rungs: Vec<RungRecord>,
}

/// A rung in the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RungRecord {
    pub(crate) rung: Rung,
    /// The number of the collection that has its bins.
    pub(crate) collection: u64,
    /// Bins that end here or earlier may have lost something and are not shown, in units of the precision.
    pub(crate) gone_before: Option<i64>,
}

impl RungRecord {
    /// The width of its bins in units.
    pub(crate) fn step(&self, precision: Precision) -> i64 {
        self.rung.step_seconds.saturating_mul(precision.per_second())
    }

    /// The boundary of its bins at `now`: those are expired whose end it hides. Without an instant none is.
    pub(crate) fn cutoff(&self, now: Option<Timestamp>, precision: Precision) -> Cutoff {
        match now.zip(self.rung.expire_after_seconds) {
            Some((now, life)) => Cutoff::new(now, life, precision),
            None => Cutoff::NONE,
        }
    }

    /// Whether a bin has lost something.
    pub(crate) fn is_gone(&self, bin: Window) -> bool {
        self.gone_before.is_some_and(|gone| bin.end <= gone)
    }

    /// Notes that bins up to one that ends here have lost something.
    pub(crate) fn lose(&mut self, end: i64) {
        self.gone_before = Some(self.gone_before.map_or(end, |gone| gone.max(end)));
    }
}

impl LadderRecord {
    /// What a user gave.
    pub(crate) fn definition(&self) -> Ladder {
        Ladder { fields: self.fields.clone(), rungs: self.rungs.iter().map(|rung| rung.rung).collect() }
    }

    /// The number of the ladder with which a field's states began.
    pub(crate) fn since(&self, field: &str) -> u32 {
        self.since.get(field).copied().unwrap_or(self.others_since)
    }

    /// Under which names a field's states are stored.
    pub(crate) fn stored(&self, field: &str) -> StoredField {
        let name = self.renamed.get(field).map_or(field, String::as_str);
        StoredField { field: name.to_owned(), since: self.since(field) }
    }

    /// The ladder after a field got another name. One that comes with the old name begins anew.
    pub(crate) fn with_field_renamed(&self, from: &str, to: &str) -> LadderRecord {
        let mut changed = self.without_field(from);
        changed.since.insert(to.to_owned(), self.since(from));
        changed.renamed.insert(to.to_owned(), self.stored(from).field);
        if let Some(fields) = &mut changed.fields {
            if fields.iter().any(|field| field == to) {
                fields.retain(|field| field != from);
            }
            fields.iter_mut().filter(|field| *field == from).for_each(|field| to.clone_into(field));
        }
        changed
    }

    /// The ladder after a field was dropped. One that comes with its name begins anew.
    pub(crate) fn without_field(&self, field: &str) -> LadderRecord {
        let mut changed = self.clone();
        changed.number += 1;
        changed.since.insert(field.to_owned(), changed.number);
        changed.renamed.remove(field);
        changed
    }

    /// The fields of a collection that bins have states of, in the order of its schema.
    pub(crate) fn fields<'a>(&'a self, schema: &'a Schema) -> impl Iterator<Item = (&'a str, &'a FieldType)> {
        let named = |name: &str| self.fields.as_ref().is_none_or(|fields| fields.iter().any(|field| field == name));
        let fields = schema.fields.iter().map(|(name, ty)| (name.as_str(), ty));
        fields.filter(move |(name, ty)| named(name) && Bins::takes(ty) && clash(schema, name).is_none())
    }
}

/// The time or meta field that a column of a field's bins would have the name of.
pub(crate) fn clash<'a>(schema: &'a Schema, field: &str) -> Option<&'a str> {
    let names = std::iter::once(&schema.time).chain(&schema.meta);
    let is_taken = |name: &&String| {
        let suffix = name.strip_prefix(field).and_then(|rest| rest.strip_prefix('_'));
        suffix.is_some_and(|suffix| ebbtide_buckets::RESULT_SUFFIXES.contains(&suffix))
    };
    names.into_iter().find(is_taken).map(String::as_str)
}

/// The name of the collection of a rung.
pub(crate) fn rung_name(parent: u64, step_seconds: i64) -> String {
    format!("{RUNG_PREFIX}{parent}.{step_seconds}")
}

/// The collection whose rung has this name, and the rung's step.
pub(crate) fn rung_of(name: &str) -> Option<(u64, i64)> {
    let (parent, step) = name.strip_prefix(RUNG_PREFIX)?.split_once('.')?;
    let (parent, step) = (parent.parse().ok()?, step.parse().ok()?);
    (rung_name(parent, step) == name).then_some((parent, step))
}

/// What a collection, or a rung of one, is called in reports; `name_of` knows the names of collections by their numbers.
pub(crate) fn reported_name(name: &str, name_of: impl Fn(u64) -> Option<String>) -> String {
    let rung = rung_of(name).and_then(|(parent, step)| Some(format!("{}, {RUNG_RULE}{step}", name_of(parent)?)));
    rung.unwrap_or_else(|| name.to_owned())
}

/// The holds of a collection as its rung sees them: a bin is held if a hold covers an instant in it.
pub(crate) fn holds_of_rung(holds: &[Hold], step_seconds: i64, precision: Precision) -> Arc<Vec<Hold>> {
    let unit = 1_000_000_000 / i128::from(precision.per_second());
    let first = |from: Timestamp| Timestamp::from_nanos(from.plus_seconds(-step_seconds).nanos().saturating_add(unit));
    Arc::new(holds.iter().map(|hold| Hold { from: hold.from.map(first), ..hold.clone() }).collect())
}
