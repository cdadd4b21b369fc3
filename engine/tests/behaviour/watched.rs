//! A disk that remembers what it was asked for.

use ebbtide::buckets::ReadAt;
use ebbtide::fs::sim::SimFs;
use ebbtide::fs::{Fs, Layer};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A simulated disk that lists the files that are opened for reading, and those that are read at once.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    inner: SimFs,
    opened: Arc<Mutex<Vec<PathBuf>>>,
}

impl Watched {
    pub(crate) fn new(inner: SimFs) -> Watched {
        Watched { inner, opened: Arc::default() }
    }

    /// The files opened since the last time this was asked.
    pub(crate) fn take_opened(&self) -> Vec<PathBuf> {
        std::mem::take(&mut self.opened.lock().unwrap())
    }
}

impl Layer for Watched {
    fn below(&self) -> &dyn Fs {
        &self.inner
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>> {
        self.opened.lock().unwrap().push(path.to_owned());
        self.inner.open_read(path)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.opened.lock().unwrap().push(path.to_owned());
        self.inner.read(path)
    }
}
