//! Aggregates and last points give what a scan of the same snapshot gives, whatever is sealed, deleted, hidden or null.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

mod first_rows;
mod members;
mod row_bounds;
mod scanned;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use ebbtide::buckets::value_at;
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{Code, Comparison, Filter, Granularity, Precision, RuleSpec, Timestamp, Value, VirtualClock};
use ebbtide::{
    Aggregate, AggregateGuard, AggregateRequest, Collection, CollectionOptions, Database, ScanRequest, Settings,
    TimeRange,
};
use proptest::prelude::*;
use scanned::{Names, aggregated, assert_same, last_points};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

const HOUR: i64 = 3_600_000;
const FIELDS: [&str; 3] = ["d", "i", "x"];

fn every_aggregate() -> Vec<Aggregate> {
    let of = |f: &&str| {
        let f = (*f).to_owned();
        use Aggregate as A;
        [A::Count(f.clone()), A::Sum(f.clone()), A::Avg(f.clone()), A::Min(f.clone()), A::Max(f.clone())]
            .into_iter()
            .chain([A::First(f.clone()), A::Last(f)])
    };
    std::iter::once(Aggregate::Rows).chain(FIELDS.iter().flat_map(of)).collect()
}

/// A measurement: minutes since 2024, sensor, and values that are awkward now and then.
fn document((minute, sensor, wild, n): (i64, u8, u8, i32)) -> Value {
    let t = Timestamp::from_millis(1_704_067_200_000 + minute * 60_000 + i64::from(n.unsigned_abs() % 1000));
    let double = match wild {
        0 => Value::Double(f64::NAN),
        1 => Value::Double(-0.0),
        2 => Value::Double(f64::INFINITY),
        3 => Value::Null,
        4 => Value::Double(0.1 + f64::from(n) * 1e-9),
        _ => Value::Double(f64::from(n) / 10.0),
    };
    let int = match wild {
        5 => Value::Null,
        6 => Value::Int(i64::from(n) << 31),
        _ => Value::Int(i64::from(n)),
    };
    let meta = if sensor == 5 { Value::Null } else { Value::from(format!("s{sensor}").as_str()) };
    let mut members = vec![("t".into(), Value::Date(t)), ("sensor".into(), meta)];
    members.extend([("d".into(), double), ("i".into(), int), ("word".into(), Value::from("w"))]);
    if wild % 2 == 0 {
        members.push(("x".into(), Value::Double(f64::from(n) / 4.0)));
    }
    Value::Object(members)
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Vec<(i64, u8, u8, i32)>),
    Flush,
    Compact,
    DeleteAbove(u8, i32),
    Sweep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let row = (0..6_000_i64, 0..6_u8, 0..40_u8, -2_000..2_000_i32);
    let dense = (0..100_i64, 0..6_u8, 4..40_u8, -50..50_i32);
    let step = prop_oneof![
        3 => prop::collection::vec(row, 1..150).prop_map(Step::Insert),
        3 => prop::collection::vec(dense, 200..400).prop_map(Step::Insert),
        3 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => (0..6_u8, -2_000..2_000_i32).prop_map(|(s, n)| Step::DeleteAbove(s, n)),
        1 => Just(Step::Sweep),
    ];
    prop::collection::vec(step, 1..9)
}

fn opened(expire_after: Option<i64>) -> (Database, Collection, VirtualClock) {
    opened_with(expire_after, Settings::default())
}

