//! What PostgreSQL's clients ask of a database beside its collections: the schema `pg_catalog`, functions such as
//! `current_database()`, and types such as `regclass`. All of it is that of `datafusion-pg-catalog`, but for what a client
//! could take for the truth.

mod catalog;
mod functions;
mod rewrites;

use crate::catalog::StatementCatalog;
use crate::context::PG_CATALOG;
use crate::context::{CATALOG, SessionSource, StatementContext};
use crate::error::{QueryError, Result};
use crate::session_tables::SessionTables;
use crate::{array_text, late_context};
use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, SchemaRef, TimeUnit};
use datafusion::catalog::{
    CatalogProvider, MemTable, MemoryCatalogProvider, MemorySchemaProvider, SchemaProvider, TableFunctionArgs,
    TableFunctionImpl, TableProvider,
};
use datafusion::common::{DataFusionError, ScalarValue, exec_err, plan_err};
use datafusion::datasource::TableType;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, create_udf,
};
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{self, VisitMut};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::{ALL_KEYWORDS, ALL_KEYWORDS_INDEX, RESERVED_FOR_IDENTIFIER};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion_pg_catalog::pg_catalog::catalog_info::CatalogInfo;
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::pg_catalog::oid_type_planner::PgOidTypePlanner;
use datafusion_pg_catalog::pg_catalog::{
    PgCatalogSchemaProvider, PgCatalogStaticTables, create_current_database_udf, setup_pg_catalog,
};
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;
use datafusion_pg_catalog::sql::rules::{
    CurrentUserVariableToSessionUserFunctionCall, FixVersionColumnName, PrependUnqualifiedPgTableName,
    RewritePgCatalogOperator, RewriteRegCastToSubquery, SqlStatementRewriteRule, StripCallableQualifier, StripCollate,
};
use ebbtide::{Database, FileAccess};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

/// The version of PostgreSQL that clients may expect, and our own.
const VERSION: &str = concat!("PostgreSQL 16.6 (Ebbtide ", env!("CARGO_PKG_VERSION"), ")");

/// What a client of PostgreSQL's protocol is told: see [`SessionSettings::postgres`](crate::SessionSettings::postgres).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresClient {
    /// The name of the database: `current_database()`.
    pub database: String,
    /// The name of the account: `current_user`.
    pub user: String,
}

/// What all sessions share, made once.
struct Common {
    tables: Arc<PgCatalogStaticTables>,
    functions: Vec<Arc<ScalarUDF>>,
    parser: PostgresCompatibilityParser,
    /// Those of the parser's rules that are about names and have no effect on what a statement reads.
    names: Vec<Arc<dyn SqlStatementRewriteRule>>,
}

fn common() -> Result<&'static Common> {
    static COMMON: OnceLock<std::result::Result<Common, String>> = OnceLock::new();
    if COMMON.get().is_none() {
        late_context::check_clock()?;
    }
    let made = COMMON.get_or_init(|| Common::new().map_err(|error| error.to_string()));
    made.as_ref().map_err(|message| QueryError::new(ebbtide_ttl::Code::InternalError, message.clone()))
}

impl Common {
    fn new() -> datafusion::common::Result<Common> {
        let plain = SessionContext::new();
        let context = SessionContext::new();
        let catalog = Arc::new(MemoryCatalogProvider::new());
        catalog.register_schema("public", Arc::new(MemorySchemaProvider::new()))?;
        context.register_catalog(CATALOG, catalog);
        setup_pg_catalog(&context, CATALOG, EmptyContextProvider).map_err(|error| *error)?;
        let known: HashMap<String, Arc<ScalarUDF>> = plain.state().scalar_functions().clone();
        let state = context.state();
        let new = state.scalar_functions().iter().filter(|(name, _)| !known.contains_key(*name));
        let functions = new.map(|(_, function)| Arc::clone(function)).collect();
        let tables = Arc::new(PgCatalogStaticTables::try_new()?);
        let names: Vec<Arc<dyn SqlStatementRewriteRule>> = vec![
            Arc::new(PrependUnqualifiedPgTableName),
            Arc::new(StripCallableQualifier),
            Arc::new(CurrentUserVariableToSessionUserFunctionCall),
            Arc::new(StripCollate),
            Arc::new(RewritePgCatalogOperator),
            Arc::new(RewriteRegCastToSubquery::new()),
            Arc::new(FixVersionColumnName),
        ];
        Ok(Common { tables, functions, parser: PostgresCompatibilityParser::new(), names })
    }
}

