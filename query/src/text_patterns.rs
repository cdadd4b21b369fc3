//! `LIKE` with several texts between `%`, such as `'%timeout%retry%'`: they are looked for one after the other, where Arrow runs a
//! regular expression. The first place of each text is the right one, since what follows it may be anywhere.

use crate::options::fast_paths;
use datafusion::arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue, internal_err};
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

/// Puts [`PatternExpr`] in the place of `LIKE` in filters.
#[derive(Debug)]
pub(crate) struct TextPatterns;

impl PhysicalOptimizerRule for TextPatterns {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if !fast_paths(config) {
            return Ok(plan);
        }
        let fast = plan.transform_up(|node| {
            let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(Transformed::no(node)) };
            let schema = filter.input().schema();
            let predicate = Arc::clone(filter.predicate()).transform_up(|expr| {
                Ok(match expr.downcast_ref::<LikeExpr>().and_then(|like| PatternExpr::of(like, &schema)) {
                    Some(pattern) => Transformed::yes(Arc::new(pattern) as Arc<dyn PhysicalExpr>),
                    None => Transformed::no(expr),
                })
            })?;
            if !predicate.transformed {
                return Ok(Transformed::no(node));
            }
            let filter = FilterExecBuilder::from(filter).with_predicate(predicate.data).build()?;
            Ok(Transformed::yes(Arc::new(filter) as Arc<dyn ExecutionPlan>))
        });
        fast.map(|plan| plan.data)
    }

    fn name(&self) -> &'static str {
        "TextPatterns"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// `LIKE` with a constant pattern of texts and `%`.
#[derive(Debug)]
struct PatternExpr {
    expr: Arc<dyn PhysicalExpr>,
    negated: bool,
    pattern: String,
    parts: Parts,
}

/// What a text must begin with, contain in this order, and end with.
#[derive(Debug)]
struct Parts {
    prefix: String,
    between: Vec<Finder<'static>>,
    suffix: String,
}

impl PatternExpr {
    /// `None` if the pattern is none of these, or if Arrow needs no regular expression for it.
    fn of(like: &LikeExpr, schema: &Schema) -> Option<PatternExpr> {
        let is_text = like.expr().data_type(schema).ok()? == DataType::Utf8View;
        let pattern = match like.pattern().downcast_ref::<Literal>()?.value() {
            ScalarValue::Utf8(pattern) | ScalarValue::LargeUtf8(pattern) | ScalarValue::Utf8View(pattern) => {
                pattern.as_ref()?
            }
            _ => return None,
        };
        let inner = pattern.strip_prefix('%').unwrap_or(pattern);
        let inner = inner.strip_suffix('%').unwrap_or(inner);
        if !is_text || like.case_insensitive() || pattern.contains(['_', '\\']) || !inner.contains('%') {
            return None;
        }
        Some(PatternExpr {
            expr: Arc::clone(like.expr()),
            negated: like.negated(),
            pattern: pattern.clone(),
            parts: Parts::of(pattern),
        })
    }
}

impl Parts {
    /// Of a pattern with at least one `%`.
    fn of(pattern: &str) -> Parts {
        let mut between: Vec<&str> = pattern.split('%').collect();
        let suffix = between.pop().unwrap_or_default().to_owned();
        let prefix = if between.is_empty() { String::new() } else { between.remove(0).to_owned() };
        let between = between.into_iter().filter(|part| !part.is_empty());
        Parts { prefix, between: between.map(|part| Finder::new(part).into_owned()).collect(), suffix }
    }

    fn match_text(&self, text: &str) -> bool {
        let Some(rest) = text.strip_prefix(&self.prefix).and_then(|rest| rest.strip_suffix(&self.suffix)) else {
            return false;
        };
        let mut rest = rest.as_bytes();
        for part in &self.between {
            let Some(at) = part.find(rest) else { return false };
            rest = &rest[at + part.needle().len()..];
        }
        true
    }
}

impl PartialEq for PatternExpr {
    fn eq(&self, other: &Self) -> bool {
        self.expr.eq(&other.expr) && (self.negated, &self.pattern) == (other.negated, &other.pattern)
    }
}

impl Eq for PatternExpr {}

impl Hash for PatternExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.expr, self.negated, &self.pattern).hash(state);
    }
}

impl fmt::Display for PatternExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.expr, if self.negated { "NOT LIKE" } else { "LIKE" }, self.pattern)
    }
}

impl PhysicalExpr for PatternExpr {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.expr.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let texts = self.expr.evaluate(batch)?.into_array(batch.num_rows())?;
        let Some(texts) = texts.as_string_view_opt() else { return internal_err!("LIKE of {}", texts.data_type()) };
        let found = BooleanArray::from_unary(texts, |text| self.parts.match_text(text) != self.negated);
        Ok(ColumnarValue::Array(Arc::new(found)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.expr]
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        let expr = children.pop().unwrap_or_else(|| Arc::clone(&self.expr));
        let (negated, pattern, parts) = (self.negated, self.pattern.clone(), Parts::of(&self.pattern));
        Ok(Arc::new(PatternExpr { expr, negated, pattern, parts }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
