//! A table at a place: the log and the files.

mod published;

use crate::checkpoint;
use crate::file::{hex, of_segment};
use crate::folder::is_temporary;
use crate::log::{Checkpoint, Log, name_of, owned_by, version_in};
use crate::publish::{Uploads, newest, published_by, version_of};
use crate::reader::{FileCache, open, read};
use crate::schema::{check, has_types_of, joined};
use crate::store::{Store, StoreError};
use bytes::Bytes;
use ebbtide::buckets::{EncodedSegment, ReadAt, Schema};
use ebbtide::{
    ArchiveClaim, ArchiveClaimed, ArchiveFetched, ArchiveFile, ArchiveNumber, ArchiveOutcome, ArchivePlace,
    ArchiveRead, ArchivedBatches, ArchivedFile, Publication, PublishedVersion, SinkError,
};
use parking_lot::Mutex;
use published::Unneeded;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A file that no version names is removed once it is this old, in milliseconds: before that it may be part of a commit that is being
/// made. A file that was removed from the table stays as long, for those who read an older version. So do the entries of the log before
/// a checkpoint of a published table.
const UNNAMED_FOR: i64 = 3_600_000;
/// For how long checkpoints name files that were removed from the table, in milliseconds: 7 days, as is usual for these tables.
const REMOVED_FOR: i64 = 7 * 24 * 3_600_000;

/// A Delta Lake table.
#[derive(Debug)]
pub struct Table {
    url: String,
    store: Arc<dyn Store>,
    cache: Arc<FileCache>,
    /// What is known of the log.
    log: Mutex<Log>,
    /// How many files were written for published versions.
    written: AtomicU64,
    /// Whether a request to make a version failed, which may have its effect later.
    may_arrive: AtomicBool,
    /// Whether the last claim was refused by what the log says, rather than by a request that failed.
    is_refused: AtomicBool,
    /// What was last written beside a published table, by name.
    views: Mutex<HashMap<String, String>>,
    /// Files that were removed from the table and are removed from the store too.
    cleaned: Mutex<HashSet<String>>,
    /// Entries of the log of a published table that are to be removed.
    unneeded: Mutex<Unneeded>,
}

impl Table {
    /// A table in a store; `url` tells it from others that share the cache, and is for messages.
    pub(crate) fn new(url: &str, store: Arc<dyn Store>, cache: Arc<FileCache>) -> Table {
        Table {
            url: url.to_owned(),
            store,
            cache,
            log: Mutex::default(),
            cleaned: Mutex::default(),
            unneeded: Mutex::default(),
            written: AtomicU64::new(0),
            may_arrive: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            views: Mutex::default(),
        }
    }

    /// Reads versions of the log that are not known yet, up to the newest, or to `last`.
    fn refresh(&self, log: &mut Log, last: Option<u64>) -> Result<(), SinkError> {
        if log.next == 0 {
            self.begin_at_checkpoint(log, last)?;
        }
        while last.is_none_or(|last| log.next <= last) {
            let Some(content) = self.store.get(&name_of(log.next))? else { break };
            log.apply(&content).map_err(|what| self.refusal(self.error(&what)))?;
        }
        match last.filter(|last| log.next <= *last) {
            None => Ok(()),
            Some(last) => Err(self.error(&format!("{} is missing, and the database has it", name_of(last))).into()),
        }
    }

    /// Reads the newest checkpoint that can be read, if there is one that is not after `last`.
    fn begin_at_checkpoint(&self, log: &mut Log, last: Option<u64>) -> Result<(), SinkError> {
        let Some(pointer) = self.store.get(checkpoint::LAST)? else { return Ok(()) };
        let is_known = |version: &u64| last.is_none_or(|last| *version <= last);
        let named = checkpoint::version_of(&pointer).filter(is_known);
        if let Some(read) = named.map(|version| self.read_checkpoint(version)).transpose()?.flatten() {
            *log = read;
            return Ok(());
        }
        // The pointer may be one that arrived late.
        let listed = self.store.list(checkpoint::FOLDER)?.into_iter().map(|object| object.name);
        let mut others: Vec<u64> =
            listed.filter(|name| checkpoint::is_name(name)).filter_map(|name| version_in(&name)).collect();
        others.retain(|version| is_known(version) && Some(*version) != named);
        others.sort_unstable();
        for version in others.into_iter().rev() {
            if let Some(read) = self.read_checkpoint(version)? {
                *log = read;
                return Ok(());
            }
        }
        match self.store.get(&name_of(0))? {
            Some(_) => Ok(()),
            None => Err(self
                .error("the old entries of its log were removed, and no checkpoint can be read: name another place")
                .into()),
        }
    }

