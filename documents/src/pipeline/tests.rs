use super::*;
use bson::raw::{RawArrayBuf, RawBson, cstr};
use bson::{RawDocument, rawdoc};

mod graph;
mod nested;
mod planned;
mod redact;

fn run(pipeline: &RawDocument, documents: &[RawDocumentBuf]) -> Vec<RawDocumentBuf> {
    let pipeline = Pipeline::parse(pipeline.get_array("p").unwrap()).unwrap();
    let mut run = pipeline.run(0, usize::MAX);
    for document in documents {
        if !run.take(document.clone()).unwrap() {
            break;
        }
    }
    run.finish().unwrap();
    run.results()
}

fn code(pipeline: &RawDocument) -> i32 {
    Pipeline::parse(pipeline.get_array("p").unwrap()).unwrap_err().code
}

fn people() -> Vec<RawDocumentBuf> {
    vec![
        rawdoc! { "_id": 1, "n": "ada", "age": 36, "l": ["x", "y"], "o": { "a": 1, "b": 2 } },
        rawdoc! { "_id": 2, "n": "bob", "age": 20.5, "l": [], "o": [{ "a": 3 }, 5] },
        rawdoc! { "_id": 3, "n": "ada", "l": "z" },
    ]
}

#[test]
fn groups_are_summed_up() {
    let stages = rawdoc! { "p": [{ "$group": { "_id": "$n", "sum": { "$sum": "$age" }, "avg": { "$avg": "$age" },
    "n": { "$count": {} }, "ids": { "$push": "$_id" }, "first": { "$first": "$age" }, "last": { "$last": "$age" } } }] };
    let expected = [
        rawdoc! { "_id": "ada", "sum": 36, "avg": 36.0, "n": 2, "ids": [1, 3], "first": 36, "last": null },
        rawdoc! { "_id": "bob", "sum": 20.5, "avg": 20.5, "n": 1, "ids": [2], "first": 20.5, "last": 20.5 },
    ];
    assert_eq!(run(&stages, &people()), expected);
}

#[test]
fn groups_come_from_windows_only_if_these_decide_their_ids() {
    let is_planned = |id: RawDocumentBuf| {
        let stages = rawdoc! { "p": [{ "$group": { "_id": { "x": id }, "n": { "$sum": 1 } } }] };
        Pipeline::parse(stages.get_array("p").unwrap()).unwrap().plan_group("t", Some("m")).is_some()
    };
    assert!(is_planned(rawdoc! { "$toUpper": "$m" }));
    assert!(is_planned(rawdoc! { "$setField": { "field": "a", "input": "$m", "value": 1 } }));
    assert!(is_planned(rawdoc! { "$regexFind": { "input": "$m", "regex": "a" } }));
    assert!(!is_planned(rawdoc! { "$regexFind": { "input": "$v", "regex": "a" } }));
    assert!(!is_planned(rawdoc! { "$dateToParts": { "date": "$t" } }));
    assert!(!is_planned(rawdoc! { "$rand": {} }));
    assert!(!is_planned(rawdoc! { "$lt": ["$m.since", "$$NOW"] }));
    assert!(!is_planned(rawdoc! { "$add": [{ "$rand": {} }, "$m.a"] }));
}

#[test]
fn fields_are_kept_computed_and_left_out() {
    let one = |stage: RawDocumentBuf| run(&rawdoc! { "p": [stage] }, &people()[..2]);
    assert_eq!(
        one(rawdoc! { "$project": { "o.a": 1 } }),
        [rawdoc! { "_id": 1, "o": { "a": 1 } }, rawdoc! { "_id": 2, "o": [{ "a": 3 }] },]
    );
    assert_eq!(
        one(rawdoc! { "$project": { "_id": 0, "x": "$n", "o": { "c": { "$literal": 1 } } } }),
        [rawdoc! { "o": { "c": 1 }, "x": "ada" }, rawdoc! { "o": [{ "c": 1 }, { "c": 1 }], "x": "bob" },]
    );
    assert_eq!(one(rawdoc! { "$unset": ["l", "o", "n", "age"] }), [rawdoc! { "_id": 1 }, rawdoc! { "_id": 2 }]);
    let set = one(rawdoc! { "$set": { "n": "$_id", "q.r": 1 } });
    assert_eq!(
        set[0],
        rawdoc! { "_id": 1, "n": 1, "age": 36, "l": ["x", "y"], "o": { "a": 1, "b": 2 }, "q": { "r": 1 } }
    );
}

#[test]
fn an_empty_object_says_nothing_of_a_field() {
    for (stage, expected) in [
        (rawdoc! { "$project": { "b": {} } }, 51270),
        (rawdoc! { "$project": { "a": 1, "b": { "c": {} } } }, 51270),
        (rawdoc! { "$addFields": { "b": {} } }, 40180),
        (rawdoc! { "$set": { "b": { "c": {} } } }, 40180),
    ] {
        assert_eq!(code(&rawdoc! { "p": [stage.clone()] }), expected, "{stage:?}");
    }
    let literal = rawdoc! { "p": [{ "$project": { "_id": 0, "x": { "$literal": {} }, "y": [{}] } }] };
    assert_eq!(run(&literal, &people()[..1]), [rawdoc! { "x": {}, "y": [{}] }]);
}

