//! Listings: what is stored, under which rule, and when it expires.
//!
//! Counts of measurements are those of visible ones; counts of buckets and bytes are those of what is stored.

use super::{CollectionSnapshot, ScanRequest, TimeRange};
use crate::error::Result;
use crate::segment::Segment;
use crate::segment::bounds::BucketBounds;
use crate::sweep::drop_edit::SIZE_RULE;
use crate::sweep::plan::due_scan::{DueBucket, bound_of, due_buckets, expires_at};
use crate::sweep::size::excess;
use ebbtide_buckets::{BucketId, SegmentReader, time_values};
use ebbtide_ttl::{Cutoff, RuleSet, Timestamp, Value};
use std::collections::BTreeMap;

/// A collection, as `SHOW COLLECTIONS` lists it.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectionInfo {
    /// Its name.
    pub name: String,
    /// Distinct (meta, window) with at least one stored measurement.
    pub buckets: u64,
    /// Visible measurements.
    pub measurements: u64,
    /// Bytes on disk of what is stored, and in memory of what is not sealed yet.
    pub bytes: u64,
    /// The first stored time.
    pub first_time: Option<Timestamp>,
    /// The last stored time.
    pub last_time: Option<Timestamp>,
    /// `active`, or why nothing expires.
    pub state: String,
}

/// A bucket, as `SHOW BUCKETS` lists it.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketInfo {
    /// Its meta; null if there is none.
    pub meta: Value,
    /// Start of its window.
    pub window_start: Timestamp,
    /// End of its window, which is its upper bound.
    pub window_end: Timestamp,
    /// The first stored time.
    pub first_time: Timestamp,
    /// The last stored time.
    pub last_time: Timestamp,
    /// Visible measurements.
    pub measurements: u64,
    /// Bytes on disk, by its share of each segment.
    pub bytes: u64,
    /// Whether all of it lies in segments.
    pub sealed: bool,
    /// The effective rule: `collection`, or an index's name; none if no rule matches.
    pub rule: Option<String>,
    /// The instant from which a sweep drops it; none if no rule matches.
    pub expires_at: Option<Timestamp>,
}

/// A rule, as `SHOW TTL` lists it.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleInfo {
    /// `collection`, or the index's name.
    pub rule: String,
    /// The filter as given; none for the collection's own rule.
    pub filter: Option<Value>,
    /// Its E.
    pub expire_after_seconds: i64,
    /// Buckets for which it is the effective rule.
    pub buckets: u64,
    /// Visible measurements in them.
    pub measurements: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Buckets that a sweep now would drop.
    pub due_buckets: u64,
    /// Measurements in those buckets.
    pub due_measurements: u64,
    /// The instant from which a sweep drops the first of its buckets.
    pub next_expiry: Option<Timestamp>,
    /// The URL of the archive that what it expires is moved to; none if that is deleted.
    pub expire_into: Option<String>,
    /// `active`, or why nothing expires.
    pub state: String,
}

/// What a sweep would drop by one rule of one day's data, as `EXPLAIN EXPIRY` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiryRow {
    /// Midnight, UTC, of the day on which the buckets' windows begin.
    pub day: Timestamp,
    /// `collection`, the index's name, `size` for what is above the collection's `maxBytes`, or `rung <seconds>` for bins.
    pub rule: String,
    /// Buckets.
    pub buckets: u64,
    /// Measurements in them; none in those of bins.
    pub measurements: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// A segment file, as `ebbtide.segments` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The file, by its path in the database's folder.
    pub file: String,
    /// Live rows, visible or not.
    pub rows: u64,
    /// Rows in the file.
    pub rows_written: u64,
    /// Live buckets, or parts of buckets.
    pub buckets: u64,
    /// The file's size in bytes.
    pub bytes: u64,
    /// The first time of its live rows.
    pub first_time: Option<Timestamp>,
    /// The last time of its live rows.
    pub last_time: Option<Timestamp>,
}

