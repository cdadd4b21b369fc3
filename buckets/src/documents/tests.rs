use super::*;
use crate::chunk::Chunk;
use crate::limits::{FIELDS_MAX, NESTING_MAX};
use crate::schema::FieldType;
use crate::testing::{accept, date, exact, object, rows, schema};
use arrow::datatypes::DataType;
use ebbtide_ttl::{Precision, Timestamp};

fn doc(fields: &[(&str, Value)]) -> Value {
    let mut all = vec![("t", date(1))];
    all.extend(fields.iter().cloned());
    object(&all)
}

#[track_caller]
fn refused(docs: &[Value], schema: &Schema) -> (usize, Code, String) {
    let error = batch_from_documents(docs, schema).unwrap_err();
    assert!(error.to_string().starts_with(&format!("index {}: ", error.index)), "{error}");
    (error.index, error.error.code, error.to_string())
}

#[test]
fn every_type_becomes_its_column() {
    let docs = [
        object(&[
            ("t", date(-1)),
            ("m", Value::from("s1")),
            ("b", Value::Bool(true)),
            ("i", Value::Int(i64::MIN)),
            ("d", Value::Double(-0.0)),
            ("s", Value::from("x")),
            ("at", date(7)),
            ("bin", Value::Binary(vec![0, 1])),
            ("l", Value::Array(vec![Value::Int(1), Value::Null, Value::Double(2.5)])),
            ("o", object(&[("x", Value::Int(1)), ("y", object(&[("z", Value::Bool(false))]))])),
        ]),
        object(&[("o", object(&[("w", Value::from("late"))])), ("t", date(5)), ("nothing", Value::Null)]),
    ];
    let accepted = accept(&docs, &schema());
    let names: Vec<&str> = accepted.schema.fields.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["b", "i", "d", "s", "at", "bin", "l", "o"]);
    assert_eq!(accepted.schema.meta_type, Some(FieldType::String));
    assert_eq!(accepted.batch.schema(), accepted.schema.arrow());
    assert_eq!(accepted.schema.field_type("l"), Some(&FieldType::List(Box::new(FieldType::Double))));
    assert_eq!(accepted.batch.column_by_name("s").unwrap().data_type(), &DataType::Utf8View);
    let back = rows(&accepted.batch);
    assert!(back[0].contains("d=Double(8000000000000000)") && back[0].contains("i=Int(-9223372036854775808)"));
    assert!(back[1].contains("late") && !back[1].contains("nothing"));
}

#[test]
fn the_time_must_be_a_date() {
    let (index, code, _) = refused(&[doc(&[]), object(&[("x", Value::Int(1))])], &schema());
    assert_eq!((index, code), (1, Code::BadValue));
    for bad in [Value::Null, Value::Int(5), Value::from("2020-01-01")] {
        let (index, code, message) = refused(&[object(&[("t", bad)])], &schema());
        assert_eq!((index, code), (0, Code::BadValue));
        assert!(message.contains("'t'"), "{message}");
    }
    assert_eq!(refused(&[Value::Int(1)], &schema()).1, Code::BadValue);
}

#[test]
fn times_are_floored_and_must_fit_the_precision() {
    let ns = |ns: i128| object(&[("t", Value::Date(Timestamp::from_nanos(ns)))]);
    let batch = accept(&[ns(-1), ns(1_999_999)], &schema()).batch;
    assert_eq!(rows(&batch), rows(&accept(&[object(&[("t", date(-1))]), object(&[("t", date(1))])], &schema()).batch));
    let fine = Schema { precision: Precision::Ns, ..schema() };
    let (index, code, _) = refused(&[ns(0), ns(i128::from(i64::MAX) + 1)], &fine);
    assert_eq!((index, code), (1, Code::BadValue));
    let (_, code, _) =
        refused(&[object(&[("t", date(0)), ("x", Value::Date(Timestamp::from_nanos(i128::MAX)))])], &schema());
    assert_eq!(code, Code::BadValue);
}

