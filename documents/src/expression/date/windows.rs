//! Windows of time within which an operator on dates gives the same value.

use super::super::Node;
use super::units::Unit;
use super::{Zone, midnight, reference};
use bson::raw::RawBson;

/// Windows of a named time zone: since 1973 its offsets and their changes are multiples of a minute.
const NAMED_ZONE_MS: i64 = 60_000;
/// 1973-01-01.
const NAMED_ZONE_SINCE: i64 = 94_694_400_000;
const DAY_MS: i64 = 86_400_000;

/// Whether the operator gives a part of a date that is the same in a window of time, or a date cut down.
pub(crate) fn is_date_operator(name: &str) -> bool {
    unit_of_part(name).is_some() || matches!(name, "$dateTrunc" | "$dateToString")
}

/// Whether the operator gives a part of a date.
pub(crate) fn is_part_of_date(name: &str) -> bool {
    unit_of_part(name).is_some() || name == "$millisecond"
}

fn unit_of_part(name: &str) -> Option<Unit> {
    Some(match name {
        "$year" | "$month" | "$dayOfMonth" | "$dayOfYear" | "$dayOfWeek" | "$isoDayOfWeek" | "$isoWeek"
        | "$isoWeekYear" | "$week" => Unit::Day,
        "$hour" => Unit::Hour,
        "$minute" => Unit::Minute,
        "$second" => Unit::Second,
        _ => return None,
    })
}

/// The width of windows, aligned to 1970, within which an operator of a time gives one value, and the instant from which on that
/// is so, in milliseconds. Nothing if it is of something else, if its other arguments are no constants, or if a width is not
/// known.
pub(crate) fn date_width(name: &str, arguments: &[Node], is_time: &dyn Fn(&Node) -> bool) -> Option<(i64, i64)> {
    let (time, width, zone) = match (name, arguments) {
        ("$dateTrunc", [given, unit, bins, zone, start]) => {
            constant(start)?;
            let bins = match constant(bins)? {
                Some(RawBson::Undefined) => 1,
                Some(bins) => crate::whole_number(bins.as_raw_bson_ref()).filter(|bins| *bins > 0)?,
                None => return None,
            };
            (given, width_of_bins(Unit::of(name, constant(unit)?, 0, 0).ok()?, bins)?, constant(zone)?.clone())
        }
        ("$dateToString", [given, format, zone, on_null]) => {
            constant(on_null)?;
            let Some(RawBson::String(format)) = constant(format)? else { return None };
            (given, width_of_format(format)?, constant(zone)?.clone())
        }
        (name, [given, zone]) => (given, width_of_bins(unit_of_part(name)?, 1)?, constant(zone)?.clone()),
        (name, [given]) => (given, width_of_bins(unit_of_part(name)?, 1)?, Some(RawBson::Undefined)),
        _ => return None,
    };
    if !is_time(time) {
        return None;
    }
    Some(match super::zone_of(&zone).ok()? {
        Zone::Fixed(seconds) => (gcd(width, i64::from(seconds) * 1000), i64::MIN),
        Zone::Named(chrono_tz::UTC) => (width, i64::MIN),
        Zone::Named(_) => (gcd(width, NAMED_ZONE_MS), NAMED_ZONE_SINCE),
    })
}

fn constant(node: &Node) -> Option<&Option<RawBson>> {
    match node {
        Node::Constant(value) => Some(value),
        _ => None,
    }
}

/// In UTC: the width of bins, or of one unit where bins are not aligned to 1970.
fn width_of_bins(unit: Unit, bins: i64) -> Option<i64> {
    let Some(unit) = unit.millis() else { return Some(DAY_MS) };
    let width = unit.checked_mul(bins)?;
    let origin = midnight(reference()).and_utc().timestamp_millis();
    Some(if origin % width == 0 { width } else { unit })
}

fn width_of_format(format: &str) -> Option<i64> {
    let mut width = DAY_MS;
    let mut characters = format.chars();
    while let Some(c) = characters.next() {
        if c == '%' {
            let of_part = match characters.next()? {
                'H' => Unit::Hour,
                'M' => Unit::Minute,
                'S' => Unit::Second,
                'Y' | 'm' | 'd' | 'j' | 'w' | 'u' | 'U' | 'V' | 'G' | 'z' | 'Z' | '%' => continue,
                _ => return None,
            };
            width = width.min(of_part.millis()?);
        }
    }
    Some(width)
}

pub(crate) fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}
