//! The bucket directory: what a segment holds, bucket by bucket, found without reading a page of data.
//!
//! Inside: the metas in order, each as the bytes it shares with the one before and the rest; per meta its number of
//! buckets; then one list per property of the buckets (window, first and last time, rows, rows out of range) as variable
//! length numbers, differences where they are small; the checksums of the data blocks; the statistics by field; the
//! postings. The whole is one zstd frame, preceded by its raw length.

use super::postings::Postings;
use super::stats::{FieldStats, StatsBuilder};
use super::varint::{self, Cursor, unfold};
use crate::meta::MetaKey;
use crate::window::Window;
use bytes::Bytes;
use ebbtide_ttl::Value;
use memchr::memmem;
use roaring::RoaringBitmap;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

/// Buckets of fewer rows on average share one entry of statistics: their own would cost more than they save.
const ROWS_FOR_STATS: u64 = 16;
/// Much more than any directory: a larger raw length is damage.
const RAW_BYTES_MAX: u32 = 1 << 30;

/// Lists with an entry for each bucket.
pub(super) const BUCKET_LISTS: usize = 6;

/// The buckets of a segment by ordinal: in order of meta, then window, with consecutive row ranges.
#[derive(Debug)]
pub struct Directory {
    /// The bytes of all metas in order, one after the other.
    meta_bytes: Vec<u8>,
    /// Where each meta ends in `meta_bytes`.
    meta_ends: Vec<u32>,
    /// The first bucket of each meta, and the number of buckets at the end.
    meta_starts: Vec<usize>,
    /// The meta of each bucket.
    bucket_metas: Vec<u32>,
    windows: Vec<Window>,
    firsts: Vec<i64>,
    lasts: Vec<i64>,
    /// Where the rows of each bucket end.
    row_ends: Vec<u64>,
    /// Buckets with rows outside of the times in which rules act, and their number of rows; usually none.
    out_of_range: Vec<(usize, u32)>,
    data_bytes: u64,
    pub(super) checksums: Vec<u32>,
    per_bucket_stats: bool,
    stats: Vec<LazyStats>,
    postings_bytes: Bytes,
    postings: OnceLock<Option<Postings>>,
}

#[derive(Debug)]
struct LazyStats {
    name: String,
    bytes: Bytes,
    decoded: OnceLock<Option<FieldStats>>,
}

/// One bucket while a directory is made.
pub(super) struct Entry {
    pub(super) meta: MetaKey,
    pub(super) window: Window,
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) rows: u64,
    pub(super) out_of_range: u32,
}

impl Directory {
    /// Number of buckets.
    #[must_use]
    pub fn bucket_count(&self) -> usize {
        self.windows.len()
    }

