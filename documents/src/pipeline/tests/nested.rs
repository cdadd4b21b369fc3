//! Stages with pipelines of their own, and `$bucketAuto`.

use super::*;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn others() -> Vec<RawDocumentBuf> {
    vec![
        rawdoc! { "_id": 10, "k": 1, "v": 5 },
        rawdoc! { "_id": 11, "k": 1, "v": 7 },
        rawdoc! { "_id": 12, "k": 2, "v": 9 },
        rawdoc! { "_id": 13 },
    ]
}

/// The results of stages over documents, beside the other collection.
fn beside(stages: RawArrayBuf, documents: &[RawDocumentBuf]) -> Vec<RawDocumentBuf> {
    let mut run = Pipeline::parse(&stages).unwrap().run(0, usize::MAX).with_foreign(Box::new(Others(others())));
    for document in documents {
        if !run.take(document.clone()).unwrap() {
            break;
        }
    }
    run.finish().unwrap();
    run.results()
}

fn stage(stage: RawDocumentBuf) -> RawArrayBuf {
    RawArrayBuf::from_iter([stage])
}

#[test]
fn facets_are_pipelines_over_the_same_documents() {
    let facets = rawdoc! { "$facet": {
        "names": [{ "$group": { "_id": "$n" } }],
        "first": [{ "$limit": 1 }, { "$project": { "_id": 1 } }],
        "old": [{ "$match": { "age": { "$gt": 30 } } }, { "$count": "n" }],
        "none": [{ "$match": { "age": 1 } }, { "$count": "n" }],
        "all": [],
    } };
    let all: RawArrayBuf = people().into_iter().map(RawBson::Document).collect();
    let expected = rawdoc! {
        "names": [{ "_id": "ada" }, { "_id": "bob" }],
        "first": [{ "_id": 1 }],
        "old": [{ "n": 1 }],
        "none": [],
        "all": all,
    };
    assert_eq!(beside(stage(facets.clone()), &people()), [expected]);
    let expected = rawdoc! { "names": [], "first": [], "old": [], "none": [], "all": [] };
    assert_eq!(beside(stage(facets), &[]), [expected]);
}

#[test]
fn facets_that_need_no_more_end_the_input() {
    let stages = rawdoc! { "p": [{ "$facet": { "a": [{ "$limit": 1 }], "b": [{ "$limit": 2 }] } }] };
    let mut running = Pipeline::parse(stages.get_array("p").unwrap()).unwrap().run(0, usize::MAX);
    assert!(running.take(rawdoc! {}).unwrap());
    assert!(!running.take(rawdoc! {}).unwrap());
}

#[test]
fn facets_need_the_fields_of_all_of_them() {
    let needed = |facets: RawDocumentBuf| {
        Pipeline::parse(&stage(rawdoc! { "$facet": facets })).unwrap().needed_fields().map(|mut fields| {
            fields.sort();
            fields
        })
    };
    let two = rawdoc! { "a": [{ "$group": { "_id": "$x" } }], "b": [{ "$project": { "y": 1 } }] };
    assert_eq!(needed(two), Some(vec!["_id".to_owned(), "x".to_owned(), "y".to_owned()]));
    assert_eq!(needed(rawdoc! { "a": [{ "$group": { "_id": "$x" } }], "b": [] }), None);
}

#[test]
fn a_union_comes_after_the_documents() {
    let union =
        rawdoc! { "$unionWith": { "coll": "d", "pipeline": [{ "$match": { "k": 1 } }, { "$project": { "v": 1 } }] } };
    let first = rawdoc! { "_id": 1 };
    let united = [first.clone(), rawdoc! { "_id": 10, "v": 5 }, rawdoc! { "_id": 11, "v": 7 }];
    assert_eq!(beside(stage(union.clone()), std::slice::from_ref(&first)), united);
    let limited = |limit: i32| RawArrayBuf::from_iter([union.clone(), rawdoc! { "$limit": limit }]);
    assert_eq!(beside(limited(2), std::slice::from_ref(&first)), united[..2]);
    assert_eq!(beside(limited(1), std::slice::from_ref(&first)), united[..1]);
    let whole = beside(stage(rawdoc! { "$unionWith": "d" }), &[]);
    assert_eq!(whole, others());
    let within = rawdoc! { "$facet": { "a": [{ "$unionWith": "d" }, { "$count": "n" }] } };
    assert_eq!(beside(stage(within), &[first]), [rawdoc! { "a": [{ "n": 5 }] }]);
}