/// Collections, views and system tables, as `pg_catalog` asks for them.
#[derive(Clone)]
struct Names {
    /// What the catalog is called.
    catalog: String,
    database: Database,
    session: Arc<dyn SessionSource>,
    tables: Weak<SessionTables>,
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names").field("catalog", &self.catalog).finish_non_exhaustive()
    }
}

impl Names {
    /// A schema as it is now.
    fn schema(&self, catalog: &str, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let tables = self.tables.upgrade().filter(|_| catalog == self.catalog && name != PG_CATALOG)?;
        let (database, snapshot) = (self.database.clone(), self.database.snapshot());
        let context =
            Arc::new(StatementContext::new(database, snapshot, Arc::clone(&self.session), FileAccess::none()));
        StatementCatalog::new(&context, &tables).schema(name)
    }
}

impl Names {
    /// The texts of views by their names.
    fn views(&self) -> Arc<std::collections::BTreeMap<String, String>> {
        Arc::clone(self.database.snapshot().views())
    }
}

type Found<T> = std::result::Result<T, DataFusionError>;

#[async_trait]
impl CatalogInfo for Names {
    async fn catalog_names(&self) -> Found<Vec<String>> {
        Ok(vec![self.catalog.clone()])
    }

    async fn schema_names(&self, catalog: &str) -> Found<Option<Vec<String>>> {
        let names = ["public", "ebbtide", PG_CATALOG, "information_schema"];
        Ok((catalog == self.catalog).then(|| names.map(str::to_owned).to_vec()))
    }

    async fn table_names(&self, catalog: &str, schema: &str) -> Found<Option<Vec<String>>> {
        Ok(self.schema(catalog, schema).map(|schema| schema.table_names()))
    }

    async fn table_schema(&self, catalog: &str, schema: &str, table: &str) -> Found<Option<SchemaRef>> {
        let Some(schema) = self.schema(catalog, schema) else { return Ok(None) };
        Ok(schema.table(table).await?.map(|table| table.schema()))
    }

    async fn table_type(&self, catalog: &str, schema: &str, table: &str) -> Found<Option<TableType>> {
        let Some(schema) = self.schema(catalog, schema) else { return Ok(None) };
        schema.table_type(table).await
    }
}

/// PostgreSQL's names of types, for a session's planner.
pub(crate) fn types() -> Arc<dyn TypePlanner> {
    Arc::new(Types)
}

#[derive(Debug)]
struct Types;

impl TypePlanner for Types {
    fn plan_type_field(&self, kind: &ast::DataType) -> Found<Option<FieldRef>> {
        match kind {
            // An instant, in the precision that PostgreSQL has.
            ast::DataType::Timestamp(_, ast::TimezoneInfo::Tz | ast::TimezoneInfo::WithTimeZone) => {
                let instant = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
                Ok(Some(Arc::new(Field::new("", instant, true))))
            }
            kind => PgOidTypePlanner.plan_type_field(kind),
        }
    }
}