    /// What the log says up to a checkpoint. It is not used if it is damaged, or was removed with the entries before a newer one.
    fn read_checkpoint(&self, version: u64) -> Result<Option<Log>, SinkError> {
        let Some(content) = self.store.get(&checkpoint::name_of(version))? else { return Ok(None) };
        if self.store.get(&name_of(version))?.is_none() {
            return Ok(None);
        }
        let lines = checkpoint::decode(content).map_err(|error| error.to_string());
        match lines.and_then(|lines| Log::of_checkpoint(version, &lines)) {
            Ok(read) => Ok(Some(read)),
            Err(what) => {
                tracing::warn!(version, %what, "a checkpoint of a table is not used");
                Ok(None)
            }
        }
    }

    /// Writes a checkpoint of the newest version.
    fn checkpoint(&self, log: &mut Log) {
        let (version, made_at) = (log.next - 1, self.store.now());
        let actions = log.checkpoint(made_at.saturating_sub(REMOVED_FOR));
        let written = checkpoint::encode(&actions).and_then(|content| {
            self.store.put(&checkpoint::name_of(version), content)?;
            // It never names an older one than before.
            if self.newest_checkpoint()?.is_none_or(|named| named < version) {
                self.store.put(checkpoint::LAST, checkpoint::pointer(version, actions.len()))?;
            }
            Ok(())
        });
        match written {
            Ok(()) => log.checkpoints.push(Checkpoint { version, made_at }),
            Err(error) => tracing::warn!(version, %error, "a checkpoint of a table was not written"),
        }
    }

    fn check_owner(&self, log: &Log, owner: ArchiveNumber) -> Result<(), StoreError> {
        match &log.owner {
            Some(present) if present.number == hex(&owner) => Ok(()),
            _ => Err(self.error("a copy of this database has taken the archive over meanwhile")),
        }
    }

    /// Notes that the log is the reason for an error of a claim, and returns the error.
    fn refusal(&self, error: StoreError) -> StoreError {
        self.is_refused.store(true, Ordering::Relaxed);
        error
    }

    fn error(&self, what: &str) -> StoreError {
        StoreError::new(&format!("{}: {what}", self.url))
    }

    /// Makes the next version, if nobody else has; returns whether it was made.
    fn put(&self, log: &mut Log, content: &str) -> Result<bool, SinkError> {
        self.may_arrive.store(true, Ordering::Relaxed);
        let is_made = self.store.put_if_absent(&name_of(log.next), Bytes::copy_from_slice(content.as_bytes()))?;
        self.may_arrive.store(false, Ordering::Relaxed);
        if is_made {
            log.apply(content.as_bytes()).map_err(|what| self.error(&what))?;
        }
        Ok(is_made)
    }

    /// Makes the next version of an archive, if nobody else has; returns whether it was made.
    fn put_archived(&self, log: &mut Log, content: &str) -> Result<bool, SinkError> {
        let is_made = self.put(log, content)?;
        if is_made && checkpoint::is_due(log.next - 1) {
            self.checkpoint(log);
        }
        Ok(is_made)
    }

    /// Whether a database may claim the table, if not, why.
    fn check_claim(&self, log: &Log, claim: &ArchiveClaim) -> Result<(), StoreError> {
        let is_known = |owner: &str| claim.known.iter().any(|known| hex(known) == owner);
        match &log.owner {
            None if claim.version.is_some() => {
                Err(self.error("the log of the archive is gone: put it back, or name a new place"))
            }
            None if log.next > 0 => Err(self.error("there is a table that is no archive: name another place")),
            None => Ok(()),
            Some(owner) if owner.of != owned_by(&claim.identity, claim.collection) => {
                Err(self.error("the archive of another database or collection is there: name another place"))
            }
            Some(owner) if !is_known(&owner.number) && !claim.adopts => Err(self.error(
                "a copy of this database archives to this place, so that nothing is archived and dropped here: see \
                 ebbtide archive adopt",
            )),
            Some(_) => match log.rows_after(claim.version, claim.commit) {
                0 => Ok(()),
                rows if claim.version.is_none() => Err(self.error(&format!(
                    "the archive has {rows} measurements that may be stored here too: they would be there twice. Name a new place"
                ))),
                rows => Err(self.error(&format!(
                    "a copy of this database has archived {rows} measurements that may be stored here too: they would be \
                     there twice. Name a new place for this copy"
                ))),
            },
        }
    }
}

