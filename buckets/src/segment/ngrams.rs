//! N-gram filters: which blocks of rows may contain a text, known without decoding the column.
//!
//! A filter has a part for each block of 8192 rows: a Bloom filter with one hash function of all sequences of five bytes (5-grams)
//! in the texts of the block, with as many bits as there are different hashes, rounded up to bytes. A text can only be in a block if
//! the bits of all of its 5-grams are set; shorter texts are not filtered. About 63 % of the bits of a part are set, so a text of `n`
//! bytes that look random, which is in no row of the block, passes with a probability of about `0.63^(n - 4)`. There are 2^21 hashes: in
//! blocks with millions of different 5-grams, such as varied lines of more than 500 bytes, more bits are set. A filter with more than 75 % of
//! its bits set is left out.
//!
//! The bytes of a filter are the ends of its parts (4 bytes each, little-endian, from the end of this list on), then the parts.

use crate::counts::{to_number, to_usize};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ops::Range;

/// Rows of a block: those of a page.
pub(super) const BLOCK_ROWS: u64 = 8192;
/// Bytes of an n-gram.
const GRAM_BYTES: usize = 5;
/// Bits of a hash.
const HASH_BITS: u32 = 21;
/// The odd number that spreads the bytes of an n-gram over the bits of a hash: 2^64 divided by the golden ratio (Knuth, The Art of
/// Computer Programming, volume 3, section 6.4).
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
/// A column of fewer rows has no filter.
const ROWS_MIN: usize = 256;
/// A filter takes at most this part of the bytes of its column.
pub(super) const SHARE_MAX: u64 = 4;
/// The bytes by which the footer grows for a filter, about.
pub(super) const FOOTER_BYTES: u64 = 128;
/// The format of filters.
const VERSION: u32 = 1;

/// A text that rows must contain in a column to match a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextPart {
    /// The name of a top-level column.
    pub column: String,
    /// The text, anywhere in the value.
    pub text: String,
}

/// A condition on texts: a row can match only if it contains all parts of one of the alternatives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextCondition {
    /// The alternatives. Without any, no row matches.
    pub alternatives: Vec<Vec<TextPart>>,
}

/// Where a file has its filters: the value of its key in the footer, as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FilterPlaces {
    version: u32,
    columns: Vec<FilterPlace>,
}

/// Where the filter of a column is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FilterPlace {
    pub(super) column: String,
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl FilterPlaces {
    pub(super) fn new(columns: Vec<FilterPlace>) -> FilterPlaces {
        FilterPlaces { version: VERSION, columns }
    }

    /// The filters of a file. Those of a version that is not known are not used: reads are right without them.
    ///
    /// # Errors
    /// If the value is not as it is written, or a filter is not where it can be.
    pub(super) fn parse(json: &str, data_end: u64) -> Result<Vec<FilterPlace>, String> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = serde_json::from_str(json).map_err(|e| e.to_string())?;
        if version != VERSION {
            return Ok(Vec::new());
        }
        let FilterPlaces { columns, .. } = serde_json::from_str(json).map_err(|e| e.to_string())?;
        let (mut names, mut end) = (HashSet::new(), 0);
        for FilterPlace { column, offset, length } in &columns {
            let place_end = offset.checked_add(*length).filter(|place_end| *place_end <= data_end && *offset >= end);
            end = place_end.ok_or_else(|| format!("the filter of column '{column}' is not where it can be"))?;
            if !names.insert(column) {
                return Err(format!("column '{column}' has two filters"));
            }
        }
        Ok(columns)
    }
}

/// Calls `f` with the hash of each n-gram of a text.
#[inline]
fn hashes(text: &[u8], mut f: impl FnMut(u32)) {
    let (Some(first), Some(rest)) = (text.get(..GRAM_BYTES - 1), text.get(GRAM_BYTES - 1..)) else { return };
    let mut gram = first.iter().fold(0, |gram: u64, byte| gram << 8 | u64::from(*byte));
    for byte in rest {
        gram = (gram << 8 | u64::from(*byte)) & ((1 << (8 * GRAM_BYTES)) - 1);
        f((gram.wrapping_mul(MULTIPLIER) >> (64 - HASH_BITS)) as u32);
    }
}

