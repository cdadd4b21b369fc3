//! What is due: a pure look at one collection in one version, at one instant.
//!
//! # Why a drop never takes a live measurement
//!
//! A bucket (meta, window) may lie in several pieces: at most one in each segment, and one in each chunk in memory.
//!
//! 1. No time in a piece is after its bound ([`bound_of`]). So once the cut-off of the effective rule hides the bound, it hides
//!    every measurement in the piece. `DropEdit::add` asserts that it hides the last time of whatever is dropped.
//! 2. A meta has one effective rule, so all pieces of a bucket have the same. [`DueScan::buckets`] refuses a bucket of two.
//! 3. A bucket goes with all of its pieces. Segments are dropped or cut on their own only where their windows overlap those of
//!    nothing else that may hold one of their metas (`Overlaps::is_alone`, which asserts that it knows the segment itself); all
//!    other pieces are collected by bucket, and one that is not due keeps the others.
//! 4. What a segment holds that cannot be read is unknown, so buckets whose windows overlap it stay. [`DueScan::buckets`] asserts
//!    that no piece comes from such a segment.
//! 5. What was looked at is what is dropped. Nothing but the holder of the maintenance lock changes segments or rules, and a plan
//!    that outlives the lock is held against the present version ([`Plan::still_holds`]). `Pass::drop` asserts that the
//!    segments in the state are the very ones of the plan.
//! 6. While a measurement lies outside of 1970..2038, nothing expires. No insert can bring one between the last look at that and
//!    the edit, because the sweep holds the log (`hold_unless_suspended`).
//! 7. `now` is one reading of the clock, before the plan was made and accepted by the clock guard. What it hides stays hidden
//!    for every later reading.

use crate::error::{Error, Result};
use crate::segment::bounds::BucketBounds;
use crate::segment::{Classes, Segment, ordinal_number};
use crate::state::CollectionState;
use ebbtide_buckets::{BucketId, SegmentReader, to_usize};
use ebbtide_ttl::{Cutoff, ExpiryMode, RuleSet, Timestamp};
use roaring::RoaringBitmap;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// The bound that has to be past for a bucket to be dropped: its window's end, or its last measurement. None is after it.
pub(crate) fn bound_of(mode: ExpiryMode, bounds: &BucketBounds) -> i64 {
    match mode {
        ExpiryMode::Bucket => bounds.window.end.max(bounds.last),
        ExpiryMode::Exact => bounds.last,
    }
}

/// Something to drop.
#[derive(Debug)]
pub(crate) enum Item {
    /// All that is there of a segment. So many of its buckets were counted by visits that stopped at a limit within it.
    Segment { segment: u64, buckets: u64, counted: u64, rows: u64, bytes: u64 },
    /// Some buckets of a segment that have no pieces elsewhere.
    Part { segment: u64, ordinals: RoaringBitmap, rows: u64, bytes: u64 },
    /// One bucket, wherever its pieces are.
    Bucket { pieces: Vec<(u64, u32)>, rows: u64, bytes: u64 },
}

impl Item {
    pub(crate) fn buckets(&self) -> u64 {
        match self {
            Item::Segment { buckets, .. } => *buckets,
            Item::Part { ordinals, .. } => ordinals.len(),
            Item::Bucket { .. } => 1,
        }
    }

    /// Whether it is all that is there of a segment, counted to the end.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Item::Segment { buckets, counted, .. } if counted == buckets)
    }

    /// The segments that it is about.
    pub(super) fn segments(&self) -> Vec<u64> {
        match self {
            Item::Segment { segment, .. } | Item::Part { segment, .. } => vec![*segment],
            Item::Bucket { pieces, .. } => pieces.iter().map(|(segment, _)| *segment).collect(),
        }
    }

    pub(crate) fn rows(&self) -> u64 {
        match self {
            Item::Segment { rows, .. } | Item::Part { rows, .. } | Item::Bucket { rows, .. } => *rows,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Item::Segment { bytes, .. } | Item::Part { bytes, .. } | Item::Bucket { bytes, .. } => *bytes,
        }
    }
}

