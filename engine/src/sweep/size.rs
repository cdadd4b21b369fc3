//! `maxBytes`: when a collection stores more, a sweep drops the buckets of its oldest windows, expired or not.

use super::drop_edit::{DropEdit, record_by_size};
use super::plan::due_scan::{DueBucket, readable_due_buckets};
use super::plan::item::Item;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::state::CollectionState;
use ebbtide_buckets::BucketId;
use ebbtide_ttl::{COLLECTION_RULE, Code, Timestamp, Visit};
use std::collections::{BTreeMap, HashSet};

/// What has to go so that a collection takes no more than its `maxBytes`.
#[derive(Default)]
pub(crate) struct Excess {
    /// In the order in which they go.
    pub(crate) buckets: Vec<(BucketId, DueBucket)>,
    /// Segments that could not be read: what lies in their windows stays.
    pub(crate) unread: Vec<Error>,
}

/// Finds the buckets of the oldest windows over all metas without which a collection is within its `maxBytes`, if those in `gone`
/// are dropped first. The newest window is kept, and so is what a hold covers, and what may be in a segment that cannot be read.
/// Open buckets are among them if `with_open`, else they are kept. If indexes have archives, each bucket has its rule.
pub(crate) fn excess(collection: &CollectionState, gone: &[(BucketId, DueBucket)], with_open: bool) -> Result<Excess> {
    let freed: u64 = gone.iter().map(|(_, bucket)| bucket.bytes).sum();
    let mut excess = Excess::default();
    let Some(mut over) = collection.options.max_bytes.and_then(|max| {
        let over = collection.bytes().saturating_sub(freed).saturating_sub(max);
        (over > 0).then_some(over)
    }) else {
        return Ok(excess);
    };
    let mut buckets: BTreeMap<(i64, BucketId), DueBucket> = BTreeMap::new();
    let mut kept: HashSet<BucketId> = gone.iter().map(|(id, _)| id.clone()).collect();
    let mut unread_windows = Vec::new();
    let has_indexes = collection.archives().any(|archive| archive.index.is_some());
    for segment in collection.segments.values().filter(|segment| segment.live().buckets > 0) {
        let read = segment.file.reader();
        let read = read.and_then(|reader| {
            let held = collection.held_buckets(segment, &reader)?;
            let classes = has_indexes.then(|| segment.classes(&collection.rules, Some(collection.rules_epoch)));
            Ok((reader, held, classes.transpose()?))
        });
        let (reader, held, classes) = match read {
            Ok(read) => read,
            Err(error) if error.is_of_one_file() => {
                unread_windows.push((segment.live().window_start_min, segment.live().window_end_max));
                excess.unread.push(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        for (ordinal, meta, bounds) in segment.live_buckets(&reader) {
            let rule = classes.as_ref().and_then(|classes| classes.of(meta)).map_or(COLLECTION_RULE, |(rule, _)| rule);
            let id = BucketId { meta: segment.meta(&reader, ordinal), window: bounds.window };
            let number = crate::segment::ordinal_number(ordinal);
            if held.contains(number) {
                kept.insert(id.clone());
            }
            let bucket = buckets.entry((id.window.start, id)).or_insert_with(|| DueBucket::of(rule));
            bucket.pieces.push((segment.file.id, number));
            bucket.rows += bounds.rows;
            bucket.bytes += segment.share(bounds.rows);
        }
    }
    kept.extend(collection.held_open_buckets()?);
    for chunk in collection.memtable.chunks() {
        let row_bytes = crate::memtable::row_bytes(chunk);
        for open in &chunk.buckets {
            if !with_open {
                kept.insert(open.id.clone());
            }
            let key = (open.id.window.start, open.id.clone());
            let bucket = buckets.entry(key).or_insert_with(|| DueBucket::of(COLLECTION_RULE));
            bucket.rows += open.rows.len() as u64;
            bucket.bytes += open.rows.len() as u64 * row_bytes;
        }
    }
    let Some(newest) = buckets.keys().map(|(start, _)| *start).max() else { return Ok(excess) };
    for ((start, id), bucket) in buckets {
        let may_be_unread = || unread_windows.iter().any(|(from, to)| *from < id.window.end && id.window.start < *to);
        if start == newest || over == 0 {
            break;
        }
        if kept.contains(&id) || may_be_unread() {
            continue;
        }
        over = over.saturating_sub(bucket.bytes);
        excess.buckets.push((id, bucket));
    }
    Ok(excess)
}

/// Drops what makes a collection larger than its `maxBytes`, in one edit at `at`, or at `now` unless the clock guard holds the pass; returns what was dropped, and the errors about segments
/// that could not be read.
pub(super) fn enforce(
    engine: &Engine,
    id: u64,
    leave_a_core: bool,
    (now, at): (Option<Timestamp>, Timestamp),
) -> Result<(Visit, Vec<Error>)> {
    let present = || engine.state.read().by_id(id).cloned();
    let is_over = |c: &CollectionState| c.options.max_bytes.is_some_and(|max| c.bytes() > max);
    let maintenance = engine.maintenance.lock_leaving(leave_a_core);
    let Some(collection) = present().filter(|c| is_over(c)) else { return Ok((Visit::default(), Vec::new())) };
    match crate::seal::flush(engine, &maintenance, Some(&collection.name)) {
        // Dropping what is sealed makes room.
        Err(error) if error.code() == Code::OutOfDiskSpace => {
            tracing::warn!(%error, "open buckets could not be sealed before the size of a collection is enforced");
        }
        flushed => flushed?,
    }
    let Some(collection) = present() else { return Ok((Visit::default(), Vec::new())) };
    // What waits to be moved to the archive of an index frees its room later.
    let mut moved = match now {
        Some(now) if collection.archives().next().is_some() => readable_due_buckets(&collection, now)?.0,
        _ => Vec::new(),
    };
    moved.retain(|(_, bucket)| collection.archive_of(bucket.rule).is_some());
    let mut excess = excess(&collection, &moved, false)?;
    excess.buckets.retain(|(_, bucket)| collection.archive_of(bucket.rule).is_none());
    if excess.buckets.is_empty() {
        return Ok((Visit::default(), excess.unread));
    }
    let (mut visit, mut edit, mut end) = (Visit::default(), DropEdit::of(engine, &collection), i64::MIN);
    for (id, bucket) in excess.buckets {
        visit.add(&edit.add_unexpired(&Item::from(bucket))?);
        end = end.max(id.window.end);
    }
    let mut ops = Vec::new();
    let (files, pieces) = edit.edits(engine, now, &mut ops)?;
    visit.files = files;
    ops.push(record_by_size(&collection, at, end, &visit));
    pieces.commit(engine, ops)?;
    Ok((visit, excess.unread))
}
