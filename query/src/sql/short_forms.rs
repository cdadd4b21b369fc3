//! Functions of other databases that are short forms of DataFusion's: `year(t)`, `max_by(v, t)`, `to_days(n)`, and so on.

use super::copies::Copies;
use super::expressions::{add_filter, filled};
use super::lists::is_aggregate;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart,
    OrderByExpr, UnaryOperator, Value,
};

/// The value whose place, of those in order, is the fraction `$2` of their number, rounded up.
const DISCRETE: &str = "(array_sort(array_agg($1) FILTER (WHERE $1 IS NOT NULL))\
     [greatest(1, CAST(ceil($2 * count($1)) AS BIGINT))])";
/// The same in descending order.
const DISCRETE_DESCENDING: &str = "(array_sort(array_agg($1) FILTER (WHERE $1 IS NOT NULL), 'DESC')\
     [greatest(1, CAST(ceil($2 * count($1)) AS BIGINT))])";

/// Aggregates of two arguments, a value and a number, that are lists of the greatest and the least values.
const EXTREMES: [(&str, &str); 2] = [
    ("max", "(array_slice(array_sort(array_agg($1) FILTER (WHERE $1 IS NOT NULL), 'DESC'), 1, $2))"),
    ("min", "(array_slice(array_sort(array_agg($1) FILTER (WHERE $1 IS NOT NULL)), 1, $2))"),
];

/// Calls, their number of arguments, and what they stand for. `$1` and so on are the arguments; FILTER and OVER of a
/// call are moved to the call that the text is, and FILTER to all aggregates of any other text.
const CALLS: [(&str, usize, &str); 60] = [
    ("year", 1, "date_part('year', $1)"),
    ("quarter", 1, "date_part('quarter', $1)"),
    ("month", 1, "date_part('month', $1)"),
    ("week", 1, "date_part('week', $1)"),
    ("weekofyear", 1, "date_part('week', $1)"),
    ("day", 1, "date_part('day', $1)"),
    ("dayofmonth", 1, "date_part('day', $1)"),
    ("dayofweek", 1, "date_part('dow', $1)"),
    ("weekday", 1, "date_part('dow', $1)"),
    ("dayofyear", 1, "date_part('doy', $1)"),
    ("hour", 1, "date_part('hour', $1)"),
    ("minute", 1, "date_part('minute', $1)"),
    ("second", 1, "date_part('second', $1)"),
    ("millisecond", 1, "date_part('millisecond', $1)"),
    ("microsecond", 1, "date_part('microsecond', $1)"),
    ("epoch", 1, "date_part('epoch', $1)"),
    ("date", 1, "CAST($1 AS DATE)"),
    ("dayname", 1, "to_char($1, '%A')"),
    ("monthname", 1, "to_char($1, '%B')"),
    ("last_day", 1, "CAST(date_trunc('month', $1) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)"),
    ("epoch_ms", 1, "CAST(round(date_part('epoch', $1) * 1000) AS BIGINT)"),
    ("strftime", 2, "to_char($1, $2)"),
    ("age", 1, "age(current_date, $1)"),
    ("date_add", 2, "($1 + $2)"),
    ("to_microseconds", 1, "($1 * INTERVAL '1 microsecond')"),
    ("to_milliseconds", 1, "($1 * INTERVAL '1 millisecond')"),
    ("to_seconds", 1, "($1 * INTERVAL '1 second')"),
    ("to_minutes", 1, "($1 * INTERVAL '1 minute')"),
    ("to_hours", 1, "($1 * INTERVAL '1 hour')"),
    ("to_days", 1, "($1 * INTERVAL '1 day')"),
    ("to_weeks", 1, "($1 * INTERVAL '7 days')"),
    ("to_months", 1, "($1 * INTERVAL '1 month')"),
    ("to_quarters", 1, "($1 * INTERVAL '3 months')"),
    ("to_years", 1, "($1 * INTERVAL '12 months')"),
    ("regexp_matches", 2, "regexp_like($1, $2)"),
    ("regexp_matches", 3, "regexp_like($1, $2, $3)"),
    ("regexp_full_match", 2, "regexp_like($1, '^(?:' || $2 || ')$')"),
    ("string_split", 2, "string_to_array($1, nullif($2, ''))"),
    ("str_split", 2, "string_to_array($1, nullif($2, ''))"),
    ("split", 2, "string_to_array($1, nullif($2, ''))"),
    ("max_by", 2, "last_value($1 ORDER BY $2) FILTER (WHERE $1 IS NOT NULL AND $2 IS NOT NULL)"),
    ("arg_max", 2, "last_value($1 ORDER BY $2) FILTER (WHERE $1 IS NOT NULL AND $2 IS NOT NULL)"),
    ("argmax", 2, "last_value($1 ORDER BY $2) FILTER (WHERE $1 IS NOT NULL AND $2 IS NOT NULL)"),
    ("min_by", 2, "first_value($1 ORDER BY $2) FILTER (WHERE $1 IS NOT NULL AND $2 IS NOT NULL)"),
    ("arg_min", 2, "first_value($1 ORDER BY $2) FILTER (WHERE $1 IS NOT NULL AND $2 IS NOT NULL)"),
    ("argmin", 2, "first_value($1 ORDER BY $2) FILTER (WHERE $1 IS NOT NULL AND $2 IS NOT NULL)"),
    ("count_if", 1, "count(*) FILTER (WHERE $1)"),
    ("percentile", 2, "percentile_cont($2) WITHIN GROUP (ORDER BY $1)"),
    ("quantile", 2, "percentile_cont($2) WITHIN GROUP (ORDER BY $1)"),
    ("percentile_cont", 2, "percentile_cont($2) WITHIN GROUP (ORDER BY $1)"),
    ("quantile_cont", 2, "percentile_cont($2) WITHIN GROUP (ORDER BY $1)"),
    ("approx_quantile", 2, "approx_percentile_cont($2) WITHIN GROUP (ORDER BY $1)"),
    ("quantile_disc", 2, DISCRETE),
    ("percentile_disc", 2, DISCRETE),
    (
        "width_bucket",
        4,
        "CASE WHEN $1 < $2 THEN 0 WHEN $1 >= $3 THEN $4 + 1 \
         ELSE CAST(floor(CAST($1 - $2 AS DOUBLE) / CAST($3 - $2 AS DOUBLE) * $4) AS BIGINT) + 1 END",
    ),
    ("stdev", 1, "stddev($1)"),
    ("average", 1, "avg($1)"),
    ("mod", 2, "($1 % $2)"),
    ("sign", 1, "signum($1)"),
    ("variance", 1, "var($1)"),
];

