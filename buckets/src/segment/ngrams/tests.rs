//! What filters exclude, and that they never exclude a text that is there.

#![expect(clippy::single_range_in_vec_init, reason = "lists of row ranges, some of one range")]

use super::*;
use crate::segment::tests::{open, seal};
use crate::segment::{BlockCache, EncodedSegment, SegmentReader};
use crate::testing::{accept, date, object, schema};
use arrow::array::{StringViewArray, UInt8Array};
use ebbtide_ttl::Value;
use proptest::prelude::*;
use std::sync::Arc;

/// The filter with blocks of this number of rows, made from slices that do not end where blocks do.
fn built(texts: &[Option<&str>], block_rows: u64) -> BuiltFilter {
    let mut builder = FilterBuilder::of_blocks(block_rows);
    for slice in texts.chunks(3_000) {
        builder.add(&(Arc::new(StringViewArray::from(slice.to_vec())) as ArrayRef));
    }
    builder.finish()
}

fn filter_of(texts: &[Option<&str>], column_bytes: u64) -> Option<Vec<u8>> {
    built(texts, BLOCK_ROWS).bytes(column_bytes)
}

fn blocks(rows: usize) -> u64 {
    (rows as u64).div_ceil(BLOCK_ROWS)
}

/// Bits that look random.
fn mixed(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 32
}

/// A text of 16 hexadecimal digits that looks random.
fn id(number: u64) -> String {
    format!("{:016x}", mixed(number))
}

fn part(text: &str) -> TextPart {
    TextPart { column: "message".to_owned(), text: text.to_owned() }
}

fn any_of(alternatives: &[&[&str]]) -> TextCondition {
    let alternative = |texts: &&[&str]| texts.iter().copied().map(part).collect();
    TextCondition { alternatives: alternatives.iter().map(alternative).collect() }
}

#[test]
fn an_id_is_looked_for_in_its_block_and_rarely_in_another() {
    let lines: Vec<String> = (0..40_000).map(|n| format!("request {n} done id={}", id(n))).collect();
    let texts: Vec<Option<&str>> = lines.iter().map(|line| Some(line.as_str())).collect();
    let bytes = filter_of(&texts, u64::MAX).unwrap();
    let filter = Filter::new(&bytes, blocks(texts.len())).unwrap();
    let (mut others, mut found) = (0, 0);
    for number in (0..40_000).step_by(97) {
        for block in 0..blocks(texts.len()) {
            let has = filter.has(to_usize(block), &id(number));
            if block == number / BLOCK_ROWS {
                assert!(has, "{number}");
            } else {
                others += 1;
                found += u32::from(has);
            }
        }
    }
    // A part has 63 % of its bits set, and 12 have to be; 5-grams of such digits are also in the block by chance.
    assert!(found * 50 < others, "{found} of {others}");
    let per_row = bytes.len() as f64 / texts.len() as f64;
    assert!((1.0..2.5).contains(&per_row), "{per_row} bytes a row");
}

#[test]
fn short_texts_and_nulls_are_in_no_block_and_short_needles_exclude_nothing() {
    let texts = [Some("four"), None, Some(""), Some("åå")].repeat(100);
    let bytes = filter_of(&texts, u64::MAX).unwrap();
    assert_eq!(bytes, [0; 4]);
    let filter = Filter::new(&bytes, 1).unwrap();
    assert!(filter.has(0, "four"));
    assert!(filter.has(0, ""));
    assert!(!filter.has(0, "four!"));
}

#[test]
fn a_filter_takes_at_most_its_share_of_the_column() {
    let texts: Vec<String> = (0..1_000).map(id).collect();
    let texts: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_str())).collect();
    let bytes = filter_of(&texts, u64::MAX).unwrap().len() as u64;
    let least = (bytes + FOOTER_BYTES) * SHARE_MAX;
    assert!(filter_of(&texts, least).is_some());
    assert!(filter_of(&texts, least - 1).is_none());
}

