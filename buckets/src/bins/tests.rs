use super::*;
use crate::schema::Schema;
use arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{Decimal128Type, Float64Type, Int64Type, TimestampMillisecondType};
use ebbtide_ttl::{Precision, Value};
use proptest::prelude::*;

const FIELDS: [(&str, FieldType); 4] =
    [("i", FieldType::Int64), ("d", FieldType::Double), ("b", FieldType::Bool), ("s", FieldType::String)];

/// A row: meta, time and the value that each field is made of.
type Row = (u8, i64, Option<i64>);

fn bins(step: i64) -> Bins {
    Bins::new(step, FIELDS.iter().map(|(name, ty)| (*name, ty)))
}

fn schema() -> Schema {
    Schema { meta_type: Some(FieldType::Int64), ..Schema::new("t", Some("m".to_owned()), Precision::Ms) }
}

fn double(v: i64) -> f64 {
    match v {
        -7 => f64::NAN,
        -6 => f64::INFINITY,
        -5 => -0.0,
        v => v as f64 / 8.0,
    }
}

fn fold(bins: &mut Bins, rows: &[Row]) {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| (row.0, row.1));
    let times: Vec<i64> = rows.iter().map(|row| row.1).collect();
    let values = || rows.iter().map(|row| row.2);
    let columns: Vec<Option<ArrayRef>> = vec![
        Some(Arc::new(values().collect::<Int64Array>())),
        Some(Arc::new(values().map(|v| v.map(double)).collect::<Float64Array>())),
        Some(Arc::new(values().map(|v| v.map(|v| v % 2 == 0)).collect::<BooleanArray>())),
        Some(Arc::new(values().map(|v| v.map(|v| v.to_string())).collect::<StringViewArray>())),
    ];
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < rows.len() {
        let end = start + rows[start..].iter().take_while(|row| row.0 == rows[start].0).count();
        pieces.push((bins.meta(&MetaKey::of(&Value::Int(i64::from(rows[start].0)))), start..end));
        start = end;
    }
    bins.fold(&times, &columns, &pieces).unwrap();
}

fn stored(bins: &Bins) -> (Schema, RecordBatch) {
    bins.to_stored(&schema(), StoredField::plain).unwrap()
}

#[test]
fn bins_of_several_threads_are_those_of_one() {
    let rows: Vec<Row> = (0..20_000_i64)
        .map(|n| (u8::try_from(n % 50).unwrap(), n * 37 % 900_000, (n % 11 != 0).then_some(n * n % 1_009 - 7)))
        .collect();
    let added = |all_cores: bool| {
        let mut bins = bins(40).on_all_cores(all_cores);
        bins.add_in_parts(rows.len() as u64, |part| {
            let mut all = super::Bins::clone(&bins_of_all(&rows));
            all.fields.retain(|field| part.fields.iter().any(|f| f.name == field.name));
            part.merge(&all, |_, _| true);
            Ok::<(), ()>(())
        })
        .unwrap();
        bins
    };
    let (alone, together) = (added(false), added(true));
    assert!(alone.len() > 16_384);
    assert_eq!(stored(&alone), stored(&together));
    let coarse = |of: &Bins, all_cores: bool| {
        let mut wide = bins(4_000).on_all_cores(all_cores);
        wide.merge(of, |_, _| true);
        stored(&wide)
    };
    assert_eq!(coarse(&alone, false), coarse(&together, true));
    let failed = bins(40)
        .on_all_cores(true)
        .add_in_parts(1 << 20, |part| part.fields.iter().try_for_each(|f| (f.name != "d").then_some(()).ok_or("d")));
    assert_eq!(failed, Err("d"));
}

fn bins_of_all(rows: &[Row]) -> Bins {
    let mut all = bins(40);
    fold(&mut all, rows);
    all
}