#[test]
fn a_pipeline_is_cut_at_its_first_union() {
    let stages = rawdoc! { "p": [{ "$limit": 3 }, { "$unionWith": "d" }, { "$skip": 1 }, { "$unionWith": "e" }] };
    let mut pipeline = Pipeline::parse(stages.get_array("p").unwrap()).unwrap();
    let (union, mut after) = pipeline.cut_at_union().unwrap();
    assert_eq!((union.collection.as_str(), pipeline.stages.len(), after.stages.len()), ("d", 1, 2));
    assert_eq!(
        after.cut_at_union().map(|(union, rest)| (union.collection, rest.stages.len())),
        Some(("e".to_owned(), 0))
    );
    assert!(pipeline.cut_at_union().is_none());
}

#[test]
fn the_pipeline_of_a_lookup_sees_variables() {
    let found = |options: RawDocumentBuf| {
        let mut all = rawdoc! { "from": "d", "as": "r" };
        options.iter().map(std::result::Result::unwrap).for_each(|(name, value)| all.append(name, value));
        let stages = RawArrayBuf::from_iter([rawdoc! { "$lookup": all }, rawdoc! { "$project": { "r": "$r._id" } }]);
        beside(stages, &[rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "_id": 2 }])
    };
    let equal = rawdoc! { "$match": { "$expr": { "$eq": ["$k", "$$x"] } } };
    let differs = rawdoc! { "$match": { "$expr": { "$ne": ["$v", { "$add": ["$$y", 4] }] } } };
    assert_eq!(
        found(rawdoc! { "let": { "x": "$a" }, "pipeline": [equal.clone()] }),
        [rawdoc! { "_id": 1, "r": [10, 11] }, rawdoc! { "_id": 2, "r": [13] }]
    );
    assert_eq!(
        found(rawdoc! { "let": { "x": "$a" }, "pipeline": [{ "$match": { "v": { "$gt": 5 } } }, equal] }),
        [rawdoc! { "_id": 1, "r": [11] }, rawdoc! { "_id": 2, "r": [] }]
    );
    assert_eq!(
        found(rawdoc! { "pipeline": [{ "$sort": { "_id": -1 } }, { "$limit": 2 }] }),
        [rawdoc! { "_id": 1, "r": [13, 12] }, rawdoc! { "_id": 2, "r": [13, 12] }]
    );
    assert_eq!(
        found(rawdoc! { "localField": "a", "foreignField": "k", "pipeline": [] }),
        [rawdoc! { "_id": 1, "r": [10, 11] }, rawdoc! { "_id": 2, "r": [13] }]
    );
    assert_eq!(
        found(rawdoc! { "localField": "a", "foreignField": "k", "let": { "y": "$_id" }, "pipeline": [differs] }),
        [rawdoc! { "_id": 1, "r": [11] }, rawdoc! { "_id": 2, "r": [13] }]
    );
}

#[test]
fn what_a_lookup_computes_may_have_variables() {
    let sums = [rawdoc! { "$match": { "k": 1 } }, rawdoc! { "$project": { "s": { "$add": ["$v", "$$x.n"] } } }];
    let lookup = rawdoc! { "$lookup": {
        "from": "d", "as": "r", "let": { "x": { "n": "$a" } }, "pipeline": RawArrayBuf::from_iter(sums),
    } };
    let found = beside(stage(lookup), &[rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "_id": 2 }]);
    let expected = [
        rawdoc! { "_id": 1, "a": 1, "r": [{ "_id": 10, "s": 6 }, { "_id": 11, "s": 8 }] },
        rawdoc! { "_id": 2, "r": [{ "_id": 10, "s": null }, { "_id": 11, "s": null }] },
    ];
    assert_eq!(found, expected);
}