/// A bucket with all its pieces.
struct BucketSummary {
    bounds: BucketBounds,
    visible: u64,
    bytes: u64,
    sealed: bool,
    class: Option<(usize, i64)>,
}

impl CollectionSnapshot {
    /// Visible measurements.
    ///
    /// # Errors
    /// Damage in a segment.
    pub fn count(&self) -> Result<u64> {
        self.count_of(&ScanRequest::default())
    }

    /// The rows that a request selects.
    pub(crate) fn count_of(&self, request: &ScanRequest) -> Result<u64> {
        let request = ScanRequest { projection: Some(Vec::new()), ..request.clone() };
        let mut count = 0;
        for unit in self.scan(&request)? {
            if unit.rows_exact() {
                count += unit.rows_estimate();
            } else {
                for batch in unit.read()? {
                    count += batch?.num_rows() as u64;
                }
            }
        }
        Ok(count)
    }

    /// Distinct (meta, window) with at least one stored measurement, expired or not.
    ///
    /// # Errors
    /// Damage in a bucket directory.
    pub fn bucket_count(&self) -> Result<u64> {
        Ok(self.bucket_summaries(|_, _, _, _| Ok(0))?.len() as u64)
    }

    /// `active`, or `suspended: N measurements out of range`.
    #[must_use]
    pub fn state(&self) -> String {
        match self.suspended {
            None => "active".to_owned(),
            Some(count) => format!("suspended: {count} measurements out of range"),
        }
    }

    /// A summary of the collection.
    ///
    /// # Errors
    /// Damage in a segment.
    pub fn info(&self) -> Result<CollectionInfo> {
        let range = self.time_range();
        Ok(CollectionInfo {
            name: self.name().to_owned(),
            buckets: self.bucket_count()?,
            measurements: self.count()?,
            bytes: self.state.bytes(),
            first_time: range.map(|(first, _)| first),
            last_time: range.map(|(_, last)| last),
            state: self.state(),
        })
    }

    /// The first and the last stored time, visible or not; `None` if nothing is stored. Deletes may leave the bounds wider than
    /// what is stored.
    #[must_use]
    pub fn time_range(&self) -> Option<(Timestamp, Timestamp)> {
        let (first, last) = self.stored_times()?;
        Some((self.instant(first), self.instant(last)))
    }

    pub(super) fn instant(&self, t: i64) -> Timestamp {
        Timestamp::from_units(t, self.options().precision)
    }

    /// Stored times from the first to the last.
    pub(crate) fn stored_range(&self, first: i64, last: i64) -> TimeRange {
        TimeRange::of_units(Some(first), Some(last), self.options().precision)
    }

