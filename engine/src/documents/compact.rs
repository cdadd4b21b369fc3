//! Compaction: merges small segments, and rewrites those that have lost most of their documents.

use super::memtable::Row;
use super::seal::{Expiring, Output, Place, SEGMENT_BYTES_MAX, commit_marked};
use super::segment::DocumentSegment;
use super::state::DocumentsState;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::manifest::Op;
use bytes::Bytes;
use ebbtide_buckets::{KeyedBlock, KeyedColumns, KeyedRow};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;

/// Segments of about one size are merged once there are this many: a look-up by key asks every segment.
const ALIKE_MAX: usize = 4;

/// Merges segments of about one size and life, and rewrites worn ones. `thorough` merges from two on.
///
/// A segment that cannot be read stays as it is; the error about the first of them comes when all else is done.
pub(crate) fn compact(engine: &Engine, name: &str, thorough: bool) -> Result<()> {
    let limits = Limits { rows: engine.settings.segment_rows_max as u64, bytes: SEGMENT_BYTES_MAX as u64 };
    let mut unread = None;
    let mut left = Vec::new();
    loop {
        let collection = engine.state.read().documents.get(name).cloned();
        let collection = collection.ok_or_else(|| Error::no_collection(name))?;
        if !collection.memtable.is_frozen_empty() {
            return Ok(()); // A seal failed: its marks are not durable yet.
        }
        let Some(group) = candidates(&collection, limits, thorough, &left).into_iter().next() else { break };
        match merge(engine, &collection, &group) {
            Err(error) if error.is_of_one_file() => {
                tracing::error!(collection = name, %error, "segments cannot be compacted");
                left.extend(group.iter().map(|segment| segment.id()));
                unread.get_or_insert(error);
            }
            merged => {
                let written = merged?;
                if written.len() >= group.len() && group.len() > 1 {
                    left.extend(written); // They are too large for one segment.
                }
                engine.metrics.compacted();
            }
        }
    }
    unread.map_or(Ok(()), Err)
}

/// Groups of segments that are worth being rewritten as one. What is merged fits into one segment, so that every merge leaves
/// fewer segments.
fn candidates(collection: &DocumentsState, limits: Limits, thorough: bool, left: &[u64]) -> Vec<Group> {
    let mut alike: BTreeMap<(Expiring, u32), Group> = BTreeMap::new();
    let mut chosen: Vec<Group> = Vec::new();
    for segment in collection.segments.values().filter(|segment| !left.contains(&segment.id())) {
        let rows = segment.live_rows();
        if segment.file.meta.rows > rows * 2 {
            chosen.push(vec![segment.clone()]);
        } else if rows < limits.rows {
            let size = if thorough { 0 } else { rows.max(1).ilog(4) };
            alike.entry((Expiring::of_segment(collection, segment), size)).or_default().push(segment.clone());
        }
    }
    let least = if thorough { 2 } else { ALIKE_MAX };
    chosen.extend(alike.into_values().flat_map(|group| portions(group, limits)).filter(|group| group.len() >= least));
    chosen
}

/// How much one segment holds.
#[derive(Clone, Copy)]
struct Limits {
    rows: u64,
    bytes: u64,
}

type Group = Vec<Arc<DocumentSegment>>;

/// Splits a group into parts that fit into one segment each.
fn portions(mut group: Group, limits: Limits) -> Vec<Group> {
    group.sort_by_key(|segment| segment.live_rows());
    let mut portions: Vec<(u64, u64, Group)> = Vec::new();
    for segment in group {
        // Documents are compressed to a quarter and less of their bytes.
        let (rows, bytes) = (segment.live_rows(), segment.file.meta.bytes.saturating_mul(4));
        match portions.last_mut() {
            Some((sum, size, portion)) if *sum + rows <= limits.rows && *size + bytes <= limits.bytes => {
                *sum += rows;
                *size += bytes;
                portion.push(segment);
            }
            _ => portions.push((rows, bytes, vec![segment])),
        }
    }
    portions.into_iter().map(|(_, _, portion)| portion).collect()
}

/// Where a row of a merged segment went.
type Moved = HashMap<u64, Vec<Option<Place>>>;

