//! Infers the types of the columns of a text file from all of its values.

use super::cells::{Cells, boolean, is_rounded, looks_like_number, unpadded};
use super::plain_time::has_signed_year;
use crate::Failure;
use ebbtide_buckets::FieldType;
use ebbtide_ttl::{Precision, Timestamp};
use std::collections::HashSet;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Double,
    Time,
    Text,
}

/// A cell that does not fit, and its position.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    pub(super) file: String,
    pub(super) line: u64,
    pub(super) value: String,
    /// Why it is not a time.
    reason: String,
}

/// An ambiguity of a column, and the option that most likely resolves it.
#[derive(Debug)]
pub(super) struct Doubt {
    text: String,
    option: Option<String>,
}

impl Doubt {
    /// All ambiguities in one message, with the options that resolve them.
    pub(super) fn failure(doubts: &[Doubt]) -> Failure {
        const SHOWN_MAX: usize = 10;
        let mut lines: Vec<String> = doubts.iter().take(SHOWN_MAX).map(|d| d.text.clone()).collect();
        if doubts.len() > SHOWN_MAX {
            lines.push(format!("and {} more columns", doubts.len() - SHOWN_MAX));
        }
        let mut options: Vec<&str> = doubts.iter().filter_map(|d| d.option.as_deref()).collect();
        let mut known = HashSet::new();
        options.retain(|o| known.insert(*o));
        if doubts.len() > 1 && !options.is_empty() {
            lines.push(format!("the first choice of each: {}", options.join(" ")));
        }
        Failure::new(lines.join("\n"))
    }
}

/// Statistics of a column's values.
#[derive(Debug, Clone, Default)]
pub(super) struct ColumnStats {
    pub(super) name: String,
    values: u64,
    bools: u64,
    ints: u64,
    numbers: u64,
    times: u64,
    no_number: Option<Place>,
    no_time: Option<Place>,
    /// An integer that a double would round.
    no_double: Option<Place>,
    /// Number of values with leading zeros, which may be codes.
    padded: u64,
    first_padded: Option<Place>,
    /// Number of values that look like numbers in another notation.
    foreign: u64,
    first_foreign: Option<Place>,
    /// A value with a NUL byte in it.
    damaged: Option<Place>,
    /// The unit that holds every time that was seen.
    finest: Precision,
}

/// After this many values that are only text, a column is text whatever follows.
const SURE_AFTER: u64 = 10_000;

impl ColumnStats {
    pub(super) fn new(name: &str) -> Self {
        ColumnStats { name: name.to_owned(), ..ColumnStats::default() }
    }

    pub(super) fn look(&mut self, cell: &[u8], cells: &Cells, is_time: bool, file: &str, line: u64) {
        if cell.contains(&0) {
            let (file, value) = (file.to_owned(), String::from_utf8_lossy(cell).replace('\0', "\\0"));
            self.damaged.get_or_insert(Place { file, line, value, reason: String::new() });
            return;
        }
        self.values += 1;
        let whole = unpadded(cell);
        let cell = match &whole {
            Some(number) if cells.numbers.contains(&self.name) => number.as_slice(),
            _ => cell,
        };
        if self.values > SURE_AFTER && self.numbers == 0 && self.times == 0 && self.bools == 0 {
            return;
        }
        let place = |reason: String| Place {
            file: file.to_owned(),
            line,
            value: String::from_utf8_lossy(cell).into_owned(),
            reason,
        };
        if is_time || looks_like_time(cell) {
            let reader = if is_time { &cells.times } else { &cells.general };
            match reader.read(cell) {
                Ok(time) => {
                    self.times += 1;
                    self.finest = finer(self.finest, finest(time));
                }
                Err(reason) => {
                    self.no_time.get_or_insert_with(|| place(reason));
                }
            }
        } else if self.no_time.is_none() {
            self.no_time = Some(place(String::new()));
        }
        if is_time {
            return;
        }
        match cells.int(cell) {
            Some(_) => {
                self.ints += 1;
                self.numbers += 1;
            }
            None if cells.double(cell).is_some() => self.numbers += 1,
            None => {
                self.no_number.get_or_insert_with(|| place(String::new()));
                if whole.is_some() {
                    self.padded += 1;
                    self.first_padded.get_or_insert_with(|| place(String::new()));
                } else if looks_like_number(cell) {
                    self.foreign += 1;
                    self.first_foreign.get_or_insert_with(|| place(String::new()));
                }
            }
        }
        if cells.plain(cell).is_some_and(|number| is_rounded(&number)) {
            self.no_double.get_or_insert_with(|| place(String::new()));
        }
        self.bools += u64::from(boolean(cell).is_some());
    }

