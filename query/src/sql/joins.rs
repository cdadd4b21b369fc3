//! What joins are in the syntax tree: which tables have their rows, and whether they merge columns.

use datafusion::sql::sqlparser::ast::{JoinConstraint, JoinOperator, TableFactor, TableWithJoins};

/// The tables that have a value in each row of a join.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sides {
    /// Both, in each row.
    Inner,
    Left,
    Right,
    /// One or the other.
    Both,
}

impl Sides {
    /// Whether there are rows that only the right table has.
    pub(super) fn has_right(self) -> bool {
        matches!(self, Sides::Right | Sides::Both)
    }
}

/// `None` if a join has not the columns of both tables.
pub(super) fn sides(join: &JoinOperator) -> Option<Sides> {
    match join {
        JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_) => Some(Sides::Inner),
        JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => Some(Sides::Left),
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) => Some(Sides::Right),
        JoinOperator::FullOuter(_) => Some(Sides::Both),
        _ => None,
    }
}

/// The condition of a join of one of the kinds that are supported, other than CROSS JOIN; `None` for any other.
macro_rules! constraint_of {
    ($join:expr) => {
        match $join {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint)
            | JoinOperator::Semi(constraint)
            | JoinOperator::LeftSemi(constraint)
            | JoinOperator::RightSemi(constraint)
            | JoinOperator::Anti(constraint)
            | JoinOperator::LeftAnti(constraint)
            | JoinOperator::RightAnti(constraint) => Some(constraint),
            _ => None,
        }
    };
}

pub(super) fn constraint(join: &JoinOperator) -> Option<&JoinConstraint> {
    constraint_of!(join)
}

pub(super) fn constraint_mut(join: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    constraint_of!(join)
}

/// Whether tables are joined with `USING` or `NATURAL`, also in parentheses.
pub(super) fn merges_any(from: &[TableWithJoins]) -> bool {
    from.iter().any(|from| {
        let of_joins = from.joins.iter().any(|join| merges(&join.join_operator));
        of_joins
            || from.joins.iter().map(|join| &join.relation).chain([&from.relation]).any(|of| has_join(of, &|_| true))
    })
}

/// Whether a join has the columns of its left side alone.
pub(super) fn is_semi(join: &JoinOperator) -> bool {
    matches!(
        join,
        JoinOperator::Semi(_) | JoinOperator::LeftSemi(_) | JoinOperator::Anti(_) | JoinOperator::LeftAnti(_)
    )
}

fn merges(join: &JoinOperator) -> bool {
    let has_both = sides(join).is_some();
    has_both && matches!(constraint(join), Some(JoinConstraint::Using(_) | JoinConstraint::Natural))
}

/// Whether a table is a join in parentheses, with `USING` or `NATURAL`, of such a kind.
pub(super) fn has_join(table: &TableFactor, is: &dyn Fn(Sides) -> bool) -> bool {
    let TableFactor::NestedJoin { table_with_joins: of, .. } = table else { return false };
    let is_such = |join: &JoinOperator| merges(join) && sides(join).is_some_and(is);
    has_join(&of.relation, is)
        || of.joins.iter().any(|join| is_such(&join.join_operator) || has_join(&join.relation, is))
}