fn opened_with(expire_after: Option<i64>, settings: Settings) -> (Database, Collection, VirtualClock) {
    let clock = VirtualClock::new(Timestamp::from_millis(1_704_067_200_000));
    let builder = Database::builder("/db").fs(Arc::new(SimFs::new("/db"))).clock(Arc::new(clock.clone()));
    let db = builder.settings(settings).open().unwrap();
    let mut options = CollectionOptions::new("t").meta_field("sensor");
    options.expire_after_seconds = expire_after;
    let all = db.create_collection("all", options).unwrap();
    (db, all, clock)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn aggregates_and_last_points_are_those_of_a_scan(
        steps in steps(),
        rule in prop::option::of((0..5_u8, 1..90_i64)),
        life in prop::option::of(1..100_i64),
        now in 0..7_000_i64,
        (from, length) in (prop::option::of(-100..6_000_i64), prop::option::of(0..3_000_i64)),
        only in prop::option::of(prop::collection::vec(0..6_u8, 0..4)),
        width in prop_oneof![Just(None), Just(Some(HOUR)), Just(Some(60_000)), Just(Some(3 * HOUR)), (1..HOUR).prop_map(Some)],
        starts in prop::option::of(prop::collection::btree_set(-60..7_000_i64, 1..6)),
        periods in prop::option::of(1..30_u32),
        by_meta in any::<bool>(),
        // With no cache each segment is a round of its own, and rows are read past it.
        cache_bytes_max in prop_oneof![Just(0), Just(Settings::default().cache_bytes_max)],
        first in 1..400_u64,
        bounds in (prop::option::of(-220.0..220.0), prop::option::of(-220.0..220.0)),
    ) {
        let settings = Settings { cache_bytes_max, ..Settings::default() };
        let (db, all, clock) = opened_with(life.map(|h| h * 3600), settings);
        if let Some((sensor, hours)) = rule {
            let of = Filter::eq("sensor", Value::from(format!("s{sensor}").as_str()));
            db.create_rules("all", vec![RuleSpec::new("one", hours * 3600, of)]).unwrap();
        }
        // Every field exists, whatever the steps insert.
        all.insert_documents(&[document((0, 0, 40, 1)), document((7_000, 1, 41, 2))]).unwrap();
        clock.set(Timestamp::from_millis(1_704_067_200_000 + now * 60_000));
        for step in steps {
            match step {
                Step::Insert(rows) => {
                    all.insert_documents(&rows.into_iter().map(document).collect::<Vec<_>>()).unwrap();
                }
                Step::Flush => db.flush().unwrap(),
                Step::Compact => db.compact(None).unwrap(),
                Step::DeleteAbove(sensor, n) => {
                    let sensor = Filter::eq("sensor", Value::from(format!("s{sensor}").as_str()));
                    let above = Filter::compare("i", Comparison::Gt, Value::Int(i64::from(n)));
                    all.delete(&Filter::and(vec![sensor, above])).unwrap();
                }
                Step::Sweep => drop(db.sweep().unwrap()),
            }
        }
        let snapshot = all.snapshot().unwrap();
        let start = 1_704_067_200_000;
        let at = |m: i64, ms: i64| Timestamp::from_millis(start + m * 60_000 + ms);
        let time = TimeRange::new(from.map(|m| at(m, 17)), length.map(|m| at(from.unwrap_or(0) + m, 0)));
        let starts: Option<Arc<[Timestamp]>> = starts.map(|starts| starts.into_iter().map(|minute| at(minute, 1)).collect());
        let width = width.filter(|_| starts.is_none()).map(|width| Precision::Ms.duration(width));
        let period = width.zip(periods).map(|(width, count)| width * count);
        let meta = only.map(|only| Arc::new(Names(only)) as Arc<dyn ebbtide::MetaFilter>);
        let request = AggregateRequest { aggregates: every_aggregate(), time, meta: meta.clone(), by_meta, meta_groups: None, width, period, starts };
        let expected = aggregated(&snapshot, &request);
        let given = snapshot.aggregate_guarded(&request, &()).unwrap();
        assert_same(&given.groups, &expected, &request);

        // Metas taken together, and each by itself.
        let apart = AggregateRequest { by_meta: true, meta_groups: Some(Arc::new(scanned::Grouped::Apart)), ..request.clone() };
        assert_same(&snapshot.aggregate(&apart).unwrap(), &aggregated(&snapshot, &apart), &apart);
        let together = AggregateRequest { meta_groups: Some(Arc::new(scanned::Grouped::Together)), ..apart };
        let all_metas = AggregateRequest { by_meta: false, ..request.clone() };
        let expected = aggregated(&snapshot, &all_metas);
        match snapshot.aggregate(&together).unwrap() {
            answer if expected.is_empty() => assert_eq!(answer.num_rows(), 0),
            answer => assert_same(&answer, &expected, &all_metas),
        }

        // What was left out, as a scan that has read everything says it.
        let time = match request.starts.as_ref().and_then(|starts| starts.first()) {
            Some(first) => TimeRange::new(time.first().max(Some(*first)), time.last()),
            None => time,
        };
        let (units, scanned) = snapshot.scan_reported(&ScanRequest { time, meta: meta.clone(), ..ScanRequest::default() }).unwrap();
        units.iter().flat_map(|u| u.read().unwrap()).for_each(|b| drop(b.unwrap()));
        let hidden = scanned.rows_hidden + units.iter().map(|u| u.rows_hidden()).sum::<u64>();
        let report = given.report;
        assert_eq!((report.rows_hidden, report.buckets_hidden, report.buckets_pruned), (hidden, scanned.buckets_hidden, scanned.buckets_pruned));
        assert_eq!(given.known + report.buckets, scanned.buckets);

        let points = ScanRequest { time, meta, ..ScanRequest::default() };
        last_points(&snapshot, &points);
        first_rows::first_rows(&snapshot, &points, first);
        row_bounds::row_bounds(&snapshot, &points, bounds);
    }
}

