//! Columns of values of several types, which are shown as Extended JSON: what is inserted from them, and comparisons of them with
//! numbers.

use super::cells::PlannedDocuments;
use super::table::DocumentsTable;
use crate::several::is_json_of_several;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, JoinType, Result, ScalarValue};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::expr::{Between, Case, Cast, InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Distinct, Expr, LogicalPlan, Operator, TableScan, TryCast};
use ebbtide::documents_model::bson::raw::RawBsonRef;
use ebbtide::documents_model::json::relaxed_value_text;

/// Which columns of a plan have the values of columns of ordinary collections that show Extended JSON, unchanged. A text that an
/// expression makes is not one.
pub(crate) fn json_columns(plan: &LogicalPlan) -> Vec<bool> {
    // Each input is looked at once: a plan in which each column names one below it twice would take 2^n steps.
    let mut found = match plan {
        LogicalPlan::TableScan(scan) => scanned(scan),
        LogicalPlan::Projection(projection) => Rows::of(&projection.input).give(&projection.expr),
        LogicalPlan::Distinct(Distinct::On(on)) => Rows::of(&on.input).give(&on.select_expr),
        LogicalPlan::Distinct(Distinct::All(input)) => json_columns(input),
        LogicalPlan::Aggregate(aggregate) => {
            let groups = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
            let rows = Rows::of(&aggregate.input);
            let mut found = rows.give(&aggregate.group_expr);
            found.resize(groups, false);
            found.extend(rows.give(&aggregate.aggr_expr));
            found
        }
        LogicalPlan::Filter(filter) => json_columns(&filter.input),
        LogicalPlan::Sort(sort) => json_columns(&sort.input),
        LogicalPlan::Limit(limit) => json_columns(&limit.input),
        LogicalPlan::SubqueryAlias(alias) => json_columns(&alias.input),
        LogicalPlan::Window(window) => {
            let rows = Rows::of(&window.input);
            let computed = rows.give(&window.window_expr);
            [rows.json, computed].concat()
        }
        LogicalPlan::Union(union) => {
            let inputs: Vec<Vec<bool>> = union.inputs.iter().map(|input| json_columns(input)).collect();
            let of_all = |at: usize| inputs.iter().all(|json| json.get(at) == Some(&true));
            (0..union.schema.fields().len()).map(of_all).collect()
        }
        LogicalPlan::Join(join) => {
            let of_right = matches!(join.join_type, JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark);
            let mut found = if of_right { Vec::new() } else { json_columns(&join.left) };
            if !matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark) {
                found.extend(json_columns(&join.right));
            }
            found
        }
        _ => Vec::new(),
    };
    found.resize(plan.schema().fields().len(), false);
    found
}

fn scanned(scan: &TableScan) -> Vec<bool> {
    let columns: Vec<usize> = match &scan.projection {
        Some(columns) => columns.clone(),
        None => (0..scan.source.schema().fields().len()).collect(),
    };
    if let Some(view) = scan.source.get_logical_plan() {
        let json = json_columns(&view);
        return columns.into_iter().map(|at| json.get(at) == Some(&true)).collect();
    }
    let Ok(table) = source_as_provider(&scan.source) else { return vec![false; columns.len()] };
    let is_json = |at: usize| match table.downcast_ref::<DocumentsTable>() {
        Some(table) => table.planned.is_json(at),
        None => is_json_of_several(&table, at),
    };
    columns.into_iter().map(is_json).collect()
}

/// The rows of a plan.
struct Rows<'p> {
    schema: &'p DFSchema,
    /// [`json_columns`].
    json: Vec<bool>,
}

impl Rows<'_> {
    fn of(plan: &LogicalPlan) -> Rows<'_> {
        Rows { schema: plan.schema(), json: json_columns(plan) }
    }

    fn is_json(&self, column: &Column) -> bool {
        self.schema.maybe_index_of_column(column).is_some_and(|at| self.json[at])
    }

    /// Which expressions over these rows give only values of such columns.
    fn give(&self, exprs: &[Expr]) -> Vec<bool> {
        exprs.iter().map(|expr| gives_json(expr, &|column| self.is_json(column))).collect()
    }
}