#[test]
fn variables_of_lookups_within_each_other_are_apart() {
    let inner = rawdoc! { "$lookup": { "from": "d", "let": { "y": "$v" }, "as": "i", "pipeline": [
        { "$match": { "$expr": { "$and": [{ "$eq": ["$k", "$$x"] }, { "$gt": ["$v", "$$y"] }] } } },
        { "$project": { "_id": 1 } },
    ] } };
    let outer = rawdoc! { "$lookup": { "from": "d", "let": { "x": "$a" }, "as": "r", "pipeline": [
        { "$match": { "k": 1 } },
        inner,
        { "$project": { "i": "$i._id", "_id": 0 } },
    ] } };
    let found = beside(stage(outer), &[rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "_id": 2, "a": 2 }]);
    let expected = [
        rawdoc! { "_id": 1, "a": 1, "r": [{ "i": [11] }, { "i": [] }] },
        rawdoc! { "_id": 2, "a": 2, "r": [{ "i": [12] }, { "i": [12] }] },
    ];
    assert_eq!(found, expected);
}

#[test]
fn an_equality_with_a_variable_is_that_of_expressions() {
    let others: Vec<_> = [
        RawBson::Int32(1),
        RawBson::Double(1.0),
        RawBson::Null,
        RawBson::String("1".to_owned()),
        RawBson::Array(RawArrayBuf::from_iter([1])),
    ]
    .into_iter()
    .zip(0..)
    .map(|(k, id)| rawdoc! { "_id": id, "k": k })
    .chain([rawdoc! { "_id": 5 }])
    .collect();
    let found = |condition: RawDocumentBuf, document: RawDocumentBuf| {
        let lookup = rawdoc! { "$lookup": {
            "from": "d", "as": "r", "let": { "x": "$a" }, "pipeline": [{ "$match": { "$expr": condition } }],
        } };
        let stages = RawArrayBuf::from_iter([lookup, rawdoc! { "$project": { "_id": 0, "r": "$r._id" } }]);
        let run = Pipeline::parse(&stages).unwrap().run(0, usize::MAX);
        let mut run = run.with_foreign(Box::new(Others(others.clone())));
        run.take(document).unwrap();
        run.finish().unwrap();
        run.results().remove(0)
    };
    for (document, expected) in [
        (rawdoc! { "a": 1_i64 }, rawdoc! { "r": [0, 1] }),
        (rawdoc! { "a": null }, rawdoc! { "r": [2] }),
        (rawdoc! {}, rawdoc! { "r": [5] }),
        (rawdoc! { "a": "1" }, rawdoc! { "r": [3] }),
        (rawdoc! { "a": [1] }, rawdoc! { "r": [4] }),
        (rawdoc! { "a": 2 }, rawdoc! { "r": [] }),
    ] {
        for condition in [
            rawdoc! { "$eq": ["$k", "$$x"] },
            rawdoc! { "$eq": ["$$x", "$k"] },
            rawdoc! { "$and": [{ "$eq": ["$k", "$$x"] }, { "$gte": ["$_id", 0] }] },
            rawdoc! { "$and": [{ "$gte": ["$_id", 0] }, { "$eq": ["$k", "$$x"] }] },
        ] {
            assert_eq!(found(condition.clone(), document.clone()), expected, "{condition:?}");
        }
    }
}

