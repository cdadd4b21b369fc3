//! Generated pipelines over a time series: with the engine's aggregates and document by document, and over an ordinary
//! collection with the same documents, the results are the same.
#![expect(clippy::unwrap_used, reason = "a test says by its panic what it met")]

mod wire;

use bson::raw::{CString, RawArrayBuf, RawBson, RawBsonRef, cstr};
use bson::{DateTime, RawDocument, RawDocumentBuf, rawdoc};
use proptest::prelude::RngExt;
use proptest::test_runner::{RngAlgorithm, TestRng};
use wire::Wire;

const CASES: u32 = 150;
const SEED: u64 = 16;
/// 2021-03-20, so that clocks change in the time of the documents.
const BEGIN: i64 = 1_616_198_400_000;
const DAY: i64 = 86_400_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn one_of<'a, T: ?Sized>(rng: &mut TestRng, all: &[&'a T]) -> &'a T {
    all[rng.random_range(0..all.len())]
}

/// A document with one member.
fn one(name: &str, value: impl Into<RawBson>) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(CString::try_from(name).unwrap(), value.into());
    document
}

/// A measurement at an instant of its own, so that it is definite which is the first.
fn document(rng: &mut TestRng, at: i64) -> RawDocumentBuf {
    let site = format!("s{}", rng.random_range(0..4));
    let mut document =
        rawdoc! { "t": DateTime::from_millis(at), "m": { "floor": rng.random_range(0..3), "site": site } };
    let mut field = |name: &str, value: RawBson| document.append(CString::try_from(name).unwrap(), value);
    let mut is_there = |tenths: u32| rng.random_range(0..10) < tenths;
    let there = [is_there(9), is_there(9), is_there(7), is_there(9), is_there(3), is_there(9), is_there(8)];
    if there[0] {
        field("quarters", RawBson::Double(f64::from(rng.random_range(-200..200)) / 4.0));
    }
    if there[1] {
        field("ints", RawBson::Int32(rng.random_range(-50..50)));
    }
    if there[2] {
        field("wide", RawBson::Int64(rng.random_range(-4..4) * 1_000_000_000));
    }
    if there[3] {
        field("random", RawBson::Double(rng.random_range(-1.0..40.0)));
    }
    if there[4] {
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1.5];
        let at = if at % 7 == 0 { rng.random_range(0..6) } else { rng.random_range(4..6) };
        field("odd", RawBson::Double(odd[at]));
    }
    if there[5] {
        field("text", RawBson::String(format!("x{}", rng.random_range(0..5))));
    }
    if there[6] {
        field("huge", RawBson::Int64(i64::MAX / rng.random_range(2..900)));
    }
    document
}

fn date_part(rng: &mut TestRng) -> RawBson {
    let zones = ["UTC", "Europe/Berlin", "America/St_Johns", "+05:30", "-0115", "Asia/Kolkata"];
    let zone = zones[rng.random_range(0..zones.len())];
    let units = ["year", "quarter", "month", "week", "day", "hour", "minute"];
    RawBson::Document(match rng.random_range(0..6) {
        0 => rawdoc! { "$dateTrunc": { "date": "$t", "unit": units[rng.random_range(0..7)] } },
        1 => {
            let (unit, bins) = (units[rng.random_range(0..6)], [1, 2, 5, 6, 12][rng.random_range(0..5)]);
            rawdoc! { "$dateTrunc": { "date": "$t", "unit": unit, "binSize": bins, "timezone": zone } }
        }
        2 => one(one_of(rng, &["$year", "$month", "$dayOfMonth", "$dayOfWeek", "$hour", "$isoWeek"]), "$t"),
        3 => one(one_of(rng, &["$hour", "$dayOfYear", "$week"]), rawdoc! { "date": "$t", "timezone": zone }),
        4 => {
            let format = one_of(rng, &["%Y-%m-%d", "%H:%M", "%G-W%V", "%Y %z"]);
            rawdoc! { "$dateToString": { "date": "$t", "format": format, "timezone": zone } }
        }
        _ => rawdoc! { "$dateTrunc": { "date": "$t", "unit": "hour", "binSize": 6 } },
    })
}