#[test]
fn numbers_widen_only_without_loss() {
    let int = accept(&[doc(&[("x", Value::Int(1))])], &schema()).schema;
    let whole = accept(&[doc(&[("x", Value::Double(3.0))])], &int);
    assert_eq!(whole.schema.field_type("x"), Some(&FieldType::Int64));
    assert!(rows(&whole.batch)[0].contains("x=Int(3)"));
    let wide = accept(&[doc(&[("x", Value::Int(2))]), doc(&[("x", Value::Double(2.5))])], &int);
    assert_eq!(wide.schema.field_type("x"), Some(&FieldType::Double));
    let odd = Value::Int((1 << 53) + 1);
    let (index, code, _) = refused(&[doc(&[("x", odd.clone())]), doc(&[("x", Value::Double(2.5))])], &int);
    assert_eq!((index, code), (1, Code::TypeMismatch));
    let (index, code, message) = refused(&[doc(&[]), doc(&[("x", odd)])], &wide.schema);
    assert_eq!((index, code), (1, Code::TypeMismatch));
    assert!(message.contains("'x' is double") && message.contains("int64"), "{message}");
}

#[test]
fn another_type_is_refused_at_every_depth() {
    let known = accept(
        &[doc(&[
            ("m", object(&[("site", Value::from("a"))])),
            ("x", Value::Int(1)),
            ("o", object(&[("l", Value::Array(vec![Value::Int(1)]))])),
        ])],
        &schema(),
    )
    .schema;
    let (index, code, message) = refused(&[doc(&[]), doc(&[("x", Value::from("a"))])], &known);
    assert_eq!((index, code), (1, Code::TypeMismatch));
    assert_eq!(message, "index 1: field 'x' is int64, the value is a string");
    let nested = doc(&[("o", object(&[("l", Value::Array(vec![Value::Bool(true)]))]))]);
    assert!(refused(&[nested], &known).2.contains("field 'o.l' is int64, the value is a bool"));
    let meta = doc(&[("m", object(&[("site", Value::Int(1))]))]);
    assert!(refused(&[meta], &known).2.contains("field 'm.site' is string, the value is an int64"));
    let mixed = doc(&[("new", Value::Array(vec![Value::Int(1), Value::from("a")]))]);
    assert_eq!(refused(&[mixed], &known).1, Code::TypeMismatch);
}

#[test]
fn lists_hold_scalars_only() {
    let inner = |v: Value| Value::Array(vec![Value::Null, v]);
    for (value, word) in [
        (inner(Value::Array(vec![])), "lists"),
        (inner(Value::Array(vec![Value::Int(1)])), "lists"),
        (inner(object(&[])), "objects"),
        (inner(object(&[("x", Value::Int(1))])), "objects"),
    ] {
        for name in ["l", "m"] {
            let (index, code, message) = refused(&[doc(&[]), doc(&[(name, value.clone())])], &schema());
            assert_eq!((index, code), (1, Code::TypeMismatch));
            assert!(message.contains(&format!("field '{name}'")) && message.contains(word), "{message}");
        }
        let (_, _, message) = refused(&[doc(&[("o", object(&[("l", value)]))])], &schema());
        assert!(message.contains("field 'o.l'"), "{message}");
    }
}

#[test]
fn an_empty_list_leaves_the_item_type_open() {
    let open = accept(&[doc(&[("l", Value::Array(vec![])), ("o", object(&[]))])], &schema());
    assert_eq!(open.schema.field_type("l"), Some(&FieldType::List(Box::new(FieldType::Unknown))));
    let docs = [doc(&[("l", Value::Array(vec![Value::from("a")])), ("o", object(&[("x", Value::Int(1))]))])];
    let known = accept(&docs, &open.schema);
    assert_eq!(known.schema.field_type("l"), Some(&FieldType::List(Box::new(FieldType::String))));
    let adapted = crate::adapt(&open.batch, &known.schema).unwrap();
    assert_eq!(rows(&adapted), rows(&open.batch));
    assert_eq!(open.schema.join(&known.schema).unwrap(), known.schema);
}