/// Adds the functions to a session, and the schema to its tables.
pub(crate) fn register(
    session: &SessionContext,
    database: &Database,
    tables: &Arc<SessionTables>,
    client: &PostgresClient,
) -> Result<()> {
    let common = common()?;
    for function in &common.functions {
        session.register_udf(function.as_ref().clone());
    }
    session.register_udf(create_current_database_udf(&client.database));
    session.register_udf(text_of("session_user", &[], Some(&client.user)));
    session.register_udf(text_of("version", &[], Some(VERSION)));
    session.register_udf(text_of("pg_get_userbyid", &[DataType::Int32], Some(&client.user)));
    functions::register(session);
    session.register_udf(Setting::function("current_setting"));
    session.register_udf(Setting::function("set_config"));
    session.register_udtf("pg_get_keywords", Arc::new(Keywords));
    let names = Names {
        catalog: client.database.clone(),
        database: database.clone(),
        session: Arc::new(session.clone()),
        tables: Arc::downgrade(tables),
    };
    let schema = PgCatalogSchemaProvider::try_new(names.clone(), Arc::clone(&common.tables), EmptyContextProvider)?;
    tables.add_pg_catalog(client.database.clone(), Arc::new(catalog::Catalog::new(names, schema)));
    Ok(())
}

/// A function that always returns the same text, or null.
fn text_of(name: &str, arguments: &[DataType], value: Option<&str>) -> ScalarUDF {
    let value = ScalarValue::Utf8(value.map(str::to_owned));
    let function = move |_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(value.clone()));
    create_udf(name, arguments.to_vec(), DataType::Utf8, Volatility::Stable, Arc::new(function))
}

/// `current_setting` and `set_config` for the few settings that programs ask for in queries, which are what they are.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Setting {
    name: &'static str,
    signature: Signature,
}

/// Their names and values.
const SETTINGS: [(&str, &str); 9] = [
    ("default_table_access_method", "heap"),
    ("default_transaction_isolation", "read committed"),
    ("jit", "off"),
    ("max_index_keys", "32"),
    ("search_path", "\"$user\", public"),
    ("server_encoding", "UTF8"),
    ("server_version", "16.6"),
    ("server_version_num", "160006"),
    ("TimeZone", "UTC"),
];

impl Setting {
    fn function(name: &'static str) -> ScalarUDF {
        ScalarUDF::from(Setting { name, signature: Signature::variadic_any(Volatility::Stable) })
    }
}

impl ScalarUDFImpl for Setting {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Found<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Found<ColumnarValue> {
        let text = |at: usize| match args.args.get(at) {
            Some(ColumnarValue::Scalar(value)) => value.try_as_str().flatten().map(str::to_owned),
            _ => None,
        };
        let Some(asked) = text(0) else { return exec_err!("{} needs the name of a parameter", self.name) };
        let known = SETTINGS.iter().find(|(name, _)| name.eq_ignore_ascii_case(&asked)).map(|(_, value)| *value);
        let Some(value) = known else {
            return match args.args.get(1) {
                Some(ColumnarValue::Scalar(ScalarValue::Boolean(Some(true)))) => {
                    Ok(ColumnarValue::Scalar(ScalarValue::Utf8(None)))
                }
                _ => exec_err!("unrecognized configuration parameter \"{asked}\": SHOW knows those of the connection"),
            };
        };
        if self.name == "set_config" && text(1).as_deref() != Some(value) {
            return exec_err!("parameter \"{asked}\" is always \"{value}\" here");
        }
        Ok(ColumnarValue::Scalar(ScalarValue::from(value)))
    }
}

/// The table function `pg_get_keywords()`: the words that SQL here knows, of which editors ask the reserved ones.
#[derive(Debug)]
struct Keywords;

