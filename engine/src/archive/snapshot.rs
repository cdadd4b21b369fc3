//! Reading archives: the versions that the manifest names.

use super::bounds::may_have_metas;
use super::of_collection::Archive;
use super::segments::Shared;
use super::{ArchiveFetched, ArchivePart, ArchivePlace, ArchiveRead, ArchivedFile, unreachable};
use crate::error::{Error, Result};
use crate::snapshot::{CollectionSnapshot, ScanRequest};
use crate::state::CollectionState;
use arrow::array::RecordBatch;
use ebbtide_buckets::{Schema, adapt_to};
use ebbtide_ttl::{Code, Value};
use std::sync::Arc;

/// An archive of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveInfo {
    /// The index whose archive it is; none for the one of the collection.
    pub index: Option<String>,
    /// Where it is.
    pub url: String,
    /// For how many seconds after its time a measurement is kept there; none for ever.
    pub keep_seconds: Option<i64>,
    /// The version that has exactly what was dropped here; none if nothing was moved yet.
    pub version: Option<u64>,
}

/// A file of an archive, to be read.
#[derive(Debug, Clone)]
pub struct ArchivedUnit {
    /// The file.
    pub file: ArchivedFile,
    place: Arc<dyn ArchivePlace>,
    read: ArchiveRead,
    columns: Arc<Vec<String>>,
}

/// What a request reads of archives.
#[derive(Debug, Clone)]
pub struct ArchivedScan {
    /// The files that may have requested rows.
    pub units: Vec<ArchivedUnit>,
    /// How many files cannot have any.
    pub files_skipped: u64,
    /// Counts what is fetched while the units are read.
    pub fetched: Arc<ArchiveFetched>,
}

impl ArchivedScan {
    /// One of several parts: all rows are in exactly one of them. Each of them has all files, but not all row groups.
    #[must_use]
    pub fn part(mut self, part: ArchivePart) -> ArchivedScan {
        for (place, unit) in self.units.iter_mut().enumerate() {
            // Files of one row group are divided too.
            unit.read.part = ArchivePart { number: (part.number + place) % part.of, ..part };
        }
        self
    }
}

impl ArchivedUnit {
    /// The rows, with the columns that were asked for, in that order. Rows outside of the bounds may be among them.
    ///
    /// # Errors
    /// [`Code::HostUnreachable`] if the place cannot be read.
    pub fn read(&self) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send + use<>> {
        let batches = self.place.read(&self.file, &self.read).map_err(unreachable)?;
        let columns = self.read.schema.arrow_columns(&self.columns)?;
        Ok(batches.map(move |batch| Ok(adapt_to(&batch.map_err(unreachable)?, Arc::clone(&columns))?)))
    }
}