    /// The collection's segment files.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let any = |s: &Segment, t: i64| (s.live().buckets > 0).then(|| self.instant(t));
        let info = |s: &Segment| SegmentInfo {
            file: s.file.relative_path().to_string_lossy().into_owned(),
            rows: s.live().rows,
            rows_written: s.file.meta.rows,
            buckets: u64::from(s.live().buckets),
            bytes: s.file.meta.bytes,
            first_time: any(s, s.live().first_min),
            last_time: any(s, s.live().last_max),
        };
        self.state.segments.values().map(|s| info(s)).collect()
    }

    /// Every bucket, in the order of metas and windows.
    ///
    /// # Errors
    /// Damage in a segment.
    pub fn buckets(&self) -> Result<Vec<BucketInfo>> {
        let info = |(id, whole): (BucketId, BucketSummary)| {
            let bound = bound_of(self.options().expiry, &whole.bounds);
            BucketInfo {
                meta: id.meta.value(),
                window_start: self.instant(id.window.start),
                window_end: self.instant(id.window.end),
                first_time: self.instant(whole.bounds.first),
                last_time: self.instant(whole.bounds.last),
                measurements: whole.visible,
                bytes: whole.bytes,
                sealed: whole.sealed,
                rule: whole.class.and_then(|(rule, _)| self.rules().rule(rule)).map(|view| view.label().to_owned()),
                expires_at: whole.class.map(|(_, e)| expires_at(bound, e, &self.state)),
            }
        };
        Ok(self.bucket_summaries(Self::visible)?.into_iter().map(info).collect())
    }

    /// Every rule with what it covers.
    ///
    /// # Errors
    /// Damage in a segment.
    pub fn rule_infos(&self) -> Result<Vec<RuleInfo>> {
        let mut infos: BTreeMap<usize, RuleInfo> = BTreeMap::new();
        for view in self.rules().iter() {
            let info = RuleInfo {
                rule: view.label().to_owned(),
                filter: view.filter.map(|filter| filter.source().clone()),
                expire_after_seconds: view.expire_after_seconds,
                buckets: 0,
                measurements: 0,
                bytes: 0,
                due_buckets: 0,
                due_measurements: 0,
                next_expiry: None,
                expire_into: self.state.archive_of(view.index).map(str::to_owned),
                state: self.state_of_rule(self.state.archive_of(view.index)),
            };
            infos.insert(view.index, info);
        }
        for whole in self.bucket_summaries(Self::visible)?.into_values() {
            let Some((rule, e)) = whole.class else { continue };
            let Some(info) = infos.get_mut(&rule) else { continue };
            info.buckets += 1;
            info.measurements += whole.visible;
            info.bytes += whole.bytes;
            let at = expires_at(bound_of(self.options().expiry, &whole.bounds), e, &self.state);
            info.next_expiry = Some(info.next_expiry.map_or(at, |next| next.min(at)));
        }
        for (_, due) in due_buckets(&self.state, self.rules(), Some(self.state.rules_epoch), self.now)? {
            if let Some(info) = infos.get_mut(&due.rule) {
                info.due_buckets += 1;
                info.due_measurements += due.rows;
            }
        }
        Ok(infos.into_values().collect())
    }

    /// The state of a rule, with where what it expires goes.
    fn state_of_rule(&self, archive: Option<&str>) -> String {
        let mut state = self.state();
        let failure = if let Some(url) = archive {
            state.push_str(&format!(", into {url}"));
            self.state.archive_failure(url)
        } else if self.options().hand_off {
            state.push_str(", handOff: required");
            self.state.sink.failure()
        } else {
            None
        };
        if let Some(failure) = failure {
            state.push_str(&format!(", failed: {failure}"));
        }
        state
    }

    /// What a sweep at `at` would drop, under the present rules or proposed ones, and then by size, and of the rungs of its ladder.
    /// Nothing is changed.
    ///
    /// # Errors
    /// Damage in a bucket directory.
    pub fn explain_expiry(&self, at: Timestamp, proposed: Option<&RuleSet>) -> Result<Vec<ExpiryRow>> {
        let rules = proposed.unwrap_or(self.rules());
        let epoch = proposed.is_none().then_some(self.state.rules_epoch);
        let mut rows: BTreeMap<(Timestamp, usize), ExpiryRow> = BTreeMap::new();
        let due = due_buckets(&self.state, rules, epoch, at)?;
        let mut excess = excess(&self.state, &due, true)?;
        if let Some(error) = excess.unread.pop() {
            return Err(error);
        }
        // The rule of size comes after all others.
        let by_size = excess.buckets.into_iter().map(|(id, bucket)| (id, DueBucket { rule: usize::MAX, ..bucket }));
        for (id, due) in due.into_iter().chain(by_size) {
            let day = self.day_of(id.window.start);
            let row = rows.entry((day, due.rule)).or_insert_with(|| ExpiryRow {
                day,
                rule: rules.rule(due.rule).map_or_else(|| SIZE_RULE.to_owned(), |view| view.label().to_owned()),
                buckets: 0,
                measurements: 0,
                bytes: 0,
            });
            row.buckets += 1;
            row.measurements += due.rows;
            row.bytes += due.bytes;
        }
        let mut rows: Vec<ExpiryRow> = rows.into_values().collect();
        rows.extend(self.explain_rungs(at)?);
        rows.sort_by_key(|row| row.day); // Which leaves the rules of a day as they are.
        Ok(rows)
    }

    /// Midnight of the day of a time.
    pub(super) fn day_of(&self, t: i64) -> Timestamp {
        const DAY_NANOS: i128 = 86_400 * 1_000_000_000;
        let at = self.instant(t);
        Timestamp::from_nanos(at.nanos().saturating_sub(at.nanos().rem_euclid(DAY_NANOS)))
    }

    /// Buckets with all their pieces; `visible` counts the visible rows of a sealed piece.
    fn bucket_summaries(
        &self,
        visible: impl Fn(&Self, &Segment, (&SegmentReader, usize), (&BucketBounds, Cutoff)) -> Result<u64>,
    ) -> Result<BTreeMap<BucketId, BucketSummary>> {
        let mut bucket_summaries: BTreeMap<BucketId, BucketSummary> = BTreeMap::new();
        let mut add = |id: BucketId, piece: BucketSummary| {
            bucket_summaries
                .entry(id)
                .and_modify(|whole| {
                    whole.bounds.first = whole.bounds.first.min(piece.bounds.first);
                    whole.bounds.last = whole.bounds.last.max(piece.bounds.last);
                    whole.bounds.rows += piece.bounds.rows;
                    whole.visible += piece.visible;
                    whole.bytes += piece.bytes;
                    whole.sealed &= piece.sealed;
                })
                .or_insert(piece);
        };
        for segment in self.state.segments.values().filter(|s| s.live().buckets > 0) {
            let reader = segment.file.reader()?;
            let classes = segment.classes(self.rules(), Some(self.state.rules_epoch))?;
            for (ordinal, meta, bounds) in segment.live_buckets(&reader) {
                let class = classes.of(meta);
                let cutoff = self.cutoff(class.map(|c| c.1));
                let visible = visible(self, segment, (&reader, ordinal), (&bounds, cutoff))?;
                let id = BucketId { meta: segment.meta(&reader, ordinal), window: bounds.window };
                let bytes = segment.share(bounds.rows);
                add(id, BucketSummary { bounds, visible, bytes, sealed: true, class });
            }
        }
        for chunk in self.state.memtable.chunks() {
            let times = ebbtide_buckets::times(&chunk.batch)?;
            let row_bytes = crate::memtable::row_bytes(chunk);
            for bucket in &chunk.buckets {
                let class = self.rules().effective(&bucket.id.meta.value());
                let cutoff = self.cutoff(class.map(|c| c.1));
                let is_visible = |row: &&u32| !cutoff.hides(times[**row as usize]);
                let bounds = BucketBounds::from(bucket);
                let visible = bucket.rows.iter().filter(is_visible).count() as u64;
                let bytes = row_bytes * bucket.rows.len() as u64;
                add(bucket.id.clone(), BucketSummary { bounds, visible, bytes, sealed: false, class });
            }
        }
        Ok(bucket_summaries)
    }

    /// Visible rows of a sealed piece of a bucket: its times are read only if the cut-off lies inside it.
    fn visible(
        &self,
        segment: &Segment,
        (reader, ordinal): (&SegmentReader, usize),
        (bounds, cutoff): (&BucketBounds, Cutoff),
    ) -> Result<u64> {
        if !cutoff.hides(bounds.first) {
            return Ok(bounds.rows);
        }
        if cutoff.hides(bounds.last) {
            return Ok(0);
        }
        let ranges = segment.live_ranges(reader, ordinal);
        let mut count = 0;
        for batch in reader.read(&[self.schema().time.clone()], self.schema(), &ranges, 1 << 13)? {
            let batch = batch?;
            let times = time_values(batch.column(0))?;
            count += (times.len() - cutoff.split(times)) as u64;
        }
        Ok(count)
    }
}
