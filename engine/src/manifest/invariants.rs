//! Invariants of every edit.
//!
//! An edit is checked before it is written: a durable wrong edit is a damaged database, which would not be noticed until the
//! next open. It is checked again when it is read: an edit that was forged, or written by a faulty program, is damage whatever
//! its checksum says. `State::check` compares an edit with the state that it changes.

use super::op::{CollectionRecord, Op};
use crate::archive::check_url;
use crate::documents::segment::DocumentSegmentRecord;
use crate::files::{NUMBER_END, collection_of};
use crate::holds::check_hold_name;
use crate::ladder::rung_of;
use crate::options::{MAX_BYTES_MAX, check_collection_name, check_grace, check_view};
use crate::requests::known::REQUESTS;
use crate::segment::bounds::{ChangedBucket, LiveSummary, SegmentRecord, SegmentState};
use ebbtide_buckets::SegmentMeta;
use ebbtide_ttl::{EXPIRE_AFTER_SECONDS_MAX, checked_index_name};
use std::collections::BTreeSet;

/// `Err` says what is wrong.
pub(crate) type Check = std::result::Result<(), String>;

/// Checks an edit.
pub(crate) fn check_edit(edit: &[Op]) -> Check {
    edit.iter().try_for_each(check_op)?;
    changes_each_segment_once(edit)
}

/// Checks the edit that makes a whole state.
pub(crate) fn check_checkpoint(edit: &[Op]) -> Check {
    edit.iter().try_for_each(check_op)?;
    changes_each_segment_once(edit)?;
    builds_a_state(edit)
}

