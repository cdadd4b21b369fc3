//! Ladders as a plain model: lists of rows, from which every bin is computed anew.

use std::collections::{BTreeMap, BTreeSet};

/// Fields of a row besides its time, meta and number.
pub(crate) const FIELDS: [&str; 4] = ["i", "d", "s", "b"];

/// A value of a field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Field {
    Int(i64),
    Double(f64),
    Text(String),
    Bool(bool),
}

/// A measurement.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) id: i64,
    /// In units of the collection.
    pub(crate) t: i64,
    pub(crate) m: Option<i64>,
    pub(crate) fields: [Option<Field>; 4],
}

/// A rung with the measurements that have decayed into it.
#[derive(Debug, Clone)]
pub(crate) struct Rung {
    /// In seconds.
    pub(crate) step: i64,
    pub(crate) life: Option<i64>,
    pub(crate) decayed: Vec<Row>,
    /// Bins that end here or earlier have lost something.
    pub(crate) gone: i64,
}

/// What a bin shows of a number's field that rounding may change, and what it may not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shown {
    pub(crate) count: usize,
    pub(crate) min: Field,
    pub(crate) max: Field,
    pub(crate) first: (i64, Field),
    pub(crate) last: (i64, Field),
    pub(crate) values: Vec<f64>,
}

/// The bins of a width: by meta and start, how many measurements, and each field.
pub(crate) type Bins = BTreeMap<(Option<i64>, i64), (usize, [Option<Shown>; 4])>;

/// A rung before and after a delete, and its bins that stay although the condition meets them.
type Cut = (Rung, Rung, BTreeSet<(Option<i64>, i64)>);

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) per_second: i64,
    pub(crate) own: Option<i64>,
    /// The rule of the metas 1.
    pub(crate) partial: Option<i64>,
    pub(crate) rows: Vec<Row>,
    /// The fields of which bins keep states; all if none.
    pub(crate) fields: Option<BTreeSet<&'static str>>,
    pub(crate) rungs: Vec<Rung>,
    /// Whether the field `i` has become one of doubles.
    pub(crate) is_wide: bool,
}

impl Field {
    fn order(&self, other: &Field) -> std::cmp::Ordering {
        match (self, other) {
            (Field::Int(a), Field::Int(b)) => a.cmp(b),
            (Field::Double(a), Field::Double(b)) => a.total_cmp(b),
            (Field::Text(a), Field::Text(b)) => a.cmp(b),
            (Field::Bool(a), Field::Bool(b)) => a.cmp(b),
            _ => panic!("{self:?} beside {other:?}"),
        }
    }

    fn number(&self) -> f64 {
        match self {
            Field::Int(i) => *i as f64,
            Field::Double(d) => *d,
            Field::Text(_) | Field::Bool(_) => 0.0,
        }
    }

    fn wide(self) -> Field {
        match self {
            Field::Int(i) => Field::Double(i as f64),
            other => other,
        }
    }
}

fn shown(rows: &[&Row], field: usize, wide: bool) -> Option<Shown> {
    let values: Vec<(i64, Field)> = rows
        .iter()
        .filter_map(|row| Some((row.t, row.fields[field].clone()?)))
        .map(|(t, v)| (t, if wide { v.wide() } else { v }))
        .collect();
    let by_time = |a: &&(i64, Field), b: &&(i64, Field)| a.0.cmp(&b.0).then_with(|| a.1.order(&b.1));
    Some(Shown {
        count: values.len(),
        min: values.iter().map(|v| &v.1).min_by(|a, b| a.order(b))?.clone(),
        max: values.iter().map(|v| &v.1).max_by(|a, b| a.order(b))?.clone(),
        first: values.iter().min_by(by_time)?.clone(),
        last: values.iter().max_by(by_time)?.clone(),
        values: values.iter().map(|v| v.1.number()).collect(),
    })
}

impl Model {
    fn units(&self, seconds: i64) -> i64 {
        seconds.saturating_mul(self.per_second)
    }

    pub(crate) fn is_suspended(&self) -> bool {
        const END_SECONDS: i64 = 2_147_483_648;
        self.rows.iter().any(|row| row.t < 0 || row.t >= self.units(END_SECONDS))
    }

    /// The E of a meta.
    pub(crate) fn e(&self, m: Option<i64>) -> Option<i64> {
        let partial = self.partial.filter(|_| m == Some(1));
        self.own.into_iter().chain(partial).min()
    }

    /// Whether a time is hidden by an E, in units.
    pub(crate) fn hides(&self, t: i64, e: i64, now: i64) -> bool {
        t.checked_add(self.units(e)).is_some_and(|at| at <= now)
    }

    fn has_expired(&self, rung: &Rung, end: i64, now: i64) -> bool {
        !self.is_suspended() && rung.life.is_some_and(|life| self.hides(end, life, now))
    }

    fn bin(&self, t: i64, width: i64) -> i64 {
        t.div_euclid(self.units(width)).saturating_mul(self.units(width))
    }

