//! Documents that are in no segment yet, and the rows of segments that they replace.

use super::memtable_index::MemtableIndexes;
use super::stored::{Entries, Stored};
use bytes::Bytes;
use ebbtide_documents::{Interval, Path};
use imbl::OrdSet;
use imbl::ordmap::DiffItem;
use roaring::RoaringBitmap;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// Approximate bytes that an entry takes in addition to its key and document.
pub(super) const ENTRY_BYTES: usize = 96;

/// A row of a segment.
pub(crate) type Row = (u64, u32);

/// A part of the memtable. Copies are cheap and independent.
#[derive(Debug, Clone, Default)]
struct Part {
    entries: Entries,
    /// Rows of segments that were replaced or removed.
    superseded: OrdSet<Row>,
    bytes: usize,
}

impl Part {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.superseded.is_empty()
    }

    fn set(&mut self, key: Bytes, entry: Option<Stored>) -> Option<Option<Stored>> {
        self.bytes += entry_bytes(&key, entry.as_ref());
        let old = self.entries.insert(key.clone(), entry)?;
        self.bytes = self.bytes.saturating_sub(entry_bytes(&key, old.as_ref()));
        Some(old)
    }

    fn unset(&mut self, key: &[u8]) -> Option<Option<Stored>> {
        let (key, old) = self.entries.remove_with_key(key)?;
        self.bytes = self.bytes.saturating_sub(entry_bytes(&key, old.as_ref()));
        Some(old)
    }
}

fn entry_bytes(key: &Bytes, entry: Option<&Stored>) -> usize {
    ENTRY_BYTES + key.len() + entry.map_or(0, |stored| stored.document.len())
}

/// Documents of one collection that are in no segment. Copies are cheap and independent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memtable {
    /// What commands have done whose records are not durable yet: only in the copy on which they are evaluated. So the rest of the
    /// copy stays as it is, and shares all of its memory with the original.
    group: Option<Group>,
    active: Part,
    /// What is being sealed: visible, but no longer changed.
    frozen: Part,
    /// The first record whose effect is only here.
    oldest_seq: Option<u64>,
    /// The indexes of the active part, and of the frozen one.
    active_indexes: Arc<MemtableIndexes>,
    frozen_indexes: Arc<MemtableIndexes>,
}

/// What a group of commands has done.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    part: Part,
    first_seq: Option<u64>,
}

impl Group {
    /// How many changes it is, about.
    pub(crate) fn len(&self) -> usize {
        self.part.entries.len() + self.part.superseded.len()
    }
}

/// What a change of the memtable replaced.
#[derive(Debug)]
pub(crate) struct Replaced {
    /// The entry of the key in the newest part, if it had one.
    entry: Option<Option<Stored>>,
    /// The row that the change marked as replaced.
    marked: Option<Row>,
}

/// What the memtable knows of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Known {
    /// It has this document.
    Document(Stored),
    /// It was removed: no segment has a live row of it either.
    Removed,
    /// Nothing: a segment may have it.
    Nothing,
}

impl Memtable {
    /// Begins a group: what is written from now on stays apart until it is taken.
    pub(crate) fn begin_group(&mut self) {
        self.group = Some(Group::default());
    }

    /// What was written since the group began.
    pub(crate) fn take_group(&mut self) -> Group {
        self.group.take().unwrap_or_default()
    }

    /// Adds what a group has done.
    pub(crate) fn add_group(&mut self, group: Group) {
        for (key, entry) in group.part.entries {
            match entry {
                None if !self.frozen.entries.contains_key(&key) => self.active.unset(&key),
                entry => self.active.set(key, entry),
            };
        }
        self.active.superseded.extend(group.part.superseded);
        group.first_seq.into_iter().for_each(|seq| self.note(seq));
    }

