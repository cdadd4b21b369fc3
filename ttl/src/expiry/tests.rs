use super::*;
use proptest::prelude::*;

const S: i64 = 1_000;

fn seconds(text: &str) -> i64 {
    Timestamp::parse(text).unwrap().to_units(Precision::Ms).unwrap() / S
}

fn precisions() -> impl Strategy<Value = Precision> {
    prop_oneof![Just(Precision::Ms), Just(Precision::Us), Just(Precision::Ns)]
}

#[test]
fn an_instant_equal_to_the_cutoff_is_expired() {
    let cutoff = Cutoff::new(Timestamp::from_millis(300 * S), 300, Precision::Ms);
    assert!(cutoff.hides(0));
    assert!(!cutoff.hides(1));
    assert!(cutoff.hides(-1));
}

#[test]
fn a_bucket_is_due_to_the_millisecond() {
    let end = seconds("2023-03-27T18:30:00Z") * S;
    let due = due_instant(end, 300, Precision::Ms);
    assert_eq!(due.to_string(), "2023-03-27T18:35:00Z");
    assert!(!Cutoff::new(Timestamp::from_nanos(due.nanos() - 1), 300, Precision::Ms).hides(end));
    assert!(Cutoff::new(due, 300, Precision::Ms).hides(end));
}

#[test]
fn zero_seconds_expire_the_present_but_not_the_future() {
    assert!(Cutoff::new(Timestamp::from_nanos(5), 0, Precision::Ns).hides(5));
    assert!(!Cutoff::new(Timestamp::from_nanos(5), 0, Precision::Ns).hides(6));
}

#[test]
fn times_at_the_ends_of_the_range_expire_when_they_are_due() {
    let second = 1_000_000_000;
    let first = Timestamp::from_nanos(i128::from(i64::MIN) + second);
    assert_eq!(Cutoff::new(first, 1, Precision::Ns).last_hidden(), Some(i64::MIN));
    assert_eq!(Cutoff::new(Timestamp::from_nanos(first.nanos() - 1), 1, Precision::Ns), Cutoff::NONE);
    assert!(!Cutoff::NONE.hides(i64::MIN));
    let last = Timestamp::from_nanos(i128::from(i64::MAX) + second);
    assert!(!Cutoff::new(Timestamp::from_nanos(last.nanos() - 1), 1, Precision::Ns).hides(i64::MAX));
    assert!(Cutoff::new(last, 1, Precision::Ns).hides(i64::MAX));
    assert!(Cutoff::new(Timestamp::from_nanos(i128::MAX / 2), 1, Precision::Ns).hides(i64::MAX));
    assert_eq!(Cutoff::new(Timestamp::EPOCH, i64::MAX, Precision::Ns), Cutoff::NONE);
    assert_eq!(due_instant(i64::MAX, 1, Precision::Ns).nanos(), i128::from(i64::MAX) + 1_000_000_000);
}

#[test]
fn the_range_includes_1970_and_excludes_the_end_in_2038() {
    for precision in [Precision::Ms, Precision::Us, Precision::Ns] {
        let end = Timestamp::parse("2038-01-19T03:14:08Z").unwrap().to_units(precision).unwrap();
        assert!(in_range(0, precision));
        assert!(!in_range(-1, precision));
        assert!(in_range(end - 1, precision));
        assert!(!in_range(end, precision));
    }
}

#[test]
fn words_are_read_and_others_refused() {
    assert_eq!("exact".parse(), Ok(ExpiryMode::Exact));
    assert_eq!(ExpiryMode::from_value(&Value::from("bucket")), Ok(ExpiryMode::Bucket));
    assert_eq!("sometimes".parse::<ExpiryMode>().unwrap_err().code, Code::BadValue);
    assert_eq!("Exact".parse::<ExpiryMode>().unwrap_err().code, Code::BadValue);
    assert_eq!(ExpiryMode::from_value(&Value::Int(1)).unwrap_err().code, Code::TypeMismatch);
    for word in ["suspend", "reject", "expire"] {
        assert_eq!(word.parse::<OutOfRange>().unwrap().to_string(), word);
    }
    assert_eq!(OutOfRange::from_value(&Value::from("")).unwrap_err().code, Code::BadValue);
    assert_eq!((ExpiryMode::default(), OutOfRange::default()), (ExpiryMode::Exact, OutOfRange::Suspend));
}

