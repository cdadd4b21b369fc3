//! Places by their URLs.

use crate::cancellation::Cancellation;
use crate::checkpoint;
use crate::copies::Copies;
use crate::folder::Folder;
use crate::log::name_of;
use crate::objects::Objects;
use crate::reader::FileCache;
use crate::store::{Store, StoreError};
use crate::table::Table;
use ebbtide::{ArchivePlace, ArchivePlaces, CopyStore, SinkError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Default of [`Lake::with_cache`]: 256 MiB.
const CACHE_BYTES_MAX: u64 = 256 << 20;

/// Opens archives in folders and in object storage. What is known of a table is kept for later requests, and so is what was read of
/// it, up to a number of bytes.
#[derive(Debug)]
pub struct Lake {
    tables: Mutex<HashMap<String, Arc<Table>>>,
    cache: Arc<FileCache>,
    cancellation: Cancellation,
}

impl Default for Lake {
    fn default() -> Self {
        Lake::new()
    }
}

impl Lake {
    /// Opens nothing yet.
    #[must_use]
    pub fn new() -> Lake {
        Lake::with_cache(CACHE_BYTES_MAX)
    }

    /// Keeps at most this many bytes of what was read, and of what was decoded of it, in memory. Default: 256 MiB.
    #[must_use]
    pub fn with_cache(bytes_max: u64) -> Lake {
        let cache = Arc::new(FileCache::new(bytes_max));
        Lake { tables: Mutex::default(), cache, cancellation: Cancellation::default() }
    }

    /// Lets its requests to object storage be cancelled, as a server does that ends.
    #[must_use]
    pub fn cancelled_by(mut self, cancellation: &Cancellation) -> Lake {
        self.cancellation = cancellation.clone();
        self
    }

    fn store_of(&self, url: &str) -> Result<Arc<dyn Store>, StoreError> {
        match url.strip_prefix("file://") {
            Some(path) if path.starts_with('/') => Ok(Arc::new(Folder::new(PathBuf::from(path)))),
            Some(path) => Err(StoreError::new(&format!("file://{path} is no absolute path: write file:///folder"))),
            None => Ok(Arc::new(Objects::open(url, &self.cancellation)?)),
        }
    }
}

impl ArchivePlaces for Lake {
    fn open(&self, url: &str) -> Result<Arc<dyn ArchivePlace>, SinkError> {
        let mut tables = self.tables.lock();
        if let Some(table) = tables.get(url) {
            return Ok(table.clone());
        }
        let table = Arc::new(Table::new(url, self.store_of(url)?, Arc::clone(&self.cache)));
        tables.insert(url.to_owned(), table.clone());
        Ok(table)
    }

    fn copies(&self, url: &str) -> Result<Arc<dyn CopyStore>, SinkError> {
        Ok(Arc::new(Copies(self.store_of(url)?)))
    }

    fn above(&self, url: &str) -> Option<String> {
        let is_folder = url.starts_with("file://");
        if is_folder { None } else { above(url, |folder, name| self.store_of(folder)?.exists(name)) }
    }
}

/// The nearest folder above a URL in which an object is that tables or copies have. If a folder cannot be looked into, there is none: keys may
/// be for the place alone.
fn above(url: &str, exists: impl Fn(&str, &str) -> Result<bool, StoreError>) -> Option<String> {
    let signs = [name_of(0), checkpoint::LAST.to_owned(), "epochs/0000000001".to_owned()];
    let (scheme, place) = url.split_once("://")?;
    let mut place = place.trim_end_matches('/');
    while let Some((folder, _)) = place.rsplit_once('/') {
        place = folder.trim_end_matches('/');
        let folder = format!("{scheme}://{place}");
        for sign in &signs {
            if exists(&folder, sign).ok()? {
                return Some(folder);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_within_the_nearest_table_or_copy() {
        let objects = ["s3://b/table/_delta_log/_last_checkpoint", "s3://b/x/copy/epochs/0000000001"];
        let exists = |folder: &str, name: &str| {
            let object = format!("{folder}/{name}");
            if folder == "s3://secret" { Err(StoreError::new("forbidden")) } else { Ok(objects.contains(&&*object)) }
        };
        for (url, folder) in [
            ("s3://b/table/copy", Some("s3://b/table")),
            ("s3://b/table/a/b/", Some("s3://b/table")),
            ("s3://b/x/copy/y", Some("s3://b/x/copy")),
            ("s3://b/x/copy", None),
            ("s3://b/table", None),
            ("s3://b/table2/copy", None),
            ("s3://b", None),
            ("s3://secret/copy", None),
        ] {
            assert_eq!(above(url, exists).as_deref(), folder, "{url}");
        }
    }
}
