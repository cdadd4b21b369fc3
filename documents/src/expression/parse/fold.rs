//! Computes what is the same for all documents when an expression is read, and leaves out what is never evaluated.

use crate::expression::operators::Operator;
use crate::expression::{Constants, Moment, Node, Scope, boolean, is_nothing, is_true, set};
use crate::raw::empty;

/// Folds an expression whose operands are all constants. One that fails is its error; one whose parts may never be evaluated
/// and one that is too large to be kept as a value stay as they are. `before` are the bytes of constants before its operands, which
/// its value replaces.
pub(super) fn simplified(node: Node, constants: &Constants, before: usize) -> Node {
    if !is_constant(&node) {
        return rearranged(node, constants);
    }
    if !constants.may_fold() {
        return node;
    }
    let mut scope = Scope::new(empty(), Moment::at(0));
    let value = node.evaluate(&mut scope);
    constants.count_fold(scope.steps());
    // Others fail only where they are evaluated, as in MongoDB.
    let fails_always = matches!(node, Node::Call(..) | Node::Attempt(_) | Node::Sorted(..));
    match value {
        Ok(value) if constants.place(&value, before).is_ok() => Node::Constant(value),
        Err(error) if fails_always => Node::Wrong(error),
        _ => node,
    }
}

/// Whether a node is computed from constants alone. A regular expression that is searched for is not, as in MongoDB: that may take
/// long, and ends with the command only where it is evaluated.
fn is_constant(node: &Node) -> bool {
    let is_value = match node {
        Node::Call(operator, _) => !operator.is_random(),
        Node::Object(_) | Node::List(_) | Node::And(_) | Node::Or(_) | Node::Cond(_) | Node::IfNull(_) => true,
        Node::Switch(..) | Node::Attempt(_) | Node::Sorted(..) | Node::Zip(_) => true,
        _ => false,
    };
    is_value && node.children().into_iter().all(|child| matches!(child, Node::Constant(_)))
}

/// What MongoDB makes of a node with some constants: of sums and products these come last, as one; one that decides `$and`
/// or `$or` stands for it, and `$ifNull` ends with one that is not null. This shows in which errors are met.
fn rearranged(node: Node, known: &Constants) -> Node {
    let constant = |node: &Node| match node {
        Node::Constant(value) => Some(is_true(value)),
        _ => None,
    };
    let node = match node {
        Node::Switch(branches, default) => pruned(branches, default),
        other => other,
    };
    // Parts that fail are kept, so that they do.
    if node.children().into_iter().any(|child| child.check_constants().is_err()) {
        return node;
    }
    match node {
        Node::And(nodes) if nodes.iter().any(|node| constant(node) == Some(false)) => Node::Constant(boolean(false)),
        Node::Or(nodes) if nodes.iter().any(|node| constant(node) == Some(true)) => Node::Constant(boolean(true)),
        Node::Cond(parts) => match constant(&parts[0]) {
            Some(holds) => {
                let [_, yes, no] = *parts;
                if holds { yes } else { no }
            }
            None => Node::Cond(parts),
        },
        Node::Call(operator, nodes)
            if matches!(operator.name, "$add" | "$multiply" | "$setIntersection" | "$setUnion") =>
        {
            let (constants, mut rest): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| constant(node).is_some());
            match constants.len() {
                0 => {}
                1 => rest.extend(constants),
                _ => rest.push(simplified(Node::Call(operator, constants), known, known.placed())),
            }
            Node::Call(operator, rest)
        }
        Node::Call(operator, nodes) if matches!(operator.name, "$setEquals" | "$setIsSubset") => {
            of_sets(operator, nodes)
        }
        Node::IfNull(mut nodes) => {
            let is_null = |node: &Node| matches!(node, Node::Constant(value) if is_nothing(value));
            let last = nodes.pop();
            nodes.retain(|node| !is_null(node));
            nodes.extend(last);
            if let Some(decided) = nodes.iter().position(|node| constant(node).is_some()) {
                nodes.truncate(decided + 1);
            }
            match <[Node; 1]>::try_from(nodes) {
                Ok([only]) => only,
                Err(nodes) => Node::IfNull(nodes),
            }
        }
        other => other,
    }
}

/// A comparison of sets. Its constants are checked before any document is read, and `$setEquals` compares the other sets with the
/// first of them.
fn of_sets(operator: &'static Operator, mut nodes: Vec<Node>) -> Node {
    let (mut wrong, mut first) = (None, None);
    for (place, node) in nodes.iter().enumerate() {
        if let Node::Constant(value) = node {
            first = first.or(Some(place));
            wrong = wrong.or_else(|| set::check_constant(operator.name, place, value).err());
        }
    }
    if let Some(error) = wrong {
        return Node::Wrong(error);
    }
    if operator.name == "$setEquals"
        && let Some(first) = first
    {
        nodes[..=first].rotate_right(1);
    }
    Node::Call(operator, nodes)
}

/// A `$switch` without the branches that are never taken.
fn pruned(branches: Vec<(Node, Node)>, default: Option<Box<Node>>) -> Node {
    if default.as_ref().is_some_and(|default| default.check_constants().is_err()) {
        return Node::Switch(branches, default);
    }
    let (mut kept, mut otherwise) = (Vec::new(), default);
    for (case, then) in branches {
        match case {
            Node::Constant(value) if is_true(&value) => {
                otherwise = Some(Box::new(then));
                break;
            }
            Node::Constant(_) => {}
            case => kept.push((case, then)),
        }
    }
    match otherwise {
        Some(only) if kept.is_empty() => *only,
        otherwise => Node::Switch(kept, otherwise),
    }
}