impl TableFunctionImpl for Keywords {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Found<Arc<dyn TableProvider>> {
        if !args.exprs().is_empty() {
            return plan_err!("pg_get_keywords() takes no arguments");
        }
        let is_reserved = |word: &&str| {
            let word = ALL_KEYWORDS.iter().position(|known| known == word).map(|at| ALL_KEYWORDS_INDEX[at]);
            word.is_some_and(|word| RESERVED_FOR_IDENTIFIER.contains(&word))
        };
        let text = |values: Vec<String>| Arc::new(StringArray::from(values)) as ArrayRef;
        let category = |of: &dyn Fn(bool) -> &'static str| {
            text(ALL_KEYWORDS.iter().map(|word| of(is_reserved(word)).to_owned()).collect())
        };
        let columns = [
            ("word", text(ALL_KEYWORDS.iter().map(|word| word.to_lowercase()).collect())),
            ("catcode", category(&|reserved| if reserved { "R" } else { "U" })),
            ("barelabel", Arc::new(BooleanArray::from_iter(ALL_KEYWORDS.iter().map(|word| Some(!is_reserved(word)))))),
            ("catdesc", category(&|reserved| if reserved { "reserved" } else { "unreserved" })),
            ("baredesc", category(&|reserved| if reserved { "requires AS" } else { "can be bare label" })),
        ];
        let rows = RecordBatch::try_from_iter(columns)?;
        Ok(Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows]])?))
    }
}

/// What drivers ask in words that DataFusion does not know, and what they mean: ADBC compares names with 0; JDBC asks for the
/// columns of keys and indexes, of which there are none, counts with a type that DataFusion does not count with, and looks for arrays
/// by the number of a function.
const DRIVERS: [(&str, &str); 16] = [
    ("typinput='pg_catalog.array_in'::regproc", "typinput = 'array_in'"),
    (
        "generate_series(1, array_upper(current_schemas(false), 1))",
        "generate_series(1, CAST(array_upper(current_schemas(false), 1) AS BIGINT))",
    ),
    ("generate_series(array_lower(conkey, 1), array_upper(conkey, 1))", "CAST(NULL AS BIGINT)"),
    ("typreceive != 0", "typreceive != '-'"),
    ("typsend != 0", "typsend != '-'"),
    ("(information_schema._pg_expandarray(i.indkey)).n", "CAST(NULL AS INT)"),
    ("information_schema._pg_expandarray(i.indkey)", "CAST(NULL AS INT)"),
    ("(result.KEYS).x", "result.KEYS"),
    ("(i.keys).n", "i.keys"),
    ("(i.keys).x", "i.keys"),
    ("trim(both '\"' from pg_catalog.pg_get_indexdef(tmp.CI_OID, tmp.ORDINAL_POSITION, false))", "CAST(NULL AS TEXT)"),
    ("tmp.I_INDOPTION[tmp.ORDINAL_POSITION - 1]", "CAST(NULL AS SMALLINT)"),
    ("con.confkey[pos.n]", "CAST(NULL AS SMALLINT)"),
    ("con.conkey[pos.n]", "CAST(NULL AS SMALLINT)"),
    ("SELECT setting FROM pg_catalog.pg_settings WHERE name='max_index_keys'", "SELECT '32' AS setting"),
    (
        "(SELECT c.relkind = 'c' FROM pg_catalog.pg_class c WHERE c.oid = t.typrelid)",
        "EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.relkind = 'c' AND c.oid = t.typrelid)",
    ),
];

