//! Legal holds: what a hold covers is not dropped, deleted or renamed away until the hold is lifted.
//!
//! A hold covers the measurements of some metas within a range of time. It neither hides nor shows anything: a measurement that
//! is covered and expired stays hidden. A bucket with one covered measurement is kept as a whole.

#[cfg(test)]
mod tests;

use crate::db::Database;
use crate::error::{Error, Result};
use crate::manifest::Op;
use crate::segment::Segment;
use crate::segment::bounds::BucketBounds;
use crate::snapshot::{CollectionSnapshot, MetaFilter, ScanRequest, Snapshot};
use crate::state::CollectionState;
use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::error::ArrowError;
use ebbtide_buckets::{BucketId, SegmentReader, time_values, value_at};
use ebbtide_ttl::{Code, Filter, Precision, Timestamp, Value};
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;

/// What a new hold covers, and why.
///
/// ```
/// use ebbtide::ttl::{Filter, Timestamp, Value};
/// use ebbtide::{CollectionOptions, Database, HoldOptions};
///
/// # let folder = tempfile::tempdir()?;
/// # let db = Database::open(folder.path().join("db"))?;
/// db.create_collection("weather", CollectionOptions::new("t").meta_field("sensor").expire_after_seconds(3600))?;
/// let hold = HoldOptions::new("court order 42").metas(Filter::eq("sensor", Value::from("roof")));
/// db.create_hold("case42", "weather", hold.until(Timestamp::parse("2030-01-01T00:00:00Z")?))?;
/// assert_eq!(db.snapshot().holds()?[0].name, "case42");
/// db.lift_hold("case42")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct HoldOptions {
    /// The metas, as in a partial TTL index. Default: all.
    pub filter: Filter,
    /// The first instant that is covered. Default: none, so that all earlier ones are.
    pub from: Option<Timestamp>,
    /// The first instant after `from` that is not covered. Default: none, so that all later ones are.
    pub to: Option<Timestamp>,
    /// Why the measurements are held.
    pub reason: String,
}

impl HoldOptions {
    /// A hold on everything, for this reason.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        HoldOptions { filter: Filter::everything(), from: None, to: None, reason: reason.into() }
    }

    /// Covers only the metas that a filter matches.
    #[must_use]
    pub fn metas(self, filter: Filter) -> Self {
        HoldOptions { filter, ..self }
    }

    /// Covers nothing before this instant.
    #[must_use]
    pub fn since(self, from: Timestamp) -> Self {
        HoldOptions { from: Some(from), ..self }
    }

    /// Covers nothing from this instant on.
    #[must_use]
    pub fn until(self, to: Timestamp) -> Self {
        HoldOptions { to: Some(to), ..self }
    }

    fn check(&self) -> Result<()> {
        if self.reason.trim().is_empty() {
            return Err(Error::new(Code::InvalidOptions, "a hold needs a reason: say why the measurements are kept"));
        }
        match (self.from, self.to) {
            (Some(from), Some(to)) if to <= from => {
                let what = format!("a hold from {from} to {to} covers nothing: the end must be after the beginning");
                Err(Error::new(Code::InvalidOptions, what))
            }
            _ => Ok(()),
        }
    }
}

/// A hold, as the manifest has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hold {
    pub(crate) name: String,
    /// The number of the collection.
    pub(crate) collection: u64,
    /// The name that the collection had when the hold was made.
    pub(crate) collection_name: String,
    pub(crate) filter: Filter,
    pub(crate) from: Option<Timestamp>,
    pub(crate) to: Option<Timestamp>,
    pub(crate) reason: String,
    pub(crate) made_at: Timestamp,
    pub(crate) lifted_at: Option<Timestamp>,
}

impl Hold {
    /// The first and the last time that it covers, in units of a precision.
    pub(crate) fn range(&self, precision: Precision) -> (i64, i64) {
        // The first unit that is not before an instant.
        let ceil = |instant: Timestamp| {
            let floor = instant.to_units_saturating(precision);
            floor.saturating_add(i64::from(Timestamp::from_units(floor, precision) < instant))
        };
        (self.from.map_or(i64::MIN, ceil), self.to.map_or(i64::MAX, |to| ceil(to).saturating_sub(1)))
    }

