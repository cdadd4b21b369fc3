use super::*;
use proptest::prelude::*;

fn doc(text: &str) -> Value {
    crate::value::from_json(text)
}

fn spec(text: &str) -> Result<RuleSpec, Code> {
    RuleSpec::parse(&doc(text), "t", Some("m")).map_err(|e| e.code)
}

fn make(set: &mut RuleSet, specs: &[&str]) -> Result<(usize, usize), Code> {
    let specs = specs.iter().map(|text| spec(text).unwrap()).collect();
    set.create(specs).map(|c| (c.before, c.after)).map_err(|e| e.code)
}

const BASE: &str = r#"{"key": {"t": 1}, "expireAfterSeconds": 400, "partialFilterExpression": {"m": {"$gt": 5}}}"#;

#[test]
fn each_mistake_has_its_code() {
    let code = |text: &str| spec(text).unwrap_err();
    let filter = r#""partialFilterExpression": {"m": {"$gt": 5}}"#;
    assert_eq!(code(r#"{"key": {"t": 1}, "expireAfterSeconds": 400}"#), Code::InvalidOptions);
    assert_eq!(code(&format!(r#"{{"key": {{"m": 1}}, "expireAfterSeconds": 400, {filter}}}"#)), Code::InvalidOptions);
    assert_eq!(code(&format!(r#"{{"key": {{"v": 1}}, "expireAfterSeconds": 400, {filter}}}"#)), Code::InvalidOptions);
    let compound = format!(r#"{{"key": {{"t": 1, "m": 1}}, "expireAfterSeconds": 400, {filter}}}"#);
    assert_eq!(code(&compound), Code::CannotCreateIndex);
    assert_eq!(code(&format!(r#"{{"key": {{"t": 1}}, {filter}}}"#)), Code::InvalidOptions);
    for e in ["-1", "2147483648", "0.5", "\"60\"", "null", "{\"$numberDouble\": \"NaN\"}"] {
        let text = format!(r#"{{"key": {{"t": 1}}, "expireAfterSeconds": {e}, {filter}}}"#);
        assert_eq!(code(&text), Code::CannotCreateIndex, "{e}");
    }
    for key in ["2", "0", "\"text\"", "true", "-1.5"] {
        let text = format!(r#"{{"key": {{"t": {key}}}, "expireAfterSeconds": 4, {filter}}}"#);
        assert_eq!(code(&text), Code::CannotCreateIndex, "{key}");
    }
    for option in ["unique", "sparse", "collation"] {
        let text = format!(r#"{{"key": {{"t": 1}}, "expireAfterSeconds": 4, {filter}, "{option}": true}}"#);
        assert_eq!(code(&text), Code::InvalidOptions, "{option}");
    }
    let unknown = format!(r#"{{"key": {{"t": 1}}, "expireAfterSeconds": 4, {filter}, "hidden": true}}"#);
    assert_eq!(code(&unknown), Code::IDLUnknownField);
    assert_eq!(code(r#"{"expireAfterSeconds": 4}"#), Code::IDLFailedToParse);
    assert_eq!(code("5"), Code::TypeMismatch);
    let bare = |filter: &str| {
        code(&format!(r#"{{"key": {{"t": 1}}, "expireAfterSeconds": 4, "partialFilterExpression": {filter}}}"#))
    };
    assert_eq!(bare("null"), Code::TypeMismatch);
    assert_eq!(bare("{}"), Code::InvalidOptions);
    let error = RuleSpec::parse(&doc(BASE), "t", None).unwrap_err();
    assert_eq!(error.code, Code::InvalidOptions);
}

#[test]
fn an_index_that_expires_nothing_is_refused_in_its_own_words() {
    let error = |text: &str| RuleSpec::parse(&doc(text), "t", Some("m")).unwrap_err();
    for (key, code) in [
        (r#"{"m.room": 1, "t": -1}"#, Code::CannotCreateIndex),
        (r#"{"m": 1}"#, Code::InvalidOptions),
        (r#"{"t": -1}"#, Code::InvalidOptions),
    ] {
        let error = error(&format!(r#"{{"key": {key}, "name": "k"}}"#));
        assert_eq!(error.code, code, "{key}");
        assert!(error.message.contains("found without an index"), "{error}");
    }
    let expires = error(r#"{"key": {"m": 1}, "expireAfterSeconds": 4}"#);
    assert!(expires.message.contains("must be the time field 't'"), "{expires}");
}

#[test]
fn seconds_are_whole_numbers_by_value() {
    use ExpireAfterContext::{CollMod, CollModIndex, Create, CreateIndexes};
    let code = |value: Value, context| parse_expire_after(&value, context).map_err(|e| e.code);
    for context in [Create, CollMod, CreateIndexes, CollModIndex] {
        assert_eq!(code(Value::Int(0), context), Ok(0));
        assert_eq!(code(Value::Double(60.0), context), Ok(60));
        assert_eq!(code(Value::Int(2_147_483_647), context), Ok(2_147_483_647));
        let wrong = if context == CreateIndexes { Code::CannotCreateIndex } else { Code::InvalidOptions };
        let bad = [2_147_483_648.0, -1.0, -0.5, 0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 4.6e18];
        for number in bad {
            assert_eq!(code(Value::Double(number), context), Err(wrong), "{number}");
        }
        assert_eq!(code(Value::Int(2_147_483_648), context), Err(wrong));
        assert_eq!(code(Value::Int(-10), context), Err(wrong));
    }
    assert_eq!(code(Value::from(""), Create), Err(Code::TypeMismatch));
    assert_eq!(code(Value::from("60"), CollModIndex), Err(Code::TypeMismatch));
    assert_eq!(code(Value::from("60"), CreateIndexes), Err(Code::CannotCreateIndex));
    let off = |value: Value| parse_expire_after_or_off(&value).map_err(|e| e.code);
    assert_eq!(off(Value::from("off")), Ok(None));
    assert_eq!(off(Value::from("OFF")), Err(Code::InvalidOptions));
    assert_eq!(off(Value::Int(5)), Ok(Some(5)));
    assert_eq!(off(doc("{}")), Err(Code::TypeMismatch));
    assert_eq!(off(Value::Null), Err(Code::TypeMismatch));
}

#[test]
fn the_same_index_again_changes_nothing() {
    let mut set = RuleSet::default();
    assert_eq!(make(&mut set, &[BASE]), Ok((0, 1)));
    let before = set.clone();
    assert_eq!(make(&mut set, &[BASE]), Ok((1, 1)));
    assert_eq!(set, before);
    assert_eq!(set.partial()[0].name, "t_1");
    let spelt_otherwise = r#"{"key": {"t": 1.0}, "name": "t_1", "expireAfterSeconds": 400.0,
        "partialFilterExpression": {"$and": [{"m": {"$gt": 5.0}}]}}"#;
    assert_eq!(make(&mut set, &[spelt_otherwise]), Ok((1, 1)));
    assert_eq!(set.partial()[0].filter.source(), &doc(r#"{"m": {"$gt": 5}}"#));
}

#[test]
fn conflicts_leave_the_set_as_it_was() {
    let mut set = RuleSet::new(Some(10_000));
    make(&mut set, &[BASE]).unwrap();
    let before = set.clone();
    let other_e = BASE.replace("400", "401");
    let other_name = BASE.replace(r#""key""#, r#""name": "n", "key""#);
    let other_filter = BASE.replace("$gt", "$lt");
    let other_direction = BASE.replace(r#""t": 1"#, r#""t": -1"#);
    assert_eq!(make(&mut set, &[&other_e]), Err(Code::IndexOptionsConflict));
    assert_eq!(make(&mut set, &[&other_name]), Err(Code::IndexOptionsConflict));
    assert_eq!(make(&mut set, &[&other_filter]), Err(Code::IndexKeySpecsConflict));
    // All or none: a good one before the bad one goes too, and specs of one command conflict with each other.
    assert_eq!(make(&mut set, &[&other_direction, &other_e]), Err(Code::IndexOptionsConflict));
    let twice = other_direction.replace("400", "7");
    assert_eq!(make(&mut set, &[&other_direction, &twice]), Err(Code::IndexOptionsConflict));
    assert_eq!(set, before);
    assert_eq!(make(&mut set, &[&other_direction]), Ok((1, 2)));
    assert_eq!(set.partial()[1].name, "t_-1");
}

#[test]
fn seconds_change_in_place_by_name_or_key() {
    let mut set = RuleSet::default();
    let b = r#"{"key": {"t": 1}, "name": "b", "expireAfterSeconds": 5, "partialFilterExpression": {"m": "b"}}"#;
    let down = r#"{"key": {"t": -1}, "name": "d", "expireAfterSeconds": 5, "partialFilterExpression": {"m": "b"}}"#;
    make(&mut set, &[BASE, b, down]).unwrap();
    let mut change = |text: &str| {
        let change = RuleChange::parse(&doc(text), "t").map_err(|e| e.code)?;
        set.modify(&change.selector, change.expire_after_seconds.unwrap_or(-1)).map_err(|e| e.code)
    };
    assert_eq!(change(r#"{"name": "b", "expireAfterSeconds": 6}"#), Ok(5));
    assert_eq!(change(r#"{"name": "b", "expireAfterSeconds": 7}"#), Ok(6));
    assert_eq!(change(r#"{"keyPattern": {"t": -1}, "expireAfterSeconds": 8}"#), Ok(5));
    let ambiguous = change(r#"{"keyPattern": {"t": 1}, "expireAfterSeconds": 8}"#);
    assert_eq!(ambiguous, Err(Code::AmbiguousIndexKeyPattern));
    assert_eq!(change(r#"{"keyPattern": {"x": 1}, "expireAfterSeconds": 8}"#), Err(Code::IndexNotFound));
    assert_eq!(change(r#"{"name": "x", "expireAfterSeconds": 8}"#), Err(Code::IndexNotFound));
    assert_eq!(change(r#"{"name": "b", "expireAfterSeconds": "3600"}"#), Err(Code::TypeMismatch));
    assert_eq!(change(r#"{"name": "b", "expireAfterSeconds": -1}"#), Err(Code::InvalidOptions));
    assert_eq!(change(r#"{"name": "b", "keyPattern": {"t": 1}, "expireAfterSeconds": 1}"#), Err(Code::InvalidOptions));
    assert_eq!(change(r#"{"expireAfterSeconds": 1}"#), Err(Code::InvalidOptions));
    assert_eq!(change(r#"{"name": 5, "expireAfterSeconds": 1}"#), Err(Code::TypeMismatch));
    assert_eq!(change(r#"{"name": "b", "expireAfterSeconds": 1, "hidden": 1}"#), Err(Code::IDLUnknownField));
    assert_eq!(set.find(Some("b")).unwrap().expire_after_seconds, 7);
}

#[test]
fn drops_are_all_or_none() {
    let mut set = RuleSet::new(Some(1));
    let b = r#"{"key": {"t": 1}, "name": "b", "expireAfterSeconds": 5, "partialFilterExpression": {"m": "b"}}"#;
    make(&mut set, &[BASE, b]).unwrap();
    let named = |name: &str| RuleSelector::Name(name.to_owned());
    assert_eq!(set.drop_rules(&[named("b"), named("x")]).unwrap_err().code, Code::IndexNotFound);
    assert_eq!(set.partial().len(), 2);
    let by_key = RuleSelector::parse(&doc(r#"{"t": 1}"#), "t").unwrap();
    assert_eq!(set.drop_rules(std::slice::from_ref(&by_key)).unwrap_err().code, Code::AmbiguousIndexKeyPattern);
    assert_eq!(set.drop_rules(&[named("b"), by_key]).unwrap().len(), 2);
    make(&mut set, &[BASE, b]).unwrap();
    assert_eq!(set.drop_all().len(), 2);
    assert_eq!((set.collection(), set.partial().len()), (Some(1), 0));
}

#[test]
fn ties_go_to_the_collection_then_to_the_oldest() {
    let mut set = RuleSet::new(Some(60));
    let filter = || Filter::exists("m");
    let rules = [("a", 60, filter()), ("b", 50, Filter::eq("m", Value::Int(1)))];
    set.create(rules.into_iter().map(|(name, e, filter)| RuleSpec::new(name, e, filter)).collect()).unwrap();
    assert_eq!(set.effective(&Value::Int(2)), Some((COLLECTION_RULE, 60)));
    assert_eq!(set.effective(&Value::Int(1)), Some((2, 50)));
    set.change_collection(None);
    set.create(vec![RuleSpec::new("c", 60, Filter::of_type("m", &[crate::TypeClass::Number]))]).unwrap();
    assert_eq!(set.effective(&Value::Int(2)), Some((1, 60)));
    assert_eq!(set.rule(1).unwrap().label(), "a");
    assert_eq!(set.effective(&Value::Null), None);
    assert_eq!(set.effective_for_all(), None);
    assert_eq!(set.rule(COLLECTION_RULE), None);
    assert_eq!(RuleSet::default().effective_for_all(), Some(None));
    assert_eq!(RuleSet::new(Some(5)).effective_for_all(), Some(Some((COLLECTION_RULE, 5))));
}

fn rule_sets() -> impl Strategy<Value = (RuleSet, Vec<(u8, i64)>)> {
    // A rule of kind k matches the metas that are at least k.
    let rules = prop::collection::vec((0_u8..6, 0_i64..8), 0..6);
    (prop::option::of(0_i64..8), rules).prop_map(|(own, rules)| {
        let mut set = RuleSet::new(own);
        let mut kept = Vec::new();
        for (i, (least, e)) in rules.into_iter().enumerate() {
            let filter = Filter::compare("m", crate::Comparison::Gte, Value::Int(i64::from(least)));
            if set.create(vec![RuleSpec::new(format!("r{i}"), e, filter)]).is_ok() {
                kept.push((least, e));
            }
        }
        (set, kept)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn the_effective_rule_is_the_shortest_that_matches((set, rules) in rule_sets(), meta in 0_i64..7) {
        let all = set.collection().into_iter().chain(
            rules.iter().filter(|(least, _)| meta >= i64::from(*least)).map(|(_, e)| *e));
        let effective = set.effective(&Value::Int(meta));
        prop_assert_eq!(effective.map(|(_, e)| e), all.min());
        if let Some((index, e)) = effective {
            prop_assert_eq!(set.rule(index).unwrap().expire_after_seconds, e);
            prop_assert!(set.iter().take_while(|r| r.index != index).all(|r| r.expire_after_seconds > e
                || r.filter.is_some_and(|f| !f.matches_meta(&Value::Int(meta)))));
        }
        if let Some(same) = set.effective_for_all() {
            prop_assert_eq!(effective, same);
        }
        prop_assert!(set.shortest() <= effective.map(|(_, e)| e) || effective.is_none());
    }

    #[test]
    fn another_rule_never_lets_data_live_longer((set, _) in rule_sets(), e in 0_i64..8, meta in 0_i64..7, of in 0_i64..7) {
        let live = |set: &RuleSet| set.effective(&Value::Int(meta)).map_or(i64::MAX, |(_, e)| e);
        let mut more = set.clone();
        more.create(vec![RuleSpec::new("more", e, Filter::eq("m", Value::Int(of)))]).unwrap();
        prop_assert!(live(&more) <= live(&set));
        let mut own = set.clone();
        own.change_collection(Some(set.collection().map_or(e, |old| old.min(e))));
        prop_assert!(live(&own) <= live(&set));
    }
}