/// What both show is the same: exactly, but for sums and deviations of doubles.
fn same(a: &Bins, b: &Bins) {
    let (a, b) = (a.results(&schema()).unwrap(), b.results(&schema()).unwrap());
    assert_eq!(a.schema(), b.schema());
    assert_eq!(a.num_rows(), b.num_rows());
    for (field, (a, b)) in a.schema().fields().iter().zip(a.columns().iter().zip(b.columns())) {
        let is_rounded = ["_sum", "_avg", "_stddev"].iter().any(|suffix| field.name().ends_with(suffix));
        match a.as_primitive_opt::<Float64Type>().filter(|_| is_rounded) {
            None => assert_eq!(a, b, "{}", field.name()),
            Some(a) => {
                for (a, b) in a.iter().zip(b.as_primitive::<Float64Type>()) {
                    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (1.0 + a.abs()) || a.to_bits() == b.to_bits();
                    let both_odd = |a: f64, b: f64| a.is_nan() && b.is_nan();
                    assert!(
                        a.is_some() == b.is_some() && a.zip(b).is_none_or(|(a, b)| near(a, b) || both_odd(a, b)),
                        "{}: {a:?} {b:?}",
                        field.name()
                    );
                }
            }
        }
    }
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    prop::collection::vec((0_u8..3, -40_i64..40, prop::option::weighted(0.8, -8_i64..9)), 1..60)
}

/// Rows of a batch, each in the part that `part` gives for it, in their order.
fn dealt(batch: &RecordBatch, parts: usize, part: impl Fn(usize) -> usize) -> Vec<RecordBatch> {
    let rows_of = |wanted: usize| (0..batch.num_rows()).map(|row| Some(part(row) == wanted)).collect::<BooleanArray>();
    (0..parts).map(|wanted| arrow::compute::filter_record_batch(batch, &rows_of(wanted)).unwrap()).collect()
}

/// The results of stored bins are the same with and without states, from one batch and from several.
fn results_do_not_depend_on_states(of: &Bins, part: impl Fn(usize) -> usize) {
    let (stored_schema, batch) = stored(of);
    let mut back = of.empty();
    back.add_stored(&batch, &stored_schema, StoredField::plain).unwrap();
    let expected = back.results(&schema()).unwrap();
    for batches in [vec![batch.clone()], dealt(&batch, 3, &part)] {
        let results = of.empty().results_of_stored(&batches, &stored_schema, StoredField::plain, &schema()).unwrap();
        assert_eq!(results, expected);
    }
    let joined = results_in_order(dealt(&expected, 3, &part), &schema()).unwrap();
    assert_eq!(arrow::compute::concat_batches(&expected.schema(), &joined).unwrap(), expected);
}

#[test]
fn results_of_many_stored_bins_are_made_in_their_order() {
    let rows: Vec<Row> = (0..20_000_i64)
        .map(|n| (u8::try_from(n % 50).unwrap(), n * 37 % 900_000, (n % 11 != 0).then_some(n * n % 1_009 - 7)))
        .collect();
    let all = bins_of_all(&rows);
    let runs: [fn(usize) -> usize; 4] =
        [|row| row % 3, |row| row / 1_000 % 3, |row| 2 - row / 8_000, |row| row / 7_000];
    runs.iter().for_each(|part| results_do_not_depend_on_states(&all, part));
    let (stored_schema, batch) = stored(&all);
    let whole = batch.slice(0, 0);
    let none = all.empty().results_of_stored(&[whole], &stored_schema, StoredField::plain, &schema()).unwrap();
    assert_eq!(none, all.empty().results(&schema()).unwrap());
}

