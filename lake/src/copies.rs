//! Stores of copies of whole databases.

use crate::store::Store;
use bytes::Bytes;
use ebbtide::{CopyStore, SinkError};
use std::sync::Arc;

/// A store of copies.
#[derive(Debug)]
pub(crate) struct Copies(pub(crate) Arc<dyn Store>);

impl CopyStore for Copies {
    fn gets_at_once(&self) -> usize {
        self.0.gets_at_once()
    }

    fn refused(&self) -> u64 {
        self.0.refused()
    }

    fn get(&self, name: &str) -> Result<Option<Bytes>, SinkError> {
        Ok(self.0.get(name)?)
    }

    fn exists(&self, name: &str) -> Result<bool, SinkError> {
        Ok(self.0.exists(name)?)
    }

    fn put(&self, name: &str, content: Bytes) -> Result<(), SinkError> {
        Ok(self.0.put(name, content)?)
    }

    fn put_if_absent(&self, name: &str, content: Bytes) -> Result<bool, SinkError> {
        Ok(self.0.put_if_absent(name, content)?)
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, SinkError> {
        Ok(self.0.list(folder)?.into_iter().map(|object| object.name).collect())
    }

    fn remove(&self, name: &str) -> Result<(), SinkError> {
        Ok(self.0.delete(name)?)
    }
}
