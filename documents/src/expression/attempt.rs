//! Operators with a value that stands for a conversion that fails, and one for what is missing.

use super::operators::Operator;
use super::scope::Scope;
use super::{Node, Result, Value, is_nothing, null};
use bson::raw::RawBson;

/// MongoDB's number for a conversion that fails.
const CONVERSION_FAILURE: i32 = 241;

/// `$convert` and `$dateFromString`: a function that converts the first of its values.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    operator: &'static Operator,
    arguments: Vec<Node>,
    on_error: Option<Node>,
    on_null: Option<Node>,
}

impl Attempt {
    /// An operator with its arguments; the last two are `onError` and `onNull`.
    pub(super) fn new(operator: &'static Operator, mut arguments: Vec<Node>) -> Attempt {
        let is_given = |node: &Node| !matches!(node, Node::Constant(Some(RawBson::Undefined)));
        let on_null = arguments.pop().filter(is_given);
        let on_error = arguments.pop().filter(is_given);
        Attempt { operator, arguments, on_error, on_null }
    }

    pub(super) fn children(&self) -> Vec<&Node> {
        self.arguments.iter().chain(&self.on_error).chain(&self.on_null).collect()
    }

    /// Evaluates `onError` only if the conversion fails, not if an argument does, and `onNull` only where there is no value.
    pub(super) fn evaluate(&self, scope: &mut Scope<'_>) -> Result<Value> {
        let (before, mut values) = (scope.kept(), Vec::with_capacity(self.arguments.len()));
        for node in &self.arguments {
            let value = node.evaluate(scope)?;
            scope.keep(&value)?;
            values.push(value);
        }
        scope.let_go(before);
        let has_value = values.first().is_some_and(|value| !is_nothing(value));
        match ((self.operator.run)(self.operator.name, &values), &self.on_error, &self.on_null) {
            (Ok(_), _, Some(on_null)) if !has_value => on_null.evaluate(scope),
            (Ok(_), ..) if !has_value => null(),
            (Err(error), Some(on_error), _) if error.code == CONVERSION_FAILURE => on_error.evaluate(scope),
            (result, ..) => result,
        }
    }
}
