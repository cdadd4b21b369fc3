//! A simulated store, for tests: it loses requests and answers, lets requests have their effect later or twice, and lists what is out of
//! date.

use crate::copies::Copies;
use crate::reader::FileCache;
use crate::store::{Object, Store, StoreError};
use crate::table::Table;
use bytes::Bytes;
use ebbtide::{ArchivePlace, ArchivePlaces, CopyStore, SinkError};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

/// What a process keeps of what it has read.
const CACHE_BYTES: u64 = 1 << 20;

/// A store that fails as it is told to. Copies are the same store.
#[derive(Debug, Clone, Default)]
pub struct SimStore(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, (Bytes, i64)>,
    /// What a listing shows.
    listed: Vec<Object>,
    /// Requests that are still in progress, although an error was returned for them.
    late: Vec<Change>,
    now: i64,
    random: u64,
    /// One request in this many fails; 0 for none.
    one_in: u64,
    is_away: bool,
    is_busy: bool,
    refused: u64,
    requests: u64,
    /// The request from which on nothing arrives any more.
    stops_at: Option<u64>,
    bytes_read: u64,
    gets_at_once: usize,
    before_put: Option<AtPut>,
    after_put: Option<AtPut>,
}

/// A request that changes an object, or removes it if there is no content.
#[derive(Debug, Clone)]
struct Change {
    name: String,
    content: Option<Bytes>,
    if_absent: bool,
}

/// What is called once before or after an object is stored whose name ends so.
struct AtPut {
    ends: String,
    call: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for AtPut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtPut").field("ends", &self.ends).finish_non_exhaustive()
    }
}

impl State {
    fn next(&mut self) -> u64 {
        // The constants of Knuth's MMIX generator.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    /// Lets late requests arrive, any of them, in any order, and says whether the next one fails.
    fn begin(&mut self) -> Result<Fate, StoreError> {
        self.requests += 1;
        self.refused += u64::from(self.is_busy);
        while !self.late.is_empty() && self.next().is_multiple_of(4) {
            let which = usize::try_from(self.next()).unwrap_or(0) % self.late.len();
            let late = self.late.swap_remove(which);
            self.store(&late);
        }
        if self.is_away || self.stops_at.is_some_and(|stop| self.requests > stop) {
            return Err(StoreError::new("the store is away"));
        }
        if self.one_in == 0 || !self.next().is_multiple_of(self.one_in) {
            return Ok(Fate::Done);
        }
        match self.next() % 6 {
            0 => Err(StoreError::new("503 slow down")),
            1 => Ok(Fate::Lost),
            2 => Ok(Fate::Late),
            3 => Ok(Fate::Repeated),
            4 => Ok(Fate::RepeatedLater),
            _ => Ok(Fate::Unanswered),
        }
    }

    fn store(&mut self, put: &Change) -> bool {
        if put.if_absent && self.objects.contains_key(&put.name) {
            return false;
        }
        match &put.content {
            Some(content) => drop(self.objects.insert(put.name.clone(), (content.clone(), self.now))),
            None => drop(self.objects.remove(&put.name)),
        }
        true
    }

    fn change(&mut self, put: Change) -> Result<bool, StoreError> {
        let lost = || StoreError::new("the connection was lost");
        match self.begin()? {
            Fate::Done => Ok(self.store(&put)),
            Fate::Repeated => {
                self.store(&put);
                Ok(self.store(&put))
            }
            Fate::RepeatedLater => {
                self.late.push(put.clone());
                Ok(self.store(&put))
            }
            Fate::Lost => Err(lost()),
            Fate::Unanswered => {
                self.store(&put);
                Err(lost())
            }
            Fate::Late => {
                self.late.push(put);
                Err(lost())
            }
        }
    }

    fn read(&mut self) -> Result<(), StoreError> {
        match self.begin()? {
            Fate::Done | Fate::Repeated | Fate::RepeatedLater => Ok(()),
            _ => Err(StoreError::new("the connection was lost")),
        }
    }
}

/// What becomes of a request.
enum Fate {
    Done,
    /// It does not arrive.
    Lost,
    /// It arrives, and the answer does not.
    Unanswered,
    /// It arrives later.
    Late,
    /// It arrives twice, since no answer came in time, and the second one is answered.
    Repeated,
    /// It is answered, and arrives again later.
    RepeatedLater,
}

impl SimStore {
    /// An empty store in which one request in `one_in` fails, if it is not 0.
    #[must_use]
    pub fn new(seed: u64, one_in: u64) -> SimStore {
        let store = SimStore::default();
        {
            let mut state = store.0.lock();
            (state.random, state.one_in, state.gets_at_once) = (seed, one_in, 1);
        }
        store
    }

