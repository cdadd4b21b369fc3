use super::*;
use crate::arbitrary::{doc, value};
use crate::filter::Purpose;
use ebbtide_ttl::Cutoff;
use proptest::prelude::*;
use serde_json::{Value, json};

fn rules(default_ttl: DefaultTtl) -> ItemRules {
    ItemRules { default_ttl, indexes: Vec::new() }
}

fn index(name: &str, path: &str, seconds: u32, filter: Option<Value>) -> TtlIndex {
    let filter = filter.map(|filter| Filter::parse(&doc(filter), Purpose::Partial).unwrap());
    TtlIndex { name: name.to_owned(), path: Path::new(path), expire_after_seconds: seconds, filter }
}

fn seconds(s: i64) -> Timestamp {
    Timestamp::from_millis(s * 1000)
}

/// The table of the contract.
#[test]
fn the_life_of_an_item() {
    let items = [json!({}), json!({"ttl": null}), json!({"ttl": -1}), json!({"ttl": 10}), json!({"ttl": "x"})];
    let cases = [
        (DefaultTtl::Off, [None, None, None, None, None]),
        (DefaultTtl::Never, [None, None, None, Some(1010), None]),
        (DefaultTtl::Seconds(100), [Some(1100), Some(1100), None, Some(1010), Some(1100)]),
    ];
    for (default, expected) in cases {
        for (item, at) in items.iter().zip(expected) {
            let rules = rules(default);
            let found = rules.expires_at(&doc(item.clone()), 1_000_000);
            assert_eq!(found, at.map(|at| (seconds(at), RuleName::Items)), "{default}, {item}");
        }
    }
}

#[test]
fn the_ttl_of_an_item() {
    let cases = [
        (json!(1), ItemTtl::Seconds(1)),
        (json!({"$numberInt": "60"}), ItemTtl::Seconds(60)),
        (json!(60.0), ItemTtl::Seconds(60)),
        (json!({"$numberDecimal": "6.0E+1"}), ItemTtl::Seconds(60)),
        (json!(2147483647), ItemTtl::Seconds(TTL_SECONDS_MAX)),
        (json!(-1.0), ItemTtl::Never),
        (json!({"$numberDecimal": "-1"}), ItemTtl::Never),
        (json!(null), ItemTtl::Inherit),
        (json!(0), ItemTtl::Invalid),
        (json!(-0.0), ItemTtl::Invalid),
        (json!(-2), ItemTtl::Invalid),
        (json!(2147483648i64), ItemTtl::Invalid),
        (json!(1.5), ItemTtl::Invalid),
        (json!(1e300), ItemTtl::Invalid),
        (json!({"$numberDouble": "NaN"}), ItemTtl::Invalid),
        (json!({"$numberDecimal": "1E+6000"}), ItemTtl::Invalid),
        (json!("60"), ItemTtl::Invalid),
        (json!([60]), ItemTtl::Invalid),
        (json!(true), ItemTtl::Invalid),
        (json!({"$undefined": true}), ItemTtl::Invalid),
    ];
    for (ttl, expected) in cases {
        let item = doc(json!({ "ttl": ttl }));
        assert_eq!(ItemTtl::of(&item), expected, "{ttl}");
        let is_refused = expected == ItemTtl::Invalid;
        for default in [DefaultTtl::Never, DefaultTtl::Seconds(5)] {
            let checked = check_ttl(&item, default);
            assert_eq!(checked.is_err(), is_refused, "{ttl}");
            if let Err(error) = checked {
                assert_eq!(error.code, Code::BadValue);
                assert!(error.message.starts_with("field 'ttl'"), "{error}");
            }
        }
        assert_eq!(check_ttl(&item, DefaultTtl::Off), Ok(()));
    }
    // A field of that name elsewhere means nothing.
    assert_eq!(ItemTtl::of(&doc(json!({"a": {"ttl": 5}}))), ItemTtl::Inherit);
}

#[test]
fn the_option() {
    let good = [
        (json!("off"), DefaultTtl::Off, "off"),
        (json!(-1), DefaultTtl::Never, "-1"),
        (json!(60.0), DefaultTtl::Seconds(60), "60"),
    ];
    for (option, expected, text) in good {
        assert_eq!(DefaultTtl::parse(value(option).as_raw_bson_ref()), Ok(expected));
        assert_eq!(expected.to_string(), text);
    }
    for option in
        [json!(0), json!(-2), json!(1.5), json!("on"), json!(null), json!(true), json!({}), json!(2147483648i64)]
    {
        let error = DefaultTtl::parse(value(option).as_raw_bson_ref()).unwrap_err();
        assert_eq!(error.code, Code::InvalidOptions);
        assert!(error.message.starts_with("defaultTTL must be"), "{error}");
    }
}

