//! Small files of JSON, which are read and replaced as a whole.

use crate::error::{Error, Result};
use crate::fs::{Fs, replace};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::Path;

/// The content of a small JSON file, if it is there.
pub(crate) fn read_json<T: DeserializeOwned>(fs: &dyn Fs, path: &Path) -> Result<Option<T>> {
    match fs.read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        content => {
            let content = content.map_err(|e| Error::io("read", path, &e))?;
            serde_json::from_slice(&content).map(Some).map_err(|e| Error::corrupt(path, 0, e))
        }
    }
}

/// Atomically and durably replaces a small JSON file.
pub(crate) fn replace_json(fs: &dyn Fs, path: &Path, content: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec_pretty(content).map_err(|e| Error::internal(format!("encode JSON: {e}")))?;
    replace(fs, path, &text).map_err(|e| Error::io("write", path, &e))
}
