//! Resumes interrupted imports.
//!
//! Before each insert, a small file in the database's folder durably records how far the import has come and which
//! batch comes next. The batch has an id, which the collection keeps with its rows, even when these are deleted or
//! swept. So after a crash at any moment at most one batch is undecided, and it is stored if, and only if, the
//! collection's last id is its own. A batch of documents has no id: it is stored once more, which puts each document in its
//! own place. The file of a finished import is kept: it shows that nothing is left to do.

use super::bad::Mark;
use super::source::Source;
use crate::Failure;
use ebbtide::bson::oid::ObjectId;
use ebbtide::fs::{Fs, RealFs};
use ebbtide::{BatchId, CollectionSnapshot, DocumentsSnapshot, Snapshot};
use ebbtide_ttl::{Precision, Timestamp};
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

/// The contents of the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct State {
    collection: String,
    /// The collection's number: a collection of the same name that was created later is a different one.
    id: u64,
    /// A checksum of the options that affect the imported rows.
    options: u32,
    files: Vec<Input>,
    /// The file that is being imported.
    pub(super) file: usize,
    /// Number of its rows that are stored or were set aside.
    pub(super) rows: u64,
    /// Measurements stored so far.
    pub(super) stored: u64,
    /// The lines set aside up to here.
    pub(super) bad: Mark,
    /// The id of the last batch.
    batch: BatchId,
    /// When an import of documents began, in seconds since 1970.
    #[serde(default)]
    began: u32,
    doubt: Option<UndecidedBatch>,
    finished: bool,
}

/// An input file, identified by its content.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Input {
    name: String,
    bytes: u64,
    checksum: u32,
}

/// A batch that may or may not be stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct UndecidedBatch {
    file: usize,
    end: u64,
    measurements: u64,
    bad: Mark,
}

impl State {
    /// Whether the files and options are the same; the collection may differ.
    fn is_of(&self, other: &State) -> bool {
        self.has_files_of(other) && self.options == other.options
    }

    fn has_files_of(&self, other: &State) -> bool {
        let same = |(a, b): (&Input, &Input)| (a.bytes, a.checksum) == (b.bytes, b.checksum);
        self.files.len() == other.files.len() && self.files.iter().zip(&other.files).all(same)
    }

    /// Finds out whether the undecided batch is stored.
    fn settle(&mut self, target: &Target) {
        let Some(doubt) = self.doubt.take() else { return };
        if target.last == Some(self.batch) {
            self.file = doubt.file;
            self.rows = doubt.end;
            self.stored += doubt.measurements;
            self.bad = doubt.bad;
        }
    }
}

/// The collection that an import is into.
pub(super) struct Target {
    id: u64,
    /// The id of its last batch; none for documents.
    last: Option<BatchId>,
}

impl From<&CollectionSnapshot> for Target {
    fn from(collection: &CollectionSnapshot) -> Self {
        Target { id: collection.id(), last: collection.last_batch().map(|last| last.id) }
    }
}

impl From<&DocumentsSnapshot> for Target {
    fn from(documents: &DocumentsSnapshot) -> Self {
        Target { id: documents.id(), last: None }
    }
}

/// What an earlier import into a collection left.
pub(super) enum EarlierImport {
    /// Nothing that matters now.
    None,
    /// All of these files, with these options.
    Finished(u64),
    /// A file of this name, which had other contents.
    OfOtherContents(String),
    /// An import that was interrupted.
    Interrupted(Box<State>),
}

/// Stores the state of an import.
pub(super) struct Progress {
    fs: RealFs,
    path: PathBuf,
    pub(super) state: State,
}

impl Progress {
    /// The initial state of an import of these files with these options.
    pub(super) fn new(folder: &Path, collection: &str, options: &str, sources: &[Source]) -> Result<Self, Failure> {
        let input = |source: &Source| {
            Ok(Input { name: source.name.clone(), bytes: source.bytes, checksum: source.checksum()? })
        };
        let state = State {
            collection: collection.to_owned(),
            id: 0,
            options: crc32fast::hash(options.as_bytes()),
            files: sources.iter().map(input).collect::<Result<_, Failure>>()?,
            file: 0,
            rows: 0,
            stored: 0,
            bad: Mark::default(),
            batch: BatchId { source: RandomState::new().build_hasher().finish(), number: 0 },
            began: 0,
            doubt: None,
            finished: false,
        };
        let path = folder.join(format!("import-{:08x}.json", crc32fast::hash(collection.as_bytes())));
        Ok(Progress { fs: RealFs, path, state })
    }

    /// What an earlier import into the collection left.
    pub(super) fn left(&self, target: &Target) -> Result<EarlierImport, Failure> {
        if !self.fs.exists(&self.path).map_err(|e| self.failure("read", &e))? {
            return Ok(EarlierImport::None);
        }
        let bytes = self.fs.read(&self.path).map_err(|e| self.failure("read", &e))?;
        let mut state: State = serde_json::from_slice(&bytes).map_err(|e| {
            Failure::new(format!("{} cannot be read: {e}; --from-start imports without it", self.path.display()))
        })?;
        if state.id != target.id {
            return Ok(EarlierImport::None);
        }
        if state.finished {
            if state.is_of(&self.state) {
                return Ok(EarlierImport::Finished(state.stored));
            }
            let differs = |old: &Input, new: &Input| (old.bytes, old.checksum) != (new.bytes, new.checksum);
            let has_changed = |new: &&Input| state.files.iter().any(|old| old.name == new.name && differs(old, new));
            let changed = self.state.files.iter().find(has_changed);
            return Ok(changed.map_or(EarlierImport::None, |file| EarlierImport::OfOtherContents(file.name.clone())));
        }
        state.settle(target);
        Ok(EarlierImport::Interrupted(Box::new(state)))
    }

