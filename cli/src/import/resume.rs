//! How an import that was interrupted goes on: what is known to be stored, and how the one batch in doubt is decided.
//!
//! Before each insert a small file in the database's folder says, durably, how far the import has come and which batch
//! comes next, with a few of its rows and how often each of them was stored before. Inserts are atomic. So after a
//! crash at any moment at most one batch is in doubt, and it is stored if, and only if, one of those rows is there more
//! often.

use super::Rows;
use super::source::Source;
use crate::Failure;
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::datatypes::{Field, Schema as ArrowSchema};
use arrow::error::ArrowError;
use ebbtide::fs::{Fs, RealFs};
use ebbtide::{Collection, CollectionSnapshot, MetaFilter, ScanRequest};
use ebbtide_query::output::{instant, json_rows};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the file holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct State {
    collection: String,
    /// A checksum of the options that decide what rows become.
    options: u32,
    files: Vec<Mark>,
    /// The file that is being imported.
    pub(super) file: usize,
    /// Rows of it that are stored or were set aside.
    pub(super) rows: u64,
    /// Measurements stored so far.
    pub(super) stored: u64,
    doubt: Option<Doubt>,
}

/// A file, told by its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    name: String,
    bytes: u64,
    checksum: u32,
}

/// A batch that was being stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Doubt {
    file: usize,
    end: u64,
    measurements: u64,
    probes: Vec<Probe>,
}

/// A row of that batch, and how many like it were stored before.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Probe {
    time: i64,
    meta: String,
    before: u64,
}

/// Keeps the state of an import.
pub(super) struct Progress {
    fs: RealFs,
    path: PathBuf,
    pub(super) state: State,
}

impl Progress {
    /// The state that an import of these files with these options begins with.
    pub(super) fn new(folder: &Path, collection: &str, options: &str, sources: &[Source]) -> Result<Self, Failure> {
        let mark =
            |source: &Source| Ok(Mark { name: source.name.clone(), bytes: source.bytes, checksum: source.checksum()? });
        let state = State {
            collection: collection.to_owned(),
            options: crc32fast::hash(options.as_bytes()),
            files: sources.iter().map(mark).collect::<Result<_, Failure>>()?,
            file: 0,
            rows: 0,
            stored: 0,
            doubt: None,
        };
        let path = folder.join(format!("import-{:08x}.json", crc32fast::hash(collection.as_bytes())));
        Ok(Progress { fs: RealFs, path, state })
    }

    /// What an earlier import of the collection left, if it was interrupted.
    pub(super) fn left(&self) -> Result<Option<State>, Failure> {
        if !self.fs.exists(&self.path).map_err(|e| self.failure("read", &e))? {
            return Ok(None);
        }
        let bytes = self.fs.read(&self.path).map_err(|e| self.failure("read", &e))?;
        let state = serde_json::from_slice(&bytes);
        state.map(Some).map_err(|e| {
            Failure::new(format!("{} cannot be read: {e}; --from-start begins without it", self.path.display()))
        })
    }

    /// Goes on where an interrupted import was. The batch in doubt is looked for.
    pub(super) fn take_up(&mut self, left: State, collection: &Collection) -> Result<(), Failure> {
        let same = |a: &Mark, b: &Mark| (a.bytes, a.checksum) == (b.bytes, b.checksum);
        let files = left.files.len() == self.state.files.len()
            && left.files.iter().zip(&self.state.files).all(|(a, b)| same(a, b));
        if !files {
            let names: Vec<&str> = left.files.iter().map(|f| f.name.as_str()).collect();
            return Err(Failure::new(format!(
                "the interrupted import was of other files, or they have changed: {}; --from-start \
                 imports these from the first row",
                names.join(", ")
            )));
        }
        if left.options != self.state.options {
            return Err(Failure::new(
                "the interrupted import had other options: say the same ones with --resume, or --from-start",
            ));
        }
        self.state = left;
        if let Some(doubt) = self.state.doubt.take() {
            let snapshot = collection.snapshot()?;
            let mut stored = false;
            for probe in &doubt.probes {
                stored |= count(&snapshot, probe.time, &probe.meta)? > probe.before;
            }
            if stored {
                self.state.file = doubt.file;
                self.state.rows = doubt.end;
                self.state.stored += doubt.measurements;
            }
        }
        Ok(())
    }

    /// Notes that these rows are about to be stored.
    pub(super) fn begin(&mut self, file: usize, rows: &Rows<'_>, collection: &Collection) -> Result<(), Failure> {
        let snapshot = collection.snapshot()?;
        let mut probes = Vec::new();
        for (time, meta) in sample(&rows.batch, &snapshot)? {
            let before = count(&snapshot, time, &meta)?;
            probes.push(Probe { time, meta, before });
        }
        let measurements = rows.batch.num_rows() as u64;
        self.state.doubt = Some(Doubt { file, end: rows.end, measurements, probes });
        self.save()
    }

