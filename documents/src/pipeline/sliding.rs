//! Accumulators over windows that slide: each document is taken once, and taken away once.

use super::Result;
use crate::expression::accumulator::{Kind, number};
use crate::expression::total::{Exact, Total};
use crate::expression::{Value, is_nothing};
use crate::order::compare;
use crate::stop::Stop;
use bson::raw::RawBson;
use std::collections::VecDeque;

/// What an accumulator keeps of a window, to which documents come at its end and leave at its beginning.
trait Sliding {
    fn enter(&mut self, at: usize);
    fn leave(&mut self, at: usize);
    fn result(&self) -> Result<RawBson>;
}

/// The values of an accumulator over each of the windows; nothing if it cannot be had so with the same result.
pub(super) fn slid(
    kind: &Kind,
    values: &[Value],
    bounds: &[(usize, usize)],
    stop: Stop<'_>,
) -> Result<Option<Vec<Value>>> {
    if !bounds.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1) {
        return Ok(None);
    }
    let by = |state: &mut dyn Sliding| slide(state, bounds, stop).map(Some);
    match kind {
        Kind::Count => Ok(Some(bounds.iter().map(|(low, high)| Some(number((high - low) as u64))).collect())),
        Kind::Sum | Kind::Avg if Total::is_exact_for(values) => {
            by(&mut Sum { values, total: Total::default(), is_mean: *kind == Kind::Avg })
        }
        Kind::Min | Kind::Max => by(&mut Best { values, candidates: VecDeque::new(), is_min: *kind == Kind::Min }),
        _ => Ok(None),
    }
}

fn slide(state: &mut dyn Sliding, bounds: &[(usize, usize)], stop: Stop<'_>) -> Result<Vec<Value>> {
    let (mut entered, mut left) = (0, 0);
    let mut found = Vec::with_capacity(bounds.len());
    for (low, high) in bounds {
        stop.check()?;
        // Documents between two windows enter and leave too.
        for at in entered..*high {
            state.enter(at);
        }
        entered = entered.max(*high);
        for at in left..*low {
            state.leave(at);
        }
        left = left.max(*low);
        found.push(Some(state.result()?));
    }
    Ok(found)
}

struct Sum<'a> {
    values: &'a [Value],
    total: Total<Exact>,
    is_mean: bool,
}

impl Sliding for Sum<'_> {
    fn enter(&mut self, at: usize) {
        if let Some(value) = &self.values[at] {
            self.total.take(value.as_raw_bson_ref());
        }
    }

    fn leave(&mut self, at: usize) {
        if let Some(value) = &self.values[at] {
            self.total.remove(value.as_raw_bson_ref());
        }
    }

    fn result(&self) -> Result<RawBson> {
        Ok(if self.is_mean { self.total.mean() } else { self.total.sum() })
    }
}

/// The least or the greatest value.
struct Best<'a> {
    values: &'a [Value],
    /// Documents none of which is followed by one that is better, the best first; of equal ones the earliest.
    candidates: VecDeque<usize>,
    is_min: bool,
}

impl Sliding for Best<'_> {
    fn enter(&mut self, at: usize) {
        let value = &self.values[at];
        let (Some(new), false) = (value, is_nothing(value)) else { return };
        while let Some(Some(old)) = self.candidates.back().map(|last| &self.values[*last]) {
            let order = compare(new.as_raw_bson_ref(), old.as_raw_bson_ref());
            let is_better = if self.is_min { order.is_lt() } else { order.is_gt() };
            if !is_better {
                break;
            }
            self.candidates.pop_back();
        }
        self.candidates.push_back(at);
    }

    fn leave(&mut self, at: usize) {
        if self.candidates.front() == Some(&at) {
            self.candidates.pop_front();
        }
    }

    fn result(&self) -> Result<RawBson> {
        let best = self.candidates.front().and_then(|at| self.values[*at].clone());
        Ok(best.unwrap_or(RawBson::Null))
    }
}

#[cfg(test)]
mod tests;