/// How much a visit took.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Buckets that count towards the visit's limit.
    pub(crate) buckets: u64,
    /// Measurements of what was counted to its end.
    pub(crate) rows: u64,
    pub(crate) stopped_at_limit: bool,
}

/// What is due in one collection, by rule.
pub(crate) struct Plan {
    due: BTreeMap<usize, VecDeque<Item>>,
    /// What visits took, each with the rule through which it goes: all of it with one edit.
    taken: Vec<(usize, Item)>,
    /// Open buckets are due, or stand in the way: they have to be sealed first.
    pub(crate) needs_flush: bool,
    /// About segments that cannot be read: what is due in them stays, and what is elsewhere of the same windows.
    pub(crate) unread: Vec<Error>,
    /// The segments that it was made for: held, so that no others can come to lie at the same address.
    segments: Arc<BTreeMap<u64, Arc<Segment>>>,
    rules_epoch: u64,
}

/// What to do about open buckets that are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenBuckets {
    /// They are to be sealed before anything is dropped.
    SealFirst,
    /// They wait for another pass, and with them what is sealed of the same buckets.
    Wait,
}

impl Plan {
    /// Looks at a collection at `now`.
    pub(crate) fn make(collection: &CollectionState, now: Timestamp, open: OpenBuckets) -> Result<Self> {
        let mut plan = Plan {
            due: BTreeMap::new(),
            taken: Vec::new(),
            needs_flush: false,
            unread: Vec::new(),
            segments: collection.segments.clone(),
            rules_epoch: collection.rules_epoch,
        };
        if collection.suspension().is_some() || collection.rules.is_empty() {
            return Ok(plan);
        }
        let mut scan = DueScan::new(collection, &collection.rules, Some(collection.rules_epoch), now);
        scan.open_wait = open == OpenBuckets::Wait;
        plan.needs_flush = open == OpenBuckets::SealFirst && scan.open_buckets_due();
        if plan.needs_flush {
            return Ok(plan);
        }
        let due = scan.due_segments()?;
        for (segment, rule) in &due.whole {
            let live = segment.live();
            plan.due.entry(*rule).or_default().push_back(Item::Segment {
                segment: segment.file.id,
                buckets: u64::from(live.buckets),
                counted: 0,
                rows: live.rows,
                bytes: segment.live_bytes(),
            });
        }
        for segment in &due.alone {
            for (rule, item) in scan.part(segment)? {
                plan.due.entry(rule).or_default().push_back(item);
            }
        }
        for (_, bucket) in scan.buckets(&due.shared)? {
            let item = Item::Bucket { pieces: bucket.pieces, rows: bucket.rows, bytes: bucket.bytes };
            plan.due.entry(bucket.rule).or_default().push_back(item);
        }
        plan.unread = scan.unread.into_inner().into_iter().map(|(_, error)| error).collect();
        Ok(plan)
    }

    /// Whether it still describes this version of the collection.
    pub(crate) fn is_of(&self, collection: &CollectionState) -> bool {
        Arc::ptr_eq(&self.segments, &collection.segments) && self.rules_epoch == collection.rules_epoch
    }

    /// Takes over to a version that differs only by what the plan itself had dropped.
    pub(crate) fn follow(&mut self, collection: &CollectionState) {
        self.segments = collection.segments.clone();
        self.rules_epoch = collection.rules_epoch;
    }

    /// What visits took to its end: it is the caller's to drop.
    pub(crate) fn take_taken(&mut self) -> Vec<(usize, Item)> {
        std::mem::take(&mut self.taken)
    }