fn check_op(op: &Op) -> Check {
    match op {
        Op::NextIds { collection, segment, seq } => numbers_are_possible(&[*collection, *segment, *seq]),
        Op::PutCollection(record) => {
            numbers_have_successors(&[record.id, record.sealed_seq, record.rules_epoch])?;
            collection_fits_together(record)
        }
        Op::DropCollection { id } => numbers_have_successors(&[*id]),
        Op::SetSchema { collection, .. } | Op::SetLastBatch { collection, .. } => {
            numbers_have_successors(&[*collection])
        }
        Op::SetFileTypes { collection, types } | Op::ReplaceFields { collection, types, .. } => {
            numbers_have_successors(&[*collection])?;
            types.fault().map_or(Ok(()), Err)
        }
        Op::AddSegment { collection, segment } | Op::AddSegmentInFolder { collection, segment, .. } => {
            numbers_have_successors(&[*collection, segment.id, segment.meta.bytes])?;
            segment_fits_together(&segment.meta, &segment.state).map_err(|what| of_segment(segment, &what))
        }
        Op::SetSegment { collection, segment, state } => {
            numbers_have_successors(&[*collection, *segment])?;
            changed_buckets_are_in_order(state)?;
            live_is_possible(&state.live)
        }
        Op::DropBuckets { collection, segment, live, .. } => {
            numbers_have_successors(&[*collection, *segment])?;
            live_is_possible(live)
        }
        Op::RemoveSegment { collection, segment } => numbers_have_successors(&[*collection, *segment]),
        Op::Sealed { collection, seq } => numbers_have_successors(&[*collection, *seq]),
        Op::AddLog { first_seq } | Op::RemoveLog { first_seq } => numbers_are_possible(&[*first_seq]),
        Op::Swept(_) => Ok(()),
        Op::PutView { name, text } => check_view(name, text).map_err(|e| e.to_string()),
        Op::DropView { .. } => Ok(()),
        Op::RenameCollection { id, name } => {
            numbers_have_successors(&[*id])?;
            check_collection_name(name).map_err(|e| e.to_string())
        }
        Op::SetFolder { collection, folder } if collection_of(folder) != Some(*collection) => {
            Err(format!("'{}' is not the folder of collection {collection}", folder.escape_debug()))
        }
        Op::SetFolder { collection, .. } => numbers_have_successors(&[*collection]),
        Op::PutDocuments(record) => {
            numbers_have_successors(&[record.id, record.sealed_seq, record.rules_epoch])?;
            let named = if record.name == REQUESTS { Ok(()) } else { check_collection_name(&record.name) };
            named.and_then(|()| record.options.rules().map(drop)).map_err(|e| e.to_string())
        }
        Op::AddDocumentSegment { collection, segment } => {
            numbers_have_successors(&[*collection, segment.id, segment.meta.bytes])?;
            segment.fault().map_or(Ok(()), |what| Err(format!("segment {}: {what}", segment.id)))
        }
        Op::SetDeletedDocuments { collection, segment, .. } => numbers_have_successors(&[*collection, *segment]),
        Op::SetDocumentColumns { collection, .. }
        | Op::SetIds { collection, .. }
        | Op::SetHandOff { collection, .. }
        | Op::SetHandedOver { collection, .. }
        | Op::SetArchive { collection, .. }
        | Op::SetKeep { collection, .. } => numbers_have_successors(&[*collection]),
        Op::SetExpireInto { collection, url } => {
            numbers_have_successors(&[*collection])?;
            url.as_ref().map_or(Ok(()), |url| check_url("expireInto", url).map_err(|e| e.to_string()))
        }
        Op::SetIndexArchive { collection, index, archive } => {
            numbers_have_successors(&[*collection])?;
            checked_index_name(index).map_err(|e| e.message)?;
            archive.as_ref().map_or(Ok(()), |archive| archive.check(None).map_err(|e| e.to_string()))
        }
        Op::SetArchiveAt { collection, url, .. } => {
            numbers_have_successors(&[*collection])?;
            check_url("an archive", url).map_err(|e| e.to_string())
        }
        Op::SetPublication { collection, publication } => {
            numbers_have_successors(&[*collection])?;
            let Some(record) = publication else { return Ok(()) };
            check_url("a table", &record.url).and_then(|()| record.check()).map_err(|e| e.to_string())
        }
        Op::PutHold(hold) => {
            numbers_have_successors(&[hold.collection])?;
            check_hold_name(&hold.name).map_err(|e| e.to_string())
        }
        Op::SetGrace { collection, seconds } => {
            numbers_have_successors(&[*collection])?;
            check_grace(*seconds).map_err(|e| e.to_string())
        }
        Op::SetMaxBytes { collection, bytes } => {
            numbers_have_successors(&[*collection])?;
            match bytes {
                Some(bytes) if !(1..=MAX_BYTES_MAX).contains(bytes) => Err(format!("maxBytes is {bytes}")),
                _ => Ok(()),
            }
        }
        Op::SetLadder { collection, ladder } => {
            numbers_have_successors(&[*collection])?;
            match ladder {
                Some(ladder) => ladder.definition().validate().map_err(|error| error.to_string()),
                None => Ok(()),
            }
        }
    }
}

fn of_segment(segment: &SegmentRecord, what: &str) -> String {
    format!("segment {}: {what}", segment.id)
}

/// Names of files and heads of records cannot hold higher numbers.
fn numbers_are_possible(numbers: &[u64]) -> Check {
    match numbers.iter().find(|number| **number >= NUMBER_END) {
        Some(number) => Err(format!("number {number} is out of range")),
        None => Ok(()),
    }
}

/// The next collection, segment or record takes the number after the highest one, so that number must be possible too.
fn numbers_have_successors(numbers: &[u64]) -> Check {
    numbers.iter().try_for_each(|number| numbers_are_possible(&[number.saturating_add(1)]))
}

/// Options and rules from a manifest are used in arithmetic without further checks, and the schema's time field is looked up by
/// its name.
fn collection_fits_together(record: &CollectionRecord) -> Check {
    let named = match rung_of(&record.name) {
        Some(_) => Ok(()),
        None => check_collection_name(&record.name),
    };
    named.and_then(|()| record.options.validate()).map_err(|e| e.to_string())?;
    let (schema, options) = (&record.schema, &record.options);
    let of_options = (&options.time_field, &options.meta_field, options.precision);
    if (&schema.time, &schema.meta, schema.precision) != of_options {
        return Err(format!("collection '{}': schema does not match its options", record.name));
    }
    match record.rules.iter().find(|r| !(0..=EXPIRE_AFTER_SECONDS_MAX).contains(&r.expire_after_seconds)) {
        Some(rule) => Err(format!(
            "collection '{}': rule '{}' expires after {} s, which is out of range",
            record.name,
            rule.label(),
            rule.expire_after_seconds
        )),
        None => Ok(()),
    }
}

