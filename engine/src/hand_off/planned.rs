//! What is due to be handed over, and the drop of what was taken.

use super::sink::ExpiredBucket;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::manifest::Op;
use crate::state::CollectionState;
use crate::sweep::drop_edit::{DropEdit, SIZE_RULE, record_by_size, record_of};
use crate::sweep::plan::due_scan::{DueBucket, readable_due_buckets};
use crate::sweep::plan::item::Item;
use crate::sweep::size::excess;
use crate::sync::Guard;
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::ipc::writer::StreamWriter;
use ebbtide_buckets::{BucketId, times};
use ebbtide_ttl::{Code, Timestamp, Visit};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;

/// A bucket to hand over.
pub(crate) struct Planned {
    pub(crate) id: BucketId,
    pub(crate) bucket: DueBucket,
    /// The rule's name and E; none by size.
    pub(crate) rule: Option<(String, i64)>,
    /// The URL of the archive that it is moved to, if it is.
    pub(crate) into: Option<String>,
    generation: u64,
}

/// Buckets that are handed over before the sink commits.
pub(crate) struct Group {
    pub(crate) collection: Arc<CollectionState>,
    pub(crate) buckets: Vec<Planned>,
    /// Buckets that are due and stay, because a hold covers something in them.
    pub(crate) held: u64,
    /// Errors about segments that cannot be read: what is due in them, or elsewhere in their windows, stays.
    pub(crate) unread: Vec<String>,
}

/// What a pass handed over and dropped.
#[derive(Debug, Default)]
pub(crate) struct Handed {
    pub(crate) dropped: Visit,
    pub(crate) held: u64,
    /// How many collections have buckets that could not be handed over.
    pub(crate) failed: u64,
    pub(crate) unread: BTreeSet<String>,
}

impl Handed {
    pub(super) fn add(&mut self, other: Handed) {
        self.dropped.add(&other.dropped);
        self.held += other.held;
        self.failed += other.failed;
        self.unread.extend(other.unread);
    }
}

/// What is due of a collection, by a rule or by size.
pub(crate) fn due(collection: &CollectionState, now: Option<Timestamp>) -> Result<(Vec<Planned>, u64, Vec<Error>)> {
    let (due, held, mut unread) = match now {
        Some(now) => readable_due_buckets(collection, now)?,
        None => Default::default(),
    };
    let by_size = excess(collection, &due, false)?;
    unread.extend(by_size.unread);
    let mut planned = Vec::with_capacity(due.len() + by_size.buckets.len());
    let into = |bucket: &DueBucket| collection.archive_of(bucket.rule).map(str::to_owned);
    for (id, bucket) in due {
        let rule = collection.rules.rule(bucket.rule);
        let rule = rule.map(|view| (view.label().to_owned(), view.expire_after_seconds));
        let rule = Some(rule.ok_or_else(|| Error::internal("a rule that a plan names is gone"))?);
        planned.push(Planned { into: into(&bucket), id, bucket, rule, generation: 0 });
    }
    let sized = by_size.buckets.into_iter();
    planned.extend(sized.map(|(id, bucket)| Planned { into: into(&bucket), id, bucket, rule: None, generation: 0 }));
    Ok((planned, held, unread))
}

/// Plans the next buckets of a collection that no archive gets, at most `most` of those that were not `seen`, those that were
/// `refused` before last, and gives each an identity. `None` if the collection is gone.
pub(super) fn plan(
    engine: &Engine,
    id: u64,
    now: Option<Timestamp>,
    leave_a_core: bool,
    (seen, refused, most): (&HashSet<BucketId>, &HashSet<BucketId>, usize),
) -> Result<Option<Group>> {
    let maintenance = engine.maintenance.lock_leaving(leave_a_core);
    let Some(mut group) = sealed_and_due(engine, &maintenance, id, now)? else { return Ok(None) };
    let (collection, buckets) = (&group.collection, &mut group.buckets);
    buckets.retain(|planned| planned.into.is_none() && !seen.contains(&planned.id));
    buckets.sort_by_key(|planned| refused.contains(&planned.id)); // Which leaves the others in their order.
    buckets.truncate(most);
    let known = collection.handed_over.generations();
    let mut handed = (*collection.handed_over).clone();
    for planned in buckets {
        planned.generation = known.get(&planned.id).copied().unwrap_or_else(|| handed.add(&planned.id));
    }
    if handed != *collection.handed_over {
        engine.commit(vec![Op::SetHandedOver { collection: id, handed }])?;
    }
    let Some(collection) = engine.state.read().by_id(id).cloned() else { return Ok(None) };
    Ok(Some(Group { collection, ..group }))
}