    /// Takes up to `limit` buckets of a rule. They are only counted here, which spares an edit for each visit, and the reading
    /// of directories of segments that are due as a whole: [`Plan::take_taken`] gives them, and [`Plan::counted`] those begun too.
    pub(crate) fn take(&mut self, rule: usize, limit: Option<u64>, out_of_time: &dyn Fn() -> bool) -> Result<Taken> {
        let mut taken = Taken::default();
        let Some(due) = self.due.get_mut(&rule) else { return Ok(taken) };
        let limit = limit.unwrap_or(u64::MAX);
        while taken.buckets < limit {
            let left = limit - taken.buckets;
            if taken.buckets > 0 && !due.is_empty() && out_of_time() {
                break;
            }
            match due.pop_front() {
                None => return Ok(taken),
                Some(Item::Segment { segment, buckets, counted, rows, bytes }) => {
                    let more = left.min(buckets - counted);
                    let item = Item::Segment { segment, buckets, counted: counted + more, rows, bytes };
                    taken.buckets += more;
                    if counted + more < buckets {
                        due.push_front(item);
                    } else {
                        taken.rows += rows;
                        self.taken.push((rule, item));
                    }
                }
                Some(Item::Part { segment, ordinals, rows, .. }) if ordinals.len() > left => {
                    let segment = self.segments.get(&segment);
                    let segment = segment.ok_or_else(|| Error::internal("a plan holds the segments that it names"))?;
                    let (part, rest) = match split(segment, ordinals, rows, left) {
                        // What was taken before is counted; another plan finds the rest.
                        Err(error) if taken.buckets > 0 && error.is_of_one_file() => break,
                        split => split?,
                    };
                    due.push_front(rest);
                    taken.buckets += part.buckets();
                    taken.rows += part.rows();
                    self.taken.push((rule, part));
                }
                Some(item) => {
                    taken.buckets += item.buckets();
                    taken.rows += item.rows();
                    self.taken.push((rule, item));
                }
            }
        }
        taken.stopped_at_limit = true;
        Ok(taken)
    }

    /// What visits have counted, by rule, and what is still there of it. The last one of a rule may have been counted in part.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (usize, &Item)> {
        let begun = self.due.iter().filter_map(|(rule, items)| Some((*rule, items.front()?)));
        let begun = begun.filter(|(_, item)| matches!(item, Item::Segment { counted, .. } if *counted > 0));
        self.taken.iter().map(|(rule, item)| (*rule, item)).chain(begun)
    }

    /// Whether a collection still has the segments of an item as the plan saw them, under the same rules.
    pub(crate) fn still_holds(&self, collection: &CollectionState, item: &Item) -> bool {
        let is_same = |id: &u64| match (self.segments.get(id), collection.segments.get(id)) {
            (Some(seen), Some(now)) => Arc::ptr_eq(seen, now),
            _ => false,
        };
        self.rules_epoch == collection.rules_epoch && item.segments().iter().all(is_same)
    }
}

/// Buckets of a segment, gathered in ascending order: the neighbours among them go into the bitmap as one range.
#[derive(Default)]
struct OrdinalRuns {
    ordinals: RoaringBitmap,
    run: Range<u32>,
    rows: u64,
}

impl OrdinalRuns {
    fn add(&mut self, ordinal: u32, rows: u64) {
        assert!(ordinal >= self.run.end, "buckets come in ascending order");
        if ordinal != self.run.end || self.run.is_empty() {
            self.ordinals.insert_range(self.run.clone());
            self.run.start = ordinal;
        }
        self.run.end = ordinal + 1;
        self.rows += rows;
    }

    fn item(mut self, segment: &Segment) -> Item {
        self.ordinals.insert_range(self.run);
        part_of(segment, self.ordinals, self.rows)
    }
}

fn part_of(segment: &Segment, ordinals: RoaringBitmap, rows: u64) -> Item {
    Item::Part { segment: segment.file.id, ordinals, rows, bytes: segment.share(rows) }
}

/// The first buckets of a segment, so many.
pub(super) fn first_of(segment: &Segment, buckets: u64) -> Result<Item> {
    let reader = segment.file.reader()?;
    let mut first = OrdinalRuns::default();
    for (ordinal, _, bounds) in segment.live_buckets(&reader).take(to_usize(buckets)) {
        first.add(ordinal_number(ordinal), bounds.rows);
    }
    Ok(first.item(segment))
}

