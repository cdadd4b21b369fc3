//! A segment in a version: its immutable file, and what deletes and drops left of it.

pub(crate) mod bounds;
pub(crate) mod file;
pub(crate) mod folder;
pub(crate) mod segment_cache;

use crate::error::Result;
use crate::manifest::Op;
use crate::sync::Mutex;
use bounds::{BucketBounds, ChangedBucket, ClassStamp, LiveSummary, SegmentRecord, SegmentState};
use ebbtide_buckets::{BucketId, FileTypes, MetaKey, SegmentReader};
use ebbtide_ttl::RuleSet;
use file::SegmentFile;
use roaring::RoaringBitmap;
use std::ops::Range;
use std::sync::Arc;

/// The number of a bucket as bitmaps hold it.
pub(crate) fn ordinal_number(ordinal: usize) -> u32 {
    u32::try_from(ordinal).expect("a segment has fewer than 2^32 buckets: its directory is refused otherwise")
}

/// The number of a row as bitmaps hold it.
pub(crate) fn row_number(row: u64) -> u32 {
    u32::try_from(row).expect("a segment has fewer than 2^32 rows: its directory is refused otherwise")
}

/// The effective rule of every meta of a segment.
#[derive(Debug, Clone)]
pub(crate) enum Classes {
    /// All metas have this one (index in the rule set, E).
    Uniform(Option<(usize, i64)>),
    /// By ordinal of the meta in the directory.
    PerMeta(Arc<Vec<Option<(usize, i64)>>>),
}

impl Classes {
    pub(crate) fn of(&self, meta: usize) -> Option<(usize, i64)> {
        match self {
            Classes::Uniform(class) => *class,
            Classes::PerMeta(classes) => classes.get(meta).copied().flatten(),
        }
    }

    /// The smallest and the largest E; the largest is `None` if some meta has no rule.
    pub(crate) fn range(&self) -> (Option<i64>, Option<i64>) {
        match self {
            Classes::Uniform(class) => (class.map(|c| c.1), class.map(|c| c.1)),
            Classes::PerMeta(classes) => {
                let least = classes.iter().flatten().map(|c| c.1).min();
                let all: Option<Vec<i64>> = classes.iter().map(|c| c.map(|c| c.1)).collect();
                (least, all.and_then(|all| all.into_iter().max()))
            }
        }
    }
}

/// A segment as one version sees it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) file: Arc<SegmentFile>,
    pub(crate) class: Option<ClassStamp>,
    pub(crate) state: SegmentState,
    classes: Mutex<Option<(u64, Classes)>>,
}

impl Segment {
    pub(crate) fn new(file: Arc<SegmentFile>, class: Option<ClassStamp>, state: SegmentState) -> Self {
        Segment { file, class, state, classes: Mutex::new(None) }
    }

    fn record(&self) -> SegmentRecord {
        SegmentRecord { id: self.file.id, meta: self.file.meta, class: self.class, state: self.state.clone() }
    }

    /// The edit that adds it, as it is now, to nothing.
    pub(crate) fn addition(&self, collection: u64) -> Op {
        let segment = self.record();
        match self.file.generation {
            None => Op::AddSegment { collection, segment },
            Some(generation) => Op::AddSegmentInFolder { collection, segment, generation },
        }
    }

    /// Whether its columns are known to have these types, and it lies in the folder of its collection.
    pub(crate) fn is_of_types(&self, types: &FileTypes) -> bool {
        self.file.generation.is_some_and(|generation| types.are_those_of(generation))
    }

    pub(crate) fn live(&self) -> &LiveSummary {
        &self.state.live
    }

