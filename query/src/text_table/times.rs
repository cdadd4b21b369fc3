//! Reads the times of an input as instants.

use super::plain_time::{plain_time, time};
use super::repeated_hours::{Dst, Series};
use chrono::format::{Item, Parsed, StrftimeItems, parse};
use chrono::{
    DateTime, FixedOffset, LocalResult, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeDelta, TimeZone, Timelike, Utc,
};
use chrono_tz::Tz;
use ebbtide_ttl::{Precision, Timestamp};

/// Forms of times that need no pattern besides ISO 8601: the year comes first, so that nothing is guessed.
const LOCAL_FORMS: [&str; 10] = [
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
    "%Y/%m/%d %H:%M:%S%.f",
    "%Y/%m/%d %H:%M",
    "%Y%m%dT%H%M%S",
    "%Y-%m-%d %H%M",
    "%Y/%m/%d %H%M UTC",
    "%Y/%m/%d %H%M",
];

/// Reads times.
#[derive(Debug, Clone)]
pub struct TimeReader {
    forms: Vec<Form>,
    zone: Zone,
    dst: Dst,
    hints: Hints,
}

/// What errors recommend.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hints {
    /// For a time in an unknown form.
    pub form: &'static str,
    /// For a local time that is ambiguous or skipped.
    pub dst: &'static str,
}

#[derive(Debug, Clone)]
enum Form {
    /// A number of units since 1970, with the nanoseconds per unit.
    Unix(i128),
    Pattern(Vec<Item<'static>>),
}

#[derive(Debug, Clone, Copy)]
enum Zone {
    Utc,
    Fixed(FixedOffset),
    Named(Tz),
}

/// The content of a text before the zone is applied.
enum Read {
    Instant(Timestamp),
    Local(NaiveDateTime),
}

impl TimeReader {
    /// From patterns (or the units `s`, `ms`, `us` and `ns` since 1970) and a time zone. `unix` is the unit of numbers if
    /// there is no pattern.
    ///
    /// # Errors
    /// Names the option, `time-format` or `time-zone`, that cannot be used.
    pub fn new(
        formats: &[String],
        zone: Option<&str>,
        dst: Dst,
        unix: Option<&str>,
        hints: Hints,
    ) -> Result<Self, String> {
        let given: Vec<&str> = formats.iter().map(String::as_str).collect();
        let formats = if given.is_empty() { unix.into_iter().collect() } else { given };
        let forms = formats.into_iter().map(form).collect::<Result<_, _>>()?;
        Ok(TimeReader { forms, zone: zone.map_or(Ok(Zone::Utc), zone_of)?, dst, hints })
    }

    /// Reads times with one pattern, local ones as UTC; `None` if it is not a pattern.
    pub fn one(pattern: &str) -> Option<Self> {
        TimeReader::new(&[pattern.to_owned()], None, Dst::Refuse, None, Hints::default()).ok()
    }

    /// Reads times that need no pattern.
    pub fn plain() -> Self {
        TimeReader { forms: Vec::new(), zone: Zone::Utc, dst: Dst::Refuse, hints: Hints::default() }
    }

    /// The same zone without patterns, for columns of times other than that of the measurements.
    pub fn general(&self) -> Self {
        TimeReader { forms: Vec::new(), ..self.clone() }
    }

    /// Whether ambiguous local times are decided by the row's series.
    pub fn decides(&self) -> bool {
        self.dst != Dst::Refuse
    }

    /// Whether local times are those of a zone other than UTC.
    pub fn has_zone(&self) -> bool {
        !matches!(self.zone, Zone::Utc)
    }

    /// Whether no pattern was given.
    pub fn is_general(&self) -> bool {
        self.forms.is_empty()
    }

    /// The instant of a cell.
    ///
    /// # Errors
    /// Says why it names none.
    pub fn read(&self, cell: &[u8]) -> Result<Timestamp, String> {
        self.read_in(cell, &mut Series::default())
    }

    /// The instant of a cell of a series. If it may be one of two, the series decides according to `--dst`.
    ///
    /// # Errors
    /// Says why it names none.
    pub fn read_in(&self, cell: &[u8], series: &mut Series) -> Result<Timestamp, String> {
        if self.forms.is_empty()
            && let Zone::Utc = self.zone
            && let Some(time) = time(cell)
        {
            return Ok(time);
        }
        if self.forms.is_empty()
            && !cell.ends_with(b"Z")
            && let Some(local) = plain_time(cell)
            && let Some(local) = local.to_units(Precision::Ms).and_then(DateTime::from_timestamp_millis)
        {
            return self.instant(local.naive_utc(), series);
        }
        let shown = || String::from_utf8_lossy(cell).into_owned();
        let Ok(text) = std::str::from_utf8(cell) else { return Err(format!("'{}' is not UTF-8 text", shown())) };
        match self.parse(text).or_else(|| end_of_day(text, &|text| self.parse(text))) {
            Some(Read::Instant(time)) => Ok(time),
            Some(Read::Local(local)) => self.instant(local, series),
            None if self.forms.is_empty() => {
                Err(format!("'{text}' is not a time such as 2024-01-31T12:00:00Z{}", self.hints.form))
            }
            None => Err(format!("'{text}' does not match the format of the times")),
        }
    }

