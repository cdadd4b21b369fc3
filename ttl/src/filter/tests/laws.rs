//! Laws of filters, against an evaluator that reads the filter's document itself and knows no normal form.

use super::*;
use proptest::prelude::*;

/// Whether a document matches, word for word as the contract has it.
fn naive(filter: &Value, document: &Value) -> bool {
    let Value::Object(members) = filter else { panic!("a filter is an object") };
    let all = |clauses: &Value| -> Vec<bool> {
        let Value::Array(clauses) = clauses else { panic!("clauses are a list") };
        clauses.iter().map(|clause| naive(clause, document)).collect()
    };
    members.iter().all(|(name, value)| match name.as_str() {
        "$and" => all(value).into_iter().all(|b| b),
        "$or" => all(value).into_iter().any(|b| b),
        "$nor" => !all(value).into_iter().any(|b| b),
        path => {
            let path: Vec<_> = path.split('.').collect();
            let mut values = values_at(&document.normalized(), &path);
            if values.is_empty() {
                values.push(Value::Null);
            }
            field_holds(value, &values)
        }
    })
}

fn values_at(value: &Value, path: &[&str]) -> Vec<Value> {
    match (path, value) {
        ([], Value::Array(items)) => [vec![value.clone()], items.clone()].concat(),
        ([], _) => vec![value.clone()],
        ([name, rest @ ..], Value::Object(_)) => values_at(value.get(name).unwrap_or(&Value::Null), rest),
        ([name, rest @ ..], Value::Array(items)) => {
            let objects = items.iter().filter(|item| item.class() == TypeClass::Object);
            let below = objects.flat_map(|item| values_at(item, path));
            let numbered = name.parse().ok().and_then(|index: usize| items.get(index));
            let numbered = match numbered {
                Some(element) if rest.is_empty() => vec![element.clone()],
                Some(element @ (Value::Object(_) | Value::Array(_))) => values_at(element, rest),
                _ => Vec::new(),
            };
            below.chain(numbered).collect()
        }
        _ => vec![Value::Null],
    }
}

fn field_holds(wanted: &Value, values: &[Value]) -> bool {
    match wanted {
        Value::Object(operators) if operators.iter().any(|(name, _)| name.starts_with('$')) => {
            operators.iter().all(|(name, operand)| operator_holds(name, operand, values))
        }
        constant => operator_holds("$eq", constant, values),
    }
}

fn operator_holds(name: &str, operand: &Value, values: &[Value]) -> bool {
    let any = |test: &dyn Fn(&Value) -> bool| values.iter().any(test);
    let list = || if let Value::Array(list) = operand { list.clone() } else { panic!("a list") };
    match name {
        "$eq" => any(&|v| *v == operand.normalized()),
        "$ne" => !operator_holds("$eq", operand, values),
        "$in" => list().iter().any(|one| operator_holds("$eq", one, values)),
        "$nin" => !operator_holds("$in", operand, values),
        "$gt" => any(&|v| less(operand, v)),
        "$lt" => any(&|v| less(v, operand)),
        "$gte" => any(&|v| less(operand, v) || *v == *operand),
        "$lte" => any(&|v| less(v, operand) || *v == *operand),
        "$not" => !field_holds(operand, values),
        "$exists" => values.iter().any(|v| !v.is_null()) == (*operand == Value::Bool(true)),
        "$type" => any(&|v| Value::from(v.class().name()) == *operand),
        other => panic!("unknown operator {other}"),
    }
}

/// Strictly less, within one class; the numbers here are small, so a double is exact.
fn less(a: &Value, b: &Value) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
    let number = |v: &Value| match v {
        Value::Int(i) => Some(*i as f64),
        Value::Double(d) => Some(*d),
        _ => None,
    };
    match (a, b) {
        (Value::String(a), Value::String(b)) => a < b,
        (Value::Bool(a), Value::Bool(b)) => !a & b,
        (Value::Date(a), Value::Date(b)) => a < b,
        (Value::Binary(a), Value::Binary(b)) => a < b,
        _ => number(a).zip(number(b)).is_some_and(|(a, b)| a < b),
    }
}

fn scalars() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => (-2_i64..4).prop_map(Value::Int),
        2 => prop::sample::select(vec![0.5, -0.0, 1.0, 2.0, f64::NAN, f64::INFINITY]).prop_map(Value::Double),
        2 => prop::sample::select(vec!["", "a", "b"]).prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => (0_i64..3).prop_map(|ms| Value::Date(Timestamp::from_millis(ms))),
        1 => prop::collection::vec(0_u8..2, 0..2).prop_map(Value::Binary),
    ]
}