impl ArchivePlace for Table {
    fn claim(&self, claim: &ArchiveClaim) -> Result<ArchiveClaimed, SinkError> {
        let mut log = self.log.lock();
        self.is_refused.store(false, Ordering::Relaxed);
        loop {
            self.refresh(&mut log, None)?;
            self.check_claim(&log, claim).map_err(|error| self.refusal(error))?;
            // Only the first claim has the fields: a later one must not depend on them.
            let first = (log.next == 0).then(|| joined(None, &claim.schema)).transpose();
            let schema = first.map_err(|what| self.error(&what))?.unwrap_or_default();
            let of = owned_by(&claim.identity, claim.collection);
            let content = log.claim(&of, claim.owner, schema, self.store.now());
            if self.put_archived(&mut log, &content)? {
                let is_committed = claim.commit.is_some_and(|number| log.has_commit(number));
                return Ok(ArchiveClaimed { version: log.next - 1, is_committed });
            }
        }
    }

    fn check(&self, schema: &Schema) -> Result<(), SinkError> {
        let joins = || joined(self.log.lock().schema.as_deref(), schema);
        check(schema).and_then(|()| joins()).map_err(|what| self.error(&what))?;
        Ok(())
    }

    fn has_types_of(&self, schema: &Schema) -> bool {
        has_types_of(self.log.lock().schema.as_deref(), schema)
    }

    fn file(
        &self,
        number: ArchiveNumber,
        schema: &Arc<Schema>,
        segment: EncodedSegment,
    ) -> Result<ArchiveFile, SinkError> {
        of_segment(number, schema, segment)
    }

    fn upload(&self, file: &ArchiveFile) -> Result<(), SinkError> {
        Ok(self.store.put(&file.name, file.bytes.clone())?)
    }

    fn commit(&self, owner: ArchiveNumber, file: &ArchiveFile) -> Result<u64, SinkError> {
        let mut log = self.log.lock();
        loop {
            self.refresh(&mut log, None)?;
            self.check_owner(&log, owner)?;
            // A request that arrives twice fails the second time.
            if let Some(version) = log.added_by(file.number) {
                return Ok(version);
            }
            let schema = joined(log.schema.as_deref(), &file.schema).map_err(|what| self.error(&what))?;
            let content = log.add(file, schema, self.store.now());
            if self.put_archived(&mut log, &content)? {
                return Ok(log.next - 1);
            }
        }
    }

    fn outcome(&self, claim: &ArchiveClaim) -> ArchiveOutcome {
        let log = self.log.lock();
        // Owners before the version that the database knows may be its own earlier numbers, which it has forgotten.
        let is_read = claim.version.is_some_and(|version| version < log.next);
        let known = claim.commit.filter(|_| is_read).map(|commit| log.outcome(&claim.known, commit));
        match known.unwrap_or(ArchiveOutcome::Unknown) {
            ArchiveOutcome::Unknown if self.is_refused.load(Ordering::Relaxed) => ArchiveOutcome::Refused,
            outcome => outcome,
        }
    }

    fn retire(&self, owner: ArchiveNumber, files: &[String]) -> Result<u64, SinkError> {
        let mut log = self.log.lock();
        loop {
            self.refresh(&mut log, None)?;
            self.check_owner(&log, owner)?;
            let present = log.present(files);
            if present.is_empty() {
                return Ok(log.next - 1);
            }
            let content = log.retire(&present, self.store.now());
            if self.put_archived(&mut log, &content)? {
                return Ok(log.next - 1);
            }
        }
    }

