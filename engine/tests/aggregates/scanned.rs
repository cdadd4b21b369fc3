//! The same answers from the rows of a scan, by hand.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::error::ArrowError;
use ebbtide::buckets::{MetaKey, time_values, value_at};
use ebbtide::ttl::Value;
use ebbtide::{Aggregate, AggregateRequest, CollectionSnapshot, MetaFilter, MetaGroups, ScanRequest};
use std::collections::BTreeMap;

/// Chooses sensors by number; 5 is the one without a name.
#[derive(Debug)]
pub(crate) struct Names(pub(crate) Vec<u8>);

impl MetaFilter for Names {
    fn select(&self, metas: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        let wanted = |name: Option<&str>| match name {
            Some(name) => self.0.iter().any(|n| name == format!("s{n}")),
            None => self.0.contains(&5),
        };
        Ok(metas.as_string_view().iter().map(|name| Some(wanted(name))).collect())
    }
}

type Key = (Option<MetaKey>, Option<i64>);
/// The rows of a group: time and document.
pub(crate) type Groups = BTreeMap<Key, Vec<(i64, RecordBatch)>>;

fn batches(snapshot: &CollectionSnapshot, request: &ScanRequest) -> Vec<RecordBatch> {
    let units = snapshot.scan(request).unwrap();
    units.iter().flat_map(|u| u.read().unwrap()).map(Result::unwrap).collect()
}

/// Takes metas together, or each by itself.
#[derive(Debug)]
pub(crate) enum Grouped {
    Together,
    Apart,
}

impl MetaGroups for Grouped {
    fn group(&self, metas: &ArrayRef) -> Result<Vec<u32>, ArrowError> {
        let number = |at: u32| if matches!(self, Grouped::Together) { 0 } else { at };
        Ok((0..u32::try_from(metas.len()).unwrap()).map(number).collect())
    }
}

/// The groups of a request's rows.
pub(crate) fn aggregated(snapshot: &CollectionSnapshot, request: &AggregateRequest) -> Groups {
    let scan = ScanRequest { time: request.time, meta: request.meta.clone(), ..ScanRequest::default() };
    let mut groups = Groups::new();
    let precision = snapshot.schema().precision;
    let width = request.width.and_then(|width| precision.units_in(width));
    let period = request.period.and_then(|period| precision.units_in(period));
    for batch in batches(snapshot, &scan) {
        let times = time_values(batch.column_by_name("t").unwrap()).unwrap();
        let metas = batch.column_by_name("sensor").unwrap();
        for (row, t) in times.iter().enumerate() {
            let meta = request.by_meta.then(|| MetaKey::of(&value_at(metas, row)));
            let starts = request.starts.iter().flat_map(|starts| starts.iter());
            let start = match (width, period) {
                (Some(width), Some(period)) => Some(t.rem_euclid(period) / width * width),
                (Some(width), None) => Some(t.div_euclid(width) * width),
                (None, _) => starts.filter_map(|start| start.to_units(precision)).filter(|start| start <= t).max(),
            };
            if request.starts.is_some() && start.is_none() {
                continue; // Before the first group.
            }
            groups.entry((meta, start)).or_default().push((*t, batch.slice(row, 1)));
        }
    }
    groups
}

fn values(rows: &[(i64, RecordBatch)], field: &str) -> Vec<Value> {
    rows.iter().map(|(_, row)| value_at(row.column_by_name(field).unwrap(), 0)).collect()
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Int(i) => *i as f64,
        Value::Double(d) => *d,
        other => panic!("{other:?} is no number"),
    }
}

fn close(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}

/// What may come out for one aggregate of rows: first and last are one of several at the same time.
fn possible(aggregate: &Aggregate, rows: &[(i64, RecordBatch)]) -> Vec<Value> {
    let present = |field: &str| -> Vec<Value> { values(rows, field).into_iter().filter(|v| !v.is_null()).collect() };
    let whole = |values: &[Value]| matches!(values.first(), Some(Value::Int(_)));
    let order = |a: &Value, b: &Value| match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (a, b) => number(a).total_cmp(&number(b)),
    };
    let or_null = |value: Option<Value>| vec![value.unwrap_or_default()];
    let at = |time: Option<i64>, field: &str| -> Vec<Value> {
        let rows: Vec<_> = rows.iter().filter(|(t, _)| Some(*t) == time).cloned().collect();
        if rows.is_empty() { vec![Value::Null] } else { values(&rows, field) }
    };
    match aggregate {
        Aggregate::Rows => vec![Value::Int(rows.len() as i64)],
        Aggregate::Count(f) => vec![Value::Int(present(f).len() as i64)],
        Aggregate::Min(f) => or_null(present(f).into_iter().min_by(order)),
        Aggregate::Max(f) => or_null(present(f).into_iter().max_by(order)),
        Aggregate::First(f) => at(rows.iter().map(|(t, _)| *t).min(), f),
        Aggregate::Last(f) => at(rows.iter().map(|(t, _)| *t).max(), f),
        Aggregate::Sum(f) => {
            let present = present(f);
            let whole = whole(&present);
            let ints = present.iter().map(|v| if let Value::Int(i) = v { i128::from(*i) } else { 0 }).sum::<i128>();
            or_null((!present.is_empty()).then(|| match whole {
                true => Value::Int(i64::try_from(ints).unwrap()),
                false => Value::Double(present.iter().map(number).sum()),
            }))
        }
        Aggregate::Avg(f) => {
            let present = present(f);
            let mean = present.iter().map(number).sum::<f64>() / present.len() as f64;
            or_null((!present.is_empty()).then_some(Value::Double(mean)))
        }
    }
}

