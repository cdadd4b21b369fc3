use super::*;
use crate::testing::{accept, date, object, schema};
use ebbtide_ttl::Value;

#[test]
fn widened_fields_are_found_at_every_depth_and_their_ints_too() {
    let doc = |x: Value| {
        let list = Value::Array(vec![x.clone(), x.clone()]);
        object(&[("t", date(1)), ("o", object(&[("x", x), ("l", list)])), ("same", Value::Int(1))])
    };
    let old = accept(&[doc(Value::Int(5))], &schema());
    let new = accept(&[doc(Value::Double(0.5))], &old.schema).schema;
    let paths = widened_fields(&old.schema, &new);
    assert_eq!(paths, ["o\0x", "o\0l"]);
    let column = old.batch.column_by_name("o").unwrap();
    assert_eq!(ints_at(column, &paths[0]), [5]);
    assert_eq!(ints_at(column, &paths[1]), [5, 5]);
}
