//! Interprets the cells of a text file: numbers in the notation of the file, and markers of missing values.

use super::times::TimeReader;
use std::borrow::Cow;

/// How to interpret the cells of a text file.
#[derive(Debug, Clone)]
pub struct Cells {
    /// Markers of missing values.
    pub nulls: Nulls,
    /// Whether fractions begin with a comma.
    pub decimal_comma: bool,
    /// The separator of thousands.
    pub thousands: Option<u8>,
    /// Columns in which leading zeros are ignored.
    pub numbers: Vec<String>,
    /// Reads the times of measurements.
    pub times: TimeReader,
    /// Reads other times.
    pub general: TimeReader,
}

/// The markers of missing values.
#[derive(Debug, Clone, Default)]
pub struct Nulls {
    texts: Vec<Vec<u8>>,
    numbers: Vec<f64>,
}

impl Nulls {
    /// Markers as the user wrote them; a marker that is a number stands for every way to write it.
    pub fn new(markers: &[String]) -> Self {
        let texts = markers.iter().map(|m| m.trim().as_bytes().to_vec()).collect();
        Nulls { texts, numbers: markers.iter().filter_map(|m| double(m.trim().as_bytes())).collect() }
    }

    /// Whether there are no markers; empty cells are missing values all the same.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Whether a cell is empty, is a marker, or is a number that equals one.
    #[inline]
    pub fn has(&self, cell: &[u8]) -> bool {
        cell.is_empty()
            || self.texts.iter().any(|t| t == cell)
            || (!self.numbers.is_empty() && double(cell).is_some_and(|d| self.has_number(d)))
    }

    /// Whether a number equals a marker.
    pub fn has_number(&self, number: f64) -> bool {
        #[expect(clippy::float_cmp, reason = "a marker is an exact value")]
        self.numbers.iter().any(|n| *n == number || (n.is_nan() && number.is_nan()))
    }
}

impl Cells {
    /// A number written with a decimal point and without separators of thousands; `None` if it is not a number in the
    /// notation of the file.
    pub fn plain<'c>(&self, cell: &'c [u8]) -> Option<Cow<'c, [u8]>> {
        if !self.decimal_comma && self.thousands.is_none() {
            return Some(Cow::Borrowed(cell));
        }
        let mark = if self.decimal_comma { b',' } else { b'.' };
        let at = cell.iter().position(|b| *b == mark).unwrap_or(cell.len());
        let (whole, fraction) = cell.split_at(at);
        let mut plain = Vec::with_capacity(cell.len());
        for (at, part) in whole.split(|b| Some(*b) == self.thousands).enumerate() {
            let digits = part.iter().filter(|b| b.is_ascii_digit()).count();
            if at > 0 && (digits != 3 || part.len() != 3) {
                return None;
            }
            plain.extend_from_slice(part);
        }
        if let Some(digits) = fraction.get(1..) {
            plain.push(b'.');
            plain.extend_from_slice(digits);
        }
        // A mark that has no meaning here.
        let other = if self.decimal_comma { b'.' } else { b',' };
        (!whole.iter().any(|b| *b == other && self.thousands != Some(other))).then_some(Cow::Owned(plain))
    }

    /// A short number, if the notation of the file is that of programs; `None` for every other cell, also for other numbers.
    #[inline]
    pub fn short(&self, cell: &[u8]) -> Option<ShortNumber> {
        if self.decimal_comma || self.thousands.is_some() { None } else { ShortNumber::read(cell) }
    }

    /// Whether a cell is empty, or marks a missing value.
    #[inline]
    pub fn is_null(&self, cell: &[u8]) -> bool {
        self.nulls.has(cell) || (self.decimal_comma && self.plain(cell).is_some_and(|number| self.nulls.has(&number)))
    }

    /// An integer.
    pub fn int(&self, cell: &[u8]) -> Option<i64> {
        int(&self.plain(cell)?)
    }

    /// A number.
    pub fn double(&self, cell: &[u8]) -> Option<f64> {
        double(&self.plain(cell)?)
    }
}

/// A number of at most 15 digits such as -12 or 0.5, without an exponent, a plus or leading zeros: most cells of most files.
/// All its digits are exact in a double.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShortNumber {
    is_negative: bool,
    digits: i64,
    /// Digits after the decimal point; `None` without a point.
    decimals: Option<usize>,
}

/// Powers of ten that a double holds exactly.
const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

impl ShortNumber {
    const DIGITS_MAX: usize = 15;

    #[inline]
    fn read(cell: &[u8]) -> Option<Self> {
        let (is_negative, unsigned) = match cell {
            [b'-', rest @ ..] => (true, rest),
            all => (false, all),
        };
        if unsigned.len() > Self::DIGITS_MAX + 1 || matches!(unsigned, [] | [b'0', b'0'..=b'9', ..]) {
            return None;
        }
        let (mut digits, mut point) = (0, None);
        for (at, byte) in unsigned.iter().enumerate() {
            match byte {
                b'0'..=b'9' => digits = digits * 10 + i64::from(byte - b'0'),
                b'.' if point.is_none() && at > 0 => point = Some(at),
                _ => return None,
            }
        }
        let decimals = point.map(|at| unsigned.len() - 1 - at);
        match decimals {
            None if unsigned.len() > Self::DIGITS_MAX => None,
            Some(0) => None,
            _ => Some(ShortNumber { is_negative, digits, decimals }),
        }
    }

