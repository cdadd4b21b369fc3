//! A disk in memory that breaks on request.
//!
//! It keeps apart what a program sees and what a power cut leaves, in the weakest form in which file systems keep it:
//! the content of a file, its length and its name become durable independently, in any order, a sector at a time.
//! [`SimFs::crash`] makes a disk out of one of the states that a power cut may leave. Faults strike calls by their
//! index ([`SimFs::fail_op`]); every call from some index on can fail as if the process were gone
//! ([`SimFs::stop_after`]). All of it is a pure function of the calls made and the seeds given.
//!
//! The disk also watches how it is used, and panics on what no engine should do: publishing a file that was not
//! synced, appending to a removed one, two writers of one file, a path outside of the database.

mod crash;
mod disk;
mod fault;
mod handle;

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use ebbtide_buckets::ReadAt;

use super::{FileLock, Fs, LockError, WriteFile};
use crate::sync::Mutex;
use disk::{Disk, NodeId, TOP};
use fault::{FaultPlan, Op};
use handle::{SimFile, SimLock, SimReader};

pub use crash::{Damage, Variant};
pub use fault::{Fault, FaultKind, Random, Repeat};

/// A simulated disk. A clone is another handle of the same disk.
#[derive(Clone)]
pub struct SimFs {
    root: PathBuf,
    damage: Option<Damage>,
    inner: Arc<Mutex<Inner>>,
}

impl Debug for SimFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFs").field("root", &self.root).finish_non_exhaustive()
    }
}

struct Inner {
    disk: Disk,
    /// Who holds the lock of a path.
    locks: BTreeMap<PathBuf, String>,
    /// Open handles: of which file, by what name it was opened, and whether for writing.
    handles: BTreeMap<u64, Handle>,
    next_handle: u64,
    mutating_ops: u64,
    reading_ops: u64,
    fired: u64,
    plan: FaultPlan,
    reading_plan: FaultPlan,
    stop_after: u64,
    stopped: bool,
    capacity: Option<usize>,
    lie: Option<Lie>,
    recording: Option<Recording>,
}

/// A sync that the disk says it did and did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// Of files whose name has this in it.
    FileSync(&'static str),
    /// Of folders.
    DirSync,
}

struct Handle {
    node: NodeId,
    path: PathBuf,
    writes: bool,
}

/// What happened on a disk, step by step.
#[derive(Default)]
struct Recording {
    /// The disk as it was before each changing step.
    points: Vec<Disk>,
    steps: Vec<String>,
    ops: Vec<Op>,
}

impl Inner {
    fn new(disk: Disk) -> Inner {
        Inner {
            disk,
            locks: BTreeMap::new(),
            handles: BTreeMap::new(),
            next_handle: 0,
            mutating_ops: 0,
            reading_ops: 0,
            fired: 0,
            plan: FaultPlan::default(),
            reading_plan: FaultPlan::default(),
            stop_after: u64::MAX,
            stopped: false,
            capacity: None,
            lie: None,
            recording: None,
        }
    }

    /// Starts a step that changes something. `Some` is a fault that the caller has to act out.
    fn change(&mut self, op: Op, what: impl FnOnce() -> String) -> io::Result<Option<FaultKind>> {
        if self.stopped || self.mutating_ops >= self.stop_after {
            self.stopped = true;
            return Err(gone());
        }
        let index = self.mutating_ops;
        let fault = self.plan.strike(index, op);
        if let Some(recording) = &mut self.recording {
            recording.points.push(self.disk.clone());
            recording.ops.push(op);
            let fault = fault.map_or_else(String::new, |fault| format!(" -> {fault:?}"));
            recording.steps.push(format!("{index} {}{fault}", what()));
        }
        self.mutating_ops += 1;
        self.fired += u64::from(fault.is_some());
        Ok(fault)
    }