/// The first `limit` of these buckets of a segment, which have so many rows, and the others.
fn split(segment: &Segment, mut all: RoaringBitmap, rows: u64, limit: u64) -> Result<(Item, Item)> {
    let end = u32::try_from(limit).ok().and_then(|limit| all.select(limit));
    let mut rest = RoaringBitmap::new();
    if let Some(end) = end {
        rest = all.clone();
        rest.remove_range(..end);
        all.remove_range(end..);
    }
    let reader = segment.file.reader()?;
    let live_buckets = all.iter().filter_map(|ordinal| segment.bounds(&reader, ordinal as usize));
    let first_rows = live_buckets.map(|b| b.rows).sum();
    Ok((part_of(segment, all, first_rows), part_of(segment, rest, rows.saturating_sub(first_rows))))
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

/// Every bucket that is due at `now` under `rules`, open ones included. `epoch` tells whether segments' stamps apply.
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
    let DueSegments { whole, mut alone, shared } = scan.due_segments()?;
    alone.extend(shared);
    alone.extend(whole.into_iter().map(|(segment, _)| segment));
    let due = scan.buckets(&alone)?;
    match scan.unread.into_inner().pop() {
        Some((_, error)) => Err(error),
        None => Ok(due),
    }
}

/// Segments that hold something due.
#[derive(Default)]
struct DueSegments {
    /// Those that are due as a whole, of one rule, and share no bucket with anything else, each with its rule.
    whole: Vec<(Arc<Segment>, usize)>,
    /// Others that share no bucket with anything else.
    alone: Vec<Arc<Segment>>,
    /// The rest: pieces of their buckets may lie elsewhere.
    shared: Vec<Arc<Segment>>,
}

struct DueScan<'a> {
    collection: &'a CollectionState,
    rules: &'a RuleSet,
    epoch: Option<u64>,
    mode: ExpiryMode,
    now: Timestamp,
    /// The E that was last asked for, and its cut-off: mostly it is the same for many buckets.
    cutoff: Cell<Option<(i64, Cutoff)>>,
    /// Whether buckets that are open, even in part, are left out.
    open_wait: bool,
    /// Segments that could not be read, and why.
    unread: RefCell<Vec<(Arc<Segment>, Error)>>,
}

type Interval = (i64, i64);

impl<'a> DueScan<'a> {
    fn new(collection: &'a CollectionState, rules: &'a RuleSet, epoch: Option<u64>, now: Timestamp) -> Self {
        let (mode, unread) = (collection.options.expiry, RefCell::default());
        DueScan { collection, rules, epoch, mode, now, cutoff: Cell::new(None), open_wait: false, unread }
    }

    /// What was read of a segment; `None` if it cannot be read, which is noted.
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

    fn is_due(&self, bound: i64, e: i64) -> bool {
        let cutoff = match self.cutoff.get() {
            Some((known, cutoff)) if known == e => cutoff,
            _ => {
                let cutoff = Cutoff::new(self.now, e, self.collection.options.precision);
                self.cutoff.set(Some((e, cutoff)));
                cutoff
            }
        };
        cutoff.hides(bound)
    }

    fn classes(&self, segment: &Arc<Segment>) -> Result<Option<Classes>> {
        self.noted(segment, segment.classes(self.rules, self.epoch))
    }

    /// Open buckets with their bounds and the bytes that they take in memory.
    fn open(&self) -> impl Iterator<Item = (&BucketId, BucketBounds, u64)> {
        let buckets = self.collection.memtable.chunks().flat_map(|c| {
            let row_bytes = crate::memtable::row_bytes(c);
            c.buckets.iter().map(move |b| (b, row_bytes))
        });
        buckets.map(|(b, row_bytes)| {
            let bounds = BucketBounds::from(b);
            (&b.id, bounds, bounds.rows * row_bytes)
        })
    }

