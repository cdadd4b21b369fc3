//! Listings of an ordinary collection: what is stored, under which rule, and when it expires. Its buckets are its segments,
//! and the documents that are in none yet as one.

use super::columns::DocumentColumns;
use super::memtable::{ENTRY_BYTES, Stored};
use super::segment::DocumentSegment;
use super::snapshot::{DocumentsSnapshot, raw};
use crate::error::Result;
use crate::json::value_of;
use crate::snapshot::{CollectionInfo, ExpiryRow, RuleInfo, SegmentInfo};
use ebbtide_documents::json::{relaxed_text, to_relaxed};
use ebbtide_documents::{DefaultTtl, ItemRules};
use ebbtide_ttl::{Timestamp, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// What of one bucket falls under one rule.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    documents: u64,
    visible: u64,
    due: u64,
    bytes: u64,
    first_expiry: Option<Timestamp>,
}

/// Gets each stored document with the segment that it is in, if it is in one.
type Visitor<'v> = &'v mut dyn FnMut(Option<&Arc<DocumentSegment>>, &Stored) -> Result<()>;
/// Parts of what is stored by group, rule and segment.
type Parts<G> = BTreeMap<(G, String, Option<u64>), Part>;

impl DocumentsSnapshot {
    /// Its columns in SQL besides `_ts` and `document`.
    #[must_use]
    pub fn columns(&self) -> &Arc<DocumentColumns> {
        &self.state.columns
    }

    /// A summary of the collection.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn info(&self) -> Result<CollectionInfo> {
        let is_open = self.state.memtable.documents().next().is_some();
        Ok(CollectionInfo {
            name: self.name().to_owned(),
            buckets: self.state.segments.len() as u64 + u64::from(is_open),
            measurements: self.count()?,
            bytes: self.segment_bytes() + self.state.memtable.bytes() as u64,
            first_time: None,
            last_time: None,
            state: "active".to_owned(),
        })
    }

    /// Bytes in memory of what is in no segment.
    #[must_use]
    pub fn open_bytes(&self) -> u64 {
        self.state.memtable.bytes() as u64
    }

    /// The segment files.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let info = |segment: &Arc<DocumentSegment>| SegmentInfo {
            file: segment.file.relative_path().to_string_lossy().into_owned(),
            rows: segment.live_rows(),
            rows_written: segment.file.meta.rows,
            buckets: 1,
            bytes: segment.file.meta.bytes,
            first_time: None,
            last_time: None,
        };
        self.state.segments.values().map(info).collect()
    }

    /// The paths of the segment files, and how many documents are in none yet.
    #[must_use]
    pub fn segment_files(&self) -> (Vec<PathBuf>, u64) {
        let files = self.state.segments.values().map(|segment| segment.file.path.clone()).collect();
        (files, self.state.memtable.documents().count() as u64)
    }

    /// Visits every stored document, expired or not, with the segment that it is in. Those in memory come first.
    fn for_each_stored(&self, visitor: Visitor<'_>) -> Result<()> {
        for (_, stored) in self.state.memtable.documents() {
            visitor(None, stored)?;
        }
        for segment in self.state.segments.values() {
            for row in segment.rows(&self.state.gone(segment))? {
                visitor(Some(segment), &row?.2)?;
            }
        }
        Ok(())
    }

    /// What is stored, by the rule that decides, the group of its expiry, and the bucket.
    fn parts<G: Ord + Copy>(
        &self,
        rules: &ItemRules,
        at: Timestamp,
        group: impl Fn(Timestamp) -> G,
    ) -> Result<Parts<G>> {
        let mut parts: BTreeMap<(G, String, Option<u64>), Part> = BTreeMap::new();
        self.for_each_stored(&mut |segment, stored| {
            let Some((expires, rule)) = rules.expires_at(raw(&stored.document), stored.written) else { return Ok(()) };
            let key = (group(expires), rule.to_string(), segment.map(|segment| segment.id()));
            let part = parts.entry(key).or_default();
            part.documents += 1;
            part.visible += u64::from(expires > self.now);
            part.due += u64::from(expires <= at);
            part.bytes += match segment {
                Some(segment) => segment.share(1),
                None => (stored.document.len() + ENTRY_BYTES) as u64,
            };
            part.first_expiry = Some(part.first_expiry.map_or(expires, |first| first.min(expires)));
            Ok(())
        })?;
        Ok(parts)
    }

    /// Every rule by which documents expire, with what it covers.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn rule_infos(&self) -> Result<Vec<RuleInfo>> {
        let mut infos: Vec<RuleInfo> = Vec::new();
        let parts = self.parts(&self.state.rules, self.now, |_| ())?;
        for rule in self.state.sweep_rules().filter_map(|rule| rule.rule) {
            let filter = self.options().indexes.iter().find(|index| index.name == rule);
            let filter = filter.and_then(|index| index.filter.as_deref()).map(|filter| {
                let filter = raw(filter);
                value_of(&to_relaxed(filter)).unwrap_or_else(|_| Value::String(relaxed_text(filter)))
            });
            let mut info = RuleInfo {
                expire_after_seconds: self.state.seconds_of(&rule).unwrap_or(-1),
                filter,
                buckets: 0,
                measurements: 0,
                bytes: 0,
                due_buckets: 0,
                due_measurements: 0,
                next_expiry: None,
                state: "active".to_owned(),
                rule,
            };
            for ((_, _, bucket), part) in parts.iter().filter(|((_, rule, _), _)| *rule == info.rule) {
                let stored = match bucket.and_then(|id| self.state.segments.get(&id)) {
                    Some(segment) => segment.file.meta.rows - self.state.gone(segment).len(),
                    None => self.state.memtable.documents().count() as u64,
                };
                info.buckets += 1;
                info.measurements += part.visible;
                info.bytes += part.bytes;
                info.due_buckets += u64::from(part.due == stored);
                info.due_measurements += part.due;
                info.next_expiry = info.next_expiry.into_iter().chain(part.first_expiry).min();
            }
            infos.push(info);
        }
        Ok(infos)
    }

    /// What a sweep at `at` would drop, by the day on which it expires, under the present `defaultTTL` or a proposed one. Nothing
    /// is changed. A bucket counts in every row that it has documents of.
    ///
    /// # Errors
    /// Errors of reading.
    pub fn explain_expiry(&self, at: Timestamp, proposed: Option<DefaultTtl>) -> Result<Vec<ExpiryRow>> {
        const DAY_NANOS: i128 = 86_400 * 1_000_000_000;
        let rules = match proposed {
            None => (*self.state.rules).clone(),
            Some(default_ttl) => ItemRules { default_ttl, ..(*self.state.rules).clone() },
        };
        // What is not due goes to a group of its own.
        let group = |expires: Timestamp| {
            (expires <= at).then(|| Timestamp::from_nanos(expires.nanos() - expires.nanos().rem_euclid(DAY_NANOS)))
        };
        let mut rows: BTreeMap<(Timestamp, String), ExpiryRow> = BTreeMap::new();
        for ((day, rule, _), part) in self.parts(&rules, at, group)? {
            let Some(day) = day else { continue };
            let none = ExpiryRow { day, rule: rule.clone(), buckets: 0, measurements: 0, bytes: 0 };
            let row = rows.entry((day, rule)).or_insert(none);
            row.buckets += 1;
            row.measurements += part.documents;
            row.bytes += part.bytes;
        }
        Ok(rows.into_values().collect())
    }
}
