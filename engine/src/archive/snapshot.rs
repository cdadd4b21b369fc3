//! Reading an archive: the version that the manifest names.

use super::{ArchivePlace, ArchiveRead, ArchivedFile};
use crate::error::{Error, Result};
use crate::snapshot::{CollectionSnapshot, ScanRequest};
use arrow::array::RecordBatch;
use ebbtide_buckets::{Schema, adapt};
use ebbtide_ttl::Code;
use std::sync::Arc;

/// A file of an archive, to be read.
#[derive(Debug, Clone)]
pub struct ArchivedUnit {
    /// The file.
    pub file: ArchivedFile,
    place: Arc<dyn ArchivePlace>,
    read: ArchiveRead,
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
    /// The files of the collection's archive that may have requested rows: those of the version that has exactly what was dropped
    /// here. What has expired and is still stored here is not among them ([`CollectionSnapshot::expired`]).
    ///
    /// # Errors
    /// [`Code::InvalidOptions`] if the collection has no archive; [`Code::HostUnreachable`] if the place cannot be read.
    pub fn archived(&self, request: &ScanRequest) -> Result<Vec<ArchivedUnit>> {
        let (place, version) = self.archive()?;
        let Some(version) = version else { return Ok(Vec::new()) };
        let (first, last) = request.time.units(self.options().precision);
        let is_wanted = |file: &ArchivedFile| file.times.1 >= first && file.times.0 <= last;
        let files = place.files(version).map_err(unreachable)?;
        let read = ArchiveRead { schema: Arc::new(self.schema_of(request)), times: (first, last) };
        let units = files.into_iter().filter(is_wanted);
        Ok(units.map(|file| ArchivedUnit { file, place: Arc::clone(&place), read: read.clone() }).collect())
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
