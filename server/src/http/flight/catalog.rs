//! What a database has, for Flight SQL.

use crate::sql::{Sql, SqlError};
use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use ebbtide::Database;
use ebbtide_ttl::Code;
use futures::TryStreamExt;
use std::sync::Arc;

/// The schemas: that of collections and views, and that of system tables.
pub(super) const SCHEMAS: [&str; 2] = ["public", "ebbtide"];
/// The types of tables, as `information_schema.tables` has them.
pub(super) const KINDS: [&str; 2] = ["BASE TABLE", "VIEW"];
const TABLES: &str = "SELECT table_schema, table_name, table_type FROM information_schema.tables \
                      WHERE table_schema IN ('public', 'ebbtide') ORDER BY 1, 2";

/// Something that can be selected from.
pub(super) struct Table {
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) kind: String,
    /// Empty unless they were asked for, or for a view that cannot be read.
    pub(super) columns: SchemaRef,
}

/// All of them.
pub(super) async fn tables(sql: &dyn Sql, database: &Database, with_columns: bool) -> Result<Vec<Table>, SqlError> {
    let session = sql.session(database.clone(), None)?;
    let parse = |text: &str| {
        let missing = || SqlError::Failed(Code::InternalError, "there is no statement".to_owned());
        Arc::clone(&session).parse(text)?.pop().ok_or_else(missing)
    };
    let rows = parse(TABLES)?.start(Vec::new()).result.await?.rows;
    let Some(rows) = rows else { return Ok(Vec::new()) };
    let batches: Vec<RecordBatch> = rows.try_collect().await?;
    let mut tables = Vec::new();
    for batch in &batches {
        let texts = batch.columns().iter().map(|column| cast(column, &DataType::Utf8));
        let texts = texts.collect::<Result<Vec<_>, _>>();
        let texts = texts.map_err(|error| SqlError::Failed(Code::InternalError, error.to_string()))?;
        let [schemas, names, kinds] = texts.as_slice() else { continue };
        for row in 0..batch.num_rows() {
            let text = |column: &arrow::array::ArrayRef| column.as_string::<i32>().value(row).to_owned();
            let (schema, name, kind) = (text(schemas), text(names), text(kinds));
            let mut columns = Arc::new(Schema::empty());
            if with_columns {
                let quoted = name.replace('"', "\"\"");
                let select = parse(&format!("SELECT * FROM {schema}.\"{quoted}\""))?;
                if let Some(found) = select.describe().await.ok().and_then(|described| described.columns) {
                    columns = found;
                }
            }
            tables.push(Table { schema, name, kind, columns });
        }
    }
    Ok(tables)
}

fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8, true)
}

/// The columns of primary keys, of which there are none.
pub(super) fn primary_keys() -> Schema {
    Schema::new(vec![
        text("catalog_name"),
        text("db_schema_name"),
        text("table_name"),
        text("column_name"),
        text("key_name"),
        Field::new("key_sequence", DataType::Int32, false),
    ])
}

/// The columns of foreign keys, of which there are none.
pub(super) fn foreign_keys() -> Schema {
    let names = [
        "pk_catalog_name",
        "pk_db_schema_name",
        "pk_table_name",
        "pk_column_name",
        "fk_catalog_name",
        "fk_db_schema_name",
        "fk_table_name",
        "fk_column_name",
    ];
    let mut fields: Vec<Field> = names.map(text).to_vec();
    fields.push(Field::new("key_sequence", DataType::Int32, false));
    fields.extend([text("fk_key_name"), text("pk_key_name")]);
    fields.extend(["update_rule", "delete_rule"].map(|name| Field::new(name, DataType::UInt8, false)));
    Schema::new(fields)
}
