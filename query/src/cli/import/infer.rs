//! What the columns of a text file hold, decided over the whole of it.

use super::super::Failure;
use ebbtide_buckets::FieldType;
use ebbtide_ttl::Timestamp;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Double,
    Time,
    Text,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Bool => "bool",
            Kind::Int => "int64",
            Kind::Double => "double",
            Kind::Time => "timestamp",
            Kind::Text => "string",
        }
    }
}

/// A cell that does not fit, and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) file: String,
    pub(super) line: u64,
    pub(super) value: String,
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
}

/// From so many values of text alone on, a column is text whatever comes.
const SURE_AFTER: u64 = 10_000;

impl Seen {
    pub(super) fn new(name: &str) -> Self {
        Seen { name: name.to_owned(), ..Seen::default() }
    }

    pub(super) fn look(&mut self, cell: &[u8], file: &str, line: u64) {
        self.values += 1;
        if self.values > SURE_AFTER && self.numbers == 0 && self.times == 0 && self.bools == 0 {
            return;
        }
        let place = || Place { file: file.to_owned(), line, value: String::from_utf8_lossy(cell).into_owned() };
        match int(cell) {
            Some(_) => {
                self.ints += 1;
                self.numbers += 1;
            }
            None if double(cell).is_some() => self.numbers += 1,
            None => {
                self.no_number.get_or_insert_with(place);
            }
        }
        if is_rounded(cell) {
            self.no_double.get_or_insert_with(place);
        }
        if time(cell).is_some() {
            self.times += 1;
        } else {
            self.no_time.get_or_insert_with(place);
        }
        self.bools += u64::from(boolean(cell).is_some());
    }

    /// Values that are not missing.
    pub(super) fn values(&self) -> u64 {
        self.values
    }

    /// Whether every value is a time.
    pub(super) fn is_time(&self) -> bool {
        self.values > 0 && self.times == self.values
    }

    /// The column's type; what it must be if the collection knows the field.
    pub(super) fn kind(&self, known: Option<&FieldType>, text: bool) -> Result<Option<Kind>, Failure> {
        if text {
            return Ok(Some(Kind::Text));
        }
        match known {
            Some(FieldType::String) => return Ok(Some(Kind::Text)),
            Some(FieldType::Double) => return self.all_numbers().and_then(|_| self.doubles()).map(Some),
            Some(FieldType::Int64) => return self.all_numbers().map(Some),
            Some(FieldType::Timestamp) => return self.all_times().map(Some),
            Some(FieldType::Bool) if self.bools == self.values => return Ok(Some(Kind::Bool)),
            Some(other) => {
                let what =
                    format!("column '{}' cannot be imported: the collection holds {} there", self.name, other.name());
                return Err(Failure::new(what));
            }
            None => {}
        }
        let mostly = |count: u64| count > 0 && count * 10 >= self.values * 9;
        Ok(match self.values {
            0 => None,
            n if self.ints == n => Some(Kind::Int),
            n if self.numbers == n => Some(self.doubles()?),
            n if self.times == n => Some(Kind::Time),
            n if self.bools == n => Some(Kind::Bool),
            _ if mostly(self.numbers) => return self.all_numbers().map(Some),
            _ if mostly(self.times) => return self.all_times().map(Some),
            _ => Some(Kind::Text),
        })
    }

    fn all_numbers(&self) -> Result<Kind, Failure> {
        match &self.no_number {
            Some(place) => Err(self.misfit(place, "numbers")),
            None if self.ints == self.values => Ok(Kind::Int),
            None => self.doubles(),
        }
    }

    fn doubles(&self) -> Result<Kind, Failure> {
        match &self.no_double {
            Some(place) => Err(Failure::new(format!(
                "{}:{}: column '{}' becomes double, which cannot hold '{}' exactly; to import the column as text, say \
                 --text {}",
                place.file, place.line, self.name, place.value, self.name
            ))),
            None => Ok(Kind::Double),
        }
    }

    fn all_times(&self) -> Result<Kind, Failure> {
        match &self.no_time {
            Some(place) => Err(self.misfit(place, "times")),
            None => Ok(Kind::Time),
        }
    }

    /// The time column: every measurement has a time.
    pub(super) fn time_kind(&self) -> Result<Kind, Failure> {
        match &self.no_time {
            Some(place) => Err(Failure::new(format!(
                "{}:{}: column '{}' holds the time, but '{}' is none; times are written as 2024-01-31T12:00:00Z",
                place.file, place.line, self.name, place.value
            ))),
            None => Ok(Kind::Time),
        }
    }

    fn misfit(&self, place: &Place, what: &str) -> Failure {
        Failure::new(format!(
            "{}:{}: column '{}' holds {what}, but '{}' is none; if it marks a missing value, say --null '{}'; to import \
             the column as text, say --text {}",
            place.file, place.line, self.name, place.value, place.value, self.name
        ))
    }
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
    let starts = cell.first().is_some_and(|c| c.is_ascii_digit() || matches!(c, b'-' | b'+' | b'.' | b'N' | b'n'));
    if code || !starts {
        return None;
    }
    std::str::from_utf8(cell).ok()?.parse().ok()
}

/// Whether a cell is a whole number that a double would round.
fn is_rounded(cell: &[u8]) -> bool {
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

/// A time, taken as UTC if it names no zone.
pub(super) fn time(cell: &[u8]) -> Option<Timestamp> {
    let shaped = cell.len() >= 10 && cell[4] == b'-' && cell[7] == b'-';
    if !shaped {
        return None;
    }
    plain_time(cell).or_else(|| Timestamp::parse(std::str::from_utf8(cell).ok()?).ok())
}

/// `2024-01-31T12:00:00Z`, the form that most files have, without the detour through a calendar's parser.
fn plain_time(cell: &[u8]) -> Option<Timestamp> {
    let (body, seconds_end) = match cell {
        [body @ .., b'Z'] if body.len() == 19 => (body, 19),
        body if body.len() == 19 => (body, 19),
        _ => return None,
    };
    let number = |range: std::ops::Range<usize>| {
        body.get(range)?.iter().try_fold(0i64, |n, b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
    };
    let separators = matches!(body[10], b'T' | b' ') && body[13] == b':' && body[16] == b':';
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..seconds_end)?);
    let lengths = [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let month_days = usize::try_from(month - 1).ok().and_then(|m| lengths.get(m))?;
    if !separators || !(1..=*month_days).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(Timestamp::EPOCH.plus_seconds(seconds))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar, by eras of 400 years that begin in March.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_times_agree_with_the_general_parser() {
        for text in ["2024-02-29T12:34:56Z", "1969-12-31 23:59:59", "1600-03-01T00:00:00Z", "2013-01-01T06:00:00Z"] {
            assert_eq!(plain_time(text.as_bytes()), Some(Timestamp::parse(text).unwrap()), "{text}");
        }
        assert_eq!(plain_time(b"2023-02-29T00:00:00Z"), None);
        assert_eq!(time(b"2024-02-29"), Some(Timestamp::parse("2024-02-29").unwrap()));
        assert_eq!(time(b"yesterday!!"), None);
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