    /// The end of the bin of a time.
    fn end(&self, t: i64, width: i64) -> i64 {
        (t.div_euclid(self.units(width)) + 1).saturating_mul(self.units(width))
    }

    /// Lets measurements decay that are no longer stored.
    pub(crate) fn decay(&mut self, gone: &[Row], now: i64) {
        for at in 0..self.rungs.len() {
            let rung = &self.rungs[at];
            let end = |row: &Row| self.end(row.t, rung.step);
            let expired = gone.iter().map(end).filter(|end| self.has_expired(rung, *end, now)).max();
            let lost = rung.gone.max(expired.unwrap_or(i64::MIN));
            let kept: Vec<Row> = gone.iter().filter(|row| end(row) > lost).map(|row| self.masked(row)).collect();
            let rung = &mut self.rungs[at];
            rung.gone = lost;
            rung.decayed.extend(kept);
        }
    }

    fn masked(&self, row: &Row) -> Row {
        let mut row = row.clone();
        for (at, field) in FIELDS.iter().enumerate() {
            if self.fields.as_ref().is_some_and(|fields| !fields.contains(field)) {
                row.fields[at] = None;
            }
        }
        row
    }

    /// Drops the bins of rungs that are due, a bucket at a time.
    pub(crate) fn sweep_rungs(&mut self, now: i64) {
        if self.is_suspended() {
            return;
        }
        const SPAN_SECONDS_MAX: i64 = 31_536_000;
        for at in 0..self.rungs.len() {
            let rung = self.rungs[at].clone();
            let width = rung.step * (SPAN_SECONDS_MAX / rung.step).clamp(1, 256);
            let mut buckets: BTreeMap<(Option<i64>, i64), i64> = BTreeMap::new();
            for row in &rung.decayed {
                let end = self.end(row.t, rung.step);
                let last = buckets.entry((row.m, self.bin(row.t, width))).or_insert(end);
                *last = end.max(*last);
            }
            buckets.retain(|_, end| self.has_expired(&rung, *end, now));
            let stays = |row: &Row| !buckets.contains_key(&(row.m, self.bin(row.t, width)));
            let decayed = rung.decayed.iter().filter(|row| stays(row)).cloned().collect();
            let gone = buckets.values().copied().max().unwrap_or(i64::MIN).max(rung.gone);
            self.rungs[at] = Rung { decayed, gone, ..rung };
        }
    }

    /// How many bins of a rung are stored.
    pub(crate) fn stored_bins(&self, at: usize) -> u64 {
        let rung = &self.rungs[at];
        let bins: BTreeSet<_> = rung.decayed.iter().map(|row| (row.m, self.bin(row.t, rung.step))).collect();
        bins.len() as u64
    }

    /// What is shown at `now`: the finest rung that divides the width and has all of a bin.
    pub(crate) fn rollup(&self, width: i64, now: i64) -> Bins {
        let starts: BTreeSet<i64> = self.all_times().map(|t| self.bin(t, width)).collect();
        let mut bins = Bins::new();
        for start in starts {
            let is_whole = |rung: &&Rung| {
                let first_end = start.saturating_add(self.units(rung.step));
                width % rung.step == 0 && !self.has_expired(rung, first_end, now) && first_end > rung.gone
            };
            let Some(rung) = self.rungs.iter().find(is_whole) else { continue };
            let mut by_meta: BTreeMap<Option<i64>, Vec<&Row>> = BTreeMap::new();
            for row in self.rows.iter().chain(&rung.decayed).filter(|row| self.bin(row.t, width) == start) {
                by_meta.entry(row.m).or_default().push(row);
            }
            for (m, rows) in by_meta {
                let fields = std::array::from_fn(|field| shown(&rows, field, self.is_wide && field == 0));
                bins.insert((m, start), (rows.len(), fields));
            }
        }
        bins
    }

    fn all_times(&self) -> impl Iterator<Item = i64> {
        self.rows.iter().chain(self.rungs.iter().flat_map(|rung| &rung.decayed)).map(|row| row.t)
    }