    /// Bytes on disk of what is still there, by its share of the rows.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.share(self.state.live.rows)
    }

    /// Bytes on disk of `rows` of its rows.
    pub(crate) fn share(&self, rows: u64) -> u64 {
        let all = u128::from(self.file.meta.rows.max(1));
        let bytes = u128::from(self.file.meta.bytes) * u128::from(rows) / all;
        u64::try_from(bytes).unwrap_or(u64::MAX) // A damaged record may name more rows than the file has.
    }

    /// The effective rule that all its metas have, as far as that is known without its directory.
    pub(crate) fn known_class(&self, rules: &RuleSet, epoch: Option<u64>) -> Option<Option<usize>> {
        if let Some(class) = rules.effective_for_all() {
            return Some(class.map(|c| c.0));
        }
        if let Some(stamp) = self.class.filter(|s| Some(s.rules_epoch) == epoch) {
            return Some(stamp.rule.map(|rule| rule as usize));
        }
        match self.classes.lock().as_ref() {
            Some((known, Classes::Uniform(class))) if Some(*known) == epoch => Some(class.map(|c| c.0)),
            _ => None,
        }
    }

    /// The effective rules of its metas under `rules`; `epoch` is theirs if they are the collection's own. Reads the directory only if there are partial rules that its stamp predates.
    pub(crate) fn classes(&self, rules: &RuleSet, epoch: Option<u64>) -> Result<Classes> {
        if let Some(class) = rules.effective_for_all() {
            return Ok(Classes::Uniform(class));
        }
        if let Some(stamp) = self.class.filter(|s| Some(s.rules_epoch) == epoch) {
            return Ok(Classes::Uniform(
                stamp.rule.and_then(|rule| Some((rule as usize, rules.rule(rule as usize)?.expire_after_seconds))),
            ));
        }
        if let Some((known, classes)) = self.classes.lock().as_ref()
            && Some(*known) == epoch
        {
            return Ok(classes.clone());
        }
        let reader = self.file.reader()?;
        let directory = reader.directory();
        let all: Vec<_> =
            (0..directory.meta_count()).map(|meta| rules.effective(&directory.meta(meta).value())).collect();
        let classes = match all.first() {
            Some(first) if all.iter().all(|c| c == first) => Classes::Uniform(*first),
            None => Classes::Uniform(None),
            _ => Classes::PerMeta(Arc::new(all)),
        };
        if let Some(epoch) = epoch {
            *self.classes.lock() = Some((epoch, classes.clone()));
        }
        Ok(classes)
    }

    /// The bucket `ordinal`, if it is still there.
    pub(crate) fn bounds(&self, reader: &SegmentReader, ordinal: usize) -> Option<BucketBounds> {
        let number = ordinal_number(ordinal);
        (!self.state.dropped.contains(number)).then(|| self.bounds_as_left(reader, number))
    }

    /// The bucket `number`, which was not dropped.
    fn bounds_as_left(&self, reader: &SegmentReader, number: u32) -> BucketBounds {
        let (directory, ordinal) = (reader.directory(), number as usize);
        let window = directory.window(ordinal);
        if let Some(changed) = self.changed(number) {
            let ChangedBucket { rows, first, last, out_of_range, .. } = *changed;
            return BucketBounds { window, first, last, rows, out_of_range };
        }
        let rows = directory.rows(ordinal);
        BucketBounds {
            window,
            first: directory.first(ordinal),
            last: directory.last(ordinal),
            rows: rows.end - rows.start,
            out_of_range: u64::from(directory.out_of_range(ordinal)),
        }
    }

    /// Whether a bucket still has all the rows that it was written with.
    pub(crate) fn is_unchanged(&self, ordinal: usize) -> bool {
        self.changed(ordinal_number(ordinal)).is_none()
    }

    fn changed(&self, ordinal: u32) -> Option<&ChangedBucket> {
        let at = self.state.changed.binary_search_by_key(&ordinal, |c| c.ordinal).ok()?;
        self.state.changed.get(at)
    }

    /// Every bucket that is still there: ordinal, ordinal of its meta, and bounds.
    pub(crate) fn live_buckets<'a>(
        &'a self,
        reader: &'a SegmentReader,
    ) -> impl Iterator<Item = (usize, usize, BucketBounds)> + 'a {
        self.buckets_of_metas(reader, 0..reader.directory().meta_count())
    }

    /// Every bucket of these metas (ordinals in the directory, ascending) that is still there.
    pub(crate) fn buckets_of_metas<'a>(
        &'a self,
        reader: &'a SegmentReader,
        metas: impl IntoIterator<Item = usize> + 'a,
    ) -> impl Iterator<Item = (usize, usize, BucketBounds)> + 'a {
        let directory = reader.directory();
        metas.into_iter().flat_map(move |meta| {
            directory
                .buckets_of_meta(meta)
                .filter_map(move |ordinal| Some((ordinal, meta, self.bounds(reader, ordinal)?)))
        })
    }

    /// The meta of bucket `ordinal`.
    pub(crate) fn meta(&self, reader: &SegmentReader, ordinal: usize) -> MetaKey {
        reader.directory().meta_of(ordinal)
    }

    /// Ranges of rows that are still there, and the buckets that they belong to with their counts, in the order of rows.
    pub(crate) fn live_rows(&self, reader: &SegmentReader) -> (Vec<Range<u64>>, Vec<(BucketId, u64)>) {
        let mut ranges = Vec::new();
        let mut buckets = Vec::new();
        for (ordinal, _, bounds) in self.live_buckets(reader) {
            let id = BucketId { meta: self.meta(reader, ordinal), window: bounds.window };
            buckets.push((id, bounds.rows));
            self.push_live(&mut ranges, reader, ordinal);
        }
        (ranges, buckets)
    }

    /// Appends the rows of bucket `ordinal` less the deleted ones, joining ranges that touch.
    pub(crate) fn push_live(&self, ranges: &mut Vec<Range<u64>>, reader: &SegmentReader, ordinal: usize) {
        let mut push = |range: Range<u64>| match ranges.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range),
        };
        let rows = reader.directory().rows(ordinal);
        let mut start = rows.start;
        if !self.state.deleted.is_empty() {
            for gone in self.state.deleted.range(row_number(rows.start)..row_number(rows.end)) {
                push(start..u64::from(gone));
                start = u64::from(gone) + 1;
            }
        }
        push(start..rows.end);
    }

    /// The rows of bucket `ordinal` that are still there, as ranges in order.
    pub(crate) fn live_ranges(&self, reader: &SegmentReader, ordinal: usize) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        self.push_live(&mut ranges, reader, ordinal);
        ranges
    }

    /// The state after further buckets are gone and further rows are deleted.
    ///
    /// `changed` gives the new bounds of the buckets that keep some rows.
    pub(crate) fn without(
        &self,
        dropped: &RoaringBitmap,
        deleted: &RoaringBitmap,
        changed: &[ChangedBucket],
    ) -> Result<SegmentState> {
        let mut state = self.state.clone();
        state.dropped |= dropped;
        state.deleted |= deleted;
        for change in changed {
            match state.changed.binary_search_by_key(&change.ordinal, |c| c.ordinal) {
                Ok(at) => state.changed[at] = *change,
                Err(at) => state.changed.insert(at, *change),
            }
        }
        state.changed.retain(|c| !state.dropped.contains(c.ordinal));
        let next = Segment::new(self.file.clone(), self.class, state);
        let reader = self.file.reader()?;
        let mut live = LiveSummary::EMPTY;
        let mut left = RoaringBitmap::new();
        left.insert_range(..ordinal_number(reader.directory().bucket_count()));
        left -= &next.state.dropped;
        for number in &left {
            live.add(&next.bounds_as_left(&reader, number));
        }
        let mut state = next.state;
        state.live = live;
        Ok(state)
    }
}
