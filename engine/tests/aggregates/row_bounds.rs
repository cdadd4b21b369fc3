//! A scan with bounds of fields returns all visible rows that are within them, and no row that is not visible.

use crate::{document, opened};
use ebbtide::buckets::value_at;
use ebbtide::ttl::{Timestamp, Value};
use ebbtide::{CollectionSnapshot, FieldBound, ScanRequest};
use std::collections::BTreeMap;

/// Rows as text, each with how often it is there, and the rows hidden while they were read.
fn rows(
    snapshot: &CollectionSnapshot,
    request: &ScanRequest,
    wanted: &dyn Fn(&Value) -> bool,
    field: &str,
) -> (BTreeMap<String, usize>, u64) {
    let (units, report) = snapshot.scan_reported(request).unwrap();
    let mut rows = BTreeMap::new();
    for batch in units.iter().flat_map(|unit| unit.read().unwrap()).map(Result::unwrap) {
        let column = batch.column_by_name(field).unwrap();
        for row in (0..batch.num_rows()).filter(|row| wanted(&value_at(column, *row))) {
            let cells: Vec<Value> = batch.columns().iter().map(|column| value_at(column, row)).collect();
            *rows.entry(format!("{cells:?}")).or_default() += 1;
        }
    }
    (rows, report.rows_hidden + units.iter().map(|unit| unit.rows_hidden()).sum::<u64>())
}

/// NaN is the greatest, and there is one zero.
fn is_within(value: &Value, bound: &FieldBound) -> bool {
    match value {
        Value::Int(i) => bound.min.is_none_or(|min| *i as f64 >= min) && bound.max.is_none_or(|max| *i as f64 <= max),
        Value::Double(d) if d.is_nan() => bound.max.is_none(),
        Value::Double(d) => bound.min.is_none_or(|min| *d >= min) && bound.max.is_none_or(|max| *d <= max),
        _ => false,
    }
}

/// Compares scans with bounds of each field with a scan without.
pub(crate) fn row_bounds(snapshot: &CollectionSnapshot, request: &ScanRequest, (min, max): (Option<f64>, Option<f64>)) {
    for field in ["d", "i", "x"] {
        let bound = FieldBound { field: field.to_owned(), min, max };
        let within = |value: &Value| is_within(value, &bound);
        let bounded = ScanRequest { bounds: vec![bound.clone()], ..request.clone() };
        let (all, _) = rows(snapshot, request, &|_| true, field);
        let (returned, hidden) = rows(snapshot, &bounded, &|_| true, field);
        for (row, count) in &returned {
            assert!(all.get(row).is_some_and(|visible| visible >= count), "{row} is not visible that often: {bound:?}");
        }
        assert_eq!(
            rows(snapshot, &bounded, &within, field).0,
            rows(snapshot, request, &within, field).0,
            "rows within {bound:?}"
        );
        // Of other columns, in another order, without the time and the field.
        let columns = ScanRequest { projection: Some(vec!["word".to_owned(), "sensor".to_owned()]), ..bounded.clone() };
        let units = snapshot.scan(&columns).unwrap();
        let batches = units.iter().flat_map(|unit| unit.read().unwrap()).map(Result::unwrap);
        let count: usize = batches.map(|batch| batch.num_rows()).sum();
        assert_eq!(count, returned.values().sum::<usize>(), "{bound:?}");
        // With the field alone no rows are left out.
        let alone = ScanRequest { projection: Some(vec![field.to_owned()]), ..bounded };
        assert_eq!(rows(snapshot, &alone, &|_| true, field).1, hidden, "hidden rows, {bound:?}");
    }
}