/// Two changes of one segment in one edit would each be made from the state before the edit: the second would bring back
/// what the first dropped.
fn changes_each_segment_once(edit: &[Op]) -> Check {
    let mut changed = BTreeSet::new();
    for op in edit {
        let (Op::SetSegment { collection, segment, .. }
        | Op::DropBuckets { collection, segment, .. }
        | Op::RemoveSegment { collection, segment }
        | Op::SetDeletedDocuments { collection, segment, .. }
        | Op::AddDocumentSegment { collection, segment: DocumentSegmentRecord { id: segment, .. } }
        | Op::AddSegment { collection, segment: SegmentRecord { id: segment, .. } }
        | Op::AddSegmentInFolder { collection, segment: SegmentRecord { id: segment, .. }, .. }) = op
        else {
            continue;
        };
        if !changed.insert((*collection, *segment)) {
            return Err(format!("segment {segment} is changed twice by one edit"));
        }
    }
    Ok(())
}

/// A checkpoint is applied to an empty state: collections come before their segments, and the next numbers are beyond all that
/// it names, since a number that is used twice is a file that is overwritten.
fn builds_a_state(checkpoint: &[Op]) -> Check {
    let Some(Op::NextIds { collection: next_collection, segment: next_segment, .. }) = checkpoint.first() else {
        return Err("a checkpoint begins with the next numbers".to_owned());
    };
    let (mut names, mut ids, mut has_log) = (BTreeSet::new(), BTreeSet::new(), false);
    for op in &checkpoint[1..] {
        match op {
            Op::PutCollection(record) => {
                if record.id >= *next_collection || !ids.insert(record.id) || !names.insert(&record.name) {
                    return Err(format!("collection '{}' has the name or number {} twice", record.name, record.id));
                }
            }
            Op::AddSegment { collection, segment } | Op::AddSegmentInFolder { collection, segment, .. } => {
                if segment.id >= *next_segment || !ids.contains(collection) {
                    return Err(of_segment(segment, "number or collection is unknown"));
                }
            }
            Op::SetLastBatch { collection, .. }
            | Op::SetFileTypes { collection, .. }
            | Op::SetFolder { collection, .. }
            | Op::SetDocumentColumns { collection, .. }
            | Op::SetIds { collection, .. }
            | Op::SetGrace { collection, .. }
            | Op::SetMaxBytes { collection, .. }
            | Op::SetHandOff { collection, .. }
            | Op::SetHandedOver { collection, .. }
            | Op::SetExpireInto { collection, .. }
            | Op::SetArchive { collection, .. }
            | Op::SetKeep { collection, .. }
            | Op::SetPublication { collection, .. }
            | Op::SetIndexArchive { collection, .. }
            | Op::SetArchiveAt { collection, .. }
            | Op::SetLadder { collection, .. } => {
                if !ids.contains(collection) {
                    return Err(format!("unknown collection {collection}"));
                }
            }
            Op::PutDocuments(record) => {
                if record.id >= *next_collection || !ids.insert(record.id) || !names.insert(&record.name) {
                    return Err(format!("collection '{}' has the name or number {} twice", record.name, record.id));
                }
            }
            Op::AddDocumentSegment { collection, segment } => {
                if segment.id >= *next_segment || !ids.contains(collection) {
                    return Err(format!("segment {}: number or collection is unknown", segment.id));
                }
            }
            Op::PutView { name, .. } => {
                if !names.insert(name) {
                    return Err(format!("view '{name}' has the name of a collection, or is there twice"));
                }
            }
            Op::PutHold(hold) => {
                if hold.lifted_at.is_none() && !ids.contains(&hold.collection) {
                    return Err(format!("hold '{}' is on the unknown collection {}", hold.name, hold.collection));
                }
            }
            Op::AddLog { .. } => has_log = true,
            Op::Swept(_) => {}
            _ => return Err("a checkpoint contains other operations than additions".to_owned()),
        }
    }
    if has_log { Ok(()) } else { Err("a checkpoint names no log".to_owned()) }
}