#[test]
fn lists_are_unwound() {
    let ids = |stage: RawDocumentBuf| -> Vec<RawDocumentBuf> {
        run(&rawdoc! { "p": [stage, { "$project": { "l": 1, "i": 1 } }] }, &people())
    };
    assert_eq!(
        ids(rawdoc! { "$unwind": "$l" }),
        [rawdoc! { "_id": 1, "l": "x" }, rawdoc! { "_id": 1, "l": "y" }, rawdoc! { "_id": 3, "l": "z" },]
    );
    let all = rawdoc! { "$unwind": { "path": "$l", "preserveNullAndEmptyArrays": true, "includeArrayIndex": "i" } };
    assert_eq!(
        ids(all),
        [
            rawdoc! { "_id": 1, "l": "x", "i": 0_i64 },
            rawdoc! { "_id": 1, "l": "y", "i": 1_i64 },
            rawdoc! { "_id": 2, "i": null },
            rawdoc! { "_id": 3, "l": "z", "i": null },
        ]
    );
}

#[test]
fn a_limit_ends_the_input_and_a_sort_keeps_no_more_than_it() {
    let stages = rawdoc! { "p": [{ "$skip": 1 }, { "$limit": 2 }, { "$count": "n" }] };
    assert_eq!(run(&stages, &people()), [rawdoc! { "n": 2 }]);
    let pipeline = rawdoc! { "p": [{ "$limit": 1 }] };
    let mut running = Pipeline::parse(pipeline.get_array("p").unwrap()).unwrap().run(0, usize::MAX);
    assert!(!running.take(rawdoc! {}).unwrap());
    let top = rawdoc! { "p": [{ "$sort": { "_id": -1 } }, { "$limit": 2 }, { "$project": { "_id": 1 } }] };
    assert_eq!(run(&top, &people()), [rawdoc! { "_id": 3 }, rawdoc! { "_id": 2 }]);
    let sorted = Pipeline::parse(top.get_array("p").unwrap()).unwrap();
    let mut running = sorted.run(0, 100);
    let error = (0..100).find_map(|id| running.take(rawdoc! { "_id": id, "text": "x".repeat(90) }).err());
    assert_eq!(error.map(|error| error.code), Some(146));
}

#[test]
fn a_stage_asks_within_one_document_whether_the_command_was_ended() {
    let range = || rawdoc! { "$range": [0, "$n"] };
    let long = || rawdoc! { "$size": { "$map": { "input": range(), "in": { "$add": ["$$this", 1] } } } };
    for stage in [
        rawdoc! { "$project": { "r": long() } },
        rawdoc! { "$match": { "$expr": long() } },
        rawdoc! { "$replaceWith": { "r": long() } },
        rawdoc! { "$group": { "_id": long() } },
        rawdoc! { "$group": { "_id": null, "r": { "$sum": long() } } },
        rawdoc! { "$setWindowFields": { "output": { "r": { "$sum": long() } } } },
    ] {
        let stages = rawdoc! { "p": [stage] };
        let mut running = Pipeline::parse(stages.get_array("p").unwrap()).unwrap().run(0, usize::MAX);
        let asked = std::cell::Cell::new(0);
        // More than one document has questions between its stages.
        let stop = || {
            asked.set(asked.get() + 1);
            asked.get() > 8
        };
        let taken = running.take_unless(rawdoc! { "n": 100_000 }, &stop).map(drop);
        let ended = taken.and_then(|()| running.finish_unless(&stop));
        assert_eq!(ended.unwrap_err().code, 50, "{stages:?}");
    }
}

#[test]
fn leading_filters_are_taken_off() {
    let stages = rawdoc! { "p": [{ "$match": { "a": 1 } }, { "$match": { "b": 2 } }, { "$count": "n" }] };
    let mut pipeline = Pipeline::parse(stages.get_array("p").unwrap()).unwrap();
    assert_eq!(pipeline.take_leading_matches(), [rawdoc! { "a": 1 }, rawdoc! { "b": 2 }]);
    assert_eq!(pipeline.needed_fields(), Some(Vec::new()));
}

