//! The `let` of a command: values that its expressions see by name.

use super::accumulator::size_of_value;
use super::parse::{CURRENT, Parser, check_bound, check_variable};
use super::{Expression, ExpressionError, Moment, Node, Result, Value, Variable, members};
use crate::DOCUMENT_BYTES_MAX;
use crate::stop::Stop;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Variables that no command may set.
const BUILT_IN: [&str; 4] = ["NOW", "CLUSTER_TIME", "JS_SCOPE", "IS_MR"];
/// Pipelines within each other at most, as in MongoDB.
const PIPELINES_MAX: usize = 20;
/// Bytes of the constants in the expressions of a command; fewer in tests.
const PLACED_BYTES_MAX: usize = if cfg!(test) { 4 << 20 } else { 64 << 20 };
/// Steps of the expressions that are computed when a command is read, which does not end with it; fewer in tests.
const FOLD_STEPS_MAX: usize = if cfg!(test) { 1 << 20 } else { 1 << 24 };

/// Values by name, which expressions see as `$$name`: the `let` of a command.
///
/// ```
/// use ebbtide_documents::{Constants, Pipeline, bson::rawdoc};
///
/// let constants = Constants::parse(&rawdoc! { "least": { "$add": [1, 1] } }, 0)?;
/// let stages = rawdoc! { "p": [{ "$match": { "$expr": { "$gte": ["$a", "$$least"] } } }] };
/// let mut run = Pipeline::parse_with(stages.get_array("p")?, &constants)?.run(0, usize::MAX);
/// for a in [1, 2] {
///     run.take(rawdoc! { "a": a })?;
/// }
/// assert_eq!(run.results(), [rawdoc! { "a": 2 }]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Constants {
    values: Vec<(String, Value)>,
    /// The variables of the `$lookup`s around the pipeline, the innermost last.
    outer: Vec<String>,
    /// How many pipelines there are around this one.
    depth: usize,
    /// Bytes of the constants in the expressions that were read: each expression has copies of its own.
    placed: Arc<AtomicUsize>,
    /// Steps of the expressions that were computed when they were read.
    fold_steps: Arc<AtomicUsize>,
}

impl Constants {
    /// Evaluates expressions by name; each sees those before it. `now_ms` is the instant of `$$NOW`.
    ///
    /// # Errors
    /// Those of MongoDB: 9 for a name that no variable may have, 4890500 for an expression that asks for a field of a document,
    /// and the errors of expressions; 10334 if the values are larger than a document may be.
    pub fn parse(values: &RawDocument, now_ms: i64) -> std::result::Result<Constants, ExpressionError> {
        Constants::parse_unless(values, now_ms, &|| false)
    }

    /// The same; `stop` is asked now and then whether to give up.
    ///
    /// # Errors
    /// As for [`Constants::parse`]; 50 if it was stopped.
    pub fn parse_unless(
        values: &RawDocument,
        now_ms: i64,
        stop: &dyn Fn() -> bool,
    ) -> std::result::Result<Constants, ExpressionError> {
        let moment = Moment { now_ms, stop: Stop(stop), variables: &[] };
        let (mut constants, mut bytes) = (Constants::default(), 0);
        for (name, value) in members(values) {
            if BUILT_IN.contains(&name) {
                let what = format!("Attempt to set internal constant: {name}");
                return Err(ExpressionError::new(4_738_901, what));
            }
            check_variable(name).map_err(|error| ExpressionError {
                message: format!("Invalid 'let' parameter :: caused by :: {}", error.message),
                ..error
            })?;
            let expression = constants.expression(value)?;
            if asks_for_document(expression.node()) {
                let what = "Command let Expression tried to access a field, but this is not allowed because Command let \
                            Expressions run before the query examines any documents.";
                return Err(ExpressionError::new(4_890_500, what));
            }
            let value = expression.evaluate_at(&RawDocumentBuf::new(), moment)?;
            bytes += value.as_ref().map_or(0, size_of_value);
            if bytes > DOCUMENT_BYTES_MAX {
                return Err(ExpressionError::new(10334, "the values of 'let' take more than 16 MiB"));
            }
            constants.values.retain(|(known, _)| known != name);
            constants.values.push((name.to_owned(), value));
        }
        Ok(constants)
    }

    /// Reads an expression that sees these constants.
    pub(crate) fn expression(&self, expression: RawBsonRef<'_>) -> Result<Expression> {
        Ok(Expression(Parser::new(self).any(expression)?))
    }

    /// Reads the expression of a `$redact`. It sees what it may return by name, and as `$$CURRENT` an object of its own, in the first
    /// slot.
    pub(crate) fn redaction(&self, expression: RawBsonRef<'_>) -> Result<Expression> {
        let mut constants = self.clone();
        let named = |(name, text): (&str, &str)| (name.to_owned(), Some(RawBson::String(text.to_owned())));
        constants.values.extend([("DESCEND", "descend"), ("PRUNE", "prune"), ("KEEP", "keep")].map(named));
        Ok(Expression(Parser::with_variables(&constants, vec![CURRENT.to_owned()]).any(expression)?))
    }

    /// What the pipeline of a `$lookup` or `$unionWith` sees: these variables too.
    ///
    /// # Errors
    /// 232 if pipelines are nested too deep; 9 for a name that no variable may have.
    pub(crate) fn within(&self, variables: &[&str]) -> Result<Constants> {
        if self.depth == PIPELINES_MAX {
            let what = format!("Maximum number of nested sub-pipelines exceeded. Limit is {PIPELINES_MAX}");
            return Err(ExpressionError::new(232, what));
        }
        variables.iter().try_for_each(|name| check_bound(name))?;
        let outer = self.outer.iter().cloned().chain(variables.iter().map(|name| (*name).to_owned())).collect();
        Ok(Constants { outer, depth: self.depth + 1, ..self.clone() })
    }

    /// The number of the variable of a `$lookup` with this name.
    pub(super) fn outer(&self, name: &str) -> Option<usize> {
        self.outer.iter().rposition(|known| known == name)
    }

    /// The value of this name, which may be missing.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.values.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The bytes that are counted: to be given to [`Constants::place`] for a constant that replaces those from now on.
    pub(super) fn placed(&self) -> usize {
        self.placed.load(Ordering::Relaxed)
    }

    /// Whether an expression of constants is computed when it is read. After too many steps it is computed for each document,
    /// where the command can be ended.
    pub(super) fn may_fold(&self) -> bool {
        self.fold_steps.load(Ordering::Relaxed) < FOLD_STEPS_MAX
    }

    /// Counts steps of an expression that was computed when it was read.
    pub(super) fn count_fold(&self, steps: usize) {
        self.fold_steps.fetch_add(steps, Ordering::Relaxed);
    }

    /// Counts a constant in an expression beside what was counted before.
    ///
    /// # Errors
    /// 146 if the constants take too much; what was counted then stays as it is.
    pub(super) fn place(&self, value: &Value, before: usize) -> Result<()> {
        let bytes = before.saturating_add(value.as_ref().map_or(0, size_of_value));
        if bytes <= PLACED_BYTES_MAX {
            self.placed.store(bytes, Ordering::Relaxed);
            return Ok(());
        }
        let limit = PLACED_BYTES_MAX >> 20;
        let what = format!("the constants in the expressions of a command take more than {limit} MB");
        Err(ExpressionError::new(146, what))
    }
}

fn asks_for_document(node: &Node) -> bool {
    matches!(node, Node::Path(Variable::Root, _)) || node.children().into_iter().any(asks_for_document)
}