fn meta_part(rng: &mut TestRng) -> RawBson {
    match rng.random_range(0..5) {
        0 => RawBson::String("$m".to_owned()),
        1 => RawBson::String("$m.floor".to_owned()),
        2 => RawBson::Document(rawdoc! { "$concat": ["$m.site", "!"] }),
        3 => RawBson::Document(rawdoc! { "$cond": [{ "$eq": ["$m.site", "s1"] }, "one", "other"] }),
        _ => RawBson::String("$m.site".to_owned()),
    }
}

fn id(rng: &mut TestRng) -> RawBson {
    match rng.random_range(0..8) {
        0 => RawBson::Null,
        1 | 2 => meta_part(rng),
        3 | 4 => date_part(rng),
        5 if rng.random_range(0..2) == 0 => date_part(rng),
        5 => RawBson::String(one_of(rng, &["$text", "$ints", "$none"]).to_owned()),
        6 => RawBson::Document(rawdoc! { "part": date_part(rng), "meta": meta_part(rng), "one": { "$literal": 1 } }),
        _ => {
            let list: RawArrayBuf = [date_part(rng), meta_part(rng)].into_iter().collect();
            RawBson::Array(list)
        }
    }
}

fn accumulator(rng: &mut TestRng) -> RawDocumentBuf {
    let fields = ["$quarters", "$ints", "$wide", "$random", "$odd", "$text", "$none", "$huge"];
    let field = fields[rng.random_range(0..fields.len())];
    let names = ["$sum", "$avg", "$min", "$max", "$first", "$last", "$stdDevPop", "$push"];
    match rng.random_range(0..12) {
        0 => rawdoc! { "$count": {} },
        1 => rawdoc! { "$sum": 1 },
        2 => {
            let constants = [RawBson::Double(2.0), RawBson::Double(0.5), RawBson::Int64(3)];
            rawdoc! { "$sum": constants[rng.random_range(0..3)].clone() }
        }
        _ => {
            let known = if rng.random_range(0..5) == 0 { 8 } else { 6 };
            one(names[rng.random_range(0..known)], field)
        }
    }
}

fn filter(rng: &mut TestRng) -> RawDocumentBuf {
    let at = |rng: &mut TestRng| DateTime::from_millis(BEGIN + rng.random_range(-1..12) * DAY);
    match rng.random_range(0..8) {
        0 | 1 => rawdoc! {},
        2 => rawdoc! { "m.site": one_of(rng, &["s0", "s1", "none"]) },
        3 => rawdoc! { "t": { "$gte": at(rng), "$lt": at(rng) } },
        4 => rawdoc! { "t": { "$gt": at(rng) }, "m.floor": { "$in": [0, 2] } },
        5 => rawdoc! { "ints": { "$gt": rng.random_range(-60..60) } },
        6 => rawdoc! { "quarters": { "$lte": f64::from(rng.random_range(-60..60)) }, "t": { "$lt": at(rng) } },
        _ => rawdoc! { "$or": [{ "t": { "$lt": at(rng) } }, { "m.site": "s3" }] },
    }
}

