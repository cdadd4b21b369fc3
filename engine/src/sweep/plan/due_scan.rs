//! Which segments and buckets of a collection are due at an instant.

use super::item::{Item, OrdinalRuns};
use super::overlaps::{Interval, Overlaps, window_interval};
use crate::error::{Error, Result};
use crate::segment::bounds::BucketBounds;
use crate::segment::{Class, Classes, Segment, ordinal_number};
use crate::state::CollectionState;
use ebbtide_buckets::{BucketId, SegmentReader};
use ebbtide_ttl::{Cutoff, ExpiryMode, RuleSet, Timestamp, due_instant};
use roaring::RoaringBitmap;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The time that the cut-off has to hide for a bucket to be dropped: its window's end, or its last measurement. No measurement
/// is after it.
pub(crate) fn bound_of(mode: ExpiryMode, bounds: &BucketBounds) -> i64 {
    match mode {
        ExpiryMode::Bucket => bounds.window.end.max(bounds.last),
        ExpiryMode::Exact => bounds.last,
    }
}

/// A bucket that is due, with all its pieces.
#[derive(Debug, Clone)]
pub(crate) struct DueBucket {
    pub(crate) rule: usize,
    pub(crate) pieces: Vec<(u64, u32)>,
    /// Measurements in it.
    pub(crate) rows: u64,
    /// Bytes on disk, by its share of each segment.
    pub(crate) bytes: u64,
}

impl DueBucket {
    /// A bucket without a piece yet.
    pub(crate) fn of(rule: usize) -> DueBucket {
        DueBucket { rule, pieces: Vec::new(), rows: 0, bytes: 0 }
    }
}

impl From<DueBucket> for Item {
    fn from(bucket: DueBucket) -> Item {
        Item::Bucket { pieces: bucket.pieces, rows: bucket.rows, bytes: bucket.bytes }
    }
}

/// Every bucket that is due at `now` under `rules`, open ones included. `epoch` is that of `rules` if they are the
/// collection's own, for which the stamps of segments apply.
pub(crate) fn due_buckets(
    collection: &CollectionState,
    rules: &RuleSet,
    epoch: Option<u64>,
    now: Timestamp,
) -> Result<Vec<(BucketId, DueBucket)>> {
    if collection.suspension().is_some() || rules.is_empty() {
        return Ok(Vec::new());
    }
    let scan = DueScan::new(collection, rules, epoch, now);
    let due = scan.all_buckets()?;
    scan.into_unread().pop().map_or(Ok(due), Err)
}

/// Every sealed bucket that is due at `now` under the rules of a collection, as far as segments can be read; how many buckets are
/// due and held; and the errors about what cannot be read.
pub(crate) fn readable_due_buckets(collection: &CollectionState, now: Timestamp) -> Result<ReadableDue> {
    if collection.suspension().is_some() || collection.rules.is_empty() {
        return Ok(ReadableDue::default());
    }
    let mut scan = DueScan::new(collection, &collection.rules, Some(collection.rules_epoch), now);
    scan.open_wait = true;
    let due = scan.all_buckets()?;
    Ok((due, scan.held(), scan.into_unread()))
}

/// What [`readable_due_buckets`] finds.
pub(crate) type ReadableDue = (Vec<(BucketId, DueBucket)>, u64, Vec<Error>);

/// Segments that hold something due.
#[derive(Default)]
pub(super) struct DueSegments {
    /// Those of one rule that are due as a whole and share no bucket with anything else, each with the rule.
    pub(super) whole: Vec<(Arc<Segment>, usize)>,
    /// Others that share no bucket with anything else.
    pub(super) alone: Vec<Arc<Segment>>,
    /// The rest: pieces of their buckets may lie elsewhere.
    pub(super) shared: Vec<Arc<Segment>>,
}

