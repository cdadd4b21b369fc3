//! Many buckets of few rows: series s0, s1, ... with one measurement in each window.

use crate::Result;
use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringViewArray, TimestampMillisecondArray};
use ebbtide::{Collection, Database};
use std::sync::Arc;

/// The width of a window in milliseconds: the default of a collection.
pub const WINDOW_MS: i64 = 3_600_000;
/// 2024-01-01T00:00:00Z in milliseconds.
pub const START_MS: i64 = 1_704_067_200_000;

/// A number of series with one measurement in each of a number of windows, inserted in batches of `rows`.
#[derive(Debug, Clone, Copy)]
pub struct Fleet {
    /// Number of series.
    pub series: usize,
    /// Windows per series.
    pub windows: usize,
}

impl Fleet {
    /// Number of buckets.
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.series * self.windows
    }

    /// Inserts all measurements and seals them.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn fill(&self, db: &Database, collection: &Collection) -> Result<()> {
        let all = self.buckets();
        let mut from = 0;
        while from < all {
            let to = (from + 50_000).min(all);
            collection.insert(&self.batch(from, to)?)?;
            from = to;
        }
        Ok(db.flush()?)
    }

    #[expect(clippy::cast_precision_loss, clippy::cast_possible_wrap, reason = "numbers of rows are small")]
    fn batch(&self, from: usize, to: usize) -> Result<RecordBatch> {
        let time = |row: usize| START_MS + (row / self.series) as i64 * WINDOW_MS;
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("t", Arc::new(TimestampMillisecondArray::from_iter_values((from..to).map(time)))),
            (
                "sensor",
                Arc::new(StringViewArray::from_iter_values((from..to).map(|row| format!("s{}", row % self.series)))),
            ),
            ("v", Arc::new(Float64Array::from_iter_values((from..to).map(|row| (row % 1000) as f64 / 10.0)))),
        ];
        Ok(RecordBatch::try_from_iter(columns)?)
    }
}
