//! Losses, counted by collection and meta.

use super::report::{Loss, LostMeta, text_of};
use crate::documents::segment::DocumentSegment;
use crate::documents::state::DocumentsState;
use crate::fs::Fs;
use crate::ladder::rung_of;
use crate::segment::Segment;
use crate::state::{CollectionState, State};
use crate::wal::{LogContent, LogPart};
use arrow::array::RecordBatch;
use ebbtide_buckets::{MetaKey, Schema, SegmentReader};
use ebbtide_ttl::Timestamp;
use std::collections::BTreeMap;
use std::path::Path;

/// The losses, one for each collection, of records in one log file that can be read but not kept.
pub(super) fn losses_of_records<'a>(state: &State, name: &str, parts: impl Iterator<Item = &'a LogPart>) -> Vec<Loss> {
    let mut by_collection: BTreeMap<u64, Vec<(&RecordBatch, u64)>> = BTreeMap::new();
    let mut documents: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for part in parts {
        match &part.content {
            Some(LogContent::Rows(batch, _)) => {
                by_collection.entry(part.collection).or_default().push((batch, part.bytes));
            }
            Some(LogContent::Documents(changes)) => {
                let (rows, bytes) = documents.entry(part.collection).or_default();
                *rows += changes.len() as u64;
                *bytes += part.bytes;
            }
            None => {}
        }
    }
    let loss = |(id, batches): (u64, Vec<(&RecordBatch, u64)>)| match state.by_id(id) {
        Some(collection) => loss_of_batches(collection, name, &batches),
        None => Loss {
            rows: Some(batches.iter().map(|(batch, _)| batch.num_rows() as u64).sum()),
            ..Loss::unknown(name.to_owned(), batches.iter().map(|(_, bytes)| bytes).sum())
        },
    };
    let loss_of_documents = |(id, (rows, bytes)): (u64, (u64, u64))| {
        let collection = state.documents_by_id(id).map(|documents| documents.name.clone());
        Loss { collection, rows: Some(rows), ..Loss::unknown(name.to_owned(), bytes) }
    };
    by_collection.into_iter().map(loss).chain(documents.into_iter().map(loss_of_documents)).collect()
}

impl Loss {
    pub(super) fn unknown(file: String, bytes: u64) -> Loss {
        Loss { file, collection: None, of_bins: false, rows: None, bytes, times: None, metas: Vec::new() }
    }
}

/// Sums by meta.
#[derive(Default)]
struct Metas(BTreeMap<MetaKey, (u64, i64, i64)>);

impl Metas {
    fn add(&mut self, meta: &MetaKey, rows: u64, first: i64, last: i64) {
        let entry = self.0.entry(meta.clone()).or_insert((0, i64::MAX, i64::MIN));
        *entry = (entry.0 + rows, entry.1.min(first), entry.2.max(last));
    }

    fn lost(&self, schema: &Schema) -> Vec<LostMeta> {
        let time = |t: i64| Timestamp::from_units(t, schema.precision);
        let lost = |(meta, (rows, first, last)): (&MetaKey, &(u64, i64, i64))| LostMeta {
            meta: meta.value(),
            rows: *rows,
            first: time(*first),
            last: time(*last),
        };
        self.0.iter().map(lost).collect()
    }
}

pub(super) fn loss_of_segment(name: String, collection: &CollectionState, segment: &Segment) -> Loss {
    let mut metas = Metas::default();
    // The directory has a checksum of its own: it may be whole where the data is not.
    if let Ok(reader) = segment.file.reader() {
        for (ordinal, _, bounds) in segment.live_buckets(&reader) {
            metas.add(&segment.meta(&reader, ordinal), bounds.rows, bounds.first, bounds.last);
        }
    }
    let time = |t: i64| Timestamp::from_units(t, collection.schema.precision);
    let live = segment.live();
    Loss {
        file: text_of(&segment.file.relative_path()),
        collection: Some(name),
        of_bins: rung_of(&collection.name).is_some(),
        rows: Some(live.rows),
        bytes: segment.file.meta.bytes,
        times: (live.rows > 0).then(|| (time(live.first_min), time(live.last_max))),
        metas: metas.lost(&collection.schema),
    }
}

pub(super) fn loss_of_documents(documents: &DocumentsState, segment: &DocumentSegment) -> Loss {
    let file = text_of(&segment.file.relative_path());
    let (collection, rows) = (Some(documents.name.clone()), Some(segment.live_rows()));
    Loss { collection, rows, ..Loss::unknown(file, segment.file.meta.bytes) }
}

pub(super) fn loss_of_unknown_segment(fs: &dyn Fs, dir: &Path, path: &Path) -> Loss {
    let (name, path) = (text_of(path), dir.join(path));
    let bytes = fs.len(&path).unwrap_or(0);
    let reader = fs.open_read(&path).ok().and_then(|file| SegmentReader::open(file, &name).ok());
    let Some(reader) = reader else { return Loss::unknown(name, bytes) };
    let (directory, mut metas) = (reader.directory(), Metas::default());
    let mut times: Option<(i64, i64)> = None;
    for bucket in 0..directory.bucket_count() {
        let (first, last, rows) = (directory.first(bucket), directory.last(bucket), directory.rows(bucket));
        metas.add(&directory.meta_of(bucket), rows.end - rows.start, first, last);
        times = Some(times.map_or((first, last), |(f, l)| (f.min(first), l.max(last))));
    }
    let time = |t: i64| Timestamp::from_units(t, reader.schema().precision);
    Loss {
        file: name,
        collection: None,
        of_bins: false,
        rows: Some(directory.row_count()),
        bytes,
        times: times.map(|(first, last)| (time(first), time(last))),
        metas: metas.lost(reader.schema()),
    }
}

fn loss_of_batches(collection: &CollectionState, name: &str, batches: &[(&RecordBatch, u64)]) -> Loss {
    let (mut metas, mut rows, mut bytes) = (Metas::default(), 0, 0);
    for (batch, size) in batches {
        rows += batch.num_rows() as u64;
        bytes += size;
        let Ok((_, chunk)) = collection.chunk_of(batch) else { continue };
        for bucket in &chunk.buckets {
            metas.add(&bucket.id.meta, bucket.rows.len() as u64, bucket.first, bucket.last);
        }
    }
    let metas = metas.lost(&collection.schema);
    let first = metas.iter().map(|m| m.first).min();
    let last = metas.iter().map(|m| m.last).max();
    let collection = Some(collection.name.clone());
    Loss { file: name.to_owned(), collection, of_bins: false, rows: Some(rows), bytes, times: first.zip(last), metas }
}