#[test]
fn what_is_wrong_has_the_number_that_mongodb_gives_it() {
    for (stages, expected) in [
        (rawdoc! { "p": [{ "$frob": {} }] }, 40324),
        (rawdoc! { "p": [{}] }, 40323),
        (rawdoc! { "p": [{ "$project": { "a": { "$frob": 1 } } }] }, 31325),
        (rawdoc! { "p": [{ "$project": { "a": 1, "b": 0 } }] }, 31254),
        (rawdoc! { "p": [{ "$group": { "a": { "$sum": 1 } } }] }, 15955),
        (rawdoc! { "p": [{ "$group": { "_id": 1, "a": { "$frob": 1 } } }] }, 15952),
        (rawdoc! { "p": [{ "$group": { "_id": 1, "a": { "$sum": 1 }, "_id": 2 } }] }, 15948),
        (
            rawdoc! { "p": [{ "$bucket": { "groupBy": "$a", "boundaries": [1, 2], "output": { "_id": { "$sum": 1 } } } }] },
            15948,
        ),
        (
            rawdoc! { "p": [{ "$bucket": { "groupBy": "$a", "boundaries": [1, 2], "output": { "_id": { "$push": 1 } } } }] },
            168,
        ),
        (rawdoc! { "p": [{ "$limit": 0 }] }, 15958),
        (rawdoc! { "p": [{ "$unwind": "a" }] }, 28818),
        (rawdoc! { "p": [{ "$count": "" }] }, 40157),
        (rawdoc! { "p": [{ "$project": { "": 1 } }] }, 40352),
        (rawdoc! { "p": [{ "$project": { "b": 1, "b.c": 1 } }] }, 31249),
        (rawdoc! { "p": [{ "$project": { "b.c": 1, "b": 1 } }] }, 31250),
        (rawdoc! { "p": [{ "$set": { "b.c": 1, "b": 1 } }] }, 40176),
    ] {
        assert_eq!(code(&stages), expected, "{stages:?}");
    }
}

#[test]
fn a_match_has_expressions_at_its_top_and_within_and_or_and_nor() {
    let documents = [
        rawdoc! { "_id": 1, "a": 1, "b": 1 },
        rawdoc! { "_id": 2, "a": 1, "b": 2 },
        rawdoc! { "_id": 3, "l": [{ "x": 1 }] },
    ];
    let equal = || rawdoc! { "$expr": { "$eq": ["$a", "$b"] } };
    // Fails where `a` is 1.
    let failing = || rawdoc! { "$expr": { "$divide": [1, { "$subtract": ["$a", 1] }] } };
    for (filter, expected) in [
        (equal(), vec![1, 3]),
        (rawdoc! { "$and": [equal()] }, vec![1, 3]),
        (rawdoc! { "$and": [equal(), { "a": 1 }] }, vec![1]),
        (rawdoc! { "$or": [equal(), { "b": 2 }] }, vec![1, 2, 3]),
        (rawdoc! { "$nor": [equal()] }, vec![2]),
        (rawdoc! { "$nor": [equal(), { "$comment": "x", "b": 2 }] }, vec![]),
        (rawdoc! { "a": 1, "$or": [{ "$and": [equal(), { "b": 7 }] }, { "$nor": [equal()] }] }, vec![2]),
        (rawdoc! { "$or": [{}, equal()] }, vec![1, 2, 3]),
        (rawdoc! { "$comment": "x", "$expr": true, "$and": [{ "$expr": false }] }, vec![]),
        (rawdoc! { "$and": [{ "$expr": "$$NOW" }] }, vec![1, 2, 3]),
        // What cannot fail comes first, as in MongoDB.
        (rawdoc! { "$and": [failing(), { "a": null }] }, vec![]),
        (rawdoc! { "$or": [failing(), { "a": 1 }] }, vec![1, 2]),
        (rawdoc! { "$nor": [failing(), { "a": 1 }] }, vec![3]),
        (rawdoc! { "$comment": "x", "a": 1 }, vec![1, 2]),
        (rawdoc! { "$sampleRate": 1 }, vec![1, 2, 3]),
        (rawdoc! { "$sampleRate": 0.0 }, vec![]),
        (rawdoc! { "$or": [{ "$sampleRate": 0 }, { "b": 2 }] }, vec![2]),
    ] {
        let stages = rawdoc! { "p": [{ "$match": filter.clone() }, { "$project": { "_id": 1 } }] };
        let ids: Vec<i32> = run(&stages, &documents).iter().map(|found| found.get_i32("_id").unwrap()).collect();
        assert_eq!(ids, expected, "{filter:?}");
    }
    let stages = rawdoc! { "p": [{ "$match": { "$or": [{ "a": 2 }, failing()] } }] };
    let mut run = Pipeline::parse(stages.get_array("p").unwrap()).unwrap().run(0, usize::MAX);
    assert_eq!(run.take(documents[0].clone()).unwrap_err().code, 2);
    for (filter, expected) in [
        (rawdoc! { "$or": [{ "$expr": { "$frob": 1 } }] }, 168),
        (rawdoc! { "$or": [{ "a": 9, "$expr": { "$divide": [1, 0] } }] }, 2),
        (rawdoc! { "$and": [{ "$expr": true }, 5] }, 2),
        (rawdoc! { "$and": [{ "$expr": true }, { "$or": [] }] }, 2),
        (rawdoc! { "l": { "$elemMatch": { "$expr": true } } }, 2),
        (rawdoc! { "$or": [{ "$expr": "$$x" }] }, 17276),
        (rawdoc! { "$sampleRate": "x" }, 2),
        (rawdoc! { "$sampleRate": -0.5 }, 2),
        (rawdoc! { "$sampleRate": 1.5 }, 2),
        (rawdoc! { "$sampleRate": f64::NAN }, 2),
        (rawdoc! { "a": { "$sampleRate": 1 } }, 2),
    ] {
        assert_eq!(code(&rawdoc! { "p": [{ "$match": filter.clone() }] }), expected, "{filter:?}");
    }
}