fn named(max: usize, of: impl Strategy<Value = Value> + Clone) -> impl Strategy<Value = Value> {
    prop::sample::subsequence(vec!["a", "b", "0"], 0..=max).prop_shuffle().prop_flat_map(move |names| {
        let values = prop::collection::vec(of.clone(), names.len());
        (Just(names), values)
            .prop_map(|(names, values)| Value::Object(names.into_iter().map(crate::Name::from).zip(values).collect()))
    })
}

fn values() -> impl Strategy<Value = Value> + Clone {
    let leaf = prop_oneof![1 => Just(Value::Null), 5 => scalars()];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array), named(3, inner)]
    })
    .boxed()
}

fn object(name: &str, value: Value) -> Value {
    Value::Object(vec![(name.into(), value)])
}

/// Conditions of one field that partial filters have too.
fn operands() -> impl Strategy<Value = Value> + Clone {
    let compare = (prop::sample::select(vec!["$gt", "$gte", "$lt", "$lte"]), scalars());
    let types = prop::sample::select(vec!["number", "string", "bool", "date", "object", "array", "binData"]);
    prop_oneof![
        2 => values(),
        1 => values().prop_map(|v| object("$eq", v)),
        2 => prop::collection::vec(values(), 0..4).prop_map(|list| object("$in", Value::Array(list))),
        3 => compare.prop_map(|(operator, bound)| object(operator, bound)),
        1 => (scalars(), scalars()).prop_map(|(a, b)| Value::Object(vec![("$gt".into(), a), ("$lt".into(), b)])),
        1 => Just(object("$exists", Value::Bool(true))),
        1 => types.prop_map(|name| object("$type", Value::from(name))),
    ]
    .boxed()
}

fn filters(fields: &'static [&'static str], with_negation: bool) -> impl Strategy<Value = Value> + Clone {
    let path = prop::sample::select(fields.to_vec());
    let positive = (path.clone(), operands()).prop_map(|(path, operand)| object(path, operand)).boxed();
    let leaf = if with_negation {
        let negative = prop_oneof![
            values().prop_map(|v| object("$ne", v)),
            prop::collection::vec(values(), 0..4).prop_map(|list| object("$nin", Value::Array(list))),
            Just(object("$exists", Value::Bool(false))),
            scalars().prop_map(|v| object("$not", object("$gt", v))),
        ];
        prop_oneof![3 => positive, 1 => (path, negative).prop_map(|(path, operand)| object(path, operand))].boxed()
    } else {
        positive
    };
    let words = if with_negation { vec!["$and", "$or", "$nor"] } else { vec!["$and", "$or"] };
    leaf.prop_recursive(3, 12, 3, move |inner| {
        let clauses = prop::collection::vec(inner.clone(), 1..4);
        let implicit = (inner.clone(), inner).prop_map(|(a, b)| match (a, b) {
            (Value::Object(mut a), Value::Object(b)) => {
                let more: Vec<_> = b.into_iter().filter(|(name, _)| a.iter().all(|(n, _)| n != name)).collect();
                a.extend(more);
                Value::Object(a)
            }
            (a, _) => a,
        });
        prop_oneof![
            3 => (prop::sample::select(words.clone()), clauses).prop_map(|(word, list)| object(word, Value::Array(list))),
            1 => implicit,
        ]
    })
    .boxed()
}

const META: &[&str] = &["m", "m.a", "m.b", "m.a.b", "m.0", "m.a.1", "m.0.a"];
const ANY: &[&str] = &["m", "m.a", "m.a.b", "m.a.0", "v", "v.1", "w"];

