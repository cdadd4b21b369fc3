//! The node that fills gaps, in a logical plan.

use crate::functions::bins::Bins;
use datafusion::arrow::datatypes::Field;
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result, ScalarValue, internal_err};
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// How a column's gaps are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FillKind {
    /// The last value before the gap.
    Locf,
    /// On a straight line between the neighbouring values.
    Interpolate,
}

/// The bins, and the constants that define them.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    pub(crate) width: ScalarValue,
    pub(crate) anchor: Option<ScalarValue>,
    pub(crate) bins: Arc<Bins>,
}

impl PartialEq for Grid {
    fn eq(&self, other: &Self) -> bool {
        (&self.width, &self.anchor) == (&other.width, &other.anchor)
    }
}

impl Eq for Grid {}

impl Hash for Grid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.width, &self.anchor).hash(state);
    }
}

/// Adds a row for each bin of a range in which a series has none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GapFill {
    pub(crate) input: LogicalPlan,
    /// The column of the bins.
    pub(crate) time: Column,
    /// The columns that identify a series.
    pub(crate) series: Vec<Column>,
    /// The columns whose gaps are filled; all other columns are null in gaps.
    pub(crate) fills: Vec<(Column, FillKind)>,
    pub(crate) grid: Grid,
    /// The times whose bins are the first and the last to return, in units.
    pub(crate) range: (i64, i64),
    schema: DFSchemaRef,
}

impl PartialOrd for GapFill {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl GapFill {
    pub(crate) fn try_new(
        input: LogicalPlan,
        time: Column,
        series: Vec<Column>,
        fills: Vec<(Column, FillKind)>,
        grid: Grid,
        range: (i64, i64),
    ) -> Result<Self> {
        let columns = input.schema().columns();
        GapFill { schema: Arc::new(DFSchema::empty()), input, time, series, fills, grid, range }.with_columns(&columns)
    }

    /// The node with these output columns. A column that the optimizer adds to the input would be null in gaps: it is
    /// not passed through, which the optimizer respects.
    fn with_columns(mut self, columns: &[Column]) -> Result<Self> {
        let fields = self.input.schema().iter().filter_map(|(qualifier, field)| {
            let column = Column::from((qualifier, field));
            let kept = column == self.time || self.series.contains(&column);
            let field = if kept { Arc::clone(field) } else { Arc::new(Field::clone(field).with_nullable(true)) };
            columns.contains(&column).then(|| (qualifier.cloned(), field))
        });
        let metadata = self.input.schema().metadata().clone();
        self.schema = Arc::new(DFSchema::new_with_metadata(fields.collect(), metadata)?);
        Ok(self)
    }
}

impl UserDefinedLogicalNodeCore for GapFill {
    fn name(&self) -> &'static str {
        "GapFill"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        let columns = std::iter::once(&self.time).chain(&self.series).chain(self.fills.iter().map(|(c, _)| c));
        columns.cloned().map(Expr::Column).collect()
    }

    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        // A condition on the series excludes whole series, so it may be applied before filling as well.
        let names = self.schema.columns().into_iter().filter(|c| !self.series.contains(c)).map(|c| c.name);
        names.collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GapFill: time=[{}], series=[{}]", self.time, list(self.series.iter()))?;
        for (kind, name) in [(FillKind::Locf, "locf"), (FillKind::Interpolate, "interpolate")] {
            let columns: Vec<&Column> = self.fills.iter().filter(|(_, k)| *k == kind).map(|(c, _)| c).collect();
            if !columns.is_empty() {
                write!(f, ", {name}=[{}]", list(columns.into_iter()))?;
            }
        }
        Ok(())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let columns: Vec<Column> = exprs.iter().filter_map(Expr::try_as_col).cloned().collect();
        let (Some(input), true) = (inputs.pop(), columns.len() == 1 + self.series.len() + self.fills.len()) else {
            return internal_err!("GapFill was given {} columns", columns.len());
        };
        let mut columns = columns.into_iter();
        let Some(time) = columns.next() else { return internal_err!("GapFill was given no time") };
        let series = columns.by_ref().take(self.series.len()).collect();
        let fills = columns.zip(&self.fills).map(|(column, (_, kind))| (column, *kind)).collect();
        let node = GapFill { input, time, series, fills, ..self.clone() };
        node.with_columns(&self.schema.columns())
    }
}

fn list<'a>(columns: impl Iterator<Item = &'a Column>) -> String {
    columns.map(Column::flat_name).collect::<Vec<_>>().join(", ")
}
