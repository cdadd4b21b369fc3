use super::*;
use crate::testing::{rows, schema};
use arrow::array::*;
use arrow::datatypes::{Int8Type, Int32Type};

fn times(values: &[i64]) -> ArrayRef {
    Arc::new(TimestampMillisecondArray::from(values.to_vec()).with_timezone("UTC"))
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap()
}

#[track_caller]
fn refused(columns: Vec<(&str, ArrayRef)>, schema: &Schema) -> (usize, Code) {
    let error = batch_from_arrow(&batch(columns), schema).unwrap_err();
    (error.index, error.error.code)
}

#[test]
fn canonical_columns_are_not_copied() {
    let doubles = Arc::new(Float64Array::from(vec![1.5, 2.5]));
    let accepted = batch_from_arrow(&batch(vec![("x", doubles.clone()), ("t", times(&[1, 2]))]), &schema()).unwrap();
    assert_eq!(accepted.batch.schema(), accepted.schema.arrow());
    let kept: &Float64Array = accepted.batch.column(1).as_primitive();
    assert_eq!(kept.values().as_ptr(), doubles.values().as_ptr());
}

#[test]
fn lists_of_bools_without_values_leave_the_item_type_open() {
    let mut lists = ListBuilder::new(BooleanBuilder::new());
    lists.append(true);
    lists.append_value([None::<bool>]);
    let lists: ArrayRef = Arc::new(lists.finish());
    let inner = Arc::new(Field::new("l", lists.data_type().clone(), true));
    let object: ArrayRef = Arc::new(StructArray::from(vec![(inner, lists.clone())]));
    let empty = batch(vec![("t", times(&[1, 2])), ("l", lists), ("o", object)]);
    let open = batch_from_arrow(&empty, &schema()).unwrap().schema;
    let of = |item| FieldType::List(Box::new(item));
    assert_eq!(open.field_type("l"), Some(&of(FieldType::Unknown)));
    assert_eq!(open.field_type("o"), Some(&FieldType::Object(vec![("l".to_owned(), of(FieldType::Unknown))])));
    let mut texts = ListBuilder::new(StringBuilder::new());
    texts.append_value([Some("x")]);
    let texts = batch(vec![("t", times(&[3])), ("l", Arc::new(texts.finish()))]);
    let known = batch_from_arrow(&texts, &open).unwrap().schema;
    assert_eq!(known.field_type("l"), Some(&of(FieldType::String)));
    let again = batch_from_arrow(&empty, &known).unwrap();
    assert_eq!((again.batch.schema(), &again.schema), (known.arrow(), &known));
}

#[test]
fn other_widths_and_encodings_become_canonical() {
    let dictionary: DictionaryArray<Int8Type> = vec![Some("a"), None].into_iter().collect();
    let decimal = Decimal128Array::from(vec![Some(125), None]).with_precision_and_scale(9, 2).unwrap();
    let list = LargeListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]);
    let accepted = batch_from_arrow(
        &batch(vec![
            ("t", Arc::new(TimestampNanosecondArray::from(vec![-1, 1_000_000]))),
            ("m", Arc::new(dictionary)),
            ("i", Arc::new(UInt16Array::from(vec![Some(7), None]))),
            ("f", Arc::new(Float32Array::from(vec![0.5, 1.0]))),
            ("s", Arc::new(LargeStringArray::from(vec!["x", "y"]))),
            ("day", Arc::new(Date32Array::from(vec![1, -1]))),
            ("dec", Arc::new(decimal)),
            ("l", Arc::new(list)),
            ("none", Arc::new(NullArray::new(2))),
            ("gone", Arc::new(Int64Array::new_null(2))),
        ]),
        &schema(),
    )
    .unwrap();
    let names: Vec<&str> = accepted.schema.fields.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["i", "f", "s", "day", "dec", "l"]);
    assert_eq!(accepted.batch.schema(), accepted.schema.arrow());
    let got = rows(&accepted.batch);
    assert!(got[0].starts_with("t=Date(Timestamp(-1000000)) m=String(\"a\") i=Int(7)"), "{}", got[0]);
    assert!(got[0].contains("dec=Double(3ff4000000000000)"), "{}", got[0]);
    assert!(got[1].contains("day=Date(Timestamp(-86400000000000))"), "{}", got[1]);
}