#[test]
fn dates_that_count() {
    let date = |ms: i64| json!({"$date": {"$numberLong": ms.to_string()}});
    let cases = [
        (json!({"a": date(5)}), Some(5)),
        (json!({"a": [date(9), date(7), "x"]}), Some(7)),
        (json!({"a": [[date(1)], date(7)]}), Some(7)),
        (json!({"a": [[date(1)]]}), None),
        (json!({"a": {"$timestamp": {"t": 1, "i": 1}}}), None),
        (json!({"a": "2024-01-01T00:00:00Z"}), None),
        (json!({"a": []}), None),
        (json!({"a": null}), None),
        (json!({}), None),
        (json!({"a": date(i64::MIN)}), Some(i64::MIN)),
    ];
    for (document, expected) in cases {
        assert_eq!(earliest_date(&doc(document.clone()), &Path::new("a")), expected, "{document}");
    }
    let (old, new) = (date(0), date(99_999_999_999_999));
    // With MongoDB 6.0.5 and a TTL index on the path, exactly those with an old date were deleted.
    let cases = [
        (json!({"a": [new, old]}), "a", true),
        (json!({"a": [[old]]}), "a.0", false),
        (json!({"a": [old, new]}), "a.0", true),
        (json!({"a": [new, old]}), "a.0", false),
        (json!({"a": [new, old]}), "a.1", true),
        (json!({"a": {"0": old}}), "a.0", true),
        (json!({"a": [{"b": [[old]]}]}), "a.b", false),
        (json!({"a": [{"b": [old]}]}), "a.0.b", true),
        (json!({"a": [[{"b": old}]]}), "a.b", false),
        (json!({"a": [[{"b": old}]]}), "a.0.b", true),
        (json!({"a": [{"b": new}, {"b": old}]}), "a.b", true),
        (json!({"a": [{"b": new}, {"b": old}]}), "a.0.b", false),
        (json!({"a": [{"b": new}, {"b": old}]}), "a.1.b", true),
        (json!({"a": [[new, old]]}), "a.0.1", true),
        (json!({"a": [[new, [old]]]}), "a.0.1", false),
        (json!({"a": [{"b": [{"c": old}]}]}), "a.b.c", true),
    ];
    for (document, path, is_old) in cases {
        let found = earliest_date(&doc(document.clone()), &Path::new(path));
        assert_eq!(found == Some(0), is_old, "{path} in {document}: {found:?}");
    }
}

#[test]
fn the_earliest_rule_decides() {
    let both = |ttl: u32, indexes: Vec<TtlIndex>| ItemRules { default_ttl: DefaultTtl::Seconds(ttl), indexes };
    let item = doc(json!({"at": {"$date": 2_000_000}, "by": {"$date": 1_000_000}, "kind": "x"}));
    let cases = [
        (both(5_000, vec![index("one", "at", 0, None)]), 2_000, "one"),
        (both(5_000, vec![index("one", "at", 0, None), index("two", "by", 10, None)]), 1_010, "two"),
        (both(500, vec![index("one", "at", 0, None)]), 1_500, ITEMS_RULE),
        // Of equal instants the time to live of items comes first, then the oldest index.
        (both(1_000, vec![index("one", "at", 0, None)]), 2_000, ITEMS_RULE),
        (both(9_000, vec![index("b", "at", 0, None), index("a", "by", 1_000, None)]), 2_000, "b"),
        (both(5_000, vec![index("one", "at", 0, Some(json!({"kind": "y"})))]), 6_000, ITEMS_RULE),
        (both(5_000, vec![index("one", "at", 0, Some(json!({"kind": "x"})))]), 2_000, "one"),
    ];
    for (rules, at, name) in cases {
        let (found, rule) = rules.expires_at(&item, 1_000_000).unwrap();
        assert_eq!((found, rule.to_string().as_str()), (seconds(at), name));
    }
    // An index takes a document whatever its ttl.
    let kept = doc(json!({"at": {"$date": 0}, "ttl": -1}));
    let rules = both(5, vec![index("one", "at", 1, None)]);
    assert_eq!(rules.expires_at(&kept, 0), Some((seconds(1), RuleName::Index("one"))));
}

#[test]
fn the_instant_itself_is_expired() {
    let rules = rules(DefaultTtl::Seconds(60));
    let item = doc(json!({}));
    let at = seconds(160);
    assert_eq!(rules.expired_by(&item, 100_000, Timestamp::from_nanos(at.nanos() - 1)), None);
    assert_eq!(rules.expired_by(&item, 100_000, at), Some(RuleName::Items));
}

#[test]
fn nothing_wraps() {
    let item = doc(json!({"at": {"$date": {"$numberLong": i64::MAX.to_string()}}}));
    let rules = ItemRules {
        default_ttl: DefaultTtl::Seconds(TTL_SECONDS_MAX),
        indexes: vec![index("one", "at", TTL_SECONDS_MAX, None)],
    };
    let (at, rule) = rules.expires_at(&item, i64::MAX).unwrap();
    assert_eq!(rule, RuleName::Items);
    assert!(at > Timestamp::from_millis(i64::MAX));
    assert!(rules.expires_at(&item, i64::MIN).unwrap().0 < Timestamp::from_millis(0));
}

proptest! {
    /// What is decided from times alone agrees with what is decided for each document.
    #[test]
    fn a_cutoff_agrees(ts in any::<i64>(), near in -3i64..3, life in 1..=TTL_SECONDS_MAX, nanos in 0i128..1_000_000) {
        let rules = rules(DefaultTtl::Seconds(life));
        let now = Timestamp::from_nanos(instant(ts.saturating_add(near), life).nanos() + nanos);
        let cutoff = Cutoff::new(now, i64::from(life), Precision::Ms);
        prop_assert_eq!(rules.expired_by(&doc(json!({})), ts, now).is_some(), cutoff.hides(ts));
    }
}
