//! Cursors: results that a client fetches batch by batch.
//!
//! A cursor keeps its snapshot, and with it files on disk. It is closed when it ends, when its client closes it, when it was not
//! used for a while (unless `noCursorTimeout` was asked for), and when it has become too old.

use crate::deadline::Deadline;
use crate::error::{CommandError, Result, ServerCode};
use crate::settings::Settings;
use bson::raw::RawDocumentBuf;
use ebbtide_ttl::Code;
use parking_lot::Mutex;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Results that are fetched batch by batch.
pub(crate) trait Results: Send {
    /// The next documents: at most `count`, and of about `bytes` bytes, but at least one if any is left and `count` is not 0.
    fn next_batch(&mut self, count: usize, bytes: usize, deadline: Deadline<'_>) -> Result<Vec<RawDocumentBuf>>;

    /// Whether nothing is left.
    fn is_done(&self) -> bool;

    /// Whether the next batch takes little time.
    fn is_short(&self) -> bool {
        false
    }
}

/// Results that are there as a whole.
pub(crate) struct List(std::vec::IntoIter<RawDocumentBuf>);

impl List {
    pub(crate) fn new(documents: Vec<RawDocumentBuf>) -> List {
        List(documents.into_iter())
    }
}

impl Results for List {
    fn next_batch(&mut self, count: usize, bytes: usize, _: Deadline<'_>) -> Result<Vec<RawDocumentBuf>> {
        let (mut batch, mut size) = (Vec::new(), 0);
        while let Some(next) = self.0.as_slice().first() {
            size += next.as_bytes().len();
            if batch.len() == count || (size > bytes && !batch.is_empty()) {
                break;
            }
            batch.extend(self.0.next());
        }
        Ok(batch)
    }

    fn is_done(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    fn is_short(&self) -> bool {
        true
    }
}

impl Results for ebbtide::FindCursor {
    fn next_batch(&mut self, count: usize, bytes: usize, deadline: Deadline<'_>) -> Result<Vec<RawDocumentBuf>> {
        self.set_stop(deadline.stop());
        let batch = ebbtide::FindCursor::next_batch(self, count, bytes)?;
        deadline.check()?;
        Ok(batch)
    }

    fn is_done(&self) -> bool {
        ebbtide::FindCursor::is_done(self)
    }

    fn is_short(&self) -> bool {
        self.is_of_one()
    }
}

struct Cursor {
    namespace: String,
    /// The account whose it is; nothing without one.
    owner: Option<String>,
    /// Nothing while a getMore has it.
    results: Option<Box<dyn Results>>,
    /// Whether it is closed only when it has become too old.
    may_idle: bool,
    made: Duration,
    used: Duration,
}

/// The open cursors of a server.
pub(crate) struct Cursors {
    open: Mutex<HashMap<i64, Cursor>>,
    timed_out: AtomicU64,
    count_max: usize,
    idle_max: Duration,
    lifetime_max: Duration,
}

impl std::fmt::Debug for Cursors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursors").field("open", &self.len()).finish_non_exhaustive()
    }
}

