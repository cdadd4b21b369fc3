//! INSERT, UPDATE and DELETE on ordinary collections. Each is one atomic and durable step: conditions and new values are computed
//! from what is stored at that moment, not from the statement's snapshot.

use super::cells::{DOCUMENT, ID, PlannedDocuments, WRITTEN};
use super::json;
use super::lookup::filter_of;
use super::values::{plain, value_of, value_of_json};
use crate::dml::forms::{has_subquery, insert_of, part, refuse_other_forms, source_of, table_name};
use crate::error::{QueryError, Result};
use crate::functions::as_in_plans;
use crate::pushdown::unqualified;
use crate::timestamp_coercion::{rewrite_expr, simplifier};
use crate::zeros_in_lists;
use chrono::{DateTime, Utc};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::DFSchema;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::PhysicalExpr;
use datafusion::sql::sqlparser::ast;
use ebbtide::documents_model::bson::raw::{CString, RawBson};
use ebbtide::documents_model::bson::{RawDocument, RawDocumentBuf};
use ebbtide::documents_model::json::document_from_json;
use ebbtide::{Database, Document, OnConflict, Rewrite, Stop};
use ebbtide_ttl::Code;
use serde_json::Value;
use std::sync::Arc;

/// An INSERT into an ordinary collection.
#[derive(Debug)]
pub(crate) struct DocumentsInsert {
    pub(crate) collection: String,
    pub(crate) columns: Vec<String>,
    pub(crate) conflict: OnConflict,
}

/// Splits an INSERT into an ordinary collection into its target and its source; `None` for any other statement.
///
/// # Errors
/// [`Code::BadValue`] for forms of INSERT that only other databases have.
pub(crate) fn take_insert(
    statement: &ast::Statement,
    planned_of: impl Fn(&str) -> Option<PlannedDocuments>,
) -> Result<Option<(DocumentsInsert, Box<ast::Query>)>> {
    let Some((insert, with)) = insert_of(statement) else { return Ok(None) };
    let ast::TableObject::TableName(name) = &insert.table else { return Ok(None) };
    let Some(planned) = table_name(name).and_then(|name| planned_of(&name)) else { return Ok(None) };
    let refused = |what: &str| Err(QueryError::new(Code::BadValue, format!("not supported: {what}")));
    let conflict = match &insert.or {
        None => OnConflict::Refuse,
        Some(ast::SqliteOnConflict::Replace) => OnConflict::Replace,
        Some(_) => {
            return refused(
                "INSERT OR ... but INSERT OR REPLACE, which puts a document in the place of the one with its _id",
            );
        }
    };
    if insert.replace_into || insert.overwrite || insert.on.is_some() || insert.ignore {
        return refused("REPLACE, OVERWRITE, IGNORE and ON CONFLICT; write INSERT OR REPLACE INTO");
    }
    refuse_other_forms(insert)?;
    let source = source_of(insert, with)?;
    let mut columns: Vec<String> = insert.columns.iter().filter_map(|name| name.0.last()).filter_map(part).collect();
    if columns.is_empty() {
        columns = planned.fields().map(str::to_owned).collect();
    }
    Ok(Some((DocumentsInsert { collection: planned.name, columns, conflict }, source)))
}

/// The SELECT whose plan has the expressions of an UPDATE of an ordinary collection, the collection, and the columns that it sets;
/// `None` for any other statement.
///
/// # Errors
/// [`Code::BadValue`] for forms of UPDATE that only other databases have.
pub(crate) fn take_update(
    statement: &ast::Statement,
    planned_of: impl Fn(&str) -> Option<PlannedDocuments>,
) -> Result<Option<(PlannedDocuments, Vec<String>, String)>> {
    let ast::Statement::Update(update) = statement else { return Ok(None) };
    let ast::TableFactor::Table { name, .. } = &update.table.relation else { return Ok(None) };
    let Some(planned) = table_name(name).and_then(|name| planned_of(&name)) else { return Ok(None) };
    let wrong = |what: String| QueryError::new(Code::BadValue, what);
    let unusual = [
        (!update.table.joins.is_empty() || update.from.is_some(), "UPDATE with FROM or a join"),
        (update.returning.is_some() || update.output.is_some(), "RETURNING: an UPDATE returns the number of documents"),
        (update.or.is_some(), "UPDATE OR ..."),
        (!update.order_by.is_empty() || update.limit.is_some(), "ORDER BY and LIMIT of an UPDATE"),
    ];
    if let Some((_, what)) = unusual.into_iter().find(|(is_used, _)| *is_used) {
        return Err(wrong(format!("not supported: {what}")));
    }
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for assignment in &update.assignments {
        let name = match &assignment.target {
            ast::AssignmentTarget::ColumnName(name) => match name.0.as_slice() {
                [one] => part(one),
                _ => None,
            },
            ast::AssignmentTarget::Tuple(_) => None,
        };
        let Some(name) = name else {
            return Err(wrong(format!(
                "not supported: SET {}: set a field of the document as a whole",
                assignment.target
            )));
        };
        match name.as_str() {
            ID => return Err(QueryError::new(Code::ImmutableField, "the _id of a document cannot be changed")),
            WRITTEN | DOCUMENT => {
                return Err(wrong(format!("column {name} cannot be set: set the fields of the document")));
            }
            _ if names.contains(&name) => return Err(wrong(format!("column '{name}' is set twice"))),
            _ => {}
        }
        values.push(format!("({}) AS \"set {}\"", assignment.value, names.len()));
        names.push(name);
    }
    let condition = update.selection.as_ref().map(|e| format!(" WHERE {e}")).unwrap_or_default();
    let select = format!("SELECT {} FROM {}{condition}", values.join(", "), update.table);
    Ok(Some((planned, names, select)))
}

