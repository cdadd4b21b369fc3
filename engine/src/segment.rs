//! A segment in a version: its immutable file, and what deletes and drops left of it.

use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::manifest::{ChangedBucket, ClassStamp, Live, NUMBER_END, SegmentRecord, SegmentState};
use crate::readers::Readers;
use crate::sync::{AtomicBool, Mutex, Ordering};
use ebbtide_buckets::{MetaKey, ReadAt, SegmentMeta, SegmentReader, Window};
use ebbtide_ttl::RuleSet;
use roaring::RoaringBitmap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The name of segment number `id`.
pub(crate) fn file_name(id: u64) -> String {
    format!("seg-{id:016x}.parquet")
}

/// The number that a segment's name gives.
pub(crate) fn parse_name(name: &str) -> Option<u64> {
    let hex = name.strip_prefix("seg-")?.strip_suffix(".parquet")?;
    (hex.len() == 16).then(|| u64::from_str_radix(hex, 16).ok()).flatten().filter(|id| *id < NUMBER_END)
}

/// A segment's file. It is unlinked when it is obsolete and the last snapshot that can see it is gone.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) id: u64,
    pub(crate) path: PathBuf,
    pub(crate) meta: SegmentMeta,
    fs: Arc<dyn Fs>,
    readers: Arc<Readers>,
    reader: Mutex<Option<SegmentReader>>,
    /// Keeps the content where another process may unlink the file.
    held: OnceLock<Arc<dyn ReadAt>>,
    obsolete: AtomicBool,
}

impl SegmentFile {
    pub(crate) fn new(fs: Arc<dyn Fs>, readers: Arc<Readers>, dir: &Path, id: u64, meta: SegmentMeta) -> Self {
        let path = dir.join(file_name(id));
        let (reader, held) = (Mutex::new(None), OnceLock::new());
        SegmentFile { id, path, meta, fs, readers, reader, held, obsolete: AtomicBool::new(false) }
    }

    /// The open file with its directory, read at its first use and kept under the budget of [`Readers`].
    pub(crate) fn reader(self: &Arc<Self>) -> Result<SegmentReader> {
        let mut reader = self.reader.lock();
        if let Some(reader) = reader.as_ref() {
            return Ok(reader.clone());
        }
        let opened = self.open_anew()?.with_cache(self.readers.columns());
        *reader = Some(opened.clone());
        drop(reader);
        self.readers.opened(self, opened.memory_bytes());
        Ok(opened)
    }

    /// Whether the cache of columns has room for so many rows of so many columns. Reading more than that through it would
    /// only drive out what other queries need.
    pub(crate) fn cache_holds(&self, rows: u64, columns: usize) -> bool {
        rows.saturating_mul(columns as u64).saturating_mul(8) <= self.readers.columns().bytes_max() as u64
    }

    /// The budget for directories, of which a walk through all segments leaves most to others.
    pub(crate) fn directory_bytes_max(&self) -> usize {
        self.readers.directory_bytes_max()
    }

    /// The file as it is on the disk now, nothing of it from memory.
    pub(crate) fn open_anew(&self) -> Result<SegmentReader> {
        let file = match self.held.get() {
            Some(held) => held.clone(),
            None => self.open_file()?,
        };
        if file.len() != self.meta.bytes {
            let what = format!("segment length expected={} found={}", self.meta.bytes, file.len());
            return Err(Error::corrupt(&self.path, file.len().min(self.meta.bytes), what));
        }
        let opened = SegmentReader::open(file, &self.path.display().to_string())?;
        if opened.checksum() != self.meta.checksum {
            let what = "the file is a segment, but not the one that the manifest names: it was put in its place";
            return Err(Error::corrupt(&self.path, 0, what));
        }
        Ok(opened)
    }

    fn open_file(&self) -> Result<Arc<dyn ReadAt>> {
        self.fs.open_read(&self.path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::corrupt(&self.path, 0, "segment file is missing"),
            _ => Error::io("open the segment", &self.path, &e),
        })
    }

    /// Opens the file now and keeps it, so that it can be read when a writer beside has unlinked it.
    pub(crate) fn hold(&self) -> Result<()> {
        if self.held.get().is_none() {
            let file = self.open_file()?;
            self.held.get_or_init(|| file);
        }
        Ok(())
    }

    /// Forgets the open file; it is opened again at its next use.
    pub(crate) fn close(&self) {
        *self.reader.lock() = None;
    }

    /// Says that no version names this file any more.
    pub(crate) fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire)
            && let Err(error) = self.fs.remove(&self.path)
        {
            // The manifest no longer names it: the next open removes what is left.
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a segment that is no longer needed");
        }
    }
}