#[test]
fn a_lookup_by_an_equality_does_not_look_at_every_document() {
    let others: Vec<_> = (0..1000).map(|k| rawdoc! { "_id": k, "k": k }).collect();
    let lookup = rawdoc! { "$lookup": { "from": "d", "as": "r", "let": { "x": "$a" }, "pipeline": [
        { "$match": { "$expr": { "$and": [{ "$eq": ["$k", "$$x"] }, { "$lt": ["$_id", 500] }] } } },
    ] } };
    let mut run = Pipeline::parse(&stage(lookup)).unwrap().run(0, usize::MAX).with_foreign(Box::new(Others(others)));
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        false
    };
    for a in 0..100 {
        run.take_unless(rawdoc! { "a": a }, &stop).unwrap();
    }
    assert!(asked.get() < 1000, "{}", asked.get());
    assert!(run.results().iter().all(|found| found.get_array("r").unwrap().into_iter().count() == 1));
}

/// Other collections that count how often they are read.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>, Others);

impl Foreign for Counted {
    fn visit(&self, name: &str, filter: &RawDocument, stop: &dyn Fn() -> bool, take: &mut Take<'_>) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.1.visit(name, filter, stop, take)
    }
}

#[test]
fn lookups_within_each_other_read_each_collection_once() {
    let innermost = rawdoc! { "$lookup": { "from": "f", "as": "s", "pipeline": [
        { "$match": { "_id": 10 } },
        { "$project": { "x": "$$x", "_id": 0 } },
    ] } };
    let lookup = rawdoc! { "$lookup": { "from": "d", "let": { "x": "$_id" }, "as": "r", "pipeline": [
        { "$match": { "k": 2 } },
        { "$lookup": { "from": "e", "localField": "k", "foreignField": "k", "as": "e" } },
        { "$sort": { "_id": 1 } },
        innermost,
        { "$project": { "_id": 1, "e": "$e._id", "x": "$s.x" } },
    ] } };
    let reads = Arc::new(AtomicUsize::new(0));
    let mut run = Pipeline::parse(&stage(lookup)).unwrap().run(0, usize::MAX);
    run = run.with_foreign(Box::new(Counted(reads.clone(), Others(others()))));
    for id in 1..=3 {
        run.take(rawdoc! { "_id": id }).unwrap();
    }
    run.finish().unwrap();
    let expected = |id: i32| rawdoc! { "_id": id, "r": [{ "_id": 12, "e": [12], "x": [id] }] };
    assert_eq!(run.results(), [expected(1), expected(2), expected(3)]);
    assert_eq!(reads.load(Ordering::Relaxed), 3);
}

#[test]
fn a_union_within_a_lookup_is_read_once_if_it_is_small() {
    let lookup = rawdoc! { "$lookup": { "from": "d", "let": { "x": "$_id" }, "as": "r", "pipeline": [
        { "$match": { "k": 2 } },
        { "$unionWith": { "coll": "e", "pipeline": [{ "$match": { "k": 1 } }] } },
        { "$project": { "x": "$$x" } },
    ] } };
    let pipeline = Pipeline::parse(&stage(lookup)).unwrap();
    for (bytes_max, expected) in [(usize::MAX, 2), (1 << 10, 4)] {
        let (reads, memory) = (Arc::new(AtomicUsize::new(0)), Memory::new(bytes_max));
        let run = pipeline.run_within(0, &memory);
        let mut run = run.with_foreign(Box::new(Counted(reads.clone(), Others(others()))));
        for id in 1..=3 {
            run.take(rawdoc! { "_id": id }).unwrap();
            let found = [12, 10, 11].map(|other: i32| rawdoc! { "_id": other, "x": id });
            assert_eq!(run.results(), [rawdoc! { "_id": id, "r": RawArrayBuf::from_iter(found) }]);
        }
        run.finish().unwrap();
        drop(run);
        assert_eq!((reads.load(Ordering::Relaxed), memory.left()), (expected, bytes_max));
    }
    // A union that was not read to its end is not kept.
    let lookup = rawdoc! { "$lookup": { "from": "d", "let": { "x": "$n" }, "as": "r", "pipeline": [
        { "$match": { "_id": 13 } },
        { "$unionWith": "e" },
        { "$match": { "$expr": { "$ne": ["$_id", "$$x"] } } },
        { "$limit": 2 },
        { "$project": { "_id": 1 } },
    ] } };
    let found = beside(stage(lookup), &[rawdoc! { "_id": 1, "n": 0 }, rawdoc! { "_id": 2, "n": 10 }]);
    let expected = [
        rawdoc! { "_id": 1, "n": 0, "r": [{ "_id": 13 }, { "_id": 10 }] },
        rawdoc! { "_id": 2, "n": 10, "r": [{ "_id": 13 }, { "_id": 11 }] },
    ];
    assert_eq!(found, expected);
}

