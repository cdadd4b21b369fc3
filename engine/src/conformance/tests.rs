use super::compare::MoreColumns;
use super::*;

fn failures(steps: Json) -> Vec<String> {
    run_case(steps.as_array().unwrap(), None)
}

fn holds(actual: &Json, expected: &Json) -> bool {
    compare::contains(actual, expected).is_ok()
}

#[test]
fn a_reply_may_hold_more_than_is_expected() {
    let reply = json!({"n": 1, "list": [{"a": 1, "b": 2}, {"a": 3}], "ok": 1});
    assert!(holds(&reply, &json!({"list": [{"a": 1.0}, {"a": 3, "b": null}]})));
    assert!(!holds(&reply, &json!({"list": [{"a": 1}]})));
    assert!(!holds(&reply, &json!({"list": [{"a": 3}, {"a": 1}]})));
    assert!(!holds(&reply, &json!({"m": 1})));
    assert!(holds(&reply, &json!({"m": null})));
    assert!(!holds(&reply, &json!({"n": "1"})));
    assert!(!holds(&reply, &json!({"n": {}})));
    assert!(!holds(&json!({"n": true}), &json!({"n": 1})));
}

#[test]
fn dates_are_the_same_in_every_form() {
    let date = json!({"$date": "2024-01-01T00:00:00Z"});
    for form in [
        json!("2024-01-01T00:00:00Z"),
        json!("2024-01-01T01:00:00.000+01:00"),
        json!({"$date": {"$numberLong": "1704067200000"}}),
    ] {
        assert!(holds(&date, &form), "{form}");
        assert!(holds(&form, &date), "{form}");
    }
    assert!(!holds(&date, &json!("2024-01-01T00:00:00.001Z")));
    assert!(!holds(&date, &json!({})));
    assert!(holds(&json!({"$numberDouble": "NaN"}), &json!({"$numberDouble": "NaN"})));
    assert!(!holds(&json!("a"), &json!("b")));
}

