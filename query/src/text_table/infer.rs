//! Infers the types of the columns of a text file from all of its values.

use super::cells::{Cells, ShortNumber, boolean, is_rounded, looks_like_number, unpadded};
use super::plain_time::has_signed_year;
use ebbtide_buckets::FieldType;
use ebbtide_ttl::{Precision, Timestamp};

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Truth values.
    Bool,
    /// Integers of 64 bits.
    Int,
    /// Doubles.
    Double,
    /// Instants.
    Time,
    /// Text.
    Text,
}

/// A cell that does not fit, and its position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The name of the file.
    pub file: String,
    /// The line, counted from 1.
    pub line: u64,
    /// The cell.
    pub value: String,
    /// Why it is not a time.
    pub reason: String,
}

/// Why the type of a column is ambiguous; the user decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// Numbers, some with leading zeros like this one.
    Padded(Place),
    /// Numbers, and one in another notation or beyond the range of doubles.
    Foreign(Place),
    /// Doubles, and an integer that a double would round.
    Rounded(Place),
    /// Numbers, and something else.
    NoNumber(Place),
    /// Times, and something else.
    NoTime(Place),
    /// A cell with a NUL byte.
    Nul(Place),
    /// The collection has a type there that text cannot be converted to.
    Refused(String),
}

/// Why a column is text although many of its values are something else.
#[derive(Debug)]
pub enum TextReason<'a> {
    /// All values are numbers with leading zeros.
    Padded,
    /// Some are numbers or times.
    Mixed {
        /// How many.
        count: u64,
        /// `numbers` or `times`.
        what: &'static str,
        /// The first one that is not.
        other: &'a Place,
    },
}

/// Statistics of a column's values.
#[derive(Debug, Clone, Default)]
pub struct ColumnStats {
    /// The column's name.
    pub name: String,
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
    /// No values yet.
    pub fn new(name: &str) -> Self {
        ColumnStats { name: name.to_owned(), ..ColumnStats::default() }
    }

    /// Examines a cell that is not missing. In the column of the time, every value must be one.
    pub fn look(&mut self, cell: &[u8], cells: &Cells, is_time: bool, file: &str, line: u64) {
        if !is_time && let Some(number) = cells.short(cell) {
            self.look_at_number(number, || Place {
                file: file.to_owned(),
                line,
                value: String::from_utf8_lossy(cell).into_owned(),
                reason: String::new(),
            });
            return;
        }
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
        if self.is_surely_text() {
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

    /// Examines a number that has no leading zeros, is exact as a double, and is no time.
    fn look_at_number(&mut self, number: ShortNumber, place: impl FnOnce() -> Place) {
        self.values += 1;
        if self.is_surely_text() {
            return;
        }
        if self.no_time.is_none() {
            self.no_time = Some(place());
        }
        self.ints += u64::from(number.int().is_some());
        self.numbers += 1;
    }

    fn is_surely_text(&self) -> bool {
        self.values > SURE_AFTER && self.numbers == 0 && self.times == 0 && self.bools == 0
    }

    /// Number of values that are not missing.
    pub fn values(&self) -> u64 {
        self.values
    }

    /// The unit that holds every time that was seen.
    pub fn finest(&self) -> Precision {
        self.finest
    }

    /// Whether every value is a time.
    pub fn is_time(&self) -> bool {
        self.values > 0 && self.times == self.values
    }

    /// The column's type; that of the field if the collection has it; `None` if it has no value. With `lenient`, values
    /// that do not fit are bad lines and not errors here.
    ///
    /// # Errors
    /// Why the type is ambiguous.
    pub fn kind(&self, known: Option<&FieldType>, text: bool, lenient: bool) -> Result<Option<Kind>, Doubt> {
        if let Some(place) = self.damaged.as_ref().filter(|_| !lenient) {
            return Err(Doubt::Nul(place.clone()));
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
            Some(other) => return Err(Doubt::Refused(other.name())),
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
            n if self.numbers > 0 && self.numbers + self.padded == n => {
                return Err(Doubt::Padded(first(&self.first_padded)));
            }
            _ if self.foreign > 0 && mostly(self.numbers + self.foreign) && !lenient => {
                return Err(Doubt::Foreign(first(&self.first_foreign)));
            }
            _ if mostly(self.numbers) => return self.all_numbers(lenient).map(Some),
            _ if mostly(self.times) => return self.all_times(lenient).map(Some),
            _ => Some(Kind::Text),
        })
    }

    fn all_numbers(&self, lenient: bool) -> Result<Kind, Doubt> {
        match &self.no_number {
            Some(_) if self.padded > 0 && self.numbers + self.padded == self.values => {
                Err(Doubt::Padded(first(&self.first_padded)))
            }
            Some(place) if !lenient => Err(Doubt::NoNumber(place.clone())),
            _ if self.ints == self.numbers => Ok(Kind::Int),
            _ => self.doubles(lenient),
        }
    }

    fn doubles(&self, lenient: bool) -> Result<Kind, Doubt> {
        match &self.no_double {
            Some(place) if !lenient => Err(Doubt::Rounded(place.clone())),
            _ => Ok(Kind::Double),
        }
    }

    fn all_times(&self, lenient: bool) -> Result<Kind, Doubt> {
        match &self.no_time {
            Some(place) if !lenient => Err(Doubt::NoTime(place.clone())),
            _ => Ok(Kind::Time),
        }
    }

    /// The type of the time column: every measurement must have a time.
    ///
    /// # Errors
    /// A value that is not a time, with the reason.
    pub fn time_kind(&self, lenient: bool) -> Result<Kind, Doubt> {
        match (&self.damaged, &self.no_time) {
            (Some(place), _) if !lenient => Err(Doubt::Nul(place.clone())),
            (_, Some(place)) if !lenient => Err(Doubt::NoTime(place.clone())),
            _ => Ok(Kind::Time),
        }
    }

    /// Why the column is text, if many of its values look like something else.
    pub fn text_reason(&self) -> Option<TextReason<'_>> {
        if self.values > 0 && self.padded == self.values {
            return Some(TextReason::Padded);
        }
        let (count, what, other) = match (self.numbers, self.times) {
            (0, 0) => return None,
            (0, times) => (times, "times", &self.no_time),
            (numbers, _) => (numbers, "numbers", &self.no_number),
        };
        let other = other.as_ref().filter(|_| count < self.values)?;
        Some(TextReason::Mixed { count, what, other })
    }
}

fn first(place: &Option<Place>) -> Place {
    place.clone().unwrap_or_default()
}

/// The coarsest unit that holds an instant exactly.
pub fn finest(time: Timestamp) -> Precision {
    if time.nanos() % Precision::Ms.nanos() == 0 {
        Precision::Ms
    } else if time.nanos() % Precision::Us.nanos() == 0 {
        Precision::Us
    } else {
        Precision::Ns
    }
}

/// The finer of two units.
pub fn finer(a: Precision, b: Precision) -> Precision {
    if a.nanos() < b.nanos() { a } else { b }
}

/// Whether a cell may be a time: the year comes first.
fn looks_like_time(cell: &[u8]) -> bool {
    let year = cell.len() >= 10 && cell[..4].iter().all(u8::is_ascii_digit);
    (year && (matches!(cell[4], b'-' | b'/') || cell[8] == b'T')) || has_signed_year(cell)
}
