//! What the columns of a text file hold, decided over the whole of it.

use super::plain_time::has_signed_year;
use super::times::TimeReader;
use crate::Failure;
use ebbtide_buckets::FieldType;
use ebbtide_ttl::{Precision, Timestamp};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Double,
    Time,
    Text,
}

/// A cell that does not fit, and where it stands.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    pub(super) file: String,
    pub(super) line: u64,
    pub(super) value: String,
    /// Why it is no time.
    reason: String,
}

/// What was seen in a column.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) name: String,
    values: u64,
    bools: u64,
    ints: u64,
    numbers: u64,
    times: u64,
    no_number: Option<Place>,
    no_time: Option<Place>,
    /// A whole number that a double would round.
    no_double: Option<Place>,
    /// Numbers with leading zeros, which may be codes.
    padded: u64,
    first_padded: Option<Place>,
    /// What looks like a number in another notation.
    foreign: u64,
    first_foreign: Option<Place>,
    /// The unit that holds every time that was seen.
    finest: Precision,
}

/// How the cells of a text file are to be understood.
#[derive(Debug, Clone)]
pub(super) struct Cells {
    pub(super) nulls: Nulls,
    pub(super) decimal_comma: bool,
    /// Columns in which leading zeros mean nothing.
    pub(super) numbers: Vec<String>,
    /// Reads the times of measurements.
    pub(super) times: TimeReader,
    /// Reads other times.
    pub(super) general: TimeReader,
}

/// What means that a value is missing.
#[derive(Debug, Clone, Default)]
pub(super) struct Nulls {
    texts: Vec<Vec<u8>>,
    numbers: Vec<f64>,
}