proptest! {
    #[test]
    fn results_of_stored_bins_need_no_states(rows in rows(), parts in prop::collection::vec(0_usize..3, 64)) {
        let mut whole = bins(10);
        fold(&mut whole, &rows);
        results_do_not_depend_on_states(&whole, |row| parts[row % parts.len()]);
    }

    /// However rows are cut into parts, and whichever parts are stored in between, the whole comes to the same.
    #[test]
    fn parts_merge_into_the_whole(rows in rows(), cuts in prop::collection::vec(0_usize..60, 0..4)) {
        let mut whole = bins(10);
        fold(&mut whole, &rows);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(rows.len())).collect();
        cuts.extend([0, rows.len()]);
        cuts.sort_unstable();
        let mut merged = bins(10);
        for (number, cut) in cuts.windows(2).enumerate() {
            let mut part = bins(10);
            fold(&mut part, &rows[cut[0]..cut[1]]);
            if number % 2 == 0 {
                let (schema, batch) = stored(&part);
                merged.add_stored(&batch, &schema, StoredField::plain).unwrap();
            } else {
                merged.merge(&part, |_, _| true);
            }
        }
        same(&merged, &whole);
    }

    /// Bins of a width that divides another come to the bins of the other.
    #[test]
    fn fine_bins_merge_into_coarse_ones(rows in rows()) {
        let (mut fine, mut coarse, mut merged) = (bins(5), bins(20), bins(20));
        fold(&mut fine, &rows);
        fold(&mut coarse, &rows);
        merged.merge(&fine, |_, _| true);
        same(&merged, &coarse);
    }
}

#[test]
fn bins_that_come_in_any_order_of_time_are_found_again() {
    let orders: [[i64; 7]; 4] =
        [[0, 1, 2, 3, 3, 1, 0], [3, 2, 1, 0, 1, 3, 0], [0, 3, 1, 1, 2, 3, 0], [3, 0, 1, 0, 3, 1, 2]];
    let expected = [(0, 0, 2), (0, 10, 2), (0, 20, 1), (0, 30, 2), (1, 0, 2), (1, 10, 2), (1, 20, 1), (1, 30, 2)];
    for order in orders {
        let mut part = bins(10);
        for bin in order {
            fold(&mut part, &[(0, bin * 10, Some(1)), (1, bin * 10, Some(1))]);
        }
        let results = part.results(&schema()).unwrap();
        let metas = results.column_by_name("m").unwrap().as_primitive::<Int64Type>();
        let times = results.column_by_name("t").unwrap().as_primitive::<TimestampMillisecondType>();
        let counts = results.column_by_name("measurements").unwrap().as_primitive::<Int64Type>();
        let shown: Vec<_> =
            (0..results.num_rows()).map(|r| (metas.value(r), times.value(r), counts.value(r))).collect();
        assert_eq!(shown, expected, "{order:?}");
    }
}

#[test]
fn sums_of_whole_numbers_are_exact_beyond_64_bits() {
    let mut part = bins(1000);
    fold(&mut part, &[(0, 1, Some(i64::MAX)), (0, 2, Some(i64::MAX)), (1, 1, Some(i64::MIN)), (1, 2, Some(i64::MIN))]);
    let (stored_schema, batch) = stored(&part);
    let mut back = bins(1000);
    back.add_stored(&batch, &stored_schema, StoredField::plain).unwrap();
    let results = back.results(&schema()).unwrap();
    let sums = results.column_by_name("i_sum").unwrap().as_primitive::<Decimal128Type>();
    assert_eq!(sums.values(), &[i128::from(i64::MAX) * 2, i128::from(i64::MIN) * 2]);
}

#[test]
fn of_one_instant_the_least_is_first_and_the_greatest_last() {
    let mut part = bins(1000);
    fold(&mut part, &[(0, 5, Some(3)), (0, 5, Some(1)), (0, 5, Some(2))]);
    let results = part.results(&schema()).unwrap();
    let int = |name: &str| results.column_by_name(name).unwrap().as_primitive::<Int64Type>().value(0);
    assert_eq!((int("i_first"), int("i_last"), int("i_count"), int("measurements")), (1, 3, 3, 3));
}