#[test]
fn buckets_have_about_the_same_number_of_documents() {
    let bucketed = |values: &[RawBson], options: RawDocumentBuf| {
        let mut all = rawdoc! { "groupBy": "$v" };
        options.iter().map(std::result::Result::unwrap).for_each(|(name, value)| all.append(name, value));
        let documents: Vec<_> = values.iter().map(|value| rawdoc! { "v": value.clone() }).collect();
        beside(stage(rawdoc! { "$bucketAuto": all }), &documents)
    };
    let bucket = |min: RawBson, max: RawBson, count: i32| rawdoc! { "_id": { "min": min, "max": max }, "count": count };
    let numbers = [5, 1, 4, 2, 3].map(RawBson::Int32);
    assert_eq!(
        bucketed(&numbers, rawdoc! { "buckets": 2 }),
        [bucket(1.into(), 4.into(), 3), bucket(4.into(), 5.into(), 2)]
    );
    assert_eq!(bucketed(&numbers, rawdoc! { "buckets": 100 }).len(), 5);
    assert_eq!(bucketed(&numbers, rawdoc! { "buckets": 1 }), [bucket(1.into(), 5.into(), 5)]);
    assert_eq!(bucketed(&[], rawdoc! { "buckets": 3 }), [] as [RawDocumentBuf; 0]);
    // Equal values stay together.
    let equal = [1, 1, 1, 1, 2].map(RawBson::Int32);
    assert_eq!(
        bucketed(&equal, rawdoc! { "buckets": 3 }),
        [bucket(1.into(), 2.into(), 4), bucket(2.into(), 2.into(), 1)]
    );
    let output = rawdoc! { "buckets": 2, "output": { "all": { "$push": "$v" }, "sum": { "$sum": "$v" } } };
    let expected = rawdoc! { "_id": { "min": 1, "max": 4 }, "all": [1, 2, 3], "sum": 6 };
    assert_eq!(bucketed(&numbers, output)[0], expected);
    let mixed = [RawBson::Null, RawBson::String("x".to_owned()), RawBson::Int32(3)];
    let found = bucketed(&mixed, rawdoc! { "buckets": 1 });
    assert_eq!(found, [bucket(RawBson::Null, RawBson::String("x".to_owned()), 3)]);
}

