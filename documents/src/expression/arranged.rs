//! Lists that are put together or sorted: `$zip` and `$sortArray`.

use super::list::{as_list, borrowed, sort_bytes};
use super::scope::Scope;
use super::{ExpressionError, Node, Result, Value, is_nothing, null, type_of};
use crate::update::ElementSort;
use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef};

/// `$zip`.
#[derive(Debug, Clone)]
pub(crate) struct Zip {
    pub(super) inputs: Vec<Node>,
    /// As many as there are inputs, or none.
    pub(super) defaults: Vec<Node>,
    /// Whether it is as long as the longest input; else as the shortest.
    pub(super) is_longest: bool,
}

impl Zip {
    pub(super) fn children(&self) -> Vec<&Node> {
        self.inputs.iter().chain(&self.defaults).collect()
    }

    /// Evaluates the defaults only if the inputs differ in length.
    pub(super) fn evaluate(&self, scope: &mut Scope<'_>) -> Result<Value> {
        let (before, mut inputs) = (scope.kept(), Vec::with_capacity(self.inputs.len()));
        for input in &self.inputs {
            let value = input.evaluate(scope)?;
            scope.keep(&value)?;
            if is_nothing(&value) {
                scope.let_go(before);
                return null();
            }
            if as_list(&value).is_none() {
                let what = format!("$zip found a non-array expression in input: {}", type_of(&value));
                return Err(ExpressionError::new(34468, what));
            }
            inputs.push(value);
        }
        let lists: Vec<&RawArray> = inputs.iter().filter_map(as_list).collect();
        let lengths: Vec<usize> = lists.iter().map(|list| borrowed(list).count()).collect();
        let shortest = lengths.iter().copied().min().unwrap_or(0);
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut defaults = Vec::with_capacity(self.defaults.len());
        for node in self.defaults.iter().filter(|_| shortest != longest) {
            let value = node.evaluate(scope)?;
            scope.keep(&value)?;
            defaults.push(value.unwrap_or(RawBson::Null));
        }
        let default = |column: usize| defaults.get(column).map_or(RawBsonRef::Null, RawBson::as_raw_bson_ref);
        let mut lists: Vec<_> = lists.into_iter().map(borrowed).collect();
        let mut zipped = RawArrayBuf::new();
        let rows = if self.is_longest { longest } else { shortest };
        for _ in 0..rows {
            scope.step()?;
            let columns = lists.iter_mut().enumerate();
            let row: RawArrayBuf = columns.map(|(i, list)| list.next().unwrap_or_else(|| default(i))).collect();
            scope.keep_bytes(row.as_bytes().len())?;
            zipped.push(row);
        }
        scope.let_go(before);
        Ok(Some(RawBson::Array(zipped)))
    }
}

/// `$sortArray` of a value.
pub(super) fn sorted(value: &Value, sort: &ElementSort, scope: &mut Scope<'_>) -> Result<Value> {
    if is_nothing(value) {
        return null();
    }
    let wrong = || {
        let what = format!("The input argument to $sortArray must be an array, but was of type: {}", type_of(value));
        ExpressionError::new(2_942_504, what)
    };
    let list = as_list(value).ok_or_else(wrong)?;
    let before = scope.kept();
    scope.keep(value)?;
    scope.keep_bytes(sort_bytes(std::slice::from_ref(value)))?;
    let mut list: Vec<RawBsonRef<'_>> = borrowed(list).collect();
    list.sort_by(|a, b| sort.compare(*a, *b));
    scope.let_go(before);
    Ok(Some(RawBson::Array(list.into_iter().collect())))
}