#[test]
fn what_is_usual_takes_no_column() {
    let mut part = bins(1000);
    fold(&mut part, &[(0, 0, Some(1)), (0, 10, Some(2)), (1, 0, Some(1))]);
    let (schema, _) = stored(&part);
    for state in ["count", "sum_high", "first_time", "last_time"] {
        assert!(schema.field_type(&format!("i.{state}")).is_none(), "{state}");
    }
    // Nor is a name taken twice when a field begins anew.
    let (anew, _) =
        part.to_stored(&super::tests::schema(), |field| StoredField { since: 3, ..StoredField::plain(field) }).unwrap();
    assert!(anew.field_type("i.sum.3").is_some() && anew.field_type("i.sum").is_none());
}

#[test]
fn a_field_that_widened_keeps_its_states_as_doubles() {
    let mut ints = Bins::new(1000, [("i", &FieldType::Int64)]);
    let meta = ints.meta(&MetaKey::of(&Value::Int(0)));
    let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    ints.fold(&[0, 1], &[Some(values)], &[(meta, 0..2)]).unwrap();
    let (stored_schema, batch) = ints.to_stored(&schema(), StoredField::plain).unwrap();
    let mut doubles = Bins::new(1000, [("i", &FieldType::Double)]);
    doubles.add_stored(&batch, &stored_schema, StoredField::plain).unwrap();
    doubles.merge(&ints, |_, _| true);
    let results = doubles.results(&schema()).unwrap();
    let value = |name: &str| results.column_by_name(name).unwrap().as_primitive::<Float64Type>().value(0);
    assert_eq!((value("i_sum"), value("i_min"), value("i_max"), value("i_avg")), (6.0, 1.0, 2.0, 1.5));
}

#[test]
fn infinities_and_sums_that_overflow_are_as_in_sql() {
    let mut part = Bins::new(1000, [("d", &FieldType::Double)]);
    let metas: Vec<u32> = (0..3).map(|m| part.meta(&MetaKey::of(&Value::Int(m)))).collect();
    let values = vec![f64::INFINITY, 1.0, f64::INFINITY, f64::NEG_INFINITY, 1e308, 1e308];
    let values: ArrayRef = Arc::new(Float64Array::from(values));
    part.fold(&[0, 1, 0, 1, 0, 1], &[Some(values)], &[(metas[0], 0..2), (metas[1], 2..4), (metas[2], 4..6)]).unwrap();
    let results = part.results(&schema()).unwrap();
    let sums = results.column_by_name("d_sum").unwrap().as_primitive::<Float64Type>();
    assert_eq!((sums.value(0), sums.value(1).is_nan(), sums.value(2)), (f64::INFINITY, true, f64::INFINITY));
}

/// Bins of a field "d" with one value an instant.
fn of_doubles(bins_of: &[&[f64]]) -> Bins {
    let mut part = Bins::new(1000, [("d", &FieldType::Double)]);
    let times: Vec<i64> = bins_of.iter().flat_map(|values| 0..i64::try_from(values.len()).unwrap()).collect();
    let column: ArrayRef = Arc::new(Float64Array::from(bins_of.concat()));
    let (mut start, mut pieces) = (0, Vec::new());
    for (meta, values) in (0_i64..).zip(bins_of) {
        pieces.push((part.meta(&MetaKey::of(&Value::Int(meta))), start..start + values.len()));
        start += values.len();
    }
    part.fold(&times, &[Some(column)], &pieces).unwrap();
    part
}

#[test]
fn sums_of_doubles_do_not_depend_on_the_order_of_values_and_parts() {
    let values = [1e16, 1.0, -1e16, 0.5];
    let orders = (0..24).map(|number| {
        let mut left = values.to_vec();
        [4, 3, 2, 1].map(|count| left.remove(number / [6, 2, 1, 1][4 - count] % count))
    });
    for order in orders {
        for cut in 0..=values.len() {
            let mut whole = of_doubles(&[&order[..cut]]);
            whole.merge(&of_doubles(&[&order[cut..]]), |_, _| true);
            let results = whole.results(&schema()).unwrap();
            let sum = results.column_by_name("d_sum").unwrap().as_primitive::<Float64Type>().value(0);
            assert_eq!(sum, 1.5, "{order:?}, cut at {cut}");
        }
    }
}