/// Whether an expression is one of the columns that `is_json` accepts, or chooses among values of them, as `CASE` and `max` do.
fn gives_json(expr: &Expr, is_json: &dyn Fn(&Column) -> bool) -> bool {
    let values: Vec<&Expr> = match expr {
        Expr::Column(column) => return is_json(column),
        Expr::Alias(alias) => vec![alias.expr.as_ref()],
        Expr::Case(case) => {
            let then = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            then.chain(case.else_expr.as_deref()).collect()
        }
        Expr::ScalarFunction(call) => chosen(call.name(), &call.args),
        Expr::AggregateFunction(call) => chosen(call.func.name(), &call.params.args),
        Expr::WindowFunction(call) => chosen(call.fun.name(), &call.params.args),
        _ => return false,
    };
    let is_null = |value: &Expr| matches!(value, Expr::Literal(value, _) if value.is_null());
    let mut known = values.into_iter().filter(|value| !is_null(value)).peekable();
    known.peek().is_some() && known.all(|value| gives_json(value, is_json))
}

/// The arguments of a call whose values it gives.
fn chosen<'e>(function: &str, args: &'e [Expr]) -> Vec<&'e Expr> {
    match function {
        "coalesce" | "greatest" | "least" | "nvl" => args.iter().collect(),
        // The second argument says which row is meant, or for which value there is none.
        "first" | "first_value" | "lag" | "last" | "last_value" | "lead" | "max" | "min" | "nth_value" | "nullif" => {
            args.iter().take(1).chain(args.iter().skip(2)).collect()
        }
        _ => Vec::new(),
    }
}

/// Rewrites the comparisons of such columns with numbers, and the calls that have them beside others, in a plan that has not been analyzed.
pub(crate) fn rewrite_plan(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches!(node, LogicalPlan::TableScan(scan) if scanned(scan).contains(&true));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !found {
        return Ok(plan);
    }
    let mut is_changed = false;
    let rewritten = plan.transform_up_with_subqueries(|plan| {
        // The types of the nodes above may change too.
        let plan = if is_changed { plan.recompute_schema()? } else { plan };
        let rewritten = in_node(plan)?;
        is_changed |= rewritten.transformed;
        if rewritten.transformed { rewritten.map_data(LogicalPlan::recompute_schema) } else { Ok(rewritten) }
    })?;
    Ok(rewritten.data)
}

fn in_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut found = false;
    plan.apply_expressions(|expr| {
        found |= expr.exists(|expr| Ok(is_compared(expr)))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !found {
        return Ok(Transformed::no(plan));
    }
    let names = NamePreserver::new(&plan);
    let inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
    let inputs: Vec<Rows<'_>> = inputs.iter().map(Rows::of).collect();
    let is_json = |column: &Column| inputs.iter().any(|input| input.is_json(column));
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        Ok(expr.transform_up(|expr| compared(expr, &is_json))?.update_data(|expr| name.restore(expr)))
    })
}

/// Rewrites the comparisons of an expression over the rows of a collection.
pub(crate) fn in_expr(expr: Expr, planned: &PlannedDocuments) -> Result<Expr> {
    Ok(expr.transform_up(|expr| compared(expr, &|column| is_column(column, planned)))?.data)
}

/// Whether the values that an expression over the rows of a collection gives are those of such columns.
pub(crate) fn is_given(expr: &Expr, planned: &PlannedDocuments) -> bool {
    gives_json(expr, &|column| is_column(column, planned))
}

fn is_column(column: &Column, planned: &PlannedDocuments) -> bool {
    planned.positions(&[&column.name]).is_ok_and(|at| planned.is_json(at[0]))
}

/// Whether an expression compares a column with a number.
fn is_compared(expr: &Expr) -> bool {
    let is_column = |expr: &Expr| matches!(expr, Expr::Column(_));
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => {
            (is_column(left) && number(right).is_some()) || (is_column(right) && number(left).is_some())
        }
        Expr::Between(Between { expr, low, high, .. }) => {
            is_column(expr) && number(low).is_some() && number(high).is_some()
        }
        Expr::InList(InList { expr, list, .. }) => is_column(expr) && list.iter().any(|item| number(item).is_some()),
        Expr::ScalarFunction(call) => is_mixing(call.name()),
        _ => false,
    }
}

/// Whether a function has its arguments in one type.
fn is_mixing(function: &str) -> bool {
    matches!(function, "coalesce" | "greatest" | "least" | "nvl" | "nullif")
}

