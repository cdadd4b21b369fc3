//! When measurements expire: rules, partial filters, expiry arithmetic, sweep planning and clocks.
//!
//! Nothing here does I/O. A decision is a pure function of rules, metas, time bounds and one reading of a clock, so a
//! year of retention is tested in a millisecond.
//!
//! ```
//! use ebbtide_ttl::{Cutoff, Filter, Precision, RuleSet, RuleSpec, Timestamp, Value};
//!
//! // A collection keeps a day; what matches `sensor = "hq"` keeps an hour.
//! let mut rules = RuleSet::new(Some(86_400));
//! let filter = Filter::eq("sensor", Value::from("hq"));
//! rules.create(vec![RuleSpec::new("hq", 3_600, filter)])?;
//! let (_, seconds) = rules.effective(&Value::from("hq")).expect("a rule matches");
//! assert_eq!(seconds, 3_600);
//!
//! let now = Timestamp::from_millis(10_000_000);
//! let cutoff = Cutoff::new(now, seconds, Precision::Ms);
//! assert!(cutoff.hides(10_000_000 - 3_600_000)); // exactly an hour old
//! assert!(!cutoff.hides(10_000_000 - 3_599_999));
//! # Ok::<(), ebbtide_ttl::RuleError>(())
//! ```

mod clock;
mod code;
mod expiry;
mod filter;
mod guard;
mod ladder;
mod pass;
mod retention;
mod rule;
mod time;
mod value;

pub use clock::{Clock, SystemClock, VirtualClock};
pub use code::{Code, RuleError};
pub use expiry::{
    Bucketing, Cutoff, ExpiryMode, Granularity, IdPolicy, OutOfRange, SPAN_SECONDS_MAX, due_instant, in_range,
};
pub use filter::{Comparison, FILTER_DEPTH_MAX, Filter};
pub use guard::{ClockGuard, ClockJump};
pub use ladder::{Ladder, RUNG_RULE, Rung};
pub use pass::{Parameters, PassReport, PassTarget, RuleRef, Visit, VisitLimit, run_pass};
pub use retention::{parse_retention, retention_text, unit_seconds};
pub use rule::{
    COLLECTION_RULE, Created, EXPIRE_AFTER_SECONDS_MAX, ExpireAfterContext, PartialRule, RuleChange, RuleSelector,
    RuleSet, RuleSpec, RuleView, checked_index_name, parse_expire_after, parse_expire_after_or_off, parse_expire_into,
    parse_grace, parse_keep, parse_max_bytes,
};
pub use time::{Precision, Timestamp};
pub use value::{
    Name, TypeClass, Value, decimal_fits_double, exact_int, inexact_integer, int_fits_double, may_be_rounded,
};