    fn parse(&self, text: &str) -> Option<Read> {
        if self.forms.is_empty() { general(text) } else { self.forms.iter().find_map(|f| f.read(text)) }
    }

    fn instant(&self, local: NaiveDateTime, series: &mut Series) -> Result<Timestamp, String> {
        let zone = match self.zone {
            Zone::Utc => return Ok(timestamp(local.and_utc())),
            Zone::Fixed(offset) => return Ok(timestamp(moved(local, offset).and_utc())),
            Zone::Named(zone) => zone,
        };
        let hint = self.hints.dst;
        let utc = |time: DateTime<Tz>| timestamp(time.with_timezone(&Utc));
        match (zone.from_local_datetime(&local), self.dst) {
            (LocalResult::Single(time), _) => {
                let time = utc(time);
                if self.dst == Dst::Infer {
                    series.certain(time);
                }
                Ok(time)
            }
            (LocalResult::Ambiguous(..), Dst::Refuse) => {
                Err(format!("the clocks of {zone} showed {local} twice{hint}"))
            }
            (LocalResult::Ambiguous(earlier, later), dst) => Ok(series.decide(utc(earlier), utc(later), dst)),
            (LocalResult::None, Dst::Refuse) => Err(format!("the clocks of {zone} skipped {local}{hint}")),
            (LocalResult::None, dst) => {
                // The offset after the gap gives the earlier instant, the one before it the later.
                let sign = if dst == Dst::Earlier { 1 } else { -1 };
                let offset = [3, 25].iter().find_map(|hours| {
                    let beside = local.checked_add_signed(TimeDelta::hours(sign * hours))?;
                    Some(zone.from_local_datetime(&beside).earliest()?.offset().fix())
                });
                let offset = offset.ok_or_else(|| format!("the clocks of {zone} skipped {local}"))?;
                series.counts.skipped += 1;
                Ok(timestamp(moved(local, offset).and_utc()))
            }
        }
    }
}

/// Reads a time at 24:00, the end of a day; `read` only accepts hours up to 23.
fn end_of_day(text: &str, read: &dyn Fn(&str) -> Option<Read>) -> Option<Read> {
    // From the right: a year or a day of the month may be 24 too.
    text.rmatch_indices("24").find_map(|(at, _)| {
        let hour = TimeDelta::hours(1);
        let before = format!("{}23{}", &text[..at], &text[at + 2..]);
        let is_hour =
            |local: &NaiveDateTime| (local.hour(), local.minute(), local.second(), local.nanosecond()) == (23, 0, 0, 0);
        match read(&before)? {
            Read::Local(local) if is_hour(&local) => local.checked_add_signed(hour).map(Read::Local),
            Read::Instant(time) => {
                // An offset hides the hour; with 22:00 it must be one less, and the minutes are those of the text.
                let earlier = format!("{}22{}", &text[..at], &text[at + 2..]);
                let Some(Read::Instant(other)) = read(&earlier) else { return None };
                let is_midnight =
                    text[at + 2..].split(['Z', 'z', '+', '-']).next()?.bytes().all(|b| !(b'1'..=b'9').contains(&b));
                let is_hour = time == other.plus_seconds(3_600) && is_midnight;
                is_hour.then(|| Read::Instant(time.plus_seconds(3_600)))
            }
            Read::Local(_) => None,
        }
    })
}

fn moved(local: NaiveDateTime, offset: FixedOffset) -> NaiveDateTime {
    local.checked_sub_offset(offset).unwrap_or(local)
}

fn timestamp(time: DateTime<Utc>) -> Timestamp {
    Timestamp::from_nanos(i128::from(time.timestamp()) * 1_000_000_000 + i128::from(time.timestamp_subsec_nanos()))
}

fn form(text: &str) -> Result<Form, String> {
    Ok(match text {
        "s" => Form::Unix(1_000_000_000),
        "ms" => Form::Unix(1_000_000),
        "us" => Form::Unix(1_000),
        "ns" => Form::Unix(1),
        pattern => {
            let items: Vec<Item<'static>> = StrftimeItems::new(pattern).map(Item::to_owned).collect();
            if items.iter().any(|i| matches!(i, Item::Error)) || !pattern.contains('%') {
                return Err(format!(
                    "time-format '{pattern}' is not a pattern: write it with %Y %m %d %H %M %S, or use s, ms, us or ns"
                ));
            }
            Form::Pattern(items)
        }
    })
}

fn zone_of(text: &str) -> Result<Zone, String> {
    if text.eq_ignore_ascii_case("utc") || text == "Z" {
        return Ok(Zone::Utc);
    }
    if let Ok(zone) = text.parse::<Tz>() {
        return Ok(Zone::Named(zone));
    }
    if let Ok(offset) = text.parse::<FixedOffset>() {
        return Ok(Zone::Fixed(offset));
    }
    let names: Vec<&str> = chrono_tz::TZ_VARIANTS.iter().map(|z| z.name()).collect();
    let hint = ebbtide::suggest::hint(text, names.iter().copied());
    Err(format!("time-zone: '{text}' is not a time zone such as Europe/Dublin or +01:00{hint}"))
}

impl Form {
    fn read(&self, text: &str) -> Option<Read> {
        match self {
            Form::Unix(nanos) => unix(text, *nanos).map(|n| Read::Instant(Timestamp::from_nanos(n))),
            Form::Pattern(items) => {
                let mut parsed = Parsed::new();
                parse(&mut parsed, text, items.iter()).ok()?;
                if let Some(seconds) = parsed.timestamp() {
                    return DateTime::from_timestamp(seconds, 0).map(|t| Read::Instant(timestamp(t)));
                }
                let hour_known = parsed.hour_mod_12().is_some();
                if hour_known && parsed.minute().is_none() {
                    parsed.set_minute(0).ok()?;
                }
                let date = parsed.to_naive_date().ok().or_else(|| first_day(parsed.clone()))?;
                let time = if hour_known { parsed.to_naive_time().ok()? } else { NaiveTime::MIN };
                let local = date.and_time(time);
                Some(match parsed.offset().and_then(FixedOffset::east_opt) {
                    Some(offset) => Read::Instant(timestamp(moved(local, offset).and_utc())),
                    None => Read::Local(local),
                })
            }
        }
    }
}

/// The first day of a month or year, if no more of the date was read.
fn first_day(mut parsed: Parsed) -> Option<NaiveDate> {
    if parsed.day().is_some() || parsed.ordinal().is_some() {
        return None;
    }
    if parsed.month().is_none() {
        parsed.set_month(1).ok()?;
    }
    parsed.set_day(1).ok()?;
    parsed.to_naive_date().ok()
}

/// A number of units since 1970, exactly, including a fraction.
fn unix(text: &str, nanos: i128) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let mut total = whole.parse::<i64>().map(i128::from).ok()?.checked_mul(nanos)?;
    let mut unit = nanos;
    for digit in fraction.bytes() {
        unit /= 10;
        total += i128::from(digit - b'0') * unit;
    }
    Some(if negative { -total } else { total })
}