    fn open_buckets_due(&self) -> bool {
        let due = |id: &BucketId, bounds: &BucketBounds| {
            let class = self.rules.effective(&id.meta.value());
            class.is_some_and(|(_, e)| self.is_due(bound_of(self.mode, bounds), e))
        };
        self.open().any(|(id, bounds, _)| due(id, &bounds))
    }

    fn due_segments(&self) -> Result<DueSegments> {
        let mut due = DueSegments::default();
        let mut overlaps = Overlaps::new(self);
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
            let class = match &classes {
                Classes::Uniform(class) => Some(class.map(|c| c.0)),
                Classes::PerMeta(_) => None,
            };
            if !overlaps.is_alone(class, window_interval(segment)) {
                due.shared.push(segment.clone());
                continue;
            }
            match (class, longest) {
                (Some(Some(rule)), Some(e)) if self.is_due(most, e) => due.whole.push((segment.clone(), rule)),
                _ => due.alone.push(segment.clone()),
            }
        }
        Ok(due)
    }

    /// What is due of a segment that shares no bucket with anything else, by rule.
    fn part(&self, segment: &Arc<Segment>) -> Result<Vec<(usize, Item)>> {
        let Some(reader) = self.reader(segment)? else { return Ok(Vec::new()) };
        let Some(classes) = self.classes(segment)? else { return Ok(Vec::new()) };
        let mut parts: BTreeMap<usize, OrdinalRuns> = BTreeMap::new();
        // Not a loop: flattened iterators are quicker from within.
        segment.live_buckets(&reader).for_each(|(ordinal, meta, bounds)| {
            if let Some((rule, e)) = classes.of(meta)
                && self.is_due(bound_of(self.mode, &bounds), e)
            {
                parts.entry(rule).or_default().add(ordinal_number(ordinal), bounds.rows);
            }
        });
        Ok(parts.into_iter().map(|(rule, part)| (rule, part.item(segment))).collect())
    }

    /// Buckets of these segments (and of memory) all of whose pieces, wherever they are, are due.
    fn buckets(&self, due: &[Arc<Segment>]) -> Result<Vec<(BucketId, DueBucket)>> {
        let mut found: HashMap<BucketId, DueBucket> = HashMap::new();
        let mut kept: Vec<BucketId> = Vec::new();
        for segment in due {
            let Some(reader) = self.reader(segment)? else { continue };
            let Some(classes) = self.classes(segment)? else { continue };
            for (ordinal, meta, bounds) in segment.live_buckets(&reader) {
                let Some((rule, e)) = classes.of(meta) else { continue };
                let id = || BucketId { meta: segment.meta(&reader, ordinal), window: bounds.window };
                if !self.is_due(bound_of(self.mode, &bounds), e) {
                    if self.mode == ExpiryMode::Exact {
                        kept.push(id());
                    }
                    continue;
                }
                let entry = found.entry(id()).or_insert(DueBucket { rule, pieces: Vec::new(), rows: 0, bytes: 0 });
                if entry.rule != rule {
                    return Err(Error::corrupt(&segment.file.path, 0, "a bucket belongs to two rules"));
                }
                entry.pieces.push((segment.file.id, ordinal_number(ordinal)));
                entry.rows += bounds.rows;
                entry.bytes += segment.share(bounds.rows);
            }
        }
        for (id, bounds, bytes) in self.open() {
            let Some((rule, e)) = self.rules.effective(&id.meta.value()) else { continue };
            if !self.open_wait && self.is_due(bound_of(self.mode, &bounds), e) {
                let entry =
                    found.entry(id.clone()).or_insert(DueBucket { rule, pieces: Vec::new(), rows: 0, bytes: 0 });
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
        // Nobody knows what those segments hold of a bucket, and a bucket goes as a whole.
        let unread: Vec<Interval> = self.unread.borrow().iter().map(|(segment, _)| window_interval(segment)).collect();
        found.retain(|id, _| unread.iter().all(|(start, end)| *start >= id.window.end || *end <= id.window.start));
        let is_unread = |id: u64| self.unread.borrow().iter().any(|(segment, _)| segment.file.id == id);
        let pieces = || found.values().flat_map(|bucket| &bucket.pieces);
        assert!(unread.is_empty() || pieces().all(|(id, _)| !is_unread(*id)), "what cannot be read is not dropped");
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_by(|a, b| (a.0.window.start, &a.0.meta).cmp(&(b.0.window.start, &b.0.meta)));
        Ok(found)
    }

    /// Takes out buckets of which a segment that is not due holds a later piece.
    fn without_younger_pieces(&self, due: &[Arc<Segment>], found: &mut HashMap<BucketId, DueBucket>) -> Result<()> {
        let Some(start) = found.keys().map(|id| id.window.start).min() else { return Ok(()) };
        let Some(end) = found.keys().map(|id| id.window.end).max() else { return Ok(()) };
        let rules: HashSet<usize> = found.values().map(|bucket| bucket.rule).collect();
        for segment in self.collection.segments.values() {
            let overlaps = segment.live().window_start_min < end && segment.live().window_end_max > start;
            if segment.live().buckets == 0 || !overlaps || due.iter().any(|d| d.file.id == segment.file.id) {
                continue;
            }
            // Metas of another rule are other metas.
            let class = segment.known_class(self.rules, self.epoch);
            if class.is_some_and(|class| class.is_none_or(|rule| !rules.contains(&rule))) {
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

/// Which windows of segments overlap those of others that may hold pieces of the same buckets. Metas of different rules are
/// different, so segments of one rule each never do.
struct Overlaps<'a> {
    scan: &'a DueScan<'a>,
    by_class: HashMap<Option<Option<usize>>, Intervals>,
}

impl<'a> Overlaps<'a> {
    fn new(scan: &'a DueScan<'a>) -> Self {
        Overlaps { scan, by_class: HashMap::new() }
    }

    /// Whether a segment of this class (`None` if its metas have several) with these windows shares no bucket.
    fn is_alone(&mut self, class: Option<Option<usize>>, interval: Interval) -> bool {
        let scan = self.scan;
        let intervals = self.by_class.entry(class).or_insert_with(|| {
            let may_share = |segment: &&Arc<Segment>| {
                let other = segment.known_class(scan.rules, scan.epoch);
                segment.live().buckets > 0 && (class.is_none() || other.is_none() || class == other)
            };
            let segments = scan.collection.segments.values().filter(may_share).map(|s| window_interval(s));
            let open = scan.open().map(|(id, _, _)| (id.window.start, id.window.end));
            Intervals::new(segments.chain(open).collect())
        });
        intervals.is_alone(interval)
    }
}

fn window_interval(segment: &Segment) -> Interval {
    (segment.live().window_start_min, segment.live().window_end_max)
}

/// Windows of everything that is there, sorted by start, each with the greatest end before it.
struct Intervals {
    sorted: Vec<Interval>,
    end_before: Vec<i64>,
}

impl Intervals {
    fn new(mut sorted: Vec<Interval>) -> Self {
        sorted.sort_unstable();
        let mut end = i64::MIN;
        let end_before = sorted
            .iter()
            .map(|interval| {
                let before = end;
                end = end.max(interval.1);
                before
            })
            .collect();
        Intervals { sorted, end_before }
    }

    /// Whether one of the intervals overlaps no other.
    fn is_alone(&self, interval: Interval) -> bool {
        let at = self.sorted.partition_point(|other| *other < interval);
        assert_eq!(self.sorted.get(at), Some(&interval), "a segment is among those that may hold its buckets");
        let next_overlaps = self.sorted.get(at + 1).is_some_and(|next| next.0 < interval.1);
        let earlier_overlaps = self.end_before.get(at).is_some_and(|end| *end > interval.0);
        !next_overlaps && !earlier_overlaps
    }
}
