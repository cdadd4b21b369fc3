//! Detects the form of a column's times, if only one is possible.

use super::times::TimeReader;
use std::collections::HashMap;

/// The order of the parts of a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Year, month, day.
    Ymd,
    /// Day, month, year.
    Dmy,
    /// Month, day, year.
    Mdy,
}

const ORDERS: [Order; 3] = [Order::Ymd, Order::Dmy, Order::Mdy];
/// Number of values that are enough if they leave one form.
const ENOUGH: usize = 500;
/// Maximum number of patterns of a column, which may contain dates with and without a time of day.
const PATTERNS_MAX: usize = 4;
/// Years for which numbers without separators are read as dates.
const YEARS: std::ops::RangeInclusive<i32> = 1700..=2100;

/// The form of times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimeForm {
    /// A form that needs no pattern.
    Plainly,
    /// One of these forms.
    As(Vec<Way>),
    /// No known form.
    Unknown,
}

/// A form of times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The order of the parts of its date.
    pub order: Order,
    /// The patterns of the cells, for `strptime`.
    pub patterns: Vec<String>,
    /// An example.
    pub example: String,
    fits: usize,
}

impl Way {
    /// For columns that each hold a part of a time.
    pub fn of_parts(pattern: &str) -> Self {
        Way { order: Order::Ymd, patterns: vec![pattern.to_owned()], example: String::new(), fits: 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'t> {
    Digits(&'t str),
    Letters(&'t str),
    Other(char),
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let run = |is: fn(&char) -> bool| rest.chars().take_while(is).map(char::len_utf8).sum::<usize>();
        let length = match first {
            '0'..='9' => run(char::is_ascii_digit),
            c if c.is_alphabetic() => run(|c| c.is_alphabetic()),
            c => c.len_utf8(),
        };
        let (part, after) = rest.split_at(length);
        tokens.push(match first {
            '0'..='9' => Token::Digits(part),
            c if c.is_alphabetic() => Token::Letters(part),
            c => Token::Other(c),
        });
        rest = after;
    }
    tokens
}

fn is_month(letters: &str) -> bool {
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    letters.len() >= 3 && MONTHS.iter().any(|m| letters.to_lowercase().starts_with(m))
}

/// The pattern of a text, if its date has this order.
fn pattern(text: &str, order: Order) -> Option<String> {
    let tokens = tokens(text);
    let mut out = String::new();
    let mut rest = date(&tokens, order, &mut out)?;
    if rest.is_empty() {
        return Some(out);
    }
    while let [Token::Other(c @ (' ' | ',' | ':' | '_' | '-')), after @ ..] = rest {
        out.push(*c);
        rest = after;
    }
    if let [Token::Letters("T"), after @ ..] = rest {
        out.push('T');
        rest = after;
    }
    let rest = zone(clock(rest, &mut out)?, &mut out)?;
    rest.is_empty().then_some(out)
}

/// Adds the pattern of a date; returns the tokens after it.
fn date<'s, 't>(tokens: &'s [Token<'t>], order: Order, out: &mut String) -> Option<&'s [Token<'t>]> {
    if let [Token::Digits(digits), rest @ ..] = tokens
        && order == Order::Ymd
        && let Some(compact) = match digits.len() {
            8 => Some("%Y%m%d"),
            10 => Some("%Y%m%d%H"),
            12 => Some("%Y%m%d%H%M"),
            14 => Some("%Y%m%d%H%M%S"),
            _ => None,
        }
    {
        out.push_str(compact);
        return Some(rest);
    }
    if let ([Token::Digits(year), Token::Other(c @ ('-' | '/')), Token::Digits(month)], Order::Ymd) = (tokens, order)
        && (year.len(), month.len()) == (4, 2)
    {
        out.push_str(&format!("%Y{c}%m"));
        return Some(&[]);
    }
    let parts = match order {
        Order::Ymd => ['Y', 'm', 'd'],
        Order::Dmy => ['d', 'm', 'Y'],
        Order::Mdy => ['m', 'd', 'Y'],
    };
    let points = tokens.get(1) == Some(&Token::Other('.'));
    let mut rest = tokens;
    for (at, part) in parts.into_iter().enumerate() {
        if at > 0 {
            let before = rest.len();
            while let [Token::Other(c @ ('-' | '/' | '.' | ' ' | ',')), after @ ..] = rest {
                // In dates with dots, the day always comes first.
                if *c == '.' && order == Order::Mdy {
                    return None;
                }
                out.push(*c);
                rest = after;
            }
            if rest.len() == before {
                return None;
            }
        }
        let (token, after) = rest.split_first()?;
        let is_short = |digits: &str| digits.len() <= 2;
        out.push_str(match (part, token) {
            ('Y', Token::Digits(digits)) if digits.len() == 4 => "%Y",
            ('Y', Token::Digits(digits)) if digits.len() == 2 && !(at == 0 && points) => "%y",
            ('m', Token::Digits(digits)) if is_short(digits) => "%m",
            ('m', Token::Letters(letters)) if is_month(letters) && letters.len() == 3 => "%b",
            ('m', Token::Letters(letters)) if is_month(letters) => "%B",
            ('d', Token::Digits(digits)) if is_short(digits) => "%d",
            _ => return None,
        });
        rest = after;
    }
    Some(rest)
}

/// Adds the pattern of a time of day; returns the tokens after it.
fn clock<'s, 't>(tokens: &'s [Token<'t>], out: &mut String) -> Option<&'s [Token<'t>]> {
    let [Token::Digits(first), rest @ ..] = tokens else { return None };
    let mut rest = rest;
    let half = rest.iter().any(|t| matches!(t, Token::Letters(l) if is_half(l)));
    let hour = if half { "%I" } else { "%H" };
    match (first.len(), rest) {
        (1 | 2, [Token::Other(c @ (':' | '.')), Token::Digits(minute), after @ ..]) if minute.len() == 2 => {
            out.push_str(&format!("{hour}{c}%M"));
            rest = after;
            if let [Token::Other(second), Token::Digits(digits), after @ ..] = rest
                && second == c
                && digits.len() == 2
            {
                out.push_str(&format!("{c}%S"));
                rest = after;
                if let [Token::Other('.'), Token::Digits(_), after @ ..] = rest {
                    out.push_str("%.f");
                    rest = after;
                }
            }
        }
        (4, _) => out.push_str("%H%M"),
        (6, _) => out.push_str("%H%M%S"),
        (1 | 2, _) => out.push_str(hour),
        _ => return None,
    }
    let (blank, after) = match rest {
        [Token::Other(' '), after @ ..] => (" ", after),
        all => ("", all),
    };
    match after {
        [Token::Letters(letters), after @ ..] if is_half(letters) => {
            out.push_str(blank);
            out.push_str("%p");
            Some(after)
        }
        _ => Some(rest),
    }
}

