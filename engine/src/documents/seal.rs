//! Sealing: documents of the memtable become segments.

use super::memtable::Row;
use super::segment::{DocumentSegment, DocumentSegmentRecord, row_number};
use super::state::DocumentsState;
use super::stored::{Stored, raw};
use crate::engine::{Engine, Log};
use crate::error::{Error, Result};
use crate::files::{FileName, SegmentName};
use crate::fs::{WriteFile, create_anew};
use crate::manifest::Op;
use crate::sync::Guard;
use bytes::Bytes;
use ebbtide_buckets::{KeyedRow, KeyedWriter};
use ebbtide_documents::{DefaultTtl, ItemTtl, without_id};
use ebbtide_ttl::Precision;
use roaring::RoaringBitmap;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Groups with fewer documents are sealed together with the following ones: many small files cost more than they save at
/// expiry.
const GROUP_ROWS_MIN: usize = 4096;
/// Number of groups into which the lives of about one length are divided.
const GROUPS_PER_LIFE: i64 = 16;
/// The life by which segments are grouped of which only the ends of lives are known: 16 hours, and so parts of an hour.
const LIFE_OF_ITEMS: i64 = 16 * 3_600_000;
/// A segment has at most about this many bytes of documents: 512 MiB.
pub(super) const SEGMENT_BYTES_MAX: usize = 512 << 20;

/// What expires together lies together: documents of one group have lives of about one length, and expire at about one time.
/// The last group never expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Expiring {
    /// The binary order of magnitude of the life, and the part of time in which it ends.
    Within(u32, i64),
    Never,
}

impl Expiring {
    pub(super) fn of(state: &DocumentsState, stored: &Stored) -> Expiring {
        let expiry = state.rules.expires_at(raw(&stored.document), stored.written);
        let Some((at, _)) = expiry else { return Expiring::Never };
        Expiring::at(at.to_units_saturating(Precision::Ms), stored.written)
    }

    fn at(at: i64, written: i64) -> Expiring {
        let magnitude = at.saturating_sub(written).max(1).ilog2();
        let width = ((1_i64 << magnitude) / GROUPS_PER_LIFE).max(1);
        Expiring::Within(magnitude, at.div_euclid(width))
    }

    /// The group of a segment's last document, as far as the lives of items tell; `Never` if they do not.
    pub(super) fn of_segment(state: &DocumentsState, segment: &DocumentSegment) -> Expiring {
        let default_ttl = state.options.default_ttl;
        match (segment.last_item_expiry(default_ttl), default_ttl) {
            (None, _) => Expiring::Never,
            (Some(at), DefaultTtl::Seconds(n)) => {
                Expiring::at(at, at.saturating_sub(i64::from(n).saturating_mul(1000)))
            }
            (Some(at), _) => Expiring::at(at, at.saturating_sub(LIFE_OF_ITEMS)),
        }
    }
}

/// Seals the documents of one collection.
pub(crate) fn flush(engine: &Engine, name: &str) -> Result<()> {
    let _span = tracing::debug_span!("seal", collection = name).entered();
    let (seq, collection) = {
        // Without the log's lock a command that is being evaluated would bring back what is frozen.
        let _log = engine.log.lock();
        let mut state = engine.state.write();
        let seq = state.applied_seq;
        let id = state.documents.get(name).ok_or_else(|| Error::no_collection(name))?.id;
        let Some(documents) = state.documents_by_id_mut(id) else { return Err(Error::no_collection(name)) };
        documents.memtable.freeze();
        (seq, documents.clone())
    };
    if collection.memtable.is_frozen_empty() {
        return Ok(());
    }
    // What is sealed must not be newer than what the log keeps of other collections.
    engine.sync_log()?;
    let mut output = Output::new(engine, &collection);
    let groups = groups(&collection, collection.memtable.frozen_documents());
    let sealed = write(&mut output, groups).and_then(|places| {
        output.sync()?;
        let mut ops = output.additions();
        ops.extend(removals(&collection, collection.memtable.frozen_superseded()));
        ops.extend(collection.new_columns());
        ops.push(Op::Sealed { collection: collection.id, seq });
        let log = engine.log.lock();
        // What was written or removed since the freeze replaces the rows that were sealed.
        let present = present(engine, &collection)?;
        let replaced = places.into_iter().filter(|(key, _)| present.memtable.changed_since_freeze(key));
        let replaced: Vec<Row> = replaced.map(|(_, place)| output.row_at(place)).collect::<Result<_>>()?;
        commit_marked(engine, &collection, &log, ops, &replaced)
    });
    if let Err(error) = sealed {
        output.take_back();
        return Err(error);
    }
    engine.metrics.sealed();
    Ok(())
}