#[test]
fn whole_numbers_that_no_double_holds_and_both_zeros_are_within_their_bounds() {
    let (db, all, _clock) = opened(None);
    let edge = 1_i64 << 53;
    let sparse = [edge - 1, edge, edge + 1, edge + 2, -edge, -edge - 1, i64::MAX, i64::MIN];
    let measurement = |at: i64| {
        let int = sparse.get(at as usize).copied().unwrap_or(at % 7);
        let double = match at {
            0 => 0.0,
            1 => -0.0,
            2 => f64::NAN,
            3 => f64::INFINITY,
            4 => f64::NEG_INFINITY,
            _ => 1.5,
        };
        let t = Timestamp::from_millis(1_704_067_200_000 + at * 1_000);
        Value::Object(vec![
            ("t".into(), Value::Date(t)),
            ("sensor".into(), Value::from("a")),
            ("i".into(), Value::Int(int)),
            ("d".into(), Value::Double(double)),
            ("x".into(), Value::Double(at as f64)),
            ("word".into(), Value::from("w")),
        ])
    };
    all.insert_documents(&(0..2_000).map(measurement).collect::<Vec<_>>()).unwrap();
    db.flush().unwrap();
    let snapshot = all.snapshot().unwrap();
    let edge = edge as f64;
    for bound in [
        (Some(edge), None),
        (Some(edge + 2.0), None),
        (Some(edge - 1.0), Some(edge)),
        (Some(-edge), Some(-edge)),
        (None, Some(-edge)),
        (Some(edge - 1.0), Some(edge - 1.0)),
        (Some(0.0), Some(0.0)),
        (Some(-0.0), Some(-0.0)),
        (Some(1.6), None),
        (None, Some(-0.0)),
        (Some(f64::INFINITY), None),
    ] {
        row_bounds(&snapshot, &ScanRequest::default(), bound);
    }
}

#[test]
fn expired_rows_and_other_times_stay_hidden_where_rows_are_left_out() {
    // The cut-off is within an hour, as are both ends of the times.
    let (db, all, clock) = opened(Some(1_830 * 60));
    let documents: Vec<Value> =
        (0..20_000).map(|at| document((at / 5, (at % 5) as u8, 42, (at * 7 % 1000) as i32))).collect();
    all.insert_documents(&documents).unwrap();
    db.flush().unwrap();
    let at = |minute: i64| Timestamp::from_millis(1_704_067_200_000 + minute * 60_000);
    clock.set(at(4_000));
    let snapshot = all.snapshot().unwrap();
    for time in [ebbtide::TimeRange::default(), (at(2_100)..at(2_205)).into(), (at(2_190)..at(3_455)).into()] {
        let request = ScanRequest { time, ..ScanRequest::default() };
        for bounds in [(Some(900.0), None), (Some(90.0), Some(99.0)), (Some(-1.0), Some(20.0)), (Some(2_000.0), None)] {
            row_bounds(&snapshot, &request, bounds);
        }
    }
    // The request is for twenty minutes of each sensor. The first ten of them are expired.
    for projection in [None, Some(vec!["word".to_owned()]), Some(vec!["t".to_owned()])] {
        let request = ScanRequest { time: (at(2_160)..at(2_180)).into(), projection, ..ScanRequest::default() };
        let units = snapshot.scan(&request).unwrap();
        let batches = units.iter().flat_map(|unit| unit.read().unwrap()).map(Result::unwrap);
        let read: usize = batches.map(|batch| batch.num_rows()).sum();
        let sum = |of: fn(&ebbtide::ScanUnit) -> u64| units.iter().map(of).sum::<u64>();
        assert_eq!((read, sum(|unit| unit.rows_hidden()), sum(|unit| unit.rows_outside())), (50, 50, 0));
    }
    let bounds = vec![FieldBound { field: "i".to_owned(), min: Some(900.0), max: None }];
    let units = snapshot.scan(&ScanRequest { bounds, ..ScanRequest::default() }).unwrap();
    let count = |of: &dyn Fn(&ebbtide::ScanUnit) -> u64| units.iter().map(of).sum::<u64>();
    let read = count(&|unit| unit.read().unwrap().map(|batch| batch.unwrap().num_rows() as u64).sum());
    // Of the hour with the cut-off, ten minutes of five sensors are hidden.
    let matching = (10_850..20_000).filter(|at| at * 7 % 1000 >= 900).count() as u64;
    assert_eq!((read, read + count(&|unit| unit.rows_outside())), (matching, 9_150));
    assert_eq!(count(&|unit| unit.rows_hidden()), 50);
}

