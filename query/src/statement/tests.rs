use super::*;
use datafusion::sql::sqlparser::tokenizer::Tokenizer;
use serde_json::json;

fn one(text: &str) -> StatementKind {
    let mut all = parse(text).unwrap();
    assert_eq!(all.len(), 1, "{text}");
    all.remove(0).kind
}

fn document(text: &str) -> Value {
    match one(text) {
        StatementKind::Command { document, .. } => Value::Object(document),
        other => panic!("{other:?}"),
    }
}

fn message(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn text_is_cut_at_semicolons_outside_of_quotes_and_comments() {
    let all = parse("select ';' -- a; b\n; /* ; */ sweep;\n\n;flush").unwrap();
    let texts: Vec<_> = all.iter().map(|s| s.text.as_str()).collect();
    assert_eq!(texts, ["select ';' -- a; b", "sweep", "flush"]);
    assert_eq!(all[1].kind, StatementKind::Sweep);
    assert!(parse("  -- nothing\n").unwrap().is_empty());
}

/// The parser is given these tokens in the place of the text.
#[test]
fn tokens_of_a_statement_are_those_of_its_text() {
    let text = "  -- first\n select /*+ hint */ a, 'x;\ny' -- é\n from \"T\" ;\n\n/* c */ select 1e3::double , $1 from t--x\nwhere a /* d */ \n";
    let all = parse(text).unwrap();
    assert_eq!(all.len(), 2);
    for statement in all {
        let dialect = crate::sql::EbbtideDialect;
        let wanted = Tokenizer::new(&dialect, &statement.text).tokenize_with_location().unwrap();
        let mut found = statement.all_tokens();
        // White space after a statement is not in its text.
        found.truncate(wanted.len());
        assert_eq!(found, wanted, "{}", statement.text);
    }
}

#[test]
fn incomplete_text_is_told_from_complete_text() {
    for (text, incomplete) in [
        ("select 1", true),
        ("select 1;", false),
        ("select 'a;", true),
        ("", false),
        ("select 1; -- x", false),
        ("/* a", true),
    ] {
        assert_eq!(is_incomplete(text), incomplete, "{text}");
    }
}

#[test]
fn create_collection_becomes_a_create_command() {
    assert_eq!(
        document(
            "CREATE COLLECTION weather24h WITH (timeField = 'timestamp', metaField = 'sensor', granularity = 'hours') EXPIRE AFTER 24 HOURS"
        ),
        json!({"create": "weather24h", "timeseries": {"timeField": "timestamp", "metaField": "sensor", "granularity": "hours"}, "expireAfterSeconds": 86400})
    );
    assert_eq!(
        document("create collection if not exists \"My C\" with (time_field = t, capped = true)"),
        json!({"create": "My C", "capped": true, "timeseries": {"timeField": "t"}})
    );
    assert_eq!(document("CREATE COLLECTION c EXPIRE AFTER -1 DAY")["expireAfterSeconds"], json!(-86400));
    assert_eq!(document("CREATE COLLECTION c EXPIRE AFTER 1.5 HOURS")["expireAfterSeconds"], json!(5400.0));
}

#[test]
fn ttl_indexes_become_commands_with_filters() {
    assert_eq!(
        document("CREATE TTL INDEX nyc ON w (timestamp) EXPIRE AFTER 1 HOUR WHERE sensor = '40.7, -73.9'"),
        json!({"createIndexes": "w", "indexes": [{"key": {"timestamp": 1}, "name": "nyc", "expireAfterSeconds": 3600, "partialFilterExpression": {"sensor": "40.7, -73.9"}}]})
    );
    let filter = |sql: &str| {
        document(&format!("CREATE TTL INDEX i ON c (t) EXPIRE AFTER 1 DAY WHERE {sql}"))["indexes"][0]["partialFilterExpression"].clone()
    };
    assert_eq!(
        filter("s.site.floor >= 3 AND s.site.floor < 5"),
        json!({"$and": [{"s.site.floor": {"$gte": 3}}, {"s.site.floor": {"$lt": 5}}]})
    );
    assert_eq!(
        filter("(s = 1 OR s IN ('a', -2.5)) AND s IS NOT NULL"),
        json!({"$and": [{"$or": [{"s": 1}, {"s": {"$in": ["a", -2.5]}}]}, {"s": {"$exists": true}}]})
    );
    assert_eq!(filter("s IS NULL"), json!({"s": null}));
    assert_eq!(filter("s BETWEEN 1 AND 2"), json!({"s": {"$gte": 1, "$lte": 2}}));
    for negated in ["s <> 3", "NOT s = 3", "s NOT IN (3)", "(s = 1 OR s NOT BETWEEN 1 AND 2)"] {
        let text = message(&format!("CREATE TTL INDEX i ON c (t) EXPIRE AFTER 1 DAY WHERE {negated}"));
        assert!(text.contains("<> and NOT are not possible here"), "{negated}: {text}");
    }
    assert_eq!(document("DROP TTL INDEX i ON c"), json!({"dropIndexes": "c", "index": "i"}));
    assert_eq!(
        document("ALTER TTL INDEX i ON c EXPIRE AFTER 2 HOURS"),
        json!({"collMod": "c", "index": {"name": "i", "expireAfterSeconds": 7200}})
    );
}

#[test]
fn publications_become_commands() {
    assert_eq!(document("PUBLISH c TO 's3://b/c'"), json!({"publish": "c", "to": "s3://b/c"}));
    assert_eq!(
        document("publish c to 'file:///c' every 5 minutes"),
        json!({"publish": "c", "to": "file:///c", "everySeconds": 300})
    );
    assert_eq!(document("UNPUBLISH c"), json!({"unpublish": "c"}));
    assert_eq!(
        document("PUBLISH c RUNG 1 HOUR TO 'file:///c'"),
        json!({"publish": "c", "to": "file:///c", "rung": 3600})
    );
    assert_eq!(document("UNPUBLISH c RUNG 10 MINUTES"), json!({"unpublish": "c", "rung": 600}));
    assert!(message("PUBLISH c RUNG TO 'x'").contains("a length of time such as"));
    assert!(message("PUBLISH c 'x'").contains("expected TO"));
    assert!(message("PUBLISH c TO place").contains("the URL of a table in single quotes"));
    assert!(message("PUBLISH c TO 's3://b/c' HOURLY").contains("HOURLY"));
}

#[test]
fn alterations_become_coll_mod() {
    assert_eq!(document("ALTER COLLECTION c EXPIRE OFF"), json!({"collMod": "c", "expireAfterSeconds": "off"}));
    assert_eq!(
        document("ALTER COLLECTION c EXPIRE AFTER 1 DAY INTO 's3://b/c'"),
        json!({"collMod": "c", "expireAfterSeconds": 86400, "expireInto": "s3://b/c"})
    );
    assert_eq!(
        document("CREATE COLLECTION c WITH (timeField = 't') EXPIRE AFTER 1 DAY INTO 'file:///c'"),
        json!({"create": "c", "timeseries": {"timeField": "t"}, "expireAfterSeconds": 86400, "expireInto": "file:///c"})
    );
    assert_eq!(
        document("ALTER COLLECTION c EXPIRE AFTER 1 DAY INTO 's3://b/c' KEEP 2 DAYS"),
        json!({"collMod": "c", "expireAfterSeconds": 86400, "expireInto": "s3://b/c", "keepSeconds": 172_800})
    );
    assert_eq!(
        document("ALTER TTL INDEX i ON c EXPIRE AFTER 1 DAY INTO 's3://b/i' KEEP OFF"),
        json!({"collMod": "c",
               "index": {"name": "i", "expireAfterSeconds": 86400, "expireInto": "s3://b/i", "keepSeconds": "off"}})
    );
    let index = "CREATE TTL INDEX i ON c (t) EXPIRE AFTER 1 DAY INTO 's3://b/i' KEEP 2 DAYS WHERE m = 'a'";
    assert_eq!(
        document(index)["indexes"][0],
        json!({"key": {"t": 1}, "name": "i", "expireAfterSeconds": 86400, "expireInto": "s3://b/i",
               "keepSeconds": 172_800, "partialFilterExpression": {"m": "a"}})
    );
    assert!(
        message("ALTER COLLECTION c EXPIRE AFTER 1 DAY INTO place").contains("the URL of an archive in single quotes")
    );
    assert!(
        message("CREATE COLLECTION c WITH (expireInto = 'file:///a') EXPIRE AFTER 1 DAY INTO 'file:///b'")
            .contains("given twice")
    );
    assert_eq!(
        document("ALTER COLLECTION c EXPIRE AFTER 1 WEEK SET (granularity = 'hours', expiry = 'bucket')"),
        json!({"collMod": "c", "expireAfterSeconds": 604800, "timeseries": {"granularity": "hours", "expiry": "bucket"}})
    );
}

#[test]
fn collections_and_fields_are_renamed_dropped_and_copied() {
    assert_eq!(document("ALTER COLLECTION c RENAME TO \"D d\""), json!({"renameCollection": "c", "to": "D d"}));
    let alter = |text: &str| match one(text) {
        StatementKind::Alter { collection, change } => (collection, change),
        other => panic!("{text}: {other:?}"),
    };
    let rename = |from: &str, to: &str| Alteration::RenameField { from: from.to_owned(), to: to.to_owned() };
    for (text, change) in [
        ("ALTER COLLECTION c RENAME FIELD a TO b", rename("a", "b")),
        ("alter table c rename column a to b", rename("a", "b")),
        ("ALTER COLLECTION c RENAME a TO b", rename("a", "b")),
        ("ALTER COLLECTION c RENAME field TO b", rename("field", "b")),
        ("ALTER COLLECTION c RENAME \"to\" TO \"a b\"", rename("to", "a b")),
        ("ALTER COLLECTION c RENAME FIELD a.b TO c", rename("a.b", "c")),
        ("ALTER COLLECTION c DROP FIELD a", Alteration::DropField("a".to_owned())),
        ("ALTER COLLECTION c DROP a", Alteration::DropField("a".to_owned())),
        ("COPY COLLECTION c TO d", Alteration::Copy("d".to_owned())),
    ] {
        assert_eq!(alter(text), ("c".to_owned(), change), "{text}");
    }
    for (text, says) in [
        ("ALTER COLLECTION c RENAME TO", "expected the new name of c"),
        ("ALTER COLLECTION c RENAME FIELD a", "expected TO"),
        ("ALTER COLLECTION c DROP", "expected the name of a field"),
        ("ALTER COLLECTION c ADD COLUMN x", "fields need no declaration"),
        ("COPY COLLECTION c", "expected TO"),
        ("COPY COLLECTION c TO d e", "expected the end"),
    ] {
        assert!(message(text).contains(says), "{text}: {}", message(text));
    }
}

#[test]
fn retention_is_written_in_units_intervals_or_iso_8601() {
    for text in [
        "10 YEARS",
        "10 year",
        "10y",
        "3650d",
        "3650 days",
        "interval '3650 days'",
        "INTERVAL '10' YEAR",
        "INTERVAL 10 YEARS",
        "'10 years'",
        "P10Y",
        "'P3650D'",
        "315360000 SECONDS",
    ] {
        let expected = json!(315_360_000);
        for statement in ["CREATE COLLECTION c", "ALTER COLLECTION c"] {
            let made = document(&format!("{statement} EXPIRE AFTER {text}"));
            assert_eq!(made["expireAfterSeconds"], expected, "{statement} EXPIRE AFTER {text}");
        }
        let index = document(&format!("CREATE TTL INDEX i ON c (t) EXPIRE AFTER {text} WHERE s = 'a'"));
        assert_eq!(index["indexes"][0]["expireAfterSeconds"], expected, "{text}");
        if !text.starts_with('P') {
            let option = document(&format!("CREATE COLLECTION c WITH (timeField = 't', expireAfterSeconds = {text})"));
            assert_eq!(option["expireAfterSeconds"], expected, "{text}");
        }
    }
    assert!(message("ALTER COLLECTION c EXPIRE AFTER INTERVAL '1 month'").contains("no fixed length"));
    assert!(message("ALTER COLLECTION c EXPIRE AFTER soon").contains("expected a length of time such as 30 DAYS"));
    assert!(message("ALTER COLLECTION c EXPIRE AFTER 10 YEERS").contains("did you mean YEARS?"));
}

#[test]
fn listings_and_upkeep() {
    assert_eq!(one("show collections"), StatementKind::Show(Listing::Collections));
    assert_eq!(one("SHOW TTL FOR c"), StatementKind::Show(Listing::Ttl(Some("c".into()))));
    assert_eq!(one("SHOW TABLES"), StatementKind::Show(Listing::Tables));
    assert_eq!(one("COMPACT c"), StatementKind::Compact(Some("c".into())));
    assert_eq!(
        one("EXPLAIN EXPIRY FOR c AT '2026-12-31' WITH (expireAfterSeconds = 3600)"),
        StatementKind::ExplainExpiry {
            collection: "c".into(),
            at: Some("2026-12-31".into()),
            proposed: Map::from_iter([("expireAfterSeconds".to_owned(), json!(3600))]),
        }
    );
    assert_eq!(one("EXPLAIN SELECT 1"), StatementKind::Sql);
    assert_eq!(document("SET PARAMETER ttlMonitorSleepSecs = 5"), json!({"setParameter": 1, "ttlMonitorSleepSecs": 5}));
}

#[test]
fn mistakes_point_at_their_place_and_suggest_the_near_word() {
    let text = message("ALTER COLLECTION w EXPIRE AFTER 24 HUORS");
    assert!(text.contains("did you mean HOURS?") && text.contains("line 1, column 36"), "{text}");
    assert!(text.ends_with(&format!("\n  {}^", " ".repeat(35))), "{text}");
    let text = message("sweep;\n  CREATE COLECTION w");
    assert!(text.contains("did you mean COLLECTION?") && text.contains("line 2, column 10"), "{text}");
    assert!(message("CREATE COLLECTION w WITH (tiemField = 't')").contains("did you mean timeField?"));
    assert!(message("SHOW COLECTIONS").contains("did you mean COLLECTIONS?"));
    assert!(message("SWEEP now").contains("expected the end"));
    assert!(message("select 'abc").contains("line 1"));
    assert!(message("CREATE TTL INDEX i ON c (t) EXPIRE AFTER 1 DAY WHERE s = NULL").contains("IS NULL"));
    assert!(message("CREATE HOLD h ON c WHERE s = 'x'").contains("REASON is missing"));
    assert!(message("CREATE LADDER ON c (STEP '1 month' FOREVER)").contains("'1 month' is not a length of time"));
    for statement in ["CREATE COLLECTION c WITH (timeField = 't', foo = 1)", "ALTER COLLECTION c SET foo = 1"] {
        let text = message(statement);
        assert!(text.contains("unknown option 'foo'; a collection has timeField, metaField, granularity"), "{text}");
        assert!(!text.contains("capped"), "{text}");
    }
}
