use super::*;
use arrow::array::{AsArray, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::TimestampMillisecondType;
use ebbtide_ttl::Precision;

/// A memtable after inserts of these numbers of rows; the time of each row is its number.
fn filled(inserts: impl IntoIterator<Item = usize>) -> Memtable {
    let schema = Schema::new("t", None, Precision::Ms);
    let mut table = Memtable::default();
    let mut next = 0;
    for (seq, rows) in (1..).zip(inserts) {
        let end = next + i64::try_from(rows).unwrap();
        let times = TimestampMillisecondArray::from_iter_values(next..end).with_timezone("UTC");
        let batch = RecordBatch::try_new(schema.arrow(), vec![Arc::new(times)]).unwrap();
        table.push(Arc::new(Chunk::build(batch, &schema, 3_600)), (seq, None), (&schema, 3_600)).unwrap();
        next = end;
    }
    let times = table.chunks().flat_map(|c| c.batch.column(0).as_primitive::<TimestampMillisecondType>().values());
    assert!(times.copied().eq(0..next), "all rows are there once, in order of arrival");
    assert_eq!(table.rows(), u64::try_from(next).unwrap());
    let expected: usize = table.chunks().map(|c| batch_bytes(&c.batch) + index_bytes(c)).sum();
    assert!(table.bytes() >= expected / 2, "{} bytes are counted of {expected}", table.bytes());
    table
}

#[test]
fn many_small_inserts_do_not_make_many_chunks() {
    assert!(filled(vec![1; 20_000]).active.len() <= 7 * 5 + 3);
    assert!(filled(vec![1_000; 100]).active.len() <= 7 + 100_000 / 8_000);
    assert!(filled(vec![3_000; 40]).active.len() <= 5 + 40 * 3_000 / 9_000);
    assert!(filled((0..4_000).map(|i| [1, 300, 20, 4][i % 4])).active.len() <= 7 * 5 + 4_000 * 325 / 4 / 4_096);
}

#[test]
fn large_inserts_stay_as_they_came() {
    assert_eq!(filled([10_000; 9]).active.len(), 9);
}