#[test]
fn what_cannot_be_within_a_stage_is_refused() {
    for (stage, expected) in [
        (rawdoc! { "$facet": {} }, 40169),
        (rawdoc! { "$facet": 1 }, 40169),
        (rawdoc! { "$facet": { "a": 1 } }, 40170),
        (rawdoc! { "$facet": { "a": [1] } }, 40171),
        (rawdoc! { "$facet": { "a": [{}] } }, 40323),
        (rawdoc! { "$facet": { "a.b": [] } }, 16412),
        (rawdoc! { "$facet": { "$a": [] } }, 16410),
        (rawdoc! { "$facet": { "": [] } }, 15998),
        (rawdoc! { "$facet": { "a": [{ "$facet": { "b": [] } }] } }, 40600),
        (rawdoc! { "$facet": { "a": [{ "$out": "x" }] } }, 40600),
        (rawdoc! { "$facet": { "a": [{ "$collStats": {} }] } }, 40600),
        (rawdoc! { "$facet": { "a": [{ "$geoNear": {} }] } }, 40600),
        (rawdoc! { "$facet": { "a": [{ "$nothing": {} }] } }, 40324),
        // What is wrong with a stage, or with one after it, comes before that it cannot be there.
        (rawdoc! { "$facet": { "a": [{ "$facet": {} }] } }, 40169),
        (rawdoc! { "$facet": { "a": [{ "$facet": { "b": 1 } }] } }, 40170),
        (rawdoc! { "$facet": { "a": [{ "$facet": { "b": [1] } }] } }, 40171),
        (rawdoc! { "$facet": { "a": [{ "$facet": { "$b": [] } }] } }, 16410),
        (rawdoc! { "$facet": { "a": [{ "$facet": { "b.c": [] } }] } }, 16412),
        (rawdoc! { "$facet": { "a": [{ "$facet": { "b": [{ "$merge": {} }] } }] } }, 40414),
        (rawdoc! { "$facet": { "a": [{ "$out": {} }] } }, 16994),
        (rawdoc! { "$facet": { "a": [{ "$out": 1 }] } }, 16990),
        (rawdoc! { "$facet": { "a": [{ "$out": { "db": "d", "coll": "x" } }] } }, 40600),
        (rawdoc! { "$facet": { "a": [{ "$merge": 1 }] } }, 14),
        (rawdoc! { "$facet": { "a": [{ "$indexStats": 1 }] } }, 28803),
        (rawdoc! { "$facet": { "a": [{ "$collStats": 1 }] } }, 5_447_000),
        (rawdoc! { "$facet": { "a": [{ "$merge": { "into": "x" } }, { "$skip": 1 }] } }, 40600),
        (rawdoc! { "$facet": { "a": [{ "$out": "x" }, { "$nothing": {} }] } }, 40324),
        (rawdoc! { "$unionWith": 1 }, 9),
        (rawdoc! { "$unionWith": {} }, 9),
        (rawdoc! { "$unionWith": ".x" }, 73),
        (rawdoc! { "$unionWith": { "coll": 1 } }, 14),
        (rawdoc! { "$unionWith": { "coll": "d", "pipeline": 1 } }, 14),
        (rawdoc! { "$unionWith": { "coll": "d", "x": 1 } }, 40415),
        (rawdoc! { "$unionWith": { "coll": "d", "pipeline": [{ "$out": "x" }] } }, 31441),
        (rawdoc! { "$unionWith": { "coll": "d", "pipeline": [{ "$out": {} }] } }, 16994),
        (rawdoc! { "$unionWith": { "coll": "d", "pipeline": [{ "$indexStats": {} }] } }, 115),
        (rawdoc! { "$lookup": { "from": "d", "as": "r", "pipeline": [{ "$merge": "x" }] } }, 51047),
        (rawdoc! { "$lookup": { "from": "d", "as": "r", "pipeline": [{ "$merge": {} }] } }, 40414),
        (rawdoc! { "$lookup": { "from": "d", "as": "r", "pipeline": 1 } }, 14),
        (rawdoc! { "$lookup": { "from": "d", "as": "r", "let": 1, "pipeline": [] } }, 9),
        (rawdoc! { "$lookup": { "from": "d", "as": "r", "let": { "X": 1 }, "pipeline": [] } }, 9),
        (rawdoc! { "$lookup": { "from": "d", "as": "r", "localField": "a", "foreignField": "b", "let": {} } }, 9),
        (rawdoc! { "$lookup": { "from": "d", "as": "r", "localField": "a", "pipeline": [] } }, 9),
        (rawdoc! { "$lookup": { "from": "d", "as": "r", "localField": "a" } }, 9),
        (rawdoc! { "$lookup": { "from": "d", "as": "r", "localField": "a", "foreignField": "" } }, 9),
        (rawdoc! { "$lookup": { "from": "d", "as": "", "pipeline": [] } }, 9),
        (rawdoc! { "$lookup": { "from": "", "as": "r", "pipeline": [] } }, 73),
        (rawdoc! { "$lookup": { "from": "d", "as": "r", "pipeline": [{ "$match": { "$expr": "$$x" } }] } }, 17276),
        (rawdoc! { "$bucketAuto": 1 }, 40240),
        (rawdoc! { "$bucketAuto": { "groupBy": "v", "buckets": 1 } }, 40239),
        (rawdoc! { "$bucketAuto": { "groupBy": "$", "buckets": 1 } }, 16872),
        (rawdoc! { "$bucketAuto": { "groupBy": "$v", "buckets": "1" } }, 40241),
        (rawdoc! { "$bucketAuto": { "groupBy": "$v", "buckets": 1.5 } }, 40242),
        (rawdoc! { "$bucketAuto": { "groupBy": "$v", "buckets": 0 } }, 40243),
        (rawdoc! { "$bucketAuto": { "groupBy": "$v", "buckets": 1, "output": 1 } }, 40244),
        (rawdoc! { "$bucketAuto": { "groupBy": "$v", "buckets": 1, "output": { "_id": { "$sum": 1 } } } }, 15948),
        (rawdoc! { "$bucketAuto": { "groupBy": "$v", "buckets": 1, "x": 1 } }, 40245),
        (rawdoc! { "$bucketAuto": { "groupBy": "$v" } }, 40246),
        (rawdoc! { "$bucketAuto": { "groupBy": "$v", "buckets": 1, "granularity": 1 } }, 40261),
        (rawdoc! { "$bucketAuto": { "groupBy": "$v", "buckets": 1, "granularity": "R5" } }, 115),
    ] {
        assert_eq!(code(&rawdoc! { "p": [stage.clone()] }), expected, "{stage:?}");
    }
}

