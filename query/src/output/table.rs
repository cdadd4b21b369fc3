//! Tables for people.

use super::cell;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Float64Type, SchemaRef};

/// How wide and long a table may become.
#[derive(Debug, Clone, Copy, Default)]
pub struct TableStyle {
    /// Characters in a line; no limit if none.
    pub width: Option<u16>,
    /// Rows shown; all if none.
    pub rows_max: Option<usize>,
}

/// Draws rows as a table: numbers to the right, nulls as `NULL`, fractions to six digits.
#[must_use]
pub fn render(schema: &SchemaRef, batches: &[RecordBatch], style: TableStyle) -> String {
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    if names == ["plan_type", "plan"] {
        return plans(batches);
    }
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    match style.width {
        Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    let align = |ty: &DataType| if ty.is_numeric() { CellAlignment::Right } else { CellAlignment::Left };
    table.set_header(schema.fields().iter().map(|f| Cell::new(f.name()).set_alignment(align(f.data_type()))));
    let mut left = style.rows_max.unwrap_or(usize::MAX);
    for batch in batches {
        for row in 0..batch.num_rows().min(left) {
            table.add_row(batch.columns().iter().map(|column| {
                let text = rounded(column.as_ref(), row).unwrap_or_else(|| "NULL".to_owned());
                Cell::new(text).set_alignment(align(column.data_type()))
            }));
        }
        left = left.saturating_sub(batch.num_rows());
    }
    table.trim_fmt()
}

/// What EXPLAIN gives: plans are indented text, which no frame should cut.
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
    if column.data_type() == &DataType::Float64
        && text.split('.').nth(1).is_some_and(|f| f.len() > 6)
        && !text.contains('e')
    {
        let value = column.as_primitive::<Float64Type>().value(row);
        let short = format!("{value:.6}");
        let trimmed = short.trim_end_matches('0');
        return Some(if trimmed.ends_with('.') { format!("{trimmed}0") } else { trimmed.to_owned() });
    }
    // A line break inside a cell would look like another row.
    Some(text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', " "))
}