fn pipeline(rng: &mut TestRng) -> Vec<RawDocumentBuf> {
    let mut stages = vec![rawdoc! { "$match": filter(rng) }];
    if rng.random_range(0..6) == 0 {
        let mut sort = one(one_of(rng, &["t", "ints"]), rng.random_range(0..2) * 2 - 1);
        if sort.get("t").unwrap().is_none() {
            sort.append(cstr!("t"), 1);
        }
        stages.push(rawdoc! { "$sort": sort });
        stages.push(rawdoc! { "$limit": rng.random_range(1..60) });
        stages.push(rawdoc! { "$project": { "_id": 0 } });
        return stages;
    }
    if rng.random_range(0..5) == 0 {
        // The newest of each series, most of the time.
        let (direction, accumulator) = [(-1, "$first"), (1, "$last")][rng.random_range(0..2)];
        let mut sort = if rng.random_range(0..2) == 0 {
            RawDocumentBuf::new()
        } else {
            rawdoc! { "m": 1 }
        };
        sort.append(cstr!("t"), if rng.random_range(0..8) == 0 { -direction } else { direction });
        let mut group = rawdoc! { "_id": meta_part(rng), "t": one(accumulator, "$t") };
        for field in ["ints", "text", "quarters", "none"] {
            group.append(CString::try_from(field).unwrap(), one(accumulator, &*format!("${field}")));
        }
        stages.extend([rawdoc! { "$sort": sort }, rawdoc! { "$group": group }, rawdoc! { "$sort": { "_id": 1 } }]);
        return stages;
    }
    let mut group = rawdoc! { "_id": id(rng) };
    for name in ["a", "b", "c"] {
        group.append(CString::try_from(name).unwrap(), accumulator(rng));
    }
    stages.push(rawdoc! { "$group": group });
    // Without an order of their own groups come in any.
    let direction = [1, 1, -1][rng.random_range(0..3)];
    stages.push(rawdoc! { "$sort": { "_id": direction } });
    if rng.random_range(0..2) == 0 {
        let limit = [1, 2, 5, 40][rng.random_range(0..4)];
        stages.push(rawdoc! { "$limit": limit });
    }
    stages
}