#[test]
fn names_depth_and_number_of_fields_are_limited() {
    assert_eq!(refused(&[doc(&[("", Value::Int(1))])], &schema()).1, Code::BadValue);
    assert_eq!(refused(&[doc(&[("a\0", Value::Null)])], &schema()).1, Code::BadValue);
    assert_eq!(refused(&[doc(&[("a", Value::Int(1)), ("a", Value::Int(1))])], &schema()).1, Code::BadValue);
    assert_eq!(refused(&[doc(&[("t", date(1))])], &schema()).1, Code::BadValue);
    let deep = |n| (0..n).fold(Value::Int(1), |v, _| object(&[("a", v)]));
    accept(&[doc(&[("x", deep(NESTING_MAX))])], &schema());
    assert_eq!(refused(&[doc(&[("x", deep(NESTING_MAX + 1))])], &schema()).1, Code::BadValue);
    let names: Vec<String> = (0..=FIELDS_MAX).map(|i| format!("f{i}")).collect();
    let many: Vec<(&str, Value)> = names.iter().map(|n| (n.as_str(), Value::Int(1))).collect();
    assert_eq!(refused(&[doc(&many)], &schema()).1, Code::BadValue);
    accept(&[doc(&many[1..])], &schema());
}

#[test]
fn no_documents_make_an_empty_batch() {
    let accepted = accept(&[], &schema());
    assert_eq!((accepted.batch.num_rows(), accepted.schema), (0, schema()));
}

#[test]
fn numbers_stand_in_their_rows_whatever_is_missing_and_whenever_they_turn_double() {
    let known = accept(&[doc(&[("k", Value::Int(1)), ("half", Value::Double(0.5))])], &schema()).schema;
    let docs = [
        doc(&[]),
        doc(&[("i", Value::Int(1))]),
        doc(&[("d", Value::Double(2.0)), ("i", Value::Null), ("half", Value::Int(3))]),
        doc(&[("i", Value::Double(4.0)), ("late", Value::Int(3)), ("k", Value::Double(-0.0))]),
        doc(&[("i", Value::Double(4.5)), ("word", Value::from("w"))]),
        doc(&[("i", Value::Int(7)), ("word", Value::Null)]),
        doc(&[]),
        doc(&[("late", Value::Double(-0.0))]),
        doc(&[("late", Value::Double(0.5))]),
    ];
    let accepted = accept(&docs, &known);
    let double = |d: f64| exact(&Value::Double(d));
    let t = exact(&date(1));
    let expected = [
        format!("t={t}"),
        format!("t={t} i={}", double(1.0)),
        format!("t={t} half={} d={}", double(3.0), double(2.0)),
        format!("t={t} k=Int(0) i={} late={}", double(4.0), double(3.0)),
        format!("t={t} i={} word=String(\"w\")", double(4.5)),
        format!("t={t} i={}", double(7.0)),
        format!("t={t}"),
        format!("t={t} late={}", double(-0.0)),
        format!("t={t} late={}", double(0.5)),
    ];
    assert_eq!(rows(&accepted.batch), expected);
    let nulls: Vec<usize> = accepted.batch.columns().iter().map(|column| column.null_count()).collect();
    assert_eq!(nulls, [0, 8, 8, 5, 8, 6, 8]);
}

/// A document whose meta is beside it.
#[derive(Clone, Copy)]
struct WithMeta<'a>(&'a Value, Option<&'a Value>);

impl<'a> Measurement<'a> for WithMeta<'a> {
    fn members(self) -> Result<impl Iterator<Item = Result<(&'a str, Cell<'a>), RuleError>>, RuleError> {
        self.0.members()
    }

    fn shared_meta(self) -> Option<&'a Value> {
        self.1
    }
}

