use crate::ExpressionError;
use crate::pipeline::{Foreign, Memory, Pipeline, PipelineRun, Take};
use bson::raw::{CString, RawArrayBuf, RawBson, RawDocument, RawDocumentBuf};
use bson::rawdoc;

const LIMIT: usize = 64 << 10;

#[derive(Debug)]
struct Others;

impl Foreign for Others {
    fn visit(
        &self,
        _: &str,
        _: &RawDocument,
        _: &dyn Fn() -> bool,
        take: &mut Take<'_>,
    ) -> Result<(), ExpressionError> {
        for i in 0..200 {
            if !take(document(i))? {
                break;
            }
        }
        Ok(())
    }
}

/// A kilobyte, most of it text.
fn document(i: i32) -> RawDocumentBuf {
    let mut own = RawDocumentBuf::new();
    own.append(CString::try_from(format!("k{i}")).unwrap(), "x".repeat(500));
    rawdoc! { "_id": i, "one": 1, "text": format!("{i:0500}"), "list": ["a", "b"], "o": own }
}

fn begin(stages: &RawDocumentBuf, limit: usize) -> PipelineRun {
    Pipeline::parse(stages.get_array("p").unwrap()).unwrap().run(0, limit).with_foreign(Box::new(Others))
}

/// The code with which a pipeline over so many documents ends, or how many results it has.
fn ends(stages: &RawDocumentBuf, count: i32, limit: usize) -> Result<usize, i32> {
    let mut running = begin(stages, limit);
    let mut results = 0;
    for i in 0..count {
        running.take(document(i)).map_err(|error| error.code)?;
        results += running.results().len();
    }
    running.finish().map_err(|error| error.code)?;
    Ok(results + running.results().len())
}

#[test]
fn every_stage_that_keeps_something_is_bounded() {
    let group = |accumulator: RawDocumentBuf| rawdoc! { "p": [{ "$group": { "_id": "$one", "r": accumulator } }] };
    let windows = |output: RawDocumentBuf| {
        rawdoc! { "p": [
            { "$project": { "_id": 1, "one": 1 } },
            { "$setWindowFields": { "sortBy": { "_id": 1 }, "output": { "r": output } } },
        ] }
    };
    let unbounded = rawdoc! { "documents": ["unbounded", "unbounded"] };
    for stages in [
        rawdoc! { "p": [{ "$sort": { "text": 1 } }] },
        rawdoc! { "p": [{ "$sample": { "size": 1000 } }] },
        rawdoc! { "p": [{ "$group": { "_id": "$text" } }] },
        rawdoc! { "p": [{ "$group": { "_id": "$_id", "r": { "$first": "$text" } } }] },
        rawdoc! { "p": [{ "$group": { "_id": "$_id", "r": { "$max": "$text" } } }] },
        group(rawdoc! { "$push": "$text" }),
        group(rawdoc! { "$addToSet": "$text" }),
        group(rawdoc! { "$mergeObjects": "$o" }),
        group(rawdoc! { "$topN": { "n": 1000, "sortBy": { "_id": 1 }, "output": "$text" } }),
        group(rawdoc! { "$firstN": { "n": 1000, "input": "$text" } }),
        rawdoc! { "p": [{ "$lookup": { "from": "o", "localField": "one", "foreignField": "_id", "as": "r" } }] },
        rawdoc! { "p": [{ "$lookup": { "from": "o", "pipeline": [{ "$match": { "$expr": false } }], "as": "r" } }] },
        rawdoc! { "p": [{ "$unionWith": { "coll": "o", "pipeline": [{ "$sort": { "text": 1 } }] } }] },
        rawdoc! { "p": [{ "$facet": { "a": [{ "$group": { "_id": "$text" } }], "b": [{ "$count": "n" }] } }] },
        rawdoc! { "p": [{ "$facet": { "a": [], "b": [] } }] },
        rawdoc! { "p": [{ "$bucketAuto": { "groupBy": "$_id", "buckets": 2 } }] },
        rawdoc! { "p": [{ "$bucketAuto": { "groupBy": "$_id", "buckets": 1, "output": { "r": { "$push": "$text" } } } }] },
        rawdoc! { "p": [{ "$setWindowFields": { "sortBy": { "_id": 1 }, "output": { "r": { "$sum": "$one" } } } }] },
        windows(rawdoc! { "$push": "$_id", "window": unbounded.clone() }),
        windows(rawdoc! { "$addToSet": "$_id", "window": { "documents": [-100, 0] } }),
        rawdoc! { "p": [{ "$project": { "_id": 1 } }, { "$densify": { "field": "_id", "range": { "step": 0.0001, "bounds": "full" } } }] },
    ] {
        assert_eq!(ends(&stages, 200, LIMIT), Err(146), "{stages:?}");
        assert!(ends(&stages, 3, LIMIT << 12).is_ok(), "{stages:?}");
    }
    // Of one document that becomes many.
    let list: RawArrayBuf = (0..1000).map(RawBson::Int32).collect();
    let unwind = rawdoc! { "p": [{ "$unwind": "$list" }] };
    let error = begin(&unwind, LIMIT).take(rawdoc! { "text": "x".repeat(500), "list": list }).unwrap_err();
    assert_eq!(error.code, 146);
    assert!(error.message.contains("Exceeded memory limit for the results of a pipeline"), "{}", error.message);
}