fn present(engine: &Engine, collection: &DocumentsState) -> Result<Arc<DocumentsState>> {
    let present = engine.state.read().documents_by_id(collection.id).cloned();
    present.ok_or_else(|| Error::internal("a collection was dropped beside the maintenance lock"))
}

/// Commits an edit that adds segments, some rows of which writers have replaced meanwhile. The marks are there before the rows
/// are, and are taken back if the edit is refused. The log's lock keeps writers out.
pub(super) fn commit_marked(
    engine: &Engine,
    collection: &DocumentsState,
    _log: &Guard<'_, Log>,
    ops: Vec<Op>,
    replaced: &[Row],
) -> Result<()> {
    let change = |rows: &[Row], marks: bool| {
        if rows.is_empty() {
            return;
        }
        if let Some(documents) = engine.state.write().documents_by_id_mut(collection.id) {
            let rows = rows.iter().copied();
            if marks { documents.memtable.mark(rows) } else { documents.memtable.unmark(rows) }
        }
    };
    change(replaced, true);
    engine.commit(ops).inspect_err(|_| change(replaced, false))
}

/// The operations that make rows durably gone.
pub(super) fn removals(collection: &DocumentsState, rows: impl Iterator<Item = Row>) -> Vec<Op> {
    let mut by_segment: BTreeMap<u64, RoaringBitmap> = BTreeMap::new();
    for (segment, row) in rows {
        by_segment.entry(segment).or_default().insert(row);
    }
    let op = |(id, rows): (u64, RoaringBitmap)| {
        // A segment that was dropped as a whole needs no marks.
        let segment = collection.segments.get(&id)?;
        let deleted = &segment.deleted | rows;
        let collection = collection.id;
        Some(match deleted.len() >= segment.file.meta.rows {
            true => Op::RemoveSegment { collection, segment: id },
            false => Op::SetDeletedDocuments { collection, segment: id, deleted },
        })
    };
    by_segment.into_iter().filter_map(op).collect()
}

/// Documents that lie together, each group in the order of its keys: what expires at about one time.
pub(super) fn groups<'a>(
    collection: &DocumentsState,
    documents: impl Iterator<Item = (&'a Bytes, &'a Stored)>,
) -> Vec<Vec<(Bytes, Stored)>> {
    let mut alike: BTreeMap<Expiring, Vec<(Bytes, Stored)>> = BTreeMap::new();
    for (key, stored) in documents {
        alike.entry(Expiring::of(collection, stored)).or_default().push((key.clone(), stored.clone()));
    }
    let (mut groups, mut group) = (Vec::new(), Vec::new());
    let mut alike = alike.into_iter().peekable();
    while let Some((expiring, more)) = alike.next() {
        group.extend(more);
        let next_may_join =
            alike.peek().is_some_and(|(next, _)| (*next == Expiring::Never) == (expiring == Expiring::Never));
        if group.len() < GROUP_ROWS_MIN && next_may_join {
            continue;
        }
        group.sort_by(|a: &(Bytes, Stored), b| a.0.cmp(&b.0));
        groups.push(std::mem::take(&mut group));
    }
    groups
}

/// Writes groups as segments; returns where each document is.
fn write(output: &mut Output<'_>, groups: Vec<Vec<(Bytes, Stored)>>) -> Result<Vec<(Bytes, Place)>> {
    let mut places = Vec::with_capacity(groups.iter().map(Vec::len).sum());
    for group in groups {
        for (key, stored) in group {
            let ttl = match ItemTtl::of(raw(&stored.document)) {
                ItemTtl::Never => Some(-1),
                ItemTtl::Seconds(n) => Some(i64::from(n)),
                ItemTtl::Inherit | ItemTtl::Invalid => None,
            };
            let document = without_id(&stored.document, &key);
            let place = output.push(KeyedRow { key: &key, written: stored.written, ttl, document: &document })?;
            places.push((key, place));
        }
        output.finish_file()?;
    }
    Ok(places)
}

/// A row of a segment that is being written: the index of its file, and its number there.
pub(super) type Place = (usize, u32);