#[test]
fn decimals_whose_whole_part_no_double_holds_are_refused() {
    let decimals = |values: Vec<i128>, scale| {
        let column = Decimal128Array::from(values).with_precision_and_scale(38, scale).unwrap();
        batch_from_arrow(&batch(vec![("t", times(&[1, 2])), ("x", Arc::new(column))]), &schema())
    };
    for (values, scale) in [
        (vec![1, 9_007_199_254_740_993], 0),
        (vec![1, -90_071_992_547_409_931], 1),
        (vec![1, i128::from(i64::MAX)], 0),
        (vec![1, i128::from(i64::MAX) + 2], 0),
        (vec![1, -(10_i128.pow(37) + 1)], 0),
        (vec![1, 10_i128.pow(37) + 1], 2),
    ] {
        let error = decimals(values, scale).unwrap_err();
        assert_eq!((error.index, error.error.code), (1, Code::TypeMismatch));
        assert!(error.to_string().contains("no double holds exactly"), "{error}");
    }
    // A fraction is rounded, as in a text.
    for (values, scale) in
        [(vec![9_007_199_254_740_994, 1], 0), (vec![1, -(1_i128 << 100)], 0), (vec![1, 10_i128.pow(20) + 1], 20)]
    {
        assert!(decimals(values, scale).is_ok());
    }
    let accepted = decimals(vec![15, 9_827_207_493_607_322_880], 1).unwrap();
    let stored = accepted.batch.column(accepted.batch.num_columns() - 1);
    assert_eq!(stored.as_primitive::<arrow::datatypes::Float64Type>().values(), &[1.5, 982_720_749_360_732_288.0]);
}

#[test]
fn decimals_are_the_doubles_of_their_texts() {
    let digits =
        [0, 1, -3, 15, 299_792_458, -123_456_789_012_345, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, i128::from(i64::MAX)];
    for (scale, digits) in (0..=30).flat_map(|scale| digits.map(|digits| (scale, digits))) {
        let column = Decimal128Array::from(vec![digits, 1]).with_precision_and_scale(38, scale).unwrap();
        let text = column.value_as_string(0);
        let read = batch_from_arrow(&batch(vec![("t", times(&[1, 2])), ("x", Arc::new(column))]), &schema());
        let Ok(accepted) = read else { continue };
        let stored = accepted.batch.column(accepted.batch.num_columns() - 1);
        let stored = stored.as_primitive::<arrow::datatypes::Float64Type>().value(0);
        assert_eq!(stored.to_bits(), text.parse::<f64>().unwrap().to_bits(), "{text}");
    }
}

#[test]
fn the_time_column_is_required_and_whole() {
    assert_eq!(refused(vec![("x", times(&[1]))], &schema()), (0, Code::BadValue));
    assert_eq!(refused(vec![("t", Arc::new(Int64Array::from(vec![1])))], &schema()), (0, Code::BadValue));
    let holed = Arc::new(TimestampSecondArray::from(vec![Some(1), None]));
    assert_eq!(refused(vec![("t", holed)], &schema()), (1, Code::BadValue));
    let far = Arc::new(TimestampSecondArray::from(vec![1, i64::MAX]));
    assert_eq!(refused(vec![("t", far)], &schema()), (1, Code::BadValue));
    assert_eq!(refused(vec![("t", Arc::new(NullArray::new(1)))], &schema()), (0, Code::BadValue));
}

#[test]
fn numbers_meet_the_known_type() {
    let known = |ty| Schema { fields: vec![("x".to_owned(), ty)], ..schema() };
    let ints = |v: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(v)) };
    let doubles = |v: Vec<f64>| -> ArrayRef { Arc::new(Float64Array::from(v)) };
    let x = |schema: &Schema, column| {
        batch_from_arrow(&batch(vec![("t", times(&[1, 2])), ("x", column)]), schema)
            .map(|a| a.schema.fields[0].1.clone())
    };
    assert_eq!(x(&known(FieldType::Double), ints(vec![1, 2])), Ok(FieldType::Double));
    let error = x(&known(FieldType::Double), ints(vec![1, (1 << 53) + 1])).unwrap_err();
    assert_eq!((error.index, error.error.code), (1, Code::TypeMismatch));
    assert_eq!(x(&known(FieldType::Int64), doubles(vec![1.0, -2.0])), Ok(FieldType::Int64));
    assert_eq!(x(&known(FieldType::Int64), doubles(vec![1.0, 2.5])), Ok(FieldType::Double));
    assert_eq!(x(&known(FieldType::Int64), doubles(vec![1.0, f64::NAN])), Ok(FieldType::Double));
    let error = x(&known(FieldType::String), ints(vec![1, 2])).unwrap_err();
    assert!(error.to_string().contains("field 'x' is string, the value is an int64"), "{error}");
    let big = Arc::new(UInt64Array::from(vec![1, u64::MAX]));
    let error = x(&schema(), big).unwrap_err();
    assert_eq!((error.index, error.error.code), (1, Code::TypeMismatch));
}

#[test]
fn objects_merge_their_members() {
    let inner: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let object = StructArray::try_from(vec![("b", inner)]).unwrap();
    let text = ("a".to_owned(), FieldType::String);
    let known = Schema { meta_type: Some(FieldType::Object(vec![text.clone()])), ..schema() };
    let accepted = batch_from_arrow(&batch(vec![("t", times(&[1, 2])), ("m", Arc::new(object))]), &known).unwrap();
    let expected = FieldType::Object(vec![text, ("b".to_owned(), FieldType::Int64)]);
    assert_eq!(accepted.schema.meta_type, Some(expected));
    assert!(rows(&accepted.batch)[1].contains("\"b\": Int(2)"));
}