    /// Notes that they are stored; written with what comes next.
    pub(super) fn done(&mut self, file: usize, end: u64, stored: u64) {
        self.state.doubt = None;
        self.state.file = file;
        self.state.rows = end;
        self.state.stored += stored;
    }

    /// Notes that everything is stored, while the import of something else goes on.
    pub(super) fn complete(&mut self) -> Result<(), Failure> {
        self.state.doubt = None;
        self.save()
    }

    /// Forgets the import: it is complete, or nothing of it is left.
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
        Failure::new(format!("cannot {what} {}, which says how far the import is: {error}", self.path.display()))
    }
}

/// Imports that were interrupted in a database's folder, for `ebbtide status`.
pub(crate) fn unfinished(folder: &Path) -> Result<Vec<String>, Failure> {
    let fail = |path: &Path, e: &dyn std::fmt::Display| Failure::new(format!("cannot read {}: {e}", path.display()));
    let mut notes = Vec::new();
    for name in RealFs.list(folder).map_err(|e| fail(folder, &e))? {
        if !name.starts_with("import-") || !name.ends_with(".json") {
            continue;
        }
        let path = folder.join(&name);
        let bytes = RealFs.read(&path).map_err(|e| fail(&path, &e))?;
        let state: State = serde_json::from_slice(&bytes).map_err(|e| fail(&path, &e))?;
        notes.push(format!(
            "an import into {} was interrupted after {} measurements; ebbtide import --resume goes on",
            state.collection, state.stored
        ));
    }
    Ok(notes)
}

/// The first, the last and the latest row of a batch: time in the collection's unit, and meta.
fn sample(batch: &RecordBatch, snapshot: &CollectionSnapshot) -> Result<Vec<(i64, String)>, Failure> {
    let schema = snapshot.schema();
    let Some(times) = batch.column_by_name(&schema.time) else { return Ok(Vec::new()) };
    let at = |row: usize| instant(times.as_ref(), row).and_then(|t| t.to_units(schema.precision));
    let latest = (0..batch.num_rows()).max_by_key(|row| at(*row));
    let mut rows: Vec<usize> = latest.into_iter().chain([0, batch.num_rows().saturating_sub(1)]).collect();
    rows.dedup();
    let metas = schema.meta.as_ref().and_then(|m| batch.column_by_name(m));
    let mut sample = Vec::new();
    for row in rows {
        let Some(time) = at(row) else { continue };
        let meta = match metas {
            Some(metas) => {
                keys(&metas.slice(row, 1)).map_err(ebbtide_query::QueryError::from)?.pop().unwrap_or_default()
            }
            None => Json::Null.to_string(),
        };
        sample.push((time, meta));
    }
    Ok(sample)
}

/// How many measurements of this time and meta are stored, hidden ones too.
fn count(snapshot: &CollectionSnapshot, time: i64, meta: &str) -> Result<u64, Failure> {
    let schema = snapshot.schema();
    let request = ScanRequest {
        projection: Some(vec![schema.time.clone()]),
        time: (Some(time), Some(time)),
        meta: schema.meta.as_ref().map(|_| Arc::new(Same { key: meta.to_owned() }) as Arc<dyn MetaFilter>),
        include_hidden: true,
        ..ScanRequest::default()
    };
    let mut rows = 0;
    for unit in snapshot.scan(&request)? {
        for batch in unit.read()? {
            rows += batch?.num_rows() as u64;
        }
    }
    Ok(rows)
}

/// Chooses the meta with this key.
#[derive(Debug)]
struct Same {
    key: String,
}

impl MetaFilter for Same {
    fn select(&self, metas: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        Ok(keys(metas)?.into_iter().map(|key| Some(key == self.key)).collect())
    }
}

/// Texts by which metas are compared: members in order of their names, without those that are null.
fn keys(metas: &ArrayRef) -> Result<Vec<String>, ArrowError> {
    let field = Field::new("meta", metas.data_type().clone(), true);
    let batch = RecordBatch::try_new(Arc::new(ArrowSchema::new(vec![field])), vec![Arc::clone(metas)])?;
    let rows = json_rows(&batch).map_err(|e| ArrowError::ExternalError(Box::new(e)))?;
    Ok(rows.into_iter().map(|mut row| plain(row.remove("meta").unwrap_or_default()).to_string()).collect())
}

fn plain(value: Json) -> Json {
    match value {
        Json::Object(members) => {
            let mut members: Vec<(String, Json)> =
                members.into_iter().filter(|(_, v)| !v.is_null()).map(|(n, v)| (n, plain(v))).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            if members.is_empty() { Json::Null } else { Json::Object(members.into_iter().collect()) }
        }
        Json::Array(items) => Json::Array(items.into_iter().map(plain).collect()),
        // A whole number is the same meta as the double of its value.
        Json::Number(number) => number.as_f64().map_or(Json::Null, Json::from),
        other => other,
    }
}