#[test]
fn paths_go_into_references() {
    let documents = [rawdoc! { "_id": 1, "r": { "$ref": "c", "$id": 3 } }];
    let project = rawdoc! { "$project": { "_id": 0, "r.$id": 1, "x": "$r.$id" } };
    let stages = rawdoc! { "p": [{ "$sort": { "r.$id": 1 } }, project] };
    assert_eq!(run(&stages, &documents), [rawdoc! { "r": { "$id": 3 }, "x": 3 }]);
    assert_eq!(code(&rawdoc! { "p": [{ "$project": { "x": "$r.$other" } }] }), 16410);
}

#[test]
fn a_part_of_the_documents_can_be_chosen_at_random() {
    let documents: Vec<_> = (0..2000).map(|id| rawdoc! { "_id": id }).collect();
    let found = run(&rawdoc! { "p": [{ "$match": { "$sampleRate": 0.25 } }] }, &documents);
    assert!((300..700).contains(&found.len()), "{}", found.len());
}

#[test]
fn what_of_a_match_has_no_expression_is_asked_of_the_collection() {
    let filter = rawdoc! { "$comment": "x", "a": 1, "$or": [{ "b": 1 }, { "$expr": true }], "$and": [{ "c": 1 }] };
    let stages = rawdoc! { "p": [{ "$match": filter }] };
    let mut pipeline = Pipeline::parse(stages.get_array("p").unwrap()).unwrap();
    assert_eq!(pipeline.take_leading_matches(), [rawdoc! { "a": 1, "$and": [{ "c": 1 }] }]);
    let mut run = pipeline.run(0, usize::MAX);
    assert!(run.take(rawdoc! { "a": 1, "c": 1 }).unwrap());
    assert_eq!(run.results(), [rawdoc! { "a": 1, "c": 1 }]);
}

#[test]
fn a_match_that_is_too_deep_is_refused() {
    let mut filter = rawdoc! { "$expr": true };
    for _ in 0..10_000 {
        filter = rawdoc! { "$and": [filter] };
    }
    assert_eq!(code(&rawdoc! { "p": [{ "$match": filter }] }), 2);
    // Each level begins with one.
    let mut filter = rawdoc! { "$expr": true };
    for _ in 0..2_000 {
        filter = rawdoc! { "$and": [{ "$expr": true }, filter] };
    }
    assert_eq!(code(&rawdoc! { "p": [{ "$match": filter }] }), 2);
}

#[test]
fn a_missing_value_is_null_in_an_id_of_one_member() {
    let documents = [rawdoc! { "_id": 0, "g": null }, rawdoc! { "_id": 1 }];
    let count =
        |id: RawDocumentBuf| run(&rawdoc! { "p": [{ "$group": { "_id": id, "n": { "$sum": 1 } } }] }, &documents);
    assert_eq!(count(rawdoc! { "g": "$g" }), [rawdoc! { "_id": { "g": null }, "n": 2 }]);
    assert_eq!(
        count(rawdoc! { "g": "$g", "h": "$h" }),
        [rawdoc! { "_id": {}, "n": 1 }, rawdoc! { "_id": { "g": null }, "n": 1 }]
    );
}

#[derive(Debug)]
struct Others(Vec<RawDocumentBuf>);

impl Foreign for Others {
    fn visit(&self, _: &str, filter: &RawDocument, _: &dyn Fn() -> bool, take: &mut Take<'_>) -> Result<()> {
        let filter = Filter::parse(filter, crate::Purpose::Find)?;
        for document in self.0.iter().filter(|document| filter.matches(document)) {
            if !take(document.clone())? {
                break;
            }
        }
        Ok(())
    }
}