pub(super) struct DueScan<'a> {
    pub(super) collection: &'a CollectionState,
    pub(super) rules: &'a RuleSet,
    pub(super) epoch: Option<u64>,
    mode: ExpiryMode,
    now: Timestamp,
    /// The last E and its cut-off: many buckets in a row mostly have the same.
    cutoff: Cell<Option<(i64, Cutoff)>>,
    /// Whether buckets that are open, even in part, are left out.
    pub(super) open_wait: bool,
    /// Segments that could not be read, and why.
    unread: RefCell<Vec<(Arc<Segment>, Error)>>,
    /// Buckets that are due and stay, because a hold covers something in them.
    held: RefCell<HashSet<BucketId>>,
}

impl<'a> DueScan<'a> {
    pub(super) fn new(collection: &'a CollectionState, rules: &'a RuleSet, epoch: Option<u64>, now: Timestamp) -> Self {
        let (mode, unread, held) = (collection.options.expiry, RefCell::default(), RefCell::default());
        DueScan { collection, rules, epoch, mode, now, cutoff: Cell::new(None), open_wait: false, unread, held }
    }

    /// How many buckets were found due and stay, because a hold covers something in them.
    pub(super) fn held(&self) -> u64 {
        self.held.borrow().len() as u64
    }

    /// The buckets of a segment that a hold keeps; `None` if the segment cannot be read.
    fn held_in(&self, segment: &Arc<Segment>, reader: &SegmentReader) -> Result<Option<RoaringBitmap>> {
        self.noted(segment, self.collection.held_buckets(segment, reader))
    }

    /// The errors about segments that could not be read.
    pub(super) fn into_unread(self) -> Vec<Error> {
        self.unread.into_inner().into_iter().map(|(_, error)| error).collect()
    }

