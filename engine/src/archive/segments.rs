//! Files of archives as segments, which stay open from one statement to the next.

use super::{ArchiveFetched, ArchiveNumber, ArchivePlace, ArchivedFile, unreachable};
use crate::error::Result;
use crate::segment::Segment;
use crate::segment::bounds::{LiveSummary, SegmentState};
use crate::segment::file::SegmentFile;
use crate::segment::folder::SegmentFolder;
use crate::segment::segment_cache::SegmentCache;
use crate::sync::{AtomicU64, Mutex, Ordering};
use ebbtide_buckets::{Schema, SegmentMeta};
use roaring::RoaringBitmap;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

/// The numbers of segments in archives begin here. Those of segments in the database never get there.
const FIRST: u64 = 1 << 63;

/// The segments of a collection's archives in the versions that were read last, kept open from one statement to the next.
#[derive(Debug, Default)]
pub(super) struct ArchiveSegments {
    /// By URL.
    versions: Mutex<BTreeMap<String, Version>>,
    /// How many segments were made.
    made: AtomicU64,
    pub(super) fetched: Arc<ArchiveFetched>,
}

#[derive(Debug)]
struct Version {
    /// The number with which the database owned the place: another table may have replaced that of a URL.
    owner: Option<ArchiveNumber>,
    number: u64,
    /// The fields of the collection that were compared with those of the table.
    schema: Arc<Schema>,
    segments: Option<Segments>,
}

/// The files of a version. There are none if one of them is no segment, since an older program wrote it, or if a field has another
/// type in the table than in the collection: what directories say of it is of that type.
pub(super) type Segments = Arc<Vec<Arc<Segment>>>;

/// What segments of archives share with those of the collection.
pub(super) struct Shared<'a> {
    pub(super) folder: &'a Arc<SegmentFolder>,
    pub(super) cache: &'a Arc<SegmentCache>,
    pub(super) schema: &'a Arc<Schema>,
}

impl ArchiveSegments {
    /// Forgets archives that the collection no longer has.
    pub(super) fn retain(&self, has: impl Fn(&str) -> bool) {
        self.versions.lock().retain(|url, _| has(url));
    }

    /// The segments of a version of an archive, if they can be read as segments.
    pub(super) fn of(
        &self,
        (url, owner, number): (&str, Option<ArchiveNumber>, u64),
        shared: &Shared<'_>,
        place: impl FnOnce() -> Result<Arc<dyn ArchivePlace>>,
    ) -> Result<Option<Segments>> {
        let before = match self.versions.lock().get(url).filter(|version| version.owner == owner) {
            Some(version) if version.number == number && version.schema == *shared.schema => {
                return Ok(version.segments.clone());
            }
            version => version.and_then(|version| version.segments.clone()).unwrap_or_default(),
        };
        // The place may take long to answer, and others must not wait for that.
        let place = place()?;
        let open: HashMap<&Path, &Arc<Segment>> = before.iter().map(|one| (one.file.path.as_path(), one)).collect();
        let files = place.files(number).map_err(unreachable)?;
        let mut segments = place.has_types_of(shared.schema).then(Vec::new);
        for file in files {
            let (Some(meta), Some(found)) = (file.segment, &mut segments) else {
                segments = None;
                break;
            };
            let path = Path::new(url).join(&file.name);
            found.push(match open.get(path.as_path()) {
                Some(segment) => Arc::clone(segment),
                None => self.segment(&path, &file, meta, (place.as_ref(), shared))?,
            });
        }
        let segments = segments.map(Arc::new);
        let mut versions = self.versions.lock();
        if versions.get(url).is_none_or(|version| version.owner != owner || version.number <= number) {
            let schema = Arc::clone(shared.schema);
            versions.insert(url.to_owned(), Version { owner, number, schema, segments: segments.clone() });
        }
        Ok(segments)
    }

    fn segment(
        &self,
        path: &Path,
        file: &ArchivedFile,
        meta: SegmentMeta,
        (place, shared): (&dyn ArchivePlace, &Shared<'_>),
    ) -> Result<Arc<Segment>> {
        let content = place.open(file, Arc::clone(&self.fetched)).map_err(unreachable)?;
        let (folder, cache) = (Arc::clone(shared.folder), Arc::clone(shared.cache));
        let (id, bounds) = (FIRST + self.made.fetch_add(1, Ordering::Relaxed), file.bounds.clone());
        let file = SegmentFile::of_archive(cache, folder, (id, path.to_owned()), meta, content);
        let live = LiveSummary {
            rows: meta.rows,
            buckets: meta.buckets,
            out_of_range: meta.out_of_range,
            first_min: meta.first,
            last_min: meta.first,
            last_max: meta.last,
            window_start_min: meta.window_start,
            window_end_min: meta.window_start,
            window_end_max: meta.window_end,
        };
        let (dropped, deleted) = (RoaringBitmap::new(), RoaringBitmap::new());
        let state = SegmentState { dropped, deleted, changed: Vec::new(), live };
        Ok(Arc::new(Segment::of_archive(Arc::new(file), state, bounds)))
    }
}