#[test]
fn unsupported_types_and_double_names_are_refused() {
    let duration = Arc::new(DurationSecondArray::from(vec![1]));
    assert_eq!(refused(vec![("t", times(&[1])), ("x", duration)], &schema()), (0, Code::TypeMismatch));
    assert_eq!(refused(vec![("t", times(&[1])), ("t", times(&[1]))], &schema()), (0, Code::BadValue));
    let x = || -> ArrayRef { Arc::new(Int64Array::from(vec![1])) };
    assert_eq!(refused(vec![("t", times(&[1])), ("x", x()), ("x", x())], &schema()), (0, Code::BadValue));
    assert_eq!(refused(vec![("t", times(&[1])), ("", x())], &schema()), (0, Code::BadValue));
}

#[test]
fn lists_hold_scalars_only() {
    let list = |items: ArrayRef, offsets: Vec<i32>, valid: Vec<bool>| -> ArrayRef {
        let field = Arc::new(Field::new("item", items.data_type().clone(), true));
        let offsets = arrow::buffer::OffsetBuffer::new(offsets.into());
        Arc::new(ListArray::new(field, offsets, items, Some(valid.into())))
    };
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let lists = list(ints.clone(), vec![0, 1, 2], vec![true, true]);
    let objects: ArrayRef = Arc::new(StructArray::try_from(vec![("x", ints.clone())]).unwrap());
    for items in [lists, objects] {
        let nested = list(items.clone(), vec![0, 0, 2], vec![false, true]);
        let inside: ArrayRef = Arc::new(StructArray::try_from(vec![("l", nested.clone())]).unwrap());
        for column in [nested, inside] {
            for name in ["x", "m"] {
                let columns = vec![("t", times(&[1, 2])), (name, column.clone())];
                assert_eq!(refused(columns, &schema()), (1, Code::TypeMismatch));
            }
        }
        let none = list(items, vec![0, 0, 0], vec![false, false]);
        batch_from_arrow(&batch(vec![("t", times(&[1, 2])), ("x", none)]), &schema()).unwrap();
    }
}

/// Behind a null and outside a slice, an array may hold anything: here what no field of a known type takes.
#[test]
fn values_that_no_row_shows_are_neither_checked_nor_kept() {
    let known = Schema {
        fields: vec![
            ("l".to_owned(), FieldType::List(Box::new(FieldType::Double))),
            ("o".to_owned(), FieldType::Object(vec![("x".to_owned(), FieldType::Double)])),
        ],
        ..schema()
    };
    let unfit = i64::MAX - 1;
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let offsets = arrow::buffer::OffsetBuffer::new(vec![0, 1, 2, 3, 4].into());
    let items: ArrayRef = Arc::new(Int64Array::from(vec![unfit, 2, unfit, unfit]));
    let list = ListArray::new(item, offsets, items, Some(vec![true, true, false, true].into()));
    let member: ArrayRef = Arc::new(Int64Array::from(vec![unfit, 2, unfit, unfit]));
    let member_of = Fields::from(vec![Field::new("x", DataType::Int64, true)]);
    let object = StructArray::new(member_of, vec![member], Some(vec![true, true, false, true].into()));
    let whole = batch(vec![("t", times(&[1, 2, 3, 4])), ("l", Arc::new(list)), ("o", Arc::new(object))]);
    assert_eq!(batch_from_arrow(&whole, &known).unwrap_err().index, 0);
    assert_eq!(batch_from_arrow(&whole.slice(1, 3), &known).unwrap_err().index, 2);
    let accepted = batch_from_arrow(&whole.slice(1, 2), &known).unwrap();
    assert_eq!(accepted.batch.column_by_name("l").unwrap().as_list::<i32>().values().len(), 1);
    let x = accepted.batch.column_by_name("o").unwrap().as_struct().column(0).clone();
    assert_eq!((x.is_valid(0), x.is_valid(1)), (true, false));
}

#[test]
fn an_empty_batch_is_fine() {
    let empty = batch_from_arrow(&batch(vec![("t", times(&[])), ("x", Arc::new(NullArray::new(0)))]), &schema());
    assert_eq!(empty.unwrap().batch.num_rows(), 0);
}

#[test]
fn a_name_that_is_there_twice_is_refused_though_one_has_only_nulls() {
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let nulls: ArrayRef = Arc::new(Int64Array::from(vec![None]));
    let field = |name: &str| Arc::new(Field::new(name, DataType::Int64, true));
    for (first, second) in [(&ints, &nulls), (&nulls, &ints)] {
        let columns = vec![("t", times(&[1])), ("x", first.clone()), ("x", second.clone())];
        assert_eq!(refused(columns, &schema()), (0, Code::BadValue));
        let object = StructArray::new(vec![field("y"), field("y")].into(), vec![first.clone(), second.clone()], None);
        assert_eq!(refused(vec![("t", times(&[1])), ("x", Arc::new(object))], &schema()), (0, Code::BadValue));
    }
}
