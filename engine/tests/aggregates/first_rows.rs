//! A scan for the first rows of an order returns them, whatever else it returns.

use crate::{document, opened};
use ebbtide::buckets::value_at;
use ebbtide::ttl::{Timestamp, Value};
use ebbtide::{CollectionSnapshot, FirstRows, ScanRequest};
use std::cmp::Ordering;

/// A value as a number; NaN is the greatest, and there is one zero.
fn number(value: &Value) -> Option<(bool, f64)> {
    match value {
        Value::Null => None,
        Value::Int(i) => Some((false, *i as f64)),
        Value::Double(d) if d.is_nan() => Some((true, 0.0)),
        Value::Double(d) => Some((false, d + 0.0)),
        Value::Date(t) => Some((false, (t.nanos() / 1_000_000) as f64)),
        other => panic!("{other:?} is no number"),
    }
}

fn compare(a: &Option<(bool, f64)>, b: &Option<(bool, f64)>, first: &FirstRows) -> Ordering {
    let numbers = |a: &(bool, f64), b: &(bool, f64)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1));
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) if first.nulls_first => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => compare(b, a, first).reverse(),
        (Some(a), Some(b)) if first.descending => numbers(b, a),
        (Some(a), Some(b)) => numbers(a, b),
    }
}

/// The column's values in the first rows of what a scan returns.
fn values(snapshot: &CollectionSnapshot, request: &ScanRequest, first: &FirstRows) -> Vec<Option<(bool, f64)>> {
    let units = snapshot.scan(request).unwrap();
    let batches = units.iter().flat_map(|unit| unit.read().unwrap()).map(Result::unwrap);
    let mut values: Vec<_> = batches
        .flat_map(|batch| {
            let column = batch.column_by_name(&first.column).unwrap().clone();
            (0..column.len()).map(move |row| number(&value_at(&column, row)))
        })
        .collect();
    values.sort_by(|a, b| compare(a, b, first));
    values.truncate(first.rows as usize);
    values
}

/// Compares scans for the first rows with a scan of all rows, by each column and in each order.
pub(crate) fn first_rows(snapshot: &CollectionSnapshot, request: &ScanRequest, rows: u64) {
    for column in ["t", "d", "i", "x"] {
        for (descending, nulls_first) in [(false, false), (false, true), (true, false), (true, true)] {
            let first = FirstRows { column: column.to_owned(), descending, nulls_first, rows };
            let asked = ScanRequest { first: Some(first.clone()), ..request.clone() };
            assert_eq!(values(snapshot, &asked, &first), values(snapshot, request, &first), "{first:?}");
        }
    }
}

#[test]
fn buckets_without_first_rows_are_skipped() {
    let (db, all, _clock) = opened(None);
    // Five series for 100 hours, with numbers that rise; the last ten hours are in memory.
    for hour in 0..100 {
        let rows: Vec<Value> = (0..60)
            .flat_map(|minute| {
                (0..5).map(move |sensor| document((hour * 60 + minute, sensor, 42, (hour * 60 + minute) as i32)))
            })
            .collect();
        all.insert_documents(&rows).unwrap();
        if hour == 89 {
            db.flush().unwrap();
        }
    }
    let snapshot = all.snapshot().unwrap();
    let read = |column: &str, descending: bool, rows: u64| {
        let first = FirstRows { column: column.to_owned(), descending, nulls_first: false, rows };
        let request = ScanRequest { first: Some(first), ..ScanRequest::default() };
        snapshot.scan_reported(&request).unwrap().1
    };
    let everything = snapshot.scan_reported(&ScanRequest::default()).unwrap().1;
    assert_eq!(everything.buckets_pruned, 0);
    for (column, descending) in [("t", true), ("t", false), ("i", false), ("d", false)] {
        let some = read(column, descending, 20);
        assert_eq!(some.buckets + some.buckets_pruned, everything.buckets);
        assert!(some.buckets <= everything.buckets / 4, "{column}: {} of {}", some.buckets, everything.buckets);
    }
    // The latest rows are in memory.
    assert_eq!((everything.segments, read("t", true, 20).segments, read("t", false, 20).segments), (1, 0, 1));
    for (column, rows) in [("t", 30_000), ("word", 1), ("sensor", 1)] {
        assert_eq!(read(column, true, rows).buckets, everything.buckets, "{column}");
    }
    let none =
        ScanRequest { time: (Timestamp::from_millis(0)..Timestamp::from_millis(1)).into(), ..ScanRequest::default() };
    first_rows(&snapshot, &none, 3);
    first_rows(&snapshot, &ScanRequest::default(), 77);
}
