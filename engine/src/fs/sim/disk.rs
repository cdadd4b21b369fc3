//! The content of a simulated disk: what is durable, what is seen, and the changes between the two.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A file or folder, whatever its names are.
pub(super) type NodeId = u64;

/// The folder `/`.
pub(super) const TOP: NodeId = 0;

#[derive(Debug, Clone)]
pub(super) struct File {
    /// What a power cut cannot take.
    pub(super) durable: Arc<Vec<u8>>,
    /// What a running process reads.
    pub(super) current: Arc<Vec<u8>>,
    /// A sync failed: what was written before it is unknown for ever.
    pub(super) sync_failed: bool,
}

type Names = BTreeMap<String, NodeId>;

#[derive(Debug, Clone, Default)]
pub(super) struct Dir {
    pub(super) durable: Arc<Names>,
    pub(super) current: Arc<Names>,
}

/// A change that is seen, but not durable yet. In the order in which they were issued.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write {
        file: NodeId,
        offset: usize,
        bytes: Arc<[u8]>,
    },
    /// The file had `from` bytes and keeps `len` of them.
    Cut {
        file: NodeId,
        from: usize,
        len: usize,
    },
    Name(NameChange),
}

/// A change of the names in one folder. Each carries what it needs to make sense without those before it.
#[derive(Debug, Clone)]
pub(super) struct NameChange {
    pub(super) dir: NodeId,
    pub(super) removed: Option<String>,
    pub(super) added: Option<(String, NodeId)>,
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        if let Some(name) = &self.removed {
            names.remove(name);
        }
        if let Some((name, node)) = &self.added {
            names.insert(name.clone(), *node);
        }
    }
}

impl Change {
    pub(super) fn file(&self) -> Option<NodeId> {
        match self {
            Change::Write { file, .. } | Change::Cut { file, .. } => Some(*file),
            Change::Name(_) => None,
        }
    }

    /// Applies a change of a file to its content.
    pub(super) fn apply_to(&self, content: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes, .. } => overlay(content, *offset, bytes),
            Change::Cut { len, .. } => content.truncate(*len),
            Change::Name(_) => {}
        }
    }
}

/// Writes `bytes` at `offset`; bytes skipped over read as zeros.
pub(super) fn overlay(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if content.len() < offset {
        content.resize(offset, 0);
    }
    let (over, behind) = bytes.split_at(bytes.len().min(content.len() - offset));
    content[offset..offset + over.len()].copy_from_slice(over);
    content.extend_from_slice(behind);
}

/// The disk. Cloning it costs as much as it has files, not bytes.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    pub(super) files: BTreeMap<NodeId, File>,
    pub(super) dirs: BTreeMap<NodeId, Dir>,
    pub(super) pending: Vec<Change>,
    next: NodeId,
}

impl Disk {
    pub(super) fn new() -> Disk {
        Disk {
            files: BTreeMap::new(),
            dirs: BTreeMap::from([(TOP, Dir::default())]),
            pending: Vec::new(),
            next: TOP + 1,
        }
    }

    /// The node of a name in a folder, as a running process sees it.
    pub(super) fn lookup(&self, dir: NodeId, name: &str) -> Option<NodeId> {
        self.dirs.get(&dir).and_then(|dir| dir.current.get(name)).copied()
    }

    pub(super) fn add_file(&mut self, dir: NodeId, name: &str) -> NodeId {
        let node = self.next;
        self.next += 1;
        let empty = Arc::new(Vec::new());
        self.files.insert(node, File { durable: Arc::clone(&empty), current: empty, sync_failed: false });
        self.rename(dir, None, Some((name.to_owned(), node)));
        node
    }

    pub(super) fn add_dir(&mut self, dir: NodeId, name: &str) -> NodeId {
        let node = self.next;
        self.next += 1;
        self.dirs.insert(node, Dir::default());
        self.rename(dir, None, Some((name.to_owned(), node)));
        node
    }

    /// Takes one name away and gives another, both or neither.
    pub(super) fn rename(&mut self, dir: NodeId, removed: Option<String>, added: Option<(String, NodeId)>) {
        let change = NameChange { dir, removed, added };
        if let Some(dir) = self.dirs.get_mut(&dir) {
            change.apply(Arc::make_mut(&mut dir.current));
        }
        self.pending.push(Change::Name(change));
    }

