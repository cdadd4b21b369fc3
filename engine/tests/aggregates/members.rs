//! The values of a member of metas, found without examining every meta, are those of the visible measurements.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::error::ArrowError;
use ebbtide::buckets::{MetaKey, keys_of_column, value_at};
use ebbtide::fs::sim::SimFs;
use ebbtide::ttl::{Filter, RuleSpec, Timestamp, Value, VirtualClock};
use ebbtide::{
    AggregateRequest, CollectionOptions, CollectionSnapshot, Database, MetaFilter, MetaGroups, Settings, TimeRange,
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

const START_MS: i64 = 1_704_067_200_000;
const MEMBERS: [&str; 4] = ["text", "int", "flag", "list"];

/// Groups metas by a member.
#[derive(Debug)]
struct ByMember {
    name: Vec<String>,
    /// Whether the engine is told that nothing else decides the group.
    told: bool,
}

fn member(metas: &ArrayRef, name: &str) -> ArrayRef {
    Arc::clone(metas.as_struct().column_by_name(name).unwrap())
}

impl MetaGroups for ByMember {
    fn group(&self, metas: &ArrayRef) -> Result<Vec<u32>, ArrowError> {
        let member = member(metas, &self.name[0]);
        Ok(keys_of_column(Some(&member), metas.len()).1)
    }

    fn member(&self) -> Option<&[String]> {
        self.told.then_some(&self.name)
    }
}

/// Metas whose number leaves a remainder.
#[derive(Debug)]
struct Remainder(i64);

impl MetaFilter for Remainder {
    fn select(&self, metas: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        let numbers = member(metas, "n");
        let number = |row| match value_at(&numbers, row) {
            Value::Int(n) => n % 3 == self.0,
            _ => false,
        };
        Ok((0..metas.len()).map(|row| Some(number(row))).collect())
    }
}

/// A measurement of one of some metas: by the number of its meta, which decides its members too.
fn document(minute: i64, number: i64) -> Value {
    let mut meta = vec![("n".into(), Value::Int(number))];
    if number % 7 != 0 {
        meta.push(("text".into(), Value::from(format!("t{}", number % 4).as_str())));
    }
    if number % 5 != 0 {
        meta.push(("int".into(), Value::Int(number % 3)));
        meta.push(("flag".into(), Value::Bool(number % 2 == 0)));
        meta.push(("list".into(), Value::Array(vec![Value::Int(number % 2), Value::Int(number % 3)])));
    }
    let at = Timestamp::from_millis(START_MS + minute * 60_000);
    Value::Object(vec![
        ("t".into(), Value::Date(at)),
        ("m".into(), Value::Object(meta)),
        ("v".into(), Value::Int(number)),
    ])
}

fn values(snapshot: &CollectionSnapshot, name: &str, request: &AggregateRequest, told: bool) -> BTreeSet<MetaKey> {
    let groups = ByMember { name: vec![name.to_owned()], told };
    let request = AggregateRequest { by_meta: true, meta_groups: Some(Arc::new(groups)), ..request.clone() };
    let found = snapshot.aggregate(&request).unwrap();
    let values = member(found.column(0), name);
    let keys: BTreeSet<MetaKey> = (0..values.len()).map(|row| MetaKey::of(&value_at(&values, row))).collect();
    assert_eq!(keys.len(), found.num_rows(), "{name}: a value twice");
    keys
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Vec<(i64, i64)>),
    Flush,
    Compact,
    Delete(i64),
    Sweep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rows = prop::collection::vec((0..600_i64, 1..40_i64), 1..60);
    let step = prop_oneof![
        4 => rows.prop_map(Step::Insert),
        3 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => (1..40_i64).prop_map(Step::Delete),
        1 => Just(Step::Sweep),
    ];
    prop::collection::vec(step, 1..9)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn values_of_a_member_are_those_of_all_metas(
        steps in steps(),
        life in prop::option::of(1..12_i64),
        rule in prop::option::of((0..4_i64, 1..12_i64)),
        now in 0..900_i64,
        (from, length) in (prop::option::of(0..600_i64), prop::option::of(0..600_i64)),
        only in prop::option::of(0..3_i64),
        cache_bytes_max in prop_oneof![Just(0), Just(Settings::default().cache_bytes_max)],
    ) {
        let clock = VirtualClock::new(Timestamp::from_millis(START_MS));
        let builder = Database::builder("/db").fs(Arc::new(SimFs::new("/db"))).clock(Arc::new(clock.clone()));
        let db = builder.settings(Settings { cache_bytes_max, ..Settings::default() }).open().unwrap();
        let mut options = CollectionOptions::new("t").meta_field("m");
        options.expire_after_seconds = life.map(|hours| hours * 3_600);
        let all = db.create_collection("all", options).unwrap();
        if let Some((text, hours)) = rule {
            let of = Filter::eq("m.text", Value::from(format!("t{text}").as_str()));
            db.create_rules("all", vec![RuleSpec::new("one", hours * 3_600, of)]).unwrap();
        }
        // Every member exists, whatever the steps insert.
        all.insert_documents(&[document(0, 1), document(300, 2)]).unwrap();
        clock.set(Timestamp::from_millis(START_MS + now * 60_000));
        for step in steps {
            match step {
                Step::Insert(rows) => {
                    let rows: Vec<Value> = rows.into_iter().map(|(minute, number)| document(minute, number)).collect();
                    all.insert_documents(&rows).unwrap();
                }
                Step::Flush => db.flush().unwrap(),
                Step::Compact => db.compact(None).unwrap(),
                Step::Delete(number) => drop(all.delete(&Filter::eq("m.n", Value::Int(number))).unwrap()),
                Step::Sweep => drop(db.sweep().unwrap()),
            }
        }
        let snapshot = all.snapshot().unwrap();
        let at = |minute: i64| Timestamp::from_millis(START_MS + minute * 60_000);
        let request = AggregateRequest {
            time: TimeRange::new(from.map(at), length.map(|length| at(from.unwrap_or(0) + length))),
            meta: only.map(|only| Arc::new(Remainder(only)) as _),
            ..AggregateRequest::default()
        };
        for name in MEMBERS {
            prop_assert_eq!(
                values(&snapshot, name, &request, true), values(&snapshot, name, &request, false), "{}", name
            );
        }
    }
}

#[test]
fn values_of_a_member_take_a_bucket_each() {
    let db = Database::builder("/db").fs(Arc::new(SimFs::new("/db"))).open().unwrap();
    let all = db.create_collection("all", CollectionOptions::new("t").meta_field("m")).unwrap();
    let rows = |hour: i64| (1..1_000).map(|number| document(hour * 60, number)).collect::<Vec<_>>();
    for hour in 0..3 {
        all.insert_documents(&rows(hour)).unwrap();
        if hour < 2 {
            db.flush().unwrap();
        }
    }
    let snapshot = all.snapshot().unwrap();
    let of = |told| AggregateRequest {
        by_meta: true,
        meta_groups: Some(Arc::new(ByMember { name: vec!["text".to_owned()], told })),
        ..AggregateRequest::default()
    };
    let examined = |told| snapshot.aggregate_guarded(&of(told), &()).unwrap();
    let (few, every) = (examined(true), examined(false));
    assert_eq!((few.groups.num_rows(), every.groups.num_rows()), (5, 5));
    assert_eq!((few.known + few.report.buckets, every.known + every.report.buckets), (5, 2_997));
    assert_eq!(few.report.buckets_pruned, 2_992);
}
