//! The views beside a published table.

use crate::world::{HOUR, World, at};
use ebbtide::CollectionOptions;
use ebbtide::ttl::{Filter, RuleSpec, Value};
use ebbtide_lake::sim::SimStore;

/// The text of each view of a table, of a collection of this name with a rule.
fn views(name: &str, filter: Filter) -> [String; 3] {
    let world = World::new(SimStore::new(1, 0));
    let db = world.open();
    let c = db.create_collection(name, CollectionOptions::new("t").meta_field("sensor")).unwrap();
    let tags = Value::Array(vec![Value::from("x")]);
    let sensor = Value::Object(vec![("tags".into(), tags), ("site".into(), Value::from("x"))]);
    let members = vec![("t".into(), Value::Date(at(0))), ("sensor".into(), sensor), ("v".into(), Value::Int(1))];
    c.insert_documents(&[Value::Object(members)]).unwrap();
    db.create_rules(name, vec![RuleSpec::new("short", HOUR, filter)]).unwrap();
    db.publish(name, "s3://sim/table", 60).unwrap();
    ["duckdb", "spark", "clickhouse"].map(|program| {
        let content = world.store.content(&format!("view.{program}.sql")).unwrap();
        String::from_utf8(content.to_vec()).unwrap()
    })
}

#[test]
fn a_rule_about_lists_has_no_view() {
    let (x, null) = (Value::from("x"), Value::Null);
    for (path, value, has_view) in [
        ("sensor.site", &x, true),
        ("sensor.site", &null, true),
        ("sensor.none.0", &x, true),
        ("sensor.tags", &x, false),
        ("sensor.tags", &null, false),
        ("sensor.tags.0", &x, false),
    ] {
        for text in views("weather", Filter::eq(path, value.clone())) {
            assert_eq!(text.contains("CREATE OR REPLACE VIEW"), has_view, "{path} {value:?}: {text}");
        }
    }
}

#[test]
fn names_in_views_are_quoted_as_each_program_reads_them() {
    let names = [r#"VIEW "a\`b" AS"#, r"VIEW `a\``b` AS", r"VIEW `a\\``b` AS"];
    for (text, name) in views(r"a\`b", Filter::eq("sensor.site", Value::from("x"))).iter().zip(names) {
        assert!(text.contains(name), "{name}: {text}");
    }
}
