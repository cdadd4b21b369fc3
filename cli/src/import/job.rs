//! An import of files into one collection: how their text is read, and where the rows go.

use super::bad::BadLines;
use super::cells::{self, Cells, Nulls};
use super::folds::Folds;
use super::infer::{ColumnStats, Doubt, Kind};
use super::layout::{Layout, Shape};
use super::names::{Constant, Pattern};
use super::source::Source;
use super::text::Split;
use super::times::TimeReader;
use super::{Failure, Rows, step};
use crate::args::{ImportArgs, InputFormat};
use ebbtide::{BatchId, Collection, Database};
use ebbtide_buckets::{FieldType, Schema};
use ebbtide_ttl::{Code, Precision, Timestamp};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Errors of a single row, which do not end the import.
const SET_ASIDE: [Code; 3] = [Code::BadValue, Code::TypeMismatch, Code::BSONObjectTooLarge];

/// An import of files into one collection.
pub(super) struct Job<'a> {
    pub(super) args: &'a ImportArgs,
    pub(super) collection: String,
    /// The collection's schema, if it exists.
    pub(super) schema: Option<Arc<Schema>>,
    pub(super) shape: Shape,
    pub(super) cells: Cells,
    /// The measurement of line protocol to import; with `None`, all are imported with their name in the meta.
    pub(super) measurement: Option<String>,
    /// Whether this job reports malformed lines, which belong to no measurement.
    pub(super) tells_misformed: Cell<bool>,
    /// Whether the input is line protocol.
    pub(super) influx: bool,
    /// Columns whose values are taken from the names of files.
    pub(super) names: Vec<String>,
    pub(super) batch_rows: usize,
    pub(super) bad: &'a RefCell<BadLines>,
    /// Number of rows that were skipped because they have no values.
    pub(super) empty: Cell<u64>,
    /// The unit that holds every time so far, if the format only shows it row by row.
    pub(super) finest: Cell<Precision>,
    /// The time for points without one, if they get one.
    pub(super) now: Cell<Option<Timestamp>>,
    /// Local times that occur twice or are skipped when clocks change.
    pub(super) folds: RefCell<Folds>,
}

impl<'a> Job<'a> {
    pub(super) fn new(
        args: &'a ImportArgs,
        collection: String,
        schema: Option<Arc<Schema>>,
        bad: &'a RefCell<BadLines>,
        influx: bool,
    ) -> Result<Self, Failure> {
        let zone = args.time_zone.as_deref();
        let times = TimeReader::new(&args.time_format, zone, args.dst, influx.then_some("ns"))?;
        let cells = Cells {
            nulls: Nulls::new(&args.null),
            decimal_comma: args.decimal_comma,
            thousands: args.thousands,
            numbers: args.number.clone(),
            general: times.general(),
            times,
        };
        if args.thousands == Some(if args.decimal_comma { b',' } else { b'.' }) {
            return Err(Failure::usage("--thousands is the decimal mark: say which is which with --decimal-comma"));
        }
        let pattern = args.meta_from_name.as_deref().map(Pattern::new).transpose()?;
        Ok(Job {
            args,
            collection,
            shape: Shape::new(args, schema.as_deref()),
            schema,
            cells,
            measurement: None,
            tells_misformed: Cell::new(true),
            influx,
            names: pattern.iter().flat_map(Pattern::names).map(str::to_owned).collect(),
            batch_rows: args.batch_rows as usize,
            bad,
            empty: Cell::new(0),
            finest: Cell::new(Precision::Ms),
            now: Cell::new(None),
            folds: RefCell::default(),
        })
    }

    /// The value of a column that the user adds. Values from file names are text.
    pub(super) fn constant(&self, name: &str, text: &str) -> Constant {
        let is_text = self.names.iter().chain(&self.args.text).any(|n| n == name);
        match (cells::int(text.as_bytes()), cells::double(text.as_bytes())) {
            (Some(number), _) if !is_text => Constant::Int(number),
            (None, Some(number)) if !is_text => Constant::Double(number),
            _ => Constant::Text(text.to_owned()),
        }
    }

    /// How to split the text of a file.
    pub(super) fn split(&self, source: &Source) -> Split {
        let tabs = source.name.to_lowercase().contains(".tsv");
        self.split_of(source.format, if tabs { b'\t' } else { b',' })
    }

    pub(super) fn split_of(&self, format: InputFormat, delimiter: u8) -> Split {
        match format {
            InputFormat::Csv => Split::Csv {
                delimiter: self.args.delimiter.unwrap_or(delimiter),
                comment: self.args.comment,
                skip: self.args.skip.unwrap_or(0),
            },
            _ => Split::Lines,
        }
    }

