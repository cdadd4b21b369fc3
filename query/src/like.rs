//! `LIKE` with several texts between `%`: `message LIKE '%timeout%retry%'`.
//!
//! Arrow makes a regular expression of such a pattern. Here the texts are searched for one after the other, each behind the one
//! before, which takes about as long as the search for one. The first place where a text is found is the right one: it leaves
//! most of the value for the others.

use crate::options::fast_paths;
use datafusion::arrow::array::{ArrayAccessor, ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{LikeExpr, Literal};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use memchr::memmem::Finder;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Searches for the texts of patterns in the conditions of filters.
#[derive(Debug)]
pub(crate) struct LikeInOrder;

impl PhysicalOptimizerRule for LikeInOrder {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if !fast_paths(config) {
            return Ok(plan);
        }
        let searching = plan.transform_up(|node| {
            let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(Transformed::no(node)) };
            let schema = filter.input().schema();
            let predicate = Arc::clone(filter.predicate()).transform_up(|part| {
                let in_order = part.downcast_ref::<LikeExpr>().and_then(|like| InOrder::of(like, &schema));
                Ok(in_order.map_or_else(|| Transformed::no(part), |found| Transformed::yes(Arc::new(found) as Arc<_>)))
            })?;
            if !predicate.transformed {
                return Ok(Transformed::no(node));
            }
            let filter = FilterExecBuilder::from(filter).with_predicate(predicate.data).build()?;
            Ok(Transformed::yes(Arc::new(filter) as Arc<dyn ExecutionPlan>))
        });
        searching.data()
    }

    fn name(&self) -> &'static str {
        "LikeInOrder"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether a value begins with one text and ends with another, and has others in this order in between.
#[derive(Debug)]
struct InOrder {
    like: Arc<dyn PhysicalExpr>,
    value: Arc<dyn PhysicalExpr>,
    negated: bool,
    texts: Texts,
}

/// The texts of a pattern.
#[derive(Debug)]
struct Texts {
    begins: Vec<u8>,
    between: Vec<Finder<'static>>,
    ends: Vec<u8>,
}

impl Texts {
    /// `None` if the pattern has other wildcards, or if Arrow searches for its only text.
    fn of(pattern: &str) -> Option<Texts> {
        if pattern.contains(['_', '\\']) {
            return None;
        }
        let parts: Vec<&str> = pattern.split('%').collect();
        let [begins, between @ .., ends] = parts.as_slice() else { return None };
        if parts.iter().filter(|text| !text.is_empty()).count() < 2 {
            return None;
        }
        let between = between.iter().filter(|text| !text.is_empty()).map(|text| Finder::new(text).into_owned());
        Some(Texts { begins: begins.as_bytes().to_vec(), between: between.collect(), ends: ends.as_bytes().to_vec() })
    }

    fn are_in(&self, value: &str) -> bool {
        let value = value.as_bytes().strip_prefix(self.begins.as_slice());
        let Some(mut rest) = value.and_then(|rest| rest.strip_suffix(self.ends.as_slice())) else { return false };
        for text in &self.between {
            let Some(at) = text.find(rest) else { return false };
            rest = &rest[at + text.needle().len()..];
        }
        true
    }
}

impl InOrder {
    fn of(like: &LikeExpr, schema: &Schema) -> Option<InOrder> {
        if like.case_insensitive() {
            return None;
        }
        let kind = like.expr().data_type(schema).ok()?;
        if !matches!(kind, DataType::Utf8View | DataType::Utf8 | DataType::LargeUtf8) {
            return None;
        }
        let texts = Texts::of(like.pattern().downcast_ref::<Literal>()?.value().try_as_str()??)?;
        let value = Arc::clone(like.expr());
        let negated = like.negated();
        let like = LikeExpr::new(negated, false, Arc::clone(&value), Arc::clone(like.pattern()));
        Some(InOrder { like: Arc::new(like), value, negated, texts })
    }

    fn matches<'a>(&self, values: impl ArrayAccessor<Item = &'a str>) -> ColumnarValue {
        let matches = BooleanArray::from_unary(values, |value| self.texts.are_in(value) != self.negated);
        ColumnarValue::Array(Arc::new(matches))
    }
}

impl PartialEq for InOrder {
    fn eq(&self, other: &Self) -> bool {
        self.like.eq(&other.like)
    }
}

impl Eq for InOrder {}

impl Hash for InOrder {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.like.hash(state);
    }
}

impl fmt::Display for InOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.like.fmt(f)
    }
}

impl PhysicalExpr for InOrder {
    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.like.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let values: ArrayRef = self.value.evaluate(batch)?.into_array(batch.num_rows())?;
        Ok(match values.data_type() {
            DataType::Utf8View => self.matches(values.as_string_view()),
            DataType::Utf8 => self.matches(values.as_string::<i32>()),
            DataType::LargeUtf8 => self.matches(values.as_string::<i64>()),
            other => return internal_err!("LIKE on values of type {other}"),
        })
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.like.children()
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        Arc::clone(&self.like).with_new_children(children)
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.like.fmt_sql(f)
    }
}