    /// Number of values that are not missing.
    pub(super) fn values(&self) -> u64 {
        self.values
    }

    /// The unit that holds every time that was seen.
    pub(super) fn finest(&self) -> Precision {
        self.finest
    }

    /// Whether every value is a time.
    pub(super) fn is_time(&self) -> bool {
        self.values > 0 && self.times == self.values
    }

    /// The column's type; that of the field if the collection has it. With `lenient`, values that do not fit are bad
    /// lines and not errors here.
    pub(super) fn kind(&self, known: Option<&FieldType>, text: bool, lenient: bool) -> Result<Option<Kind>, Doubt> {
        if let Some(place) = self.damaged.as_ref().filter(|_| !lenient) {
            return Err(self.nul(place));
        }
        if text {
            return Ok(Some(Kind::Text));
        }
        match known {
            Some(FieldType::String) => return Ok(Some(Kind::Text)),
            Some(FieldType::Double) => return self.all_numbers(lenient).and_then(|_| self.doubles(lenient)).map(Some),
            Some(FieldType::Int64) => return self.all_numbers(lenient).map(Some),
            Some(FieldType::Timestamp) => return self.all_times(lenient).map(Some),
            Some(FieldType::Bool) if self.bools == self.values || lenient => return Ok(Some(Kind::Bool)),
            Some(other) => {
                let text =
                    format!("column '{}' cannot be imported: the collection holds {} there", self.name, other.name());
                return Err(Doubt { text, option: None });
            }
            None => {}
        }
        // With `lenient` the others would be set aside, so there must be few of them.
        let share = if lenient { self.values * 9 } else { self.values * 5 };
        let mostly = |count: u64| count > 0 && count * 10 >= share;
        Ok(match self.values {
            0 => None,
            n if self.ints == n => Some(Kind::Int),
            n if self.numbers == n => Some(self.doubles(lenient)?),
            n if self.times == n => Some(Kind::Time),
            n if self.bools == n => Some(Kind::Bool),
            n if self.numbers > 0 && self.numbers + self.padded == n => return Err(self.padded_numbers()),
            _ if self.foreign > 0 && mostly(self.numbers + self.foreign) && !lenient => {
                return Err(self.foreign_numbers());
            }
            _ if mostly(self.numbers) => return self.all_numbers(lenient).map(Some),
            _ if mostly(self.times) => return self.all_times(lenient).map(Some),
            _ => Some(Kind::Text),
        })
    }

    fn all_numbers(&self, lenient: bool) -> Result<Kind, Doubt> {
        match &self.no_number {
            Some(_) if self.padded > 0 && self.numbers + self.padded == self.values => Err(self.padded_numbers()),
            Some(place) if !lenient => Err(self.misfit(place, "numbers")),
            _ if self.ints == self.numbers => Ok(Kind::Int),
            _ => self.doubles(lenient),
        }
    }

    fn doubles(&self, lenient: bool) -> Result<Kind, Doubt> {
        match &self.no_double {
            Some(place) if !lenient => {
                let option = format!("--text {}", word(&self.name));
                let text = format!(
                    "{}:{}: column '{}' becomes double, which cannot hold '{}' exactly; to import the column as text, say \
                     {option}",
                    place.file, place.line, self.name, place.value
                );
                Err(Doubt { text, option: Some(option) })
            }
            _ => Ok(Kind::Double),
        }
    }

    fn all_times(&self, lenient: bool) -> Result<Kind, Doubt> {
        match &self.no_time {
            Some(place) if !lenient => Err(self.misfit(place, "times")),
            _ => Ok(Kind::Time),
        }
    }

    /// The type of the time column: every measurement must have a time.
    pub(super) fn time_kind(&self, lenient: bool) -> Result<Kind, Failure> {
        if let Some(place) = self.damaged.as_ref().filter(|_| !lenient) {
            return Err(Doubt::failure(&[self.nul(place)]));
        }
        match &self.no_time {
            Some(place) if !lenient => Err(Failure::new(format!(
                "{}:{}: column '{}' contains the time, but '{}' is not a time: {}",
                place.file, place.line, self.name, place.value, place.reason
            ))),
            _ => Ok(Kind::Time),
        }
    }

    fn padded_numbers(&self) -> Doubt {
        let (name, place) = (&self.name, self.first_padded.clone().unwrap_or_default());
        let option = format!("--number {}", word(name));
        let text = format!(
            "{}:{}: column '{name}' contains numbers, and '{}' with leading zeros; to read it as a number, say {option}; to \
             import the column as text, say --text {}",
            place.file,
            place.line,
            place.value,
            word(name)
        );
        Doubt { text, option: Some(option) }
    }

