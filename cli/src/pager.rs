//! Shows tables that are longer or wider than the terminal in the user's pager.

use crate::{Failure, files};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use ebbtide_query::output::{TableStyle, render};
use std::io::Write;
use std::process::{Command, Stdio};

/// Lines that a prompt and the number of rows take.
const LINES_BELOW: usize = 3;

/// Shows a table on a terminal with `height` lines: directly if it fits, otherwise in full in a pager.
pub(crate) fn table(
    schema: &SchemaRef,
    batches: &[RecordBatch],
    style: TableStyle,
    height: usize,
) -> Result<(), Failure> {
    let narrow = render(schema, batches, TableStyle { rows_max: None, ..style });
    let whole = render(schema, batches, TableStyle::default());
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    // A table that is narrowed loses columns; a few wide rows are shown as records, which lose nothing.
    let loses = narrow != whole && rows > ebbtide_query::output::RECORDS_MAX;
    let text = if loses { whole } else { narrow };
    if loses || text.lines().count() + LINES_BELOW > height {
        let program = std::env::var("PAGER").ok().filter(|p| !p.trim().is_empty());
        if paged(program.as_deref().unwrap_or("less"), &text) {
            return Ok(());
        }
        let narrow = render(schema, batches, style);
        return print(&narrow);
    }
    print(&text)
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = files::stdout();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Runs the pager and returns whether it exists. A user who quits it early is not an error.
fn paged(program: &str, text: &str) -> bool {
    let mut command = Command::new("sh");
    command.arg("-c").arg(program).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        // Long lines are cut and can be scrolled sideways; what was read stays on the screen.
        command.env("LESS", "-S -R -X");
    }
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // A pager that was quit, or does not exist, stops reading.
        let _ = writeln!(input, "{text}");
    }
    // 127: the shell did not find the program.
    child.wait().is_ok_and(|status| status.code() != Some(127))
}
