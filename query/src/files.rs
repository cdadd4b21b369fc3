//! Files as tables: `FROM 'x.csv'`, and `read_csv('x.csv', delim = ';')` with options.
//!
//! A call of a reading function is replaced by a table name that encodes its arguments, and the catalog resolves such names
//! as it resolves the name of a file. So a file can be used wherever a collection can. CSV and JSON are decoded by this
//! module, Parquet by DataFusion. Nothing is cached beyond the statement.

mod csv;
mod json;
mod reader;
mod text;

use crate::error::QueryError;
use datafusion::arrow::datatypes::Schema;
use datafusion::catalog::TableProvider;
use datafusion::common::DataFusionError;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::execution::context::SessionState;
use ebbtide::{FileAccess, suggest};
use ebbtide_ttl::Code;
use reader::{Result, wrong};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Functions that read files, and the format that each reads.
const FUNCTIONS: [(&str, Format); 9] = [
    ("read_csv", Format::Csv),
    ("read_csv_auto", Format::Csv),
    ("read_parquet", Format::Parquet),
    ("parquet_scan", Format::Parquet),
    ("read_json", Format::Json),
    ("read_json_auto", Format::Json),
    ("read_ndjson", Format::Json),
    ("read_ndjson_auto", Format::Json),
    ("read_json_objects", Format::Json),
];

/// Options of `read_csv`, each with the names that it has elsewhere.
const CSV_OPTIONS: [(&str, &[&str]); 11] = [
    ("delim", &["sep", "delimiter"]),
    ("header", &["has_header"]),
    ("skip", &[]),
    ("nullstr", &["null", "nulls"]),
    ("all_varchar", &["all_text"]),
    ("comment", &[]),
    ("encoding", &[]),
    ("decimal_separator", &["decimal"]),
    ("thousands", &[]),
    ("text", &[]),
    ("number", &[]),
];

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    Json,
    Parquet,
}

/// The files to read, and the options.
#[derive(Debug, Clone, PartialEq)]
struct Request {
    format: Format,
    paths: Vec<String>,
    options: Map<String, Value>,
}

/// Whether a function reads files.
pub(crate) fn is_reader(function: &str) -> bool {
    FUNCTIONS.iter().any(|(name, _)| name.eq_ignore_ascii_case(function))
}

/// Whether the name of a table is that of a file, or of a call of a reading function.
pub(crate) fn is_file(table: &str) -> bool {
    Request::of(table).is_some()
}

/// The name of the table for a call of a reading function.
///
/// # Errors
/// [`Code::BadValue`] for options that do not exist.
pub(crate) fn table_of_call(function: &str, paths: Vec<String>, options: Vec<(String, Value)>) -> Result<String> {
    let format = FUNCTIONS.iter().find(|(name, _)| name.eq_ignore_ascii_case(function)).map(|(_, format)| *format);
    let mut known = Map::new();
    for (name, value) in options {
        let name = name.to_lowercase();
        let found = CSV_OPTIONS.iter().find(|(option, others)| *option == name || others.contains(&name.as_str()));
        let Some((option, _)) = found.filter(|_| format == Some(Format::Csv)) else {
            let hint = suggest::hint(&name, CSV_OPTIONS.iter().map(|(option, _)| *option));
            let there = match format {
                Some(Format::Csv) => {
                    format!("{hint} (options: {})", CSV_OPTIONS.map(|(option, _)| option).join(", "))
                }
                _ => "; it takes only paths".to_owned(),
            };
            return Err(wrong(format!("{function}: no option is called '{name}'{there}")));
        };
        known.insert((*option).to_owned(), value);
    }
    Ok(json!({"read": function.to_lowercase(), "paths": paths, "options": known}).to_string())
}