/// A call in which values of such columns stand beside others, all of them as texts. The types alone would make numbers of all texts.
fn as_texts(mut call: ScalarFunction, is_json: &dyn Fn(&Column) -> bool) -> Transformed<Expr> {
    let is_given: Vec<bool> = call.args.iter().map(|arg| gives_json(arg, is_json)).collect();
    if let ("nullif", [column, other], [true, false]) = (call.name(), call.args.as_slice(), is_given.as_slice())
        && let Some(texts) = number(other)
    {
        let is_equal = Expr::InList(InList::new(Box::new(column.clone()), texts, false));
        let null = Box::new(Expr::Literal(ScalarValue::Null, None));
        let case = Case::new(None, vec![(Box::new(is_equal), null)], Some(Box::new(column.clone())));
        return Transformed::yes(Expr::Case(case));
    }
    let mut changed = false;
    if is_given.contains(&true) {
        for (arg, is_given) in call.args.iter_mut().zip(is_given) {
            if !is_given && !matches!(arg, Expr::Literal(value, _) if value.is_null()) {
                *arg = Expr::Cast(Cast::new(Box::new(std::mem::take(arg)), DataType::Utf8View));
                changed = true;
            }
        }
    }
    Transformed::new_transformed(Expr::ScalarFunction(call), changed)
}

/// A comparison of such a column with numbers: an equal value is one with the text of the number, and for an order all that are not
/// numbers are NULL. The types alone would make numbers of all texts.
fn compared(expr: Expr, is_json: &dyn Fn(&Column) -> bool) -> Result<Transformed<Expr>> {
    let is_column = |expr: &Expr| matches!(expr, Expr::Column(column) if is_json(column));
    Ok(match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_column(&right) && number(&left).is_some() => {
            match op.swap() {
                Some(op) => comparison(right, op, left),
                None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_column(&left) && number(&right).is_some() => {
            comparison(left, op, right)
        }
        Expr::Between(between)
            if is_column(&between.expr) && number(&between.low).is_some() && number(&between.high).is_some() =>
        {
            Transformed::yes(Expr::Between(Between { expr: as_double(between.expr), ..between }))
        }
        Expr::InList(list) if is_column(&list.expr) => {
            let is_literal = |item: &Expr| matches!(item, Expr::Literal(..));
            if !list.list.iter().all(is_literal) || !list.list.iter().any(|item| number(item).is_some()) {
                return Ok(Transformed::no(Expr::InList(list)));
            }
            let items = list.list.into_iter().flat_map(|item| match number(&item) {
                Some(texts) => texts,
                None => vec![item],
            });
            Transformed::yes(Expr::InList(InList::new(list.expr, items.collect(), list.negated)))
        }
        Expr::ScalarFunction(call) if is_mixing(call.name()) => as_texts(call, is_json),
        other => Transformed::no(other),
    })
}

fn comparison(column: Box<Expr>, op: Operator, literal: Box<Expr>) -> Transformed<Expr> {
    match (op, number(&literal)) {
        (Operator::Eq | Operator::NotEq, Some(texts)) => {
            Transformed::yes(Expr::InList(InList::new(column, texts, op == Operator::NotEq)))
        }
        (Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq, _) => {
            Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(as_double(column), op, literal)))
        }
        _ => Transformed::no(Expr::BinaryExpr(BinaryExpr::new(column, op, literal))),
    }
}

fn as_double(column: Box<Expr>) -> Box<Expr> {
    Box::new(Expr::TryCast(TryCast::new(column, DataType::Float64)))
}

/// The texts that show a number in such a column, as an integer and as a double.
fn number(literal: &Expr) -> Option<Vec<Expr>> {
    let Expr::Literal(value, _) = literal else { return None };
    if !value.data_type().is_numeric() || value.is_null() {
        return None;
    }
    let (whole, double) = (value.cast_to(&DataType::Int64), value.cast_to(&DataType::Float64));
    let mut texts = Vec::new();
    let back = |number: &ScalarValue| number.cast_to(&value.data_type()).is_ok_and(|back| back == *value);
    if let Ok(whole) = whole
        && back(&whole)
        && let ScalarValue::Int64(Some(whole)) = whole
    {
        texts.push(relaxed_value_text(RawBsonRef::Int64(whole)));
    }
    if let Ok(double) = double
        && back(&double)
        && let ScalarValue::Float64(Some(double)) = double
    {
        texts.push(relaxed_value_text(RawBsonRef::Double(double)));
        if double == 0.0 {
            // The two zeros are equal.
            texts.push(relaxed_value_text(RawBsonRef::Double(-double)));
        }
    }
    let text = |text: String| Expr::Literal(ScalarValue::Utf8View(Some(text)), None);
    Some(texts.into_iter().map(text).collect())
}
