//! Columns of Arrow arrays, made of cells.

use super::cells::{self, Cells, ShortNumber};
use super::infer::Kind;
use arrow::array::{ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, StringViewBuilder};
use ebbtide_buckets::timestamps;
use ebbtide_ttl::{Precision, Timestamp};
use std::sync::Arc;

/// The values of a column so far.
#[derive(Debug)]
pub struct ColumnBuilder(Values);

#[derive(Debug)]
enum Values {
    Bool(BooleanBuilder),
    Int(Int64Builder),
    Double(Float64Builder),
    Time(Vec<Option<i64>>),
    Text(StringViewBuilder),
}

impl ColumnBuilder {
    /// A column without values.
    pub fn new(kind: Kind) -> Self {
        ColumnBuilder(match kind {
            Kind::Bool => Values::Bool(BooleanBuilder::new()),
            Kind::Int => Values::Int(Int64Builder::new()),
            Kind::Double => Values::Double(Float64Builder::new()),
            Kind::Time => Values::Time(Vec::new()),
            Kind::Text => Values::Text(StringViewBuilder::new()),
        })
    }

    /// Whether it holds times.
    pub fn is_time(&self) -> bool {
        matches!(self.0, Values::Time(_))
    }

    /// Adds a missing value.
    pub fn push_null(&mut self) {
        match &mut self.0 {
            Values::Bool(values) => values.append_null(),
            Values::Int(values) => values.append_null(),
            Values::Double(values) => values.append_null(),
            Values::Time(values) => values.push(None),
            Values::Text(values) => values.append_null(),
        }
    }

    /// Adds a cell. `time` is its instant in a column of times, which are stored in units of `precision`.
    ///
    /// # Errors
    /// Says why the cell does not fit; nothing is added then.
    pub fn push(
        &mut self,
        cell: &[u8],
        time: Option<Timestamp>,
        cells: &Cells,
        precision: Precision,
    ) -> Result<(), String> {
        let not = |what: &str| format!("'{}' is not {what}", String::from_utf8_lossy(cell));
        match &mut self.0 {
            Values::Bool(out) => out.append_value(cells::boolean(cell).ok_or_else(|| not("bool"))?),
            Values::Int(out) => {
                let number = cells.short(cell).map_or_else(|| cells.int(cell), ShortNumber::int);
                out.append_value(number.ok_or_else(|| not("int64"))?);
            }
            Values::Double(out) => match cells.short(cell) {
                Some(number) => out.append_value(number.double()),
                None if cells.plain(cell).is_some_and(|number| cells::is_rounded(&number)) => {
                    return Err(not("exact as a double"));
                }
                None => out.append_value(cells.double(cell).ok_or_else(|| not("double"))?),
            },
            Values::Text(_) if cell.contains(&0) => return Err("it holds a NUL byte".to_owned()),
            Values::Text(out) => {
                let text = std::str::from_utf8(cell);
                out.append_value(text.map_err(|_| not("UTF-8 text; encoding latin-1 reads older files"))?);
            }
            Values::Time(out) => {
                let units = time.and_then(|time| time.to_units(precision));
                out.push(Some(units.ok_or_else(|| not(&format!("a time that {} can hold", precision.name())))?));
            }
        }
        Ok(())
    }

    /// The column; afterwards there are no values.
    pub fn finish(&mut self, precision: Precision) -> ArrayRef {
        match &mut self.0 {
            Values::Bool(values) => Arc::new(values.finish()),
            Values::Int(values) => Arc::new(values.finish()),
            Values::Double(values) => Arc::new(values.finish()),
            Values::Text(values) => Arc::new(values.finish()),
            Values::Time(values) => timestamps(std::mem::take(values), precision),
        }
    }
}
