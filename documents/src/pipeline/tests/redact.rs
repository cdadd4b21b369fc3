//! `$redact`, and expressions that bind `$$CURRENT`.

use super::*;

fn documents() -> Vec<RawDocumentBuf> {
    let inner = rawdoc! { "lv": 3, "y": [{ "lv": 1, "z": 2 }, { "lv": 9 }, 5, [{ "lv": 9 }, { "lv": 1 }], []] };
    vec![
        rawdoc! { "_id": 1, "lv": 1, "a": { "lv": 2, "x": 1, "b": inner }, "l": [1, { "lv": 5 }, {}] },
        rawdoc! { "_id": 2, "lv": 5, "a": { "lv": 1 } },
        rawdoc! { "_id": 3 },
    ]
}

fn redacted(expression: RawBson) -> Vec<RawDocumentBuf> {
    run(&rawdoc! { "p": [{ "$redact": expression }] }, &documents())
}

/// Looks into what meets a condition.
fn descends(condition: RawDocumentBuf) -> Vec<RawDocumentBuf> {
    redacted(RawBson::Document(rawdoc! { "$cond": [condition, "$$DESCEND", "$$PRUNE"] }))
}

#[test]
fn objects_are_kept_left_out_or_looked_into() {
    let text = |text: &str| RawBson::String(text.to_owned());
    assert_eq!(redacted(text("$$KEEP")), documents());
    assert_eq!(redacted(text("$$DESCEND")), documents());
    assert_eq!(redacted(text("$$PRUNE")), [] as [RawDocumentBuf; 0]);
    let expected = [rawdoc! { "_id": 1, "lv": 1, "a": { "lv": 2, "x": 1 }, "l": [1, {}] }, rawdoc! { "_id": 3 }];
    assert_eq!(descends(rawdoc! { "$lte": ["$lv", 2] }), expected);
    assert_eq!(descends(rawdoc! { "$lte": ["$$CURRENT.lv", 2] }), expected);
    let whole = documents();
    assert_eq!(descends(rawdoc! { "$lte": ["$$ROOT.lv", 2] }), [whole[0].clone(), whole[2].clone()]);
    let expected = [rawdoc! { "_id": 1, "lv": 1, "l": [1, {}] }, rawdoc! { "_id": 3 }];
    assert_eq!(descends(rawdoc! { "$lte": ["$lv", "$$ROOT._id"] }), expected);
    let field = rawdoc! { "$lte": [{ "$getField": "lv" }, 2] };
    assert_eq!(descends(field), descends(rawdoc! { "$lte": ["$lv", 2] }));
    let bound = rawdoc! { "$let": { "vars": { "k": "$lv" }, "in": { "$lte": ["$$k", 2] } } };
    assert_eq!(descends(bound), descends(rawdoc! { "$lte": ["$lv", 2] }));
}

#[test]
fn what_is_found_deep_within_lists_is_redacted() {
    let prune = rawdoc! { "$cond": [{ "$eq": ["$lv", 9] }, "$$PRUNE", "$$DESCEND"] };
    let inner = rawdoc! { "lv": 3, "y": [{ "lv": 1, "z": 2 }, 5, [{ "lv": 1 }], []] };
    let expected = rawdoc! { "_id": 1, "lv": 1, "a": { "lv": 2, "x": 1, "b": inner }, "l": [1, { "lv": 5 }, {}] };
    assert_eq!(redacted(RawBson::Document(prune))[0], expected);
}

#[test]
fn other_results_of_a_redaction_are_refused() {
    let document = rawdoc! { "_id": 1, "a": 1 };
    for expression in [
        RawBson::String("$a".to_owned()),
        RawBson::String("$$DESCEND.x".to_owned()),
        RawBson::Null,
        RawBson::Array(RawArrayBuf::from_iter(["$$KEEP"])),
        RawBson::String("Keep".to_owned()),
    ] {
        let stages = rawdoc! { "p": [{ "$redact": expression.clone() }] };
        let pipeline = Pipeline::parse(stages.get_array("p").unwrap()).unwrap();
        let error = pipeline.run(0, usize::MAX).take(document.clone()).unwrap_err();
        assert_eq!(error.code, 17053, "{expression:?}");
    }
    for (expression, expected) in [
        (RawBson::String("$$x".to_owned()), 17276),
        (RawBson::Document(rawdoc! { "$foo": 1 }), 168),
        (RawBson::Document(rawdoc! { "$divide": [1, 0] }), 2),
        (RawBson::Document(rawdoc! { "$let": { "vars": { "KEEP": 1 }, "in": "$$KEEP" } }), 9),
    ] {
        assert_eq!(code(&rawdoc! { "p": [{ "$redact": expression.clone() }] }), expected, "{expression:?}");
    }
    // Nothing else has these variables.
    assert_eq!(code(&rawdoc! { "p": [{ "$set": { "x": "$$KEEP" } }] }), 17276);
}

#[test]
fn paths_begin_at_the_current_object_where_it_is_bound() {
    let one = |expression: RawDocumentBuf| {
        let found = run(&rawdoc! { "p": [{ "$project": { "_id": 0, "r": expression } }] }, &documents()[..1]);
        crate::raw::owned(found[0].get("r").unwrap().unwrap())
    };
    assert_eq!(one(rawdoc! { "$let": { "vars": { "CURRENT": "$a" }, "in": "$lv" } }), RawBson::Int32(2));
    assert_eq!(one(rawdoc! { "$let": { "vars": { "CURRENT": "$a" }, "in": "$$ROOT.lv" } }), RawBson::Int32(1));
    let mapped = one(rawdoc! { "$map": { "input": "$l", "as": "CURRENT", "in": "$lv" } });
    let expected = RawArrayBuf::from_iter([RawBson::Null, RawBson::Int32(5), RawBson::Null]);
    assert_eq!(mapped, RawBson::Array(expected));
    let lookup = rawdoc! { "$lookup": { "from": "d", "let": { "CURRENT": "$a" }, "as": "r", "pipeline": [
        { "$project": { "_id": 0, "r": "$lv" } },
    ] } };
    let pipeline = Pipeline::parse(&RawArrayBuf::from_iter([lookup, rawdoc! { "$project": { "r": 1 } }])).unwrap();
    let mut run = pipeline.run(0, usize::MAX).with_foreign(Box::new(Others(vec![rawdoc! { "lv": 7 }])));
    run.take(documents().remove(0)).unwrap();
    run.finish().unwrap();
    assert_eq!(run.results(), [rawdoc! { "_id": 1, "r": [{ "r": 2 }] }]);
}
