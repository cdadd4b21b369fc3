//! `ebbtide files`: the segment files of a collection, and how other programs read them.

use crate::args::{Cli, FilesArgs, Program};
use crate::human::counted;
use crate::{Failure, open, say};
use clap::ValueEnum;
use ebbtide::buckets::FileType;
use ebbtide::ttl::Precision;
use ebbtide::{CollectionSnapshot, SegmentFiles};
use std::path::{Path, PathBuf};

/// Runs `ebbtide files`. The files go to standard output, one a line; what to know about them to standard error.
pub(crate) fn files(cli: &Cli, args: &FilesArgs) -> Result<(), Failure> {
    let snapshot = open::for_reading(cli)?.snapshot();
    if snapshot.documents(&args.collection).is_ok() {
        let what = format!(
            "'{0}' is an ordinary collection, whose files hold documents in a form that other programs do not know: write them \
             with ebbtide export {0} -o {0}.ndjson",
            args.collection
        );
        return Err(Failure::new(what));
    }
    let snapshot = snapshot.collection(&args.collection)?;
    let found = absolute(snapshot.segment_files()?);
    for note in notes(&found) {
        eprintln!("{note}");
    }
    if found.files.is_empty() {
        return Ok(());
    }
    if let Some(program) = args.program {
        say!("{}", statement(program, &found, &snapshot));
        return Ok(());
    }
    for file in &found.files {
        say!("{}", file.display());
    }
    for program in Program::value_variants() {
        eprintln!("{}:\n{}\n", name(*program), statement(*program, &found, &snapshot));
    }
    Ok(())
}

/// Other programs may run anywhere.
fn absolute(found: SegmentFiles) -> SegmentFiles {
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    SegmentFiles { folder: absolute(found.folder), files: found.files.into_iter().map(absolute).collect(), ..found }
}

/// What somebody should know before they trust the numbers of another program.
fn notes(found: &SegmentFiles) -> Vec<String> {
    let mut notes = Vec::new();
    if found.files.is_empty() {
        notes.push("no measurement is in a segment file yet".to_owned());
    }
    if found.unsealed > 0 {
        let rows = counted(found.unsealed, "measurement");
        notes.push(format!("{rows} in the log and in no file yet: COMPACT writes all of them into files"));
    }
    let gone = found.rows.saturating_sub(found.visible);
    if gone > 0 {
        let rows = counted(gone, "measurement");
        notes.push(format!(
            "the files still contain {rows} that are deleted or have expired: SWEEP and COMPACT remove them"
        ));
    }
    if !found.agree {
        notes.push(
            "the files have different types, or lie in several folders: until COMPACT has rewritten them, read them with \
             the statements printed here"
                .to_owned(),
        );
    }
    notes.into_iter().map(|note| format!("note: {note}")).collect()
}

fn name(program: Program) -> &'static str {
    match program {
        Program::DuckDb => "DuckDB",
        Program::ClickHouse => "ClickHouse",
        Program::Polars => "Polars",
        Program::PyArrow => "pyarrow",
        Program::Pandas => "pandas",
    }
}

/// How a program reads all of the files with the right values.
fn statement(program: Program, found: &SegmentFiles, collection: &CollectionSnapshot) -> String {
    let folder = found.folder.display().to_string();
    let pattern = found.folder.join("*.parquet").display().to_string();
    let python_files = format!("[{}]", list(&found.files, python_text));
    match (program, found.agree) {
        // Columns that only newer files have are null in the others.
        (Program::DuckDb, true) => {
            format!("SELECT * FROM read_parquet({}, union_by_name = true);", sql_text(&pattern))
        }
        (Program::DuckDb, false) => {
            format!("SELECT * FROM read_parquet([{}], union_by_name = true);", list(&found.files, sql_text))
        }
        (Program::ClickHouse, agree) => {
            let columns = sql_text(&clickhouse_columns(found, collection.options().precision));
            let select = |files: String| format!("SELECT * FROM file({}, Parquet, {columns})", sql_text(&files));
            let files = if agree { vec![pattern] } else { alternatives(&found.files) };
            format!("{};", files.into_iter().map(select).collect::<Vec<_>>().join("\nUNION ALL "))
        }
        (Program::Polars, true) => format!(
            "import polars\npolars.scan_parquet({}, missing_columns=\"insert\").collect()",
            python_text(&pattern)
        ),
        (Program::Polars, false) => format!(
            "import polars\nfiles = {python_files}\n\
             polars.concat([polars.scan_parquet(file) for file in files], how=\"diagonal_relaxed\").collect()"
        ),
        (Program::PyArrow, true) => {
            format!("import pyarrow.dataset\npyarrow.dataset.dataset({}).to_table()", python_text(&folder))
        }
        (Program::PyArrow, false) => format!("{}\n{WIDEST}", python_imports(&python_files)),
        (Program::Pandas, true) => format!("import pandas\npandas.read_parquet({})", python_text(&folder)),
        (Program::Pandas, false) => format!("{}\n{WIDEST}.to_pandas()", python_imports(&python_files)),
    }
}

