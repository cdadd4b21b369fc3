//! A segment of an ordinary collection in one version of the state: its immutable file, and the rows that are gone from it.

use super::segment_index::SegmentIndex;
use super::stored::Stored;
use crate::error::{Error, Result};
use crate::segment::file::SegmentFile;
use crate::sync::Mutex;
use bytes::Bytes;
use ebbtide_buckets::{KeyedColumns, KeyedMeta, KeyedReader, StoredDocument};
use ebbtide_documents::{DefaultTtl, with_id_of_key};
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A segment of documents in the manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DocumentSegmentRecord {
    pub(crate) id: u64,
    pub(crate) meta: KeyedMeta,
    /// Rows that were replaced, removed or purged.
    pub(crate) deleted: RoaringBitmap,
}

impl DocumentSegmentRecord {
    /// What is wrong with it, if anything is.
    pub(crate) fn fault(&self) -> Option<String> {
        let rows = self.meta.rows;
        if rows == 0 || rows > u64::from(u32::MAX) {
            return Some(format!("a segment of {rows} documents"));
        }
        if self.deleted.max().is_some_and(|row| u64::from(row) >= rows) {
            return Some(format!("names rows beyond the {rows} that it was written with"));
        }
        (self.deleted.len() >= rows).then(|| "no document is left, and the segment is not removed".to_owned())
    }
}

/// When the documents of a segment expire, under one set of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outlook {
    /// The epoch of the rules.
    pub(crate) epoch: u64,
    /// Nothing expires before this instant, in milliseconds; `None` if nothing ever does.
    pub(crate) first: Option<i64>,
}

/// A segment as one version sees it.
#[derive(Debug)]
pub(crate) struct DocumentSegment {
    pub(crate) file: Arc<SegmentFile<KeyedReader>>,
    /// Rows that are durably gone.
    pub(crate) deleted: RoaringBitmap,
    outlook: Mutex<Option<Outlook>>,
    /// What indexes say of it, by path.
    indexes: Arc<Mutex<BTreeMap<String, Arc<SegmentIndex>>>>,
}

impl DocumentSegment {
    pub(crate) fn new(file: Arc<SegmentFile<KeyedReader>>, deleted: RoaringBitmap) -> Self {
        DocumentSegment { file, deleted, outlook: Mutex::new(None), indexes: Arc::default() }
    }

    /// What an index on a path says of it, if that is known.
    pub(crate) fn index(&self, path: &str) -> Option<Arc<SegmentIndex>> {
        self.indexes.lock().get(path).cloned()
    }

    /// Keeps what an index on a path says of it.
    pub(crate) fn keep_index(&self, path: &str, index: Arc<SegmentIndex>) {
        self.indexes.lock().insert(path.to_owned(), index);
    }

    /// Forgets what indexes on other paths than these say.
    pub(crate) fn forget_indexes_but(&self, paths: &[&str]) {
        self.indexes.lock().retain(|path, _| paths.contains(&path.as_str()));
    }

    /// What the manifest holds of it.
    pub(crate) fn record(&self) -> DocumentSegmentRecord {
        DocumentSegmentRecord { id: self.file.id, meta: self.file.meta.clone(), deleted: self.deleted.clone() }
    }

    pub(crate) fn id(&self) -> u64 {
        self.file.id
    }

    /// Rows that are not durably gone.
    pub(crate) fn live_rows(&self) -> u64 {
        self.file.meta.rows.saturating_sub(self.deleted.len())
    }

