//! Places by their URLs.

use crate::folder::Folder;
use crate::objects::Objects;
use crate::store::{Store, StoreError};
use crate::table::Table;
use ebbtide::{ArchivePlace, ArchivePlaces, SinkError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Opens archives in folders and in object storage. What is known of a table is kept for later requests.
#[derive(Debug, Default)]
pub struct Lake {
    tables: Mutex<HashMap<String, Arc<Table>>>,
}

impl Lake {
    /// Opens nothing yet.
    #[must_use]
    pub fn new() -> Lake {
        Lake::default()
    }
}

impl ArchivePlaces for Lake {
    fn open(&self, url: &str) -> Result<Arc<dyn ArchivePlace>, SinkError> {
        let mut tables = self.tables.lock();
        if let Some(table) = tables.get(url) {
            return Ok(table.clone());
        }
        let table = Arc::new(Table::new(url, store_of(url)?));
        tables.insert(url.to_owned(), table.clone());
        Ok(table)
    }
}

fn store_of(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    match url.strip_prefix("file://") {
        Some(path) if path.starts_with('/') => Ok(Arc::new(Folder::new(PathBuf::from(path)))),
        Some(path) => Err(StoreError::new(&format!("file://{path} is no absolute path: write file:///folder"))),
        None => Ok(Arc::new(Objects::open(url)?)),
    }
}