/// The path of a segment.
fn path_in(collection: &DocumentsState, id: u64) -> PathBuf {
    FileName::Segment(SegmentName { generation: Some(0), id }).path(collection.folder.path())
}

/// A file that is being written.
struct OpenFile {
    id: u64,
    path: PathBuf,
    file: Box<dyn WriteFile>,
}

/// Segments that are being written. They are durable, but not part of the state until the edits that add them are committed.
pub(super) struct Output<'a> {
    engine: &'a Engine,
    collection: &'a DocumentsState,
    writer: Option<KeyedWriter>,
    /// The present file, once some of it is written.
    file: Option<OpenFile>,
    bytes: usize,
    written: Vec<DocumentSegmentRecord>,
}

impl<'a> Output<'a> {
    pub(super) fn new(engine: &'a Engine, collection: &'a DocumentsState) -> Self {
        Output { engine, collection, writer: None, file: None, bytes: 0, written: Vec::new() }
    }

    /// Appends a row; keys ascend within a file. Returns where it is.
    pub(super) fn push(&mut self, row: KeyedRow<'_>) -> Result<Place> {
        let rows_max = self.engine.settings.segment_rows_max as u64;
        if self.writer.as_ref().is_some_and(|writer| writer.rows() >= rows_max) || self.bytes >= SEGMENT_BYTES_MAX {
            self.finish_file()?;
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(KeyedWriter::new()?),
        };
        let number = row_number(writer.rows())?;
        writer.push(row)?;
        self.bytes += row.key.len() + row.document.len();
        let complete = writer.take_complete()?;
        if !complete.is_empty() {
            self.append(&complete)?;
        }
        Ok((self.written.len(), number))
    }

    /// Appends to the present file, which is created if there is none.
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let fs = self.engine.fs.as_ref();
        let failed = |path: &Path, error| Error::io("write the segment", path, &error);
        let open = match &mut self.file {
            Some(open) => open,
            none => {
                self.collection.folder.prepare()?;
                let id = {
                    let mut state = self.engine.state.write();
                    state.next_segment += 1;
                    state.next_segment - 1
                };
                let path = path_in(self.collection, id);
                let file = create_anew(fs, &path).map_err(|error| failed(&path, error))?;
                none.insert(OpenFile { id, path, file })
            }
        };
        open.file.append(bytes).map_err(|error| failed(&open.path, error))
    }

    /// Ends the present file, if there is one.
    pub(super) fn finish_file(&mut self) -> Result<()> {
        self.bytes = 0;
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let (rest, meta) = writer.finish()?;
        self.append(&rest)?;
        let Some(open) = &mut self.file else { return Err(Error::internal("a segment without a file")) };
        open.file.sync().map_err(|error| Error::io("write the segment", &open.path, &error))?;
        let id = open.id;
        self.file = None;
        self.engine.metrics.segment_written(meta.bytes);
        self.written.push(DocumentSegmentRecord { id, meta, deleted: RoaringBitmap::new() });
        Ok(())
    }

    /// Makes the names of the files durable.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.finish_file()?;
        if self.written.is_empty() {
            return Ok(());
        }
        let folder = self.collection.folder.path();
        let synced = self.engine.fs.sync_dir(folder);
        synced.map_err(|e| self.engine.poison(&Error::io("sync the folder", folder, &e)))
    }

    /// The operations that add the segments.
    pub(super) fn additions(&self) -> Vec<Op> {
        let collection = self.collection.id;
        let added = |segment: &DocumentSegmentRecord| Op::AddDocumentSegment { collection, segment: segment.clone() };
        self.written.iter().map(added).collect()
    }

    /// The ids of the segments.
    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.written.iter().map(|segment| segment.id)
    }

    /// The row that was written at a place.
    pub(super) fn row_at(&self, (file, row): Place) -> Result<Row> {
        let segment = self.written.get(file).ok_or_else(|| Error::internal("a segment was not written"))?;
        Ok((segment.id, row))
    }

    /// Removes the files again, unless the manifest may name them.
    pub(super) fn take_back(&mut self) {
        if self.engine.poisoned().is_some() {
            return;
        }
        let open = self.file.take().map(|open| open.path);
        let written: Vec<PathBuf> = self.written.iter().map(|segment| path_in(self.collection, segment.id)).collect();
        for path in written.into_iter().chain(open) {
            let taken_back = self.engine.fs.remove(&path);
            tracing::debug!(path = %path.display(), ?taken_back, "took back a segment that was not committed");
        }
    }
}