impl Cursors {
    pub(crate) fn new(settings: &Settings) -> Cursors {
        Cursors {
            open: Mutex::new(HashMap::new()),
            timed_out: AtomicU64::new(0),
            count_max: settings.cursors_max,
            idle_max: settings.cursor_idle_max,
            lifetime_max: settings.cursor_lifetime_max,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.open.lock().len()
    }

    pub(crate) fn timed_out(&self) -> u64 {
        self.timed_out.load(Ordering::Relaxed)
    }

    pub(crate) fn clear(&self) {
        self.open.lock().clear();
    }

    /// Closes what idles or is too old. What serves a getMore is left until that has ended.
    pub(crate) fn reap(&self, now: Duration) {
        let is_over = |cursor: &Cursor| {
            let (idle, age) = (now.saturating_sub(cursor.used), now.saturating_sub(cursor.made));
            cursor.results.is_some() && ((idle >= self.idle_max && !cursor.may_idle) || age >= self.lifetime_max)
        };
        let mut open = self.open.lock();
        let over: Vec<i64> = open.iter().filter(|(_, cursor)| is_over(cursor)).map(|(id, _)| *id).collect();
        let closed: Vec<_> = over.iter().filter_map(|id| open.remove(id)).collect();
        // Snapshots are let go without the lock.
        drop(open);
        self.timed_out.fetch_add(closed.len() as u64, Ordering::Relaxed);
    }

    /// Keeps results for the one who asked for them; their number. The flag says that they may idle.
    pub(crate) fn put(
        &self,
        namespace: String,
        owner: Option<String>,
        (results, may_idle): (Box<dyn Results>, bool),
        now: Duration,
    ) -> Result<i64> {
        let mut open = self.open.lock();
        if open.len() >= self.count_max {
            let what = format!("{} cursors are open: read them to their end, or close them", self.count_max);
            return Err(CommandError::new(Code::ExceededMemoryLimit, what));
        }
        // Numbers that nobody can guess: a fresh RandomState has random keys.
        let fresh = || i64::try_from(RandomState::new().hash_one(0) >> 1).unwrap_or(1).max(1);
        let mut id = fresh();
        while open.contains_key(&id) {
            id = fresh();
        }
        open.insert(id, Cursor { namespace, owner, results: Some(results), may_idle, made: now, used: now });
        Ok(id)
    }

    /// Takes the results of a cursor, for one who owns it.
    pub(crate) fn take(&self, id: i64, namespace: &str, user: Option<&str>) -> Result<Box<dyn Results>> {
        let mut open = self.open.lock();
        let cursor = open.get_mut(&id).ok_or_else(|| not_found(id))?;
        check_owner(id, cursor, user)?;
        if cursor.namespace != namespace {
            let what = format!("cursor {id} belongs to another collection than {namespace}");
            return Err(CommandError::of_server(ServerCode::Unauthorized, what));
        }
        let in_use = || CommandError::of_server(ServerCode::CursorInUse, format!("cursor {id} serves another getMore"));
        cursor.results.take().ok_or_else(in_use)
    }

    /// Puts back what was taken, unless it was closed meanwhile; whether it is still open.
    pub(crate) fn put_back(&self, id: i64, results: Box<dyn Results>, now: Duration) -> bool {
        match self.open.lock().get_mut(&id) {
            Some(cursor) => {
                (cursor.results, cursor.used) = (Some(results), now);
                true
            }
            None => false,
        }
    }

    /// Closes a cursor.
    pub(crate) fn remove(&self, id: i64) {
        let removed = self.open.lock().remove(&id);
        drop(removed);
    }

    /// Closes cursors, for one who owns them; those that there were. After an error all are open.
    pub(crate) fn kill(&self, ids: &[i64], namespace: &str, user: Option<&str>) -> Result<BTreeSet<i64>> {
        let mut open = self.open.lock();
        let mut known = BTreeSet::new();
        for id in ids {
            if let Some(cursor) = open.get(id).filter(|cursor| cursor.namespace == namespace) {
                check_owner(*id, cursor, user)?;
                known.insert(*id);
            }
        }
        let closed: Vec<_> = known.iter().filter_map(|id| open.remove(id)).collect();
        // Snapshots are let go without the lock.
        drop(open);
        drop(closed);
        Ok(known)
    }
}

fn check_owner(id: i64, cursor: &Cursor, user: Option<&str>) -> Result<()> {
    if cursor.owner.as_deref() == user {
        return Ok(());
    }
    Err(CommandError::of_server(ServerCode::Unauthorized, format!("cursor {id} is another account's")))
}

fn not_found(id: i64) -> CommandError {
    CommandError::of_server(ServerCode::CursorNotFound, format!("cursor id {id} not found"))
}
