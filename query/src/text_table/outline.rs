//! The outline of a text table: its delimiter, the lines before the header, the header, lines of units below it, and the
//! decimal mark.

use super::cells::{double, looks_like_number, unpadded};
use super::encoding::Sample;
use super::time_forms;
use std::collections::HashSet;

/// Possible delimiters; a blank stands for runs of blanks and tabs.
const DELIMITERS: [u8; 5] = [b'\t', b';', b'|', b',', b' '];
/// Maximum number of lines examined.
const LINES_MAX: usize = 2_000;
/// Words in lines of units, in lower case and without brackets.
const UNITS: [&str; 66] = [
    "-", "%", "#", "1", "a", "avg", "bar", "c", "cm", "d", "date", "deg", "deg c", "deg f", "degc", "degf", "degree",
    "degrees", "f", "ft", "h", "hh:mm", "hpa", "hz", "in", "inch", "inhg", "j", "k", "kelvin", "km", "km/h", "kn",
    "knots", "kpa", "kt", "kw", "kwh", "lux", "m", "m/s", "max", "mb", "mbar", "min", "mj/m2", "mm", "mm/h", "mph",
    "none", "pa", "ppb", "ppm", "rn", "s", "smp", "std", "time", "tot", "ts", "unitless", "utc", "v", "volts", "w",
    "w/m2",
];

/// The kind of a cell, or of most cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Numbers, also in other notations.
    Number,
    /// Times, dates and times of day.
    Time,
    /// Anything else.
    Text,
}

/// A line with as many cells as the table has columns.
#[derive(Debug)]
pub struct Row<'t> {
    /// The number of the line, counted from 0.
    pub line: usize,
    /// The cells without blanks and quotes around them.
    pub cells: Vec<&'t str>,
}

/// A text, split by one delimiter.
#[derive(Debug)]
pub struct Table<'t> {
    /// The character between cells; a blank for runs of blanks.
    pub delimiter: u8,
    /// The lines with the usual number of cells, from the first of them.
    pub rows: Vec<Row<'t>>,
    /// The kinds of the columns.
    pub kinds: Vec<Kind>,
    /// Number of rows before the first one that looks like data.
    pub lead: usize,
}

/// The position of the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Header {
    /// The line with this number, counted from 0, and the number of lines below it that are not data.
    At {
        /// The header's line.
        line: usize,
        /// Lines of units and the like.
        below: usize,
    },
    /// The first line of the table looks like data.
    None {
        /// That line.
        line: usize,
    },
    /// One of these two, each with the number of lines below it.
    Either([(usize, usize); 2]),
}

/// What the lines of a text end with; the old one of the Macintosh if there is no other.
fn line_end(text: &str) -> char {
    if text.contains('\n') { '\n' } else { '\r' }
}

/// The examined lines of a text, with their numbers from 0.
pub fn lines(sample: &Sample, skip: usize, comment: Option<u8>) -> Vec<(usize, &str)> {
    let mut text = sample.text.as_str();
    if !sample.is_whole {
        // The last line may be incomplete.
        text = text.rfind(line_end(text)).map_or(text, |end| &text[..=end]);
    }
    let is_comment = |line: &str| comment.is_some_and(|c| line.as_bytes().first() == Some(&c));
    let lines = text.split(line_end(text)).map(|line| line.trim_end_matches('\r')).enumerate().skip(skip);
    lines.filter(|(_, line)| !line.trim().is_empty() && !is_comment(line)).take(LINES_MAX).collect()
}

/// The cells of a line. Quotes are assumed to close on the same line.
pub fn cells(line: &str, delimiter: u8) -> Vec<&str> {
    let is_delimiter = |b: u8| b == delimiter || (delimiter == b' ' && b == b'\t');
    let bytes = line.as_bytes();
    let (mut cells, mut at) = (Vec::new(), 0);
    loop {
        if delimiter == b' ' {
            at += bytes[at..].iter().take_while(|b| is_delimiter(**b)).count();
            if at == bytes.len() {
                return cells;
            }
        }
        let begin = at;
        if bytes.get(at) == Some(&b'"') {
            at += 1;
            while at < bytes.len() && (bytes[at] != b'"' || bytes.get(at + 1) == Some(&b'"')) {
                at += if bytes[at] == b'"' { 2 } else { 1 };
            }
        }
        at = at.min(bytes.len());
        at += bytes[at..].iter().take_while(|b| !is_delimiter(**b)).count();
        let cell = line[begin..at].trim();
        cells.push(cell.strip_prefix('"').and_then(|c| c.strip_suffix('"')).unwrap_or(cell).trim());
        if at >= bytes.len() {
            return cells;
        }
        at += 1;
    }
}

