use super::super::Pipeline;
use bson::DateTime;
use bson::raw::{RawBson, RawDocumentBuf};
use bson::rawdoc;

/// What a window function gives for each of these documents, sorted by `t`, or the number of its error.
fn over(documents: &[RawDocumentBuf], function: RawDocumentBuf) -> Result<Vec<RawBson>, i32> {
    let stages = rawdoc! { "p": [{ "$setWindowFields": { "sortBy": { "t": 1 }, "output": { "w": function } } }] };
    let pipeline = Pipeline::parse(stages.get_array("p").unwrap()).map_err(|error| error.code)?;
    let mut run = pipeline.run(0, usize::MAX);
    for document in documents {
        run.take(document.clone()).map_err(|error| error.code)?;
    }
    run.finish().map_err(|error| error.code)?;
    Ok(run.results().iter().map(|found| crate::raw::owned(found.get("w").unwrap().unwrap())).collect())
}

fn at(seconds: i64) -> RawBson {
    RawBson::DateTime(DateTime::from_millis(seconds * 1000))
}

/// Documents with these times and inputs.
fn points<const N: usize>(points: [(RawBson, RawBson); N]) -> Vec<RawDocumentBuf> {
    points.into_iter().map(|(t, v)| rawdoc! { "t": t, "v": v }).collect()
}

fn derivative(unit: Option<&str>) -> RawDocumentBuf {
    let window = rawdoc! { "documents": [-1, 0] };
    match unit {
        Some(unit) => rawdoc! { "$derivative": { "input": "$v", "unit": unit }, "window": window },
        None => rawdoc! { "$derivative": { "input": "$v" }, "window": window },
    }
}

fn integral(unit: Option<&str>) -> RawDocumentBuf {
    let window = rawdoc! { "documents": ["unbounded", "current"] };
    match unit {
        Some(unit) => rawdoc! { "$integral": { "input": "$v", "unit": unit }, "window": window },
        None => rawdoc! { "$integral": { "input": "$v" }, "window": window },
    }
}

const NULL: RawBson = RawBson::Null;

#[test]
fn a_derivative_over_dates_is_per_unit() {
    let made = points([(at(0), 1.into()), (at(2), 5.into()), (at(3), 4.5.into())]);
    let (none, double) = (NULL, RawBson::Double);
    assert_eq!(over(&made, derivative(Some("second"))), Ok(vec![none.clone(), double(2.0), double(-0.5)]));
    assert_eq!(over(&made, derivative(Some("minute"))), Ok(vec![none.clone(), double(120.0), double(-30.0)]));
    // The input may be a date too.
    let dates = points([(at(0), at(10)), (at(2), at(14))]);
    assert_eq!(over(&dates, derivative(Some("second"))), Ok(vec![none.clone(), double(2000.0)]));
    // Two documents of one instant.
    let same = points([(at(1), 1.into()), (at(1), 5.into())]);
    assert_eq!(over(&same, derivative(Some("second"))), Ok(vec![none.clone(), none]));
}

#[test]
fn the_times_of_a_derivative_have_its_unit_or_none() {
    let dates = points([(at(0), 1.into()), (at(2), 5.into())]);
    assert_eq!(over(&dates, derivative(None)), Err(5_624_901));
    let numbers = points([(0.into(), 1.into()), (2.into(), 5.into())]);
    assert_eq!(over(&numbers, derivative(Some("second"))), Err(5_624_900));
    let texts = points([("a".into(), 1.into()), ("b".into(), 5.into())]);
    assert_eq!(over(&texts, derivative(None)), Err(5_624_902));
    let mixed = points([(0.into(), 1.into()), (at(2), 5.into())]);
    assert_eq!(over(&mixed, derivative(None)), Err(5_624_901));
}

#[test]
fn an_integral_takes_numbers_alone() {
    let (one, text) = (|| RawBson::Int32(1), || RawBson::String("x".to_owned()));
    for input in [NULL, text(), at(0)] {
        assert_eq!(over(&points([(0.into(), one()), (1.into(), input.clone())]), integral(None)), Err(5_423_900));
        assert_eq!(over(&points([(at(0), input), (at(1), one())]), integral(Some("second"))), Err(5_423_900));
    }
    let missing = [rawdoc! { "t": 0, "v": 1 }, rawdoc! { "t": 1 }];
    assert_eq!(over(&missing, integral(None)), Err(5_423_900));
    assert_eq!(over(&[rawdoc! { "v": 1 }], integral(None)), Err(5_423_900));
    assert_eq!(over(&points([(at(0), one())]), integral(None)), Err(5_423_902));
    assert_eq!(over(&points([(0.into(), one())]), integral(Some("second"))), Err(5_423_901));
    let made = points([(at(0), 2.into()), (at(30), 4.into())]);
    assert_eq!(over(&made, integral(Some("minute"))), Ok(vec![RawBson::Double(0.0), RawBson::Double(1.5)]));
}

#[test]
fn an_integral_of_nan_is_nan() {
    let made = points([(0.into(), 1.into()), (1.into(), f64::NAN.into()), (2.into(), 3.into())]);
    let found = over(&made, integral(None)).unwrap();
    assert_eq!(found[0], RawBson::Int32(0));
    assert!(found[1..].iter().all(|value| value.as_f64().is_some_and(f64::is_nan)));
    let alone = over(&points([(0.into(), f64::NAN.into())]), integral(None)).unwrap();
    assert!(alone[0].as_f64().is_some_and(f64::is_nan));
}

#[test]
fn what_a_rate_is_given_is_checked_before_it_runs() {
    for function in [
        rawdoc! { "$integral": "$v" },
        rawdoc! { "$integral": { "unit": "second" } },
        rawdoc! { "$integral": { "input": "$v", "per": "second" } },
        rawdoc! { "$integral": { "input": "$v", "unit": "fortnight" } },
        rawdoc! { "$derivative": { "input": "$v" } },
    ] {
        assert_eq!(over(&[], function.clone()), Err(9), "{function:?}");
    }
    let output = rawdoc! { "w": { "$integral": { "input": "$v" } } };
    let stages = rawdoc! { "p": [{ "$setWindowFields": { "sortBy": { "t": 1, "u": 1 }, "output": output } }] };
    assert_eq!(Pipeline::parse(stages.get_array("p").unwrap()).unwrap_err().code, 9);
}
