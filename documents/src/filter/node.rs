//! The tree of a filter.

use super::pattern::Pattern;
use crate::paths::{EndInList, Path};
use bson::raw::RawBson;
use bson::spec::ElementType;

/// A condition on a document.
#[derive(Debug, Clone)]
pub(super) enum Node {
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    /// Holds if the test holds for a value that the path reaches.
    Field(Path, Test),
    Never,
}

impl Node {
    /// Adds the top-level fields that it asks for.
    pub(super) fn add_fields(&self, fields: &mut Vec<String>) {
        match self {
            Node::And(parts) | Node::Or(parts) => parts.iter().for_each(|part| part.add_fields(fields)),
            Node::Not(inner) => inner.add_fields(fields),
            Node::Field(path, _) => fields.push(path.field().to_owned()),
            Node::Never => {}
        }
    }
}

/// Operators that apply to one value.
#[derive(Debug, Clone)]
pub(super) enum Condition {
    All(Vec<Condition>),
    Not(Box<Condition>),
    Test(Test),
    Never,
}

impl Condition {
    /// The condition on a path. Each operator looks for a value of its own; `$not` means that there is none.
    pub(super) fn on(self, path: &Path) -> Node {
        match self {
            Condition::All(all) => Node::And(all.into_iter().map(|one| one.on(path)).collect()),
            Condition::Not(inner) => Node::Not(Box::new(inner.on(path))),
            Condition::Test(test) => Node::Field(path.clone(), test),
            Condition::Never => Node::Never,
        }
    }
}

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Eq,
    Gt,
    Gte,
    Lt,
    Lte,
}

impl Comparison {
    pub(super) const fn operator(self) -> &'static str {
        match self {
            Comparison::Eq => "$eq",
            Comparison::Gt => "$gt",
            Comparison::Gte => "$gte",
            Comparison::Lt => "$lt",
            Comparison::Lte => "$lte",
        }
    }
}

/// A test of one value.
#[derive(Debug, Clone)]
pub(super) enum Test {
    Compare(Comparison, RawBson),
    /// One of these values, which ascend, or what one of the patterns matches.
    In(Vec<RawBson>, Vec<Pattern>),
    Exists,
    Type(TypeSet),
    Regex(Pattern),
    /// Divisor and remainder.
    Mod(i64, i64),
    /// A list of this length.
    Size(usize),
    /// A list with an element for which the condition holds.
    ElementValue(Box<Condition>),
    /// A list with an object, or a list, that matches.
    ElementObject(Box<Node>),
}

impl Test {
    /// What a list at the end of a path yields for this test.
    pub(super) fn end_in_list(&self) -> EndInList {
        match self {
            Test::Size(_) | Test::ElementValue(_) | Test::ElementObject(_) => EndInList::List,
            _ => EndInList::ElementsAndList,
        }
    }
}

/// A set of BSON types.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TypeSet(u32);

impl TypeSet {
    pub(super) fn insert(&mut self, kind: ElementType) {
        self.0 |= Self::bit(kind);
    }

    pub(super) fn contains(self, kind: ElementType) -> bool {
        self.0 & Self::bit(kind) != 0
    }

    /// The codes are 1 to 19, 0x7F and 0xFF, which differ in their last five bits.
    fn bit(kind: ElementType) -> u32 {
        match kind {
            ElementType::MinKey => 1,
            other => 1 << (other as u8 & 31),
        }
    }
}
