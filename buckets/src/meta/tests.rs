use super::*;
use crate::schema::FieldType;
use crate::testing::{accept, any_double, any_int, any_value, date, exact, object, schema};
use ebbtide_ttl::Precision;
use proptest::prelude::*;

#[test]
fn a_key_ignores_member_order_nulls_and_kinds_of_numbers() {
    let a = object(&[("b", Value::Double(1.0)), ("a", object(&[("x", Value::Null)])), ("c", Value::Null)]);
    let b = object(&[("a", object(&[])), ("b", Value::Int(1))]);
    assert_eq!(MetaKey::of(&a), MetaKey::of(&b));
    assert_ne!(MetaKey::of(&object(&[])), MetaKey::of(&Value::Null));
    assert_eq!(MetaKey::of(&Value::Double(-0.0)), MetaKey::of(&Value::Int(0)));
    assert_eq!(MetaKey::of_str("a\0b"), MetaKey::of(&Value::from("a\0b")));
    assert_ne!(
        MetaKey::of(&Value::Array(vec![Value::Int(1), Value::Int(2)])),
        MetaKey::of(&Value::Array(vec![Value::Int(2), Value::Int(1)]))
    );
}

#[test]
fn damaged_bytes_are_refused() {
    let key =
        MetaKey::of(&object(&[("a", Value::Array(vec![Value::from("x"), Value::Int(i64::MAX)])), ("d", date(5))]));
    for len in 0..key.as_bytes().len() {
        assert!(MetaKey::from_bytes(&key.as_bytes()[..len]).is_err(), "{len}");
    }
    let mut longer = key.as_bytes().to_vec();
    longer.push(0);
    assert!(MetaKey::from_bytes(&longer).is_err());
    assert!(MetaKey::from_bytes(&[5; 100_000]).is_err());
    assert_eq!(MetaKey::from_bytes(key.as_bytes()), Ok(key));
}

#[test]
fn rows_of_a_column_share_keys() {
    let metas = [
        object(&[("a", Value::Double(0.0)), ("b", Value::from("x"))]),
        object(&[("b", Value::from("x")), ("a", Value::Double(-0.0))]),
        Value::Null,
        object(&[("a", Value::Double(f64::NAN))]),
        object(&[]),
        Value::Null,
    ];
    let docs: Vec<Value> = metas.iter().map(|m| object(&[("t", date(1)), ("m", m.clone())])).collect();
    let accepted = accept(&docs, &schema());
    let (keys, ids) = keys_of_column(accepted.batch.column_by_name("m"), docs.len());
    assert_eq!(ids, [0, 0, 1, 2, 3, 1]);
    assert_eq!(keys, [&metas[0], &Value::Null, &metas[3], &metas[4]].map(MetaKey::of));
    let back = column_of_keys(&keys, accepted.schema.meta_type.as_ref().unwrap(), Precision::Ms);
    assert_eq!(MetaKey::of(&value_at(&back, 2)), keys[2]);
    assert_eq!(keys_of_column(None, 2), (vec![MetaKey::of(&Value::Null)], vec![0, 0]));
    assert_eq!(keys_of_column(None, 0), (vec![], vec![]));
}

#[test]
fn text_and_number_metas_have_fast_paths_with_the_same_keys() {
    for metas in [[Value::from("b"), Value::Null, Value::from("b")], [Value::Int(7), Value::Null, Value::Int(7)]] {
        let docs: Vec<Value> = metas.iter().map(|m| object(&[("t", date(1)), ("m", m.clone())])).collect();
        let batch = accept(&docs, &schema()).batch;
        let (keys, ids) = keys_of_column(batch.column_by_name("m"), 3);
        assert_eq!((keys, ids), (vec![MetaKey::of(&metas[0]), MetaKey::of(&Value::Null)], vec![0, 1, 0]));
    }
}

#[test]
fn keys_survive_serde() {
    let key = MetaKey::of(&object(&[("a", Value::from("\0"))]));
    let bytes = postcard::to_stdvec(&key).unwrap();
    assert_eq!(postcard::from_bytes::<MetaKey>(&bytes).unwrap(), key);
    let _: FieldType = serde_json::from_str(r#"{"List":"Int64"}"#).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn keys_order_and_equal_as_normal_forms_do(a in any_value(), b in any_value()) {
        let (x, y) = (a.normalized(), b.normalized());
        prop_assert_eq!(MetaKey::of(&a).cmp(&MetaKey::of(&b)), x.cmp(&y));
        prop_assert_eq!(MetaKey::of(&a) == MetaKey::of(&b), x == y);
    }

    #[test]
    fn numbers_order_exactly(a in any_int(), b in any_double()) {
        let (a, b) = (Value::Int(a).normalized(), Value::Double(b).normalized());
        prop_assert_eq!(MetaKey::of(&a).cmp(&MetaKey::of(&b)), a.cmp(&b));
        prop_assert_eq!(exact(&MetaKey::of(&a).value()), exact(&a));
    }

    #[test]
    fn keys_decode_to_the_normal_form(a in any_value()) {
        let key = MetaKey::of(&a);
        prop_assert_eq!(exact(&key.value()), exact(&a.normalized()));
        prop_assert_eq!(MetaKey::from_bytes(key.as_bytes()), Ok(key));
    }

    #[test]
    fn any_bytes_decode_or_fail(bytes in prop::collection::vec(0u8..9, 0..30)) {
        if let Ok(key) = MetaKey::from_bytes(&bytes) {
            prop_assert_eq!(key.as_bytes(), &bytes[..]);
        }
    }
}