    /// Whether it covers the measurement of a meta at a time, if it covers the meta.
    pub(crate) fn covers(&self, t: i64, precision: Precision) -> bool {
        let (first, last) = self.range(precision);
        (first..=last).contains(&t)
    }

    fn overlaps(&self, first: i64, last: i64, precision: Precision) -> bool {
        let (from, to) = self.range(precision);
        from <= last && first <= to
    }

    /// Whether it covers one of the measurements of a meta from the time `first` to `last`. `times` gives all of them; it is
    /// asked only where the two do not tell.
    fn covers_any(
        &self,
        (first, last): (i64, i64),
        precision: Precision,
        times: impl FnOnce() -> Result<Vec<i64>>,
    ) -> Result<bool> {
        if !self.overlaps(first, last, precision) {
            return Ok(false);
        }
        if self.covers(first, precision) || self.covers(last, precision) {
            return Ok(true);
        }
        Ok(times()?.into_iter().any(|t| self.covers(t, precision)))
    }

    /// The error that refuses to take what it covers.
    pub(crate) fn refusal(&self, action: &str) -> Error {
        let Hold { name, reason, .. } = self;
        let what = format!("hold '{name}' ({reason}) keeps this: {action}; lift the hold first");
        Error::new(Code::IllegalOperation, what)
    }
}

impl CollectionState {
    /// The active hold that covers a measurement.
    pub(crate) fn hold_on(&self, meta: &Value, t: i64) -> Option<&Hold> {
        let precision = self.options.precision;
        self.holds.iter().find(|hold| hold.covers(t, precision) && hold.filter.matches_meta(meta))
    }

    /// Whether a hold may cover something that a segment holds; told without its directory.
    pub(crate) fn may_be_held(&self, segment: &Segment) -> bool {
        let live = segment.live();
        self.holds.iter().any(|hold| hold.overlaps(live.first_min, live.last_max, self.options.precision))
    }

    /// The buckets of a segment that have a measurement which a hold covers.
    pub(crate) fn held_buckets(&self, segment: &Segment, reader: &SegmentReader) -> Result<RoaringBitmap> {
        let mut held = RoaringBitmap::new();
        if !self.may_be_held(segment) {
            return Ok(held);
        }
        for (ordinal, _, bounds) in segment.live_buckets(reader) {
            if self.is_piece_held(segment, (reader, ordinal), &bounds)? {
                held.insert(crate::segment::ordinal_number(ordinal));
            }
        }
        Ok(held)
    }