impl Nulls {
    pub(super) fn new(markers: &[String]) -> Self {
        let texts = markers.iter().map(|m| m.trim().as_bytes().to_vec()).collect();
        Nulls { texts, numbers: markers.iter().filter_map(|m| double(m.trim().as_bytes())).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Whether a cell is empty, is a marker, or is a number that equals one.
    pub(super) fn has(&self, cell: &[u8]) -> bool {
        cell.is_empty()
            || self.texts.iter().any(|t| t == cell)
            || (!self.numbers.is_empty() && double(cell).is_some_and(|d| self.has_number(d)))
    }

    /// Whether a number equals a marker.
    pub(super) fn has_number(&self, number: f64) -> bool {
        #[expect(clippy::float_cmp, reason = "a marker is an exact value")]
        self.numbers.iter().any(|n| *n == number || (n.is_nan() && number.is_nan()))
    }
}

impl Cells {
    /// A number, with the decimal point or comma of the file.
    pub(super) fn double(&self, cell: &[u8]) -> Option<f64> {
        if !self.decimal_comma {
            return double(cell);
        }
        let mut pointed = [0; 64];
        let pointed = pointed.get_mut(..cell.len())?;
        for (to, from) in pointed.iter_mut().zip(cell) {
            *to = match from {
                b',' => b'.',
                // Thousands are not told from fractions by guessing.
                b'.' => return None,
                other => *other,
            };
        }
        double(pointed)
    }
}

/// From so many values of text alone on, a column is text whatever comes.
const SURE_AFTER: u64 = 10_000;

impl Seen {
    pub(super) fn new(name: &str) -> Self {
        Seen { name: name.to_owned(), ..Seen::default() }
    }

    pub(super) fn look(&mut self, cell: &[u8], cells: &Cells, is_time: bool, file: &str, line: u64) {
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
        match int(cell) {
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
        if is_rounded(cell) {
            self.no_double.get_or_insert_with(|| place(String::new()));
        }
        self.bools += u64::from(boolean(cell).is_some());
    }

    /// Values that are not missing.
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

    /// The column's type; what it must be if the collection knows the field. With `lenient` values that do not fit are
    /// bad lines, and no error here.
    pub(super) fn kind(&self, known: Option<&FieldType>, text: bool, lenient: bool) -> Result<Option<Kind>, Failure> {
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
                let what =
                    format!("column '{}' cannot be imported: the collection holds {} there", self.name, other.name());
                return Err(Failure::new(what));
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

    fn all_numbers(&self, lenient: bool) -> Result<Kind, Failure> {
        match &self.no_number {
            Some(_) if self.padded > 0 && self.numbers + self.padded == self.values => Err(self.padded_numbers()),
            Some(place) if !lenient => Err(self.misfit(place, "numbers")),
            _ if self.ints == self.numbers => Ok(Kind::Int),
            _ => self.doubles(lenient),
        }
    }

    fn doubles(&self, lenient: bool) -> Result<Kind, Failure> {
        match &self.no_double {
            Some(place) if !lenient => Err(Failure::new(format!(
                "{}:{}: column '{}' becomes double, which cannot hold '{}' exactly; to import the column as text, say \
                 --text {}",
                place.file, place.line, self.name, place.value, self.name
            ))),
            _ => Ok(Kind::Double),
        }
    }

    fn all_times(&self, lenient: bool) -> Result<Kind, Failure> {
        match &self.no_time {
            Some(place) if !lenient => Err(self.misfit(place, "times")),
            _ => Ok(Kind::Time),
        }
    }

    /// The time column: every measurement has a time.
    pub(super) fn time_kind(&self, lenient: bool) -> Result<Kind, Failure> {
        match &self.no_time {
            Some(place) if !lenient => Err(Failure::new(format!(
                "{}:{}: column '{}' holds the time, but '{}' is none: {}",
                place.file, place.line, self.name, place.value, place.reason
            ))),
            _ => Ok(Kind::Time),
        }
    }

    fn padded_numbers(&self) -> Failure {
        let (name, place) = (&self.name, self.first_padded.clone().unwrap_or_default());
        Failure::new(format!(
            "{}:{}: column '{name}' holds numbers, and '{}' with leading zeros; to read it as a number, say \
             --number {name}; to import the column as text, say --text {name}",
            place.file, place.line, place.value
        ))
    }

    fn foreign_numbers(&self) -> Failure {
        let (name, place) = (&self.name, self.first_foreign.clone().unwrap_or_default());
        let comma = place.value.matches(',').count() == 1 && !place.value.contains('.');
        let comma = if comma { "to read numbers with a decimal comma, say --decimal-comma; " } else { "" };
        Failure::new(format!(
            "{}:{}: column '{name}' holds numbers, but '{}' is none that can be read; {comma}if it marks a missing \
             value, say --null '{}'; to import the column as text, say --text {name}; to set such lines aside, say \
             --bad-lines FILE",
            place.file, place.line, place.value, place.value
        ))
    }

    /// What a column of text may have been meant to be, and the option that says so.
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
            "{name} is text: {count} of {} values are {what}, '{}' in line {} is none; --null '{}' if it marks a missing value",
            self.values, other.value, other.line, other.value
        ))
    }

    fn misfit(&self, place: &Place, what: &str) -> Failure {
        Failure::new(format!(
            "{}:{}: column '{}' holds {what}, but '{}' is none; if it marks a missing value, add --null '{}'; to \
             import the column as text, add --text {}; to set such lines aside, add --bad-lines FILE",
            place.file, place.line, self.name, place.value, place.value, self.name
        ))
    }
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

/// A whole number; with leading zeros it is a code, such as a station's.
pub(super) fn int(cell: &[u8]) -> Option<i64> {
    let digits = match cell {
        [b'-' | b'+', rest @ ..] => rest,
        all => all,
    };
    match digits {
        [] | [b'0', _, ..] => None,
        all if all.iter().all(u8::is_ascii_digit) => std::str::from_utf8(cell).ok()?.parse().ok(),
        _ => None,
    }
}

/// A number.
pub(super) fn double(cell: &[u8]) -> Option<f64> {
    let code = matches!(cell, [b'0', b'0'..=b'9', ..] | [b'-', b'0', b'0'..=b'9', ..]);
    let unsigned = cell.strip_prefix(b"-").or_else(|| cell.strip_prefix(b"+")).unwrap_or(cell);
    match unsigned.first()? {
        b'0'..=b'9' | b'.' if !code => {
            let number: f64 = std::str::from_utf8(cell).ok()?.parse().ok()?;
            // 1e400 is no infinity that somebody measured.
            number.is_finite().then_some(number)
        }
        _ if unsigned.eq_ignore_ascii_case(b"nan") => Some(f64::NAN),
        _ if [b"inf".as_slice(), b"infinity"].iter().any(|w| unsigned.eq_ignore_ascii_case(w)) => {
            Some(if cell[0] == b'-' { f64::NEG_INFINITY } else { f64::INFINITY })
        }
        _ => None,
    }
}

/// A number without its leading zeros; `None` if it has none, or is no number.
pub(super) fn unpadded(cell: &[u8]) -> Option<Vec<u8>> {
    let (sign, digits) = match cell {
        [b'-', rest @ ..] => (&b"-"[..], rest),
        [b'+', rest @ ..] => (&b""[..], rest),
        all => (&b""[..], all),
    };
    if !matches!(digits, [b'0', b'0'..=b'9', ..]) {
        return None;
    }
    let zeros = digits.iter().take_while(|b| **b == b'0').count();
    // A zero stays before the point, or where there is nothing else.
    let from = if digits.get(zeros).is_some_and(u8::is_ascii_digit) { zeros } else { zeros - 1 };
    let number = [sign, &digits[from..]].concat();
    double(&number).map(|_| number)
}

/// Whether a cell is made of digits, points and commas as numbers are, or is too large for a double.
fn looks_like_number(cell: &[u8]) -> bool {
    let unsigned = cell.strip_prefix(b"-").or_else(|| cell.strip_prefix(b"+")).unwrap_or(cell);
    let starts = matches!(unsigned, [b'0'..=b'9', ..] | [b'.' | b',', b'0'..=b'9', ..]);
    let is_large = || std::str::from_utf8(cell).ok().and_then(|t| t.parse::<f64>().ok()).is_some_and(f64::is_infinite);
    let groups = unsigned.iter().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b','));
    starts && ((groups && unsigned.contains(&b',')) || is_large())
}

