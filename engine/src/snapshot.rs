//! Snapshots: one version of the state, and one reading of the clock.
//!
//! Expiry is decided here for every read: a measurement at `t` is visible if and only if the cut-off of its meta's
//! effective rule does not hide `t`. Whether a sweep has run makes no difference in mode `exact`.

mod aggregate;
mod cache_share;
mod expired;
pub(crate) mod holds;
mod ladders;
mod last;
mod listing;
mod meta_numbers;
mod meta_part;
mod meta_range;
mod part;
mod published;
mod rollup;
pub(crate) mod row_filter;
pub(crate) mod scan;
mod segment_files;
mod time_range;

pub use aggregate::{Aggregate, AggregateGuard, AggregateRequest, Aggregated, MetaGroups};
pub use expired::ExpiredUnit;
pub use holds::HoldInfo;
pub use ladders::RungInfo;
pub use listing::{BucketInfo, CollectionInfo, ExpiryRow, RuleInfo, SegmentInfo};
pub use meta_part::MetaPart;
pub use rollup::RollupRequest;
pub use scan::{Batches, FieldBound, FirstRows, MetaFilter, ScanReport, ScanRequest, ScanUnit};
pub use segment_files::SegmentFiles;
pub use time_range::{TimeRange, bins_at_end};

use crate::archive::{ArchiveFetched, ArchivePlaces};
use crate::batch_id::LastBatch;
use crate::copies::position::CopyPosition;
use crate::documents::snapshot::DocumentsSnapshot;
use crate::documents::state::DocumentsState;
use crate::error::{Error, Result};
use crate::holds::Hold;
use crate::ladder::{reported_name, rung_name};
use crate::options::CollectionOptions;
use crate::requests::known::REQUESTS;
use crate::segment::segment_cache::SegmentCache;
use crate::state::{CollectionState, State};
use ebbtide_buckets::Schema;
use ebbtide_ttl::{Cutoff, ExpiryMode, RuleSet, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An immutable view of the database at one instant of the clock.
#[derive(Debug, Clone)]
pub struct Snapshot {
    now: Timestamp,
    collections: Arc<BTreeMap<String, Arc<CollectionState>>>,
    /// The collections of rungs, by the names that they have in the state.
    rungs: Arc<BTreeMap<String, Arc<CollectionState>>>,
    documents: Arc<BTreeMap<String, Arc<DocumentsState>>>,
    /// The keys of requests.
    requests: Option<Arc<DocumentsState>>,
    views: Arc<BTreeMap<String, String>>,
    pub(crate) holds: Arc<Vec<Hold>>,
    places: Option<Arc<dyn ArchivePlaces>>,
    cache: Arc<SegmentCache>,
    copied: Option<Arc<CopyPosition>>,
}

impl Snapshot {
    pub(crate) fn take(state: &State, now: Timestamp) -> Self {
        let rungs: BTreeMap<_, _> = state.rungs().map(|rung| (rung.name.clone(), rung.clone())).collect();
        let mut collections = state.collections.clone();
        rungs.keys().for_each(|name| drop(collections.remove(name)));
        let (collections, rungs) = (Arc::new(collections), Arc::new(rungs));
        let mut documents = state.documents.clone();
        let requests = documents.remove(REQUESTS);
        let (views, holds, places) = (state.views.clone(), state.holds.clone(), state.places.clone());
        let (documents, copied) = (Arc::new(documents), state.copied.clone());
        let cache = Arc::clone(state.cache());
        Snapshot { now, collections, rungs, documents, requests, views, holds, places, cache, copied }
    }

    /// The instant at which expiry is decided.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The position of the copy that this shows, in a replica.
    #[must_use]
    pub fn position(&self) -> Option<&CopyPosition> {
        self.copied.as_deref()
    }

    /// The same data with expiry decided at another instant. Measurements that were already dropped do not come back.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Self {
        Snapshot { now, ..self.clone() }
    }

    /// Names of the ordinary collections, sorted.
    #[must_use]
    pub fn document_collections(&self) -> Vec<String> {
        self.documents.keys().cloned().collect()
    }

    /// One ordinary collection.
    ///
    /// # Errors
    /// `NamespaceNotFound`; `InvalidOptions` for a time-series collection.
    pub fn documents(&self, name: &str) -> Result<DocumentsSnapshot> {
        match self.documents.get(name) {
            Some(state) => Ok(DocumentsSnapshot::new(state.clone(), self.now)),
            None if self.collections.contains_key(name) => Err(Error::time_series_collection(name)),
            None => Err(Error::no_collection(name)),
        }
    }

    /// Names of the collections of both kinds, sorted.
    #[must_use]
    pub fn all_collections(&self) -> Vec<String> {
        let mut names: Vec<String> = self.collections.keys().chain(self.documents.keys()).cloned().collect();
        names.sort();
        names
    }

    /// Whether there is a collection of this name, of either kind.
    #[must_use]
    pub fn has_collection(&self, name: &str) -> bool {
        self.collections.contains_key(name) || self.documents.contains_key(name)
    }

    /// Every ordinary collection, and the one with the keys of requests.
    pub(crate) fn documents_states(&self) -> impl Iterator<Item = &Arc<DocumentsState>> {
        self.documents.values().chain(&self.requests)
    }

    /// Names of the time-series collections, sorted.
    #[must_use]
    pub fn collections(&self) -> Vec<String> {
        self.collections.keys().cloned().collect()
    }

    /// Every collection of measurements and every rung, each with its name for people.
    pub(crate) fn stored(&self) -> impl Iterator<Item = (String, &Arc<CollectionState>)> {
        let collections = self.collections.iter().map(|(name, state)| (name.clone(), state));
        let rungs = self.rungs.iter().map(|(name, state)| {
            let parent = |id| self.collections.values().find(|collection| collection.id == id);
            (reported_name(name, |id| parent(id).map(|parent| parent.name.clone())), state)
        });
        collections.chain(rungs)
    }

    /// The statements that the views were made with, by name. The engine keeps them and does not read them.
    #[must_use]
    pub fn views(&self) -> &Arc<BTreeMap<String, String>> {
        &self.views
    }

    /// One collection.
    ///
    /// # Errors
    /// `NamespaceNotFound`.
    pub fn collection(&self, name: &str) -> Result<CollectionSnapshot> {
        let state = self.collections.get(name).ok_or_else(|| match self.documents.contains_key(name) {
            true => Error::ordinary_collection(name),
            false => Error::no_collection(name),
        })?;
        Ok(self.snapshot_of(state))
    }

    fn snapshot_of(&self, state: &Arc<CollectionState>) -> CollectionSnapshot {
        let rungs = state.ladder.iter().flat_map(|ladder| &ladder.rungs);
        let names = rungs.map(|rung| rung_name(state.id, rung.rung.step_seconds));
        let rungs = Arc::new(names.filter_map(|name| self.rungs.get(&name).cloned()).collect());
        CollectionSnapshot {
            now: self.now,
            state: state.clone(),
            suspended: state.suspension(),
            rungs,
            places: self.places.clone(),
            cache: Arc::clone(&self.cache),
            archived: None,
        }
    }

    /// The collection with this number.
    pub(crate) fn collection_of_id(&self, id: u64) -> Option<CollectionSnapshot> {
        self.collections.values().find(|state| state.id == id).map(|state| self.snapshot_of(state))
    }
}