/// Plans what is moved to the archives of a collection. `None` if the collection is gone.
pub(crate) fn plan_moves(
    engine: &Engine,
    id: u64,
    now: Option<Timestamp>,
    leave_a_core: bool,
) -> Result<Option<Group>> {
    let maintenance = engine.maintenance.lock_leaving(leave_a_core);
    sealed_and_due(engine, &maintenance, id, now)
}

/// Seals a collection and finds what is due in it.
fn sealed_and_due(
    engine: &Engine,
    maintenance: &Guard<'_, ()>,
    id: u64,
    now: Option<Timestamp>,
) -> Result<Option<Group>> {
    let present = || engine.state.read().by_id(id).cloned();
    let Some(collection) = present() else { return Ok(None) };
    match crate::seal::flush(engine, maintenance, Some(&collection.name)) {
        // Dropping what is sealed and due makes room.
        Err(error) if error.code() == Code::OutOfDiskSpace => {
            tracing::warn!(%error, "open buckets may be due and could not be sealed");
        }
        flushed => flushed?,
    }
    let Some(collection) = present() else { return Ok(None) };
    let (buckets, held, unread) = due(&collection, now)?;
    let unread = unread.iter().map(ToString::to_string).collect();
    Ok(Some(Group { collection, buckets, held, unread }))
}

impl Planned {
    /// The measurements of the bucket, in order of time.
    pub(crate) fn rows(&self, collection: &CollectionState) -> Result<RecordBatch> {
        rows_of(collection, &self.bucket)
    }

    /// The bucket with its measurements.
    pub(super) fn read(&self, collection: &CollectionState) -> Result<ExpiredBucket> {
        let rows = rows_of(collection, &self.bucket)?;
        let checksum = checksum_of(&rows)?;
        let instant = |t: i64| Timestamp::from_units(t, collection.options.precision);
        Ok(ExpiredBucket {
            collection: collection.name.clone(),
            rule: self.rule.as_ref().map_or(SIZE_RULE, |(label, _)| label).to_owned(),
            meta: self.id.meta.value(),
            window: (instant(self.id.window.start), instant(self.id.window.end)),
            generation: self.generation,
            rows,
            checksum,
        })
    }

    /// Whether it is the same bucket, with the same measurements.
    pub(crate) fn is_same(&self, other: &Planned, (then, now): (&CollectionState, &CollectionState)) -> bool {
        let same_segment = |id: &u64| match (then.segments.get(id), now.segments.get(id)) {
            (Some(then), Some(now)) => Arc::ptr_eq(then, now),
            _ => false,
        };
        let (pieces, rule, into) = (&self.bucket.pieces, &self.rule, &self.into);
        (pieces, rule, into) == (&other.bucket.pieces, &other.rule, &other.into)
            && pieces.iter().all(|(id, _)| same_segment(id))
    }
}

/// CRC-32 of the Arrow IPC stream of rows.
pub(crate) fn checksum_of(rows: &RecordBatch) -> Result<u32> {
    let mut hasher = Hash(crc32fast::Hasher::new());
    let mut stream = StreamWriter::try_new(&mut hasher, rows.schema_ref())?;
    stream.write(rows)?;
    stream.finish()?;
    drop(stream);
    Ok(hasher.0.finalize())
}