    /// The number, if it has no decimal point.
    pub fn int(self) -> Option<i64> {
        self.decimals.is_none().then_some(if self.is_negative { -self.digits } else { self.digits })
    }

    /// The number. Both operands of the division are exact, so it is rounded once, as by any other way to read it.
    #[expect(clippy::cast_precision_loss, reason = "15 digits are exact")]
    pub fn double(self) -> f64 {
        let number = self.digits as f64 / POWERS[self.decimals.unwrap_or(0)];
        if self.is_negative { -number } else { number }
    }
}

/// An integer; with leading zeros it is a code, such as a station's.
pub fn int(cell: &[u8]) -> Option<i64> {
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
pub fn double(cell: &[u8]) -> Option<f64> {
    let code = matches!(cell, [b'0', b'0'..=b'9', ..] | [b'-', b'0', b'0'..=b'9', ..]);
    let unsigned = cell.strip_prefix(b"-").or_else(|| cell.strip_prefix(b"+")).unwrap_or(cell);
    match unsigned.first()? {
        b'0'..=b'9' | b'.' if !code => {
            let number: f64 = std::str::from_utf8(cell).ok()?.parse().ok()?;
            // 1e400 is not a measured infinity.
            number.is_finite().then_some(number)
        }
        _ if unsigned.eq_ignore_ascii_case(b"nan") => Some(f64::NAN),
        _ if [b"inf".as_slice(), b"infinity"].iter().any(|w| unsigned.eq_ignore_ascii_case(w)) => {
            Some(if cell[0] == b'-' { f64::NEG_INFINITY } else { f64::INFINITY })
        }
        _ => None,
    }
}

/// A number without its leading zeros; `None` if it has none or is not a number.
pub fn unpadded(cell: &[u8]) -> Option<Vec<u8>> {
    let (sign, digits) = match cell {
        [b'-', rest @ ..] => (&b"-"[..], rest),
        [b'+', rest @ ..] => (&b""[..], rest),
        all => (&b""[..], all),
    };
    if !matches!(digits, [b'0', b'0'..=b'9', ..]) {
        return None;
    }
    let zeros = digits.iter().take_while(|b| **b == b'0').count();
    // One zero is kept before the decimal point, or if there is no other digit.
    let from = if digits.get(zeros).is_some_and(u8::is_ascii_digit) { zeros } else { zeros - 1 };
    let number = [sign, &digits[from..]].concat();
    double(&number).map(|_| number)
}

/// Whether a cell consists of digits, points and commas like a number, or is too large for a double.
pub fn looks_like_number(cell: &[u8]) -> bool {
    let unsigned = cell.strip_prefix(b"-").or_else(|| cell.strip_prefix(b"+")).unwrap_or(cell);
    let starts = matches!(unsigned, [b'0'..=b'9', ..] | [b'.' | b',', b'0'..=b'9', ..]);
    let is_large = || std::str::from_utf8(cell).ok().and_then(|t| t.parse::<f64>().ok()).is_some_and(f64::is_infinite);
    let groups = unsigned.iter().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b','));
    starts && ((groups && unsigned.contains(&b',')) || is_large())
}

/// Whether a cell is an integer that a double would round.
pub fn is_rounded(cell: &[u8]) -> bool {
    // Every number with fewer digits is below 2^53.
    const DIGITS_MIN: usize = 16;
    let digits = cell.strip_prefix(b"-").or(cell.strip_prefix(b"+")).unwrap_or(cell);
    if digits.len() < DIGITS_MIN || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    double(digits).is_some_and(|d| format!("{d:.0}").as_bytes() != digits)
}

/// A boolean.
pub fn boolean(cell: &[u8]) -> Option<bool> {
    if cell.eq_ignore_ascii_case(b"true") {
        Some(true)
    } else if cell.eq_ignore_ascii_case(b"false") {
        Some(false)
    } else {
        None
    }
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
    fn short_numbers_are_those_that_the_general_way_reads() {
        let alphabet = b"0159.-+e ";
        let mut cells: Vec<Vec<u8>> = vec![Vec::new()];
        for length in 0..5 {
            let longer = cells.iter().filter(|cell| cell.len() == length);
            let longer: Vec<_> =
                longer.flat_map(|cell| alphabet.iter().map(|b| [cell.as_slice(), &[*b]].concat())).collect();
            cells.extend(longer);
        }
        for text in ["999999999999999", "-999999999999999", "99999999999999.9", "0.00000000000001", "-123456.789012345"]
        {
            cells.push(text.as_bytes().to_vec());
            cells.push([text, "9"].concat().into_bytes());
        }
        let mut state = 1_u64;
        for _ in 0..100_000 {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let number = (state >> 14).to_string();
            let at = usize::try_from(state >> 60).unwrap().min(number.len() - 1) + 1;
            cells.push(format!("{}.{}", &number[..at], &number[at..]).into_bytes());
        }
        let mut short = 0;
        for cell in cells {
            let Some(number) = ShortNumber::read(&cell) else { continue };
            let shown = String::from_utf8_lossy(&cell).into_owned();
            short += 1;
            assert_eq!(number.int(), int(&cell), "{shown}");
            assert_eq!(Some(number.double().to_bits()), double(&cell).map(f64::to_bits), "{shown}");
            assert!(!is_rounded(&cell) && unpadded(&cell).is_none() && boolean(&cell).is_none(), "{shown}");
        }
        assert!(short > 50_000, "{short}");
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