#[test]
fn metas_that_documents_share_are_those_of_documents_of_their_own() {
    let metas = [
        object(&[("a", Value::from("x")), ("b", Value::Int(1))]),
        object(&[("b", Value::Double(1.5)), ("c", Value::Array(vec![Value::Int(1), Value::Int(2)]))]),
        object(&[("b", Value::Double(1.0)), ("a", Value::from("x"))]),
        object(&[]),
        Value::Null,
    ];
    let some = [Some(0), Some(1), None, Some(0), Some(2), Some(3), Some(4), Some(1), None];
    let plain: Vec<Value> = (0..some.len()).map(|at| doc(&[("v", Value::Int(at as i64))])).collect();
    for mixed in [false, true] {
        let mut rows: Vec<WithMeta<'_>> =
            plain.iter().zip(some).map(|(doc, at)| WithMeta(doc, at.map(|at| &metas[at]))).collect();
        let mut own: Vec<Value> = plain.clone();
        for (doc, at) in own.iter_mut().zip(some) {
            let Value::Object(members) = doc else { panic!() };
            members.extend(at.map(|at| ("m".into(), metas[at].clone())));
        }
        let last = doc(&[("m", metas[1].clone())]);
        if mixed {
            rows.push(WithMeta(&last, None));
            own.push(last.clone());
        }
        let shared = batch_from_measurements(&rows, &schema()).unwrap();
        let expected = accept(&own, &schema());
        assert_eq!((&shared.batch, &shared.schema), (&expected.batch, &expected.schema));
        assert_eq!(shared.meta_numbers.is_none(), mixed);
        let told =
            |chunk: Chunk| chunk.buckets.into_iter().map(|bucket| (bucket.id.meta, bucket.rows)).collect::<Vec<_>>();
        let numbered = Chunk::build_numbered(shared.batch, &shared.schema, 60, shared.meta_numbers.as_deref());
        assert_eq!(told(numbered), told(Chunk::build(expected.batch, &expected.schema, 60)));
    }
}

#[test]
fn what_is_wrong_with_a_shared_meta_is_told_of_its_first_document() {
    let (good, bad) = (object(&[("a", Value::from("x"))]), object(&[("a", Value::Int(1))]));
    let plain = doc(&[]);
    let of = |metas: &[&Value], schema: &Schema| {
        let rows: Vec<_> = metas.iter().map(|meta| WithMeta(&plain, Some(meta))).collect();
        batch_from_measurements(&rows, schema).unwrap_err()
    };
    let error = of(&[&good, &good, &bad, &bad], &schema());
    assert_eq!((error.index, error.error.code), (2, Code::TypeMismatch));
    let without = Schema::new("t", None, Precision::Ms);
    assert!(of(&[&good], &without).to_string().contains("no meta field"));
    let twice = doc(&[("m", good.clone())]);
    let error = batch_from_measurements(&[WithMeta(&twice, Some(&good))], &schema()).unwrap_err();
    assert!(error.to_string().contains("'m' is there twice"), "{error}");
}

/// On one thread.
fn alone<'a>(docs: &[impl Measurement<'a>], schema: &Schema) -> Accepted {
    convert::<BatchError>(docs, schema, |_| Ok(())).unwrap().0
}

