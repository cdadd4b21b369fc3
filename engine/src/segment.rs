//! A segment in one version of the state: its immutable file, and what deletes and drops have left of it.

pub(crate) mod bounds;
pub(crate) mod file;
pub(crate) mod folder;
pub(crate) mod segment_cache;

use crate::archive::bounds::ArchivedBounds;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use bounds::{BucketBounds, ChangedBucket, ClassStamp, LiveSummary, SegmentRecord, SegmentState};
use ebbtide_buckets::{BucketId, FileTypes, MetaKey, SegmentReader};
use ebbtide_ttl::RuleSet;
use file::SegmentFile;
use roaring::RoaringBitmap;
use std::ops::Range;
use std::sync::Arc;

/// The number of a bucket in a bitmap.
pub(crate) fn ordinal_number(ordinal: usize) -> u32 {
    u32::try_from(ordinal).expect("a segment has fewer than 2^32 buckets: its directory is refused otherwise")
}

/// The number of a row in a bitmap.
pub(crate) fn row_number(row: u64) -> u32 {
    u32::try_from(row).expect("a segment has fewer than 2^32 rows: its directory is refused otherwise")
}

/// The effective rule of the metas of a segment, taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// Not known without reading the segment's directory.
    Unknown,
    /// Metas have different rules.
    Mixed,
    /// No meta has a rule.
    NoRule,
    /// All metas have this rule, by its index in the rule set.
    Rule(usize),
}

impl Class {
    /// Whether segments of these classes may hold the same meta. A meta has one effective rule, so metas of different rules
    /// are different.
    pub(crate) fn may_share_metas(self, other: Class) -> bool {
        let is_open = |class| matches!(class, Class::Unknown | Class::Mixed);
        is_open(self) || is_open(other) || self == other
    }
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
    pub(crate) fn class(&self) -> Class {
        match self {
            Classes::Uniform(None) => Class::NoRule,
            Classes::Uniform(Some((rule, _))) => Class::Rule(*rule),
            Classes::PerMeta(_) => Class::Mixed,
        }
    }

    /// The rule of a meta (index in the rule set, E), by the meta's ordinal.
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
    /// What its archive says of its metas, if it is a file of one.
    pub(crate) archived: Option<Vec<ArchivedBounds>>,
    classes: Mutex<Option<(u64, Classes)>>,
}

impl Segment {
    pub(crate) fn new(file: Arc<SegmentFile>, class: Option<ClassStamp>, state: SegmentState) -> Self {
        Segment { file, class, state, archived: None, classes: Mutex::new(None) }
    }

    /// A file of an archive.
    pub(crate) fn of_archive(file: Arc<SegmentFile>, state: SegmentState, bounds: Vec<ArchivedBounds>) -> Self {
        Segment { archived: Some(bounds), ..Segment::new(file, None, state) }
    }

    /// What the manifest holds of it.
    pub(crate) fn record(&self) -> SegmentRecord {
        SegmentRecord { id: self.file.id, meta: self.file.meta, class: self.class, state: self.state.clone() }
    }

    /// Whether its columns are known to have these types, and it lies in the folder of its collection.
    pub(crate) fn is_of_types(&self, types: &FileTypes) -> bool {
        self.file.generation.is_some_and(|generation| types.are_those_of(generation))
    }

    pub(crate) fn live(&self) -> &LiveSummary {
        &self.state.live
    }

