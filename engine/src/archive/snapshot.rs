//! Reading an archive: the version that the manifest names.

use super::{ArchiveFetched, ArchivePlace, ArchiveRead, ArchivedFile};
use crate::error::{Error, Result};
use crate::snapshot::{CollectionSnapshot, ScanRequest};
use arrow::array::RecordBatch;
use ebbtide_buckets::{Schema, adapt};
use ebbtide_ttl::{Code, Value};
use std::sync::Arc;

/// A file of an archive, to be read.
#[derive(Debug, Clone)]
pub struct ArchivedUnit {
    /// The file.
    pub file: ArchivedFile,
    place: Arc<dyn ArchivePlace>,
    read: ArchiveRead,
}

/// What a request reads of an archive.
#[derive(Debug, Clone)]
pub struct ArchivedScan {
    /// The files that may have requested rows.
    pub units: Vec<ArchivedUnit>,
    /// How many files cannot have any.
    pub files_skipped: u64,
    /// Counts what is fetched while the units are read.
    pub fetched: Arc<ArchiveFetched>,
}

impl ArchivedUnit {
    /// The rows, with the columns that were asked for and the time field. Rows outside of the bounds may be among them.
    ///
    /// # Errors
    /// [`Code::HostUnreachable`] if the place cannot be read.
    pub fn read(&self) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send + use<>> {
        let batches = self.place.read(&self.file, &self.read).map_err(unreachable)?;
        let schema = Arc::clone(&self.read.schema);
        Ok(batches.map(move |batch| Ok(adapt(&batch.map_err(unreachable)?, &schema)?)))
    }
}

pub(super) fn unreachable(error: impl std::fmt::Display) -> Error {
    Error::new(Code::HostUnreachable, format!("the archive cannot be read: {error}"))
}

impl CollectionSnapshot {
    /// The files of the collection's archive that may have requested rows, by their times and metas: of the version that has exactly
    /// what was dropped here. What has expired and is still stored here is not among them ([`CollectionSnapshot::expired`]).
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] if the collection has no archive; [`Code::HostUnreachable`] if the place cannot be read.
    pub fn archived(&self, request: &ScanRequest) -> Result<ArchivedScan> {
        let (place, version) = self.archive()?;
        let fetched = Arc::new(ArchiveFetched::default());
        let Some(version) = version else { return Ok(ArchivedScan { units: Vec::new(), files_skipped: 0, fetched }) };
        let times = request.time.units(self.options().precision);
        let schema = Arc::new(self.schema_of(request));
        let read = ArchiveRead { schema, times, metas: self.metas_of(request), fetched: Arc::clone(&fetched) };
        let files = place.files(version).map_err(unreachable)?;
        let count = files.len();
        let units = files.into_iter().filter(|file| may_have(file, &read));
        let units: Vec<_> =
            units.map(|file| ArchivedUnit { file, place: Arc::clone(&place), read: read.clone() }).collect();
        Ok(ArchivedScan { files_skipped: (count - units.len()) as u64, units, fetched })
    }

    /// Values that all metas of a request have, member by member.
    fn metas_of(&self, request: &ScanRequest) -> Vec<(Vec<String>, Value)> {
        let (Some(meta), Some(filter)) = (&self.schema().meta, &request.meta) else { return Vec::new() };
        let mut wanted = Vec::new();
        for (path, value) in filter.equalities() {
            members([meta].into_iter().chain(path).cloned().collect(), value, &mut wanted);
        }
        wanted
    }

    /// The place of the collection's archive, and the version that is known here.
    ///
    /// # Errors
    /// As for [`CollectionSnapshot::archived`].
    pub fn archive(&self) -> Result<(Arc<dyn ArchivePlace>, Option<u64>)> {
        let Some(url) = &self.options().expire_into else {
            let what = format!("collection '{}' has no archive: ALTER COLLECTION ... INTO names one", self.name());
            return Err(Error::new(Code::InvalidOptions, what));
        };
        let places = self.places.as_ref();
        let places = places.ok_or_else(|| unreachable("this program was opened without access to archives"))?;
        Ok((places.open(url).map_err(unreachable)?, self.state.archive.version))
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

fn members(path: Vec<String>, value: &Value, wanted: &mut Vec<(Vec<String>, Value)>) {
    match value {
        Value::Object(all) => {
            for (name, value) in all {
                members(path.iter().cloned().chain([name.to_string()]).collect(), value, wanted);
            }
        }
        value => wanted.push((path, value.clone())),
    }
}

/// Whether a file may have rows of interest, by what the log of the archive says of it.
fn may_have(file: &ArchivedFile, read: &ArchiveRead) -> bool {
    let (first, last) = read.times;
    let excludes = |(path, value): &(Vec<String>, Value)| {
        file.bounds.iter().any(|bounds| bounds.path == *path && bounds.excludes(value))
    };
    file.times.1 >= first && file.times.0 <= last && !read.metas.iter().any(excludes)
}