    /// Refuses to continue an import of other files, or with other options.
    pub(super) fn check(&self, left: &State) -> Result<(), Failure> {
        if !left.has_files_of(&self.state) {
            let names: Vec<&str> = left.files.iter().map(|f| f.name.as_str()).collect();
            return Err(Failure::new(format!(
                "the interrupted import had different files, or they have changed: {}; --from-start \
                 imports these from the first row",
                names.join(", ")
            )));
        }
        if left.options != self.state.options {
            return Err(Failure::new(
                "the interrupted import had different options: use the same ones with --resume, or use --from-start",
            ));
        }
        Ok(())
    }

    /// Continues an interrupted import.
    pub(super) fn take_up(&mut self, left: State) -> Result<(), Failure> {
        self.check(&left)?;
        self.state = left;
        Ok(())
    }

    /// Sets the collection that the rows are imported into.
    pub(super) fn belongs_to(&mut self, target: &Target) {
        self.state.id = target.id;
    }

    /// Notes when an import of documents began.
    pub(super) fn began(&mut self, now: Timestamp) {
        let seconds = now.to_units_saturating(Precision::Ms).div_euclid(1000);
        self.state.began = u32::try_from(seconds.max(0)).unwrap_or(u32::MAX);
    }

    /// The `_id` of the document with this number among those of the import, if it has none of its own: the same when the
    /// import is resumed.
    pub(super) fn object_id(&self, number: u64) -> ObjectId {
        let [_, _, _, process @ ..] = self.state.batch.source.to_be_bytes();
        let [.., high, a, b, c] = number.to_be_bytes();
        ObjectId::from_parts(self.state.began.saturating_add(u32::from(high)), process, [a, b, c])
    }

    /// Records that rows are about to be stored, and returns the id for their insert. `end` is the number of rows of
    /// the file up to and including them, `bad` the lines set aside by then.
    pub(super) fn begin(&mut self, file: usize, end: u64, measurements: u64, bad: Mark) -> Result<BatchId, Failure> {
        self.state.batch.number += 1;
        self.state.doubt = Some(UndecidedBatch { file, end, measurements, bad });
        self.save()?;
        Ok(self.state.batch)
    }

    /// Records that the rows are stored; saved with the next change.
    pub(super) fn done(&mut self, file: usize, end: u64, stored: u64, bad: Mark) {
        self.state.doubt = None;
        self.state.file = file;
        self.state.rows = end;
        self.state.stored += stored;
        self.state.bad = bad;
    }

    /// Records that everything is stored, while the import into other collections continues.
    pub(super) fn complete(&mut self) -> Result<(), Failure> {
        self.state.doubt = None;
        self.save()
    }

    /// Records that the import is finished.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.state.finished = true;
        self.save()
    }

    /// Removes the record of the import.
    pub(super) fn forget(&self) -> Result<(), Failure> {
        if self.fs.exists(&self.path).map_err(|e| self.failure("read", &e))? {
            self.fs.remove(&self.path).map_err(|e| self.failure("remove", &e))?;
            let folder = self.path.parent().unwrap_or(Path::new("."));
            self.fs.sync_dir(folder).map_err(|e| self.failure("remove", &e))?;
        }
        Ok(())
    }

    fn save(&self) -> Result<(), Failure> {
        let bytes = serde_json::to_vec(&self.state).map_err(|e| self.failure("write", &e))?;
        let new = self.path.with_extension("json.new");
        let write = || {
            if self.fs.exists(&new)? {
                self.fs.remove(&new)?;
            }
            let mut file = self.fs.create(&new)?;
            file.append(&bytes)?;
            file.sync()?;
            drop(file);
            self.fs.publish(&new, &self.path)
        };
        write().map_err(|e: std::io::Error| self.failure("write", &e))
    }

    fn failure(&self, what: &str, error: &dyn std::fmt::Display) -> Failure {
        Failure::new(format!("cannot {what} {}, the progress of the import: {error}", self.path.display()))
    }
}

/// The states of imports in a database's folder whose collections still exist.
fn states(folder: &Path, snapshot: &Snapshot) -> Result<Vec<State>, Failure> {
    let fail = |path: &Path, e: &dyn std::fmt::Display| Failure::new(format!("cannot read {}: {e}", path.display()));
    let mut states = Vec::new();
    for name in RealFs.list(folder).map_err(|e| fail(folder, &e))? {
        if !name.starts_with("import-") || !name.ends_with(".json") {
            continue;
        }
        let path = folder.join(&name);
        let bytes = RealFs.read(&path).map_err(|e| fail(&path, &e))?;
        let mut state: State = serde_json::from_slice(&bytes).map_err(|e| fail(&path, &e))?;
        let series = snapshot.collection(&state.collection).ok();
        let target = series.as_ref().map(Target::from);
        let target = target.or_else(|| snapshot.documents(&state.collection).ok().as_ref().map(Target::from));
        if let Some(target) = target.filter(|target| target.id == state.id) {
            state.settle(&target);
            states.push(state);
        }
    }
    Ok(states)
}

/// Notes about interrupted imports, for `ebbtide status`.
pub(crate) fn unfinished(folder: &Path, snapshot: &Snapshot) -> Result<Vec<String>, Failure> {
    let note = |state: State| {
        let what = if snapshot.documents(&state.collection).is_ok() { "documents" } else { "measurements" };
        let (into, stored) = (state.collection, state.stored);
        format!("an import into {into} was interrupted after {stored} {what}; ebbtide import --resume continues it")
    };
    Ok(states(folder, snapshot)?.into_iter().filter(|state| !state.finished).map(note).collect())
}
