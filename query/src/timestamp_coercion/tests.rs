use super::*;
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::logical_expr::{col, lit};

fn rewritten(expr: Expr, unit: TimeUnit) -> String {
    let schema = Schema::new(vec![Field::new("t", DataType::Timestamp(unit, Some("UTC".into())), false)]);
    let schema = DFSchema::try_from(schema).unwrap();
    let now = DateTime::from_timestamp(1_700_000_000, 123_456_789);
    rewrite_expr(expr, &schema, now, &Arc::new(ConfigOptions::default())).unwrap().to_string()
}

fn literal(text: &str) -> Expr {
    Expr::Cast(Cast::new(Box::new(lit(text)), DataType::Timestamp(TimeUnit::Nanosecond, None)))
}

#[test]
fn literals_finer_than_the_column_are_rounded_to_the_side_that_keeps_the_meaning() {
    let fine = || literal("1970-01-01T00:00:00.005000001Z");
    let ms = |expr| rewritten(expr, TimeUnit::Millisecond);
    assert_eq!(ms(col("t").lt(fine())), "t <= TimestampMillisecond(5, Some(\"UTC\"))");
    assert_eq!(ms(col("t").gt_eq(fine())), "t > TimestampMillisecond(5, Some(\"UTC\"))");
    assert_eq!(ms(fine().lt(col("t"))), "t > TimestampMillisecond(5, Some(\"UTC\"))");
    assert!(ms(col("t").eq(fine())).contains(&i64::MIN.to_string()));
    assert_eq!(ms(col("t").lt(literal("1970-01-01T00:00:00.005Z"))), "t < TimestampMillisecond(5, Some(\"UTC\"))");
    assert_eq!(ms(col("t").lt(lit("1969-12-31T23:59:59.9999Z"))), "t <= TimestampMillisecond(-1, Some(\"UTC\"))");
}

#[test]
fn years_that_nanoseconds_cannot_hold_work_in_every_unit() {
    assert_eq!(
        rewritten(col("t").gt(literal("1500-01-01T00:00:00Z")), TimeUnit::Millisecond),
        "t > TimestampMillisecond(-14831769600000, Some(\"UTC\"))"
    );
    let ns = rewritten(col("t").gt(literal("1500-01-01T00:00:00Z")), TimeUnit::Nanosecond);
    assert!(ns.starts_with("t >= ") && ns.contains(&i64::MIN.to_string()), "{ns}");
}

#[test]
fn between_and_in_are_rewritten_too() {
    let ms = |expr| rewritten(expr, TimeUnit::Millisecond);
    assert_eq!(
        ms(col("t").between(lit("1970-01-01T00:00:00.0011Z"), lit("1970-01-01T00:00:00.0029Z"))),
        "t > TimestampMillisecond(1, Some(\"UTC\")) AND t <= TimestampMillisecond(2, Some(\"UTC\"))"
    );
    let list = ms(col("t").in_list(vec![lit("1970-01-01T00:00:00.0011Z"), lit("1970-01-01T00:00:00.002Z")], false));
    assert_eq!(list, "t IN ([TimestampMillisecond(2, Some(\"UTC\"))])");
}

#[test]
fn texts_that_are_no_times_and_other_columns_are_left_alone() {
    assert_eq!(rewritten(col("t").lt(lit("soon")), TimeUnit::Millisecond), "t < Utf8(\"soon\")");
    assert_eq!(rewritten(col("t").lt(col("t")), TimeUnit::Millisecond), "t < t");
}