#[test]
fn rows_outside_bounds_are_left_out_where_few_are_within() {
    let (db, all, _clock) = opened(None);
    let documents: Vec<Value> =
        (0..20_000).map(|at| document((at / 5, (at % 5) as u8, 42, (at * 7 % 1000) as i32))).collect();
    all.insert_documents(&documents).unwrap();
    db.flush().unwrap();
    let snapshot = all.snapshot().unwrap();
    let returned = |bounds: Vec<FieldBound>| {
        let request = ScanRequest { bounds, ..ScanRequest::default() };
        let units = snapshot.scan(&request).unwrap();
        let batches = units.iter().flat_map(|unit| unit.read().unwrap()).map(Result::unwrap);
        let read: usize = batches.map(|batch| batch.num_rows()).sum();
        let outside: u64 = units.iter().map(|unit| unit.rows_outside()).sum();
        assert_eq!(read as u64 + outside, units.iter().map(|unit| unit.rows_estimate()).sum::<u64>());
        (read, units.iter().all(|unit| unit.rows_exact()))
    };
    let of = |field: &str, min, max| FieldBound { field: field.to_owned(), min, max };
    assert_eq!(returned(vec![]), (20_000, true));
    assert_eq!(returned(vec![of("i", Some(990.0), None)]), (200, false));
    assert_eq!(returned(vec![of("i", Some(990.0), Some(990.0))]), (20, false));
    assert_eq!(returned(vec![of("d", None, Some(0.45))]), (100, false));
    assert_eq!(returned(vec![of("i", Some(990.0), None), of("d", Some(99.5), None)]), (100, false));
    assert_eq!(returned(vec![of("i", Some(990.0), None), of("d", None, Some(1.0))]), (0, false));
    // A bound that no field has excludes nothing.
    assert_eq!(returned(vec![of("none", Some(1.0), None)]), (20_000, true));
    assert_eq!(returned(vec![of("word", Some(1.0), None)]), (20_000, true));
    // Every second row: reading all of them takes less time.
    assert_eq!(returned(vec![of("i", Some(500.0), None)]), (20_000, false));
    row_bounds(&snapshot, &ScanRequest::default(), (Some(10.0), Some(20.0)));
}

#[test]
fn a_short_range_of_many_series_has_all_of_its_rows() {
    let (db, all, _clock) = opened(None);
    let measurement = |at: i64| {
        Value::Object(vec![
            ("t".into(), Value::Date(Timestamp::from_millis(1_704_067_200_000 + at % 20 * 60_000))),
            ("sensor".into(), Value::String(format!("s{}", at / 20))),
            ("i".into(), Value::Int(at)),
        ])
    };
    all.insert_documents(&(0..30_000).map(measurement).collect::<Vec<_>>()).unwrap();
    db.flush().unwrap();
    let snapshot = all.snapshot().unwrap();
    // Of 20 rows of each of 1,500 series.
    for minutes in [1, 5, 9, 15] {
        let from = Timestamp::from_millis(1_704_067_200_000 + 3 * 60_000);
        let to = Timestamp::from_millis(1_704_067_200_000 + (3 + minutes) * 60_000);
        let units = snapshot.scan(&ScanRequest { time: (from..to).into(), ..ScanRequest::default() }).unwrap();
        let batches = units.iter().flat_map(|unit| unit.read().unwrap()).map(Result::unwrap);
        let mut found: Vec<i64> = batches
            .flat_map(|batch| {
                (0..batch.num_rows())
                    .map(move |row| value_at(batch.column_by_name("i").unwrap(), row))
                    .collect::<Vec<_>>()
            })
            .map(|value| if let Value::Int(i) = value { i } else { panic!("{value:?}") })
            .collect();
        found.sort_unstable();
        let wanted: Vec<i64> = (0..30_000).filter(|at| (3..3 + minutes).contains(&(at % 20))).collect();
        assert_eq!(found, wanted, "{minutes}");
    }
}