    /// Number of rows.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.row_ends.last().copied().unwrap_or(0)
    }

    /// Number of distinct metas.
    #[must_use]
    pub fn meta_count(&self) -> usize {
        self.meta_ends.len()
    }

    /// The canonical bytes of a meta: see [`MetaKey::as_bytes`]. Metas are in the order of their bytes.
    ///
    /// # Panics
    /// If there is no such meta; the same holds for all functions that take a meta's ordinal.
    #[must_use]
    pub fn meta_bytes(&self, meta: usize) -> &[u8] {
        let start = if meta == 0 { 0 } else { self.meta_ends[meta - 1] };
        &self.meta_bytes[start as usize..self.meta_ends[meta] as usize]
    }

    /// A meta, by its ordinal.
    #[must_use]
    pub fn meta(&self, meta: usize) -> MetaKey {
        MetaKey::trusted(self.meta_bytes(meta))
    }

    /// Whether both hold the same metas, with the same ordinals.
    #[must_use]
    pub fn same_metas(&self, other: &Directory) -> bool {
        self.meta_ends == other.meta_ends && self.meta_bytes == other.meta_bytes
    }

    /// The ordinal of a meta.
    #[must_use]
    pub fn find_meta(&self, meta: &MetaKey) -> Option<usize> {
        let (mut low, mut high) = (0, self.meta_count());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.meta_bytes(middle).cmp(meta.as_bytes()) {
                Ordering::Equal => return Some(middle),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// The ordinals of the buckets of a meta.
    #[must_use]
    pub fn buckets_of_meta(&self, meta: usize) -> Range<usize> {
        self.meta_starts[meta]..self.meta_starts[meta + 1]
    }

    /// The meta of a bucket.
    ///
    /// # Panics
    /// If there is no such bucket; the same holds for all functions that take a bucket's ordinal.
    #[must_use]
    pub fn meta_of(&self, bucket: usize) -> MetaKey {
        self.meta(self.bucket_metas[bucket] as usize)
    }

    /// The ordinal of a bucket's meta.
    #[must_use]
    pub fn meta_ordinal(&self, bucket: usize) -> usize {
        self.bucket_metas[bucket] as usize
    }

    /// A bucket's window.
    #[must_use]
    pub fn window(&self, bucket: usize) -> Window {
        self.windows[bucket]
    }

    /// The time of a bucket's first row.
    #[must_use]
    pub fn first(&self, bucket: usize) -> i64 {
        self.firsts[bucket]
    }

    /// The time of a bucket's last row.
    #[must_use]
    pub fn last(&self, bucket: usize) -> i64 {
        self.lasts[bucket]
    }

    /// A bucket's rows in the file.
    #[must_use]
    pub fn rows(&self, bucket: usize) -> Range<u64> {
        let start = if bucket == 0 { 0 } else { self.row_ends[bucket - 1] };
        start..self.row_ends[bucket]
    }

    /// The bucket that a row of the file is in.
    #[must_use]
    pub fn bucket_of_row(&self, row: u64) -> usize {
        self.row_ends.partition_point(|end| *end <= row)
    }

    /// Number of a bucket's rows outside of the times in which rules act.
    #[must_use]
    pub fn out_of_range(&self, bucket: usize) -> u32 {
        match self.out_of_range.binary_search_by_key(&bucket, |(at, _)| *at) {
            Ok(at) => self.out_of_range[at].1,
            Err(_) => 0,
        }
    }

    /// A bucket's share of the data's bytes, by rows.
    #[must_use]
    pub fn bytes(&self, bucket: usize) -> u64 {
        let share = |row: u64| {
            let bytes = u128::from(self.data_bytes) * u128::from(row) / u128::from(self.row_count().max(1));
            u64::try_from(bytes).unwrap_or(u64::MAX)
        };
        let rows = self.rows(bucket);
        share(rows.end) - share(rows.start)
    }

    /// Whether statistics have an entry for each bucket rather than one for all.
    #[must_use]
    pub fn stats_per_bucket(&self) -> bool {
        self.per_bucket_stats
    }

    /// The statistics of a top-level numeric field, if it has any.
    #[must_use]
    pub fn stats(&self, field: &str) -> Option<&FieldStats> {
        let stats = self.stats.iter().find(|s| s.name == field)?;
        let entries = if self.per_bucket_stats { self.bucket_count() } else { 1 };
        stats.decoded.get_or_init(|| FieldStats::decode(&stats.bytes, entries, self.per_bucket_stats).ok()).as_ref()
    }

    /// The ordinals of the metas that have a scalar at a path of member names (a list counts by its items). `None` if the
    /// path is not indexed: then every meta must be examined.
    #[must_use]
    pub fn posting(&self, path: &[&str], value: &Value) -> Option<RoaringBitmap> {
        self.postings()?.get(path, value)
    }

    /// The ordinals of the metas whose bytes have those of a scalar in them: all that are the scalar or have it in a member or list,
    /// at any depth, and perhaps others. One pass over the bytes of all metas.
    #[must_use]
    pub fn metas_containing(&self, value: &Value) -> RoaringBitmap {
        let value = MetaKey::of(value);
        let finder = memmem::Finder::new(value.as_bytes());
        let mut found = RoaringBitmap::new();
        let mut from = 0;
        while let Some(at) = finder.find(&self.meta_bytes[from..]) {
            let at = from + at;
            let meta = self.meta_ends.partition_point(|end| *end as usize <= at);
            let end = self.meta_ends.get(meta).map_or(self.meta_bytes.len(), |end| *end as usize);
            // What begins in one meta and ends in the next is none of either; another place may begin inside it.
            from = if at + value.as_bytes().len() <= end { end } else { at + 1 };
            if from == end {
                found.extend(u32::try_from(meta));
            }
        }
        found
    }

    /// For each scalar at a path of member names the ordinals of the metas that have it, as of [`Directory::posting`].
    #[must_use]
    pub fn values_at(&self, path: &[&str]) -> Option<&BTreeMap<MetaKey, RoaringBitmap>> {
        self.postings()?.values(path)
    }

    fn postings(&self) -> Option<&Postings> {
        self.postings.get_or_init(|| Postings::decode(&self.postings_bytes).ok()).as_ref()
    }

    /// The approximate memory of the directory in bytes, for caches with a budget.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let metas = self.meta_bytes.len() + self.meta_count() * 12;
        let stats: usize = self.stats.iter().map(|s| s.bytes.len() * 4).sum();
        metas + self.bucket_count() * 44 + self.checksums.len() * 4 + stats + self.postings_bytes.len() * 3
    }
}