    fn is_piece_held(
        &self,
        segment: &Segment,
        (reader, ordinal): (&SegmentReader, usize),
        bounds: &BucketBounds,
    ) -> Result<bool> {
        let precision = self.options.precision;
        let near = self.holds.iter().filter(|hold| hold.overlaps(bounds.first, bounds.last, precision));
        let mut meta = None;
        for hold in near {
            let meta = meta.get_or_insert_with(|| segment.meta(reader, ordinal).value());
            let times = || {
                let ranges = segment.live_ranges(reader, ordinal);
                let mut times = Vec::new();
                for batch in reader.read(std::slice::from_ref(&self.schema.time), &self.schema, &ranges, 1 << 13)? {
                    times.extend_from_slice(time_values(batch?.column(0))?);
                }
                Ok(times)
            };
            if hold.filter.matches_meta(meta) && hold.covers_any((bounds.first, bounds.last), precision, times)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The open buckets that have a measurement which a hold covers.
    pub(crate) fn held_open_buckets(&self) -> Result<HashSet<BucketId>> {
        let mut held = HashSet::new();
        if self.holds.is_empty() {
            return Ok(held);
        }
        for chunk in self.memtable.chunks() {
            let times = ebbtide_buckets::times(&chunk.batch)?;
            for bucket in &chunk.buckets {
                let meta = bucket.id.meta.value();
                if bucket.rows.iter().any(|row| self.hold_on(&meta, times[*row as usize]).is_some()) {
                    held.insert(bucket.id.clone());
                }
            }
        }
        Ok(held)
    }
}

/// Selects the metas of a hold.
#[derive(Debug)]
struct HeldMetas(Filter);

impl MetaFilter for HeldMetas {
    fn select(&self, metas: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        Ok((0..metas.len()).map(|row| Some(self.0.matches_meta(&value_at(metas.as_ref(), row)))).collect())
    }
}

/// A hold, as `SHOW HOLDS` lists it.
#[derive(Debug, Clone, PartialEq)]
pub struct HoldInfo {
    /// Its name.
    pub name: String,
    /// The collection.
    pub collection: String,
    /// The metas that it covers, as given; none if it covers all.
    pub filter: Option<Value>,
    /// The first instant that it covers, if it has one.
    pub from: Option<Timestamp>,
    /// The first instant after it that it does not cover, if it has one.
    pub to: Option<Timestamp>,
    /// Why it was made.
    pub reason: String,
    /// When it was made.
    pub made_at: Timestamp,
    /// When it was lifted; none while it is active.
    pub lifted_at: Option<Timestamp>,
    /// Stored measurements that it covers, visible or not; 0 once it is lifted.
    pub measurements: u64,
}

impl Snapshot {
    /// Every hold that was ever made, active or lifted, in the order in which they were made.
    ///
    /// # Errors
    /// Damage in a segment.
    pub fn holds(&self) -> Result<Vec<HoldInfo>> {
        self.holds
            .iter()
            .map(|hold| {
                let collection = self.collection_of_id(hold.collection).filter(|_| hold.lifted_at.is_none());
                Ok(HoldInfo {
                    name: hold.name.clone(),
                    collection: hold.collection_name.clone(),
                    filter: (!hold.filter.is_everything()).then(|| hold.filter.source().clone()),
                    from: hold.from,
                    to: hold.to,
                    reason: hold.reason.clone(),
                    made_at: hold.made_at,
                    lifted_at: hold.lifted_at,
                    measurements: collection.map_or(Ok(0), |c| c.covered_by(hold))?,
                })
            })
            .collect()
    }
}

impl CollectionSnapshot {
    /// Stored measurements that a hold covers.
    fn covered_by(&self, hold: &Hold) -> Result<u64> {
        let (first, last) = hold.range(self.options().precision);
        let meta = (!hold.filter.is_everything()).then(|| Arc::new(HeldMetas(hold.filter.clone())) as _);
        let time = self.stored_range(first, last);
        self.count_of(&ScanRequest { time, meta, include_hidden: true, ..ScanRequest::default() })
    }

    /// Fails if an active hold covers anything that is stored, bins included.
    pub(crate) fn check_unheld(&self, action: &str) -> Result<()> {
        for hold in self.state.holds.iter() {
            if self.covered_by(hold)? > 0 {
                return Err(hold.refusal(action));
            }
        }
        self.rungs.iter().try_for_each(|rung| self.rung_view(rung).check_unheld(action))
    }
}

impl Database {
    /// Makes a hold on measurements of a time-series collection: those of the metas that its filter matches, within its range of
    /// time, stored now or later. No sweep, delete, drop or change of name takes what it covers, until it is lifted.
    ///
    /// # Durability
    /// When this returns, the hold survives a power cut.
    /// # Errors
    /// [`Code::NamespaceNotFound`]; [`Code::InvalidOptions`] for an ordinary collection, without a reason, for an empty range and
    /// for a filter on other fields than meta; [`Code::NamespaceExists`] if an active hold has the name.
    pub fn create_hold(&self, name: &str, collection: &str, options: HoldOptions) -> Result<()> {
        let engine = &self.engine;
        check_hold_name(name)?;
        options.check()?;
        let archiving = engine.archiving(collection)?;
        let _moving = archiving.moving.lock();
        let _maintenance = engine.maintenance.lock();
        engine.check_writable()?;
        let hold = {
            let state = engine.state.read();
            let found = state.collection(collection)?;
            if !options.filter.is_everything() {
                let source = options.filter.source();
                Filter::parse_partial(source, found.options.meta_field.as_deref())?;
            }
            if state.holds.iter().any(|hold| hold.name == name && hold.lifted_at.is_none()) {
                return Err(taken(name));
            }
            Hold {
                name: name.to_owned(),
                collection: found.id,
                collection_name: found.name.clone(),
                filter: options.filter,
                from: options.from,
                to: options.to,
                reason: options.reason,
                made_at: engine.clock.now(),
                lifted_at: None,
            }
        };
        engine.commit(vec![Op::PutHold(hold)])
    }

    /// Adds holds of another database with the instants when they were made and lifted, as a restore does. The collections of
    /// active ones must be there.
    ///
    /// # Durability
    /// When this returns, all of them survive a power cut. At no time is there a part of them.
    /// # Errors
    /// As for [`Database::create_hold`]; then none of them is added.
    pub fn import_holds(&self, holds: &[HoldInfo]) -> Result<()> {
        let engine = &self.engine;
        let _maintenance = engine.maintenance.lock();
        engine.check_writable()?;
        let ops = {
            let state = engine.state.read();
            let made = |hold: &HoldInfo| {
                check_hold_name(&hold.name)?;
                let found = match (state.collection(&hold.collection), hold.lifted_at) {
                    (Err(error), None) => return Err(error),
                    (found, _) => found.ok(),
                };
                let filter = match &hold.filter {
                    Some(filter) => {
                        let meta = found.and_then(|found| found.options.meta_field.as_deref());
                        if hold.lifted_at.is_some() {
                            Filter::parse_query(filter)?
                        } else {
                            Filter::parse_partial(filter, meta)?
                        }
                    }
                    None => Filter::everything(),
                };
                let is_same = |other: &Hold| other.name == hold.name && other.lifted_at.is_none();
                if hold.lifted_at.is_none() && state.holds.iter().any(is_same) {
                    return Err(taken(&hold.name));
                }
                let HoldInfo { name, collection, from, to, reason, made_at, lifted_at, .. } = hold.clone();
                let id = found.map_or(0, |found| found.id);
                let collection_name = collection;
                Ok(Op::PutHold(Hold {
                    name,
                    collection: id,
                    collection_name,
                    filter,
                    from,
                    to,
                    reason,
                    made_at,
                    lifted_at,
                }))
            };
            holds.iter().map(made).collect::<Result<Vec<Op>>>()?
        };
        if ops.is_empty() { Ok(()) } else { engine.commit(ops) }
    }

    /// Lifts a hold. It stays in the history.
    ///
    /// # Durability
    /// When this returns, the hold does not come back after a power cut.
    /// # Errors
    /// [`Code::NamespaceNotFound`] if no active hold has the name.
    pub fn lift_hold(&self, name: &str) -> Result<()> {
        let engine = &self.engine;
        let _maintenance = engine.maintenance.lock();
        engine.check_writable()?;
        let is_active = |hold: &&Hold| hold.name == name && hold.lifted_at.is_none();
        let Some(hold) = engine.state.read().holds.iter().find(is_active).cloned() else {
            return Err(Error::new(Code::NamespaceNotFound, format!("there is no active hold '{name}'")));
        };
        engine.commit(vec![Op::PutHold(Hold { lifted_at: Some(engine.clock.now()), ..hold })])
    }
}

fn taken(name: &str) -> Error {
    let what = format!("hold '{name}' is there already: lift it first, or choose another name");
    Error::new(Code::NamespaceExists, what)
}

/// Longest name of a hold, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Checks the name of a hold.
pub(crate) fn check_hold_name(name: &str) -> Result<()> {
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains('\0') {
        return Ok(());
    }
    let shown: String = name.chars().take(40).collect();
    let what =
        format!("'{}' cannot be the name of a hold: 1 to {NAME_BYTES_MAX} bytes without NUL can", shown.escape_debug());
    Err(Error::new(Code::InvalidOptions, what))
}