/// Another way to write the same filter, chosen by `bits`.
fn rewritten(filter: &Value, bits: &mut dyn FnMut() -> bool) -> Value {
    let Value::Object(members) = filter else { return filter.clone() };
    let mut members: Vec<(crate::Name, Value)> = members
        .iter()
        .map(|(name, value)| match value {
            Value::Array(clauses) if name == "$and" || name == "$or" => {
                let mut clauses: Vec<_> = clauses.iter().map(|clause| rewritten(clause, bits)).collect();
                if bits() {
                    clauses.reverse();
                }
                if bits() {
                    clauses.push(clauses[0].clone());
                }
                (name.clone(), Value::Array(clauses))
            }
            Value::Object(operators) if operators.iter().any(|(n, _)| n.starts_with('$')) => {
                let mut operators = operators.clone();
                if bits() {
                    operators.reverse();
                }
                for (operator, list) in &mut operators {
                    if let (true, Value::Array(list)) = (operator == "$in" && bits(), list) {
                        list.reverse();
                        list.extend(list.first().cloned());
                    }
                }
                (name.clone(), Value::Object(operators))
            }
            constant if bits() => (name.clone(), object("$eq", constant.normalized())),
            constant => (name.clone(), constant.clone()),
        })
        .collect();
    if bits() {
        members.reverse();
    }
    if bits() {
        let apart = members.into_iter().map(|(name, value)| object(&name, value)).collect();
        return object("$and", Value::Array(apart));
    }
    let same = Value::Object(members);
    if bits() { object("$or", Value::Array(vec![same])) } else { same }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn partial_filters_match_as_the_naive_evaluator_says(
        filter in filters(META, false), metas in prop::collection::vec(values(), 1..8),
    ) {
        let parsed = Filter::parse_partial(&filter, Some("m")).unwrap();
        for meta in metas {
            let expected = naive(&filter, &object("m", meta.clone()));
            prop_assert_eq!(parsed.matches_meta(&meta), expected, "{} on {:?}", parsed, meta);
            prop_assert_eq!(parsed.matches_meta(&meta.normalized()), expected);
        }
    }

    #[test]
    fn queries_match_as_the_naive_evaluator_says(
        filter in filters(ANY, true), rows in prop::collection::vec((values(), values(), scalars()), 1..6),
    ) {
        let parsed = Filter::parse_query(&filter).unwrap();
        for (m, v, w) in rows {
            let document = Value::Object(vec![("m".into(), m.clone()), ("v".into(), v), ("w".into(), w)]);
            let expected = naive(&filter, &document);
            prop_assert_eq!(parsed.matches_document(&document), expected, "{} on {:?}", parsed, document);
            prop_assert_eq!(Filter::negate(parsed.clone()).matches_document(&document), !expected);
            // What the part on the meta alone does not match, the whole does not match.
            prop_assert!(!expected || parsed.meta_part("m").matches_meta(&m));
            for (path, values) in parsed.candidates("m") {
                let path = [vec!["m".to_owned()], path].concat().join(".");
                let has = |value: &Value| Filter::eq(&path, value.clone()).matches_document(&document);
                prop_assert!(!expected || values.iter().any(has));
            }
            prop_assert_eq!(parsed.conjuncts().iter().all(|part| part.matches_document(&document)), expected);
        }
    }

    #[test]
    fn rewriting_a_filter_keeps_its_identity_and_what_it_matches(
        filter in filters(META, false), seed: u64, metas in prop::collection::vec(values(), 1..8),
    ) {
        let mut state = seed | 1;
        let other = rewritten(&filter, &mut || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 63 == 1
        });
        let a = Filter::parse_partial(&filter, Some("m")).unwrap();
        let b = Filter::parse_partial(&other, Some("m")).unwrap();
        prop_assert_eq!(&a, &b);
        for meta in metas {
            prop_assert_eq!(a.matches_meta(&meta), b.matches_meta(&meta));
        }
    }

    #[test]
    fn the_written_normal_form_reads_as_the_same_filter(filter in filters(ANY, true)) {
        let parsed = Filter::parse_query(&filter).unwrap();
        let again = Filter::parse_query(&parsed.to_value()).unwrap();
        prop_assert_eq!(&again, &parsed);
        prop_assert!(*parsed.normalized().source() == parsed.to_value());
    }

    /// Any pair of small filters: where their normal forms agree, so do their matches.
    #[test]
    fn equal_filters_match_the_same_metas(
        a in filters(&["m"], false), b in filters(&["m"], false), metas in prop::collection::vec(values(), 1..8),
    ) {
        let a = Filter::parse_partial(&a, Some("m")).unwrap();
        let b = Filter::parse_partial(&b, Some("m")).unwrap();
        for meta in metas {
            prop_assert!(a != b || a.matches_meta(&meta) == b.matches_meta(&meta));
        }
    }

    #[test]
    fn time_bounds_never_exclude_a_match(
        parts in prop::collection::vec((0_usize..5, 0_i64..6, any::<bool>()), 1..6), any_of: bool, t in 0_i64..6,
    ) {
        let parts = parts.into_iter().map(|(kind, ms, negated)| {
            let date = Value::Date(Timestamp::from_millis(ms));
            let comparisons = [Comparison::Gt, Comparison::Gte, Comparison::Lt, Comparison::Lte];
            let part = match comparisons.get(kind) {
                Some(comparison) => Filter::compare("t", *comparison, date),
                None => Filter::eq("t", date),
            };
            if negated { Filter::negate(part) } else { part }
        }).collect();
        let filter = if any_of { Filter::or(parts) } else { Filter::and(parts) };
        let time = Timestamp::from_millis(t);
        if filter.matches_document(&object("t", Value::Date(time))) {
            let (min, max) = filter.time_bounds("t");
            prop_assert!(min.is_none_or(|min| min <= time) && max.is_none_or(|max| time <= max));
        }
    }
}
