//! The normal form: conjunctions and disjunctions are flat, sorted and without repetitions; one of one element is its
//! element; operands are normalised values.

use super::Comparison;
use crate::value::{TypeClass, Value};
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    Condition(Condition),
    /// All of these; of none: everything.
    And(Vec<Node>),
    /// One of these; of none: nothing.
    Or(Vec<Node>),
    Not(Box<Node>),
}

/// A test of the value or values at a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Condition {
    /// The parts of a dotted path; never empty.
    pub(super) path: Vec<String>,
    pub(super) test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Test {
    Eq(Value),
    /// Sorted, without repetitions.
    In(Vec<Value>),
    Compare(Comparison, Value),
    Exists,
    Type(BTreeSet<TypeClass>),
}

impl Test {
    pub(super) fn one_of(values: &[Value]) -> Test {
        let mut values: Vec<_> = values.iter().map(Value::normalized).collect();
        values.sort();
        values.dedup();
        Test::In(values)
    }
}

impl Condition {
    pub(super) fn field(&self) -> &str {
        self.path.first().map_or("", String::as_str)
    }
}

impl Node {
    /// Whether all conditions are on one top-level field.
    pub(super) fn mentions_only(&self, field: &str) -> bool {
        match self {
            Node::Condition(condition) => condition.field() == field,
            Node::And(parts) | Node::Or(parts) => parts.iter().all(|part| part.mentions_only(field)),
            Node::Not(inner) => inner.mentions_only(field),
        }
    }

    pub(super) fn condition(path: &str, test: Test) -> Node {
        Node::Condition(Condition { path: path.split('.').map(str::to_owned).collect(), test })
    }

    pub(super) fn and(parts: Vec<Node>) -> Node {
        let mut flat = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Node::And(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        Self::single(flat, Node::And)
    }

    pub(super) fn or(parts: Vec<Node>) -> Node {
        let mut flat = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Node::Or(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        Self::single(flat, Node::Or)
    }

    pub(super) fn not(node: Node) -> Node {
        match node {
            Node::Not(inner) => *inner,
            other => Node::Not(Box::new(other)),
        }
    }

    fn single(mut flat: Vec<Node>, make: fn(Vec<Node>) -> Node) -> Node {
        flat.sort();
        flat.dedup();
        match (flat.len(), flat.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                flat.extend(last);
                make(flat)
            }
        }
    }

    pub(super) fn visit<'n>(&'n self, see: &mut impl FnMut(&'n Condition)) {
        match self {
            Node::Condition(condition) => see(condition),
            Node::And(parts) | Node::Or(parts) => parts.iter().for_each(|part| part.visit(see)),
            Node::Not(inner) => inner.visit(see),
        }
    }
}
