//! Charts of query results: selects what is drawn, for the terminal (`text`) and as picture files (`picture`).

mod picture;
mod png;
mod svg;
mod text;
mod ticks;

pub(crate) use text::{Style, draw};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use ebbtide_query::output;
use std::collections::HashMap;
use std::path::Path;

/// The format of a picture file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Svg,
    Png,
}

impl Form {
    /// The format for a file's extension.
    pub(crate) fn of_path(path: &Path) -> Option<Form> {
        match path.extension()?.to_str()?.to_lowercase().as_str() {
            "svg" => Some(Form::Svg),
            "png" => Some(Form::Png),
            _ => None,
        }
    }
}

/// Draws a result as the bytes of a picture file; the title names its source.
pub(crate) fn file(form: Form, title: &str, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, String> {
    match form {
        Form::Svg => svg(title, schema, batches).map(String::into_bytes),
        Form::Png => png::draw(&picture::lay_out(&Chart::of(schema, batches)?, title)),
    }
}

/// Draws a result as the text of an SVG picture.
pub(crate) fn svg(title: &str, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<String, String> {
    Ok(svg::write(&picture::lay_out(&Chart::of(schema, batches)?, title)))
}

/// The part of a result that is drawn.
enum Chart {
    Lines {
        series: Vec<Series>,
        /// x is in milliseconds since 1970.
        is_time: bool,
        x_name: String,
        /// Names of the drawn columns.
        y_name: String,
    },
    Bars {
        /// Names of the columns; each label has one bar per column.
        columns: Vec<String>,
        /// Labels with one value per column; values that are missing are not finite.
        bars: Vec<(String, Vec<f64>)>,
    },
}

struct Series {
    name: String,
    /// Sorted by x. Where y was null or not finite it is NaN: the line is interrupted there.
    points: Vec<(f64, f64)>,
}

impl Chart {
    /// The first timestamp or number is the x axis, texts and objects name the series, and the other numbers are drawn.
    /// With names and no time: bars of the numbers.
    fn of(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Chart, String> {
        let fields = schema.fields();
        let having =
            |kind: &dyn Fn(&DataType) -> bool| (0..fields.len()).filter(|i| kind(fields[*i].data_type())).collect();
        let numeric: Vec<usize> = having(&DataType::is_numeric);
        let names: Vec<usize> = having(&is_name);
        let time = (0..fields.len()).find(|i| matches!(fields[*i].data_type(), DataType::Timestamp(..)));
        if batches.iter().all(|batch| batch.num_rows() == 0) {
            return Err("there is nothing to draw: no rows".to_owned());
        }
        let chart = match (time, numeric.as_slice()) {
            (_, []) => return Err("there is nothing to draw: no column contains numbers".to_owned()),
            (Some(x), ys) => lines(schema, batches, x, ys, &names),
            (None, ys) if !names.is_empty() => bars(schema, batches, &names, ys),
            (None, [x, ys @ ..]) if !ys.is_empty() && are_bins(batches, *x) => bars(schema, batches, &[*x], ys),
            (None, [x, ys @ ..]) if !ys.is_empty() => lines(schema, batches, *x, ys, &names),
            _ => return Err("a chart needs a time, a name or a second number besides the numbers".to_owned()),
        };
        let empty = match &chart {
            Chart::Lines { series, .. } => !series.iter().flat_map(|s| &s.points).any(|p| p.1.is_finite()),
            Chart::Bars { bars, .. } => !bars.iter().flat_map(|(_, values)| values).any(|v| v.is_finite()),
        };
        if empty { Err("there is nothing to draw: no values".to_owned()) } else { Ok(chart) }
    }
}

/// Numbers that rise or fall by one distance, up to this many, are bins.
const BINS_MAX: usize = 60;

/// Whether a column holds bins.
fn are_bins(batches: &[RecordBatch], column: usize) -> bool {
    let values: Vec<Option<f64>> =
        batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| x_of(batch, column, row))).collect();
    let Some(values) = values.into_iter().collect::<Option<Vec<f64>>>().filter(|v| (2..=BINS_MAX).contains(&v.len()))
    else {
        return false;
    };
    let width = values[1] - values[0];
    let even = |pair: &[f64]| (pair[1] - pair[0] - width).abs() <= width.abs() * 1e-6;
    width != 0.0 && values.windows(2).all(even)
}

fn is_name(kind: &DataType) -> bool {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Struct(_) => true,
        DataType::Dictionary(_, value) => is_name(value),
        _ => false,
    }
}

fn label(batch: &RecordBatch, names: &[usize], row: usize) -> String {
    let text = |i: &usize| output::text(batch.column(*i).as_ref(), row).unwrap_or_else(|| "NULL".to_owned());
    names.iter().map(text).collect::<Vec<_>>().join(" ")
}

#[expect(clippy::cast_precision_loss, reason = "for drawing")]
fn x_of(batch: &RecordBatch, column: usize, row: usize) -> Option<f64> {
    let array = batch.column(column).as_ref();
    if array.is_null(row) {
        return None;
    }
    match output::instant(array, row) {
        Some(time) => Some(time.nanos() as f64 / 1e6),
        None => output::number(array, row).filter(|x| x.is_finite()),
    }
}

fn lines(schema: &SchemaRef, batches: &[RecordBatch], x: usize, ys: &[usize], names: &[usize]) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let Some(at) = x_of(batch, x, row) else { continue };
            let group = label(batch, names, row);
            for y in ys {
                let value = output::number(batch.column(*y).as_ref(), row).filter(|v| v.is_finite());
                let name = match (group.is_empty(), ys.len()) {
                    (true, _) => schema.field(*y).name().clone(),
                    (false, 1) => group.clone(),
                    (false, _) => format!("{group} {}", schema.field(*y).name()),
                };
                let place = *places.entry(name.clone()).or_insert_with(|| {
                    series.push(Series { name, points: Vec::new() });
                    series.len() - 1
                });
                series[place].points.push((at, value.unwrap_or(f64::NAN)));
            }
        }
    }
    series.retain(|one| one.points.iter().any(|p| p.1.is_finite()));
    // Groups arrive in no particular order.
    if !names.is_empty() {
        series.sort_by(|a, b| a.name.cmp(&b.name));
    }
    for one in &mut series {
        one.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    Chart::Lines {
        series,
        is_time: matches!(schema.field(x).data_type(), DataType::Timestamp(..)),
        x_name: schema.field(x).name().clone(),
        y_name: ys.iter().map(|y| schema.field(*y).name().as_str()).collect::<Vec<_>>().join(", "),
    }
}

fn bars(schema: &SchemaRef, batches: &[RecordBatch], names: &[usize], ys: &[usize]) -> Chart {
    let mut bars = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let value = |y: &usize| output::number(batch.column(*y).as_ref(), row).unwrap_or(f64::NAN);
            let values: Vec<f64> = ys.iter().map(value).collect();
            if values.iter().any(|v| v.is_finite()) {
                bars.push((label(batch, names, row), values));
            }
        }
    }
    Chart::Bars { columns: ys.iter().map(|y| schema.field(*y).name().clone()).collect(), bars }
}

/// The minimum and maximum of the finite values.
fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .filter(|v| v.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}