/// Whether buckets get statistics of their own.
pub(super) fn stats_per_bucket(rows: u64, buckets: u64) -> bool {
    rows >= buckets.saturating_mul(ROWS_FOR_STATS)
}

/// Writes a directory.
#[expect(clippy::cast_sign_loss, reason = "differences wrap in 64 bits and are undone by the reader")]
pub(super) fn encode(
    entries: &[Entry],
    checksums: &[u32],
    per_bucket_stats: bool,
    stats: &[StatsBuilder],
) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(entries.len() * 16 + checksums.len() * 4);
    let mut metas: Vec<MetaKey> = Vec::new();
    let mut counts: Vec<u64> = Vec::new();
    for entry in entries {
        if metas.last() != Some(&entry.meta) {
            metas.push(entry.meta.clone());
            counts.push(0);
        }
        if let Some(count) = counts.last_mut() {
            *count += 1;
        }
    }
    varint::put_u64(&mut out, metas.len() as u64);
    let mut before: &[u8] = &[];
    for meta in &metas {
        let bytes = meta.as_bytes();
        let shared = before.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        varint::put_u64(&mut out, shared as u64);
        varint::put_bytes(&mut out, &bytes[shared..]);
        before = bytes;
    }
    counts.iter().for_each(|count| varint::put_u64(&mut out, *count));
    let mut start = 0_i64;
    for entry in entries {
        varint::put_i64(&mut out, entry.window.start.wrapping_sub(start));
        start = entry.window.start;
    }
    entries.iter().for_each(|e| varint::put_u64(&mut out, e.window.end.wrapping_sub(e.window.start) as u64));
    entries.iter().for_each(|e| varint::put_i64(&mut out, e.first.wrapping_sub(e.window.start)));
    entries.iter().for_each(|e| varint::put_u64(&mut out, e.last.wrapping_sub(e.first) as u64));
    entries.iter().for_each(|e| varint::put_u64(&mut out, e.rows));
    entries.iter().for_each(|e| varint::put_u64(&mut out, u64::from(e.out_of_range)));
    varint::put_u64(&mut out, checksums.len() as u64);
    checksums.iter().for_each(|crc| out.extend(crc.to_le_bytes()));
    out.push(u8::from(per_bucket_stats));
    varint::put_u64(&mut out, stats.len() as u64);
    for stat in stats {
        varint::put_bytes(&mut out, stat.name.as_bytes());
        varint::put_bytes(&mut out, &stat.finish());
    }
    varint::put_bytes(&mut out, &Postings::build(&metas).encode());

    let raw_len = u32::try_from(out.len()).ok().filter(|len| *len <= RAW_BYTES_MAX);
    let raw_len = raw_len.ok_or_else(|| std::io::Error::other("the bucket directory is too large"))?;
    let mut framed = raw_len.to_le_bytes().to_vec();
    framed.extend(zstd::bulk::compress(&out, 1)?);
    Ok(framed)
}

/// Reads a directory whose checksum was verified. `data_bytes` is the length of the data before it in the file.
pub(super) fn decode(framed: &[u8], data_bytes: u64) -> Result<Directory, String> {
    let (len, frame) = framed.split_first_chunk::<4>().ok_or("directory: shorter than its length")?;
    let len = u32::from_le_bytes(*len);
    if len > RAW_BYTES_MAX {
        return Err(format!("directory: raw length {len} is more than {RAW_BYTES_MAX}"));
    }
    let raw = zstd::bulk::decompress(frame, len as usize).map_err(|e| format!("directory: {e}"))?;
    if raw.len() != len as usize {
        return Err(format!("directory: {} bytes where {len} are expected", raw.len()));
    }
    decode_raw(&Bytes::from(raw), data_bytes).map_err(|message| format!("directory: {message}"))
}