    /// Bytes on disk of the live rows, by their share of all rows.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.share(self.state.live.rows)
    }

    /// Bytes on disk of `rows` of its rows.
    pub(crate) fn share(&self, rows: u64) -> u64 {
        let all = u128::from(self.file.meta.rows.max(1));
        let bytes = u128::from(self.file.meta.bytes) * u128::from(rows) / all;
        u64::try_from(bytes).unwrap_or(u64::MAX) // A forged directory may have more rows than the manifest says.
    }

    /// The effective rule of its metas, as far as it is known without reading the directory.
    pub(crate) fn known_class(&self, rules: &RuleSet, epoch: Option<u64>) -> Class {
        self.known_classes(rules, epoch).map_or(Class::Unknown, |classes| classes.class())
    }

    fn known_classes(&self, rules: &RuleSet, epoch: Option<u64>) -> Option<Classes> {
        if let Some(class) = rules.effective_for_all() {
            return Some(Classes::Uniform(class));
        }
        if let Some(stamp) = self.class.filter(|s| Some(s.rules_epoch) == epoch) {
            let rule = stamp.rule.map(|rule| rule as usize);
            let class = rule.and_then(|rule| Some((rule, rules.rule(rule)?.expire_after_seconds)));
            return Some(Classes::Uniform(class));
        }
        let cached = self.classes.lock();
        cached.as_ref().filter(|(known, _)| Some(*known) == epoch).map(|(_, classes)| classes.clone())
    }

    /// The effective rules of its metas under `rules`; `epoch` is that of `rules` if they are the collection's own. Reads the
    /// directory only if there are partial rules and its stamp is older than they are.
    pub(crate) fn classes(&self, rules: &RuleSet, epoch: Option<u64>) -> Result<Classes> {
        if let Some(known) = self.known_classes(rules, epoch) {
            return Ok(known);
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

    /// The bounds of bucket `ordinal`, unless it was dropped.
    pub(crate) fn bounds(&self, reader: &SegmentReader, ordinal: usize) -> Option<BucketBounds> {
        let number = ordinal_number(ordinal);
        (!self.state.dropped.contains(number)).then(|| self.bounds_as_left(reader, number))
    }

    /// The bounds of bucket `number`, which was not dropped.
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

    /// Whether a bucket still has all its rows.
    pub(crate) fn is_unchanged(&self, ordinal: usize) -> bool {
        self.changed(ordinal_number(ordinal)).is_none()
    }

    fn changed(&self, ordinal: u32) -> Option<&ChangedBucket> {
        let at = self.state.changed.binary_search_by_key(&ordinal, |c| c.ordinal).ok()?;
        self.state.changed.get(at)
    }

    /// Every live bucket: ordinal, ordinal of its meta, and bounds.
    pub(crate) fn live_buckets<'a>(
        &'a self,
        reader: &'a SegmentReader,
    ) -> impl Iterator<Item = (usize, usize, BucketBounds)> + 'a {
        self.buckets_of_metas(reader, 0..reader.directory().meta_count())
    }

    /// Every live bucket of these metas, which are ascending ordinals in the directory.
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

    /// Fails unless `found` is the number of live rows.
    pub(crate) fn check_rows(&self, found: u64) -> Result<()> {
        if found == self.live().rows {
            return Ok(());
        }
        let what = format!("segment rows expected={} found={found}", self.live().rows);
        Err(Error::corrupt(&self.file.path, 0, what))
    }

    /// Ranges of live rows of some buckets, and the live ones of these with the numbers of their rows, in the order of rows.
    pub(crate) fn live_rows(
        &self,
        reader: &SegmentReader,
        ordinals: Range<usize>,
    ) -> (Vec<Range<u64>>, Vec<(BucketId, u64)>) {
        let mut ranges = Vec::new();
        let mut buckets = Vec::new();
        for (ordinal, bounds) in ordinals.filter_map(|ordinal| Some((ordinal, self.bounds(reader, ordinal)?))) {
            let id = BucketId { meta: self.meta(reader, ordinal), window: bounds.window };
            buckets.push((id, bounds.rows));
            self.push_live(&mut ranges, reader, ordinal);
        }
        (ranges, buckets)
    }

    /// Appends the live rows of bucket `ordinal`, joining adjacent ranges.
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

    /// The live rows of bucket `ordinal`, as ascending ranges.
    pub(crate) fn live_ranges(&self, reader: &SegmentReader, ordinal: usize) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        self.push_live(&mut ranges, reader, ordinal);
        ranges
    }

    /// The state after further buckets are dropped and further rows are deleted. `changed` holds the new bounds of the buckets
    /// that keep some of their rows.
    ///
    /// # Errors
    /// If the counts of the manifest and of the directory contradict each other.
    pub(crate) fn without(
        &self,
        dropped: &RoaringBitmap,
        deleted: &RoaringBitmap,
        changed: &[ChangedBucket],
    ) -> Result<SegmentState> {
        let reader = self.file.reader()?;
        let mut state = self.state.clone();
        state.dropped |= dropped;
        state.deleted |= deleted;
        for change in changed {
            let rows = reader.directory().rows(change.ordinal as usize);
            let deleted = state.deleted.range_cardinality(row_number(rows.start)..row_number(rows.end));
            if change.rows != rows.end - rows.start - deleted {
                let what =
                    format!("bucket {}: {} rows left, {deleted} deleted of {rows:?}", change.ordinal, change.rows);
                return Err(Error::corrupt(&self.file.path, 0, what));
            }
            match state.changed.binary_search_by_key(&change.ordinal, |c| c.ordinal) {
                Ok(at) => state.changed[at] = *change,
                Err(at) => state.changed.insert(at, *change),
            }
        }
        state.changed.retain(|c| !state.dropped.contains(c.ordinal));
        let next = Segment::new(self.file.clone(), self.class, state);
        let mut live = LiveSummary::EMPTY;
        let mut left = RoaringBitmap::new();
        left.insert_range(..ordinal_number(reader.directory().bucket_count()));
        left -= &next.state.dropped;
        for number in &left {
            live.add(&next.bounds_as_left(&reader, number));
        }
        let before = self.live();
        if live.rows > before.rows || live.buckets > before.buckets || live.out_of_range > before.out_of_range {
            let what = format!("directory and manifest disagree: {before:?} would become {live:?}");
            return Err(Error::corrupt(&self.file.path, 0, what));
        }
        Ok(SegmentState { live, ..next.state })
    }
}