/// Rewrites segments as one; returns the ids of what was written.
fn merge(engine: &Engine, collection: &DocumentsState, group: &[Arc<DocumentSegment>]) -> Result<Vec<u64>> {
    let _span = tracing::debug_span!("compact", collection = %collection.name, segments = group.len()).entered();
    let mut output = Output::new(engine, collection);
    let merged = write(collection, group, &mut output).and_then(|moved| {
        output.sync()?;
        let mut ops = output.additions();
        ops.extend(group.iter().map(|s| Op::RemoveSegment { collection: collection.id, segment: s.id() }));
        let log = engine.log.lock();
        // What writers have replaced meanwhile is replaced in the new segments too.
        let present = engine.state.read().documents_by_id(collection.id).cloned();
        let present = present.ok_or_else(|| Error::internal("a collection was dropped beside the maintenance lock"))?;
        let mut replaced: Vec<Row> = Vec::new();
        for (segment, row) in present.memtable.active_superseded() {
            let place = moved.get(&segment).and_then(|rows| rows.get(usize::try_from(row).ok()?).copied().flatten());
            if let Some(place) = place {
                replaced.push(output.row_at(place)?);
            }
        }
        commit_marked(engine, collection, &log, ops, &replaced)
    });
    merged.inspect_err(|_| output.take_back())?;
    Ok(output.ids().collect())
}

/// Writes all rows that are not durably gone. Rows that writers have replaced are kept: the documents that replace them may be
/// lost with the end of the log.
fn write(collection: &DocumentsState, group: &[Arc<DocumentSegment>], output: &mut Output<'_>) -> Result<Moved> {
    let mut moved: Moved = HashMap::new();
    let mut readers = Vec::new();
    let mut heads: BinaryHeap<Reverse<(Bytes, usize, u32)>> = BinaryHeap::new();
    for (number, segment) in group.iter().enumerate() {
        let rows = usize::try_from(segment.file.meta.rows).unwrap_or(usize::MAX);
        moved.insert(segment.id(), vec![None; rows]);
        let columns = KeyedColumns { keys: true, documents: true };
        let blocks = segment.file.reader()?.scan(&segment.deleted, 0..u32::MAX, columns);
        let mut reader = RowReader { id: segment.id(), blocks, block: Vec::new().into_iter(), head: None };
        if let Some((row, key)) = reader.advance()? {
            heads.push(Reverse((key, number, row)));
        }
        readers.push(reader);
    }
    let mut before: Option<Bytes> = None;
    while let Some(Reverse((key, number, row))) = heads.pop() {
        let reader = &mut readers[number];
        let (written, ttl, document) = reader.head.take().ok_or_else(|| Error::internal("a row without a document"))?;
        if let Some((next_row, next)) = reader.advance()? {
            heads.push(Reverse((next, number, next_row)));
        }
        if before.as_ref() == Some(&key) {
            return Err(Error::corrupt(collection.folder.path(), 0, "two segments hold a document with the same _id"));
        }
        before = Some(key.clone());
        let place = output.push(KeyedRow { key: &key, written, ttl, document: &document })?;
        let rows = moved.get_mut(&readers[number].id);
        if let Some(moved) = rows.and_then(|rows| rows.get_mut(usize::try_from(row).ok()?)) {
            *moved = Some(place);
        }
    }
    Ok(moved)
}

/// The rows of one segment, one at a time.
struct RowReader<B> {
    id: u64,
    blocks: B,
    block: std::vec::IntoIter<(u32, Bytes, Rest)>,
    head: Option<Rest>,
}

/// The rest of a row: when it was written, how long it lives, and the document as it is in the segment.
type Rest = (i64, Option<i64>, Bytes);

impl<B: Iterator<Item = std::result::Result<KeyedBlock, ebbtide_buckets::SegmentError>>> RowReader<B> {
    /// Makes the next row the head; returns its number and key.
    fn advance(&mut self) -> Result<Option<(u32, Bytes)>> {
        loop {
            if let Some((row, key, rest)) = self.block.next() {
                self.head = Some(rest);
                return Ok(Some((row, key)));
            }
            let Some(block) = self.blocks.next() else { return Ok(None) };
            let block = block?;
            let rest = block.written.into_iter().zip(block.ttls).zip(block.documents);
            let rows = block.rows.into_iter().zip(block.keys).zip(rest);
            let rows: Vec<_> =
                rows.map(|((row, key), ((written, ttl), document))| (row, key, (written, ttl, document))).collect();
            self.block = rows.into_iter();
        }
    }
}