#[test]
fn a_mistake_in_the_outline_of_a_pipeline_is_reported_first() {
    for (wrong, expected) in [
        (rawdoc! { "$nothing": {} }, 40324),
        (rawdoc! {}, 40323),
        (rawdoc! { "$facet": {} }, 40169),
        (rawdoc! { "$facet": { "x": [{ "$nothing": 1 }] } }, 40324),
        (rawdoc! { "$facet": { "x": [{ "$nothing": 1 }], "y": 1 } }, 40170),
        (rawdoc! { "$lookup": { "from": "", "as": "x", "pipeline": [] } }, 73),
        (rawdoc! { "$lookup": { "from": "x", "as": "x", "pipeline": [{ "$nothing": 1 }] } }, 40324),
        (rawdoc! { "$graphLookup": {} }, 9),
        (rawdoc! { "$unionWith": { "coll": "x", "pipeline": [{ "$nothing": 1 }] } }, 40324),
        (rawdoc! { "$out": {} }, 16994),
        (rawdoc! { "$merge": {} }, 40414),
    ] {
        let first = rawdoc! { "$limit": 0 };
        assert_eq!(code(&rawdoc! { "p": [first.clone(), wrong.clone()] }), expected, "{wrong:?}");
        assert_eq!(
            code(&rawdoc! { "p": [{ "$facet": { "p": [first], "q": [wrong.clone()] } }] }),
            expected,
            "{wrong:?}"
        );
    }
}

#[test]
fn a_union_with_no_collection_fails_where_it_is_read() {
    let stages = rawdoc! { "p": [{ "$unionWith": "" }, { "$limit": 1 }] };
    let mut pipeline = Pipeline::parse(stages.get_array("p").unwrap()).unwrap();
    assert!(pipeline.cut_at_union().is_none());
    let mut read = pipeline.run(0, usize::MAX);
    assert!(!read.take(rawdoc! { "_id": 1 }).unwrap());
    read.finish().unwrap();
    assert_eq!(pipeline.run(0, usize::MAX).finish().unwrap_err().code, 73);
    assert_eq!(code(&rawdoc! { "p": [{ "$unionWith": "" }, { "$limit": 0 }] }), 15958);
}