    /// Sets how many requests are there for each that fails.
    pub fn fail_one_in(&self, one_in: u64) {
        self.0.lock().one_in = one_in;
    }

    /// Sets how many objects to get at once. With more than one, the order of requests differs between runs.
    pub fn set_gets_at_once(&self, gets: usize) {
        self.0.lock().gets_at_once = gets;
    }

    /// Sets whether the store can be reached.
    pub fn set_away(&self, is_away: bool) {
        self.0.lock().is_away = is_away;
    }

    /// Sets whether each request is refused once because there are too many, and is repeated.
    pub fn set_busy(&self, is_busy: bool) {
        self.0.lock().is_busy = is_busy;
    }

    /// Lets only this many more requests arrive, or all.
    pub fn stop_after(&self, requests: Option<u64>) {
        let mut state = self.0.lock();
        state.stops_at = requests.map(|more| state.requests + more);
    }

    /// How many requests there were.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.0.lock().requests
    }

    /// How many bytes were read.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.0.lock().bytes_read
    }

    /// Lets all late requests arrive.
    pub fn settle(&self) {
        let mut state = self.0.lock();
        for late in std::mem::take(&mut state.late) {
            state.store(&late);
        }
    }

    /// Calls a function once, as soon as the next object is stored whose name ends so.
    pub fn after_put(&self, ends: &str, call: impl FnOnce() + Send + 'static) {
        self.0.lock().after_put = Some(AtPut { ends: ends.to_owned(), call: Box::new(call) });
    }

    /// Calls a function once, just before the next object is stored whose name ends so.
    pub fn before_put(&self, ends: &str, call: impl FnOnce() + Send + 'static) {
        self.0.lock().before_put = Some(AtPut { ends: ends.to_owned(), call: Box::new(call) });
    }

    fn put_and_call(&self, name: &str, content: Bytes, if_absent: bool) -> Result<bool, StoreError> {
        let before = self.0.lock().before_put.take_if(|before| name.ends_with(&before.ends));
        if let Some(before) = before {
            (before.call)();
        }
        let (done, after) = {
            let mut state = self.0.lock();
            let done = state.change(Change { name: name.to_owned(), content: Some(content), if_absent });
            (done, state.after_put.take_if(|after| name.ends_with(&after.ends)))
        };
        // It may send requests.
        if let (Some(after), Ok(true)) = (after, &done) {
            (after.call)();
        }
        done
    }

    /// Moves the store's clock on, in milliseconds.
    pub fn advance(&self, millis: i64) {
        self.0.lock().now += millis;
    }

    /// Another store with the same objects, in which no request fails.
    #[must_use]
    pub fn quiet(&self) -> SimStore {
        let quiet = SimStore::new(0, 0);
        let objects = self.0.lock().objects.clone();
        quiet.0.lock().objects = objects;
        quiet
    }

    /// Damages an object.
    pub fn tamper(&self, name: &str, content: Bytes) {
        self.0.lock().objects.insert(name.to_owned(), (content, 0));
    }

    /// What is in an object, without a request.
    #[must_use]
    pub fn content(&self, name: &str) -> Option<Bytes> {
        self.0.lock().objects.get(name).map(|(content, _)| content.clone())
    }

    /// The names of all objects.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.lock().objects.keys().cloned().collect()
    }
}