/// What is left of a segment is a part of what was written. Sweeps rely on these counts and bounds without reading the file.
pub(crate) fn segment_fits_together(meta: &SegmentMeta, state: &SegmentState) -> Check {
    let live = &state.live;
    live_is_possible(live)?;
    changed_buckets_are_in_order(state)?;
    if meta.rows > u64::from(u32::MAX) || meta.out_of_range > meta.rows {
        return Err("written with more rows than a segment can have".to_owned());
    }
    // Rows and buckets are named by 32-bit numbers in bitmaps, and looked up in the directory by them.
    let buckets = |ordinal: Option<u32>| ordinal.is_none_or(|ordinal| ordinal < meta.buckets);
    let last_changed = state.changed.last().map(|bucket| bucket.ordinal);
    if !buckets(state.dropped.max()) || !buckets(last_changed) {
        return Err(format!("names buckets beyond the {} that it was written with", meta.buckets));
    }
    if state.deleted.max().is_some_and(|row| u64::from(row) >= meta.rows) {
        return Err(format!("names rows beyond the {} that it was written with", meta.rows));
    }
    if u64::from(live.buckets) + state.dropped.len() != u64::from(meta.buckets) {
        return Err("live and dropped buckets do not add up to those it was written with".to_owned());
    }
    // Rows of dropped buckets are in neither.
    if live.rows + state.deleted.len() > meta.rows || live.out_of_range > meta.out_of_range {
        return Err("live counts exceed the counts it was written with".to_owned());
    }
    let within = live.first_min >= meta.first
        && live.last_max <= meta.last
        && live.window_start_min >= meta.window_start
        && live.window_end_max <= meta.window_end;
    if within { Ok(()) } else { Err("live bounds exceed the bounds it was written with".to_owned()) }
}

/// Changes of a segment only remove rows. A bucket that came back would have been deleted or expired.
pub(crate) fn only_takes_away(meta: &SegmentMeta, before: &SegmentState, after: &SegmentState) -> Check {
    segment_fits_together(meta, after)?;
    let takes = before.dropped.is_subset(&after.dropped)
        && before.deleted.is_subset(&after.deleted)
        && after.live.rows <= before.live.rows
        && after.live.out_of_range <= before.live.out_of_range;
    if takes { Ok(()) } else { Err("an edit restores removed rows".to_owned()) }
}

/// A segment without live rows is removed instead, every bucket has a row, and bounds have an order.
fn live_is_possible(live: &LiveSummary) -> Check {
    if live.rows > u64::from(u32::MAX) || live.out_of_range > live.rows || u64::from(live.buckets) > live.rows {
        return Err("more rows than a segment can have".to_owned());
    }
    if live.buckets == 0 {
        return Err("no bucket is left, and the segment is not removed".to_owned());
    }
    let in_order = live.first_min <= live.last_min
        && live.last_min <= live.last_max
        && live.window_start_min <= live.window_end_min
        && live.window_end_min <= live.window_end_max;
    if in_order { Ok(()) } else { Err("bounds are not in order".to_owned()) }
}

/// They are looked up by binary search, and one that is dropped as well would be counted twice.
fn changed_buckets_are_in_order(state: &SegmentState) -> Check {
    let possible = |bucket: &ChangedBucket| {
        (1..=u64::from(u32::MAX)).contains(&bucket.rows)
            && bucket.out_of_range <= bucket.rows
            && bucket.first <= bucket.last
            && !state.dropped.contains(bucket.ordinal)
    };
    if state.changed.iter().all(possible) && state.changed.is_sorted_by(|a, b| a.ordinal < b.ordinal) {
        Ok(())
    } else {
        Err("a bucket that lost rows is named twice, dropped as well, or has impossible bounds".to_owned())
    }
}