/// Whether two values are the same: doubles up to the rounding of sums, whole numbers whatever their type, since a time series
/// gives them the smallest.
fn same(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> bool {
    match (a, b) {
        (RawBsonRef::Int32(a), RawBsonRef::Int64(b)) => i64::from(a) == b,
        (RawBsonRef::Double(a), RawBsonRef::Double(b)) => {
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 + 1e-12 * a.abs()
        }
        (RawBsonRef::Document(a), RawBsonRef::Document(b)) => same_documents(a, b),
        (RawBsonRef::Array(a), RawBsonRef::Array(b)) => {
            a.into_iter().count() == b.into_iter().count()
                && a.into_iter().zip(b).all(|(a, b)| same(a.unwrap(), b.unwrap()))
        }
        (a, b) => a == b,
    }
}

/// In any order of members: a time series has one for all.
fn same_documents(a: &RawDocument, b: &RawDocument) -> bool {
    let members = |document: &RawDocument| document.iter().filter(|member| member.is_ok()).count();
    let in_other = |name: &str| b.get(name).unwrap();
    members(a) == members(b)
        && a.iter().map(|member| member.unwrap()).all(|(name, a)| in_other(name.as_str()).is_some_and(|b| same(a, b)))
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_the_same_from_aggregates_and_from_documents() {
    let (cases, seed) = (number("EBBTIDE_GROUPS_CASES", CASES.into()), number("EBBTIDE_GROUPS_SEED", SEED));
    println!("seed {seed}");
    let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed.to_le_bytes(), [0; 8], [0; 8], [0; 8]].concat());
    let mut wire = Wire::start().await;
    wire.run(&rawdoc! { "create": "series", "timeseries": { "timeField": "t", "metaField": "m" } }).await;
    let documents: Vec<RawDocumentBuf> =
        (0..1200).map(|i| document(&mut rng, BEGIN + i * (10 * DAY / 1200) + i * 7919 % 60_000)).collect();
    for (at, batch) in documents.chunks(400).enumerate() {
        for collection in ["series", "plain"] {
            let batch: RawArrayBuf = batch.iter().cloned().collect();
            wire.run(&rawdoc! { "insert": collection, "documents": batch }).await;
        }
        // The last ones stay in memory.
        if at < 2 {
            wire.run(&rawdoc! { "compact": "series" }).await;
        }
    }
    let of_floors = rawdoc! { "m.floor": { "$gt": 0 } };
    let of_times =
        rawdoc! { "t": { "$gte": DateTime::from_millis(BEGIN + DAY), "$lt": DateTime::from_millis(BEGIN + 3 * DAY) } };
    for key in ["m.site", "m.floor", "m.none", "m", "text"] {
        for query in [&rawdoc! {}, &of_floors, &of_times, &rawdoc! { "ints": 7 }] {
            let mut replies = Vec::new();
            for collection in ["series", "plain"] {
                replies.push(wire.run(&rawdoc! { "distinct": collection, "key": key, "query": query.clone() }).await);
            }
            let [series, plain] = [&replies[0], &replies[1]].map(|reply| reply.get_array("values").unwrap());
            assert!(same(RawBsonRef::Array(series), RawBsonRef::Array(plain)), "{key} {query:?}: {series:?} {plain:?}");
        }
    }
    let inhibit = rawdoc! { "$_internalInhibitOptimization": {} };
    // Limits on bins. Months and years are wider than the windows of a day from which they are computed.
    for unit in ["year", "quarter", "month", "week", "day", "hour", "minute"] {
        for (direction, limit) in [(-1, 1), (-1, 3), (-1, 9), (1, 1), (1, 2), (1, 40)] {
            let bin = rawdoc! { "$dateTrunc": { "date": "$t", "unit": unit } };
            let stages = [
                rawdoc! { "$match": { "m.site": { "$ne": "s2" } } },
                rawdoc! { "$group": { "_id": bin, "n": { "$sum": 1 }, "most": { "$max": "$ints" } } },
                rawdoc! { "$sort": { "_id": direction } },
                rawdoc! { "$limit": limit },
            ];
            let fast: RawArrayBuf = stages.iter().cloned().collect();
            let slow: RawArrayBuf = std::iter::once(inhibit.clone()).chain(stages).collect();
            let (fast, slow) = (wire.aggregate("series", &fast).await, wire.aggregate("series", &slow).await);
            assert_eq!(fast, slow, "{unit} {direction} {limit}");
            assert!(fast.is_ok_and(|groups| !groups.is_empty()), "{unit}");
        }
    }
    // Bins of another value than the time: they do not rise with it.
    let hour_of_day =
        rawdoc! { "$dateAdd": { "startDate": DateTime::from_millis(0), "unit": "hour", "amount": { "$hour": "$t" } } };
    let stages = [
        rawdoc! { "$group": { "_id": { "$dateTrunc": { "date": hour_of_day, "unit": "hour" } }, "n": { "$sum": 1 } } },
        rawdoc! { "$sort": { "_id": 1 } },
        rawdoc! { "$limit": 1 },
    ];
    let fast: RawArrayBuf = stages.iter().cloned().collect();
    let slow: RawArrayBuf = std::iter::once(inhibit.clone()).chain(stages).collect();
    assert_eq!(wire.aggregate("series", &fast).await, wire.aggregate("series", &slow).await);
    let mut errors = 0;
    for case in 0..cases {
        let stages = pipeline(&mut rng);
        let fast: RawArrayBuf = stages.iter().cloned().collect();
        let slow: RawArrayBuf = std::iter::once(inhibit.clone()).chain(stages).collect();
        let results = [
            wire.aggregate("series", &fast).await,
            wire.aggregate("series", &slow).await,
            wire.aggregate("plain", &fast).await,
        ];
        errors += u32::from(results[0].is_err());
        for other in &results[1..] {
            let is_same = match (&results[0], other) {
                (Ok(a), Ok(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_documents(a, b)),
                (a, b) => a == b,
            };
            assert!(is_same, "seed {seed}, case {case}: {fast:?}\n{:?}\n{other:?}", results[0]);
        }
    }
    assert!(u64::from(errors) < cases / 10, "{errors} of {cases} pipelines were refused");
    wire.stop().await;
}