/// One collection in a [`Snapshot`].
///
/// ```
/// use ebbtide::ttl::{Timestamp, Value};
/// use ebbtide::{CollectionOptions, Database, ScanRequest};
///
/// # let folder = tempfile::tempdir()?;
/// # let db = Database::open(folder.path().join("db"))?;
/// let c = db.create_collection("c", CollectionOptions::new("t").expire_after_seconds(3600))?;
/// let noon = Timestamp::parse("2024-06-01T12:00:00Z")?;
/// c.insert_documents(&[Value::Object(vec![("t".into(), Value::Date(noon)), ("v".into(), Value::Int(7))])])?;
///
/// // At half past twelve the measurement is visible.
/// let snapshot = db.snapshot_at(noon.plus_seconds(1800)).collection("c")?;
/// let request = ScanRequest { projection: Some(vec!["v".to_owned()]), ..ScanRequest::default() };
/// let mut rows = 0;
/// for unit in snapshot.scan(&request)? {
///     for batch in unit.read()? {
///         rows += batch?.num_rows();
///     }
/// }
/// assert_eq!(rows, 1);
///
/// // At one o'clock it has expired.
/// assert_eq!(db.snapshot_at(noon.plus_seconds(3600)).collection("c")?.count()?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct CollectionSnapshot {
    pub(crate) now: Timestamp,
    pub(crate) state: Arc<CollectionState>,
    pub(crate) suspended: Option<u64>,
    /// The collections of the rungs of its ladder, the finest first.
    pub(crate) rungs: Arc<Vec<Arc<CollectionState>>>,
    /// Opens its archive.
    pub(crate) places: Option<Arc<dyn ArchivePlaces>>,
    /// For segments of its archive.
    pub(crate) cache: Arc<SegmentCache>,
    /// Whether it shows what has expired, and what was fetched of its archives then.
    pub(crate) archived: Option<Arc<ArchiveFetched>>,
}

impl CollectionSnapshot {
    /// The collection's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The collection's number in its database. No two collections ever have the same one, whatever their names.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.state.id
    }

    /// The last insert with an id; `None` if there was none. See [`crate::Collection::insert_with_id`].
    #[must_use]
    pub fn last_batch(&self) -> Option<LastBatch> {
        self.state.memtable.last_batch(self.state.last_batch)
    }

    /// The collection's schema: time, meta and the fields that were seen so far.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.state.schema
    }

    /// The collection's options.
    #[must_use]
    pub fn options(&self) -> &CollectionOptions {
        &self.state.options
    }

    /// The collection's expiry rules.
    #[must_use]
    pub fn rules(&self) -> &RuleSet {
        &self.state.rules
    }

    /// The instant at which expiry is decided.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The number of live measurements outside of 1970..2038 that suspend expiry, if any do.
    #[must_use]
    pub fn suspended(&self) -> Option<u64> {
        self.suspended
    }

    /// The cut-off for measurements under a rule of `e` seconds; without a rule nothing is hidden.
    pub(crate) fn cutoff(&self, e: Option<i64>) -> Cutoff {
        match e {
            Some(e) if self.suspended.is_none() && self.state.options.expiry == ExpiryMode::Exact => {
                Cutoff::new(self.now, e, self.state.options.precision)
            }
            _ => Cutoff::NONE,
        }
    }
}