impl Request {
    /// The request that a name encodes, if it is the name of a file or of a call.
    fn of(name: &str) -> Option<Request> {
        if name.starts_with("{\"read\":") {
            let call: Value = serde_json::from_str(name).ok()?;
            let function = call["read"].as_str()?;
            let (_, format) = FUNCTIONS.iter().find(|(name, _)| *name == function)?;
            let paths = call["paths"].as_array()?.iter().filter_map(|p| Some(p.as_str()?.to_owned())).collect();
            return Some(Request { format: *format, paths, options: call["options"].as_object()?.clone() });
        }
        let lower = name.to_lowercase();
        let plain = lower.strip_suffix(".gz").or_else(|| lower.strip_suffix(".zst")).unwrap_or(&lower);
        let format = match plain.rsplit_once('.')?.1 {
            "csv" | "tsv" => Format::Csv,
            "json" | "ndjson" | "jsonl" => Format::Json,
            "parquet" | "pq" => Format::Parquet,
            _ => return None,
        };
        Some(Request { format, paths: vec![name.to_owned()], options: Map::new() })
    }

    /// The files that exist, if they may be read.
    fn files(&self, access: &FileAccess) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for path in &self.paths {
            // Also for files that do not exist: a client must not learn which files there are.
            access.check("reading a file", Path::new(fixed_part(path)))?;
            if Path::new(path).is_file() {
                files.push(access.check("reading a file", Path::new(path))?);
                continue;
            }
            let matches = glob::glob(path).map_err(|e| wrong(format!("'{path}' is not a pattern: {e}")))?;
            let before = files.len();
            files.extend(matches.filter_map(std::result::Result::ok).filter(|path| path.is_file()));
            for file in &mut files[before..] {
                *file = access.check("reading a file", file)?;
            }
            if files.len() == before {
                let here = std::env::current_dir().map(|d| d.display().to_string()).unwrap_or_default();
                let what = if path.contains(['*', '?', '[']) { "no file matches" } else { "there is no file" };
                return Err(QueryError::new(Code::NamespaceNotFound, format!("{what} '{path}' (looked in {here})")));
            }
        }
        match files.is_empty() {
            true => Err(wrong("name a file: read_csv('x.csv')")),
            false => Ok(files),
        }
    }
}

/// The folder of all files that a pattern can match; the path itself, if it is no pattern or leads out of that folder.
fn fixed_part(path: &str) -> &str {
    let known = path.find(['*', '?', '[']).map(|at| path[..at].rfind('/').map_or(".", |at| &path[..=at]));
    let leads_out = path.split('/').any(|part| part == "..");
    known.filter(|_| !leads_out).unwrap_or(path)
}

/// The table for a name, if it is the name of a file.
pub(crate) async fn table(
    name: &str,
    access: &FileAccess,
    state: &SessionState,
) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
    let Some(request) = Request::of(name) else { return Ok(None) };
    let external = |error: QueryError| DataFusionError::External(Box::new(error));
    let files = request.files(access).map_err(external)?;
    if request.format == Format::Parquet {
        return parquet(&files, state).await.map(Some);
    }
    let opened = tokio::task::spawn_blocking(move || match request.format {
        Format::Csv => csv::open(&files, &request.options).map(|t| t as Arc<dyn TableProvider>),
        _ => json::open(&files).map(|t| t as Arc<dyn TableProvider>),
    });
    match opened.await {
        Ok(table) => table.map(Some).map_err(external),
        Err(error) => Err(DataFusionError::External(Box::new(error))),
    }
}

async fn parquet(files: &[PathBuf], state: &SessionState) -> Result<Arc<dyn TableProvider>, DataFusionError> {
    let urls = files.iter().map(|path| ListingTableUrl::parse(path.to_string_lossy()));
    let urls = urls.collect::<Result<Vec<_>, _>>()?;
    let options = ListingOptions::new(Arc::new(ParquetFormat::default())).with_file_extension("");
    let mut schemas = Vec::new();
    for url in &urls {
        schemas.push(options.infer_schema(state, url).await?.as_ref().clone().with_metadata(Default::default()));
    }
    let config = ListingTableConfig::new_with_multi_paths(urls)
        .with_listing_options(options)
        .with_schema(Arc::new(Schema::try_merge(schemas)?));
    Ok(Arc::new(ListingTable::try_new(config)?))
}
