//! System tables in the schema `ebbtide`, which SHOW statements read.

mod listing;
mod tables;
mod text;

pub use tables::{describe_documents, describe_rows, expiry_rows};
pub(crate) use tables::{sweep_row, type_name};
pub use text::value_text;

use crate::at_once::scan_at_once;
use crate::context::StatementContext;
use crate::error::external;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, plan_err};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use ebbtide_ttl::Precision;
use listing::unit_of;
use std::fmt;
use std::sync::Arc;
use tables::{Table, each};

/// Names of the system tables in the schema `ebbtide`.
pub const TABLES: [&str; tables::ALL.len()] = {
    let mut names = [""; tables::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = tables::ALL[at].0;
        at += 1;
    }
    names
};

/// A system table: its rows are collected from the statement's snapshot when it is scanned.
///
/// Its times are in nanoseconds, so that those of every precision are exact. While anything stored lies or expires
/// outside the range of nanoseconds (1677 to 2262), they are in microseconds, or in milliseconds outside the range of
/// microseconds (some 290 000 years).
pub(crate) struct SystemTable {
    table: &'static dyn Table,
    unit: Precision,
}

impl fmt::Debug for SystemTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemTable").field("schema", &self.table.schema(self.unit)).finish_non_exhaustive()
    }
}

impl SystemTable {
    pub(crate) fn new(name: &str, context: &StatementContext) -> Result<Self> {
        let Some((_, table)) = tables::ALL.into_iter().find(|(known, _)| *known == name) else {
            return plan_err!("there is no system table {name}");
        };
        let snapshot = context.snapshot();
        let mut times = Vec::new();
        each(snapshot, |c| {
            let Some((first, last)) = c.time_range() else { return Ok(()) };
            // Spans only grow, so no window is wider than the current one's.
            let span = c.options().bucketing.span_seconds();
            let longest = c.rules().iter().map(|view| view.expire_after_seconds).max().unwrap_or(0);
            times.extend([first.plus_seconds(-span), last.plus_seconds(span).plus_seconds(longest)]);
            Ok(())
        })
        .map_err(external)?;
        if name == "ttl_rules" {
            for name in snapshot.document_collections() {
                let rules = snapshot.documents(&name).and_then(|documents| documents.rule_infos()).map_err(external)?;
                times.extend(rules.into_iter().filter_map(|rule| rule.next_expiry));
            }
        }
        if name == "holds" {
            let holds = snapshot.holds().map_err(external)?;
            times.extend(
                holds.iter().flat_map(|hold| [hold.from, hold.to, Some(hold.made_at), hold.lifted_at]).flatten(),
            );
        }
        if name == "publications" {
            let publications = context.database().publications().into_iter().filter_map(|info| info.last);
            times.extend(publications.flat_map(|last| [last.made_at, Some(last.hides_before)]).flatten());
        }
        if name == "ladders" {
            let rungs = snapshot.ladders().map_err(external)?;
            times.extend(rungs.iter().flat_map(|rung| [rung.first_bin, rung.last_bin, rung.next_expiry]).flatten());
        }
        times.extend(context.database().sweeps().iter().flat_map(|record| [record.at, record.cutoff]));
        times.extend(context.database().current_operation().map(|running| running.started));
        Ok(SystemTable { table, unit: unit_of(&times) })
    }
}

impl SystemTable {
    /// Gives all of them the finest unit that holds the times of all.
    pub(crate) fn share_unit(tables: &mut [SystemTable]) {
        let units = [Precision::Ms, Precision::Us];
        let unit = units.into_iter().find(|unit| tables.iter().any(|table| table.unit == *unit));
        tables.iter_mut().for_each(|table| table.unit = unit.unwrap_or(Precision::Ns));
    }

    fn plan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let context = StatementContext::of(state.config())?;
        let batch = self.table.rows(context.database(), context.snapshot(), self.unit)?;
        let schema = batch.schema();
        Ok(MemorySourceConfig::try_new_exec(&[vec![batch]], schema, projection.cloned())?)
    }
}

impl TableProvider for SystemTable {
    fn schema(&self) -> SchemaRef {
        self.table.schema(self.unit)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    scan_at_once!(plan);
}