    /// Bytes on disk of that many of its rows.
    pub(crate) fn share(&self, rows: u64) -> u64 {
        let bytes = u128::from(self.file.meta.bytes) * u128::from(rows) / u128::from(self.file.meta.rows.max(1));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// When its last document expires through time to live per item alone, in milliseconds; `None` if some document never does.
    pub(crate) fn last_item_expiry(&self, default_ttl: DefaultTtl) -> Option<i64> {
        let lives = &self.file.meta.lives;
        let inherited = match default_ttl {
            DefaultTtl::Off => return None,
            DefaultTtl::Never if lives.inheriting > 0 => return None,
            DefaultTtl::Never => 0,
            DefaultTtl::Seconds(n) => i64::from(n).saturating_mul(1000),
        };
        if lives.never > 0 {
            return None;
        }
        let of_inheriting = lives.written_max_inheriting.map(|written| written.saturating_add(inherited));
        of_inheriting.into_iter().chain(lives.expires_max_own).max()
    }

    /// When its first document may expire through time to live per item alone, in milliseconds; `None` if none ever does.
    pub(crate) fn first_item_expiry(&self, default_ttl: DefaultTtl) -> Option<i64> {
        let lives = &self.file.meta.lives;
        let of_inheriting = match default_ttl {
            DefaultTtl::Off => return None,
            DefaultTtl::Never => None,
            DefaultTtl::Seconds(n) => {
                lives.written_min_inheriting.map(|written| written.saturating_add(i64::from(n).saturating_mul(1000)))
            }
        };
        of_inheriting.into_iter().chain(lives.expires_min_own).min()
    }

    /// The row of a key, whether or not it is gone.
    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<u32>> {
        let meta = &self.file.meta;
        if key < meta.first_key.as_slice() || key > meta.last_key.as_slice() {
            return Ok(None);
        }
        Ok(self.file.reader()?.find(key)?)
    }

    /// The row and the document of a key, unless the row is gone.
    pub(crate) fn get(&self, key: &[u8], is_gone: impl Fn(u32) -> bool) -> Result<Option<(u32, Stored)>> {
        let meta = &self.file.meta;
        if key < meta.first_key.as_slice() || key > meta.last_key.as_slice() {
            return Ok(None);
        }
        let found = self.file.reader()?.find_document_unless(key, is_gone)?;
        found.map(|(row, document)| Ok((row, whole(&self.file.path, key, document)?))).transpose()
    }

    /// The key and the document of a row.
    pub(crate) fn row(&self, row: u32) -> Result<(Bytes, Stored)> {
        let reader = self.file.reader()?;
        let key = reader.key(row)?;
        let stored = whole(&self.file.path, &key, reader.get(row)?)?;
        Ok((key, stored))
    }

    /// All rows but some, with their keys, in the order of these.
    pub(crate) fn rows(
        &self,
        unwanted: &RoaringBitmap,
    ) -> Result<impl Iterator<Item = Result<(u32, Bytes, Stored)>> + use<>> {
        Ok(self.rows_of(&self.file.reader()?, unwanted))
    }

    /// As [`DocumentSegment::rows`], read by this reader of the file.
    pub(crate) fn rows_of(
        &self,
        reader: &KeyedReader,
        unwanted: &RoaringBitmap,
    ) -> impl Iterator<Item = Result<(u32, Bytes, Stored)>> + use<> {
        let blocks = reader.scan(unwanted, 0..u32::MAX, KeyedColumns { keys: true, documents: true });
        let file = self.file.clone();
        blocks.flat_map(move |block| match block {
            Err(error) => vec![Err(error.into())],
            Ok(block) => {
                let columns = block.rows.into_iter().zip(block.keys).zip(block.written).zip(block.documents);
                let row = |(((row, key), written), document): (((u32, Bytes), i64), Bytes)| {
                    let stored = whole(&file.path, &key, StoredDocument { written, document })?;
                    Ok((row, key, stored))
                };
                columns.map(row).collect()
            }
        })
    }

    /// When its documents expire, if that was found out under these rules.
    pub(crate) fn outlook(&self, epoch: u64) -> Option<Outlook> {
        self.outlook.lock().filter(|outlook| outlook.epoch == epoch)
    }

    /// Remembers when its documents expire.
    pub(crate) fn set_outlook(&self, outlook: Outlook) {
        *self.outlook.lock() = Some(outlook);
    }

    /// The same segment with more rows gone.
    pub(crate) fn without(&self, deleted: RoaringBitmap) -> DocumentSegment {
        let outlook = *self.outlook.lock();
        let (file, indexes) = (self.file.clone(), self.indexes.clone());
        DocumentSegment { file, deleted, outlook: Mutex::new(outlook), indexes }
    }

    /// Checks that an edit only takes rows away.
    pub(crate) fn check_deleted(&self, after: &RoaringBitmap) -> std::result::Result<(), String> {
        if !self.deleted.is_subset(after) {
            return Err("an edit restores removed documents".to_owned());
        }
        let record = DocumentSegmentRecord { id: self.id(), meta: self.file.meta.clone(), deleted: after.clone() };
        record.fault().map_or(Ok(()), Err)
    }
}

/// A document of a segment with its `_id`, which the file leaves out where the key tells it.
fn whole(path: &Path, key: &[u8], found: StoredDocument) -> Result<Stored> {
    let StoredDocument { written, document } = found;
    let with_id = with_id_of_key(&document, key).map_err(|message| Error::corrupt(path, 0, message))?;
    Ok(Stored { written, document: with_id.map_or(document, Bytes::from) })
}

/// The row of a stored document as a number of 32 bits.
pub(crate) fn row_number(row: u64) -> Result<u32> {
    u32::try_from(row).map_err(|_| Error::internal("a segment of over 2^32 documents"))
}
