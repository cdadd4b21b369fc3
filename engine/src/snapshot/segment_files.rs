//! A collection's segment files, for other programs that read them.

use super::CollectionSnapshot;
use crate::error::Result;
use crate::memtable::Memtable;
use crate::segment::Segment;
use crate::state::CollectionState;
use ebbtide_buckets::FileType;
use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::Arc;

/// The segment files of a collection, as other programs can read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFiles {
    /// The folder of the collection's segments.
    pub folder: PathBuf,
    /// The files with their folders. Those with the widest types come first: programs that take the types of the first file
    /// for all read them rightly in this order.
    pub files: Vec<PathBuf>,
    /// Whether all of them lie in the folder and have the same types, so that a pattern such as `*.parquet` gives the same.
    pub agree: bool,
    /// The columns in the order of the schema, with a type that holds the values of all files.
    pub columns: Vec<(String, FileType)>,
    /// Rows in the files.
    pub rows: u64,
    /// Rows in the files that are visible: the others are deleted or expired, and the files keep them until they are
    /// rewritten or removed.
    pub visible: u64,
    /// Rows that are in the log and in no file yet.
    pub unsealed: u64,
}

impl CollectionSnapshot {
    /// The collection's segment files, for programs that read them.
    ///
    /// # Errors
    /// Damage in a segment.
    pub fn segment_files(&self) -> Result<SegmentFiles> {
        let state = &self.state;
        let mut segments: Vec<&Segment> = state.segments.values().map(AsRef::as_ref).collect();
        segments.sort_by_key(|segment| (Reverse(segment.file.generation), segment.file.id));
        let sealed = CollectionState { memtable: Memtable::default(), ..(**state).clone() };
        let sealed = CollectionSnapshot { state: Arc::new(sealed), ..self.clone() };
        let types = state.known_file_types()?;
        // Of a field that only the log has, there is no column.
        let mut columns: Vec<(String, FileType)> = Vec::with_capacity(types.columns().len());
        for field in state.schema.arrow().fields() {
            columns.extend(types.columns().iter().find(|(name, _)| name == field.name()).cloned());
        }
        Ok(SegmentFiles {
            folder: state.folder.path().to_owned(),
            files: segments.iter().map(|segment| segment.file.path.clone()).collect(),
            agree: !state.types_differ() && !state.has_old_segments(),
            columns,
            rows: segments.iter().map(|segment| segment.file.meta.rows).sum(),
            visible: sealed.count()?,
            unsealed: state.memtable.rows(),
        })
    }
}