#[test]
fn a_lookup_is_for_null_only_where_its_path_reaches_nothing() {
    let others = vec![rawdoc! { "_id": 1, "k": 5 }, rawdoc! { "_id": 2 }, rawdoc! { "_id": 3, "k": null }];
    let stage = rawdoc! { "$lookup": { "from": "d", "localField": "a.x", "foreignField": "k", "as": "j" } };
    let stages = rawdoc! { "p": [stage, { "$project": { "j": "$j._id" } }] };
    let pipeline = Pipeline::parse(stages.get_array("p").unwrap()).unwrap();
    for (local, expected) in [
        (rawdoc! { "a": [{ "z": 1 }, { "x": 5 }] }, rawdoc! { "j": [1] }),
        (rawdoc! { "a": [{ "x": [] }, { "x": 5 }] }, rawdoc! { "j": [1] }),
        (rawdoc! { "a": [{ "x": null }, { "x": 5 }] }, rawdoc! { "j": [1, 2, 3] }),
        (rawdoc! { "a": [{ "z": 1 }] }, rawdoc! { "j": [2, 3] }),
        (rawdoc! {}, rawdoc! { "j": [2, 3] }),
    ] {
        let mut run = pipeline.run(0, usize::MAX).with_foreign(Box::new(Others(others.clone())));
        run.take(local.clone()).unwrap();
        run.finish().unwrap();
        assert_eq!(run.results(), [expected], "{local:?}");
    }
}

/// What a window function gives for each of these values of `n`, in their order.
fn over(values: Vec<RawBson>, function: RawDocumentBuf) -> Vec<Option<RawBson>> {
    let documents: Vec<_> = values.into_iter().zip(0..).map(|(n, i)| rawdoc! { "_id": i, "n": n }).collect();
    let stage = rawdoc! { "$setWindowFields": { "sortBy": { "n": 1 }, "output": { "w": function } } };
    let found = run(&rawdoc! { "p": [stage, { "$sort": { "_id": 1 } }] }, &documents);
    found.iter().map(|document| document.get("w").unwrap().map(crate::raw::owned)).collect()
}

fn decimal(text: &str) -> RawBson {
    RawBson::Decimal128(text.parse().unwrap())
}

#[test]
fn the_bounds_of_a_range_are_compared_exactly() {
    let ids = |values: Vec<RawBson>, range: [RawBson; 2]| -> Vec<Vec<i32>> {
        let range = RawArrayBuf::from_iter(range);
        let found = over(values, rawdoc! { "$push": "$_id", "window": { "range": range } });
        let list = |value: &Option<RawBson>| -> Vec<i32> {
            let list = value.as_ref().unwrap().as_array().unwrap();
            list.into_iter().map(|id| id.unwrap().as_i32().unwrap()).collect()
        };
        found.iter().map(list).collect()
    };
    let large = (0..5).map(|i| RawBson::Int64(9_007_199_254_740_992 + i)).collect();
    assert_eq!(ids(large, [(-1).into(), 0.into()]), [vec![0], vec![0, 1], vec![1, 2], vec![2, 3], vec![3, 4]]);
    let tenths = (1..=5).map(|i| decimal(&format!("0.{i}"))).collect();
    let expected = [vec![0, 1], vec![0, 1, 2], vec![1, 2, 3], vec![2, 3, 4], vec![3, 4]];
    assert_eq!(ids(tenths, [decimal("-0.1"), decimal("0.1")]), expected);
    let odd = || [-3.0, 4.0, f64::NAN, f64::INFINITY].into_iter().map(RawBson::Double).collect();
    assert_eq!(ids(odd(), ["unbounded".into(), 0.into()]), [vec![2, 0], vec![2, 0, 1], vec![2], vec![2, 0, 1, 3]]);
    assert_eq!(ids(odd(), [0.into(), "unbounded".into()]), [vec![0, 1, 3], vec![1, 3], vec![2, 0, 1, 3], vec![3]]);
    assert_eq!(ids(odd(), [(-1).into(), 1.into()]), [vec![0], vec![1], vec![2], vec![3]]);
}

#[test]
fn offsets_of_windows_are_checked_by_their_exact_values() {
    let window = |window: RawDocumentBuf| {
        let output = rawdoc! { "w": { "$sum": "$n", "window": window } };
        code(&rawdoc! { "p": [{ "$setWindowFields": { "sortBy": { "n": 1 }, "output": output } }] })
    };
    assert_eq!(window(rawdoc! { "range": [9_007_199_254_740_993_i64, 9_007_199_254_740_992.0] }), 5_339_900);
    assert_eq!(window(rawdoc! { "range": [decimal("1.5"), 1] }), 5_339_900);
    assert_eq!(window(rawdoc! { "range": [-1.5, 0], "unit": "second" }), 9);
    assert_eq!(window(rawdoc! { "documents": [0, 4_294_967_296_i64] }), 9);
}

