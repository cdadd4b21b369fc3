//! `$graphLookup`.

use super::*;
use std::cell::Cell;

fn stations() -> Vec<RawDocumentBuf> {
    vec![
        rawdoc! { "_id": 1, "n": "a", "to": ["b", "c"] },
        rawdoc! { "_id": 2, "n": "b", "to": "d" },
        rawdoc! { "_id": 3, "n": "c", "to": ["a", "d"] },
        rawdoc! { "_id": 4, "n": "d" },
        rawdoc! { "_id": 5, "n": ["e", "f"], "to": [["y"], "b"] },
        rawdoc! { "_id": 6, "n": null, "to": null },
        rawdoc! { "_id": 7, "n": ["x", ["y"]], "m": { "k": [{ "j": "a" }, { "j": ["b", ["c"]] }] } },
        rawdoc! { "_id": 8, "to": "a" },
    ]
}

fn stage(options: &RawDocument) -> RawArrayBuf {
    let mut all = rawdoc! { "from": "d", "connectFromField": "to", "connectToField": "n", "as": "r" };
    for (name, value) in options.iter().map(std::result::Result::unwrap) {
        all = all.iter().map(std::result::Result::unwrap).filter(|(known, _)| *known != name).collect();
        all.append(name, value);
    }
    RawArrayBuf::from_iter([rawdoc! { "$graphLookup": all }])
}

fn reached(others: Vec<RawDocumentBuf>, options: &RawDocument, document: RawDocumentBuf) -> RawDocumentBuf {
    let run = Pipeline::parse(&stage(options)).unwrap().run(0, usize::MAX);
    let mut run = run.with_foreign(Box::new(Others(others)));
    run.take(document).unwrap();
    run.finish().unwrap();
    run.results().remove(0)
}

/// The numbers of the documents that are reached from a value.
fn ids(start: RawBson, options: RawDocumentBuf) -> Vec<i32> {
    let mut options = options;
    options.append(cstr!("startWith"), "$s");
    let found = reached(stations(), &options, rawdoc! { "s": start });
    let list = found.get_array("r").unwrap();
    list.into_iter().map(|document| document.unwrap().as_document().unwrap().get_i32("_id").unwrap()).collect()
}

#[test]
fn documents_are_reached_step_by_step() {
    let text = |text: &str| RawBson::String(text.to_owned());
    assert_eq!(ids(text("a"), rawdoc! {}), [1, 2, 3, 4]);
    assert_eq!(ids(text("a"), rawdoc! { "maxDepth": 0 }), [1]);
    assert_eq!(ids(text("a"), rawdoc! { "maxDepth": 1.0 }), [1, 2, 3]);
    assert_eq!(ids(text("f"), rawdoc! {}), [5, 2, 7, 4]);
    assert_eq!(ids(RawBson::Array(RawArrayBuf::from_iter(["d", "b"])), rawdoc! {}), [2, 4]);
    assert_eq!(ids(RawBson::Array(RawArrayBuf::from_iter(["y"])), rawdoc! {}), [] as [i32; 0]);
    // Null finds no document without the field.
    assert_eq!(ids(RawBson::Null, rawdoc! {}), [6]);
    let pattern = bson::Regex { pattern: cstr!("^[cd]").to_owned(), options: cstr!("").to_owned() };
    assert_eq!(ids(RawBson::RegularExpression(pattern), rawdoc! { "maxDepth": 0 }), [3, 4]);
    let found = reached(stations(), &rawdoc! { "startWith": "$none" }, rawdoc! { "_id": 1 });
    assert_eq!(found, rawdoc! { "_id": 1, "r": [] });
}

#[test]
fn a_path_of_the_next_values_goes_into_lists() {
    let from = |path: &str| ids(RawBson::String("x".to_owned()), rawdoc! { "connectFromField": path, "maxDepth": 1 });
    assert_eq!(from("m.k.j"), [7, 1, 2]);
    assert_eq!(from("m.k.1.j"), [7, 2]);
    assert_eq!(from("m.k.1.j.1"), [7, 3]);
    assert_eq!(from("m.k.9.j"), [7]);
    assert_eq!(from("m.1"), [7]);
}

#[test]
fn documents_have_the_number_of_their_step() {
    let options = rawdoc! { "startWith": "b", "depthField": "o.d", "as": "p.q" };
    let expected = rawdoc! { "_id": 1, "p": { "q": [
        { "_id": 2, "n": "b", "to": "d", "o": { "d": 0_i64 } }, { "_id": 4, "n": "d", "o": { "d": 1_i64 } },
    ] } };
    assert_eq!(reached(stations(), &options, rawdoc! { "_id": 1 }), expected);
}

#[test]
fn a_search_can_be_restricted() {
    let a = || RawBson::String("a".to_owned());
    assert_eq!(ids(a(), rawdoc! { "restrictSearchWithMatch": { "_id": { "$ne": 2 }, "$comment": "x" } }), [1, 3, 4]);
    assert_eq!(ids(a(), rawdoc! { "restrictSearchWithMatch": { "$expr": { "$lt": ["$_id", 3] } } }), [1, 2]);
    // With the variables of a $lookup around it.
    let mut options =
        rawdoc! { "from": "d", "startWith": "a", "connectFromField": "to", "connectToField": "n", "as": "q" };
    options.append(cstr!("restrictSearchWithMatch"), rawdoc! { "$expr": { "$lte": ["$_id", "$$x"] } });
    let lookup = rawdoc! { "$lookup": { "from": "d", "let": { "x": "$_id" }, "as": "r", "pipeline": [
        { "$match": { "_id": 4 } }, { "$graphLookup": options }, { "$project": { "_id": 0, "q": "$q._id" } },
    ] } };
    let pipeline = Pipeline::parse(&RawArrayBuf::from_iter([lookup])).unwrap();
    let mut run = pipeline.run(0, usize::MAX).with_foreign(Box::new(Others(stations())));
    for id in [1, 3] {
        run.take(rawdoc! { "_id": id }).unwrap();
    }
    run.finish().unwrap();
    let expected = [rawdoc! { "_id": 1, "r": [{ "q": [1] }] }, rawdoc! { "_id": 3, "r": [{ "q": [1, 2, 3] }] }];
    assert_eq!(run.results(), expected);
}

