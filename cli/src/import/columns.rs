//! The columns of a text file: their names, and the cells of a line that each consists of.

use super::Failure;
use super::shape::Shape;
use ebbtide_buckets::FIELDS_MAX;
use ebbtide_query::text_table::split::Record;

/// A line with more columns is probably a mistake: twice as many as a collection can have fields, since some may be
/// metas, parts of the time or skipped.
const COLUMNS_MAX: usize = 2 * FIELDS_MAX;

/// The source of a column's values.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    /// These cells of each line, joined by a blank.
    Cells(Vec<usize>),
    /// The same value in every line.
    Value(Vec<u8>),
}

/// A column of the import.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) origin: Origin,
}

/// The columns of a file.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    pub(super) columns: Vec<Column>,
    /// Number of cells that every record must have.
    width: usize,
    /// The column with the time, if the names tell.
    pub(super) time: Option<usize>,
    /// Cells without a name in the header, which must be empty.
    nameless: Vec<usize>,
    header_line: u64,
}

impl Columns {
    /// From the first record of a file, which is data if there is no header, and the constant columns that the user
    /// adds.
    pub(super) fn new(
        first: &Record<'_>,
        shape: &Shape,
        constants: &[(String, String)],
        file: &str,
    ) -> Result<Self, Failure> {
        let here = |what: &str| Failure::new(format!("{file}:{}: {what}", first.line));
        if first.cells > COLUMNS_MAX {
            let what =
                format!("the line has {} columns, at most {COLUMNS_MAX} are read: check --delimiter", first.cells);
            return Err(here(&what));
        }
        let names = shape.renamed(names(first, shape, &here)?, file)?;
        for (i, name) in names.iter().enumerate() {
            if !name.is_empty() && names[..i].contains(name) {
                return Err(here(&format!("two columns are named '{name}'; rename them with --columns")));
            }
        }
        let joined = shape.time.len() > 1;
        let is_wanted = |name: &String| {
            let is_part = joined && shape.time.contains(name);
            !name.is_empty() && !is_part && !shape.without.contains(name)
        };
        let mut columns: Vec<Column> = Vec::new();
        for (i, name) in names.iter().enumerate().filter(|(_, name)| is_wanted(name)) {
            columns.push(Column { name: name.clone(), origin: Origin::Cells(vec![i]) });
        }
        for (name, value) in constants {
            if columns.iter().any(|c| c.name == *name) {
                return Err(here(&format!(
                    "the file already has a column '{name}': leave it out with --without {name}, or add another name"
                )));
            }
            columns.push(Column { name: name.clone(), origin: Origin::Value(value.clone().into_bytes()) });
        }
        let time = if joined || shape.at.is_some() {
            let name = shape.time_field();
            if columns.iter().any(|c| c.name == name) {
                return Err(Failure::usage(format!(
                    "column '{name}' is in the way of the time: give it another name with --rename, or leave \
                     it out with --without"
                )));
            }
            let part = |t: &String| names.iter().position(|n| n == t).ok_or_else(|| shape.unknown("time", t, &names));
            let origin = match &shape.at {
                Some(at) => Origin::Value(at.clone().into_bytes()),
                None => Origin::Cells(shape.time.iter().map(part).collect::<Result<_, _>>()?),
            };
            columns.insert(0, Column { name, origin });
            Some(0)
        } else {
            let names: Vec<String> = columns.iter().map(|c| c.name.clone()).collect();
            shape.time_by_name(&names).and_then(|name| names.iter().position(|n| *n == name))
        };
        let nameless = (0..names.len()).filter(|i| names[*i].is_empty()).collect();
        Ok(Columns { columns, width: first.cells, time, nameless, header_line: first.line })
    }

    /// Why a record has the wrong number of cells; `None` if the number is right.
    pub(super) fn misfit(&self, record: &Record<'_>) -> Option<String> {
        if record.cells == self.width {
            return None;
        }
        let hint = match (0..record.cells).any(|at| record.cell(at).contains(&0)) {
            true => "it contains NUL bytes: the file is damaged, or was not written to its end",
            false => "fix the line (an open quote?) or check --delimiter",
        };
        Some(format!("the line has {} columns, the header {}; {hint}", record.cells, self.width))
    }

    /// Refuses a record with a value in a column that has no name.
    pub(super) fn check_nameless(&self, record: &Record<'_>, file: &str) -> Result<(), Failure> {
        let Some(at) = self.nameless.iter().find(|at| !record.cell(**at).is_empty()) else { return Ok(()) };
        let mut names = vec![String::new(); self.width];
        for column in &self.columns {
            if let Origin::Cells(cells) = &column.origin
                && let [one] = cells.as_slice()
            {
                names[*one].clone_from(&column.name);
            }
        }
        for (at, name) in names.iter_mut().enumerate().filter(|(_, name)| name.is_empty()) {
            *name = format!("c{}", at + 1);
        }
        Err(Failure::new(format!(
            "{file}:{}: column {} has no name, but line {} has '{}' there; name all columns, such as --columns '{}'",
            self.header_line,
            at + 1,
            record.line,
            String::from_utf8_lossy(record.cell(*at)),
            names.join(",")
        )))
    }
}

/// The names of the columns, from the first record.
fn names(first: &Record<'_>, shape: &Shape, here: &dyn Fn(&str) -> Failure) -> Result<Vec<String>, Failure> {
    if !shape.columns.is_empty() {
        if shape.columns.len() != first.cells {
            let what = format!("--columns names {} columns, the line has {}", shape.columns.len(), first.cells);
            return Err(here(&what));
        }
        return Ok(shape.columns.clone());
    }
    if shape.no_header {
        return Ok((1..=first.cells).map(|i| format!("c{i}")).collect());
    }
    let name = |i: usize| {
        let name = std::str::from_utf8(first.cell(i))
            .map_err(|_| here("the header is not UTF-8 text: is it a CSV file? --encoding latin-1 reads older ones"))?;
        // The header may be in a comment.
        let mark = if i == 0 { ['\u{feff}', '#'].as_slice() } else { &[] };
        Ok(name.trim_start_matches(mark).trim().to_owned())
    };
    (0..first.cells).map(name).collect()
}

impl Origin {
    /// The column's value in a record.
    pub(super) fn cell<'a>(&'a self, record: &Record<'a>, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        let parts = match self {
            Origin::Value(value) => return value,
            Origin::Cells(parts) => parts,
        };
        if let [one] = parts.as_slice() {
            return record.cell(*one);
        }
        scratch.clear();
        for part in parts {
            let cell = record.cell(*part);
            if cell.is_empty() {
                return &[];
            }
            if !scratch.is_empty() {
                scratch.push(b' ');
            }
            scratch.extend_from_slice(cell);
        }
        scratch
    }
}