#[expect(clippy::cast_possible_wrap, reason = "undoes the wrapping differences of the writer")]
fn decode_raw(raw: &Bytes, data_bytes: u64) -> Result<Directory, String> {
    let mut cursor = Cursor::new(raw);
    let (meta_bytes, meta_ends) = decode_metas(&mut cursor)?;
    let mut meta_starts = vec![0];
    let mut bucket_metas = Vec::new();
    for meta in 0..meta_ends.len() {
        let count = cursor.count()?;
        // Each bucket takes a byte in each of the following lists: a larger count is damage, and would exhaust memory.
        if (bucket_metas.len() + count).saturating_mul(BUCKET_LISTS) > raw.len() {
            return Err("more buckets than there is room for".to_owned());
        }
        let meta = u32::try_from(meta).map_err(|_| "too many metas".to_owned())?;
        bucket_metas.extend(std::iter::repeat_n(meta, count));
        meta_starts.push(bucket_metas.len());
    }
    let buckets = bucket_metas.len();
    let mut start = 0_i64;
    let mut windows = Vec::with_capacity(buckets);
    cursor.numbers(buckets, |folded| {
        start = start.wrapping_add(unfold(folded));
        windows.push(Window { start, end: start });
    })?;
    let mut at = windows.iter_mut();
    cursor.numbers(buckets, |width| at.by_ref().take(1).for_each(|w| w.end = w.start.wrapping_add(width as i64)))?;
    let mut firsts = Vec::with_capacity(buckets);
    cursor.numbers(buckets, |folded| firsts.push(windows[firsts.len()].start.wrapping_add(unfold(folded))))?;
    let mut lasts = Vec::with_capacity(buckets);
    cursor.numbers(buckets, |more| lasts.push(firsts[lasts.len()].wrapping_add(more as i64)))?;
    let mut rows = Some(0_u64);
    let mut row_ends = Vec::with_capacity(buckets);
    cursor.numbers(buckets, |more| {
        rows = rows.and_then(|rows| rows.checked_add(more));
        row_ends.push(rows.unwrap_or_default());
    })?;
    rows.filter(|rows| *rows < u64::from(u32::MAX)).ok_or("more rows than can be")?;
    let bounds = windows.iter().zip(firsts.iter().zip(&lasts));
    if let Some(at) = bounds.into_iter().position(|(w, (a, b))| w.start > *a || a > b || *b > w.end) {
        return Err(format!("the times of bucket {at} are not within its window"));
    }
    let mut out_of_range = Vec::new();
    let mut buckets = 0..buckets;
    cursor
        .numbers(buckets.len(), |rows| out_of_range.extend(buckets.next().filter(|_| rows > 0).map(|at| (at, rows))))?;
    let short =
        |(at, rows)| Ok((at, u32::try_from(rows).map_err(|_| format!("{rows} rows out of range in one bucket"))?));
    let out_of_range = out_of_range.into_iter().map(short).collect::<Result<_, String>>()?;
    let blocks = cursor.count()?;
    let crc = |c: &[u8]| u32::from_le_bytes(c.try_into().unwrap_or_default());
    let checksums = cursor.take(blocks.saturating_mul(4))?.chunks_exact(4).map(crc).collect();
    let per_bucket_stats = cursor.byte()? != 0;
    let fields = cursor.count()?;
    let mut stats = Vec::with_capacity(fields);
    for _ in 0..fields {
        let name = cursor.text()?.to_owned();
        let bytes = raw.slice_ref(cursor.bytes()?);
        stats.push(LazyStats { name, bytes, decoded: OnceLock::new() });
    }
    let postings_bytes = raw.slice_ref(cursor.bytes()?);
    if cursor.at() != raw.len() {
        return Err(format!("bytes after its end at {}", cursor.at()));
    }
    Ok(Directory {
        meta_bytes,
        meta_ends,
        meta_starts,
        bucket_metas,
        windows,
        firsts,
        lasts,
        row_ends,
        out_of_range,
        data_bytes,
        checksums,
        per_bucket_stats,
        stats,
        postings_bytes,
        postings: OnceLock::new(),
    })
}

/// The bytes of all metas, and where each ends. The writer ensures that they are canonical
/// keys, and the checksum that they are as it wrote them.
fn decode_metas(cursor: &mut Cursor<'_>) -> Result<(Vec<u8>, Vec<u32>), String> {
    let count = cursor.count()?;
    let mut bytes: Vec<u8> = Vec::with_capacity(count * 8);
    let mut ends: Vec<u32> = Vec::with_capacity(count);
    let mut before = 0..0;
    for at in 0..count {
        let shared = usize::try_from(cursor.u64()?).ok().filter(|shared| *shared <= before.len());
        let shared = shared.ok_or("a meta shares more than there is")?;
        let start = bytes.len();
        bytes.extend_from_within(before.start..before.start + shared);
        bytes.extend(cursor.bytes()?);
        if at > 0 && bytes[before] >= bytes[start..] {
            return Err("metas out of order".to_owned());
        }
        let end = u32::try_from(bytes.len()).ok().filter(|end| *end <= RAW_BYTES_MAX);
        ends.push(end.ok_or("more bytes of metas than a directory has")?);
        before = start..bytes.len();
    }
    Ok((bytes, ends))
}