    fn clean(&self, version: u64) -> Result<u64, SinkError> {
        let unneeded = {
            let mut log = self.log.lock();
            self.refresh(&mut log, Some(version))?;
            log.removed_before(self.store.now().saturating_sub(UNNAMED_FOR), version)
        };
        let mut removed = 0;
        for name in unneeded {
            if self.cleaned.lock().insert(name.clone()) {
                if let Err(error) = self.store.delete(&name) {
                    self.cleaned.lock().remove(&name);
                    return Err(error.into());
                }
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn remove(&self, name: &str) -> Result<(), SinkError> {
        Ok(self.store.delete(name)?)
    }

    fn files(&self, version: u64) -> Result<Vec<ArchivedFile>, SinkError> {
        let mut log = self.log.lock();
        self.refresh(&mut log, Some(version))?;
        Ok(log.files(version))
    }

    fn open(&self, file: &ArchivedFile, fetched: Arc<ArchiveFetched>) -> Result<Arc<dyn ReadAt>, SinkError> {
        Ok(open((&self.url, Arc::clone(&self.store), Arc::clone(&self.cache)), file, fetched))
    }

    fn read(&self, file: &ArchivedFile, request: &ArchiveRead) -> Result<ArchivedBatches, SinkError> {
        read((&self.url, Arc::clone(&self.store), Arc::clone(&self.cache)), file, request)
    }

    fn publish(&self, content: &Publication) -> Result<PublishedVersion, SinkError> {
        let mut log = self.log.lock();
        let mut uploads = Uploads { files: HashMap::new(), written: &self.written };
        // A version is made even if it says the same as the one before, so that an earlier request for its number has no effect any more.
        let is_needed = self.may_arrive.load(Ordering::Relaxed);
        let (made, is_new_owner) = loop {
            self.refresh_newest(&mut log)?;
            let is_new_owner = self.check_publisher(&log, content)?;
            let next = version_of(&log, content, self.store.as_ref(), &mut uploads, is_needed)?;
            let Some(actions) = next.actions else { break (next.version, is_new_owner) };
            if self.put_published(&mut log, &actions, content.may_vacuum)? {
                break (next.version, is_new_owner);
            }
        };
        drop(log);
        self.put_views(content)?;
        if content.may_vacuum {
            self.clean(made.version)?;
            self.clean_log();
            if is_new_owner {
                // What a version that never came about has left.
                self.vacuum()?;
            }
        }
        Ok(made)
    }

    fn published(&self, identity: [u8; 16], collection: u64) -> Result<Option<PublishedVersion>, SinkError> {
        let mut log = self.log.lock();
        self.refresh_newest(&mut log)?;
        match &log.owner {
            Some(owner) if owner.of == published_by(&identity, collection) => Ok(newest(&log)),
            None if log.next == 0 => Ok(None),
            _ => Err(self.error("the table of another database or collection is there").into()),
        }
    }

    fn refused(&self) -> u64 {
        self.store.refused()
    }

    fn vacuum(&self) -> Result<u64, SinkError> {
        // The log is read after the listing: what is committed in between is named.
        let listed = self.store.list("")?;
        let of_log = self.store.list(checkpoint::FOLDER)?;
        let mut log = self.log.lock();
        self.refresh_newest(&mut log)?;
        let oldest = self.store.now().saturating_sub(UNNAMED_FOR);
        let is_file = |name: &str| {
            let number = name.strip_suffix(".parquet").and_then(|name| name.get(..32)).unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let is_unneeded = |name: &str| is_temporary(name) || (is_file(name) && !log.needs(name, oldest));
        let unneeded = listed.into_iter().filter(|o| o.modified < oldest && is_unneeded(&o.name)).map(|o| o.name);
        let of_log = of_log.into_iter().filter(|o| o.modified < oldest && is_temporary(&o.name));
        let mut removed = 0;
        for name in unneeded.chain(of_log.map(|o| format!("{}/{}", checkpoint::FOLDER, o.name))) {
            self.store.delete(&name)?;
            removed += 1;
        }
        Ok(removed)
    }

    fn verify(&self, version: u64) -> Result<Vec<String>, SinkError> {
        let mut faults = Vec::new();
        // From the first entry on, if it is there: a checkpoint is read in the place of those before it.
        let mut log = Log::default();
        let is_whole = self.store.get(&name_of(0))?.is_some();
        while is_whole && faults.is_empty() && log.next <= version {
            let name = name_of(log.next);
            let entry = self.store.get(&name)?.ok_or_else(|| format!("{name} is missing"));
            faults.extend(entry.and_then(|content| log.apply(&content)).err());
        }
        let files = match self.files(version) {
            // Why was said of the log already.
            Err(_) if !faults.is_empty() => Vec::new(),
            files => files?,
        };
        if is_whole && faults.is_empty() && log.files(version) != files {
            faults.push("a checkpoint of the log says something else than the log: remove it".to_owned());
        }
        for file in files {
            match self.store.get(&file.name)? {
                None => faults.push(format!("{} is missing, with {} measurements", file.name, file.rows)),
                Some(content) if crc32fast::hash(&content) != file.checksum => {
                    faults.push(format!("{} is damaged, with {} measurements", file.name, file.rows));
                }
                Some(_) => {}
            }
        }
        Ok(faults)
    }
}