#[test]
fn rates_and_averages_of_decimals_are_decimals() {
    let values = || vec![RawBson::Int32(1), decimal("2.5"), RawBson::Int32(4), RawBson::Double(5.5)];
    let change = |name: &bson::raw::CStr| {
        over(values(), rawdoc! { name: { "input": "$n" }, "window": { "documents": [-1, 0] } })
    };
    let (null, int, double) = (RawBson::Null, RawBson::Int32, RawBson::Double);
    let all = |values: Vec<RawBson>| values.into_iter().map(Some).collect::<Vec<_>>();
    assert_eq!(change(cstr!("$derivative")), all(vec![null, decimal("1"), decimal("1"), double(1.0)]));
    assert_eq!(change(cstr!("$integral")), all(vec![int(0), decimal("2.625"), decimal("4.875"), double(7.125)]));
    let average = |of: RawDocumentBuf| over(values(), rawdoc! { "$expMovingAvg": of });
    let expected = vec![
        double(1.0),
        decimal("2.000000000000000000000000000000000"),
        decimal("3.333333333333333333333333333333334"),
    ];
    assert_eq!(average(rawdoc! { "input": "$n", "N": 2 })[..3], all(expected));
    let filled = |values: [RawBson; 3]| {
        let documents: Vec<_> = values.into_iter().zip(0..).map(|(v, n)| rawdoc! { "_id": n, "v": v }).collect();
        let stage =
            rawdoc! { "$setWindowFields": { "sortBy": { "_id": 1 }, "output": { "v": { "$linearFill": "$v" } } } };
        run(&rawdoc! { "p": [stage] }, &documents)[1].get("v").unwrap().map(crate::raw::owned)
    };
    assert_eq!(filled([RawBson::Int32(1), RawBson::Null, decimal("2")]), Some(decimal("1.5")));
    assert_eq!(filled([RawBson::Int32(1), RawBson::Null, RawBson::Int32(2)]), Some(RawBson::Double(1.5)));
}

#[test]
fn a_moving_average_stays_where_there_is_no_number() {
    let values = ["$_id", "$n"].map(|input| {
        let stage = rawdoc! { "sortBy": { "_id": 1 }, "output": { "w": { "$expMovingAvg": { "input": input, "alpha": 0.5 } } } };
        let documents = [rawdoc! { "_id": 1 }, rawdoc! { "_id": 2, "n": 3 }, rawdoc! { "_id": 3, "n": null }];
        let found = run(&rawdoc! { "p": [{ "$setWindowFields": stage }] }, &documents);
        found.iter().map(|document| document.get("w").unwrap().map(crate::raw::owned)).collect::<Vec<_>>()
    });
    let (null, double) = (Some(RawBson::Null), |x| Some(RawBson::Double(x)));
    assert_eq!(values, [vec![double(1.0), double(1.5), double(2.25)], vec![null, double(3.0), double(3.0)]]);
}

#[test]
fn densify_keeps_null_and_missing_apart() {
    let documents =
        [rawdoc! { "g": null, "n": 0 }, rawdoc! { "g": null, "n": 2 }, rawdoc! { "n": 5 }, rawdoc! { "n": 7 }];
    let range = rawdoc! { "step": 1, "bounds": "partition" };
    let stage = rawdoc! { "$densify": { "field": "n", "partitionByFields": ["g"], "range": range } };
    let found = run(&rawdoc! { "p": [stage, { "$sort": { "n": 1 } }] }, &documents);
    assert_eq!(found.len(), 6);
    assert_eq!((&found[1], &found[4]), (&rawdoc! { "g": null, "n": 1 }, &rawdoc! { "n": 6 }));
}

#[test]
fn a_set_keeps_the_first_of_equal_numbers() {
    let numbers =
        [RawBson::Int32(1), RawBson::Int64(1), RawBson::Double(1.0), RawBson::Double(0.0), RawBson::Double(-0.0)];
    let documents = numbers.map(|n| rawdoc! { "n": n });
    let stages = rawdoc! { "p": [{ "$group": { "_id": null, "s": { "$addToSet": "$n" } } }] };
    assert_eq!(run(&stages, &documents), [rawdoc! { "_id": null, "s": [0.0, 1] }]);
}

#[test]
fn a_range_that_is_bounded_by_the_current_document_leaves_out_its_peers() {
    let window = |low: RawBson, high: RawBson| -> Vec<Vec<i32>> {
        let range = RawArrayBuf::from_iter([low, high]);
        let numbers = [0, 0, 1, 1, 3].map(RawBson::Int32).to_vec();
        let found = over(numbers, rawdoc! { "$push": "$_id", "window": { "range": range } });
        let list = |value: &Option<RawBson>| -> Vec<i32> {
            let list = value.as_ref().unwrap().as_array().unwrap();
            list.into_iter().map(|id| id.unwrap().as_i32().unwrap()).collect()
        };
        found.iter().map(list).collect()
    };
    let current = || RawBson::String("current".to_owned());
    let unbounded = || RawBson::String("unbounded".to_owned());
    // What MongoDB 6.0 gives.
    assert_eq!(
        window(unbounded(), current()),
        [vec![0], vec![0, 1], vec![0, 1, 2], vec![0, 1, 2, 3], vec![0, 1, 2, 3, 4]]
    );
    assert_eq!(
        window(current(), unbounded()),
        [vec![0, 1, 2, 3, 4], vec![1, 2, 3, 4], vec![2, 3, 4], vec![3, 4], vec![4]]
    );
    assert_eq!(window(current(), current()), [[0], [1], [2], [3], [4]]);
    assert_eq!(window(0.into(), current()), [vec![0], vec![0, 1], vec![2], vec![2, 3], vec![4]]);
    assert_eq!(window((-1).into(), current()), [vec![0], vec![0, 1], vec![0, 1, 2], vec![0, 1, 2, 3], vec![4]]);
    assert_eq!(window(current(), 0.into()), [vec![0, 1], vec![1], vec![2, 3], vec![3], vec![4]]);
    assert_eq!(window(current(), 1.into()), [vec![0, 1, 2, 3], vec![1, 2, 3], vec![2, 3], vec![3], vec![4]]);
    assert_eq!(
        window(unbounded(), 0.into()),
        [vec![0, 1], vec![0, 1], vec![0, 1, 2, 3], vec![0, 1, 2, 3], vec![0, 1, 2, 3, 4]]
    );
}