#[test]
fn constants_are_checked_once_the_whole_pipeline_is_read() {
    let fails = || rawdoc! { "$project": { "r": { "$divide": [1, 0] } } };
    for stage in [
        rawdoc! { "$facet": { "a": [fails()] } },
        rawdoc! { "$unionWith": { "coll": "d", "pipeline": [fails()] } },
        rawdoc! { "$lookup": { "from": "d", "as": "r", "pipeline": [fails()] } },
    ] {
        assert_eq!(code(&rawdoc! { "p": [stage.clone(), { "$nothing": 1 }] }), 40324, "{stage:?}");
        assert_eq!(code(&rawdoc! { "p": [stage.clone()] }), 2, "{stage:?}");
    }
}

#[test]
fn pipelines_within_each_other_have_a_limit() {
    let nested = |depth: usize| {
        (0..depth).fold(rawdoc! { "$limit": 1 }, |inner, _| {
            rawdoc! { "$unionWith": { "coll": "d", "pipeline": [inner] } }
        })
    };
    assert!(Pipeline::parse(&stage(nested(20))).is_ok());
    assert_eq!(Pipeline::parse(&stage(nested(21))).unwrap_err().code, 232);
    let long = |count: usize| RawArrayBuf::from_iter((0..count).map(|_| rawdoc! { "$limit": 1 }));
    let both = |count: usize| {
        let mut stages = long(count);
        stages.push(rawdoc! { "$facet": { "a": long(500), "b": long(500) } });
        Pipeline::parse(&stages).map(drop)
    };
    assert!(both(499).is_ok());
    assert_eq!(both(500).unwrap_err().code, 5_054_701);
}

#[test]
fn covariances_are_of_pairs_of_numbers() {
    let covariance = |name: &str, pairs: &[[RawBson; 2]], window: RawDocumentBuf| {
        let documents: Vec<_> =
            pairs.iter().zip(0..).map(|([x, y], i)| rawdoc! { "_id": i, "x": x.clone(), "y": y.clone() }).collect();
        let mut function = RawDocumentBuf::new();
        function.append(CString::try_from(name).unwrap(), RawArrayBuf::from_iter(["$x", "$y"]));
        function.append(cstr!("window"), window);
        let windows = rawdoc! { "$setWindowFields": { "sortBy": { "_id": 1 }, "output": { "r": function } } };
        let found = run(&rawdoc! { "p": [windows] }, &documents);
        found.iter().map(|document| document.get("r").unwrap().map(crate::raw::owned).unwrap()).collect::<Vec<_>>()
    };
    let (whole, so_far) =
        (|| rawdoc! { "documents": ["unbounded", "unbounded"] }, || rawdoc! { "documents": ["unbounded", "current"] });
    let numbers = [(1, 2), (2, 4), (3, 6)].map(|(x, y): (i32, i32)| [RawBson::Int32(x), RawBson::Int32(y)]);
    let doubles = |values: &[f64]| values.iter().copied().map(RawBson::Double).collect::<Vec<_>>();
    assert_eq!(covariance("$covarianceSamp", &numbers, whole()), doubles(&[2.0, 2.0, 2.0]));
    assert_eq!(covariance("$covariancePop", &numbers[..2], so_far()), doubles(&[0.0, 0.5]));
    assert_eq!(covariance("$covarianceSamp", &numbers[..1], whole()), [RawBson::Null]);
    // What is no pair of numbers does not count.
    let others = [[RawBson::Null, 1.into()], [RawBson::String("x".to_owned()), 2.into()]];
    assert_eq!(covariance("$covariancePop", &others, whole()), [RawBson::Null, RawBson::Null]);
    let infinite = [numbers[0].clone(), numbers[1].clone(), [RawBson::Double(f64::INFINITY), 1.into()]];
    assert_eq!(covariance("$covariancePop", &infinite, whole())[0], RawBson::Double(f64::INFINITY));
    let sliding = rawdoc! { "documents": [-1, 0] };
    assert_eq!(covariance("$covarianceSamp", &numbers, sliding)[1..], doubles(&[1.0, 1.0]));
}
