//! What statistics say of times and metas in a file, its row groups and its pages, and what a read can leave out by them.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field};
use ebbtide::buckets::{FieldType, Schema, value_at};
use ebbtide::ttl::Value;
use ebbtide::{ArchiveRead, ArchivedBounds};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::basic::Type;
use parquet::errors::Result;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::SchemaDescriptor;
use std::ops::Range;

/// The least and the greatest value of each member of the metas in a file; those are left out of which it is not known.
pub(crate) fn bounds_of(file: &ParquetMetaData, schema: &Schema) -> Result<Vec<ArchivedBounds>> {
    let mut bounds = Vec::new();
    for path in members_of_metas(schema) {
        let Some(column) = Column::at(file.file_metadata().schema_descr(), &path) else { continue };
        if let Some((min, max)) = column.of_file(file)? {
            bounds.push(ArchivedBounds { path, min, max });
        }
    }
    Ok(bounds)
}

/// The paths of numbers and texts in metas.
pub(crate) fn members_of_metas(schema: &Schema) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    if let (Some(meta), Some(ty)) = (&schema.meta, &schema.meta_type) {
        scalars(vec![meta.clone()], ty, &mut paths);
    }
    paths
}

/// The paths of numbers and texts in a type.
fn scalars(path: Vec<String>, ty: &FieldType, found: &mut Vec<Vec<String>>) {
    match ty {
        FieldType::Int64 | FieldType::Double | FieldType::String => found.push(path),
        FieldType::Object(members) => {
            for (name, ty) in members {
                scalars(path.iter().chain([name]).cloned().collect(), ty, found);
            }
        }
        _ => {}
    }
}

/// The row groups of the part of a file that may have rows of interest, and the rows of each that are read, in order: those of the
/// pages that may.
pub(crate) fn rows_to_read(file: &ParquetMetaData, read: &ArchiveRead) -> Result<Vec<(usize, Vec<Range<usize>>)>> {
    let columns = file.file_metadata().schema_descr();
    let time = [read.schema.time.clone()];
    let mut conditions: Vec<(Column, Wanted<'_>)> = Vec::new();
    conditions.extend(Column::at(columns, &time).map(|column| (column, Wanted::Within(read.times))));
    for (path, values) in &read.metas {
        conditions.extend(Column::at(columns, path).map(|column| (column, Wanted::OneOf(values))));
    }
    let (mut groups, mut found) = (Vec::new(), 0);
    for group in 0..file.num_row_groups() {
        let rows = usize::try_from(file.row_group(group).num_rows()).unwrap_or(usize::MAX);
        let all = 0..rows;
        let mut wanted = vec![all];
        for (column, condition) in &conditions {
            wanted = common(&wanted, &column.pages_with(file, group, condition)?);
        }
        if wanted.is_empty() {
            continue;
        }
        if read.part.has(found) {
            groups.push((group, wanted));
        }
        found += 1;
    }
    Ok(groups)
}

/// What is asked of a column.
enum Wanted<'a> {
    Within((i64, i64)),
    OneOf(&'a [Value]),
}

impl Wanted<'_> {
    fn may_be_within(&self, bounds: Option<(Value, Value)>) -> bool {
        let Some((min, max)) = bounds else { return true };
        match self {
            Wanted::Within((first, last)) => max >= Value::Int(*first) && min <= Value::Int(*last),
            Wanted::OneOf(values) => {
                let bounds = ArchivedBounds { path: Vec::new(), min, max };
                !values.iter().all(|value| bounds.excludes(value))
            }
        }
    }
}

/// A column of a file with statistics that can be compared.
struct Column<'a> {
    index: usize,
    field: Field,
    columns: &'a SchemaDescriptor,
}

impl<'a> Column<'a> {
    fn at(columns: &'a SchemaDescriptor, path: &[String]) -> Option<Column<'a>> {
        let index = columns.columns().iter().position(|column| column.path().parts() == path)?;
        let ty = match columns.column(index).physical_type() {
            Type::INT64 => DataType::Int64,
            Type::DOUBLE => DataType::Float64,
            Type::BYTE_ARRAY => DataType::Utf8,
            _ => return None,
        };
        Some(Column { index, field: Field::new("", ty, true), columns })
    }

    fn converter(&self) -> Result<StatisticsConverter<'_>> {
        StatisticsConverter::from_column_index(self.index, &self.field, self.columns)
    }

    /// The bounds of a column in a file, if all of its row groups have some.
    fn of_file(&self, file: &ParquetMetaData) -> Result<Option<(Value, Value)>> {
        let converter = self.converter()?;
        let (mins, maxes) =
            (converter.row_group_mins(file.row_groups())?, converter.row_group_maxes(file.row_groups())?);
        let mut all: Option<(Value, Value)> = None;
        for group in 0..mins.len() {
            let Some((min, max)) = pair(&mins, &maxes, group) else { return Ok(None) };
            all = Some(match all {
                Some((least, greatest)) => (least.min(min), greatest.max(max)),
                None => (min, max),
            });
        }
        Ok(all)
    }

    /// The rows of the pages of a row group that may have what is wanted.
    fn pages_with(&self, file: &ParquetMetaData, group: usize, wanted: &Wanted<'_>) -> Result<Vec<Range<usize>>> {
        let converter = self.converter()?;
        let rows = usize::try_from(file.row_group(group).num_rows()).unwrap_or(usize::MAX);
        let groups = [file.row_group(group)];
        let (mins, maxes) = (converter.row_group_mins(groups)?, converter.row_group_maxes(groups)?);
        if !wanted.may_be_within(pair(&mins, &maxes, 0)) {
            return Ok(Vec::new());
        }
        let (Some(statistics), Some(offsets)) = (file.column_index(), file.offset_index()) else {
            return Ok(std::iter::once(0..rows).collect());
        };
        let mins = converter.data_page_mins(statistics, offsets, [&group])?;
        let maxes = converter.data_page_maxes(statistics, offsets, [&group])?;
        let pages = offsets[group][self.index].page_locations();
        let starts = pages.iter().map(|page| usize::try_from(page.first_row_index).unwrap_or(usize::MAX));
        let starts: Vec<usize> = starts.chain([rows]).collect();
        let has = |page: &usize| wanted.may_be_within(pair(&mins, &maxes, *page));
        Ok((0..pages.len()).filter(has).map(|page| starts[page]..starts[page + 1]).collect())
    }
}

/// The bounds at an index, if they are known.
fn pair(mins: &ArrayRef, maxes: &ArrayRef, index: usize) -> Option<(Value, Value)> {
    let known = |values: &ArrayRef| {
        let value = (index < values.len() && !values.is_null(index)).then(|| value_at(values.as_ref(), index))?;
        let is_usable = !matches!(value, Value::Double(number) if !number.is_finite());
        is_usable.then_some(value)
    };
    Some((known(mins)?, known(maxes)?))
}

/// What is in both of two lists of ranges, which ascend.
fn common(a: &[Range<usize>], b: &[Range<usize>]) -> Vec<Range<usize>> {
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let both = x.start.max(y.start)..x.end.min(y.end);
        if !both.is_empty() {
            found.push(both);
        }
        if x.end <= y.end { i += 1 } else { j += 1 }
    }
    found
}