#[test]
fn sums_up_to_the_current_document_of_a_range_grow_with_each_one() {
    let day = |n: i64| bson::DateTime::from_millis(n * 86_400_000);
    let documents =
        [(0, 0), (0, 1), (1, 2), (1, 3)].map(|(at, v): (i64, i32)| rawdoc! { "_id": v, "t": day(at), "v": v });
    let window = rawdoc! { "range": ["unbounded", "current"], "unit": "day" };
    let stage = rawdoc! { "sortBy": { "t": 1 }, "output": { "w": { "$sum": "$v", "window": window } } };
    let found = run(&rawdoc! { "p": [{ "$setWindowFields": stage }] }, &documents);
    let sums: Vec<i32> = found.iter().map(|document| document.get_i32("w").unwrap()).collect();
    assert_eq!(sums, [0, 1, 3, 6]);
}

#[test]
fn mistakes_in_groups_windows_and_fills_have_the_numbers_of_mongodb() {
    let windows = |sort: RawDocumentBuf| {
        let stage = rawdoc! { "sortBy": sort, "output": { "r": { "$denseRank": {} } } };
        code(&rawdoc! { "p": [{ "$setWindowFields": stage }] })
    };
    assert_eq!(windows(rawdoc! { "a": 1, "b": 1 }), 5_371_602);
    assert_eq!(windows(rawdoc! {}), 5_371_602);
    let group = |id: RawDocumentBuf| rawdoc! { "p": [{ "$group": { "_id": id, "n": { "$sum": 1 } } }] };
    for id in [rawdoc! { "a": 1 }, rawdoc! { "b": "$b", "a": false }, rawdoc! { "a": 0.5 }] {
        assert_eq!(code(&group(id.clone())), 17390, "{id:?}");
    }
    for id in [
        rawdoc! {},
        rawdoc! { "a": null },
        rawdoc! { "a": { "b": 1 } },
        rawdoc! { "a": [1] },
        rawdoc! { "a": { "$literal": 1 } },
        rawdoc! { "$add": [1, 2] },
    ] {
        assert_eq!(run(&group(id.clone()), &people()).len(), 1, "{id:?}");
    }
    let fill = |more: RawDocumentBuf, output: RawDocumentBuf| {
        let mut stage = rawdoc! { "sortBy": { "_id": 1 }, "output": { "v": output } };
        more.iter().map(std::result::Result::unwrap).for_each(|(name, value)| stage.append(name, value));
        rawdoc! { "p": [{ "$fill": stage }] }
    };
    let method = || rawdoc! { "method": "locf" };
    assert_eq!(code(&fill(rawdoc! { "partitionBy": 5 }, method())), 14);
    assert_eq!(code(&fill(rawdoc! { "partitionByFields": ["o.a"] }, method())), 16412);
    for (more, output) in [
        (rawdoc! { "partitionByFields": ["o.a"] }, rawdoc! { "value": 0 }),
        (rawdoc! { "partitionByFields": ["n"] }, method()),
        (rawdoc! { "partitionBy": null }, method()),
        (rawdoc! { "partitionBy": "$n" }, method()),
        (rawdoc! { "partitionBy": { "n": "$n" } }, method()),
    ] {
        assert_eq!(run(&fill(more.clone(), output), &people()).len(), 3, "{more:?}");
    }
}