/// What an UPDATE sets a field to.
enum NewValue {
    /// What the document holds in the field of this column, or the whole document.
    Stored(String),
    Computed(Arc<dyn PhysicalExpr>),
    /// Extended JSON texts whose values are stored.
    Json(Arc<dyn PhysicalExpr>),
}

/// The value of a field in the rows that an UPDATE changes.
enum Given<'a> {
    Stored(&'a str),
    Column(ArrayRef),
    Json(ArrayRef),
}

/// What an UPDATE or a DELETE does to each document.
pub(crate) struct Change {
    planned: PlannedDocuments,
    /// A filter in MongoDB's form for what is looked up by `_id`.
    filter: Value,
    condition: Option<Arc<dyn PhysicalExpr>>,
    /// The fields that are set, with their new values; `None` to remove the document.
    values: Option<Vec<(String, NewValue)>>,
    /// The columns that all of these read.
    projection: Vec<usize>,
    schema: SchemaRef,
}

impl Change {
    /// Compiles a DELETE from the input of its plan, or an UPDATE from the plan of its SELECT.
    pub(crate) fn of(
        planned: PlannedDocuments,
        input: &LogicalPlan,
        sets: Option<Vec<String>>,
        state: &SessionState,
        now: Option<DateTime<Utc>>,
    ) -> Result<Change> {
        let statement = if sets.is_some() { "UPDATE" } else { "DELETE" };
        let unsupported =
            |what: &str| QueryError::new(Code::BadValue, format!("not supported: {statement} with {what}"));
        let (values, input) = match (&sets, input) {
            (Some(_), LogicalPlan::Projection(projection)) => (projection.expr.clone(), projection.input.as_ref()),
            (Some(_), _) => return Err(unsupported("anything other than values of its own rows")),
            (None, input) => (Vec::new(), input),
        };
        let condition = match without_alias(input) {
            LogicalPlan::TableScan(_) => None,
            LogicalPlan::Filter(filter) if matches!(without_alias(&filter.input), LogicalPlan::TableScan(_)) => {
                Some(filter.predicate.clone())
            }
            LogicalPlan::Limit(_) => return Err(unsupported("LIMIT")),
            _ => return Err(unsupported("anything other than a condition on its own rows")),
        };
        let full = DFSchema::try_from(planned.arrow.as_ref().clone())?;
        let ready = |expr: Expr| -> Result<Expr> {
            if has_subquery(&expr) {
                return Err(unsupported("a subquery; SELECT the values first"));
            }
            let expr = json::in_expr(unqualified(expr.unalias())?, &planned)?;
            Ok(as_in_plans(rewrite_expr(expr, &full, now, state.config_options())?, &full, state)?)
        };
        let condition = condition.map(&ready).transpose()?;
        let values = values.into_iter().map(&ready).collect::<Result<Vec<_>>>()?;
        let mut names: Vec<&str> = Vec::new();
        let computed = values.iter().filter(|value| stored(value, &planned).is_none());
        let used: Vec<String> =
            condition.iter().chain(computed).flat_map(Expr::column_refs).map(|column| column.name.clone()).collect();
        for name in &used {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let projection = planned.positions(&names)?;
        let schema: SchemaRef = Arc::new(planned.arrow.project(&projection)?);
        let df_schema = DFSchema::try_from(schema.as_ref().clone())?;
        let simplifier = simplifier(&df_schema, now, state.config_options());
        // Some functions only run in the form that they are simplified to.
        let simple = |expr: Expr| simplifier.simplify(simplifier.coerce(expr, &df_schema)?);
        let compile = |expr: Expr| state.create_physical_expr(zeros_in_lists::with_both(expr)?, &df_schema);
        let condition = condition.map(simple).transpose()?;
        let filter = filter_of(condition.iter().flat_map(split_conjunction), &planned);
        let condition = condition.map(compile).transpose()?;
        let new_value = |value: Expr| match stored(&value, &planned) {
            Some(name) => Ok(NewValue::Stored(name)),
            None if json::is_given(&value, &planned) => compile(simple(value)?).map(NewValue::Json),
            None => compile(simple(value)?).map(NewValue::Computed),
        };
        let values = values.into_iter().map(new_value).collect::<std::result::Result<Vec<_>, _>>()?;
        let values = sets.map(|names| names.into_iter().zip(values).collect());
        Ok(Change { planned, filter, condition, values, projection, schema })
    }

    /// Does it, unless it is stopped; returns the number of visible documents that were changed or removed.
    pub(crate) fn run(self, database: &Database, stop: Stop) -> ebbtide::Result<u64> {
        let documents = database.documents(&self.planned.name)?.with_stop(stop);
        let filter = document_from_json(&self.filter)?;
        // As a delete command does, a DELETE removes what has expired for good.
        let with_expired = self.values.is_none();
        documents.rewrite(&filter, with_expired, move |found| {
            self.decide(found).map_err(|e| ebbtide::Error::new(e.code(), e.message()))
        })
    }

    fn decide(&self, found: &[Document]) -> Result<Vec<Rewrite>> {
        let batch = self.planned.batch(found, &self.projection, &self.schema)?;
        let matches = match &self.condition {
            None => BooleanArray::from(vec![true; found.len()]),
            Some(condition) => {
                let matches = evaluate(condition, &batch)?;
                let matches = matches.as_boolean_opt().cloned();
                matches.ok_or_else(|| QueryError::new(Code::BadValue, "the condition is not a boolean"))?
            }
        };
        let mut values = Vec::new();
        for (name, value) in self.values.iter().flatten() {
            let given = match value {
                NewValue::Stored(name) => Given::Stored(name),
                NewValue::Computed(value) => Given::Column(plain(&evaluate(value, &batch)?)?),
                NewValue::Json(value) => Given::Json(plain(&evaluate(value, &batch)?)?),
            };
            values.push((name.as_str(), given));
        }
        let mut outcomes = Vec::with_capacity(found.len());
        for (row, document) in found.iter().enumerate() {
            outcomes.push(match (matches.is_valid(row) && matches.value(row), &self.values) {
                (false, _) => Rewrite::Keep,
                (true, None) => Rewrite::Remove,
                (true, Some(_)) => Rewrite::Put(set(&document.document, &values, row)?),
            });
        }
        Ok(outcomes)
    }
}

fn without_alias(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => without_alias(&alias.input),
        plan => plan,
    }
}