/// Documents of several types, some with nulls, and one of three metas or none.
fn many(rows: i64) -> Vec<Value> {
    let row = |at: i64| {
        let mut all = vec![("t", date(at)), ("i", Value::Int(at % 100 - 50)), ("d", Value::Double(at as f64 / 8.0))];
        all.extend((at % 4 > 0).then(|| ("m", object(&[("host", Value::String(format!("h{}", at % 3)))]))));
        all.extend((at % 7 > 0).then(|| ("s", Value::String(format!("text {}, longer than a view holds", at % 50)))));
        all.extend((at % 5 > 0).then(|| ("l", Value::Array(vec![Value::Int(at), Value::Null]))));
        all.extend((at % 3 > 0).then(|| ("bin", Value::Binary(vec![1, (at % 200) as u8]))));
        all.extend((at % 2 > 0).then_some(("b", Value::Bool(at % 9 > 4))));
        all.push(("at", date(at * 7)));
        all.push(("o", object(&[("x", Value::Int(at)), ("y", object(&[("z", Value::Bool(at % 4 > 1))]))])));
        all.push(("none", Value::Array(vec![])));
        object(&all)
    };
    (0..rows).map(row).collect()
}

#[test]
fn many_documents_become_the_same_batch_on_several_threads() {
    let docs = many(20_000);
    let first = accept(&docs[..100], &schema());
    assert!(parts::in_parts(&docs[..100].iter().collect::<Vec<_>>(), &first.schema).is_none());
    let all: Vec<&Value> = docs.iter().collect();
    let parted = parts::in_parts(&all, &first.schema);
    assert_eq!(parted.is_some(), crate::cores() > 1);
    let whole = alone(&all, &first.schema);
    let accepted = batch_from_documents(&docs, &first.schema).unwrap();
    assert_eq!(accepted.schema, first.schema);
    assert_eq!(accepted.batch, whole.batch);
    // What extends the schema, or is refused, is so as it is on one thread.
    let mut wider = docs.clone();
    wider[15_000] = doc(&[("new", Value::Bool(true))]);
    assert_eq!(batch_from_documents(&wider, &first.schema).unwrap().schema.fields.len(), first.schema.fields.len() + 1);
    let mut bad = docs;
    bad[15_001] = doc(&[("i", Value::from("text"))]);
    bad[19_000] = Value::Int(1);
    assert_eq!(refused(&bad, &first.schema).0, 15_001);
    // Names count also where all of their values are null.
    let names: Vec<String> = (0..FIELDS_MAX + 2_000).map(|n| format!("n{n}")).collect();
    let nulls: Vec<Value> = names.iter().map(|name| doc(&[("i", Value::Int(1)), (name, Value::Null)])).collect();
    let error = convert::<BatchError>(&nulls.iter().collect::<Vec<_>>(), &first.schema, |_| Ok(())).err().unwrap();
    assert_eq!(batch_from_documents(&nulls, &first.schema).unwrap_err(), error);
    assert!(error.to_string().contains("fields"), "{error}");
}

#[test]
fn numbers_of_shared_metas_differ_where_the_metas_do_on_several_threads_too() {
    let metas: Vec<Value> = (0..5).map(|n| Value::String(format!("series {n}"))).collect();
    let docs: Vec<Value> = (0..12_000).map(|at| doc(&[("x", Value::Int(at % 9))])).collect();
    // The second half has series that the first half lacks; some documents have none.
    let meta = |at: usize| (!at.is_multiple_of(6)).then(|| &metas[at % 2 + if at < 6_000 { 0 } else { at % 4 }]);
    let all: Vec<WithMeta<'_>> = docs.iter().enumerate().map(|(at, doc)| WithMeta(doc, meta(at))).collect();
    let known = batch_from_measurements(&all[..10], &schema()).unwrap().schema;
    let whole = alone(&all, &known);
    let accepted = batch_from_measurements(&all, &known).unwrap();
    assert_eq!(accepted.batch, whole.batch);
    let numbers = accepted.meta_numbers.unwrap();
    let mut meta_of = std::collections::HashMap::new();
    for (at, number) in numbers.iter().enumerate() {
        let same = meta_of.entry(*number).or_insert_with(|| all[at].1);
        assert_eq!(*same, all[at].1, "row {at}");
        assert_eq!(*number == u32::MAX, all[at].1.is_none(), "row {at}");
    }
}