#[test]
fn documents_without_an_id_are_different_ones() {
    let measurements = vec![rawdoc! { "n": "a", "v": 1 }, rawdoc! { "n": "a", "v": 2 }, rawdoc! { "n": "b", "v": 3 }];
    let found = reached(measurements, &rawdoc! { "startWith": "a" }, rawdoc! { "_id": 1 });
    assert_eq!(found, rawdoc! { "_id": 1, "r": [{ "n": "a", "v": 1 }, { "n": "a", "v": 2 }] });
}

#[test]
fn a_search_has_a_limit_of_memory_and_can_be_stopped() {
    let chain: Vec<_> = (0..2000).map(|n| rawdoc! { "_id": n, "n": n, "to": n + 1 }).collect();
    let pipeline = Pipeline::parse(&stage(&rawdoc! { "startWith": 0 })).unwrap();
    let run = |bytes_max: usize| pipeline.run(0, bytes_max).with_foreign(Box::new(Others(chain.clone())));
    // The collection alone is too large; then what is found in it.
    assert_eq!(run(100 << 10).take(rawdoc! {}).unwrap_err().code, 146);
    assert_eq!(run(600 << 10).take(rawdoc! {}).unwrap_err().code, 146);
    let first = Pipeline::parse(&stage(&rawdoc! { "startWith": 0, "maxDepth": 0 })).unwrap();
    assert!(first.run(0, 600 << 10).with_foreign(Box::new(Others(chain.clone()))).take(rawdoc! {}).unwrap());
    // The values of the first step count.
    let starts = Pipeline::parse(&stage(&rawdoc! { "startWith": "$s" })).unwrap();
    let many = rawdoc! { "s": (0..2000).collect::<RawArrayBuf>() };
    let mut run_of_many = starts.run(0, 200 << 10).with_foreign(Box::new(Others(Vec::new())));
    assert_eq!(run_of_many.take(many).unwrap_err().code, 146);
    let memory = Memory::new(usize::MAX);
    let mut within = pipeline.run_within(0, &memory).with_foreign(Box::new(Others(chain.clone())));
    within.take(rawdoc! {}).unwrap();
    assert_eq!(within.results()[0].get_array("r").unwrap().into_iter().count(), 2000);
    within.finish().unwrap();
    drop(within);
    assert_eq!(memory.left(), usize::MAX);
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() > 1000
    };
    assert_eq!(run(usize::MAX).take_unless(rawdoc! {}, &stop).unwrap_err().code, 50);
}

#[test]
fn wrong_options_have_the_codes_of_mongodb() {
    let with = |options: RawDocumentBuf| {
        let mut all = rawdoc! { "startWith": "$s" };
        options.iter().map(std::result::Result::unwrap).for_each(|(name, value)| all.append(name, value));
        Pipeline::parse(&stage(&all)).unwrap_err().code
    };
    for (options, expected) in [
        (rawdoc! { "from": 1 }, 9),
        (rawdoc! { "from": "" }, 73),
        (rawdoc! { "from": ".d" }, 73),
        (rawdoc! { "as": 1 }, 40103),
        (rawdoc! { "as": "" }, 40105),
        (rawdoc! { "as": "$x" }, 16410),
        (rawdoc! { "as": "a." }, 40353),
        (rawdoc! { "connectFromField": "" }, 40105),
        (rawdoc! { "connectFromField": "$r" }, 16410),
        (rawdoc! { "connectToField": "$n" }, 16410),
        (rawdoc! { "connectToField": "a\0b" }, 16411),
        (rawdoc! { "depthField": 1 }, 40103),
        (rawdoc! { "depthField": "" }, 40352),
        (rawdoc! { "depthField": "$d" }, 16410),
        (rawdoc! { "maxDepth": "x" }, 40100),
        (rawdoc! { "maxDepth": -1 }, 40101),
        (rawdoc! { "maxDepth": 1.5 }, 40102),
        (rawdoc! { "maxDepth": 1e30 }, 40102),
        (rawdoc! { "restrictSearchWithMatch": 1 }, 40185),
        (rawdoc! { "restrictSearchWithMatch": { "$foo": 1 } }, 2),
        (rawdoc! { "restrictSearchWithMatch": { "$expr": { "$foo": 1 } } }, 168),
        (rawdoc! { "x": 1 }, 40104),
    ] {
        assert_eq!(with(options.clone()), expected, "{options:?}");
    }
    assert_eq!(Pipeline::parse(&stage(&rawdoc! {})).unwrap_err().code, 40105);
    assert_eq!(code(&rawdoc! { "p": [{ "$graphLookup": 1 }] }), 9);
    assert_eq!(code(&rawdoc! { "p": [{ "$graphLookup": { "as": "x" } }] }), 9);
}