fn hashes_of(text: &str) -> Vec<u32> {
    let mut of_text = Vec::with_capacity(text.len());
    hashes(text.as_bytes(), |hash| of_text.push(hash));
    of_text
}

/// The bit of a hash in a part with this number of bits.
fn bit(hash: u32, bits: usize) -> usize {
    (hash as usize * bits) >> HASH_BITS
}

/// Makes the filter of a column as its rows go by.
pub(super) struct FilterBuilder {
    /// Rows of a block.
    block_rows: u64,
    /// A bit for each hash that occurs in the block.
    seen: Vec<u64>,
    rows_in_block: u64,
    filter: BuiltFilter,
}

/// A filter that was made.
#[derive(Default)]
pub(super) struct BuiltFilter {
    ends: Vec<u32>,
    parts: Vec<u8>,
}

impl FilterBuilder {
    /// Whether a column of this type with this number of rows has a filter.
    pub(super) fn is_for(ty: &DataType, rows: usize) -> bool {
        *ty == DataType::Utf8View && rows >= ROWS_MIN
    }

    pub(super) fn new() -> FilterBuilder {
        FilterBuilder::of_blocks(BLOCK_ROWS)
    }

    fn of_blocks(block_rows: u64) -> FilterBuilder {
        let seen = vec![0; 1 << (HASH_BITS - 6)];
        FilterBuilder { block_rows, seen, rows_in_block: 0, filter: BuiltFilter::default() }
    }

    /// Adds the next rows.
    pub(super) fn add(&mut self, column: &ArrayRef) {
        let texts = column.as_string_view();
        let mut from = 0;
        while from < texts.len() {
            let to = texts.len().min(from + to_usize(self.block_rows - self.rows_in_block));
            // The text before in the same block.
            let mut before = None;
            for text in (from..to).filter(|row| texts.is_valid(*row)).map(|row| texts.value(row)) {
                if before != Some(text) {
                    hashes(text.as_bytes(), |hash| self.seen[hash as usize >> 6] |= 1 << (hash & 63));
                    before = Some(text);
                }
            }
            self.rows_in_block += (to - from) as u64;
            if self.rows_in_block == self.block_rows {
                self.end_block();
            }
            from = to;
        }
    }

    fn end_block(&mut self) {
        let BuiltFilter { ends, parts } = &mut self.filter;
        let count: usize = self.seen.iter().map(|word| word.count_ones() as usize).sum();
        let start = parts.len();
        parts.resize(start + count.div_ceil(8), 0);
        let part = &mut parts[start..];
        for (at, word) in self.seen.iter_mut().enumerate() {
            let mut left = std::mem::take(word);
            while left != 0 {
                let bit = bit(to_number(at) << 6 | left.trailing_zeros(), part.len() * 8);
                part[bit / 8] |= 1 << (bit % 8);
                left &= left - 1;
            }
        }
        ends.push(u32::try_from(parts.len()).unwrap_or(u32::MAX));
        self.rows_in_block = 0;
    }

    pub(super) fn finish(mut self) -> BuiltFilter {
        if self.rows_in_block > 0 {
            self.end_block();
        }
        self.filter
    }
}

impl BuiltFilter {
    /// The bytes of the filter; `None` if they were more than [`SHARE_MAX`] allows for a column with this number of bytes, or if it
    /// would exclude little.
    pub(super) fn bytes(&self, column_bytes: u64) -> Option<Vec<u8>> {
        let bytes = (self.ends.len() * 4 + self.parts.len()) as u64;
        let set: u64 = self.parts.iter().map(|byte| u64::from(byte.count_ones())).sum();
        let is_full = set * 4 > self.parts.len() as u64 * 8 * 3 && set > 64;
        if bytes > u64::from(u32::MAX) || bytes + FOOTER_BYTES > column_bytes / SHARE_MAX || is_full {
            return None;
        }
        Some(self.ends.iter().flat_map(|end| end.to_le_bytes()).chain(self.parts.iter().copied()).collect())
    }
}

/// The filter of a column, read.
pub(super) struct Filter<'a> {
    ends: &'a [u8],
    parts: &'a [u8],
}