#[test]
fn forged_bytes_are_an_error() {
    assert!(Filter::new(&[0; 3], 1).is_err());
    assert!(Filter::new(&[1, 0, 0, 0], 1).is_err());
    assert!(Filter::new(&[1, 0, 0, 0, 0, 0, 0, 0, 9], 2).is_err());
    assert!(Filter::new(&[], u64::MAX).is_err());
    let places = |columns: &[(&str, u64)]| {
        let place = |(column, offset): &(&str, u64)| format!(r#"{{"column":"{column}","offset":{offset},"length":9}}"#);
        let columns: Vec<String> = columns.iter().map(place).collect();
        FilterPlaces::parse(&format!(r#"{{"version":1,"columns":[{}]}}"#, columns.join(",")), 100)
    };
    assert_eq!(places(&[("a", 0), ("b", 91)]).unwrap().len(), 2);
    assert!(places(&[("a", 92)]).is_err());
    assert!(places(&[("a", u64::MAX)]).is_err());
    assert!(places(&[("a", 10), ("b", 18)]).is_err());
    assert!(places(&[("a", 10), ("a", 30)]).is_err());
    assert_eq!(FilterPlaces::parse(r#"{"version":2,"columns":7}"#, 100), Ok(Vec::new()));
    assert!(FilterPlaces::parse("[]", 100).is_err());
    assert!(FilterPlaces::parse(r#"{"version":1,"columns":7}"#, 100).is_err());
}

#[test]
fn a_text_is_in_both_blocks_if_a_null_begins_the_second() {
    let full = "disk full on /dev/sda";
    let texts = [vec![Some("something else"); 8_191], vec![Some(full), None, Some(full)]].concat();
    let mut builder = FilterBuilder::new();
    builder.add(&(Arc::new(StringViewArray::from(texts)) as ArrayRef));
    let bytes = builder.finish().bytes(u64::MAX).unwrap();
    let filter = Filter::new(&bytes, 2).unwrap();
    assert!(filter.has(0, full) && filter.has(1, full));
    assert!(!filter.has(1, "something else"));
}

#[test]
fn a_filter_that_would_exclude_little_is_left_out() {
    // 8,192 lines of 800 random letters have more 5-grams than there are hashes.
    let letters = |n: u64| mixed(n).to_le_bytes().map(|byte| char::from(b'0' + byte % 64));
    let lines: Vec<String> =
        (0..BLOCK_ROWS).map(|line| (0..100).flat_map(|at| letters(line * 100 + at)).collect()).collect();
    let varied = |bytes: usize| lines.iter().map(|line| Some(&line[..bytes])).collect::<Vec<_>>();
    assert!(filter_of(&varied(16), u64::MAX).is_some());
    assert!(filter_of(&varied(800), u64::MAX).is_none());
}

/// Log lines of three series, with an id in each.
fn logs(rows: i64) -> (EncodedSegment, SegmentReader) {
    let line = |n: i64| {
        let message = format!("worker {} finished, trace={}", n % 7, id(n.unsigned_abs()));
        object(&[
            ("t", date(n)),
            ("m", Value::from(["a", "b", "c"][(n % 3) as usize])),
            ("message", if n % 11 == 0 { Value::Null } else { Value::from(message.as_str()) }),
            ("level", Value::from(if n % 5 == 0 { "warning" } else { "information" })),
        ])
    };
    let accepted = accept(&(0..rows).map(line).collect::<Vec<_>>(), &schema());
    let (segment, _) = seal(&[(accepted.batch, accepted.schema)], 3_600);
    let reader = open(&segment.bytes).unwrap();
    (segment, reader)
}

#[test]
fn a_segment_of_log_lines_reads_one_block_for_an_id() {
    let (_, reader) = logs(30_000);
    reader.verify().unwrap();
    reader.verify_filters().unwrap();
    let all = 0..30_000_u64;
    let matching = |ranges: &[Range<u64>], conditions: &[TextCondition]| {
        let mut left = ranges.to_vec();
        reader.retain_matching(&mut [&mut left], conditions, true).unwrap();
        left
    };
    let of_all = |conditions: &[TextCondition]| matching(std::slice::from_ref(&all), conditions);
    // Row 12,345 is the 4,115th of the first series, and so in the first block.
    let one = any_of(&[&[&id(12_345)]]);
    let block = [0..BLOCK_ROWS];
    assert_eq!(of_all(std::slice::from_ref(&one)), block);
    assert_eq!(of_all(&[any_of(&[&[&id(12_345), "worker"]])]), block);
    assert_eq!(of_all(&[any_of(&[&[&id(12_345), "nowhere to be seen"]])]), []);
    assert_eq!(of_all(&[one.clone(), any_of(&[&["nowhere to be seen"]])]), []);
    assert_eq!(of_all(&[any_of(&[&["nowhere to be seen"], &[&id(12_345)]])]), block);
    assert_eq!(of_all(&[TextCondition::default(), one.clone()]), []);
    assert_eq!(of_all(&[any_of(&[&["trac"], &[&id(12_345)]])]), std::slice::from_ref(&all));
    // A column without a filter excludes nothing.
    let other = TextPart { column: "other".to_owned(), text: "nowhere to be seen".to_owned() };
    assert_eq!(of_all(&[TextCondition { alternatives: vec![vec![other]] }]), std::slice::from_ref(&all));
    // Parts of ranges stay apart.
    let ranges = [5..10, 8_000..8_200, 20_000..29_000];
    assert_eq!(matching(&ranges, std::slice::from_ref(&one)), [5..10, 8_000..8_192]);
    assert!(reader.retain_matching(&mut [&mut vec![0..30_001]], &[one], true).is_err());
}

#[test]
fn a_filter_is_read_only_for_rows_that_take_more_bytes_or_if_it_is_cached() {
    let nowhere = any_of(&[&["nowhere to be seen"]]);
    let (_, reader) = logs(100_000);
    let reader = reader.with_cache(&Arc::new(BlockCache::new(64 << 20)));
    let left = |range: Range<u64>| {
        let mut left = vec![range];
        reader.retain_matching(&mut [&mut left], std::slice::from_ref(&nowhere), true).unwrap();
        left
    };
    assert_eq!(left(100..200), [100..200]);
    assert_eq!(left(0..100_000), []);
    assert_eq!(left(100..200), []);
}

#[test]
fn each_column_has_a_filter_of_its_own() {
    let line = |n: i64| {
        let one = format!("one {}", id(n.unsigned_abs()));
        let other = format!("other {}", id(n.unsigned_abs() + 1_000_000));
        object(&[("t", date(n)), ("one", Value::from(one.as_str())), ("other", Value::from(other.as_str()))])
    };
    let accepted = accept(&(0..20_000).map(line).collect::<Vec<_>>(), &schema());
    let (segment, _) = seal(&[(accepted.batch, accepted.schema)], 3_600);
    let reader = open(&segment.bytes).unwrap().with_cache(&Arc::new(BlockCache::new(64 << 20)));
    let part = |column: &str, number: u64| TextPart { column: column.to_owned(), text: id(number) };
    // The second time, filters are cached.
    for _ in 0..2 {
        for (parts, expected) in [
            (vec![part("one", 10_000)], vec![8_192..16_384]),
            (vec![part("other", 1_018_000)], vec![16_384..20_000]),
            (vec![part("one", 10_000), part("other", 1_010_001)], vec![8_192..16_384]),
            (vec![part("one", 10_000), part("other", 1_018_000)], vec![]),
            (vec![part("one", 1_018_000)], vec![]),
            (vec![part("other", 10_000)], vec![]),
        ] {
            let condition = TextCondition { alternatives: vec![parts] };
            let mut left = vec![0..20_000];
            reader.retain_matching(&mut [&mut left], &[condition], true).unwrap();
            assert_eq!(left, expected);
        }
    }
}

#[test]
fn a_filter_of_a_column_that_repeats_itself_is_left_out() {
    let (segment, reader) = logs(30_000);
    let of = |column: &str| {
        let part = TextPart { column: column.to_owned(), text: "information".to_owned() };
        reader.filter_bytes(&[TextCondition { alternatives: vec![vec![part]] }])
    };
    assert_eq!(of("level"), 0);
    assert_eq!(of("m"), 0);
    assert!((30_000..segment.meta.bytes / SHARE_MAX).contains(&of("message")));
}

#[test]
fn a_filter_that_excludes_a_text_is_reported() {
    let cache = Arc::new(BlockCache::new(1 << 20));
    let reader = logs(1_000).1.with_cache(&cache);
    reader.verify_filters().unwrap();
    let bytes = to_usize(reader.filter_bytes(&[any_of(&[&["worker"]])]));
    // A filter of the same size with a single bit set.
    let mut forged = vec![0; bytes];
    forged[..4].copy_from_slice(&to_number(bytes - 4).to_le_bytes());
    forged[4] = 1;
    cache.put(
        (0, crate::segment::read::FILTERS, 0),
        crate::segment::block::Block::Plain(Arc::new(UInt8Array::from(forged))),
    );
    let error = reader.verify_filters().unwrap_err();
    assert!(error.message.contains("the filter of column 'message' excludes the text of row "), "{error}");
}

proptest! {
    #[test]
    fn no_part_of_a_text_is_excluded(
        texts in prop::collection::vec(prop::option::of("[a-bå ]{0,9}"), 1..600),
        repeats in 1..4_usize,
        block_rows in 1..50_u64,
        at in any::<prop::sample::Index>(),
        from in 0..9_usize,
        length in 0..9_usize,
    ) {
        let each = texts.iter().flat_map(|text| std::iter::repeat_n(text.as_deref(), repeats));
        let texts: Vec<Option<&str>> = each.collect();
        let bytes = built(&texts, block_rows).bytes(u64::MAX);
        // A filter of few different n-grams may be full.
        let Some(bytes) = bytes else { return Ok(()) };
        let filter = Filter::new(&bytes, (texts.len() as u64).div_ceil(block_rows)).unwrap();
        let at = at.index(texts.len());
        let part: String = texts[at].unwrap_or_default().chars().skip(from).take(length).collect();
        prop_assert!(filter.has(at / to_usize(block_rows), &part));
    }

    #[test]
    fn ranges_keep_the_rows_of_the_blocks_that_match(
        widths in prop::collection::vec((0..30_000_u64, 1..30_000_u64), 0..6),
        wanted in prop::collection::vec(any::<bool>(), 50),
    ) {
        let mut at = 0;
        let ranges: Vec<Range<u64>> = widths.iter().map(|(gap, width)| {
            let range = at + gap..at + gap + width;
            at = range.end;
            range
        }).collect();
        let kept = retained(&ranges, |block| wanted[block]);
        let rows = |ranges: &[Range<u64>]| ranges.iter().cloned().flatten().collect::<Vec<u64>>();
        let expected: Vec<u64> =
            rows(&ranges).into_iter().filter(|row| wanted[to_usize(row / BLOCK_ROWS)]).collect();
        prop_assert_eq!(rows(&kept), expected);
    }
}
