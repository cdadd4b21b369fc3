//! Joins as a tree, with the expressions above them in terms of the joined tables.

use super::bare;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchemaRef, JoinType, Result, TableReference};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, SubqueryAlias};
use std::sync::Arc;

/// Tables that are joined; a single table is a tree too.
#[derive(Debug)]
pub(super) struct JoinTree<'a> {
    tables: Vec<Table>,
    root: Node<'a>,
    /// What the columns of the joined rows are.
    columns: Vec<Expr>,
    schema: &'a DFSchemaRef,
}

/// Any plan but a join, with a name of its own.
#[derive(Debug)]
struct Table {
    named: SubqueryAlias,
    /// Whether each joined row has the values of one of its rows.
    always_there: bool,
}

#[derive(Debug)]
enum Node<'a> {
    Table(usize),
    Join { of: &'a Join, inputs: Box<(Node<'a>, Node<'a>)>, on: Vec<(Expr, Expr)> },
}

impl<'a> JoinTree<'a> {
    pub(super) fn of(plan: &'a LogicalPlan) -> Result<Self> {
        let mut tables = Vec::new();
        let (root, columns) = node_of(plan, None, &mut tables)?;
        Ok(JoinTree { tables, root, columns, schema: plan.schema() })
    }

    /// An expression on the joined rows as one on the tables.
    pub(super) fn resolved(&self, expr: &Expr) -> Result<Expr> {
        on_tables(expr, self.schema, &self.columns)
    }

    pub(super) fn is_join(&self) -> bool {
        self.tables.len() > 1
    }

    /// The tables whose rows may be aggregated before the joins, by their numbers.
    pub(super) fn tables(&self) -> impl Iterator<Item = (usize, &SubqueryAlias)> {
        self.tables.iter().enumerate().filter(|(_, table)| table.always_there).map(|(at, table)| (at, &table.named))
    }

    /// The expressions that are compared by the joins.
    pub(super) fn compared(&self) -> Vec<&Expr> {
        let mut compared = Vec::new();
        self.root.add_compared(&mut compared);
        compared
    }

    /// The joins with another plan in the place of a table. `on` gives the expressions to compare then.
    pub(super) fn with_table(
        &self,
        at: usize,
        plan: &LogicalPlan,
        on: &dyn Fn(&Expr) -> Result<Expr>,
    ) -> Result<LogicalPlan> {
        let tables = self.tables.iter().enumerate().map(|(other, table)| match other == at {
            true => plan.clone(),
            false => LogicalPlan::SubqueryAlias(table.named.clone()),
        });
        self.root.plan(&tables.collect::<Vec<_>>(), on)
    }
}

impl<'a> Node<'a> {
    fn add_compared<'s>(&'s self, compared: &mut Vec<&'s Expr>) {
        if let Node::Join { inputs, on, .. } = self {
            compared.extend(on.iter().flat_map(|(left, right)| [left, right]));
            inputs.0.add_compared(compared);
            inputs.1.add_compared(compared);
        }
    }

    fn plan(&self, tables: &[LogicalPlan], key: &dyn Fn(&Expr) -> Result<Expr>) -> Result<LogicalPlan> {
        match self {
            Node::Table(at) => Ok(tables[*at].clone()),
            Node::Join { of, inputs, on } => {
                let on = on.iter().map(|(left, right)| Ok((key(left)?, key(right)?))).collect::<Result<Vec<_>>>()?;
                let (left, right) = (inputs.0.plan(tables, key)?, inputs.1.plan(tables, key)?);
                Join::try_new(
                    Arc::new(left),
                    Arc::new(right),
                    on,
                    None,
                    of.join_type,
                    of.join_constraint,
                    of.null_equality,
                    of.null_aware,
                )
                .map(LogicalPlan::Join)
            }
        }
    }
}

/// The tree of a plan, which may have a name, and its columns.
fn node_of<'a>(
    plan: &'a LogicalPlan,
    name: Option<&TableReference>,
    tables: &mut Vec<Table>,
) -> Result<(Node<'a>, Vec<Expr>)> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => node_of(&alias.input, name.or(Some(&alias.alias)), tables),
        LogicalPlan::Projection(projection) if !projection.expr.iter().any(Expr::is_volatile) => {
            let (node, below) = node_of(&projection.input, name, tables)?;
            let column = |expr: &Expr| on_tables(bare(expr), projection.input.schema(), &below);
            Ok((node, projection.expr.iter().map(column).collect::<Result<_>>()?))
        }
        LogicalPlan::Join(join) if join.filter.is_none() => join_of(join, plan, tables),
        LogicalPlan::TableScan(scan) => named(plan, name.unwrap_or(&scan.table_name).table(), true, tables),
        table => named(table, name.map_or("joined", TableReference::table), true, tables),
    }
}

fn join_of<'a>(join: &'a Join, plan: &'a LogicalPlan, tables: &mut Vec<Table>) -> Result<(Node<'a>, Vec<Expr>)> {
    // Of the other input, rows may be missing or there may be nulls in their place.
    let (left_is_there, right_is_there) = match join.join_type {
        JoinType::Inner => (true, true),
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti => (true, false),
        JoinType::Right | JoinType::RightSemi | JoinType::RightAnti => (false, true),
        _ => return named(plan, "joined", true, tables),
    };
    let mut input = |plan: &'a LogicalPlan, is_there| match is_there {
        true => node_of(plan, None, tables),
        false => named(plan, "joined", false, tables),
    };
    let (left, of_left) = input(&join.left, left_is_there)?;
    let (right, of_right) = input(&join.right, right_is_there)?;
    let on = join
        .on
        .iter()
        .map(|(l, r)| Ok((on_tables(l, join.left.schema(), &of_left)?, on_tables(r, join.right.schema(), &of_right)?)));
    let on = on.collect::<Result<_>>()?;
    let columns = match join.join_type {
        JoinType::LeftSemi | JoinType::LeftAnti => of_left,
        JoinType::RightSemi | JoinType::RightAnti => of_right,
        _ => of_left.into_iter().chain(of_right).collect(),
    };
    Ok((Node::Join { of: join, inputs: Box::new((left, right)), on }, columns))
}

/// A table with this name, or a similar one if there is one of this name.
fn named<'a>(
    plan: &LogicalPlan,
    name: &str,
    always_there: bool,
    tables: &mut Vec<Table>,
) -> Result<(Node<'a>, Vec<Expr>)> {
    let at = tables.len();
    let is_taken = tables.iter().any(|other| other.named.alias.table() == name);
    let name = TableReference::bare(if is_taken { format!("{name} {at}") } else { name.to_owned() });
    let named = SubqueryAlias::try_new(Arc::new(plan.clone()), name)?;
    let columns = named.schema.columns().into_iter().map(Expr::Column).collect();
    tables.push(Table { named, always_there });
    Ok((Node::Table(at), columns))
}

/// An expression on the columns of a plan, where `columns` says what these are.
fn on_tables(expr: &Expr, schema: &DFSchemaRef, columns: &[Expr]) -> Result<Expr> {
    with_columns(expr, &|column| Ok(columns[schema.index_of_column(column)?].clone()))
}

/// An expression with others in the place of its columns.
pub(super) fn with_columns(expr: &Expr, other: &dyn Fn(&Column) -> Result<Expr>) -> Result<Expr> {
    let replaced = expr.clone().transform_up(|expr| match &expr {
        Expr::Column(column) => other(column).map(Transformed::yes),
        _ => Ok(Transformed::no(expr)),
    });
    replaced.data()
}
