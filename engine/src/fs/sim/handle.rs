//! Open files and locks of a simulated disk.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use ebbtide_buckets::ReadAt;

use super::disk::NodeId;
use super::fault::{FaultKind, Op};
use super::{Lie, SimFs};
use crate::fs::real::check_range;
use crate::fs::{FileLock, WriteFile};

#[derive(Debug)]
pub(super) struct SimFile {
    pub(super) fs: SimFs,
    pub(super) path: PathBuf,
    pub(super) node: NodeId,
    pub(super) handle: u64,
    pub(super) len: usize,
}

impl SimFile {
    /// Writes behind the end, which stays where it is.
    fn write(&mut self, call: &str, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.fs.inner.lock();
        let fault =
            inner.change(Op::Append, || format!("{call} {} at {} +{}", self.path.display(), self.len, bytes.len()))?;
        let named = inner.disk.dirs.values().any(|dir| dir.current.values().any(|node| *node == self.node));
        assert!(named, "append to a removed file: path={}", self.path.display());
        let (taken, error) = match fault {
            Some(fault @ (FaultKind::Enospc | FaultKind::ShortWrite)) => (bytes.len() / 2, Some(fault)),
            Some(fault) => (0, Some(fault)),
            None => match inner.capacity {
                Some(capacity) => {
                    let used = inner.disk.used(inner.handles.values().map(|handle| handle.node));
                    let found = inner.disk.files.get(&self.node).map_or(0, |file| file.current.len());
                    // Bytes behind the end are in use already.
                    let free = capacity.saturating_sub(used) + found.saturating_sub(self.len);
                    let full = (free < bytes.len()).then_some(FaultKind::Enospc);
                    (bytes.len().min(free), full)
                }
                None => (bytes.len(), None),
            },
        };
        inner.disk.write(self.node, self.len, &bytes[..taken]);
        match error {
            Some(fault) => Err(fault.error()),
            None => Ok(()),
        }
    }
}

impl WriteFile for SimFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write("append", bytes)?;
        self.len += bytes.len();
        Ok(())
    }

    fn fill_ahead(&mut self, bytes: usize) -> io::Result<()> {
        self.write("fill_ahead", &vec![0; bytes])
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut inner = self.fs.inner.lock();
        let Some(fault) = inner.change(Op::Sync, || format!("sync {}", self.path.display()))? else {
            let lies = match inner.lie {
                Some(Lie::FileSync(part)) => self.path.to_string_lossy().contains(part),
                _ => false,
            };
            if !lies {
                inner.disk.sync_file(self.node);
            }
            return Ok(());
        };
        if fault == FaultKind::SyncEioDropped {
            inner.disk.forget(self.node);
        }
        if let Some(file) = inner.disk.files.get_mut(&self.node) {
            file.sync_failed = true;
        }
        Err(fault.error())
    }

    fn len(&self) -> u64 {
        self.len as u64
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut inner = self.fs.inner.lock();
        inner.change_whole(Op::Cut, || format!("truncate {} to {len}", self.path.display()))?;
        let len = usize::try_from(len).ok().filter(|len| *len <= self.len).ok_or(ErrorKind::InvalidInput)?;
        inner.disk.cut(self.node, len);
        self.len = len;
        Ok(())
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.fs.inner.lock().handles.remove(&self.handle);
    }
}

#[derive(Debug)]
pub(super) struct SimReader {
    pub(super) fs: SimFs,
    pub(super) node: NodeId,
    pub(super) handle: u64,
    pub(super) len: u64,
}

impl ReadAt for SimReader {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut inner = self.fs.inner.lock();
        inner.look(Op::Read)?;
        let content = inner.disk.files.get(&self.node).map(|file| Arc::clone(&file.current)).unwrap_or_default();
        drop(inner);
        check_range(offset, len, self.len.min(content.len() as u64))?;
        // In range of a vector, so it is an index.
        let start = offset as usize;
        Ok(Bytes::copy_from_slice(&content[start..start + len]))
    }
}

impl Drop for SimReader {
    fn drop(&mut self) {
        self.fs.inner.lock().handles.remove(&self.handle);
    }
}

#[derive(Debug)]
pub(super) struct SimLock {
    pub(super) fs: SimFs,
    pub(super) path: PathBuf,
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.fs.inner.lock().locks.remove(&self.path);
    }
}
