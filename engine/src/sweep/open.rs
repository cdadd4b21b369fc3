//! Open buckets on a full disk: those that are due are dropped without being sealed first.

use super::drop_edit::{DropEdit, record_of};
use super::plan::due_scan::{DueBucket, due_buckets};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::manifest::Op;
use ebbtide_buckets::BucketId;
use ebbtide_ttl::{Timestamp, Visit};
use std::collections::{BTreeMap, HashSet};

/// Drops all open buckets of a collection, and their sealed pieces, if all of them are due: one edit marks them as sealed
/// without adding a segment. If one is live, or is moved to an archive first, it has to be sealed before the log can be removed, and all of them wait for room.
/// The caller holds the maintenance lock.
pub(super) fn drop_all(engine: &Engine, id: u64, now: Timestamp) -> Result<Visit> {
    let (seq, collection) = {
        let mut state = engine.state.write();
        let seq = state.applied_seq;
        let Some(collection) = state.by_id_mut(id) else { return Ok(Visit::default()) };
        collection.memtable.freeze();
        (seq, collection.clone())
    };
    // What is sealed must not be newer than what the log keeps of other collections.
    engine.sync_log()?;
    let open: HashSet<&BucketId> = collection.memtable.chunks().flat_map(|c| &c.buckets).map(|b| &b.id).collect();
    let due = match due_buckets(&collection, &collection.rules, Some(collection.rules_epoch), now) {
        Err(error) if error.is_of_one_file() => return Ok(Visit::default()), // The plan reports it, and continues without it.
        due => due?,
    };
    let due: Vec<_> = due.into_iter().filter(|(id, _)| open.contains(id)).map(|(_, bucket)| bucket).collect();
    let is_moved = |bucket: &DueBucket| collection.archive_of(bucket.rule).is_some();
    if open.is_empty() || due.len() < open.len() || due.iter().any(is_moved) {
        return Ok(Visit::default());
    }
    let mut visit = Visit::default();
    let mut by_rule: BTreeMap<usize, Visit> = BTreeMap::new();
    let mut edit = DropEdit::of(engine, &collection);
    for bucket in due {
        for counts in [&mut visit, by_rule.entry(bucket.rule).or_default()] {
            counts.buckets += 1;
            counts.measurements += bucket.rows;
            counts.bytes += bucket.bytes;
        }
        let rule = collection.rules.rule(bucket.rule);
        let rule = rule.ok_or_else(|| Error::internal("a rule that a plan names is gone"))?;
        let cutoff = collection.drop_cutoff(now, rule.expire_after_seconds);
        edit.add(&bucket.into(), cutoff)?;
    }
    // The schema keeps the types of fields that only the log knew.
    let mut ops = vec![Op::SetSchema { collection: id, schema: (*collection.schema).clone() }];
    let (files, pieces) = edit.edits(engine, Some(now), &mut ops)?;
    visit.files = files;
    ops.extend(collection.sealed(seq));
    for (rule, counts) in by_rule {
        if let Some(rule) = collection.rules.rule(rule) {
            ops.push(record_of(engine, &collection, now, (rule.expire_after_seconds, rule.label()), &counts));
        }
    }
    let Some(no_inserts) = engine.log_unless_suspended(id) else {
        pieces.take_back(engine);
        return Ok(Visit::default());
    };
    pieces.commit(engine, ops)?;
    drop(no_inserts);
    engine.cut_log_if_room()?;
    Ok(visit)
}