/// ISO 8601 and similar forms with the year first.
fn general(text: &str) -> Option<Read> {
    // A year of two digits may as well be a day.
    let digits = text.trim_start_matches(['+', '-']).bytes().take_while(u8::is_ascii_digit).count();
    if digits < 4 {
        return None;
    }
    let zoned = DateTime::parse_from_rfc3339(text)
        .or_else(|_| DateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f%z"))
        .or_else(|_| DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%#z"));
    if let Ok(time) = zoned {
        return Some(Read::Instant(timestamp(time.with_timezone(&Utc))));
    }
    let bare = text.strip_suffix(['Z', 'z']);
    let local = LOCAL_FORMS
        .iter()
        .find_map(|f| NaiveDateTime::parse_from_str(bare.unwrap_or(text), f).ok())
        .or_else(|| {
            ["%Y-%m-%d", "%Y/%m/%d"]
                .iter()
                .find_map(|f| NaiveDate::parse_from_str(text, f).ok().map(|d| d.and_time(NaiveTime::MIN)))
        })
        .or_else(|| {
            // A date and an hour from two columns.
            let (date, hour) = text.split_once(' ').filter(|(_, hour)| (1..=2).contains(&hour.len()))?;
            NaiveDate::parse_from_str(date, "%Y-%m-%d").ok()?.and_hms_opt(hour.parse().ok()?, 0, 0)
        })?;
    Some(match bare {
        Some(_) => Read::Instant(timestamp(local.and_utc())),
        None => Read::Local(local),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(formats: &[&str], zone: Option<&str>, dst: Dst) -> TimeReader {
        let formats: Vec<String> = formats.iter().map(|f| (*f).to_owned()).collect();
        TimeReader::new(&formats, zone, dst, None, Hints { form: "; FORM", dst: "" }).unwrap()
    }

    fn read(formats: &[&str], zone: Option<&str>, text: &str) -> String {
        match reader(formats, zone, Dst::Refuse).read(text.as_bytes()) {
            Ok(time) => time.to_string(),
            Err(error) => error,
        }
    }

    #[test]
    fn patterns_zones_and_numbers_give_exact_instants() {
        let cases: [(&[&str], Option<&str>, &str, &str); 25] = [
            (&[], None, "2024-01-31 12:00", "2024-01-31T12:00:00Z"),
            (&[], None, "1859/12/31 06:00", "1859-12-31T06:00:00Z"),
            (&[], Some("America/Denver"), "2024-07-01T00:00:00", "2024-07-01T06:00:00Z"),
            (&[], Some("America/Denver"), "2024-07-01T00:00:00+02:00", "2024-06-30T22:00:00Z"),
            (&[], Some("+05:30"), "2024-07-01", "2024-06-30T18:30:00Z"),
            (&["%d/%m/%Y %H:%M"], None, "31/01/2024 23:59", "2024-01-31T23:59:00Z"),
            (&["%d.%m.%y"], Some("Europe/Berlin"), "31.01.24", "2024-01-30T23:00:00Z"),
            (&["%Y%m%d %H"], None, "20240131 07", "2024-01-31T07:00:00Z"),
            (&["%d/%b/%Y:%H:%M:%S %z"], None, "01/Feb/2024:00:00:00 -0300", "2024-02-01T03:00:00Z"),
            (&["%m/%d/%Y %I:%M %p"], None, "01/31/2024 01:05 PM", "2024-01-31T13:05:00Z"),
            (&["s"], None, "-1.5", "1969-12-31T23:59:58.500Z"),
            (&["ms"], None, "1704067200001", "2024-01-01T00:00:00.001Z"),
            (&["ns"], None, "1704067200000000001", "2024-01-01T00:00:00.000000001Z"),
            (&["%Y", "%Y-%m-%d"], None, "2024-01-02", "2024-01-02T00:00:00Z"),
            (&["%Y-%m"], None, "2017-03", "2017-03-01T00:00:00Z"),
            (&["%Y"], None, "2017", "2017-01-01T00:00:00Z"),
            (&["%Y %j"], None, "2017 60", "2017-03-01T00:00:00Z"),
            (&["%Y %m %d %H"], None, "2017 1 31 24", "2017-02-01T00:00:00Z"),
            (&["%d.%m.%Y %H:%M"], None, "24.12.2024 24:00", "2024-12-25T00:00:00Z"),
            (&["%Y%m%d%H"], None, "2024022924", "2024-03-01T00:00:00Z"),
            (&[], None, "2024-12-31 24:00", "2025-01-01T00:00:00Z"),
            (&[], None, "2024-12-31T24:00:00Z", "2025-01-01T00:00:00Z"),
            (&[], None, "2024-12-31 7", "2024-12-31T07:00:00Z"),
            (&[], None, "2024-12-31 24", "2025-01-01T00:00:00Z"),
            (&[], Some("Europe/Dublin"), "2024-07-24 24:00", "2024-07-24T23:00:00Z"),
        ];
        for (formats, zone, text, expected) in cases {
            assert_eq!(read(formats, zone, text), expected, "{text}");
        }
    }

    #[test]
    fn local_times_that_came_twice_or_never_are_decided_by_the_user() {
        let zone = Some("Europe/Dublin");
        assert!(read(&[], zone, "2024-10-27T01:30:00").contains("twice"));
        assert!(read(&[], zone, "2024-03-31T01:30:00").contains("skipped"));
        let cases = [
            (Dst::Earlier, "2024-10-27T01:30:00", "2024-10-27T00:30:00Z"),
            (Dst::Later, "2024-10-27T01:30:00", "2024-10-27T01:30:00Z"),
            (Dst::Earlier, "2024-03-31T01:30:00", "2024-03-31T00:30:00Z"),
            (Dst::Later, "2024-03-31T01:30:00", "2024-03-31T01:30:00Z"),
        ];
        for (dst, text, expected) in cases {
            assert_eq!(reader(&[], zone, dst).read(text.as_bytes()).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn what_is_no_time_is_named() {
        assert!(read(&[], None, "31/01/2024").contains("; FORM"));
        assert!(
            read(&[], None, "01/02/24").contains("not a time")
                && read(&[], None, "24-01-31 07:00").contains("not a time")
        );
        assert!(
            read(&[], None, "2024-02-30 24:00").contains("not a time")
                && read(&[], None, "2024-02-24 24:30").contains("not a time")
        );
        assert!(read(&[], None, "2024-02-24T24:30:00Z").contains("not a time"));
        assert!(read(&["ms"], None, "soon").contains("'soon'"));
        assert!(TimeReader::new(&["nonsense".to_owned()], None, Dst::Refuse, None, Hints::default()).is_err());
        let error = TimeReader::new(&[], Some("Europe/Dublim"), Dst::Refuse, None, Hints::default()).unwrap_err();
        assert!(error.contains("Europe/Dublin"), "{error}");
    }
}