/// Reads the files with types that hold the values of all.
const WIDEST: &str = "schema = pyarrow.unify_schemas([pyarrow.parquet.read_schema(file) for file in files], \
                      promote_options=\"permissive\")\n\
                      pyarrow.dataset.dataset(files, schema=schema).to_table()";

fn python_imports(files: &str) -> String {
    format!("import pyarrow, pyarrow.dataset, pyarrow.parquet\nfiles = {files}")
}

fn list(files: &[PathBuf], quoted: fn(&str) -> String) -> String {
    files.iter().map(|file| quoted(&file.display().to_string())).collect::<Vec<_>>().join(", ")
}

/// The files of each folder as a pattern; ClickHouse takes alternatives of names only.
fn alternatives(files: &[PathBuf]) -> Vec<String> {
    let of_folder = |files: &[PathBuf]| match files {
        [file] => file.display().to_string(),
        files => {
            let names =
                files.iter().filter_map(|file| file.file_name()).map(|name| name.to_string_lossy().into_owned());
            let folder = files.first().and_then(|file| file.parent()).unwrap_or(Path::new(""));
            folder.join(format!("{{{}}}", names.collect::<Vec<_>>().join(","))).display().to_string()
        }
    };
    files.chunk_by(|a, b| a.parent() == b.parent()).map(of_folder).collect()
}

fn sql_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn python_text(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The columns with types that hold the values of all files: left to itself, ClickHouse takes those of any one of them.
fn clickhouse_columns(found: &SegmentFiles, precision: Precision) -> String {
    let column = |(at, (name, ty)): (usize, &(String, FileType))| {
        let ty = clickhouse_type(ty, precision);
        // The time is never null.
        let ty = if at == 0 { ty } else { nullable(ty) };
        format!("{} {ty}", clickhouse_name(name))
    };
    found.columns.iter().enumerate().map(column).collect::<Vec<_>>().join(", ")
}

fn clickhouse_name(name: &str) -> String {
    format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"))
}

fn nullable(ty: String) -> String {
    // Neither lists nor objects can be null there.
    if ty.starts_with("Array(") || ty.starts_with("Tuple(") { ty } else { format!("Nullable({ty})") }
}

fn clickhouse_type(ty: &FileType, precision: Precision) -> String {
    match ty {
        FileType::Unknown | FileType::Bool => "Bool".to_owned(),
        FileType::Int64 { .. } => "Int64".to_owned(),
        FileType::Decimal { whole, scale } => {
            let digits = if whole + scale <= 9 { 9 } else { 18 };
            format!("Decimal({digits}, {scale})")
        }
        FileType::Double => "Float64".to_owned(),
        FileType::String | FileType::Binary => "String".to_owned(),
        FileType::Timestamp => {
            let digits = match precision {
                Precision::Ms => 3,
                Precision::Us => 6,
                Precision::Ns => 9,
            };
            format!("DateTime64({digits}, 'UTC')")
        }
        FileType::List(item) => format!("Array({})", nullable(clickhouse_type(item, precision))),
        FileType::Object(members) if members.is_empty() => "Bool".to_owned(),
        FileType::Object(members) => {
            let member = |(name, ty): &(String, FileType)| {
                format!("{} {}", clickhouse_name(name), nullable(clickhouse_type(ty, precision)))
            };
            format!("Tuple({})", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
    }
}