fn is_half(letters: &str) -> bool {
    letters.eq_ignore_ascii_case("am") || letters.eq_ignore_ascii_case("pm")
}

/// Adds the pattern of a zone; returns the tokens after it.
fn zone<'s, 't>(tokens: &'s [Token<'t>], out: &mut String) -> Option<&'s [Token<'t>]> {
    let (blank, rest) = match tokens {
        [Token::Other(' '), after @ ..] => (" ", after),
        all => ("", all),
    };
    match rest {
        [] => Some(rest),
        [Token::Letters(name @ ("UTC" | "GMT" | "Z")), after @ ..] => {
            out.push_str(&format!("{blank}{name}"));
            Some(after)
        }
        [Token::Other('+' | '-'), Token::Digits(_), Token::Other(':'), Token::Digits(_), after @ ..]
        | [Token::Other('+' | '-'), Token::Digits(_), after @ ..] => {
            out.push_str(&format!("{blank}%z"));
            Some(after)
        }
        _ => None,
    }
}

/// Whether a cell is a time of day.
pub fn is_clock(cell: &str) -> bool {
    let tokens = tokens(cell);
    let mut out = String::new();
    let rest = clock(&tokens, &mut out).and_then(|rest| zone(rest, &mut out));
    rest.is_some_and(<[_]>::is_empty)
        && TimeReader::one(&format!("%Y-%m-%d {out}"))
            .is_some_and(|r| r.read(format!("2000-01-01 {cell}").as_bytes()).is_ok())
}

/// Whether a cell is a date without a time of day.
pub fn is_date(cell: &str) -> bool {
    ORDERS.iter().any(|order| pattern(cell, *order).is_some_and(|p| !p.contains("%H") && !p.contains("%I")))
}

/// Whether a cell is a time in some form other than a number.
pub fn is_time(cell: &str) -> bool {
    if cell.len() > 40 || !cell.bytes().any(|b| b.is_ascii_digit()) {
        return false;
    }
    let is_read = |p: String| TimeReader::one(&p).is_some_and(|r| r.read(cell.as_bytes()).is_ok());
    let has_colon = || cell.contains(':') && is_clock(cell);
    TimeReader::plain().read(cell.as_bytes()).is_ok()
        || ORDERS.iter().filter_map(|order| pattern(cell, *order)).any(is_read)
        || has_colon()
}