/// Whether a cell is a whole number that a double would round.
pub(super) fn is_rounded(cell: &[u8]) -> bool {
    // Every number of fewer digits is below 2^53.
    const DIGITS_MIN: usize = 16;
    let digits = cell.strip_prefix(b"-").or(cell.strip_prefix(b"+")).unwrap_or(cell);
    if digits.len() < DIGITS_MIN || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    double(digits).is_some_and(|d| format!("{d:.0}").as_bytes() != digits)
}

/// true or false.
pub(super) fn boolean(cell: &[u8]) -> Option<bool> {
    if cell.eq_ignore_ascii_case(b"true") {
        Some(true)
    } else if cell.eq_ignore_ascii_case(b"false") {
        Some(false)
    } else {
        None
    }
}

/// Whether it is worth while to read a cell as a time: the year comes first.
fn looks_like_time(cell: &[u8]) -> bool {
    let year = cell.len() >= 10 && cell[..4].iter().all(u8::is_ascii_digit);
    (year && (matches!(cell[4], b'-' | b'/') || cell[8] == b'T')) || has_signed_year(cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros_are_taken_off_where_they_mean_nothing() {
        let text = |cell: &[u8]| unpadded(cell).map(|n| String::from_utf8(n).unwrap());
        for (cell, expected) in [("090", "90"), ("+0123", "123"), ("-007.5", "-7.5"), ("00", "0"), ("000.5", "0.5")] {
            assert_eq!(text(cell.as_bytes()).as_deref(), Some(expected), "{cell}");
        }
        for cell in ["90", "0", "0.5", "", "-", "00x", "x01"] {
            assert_eq!(text(cell.as_bytes()), None, "{cell}");
        }
    }

    #[test]
    fn numbers_are_told_from_codes() {
        assert_eq!((int(b"-12"), int(b"007"), int(b"1.0"), int(b"")), (Some(-12), None, None, None));
        assert_eq!(
            (double(b"1e3"), double(b"007"), double(b"0.5"), double(b"x")),
            (Some(1000.0), None, Some(0.5), None)
        );
    }
}