    fn nul(&self, place: &Place) -> Doubt {
        let text = format!(
            "{}:{}: column '{}' has a NUL byte in '{}': the file is damaged, or was not written to its end; to set such \
             lines aside, say --bad-lines FILE",
            place.file, place.line, self.name, place.value
        );
        Doubt { text, option: None }
    }

    fn foreign_numbers(&self) -> Doubt {
        let (name, place) = (&self.name, self.first_foreign.clone().unwrap_or_default());
        let null = format!("--null {}", quoted(&place.value));
        let ways = notation(&place.value);
        let way: String = ways.iter().map(|(when, option)| format!("if {when}, say {option}; ")).collect();
        let text = format!(
            "{}:{}: column '{name}' contains numbers, but '{}' is not a readable number; {way}if it marks a missing value, \
             say {null}; to import the column as text, say --text {}; to set such lines aside, say --bad-lines FILE",
            place.file,
            place.line,
            place.value,
            word(name)
        );
        let option = match ways {
            [] => Some(null),
            [(_, option)] => Some((*option).to_owned()),
            _ => None,
        };
        Doubt { text, option }
    }

    /// What a text column may have been meant to be, and the option for it.
    pub(super) fn doubt(&self) -> Option<String> {
        let name = &self.name;
        if self.values > 0 && self.padded == self.values {
            return Some(format!(
                "{name} is text, since its numbers have leading zeros; --number {name} reads numbers"
            ));
        }
        let (count, what, other) = match (self.numbers, self.times) {
            (0, 0) => return None,
            (0, times) => (times, "times", &self.no_time),
            (numbers, _) => (numbers, "numbers", &self.no_number),
        };
        let other = other.as_ref().filter(|_| count < self.values)?;
        Some(format!(
            "{name} is text: {count} of {} values are {what}, '{}' in line {} is not; --null '{}' if it marks a missing value",
            self.values, other.value, other.line, other.value
        ))
    }

    fn misfit(&self, place: &Place, what: &str) -> Doubt {
        let null = format!("--null {}", quoted(&place.value));
        let text = format!(
            "{}:{}: column '{}' contains {what}, but '{}' is not one; if it marks a missing value, add {null}; to import the \
             column as text, add --text {}; to set such lines aside, add --bad-lines FILE",
            place.file,
            place.line,
            self.name,
            place.value,
            word(&self.name)
        );
        Doubt { text, option: Some(null) }
    }
}

/// The options that may read a number in another notation, with the case in which each applies.
fn notation(value: &str) -> &'static [(&'static str, &'static str)] {
    const COMMAS: (&str, &str) = ("the comma separates thousands", "--thousands ,");
    const BOTH: (&str, &str) = ("the point separates thousands", "--thousands . --decimal-comma");
    const DECIMAL: (&str, &str) = ("it has a decimal comma", "--decimal-comma");
    let whole = value.split(['e', 'E']).next().unwrap_or_default();
    let grouped = |text: &str, mark: char| text.contains(mark) && text.split(mark).skip(1).all(|g| g.len() == 3);
    match (whole.matches(',').count(), whole.matches('.').count()) {
        (1.., 1) if whole.rsplit_once('.').is_some_and(|(groups, _)| grouped(groups, ',')) => &[COMMAS],
        (1, 1..) if whole.rsplit_once(',').is_some_and(|(groups, _)| grouped(groups, '.')) => &[BOTH],
        (1, 0) if grouped(whole, ',') => &[COMMAS, DECIMAL],
        (1, 0) => &[DECIMAL],
        (2.., 0) if grouped(whole, ',') => &[COMMAS],
        _ => &[],
    }
}

/// A word for a shell, quoted if necessary.
fn word(text: &str) -> String {
    if text.chars().all(|c| c.is_alphanumeric() || c == '_') { text.to_owned() } else { quoted(text) }
}

/// A word quoted for a shell.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "'\\''"))
}

/// The coarsest unit that holds an instant exactly.
pub(super) fn finest(time: Timestamp) -> Precision {
    if time.nanos() % Precision::Ms.nanos() == 0 {
        Precision::Ms
    } else if time.nanos() % Precision::Us.nanos() == 0 {
        Precision::Us
    } else {
        Precision::Ns
    }
}

/// The finer of two units.
pub(super) fn finer(a: Precision, b: Precision) -> Precision {
    if a.nanos() < b.nanos() { a } else { b }
}

/// Whether a cell may be a time: the year comes first.
fn looks_like_time(cell: &[u8]) -> bool {
    let year = cell.len() >= 10 && cell[..4].iter().all(u8::is_ascii_digit);
    (year && (matches!(cell[4], b'-' | b'/') || cell[8] == b'T')) || has_signed_year(cell)
}