/// The measurements of a bucket, in order of time.
fn rows_of(collection: &CollectionState, bucket: &DueBucket) -> Result<RecordBatch> {
    let schema = &collection.schema;
    let arrow = schema.arrow();
    let columns: Vec<String> = arrow.fields().iter().map(|field| field.name().clone()).collect();
    let mut batches = Vec::new();
    for (id, ordinal) in &bucket.pieces {
        let segment = collection.segments.get(id);
        let segment = segment.ok_or_else(|| Error::internal("the plan's segment is in the collection"))?;
        let reader = segment.file.reader()?;
        let ranges = segment.live_ranges(&reader, *ordinal as usize);
        for batch in reader.read(&columns, schema, &ranges, 1 << 13)? {
            batches.push(batch?);
        }
    }
    let rows = match batches.first() {
        Some(first) => concat_batches(first.schema_ref(), &batches)?,
        None => RecordBatch::new_empty(arrow),
    };
    if bucket.pieces.len() < 2 {
        return Ok(rows);
    }
    let in_order = {
        let times = times(&rows)?;
        let mut order: Vec<u32> = (0..).take(times.len()).collect();
        order.sort_by_key(|row| times[*row as usize]);
        UInt32Array::from(order)
    };
    Ok(take_record_batch(&rows, &in_order)?)
}

/// Drops the buckets of a group that were `taken`, except those that have changed since or are no longer due.
pub(super) fn drop_accepted(
    engine: &Engine,
    id: u64,
    (now, at): (Option<Timestamp>, Timestamp),
    leave_a_core: bool,
    group: &Group,
    taken: &[&Planned],
) -> Result<Visit> {
    let mut sum = Visit::default();
    if taken.is_empty() {
        return Ok(sum);
    }
    let _maintenance = engine.maintenance.lock_leaving(leave_a_core);
    let Some(present) = engine.state.read().by_id(id).cloned() else { return Ok(sum) };
    let (still_due, _, _) = due(&present, now)?;
    let still_due: HashMap<&BucketId, &Planned> = still_due.iter().map(|planned| (&planned.id, planned)).collect();
    let is_unchanged = |planned: &&Planned| {
        still_due.get(&planned.id).is_some_and(|other| planned.is_same(other, (&group.collection, &present)))
    };
    let unchanged: Vec<&Planned> = taken.iter().copied().filter(is_unchanged).collect();
    let mut edit = DropEdit::of(engine, &present);
    let mut by_rule: BTreeMap<&Option<(String, i64)>, Visit> = BTreeMap::new();
    let (mut gone, mut end) = (HashSet::new(), i64::MIN);
    for planned in &unchanged {
        let item = Item::from(planned.bucket.clone());
        let visit = match (&planned.rule, now) {
            (Some((_, e)), Some(now)) => edit.add(&item, present.drop_cutoff(now, *e))?,
            _ => {
                end = end.max(planned.id.window.end);
                edit.add_unexpired(&item)?
            }
        };
        by_rule.entry(&planned.rule).or_default().add(&visit);
        gone.insert(planned.id.clone());
    }
    if gone.is_empty() {
        return Ok(sum);
    }
    let mut ops = Vec::new();
    let (files, pieces) = edit.edits(engine, now, &mut ops)?;
    sum.files = files;
    for (rule, visit) in &by_rule {
        sum.add(visit);
        ops.push(match rule {
            Some((label, e)) => record_of(engine, &present, at, (*e, label), visit),
            None => record_by_size(&present, at, end, visit),
        });
    }
    let mut handed = (*present.handed_over).clone();
    handed.remove(&gone);
    ops.push(Op::SetHandedOver { collection: id, handed });
    // No insert may suspend expiry between this look and the edit.
    let _no_inserts = engine.log.lock();
    let is_suspended = engine.state.read().by_id(id).is_none_or(|c| c.suspension().is_some());
    if is_suspended && by_rule.keys().any(|rule| rule.is_some()) {
        pieces.take_back(engine);
        return Ok(Visit::default());
    }
    pieces.commit(engine, ops)?;
    Ok(sum)
}

/// Computes a checksum of what is written.
struct Hash(crc32fast::Hasher);

impl io::Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