impl CollectionSnapshot {
    /// The files of the collection's archives that may have requested rows, by their times and metas: of the versions that have
    /// exactly what was dropped here. What has expired and is still stored here is not among them
    /// ([`CollectionSnapshot::unarchived`]).
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] if the collection has no archive; [`Code::BadValue`] for a column that does not exist;
    /// [`Code::HostUnreachable`] if a place cannot be read.
    pub fn archived(&self, request: &ScanRequest) -> Result<ArchivedScan> {
        let archives = self.archives();
        if archives.is_empty() {
            let what = format!("collection '{}' has no archive: ALTER COLLECTION ... INTO names one", self.name());
            return Err(Error::new(Code::InvalidOptions, what));
        }
        let times = request.time.units(self.options().precision);
        let (schema, columns) = (Arc::new(self.schema_of(request)), Arc::new(self.columns(request)?));
        let fetched = Arc::new(ArchiveFetched::default());
        let mut scan = ArchivedScan { units: Vec::new(), files_skipped: 0, fetched: Arc::clone(&fetched) };
        let read = ArchiveRead { schema, times, metas: self.metas_of(request), part: ArchivePart::ALL, fetched };
        for archive in archives {
            let Some(version) = archive.version else { continue };
            let place = self.archive_place(&archive.url)?;
            for file in place.files(version).map_err(unreachable)? {
                match may_have(&file, &read) {
                    true => {
                        let (place, read, columns) = (Arc::clone(&place), read.clone(), Arc::clone(&columns));
                        scan.units.push(ArchivedUnit { file, place, read, columns });
                    }
                    false => scan.files_skipped += 1,
                }
            }
        }
        Ok(scan)
    }

    /// What has expired of the collection, as a collection: what is in its archives, in the versions that have exactly what was
    /// dropped here, and what is still stored here until it is moved there. Reads of it find rows by the directories of the files,
    /// as reads of the collection do. `None` if there is no archive, if one has a file that an older program wrote, or if one has a
    /// field of another type than the collection: then [`CollectionSnapshot::archived`] and [`CollectionSnapshot::unarchived`] read the
    /// rows.
    ///
    /// It is for scans, aggregates, counts and last points, in which [`crate::ScanRequest::include_hidden`] has no effect. What lists
    /// buckets, segments or rules of it, or reads what has expired or rollups, is meant for the collection itself.
    ///
    /// # Errors
    /// [`ebbtide_ttl::Code::HostUnreachable`] if a place cannot be read; reads of the result fail with it too.
    pub fn archived_collection(&self) -> Result<Option<CollectionSnapshot>> {
        let files = &self.state.archiving.files;
        let shared = Shared { folder: &self.state.folder, cache: &self.cache, schema: &self.state.schema };
        if self.state.archives().next().is_none() {
            return Ok(None);
        }
        let mut segments = (*self.state.segments).clone();
        files.retain(|url| self.state.archive_at(url).is_some());
        for archive in self.state.archives() {
            let Some(version) = archive.record.version else { continue };
            let place = || self.archive_place(archive.url);
            let version = (archive.url, archive.record.owners.last().copied(), version);
            let Some(found) = files.of(version, &shared, place)? else { return Ok(None) };
            segments.extend(found.iter().map(|segment| (segment.file.id, Arc::clone(segment))));
        }
        let state = CollectionState { segments: Arc::new(segments), ..(*self.state).clone() };
        let (state, archived) = (Arc::new(state), Some(Arc::clone(&files.fetched)));
        Ok(Some(CollectionSnapshot { state, archived, ..self.clone() }))
    }

    /// What was fetched of the archives so far, by this and all other reads of them in this process, if this is what
    /// [`CollectionSnapshot::archived_collection`] returned.
    #[must_use]
    pub fn fetched(&self) -> Option<&Arc<ArchiveFetched>> {
        self.archived.as_ref()
    }

    /// The collection's archives: its own first, then those of indexes.
    #[must_use]
    pub fn archives(&self) -> Vec<ArchiveInfo> {
        let info = |archive: Archive<'_>| ArchiveInfo {
            index: archive.index.map(str::to_owned),
            url: archive.url.to_owned(),
            keep_seconds: archive.keep_seconds,
            version: archive.record.version,
        };
        self.state.archives().map(info).collect()
    }

    /// The place of an archive.
    ///
    /// # Errors
    /// [`Code::HostUnreachable`] if the database was opened without access to archives, or the URL cannot be used.
    pub fn archive_place(&self, url: &str) -> Result<Arc<dyn ArchivePlace>> {
        let places = self.places.as_ref();
        let places = places.ok_or_else(|| unreachable("this program was opened without access to archives"))?;
        places.open(url).map_err(unreachable)
    }

    /// For each member that a request restricts, the values that it allows.
    pub(crate) fn metas_of(&self, request: &ScanRequest) -> Vec<(Vec<String>, Vec<Value>)> {
        let (Some(meta), Some(filter)) = (&self.schema().meta, &request.meta) else { return Vec::new() };
        let mut wanted = Vec::new();
        for (path, values) in filter.candidates() {
            let path: Vec<String> = [meta].into_iter().chain(path).cloned().collect();
            match values.as_slice() {
                [object @ Value::Object(_)] => members(path, object, &mut wanted),
                _ if values.iter().any(|value| matches!(value, Value::Object(_))) => {}
                _ => wanted.push((path, values.clone())),
            }
        }
        wanted
    }

    /// The fields of a request, and the time field.
    fn schema_of(&self, request: &ScanRequest) -> Schema {
        let mut schema = (**self.schema()).clone();
        if let Some(columns) = &request.projection {
            if schema.meta.as_ref().is_some_and(|meta| !columns.contains(meta)) {
                (schema.meta, schema.meta_type) = (None, None);
            }
            schema.fields.retain(|(name, _)| columns.contains(name));
        }
        schema
    }
}

fn members(path: Vec<String>, value: &Value, wanted: &mut Vec<(Vec<String>, Vec<Value>)>) {
    match value {
        Value::Object(all) => {
            for (name, value) in all {
                members(path.iter().cloned().chain([name.to_string()]).collect(), value, wanted);
            }
        }
        value => wanted.push((path, vec![value.clone()])),
    }
}

/// Whether a file may have rows of interest, by what the log of the archive says of it.
fn may_have(file: &ArchivedFile, read: &ArchiveRead) -> bool {
    let (first, last) = read.times;
    file.times.1 >= first && file.times.0 <= last && may_have_metas(&file.bounds, &read.metas)
}
