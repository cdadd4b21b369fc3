//! Which segments share no bucket with anything else.

use crate::segment::{Class, Segment};
use std::collections::HashMap;

/// The windows of a segment, from the first start to the last end.
pub(super) type Interval = (i64, i64);

/// Which segments overlap, in their windows, others that may hold pieces of the same buckets.
#[derive(Default)]
pub(super) struct Overlaps {
    by_class: HashMap<Class, Intervals>,
}

impl Overlaps {
    /// Whether a segment of this class with these windows shares no bucket with anything else. `all` gives the windows of
    /// everything that may hold buckets of the class, the segment included; it is asked once for each class.
    pub(super) fn is_alone(&mut self, class: Class, interval: Interval, all: impl FnOnce() -> Vec<Interval>) -> bool {
        self.by_class.entry(class).or_insert_with(|| Intervals::new(all())).is_alone(interval)
    }
}

pub(super) fn window_interval(segment: &Segment) -> Interval {
    (segment.live().window_start_min, segment.live().window_end_max)
}

/// Windows sorted by start, each with the greatest end before it.
struct Intervals {
    sorted: Vec<Interval>,
    end_before: Vec<i64>,
}

impl Intervals {
    fn new(mut sorted: Vec<Interval>) -> Self {
        sorted.sort_unstable();
        let mut end = i64::MIN;
        let end_before = sorted
            .iter()
            .map(|interval| {
                let before = end;
                end = end.max(interval.1);
                before
            })
            .collect();
        Intervals { sorted, end_before }
    }

    /// Whether one of the intervals overlaps no other.
    fn is_alone(&self, interval: Interval) -> bool {
        let at = self.sorted.partition_point(|other| *other < interval);
        assert_eq!(self.sorted.get(at), Some(&interval), "a segment is among those that may hold its buckets");
        let next_overlaps = self.sorted.get(at + 1).is_some_and(|next| next.0 < interval.1);
        let earlier_overlaps = self.end_before.get(at).is_some_and(|end| *end > interval.0);
        !next_overlaps && !earlier_overlaps
    }
}