#[test]
fn deviations_of_decimals_are_stored_as_whole_numbers_and_come_back() {
    let decimals: [&[f64]; 3] = [&[20.25, 20.5, -3.75], &[7.5, 7.5], &[1013.25, 1013.5, 1012.75, 1013.0, 1014.25]];
    let part = of_doubles(&decimals);
    let (stored_schema, batch) = stored(&part);
    assert!(stored_schema.field_type("d.squares").is_none(), "{stored_schema:?}");
    let excess = batch.column_by_name("d.excess_2").unwrap().as_primitive::<Int64Type>();
    // 2025^2 + 2050^2 + 375^2 - 3700^2 / 3, rounded up; of equal values there is none.
    assert_eq!(excess.iter().collect::<Vec<_>>(), [Some(3_880_417), None, Some(13_250)]);
    let mut back = Bins::new(1000, [("d", &FieldType::Double)]);
    back.add_stored(&batch, &stored_schema, StoredField::plain).unwrap();
    same(&back, &part);
}

#[test]
fn deviations_of_other_doubles_are_stored_as_they_are() {
    let thirds: Vec<f64> = (0..5).map(|n| f64::from(n) / 3.0).collect();
    // All that is known of the second looks like decimals.
    let part = of_doubles(&[&thirds, &[0.0, 1.0 / 3.0, 0.5, 1.0 / 7.0, 0.25]]);
    let (stored_schema, batch) = stored(&part);
    let squares = batch.column_by_name("d.squares").unwrap();
    assert_eq!(squares.null_count(), 0);
    let mut back = Bins::new(1000, [("d", &FieldType::Double)]);
    back.add_stored(&batch, &stored_schema, StoredField::plain).unwrap();
    same(&back, &part);
    let hidden = of_doubles(&[&[0.0, 1.0 / 3.0, 0.5, 1.0 / 7.0, 0.25]]);
    let (stored_schema, batch) = stored(&hidden);
    assert!(batch.column_by_name("d.squares").is_some());
    let mut back = Bins::new(1000, [("d", &FieldType::Double)]);
    back.add_stored(&batch, &stored_schema, StoredField::plain).unwrap();
    same(&back, &hidden);
}

#[test]
fn deviations_of_great_whole_numbers_keep_their_precision() {
    let great = 900_000_000_000_000;
    let values = vec![great, great - 5, great - 11];
    let mut part = Bins::new(1000, [("i", &FieldType::Int64)]);
    let meta = part.meta(&MetaKey::of(&Value::Int(0)));
    part.fold(&[0, 1, 2], &[Some(Arc::new(Int64Array::from(values)))], &[(meta, 0..3)]).unwrap();
    let (stored_schema, batch) = stored(&part);
    assert!(stored_schema.field_type("i.squares").is_some() && stored_schema.field_type("i.excess").is_none());
    let mut back = Bins::new(1000, [("i", &FieldType::Int64)]);
    back.add_stored(&batch, &stored_schema, StoredField::plain).unwrap();
    same(&back, &part);
}

#[test]
fn a_sum_that_is_the_least_whole_number_is_stored_and_comes_back() {
    let mut part = Bins::new(1000, [("i", &FieldType::Int64)]);
    let meta = part.meta(&MetaKey::of(&Value::Int(0)));
    part.fold(&[0, 1], &[Some(Arc::new(Int64Array::from(vec![i64::MIN + 3, -3])))], &[(meta, 0..2)]).unwrap();
    let (stored_schema, batch) = stored(&part);
    let mut back = Bins::new(1000, [("i", &FieldType::Int64)]);
    back.add_stored(&batch, &stored_schema, StoredField::plain).unwrap();
    same(&back, &part);
}
