use super::*;
use bson::{RawDocument, rawdoc};

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
        (rawdoc! { "p": [{ "$limit": 0 }] }, 15958),
        (rawdoc! { "p": [{ "$unwind": "a" }] }, 28818),
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
    ] {
        assert_eq!(code(&rawdoc! { "p": [{ "$match": filter.clone() }] }), expected, "{filter:?}");
    }
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
