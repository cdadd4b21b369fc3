//! SQL with its expected output, as data: the reference `docs/sql.md` and the files of `tests/cases`.
//!
//! A file is Markdown. Its ```sql blocks run one after the other on one database; a block after them marked ```text (a
//! table), ```csv or ```error is the output of the last statement. A block marked ```clock sets the clock. With EBBTIDE_BLESS=1
//! the files are rewritten.

use datafusion::arrow::datatypes::Schema;
use ebbtide::Database;
use ebbtide_query::output::{TableStyle, render, text};
use ebbtide_query::{Session, SessionSettings, StatementResult, statement};
use ebbtide_ttl::{Clock, Timestamp, VirtualClock};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The instant at which a file begins.
const NOW: &str = "2024-06-01T12:00:00Z";

/// The ways in which a file's statements run: all must give the same output.
#[derive(Clone, Copy)]
struct Mode {
    partitions: usize,
    /// Whether rows are sealed into segments after each block.
    sealed: bool,
}

const MODES: [Mode; 2] = [Mode { partitions: 3, sealed: false }, Mode { partitions: 1, sealed: true }];

fn csv(result: &StatementResult) -> String {
    let names: Vec<&str> = result.schema.fields().iter().map(|f| f.name().as_str()).collect();
    let mut lines = vec![names.join(",")];
    for batch in &result.batches {
        for row in 0..batch.num_rows() {
            let cells = batch.columns().iter().map(|c| text(c.as_ref(), row).unwrap_or_else(|| "NULL".to_owned()));
            lines.push(cells.collect::<Vec<_>>().join(","));
        }
    }
    lines.join("\n")
}