fn given(granularity: &str, span: i64, rounding: i64) -> (Option<Value>, Option<Value>, Option<Value>) {
    let number = |n: i64| (n != i64::MIN).then_some(Value::Int(n));
    ((!granularity.is_empty()).then(|| Value::from(granularity)), number(span), number(rounding))
}

fn create(granularity: &str, span: i64, rounding: i64) -> Result<Bucketing, Code> {
    let (g, s, r) = given(granularity, span, rounding);
    Bucketing::parse(g.as_ref(), s.as_ref(), r.as_ref()).map_err(|e| e.code)
}

fn change(old: Bucketing, granularity: &str, span: i64, rounding: i64) -> Result<Bucketing, Code> {
    let (g, s, r) = given(granularity, span, rounding);
    old.changed(g.as_ref(), s.as_ref(), r.as_ref()).map_err(|e| e.code)
}

const NONE: i64 = i64::MIN;

#[test]
fn spans_follow_granularity() {
    assert_eq!(create("", NONE, NONE).unwrap().span_seconds(), 3_600);
    assert_eq!(create("seconds", NONE, NONE), create("", NONE, NONE));
    assert_eq!(create("minutes", NONE, NONE).unwrap().span_seconds(), 86_400);
    assert_eq!(create("hours", NONE, NONE).unwrap().span_seconds(), 2_592_000);
    assert_eq!(create("days", NONE, NONE), Err(Code::BadValue));
    assert_eq!(Bucketing::parse(Some(&Value::Int(1)), None, None).unwrap_err().code, Code::TypeMismatch);
}

#[test]
fn custom_spans_are_a_pair_of_equal_values() {
    let custom = create("", 4_000, 4_000).unwrap();
    assert_eq!((custom, custom.granularity()), (Bucketing::Custom { span_seconds: 4_000 }, None));
    assert_eq!(create("", 50, 100), Err(Code::InvalidOptions));
    assert_eq!(create("", NONE, 4_000), Err(Code::InvalidOptions));
    assert_eq!(create("", 4_000, NONE), Err(Code::InvalidOptions));
    assert_eq!(create("", 0, 0), Err(Code::BadValue));
    assert_eq!(create("", 1, 1).unwrap().span_seconds(), 1);
    assert!(create("", 31_536_000, 31_536_000).is_ok());
    assert_eq!(create("", 31_536_001, 31_536_001), Err(Code::BadValue));
    let half = Value::Double(1.5);
    assert_eq!(Bucketing::parse(None, Some(&half), Some(&half)).unwrap_err().code, Code::BadValue);
    let text = Value::from("1");
    assert_eq!(Bucketing::parse(None, Some(&text), Some(&text)).unwrap_err().code, Code::TypeMismatch);
    let whole = Value::Double(60.0);
    assert_eq!(Bucketing::parse(None, Some(&whole), Some(&whole)).unwrap().span_seconds(), 60);
}

#[test]
fn a_granularity_allows_only_its_own_span_beside_it() {
    assert_eq!(create("minutes", 86_400, NONE), create("minutes", NONE, NONE));
    assert_eq!(create("minutes", 3_600, NONE), Err(Code::InvalidOptions));
    assert_eq!(create("minutes", 86_400, 86_400), Err(Code::InvalidOptions));
    assert_eq!(create("minutes", NONE, 86_400), Err(Code::InvalidOptions));
}