    /// What was read of a segment; `None` if the segment cannot be read, which is noted.
    fn noted<T>(&self, segment: &Arc<Segment>, read: Result<T>) -> Result<Option<T>> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.is_of_one_file() => {
                let mut unread = self.unread.borrow_mut();
                if !unread.iter().any(|(known, _)| known.file.id == segment.file.id) {
                    unread.push((segment.clone(), error));
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn reader(&self, segment: &Arc<Segment>) -> Result<Option<SegmentReader>> {
        self.noted(segment, segment.file.reader())
    }

    /// Buckets of all segments and of memory whose pieces, wherever they are, are all due.
    fn all_buckets(&self) -> Result<Vec<(BucketId, DueBucket)>> {
        let DueSegments { whole, mut alone, shared } = self.due_segments()?;
        alone.extend(shared);
        alone.extend(whole.into_iter().map(|(segment, _)| segment));
        self.buckets(&alone)
    }

    fn is_due(&self, bound: i64, e: i64) -> bool {
        let cutoff = match self.cutoff.get() {
            Some((known, cutoff)) if known == e => cutoff,
            _ => {
                let cutoff = self.collection.drop_cutoff(self.now, e);
                self.cutoff.set(Some((e, cutoff)));
                cutoff
            }
        };
        cutoff.hides(bound)
    }

    fn classes(&self, segment: &Arc<Segment>) -> Result<Option<Classes>> {
        self.noted(segment, segment.classes(self.rules, self.epoch))
    }

    /// Open buckets with their bounds and their bytes in memory.
    pub(super) fn open(&self) -> impl Iterator<Item = (&BucketId, BucketBounds, u64)> {
        let buckets = self.collection.memtable.chunks().flat_map(|c| {
            let row_bytes = crate::memtable::row_bytes(c);
            c.buckets.iter().map(move |b| (b, row_bytes))
        });
        buckets.map(|(b, row_bytes)| {
            let bounds = BucketBounds::from(b);
            (&b.id, bounds, bounds.rows * row_bytes)
        })
    }

    pub(super) fn open_buckets_due(&self) -> bool {
        let due = |id: &BucketId, bounds: &BucketBounds| {
            let class = self.rules.effective(&id.meta.value());
            class.is_some_and(|(_, e)| self.is_due(bound_of(self.mode, bounds), e))
        };
        self.open().any(|(id, bounds, _)| due(id, &bounds))
    }

    pub(super) fn due_segments(&self) -> Result<DueSegments> {
        let mut due = DueSegments::default();
        let mut overlaps = Overlaps::default();
        for segment in self.collection.segments.values().filter(|s| s.live().buckets > 0) {
            let live = segment.live();
            let (least, most) = match self.mode {
                ExpiryMode::Exact => (live.last_min, live.last_max),
                ExpiryMode::Bucket => (live.window_end_min, live.window_end_max.max(live.last_max)),
            };
            let smallest = self.rules.shortest();
            if !smallest.is_some_and(|e| self.is_due(least, e)) {
                continue;
            }
            let Some(classes) = self.classes(segment)? else { continue };
            let (shortest, longest) = classes.range();
            if !shortest.is_some_and(|e| self.is_due(least, e)) {
                continue;
            }
            let class = classes.class();
            if !overlaps.is_alone(class, window_interval(segment), || self.windows_beside(class)) {
                due.shared.push(segment.clone());
                continue;
            }
            match (classes.class(), longest) {
                (Class::Rule(rule), Some(e)) if self.is_due(most, e) && !self.collection.may_be_held(segment) => {
                    due.whole.push((segment.clone(), rule))
                }
                _ => due.alone.push(segment.clone()),
            }
        }
        Ok(due)
    }

    /// The windows of everything that may hold buckets of a class.
    fn windows_beside(&self, class: Class) -> Vec<Interval> {
        let may_share = |segment: &&Arc<Segment>| {
            segment.live().buckets > 0 && class.may_share_metas(segment.known_class(self.rules, self.epoch))
        };
        let segments = self.collection.segments.values().filter(may_share).map(|segment| window_interval(segment));
        segments.chain(self.open().map(|(id, _, _)| (id.window.start, id.window.end))).collect()
    }

    /// What is due of a segment that shares no bucket with anything else, by rule.
    pub(super) fn part(&self, segment: &Arc<Segment>) -> Result<Vec<(usize, Item)>> {
        let Some(reader) = self.reader(segment)? else { return Ok(Vec::new()) };
        let Some(classes) = self.classes(segment)? else { return Ok(Vec::new()) };
        let Some(held) = self.held_in(segment, &reader)? else { return Ok(Vec::new()) };
        let mut parts: BTreeMap<usize, OrdinalRuns> = BTreeMap::new();
        // Not a loop: flattened iterators are quicker from within.
        segment.live_buckets(&reader).for_each(|(ordinal, meta, bounds)| {
            if let Some((rule, e)) = classes.of(meta)
                && self.is_due(bound_of(self.mode, &bounds), e)
            {
                if held.contains(ordinal_number(ordinal)) {
                    let meta = segment.meta(&reader, ordinal);
                    self.held.borrow_mut().insert(BucketId { meta, window: bounds.window });
                    return;
                }
                parts.entry(rule).or_default().add(ordinal_number(ordinal), bounds.rows);
            }
        });
        Ok(parts.into_iter().map(|(rule, part)| (rule, part.item(segment))).collect())
    }

    /// Buckets of these segments and of memory whose pieces, wherever they are, are all due.
    pub(super) fn buckets(&self, due: &[Arc<Segment>]) -> Result<Vec<(BucketId, DueBucket)>> {
        let mut found: HashMap<BucketId, DueBucket> = HashMap::new();
        let mut kept: Vec<BucketId> = Vec::new();
        for segment in due {
            let Some(reader) = self.reader(segment)? else { continue };
            let Some(classes) = self.classes(segment)? else { continue };
            let Some(held) = self.held_in(segment, &reader)? else { continue };
            for (ordinal, meta, bounds) in segment.live_buckets(&reader) {
                let Some((rule, e)) = classes.of(meta) else { continue };
                let id = || BucketId { meta: segment.meta(&reader, ordinal), window: bounds.window };
                if !self.is_due(bound_of(self.mode, &bounds), e) {
                    if self.mode == ExpiryMode::Exact {
                        kept.push(id());
                    }
                    continue;
                }
                if held.contains(ordinal_number(ordinal)) {
                    kept.push(id());
                    self.held.borrow_mut().insert(id());
                    continue;
                }
                let entry = found.entry(id()).or_insert_with(|| DueBucket::of(rule));
                if entry.rule != rule {
                    return Err(Error::corrupt(&segment.file.path, 0, "a bucket belongs to two rules"));
                }
                entry.pieces.push((segment.file.id, ordinal_number(ordinal)));
                entry.rows += bounds.rows;
                entry.bytes += segment.share(bounds.rows);
            }
        }
        let held = self.collection.held_open_buckets()?;
        for (id, bounds, bytes) in self.open() {
            let Some((rule, e)) = self.rules.effective(&id.meta.value()) else { continue };
            if !held.contains(id) && !self.open_wait && self.is_due(bound_of(self.mode, &bounds), e) {
                let entry = found.entry(id.clone()).or_insert_with(|| DueBucket::of(rule));
                entry.rows += bounds.rows;
                entry.bytes += bytes;
            } else {
                kept.push(id.clone());
            }
        }
        for id in kept {
            found.remove(&id);
        }
        if self.mode == ExpiryMode::Exact {
            self.without_younger_pieces(due, &mut found)?;
        }
        // What those segments hold of a bucket is unknown, and a bucket is dropped as a whole.
        let unread: Vec<Interval> = self.unread.borrow().iter().map(|(segment, _)| window_interval(segment)).collect();
        found.retain(|id, _| unread.iter().all(|(start, end)| *start >= id.window.end || *end <= id.window.start));
        let is_unread = |id: u64| self.unread.borrow().iter().any(|(segment, _)| segment.file.id == id);
        let pieces = || found.values().flat_map(|bucket| &bucket.pieces);
        assert!(unread.is_empty() || pieces().all(|(id, _)| !is_unread(*id)), "what cannot be read is not dropped");
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_by(|a, b| (a.0.window.start, &a.0.meta).cmp(&(b.0.window.start, &b.0.meta)));
        Ok(found)
    }

    /// Removes buckets that have a later piece in a segment that is not due.
    fn without_younger_pieces(&self, due: &[Arc<Segment>], found: &mut HashMap<BucketId, DueBucket>) -> Result<()> {
        let Some(start) = found.keys().map(|id| id.window.start).min() else { return Ok(()) };
        let Some(end) = found.keys().map(|id| id.window.end).max() else { return Ok(()) };
        let rules: HashSet<usize> = found.values().map(|bucket| bucket.rule).collect();
        for segment in self.collection.segments.values() {
            let overlaps = segment.live().window_start_min < end && segment.live().window_end_max > start;
            if segment.live().buckets == 0 || !overlaps || due.iter().any(|d| d.file.id == segment.file.id) {
                continue;
            }
            let class = segment.known_class(self.rules, self.epoch);
            if !rules.iter().any(|rule| class.may_share_metas(Class::Rule(*rule))) {
                continue;
            }
            let Some(reader) = self.reader(segment)? else { continue };
            let directory = reader.directory();
            let is_there = |id: &BucketId| {
                directory.find_meta(&id.meta).is_some_and(|meta| {
                    let mut windows = segment.buckets_of_metas(&reader, [meta]).map(|(_, _, bounds)| bounds.window);
                    windows.any(|window| window == id.window)
                })
            };
            found.retain(|id, _| !is_there(id));
        }
        Ok(())
    }
}

/// The instant from which a sweep drops a bucket whose bound is `bound`.
pub(crate) fn expires_at(bound: i64, e: i64, collection: &CollectionState) -> Timestamp {
    due_instant(bound, collection.drop_after(e), collection.options.precision)
}