/// What there is to know of one bucket (or of the part of one that lies in a segment).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Brief {
    pub(crate) window: Window,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) rows: u64,
    pub(crate) out_of_range: u64,
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

    pub(crate) fn record(&self) -> SegmentRecord {
        SegmentRecord { id: self.file.id, meta: self.file.meta, class: self.class, state: self.state.clone() }
    }

    pub(crate) fn live(&self) -> &Live {
        &self.state.live
    }

    /// Bytes on disk of what is still there, by its share of the rows.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.share(self.state.live.rows)
    }

    /// Bytes on disk of `rows` of its rows.
    pub(crate) fn share(&self, rows: u64) -> u64 {
        let all = u128::from(self.file.meta.rows.max(1));
        u64::try_from(u128::from(self.file.meta.bytes) * u128::from(rows) / all).unwrap_or(u64::MAX)
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
    pub(crate) fn brief(&self, reader: &SegmentReader, ordinal: usize) -> Option<Brief> {
        let number = u32::try_from(ordinal).ok()?;
        (!self.state.dropped.contains(number)).then(|| self.brief_as_left(reader, number))
    }

    /// The bucket `number`, which was not dropped.
    fn brief_as_left(&self, reader: &SegmentReader, number: u32) -> Brief {
        let (directory, ordinal) = (reader.directory(), number as usize);
        let window = directory.window(ordinal);
        if let Some(changed) = self.changed(number) {
            let ChangedBucket { rows, first, last, out_of_range, .. } = *changed;
            return Brief { window, first, last, rows, out_of_range };
        }
        let rows = directory.rows(ordinal);
        Brief {
            window,
            first: directory.first(ordinal),
            last: directory.last(ordinal),
            rows: rows.end - rows.start,
            out_of_range: u64::from(directory.out_of_range(ordinal)),
        }
    }

    /// Whether a bucket still has all the rows that it was written with.
    pub(crate) fn is_unchanged(&self, ordinal: usize) -> bool {
        u32::try_from(ordinal).is_ok_and(|ordinal| self.changed(ordinal).is_none())
    }

    fn changed(&self, ordinal: u32) -> Option<&ChangedBucket> {
        let at = self.state.changed.binary_search_by_key(&ordinal, |c| c.ordinal).ok()?;
        self.state.changed.get(at)
    }

    /// Every bucket that is still there: ordinal, ordinal of its meta, and bounds.
    pub(crate) fn briefs<'a>(&'a self, reader: &'a SegmentReader) -> impl Iterator<Item = (usize, usize, Brief)> + 'a {
        self.briefs_of(reader, 0..reader.directory().meta_count())
    }

    /// Every bucket of these metas (ordinals in the directory, ascending) that is still there.
    pub(crate) fn briefs_of<'a>(
        &'a self,
        reader: &'a SegmentReader,
        metas: impl IntoIterator<Item = usize> + 'a,
    ) -> impl Iterator<Item = (usize, usize, Brief)> + 'a {
        let directory = reader.directory();
        metas.into_iter().flat_map(move |meta| {
            directory
                .buckets_of_meta(meta)
                .filter_map(move |ordinal| Some((ordinal, meta, self.brief(reader, ordinal)?)))
        })
    }

    /// The meta of bucket `ordinal`.
    pub(crate) fn meta(&self, reader: &SegmentReader, ordinal: usize) -> MetaKey {
        reader.directory().meta_of(ordinal)
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
        let mut live = Live::EMPTY;
        let mut left = RoaringBitmap::new();
        left.insert_range(..u32::try_from(reader.directory().bucket_count()).unwrap_or(u32::MAX));
        left -= &next.state.dropped;
        for number in &left {
            live.add(&next.brief_as_left(&reader, number));
        }
        let mut state = next.state;
        state.live = live;
        Ok(state)
    }
}
