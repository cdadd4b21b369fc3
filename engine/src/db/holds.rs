//! Making and lifting holds.

use super::Database;
use crate::error::{Error, Result};
use crate::holds::{Hold, check_hold_name};
use crate::manifest::Op;
use crate::snapshot::holds::HoldInfo;
use ebbtide_ttl::{Code, Filter, Timestamp};

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
        let holds = engine.state.read().holds.clone();
        let active = || holds.iter().filter(|hold| hold.lifted_at.is_none());
        let Some(hold) = active().find(|hold| hold.name == name).cloned() else {
            let hint = crate::suggest::hint(name, active().map(|hold| hold.name.as_str()));
            return Err(Error::new(Code::NamespaceNotFound, format!("there is no active hold '{name}'{hint}")));
        };
        engine.commit(vec![Op::PutHold(Hold { lifted_at: Some(engine.clock.now()), ..hold })])
    }
}

fn taken(name: &str) -> Error {
    let what = format!("hold '{name}' is there already: lift it first, or choose another name");
    Error::new(Code::NamespaceExists, what)
}