    /// As [`change`](Inner::change), for a step that either happens or does not.
    fn change_whole(&mut self, op: Op, what: impl FnOnce() -> String) -> io::Result<()> {
        match self.change(op, what)? {
            Some(fault) => Err(fault.error()),
            None => Ok(()),
        }
    }

    /// Starts a step that only reads.
    fn look(&mut self, op: Op) -> io::Result<()> {
        if self.stopped {
            return Err(gone());
        }
        let index = self.reading_ops;
        self.reading_ops += 1;
        match self.reading_plan.strike(index, op) {
            Some(fault) => {
                self.fired += 1;
                Err(fault.error())
            }
            None => Ok(()),
        }
    }

    fn open(&mut self, node: NodeId, path: &Path, writes: bool) -> u64 {
        let id = self.next_handle;
        self.next_handle += 1;
        self.handles.insert(id, Handle { node, path: path.to_path_buf(), writes });
        id
    }

    fn sync_dir(&mut self, node: NodeId, path: &Path) -> io::Result<()> {
        match self.change(Op::SyncDir, || format!("sync_dir {}", path.display()))? {
            None if self.lie == Some(Lie::DirSync) => Ok(()),
            None => {
                self.disk.sync_dir(node);
                self.disk.collect(self.handles.values().map(|handle| handle.node));
                Ok(())
            }
            // Names go through a journal: a file system that cannot write it stops, it does not forget single ones.
            Some(fault) => Err(fault.error()),
        }
    }

    fn remove_tree(&mut self, dir: NodeId, name: &str, path: &Path) -> io::Result<()> {
        let Some(node) = self.disk.lookup(dir, name) else { return Err(ErrorKind::NotFound.into()) };
        if let Some(entries) = self.disk.dirs.get(&node) {
            let names: Vec<String> = entries.current.keys().cloned().collect();
            for name in names {
                self.remove_tree(node, &name, &path.join(&name))?;
            }
        }
        self.change_whole(Op::Remove, || format!("remove {}", path.display()))?;
        self.disk.rename(dir, Some(name.to_owned()), None);
        Ok(())
    }
}

/// What a call fails with when the process that makes it is no more.
fn gone() -> io::Error {
    io::Error::other("the process was killed")
}

impl SimFs {
    /// An empty disk, for a database at the absolute path `root`. The folders above it are there.
    pub fn new(root: impl Into<PathBuf>) -> SimFs {
        let root = root.into();
        let mut disk = Disk::new();
        let mut dir = TOP;
        let mut names = parts(&root);
        names.pop();
        for name in names {
            dir = disk.add_dir(dir, &name);
        }
        disk.apply_names(|_| true);
        SimFs::of(root, disk, None)
    }

    fn of(root: PathBuf, disk: Disk, damage: Option<Damage>) -> SimFs {
        SimFs { root, damage, inner: Arc::new(Mutex::new(Inner::new(disk))) }
    }

    /// The disk after a power cut now: without open files, locks, faults and counts. This one is not touched.
    pub fn crash(&self, variant: Variant, seed: u64) -> SimFs {
        let (disk, damage) = crash::crash(&self.inner.lock().disk, variant, seed);
        SimFs::of(self.root.clone(), disk, damage)
    }

    /// The bit that the power cut flipped ([`Variant::V8`]).
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// A copy of the disk as it is: what was not synced stays so. Nothing is open or locked in it.
    pub fn fork(&self) -> SimFs {
        SimFs::of(self.root.clone(), self.inner.lock().disk.clone(), None)
    }

    /// From now on keeps the state of the disk before every changing step, and a line of text about each.
    pub fn record(&self) {
        self.inner.lock().recording = Some(Recording::default());
    }

    /// The changing steps since [`record`](SimFs::record).
    pub fn steps(&self) -> Vec<String> {
        self.inner.lock().recording.as_ref().map(|recording| recording.steps.clone()).unwrap_or_default()
    }