#[test]
fn a_derivative_needs_numbers_at_the_ends_of_its_window() {
    let rate = |values: [RawBson; 3]| -> std::result::Result<f64, i32> {
        let documents: Vec<_> = values.into_iter().zip(0..).map(|(v, n)| rawdoc! { "_id": n, "v": v }).collect();
        let rate = rawdoc! { "$derivative": { "input": "$v" }, "window": { "documents": ["unbounded", "unbounded"] } };
        let stage = rawdoc! { "$setWindowFields": { "sortBy": { "_id": 1 }, "output": { "r": rate } } };
        let stages = rawdoc! { "p": [stage] };
        let mut run = Pipeline::parse(stages.get_array("p").unwrap()).unwrap().run(0, usize::MAX);
        for document in documents {
            run.take(document).unwrap();
        }
        run.finish().map_err(|error| error.code)?;
        Ok(run.results()[0].get_f64("r").unwrap())
    };
    let (one, three, null, text) =
        (|| RawBson::Int32(1), || RawBson::Int32(3), || RawBson::Null, || RawBson::String("x".to_owned()));
    assert_eq!(rate([one(), one(), three()]), Ok(1.0));
    assert_eq!(rate([one(), null(), three()]), Ok(1.0));
    assert_eq!(rate([one(), text(), three()]), Ok(1.0));
    assert_eq!(rate([null(), one(), three()]), Err(5_624_903));
    assert_eq!(rate([one(), three(), null()]), Err(5_624_903));
    assert_eq!(rate([text(), one(), three()]), Err(14));
}

#[test]
fn densify_makes_the_values_between_its_bounds_where_no_document_has_one() {
    let range = rawdoc! { "step": 1, "bounds": [0, 3] };
    let stages = rawdoc! { "p": [{ "$densify": { "field": "n", "partitionByFields": ["g"], "range": range } }] };
    let made = [rawdoc! { "n": 0 }, rawdoc! { "n": 1 }, rawdoc! { "n": 2 }];
    assert_eq!(run(&stages, &[]), made);
    let without = rawdoc! { "g": "a", "n": null };
    assert_eq!(run(&stages, std::slice::from_ref(&without)), [&[without][..], &made[..]].concat());
    let with = rawdoc! { "g": "a", "n": 1 };
    let expected = [rawdoc! { "g": "a", "n": 0 }, with.clone(), rawdoc! { "g": "a", "n": 2 }];
    assert_eq!(run(&stages, &[with]), expected);
}

#[test]
fn results_have_the_size_and_the_levels_of_documents() {
    let ended = |stages: &RawDocument, documents: Vec<RawDocumentBuf>| -> std::result::Result<usize, i32> {
        let pipeline = Pipeline::parse(stages.get_array("p").unwrap()).map_err(|error| error.code)?;
        let mut run = pipeline.run(0, usize::MAX);
        for document in documents {
            run.take(document).map_err(|error| error.code)?;
        }
        run.finish().map_err(|error| error.code)?;
        Ok(run.results().len())
    };
    let group = rawdoc! { "$group": { "_id": null, "l": { "$push": "$t" } } };
    let megabytes = |count: usize| vec![rawdoc! { "t": "x".repeat(1 << 20) }; count];
    assert_eq!(ended(&rawdoc! { "p": [group.clone()] }, megabytes(15)), Ok(1));
    assert_eq!(ended(&rawdoc! { "p": [group.clone()] }, megabytes(17)), Err(10334));
    // What only passes through may be larger.
    assert_eq!(ended(&rawdoc! { "p": [group, { "$unwind": "$l" }] }, megabytes(17)), Ok(17));
    let deeper = || rawdoc! { "$set": { "a": [[[[[[[[[["$a"]]]]]]]]]] } };
    let stages = |count: usize| rawdoc! { "p": std::iter::repeat_n(deeper(), count).collect::<RawArrayBuf>() };
    assert_eq!(ended(&stages(19), vec![rawdoc! { "a": 1 }]), Ok(1));
    assert_eq!(ended(&stages(20), vec![rawdoc! { "a": 1 }]), Err(15));
    let path = |names: usize| {
        let path = bson::raw::CString::try_from(vec!["a"; names].join(".")).unwrap();
        let mut set = RawDocumentBuf::new();
        set.append(path, 1);
        rawdoc! { "p": [{ "$set": set }] }
    };
    assert_eq!(ended(&path(199), vec![rawdoc! {}]), Ok(1));
    assert_eq!(ended(&path(201), vec![rawdoc! {}]), Err(15));
    assert_eq!(ended(&path(1_000_000), vec![rawdoc! {}]), Err(15));
}

#[test]
fn buckets_are_of_any_expression_however_large() {
    let bucket = |by: RawDocumentBuf, boundaries: RawArrayBuf| {
        let stage = rawdoc! { "$bucket": { "groupBy": by, "boundaries": boundaries, "default": "other" } };
        run(&rawdoc! { "p": [stage] }, &people())
    };
    let by = rawdoc! { "$ifNull": ["$age", 50] };
    let expected = [rawdoc! { "_id": 0, "count": 1 }, rawdoc! { "_id": 30, "count": 2 }];
    assert_eq!(bucket(by, RawArrayBuf::from_iter([0, 30, 60])), expected);
    let large = rawdoc! { "$strLenCP": { "$concat": ["x".repeat(1 << 20), "$n"] } };
    assert_eq!(bucket(large, (0..10_000).collect()), [rawdoc! { "_id": "other", "count": 3 }]);
}