#[test]
fn an_aggregation_stops_when_it_is_not_to_go_on_and_knows_what_it_takes() {
    let (db, all, _clock) = opened(None);
    assert_eq!(all.snapshot().unwrap().time_range(), None);
    for minute in 0..500 {
        all.insert_documents(&[document((minute, (minute % 5) as u8, 40, 1))]).unwrap();
    }
    let start = 1_704_067_200_000;
    for sealed in [false, true] {
        if sealed {
            db.flush().unwrap();
        }
        let snapshot = all.snapshot().unwrap();
        let at = |minute: i64| Timestamp::from_millis(start + minute * 60_000 + 1);
        assert_eq!(snapshot.time_range(), Some((at(0), at(499))));
        let ask_of = |time: TimeRange, width: Option<i64>, guard: &Asked| {
            let width = width.map(|width| Precision::Ms.duration(width));
            let request =
                AggregateRequest { aggregates: every_aggregate(), time, width, ..AggregateRequest::default() };
            snapshot.aggregate_guarded(&request, guard).map(|given| given.groups.num_rows())
        };
        let ask = |width, guard: &Asked| ask_of(TimeRange::default(), width, guard);
        let taken_of = |time, width| {
            let guard = Asked::default();
            ask_of(time, width, &guard).unwrap();
            guard.bytes.load(Relaxed)
        };
        let taken = |width| taken_of(TimeRange::default(), width);
        // What is outside the requested times takes nothing, though its buckets are looked at.
        let (tenth, whole) = (taken_of((at(100)..at(150)).into(), Some(60_000)), taken(Some(60_000)));
        assert!(tenth * 9 < whole, "{tenth} {whole}");
        // Bins of a millisecond: there are no more groups than rows.
        let (one, fine, hours) = (taken(None), taken(Some(1)), taken(Some(HOUR)));
        assert!(one < hours && hours < fine && fine <= 32 * 1024 * 500, "{one} {hours} {fine}");
        for refuse in ["memory", "rows", "on"] {
            let guard = Asked { refuse, ..Asked::default() };
            assert_eq!(ask(Some(7_001), &guard).unwrap_err().code(), Code::Interrupted, "{refuse}");
        }
    }
}

/// Notes what it is asked, and says no to one thing.
#[derive(Default)]
struct Asked {
    refuse: &'static str,
    bytes: AtomicUsize,
}

