//! Work on many bins by several threads, each with a part of the fields.

use super::{BinField, Bins};
use crate::parallel::threads;

impl Bins {
    /// Threads for work on this many rows.
    fn threads(&self, rows: u64) -> usize {
        let threads = if self.all_cores { threads(rows) } else { 1 };
        threads.min(self.fields.len()).max(1)
    }

    /// Adds rows by calling `add` with all bins, or on several threads, if there are many rows, with all bins of a part of the
    /// fields each. `add` has to add the same rows to each part. After an error the bins have no meaning.
    ///
    /// # Errors
    /// Those of `add`.
    pub fn add_in_parts<E: Send>(
        &mut self,
        rows: u64,
        add: impl Fn(&mut Bins) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let threads = self.threads(rows);
        if threads == 1 {
            return add(self);
        }
        let in_part = self.fields.len().div_ceil(threads);
        let mut parts = Vec::with_capacity(threads);
        while self.fields.len() > in_part {
            let fields = self.fields.split_off(self.fields.len() - in_part);
            parts.push(Bins { fields, ..self.without_fields() });
        }
        std::thread::scope(|scope| {
            let add = &add;
            let others: Vec<_> = parts.iter_mut().map(|part| scope.spawn(move || add(part))).collect();
            let mut outcome = add(self);
            for other in others {
                outcome = outcome.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            outcome
        })?;
        self.fields.extend(parts.into_iter().rev().flat_map(|part| part.fields));
        Ok(())
    }

    fn without_fields(&self) -> Bins {
        Bins {
            keys: self.keys.clone(),
            numbers: self.numbers.clone(),
            spans: self.spans.clone(),
            slots: self.slots.clone(),
            ids: self.ids.clone(),
            rows: self.rows.clone(),
            fields: Vec::new(),
            ..*self
        }
    }

    /// Does work for each field, with its index and the number of bins, on several threads if it is about many rows.
    pub(super) fn each_field(&mut self, rows: u64, work: impl Fn(usize, &mut BinField, usize) + Sync) {
        let (bins, threads) = (self.len(), self.threads(rows));
        let in_part = self.fields.len().div_ceil(threads).max(1);
        let each = |part: usize, fields: &mut [BinField]| {
            fields.iter_mut().enumerate().for_each(|(at, field)| work(part * in_part + at, field, bins));
        };
        if threads == 1 {
            return each(0, &mut self.fields);
        }
        std::thread::scope(|scope| {
            let each = &each;
            for (part, fields) in self.fields.chunks_mut(in_part).enumerate() {
                scope.spawn(move || each(part, fields));
            }
        });
    }
}
