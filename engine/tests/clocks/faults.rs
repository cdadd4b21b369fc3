//! The faults of clocks, by their numbers in the catalogue of faults.

/// What is wrong with the clock, or with the times that people give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    StepBack,
    JumpAhead,
    AheadAndBack,
    Drift,
    Sleep,
    MonotonicBack,
    FutureRow,
    NoInserts,
    Extremes,
    ShortRule,
}

pub(crate) struct Fault {
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    pub(crate) what: &'static str,
    /// Where the catalogue asks for more than the contract promises: the contract stands.
    pub(crate) beyond: Option<&'static str>,
}

const fn fault(number: u32, kind: Kind, what: &'static str, beyond: Option<&'static str>) -> Fault {
    Fault { number, kind, what, beyond }
}

/// All of them.
pub(crate) static FAULTS: [Fault; 10] = [
    fault(
        46,
        Kind::StepBack,
        "the wall clock steps back",
        Some("reads follow the clock: what was hidden and not dropped is visible again; dropped is dropped"),
    ),
    fault(
        47,
        Kind::JumpAhead,
        "the wall clock jumps ahead",
        Some("reads follow the clock, there is no trusted time; a jump within the tolerance is taken for honest"),
    ),
    fault(48, Kind::AheadAndBack, "the wall clock jumps ahead and back again", None),
    fault(49, Kind::Drift, "the wall clock drifts by up to 500 ppm", None),
    fault(
        50,
        Kind::Sleep,
        "the machine sleeps: wall time goes on, monotonic time does not",
        Some("boot time is not read: a sleep beyond the tolerance is held until somebody confirms the time"),
    ),
    fault(
        51,
        Kind::MonotonicBack,
        "the monotonic clock goes back",
        Some("it is not counted, only taken for none elapsed"),
    ),
    fault(
        52,
        Kind::FutureRow,
        "one row is stamped far ahead",
        Some("it is stored; beyond 2038 it suspends the expiry of its own collection, and says so"),
    ),
    fault(53, Kind::NoInserts, "no new data comes", None),
    fault(54, Kind::Extremes, "clocks and rows at the ends of time", None),
    fault(
        55,
        Kind::ShortRule,
        "a rule is shortened by mistake",
        Some("no drop budget and no trash: a dry run says what would go, and until the sweep it can be taken back"),
    ),
];