/// Names of calls, and what they stand for.
pub(crate) fn calls() -> impl Iterator<Item = (&'static str, &'static str)> {
    CALLS.iter().map(|(name, _, meaning)| (*name, *meaning))
}

/// What a call stands for; `None` if it is no short form.
///
/// # Errors
/// What is refused, if arguments are repeated too often.
pub(super) fn expand(call: &Function, copies: &mut Copies) -> Result<Option<Expr>, &'static str> {
    let Some((text, args)) = short_form(call) else { return Ok(None) };
    for (at, arg) in (1..).zip(&args) {
        let uses = text.matches(&format!("${at}")).count();
        copies.add(arg, uses.saturating_sub(1))?;
    }
    Ok(filled(text, &args).and_then(|expanded| with_clauses(expanded, call)))
}

/// What a call stands for as a text, and its arguments.
fn short_form(call: &Function) -> Option<(&'static str, Vec<Expr>)> {
    let [ObjectNamePart::Identifier(Ident { value: name, quote_style: None, .. })] = call.name.0.as_slice() else {
        return None;
    };
    let FunctionArguments::List(list) = &call.args else { return None };
    if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        return None;
    }
    let arg = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    let mut args = list.args.iter().map(arg).collect::<Option<Vec<Expr>>>()?;
    let text = match call.within_group.as_slice() {
        [] => meaning(name, &args)?,
        [order] => ordered(name, order, &mut args)?,
        _ => return None,
    };
    // The format may come first. If it is no text here, the types tell: `functions::casts` swaps the two.
    if name.eq_ignore_ascii_case("strftime") && is_text(&args[0]) && !is_text(&args[1]) {
        args.swap(0, 1);
    }
    Some((text, args))
}

/// Moves OVER and FILTER of a call to what it stands for; `None` if they cannot be moved.
fn with_clauses(mut expanded: Expr, call: &Function) -> Option<Expr> {
    match &mut expanded {
        Expr::Function(root) => {
            root.over.clone_from(&call.over);
            root.null_treatment = root.null_treatment.or(call.null_treatment);
            root.filter = match (root.filter.take(), call.filter.clone()) {
                (Some(ours), Some(given)) => {
                    let given = Box::new(Expr::Nested(given));
                    Some(Box::new(Expr::BinaryOp { left: ours, op: BinaryOperator::And, right: given }))
                }
                (ours, given) => ours.or(given),
            };
        }
        _ if call.over.is_some() => return None,
        expanded => {
            if let Some(condition) = &call.filter
                && !add_filter(expanded, &Expr::Nested(condition.clone()), is_aggregate)
            {
                return None;
            }
        }
    }
    Some(expanded)
}

fn is_text(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, Value::SingleQuotedString(_)))
}

/// What a call with these arguments stands for.
fn meaning(name: &str, args: &[Expr]) -> Option<&'static str> {
    if let Some((_, text)) = EXTREMES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)) {
        // `max(a, b)` of two columns is the `greatest` of other databases.
        let [_, Expr::Value(count)] = args else { return None };
        return matches!(&count.value, Value::Number(digits, _) if digits.parse::<u32>().is_ok_and(|n| n > 0))
            .then_some(*text);
    }
    let (_, _, text) =
        CALLS.iter().find(|(known, arity, _)| name.eq_ignore_ascii_case(known) && *arity == args.len())?;
    match *text {
        DISCRETE if !is_fraction(&args[1]) => None,
        text => Some(text),
    }
}

/// What `percentile_disc(f) WITHIN GROUP (ORDER BY x)` stands for, whose arguments become those of `quantile_disc(x, f)`.
fn ordered(name: &str, order: &OrderByExpr, args: &mut Vec<Expr>) -> Option<&'static str> {
    let is_it = name.eq_ignore_ascii_case("percentile_disc") && args.len() == 1 && is_fraction(&args[0]);
    if !is_it || order.options.nulls_first.is_some() || order.with_fill.is_some() {
        return None;
    }
    args.insert(0, order.expr.clone());
    Some(if order.options.asc == Some(false) { DISCRETE_DESCENDING } else { DISCRETE })
}

/// Whether an argument may be a number from 0 to 1.
fn is_fraction(arg: &Expr) -> bool {
    match arg {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse::<f64>().is_ok_and(|fraction| (0.0..=1.0).contains(&fraction)),
            other => matches!(other, Value::Placeholder(_)),
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, .. } | Expr::Array(_) => false,
        _ => true,
    }
}
