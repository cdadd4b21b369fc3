//! Tables for people.

use super::cell;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Float64Type, SchemaRef};

/// Limits on the size of a table. The default is no limits.
#[derive(Debug, Clone, Copy, Default)]
pub struct TableStyle {
    /// Maximum characters per line; no limit if `None`.
    pub width: Option<u16>,
    /// Maximum number of rows shown; all if `None`.
    pub rows_max: Option<usize>,
    /// Whether each row is shown as a record, a line a column, even where a table would fit.
    pub records: bool,
}

/// Draws rows as a table: numbers right-aligned, nulls as `NULL`, fractions rounded to six digits. Up to
/// [`RECORDS_MAX`] rows that are too wide for the table are shown as records, one line per column; more rows lose their
/// last columns, which are then listed below.
#[must_use]
pub fn render(schema: &SchemaRef, batches: &[RecordBatch], style: TableStyle) -> String {
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    if names == ["plan_type", "plan"] {
        return plans(batches);
    }
    let rows = rows(batches, style.rows_max.unwrap_or(usize::MAX));
    if style.records {
        return records(&names, &rows);
    }
    let Some(width) = style.width.map(usize::from) else { return framed(schema, &rows, names.len()) };
    let widths = widths(&names, &rows);
    // A column takes its text, a space on either side, and a line; the table takes one more line.
    let fitting = |columns: &[usize]| columns.iter().map(|w| w + 3).sum::<usize>() < width;
    if fitting(&widths) || names.len() < 2 {
        framed(schema, &rows, names.len())
    } else if rows.len() <= RECORDS_MAX {
        records(&names, &rows)
    } else {
        let shown = (1..names.len()).rev().find(|n| fitting(&widths[..*n])).unwrap_or(1);
        let rest = names[shown..].join(", ");
        format!("{}\ncolumns not shown (terminal too narrow): {rest}", framed(schema, &rows, shown))
    }
}

/// Up to this many rows that are too wide for a table are shown as records, one line per column.
pub const RECORDS_MAX: usize = 12;

fn rows(batches: &[RecordBatch], rows_max: usize) -> Vec<Vec<String>> {
    let cells = |batch: &RecordBatch, row: usize| -> Vec<String> {
        let text = |column: &ArrayRef| rounded(column.as_ref(), row).unwrap_or_else(|| "NULL".to_owned());
        batch.columns().iter().map(text).collect()
    };
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| cells(batch, row))).take(rows_max).collect()
}

fn widths(names: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    let widest = |i: usize| rows.iter().filter_map(|row| row.get(i)).map(|text| text.chars().count()).max();
    names.iter().enumerate().map(|(i, name)| name.chars().count().max(widest(i).unwrap_or(0))).collect()
}

/// A table of the first `shown` columns.
fn framed(schema: &SchemaRef, rows: &[Vec<String>], shown: usize) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
    let alignments: Vec<CellAlignment> = schema
        .fields()
        .iter()
        .map(|f| if f.data_type().is_numeric() { CellAlignment::Right } else { CellAlignment::Left })
        .collect();
    let cell = |(text, alignment): (&str, &CellAlignment)| Cell::new(text).set_alignment(*alignment);
    let names = schema.fields().iter().map(|f| f.name().as_str());
    table.set_header(names.zip(&alignments).take(shown).map(cell));
    for row in rows {
        table.add_row(row.iter().map(String::as_str).zip(&alignments).take(shown).map(cell));
    }
    table.trim_fmt()
}

/// Each row as a block with one line per column.
fn records(names: &[&str], rows: &[Vec<String>]) -> String {
    let name_width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let block = |(number, row): (usize, &Vec<String>)| {
        let head = format!("\u{2500}\u{2500} row {} \u{2500}\u{2500}", number + 1);
        let lines = names.iter().zip(row).map(|(name, text)| format!("{name:name_width$}  {text}"));
        std::iter::once(head).chain(lines).collect::<Vec<_>>().join("\n")
    };
    if rows.is_empty() {
        return format!("no rows; columns: {}", names.join(", "));
    }
    rows.iter().enumerate().map(block).collect::<Vec<_>>().join("\n")
}

/// The result of EXPLAIN: plans are indented text, which no frame should truncate.
fn plans(batches: &[RecordBatch]) -> String {
    let mut text = String::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let cell = |i: usize| cell::text(batch.column(i).as_ref(), row).unwrap_or_default();
            text.push_str(&format!("{}\n{}\n\n", cell(0), cell(1).trim_end()));
        }
    }
    text.trim_end().to_owned()
}

fn rounded(column: &dyn Array, row: usize) -> Option<String> {
    let text = cell::text(column, row)?;
    if let Some(duration) = cell::duration(column, row) {
        return Some(duration);
    }
    if column.data_type() == &DataType::Float64
        && text.split('.').nth(1).is_some_and(|f| f.len() > 6)
        && !text.contains('e')
    {
        let value = column.as_primitive::<Float64Type>().value(row);
        if value.abs() < 0.001 {
            return Some(text); // Six digits would leave few or none of its own.
        }
        let short = format!("{value:.6}");
        let trimmed = short.trim_end_matches('0');
        return Some(if trimmed.ends_with('.') { format!("{trimmed}0") } else { trimmed.to_owned() });
    }
    // A line break inside a cell would look like another row.
    Some(text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', " "))
}