    /// Creates the collection according to the options and the data.
    pub(super) fn create(&self, database: &Database, layout: &Layout, step: Option<step::Step>) -> Result<(), Failure> {
        let mut series = serde_json::Map::new();
        series.insert("timeField".to_owned(), layout.time_field.clone().into());
        if let Some(meta) = &layout.meta_field {
            series.insert("metaField".to_owned(), meta.clone().into());
        }
        let granularity = match (&self.args.granularity, step) {
            (Some(word), _) => word.clone(),
            (None, Some(step)) => {
                eprintln!("granularity {}: a series has a measurement every {} (median)", step.granularity(), step);
                step.granularity().to_owned()
            }
            (None, None) => "seconds".to_owned(),
        };
        series.insert("granularity".to_owned(), granularity.into());
        if layout.precision != Precision::Ms {
            eprintln!("precision {}: the times are that fine", layout.precision.name());
            series.insert("precision".to_owned(), layout.precision.name().into());
        }
        let mut document = serde_json::Map::new();
        document.insert("create".to_owned(), self.collection.clone().into());
        document.insert("timeseries".to_owned(), series.into());
        if let Some(seconds) = self.args.expire_after {
            document.insert("expireAfterSeconds".to_owned(), seconds.into());
        }
        database.run_command(&serde_json::Value::Object(document))?;
        Ok(())
    }

    /// Stores rows and returns how many were stored; rows that cannot be stored are set aside. `name` returns the id
    /// for each attempt to store the remaining rows.
    pub(super) fn insert(
        &self,
        collection: &Collection,
        rows: &mut Rows,
        name: &mut dyn FnMut(&Rows) -> Result<Option<BatchId>, Failure>,
    ) -> Result<u64, Failure> {
        loop {
            if rows.batch.num_rows() == 0 {
                return Ok(0);
            }
            let stored = match name(rows)? {
                Some(id) => collection.insert_with_id(&rows.batch, id),
                None => collection.insert(&rows.batch),
            };
            match stored {
                Ok(count) => return Ok(count),
                Err(error) => match error.index().filter(|i| *i < rows.lines.len()) {
                    Some(index) if SET_ASIDE.contains(&error.code()) => {
                        rows.set_aside(index, &error.to_string(), self.bad)?;
                    }
                    _ => return Err(error.into()),
                },
            }
        }
    }

    /// The types of the columns of CSV files.
    pub(super) fn kinds(
        &self,
        schema: Option<&Schema>,
        layout: &Layout,
        seen: &[ColumnStats],
    ) -> Result<Vec<(String, Kind)>, Failure> {
        let known_meta = |name: &str| -> Option<FieldType> {
            let ty = schema?.meta_type.as_ref()?;
            match (layout.meta_columns.len(), ty) {
                (1, ty) => Some(ty.clone()),
                (_, FieldType::Object(members)) => members.iter().find(|(n, _)| n == name).map(|(_, t)| t.clone()),
                _ => None,
            }
        };
        let lenient = self.bad.borrow().lenient();
        let (mut kinds, mut doubts) = (Vec::new(), Vec::new());
        for column in seen {
            let kind = if column.name == layout.time_column {
                Some(column.time_kind(lenient)?)
            } else {
                let known = if layout.meta_columns.contains(&column.name) {
                    known_meta(&column.name)
                } else {
                    schema.and_then(|s| s.field_type(&column.name).cloned())
                };
                let is_text =
                    self.args.text.contains(&column.name) || (known.is_none() && self.names.contains(&column.name));
                match column.kind(known.as_ref(), is_text, lenient) {
                    Ok(kind) => kind,
                    Err(doubt) => {
                        doubts.push(doubt);
                        None
                    }
                }
            };
            kinds.extend(kind.map(|k| (column.name.clone(), k)));
        }
        if !doubts.is_empty() {
            return Err(Doubt::failure(&doubts));
        }
        if let Some(name) = self.args.number.iter().find(|t| !seen.iter().any(|s| s.name == **t)) {
            let names: Vec<String> = seen.iter().map(|s| s.name.clone()).collect();
            return Err(self.shape.unknown("option --number", name, &names));
        }
        if let Some(name) = self.args.text.iter().find(|t| !seen.iter().any(|s| s.name == **t)) {
            let names: Vec<String> = seen.iter().map(|s| s.name.clone()).collect();
            return Err(self.shape.unknown("option --text", name, &names));
        }
        Ok(kinds)
    }
}