/// `information_schema.columns` as PostgreSQL has it: with positions from 1 on, and its own names of types.
const COLUMNS: &str = "SELECT * FROM (SELECT table_catalog, table_schema, table_name, column_name, \
    CAST(ordinal_position + 1 AS INT) AS ordinal_position, column_default, is_nullable, CASE \
    WHEN data_type LIKE 'Timestamp(%\"%' THEN 'timestamp with time zone' \
    WHEN data_type LIKE 'Timestamp(%' THEN 'timestamp without time zone' \
    WHEN data_type IN ('Utf8', 'LargeUtf8', 'Utf8View', 'Null') OR data_type LIKE 'Dictionary(%' THEN 'text' \
    WHEN data_type IN ('Int8', 'Int16', 'UInt8') THEN 'smallint' \
    WHEN data_type IN ('Int32', 'UInt16') THEN 'integer' \
    WHEN data_type IN ('Int64', 'UInt32', 'UInt64') THEN 'bigint' WHEN data_type LIKE 'Decimal%' THEN 'numeric' \
    WHEN data_type = 'Float32' THEN 'real' WHEN data_type = 'Float64' THEN 'double precision' \
    WHEN data_type = 'Boolean' THEN 'boolean' WHEN data_type LIKE 'Date%' THEN 'date' \
    WHEN data_type LIKE 'Time%' THEN 'time without time zone' \
    WHEN data_type LIKE 'Interval(%' OR data_type LIKE 'Duration(%' THEN 'interval' \
    WHEN data_type LIKE '%Binary%' THEN 'bytea' \
    WHEN data_type LIKE 'List(%' AND data_type NOT LIKE '%Struct(%' THEN 'ARRAY' \
    ELSE 'json' END AS data_type, CASE \
    WHEN data_type LIKE 'Timestamp(%\"%' THEN 'timestamptz' WHEN data_type LIKE 'Timestamp(%' THEN 'timestamp' \
    WHEN data_type IN ('Utf8', 'LargeUtf8', 'Utf8View', 'Null') OR data_type LIKE 'Dictionary(%' THEN 'text' \
    WHEN data_type IN ('Int8', 'Int16', 'UInt8') THEN 'int2' WHEN data_type IN ('Int32', 'UInt16') THEN 'int4' \
    WHEN data_type IN ('Int64', 'UInt32', 'UInt64') THEN 'int8' WHEN data_type LIKE 'Decimal%' THEN 'numeric' \
    WHEN data_type = 'Float32' THEN 'float4' WHEN data_type = 'Float64' THEN 'float8' \
    WHEN data_type = 'Boolean' THEN 'bool' WHEN data_type LIKE 'Date%' THEN 'date' WHEN data_type LIKE 'Time%' THEN 'time' \
    WHEN data_type LIKE 'Interval(%' OR data_type LIKE 'Duration(%' THEN 'interval' \
    WHEN data_type LIKE '%Binary%' THEN 'bytea' WHEN data_type LIKE 'List(%' AND data_type NOT LIKE '%Struct(%' THEN '_text' \
    ELSE 'json' END AS udt_name, table_catalog AS udt_catalog, 'pg_catalog' AS udt_schema, 'NO' AS is_identity, \
    'NEVER' AS is_generated, 'YES' AS is_updatable, character_maximum_length, character_octet_length, numeric_precision, \
    numeric_precision_radix, numeric_scale, datetime_precision, interval_type FROM information_schema.columns) AS columns";

/// `information_schema.views` as PostgreSQL has it: DataFusion's lists tables too, and does not call the text of a view by this name.
const VIEWS: &str = "SELECT * FROM (SELECT table_catalog, table_schema, table_name, texts.definition AS view_definition, \
    'NONE' AS check_option, 'NO' AS is_updatable, 'NO' AS is_insertable_into, 'NO' AS is_trigger_updatable, \
    'NO' AS is_trigger_deletable, 'NO' AS is_trigger_insertable_into FROM information_schema.tables \
    LEFT JOIN pg_catalog.pg_ebbtide_view_texts AS texts ON table_schema = 'public' AND table_name = texts.name \
    WHERE table_type = 'VIEW') AS views";

/// `pg_views`, which lists none.
const PG_VIEWS: &str = "SELECT * FROM (SELECT table_schema AS schemaname, table_name AS viewname, \
    pg_get_userbyid(CAST(10 AS INT)) AS viewowner, texts.definition AS definition FROM information_schema.tables \
    LEFT JOIN pg_catalog.pg_ebbtide_view_texts AS texts ON table_schema = 'public' AND table_name = texts.name \
    WHERE table_type = 'VIEW') AS pg_views";