/// The kind of a cell; `None` if it is empty or a word that often marks a missing value.
pub fn kind(cell: &str) -> Option<Kind> {
    const NOTHING: [&str; 9] = ["", "na", "n/a", "nan", "null", "none", "-", "--", "m"];
    if NOTHING.iter().any(|n| cell.eq_ignore_ascii_case(n)) {
        return None;
    }
    let bytes = cell.as_bytes();
    Some(if double(bytes).is_some() || unpadded(bytes).is_some() {
        Kind::Number
    } else if time_forms::is_time(cell) {
        Kind::Time
    } else if looks_like_number(bytes) {
        Kind::Number
    } else {
        Kind::Text
    })
}

impl<'t> Table<'t> {
    /// The lines split by a delimiter; `None` if they do not form a table.
    fn new(lines: &[(usize, &'t str)], delimiter: u8) -> Option<Self> {
        let split: Vec<Row<'t>> =
            lines.iter().map(|(line, text)| Row { line: *line, cells: cells(text, delimiter) }).collect();
        // Before a short table there may be many lines.
        let (width, first) = [0, split.len() / 2].iter().find_map(|from| shape(&split, *from))?;
        // A table right below a line of other cells lacks a name, or has one too many.
        let above = first.checked_sub(1).map_or(1, |at| split[at].cells.len());
        let rows: Vec<Row<'t>> = split.into_iter().skip(first).filter(|row| row.cells.len() == width).collect();
        let sample = &rows[rows.len() / 2..];
        let kinds: Vec<Kind> = (0..width).map(|at| usual_kind(sample.iter().map(|row| row.cells[at]))).collect();
        let is_data = |(at, row): (usize, &Row<'_>)| has_telling_cell(row, &kinds) || (at > 0 && fits(row, &kinds));
        let lead = rows.iter().enumerate().position(is_data).unwrap_or(rows.len().min(1));
        (lead > 0 || above == 1).then_some(Table { delimiter, rows, kinds, lead })
    }

    /// The table in a text, if only one is possible. `delimiter` is the user's choice.
    pub fn find(lines: &[(usize, &'t str)], delimiter: Option<u8>) -> TableSearch<'t> {
        if let Some(delimiter) = delimiter {
            return Table::new(lines, delimiter).map_or(TableSearch::Nothing, TableSearch::One);
        }
        let (blanks, others) = DELIMITERS.split_last().unwrap_or((&b' ', &[]));
        let mut tables: Vec<Table<'t>> = others.iter().filter_map(|d| Table::new(lines, *d)).collect();
        if tables.is_empty() {
            tables.extend(Table::new(lines, *blanks).filter(|t| t.kinds.iter().any(|k| *k != Kind::Text)));
        }
        for wanted in [Kind::Time, Kind::Number] {
            if tables.len() > 1 && tables.iter().any(|t| t.kinds.contains(&wanted)) {
                tables.retain(|t| t.kinds.contains(&wanted));
            }
        }
        match tables.len() {
            0 => TableSearch::Nothing,
            1 => tables.pop().map_or(TableSearch::Nothing, TableSearch::One),
            _ if tables.iter().all(|t| t.kinds.iter().all(|k| *k == Kind::Text)) => TableSearch::Nothing,
            _ => TableSearch::Several(tables.iter().map(|t| t.delimiter).collect()),
        }
    }

    /// The position of the header. `first` is the first line of the whole text.
    pub fn header(&self, first: &str) -> Header {
        let line = |row: usize| self.rows.get(row).map_or(0, |r| r.line);
        let below = |row: usize| line(self.lead).saturating_sub(line(row) + 1);
        let at = |row: usize| Header::At { line: line(row), below: below(row) };
        if self.lead == 0 {
            return Header::None { line: line(0) };
        }
        if self.lead >= self.rows.len() || self.lead == 1 {
            let below = if self.lead < self.rows.len() { below(0) } else { 0 };
            return Header::At { line: line(0), below };
        }
        // Files of Campbell loggers: a line about the station, the names, the units, and the aggregation.
        if first.trim_start_matches('"').starts_with("TOA5") {
            return at(self.rows.iter().take(self.lead).position(|row| row.line >= 1).unwrap_or(0));
        }
        let last = self.lead - 1;
        let names = |row: &Row<'_>| {
            let mut known = HashSet::new();
            let all_named = row.cells.iter().rev().skip_while(|c| c.is_empty()).all(|c| !c.is_empty());
            all_named && row.cells.iter().all(|c| c.is_empty() || known.insert(*c))
        };
        let (heads, units) = (names(&self.rows[0]), self.rows[1..self.lead].iter().all(is_units));
        match (heads, units, names(&self.rows[last])) {
            (true, true, _) => at(0),
            (false, _, true) => at(last),
            _ => Header::Either([(line(0), below(0)), (line(last), below(last))]),
        }
    }

    /// Removes the header and the lines around it from the rows.
    pub fn drop_lead(&mut self, has_header: bool) {
        let lead = self.lead.max(usize::from(has_header));
        self.rows.drain(..lead.min(self.rows.len()));
    }

    /// Whether numbers have a decimal comma: some show it, and none shows a decimal point.
    pub fn has_decimal_comma(&self) -> bool {
        let numeric = |row: &Row<'t>| -> Vec<&'t str> {
            let numeric = row.cells.iter().zip(&self.kinds).filter(|(_, kind)| **kind == Kind::Number);
            numeric.map(|(cell, _)| *cell).collect()
        };
        let (mut commas, mut points) = (0, 0);
        for cell in self.rows.iter().flat_map(numeric) {
            let unsigned = cell.trim_start_matches(['-', '+']);
            match unsigned.split_once(',') {
                Some((whole, fraction)) if !fraction.contains([',', '.']) && !whole.contains('.') => {
                    // 1,021 may be a thousand, 0,125 and 5,2 may not.
                    commas += u32::from(fraction.len() != 3 || whole.len() > 3 || whole.is_empty() || whole == "0");
                }
                _ => points += u32::from(unsigned.contains('.')),
            }
        }
        commas > 0 && points == 0
    }
}

/// The result of looking for a table.
#[derive(Debug)]
pub enum TableSearch<'t> {
    /// No unambiguous table.
    Nothing,
    /// This table.
    One(Table<'t>),
    /// Tables with these delimiters.
    Several(Vec<u8>),
}

/// The most frequent number of cells from a line on, and the first line that has it; `None` if too few lines below
/// have.
fn shape(lines: &[Row<'_>], from: usize) -> Option<(usize, usize)> {
    let mut counts: Vec<usize> = lines[from..].iter().map(|row| row.cells.len()).collect();
    counts.sort_unstable();
    let width = counts.chunk_by(|a, b| a == b).max_by_key(|run| (run.len(), run[0]))?[0];
    let first = lines.iter().position(|row| row.cells.len() == width)?;
    let rows = lines[first..].iter().filter(|row| row.cells.len() == width).count();
    // A few lines may be malformed.
    let is_table = width > 1 && rows * 10 >= (lines.len() - first) * 8 && (first == 0 || rows > 1);
    is_table.then_some((width, first))
}

fn usual_kind<'c>(cells: impl Iterator<Item = &'c str>) -> Kind {
    let (mut total, mut numbers, mut times) = (0, 0, 0);
    for kind in cells.filter_map(kind) {
        total += 1;
        numbers += u32::from(kind == Kind::Number);
        times += u32::from(kind == Kind::Time);
    }
    match total {
        total if times * 2 > total => Kind::Time,
        total if numbers * 2 > total => Kind::Number,
        _ => Kind::Text,
    }
}

/// Whether a row has a time in the column where others do; or a number, if there are no times.
fn has_telling_cell(row: &Row<'_>, kinds: &[Kind]) -> bool {
    let telling = if kinds.contains(&Kind::Time) { Kind::Time } else { Kind::Number };
    row.cells.iter().zip(kinds).any(|(cell, usual)| *usual == telling && kind(cell) == Some(telling))
}

/// Whether most cells of a row are numbers where the others have them, so that only its time is missing or wrong.
fn fits(row: &Row<'_>, kinds: &[Kind]) -> bool {
    let numeric = || row.cells.iter().zip(kinds).filter(|(_, usual)| **usual == Kind::Number);
    let numbers = numeric().filter(|(cell, _)| kind(cell) == Some(Kind::Number)).count();
    numbers > 0 && numbers * 2 >= numeric().count()
}

/// Whether all cells of a row can be units, and at least one is.
fn is_units(row: &Row<'_>) -> bool {
    let is_unit = |cell: &&str| {
        let bare = cell.trim_matches(['(', ')', '[', ']']).to_lowercase();
        let bare = bare.replace('\u{b0}', "deg ").replace('\u{b2}', "2").replace("deg  ", "deg ");
        bare.len() < cell.len() || UNITS.contains(&bare.trim()) || bare.contains('/') || bare.contains('^')
    };
    let cells = || row.cells.iter().filter(|c| !c.is_empty());
    cells().all(|c| c.chars().count() <= 16) && cells().filter(|c| is_unit(c)).count() * 2 >= cells().count().max(1)
}