fn outcome(runtime: &tokio::runtime::Runtime, session: &Session, sql: &str, form: &str) -> Result<String, String> {
    let statements = statement::parse(sql).map_err(|e| e.to_string())?;
    let mut shown = String::new();
    for statement in &statements {
        let result = runtime.block_on(session.run(statement, sql)).map_err(|e| e.to_string())?;
        for batch in &result.batches {
            let types = |schema: &Schema| schema.fields().iter().map(|f| f.data_type().clone()).collect::<Vec<_>>();
            assert_eq!(types(&result.schema), types(&batch.schema()), "{sql}");
        }
        shown = match (result.schema.fields().is_empty(), form) {
            (true, _) => String::new(),
            (false, "csv") => csv(&result),
            (false, _) => render(&result.schema, &result.batches, TableStyle::default()),
        };
    }
    Ok(shown.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"))
}

/// Runs a file and returns it with the actual output.
fn run(source: &str, name: &str, mode: Mode) -> String {
    let folder = tempfile::tempdir().unwrap();
    let clock = VirtualClock::new(Timestamp::parse(NOW).unwrap());
    let shared = Arc::new(clock.clone()) as Arc<dyn Clock>;
    let database = Database::builder(folder.path().join("db")).clock(shared).open().unwrap();
    let settings = SessionSettings { partitions: Some(mode.partitions), ..SessionSettings::default() };
    let session = Session::with_settings(database, &settings).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut told = String::new();
    let mut lines = source.lines().peekable();
    while let Some(line) = lines.next() {
        told.push_str(line);
        told.push('\n');
        if line.trim_end() == "```clock" {
            clock.set(lines.peek().and_then(|instant| Timestamp::parse(instant).ok()).expect("an instant"));
        }
        if line.trim_end() != "```sql" {
            continue;
        }
        let mut sql = String::new();
        for line in lines.by_ref().take_while(|l| l.trim_end() != "```") {
            sql.push_str(line);
            sql.push('\n');
        }
        told.push_str(&sql);
        told.push_str("```\n");
        let form = lines.peek().and_then(|l| l.trim_end().strip_prefix("```")).filter(|f| !f.is_empty());
        let form = form.map(str::to_owned);
        let given = outcome(&runtime, &session, &sql, form.as_deref().unwrap_or("text"));
        let shown = match (form.as_deref(), given) {
            (Some("error"), Err(error)) => error,
            (Some("error"), Ok(rows)) => panic!("{name}: is expected to fail\n{sql}\n{rows}"),
            (_, Err(error)) => panic!("{name}: {error}\n{sql}"),
            (_, Ok(shown)) => shown,
        };
        if let Some(form) = form {
            lines.next();
            lines.by_ref().find(|l| l.trim_end() == "```").unwrap_or_else(|| panic!("{name}: a block does not end"));
            told.push_str(&format!("```{form}\n{shown}\n```\n"));
        }
        if mode.sealed {
            outcome(&runtime, &session, "FLUSH", "text").unwrap();
        }
    }
    told
}

fn check(path: &Path) {
    check_in(path, &MODES);
}

#[expect(clippy::disallowed_methods, reason = "the file is part of the sources")]
fn check_in(path: &Path, modes: &[Mode]) {
    let name = path.display().to_string();
    let source = std::fs::read_to_string(path).unwrap();
    for (at, mode) in modes.iter().enumerate() {
        let told = run(&source, &name, *mode);
        if at == 0 && std::env::var_os("EBBTIDE_BLESS").is_some() {
            std::fs::write(path, &told).unwrap();
        }
        let wanted = std::fs::read_to_string(path).unwrap();
        let differs = wanted.lines().zip(told.lines()).position(|(a, b)| a != b);
        let around =
            |text: &str, at: usize| text.lines().skip(at.saturating_sub(12)).take(24).collect::<Vec<_>>().join("\n");
        if let Some(line) = differs {
            let (partitions, sealed) = (mode.partitions, mode.sealed);
            panic!(
                "{name}, line {}, {partitions} partitions, sealed: {sealed}\nexpected:\n{}\nfound:\n{}",
                line + 1,
                around(&wanted, line),
                around(&told, line)
            );
        }
        assert_eq!(wanted.lines().count(), told.lines().count(), "{name}");
    }
}

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn the_sql_reference_shows_what_happens() {
    check(&file("../docs/sql.md"));
}

// Sizes and the state of buckets in these two files depend on when buckets are sealed.

#[test]
fn the_guide_to_the_model_shows_what_happens() {
    check_in(&file("../docs/model.md"), &MODES[..1]);
}

#[test]
fn the_guide_to_retention_shows_what_happens() {
    check_in(&file("../docs/retention.md"), &MODES[..1]);
}

#[test]
fn gap_filling_gives_what_is_written_down() {
    check(&file("tests/cases/gapfill.md"));
}

#[test]
fn aggregates_of_series_give_what_is_written_down() {
    check(&file("tests/cases/series.md"));
}

#[test]
fn asof_joins_give_what_is_written_down() {
    check(&file("tests/cases/asof.md"));
}

#[test]
fn items_stand_for_columns() {
    check(&file("tests/cases/columns.md"));
}

#[test]
fn intervals_of_one_length_are_one_key() {
    check(&file("tests/cases/intervals.md"));
}

#[test]
fn joins_give_what_is_written_down() {
    check(&file("tests/cases/joins.md"));
}

#[test]
fn bins_of_zones_give_what_is_written_down() {
    check(&file("tests/cases/zones.md"));
}

#[test]
fn latest_rows_and_members_of_metas_give_what_is_written_down() {
    check(&file("tests/cases/latest.md"));
}

#[test]
fn names_and_fine_instants_give_what_is_written_down() {
    check(&file("tests/cases/names.md"));
}

#[test]
fn inserts_give_what_is_written_down_however_they_are_written() {
    check(&file("tests/cases/inserts.md"));
}

#[test]
fn numbers_that_do_not_fit_or_are_none_give_what_is_written_down() {
    check(&file("tests/cases/numbers.md"));
}

#[test]
fn frames_of_months_and_spreads_in_frames_give_what_is_written_down() {
    check(&file("tests/cases/frames.md"));
}

#[test]
fn what_postgres_understands_gives_what_is_written_down() {
    check(&file("tests/cases/postgres.md"));
}

#[test]
fn comparisons_of_rows_give_what_is_written_down() {
    check(&file("tests/cases/rows.md"));
}

#[test]
fn functions_of_other_databases_give_what_is_written_down() {
    check(&file("tests/cases/functions.md"));
}

#[test]
fn what_is_refused_and_what_is_understood_is_written_down() {
    check(&file("tests/cases/refused.md"));
}

#[test]
fn rows_below_filters_and_windows_by_functions_are_in_the_written_order() {
    check(&file("tests/cases/orders.md"));
}

#[test]
fn pivots_and_summaries_give_what_is_written_down() {
    check(&file("tests/cases/pivots.md"));
}

#[test]
fn views_and_collections_of_queries_give_what_is_written_down() {
    check(&file("tests/cases/views.md"));
}

#[test]
fn ordinary_collections_give_what_is_written_down() {
    check(&file("tests/cases/documents.md"));
}

#[test]
fn fields_of_documents_keep_their_names_and_values() {
    check(&file("tests/cases/document_fields.md"));
}