    /// Deletes what a condition on meta and time takes. Returns by step how many bins stay that it meets.
    pub(crate) fn delete(&mut self, m: Option<i64>, time: (i64, i64), field: Option<i64>) -> BTreeMap<i64, u64> {
        let chosen = |row: &Row| {
            let of_field = field.is_none_or(|v| row.fields[0].as_ref().is_some_and(|f| f.number() == v as f64));
            m.is_none_or(|m| row.m == Some(m)) && (time.0..=time.1).contains(&row.t) && of_field
        };
        self.rows.retain(|row| !chosen(row));
        let mut kept = BTreeMap::new();
        let mut finer: Option<Cut> = None;
        for at in 0..self.rungs.len() {
            let before = self.rungs[at].clone();
            let step = self.units(before.step);
            let bin = |row: &Row| (row.m, self.bin(row.t, before.step));
            let live = |rung: &Rung, row: &Row| self.end(row.t, rung.step) > rung.gone;
            let bins: BTreeSet<_> = before.decayed.iter().filter(|row| live(&before, row)).map(bin).collect();
            let meets = |bin: &&(Option<i64>, i64)| {
                m.is_none_or(|m| bin.0 == Some(m))
                    && time.0 <= time.1
                    && bin.1 <= time.1
                    && time.0 < bin.1.saturating_add(step)
            };
            let met: Vec<_> = bins.iter().filter(meets).copied().collect();
            let covers = |start: i64| field.is_none() && time.0 <= start && start.saturating_add(step - 1) <= time.1;
            let (mut after, mut stays) = (before.clone(), BTreeSet::new());
            for one in met {
                let of_one = |rung: &Rung| -> Vec<Row> {
                    let is_of = |row: &&Row| bin(row) == one && live(rung, row);
                    rung.decayed.iter().filter(is_of).cloned().collect()
                };
                if covers(one.1) {
                    after.decayed.retain(|row| bin(row) != one);
                    continue;
                }
                let rebuilt = finer.as_ref().filter(|_| field.is_none());
                let rebuilt = rebuilt.filter(|(finer, ..)| of_one(finer).len() == of_one(&before).len());
                match rebuilt {
                    None => drop(stays.insert(one)),
                    Some((_, finer_after, finer_stays)) => {
                        after.decayed.retain(|row| bin(row) != one);
                        after.decayed.extend(of_one(finer_after));
                        if finer_stays.iter().any(|f| (f.0, f.1.div_euclid(step).saturating_mul(step)) == one) {
                            stays.insert(one);
                        }
                    }
                }
            }
            if !stays.is_empty() {
                kept.insert(before.step, stays.len() as u64);
            }
            self.rungs[at] = after.clone();
            finer = Some((before, after, stays));
        }
        kept
    }

    /// Deletes rows of the collection alone: they decay.
    pub(crate) fn delete_into_ladder(&mut self, m: Option<i64>, time: (i64, i64), now: i64) {
        let chosen = |row: &Row| m.is_none_or(|m| row.m == Some(m)) && (time.0..=time.1).contains(&row.t);
        let gone: Vec<Row> = self.rows.iter().filter(|row| chosen(row)).cloned().collect();
        // What is deleted may have been what suspended expiry, which counts as of before.
        self.decay(&gone, now);
        self.rows.retain(|row| !chosen(row));
    }

    /// The number of bins of removed rungs that are in no finer rung that stays.
    pub(crate) fn losses(&self, steps: &[i64]) -> usize {
        let live = |rung: &Rung, of: i64| {
            let mut counts: BTreeMap<(Option<i64>, i64), usize> = BTreeMap::new();
            for row in &rung.decayed {
                if self.end(row.t, rung.step) > rung.gone {
                    *counts.entry((row.m, self.bin(row.t, of))).or_default() += 1;
                }
            }
            counts
        };
        let stays = |rung: &&Rung| steps.contains(&rung.step);
        let gone = self.rungs.iter().filter(|rung| !stays(rung));
        gone.map(|rung| {
            let finer: Vec<_> =
                self.rungs.iter().filter(stays).filter(|f| f.step < rung.step).map(|f| live(f, rung.step)).collect();
            let held = live(rung, rung.step);
            held.iter().filter(|(bin, count)| finer.iter().all(|finer| finer.get(*bin) != Some(count))).count()
        })
        .sum()
    }

    /// Takes another ladder.
    pub(crate) fn set_ladder(
        &mut self,
        rungs: &[(i64, Option<i64>)],
        fields: Option<BTreeSet<&'static str>>,
        now: i64,
    ) {
        let old = std::mem::take(&mut self.rungs);
        for (step, life) in rungs {
            let made = match old.iter().find(|rung| rung.step == *step) {
                Some(rung) => Rung { life: *life, ..rung.clone() },
                None => {
                    let mut rung = Rung { step: *step, life: *life, decayed: Vec::new(), gone: i64::MIN };
                    if let Some(finer) = old.iter().rev().find(|f| f.step < *step && step % f.step == 0) {
                        let live = |row: &&Row| self.end(row.t, finer.step) > finer.gone;
                        let of_finer: Vec<Row> = finer.decayed.iter().filter(live).cloned().collect();
                        let end = |row: &Row| self.end(row.t, *step);
                        let expired = of_finer.iter().map(end).filter(|end| self.has_expired(&rung, *end, now));
                        rung.gone = expired.max().unwrap_or(i64::MIN);
                        let stays = |row: &&Row| !self.has_expired(&rung, end(row), now);
                        rung.decayed = of_finer.iter().filter(stays).cloned().collect();
                    }
                    rung
                }
            };
            self.rungs.push(made);
        }
        self.fields = fields;
        let masked: Vec<Vec<Row>> =
            self.rungs.iter().map(|rung| rung.decayed.iter().map(|row| self.masked(row)).collect()).collect();
        self.rungs.iter_mut().zip(masked).for_each(|(rung, decayed)| rung.decayed = decayed);
    }
}