/// What a text contains that is about PostgreSQL's catalog.
const SIGNS: [&str; 10] = [
    "pg_",
    "regclass",
    "regtype",
    "regproc",
    "regnamespace",
    "current_schema",
    "current_user",
    "session_user",
    "information_schema",
    "version(",
];

/// What asyncpg asks of the types of arrays, in a query that DataFusion cannot run: it walks from types to those that they consist of,
/// which are known to it here.
const TYPES: &str = "SELECT t.oid, 'pg_catalog' AS ns, t.typname AS name, t.typtype AS kind, CAST(NULL AS INT) AS basetype, \
    t.typelem AS elemtype, t.typdelim AS elemdelim, CAST(NULL AS INT) AS range_subtype, CAST(NULL AS TEXT[]) AS attrtypoids, \
    CAST(NULL AS TEXT[]) AS attrnames, 0 AS depth, CAST(NULL AS TEXT) AS basetype_name, CAST(NULL AS TEXT) AS elemtype_name, \
    CAST(NULL AS TEXT) AS range_subtype_name FROM pg_catalog.pg_type t \
    WHERE array_has(CAST($1 AS BIGINT[]), CAST(t.oid AS BIGINT))";

/// The list with items of this type that PostgreSQL's text for an array stands for, such as `{a,b}`: an array of one.
///
/// # Errors
/// If the text is no array, or one of its items is no value of the type.
pub fn list(text: &str, item: &DataType) -> Result<ArrayRef> {
    let list = array_text::list(text, &DataType::new_list(item.clone(), true))?;
    Ok(list.to_array()?)
}

/// A query about PostgreSQL's catalog in words that DataFusion knows; `None` for one that is about something else.
#[must_use]
pub fn rewritten(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    if !SIGNS.iter().any(|sign| lower.contains(sign)) {
        return None;
    }
    if text.contains("typeinfo_tree(") && text.contains("any($1::oid[])") {
        return Some(TYPES.to_owned());
    }
    let common = common().ok()?;
    let asked = Parser::parse_sql(&PostgreSqlDialect {}, text).ok();
    if let Some(asked) = asked.as_deref().filter(|asked| !asked.iter().all(rewrites::is_of_catalog)) {
        return beside_catalog(asked, common);
    }
    let mut text = DRIVERS.iter().fold(text.to_owned(), |text, (asked, meant)| text.replace(asked, meant));
    if lower.contains("to_reg") {
        text = rewrites::with_lookups(&text).unwrap_or(text);
    }
    let mut statements = common.parser.parse(&text).ok()?;
    let mut statement = statements.pop().filter(|_| statements.is_empty())?;
    // A text that can only be parsed once parts of it are replaced.
    if asked.is_none() && rewrites::reads_others(&statement) {
        return None;
    }
    let _all = statement.visit(&mut rewrites::Known { of_catalog: true });
    Some(statement.to_string())
}

/// A statement that reads other tables, or none, with names of PostgreSQL's that DataFusion knows otherwise; `None` if it has none.
fn beside_catalog(asked: &[ast::Statement], common: &Common) -> Option<String> {
    let [asked] = asked else { return None };
    let mut statement = asked.clone();
    rewrites::look_up(&mut statement);
    let mut statement = common.names.iter().fold(statement, |statement, rule| rule.rewrite(statement));
    let _all = statement.visit(&mut rewrites::Known { of_catalog: false });
    (statement != *asked).then(|| statement.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_columns_is_replaced_once_with_its_alias() {
        let text = rewritten("SELECT c.data_type FROM \"information_schema\".columns AS c, information_schema.tables")
            .unwrap();
        assert_eq!(text.matches("information_schema.columns").count(), 1, "{text}");
        assert!(text.contains("FROM information_schema.columns) AS c, information_schema.tables"), "{text}");
        assert!(rewritten("SELECT 1 FROM information_schema.columns").unwrap().ends_with(") AS columns"));
        assert_eq!(rewritten("SELECT s FROM w"), None);
    }
}