impl AggregateGuard for Asked {
    fn may_take(&self, bytes: usize) -> bool {
        self.bytes.store(bytes, Relaxed);
        self.refuse != "memory"
    }

    fn may_read(&self, rows: u64) -> bool {
        self.refuse != "rows" || rows == 0
    }

    fn may_go_on(&self) -> bool {
        self.refuse != "on"
    }
}

#[test]
fn what_cannot_be_aggregated_is_refused_by_name() {
    let (_db, all, _clock) = opened(None);
    all.insert_documents(&[document((0, 0, 40, 1))]).unwrap();
    let snapshot = all.snapshot().unwrap();
    let refused = |aggregates: Vec<Aggregate>, width| {
        let error = snapshot.aggregate(&AggregateRequest { aggregates, width, ..AggregateRequest::default() });
        let error = error.unwrap_err();
        assert_eq!(error.code(), Code::BadValue);
        error.to_string()
    };
    assert!(refused(vec![Aggregate::Min("word".into())], None).contains("'word' is string"));
    assert!(refused(vec![Aggregate::Min("none".into())], None).contains("no field 'none'"));
    assert!(refused(vec![Aggregate::Min("t".into())], None).contains("no field 't'"));
    let at = Timestamp::from_nanos;
    for (starts, width, expected) in [
        (vec![], None, "at least one"),
        (vec![at(2_000_000), at(1_000_000)], None, "ascending order"),
        (vec![at(1_000_000), at(1_000_000)], None, "ascending order"),
        (vec![at(1)], None, "whole ms"),
        (vec![at(0)], Some(Duration::from_secs(1)), "not both"),
    ] {
        let (aggregates, starts) = (vec![Aggregate::Rows], Some(Arc::from(starts)));
        let request = AggregateRequest { aggregates, width, starts, ..AggregateRequest::default() };
        let error = snapshot.aggregate(&request).unwrap_err();
        assert_eq!(error.code(), Code::BadValue);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let hour = Duration::from_secs(3600);
    for (width, period, expected) in [
        (None, Some(hour), "only with a width"),
        (Some(hour), Some(Duration::ZERO), "a multiple of their width"),
        (Some(hour), Some(hour / 2), "a multiple of their width"),
    ] {
        let aggregates = vec![Aggregate::Rows];
        let request = AggregateRequest { aggregates, width, period, ..AggregateRequest::default() };
        let error = snapshot.aggregate(&request).unwrap_err();
        assert_eq!(error.code(), Code::BadValue);
        assert!(error.to_string().contains(expected), "{error}");
    }
    for width in [Duration::ZERO, Duration::from_micros(1_500), Duration::MAX] {
        assert!(refused(vec![Aggregate::Rows], Some(width)).contains("it must be a whole number of ms"));
    }
}

#[test]
fn a_sum_that_no_int64_holds_is_refused_and_its_mean_is_not() {
    let (db, all, _clock) = opened(None);
    let rows: Vec<Value> = (0..40)
        .map(|m| {
            let t = Timestamp::from_millis(1_704_067_200_000 + m);
            Value::Object(vec![("t".into(), Value::Date(t)), ("i".into(), Value::Int(i64::MAX - m))])
        })
        .collect();
    all.insert_documents(&rows).unwrap();
    for sealed in [false, true] {
        if sealed {
            db.flush().unwrap();
        }
        let ask = |aggregate| {
            let request = AggregateRequest { aggregates: vec![aggregate], ..AggregateRequest::default() };
            all.snapshot().unwrap().aggregate(&request)
        };
        assert!(ask(Aggregate::Sum("i".into())).unwrap_err().to_string().contains("'i' does not fit into 64 bits"));
        let mean = ask(Aggregate::Avg("i".into())).unwrap();
        assert_eq!(ebbtide::buckets::value_at(mean.column(0), 0), Value::Double(i64::MAX as f64));
    }
}

#[test]
fn groups_at_the_start_of_time_hold_what_is_theirs() {
    const DAY: i64 = 86_400_000_000_000;
    let db = Database::builder("/db").fs(Arc::new(SimFs::new("/db"))).open().unwrap();
    let options = CollectionOptions::new("t").precision(Precision::Ns).granularity(Granularity::Hours);
    let c = db.create_collection("c", options).unwrap();
    let second_day = (i64::MIN.div_euclid(DAY) + 1) * DAY;
    let row = |t: i64| Value::Object(vec![("t".into(), Value::Date(Timestamp::from_nanos(i128::from(t))))]);
    c.insert_documents(&[row(i64::MIN), row(second_day), row(second_day + 1)]).unwrap();
    for sealed in [false, true] {
        if sealed {
            db.flush().unwrap();
        }
        let request = AggregateRequest {
            aggregates: vec![Aggregate::Rows],
            width: Some(Duration::from_secs(86_400)),
            ..AggregateRequest::default()
        };
        let groups = c.snapshot().unwrap().aggregate(&request).unwrap();
        let counts = groups.columns().last().unwrap();
        let mut counts: Vec<Value> = (0..groups.num_rows()).map(|row| value_at(counts, row)).collect();
        counts.sort();
        assert_eq!(counts, [Value::Int(1), Value::Int(2)], "sealed: {sealed}");
    }
}

/// More groups than one thread merges: in tables with a slot for each group, in tables with only those that occur (a width of 1 ms),
/// with metas combined, and in rounds of a segment each (without a cache).
#[test]
fn groups_of_few_rows_are_merged_by_several_threads_without_loss() {
    const ROWS: i64 = 70_000;
    for cache_bytes_max in [Settings::default().cache_bytes_max, 0] {
        let (db, all, _clock) = opened_with(None, Settings { cache_bytes_max, ..Settings::default() });
        let row = |i: i64| {
            let t = Timestamp::from_millis(1_704_067_200_000 + 50 * i);
            let sensor = Value::from(format!("s{}", i % 3).as_str());
            Value::Object(vec![("t".into(), Value::Date(t)), ("sensor".into(), sensor), ("i".into(), Value::Int(i))])
        };
        // Each measurement twice, in different segments; the last ones are in memory.
        for pass in 0..2 {
            for start in (0..ROWS).step_by(10_000) {
                let rows: Vec<Value> = (start..start + 10_000).map(row).collect();
                all.insert_documents(&rows).unwrap();
                if pass == 0 || start < ROWS / 2 {
                    db.flush().unwrap();
                }
            }
        }
        let snapshot = all.snapshot().unwrap();
        let aggregates = vec![Aggregate::Rows, Aggregate::Sum("i".into()), Aggregate::Last("i".into())];
        let by_time: Vec<i64> = (0..ROWS).collect();
        let by_sensor: Vec<i64> = (0..3).flat_map(|sensor| (sensor..ROWS).step_by(3)).collect();
        for (width, by_meta, groups, expected) in [
            (50, false, None, &by_time),
            (50, true, None, &by_sensor),
            (150, true, None, &by_sensor),
            (1, true, None, &by_sensor),
            (50, true, Some(scanned::Grouped::Apart), &by_sensor),
            (50, true, Some(scanned::Grouped::Together), &by_time),
        ] {
            let request = AggregateRequest {
                aggregates: aggregates.clone(),
                width: Some(Precision::Ms.duration(width)),
                by_meta,
                meta_groups: groups.map(|groups| Arc::new(groups) as Arc<dyn ebbtide::MetaGroups>),
                ..AggregateRequest::default()
            };
            let groups = snapshot.aggregate(&request).unwrap();
            let int = |name: &str| groups.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec();
            let (counts, sums, lasts) = (int("count(*)"), int("sum(i)"), int("last(i)"));
            assert!(lasts == *expected, "{request:?}");
            assert!(counts.iter().all(|count| *count == 2));
            assert!(sums.iter().zip(&lasts).all(|(sum, last)| *sum == 2 * last));
        }
    }
}
