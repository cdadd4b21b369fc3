//! The schema `pg_catalog`: the tables of `datafusion-pg-catalog`, with the columns and tables that clients ask for and that
//! it lacks.

use super::{Found, Names};
use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::logical_expr::{Expr, JoinType, LogicalPlanBuilder, col, ident, lit, when};
use datafusion_pg_catalog::pg_catalog::PgCatalogSchemaProvider;
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use std::sync::Arc;

/// The texts of views by the name and the number of each: what `pg_get_viewdef` returns.
pub(super) const VIEW_TEXTS: &str = "pg_ebbtide_view_texts";

/// The types of columns that are added.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    Texts,
    Shorts,
    Numbers,
    Number,
    Long,
    Truth,
}

impl Kind {
    fn arrow(self) -> DataType {
        match self {
            Kind::Text => DataType::Utf8,
            Kind::Texts => DataType::new_list(DataType::Utf8, true),
            Kind::Shorts => DataType::new_list(DataType::Int16, true),
            Kind::Numbers => DataType::new_list(DataType::Int32, true),
            Kind::Number => DataType::Int32,
            Kind::Long => DataType::Int64,
            Kind::Truth => DataType::Boolean,
        }
    }
}

/// Columns that are null, by their tables: those that are missing, and lists that would be texts.
const NULLS: [(&str, &str, Kind); 16] = [
    ("pg_class", "relacl", Kind::Texts),
    ("pg_class", "reloptions", Kind::Texts),
    ("pg_constraint", "conkey", Kind::Shorts),
    ("pg_constraint", "confkey", Kind::Shorts),
    ("pg_index", "indkey", Kind::Shorts),
    ("pg_index", "indclass", Kind::Numbers),
    ("pg_index", "indcollation", Kind::Numbers),
    ("pg_index", "indoption", Kind::Shorts),
    ("pg_namespace", "nspacl", Kind::Texts),
    ("pg_database", "datacl", Kind::Texts),
    ("pg_db_role_setting", "setconfig", Kind::Texts),
    ("pg_default_acl", "defaclacl", Kind::Texts),
    ("pg_language", "lanacl", Kind::Texts),
    ("pg_proc", "proacl", Kind::Texts),
    ("pg_tablespace", "spcacl", Kind::Texts),
    ("pg_tablespace", "spcoptions", Kind::Texts),
];

/// Columns that have one value. Texts are ordered by their bytes.
const VALUES: [(&str, &str, &str); 2] = [("pg_database", "datcollate", "C"), ("pg_database", "datctype", "C")];

/// Tables and views without rows.
const EMPTY: [(&str, &[(&str, Kind)]); 4] = [
    (
        "pg_indexes",
        &[
            ("schemaname", Kind::Text),
            ("tablename", Kind::Text),
            ("indexname", Kind::Text),
            ("tablespace", Kind::Text),
            ("indexdef", Kind::Text),
        ],
    ),
    (
        "pg_sequences",
        &[
            ("schemaname", Kind::Text),
            ("sequencename", Kind::Text),
            ("sequenceowner", Kind::Text),
            ("last_value", Kind::Long),
        ],
    ),
    (
        "pg_stat_activity",
        &[
            ("datid", Kind::Number),
            ("datname", Kind::Text),
            ("pid", Kind::Number),
            ("usesysid", Kind::Number),
            ("usename", Kind::Text),
            ("application_name", Kind::Text),
            ("client_addr", Kind::Text),
            ("state", Kind::Text),
            ("wait_event_type", Kind::Text),
            ("wait_event", Kind::Text),
            ("backend_type", Kind::Text),
            ("query", Kind::Text),
        ],
    ),
    (
        "pg_locks",
        &[
            ("locktype", Kind::Text),
            ("database", Kind::Number),
            ("relation", Kind::Number),
            ("pid", Kind::Number),
            ("mode", Kind::Text),
            ("granted", Kind::Truth),
        ],
    ),
];

/// Whether a table is one of those that are added.
pub(super) fn is_added(name: &str) -> bool {
    EMPTY.iter().any(|(empty, _)| empty.eq_ignore_ascii_case(name))
}

#[derive(Debug)]
pub(super) struct Catalog {
    names: Names,
    tables: PgCatalogSchemaProvider<Names, EmptyContextProvider>,
}

impl Catalog {
    pub(super) fn new(names: Names, tables: PgCatalogSchemaProvider<Names, EmptyContextProvider>) -> Catalog {
        Catalog { names, tables }
    }