    pub(super) fn write(&mut self, file: NodeId, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if let Some(node) = self.files.get_mut(&file) {
            overlay(Arc::make_mut(&mut node.current), offset, bytes);
        }
        self.pending.push(Change::Write { file, offset, bytes: Arc::from(bytes) });
    }

    pub(super) fn cut(&mut self, file: NodeId, len: usize) {
        if let Some(node) = self.files.get_mut(&file) {
            let from = node.current.len();
            if from > len {
                Arc::make_mut(&mut node.current).truncate(len);
                self.pending.push(Change::Cut { file, from, len });
            }
        }
    }

    /// Makes a file's content durable, not its name.
    pub(super) fn sync_file(&mut self, file: NodeId) {
        let Some(node) = self.files.get_mut(&file) else { return };
        self.pending.retain(|change| {
            let ours = change.file() == Some(file);
            if ours {
                change.apply_to(Arc::make_mut(&mut node.durable));
            }
            !ours
        });
        if node.durable == node.current {
            node.durable = Arc::clone(&node.current);
        }
    }

    /// Makes the names in a folder durable, not what they hold.
    pub(super) fn sync_dir(&mut self, dir: NodeId) {
        self.apply_names(|change| change.dir == dir);
    }

    /// Forgets that a file has something to sync: the disk failed to take it and will not be asked again.
    pub(super) fn forget(&mut self, file: NodeId) {
        self.pending.retain(|change| change.file() != Some(file));
    }

    /// Makes those changes of names durable which `keep` picks, in order.
    pub(super) fn apply_names(&mut self, mut keep: impl FnMut(&NameChange) -> bool) {
        let dirs = &mut self.dirs;
        self.pending.retain(|change| {
            let Change::Name(change) = change else { return true };
            if !keep(change) {
                return true;
            }
            if let Some(dir) = dirs.get_mut(&change.dir) {
                change.apply(Arc::make_mut(&mut dir.durable));
            }
            false
        });
    }

    /// Whether a file has content that is not durable, or may not be.
    pub(super) fn is_unsynced(&self, file: NodeId) -> bool {
        self.files.get(&file).is_some_and(|node| node.sync_failed)
            || self.pending.iter().any(|change| change.file() == Some(file))
    }

    /// The bytes that the files seen, and those in `open`, take up.
    pub(super) fn used(&self, open: impl Iterator<Item = NodeId>) -> usize {
        let mut nodes: BTreeSet<NodeId> = open.collect();
        self.reach(TOP, |dir| &dir.current, &mut nodes);
        nodes.iter().filter_map(|node| self.files.get(node)).map(|file| file.current.len()).sum()
    }

    /// Adds every node that can be reached from `dir` by the names that `names` picks.
    fn reach(&self, dir: NodeId, names: fn(&Dir) -> &Names, into: &mut BTreeSet<NodeId>) {
        if !into.insert(dir) {
            return;
        }
        for node in self.dirs.get(&dir).into_iter().flat_map(|dir| names(dir).values()) {
            self.reach(*node, names, into);
        }
    }

    /// Forgets files and folders that no name, change, nor anything in `open` leads to, whatever a power cut may do.
    pub(super) fn collect(&mut self, open: impl Iterator<Item = NodeId>) {
        let mut live: BTreeSet<NodeId> = open.chain([TOP]).collect();
        for dir in self.dirs.values() {
            live.extend(dir.durable.values().chain(dir.current.values()));
        }
        for change in &self.pending {
            if let Change::Name(NameChange { added: Some((_, node)), .. }) = change {
                live.insert(*node);
            }
        }
        self.files.retain(|node, _| live.contains(node));
        self.dirs.retain(|node, _| live.contains(node));
        let (files, dirs) = (&self.files, &self.dirs);
        self.pending.retain(|change| match change {
            Change::Name(change) => dirs.contains_key(&change.dir),
            change => change.file().is_some_and(|file| files.contains_key(&file)),
        });
    }

    /// What is left when power comes back: the durable state, and nothing else.
    pub(super) fn restart(&mut self) {
        self.pending.clear();
        for file in self.files.values_mut() {
            file.current = Arc::clone(&file.durable);
            file.sync_failed = false;
        }
        for dir in self.dirs.values_mut() {
            dir.current = Arc::clone(&dir.durable);
        }
        let mut live = BTreeSet::new();
        self.reach(TOP, |dir| &dir.durable, &mut live);
        self.files.retain(|node, _| live.contains(node));
        self.dirs.retain(|node, _| live.contains(node));
    }
}
