//! Determines the usual time between two measurements of a series, from which the width of buckets is chosen.

use arrow::array::{Array, RecordBatch};
use std::collections::HashMap;
use std::fmt;

/// Collects the steps of series.
#[derive(Debug, Default)]
pub(super) struct Meter {
    series: HashMap<String, Series>,
    steps: Vec<i128>,
}

#[derive(Debug, Default)]
struct Series {
    last: Option<i128>,
    /// Instants, and whether there are several values at each.
    instants: HashMap<i128, bool>,
}

/// A usual step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    nanos: i128,
}

impl Meter {
    pub(super) fn look(&mut self, batch: &RecordBatch, time: &str, meta: Option<&str>) {
        let Some(times) = batch.column_by_name(time) else { return };
        let metas = meta.and_then(|m| batch.column_by_name(m));
        for row in 0..batch.num_rows() {
            if times.is_null(row) {
                continue;
            }
            let Some(at) = ebbtide_query::output::instant(times.as_ref(), row) else { return };
            let key = metas.and_then(|m| ebbtide_query::output::text(m.as_ref(), row)).unwrap_or_default();
            let series = self.series.entry(key).or_default();
            if let Some(before) = series.last.replace(at.nanos())
                && at.nanos() != before
            {
                self.steps.push((at.nanos() - before).abs());
            }
            series.instants.entry(at.nanos()).and_modify(|several| *several = true).or_insert(false);
        }
    }

    /// A series with several values at most of its instants: possibly several stations in one.
    pub(super) fn crowded(&self) -> Option<String> {
        let is_crowded = |series: &Series| {
            let several = series.instants.values().filter(|several| **several).count();
            series.instants.len() > 1 && several * 2 > series.instants.len()
        };
        self.series.iter().filter(|(_, series)| is_crowded(series)).map(|(name, _)| name.clone()).min()
    }

    /// The median of the steps.
    pub(super) fn step(mut self) -> Option<Step> {
        let middle = self.steps.len() / 2;
        if self.steps.is_empty() {
            return None;
        }
        let (_, median, _) = self.steps.select_nth_unstable(middle);
        Some(Step { nanos: *median })
    }
}

impl Step {
    /// The granularity that fits the step.
    pub(super) fn granularity(self) -> &'static str {
        const SECOND: i128 = 1_000_000_000;
        match self.nanos {
            n if n < 60 * SECOND => "seconds",
            n if n < 3_600 * SECOND => "minutes",
            _ => "hours",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.nanos / 1_000_000_000).unwrap_or(i64::MAX);
        if seconds == 0 {
            return write!(f, "{} ms", self.nanos / 1_000_000);
        }
        f.write_str(&ebbtide_ttl::retention_text(seconds))
    }
}
