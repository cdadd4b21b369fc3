//! Local times that occur twice or are skipped when clocks change: decides which instants the rows of a series are, and
//! counts the decisions.

use ebbtide_ttl::Timestamp;
use std::collections::HashMap;

/// How local times that are ambiguous or skipped when clocks change are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dst {
    /// As errors.
    Refuse,
    /// As the earlier of the two possible instants.
    Earlier,
    /// As the later one.
    Later,
    /// By the order of the rows of a series: an ambiguous time is the earlier instant if that comes after the row before,
    /// else the later one. Skipped times are read as the later instant.
    Infer,
}

/// Numbers of local times that were decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Read as the earlier of two instants.
    pub earlier: u64,
    /// Read as the later of two instants.
    pub later: u64,
    /// How many of the earlier ones occur only once, so that the order of the rows does not decide.
    pub once: u64,
    /// Local times that do not exist.
    pub skipped: u64,
}

/// What is known about a series when its next time is read.
#[derive(Debug, Clone, Default)]
pub struct Series {
    last: Option<Timestamp>,
    /// Whether times decrease.
    falling: bool,
    /// Numbers of times in the current repeated hour that were read, by the order of the rows, as its first and as its
    /// second pass.
    first: u64,
    second: u64,
    /// The decisions so far.
    pub counts: Counts,
}

impl Series {
    /// A time with a single instant.
    pub fn certain(&mut self, time: Timestamp) {
        self.close();
        if let Some(last) = self.last.filter(|last| *last != time) {
            self.falling = time < last;
        }
        self.last = Some(time);
    }

    /// A local time with two possible instants.
    pub fn decide(&mut self, earlier: Timestamp, later: Timestamp, dst: Dst) -> Timestamp {
        let is_earlier = match dst {
            Dst::Later => false,
            Dst::Infer => {
                let goes_on = |time: Timestamp| match self.last {
                    Some(last) if self.falling => time < last,
                    Some(last) => time > last,
                    None => true,
                };
                let is_first = if self.falling { goes_on(later) } else { goes_on(earlier) };
                *(if is_first { &mut self.first } else { &mut self.second }) += 1;
                is_first != self.falling
            }
            Dst::Refuse | Dst::Earlier => true,
        };
        *(if is_earlier { &mut self.counts.earlier } else { &mut self.counts.later }) += 1;
        let time = if is_earlier { earlier } else { later };
        self.last = Some(time);
        time
    }

    /// Ends the repeated hour.
    fn close(&mut self) {
        if self.second == 0 {
            self.counts.once += self.first;
        }
        (self.first, self.second) = (0, 0);
    }
}

/// All series of an import.
#[derive(Debug, Default)]
pub struct Folds {
    series: HashMap<Vec<u8>, Series>,
    counts: Counts,
}

impl Folds {
    /// The series with this key; the key is empty if nothing depends on the order of rows.
    pub fn series(&mut self, key: &[u8]) -> &mut Series {
        self.series.entry(key.to_vec()).or_default()
    }

    /// Starts another file, which has its own order of rows.
    pub fn next_file(&mut self) {
        for (_, mut series) in self.series.drain() {
            series.close();
            let (all, one) = (&mut self.counts, series.counts);
            all.earlier += one.earlier;
            all.later += one.later;
            all.once += one.once;
            all.skipped += one.skipped;
        }
    }

    /// Starts reading the files again.
    pub fn restart(&mut self) {
        *self = Folds::default();
    }

    /// The decisions so far.
    pub fn counts(&mut self) -> Counts {
        self.next_file();
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text_table::times::{Hints, TimeReader};

    fn read(times: &[&str]) -> (Vec<String>, Counts) {
        let reader = TimeReader::new(&[], Some("Europe/Dublin"), Dst::Infer, None, Hints::default()).unwrap();
        let mut folds = Folds::default();
        let instants = times.iter().map(|t| {
            let time = reader.read_in(t.as_bytes(), folds.series(b"")).unwrap();
            time.to_string()[11..16].to_owned()
        });
        let instants = instants.collect();
        (instants, folds.counts())
    }

    #[test]
    fn the_order_of_rows_decides_the_hour_that_comes_twice() {
        let night = ["00:30", "01:00", "01:30", "01:00", "01:30", "02:00"].map(|t| format!("2024-10-27 {t}"));
        let rising: Vec<&str> = night.iter().map(String::as_str).collect();
        let expected = ["23:30", "00:00", "00:30", "01:00", "01:30", "02:00"].map(str::to_owned).to_vec();
        let counts = Counts { earlier: 2, later: 2, ..Counts::default() };
        assert_eq!(read(&rising), (expected.clone(), counts));
        let newest: Vec<&str> = ["2024-10-27 03:00"].into_iter().chain(rising.into_iter().rev()).collect();
        let mut falling = expected;
        falling.push("03:00".to_owned());
        falling.reverse();
        assert_eq!(read(&newest), (falling, counts));
        let once = ["2024-10-27 00:00", "2024-10-27 01:00", "2024-10-27 02:00"];
        let counts = Counts { earlier: 1, once: 1, ..Counts::default() };
        assert_eq!(read(&once), (vec!["23:00".into(), "00:00".into(), "02:00".into()], counts));
    }
}