    /// Whether a fault of this kind can strike a recorded step, counted from [`record`](SimFs::record).
    pub fn step_can_fail(&self, step: usize, kind: FaultKind) -> bool {
        let inner = self.inner.lock();
        let op = inner.recording.as_ref().and_then(|recording| recording.ops.get(step));
        op.is_some_and(|op| kind.strikes(*op))
    }

    /// The disk as it was before a recorded step, counted from [`record`](SimFs::record); the present one after the
    /// last of them.
    pub fn before_step(&self, step: usize) -> SimFs {
        let inner = self.inner.lock();
        let point = inner.recording.as_ref().and_then(|recording| recording.points.get(step));
        SimFs::of(self.root.clone(), point.unwrap_or(&inner.disk).clone(), None)
    }

    /// How many changing steps were tried. One call can be several: [`Fs::publish`] is a rename and a sync.
    pub fn mutating_ops(&self) -> u64 {
        self.inner.lock().mutating_ops
    }

    /// How many reading steps were tried.
    pub fn reading_ops(&self) -> u64 {
        self.inner.lock().reading_ops
    }

    /// How many faults have struck.
    pub fn faults_fired(&self) -> u64 {
        self.inner.lock().fired
    }

    /// Plans a fault for the changing step of this index; if that is of a kind which the fault does not strike,
    /// nothing happens.
    pub fn fail_op(&self, index: u64, fault: Fault) {
        self.inner.lock().plan.listed.push((index, fault));
    }

    /// Plans a fault for the reading step of this index.
    pub fn fail_read(&self, index: u64, fault: Fault) {
        self.inner.lock().reading_plan.listed.push((index, fault));
    }

    /// Plans faults of all kinds for about one in `one_in` changing steps.
    pub fn fail_randomly(&self, seed: u64, one_in: u64) {
        self.inner.lock().plan.seeded = Some((seed, one_in));
    }

    /// Forgets all planned faults.
    pub fn heal(&self) {
        let mut inner = self.inner.lock();
        inner.plan = FaultPlan::default();
        inner.reading_plan = FaultPlan::default();
    }

    /// Kills the process that uses the disk after that many changing steps: every later call fails.
    pub fn stop_after(&self, ops: u64) {
        self.inner.lock().stop_after = ops;
    }

    /// From now on does not do some syncs, and says that it did.
    pub fn lie(&self, lie: Lie) {
        self.inner.lock().lie = Some(lie);
    }

    /// Whether the process was killed.
    pub fn is_stopped(&self) -> bool {
        self.inner.lock().stopped
    }

    /// Limits the content of all files; an append beyond it writes what fits and fails.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.inner.lock().capacity = bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// The bytes that the content of all files takes, removed ones that are still open included.
    pub fn used(&self) -> u64 {
        let inner = self.inner.lock();
        inner.disk.used(inner.handles.values().map(|handle| handle.node)) as u64
    }

    /// The paths of files that are open: a database that was closed has none.
    pub fn open_handles(&self) -> Vec<String> {
        let inner = self.inner.lock();
        let files = inner.handles.values().map(|handle| handle.path.display().to_string());
        files.chain(inner.locks.keys().map(|path| path.display().to_string())).collect()
    }

