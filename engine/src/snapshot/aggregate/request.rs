//! What an aggregation is asked for.

use crate::snapshot::scan::MetaFilter;
use crate::snapshot::time_range::TimeRange;
use arrow::array::ArrayRef;
use arrow::error::ArrowError;
use ebbtide_ttl::Timestamp;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// An aggregate of the measurements, or of a numeric top-level field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aggregate {
    /// The number of measurements, an int64.
    Rows,
    /// The number of values that are not null, an int64.
    Count(String),
    /// The sum, in the field's type; null without values.
    Sum(String),
    /// The mean, a double; null without values.
    Avg(String),
    /// The least value.
    Min(String),
    /// The greatest value.
    Max(String),
    /// The value of the measurement with the least time; null if it has none. If several share that time, which one is used is
    /// unspecified.
    First(String),
    /// The value of the measurement with the greatest time, likewise.
    Last(String),
}

impl Aggregate {
    pub(super) fn field(&self) -> Option<&str> {
        match self {
            Aggregate::Rows => None,
            Aggregate::Count(f) | Aggregate::Sum(f) | Aggregate::Avg(f) | Aggregate::Min(f) => Some(f),
            Aggregate::Max(f) | Aggregate::First(f) | Aggregate::Last(f) => Some(f),
        }
    }

    /// The name of its column: `max(temp)`, and `count(*)` for [`Aggregate::Rows`].
    #[must_use]
    pub fn name(&self) -> String {
        let function = match self {
            Aggregate::Rows => return "count(*)".to_owned(),
            Aggregate::Count(_) => "count",
            Aggregate::Sum(_) => "sum",
            Aggregate::Avg(_) => "avg",
            Aggregate::Min(_) => "min",
            Aggregate::Max(_) => "max",
            Aggregate::First(_) => "first",
            Aggregate::Last(_) => "last",
        };
        format!("{function}({})", self.field().unwrap_or_default())
    }
}

/// What to aggregate, over which measurements, and in which groups.
#[derive(Debug, Clone, Default)]
pub struct AggregateRequest {
    /// The aggregates, in the order of their columns, which follow those of the group.
    pub aggregates: Vec<Aggregate>,
    /// The times of the measurements.
    pub time: TimeRange,
    /// Selects metas; all if `None`.
    pub meta: Option<Arc<dyn MetaFilter>>,
    /// Whether each meta forms a group of its own.
    pub by_meta: bool,
    /// With `by_meta`: which metas form one group. The result names one meta of each group.
    pub meta_groups: Option<Arc<dyn MetaGroups>>,
    /// The width of groups in time: a whole number of units of the collection's precision. Groups are aligned to the epoch.
    /// `None` puts all times into one group, unless there are `starts`.
    pub width: Option<Duration>,
    /// A multiple of `width`, which must be set. Bins that are a whole number of periods apart form one group: with a width of one
    /// hour and a period of one day, the groups are the hours of the day. A group starts with its first bin at or after 1970-01-01.
    pub period: Option<Duration>,
    /// In the place of a width: the starts of groups in time, in ascending order, such as those of months. They are whole units of
    /// the collection's precision. A group ends where the next one starts, and the last one never ends. Times before the first
    /// start are not aggregated.
    pub starts: Option<Arc<[Timestamp]>>,
}

impl AggregateRequest {
    /// The member of metas whose values are all that is asked for.
    pub(super) fn member_alone(&self) -> Option<&[String]> {
        let in_time = self.width.is_some() || self.starts.is_some();
        let groups = self.meta_groups.as_ref().filter(|_| self.by_meta && !in_time)?;
        groups.member().filter(|_| self.aggregates.is_empty())
    }

    /// The times of the measurements in groups.
    pub(super) fn grouped_times(&self) -> TimeRange {
        let start = self.starts.as_ref().and_then(|starts| starts.first()).copied();
        TimeRange::new(self.time.first().max(start), self.time.last())
    }
}

/// Puts metas into groups: by a member of the meta, or by anything else computed from it.
pub trait MetaGroups: fmt::Debug + Send + Sync {
    /// The number of each meta's group. `metas` is a column of the meta field without repetitions; groups are numbered
    /// from 0 in the order in which they appear.
    ///
    /// # Errors
    /// Any error; the aggregation fails with it.
    fn group(&self, metas: &ArrayRef) -> Result<Vec<u32>, ArrowError>;

    /// The names that lead to a member of the meta, if that alone decides the group. The engine then finds the groups without
    /// examining every meta, where nothing but the groups is asked for.
    fn member(&self) -> Option<&[String]> {
        None
    }
}