/// The form of the times of a column. Numbers count only with a plausible year.
pub fn written<'c>(cells: impl Iterator<Item = &'c str>) -> TimeForm {
    let plain = TimeReader::plain();
    let mut readers: HashMap<String, Option<TimeReader>> = HashMap::new();
    let way = |order| Way { order, patterns: Vec::new(), example: String::new(), fits: 0 };
    let mut ways = ORDERS.map(way).to_vec();
    let (mut total, mut plainly) = (0, 0);
    for cell in cells.filter(|c| !c.is_empty()) {
        total += 1;
        plainly += usize::from(plain.read(cell.as_bytes()).is_ok());
        for way in &mut ways {
            let Some(pattern) = pattern(cell, way.order) else { continue };
            let reader = readers.entry(pattern.clone()).or_insert_with_key(|p| TimeReader::one(p));
            let Some(time) = reader.as_ref().and_then(|r| r.read(cell.as_bytes()).ok()) else { continue };
            let is_number = cell.bytes().all(|b| b.is_ascii_digit());
            if is_number && !YEARS.contains(&year(time)) {
                continue;
            }
            way.fits += 1;
            if way.example.is_empty() {
                cell.clone_into(&mut way.example);
            }
            if !way.patterns.contains(&pattern) && way.patterns.len() < PATTERNS_MAX {
                way.patterns.push(pattern);
            }
        }
        let best = ways.iter().map(|w| w.fits).max().unwrap_or(0);
        if total >= ENOUGH && ways.iter().filter(|w| w.fits == best).count() == 1 {
            break;
        }
    }
    let best = ways.iter().map(|w| w.fits).max().unwrap_or(0);
    if total > 0 && plainly * 10 >= total * 9 {
        return TimeForm::Plainly;
    }
    if total == 0 || best * 10 < total * 9 {
        return TimeForm::Unknown;
    }
    ways.retain(|w| w.fits == best);
    // With a month in letters there is one pattern, whatever the order.
    ways.dedup_by(|a, b| a.patterns == b.patterns);
    TimeForm::As(ways)
}

fn year(time: ebbtide_ttl::Timestamp) -> i32 {
    time.to_string().get(..4).and_then(|y| y.parse().ok()).unwrap_or(0)
}

/// The unit of numbers since 1970, from their number of digits: ten for seconds of our time, thirteen for milliseconds,
/// and so on.
pub fn unix_unit<'c>(cells: impl Iterator<Item = &'c str>) -> Option<&'static str> {
    let mut unit = None;
    for cell in cells.filter(|c| !c.is_empty()).take(ENOUGH) {
        let whole = cell.split_once('.').map_or(cell, |(whole, _)| whole);
        if !whole.bytes().all(|b| b.is_ascii_digit()) || !whole.starts_with(['1', '2']) {
            return None;
        }
        let found = match whole.len() {
            10 => "s",
            13 => "ms",
            16 => "us",
            19 => "ns",
            _ => return None,
        };
        if *unit.get_or_insert(found) != found {
            return None;
        }
    }
    unit
}

/// The pattern of a column with one part of a time, from its name; `value` shows whether a year has two digits and a
/// month has letters.
pub fn part(name: &str, value: &str) -> Option<&'static str> {
    let digits = value.bytes().all(|b| b.is_ascii_digit());
    Some(match name.trim_matches(['#', ' ']).to_lowercase().as_str() {
        "year" | "yr" | "yyyy" | "yy" | "jahr" | "ano" | "a\u{f1}o" | "ann\u{e9}e" | "anno" | "jaar" if digits => {
            if value.len() == 2 {
                "%y"
            } else {
                "%Y"
            }
        }
        "month" | "mon" | "mo" | "mm" | "monat" | "mes" | "m\u{ea}s" | "mois" | "mese" | "maand" => {
            if digits {
                "%m"
            } else {
                "%b"
            }
        }
        "day" | "dd" | "dy" | "dom" | "tag" | "dia" | "d\u{ed}a" | "jour" | "giorno" | "dag" if digits => "%d",
        "doy" | "jday" | "yday" | "julian" | "day_of_year" | "dayofyear" if digits => "%j",
        "hour" | "hr" | "hh" | "stunde" | "hora" | "heure" | "ora" | "uur" if digits && value.len() <= 2 => "%H",
        "minute" | "min" | "mn" | "mi" | "minuto" if digits => "%M",
        "second" | "sec" | "ss" | "segundo" | "seconde" if digits => "%S",
        _ => return None,
    })
}

/// Whether a column with this name contains times of day.
pub fn is_clock_name(name: &str) -> bool {
    const NAMES: [&str; 13] = [
        "time",
        "hour",
        "hora",
        "uhrzeit",
        "zeit",
        "heure",
        "ora",
        "tijd",
        "tid",
        "clock",
        "hhmm",
        "time_of_day",
        "time of day",
    ];
    let lower = name.to_lowercase();
    let bare = lower.split(['(', '[']).next().unwrap_or_default().trim();
    let bare = ["utc", "gmt", "local", "lst"].iter().fold(bare, |name, zone| {
        let name = name.strip_suffix(zone).unwrap_or(name);
        name.strip_prefix(zone).unwrap_or(name).trim_matches([' ', '_', '-'])
    });
    NAMES.contains(&bare)
}

#[cfg(test)]
mod tests;