    /// The paths of all files, from the top, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        fn walk(disk: &Disk, dir: NodeId, path: &Path, into: &mut Vec<PathBuf>) {
            for (name, node) in disk.dirs.get(&dir).into_iter().flat_map(|dir| dir.current.iter()) {
                let path = path.join(name);
                if disk.files.contains_key(node) {
                    into.push(path);
                } else {
                    walk(disk, *node, &path, into);
                }
            }
        }
        let mut files = Vec::new();
        walk(&self.inner.lock().disk, TOP, Path::new("/"), &mut files);
        files
    }

    /// Changes the durable content of a file behind everybody's back.
    pub fn tamper(&self, path: &Path, edit: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let node = self.find_file(&inner, path)?;
        inner.disk.sync_file(node);
        if let Some(file) = inner.disk.files.get_mut(&node) {
            edit(Arc::make_mut(&mut file.durable));
            file.current = Arc::clone(&file.durable);
        }
        Ok(())
    }

    /// The folder that holds a name, and the name.
    fn parent(&self, inner: &Inner, path: &Path) -> io::Result<(NodeId, String)> {
        assert!(path.starts_with(&self.root), "path outside of the database: path={}", path.display());
        let mut names = parts(path);
        let Some(name) = names.pop() else { return Err(ErrorKind::InvalidInput.into()) };
        Ok((descend(&inner.disk, &names)?, name))
    }

    fn find(&self, inner: &Inner, path: &Path) -> io::Result<NodeId> {
        let (dir, name) = self.parent(inner, path)?;
        inner.disk.lookup(dir, &name).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn find_file(&self, inner: &Inner, path: &Path) -> io::Result<NodeId> {
        let node = self.find(inner, path)?;
        if inner.disk.files.contains_key(&node) { Ok(node) } else { Err(ErrorKind::IsADirectory.into()) }
    }

    fn find_dir(&self, inner: &Inner, path: &Path) -> io::Result<NodeId> {
        let node = self.find(inner, path)?;
        if inner.disk.dirs.contains_key(&node) { Ok(node) } else { Err(ErrorKind::NotADirectory.into()) }
    }

    fn writer(&self, inner: &mut Inner, node: NodeId, path: &Path, len: usize) -> Box<dyn WriteFile> {
        let taken = inner.handles.values().any(|handle| handle.node == node && handle.writes);
        assert!(!taken, "two writers of one file: path={}", path.display());
        let handle = inner.open(node, path, true);
        Box::new(SimFile { fs: self.clone(), path: path.to_path_buf(), node, handle, len })
    }
}

/// The names on the way to a path from the top.
fn parts(path: &Path) -> Vec<String> {
    assert!(path.has_root(), "the simulated disk knows no current folder: path={}", path.display());
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            Component::ParentDir => panic!("path with a step up: path={}", path.display()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
        })
        .collect()
}

fn descend(disk: &Disk, names: &[String]) -> io::Result<NodeId> {
    names.iter().try_fold(TOP, |dir, name| disk.lookup(dir, name).ok_or_else(|| ErrorKind::NotFound.into()))
}