#[test]
fn unordered_rows_are_matched_one_to_one() {
    let row = |text: &str| -> Json { serde_json::from_str(text).unwrap() };
    let actual = [row(r#"{"a": 1, "b": 1}"#), row(r#"{"a": 1, "b": 2}"#)];
    let check = |expected: &[Json]| compare::same_rows_unordered(&actual, expected, MoreColumns::Any).is_ok();
    assert!(check(&[row(r#"{"a": 1, "b": 2}"#), row(r#"{"a": 1}"#)]));
    assert!(check(&[row(r#"{"a": 1}"#), row(r#"{"a": 1, "b": 1}"#)]));
    assert!(!check(&[row(r#"{"b": 1}"#), row(r#"{"a": 1, "b": 1}"#)]));
    assert!(!check(&[row(r#"{"b": 1}"#)]));
    let all = [row(r#"{"a": 1, "b": 2}"#), row(r#"{"a": 1, "b": 1}"#)];
    assert!(compare::same_rows_unordered(&actual, &all, MoreColumns::Null).is_ok());
    let fewer = [row(r#"{"a": 1, "b": 2}"#), row(r#"{"a": 1}"#)];
    assert!(compare::same_rows_unordered(&actual, &fewer, MoreColumns::Null).is_err());
}

#[test]
fn only_listings_and_nulls_may_have_columns_that_a_case_does_not_list() {
    for (sql, more) in [
        ("SELECT s, v FROM w", MoreColumns::Null),
        ("  WITH a AS (SELECT 1) SELECT * FROM a", MoreColumns::Null),
        ("SHOW COLLECTIONS", MoreColumns::Any),
        ("explain expiry FOR w", MoreColumns::Any),
    ] {
        assert_eq!(MoreColumns::of(sql), more, "{sql}");
    }
    let actual = [json!({"s": "a", "v": 1, "n": null})];
    assert!(compare::same_rows(&actual, &json!([{"s": "a", "v": 1}]), MoreColumns::Null).is_ok());
    assert!(compare::same_rows(&actual, &json!([{"v": 1}]), MoreColumns::Null).is_err());
    assert!(compare::same_rows(&actual, &json!([{"v": 1}]), MoreColumns::Any).is_ok());
}

#[test]
fn a_case_that_holds_has_no_failures() {
    let failures = failures(json!([
        {"at": "2023-03-27T18:00:00Z"},
        {"run": {"create": "w", "timeseries": {"timeField": "t", "metaField": "s"}, "expireAfterSeconds": 300}},
        {"run": {"insert": "w", "documents": [{"t": {"$date": "2023-03-27T18:29:59Z"}, "s": "a", "v": 1.5}]},
         "reply": {"n": 1}},
        {"crash": {}},
        {"flush": {}},
        {"reopen": {}},
        {"compact": {}},
        {"at": "2023-03-27T18:34:58Z"},
        {"sweep": {"dryRun": true, "at": "2023-03-27T18:34:59Z"}, "reply": {"deletedBuckets": 1, "deletedDocuments": 1}},
        {"sweep": {}, "reply": {"passes": 1, "deletedBuckets": 0}},
        {"run": {"find": "w"}, "reply": {"cursor": {"firstBatch": [{"s": "a", "v": 1.5, "u": null}]}}},
        {"at": "2023-03-27T18:34:59Z"},
        {"sweep": {"maxSubPasses": 1}, "reply": {"subPasses": 1, "deletedDocuments": 1}},
        {"run": {"serverStatus": 1}, "reply": {"metrics": {"ttl": {"deletedDocuments": 1}}}},
        {"run": {"drop": "nope"}, "error": "NamespaceNotFound", "error_contains": "NOPE"},
    ]));
    assert_eq!(failures, Vec::<String>::new());
}

#[test]
fn an_error_may_be_that_of_the_first_refused_document() {
    let insert = json!({"insert": "c", "documents": [{"_id": 1}, {"_id": 1}, {"_id": [1]}], "ordered": false});
    let case = |step: Json| failures(json!([{"run": {"create": "c"}}, step]));
    let refused = json!([{"index": 1, "codeName": "DuplicateKey"}, {"index": 2, "codeName": "InvalidIdField"}]);
    for (step, holds) in [
        (json!({"run": insert}), true),
        (json!({"run": insert, "reply": {"n": 1, "writeErrors": refused}}), true),
        (json!({"run": insert, "error": "DuplicateKey", "error_contains": "_id 1", "reply": {"n": 1}}), true),
        (json!({"run": insert, "error": "DuplicateKey", "reply": {"n": 2}}), false),
        (json!({"run": insert, "error": "InvalidIdField"}), false),
        (json!({"run": insert, "error": "DuplicateKey", "error_contains": "elephant"}), false),
        (json!({"run": {"insert": "c", "documents": [{}]}, "error": "DuplicateKey"}), false),
    ] {
        assert_eq!(case(step.clone()).is_empty(), holds, "{step}");
    }
}

#[test]
fn a_dry_run_counts_documents_too() {
    let failures = failures(json!([
        {"at": "2024-01-01T00:00:00Z"},
        {"run": {"create": "c", "defaultTTL": 10}},
        {"run": {"insert": "c", "documents": [{"_id": 1}, {"_id": 2}, {"_id": 3, "ttl": -1}]}},
        {"flush": {}},
        {"run": {"insert": "c", "documents": [{"_id": 4}]}},
        {"sweep": {"dryRun": true, "at": "2024-01-01T00:00:10Z"}, "reply": {"deletedDocuments": 3, "deletedBuckets": 2}},
        {"at": "2024-01-01T00:00:10Z"},
        {"sweep": {}, "reply": {"deletedDocuments": 3, "deletedBuckets": 2}},
    ]));
    assert_eq!(failures, Vec::<String>::new());
}

#[test]
fn every_step_that_does_not_hold_is_a_failure_with_its_number() {
    let failures = failures(json!([
        {"run": {"ping": 1}, "replay": {}},
        {"run": {"ping": 1}, "reply": {"n": 5}},
        {"run": {"ping": 1}, "error": "BadValue"},
        {"run": {"drop": "w"}},
        {"run": {"drop": "w"}, "error": "BadValue"},
        {"run": {"drop": "w"}, "error": "NamespaceNotFound", "error_contains": "elephant"},
        {"sweep": {"now": true}},
        {"wait": 5},
        {"at": "tomorrow"},
        {"run": {"ping": 1}},
    ]));
    assert_eq!(failures.len(), 9, "{failures:#?}");
    for (i, failure) in failures.iter().enumerate() {
        assert!(failure.starts_with(&format!("step {} ", i + 1)), "{failure}");
    }
    assert!(failures[3].contains("expected success, actual NamespaceNotFound"), "{}", failures[3]);
}

#[test]
fn a_path_that_is_not_there_is_a_failure() {
    let outcomes = run_paths(&[PathBuf::from("/nonexistent/case.json")], None);
    assert_eq!(outcomes.len(), 1);
    assert!(!outcomes[0].passed());
}

#[test]
fn cases_with_sql_are_skipped_where_nothing_runs_sql() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, case: Json| {
        let fs = RealFs::new();
        fs.create(&folder.path().join(name)).unwrap().append(case.to_string().as_bytes()).unwrap();
    };
    write("a.json", json!({"name": "sql", "steps": [{"sql": "SELECT 1"}]}));
    write("b.json", json!({"name": "ping", "steps": [{"run": {"ping": 1}}]}));
    write("c.txt", json!({}));
    let outcomes = run_paths(&[folder.path().to_owned()], None);
    assert_eq!(outcomes.len(), 2);
    assert!(outcomes[0].skipped.is_some() && !outcomes[0].passed());
    assert!(outcomes[1].passed(), "{outcomes:?}");
}

struct OneRow;

impl SqlRunner for OneRow {
    fn run(&self, db: &Database, sql: &str) -> Result<Vec<Map<String, Json>>, Error> {
        if sql == "wrong" {
            return Err(Error::new(ebbtide_ttl::Code::FailedToParse, "this is no SQL"));
        }
        let rows = db.collections().into_iter().map(|name| json!({"sql": sql, "name": name}));
        Ok(rows.filter_map(|row| row.as_object().cloned()).collect())
    }
}

#[test]
fn sql_steps_compare_rows_and_errors() {
    let steps = json!([
        {"run": {"create": "b", "timeseries": {"timeField": "t"}}},
        {"run": {"create": "a", "timeseries": {"timeField": "t"}}},
        {"sql": "x"},
        {"sql": "x", "rows": [{"name": "a", "sql": "x"}, {"name": "b", "sql": "x"}]},
        {"sql": "SHOW", "rows": [{"name": "b"}, {"name": "a"}], "unordered": true},
        {"sql": "wrong", "error": "FailedToParse", "error_contains": "no sql"},
        {"sql": "x", "rows": [{"name": "b"}, {"name": "a"}]},
        {"sql": "x", "rows": [{"name": "a"}], "unordered": true},
        {"sql": "wrong", "rows": []},
        {"sql": "x", "error": "FailedToParse"},
        {"sql": "x", "rows": [], "reply": {}},
    ]);
    let failures = run_case(steps.as_array().unwrap(), Some(&OneRow));
    let numbers: Vec<_> = failures.iter().filter_map(|f| f.split(' ').nth(1)).collect();
    assert_eq!(numbers, ["7", "8", "9", "10", "11"], "{failures:#?}");
}