/// Holds an answer against the groups that a scan gives.
pub(crate) fn assert_same(answer: &RecordBatch, expected: &Groups, request: &AggregateRequest) {
    let mut expected: Vec<(Key, Vec<_>)> = expected.clone().into_iter().collect();
    if expected.is_empty() && !request.by_meta && request.width.is_none() && request.starts.is_none() {
        expected.push(((None, None), Vec::new()));
    }
    assert_eq!(answer.num_rows(), expected.len(), "{answer:?}");
    for (row, ((meta, start), rows)) in expected.iter().enumerate() {
        if let Some(meta) = meta {
            assert_eq!(&MetaKey::of(&value_at(answer.column_by_name("sensor").unwrap(), row)), meta);
        }
        if let Some(start) = start {
            assert_eq!(time_values(answer.column_by_name("t").unwrap()).unwrap()[row], *start);
        }
        for aggregate in &request.aggregates {
            let got = value_at(answer.column_by_name(&aggregate.name()).unwrap(), row);
            let possible = possible(aggregate, rows);
            let fits = possible.iter().any(|wanted| match (aggregate, &got, wanted) {
                (Aggregate::Sum(_) | Aggregate::Avg(_), Value::Double(a), Value::Double(b)) => close(*a, *b),
                (_, got, wanted) => same(got, wanted),
            });
            assert!(fits, "{}: {got:?}, not one of {possible:?}", aggregate.name());
        }
    }
}

/// Holds the last points against those of a scan.
pub(crate) fn last_points(snapshot: &CollectionSnapshot, request: &ScanRequest) {
    let answer = snapshot.last_points(request).unwrap();
    let mut newest: BTreeMap<MetaKey, (i64, Vec<RecordBatch>)> = BTreeMap::new();
    for batch in batches(snapshot, request) {
        let times = time_values(batch.column_by_name("t").unwrap()).unwrap();
        for (row, t) in times.iter().enumerate() {
            let key = MetaKey::of(&value_at(batch.column_by_name("sensor").unwrap(), row));
            let entry = newest.entry(key).or_insert((*t, Vec::new()));
            match t.cmp(&entry.0) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => entry.1.push(batch.slice(row, 1)),
                std::cmp::Ordering::Greater => *entry = (*t, vec![batch.slice(row, 1)]),
            }
        }
    }
    assert_eq!(answer.num_rows(), newest.len());
    for (row, (key, (_, candidates))) in newest.iter().enumerate() {
        assert_eq!(&MetaKey::of(&value_at(answer.column_by_name("sensor").unwrap(), row)), key);
        let is = |candidate: &RecordBatch| {
            (0..answer.num_columns())
                .all(|at| same(&value_at(answer.column(at), row), &value_at(candidate.column(at), 0)))
        };
        assert!(candidates.iter().any(is), "{:?}, not one of {candidates:?}", answer.slice(row, 1));
    }
    // Columns by name, in any order, and none.
    let names = vec!["word".to_owned(), "i".to_owned()];
    let some = snapshot.last_points(&ScanRequest { projection: Some(names), ..request.clone() }).unwrap();
    assert_eq!((some.num_rows(), some.num_columns()), (answer.num_rows(), 2));
    for (at, name) in [(0, "word"), (1, "i")] {
        assert_eq!(some.column(at).null_count(), answer.column_by_name(name).unwrap().null_count());
    }
    let none = snapshot.last_points(&ScanRequest { projection: Some(Vec::new()), ..request.clone() }).unwrap();
    assert_eq!((none.num_rows(), none.num_columns()), (answer.num_rows(), 0));
}