fn evaluate(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ArrayRef> {
    Ok(expr.evaluate(batch).and_then(|value| value.into_array(batch.num_rows()))?)
}

/// The column that an expression is, if documents hold its values: these are set as they are, and not as the column shows them.
fn stored(value: &Expr, planned: &PlannedDocuments) -> Option<String> {
    match value {
        Expr::Column(column) if planned.is_stored(&column.name) => Some(column.name.clone()),
        _ => None,
    }
}

/// A document with fields set to the values of a row; NULL removes a field. Other fields stay as they are, in their order.
fn set(document: &RawDocument, values: &[(&str, Given<'_>)], row: usize) -> Result<RawDocumentBuf> {
    let wrong = |name: &str, e: String| QueryError::new(Code::BadValue, format!("column '{name}': {e}"));
    let mut new = Vec::with_capacity(values.len());
    for (name, given) in values {
        let value = match given {
            Given::Stored(DOCUMENT) => Some(RawBson::Document(document.to_owned())),
            Given::Stored(field) => {
                let found = document.iter().flatten().find(|(known, _)| known.as_str() == *field);
                found.map(|(_, value)| RawBson::from(value))
            }
            Given::Column(column) | Given::Json(column) => {
                let read = if matches!(given, Given::Json(_)) { value_of_json } else { value_of };
                let value = read(column, row).map_err(|e| wrong(name, e))?;
                value.map(RawBson::try_from).transpose().map_err(|e| wrong(name, e.to_string()))?
            }
        };
        new.push((*name, value, false));
    }
    let mut changed = RawDocumentBuf::new();
    for (name, value) in document.iter().flatten() {
        match new.iter_mut().find(|(known, _, _)| *known == name.as_str()) {
            None => changed.append(name, value),
            Some((_, value, is_set)) => {
                if !*is_set && let Some(value) = value {
                    changed.append(name, value.as_raw_bson_ref());
                }
                *is_set = true;
            }
        }
    }
    for (name, value, _) in new.iter().filter(|(_, _, is_set)| !is_set) {
        if let Some(value) = value {
            let key = CString::try_from(*name).map_err(|e| wrong(name, e.to_string()))?;
            changed.append(key, value.as_raw_bson_ref());
        }
    }
    Ok(changed)
}