impl<'a> Filter<'a> {
    /// # Errors
    /// If the bytes are not those of a filter with this number of blocks.
    pub(super) fn new(bytes: &'a [u8], blocks: u64) -> Result<Filter<'a>, String> {
        let ends = to_usize(blocks).checked_mul(4).and_then(|len| bytes.split_at_checked(len));
        let (ends, parts) = ends.ok_or("shorter than the list of its parts")?;
        let filter = Filter { ends, parts };
        let mut start = 0;
        for block in 0..to_usize(blocks) {
            let end = filter.end(block);
            if end < start || end > parts.len() {
                return Err(format!("part {block} ends at {end}, which is not where it can end"));
            }
            start = end;
        }
        Ok(filter)
    }

    fn end(&self, block: usize) -> usize {
        self.ends[block * 4..].first_chunk().map_or(0, |end| u32::from_le_bytes(*end) as usize)
    }

    /// Whether some row of a block may contain a text.
    pub(super) fn has(&self, block: usize, text: &str) -> bool {
        self.may_contain(block, &hashes_of(text))
    }

    /// Whether some row of a block, which there must be, may contain all n-grams with these hashes.
    fn may_contain(&self, block: usize, hashes: &[u32]) -> bool {
        let start = if block == 0 { 0 } else { self.end(block - 1) };
        let part = &self.parts[start..self.end(block)];
        let is_set = |hash: &u32| {
            let bit = bit(*hash, part.len() * 8);
            part.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
        };
        hashes.iter().all(is_set)
    }
}

/// An alternative of a condition: filters by number, with the hashes of the n-grams that are needed of each.
type Needed = Vec<(usize, Vec<u32>)>;

/// Conditions, ready to be asked of the blocks of a segment.
pub(super) struct BlockCheck<'a> {
    filters: Vec<(&'a str, Filter<'a>)>,
    /// The alternatives of each condition.
    conditions: Vec<Vec<Needed>>,
}

impl<'a> BlockCheck<'a> {
    /// Parts in columns without a filter exclude nothing.
    pub(super) fn new(filters: Vec<(&'a str, Filter<'a>)>, conditions: &[TextCondition]) -> BlockCheck<'a> {
        let check = |part: &TextPart| {
            let filter = filters.iter().position(|(column, _)| *column == part.column)?;
            Some((filter, hashes_of(&part.text)))
        };
        let alternative = |parts: &Vec<TextPart>| parts.iter().filter_map(check).collect();
        let condition = |condition: &TextCondition| condition.alternatives.iter().map(alternative).collect();
        BlockCheck { conditions: conditions.iter().map(condition).collect(), filters }
    }

    /// Whether some row of a block may meet all conditions.
    pub(super) fn may_match(&self, block: usize) -> bool {
        let has = |(filter, needed): &(usize, Vec<u32>)| self.filters[*filter].1.may_contain(block, needed);
        self.conditions.iter().all(|alternatives| alternatives.iter().any(|parts| parts.iter().all(has)))
    }
}

/// The columns in which the conditions look for texts of five bytes or more.
pub(super) fn filtered_columns(conditions: &[TextCondition]) -> impl Iterator<Item = &str> {
    let parts = conditions.iter().flat_map(|condition| condition.alternatives.iter().flatten());
    parts.filter(|part| part.text.len() >= GRAM_BYTES).map(|part| part.column.as_str())
}

/// The number of blocks that ranges, which are sorted and disjoint, touch.
pub(super) fn blocks_of(ranges: &[Range<u64>]) -> u64 {
    let (mut count, mut next) = (0, 0);
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        let (first, end) = ((range.start / BLOCK_ROWS).max(next), range.end.div_ceil(BLOCK_ROWS));
        count += end.saturating_sub(first);
        next = next.max(end);
    }
    count
}

/// What is left of ranges, which are sorted and disjoint, in the blocks that match.
pub(super) fn retained(ranges: &[Range<u64>], may_match: impl Fn(usize) -> bool) -> Vec<Range<u64>> {
    let mut left: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    let mut last: Option<(u64, bool)> = None;
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let block = at / BLOCK_ROWS;
            let end = range.end.min((block + 1) * BLOCK_ROWS);
            let matches = match last {
                Some((asked, matches)) if asked == block => matches,
                _ => may_match(to_usize(block)),
            };
            last = Some((block, matches));
            match left.last_mut() {
                _ if !matches => {}
                Some(before) if before.end == at && at > range.start => before.end = end,
                _ => left.push(at..end),
            }
            at = end;
        }
    }
    left
}

#[cfg(test)]
mod tests;
