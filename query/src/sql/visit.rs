//! Visits the nodes of a statement.
//!
//! The functions of the parser that visit nodes are compiled again for each type of visitor, about 200 kB of program each time. Here
//! there are two types: one for visitors that read, and one for those that make changes.

use crate::error::{QueryError, Result};
use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut, Visitor, VisitorMut,
};
use std::ops::ControlFlow;

/// Whether a visit continues. It ends early only with an error.
pub(crate) type Flow = ControlFlow<Box<QueryError>>;

/// Visits a node and everything in it.
pub(crate) fn visit(node: &impl Visit, visitor: &mut dyn Visitor<Break = Box<QueryError>>) -> Result<()> {
    result(node.visit(&mut AnyVisitor(visitor)))
}

/// Visits a node and everything in it. The visitor may change what it visits.
pub(super) fn visit_mut(node: &mut impl VisitMut, visitor: &mut dyn VisitorMut<Break = Box<QueryError>>) -> Result<()> {
    result(node.visit(&mut AnyVisitorMut(visitor)))
}

fn result(flow: Flow) -> Result<()> {
    match flow {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Calls `each` with every expression, before those within it.
pub(crate) fn each_expr(node: &impl Visit, each: &mut dyn FnMut(&Expr)) {
    let _infallible = node.visit(&mut AnyVisitor(&mut EachExpr(each)));
}

/// Calls `each` with every expression, after those within it.
pub(crate) fn each_expr_mut(node: &mut impl VisitMut, each: &mut dyn FnMut(&mut Expr)) {
    let _infallible = node.visit(&mut AnyVisitorMut(&mut EachExpr(each)));
}

/// Calls `each` with every expression, after those within it, but not with those of inner queries.
pub(super) fn each_outer_expr_mut(node: &mut impl VisitMut, each: &mut dyn FnMut(&mut Expr)) {
    let _infallible = node.visit(&mut AnyVisitorMut(&mut EachOuterExpr { each, depth: 0 }));
}

/// What is called with each expression outside of inner queries.
struct EachOuterExpr<'a> {
    each: &'a mut dyn FnMut(&mut Expr),
    /// The number of queries around an expression.
    depth: usize,
}

impl VisitorMut for EachOuterExpr<'_> {
    type Break = Box<QueryError>;

    fn pre_visit_query(&mut self, _query: &mut Query) -> Flow {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> Flow {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if self.depth == 0 {
            (self.each)(expr);
        }
        ControlFlow::Continue(())
    }
}

/// What is called with each expression.
struct EachExpr<'a, F: ?Sized>(&'a mut F);

impl Visitor for EachExpr<'_, dyn FnMut(&Expr) + '_> {
    type Break = Box<QueryError>;

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        (self.0)(expr);
        ControlFlow::Continue(())
    }
}

impl VisitorMut for EachExpr<'_, dyn FnMut(&mut Expr) + '_> {
    type Break = Box<QueryError>;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        (self.0)(expr);
        ControlFlow::Continue(())
    }
}

/// Any visitor.
struct AnyVisitor<'a>(&'a mut dyn Visitor<Break = Box<QueryError>>);

/// Any visitor that may change what it visits.
struct AnyVisitorMut<'a>(&'a mut dyn VisitorMut<Break = Box<QueryError>>);

/// The methods of a visitor. Each calls the same method of the wrapped visitor.
macro_rules! forward {
    ($($before:ident $after:ident $node:ty,)*) => {
        type Break = Box<QueryError>;

        $(
            fn $before(&mut self, node: $node) -> Flow {
                self.0.$before(node)
            }

            fn $after(&mut self, node: $node) -> Flow {
                self.0.$after(node)
            }
        )*
    };
}

impl Visitor for AnyVisitor<'_> {
    forward! {
        pre_visit_query post_visit_query &Query,
        pre_visit_select post_visit_select &Select,
        pre_visit_relation post_visit_relation &ObjectName,
        pre_visit_table_factor post_visit_table_factor &TableFactor,
        pre_visit_expr post_visit_expr &Expr,
        pre_visit_statement post_visit_statement &Statement,
        pre_visit_value post_visit_value &ValueWithSpan,
    }
}

impl VisitorMut for AnyVisitorMut<'_> {
    forward! {
        pre_visit_query post_visit_query &mut Query,
        pre_visit_select post_visit_select &mut Select,
        pre_visit_relation post_visit_relation &mut ObjectName,
        pre_visit_table_factor post_visit_table_factor &mut TableFactor,
        pre_visit_expr post_visit_expr &mut Expr,
        pre_visit_statement post_visit_statement &mut Statement,
        pre_visit_value post_visit_value &mut ValueWithSpan,
    }
}