#[test]
fn what_is_let_go_of_does_not_count() {
    // Far more passes through than is kept at a time.
    let group = |accumulator: RawDocumentBuf| rawdoc! { "p": [{ "$group": { "_id": "$one", "r": accumulator } }] };
    for (stages, results) in [
        (rawdoc! { "p": [{ "$project": { "text": 1 } }, { "$unwind": "$text" }] }, 1000),
        (rawdoc! { "p": [{ "$sort": { "text": 1 } }, { "$limit": 5 }] }, 5),
        (group(rawdoc! { "$max": "$text" }), 1),
        (group(rawdoc! { "$last": "$text" }), 1),
        (group(rawdoc! { "$addToSet": "$one" }), 1),
        (group(rawdoc! { "$bottom": { "sortBy": { "_id": 1 }, "output": "$text" } }), 1),
        (group(rawdoc! { "$maxN": { "n": 3, "input": "$text" } }), 1),
        (rawdoc! { "p": [{ "$facet": { "a": [{ "$limit": 2 }], "b": [{ "$group": { "_id": "$one" } }] } }] }, 1),
    ] {
        assert_eq!(ends(&stages, 1000, LIMIT), Ok(results), "{stages:?}");
    }
    // Each stage lets go of what the next one keeps.
    let regrouped = rawdoc! { "p": [
        { "$sort": { "text": -1 } }, { "$group": { "_id": "$text" } }, { "$sort": { "_id": 1 } }, { "$group": { "_id": "$_id" } },
        { "$setWindowFields": { "sortBy": { "_id": 1 }, "output": { "r": { "$count": {} } } } },
    ] };
    assert_eq!(ends(&regrouped, 40, 2 * LIMIT), Ok(40));
    let mut running = begin(&rawdoc! { "p": [{ "$match": {} }] }, LIMIT);
    running.take(document(1)).unwrap();
    assert!(running.results_bytes() > 1000);
    running.results();
    assert_eq!(running.results_bytes(), 0);
}

#[test]
fn what_is_given_up_does_not_count() {
    let max = 1 << 20;
    let memory = Memory::new(max);
    let begin = |stages: RawDocumentBuf| {
        let pipeline = Pipeline::parse(stages.get_array("p").unwrap()).unwrap();
        pipeline.run_within(0, &memory).with_foreign(Box::new(Others))
    };
    let lookup = rawdoc! { "$lookup": { "from": "o", "localField": "none", "foreignField": "_id", "as": "r" } };
    let mut united = begin(rawdoc! { "p": [{ "$unionWith": { "coll": "o", "pipeline": [lookup] } }, { "$limit": 1 }] });
    united.finish().unwrap();
    assert_eq!(united.results().len(), 1);
    assert_eq!(memory.left(), max);
    let mut sorted = begin(rawdoc! { "p": [{ "$sort": { "text": 1 } }] });
    sorted.take(document(1)).unwrap();
    assert!(memory.left() < max);
    drop(sorted);
    assert_eq!(memory.left(), max);
}

#[test]
fn results_count_until_they_are_taken() {
    let memory = Memory::new(1 << 20);
    let mut running = Pipeline::default().run_within(0, &memory);
    for i in 1..=2 {
        running.take(document(i)).unwrap();
    }
    let before = memory.left();
    assert_eq!(running.next_result(), Some(&document(1)));
    assert_eq!(running.take_result(), Some(document(1)));
    assert!(before < memory.left() && memory.left() < 1 << 20);
    assert_eq!(running.take_result(), Some(document(2)));
    assert_eq!((running.next_result(), running.results_bytes(), memory.left()), (None, 0, 1 << 20));
}
