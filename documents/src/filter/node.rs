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
    /// Bits of a number or of binary data.
    Bits(Bits, Mask),
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

/// What is said of the bits at some positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bits {
    AllSet,
    AllClear,
    AnySet,
    AnyClear,
}

impl Bits {
    pub(super) fn named(operator: &str) -> Option<Bits> {
        Some(match operator {
            "$bitsAllSet" => Bits::AllSet,
            "$bitsAllClear" => Bits::AllClear,
            "$bitsAnySet" => Bits::AnySet,
            "$bitsAnyClear" => Bits::AnyClear,
            _ => return None,
        })
    }

    /// Whether it holds for the bits that a mask chooses.
    pub(super) fn hold(self, mask: &Mask, is_set: impl Fn(u32) -> bool) -> bool {
        let mut bits = mask.positions().map(is_set);
        match self {
            Bits::AllSet => bits.all(|bit| bit),
            Bits::AllClear => bits.all(|bit| !bit),
            Bits::AnySet => bits.any(|bit| bit),
            Bits::AnyClear => bits.any(|bit| !bit),
        }
    }
}

/// The positions of bits, counted from the lowest one.
#[derive(Debug, Clone)]
pub(super) enum Mask {
    Positions(Vec<u32>),
    /// Those of the ones in these bytes, the lowest first.
    Bytes(Vec<u8>),
}

impl Mask {
    fn positions(&self) -> Box<dyn Iterator<Item = u32> + '_> {
        match self {
            Mask::Positions(positions) => Box::new(positions.iter().copied()),
            Mask::Bytes(bytes) => {
                let end = u32::try_from(bytes.len().saturating_mul(8)).unwrap_or(u32::MAX);
                Box::new((0..end).filter(|position| is_set(bytes, *position)))
            }
        }
    }
}

/// Whether a bit is set, counted from the lowest one of the first byte. Bits after the last byte are not.
pub(super) fn is_set(bytes: &[u8], position: u32) -> bool {
    let byte = usize::try_from(position / 8).ok().and_then(|at| bytes.get(at));
    byte.is_some_and(|byte| (byte >> (position % 8)) & 1 == 1)
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