    /// A table with the columns that it lacks.
    async fn completed(&self, name: &str) -> Found<Option<Arc<dyn TableProvider>>> {
        let Some(table) = self.tables.table(name).await? else { return Ok(None) };
        let schema = table.schema();
        let mut changed: Vec<(&str, Expr)> = Vec::new();
        for (_, column, kind) in NULLS.iter().filter(|(of, ..)| *of == name) {
            let null = lit(ScalarValue::try_new_null(&kind.arrow())?);
            // Not the same for all rows, as far as the optimizer knows: it drops orders by constants, which aggregates ask for.
            let first = schema.fields().first().filter(|_| matches!(kind, Kind::Shorts | Kind::Numbers));
            let value = match first {
                Some(first) => when(ident(first.name()).eq(lit(-1)), empty(*kind)?).otherwise(null)?,
                None => null,
            };
            changed.push((column, value));
        }
        changed.extend(VALUES.iter().filter(|(of, ..)| *of == name).map(|(_, column, value)| (*column, lit(*value))));
        if changed.is_empty() {
            return Ok(Some(table));
        }
        let there = schema.fields().iter().map(|field| {
            let change = changed.iter().find(|(column, _)| column == field.name());
            change.map_or_else(|| ident(field.name()), |(column, value)| value.clone().alias(*column))
        });
        let missing = changed.iter().filter(|(column, _)| schema.field_with_name(column).is_err());
        let columns: Vec<Expr> = there.chain(missing.map(|(column, value)| value.clone().alias(*column))).collect();
        let plan = LogicalPlanBuilder::scan(name, provider_as_source(table), None)?.project(columns)?.build()?;
        Ok(Some(Arc::new(ViewTable::new(plan, None))))
    }

    async fn view_texts(&self) -> Found<Option<Arc<dyn TableProvider>>> {
        let (Some(classes), Some(namespaces)) =
            (self.tables.table("pg_class").await?, self.tables.table("pg_namespace").await?)
        else {
            return Ok(None);
        };
        let views = self.names.views();
        let texts = RecordBatch::try_from_iter([
            ("name", Arc::new(StringArray::from_iter_values(views.keys())) as _),
            ("definition", Arc::new(StringArray::from_iter_values(views.values().map(|text| query_of(text)))) as _),
        ])?;
        let texts = Arc::new(MemTable::try_new(texts.schema(), vec![vec![texts]])?);
        let scan = |name: &str, table| LogicalPlanBuilder::scan(name, provider_as_source(table), None);
        let plan = scan("c", classes)?
            .join(scan("n", namespaces)?.build()?, JoinType::Inner, (vec!["c.relnamespace"], vec!["n.oid"]), None)?
            .join(scan("v", texts)?.build()?, JoinType::Inner, (vec!["c.relname"], vec!["v.name"]), None)?
            .filter(col("n.nspname").eq(lit("public")))?
            .project([col("c.oid"), col("v.name"), col("v.definition")])?
            .build()?;
        Ok(Some(Arc::new(ViewTable::new(plan, None))))
    }
}

#[async_trait]
impl SchemaProvider for Catalog {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.tables.table_names();
        names.extend(EMPTY.iter().map(|(name, _)| (*name).to_owned()));
        names
    }

    async fn table(&self, name: &str) -> Found<Option<Arc<dyn TableProvider>>> {
        let name = name.to_ascii_lowercase();
        if name == VIEW_TEXTS {
            return self.view_texts().await;
        }
        if let Some((_, columns)) = EMPTY.iter().find(|(empty, _)| *empty == name) {
            let fields = columns.iter().map(|(column, kind)| Field::new(*column, kind.arrow(), true));
            let schema = Schema::new(fields.collect::<Vec<_>>());
            return Ok(Some(Arc::new(EmptyTable::new(Arc::new(schema)))));
        }
        self.completed(&name).await
    }

    fn table_exist(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        name == VIEW_TEXTS || is_added(&name) || self.tables.table_exist(&name)
    }
}

/// A list of this type without items.
fn empty(kind: Kind) -> Found<Expr> {
    let kind = kind.arrow();
    let DataType::List(item) = &kind else { return Ok(lit(ScalarValue::try_new_null(&kind)?)) };
    Ok(lit(ScalarValue::List(ScalarValue::new_list(&[], item.data_type(), true))))
}

/// The query of `CREATE VIEW name AS query`, as PostgreSQL shows it.
fn query_of(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let is_gap = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_whitespace() || b"()".contains(byte));
    let bytes = lower.as_bytes();
    let is_word =
        |at: &usize| at.checked_sub(1).is_some_and(|before| is_gap(bytes.get(before))) && is_gap(bytes.get(at + 2));
    let at = lower.match_indices("as").map(|(at, _)| at).find(is_word);
    let query = at.and_then(|at| text.get(at + 2..)).unwrap_or(text);
    format!("{};", query.trim().trim_end_matches(';'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_of_a_view_is_what_comes_after_as() {
        assert_eq!(query_of("CREATE VIEW last AS\n SELECT a as b FROM t;"), "SELECT a as b FROM t;");
        assert_eq!(query_of("create or replace view v as(select 1)"), "(select 1);");
    }
}
