//! An import of files into one collection: how their text is read, and where the rows go.

use super::bad::BadLines;
use super::names::{Constant, Pattern};
use super::shape::Shape;
use super::source::Source;
use super::{Failure, Rows};
use crate::args::{ImportArgs, InputFormat};
use ebbtide::Collection;
use ebbtide_buckets::Schema;
use ebbtide_query::text_table::cells::{self, Cells, Nulls};
use ebbtide_query::text_table::repeated_hours::Folds;
use ebbtide_query::text_table::split::Split;
use ebbtide_query::text_table::times::{Hints, TimeReader};
use ebbtide_ttl::{Code, Precision, Timestamp};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Errors of a single row, which do not end the import.
const SET_ASIDE: [Code; 3] = [Code::BadValue, Code::TypeMismatch, Code::BSONObjectTooLarge];

/// The options that errors about times recommend.
const HINTS: Hints = Hints {
    form: "; describe its format with --time-format",
    dst: "; choose with --dst earlier, later or infer, or write the offset from UTC in the data",
};

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
        let times = TimeReader::new(&args.time_format, zone, args.dst.into(), influx.then_some("ns"), HINTS)
            .map_err(|e| Failure::usage(format!("--{e}")))?;
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

    /// Stores rows and returns how many were stored; rows that cannot be stored are set aside.
    pub(super) fn insert(&self, collection: &Collection, rows: &mut Rows) -> Result<u64, Failure> {
        while rows.batch.num_rows() > 0 {
            match collection.insert(&rows.batch) {
                Ok(count) => return Ok(count),
                Err(error) => self.set_aside(rows, error)?,
            }
        }
        Ok(0)
    }

    /// Sets aside the row that could not be stored; any other error ends the import.
    pub(super) fn set_aside(&self, rows: &mut Rows, error: ebbtide::Error) -> Result<(), Failure> {
        match error.index().filter(|i| *i < rows.lines.len()) {
            Some(index) if SET_ASIDE.contains(&error.code()) => rows.set_aside(index, &error.to_string(), self.bad),
            _ => Err(error.into()),
        }
    }
}
