use super::*;
use crate::arbitrary::{number as any_number, value};
use crate::expression::accumulator::Accumulator;
use proptest::prelude::*;
use serde_json::json;

/// Each window by itself.
fn anew(kind: &Kind, values: &[Value], bounds: &[(usize, usize)]) -> Vec<Value> {
    let one = |(low, high): &(usize, usize)| {
        let mut accumulator = Accumulator::new(kind);
        values[*low..*high].iter().for_each(|value| accumulator.take(kind, value.clone()).unwrap());
        Some(accumulator.finish(kind).unwrap())
    };
    bounds.iter().map(one).collect()
}

fn slid_over(kind: &Kind, values: &[Value], bounds: &[(usize, usize)]) -> Option<Vec<Value>> {
    slid(kind, values, bounds, Stop(&|| false)).unwrap()
}

/// Windows that slide, some of them empty, and over more than there is between two of them.
fn windows(count: usize, steps: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let (mut low, mut high) = (0, 0);
    let next = |(a, b): &(usize, usize)| {
        high = (high + b).min(count);
        low = (low + a).min(high);
        (low, high)
    };
    steps.iter().map(next).collect()
}

fn readings() -> impl Strategy<Value = Value> {
    let decimals = (-100_000i32..100_000, 0u32..6)
        .prop_map(|(n, places)| Some(RawBson::Double(f64::from(n) / 10f64.powi(i32::try_from(places).unwrap()))));
    prop_oneof![
        6 => decimals,
        2 => any::<i32>().prop_map(|i| Some(RawBson::Int32(i))),
        1 => any::<i64>().prop_map(|i| Some(RawBson::Int64(i))),
        1 => Just(None),
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY), Just(-0.0)]
            .prop_map(|d| Some(RawBson::Double(d))),
        1 => Just(Some(value(json!("text")))),
        1 => Just(Some(RawBson::Null)),
    ]
}

fn same(a: &[Value], b: &[Value]) -> bool {
    let is_nan = |value: &Value| matches!(value, Some(RawBson::Double(d)) if d.is_nan());
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b || (is_nan(a) && is_nan(b)))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn windows_that_slide_give_what_each_gives_by_itself(
        values in prop::collection::vec(readings(), 0..60),
        steps in prop::collection::vec((0usize..4, 0usize..4), 1..40),
    ) {
        let bounds = windows(values.len(), &steps);
        for kind in [Kind::Sum, Kind::Avg, Kind::Min, Kind::Max] {
            let (slid, anew) = (slid_over(&kind, &values, &bounds).unwrap(), anew(&kind, &values, &bounds));
            prop_assert!(same(&slid, &anew), "{kind:?}\n{slid:?}\n{anew:?}");
        }
    }

    #[test]
    fn the_least_and_the_greatest_of_any_numbers(
        values in prop::collection::vec(any_number().prop_map(Some), 0..40),
        steps in prop::collection::vec((0usize..4, 0usize..4), 1..40),
    ) {
        let bounds = windows(values.len(), &steps);
        for kind in [Kind::Min, Kind::Max] {
            prop_assert!(same(&slid_over(&kind, &values, &bounds).unwrap(), &anew(&kind, &values, &bounds)));
        }
    }
}

#[test]
fn what_left_a_window_leaves_nothing_behind() {
    let doubles = |all: &[f64]| all.iter().map(|d| Some(RawBson::Double(*d))).collect::<Vec<Value>>();
    let pairs: Vec<_> = (0..5).map(|at| (at, at + 2)).collect();
    let sums = |all: &[f64]| slid_over(&Kind::Sum, &doubles(all), &pairs).unwrap();
    assert_eq!(sums(&[1e200, 1e-200, 1.0, 2.0, 0.1, 0.2])[1..], doubles(&[1.0, 3.0, 2.1, 0.1 + 0.2]));
    let sums = sums(&[1.0, f64::INFINITY, f64::NAN, f64::NEG_INFINITY, 5.0, 6.0]);
    assert!(same(&sums, &doubles(&[f64::INFINITY, f64::NAN, f64::NAN, f64::NEG_INFINITY, 11.0])));
    // Rounded once: 2^53 + 1 + tiny is above the middle between two doubles.
    let sum = |all: &[f64]| slid_over(&Kind::Sum, &doubles(all), &[(0, all.len())]).unwrap();
    assert_eq!(sum(&[9_007_199_254_740_992.0, 1.0, 1e-30]), doubles(&[9_007_199_254_740_994.0]));
    assert_eq!(sum(&[1e100, 1.0, -1e100, 1e-100, -1.0]), doubles(&[1e-100]));
}

#[test]
fn what_cannot_be_taken_away_exactly_is_not_slid() {
    let bounds = [(0, 1), (1, 2)];
    let huge = [Some(RawBson::Double(1e300)), Some(RawBson::Int32(1))];
    assert_eq!(slid_over(&Kind::Sum, &huge, &bounds), None);
    assert_eq!(slid_over(&Kind::Avg, &[Some(value(json!({"$numberDecimal": "0.1"}))), None], &bounds), None);
    assert_eq!(slid_over(&Kind::Push, &huge, &bounds), None);
    assert_eq!(slid_over(&Kind::Min, &huge, &[(1, 2), (0, 1)]), None);
}