impl Fs for SimFs {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let mut inner = self.inner.lock();
        inner.change_whole(Op::Create, || format!("create {}", path.display()))?;
        let (dir, name) = self.parent(&inner, path)?;
        if inner.disk.lookup(dir, &name).is_some() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let node = inner.disk.add_file(dir, &name);
        Ok(self.writer(&mut inner, node, path, 0))
    }

    fn open_append(&self, path: &Path, len: u64) -> io::Result<Box<dyn WriteFile>> {
        let mut inner = self.inner.lock();
        inner.change_whole(Op::OpenAppend, || format!("open_append {} at {len}", path.display()))?;
        let node = self.find_file(&inner, path)?;
        let found = inner.disk.files.get(&node).map_or(0, |file| file.current.len());
        let len = usize::try_from(len).map_err(|_| ErrorKind::UnexpectedEof)?;
        if found < len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        inner.disk.cut(node, len);
        Ok(self.writer(&mut inner, node, path, len))
    }

    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>> {
        let mut inner = self.inner.lock();
        inner.look(Op::OpenRead)?;
        let node = self.find_file(&inner, path)?;
        let len = inner.disk.files.get(&node).map_or(0, |file| file.current.len()) as u64;
        let handle = inner.open(node, path, false);
        Ok(Arc::new(SimReader { fs: self.clone(), node, handle, len }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut inner = self.inner.lock();
        inner.look(Op::OpenRead)?;
        let node = self.find_file(&inner, path)?;
        Ok(inner.disk.files.get(&node).map(|file| file.current.to_vec()).unwrap_or_default())
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.inner.lock();
        inner.change_whole(Op::Sync, || format!("sync {}", path.display()))?;
        let node = self.find_file(&inner, path)?;
        inner.disk.sync_file(node);
        Ok(())
    }

    fn publish(&self, tmp: &Path, path: &Path) -> io::Result<()> {
        let mut inner = self.inner.lock();
        inner.change_whole(Op::Rename, || format!("rename {} to {}", tmp.display(), path.display()))?;
        let (dir, from) = self.parent(&inner, tmp)?;
        let (to_dir, to) = self.parent(&inner, path)?;
        assert_eq!(dir, to_dir, "published into another folder: path={}", path.display());
        let node = self.find_file(&inner, tmp)?;
        let unsynced = inner.disk.is_unsynced(node) && inner.lie.is_none();
        assert!(!unsynced, "published without a sync: path={}", tmp.display());
        inner.disk.rename(dir, Some(from), Some((to, node)));
        inner.sync_dir(dir, path.parent().unwrap_or(path))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.inner.lock();
        inner.change_whole(Op::Remove, || format!("remove {}", path.display()))?;
        self.find_file(&inner, path)?;
        let (dir, name) = self.parent(&inner, path)?;
        inner.disk.rename(dir, Some(name), None);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut inner = self.inner.lock();
        // The folder above the database is the only one outside that has to be synced, for the name of the root.
        let node = if self.root.parent() == Some(dir) {
            descend(&inner.disk, &parts(dir))?
        } else {
            self.find_dir(&inner, dir)?
        };
        inner.sync_dir(node, dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut inner = self.inner.lock();
        assert!(dir.starts_with(&self.root), "path outside of the database: path={}", dir.display());
        let mut node = TOP;
        let mut path = PathBuf::from("/");
        let names = parts(dir);
        let last = names.len().saturating_sub(1);
        for (depth, name) in names.into_iter().enumerate() {
            let above = path.clone();
            path.push(&name);
            let found = inner.disk.lookup(node, &name);
            let next = match found {
                Some(next) => next,
                None => {
                    inner.change_whole(Op::Create, || format!("create_dir {}", path.display()))?;
                    inner.disk.add_dir(node, &name)
                }
            };
            if !inner.disk.dirs.contains_key(&next) {
                return Err(ErrorKind::NotADirectory.into());
            }
            if found.is_none() || depth == last {
                inner.sync_dir(node, &above)?;
            }
            node = next;
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut inner = self.inner.lock();
        inner.look(Op::List)?;
        let node = self.find_dir(&inner, dir)?;
        Ok(inner.disk.dirs.get(&node).map(|dir| dir.current.keys().cloned().collect()).unwrap_or_default())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let mut inner = self.inner.lock();
        inner.look(Op::Stat)?;
        match self.find(&inner, path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        let mut inner = self.inner.lock();
        inner.look(Op::Stat)?;
        let node = self.find_file(&inner, path)?;
        Ok(inner.disk.files.get(&node).map_or(0, |file| file.current.len()) as u64)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let mut inner = self.inner.lock();
        self.find_dir(&inner, dir)?;
        let (above, name) = self.parent(&inner, dir)?;
        inner.remove_tree(above, &name, dir)
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn FileLock>, LockError> {
        let mut inner = self.inner.lock();
        inner.change_whole(Op::Create, || format!("lock {}", path.display()))?;
        if let Some(holder) = inner.locks.get(path) {
            return Err(LockError::Held { holder: holder.clone() });
        }
        let (dir, name) = self.parent(&inner, path)?;
        let node = match inner.disk.lookup(dir, &name) {
            Some(node) => node,
            None => inner.disk.add_file(dir, &name),
        };
        inner.disk.cut(node, 0);
        inner.disk.write(node, 0, holder.as_bytes());
        inner.locks.insert(path.to_path_buf(), holder.to_owned());
        Ok(Box::new(SimLock { fs: self.clone(), path: path.to_path_buf() }))
    }
}

#[cfg(test)]
mod tests;