impl Store for SimStore {
    fn gets_at_once(&self) -> usize {
        self.0.lock().gets_at_once
    }

    fn get(&self, name: &str) -> Result<Option<Bytes>, StoreError> {
        let mut state = self.0.lock();
        state.read()?;
        let found = state.objects.get(name).map(|(content, _)| content.clone());
        state.bytes_read += found.as_ref().map_or(0, |content| content.len() as u64);
        Ok(found)
    }

    fn exists(&self, name: &str) -> Result<bool, StoreError> {
        let mut state = self.0.lock();
        state.read()?;
        Ok(state.objects.contains_key(name))
    }

    fn get_range(&self, name: &str, start: u64, bytes: u64) -> Result<Bytes, StoreError> {
        let mut state = self.0.lock();
        state.read()?;
        let missing = || StoreError::new(&format!("there is no {name}"));
        let (content, _) = state.objects.get(name).ok_or_else(missing)?;
        let range = usize::try_from(start).ok().zip(usize::try_from(start + bytes).ok());
        let part = range.filter(|(_, end)| *end <= content.len()).map(|(start, end)| content.slice(start..end));
        state.bytes_read += bytes;
        part.ok_or_else(missing)
    }

    fn put(&self, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.put_and_call(name, content, false).map(drop)
    }

    fn put_if_absent(&self, name: &str, content: Bytes) -> Result<bool, StoreError> {
        self.put_and_call(name, content, true)
    }

    fn list(&self, folder: &str) -> Result<Vec<Object>, StoreError> {
        let mut state = self.0.lock();
        state.read()?;
        if state.one_in == 0 || state.next().is_multiple_of(2) {
            let objects = state.objects.iter();
            let listed = objects.map(|(name, (_, modified))| Object { name: name.clone(), modified: *modified });
            state.listed = listed.collect();
        }
        let within = |object: &Object| {
            let name = if folder.is_empty() {
                Some(&*object.name)
            } else {
                object.name.strip_prefix(folder)?.strip_prefix('/')
            };
            Some(Object { name: name.filter(|name| !name.contains('/'))?.to_owned(), modified: object.modified })
        };
        Ok(state.listed.iter().filter_map(within).collect())
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.0.lock().change(Change { name: name.to_owned(), content: None, if_absent: false }).map(drop)
    }

    fn refused(&self) -> u64 {
        self.0.lock().refused
    }

    fn now(&self) -> i64 {
        self.0.lock().now
    }
}

/// Places by URL: one store for all but those that were added. Each process has its own.
#[derive(Debug)]
pub struct SimLake {
    first: Arc<Table>,
    others: HashMap<String, Arc<Table>>,
    store: SimStore,
}

impl SimLake {
    /// What a process that starts now knows of the store.
    #[must_use]
    pub fn new(store: &SimStore) -> SimLake {
        SimLake { first: table("s3://sim/archive", store), others: HashMap::new(), store: store.clone() }
    }

    /// Adds another store, at a URL of its own.
    #[must_use]
    pub fn and(mut self, url: &str, store: &SimStore) -> SimLake {
        self.others.insert(url.to_owned(), table(url, store));
        self
    }
}

fn table(url: &str, store: &SimStore) -> Arc<Table> {
    Arc::new(Table::new(url, Arc::new(store.clone()), Arc::new(FileCache::new(CACHE_BYTES))))
}

impl ArchivePlaces for SimLake {
    fn open(&self, url: &str) -> Result<Arc<dyn ArchivePlace>, SinkError> {
        Ok(self.others.get(url).unwrap_or(&self.first).clone())
    }

    fn copies(&self, _url: &str) -> Result<Arc<dyn CopyStore>, SinkError> {
        Ok(Arc::new(Copies(Arc::new(self.store.clone()))))
    }
}
