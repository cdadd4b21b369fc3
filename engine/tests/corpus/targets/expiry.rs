//! The arithmetic of expiry and windows against the same in 128 bits.

use super::int;
use arbitrary::{Result, Unstructured};
use ebbtide::ttl::{
    Bucketing, Cutoff, EXPIRE_AFTER_SECONDS_MAX, ExpireAfterContext, Precision, RuleSet, Timestamp, Value, due_instant,
    in_range, parse_expire_after, parse_expire_after_or_off,
};
use ebbtide_buckets::Window;

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

fn check(u: &mut Unstructured<'_>) -> Result<()> {
    let precision = *u.choose(&[Precision::Ms, Precision::Us, Precision::Ns])?;
    let per_second = i128::from(precision.per_second());
    let e = match u.int_in_range(0..=2)? {
        0 => i64::from(u.arbitrary::<u16>()?),
        1 => *u.choose(&[0, 1, EXPIRE_AFTER_SECONDS_MAX])?,
        _ => u.int_in_range(0..=EXPIRE_AFTER_SECONDS_MAX)?,
    };
    let now =
        Timestamp::from_nanos(Timestamp::from_units(int(u)?, precision).nanos() + i128::from(u.arbitrary::<i16>()?));
    let life = i128::from(e) * 1_000_000_000;
    let near = Timestamp::from_nanos(now.nanos() - life)
        .to_units_saturating(precision)
        .saturating_add(i64::from(u.arbitrary::<i8>()?));
    let t = if u.arbitrary()? { int(u)? } else { near };

    let limit = Cutoff::new(now, e, precision);
    let instant = Timestamp::from_units(t, precision);
    assert_eq!(limit.hides(t), instant.nanos() + life <= now.nanos(), "{t} {e} {now}");
    assert_eq!(due_instant(t, e, precision).nanos(), instant.nanos() + life);
    assert_eq!(instant.to_units(precision), Some(t));
    assert_eq!(in_range(t, precision), (0..(1_i128 << 31) * per_second).contains(&i128::from(t)));
    let shown = instant.to_string();
    if let Ok(read) = Timestamp::parse(&shown) {
        assert_eq!(read, instant, "{shown}");
    }

    let seconds = u.int_in_range(1..=31_536_000)?;
    let span = clamp(i128::from(seconds) * per_second);
    let window = Window::of(t, span);
    let start = i128::from(t).div_euclid(i128::from(span)) * i128::from(span);
    assert_eq!((window.start, window.end), (clamp(start), clamp(start + i128::from(span))));
    // A bucket is never due before its last possible measurement is expired.
    let last = window.end.saturating_sub(1).max(t);
    if due_instant(window.end, e, precision) <= now {
        assert!(limit.hides(last) && limit.hides(t));
    }

    let given = super::scalar(u)?;
    for context in [ExpireAfterContext::Create, ExpireAfterContext::CollMod, ExpireAfterContext::CreateIndexes] {
        if let Ok(seconds) = parse_expire_after(&given, context) {
            assert!((0..=EXPIRE_AFTER_SECONDS_MAX).contains(&seconds));
            assert_eq!(given, Value::Int(seconds));
        }
    }
    let _off = parse_expire_after_or_off(&given);
    let _bucketing = Bucketing::parse(None, Some(&given), Some(&given)).map(|b| assert!(b.span_seconds() > 0));
    let rules = RuleSet::new(Some(e));
    assert_eq!(rules.effective(&given).map(|(_, e)| e), Some(e));
    Ok(())
}

/// Texts as times: read or refused, and what is read is shown so that it reads as the same.
fn times(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(read) = Timestamp::parse(text)
        && let Ok(again) = Timestamp::parse(&read.to_string())
    {
        assert_eq!(read, again, "{text}");
    }
}

pub(super) fn run(data: &[u8]) {
    let _too_short = check(&mut Unstructured::new(data));
    times(data);
}