#[test]
fn granularity_only_grows() {
    let mut now = Bucketing::default();
    for (word, result) in
        [("seconds", true), ("minutes", true), ("hours", true), ("minutes", false), ("seconds", false)]
    {
        match change(now, word, NONE, NONE) {
            Ok(new) => {
                assert!(result);
                now = new;
            }
            Err(code) => assert_eq!((result, code), (false, Code::InvalidOptions)),
        }
    }
    assert_eq!((now.to_string().as_str(), now.span_seconds()), ("hours", 2_592_000));
}

#[test]
fn custom_spans_only_grow_and_may_become_presets() {
    let custom = create("", 200, 200).unwrap();
    let minutes = change(custom, "minutes", NONE, NONE).unwrap();
    let widest = change(minutes, "", 31_536_000, 31_536_000).unwrap();
    assert_eq!(change(widest, "", 31_536_001, 31_536_001), Err(Code::BadValue));
    assert_eq!(change(widest, "", NONE, NONE), Ok(widest));
    assert_eq!(change(widest, "", 31_535_999, 31_535_999), Err(Code::InvalidOptions));
    assert_eq!(change(custom, "", 200, 200), Ok(custom));
    assert_eq!(change(custom, "", 199, 199), Err(Code::InvalidOptions));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// The three ways to say it are one: `t + E <= now`, `t <= Cutoff::new(now)`, `due_instant(t) <= now`.
    #[test]
    fn cutoff_and_due_instant_agree(t: i64, now: i64, near in -3_i64..4, e in 0_i64..=2_147_483_647, p in precisions(),
                                    is_near: bool) {
        let due = i128::from(t) * p.nanos() + i128::from(e) * 1_000_000_000;
        let now = if is_near { Timestamp::from_nanos(due + i128::from(near)) } else { Timestamp::from_units(now, p) };
        let by_definition = due <= now.nanos();
        prop_assert_eq!(Cutoff::new(now, e, p).hides(t), by_definition);
        prop_assert_eq!(due_instant(t, e, p) <= now, by_definition);
    }

    /// The neighbours of the boundary, and a split of ascending times, are on the sides that `hides` says.
    #[test]
    fn a_cutoff_is_one_boundary(now: i64, e in 0_i64..=2_147_483_647, p in precisions(), mut times: Vec<i64>) {
        let cutoff = Cutoff::new(Timestamp::from_units(now, p), e, p);
        prop_assert!(cutoff.last_hidden().is_none_or(|t| cutoff.hides(t)));
        prop_assert!(cutoff.first_visible().is_none_or(|t| !cutoff.hides(t)));
        times.extend(cutoff.last_hidden());
        times.sort_unstable();
        let (hidden, visible) = times.split_at(cutoff.split(&times));
        prop_assert!(hidden.iter().all(|t| cutoff.hides(*t)) && visible.iter().all(|t| !cutoff.hides(*t)));
    }

    /// Time that passes never makes an expired measurement live again, nor does a shorter E make it live longer.
    #[test]
    fn expiry_is_monotonic(t: i64, now: i64, later: i64, e in 0_i64..=2_147_483_647, shorter in 0_i64..=2_147_483_647,
                           p in precisions()) {
        let (now, later) = (Timestamp::from_units(now.min(later), p), Timestamp::from_units(now.max(later), p));
        let (shorter, e) = (shorter.min(e), shorter.max(e));
        if Cutoff::new(now, e, p).hides(t) {
            prop_assert!(Cutoff::new(later, e, p).hides(t));
            prop_assert!(Cutoff::new(now, shorter, p).hides(t));
        }
    }

    /// A collection's span never shrinks, whatever is asked for.
    #[test]
    fn spans_never_shrink(steps in prop::collection::vec((0_usize..4, 0_i64..40_000_000), 0..8)) {
        let mut now = Bucketing::default();
        for (word, span) in steps {
            let word = ["", "seconds", "minutes", "hours"][word];
            let span = if word.is_empty() { span } else { NONE };
            if let Ok(new) = change(now, word, span, span) {
                prop_assert!(new.span_seconds() >= now.span_seconds());
                prop_assert!((1..=SPAN_SECONDS_MAX).contains(&new.span_seconds()));
                now = new;
            }
        }
    }
}