    /// The parts, the newest first.
    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.group.iter().map(|group| &group.part).chain([&self.active, &self.frozen])
    }

    /// The part that is written to.
    fn newest(&mut self) -> &mut Part {
        self.group.as_mut().map_or(&mut self.active, |group| &mut group.part)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.parts().map(|part| part.bytes).sum()
    }

    pub(crate) fn oldest_seq(&self) -> Option<u64> {
        self.oldest_seq
    }

    pub(crate) fn get(&self, key: &[u8]) -> Known {
        match self.parts().find_map(|part| part.entries.get(key)) {
            Some(Some(stored)) => Known::Document(stored.clone()),
            Some(None) => Known::Removed,
            None => Known::Nothing,
        }
    }

    /// The documents, in the order of their keys.
    pub(crate) fn documents(&self) -> impl Iterator<Item = (&Bytes, &Stored)> {
        self.documents_after(None)
    }

    /// The documents whose keys are greater than this one, in the order of their keys.
    pub(crate) fn documents_after(&self, after: Option<&Bytes>) -> impl Iterator<Item = (&Bytes, &Stored)> {
        let start = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let range = (start, Bound::Unbounded);
        let (active, frozen) = (&self.active.entries, &self.frozen.entries);
        let older = frozen.range(range.clone()).filter(|(key, _)| !active.contains_key(*key));
        let group = self.group.as_ref().map(|group| &group.part.entries);
        let settled = merge(active.range(range.clone()), older);
        let settled = settled.filter(move |(key, _)| group.is_none_or(|group| !group.contains_key(*key)));
        let of_group = group.into_iter().flat_map(move |group| group.range(range.clone()));
        merge(of_group, settled).filter_map(|(key, entry)| Some((key, entry.as_ref()?)))
    }

    /// The documents that may have a value of the path in one of the intervals, in the order of their keys.
    pub(crate) fn documents_by_index(&self, path: &Path, intervals: &[Interval]) -> Vec<(Bytes, Stored)> {
        let mut keys = BTreeSet::new();
        let parts = [(&self.active, &self.active_indexes), (&self.frozen, &self.frozen_indexes)];
        parts.iter().for_each(|(part, indexes)| indexes.find(&part.entries, path, intervals, &mut keys));
        keys.extend(self.group.iter().flat_map(|group| group.part.entries.keys().cloned()));
        let document = |key: Bytes| match self.get(&key) {
            Known::Document(stored) => Some((key, stored)),
            Known::Removed | Known::Nothing => None,
        };
        keys.into_iter().filter_map(document).collect()
    }

    /// Bytes in memory of an index on a path.
    pub(crate) fn index_bytes(&self, path: &str) -> usize {
        self.active_indexes.bytes(path) + self.frozen_indexes.bytes(path)
    }

    /// Forgets what indexes on other paths than these say.
    pub(crate) fn forget_indexes_but(&self, paths: &[&str]) {
        self.active_indexes.forget_but(paths);
        self.frozen_indexes.forget_but(paths);
    }

    /// The keys that have other entries than in an earlier version, in which no group had begun; `None` if entries were frozen or
    /// sealed since. A document of a segment that was removed has no entry: its row is superseded.
    pub(crate) fn changed_since(&self, before: &Memtable) -> Option<BTreeSet<Bytes>> {
        if before.frozen.entries.diff(&self.frozen.entries).next().is_some() {
            return None;
        }
        let changed = before.active.entries.diff(&self.active.entries).map(|item| match item {
            DiffItem::Add(key, _) | DiffItem::Update { new: (key, _), .. } => key.clone(),
            DiffItem::Remove(key, _) => key.clone(),
        });
        let of_group = self.group.iter().flat_map(|group| group.part.entries.keys().cloned());
        Some(changed.chain(of_group).collect())
    }

    /// Whether a row of a segment was replaced or removed.
    pub(crate) fn is_superseded(&self, row: Row) -> bool {
        self.parts().any(|part| part.superseded.contains(&row))
    }

    /// The rows of a segment that were replaced or removed.
    pub(crate) fn superseded(&self, segment: u64) -> RoaringBitmap {
        let range = (segment, 0)..=(segment, u32::MAX);
        let of = |part: &Part| part.superseded.range(range.clone()).map(|row| row.1).collect::<RoaringBitmap>();
        self.parts().map(of).fold(RoaringBitmap::new(), |all, part| all | part)
    }

    /// Notes that the effect of record `seq` is in here.
    pub(crate) fn note(&mut self, seq: u64) {
        let oldest = self.group.as_mut().map_or(&mut self.oldest_seq, |group| &mut group.first_seq);
        oldest.get_or_insert(seq);
    }

    /// Puts a document in the place of the one with this key, which is `old` if a segment has it.
    pub(crate) fn put(&mut self, key: Bytes, stored: Stored, old: Option<Row>) -> Replaced {
        let marked = self.supersede(old);
        Replaced { entry: self.newest().set(key, Some(stored)), marked }
    }

    /// Removes the document with this key, which is `old` if a segment has it.
    pub(crate) fn remove(&mut self, key: &[u8], old: Option<Row>) -> Replaced {
        let marked = self.supersede(old);
        let is_below = match &self.group {
            Some(_) => [&self.active, &self.frozen].iter().any(|part| part.entries.contains_key(key)),
            None => self.frozen.entries.contains_key(key),
        };
        let entry = match is_below {
            true => self.newest().set(Bytes::copy_from_slice(key), None),
            false => self.newest().unset(key),
        };
        Replaced { entry, marked }
    }

    /// Takes back the newest change of a key.
    pub(crate) fn put_back(&mut self, key: Bytes, replaced: Replaced) {
        let part = self.newest();
        match replaced.entry {
            Some(entry) => part.set(key, entry),
            None => part.unset(&key),
        };
        if let Some(row) = replaced.marked {
            part.superseded.remove(&row);
        }
    }

    /// Marks a row as replaced; returns it unless it was marked already.
    fn supersede(&mut self, row: Option<Row>) -> Option<Row> {
        row.filter(|row| self.newest().superseded.insert(*row).is_none())
    }

    /// Moves everything to the frozen part, to be sealed.
    pub(crate) fn freeze(&mut self) {
        let indexes = std::mem::take(&mut self.active_indexes);
        if self.frozen.is_empty() {
            self.frozen = std::mem::take(&mut self.active);
            self.frozen_indexes = indexes;
            return;
        }
        // The seal before this one failed.
        let active = std::mem::take(&mut self.active);
        for (key, entry) in &active.entries {
            self.frozen.set(key.clone(), entry.clone());
        }
        self.frozen.superseded.extend(active.superseded.iter().copied());
    }

    /// What is being sealed: documents in the order of their keys.
    pub(crate) fn frozen_documents(&self) -> impl Iterator<Item = (&Bytes, &Stored)> {
        self.frozen.entries.iter().filter_map(|(key, entry)| Some((key, entry.as_ref()?)))
    }

    /// The rows that become durably deleted with the frozen part.
    pub(crate) fn frozen_superseded(&self) -> impl Iterator<Item = Row> {
        self.frozen.superseded.iter().copied()
    }

    pub(crate) fn is_frozen_empty(&self) -> bool {
        self.frozen.is_empty()
    }

    /// Whether a key has been written or removed since the freeze.
    pub(crate) fn changed_since_freeze(&self, key: &[u8]) -> bool {
        self.active.entries.contains_key(key)
    }

    /// Rows of segments that writers have replaced since the last freeze.
    pub(crate) fn active_superseded(&self) -> impl Iterator<Item = Row> {
        self.active.superseded.iter().copied()
    }

    /// Marks rows as replaced, or takes marks back.
    pub(crate) fn mark(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.active.superseded.extend(rows);
    }

    pub(crate) fn unmark(&mut self, rows: impl IntoIterator<Item = Row>) {
        for row in rows {
            self.active.superseded.remove(&row);
        }
    }

    /// Drops the frozen part, which is sealed. `next_seq` is the first record that is not.
    pub(crate) fn sealed(&mut self, next_seq: u64) {
        self.frozen = Part::default();
        self.frozen_indexes = Arc::default();
        self.oldest_seq = (!self.active.is_empty()).then_some(next_seq);
    }
}

/// Merges two ascending sequences without common keys.
fn merge<'a, V: 'a>(
    a: impl Iterator<Item = (&'a Bytes, V)>,
    b: impl Iterator<Item = (&'a Bytes, V)>,
) -> impl Iterator<Item = (&'a Bytes, V)> {
    let (mut a, mut b) = (a.peekable(), b.peekable());
    std::iter::from_fn(move || match (a.peek(), b.peek()) {
        (Some((x, _)), Some((y, _))) => {
            if x <= y {
                a.next()
            } else {
                b.next()
            }
        }
        (Some(_), None) => a.next(),
        (None, _) => b.next(),
    })
}

#[cfg(test)]
mod tests;
